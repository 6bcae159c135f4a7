//! What the journal says, replayed from the beginning, is what every node believes; and so is a snapshot with what follows it.
//!
//! `chain` compares what entries brought about; here the whole states are compared, because something that was lost may lie
//! quiet for a long time before it changes what an entry does. At the end the journals on disk are read: each must have
//! everything that its node applied before it took a snapshot, and say the same as the others.

use std::collections::{BTreeMap, BTreeSet};

use loadline_state_machine::{JournalEntry, LogIndex, State};

use super::Invariant;
use crate::record::{Applied, Journalled, Place, Seen, Sighting};
use crate::world::node::host;

/// How often two whole states are compared that nothing has happened to. It takes longer than anything else here.
const COMPARED_EVERY: u64 = 16;

#[derive(Debug, Default)]
pub(super) struct Replay {
    replayed: State,
    /// After each index, as the first node had it. Tables are shared, so this costs little more than the last one.
    states: BTreeMap<u64, State>,
    /// Nodes that have a state which came out of a snapshot and was not compared since.
    restored: BTreeMap<Place, bool>,
    /// What each process has applied since it took a snapshot.
    applied: BTreeMap<(Place, u64), Vec<u64>>,
    /// What each node's journal must have on its disk: what a process applied before it took a snapshot. What it took in
    /// as somebody else's snapshot is not among it, nor what it lost with its power before.
    kept: BTreeMap<Place, BTreeSet<u64>>,
    /// Hosts on whose disks a bit was turned.
    rotten: BTreeSet<String>,
}

impl Replay {
    fn replay(&mut self, applied: &Applied) -> Result<(), String> {
        let index = LogIndex(applied.index.0);
        let entry = JournalEntry::decode(&applied.entry)
            .map_err(|error| format!("what the journal keeps of {index} cannot be read: {error}"))?;
        let again = entry.apply_to(&mut self.replayed, index);
        if again.hash == applied.hash {
            return Ok(());
        }
        Err(format!("replayed from the journal, {index} has hash {}, and it was {}", again.hash, applied.hash))
    }

    fn applied(&mut self, applied: &Applied) -> Result<(), String> {
        let index = applied.index.0;
        let whole = self.restored.insert(applied.node, false) == Some(true) || index.is_multiple_of(COMPARED_EVERY);
        self.applied.entry((applied.node, applied.life)).or_default().push(index);
        let Some(live) = self.states.get(&index) else {
            self.replay(applied)?;
            self.states.insert(index, applied.state.clone());
            return if whole && self.replayed != applied.state {
                Err(format!(
                    "replayed from the journal, the state at {index} is another one than on n{}",
                    applied.node + 1
                ))
            } else {
                Ok(())
            };
        };
        if whole && *live != applied.state {
            return Err(format!(
                "at {index} n{} believes something else than the first who applied it",
                applied.node + 1
            ));
        }
        Ok(())
    }

    fn journal(&self, node: Place, kept: &Result<Vec<Journalled>, String>) -> Result<(), String> {
        let n = node + 1;
        let kept = kept.as_ref().map_err(|error| format!("what n{n} has on its disk cannot be read: {error}"))?;
        let kept: BTreeMap<u64, &Journalled> = kept.iter().map(|record| (record.index, record)).collect();
        for (index, record) in &kept {
            if let Some(state) = self.states.get(index)
                && state.hash() != record.hash
            {
                return Err(format!(
                    "the journal of n{n} has hash {} at {index}, and it was {}",
                    record.hash,
                    state.hash()
                ));
            }
        }
        let missing = self.kept.get(&node).and_then(|must| must.iter().find(|index| !kept.contains_key(index)));
        match missing {
            Some(missing) => Err(format!("the journal of n{n} has no {missing}, and a snapshot counted on it")),
            None => Ok(()),
        }
    }
}

impl Invariant for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        match &sighting.what {
            Seen::Applied(applied) => self.applied(applied),
            Seen::Replaced { node, state, .. } => {
                self.restored.insert(*node, true);
                match self.states.get(&state.applied().0) {
                    Some(live) if live != state.as_ref() => Err(format!(
                        "the snapshot at {} that n{} took in is not the state of then",
                        state.applied(),
                        node + 1
                    )),
                    _ => Ok(()),
                }
            }
            Seen::SnapshotBuilt { node, life } => {
                let applied = self.applied.remove(&(*node, *life)).unwrap_or_default();
                self.kept.entry(*node).or_default().extend(applied);
                Ok(())
            }
            Seen::Removed { node } => {
                // It comes back with an empty disk.
                self.kept.remove(node);
                self.applied.retain(|(place, _), _| place != node);
                self.rotten.remove(&host(*node));
                Ok(())
            }
            Seen::Deed(words) if words.starts_with("a bit is wrong") => {
                self.rotten.extend(words.rsplit(' ').next().map(str::to_owned));
                Ok(())
            }
            // A journal that lost its last block to a wrong bit has a hole where nobody is to blame.
            Seen::Journal { node, .. } if self.rotten.contains(&host(*node)) => Ok(()),
            Seen::Journal { node, kept } => self.journal(*node, kept),
            _ => Ok(()),
        }
    }
}

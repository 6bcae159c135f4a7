//! Applies the journal of a node that is not running once more from its beginning, and compares the hash after every entry.
//!
//! One thread unpacks and decodes while the other applies: applying is what takes long, and nothing of it can be done ahead.
//!
//! Not here: replaying to an index, or from a snapshot; and asking what would have been with other rules.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use loadline_log::{Journal, JournalError, JournalOptions, OpenError, RealDisk};
use loadline_raft_node::JournalEntry;
use loadline_state_machine::{DecodeError, Hash, LogIndex, State, apply, pass};

/// Bytes of records that are unpacked at once, and how many such parts wait to be applied.
const PART_BYTES: usize = 1 << 20;
const PARTS_AHEAD: usize = 4;

/// Why the journal could not be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("cannot open the data folder; is the node still running?")]
    Open(#[source] OpenError),
    #[error("cannot read the journal")]
    Journal(#[source] JournalError),
    #[error("entry {index} of the journal cannot be decoded")]
    Entry { index: u64, source: DecodeError },
    #[error(
        "the journal begins with entry {first}: what was before came as a snapshot, so nothing can be applied from the start"
    )]
    Begins { first: u64 },
    #[error("entry {index} gives the hash {ours}, and the journal has {theirs}")]
    Differs { index: u64, ours: Hash, theirs: Hash },
}

/// What a replay came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    pub entries: u64,
    /// Of the last one.
    pub hash: Hash,
}

/// An entry of the journal, with the hash that it had when it was applied first.
#[derive(Debug)]
pub struct Replayable {
    pub index: u64,
    pub entry: JournalEntry,
    pub hash: Hash,
}

impl Replayable {
    /// Applies it, and gives the hash after it.
    pub fn apply_to(&self, state: &mut State) -> Hash {
        let index = LogIndex(self.index);
        match &self.entry {
            JournalEntry::Blank => pass(state, index, &[]).hash,
            JournalEntry::Membership(payload) => pass(state, index, payload).hash,
            JournalEntry::Requests(sealed) => apply(state, index, sealed).hash,
        }
    }
}

/// The journal of a node that is not running.
#[derive(Debug)]
pub struct History {
    journal: Journal,
}

type Part = Result<Vec<Replayable>, ReplayError>;

impl History {
    /// Takes the folder for this process, as a node would.
    pub fn open(data_dir: &Path) -> Result<History, ReplayError> {
        let disk = RealDisk::open(data_dir).map_err(ReplayError::Open)?;
        let journal = Journal::open(Arc::new(disk), JournalOptions::default()).map_err(ReplayError::Journal)?;
        match journal.first_index() {
            Some(first) if first > 1 => Err(ReplayError::Begins { first }),
            _ => Ok(History { journal }),
        }
    }

    /// Applies every entry to an empty state. `tell` hears how many there were so far.
    pub fn replay(&self, mut tell: impl FnMut(u64)) -> Result<Replayed, ReplayError> {
        let (parts, coming) = sync_channel::<Part>(PARTS_AHEAD);
        std::thread::scope(|scope| {
            // The sender goes with the thread, which ends the other side.
            scope.spawn(move || self.read_into(&parts));
            apply_all(coming, &mut tell)
        })
    }

    /// Everything in memory, decoded: what is left then is applying alone.
    pub fn entries(&self) -> Result<Vec<Replayable>, ReplayError> {
        let mut all = Vec::new();
        while let Some(part) = self.part(all.last().map_or(1, |last: &Replayable| last.index + 1))? {
            all.extend(part);
        }
        Ok(all)
    }

    fn read_into(&self, parts: &SyncSender<Part>) {
        let mut next = 1;
        loop {
            let part = match self.part(next) {
                Ok(None) => return,
                Ok(Some(part)) => {
                    next = part.last().map_or(next, |last| last.index + 1);
                    Ok(part)
                }
                Err(error) => Err(error),
            };
            let failed = part.is_err();
            // Nobody listens any more after an entry that differs.
            if parts.send(part).is_err() || failed {
                return;
            }
        }
    }

    fn part(&self, from: u64) -> Result<Option<Vec<Replayable>>, ReplayError> {
        let records = self.journal.read(from, PART_BYTES).map_err(ReplayError::Journal)?;
        let decode = |record: loadline_log::JournalRecord| {
            let index = record.index;
            let entry = JournalEntry::decode(&record.entry).map_err(|source| ReplayError::Entry { index, source })?;
            Ok(Replayable { index, entry, hash: Hash(record.hash) })
        };
        let part: Vec<Replayable> = records.into_iter().map(decode).collect::<Result<_, _>>()?;
        Ok((!part.is_empty()).then_some(part))
    }
}

fn apply_all(coming: Receiver<Part>, tell: &mut impl FnMut(u64)) -> Result<Replayed, ReplayError> {
    let mut state = State::new();
    let mut replayed = Replayed { entries: 0, hash: state.hash() };
    for part in coming {
        for entry in part? {
            let ours = entry.apply_to(&mut state);
            if ours != entry.hash {
                return Err(ReplayError::Differs { index: entry.index, ours, theirs: entry.hash });
            }
            replayed = Replayed { entries: replayed.entries + 1, hash: ours };
        }
        tell(replayed.entries);
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests {
    use loadline_log::JournalRecord;
    use loadline_state_machine::{Actor, Command, Entry, Request, Sealed, Time};

    use super::*;

    /// A journal of made-up entries, written as a node writes it. Returns the hash of the last.
    fn journal(folder: &Path, entries: u64, spoil: Option<u64>) -> Hash {
        let disk = Arc::new(RealDisk::open(folder).unwrap());
        let journal = Journal::open(disk, JournalOptions::default()).unwrap();
        let mut state = State::new();
        for index in 1..=entries {
            let command = Command::CreateCluster { name: format!("c{index}") };
            let request = Request { actor: Actor::new("somebody", "test"), request_id: None, commands: vec![command] };
            let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(index), requests: vec![request] });
            let applied = apply(&mut state, LogIndex(index), &sealed);
            let mut entry = vec![1];
            entry.extend_from_slice(sealed.bytes());
            let mut hash = applied.hash.0;
            hash[0] ^= u8::from(spoil == Some(index));
            let events = applied.encode_events().into();
            journal
                .append(JournalRecord { index, time_ms: index, hash, entry: entry.into(), events, keys: vec![] })
                .unwrap();
        }
        journal.close().unwrap();
        state.hash()
    }

    #[test]
    fn a_journal_that_is_replayed_ends_with_the_hash_that_it_had() {
        let folder = tempfile::tempdir().unwrap();
        let hash = journal(folder.path(), 2_000, None);
        let history = History::open(folder.path()).unwrap();
        let mut told = 0;
        let replayed = history.replay(|entries| told = entries).unwrap();
        assert_eq!(replayed, Replayed { entries: 2_000, hash });
        assert_eq!(told, 2_000);
        let mut state = State::new();
        for entry in history.entries().unwrap() {
            assert_eq!(entry.apply_to(&mut state), entry.hash);
        }
        assert_eq!(state.hash(), hash);
    }

    #[test]
    fn an_entry_whose_hash_is_another_is_named() {
        let folder = tempfile::tempdir().unwrap();
        journal(folder.path(), 300, Some(200));
        let failed = History::open(folder.path()).unwrap().replay(|_| {}).unwrap_err();
        assert!(matches!(failed, ReplayError::Differs { index: 200, .. }), "{failed}");
    }

    #[test]
    fn a_journal_that_begins_later_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
        let kept = Journal::open(disk, JournalOptions::default()).unwrap();
        kept.start_after(7, [1; 32]).unwrap();
        let (entry, events) = (vec![0].into(), vec![].into());
        kept.append(JournalRecord { index: 8, time_ms: 8, hash: [2; 32], entry, events, keys: vec![] }).unwrap();
        drop(kept);
        let failed = History::open(folder.path()).unwrap_err();
        assert!(matches!(failed, ReplayError::Begins { first: 8 }), "{failed}");
    }
}

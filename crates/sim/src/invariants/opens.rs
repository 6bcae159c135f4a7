//! A disk that lost no more than what was never synced can be read again, and everything that was promised is on it: a node
//! never finds its own files damaged, and never forgets whom it voted for.

use std::collections::{BTreeMap, BTreeSet};

use super::Invariant;
use crate::record::{Place, Promise, Seen, Sighting};
use crate::world::node::host;

#[derive(Debug, Default)]
pub(super) struct Opens {
    promised: BTreeMap<Place, Promise>,
    /// Disks on which a bit was turned: those may be damaged.
    rotten: BTreeSet<String>,
}

impl Invariant for Opens {
    fn name(&self) -> &'static str {
        "opens"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        match &sighting.what {
            Seen::Deed(words) if words.starts_with("a bit is wrong") => {
                self.rotten.extend(words.rsplit(' ').next().map(str::to_owned));
                Ok(())
            }
            Seen::Ended { node, why, .. } if why.contains("is damaged") && !self.rotten.contains(&host(*node)) => {
                Err(format!("n{} cannot read what it wrote, and nobody touched its disk: {why}", node + 1))
            }
            Seen::Removed { node } => {
                // It comes back with an empty disk, as somebody else.
                self.promised.remove(node);
                self.rotten.remove(&host(*node));
                Ok(())
            }
            Seen::Promised { node, promise } => {
                self.promised.insert(*node, *promise);
                Ok(())
            }
            // Where a bit of the very last write turned, it looks torn, and is cut.
            Seen::Recovered { node, .. } if self.rotten.contains(&host(*node)) => Ok(()),
            Seen::Recovered { node, promise } => match self.promised.get(node) {
                Some(before) if promise.vote < before.vote => Err(format!(
                    "n{} has forgotten its vote: it was {:?}, and is {:?} after a restart",
                    node + 1,
                    before.vote,
                    promise.vote
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

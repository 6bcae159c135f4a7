//! The hash chain is equal at every index on every node, however often it applies it; and nobody skips an index.

use std::collections::BTreeMap;

use loadline_state_machine::Hash;

use super::Invariant;
use crate::record::{Place, Seen, Sighting};

#[derive(Debug, Default)]
pub(super) struct Chain {
    /// By index; who applied it first.
    hashes: BTreeMap<u64, (Hash, Place)>,
    /// The last index of each process.
    last: BTreeMap<(Place, u64), u64>,
}

impl Chain {
    fn compare(&mut self, index: u64, hash: Hash, node: Place) -> Result<(), String> {
        let (known, first) = *self.hashes.entry(index).or_insert((hash, node));
        if known == hash {
            return Ok(());
        }
        let (n, first) = (node + 1, first + 1);
        Err(format!("at index {index} the hash of n{n} is {hash}, that of n{first} was {known}"))
    }
}

impl Invariant for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        match &sighting.what {
            Seen::Applied(applied) => {
                let index = applied.index.0;
                if let Some(last) = self.last.insert((applied.node, applied.life), index)
                    && index != last + 1
                {
                    return Err(format!("n{} applied {index} after {last}", applied.node + 1));
                }
                self.compare(index, applied.hash, applied.node)
            }
            Seen::Replaced { node, life, state } => {
                let index = state.applied().0;
                self.last.insert((*node, *life), index);
                if index == 0 { Ok(()) } else { self.compare(index, state.hash(), *node) }
            }
            _ => Ok(()),
        }
    }
}

//! What must hold whatever goes wrong, one file each.
//!
//! **What an invariant can see.** Every [`Sighting`] of the run, one by one, in the order in which it happened (lines of the
//! backend's ledger may come up to 20 ms late; their `at` is right):
//!
//! | to know | look at |
//! |---|---|
//! | what each node applied, with hash, entry, receipts, events, and the state after it | [`Seen::Applied`], also again after each restart; [`Seen::Replaced`] for snapshots |
//! | who asked for it | `JournalEntry::decode(&applied.entry)`: the actor's name is the `tag` of an [`Asked`] |
//! | what the backend really did, with key, epoch, attempt, cluster and time | [`Seen::Ledger`] |
//! | where an executor is with an action | [`Seen::Step`] |
//! | what users asked and were told | [`Seen::Asked`], [`Seen::Answered`]; a watch: [`Seen::Watched`] |
//! | who leads, by its own account; by the log | [`Seen::Elected`]; `Event::LeaderAnnounced` in [`Seen::Applied`] |
//! | what a node's log had promised, and what was left of it after a restart | [`Seen::Promised`], [`Seen::Recovered`] |
//! | what the journals hold, once everything is over | [`Seen::Journal`] |
//! | processes that came and went | [`Seen::Started`], [`Seen::Ended`]; kills are [`Seen::Deed`]s |
//! | what a process has outstanding and keeps, and what all of them have allocated | [`Seen::Sizes`], [`Seen::Allocated`], once a second |
//! | which part of the run it is | [`Seen::Phase`] |
//! | what the seed decided | [`Plan`], given when the invariant is made |
//!
//! [`Agreed`] follows the log as a whole: each index once, when the first node applied it. Most invariants about what the
//! group decided want that instead of what every node does, because `chain` sees to it that all nodes decide the same.
//!
//! **To add one**: a file with a type that implements [`Invariant`], and a line in [`all`]. An invariant keeps its own state and
//! says at once what is wrong, in a sentence that names the index, action or tag; it must not panic.

mod acknowledged;
mod bounded;
mod brakes;
mod chain;
mod claimed;
mod elections;
mod epochs;
mod fenced;
pub(crate) mod heals;
mod lease;
mod linearizable;
mod managed_only;
mod names;
mod one_effect;
mod one_outcome;
mod opens;
mod outcomes;
mod replay;
mod switches;
mod time;
mod watches;

use std::time::Duration;

use crate::plan::Plan;
use crate::record::{Applied, Seen, Sighting};

/// What must hold.
pub trait Invariant {
    /// As in the table of mutants: short, with dashes.
    fn name(&self) -> &'static str;

    /// Looks at one sighting. An error is the end of the run.
    fn see(&mut self, sighting: &Sighting) -> Result<(), String>;

    /// The run is over, and has converged.
    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// All of them.
pub fn all(plan: &Plan) -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(chain::Chain::default()),
        Box::new(acknowledged::Acknowledged::default()),
        Box::new(one_outcome::OneOutcome::default()),
        Box::new(one_effect::OneEffect::default()),
        Box::new(epochs::Epochs::default()),
        Box::new(claimed::Claimed::default()),
        Box::new(outcomes::Outcomes::new(plan)),
        Box::new(lease::Lease::default()),
        Box::new(fenced::Fenced::new(plan)),
        Box::new(switches::Switches::default()),
        Box::new(names::Names::default()),
        Box::new(managed_only::ManagedOnly::default()),
        Box::new(brakes::Brakes::default()),
        Box::new(linearizable::Linearizable::default()),
        Box::new(watches::Watches::default()),
        Box::new(time::LogicalTime::default()),
        Box::new(opens::Opens::default()),
        Box::new(replay::Replay::default()),
        Box::new(bounded::Bounded::new(plan)),
        Box::new(elections::Elections::new(plan)),
        Box::new(heals::Heals::new(plan)),
    ]
}

/// What a run has broken that did not come to its end.
pub const NO_PANIC: &str = "no-panic";

/// The name of an invariant as it stands in the program; nothing if there is none of this name.
pub fn named(name: &str) -> Option<&'static str> {
    let names = all(&Plan::of(0)).into_iter().map(|invariant| invariant.name());
    names.chain([NO_PANIC]).find(|known| *known == name)
}

/// Something that must hold does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: &'static str,
    pub at: Duration,
    pub what: String,
}

/// The log as the group agreed on it: gives each index once, when the first node applied it.
#[derive(Debug, Default)]
pub struct Agreed {
    seen_to: u64,
}

impl Agreed {
    /// The entry, if nobody had applied this index before.
    pub fn first<'a>(&mut self, sighting: &'a Sighting) -> Option<&'a Applied> {
        let Seen::Applied(applied) = &sighting.what else { return None };
        self.is_first(applied).then_some(applied.as_ref())
    }

    /// Whether nobody had applied this index before.
    pub fn is_first(&mut self, applied: &Applied) -> bool {
        let first = applied.index.0 > self.seen_to;
        self.seen_to = self.seen_to.max(applied.index.0);
        first
    }
}

/// Judges by all of them; stops at the first that does not hold.
pub struct Judge {
    invariants: Vec<Box<dyn Invariant>>,
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.invariants.iter().map(|invariant| invariant.name())).finish()
    }
}

impl Judge {
    pub fn new(plan: &Plan) -> Judge {
        Judge { invariants: all(plan) }
    }

    pub fn see(&mut self, sighting: &Sighting) -> Result<(), Violation> {
        for invariant in &mut self.invariants {
            let name = invariant.name();
            invariant.see(sighting).map_err(|what| Violation { invariant: name, at: sighting.at, what })?;
        }
        Ok(())
    }

    pub fn end(&mut self, at: Duration) -> Result<(), Violation> {
        for invariant in &mut self.invariants {
            let name = invariant.name();
            invariant.end().map_err(|what| Violation { invariant: name, at, what })?;
        }
        Ok(())
    }
}

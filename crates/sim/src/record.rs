//! Everything that was seen in a run, in the order in which it happened. This is all that invariants judge by.
//!
//! Nodes tell it from inside (their observer), the backend by its ledger, users by their calls and answers, and the run by
//! what it did to the world. Not here: what should have happened.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use loadline_executor::Step;
use loadline_executor::backends::scripted::LedgerLine;
use loadline_state_machine::{ActionId, Command, Event, Hash, LogIndex, Receipt, State, Time};

use crate::faults::Then;
use crate::history::{Answered, Asked};
use crate::watchers::Watched;

/// A node, counted from 0; `n1` is 0. A place keeps its number through restarts and replacements.
pub type Place = usize;

/// One thing that was seen, and when, in simulated time.
#[derive(Debug)]
pub struct Sighting {
    pub at: Duration,
    pub what: Seen,
}

#[derive(Debug)]
pub enum Seen {
    /// A process began, for the so-manieth time at this place.
    Started {
        node: Place,
        life: u64,
    },
    /// A process ended by itself, and why; a run of the product that ends so is no fault as such.
    Ended {
        node: Place,
        life: u64,
        why: String,
    },
    /// A node became leader, by its own account.
    Elected {
        node: Place,
        life: u64,
    },
    /// An entry was applied, perhaps once more after a restart.
    Applied(Box<Applied>),
    /// The whole state was replaced by a snapshot's.
    Replaced {
        node: Place,
        life: u64,
        state: Box<State>,
    },
    /// A snapshot was written.
    SnapshotBuilt {
        node: Place,
        life: u64,
    },
    /// Entries at the end of a node's log were cut off.
    Truncated {
        node: Place,
        entries: u64,
    },
    /// The executor on a node is at this step of an action.
    Step {
        node: Place,
        step: Step,
        action: ActionId,
    },
    /// The backend did, or refused, something. `at` of the sighting is when, also if it was noticed later.
    Ledger(Box<LedgerLine>),
    /// Others may rely on this much of a node's log from now on.
    Promised {
        node: Place,
        promise: Promise,
    },
    /// This is what a node's log says after a restart.
    Recovered {
        node: Place,
        promise: Promise,
    },
    /// At the end: what the journal on a node's disk holds, or why it cannot be read.
    Journal {
        node: Place,
        kept: Result<Vec<Journalled>, String>,
    },
    Asked(Asked),
    Answered(Answered),
    Watched(Watched),
    /// An executor has walked into an ambush, and waits there.
    Ambushed {
        node: Place,
        action: ActionId,
        then: Then,
    },
    /// An executor is about to have a claim or an outcome recorded.
    Said {
        node: Place,
        command: Box<Command>,
    },
    /// What a process has outstanding and keeps, looked at once a second.
    Sizes {
        node: Place,
        sizes: Sizes,
    },
    /// What all nodes and the simulator itself have allocated, looked at as often.
    Allocated {
        bytes: usize,
    },
    /// The operator has taken a node out of the group.
    Removed {
        node: Place,
    },
    /// Something was done to the world, in words.
    Deed(String),
    /// The next part of the run begins.
    Phase(Phase),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Chaos,
    /// Nothing goes wrong any more.
    Heal,
    /// Somebody leads and has recorded something since healing began.
    Serves,
    /// Everybody has applied the same, and there is nothing left to do.
    Converged,
}

/// What a node may not forget. Later votes are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// The term, and whether the vote in it is that of an elected leader.
    pub vote: Option<(u64, bool)>,
}

/// What one process has outstanding and keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Connections, calls, streams and duties: each is a task.
    pub tasks: usize,
    /// Entries in its write-ahead log.
    pub log_entries: u64,
    /// Bytes of the files of its write-ahead log.
    pub log_bytes: usize,
    pub snapshots: usize,
}

/// One record of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Journalled {
    pub index: u64,
    pub hash: Hash,
}

/// One application of one entry on one node.
#[derive(Debug)]
pub struct Applied {
    pub node: Place,
    pub life: u64,
    pub index: LogIndex,
    /// Logical time.
    pub time: Time,
    /// The chain's hash after it.
    pub hash: Hash,
    /// As the journal keeps it; `loadline_state_machine::JournalEntry::decode` reads it.
    pub entry: Bytes,
    pub receipts: Vec<Receipt>,
    pub events: Vec<Event>,
    /// After it. A clone costs nothing: tables are shared.
    pub state: State,
}

/// Where sightings are collected. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Record(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    now_micros: AtomicU64,
    fresh: Mutex<Vec<Sighting>>,
}

impl Record {
    /// The time of the step that runs. Kept here because a destructor that runs when a node dies has no clock to ask.
    pub fn set_now(&self, now: Duration) {
        self.0.now_micros.store(u64::try_from(now.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn now(&self) -> Duration {
        Duration::from_micros(self.0.now_micros.load(Ordering::Relaxed))
    }

    pub fn see(&self, what: Seen) {
        self.see_at(self.now(), what);
    }

    pub fn see_at(&self, at: Duration, what: Seen) {
        self.0.fresh.lock().unwrap_or_else(PoisonError::into_inner).push(Sighting { at, what });
    }

    pub fn deed(&self, words: impl Into<String>) {
        self.see(Seen::Deed(words.into()));
    }

    /// What was seen since the last time.
    pub fn take(&self) -> Vec<Sighting> {
        std::mem::take(&mut *self.0.fresh.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

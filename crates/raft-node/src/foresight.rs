//! What follows from an entry, known before it is recorded.
//!
//! When the leader puts an entry into the log and nothing is under way before it, what it will bring about is certain: applying it to a
//! fork says so. Whoever has something to add to that can add it in the next entry at once, so that both go to the disks and to the
//! other nodes together, and need not wait until the first one has come back.
//!
//! It is a forecast: nobody has promised that the entries get there, or that nothing comes in between. So what is added must be
//! something that is refused where it does not fit. Under load there is always something under way, and nothing is forecast.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use loadline_state_machine::{self as state_machine, Command, LogIndex, Request, Sealed, State};

use crate::node::Inner;

/// Knows what is to follow. The node keeps it, so it must not keep the node.
pub trait Foresight: fmt::Debug + Send + Sync + 'static {
    /// Whether something could have to follow such a command. Applying an entry twice is not worth it for anything else.
    fn may_follow(&self, command: &Command) -> bool;

    /// What is to come right after the entry that leaves this state. It is not said whether it gets there.
    fn follow(&self, state: &State) -> Vec<Request>;
}

/// Foreseeing a larger entry would hold it up for longer than it saves: it takes as long as applying it.
const ENTRY_BYTES_MAX: usize = 2 << 10;

/// What should follow this entry, which is not in the log yet.
pub(crate) fn follow(inner: &Inner, sealed: &Sealed) -> Vec<Request> {
    let Some(foresight) = inner.foresight.get() else { return Vec::new() };
    let mut commands = sealed.entry().requests.iter().flat_map(|request| &request.commands);
    if sealed.bytes().len() > ENTRY_BYTES_MAX || !commands.any(|command| foresight.may_follow(command)) {
        return Vec::new();
    }
    let mut fork = {
        let current = inner.published.current();
        if current.failed {
            return Vec::new();
        }
        current.state.clone()
    };
    let last = inner.storage.wal.state().last.map_or(0, |last| last.index);
    if fork.applied() != LogIndex(last) {
        return Vec::new();
    }
    let next = LogIndex(last + 1);
    // Whatever is wrong with the entry is dealt with where it is applied.
    let applied = catch_unwind(AssertUnwindSafe(|| state_machine::apply(&mut fork, next, sealed)));
    if applied.is_ok() { foresight.follow(&fork) } else { Vec::new() }
}

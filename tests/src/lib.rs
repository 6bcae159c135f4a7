//! What the tests with real processes share: a [`Group`] of nodes, [`load`] on it, questions to [`ask`]
//! it, and [`holding`] it at a step.
//!
//! The tests are in `tests/tests/`, one file for what a reader would look for. Each starts its own nodes on free ports
//! and ends them by the process ids it got. Not here: tests of one crate alone; they are in that crate.

pub mod ask;
pub mod group;
pub mod holding;
pub mod load;
pub mod machine;
pub mod peers;
pub mod scaled;
pub mod strace;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use group::{Group, Options, eventually};

/// How often a fault is repeated: `FAULT_ROUNDS`, or a few, which is what a check before merging can afford.
pub fn rounds(few: usize) -> usize {
    match std::env::var("FAULT_ROUNDS") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("FAULT_ROUNDS must be a number, not {text:?}")),
        Err(_) => few,
    }
}

/// One group of nodes at a time: two of them on two cores would elect leaders all day.
pub fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    Alone { _guard: ALONE.lock().unwrap_or_else(PoisonError::into_inner) }
}

/// Holds back the other tests of the same program for as long as it lives. It is held across awaits on purpose: every test
/// has a runtime of its own, and waits for the others in its own thread.
#[must_use]
#[derive(Debug)]
pub struct Alone {
    _guard: MutexGuard<'static, ()>,
}

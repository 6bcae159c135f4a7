//! What the tests with real processes share: a [`Group`] of nodes, [`load`] on it, and questions to [`ask`] it.
//!
//! The tests are in `tests/tests/`, one file for what a reader would look for. Each starts its own nodes on free ports
//! and ends them by the process ids it got. Not here: tests of one crate alone; they are in that crate.

pub mod ask;
pub mod group;
pub mod load;
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
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

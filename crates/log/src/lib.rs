//! Bytes that survive: disk, frames, write-ahead log, snapshots, journal, audit index.
//!
//! Everything that this node promises to remember goes through here, over one small [`Disk`] trait, so that the bytes a
//! simulated power cut tears are the bytes of the product.
//!
//! | part | folder in the data folder | what it is for |
//! |---|---|---|
//! | [`Wal`] | `wal/` | the vote and the Raft log; acknowledged only after `fdatasync` |
//! | [`SnapshotStore`] | `snapshots/` | whole states, each in a file that is complete or not there |
//! | [`Journal`] | `journal/` | every applied entry with its events, for ever, hash-chained |
//! | [`AuditIndex`] | (a real folder) | sled; finds journal entries by key; rebuilt from the journal when in doubt |
//! | [`Identity`] | `identity` | who this folder belongs to |
//! | [`SigningKey`] | `signing-key` | signs what is handed out of the journal: see [`export`] |
//!
//! Deliberately not here: Raft itself (no openraft), what an entry means (no `Command`), an async runtime. Payloads are
//! opaque. `raft-node` puts the meaning on top.

// Test data is small by construction.
#![cfg_attr(test, allow(clippy::cast_possible_truncation))]

mod audit_index;
pub mod disk;
mod encoding;
pub mod export;
mod frame;
mod identity;
mod journal;
mod program;
pub mod signing;
pub mod snapshot;
mod wal;

pub use audit_index::{AuditIndex, IndexError};
pub use disk::{Cut, Disk, DiskFile, ModelDisk, OpenError, ReadOnlyDisk, RealDisk, SharedDisk};
pub use identity::{Identity, IdentityError};
pub use journal::{
    Filling, Gap, Journal, JournalError, JournalFault, JournalOptions, JournalRecord, JournalSegment, JournalSummary,
    journal_faults, pack_records, unpack_records,
};
pub use program::{is_newer, newer_program, note_program, noted_program};
pub use signing::{SigningKey, SigningKeyError};
pub use snapshot::{SnapshotError, SnapshotFile, SnapshotMeta, SnapshotReceiver, SnapshotStore, SnapshotsKept};
pub use wal::{
    Done, LogPosition, Pace, Record, StoredVote, Threading, Wal, WalError, WalObserver, WalOptions, WalState,
};

/// What to do with a node whose own promises are unreadable. The one answer that is safe for the group: nobody else
/// knows what the lost bytes had promised, so this node must not vote again under its old id.
pub(crate) const HOW_TO_RECOVER: &str = "to recover, run `loadline operator raft remove-peer <this node>` against a \
     healthy node, move this data folder away and start the node with an empty one: it joins again under a new id";

/// Locks, also after a panic elsewhere: what our locks guard is whole between any two statements that can panic, and what
/// a panic really broke is reported by whoever had it.
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

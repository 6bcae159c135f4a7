//! The write-ahead log: the vote and the Raft log, durable before anybody is told.
use std::{fmt, io, ops::Range, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::disk::SharedDisk;

/// Where an entry stands in the Raft log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPosition {
    pub term: u64,
    pub node: u64,
    pub index: u64,
}

/// The vote as it is kept: whom this node follows or voted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredVote {
    pub term: u64,
    pub node: u64,
    pub committed: bool,
}

/// One log entry. `kind` and `payload` are opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub id: LogPosition,
    pub kind: u8,
    pub payload: Bytes,
}

/// Called once, after the bytes are durable, or with the reason why they never will be.
pub type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Who does the writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Threading {
    /// One thread of its own. `Done` is called there.
    #[default]
    Thread,
    /// The caller, inside the call. `Done` has been called when the call returns. For the simulator.
    Inline,
}

/// Told after every sync, for metrics.
pub trait WalObserver: Send + Sync {
    fn synced(&self, took: Duration, bytes: usize, records: usize);
}

#[derive(Clone)]
pub struct WalOptions {
    pub segment_bytes: u64,
    pub threading: Threading,
    /// Payload bytes kept in memory for reads; older ones are read from disk.
    pub cache_bytes: usize,
    pub observer: Option<Arc<dyn WalObserver>>,
    /// Set by whoever knows (from the identity file) that this node has stood in a group before: then an empty log is
    /// not a fresh one but a lost one, and opening it is refused.
    pub expect_existing: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            threading: Threading::Thread,
            cache_bytes: 32 << 20,
            observer: None,
            expect_existing: false,
        }
    }
}

impl fmt::Debug for WalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalOptions").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WalState {
    pub last: Option<LogPosition>,
    pub purged: Option<LogPosition>,
    pub vote: Option<StoredVote>,
    pub committed: Option<LogPosition>,
}

#[derive(Debug, thiserror::Error)]
pub enum WalError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
}

#[derive(Clone, Debug)]
pub struct Wal;

impl Wal {
    pub fn open(_disk: SharedDisk, _options: WalOptions) -> Result<Self, WalError> {
        todo!()
    }
    pub fn state(&self) -> WalState {
        todo!()
    }
    pub fn append(&self, _records: Vec<Record>, _done: Done) {
        todo!()
    }
    pub fn save_vote(&self, _vote: StoredVote, _done: Done) {
        todo!()
    }
    pub fn save_committed(&self, _committed: Option<LogPosition>) {
        todo!()
    }
    pub fn truncate_after(&self, _keep: Option<u64>, _done: Done) {
        todo!()
    }
    pub fn purge(&self, _through: LogPosition, _done: Done) {
        todo!()
    }
    /// The part of the range that the log holds, at least one record if any, else at most `bytes_max` payload bytes.
    pub fn read(&self, _range: Range<u64>, _bytes_max: usize) -> io::Result<Vec<Record>> {
        todo!()
    }
    pub fn position_at(&self, _index: u64) -> Option<LogPosition> {
        todo!()
    }
    pub fn disk_bytes(&self) -> u64 {
        todo!()
    }
    pub fn failed(&self) -> Option<String> {
        todo!()
    }
    pub fn close(&self) -> io::Result<()> {
        todo!()
    }
}

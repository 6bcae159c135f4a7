//! The journal: every applied entry with its events, for ever.
use std::io;

use bytes::Bytes;

use crate::disk::SharedDisk;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    pub index: u64,
    pub time_ms: u64,
    pub hash: [u8; 32],
    pub entry: Bytes,
    pub events: Bytes,
    pub keys: Vec<Vec<u8>>,
}

#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    pub segment_bytes: u64,
    pub block_bytes: usize,
}
impl Default for JournalOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, block_bytes: 64 << 10 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
    /// The same index was applied with another result before: this node has diverged from itself.
    #[error("entry {index} was applied before with another hash")]
    Diverged { index: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSummary {
    pub segments: u64,
    pub blocks: u64,
    pub records: u64,
    pub gaps: u64,
}

#[derive(Clone, Debug)]
pub struct Journal;
impl Journal {
    pub fn open(_disk: SharedDisk, _options: JournalOptions) -> Result<Self, JournalError> {
        todo!()
    }
    pub fn append(&self, _record: JournalRecord) -> Result<(), JournalError> {
        todo!()
    }
    pub fn start_after(&self, _index: u64, _hash: [u8; 32]) -> Result<(), JournalError> {
        todo!()
    }
    pub fn sync(&self) -> Result<(), JournalError> {
        todo!()
    }
    pub fn first_index(&self) -> Option<u64> {
        todo!()
    }
    pub fn last_index(&self) -> Option<u64> {
        todo!()
    }
    pub fn synced_index(&self) -> Option<u64> {
        todo!()
    }
    pub fn read(&self, _from: u64, _bytes_max: usize) -> Result<Vec<JournalRecord>, JournalError> {
        todo!()
    }
    pub fn hash_at(&self, _index: u64) -> Result<Option<[u8; 32]>, JournalError> {
        todo!()
    }
    pub fn verify(&self) -> Result<JournalSummary, JournalError> {
        todo!()
    }
    pub fn close(&self) -> Result<(), JournalError> {
        todo!()
    }
}

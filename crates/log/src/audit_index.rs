//! The audit index: finds journal entries by key. A copy, never the truth.
use std::path::Path;

use crate::journal::{Journal, JournalError, JournalRecord};

#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("cannot read the journal to fill the audit index")]
    Journal(#[from] JournalError),
}

#[derive(Clone, Debug)]
pub struct AuditIndex;
impl AuditIndex {
    pub fn open(_dir: &Path, _journal: &Journal) -> Result<Self, IndexError> {
        todo!()
    }
    pub fn insert(&self, _record: &JournalRecord) -> Result<(), IndexError> {
        todo!()
    }
    /// Log indexes of records that carry a key beginning with `prefix`, newest first, below `before`.
    pub fn find(&self, _prefix: &[u8], _before: Option<u64>, _limit: usize) -> Result<Vec<u64>, IndexError> {
        todo!()
    }
    pub fn close(&self) -> Result<(), IndexError> {
        todo!()
    }
}

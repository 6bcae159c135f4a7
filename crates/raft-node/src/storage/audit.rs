//! The audit index, kept up while entries are applied.
//!
//! It is a copy that can be made again from the journal, so a failure of it must not stop the node. It must not be
//! papered over either: an index that missed one entry and went on would find too little for ever. So after a failure
//! it is left as it is; the next start goes on where it stopped.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use loadline_log::{AuditIndex, IndexError, Journal, JournalRecord};

use super::causes;

/// See the module's header.
#[derive(Debug, Clone)]
pub(crate) struct Audit {
    index: AuditIndex,
    failed: Arc<OnceLock<String>>,
}

impl Audit {
    pub(crate) fn open(dir: &Path, journal: &Journal) -> Result<Self, IndexError> {
        Ok(Self { index: AuditIndex::open_beside(dir, journal)?, failed: Arc::default() })
    }

    /// Does not wait. [`Audit::wait_for_room`] is to be called afterwards, when nobody is held up by that.
    pub(crate) fn insert(&self, record: &JournalRecord) {
        if self.failed.get().is_some() {
            return;
        }
        if let Err(error) = self.index.insert_without_waiting(record) {
            let what = causes(&error);
            tracing::error!("the audit index failed and is left as it is until a restart: {what}");
            // Only the one task that applies entries gets here, so nobody else can have set it.
            let _ = self.failed.set(what);
        }
    }

    pub(crate) fn wait_for_room(&self) {
        self.index.wait_for_room();
    }

    pub(crate) fn index(&self) -> &AuditIndex {
        &self.index
    }

    pub(crate) fn failed(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }
}

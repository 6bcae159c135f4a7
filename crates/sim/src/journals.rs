//! What the journals on the disks hold when a run is over.

use loadline_log::{Journal, JournalError, JournalOptions, SharedDisk};
use loadline_state_machine::Hash;

use crate::record::Journalled;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Checks the whole journal on this disk, and reads what it has. Nobody else may have it open.
pub fn read(disk: SharedDisk) -> Result<Vec<Journalled>, String> {
    let said = |error: JournalError| error.to_string();
    let journal = Journal::open(disk, JournalOptions::default()).map_err(said)?;
    journal.verify().map_err(said)?;
    let mut kept = Vec::new();
    let mut next = 0;
    loop {
        match journal.read(next, READ_BYTES) {
            Ok(records) => {
                let Some(last) = records.last() else { return Ok(kept) };
                next = last.index + 1;
                kept.extend(records.iter().map(|record| Journalled { index: record.index, hash: Hash(record.hash) }));
            }
            Err(JournalError::Missing { next: Some(there), .. }) => next = there,
            Err(JournalError::Missing { next: None, .. }) => return Ok(kept),
            Err(error) => return Err(said(error)),
        }
    }
}

//! What the journals on the disks hold when a run is over, and whether the logs could be opened once more.

use loadline_log::{Journal, JournalError, JournalOptions, SharedDisk, Threading, Wal, WalOptions};
use loadline_state_machine::Hash;

use crate::record::Journalled;

/// Bytes that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Opens the log on this disk as the next process would, checks the whole journal, and reads what it has. Nobody else may
/// have them open.
pub fn read(disk: SharedDisk) -> Result<Vec<Journalled>, String> {
    let options = WalOptions { threading: Threading::Inline, ..WalOptions::default() };
    Wal::open(disk.clone(), options).map_err(|error| error.to_string())?;
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

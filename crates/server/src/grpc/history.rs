//! What is over, from the journal of this node: past decisions, operations that have ended, actions that are settled.
//!
//! The audit index says where to look, the journal what happened there. A node that was brought up to date by a snapshot has
//! no journal of the time before; another one may.

use loadline_raft_node::Node;
use loadline_state_machine::{Event, LogIndex, audit, decode_events};
use tonic::Status;

use super::errors;

/// Entries looked at for one page. A page of rows of which most are no longer shown ends here, and its token goes on.
const ENTRIES_PER_PAGE_MAX: usize = 5_000;
/// Entries found at a time.
const ENTRIES_PER_STEP: usize = 200;

/// One page of the past, the newest first.
#[derive(Debug)]
pub(super) struct Past<T> {
    pub(super) rows: Vec<T>,
    /// Before which index the next page goes on; nothing if this was the last.
    pub(super) next: Option<u64>,
}

/// What `pick` makes of the events under a key, from before an index on. A page ends between two entries, so it may have a few
/// rows more than `count`.
pub(super) async fn page<T: Send + 'static>(
    node: &Node,
    key: Vec<u8>,
    mut before: Option<u64>,
    count: usize,
    pick: impl Fn(LogIndex, &Event) -> Option<T> + Send + 'static,
) -> Result<Past<T>, Status> {
    let index = node.audit_index().cloned().ok_or_else(no_index)?;
    let journal = node.journal().clone();
    off_thread(move || {
        let mut past = Past { rows: Vec::new(), next: None };
        let mut looked_at = 0;
        loop {
            let found = index.find(&key, before, ENTRIES_PER_STEP).map_err(|error| failed(&error))?;
            if found.is_empty() {
                return Ok(past);
            }
            for entry in found {
                let events = events_of(&journal, entry)?;
                past.rows.extend(events.iter().rev().filter_map(|event| pick(LogIndex(entry), event)));
                before = Some(entry);
                looked_at += 1;
                if past.rows.len() >= count || looked_at >= ENTRIES_PER_PAGE_MAX {
                    past.next = before;
                    return Ok(past);
                }
            }
        }
    })
    .await
}

/// Everything that happened at one index; nothing if this node no longer, or never, had it.
pub(super) async fn at(node: &Node, entry: LogIndex) -> Result<Vec<Event>, Status> {
    let journal = node.journal().clone();
    off_thread(move || events_of(&journal, entry.0)).await
}

/// What happened last to one resource.
pub(super) async fn last_of(node: &Node, name: &loadline_state_machine::ResourceName) -> Result<Vec<Event>, Status> {
    let index = node.audit_index().cloned().ok_or_else(no_index)?;
    let (journal, key) = (node.journal().clone(), audit::resource_key(name));
    off_thread(move || {
        let found = index.find(&key, None, 1).map_err(|error| failed(&error))?;
        found.first().map_or(Ok(Vec::new()), |entry| events_of(&journal, *entry))
    })
    .await
}

fn events_of(journal: &loadline_log::Journal, entry: u64) -> Result<Vec<Event>, Status> {
    let records = match journal.read(entry, 1) {
        Ok(records) => records,
        Err(loadline_log::JournalError::Missing { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(failed(&error)),
    };
    match records.first().filter(|record| record.index == entry) {
        Some(record) => decode_events(&record.events).map_err(|error| failed(&error)),
        None => Ok(Vec::new()),
    }
}

/// Files are read where nobody else has to wait for it.
pub(super) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.map_err(|error| failed(&error))?
}

pub(super) fn no_index() -> Status {
    errors::history("NO_AUDIT_INDEX", "this node keeps no audit index, so it cannot tell of the past; ask another one")
}

pub(super) fn failed(error: &dyn std::fmt::Display) -> Status {
    errors::journal_failed(error)
}

//! Following what happens, from any index on, without a gap and without a repeat.
//!
//! The latest happenings come from memory, older ones from the journal; a follower does not notice which. What the
//! journal no longer has, or never had because a snapshot was installed in its place, is a clear error.

use std::collections::VecDeque;
use std::sync::Arc;

use loadline_log::JournalRecord;
use loadline_state_machine::{LogIndex, Time, decode_events};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::errors::FeedError;
use crate::storage::published::{Happened, Published};
use crate::storage::{Storage, causes};

/// Bytes read from the journal at a time.
const READ_BYTES_MAX: usize = 256 << 10;

/// What happened at every index from some index on, in order.
#[derive(Debug)]
pub struct Feed {
    next: LogIndex,
    /// Read from the journal and not handed out yet.
    read: VecDeque<Arc<Happened>>,
    published: Arc<Published>,
    applied: watch::Receiver<LogIndex>,
    storage: Storage,
    ended: CancellationToken,
}

impl Feed {
    pub(crate) fn new(
        from: LogIndex,
        published: Arc<Published>,
        storage: Storage,
        ended: CancellationToken,
    ) -> Result<Self, FeedError> {
        let applied = published.watch_applied();
        // Nothing ever happens at index 0.
        let next = from.max(LogIndex(1));
        let feed = Self { next, read: VecDeque::new(), published, applied, storage, ended };
        feed.check_kept()?;
        Ok(feed)
    }

    /// The index that comes next.
    pub fn position(&self) -> LogIndex {
        self.next
    }

    /// What happened next; waits for it. May be dropped at any point and called again.
    pub async fn next(&mut self) -> Result<Arc<Happened>, FeedError> {
        loop {
            if let Some(happened) = self.read.pop_front() {
                self.next = LogIndex(happened.index.0 + 1);
                return Ok(happened);
            }
            if let Some(recent) = self.published.recent(self.next) {
                self.next = LogIndex(self.next.0 + 1);
                return Ok(recent.happened);
            }
            if self.next <= *self.applied.borrow_and_update() {
                self.read_journal().await?;
                continue;
            }
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return Err(FeedError::ShuttingDown),
                changed = self.applied.changed() => {
                    if changed.is_err() {
                        return Err(FeedError::ShuttingDown);
                    }
                }
            }
        }
    }

    async fn read_journal(&mut self) -> Result<(), FeedError> {
        let (journal, from) = (self.storage.journal.clone(), self.next.0);
        let records = self
            .storage
            .off_thread(move || journal.read(from, READ_BYTES_MAX).map_err(|error| crate::storage::io_error(&error)))
            .await
            .map_err(|error| FeedError::Journal(error.to_string()))?;
        match records.first() {
            Some(first) if first.index == self.next.0 => {}
            Some(first) => return Err(FeedError::Compacted { first: LogIndex(first.index) }),
            None => {
                self.check_kept()?;
                return Err(FeedError::Journal(format!("index {} is not in it", self.next)));
            }
        }
        self.read = records.iter().map(happened).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// An error if what comes next is no longer to be had.
    fn check_kept(&self) -> Result<(), FeedError> {
        let applied = self.published.applied();
        if self.next > applied || self.published.recent(self.next).is_some() {
            return Ok(());
        }
        let journal = &self.storage.journal;
        let failed = |error: loadline_log::JournalError| FeedError::Journal(causes(&error));
        if journal.hash_at(self.next.0).map_err(failed)?.is_some() {
            return Ok(());
        }
        // The journal may have a gap where a snapshot was installed; then the first index after the gap is the answer.
        let after = journal.read(self.next.0, 1).map_err(failed)?;
        Err(FeedError::Compacted { first: LogIndex(after.first().map_or(applied.0 + 1, |record| record.index)) })
    }
}

fn happened(record: &JournalRecord) -> Result<Arc<Happened>, FeedError> {
    let events = decode_events(&record.events).map_err(|error| FeedError::Journal(error.to_string()))?;
    Ok(Arc::new(Happened { index: LogIndex(record.index), time: Time::from_millis(record.time_ms), events }))
}

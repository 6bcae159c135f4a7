//! Following what happens, from any index on, without a gap and without a repeat.
//!
//! The latest happenings come from memory, older ones from the journal; a follower does not notice which. What the
//! journal no longer has, or never had because a snapshot was installed in its place, is a clear error.

use std::collections::VecDeque;
use std::sync::Arc;

use loadline_log::{JournalError, JournalRecord};
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
        let read = self.storage.off_thread(move || Ok(journal.read(from, READ_BYTES_MAX))).await;
        let records = match read.map_err(|error| FeedError::Journal(error.to_string()))? {
            Ok(records) => records,
            Err(error) => return Err(self.not_read(&error)),
        };
        if records.first().is_none_or(|first| first.index != self.next.0) {
            // Applied, but neither in memory nor in the journal: it can only have been replaced by a snapshot just now.
            return Err(FeedError::Compacted { first: LogIndex(self.published.applied().0 + 1) });
        }
        self.read = records.iter().map(happened).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// An error if what comes next is no longer to be had.
    fn check_kept(&self) -> Result<(), FeedError> {
        if self.next > self.published.applied() || self.published.recent(self.next).is_some() {
            return Ok(());
        }
        self.storage.journal.read(self.next.0, 1).map(drop).map_err(|error| self.not_read(&error))
    }

    fn not_read(&self, error: &JournalError) -> FeedError {
        match error {
            // Before the beginning, or in a gap that a snapshot left.
            JournalError::Missing { next, .. } => {
                FeedError::Compacted { first: LogIndex(next.unwrap_or(self.published.applied().0 + 1)) }
            }
            other => FeedError::Journal(causes(other)),
        }
    }
}

fn happened(record: &JournalRecord) -> Result<Arc<Happened>, FeedError> {
    let events = decode_events(&record.events).map_err(|error| FeedError::Journal(error.to_string()))?;
    Ok(Arc::new(Happened { index: LogIndex(record.index), time: Time::from_millis(record.time_ms), events }))
}

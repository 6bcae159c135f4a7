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
            // What was applied and is not announced is in memory, too. Whoever heard of it would look at a state from before it.
            if self.next <= *self.applied.borrow_and_update() {
                if let Some(recent) = self.published.recent(self.next) {
                    self.next = LogIndex(self.next.0 + 1);
                    return Ok(recent.happened);
                }
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
        let announced = self.published.applied().0;
        self.read =
            records.iter().take_while(|record| record.index <= announced).map(happened).collect::<Result<_, _>>()?;
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::FutureExt as _;
    use loadline_log::{ModelDisk, Threading};

    use super::*;
    use crate::config::NodeConfig;
    use crate::storage::published::Recent;

    struct Applying {
        published: Arc<Published>,
        storage: Storage,
        /// Whether what happened is in memory, or only in the journal.
        remembers: bool,
    }

    impl Applying {
        /// The next entry, without a word to anybody.
        fn apply(&self) {
            let mut current = self.published.current();
            let index = LogIndex(current.state.applied().0 + 1);
            let applied = loadline_state_machine::pass(&mut current.state, index, b"");
            let record = JournalRecord {
                index: index.0,
                time_ms: applied.time.as_millis(),
                hash: applied.hash.0,
                entry: Bytes::new(),
                events: Bytes::from_owner(applied.events_bytes().clone()),
                keys: Vec::new().into(),
            };
            self.storage.journal.append(record).unwrap();
            if self.remembers {
                let happened = Happened { index, time: applied.time, events: applied.events };
                self.published.remember(Recent { happened: Arc::new(happened), hash: applied.hash, bytes: 0 });
            }
        }
    }

    #[tokio::test]
    async fn what_happened_is_told_when_a_state_that_has_it_can_be_seen_and_not_before() {
        for remembers in [true, false] {
            let config = NodeConfig { threading: Threading::Inline, ..NodeConfig::new("n1", "127.0.0.1:7") };
            let storage = Storage::open(Arc::new(ModelDisk::new(1)), &config, false, None).unwrap();
            let published = Arc::new(Published::default());
            let node = Applying { published: published.clone(), storage: storage.clone(), remembers };
            node.apply();
            // Somebody looks, so that the next batch is forked ahead and this state is the one that is shown until then.
            published.announce();
            assert_eq!(published.state().applied(), LogIndex(1));
            node.apply();
            let mut feed = Feed::new(LogIndex(1), published.clone(), storage, CancellationToken::new()).unwrap();
            assert_eq!(feed.next().await.unwrap().index, LogIndex(1));
            assert_eq!(feed.next().now_or_never().map(|told| told.unwrap().index), None, "remembers: {remembers}");
            assert_eq!(published.state().applied(), LogIndex(1));
            published.announce();
            assert_eq!(feed.next().await.unwrap().index, LogIndex(2));
            assert_eq!(published.state().applied(), LogIndex(2));
        }
    }
}

//! openraft's log and vote over the write-ahead log.
//!
//! Appended entries are readable at once; openraft is told that they are durable after the log's fdatasync. On the leader that
//! comes from the log's own thread, because meanwhile the entries go out to the others; a follower has nothing else to do
//! and writes where it stands, which spares it two changes of thread. Votes, appends, truncations and purges share the log's one queue, which keeps their order.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};

use futures::stream::{self, Stream};
use loadline_log::{Record, Wal};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use tokio::sync::oneshot;

use super::{io_error, membership_record};
use crate::types::{self, Entry, EntryPayload, LogId, Payload, Types, Vote, log_id, position};

/// Bytes of entries that go into one message to a follower, or are read ahead for applying. A single entry may be
/// larger and then goes alone.
const READ_BYTES_MAX: usize = 1 << 20;

/// What kind of entry a record holds. The numbers are on disk: never reuse one.
const KIND_BLANK: u8 = 0;
const KIND_NORMAL: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;

/// See the module's header.
#[derive(Debug, Clone)]
pub(crate) struct LogStore {
    wal: Wal,
    node: u64,
}

impl LogStore {
    pub(crate) fn new(wal: Wal, node: u64) -> Self {
        Self { wal, node }
    }

    fn leads(&self) -> bool {
        self.wal.state().vote.is_some_and(|vote| vote.committed && vote.node == self.node)
    }

    fn read(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        self.wal.read(start..end, bytes_max)?.into_iter().map(entry).collect()
    }
}

fn record(entry: Entry) -> Record {
    let id = position(&entry.log_id);
    let (kind, payload) = match entry.payload {
        EntryPayload::Blank => (KIND_BLANK, bytes::Bytes::new()),
        EntryPayload::Normal(Payload(bytes)) => (KIND_NORMAL, bytes),
        EntryPayload::Membership(membership) => (KIND_MEMBERSHIP, membership_record::encode(&membership)),
    };
    Record { id, kind, payload }
}

fn entry(record: Record) -> io::Result<Entry> {
    let payload = match record.kind {
        KIND_BLANK => EntryPayload::Blank,
        KIND_NORMAL => EntryPayload::Normal(Payload(record.payload)),
        KIND_MEMBERSHIP => {
            let membership = membership_record::decode(&record.payload).map_err(|error| io_error(&error))?;
            EntryPayload::Membership(membership)
        }
        kind => {
            return Err(io::Error::other(format!(
                "log entry {} is of kind {kind}, which this version does not know: use the version that wrote it, or a \
                 newer one",
                record.id.index
            )));
        }
    };
    Ok(Entry { log_id: log_id(record.id), payload })
}

/// Waits until the log says that it is done.
async fn done(start: impl FnOnce(loadline_log::Done)) -> io::Result<()> {
    let (tell, told) = oneshot::channel();
    // Whoever waits may be gone by then; the log has done its work all the same.
    start(Box::new(move |result| drop(tell.send(result))));
    told.await.unwrap_or_else(|_| Err(io::Error::other("the write-ahead log is closed")))
}

impl RaftLogReader<Types> for LogStore {
    async fn entries_stream<RB>(&mut self, range: RB) -> impl Stream<Item = io::Result<Entry>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        let (start, end) = half_open(&range);
        let store = self.clone();
        // In steps: after a long absence this range can be much larger than memory.
        let chunks = stream::try_unfold(start, move |next| {
            let chunk = if next < end { store.read(next, end, READ_BYTES_MAX) } else { Ok(Vec::new()) };
            async move {
                let chunk = chunk?;
                let Some(last) = chunk.last() else { return Ok(None) };
                let next = last.log_id.index() + 1;
                Ok::<_, io::Error>(Some((stream::iter(chunk.into_iter().map(Ok)), next)))
            }
        });
        futures::TryStreamExt::try_flatten(Box::pin(chunks))
    }

    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<Entry>> {
        let (start, end) = half_open(&range);
        self.read(start, end, usize::MAX)
    }

    async fn read_vote(&mut self) -> io::Result<Option<Vote>> {
        Ok(self.wal.state().vote.map(types::vote))
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<Entry>> {
        self.read(start, end, READ_BYTES_MAX)
    }
}

fn half_open(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (start, end.max(start))
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> io::Result<LogState<Types>> {
        let state = self.wal.state();
        Ok(LogState { last_purged_log_id: state.purged.map(log_id), last_log_id: state.last.map(log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> io::Result<()> {
        done(|done| self.wal.save_vote(types::stored_vote(vote), done)).await
    }

    /// Written with the next batch, not by itself: what is lost with a crash is learnt again from the leader.
    async fn save_committed(&mut self, committed: Option<LogId>) -> io::Result<()> {
        self.wal.save_committed(committed.as_ref().map(position));
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogId>> {
        Ok(self.wal.state().committed.map(log_id))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Types>) -> io::Result<()>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let records = entries.into_iter().map(record).collect();
        let done = Box::new(move |result| callback.io_completed(result));
        // A machine with one worker must go on answering while the disk is slow.
        if self.leads() || tokio::runtime::Handle::current().metrics().num_workers() < 2 {
            self.wal.append(records, done);
        } else {
            self.wal.append_here(records, done);
        }
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> io::Result<()> {
        done(|done| self.wal.truncate_after(last_log_id.map(|id| id.index()), done)).await
    }

    async fn purge(&mut self, log_id: LogId) -> io::Result<()> {
        done(|done| self.wal.purge(position(&log_id), done)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_reads_back_as_it_was_written_and_an_unknown_kind_is_an_error() {
        let at = |payload| Entry { log_id: log_id(loadline_log::LogPosition { term: 3, node: 2, index: 7 }), payload };
        for entry_before in [
            at(EntryPayload::Blank),
            at(EntryPayload::Normal(Payload(b"bytes".as_slice().into()))),
            at(EntryPayload::Membership(types::Membership::default())),
        ] {
            assert_eq!(entry(record(entry_before.clone())).unwrap(), entry_before);
        }
        let mut unknown = record(at(EntryPayload::Blank));
        unknown.kind = 99;
        assert!(entry(unknown).unwrap_err().to_string().contains("kind 99"));
    }

    #[test]
    fn ranges_become_half_open() {
        assert_eq!(half_open(&(3..5)), (3, 5));
        assert_eq!(half_open(&(3..=5)), (3, 6));
        assert_eq!(half_open(&(3..)), (3, u64::MAX));
        assert_eq!(half_open(&..), (0, u64::MAX));
        // Reversed bounds cannot be written as a range literal without a warning, but openraft could compute them.
        assert_eq!(half_open(&(Bound::Included(5), Bound::Excluded(3))), (5, 5));
    }
}

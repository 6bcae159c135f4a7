//! openraft's state machine over `loadline-state-machine`.
//!
//! Each applied entry changes the state, goes into the journal and the audit index with what it brought about, and
//! is announced to readers; only then is its proposer answered, so that whoever has a receipt can read what it
//! says. The state itself lives in memory (`published`): after a restart it is the last snapshot and the entries since.
//!
//! Index 0 never reaches the state: it is the entry that makes the group (openraft writes it outside of any term),
//! and the state's own counting begins with 1.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use loadline_log::{JournalError, JournalRecord};
use loadline_state_machine::{
    self as state_machine, Applied, DecodeError, Hash, JournalEntry, LogIndex, Sealed, State,
};
use openraft::OptionalSend;
use openraft::storage::{ApplyResponder, EntryResponder, RaftStateMachine};

use super::published::{Current, Happened, Published, Recent};
use super::snapshot::{self, Builder, RaftSnapshot, SnapshotData};
use super::{Storage, io_error, membership_record};
use crate::clock::Clock;
use crate::errors::StopReason;
use crate::observer::NodeObserver;
use crate::packed::Packed;
use crate::stop::StopSignal;
use crate::types::{Entry, EntryPayload, LogId, Payload, Receipts, SnapshotMeta, StoredMembership, Types, position};

/// Entries that are applied before readers see them and proposers are answered. Each fork that readers take makes the next
/// change of the state copy what it touches, so one per entry would cost more when there are many.
const BATCH_MAX: usize = 128;

/// How often readers see how far a node is that applies its log once more after a restart. It is far behind anyway, and among many
/// clusters a copy of each that is touched after every fork took a third of the time.
const SHOWN_EVERY: Duration = Duration::from_secs(5);

/// What a state machine needs besides its own state.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) group: String,
    pub(crate) storage: Storage,
    pub(crate) published: Arc<Published>,
    pub(crate) packed: Arc<Packed>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn NodeObserver>,
    pub(crate) stop: StopSignal,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Machine {
    /// What this node knew to be committed when it started: all of it is applied before anything new.
    known_before: u64,
    shown_at: Duration,
    around: Surroundings,
}

#[derive(Default)]
struct Batch {
    answers: Vec<(ApplyResponder<Types>, Receipts)>,
    entries: usize,
}

impl Machine {
    /// Empty. openraft then brings it up to date: the last snapshot, and the committed entries after it.
    pub(crate) fn new(around: Surroundings) -> Self {
        let known_before = around.storage.wal.state().committed.map_or(0, |committed| committed.index);
        let shown_at = around.clock.boottime();
        Self { known_before, shown_at, around }
    }

    fn apply_one(&self, entry: Entry, responder: Option<ApplyResponder<Types>>, batch: &mut Batch) -> io::Result<()> {
        let receipts = {
            let mut current = self.around.published.current();
            let applied = self.apply_to(&mut current, entry);
            current.failed = applied.is_err();
            applied?
        };
        // Both may wait for a disk, and whoever wants a state would wait as well while it is held.
        self.around.storage.journal.seal_what_is_full().map_err(|error| io_error(&error))?;
        if let Some(audit) = &self.around.storage.audit {
            audit.wait_for_room();
        }
        batch.entries += 1;
        // Every responder must be answered, or its proposer waits for ever.
        batch.answers.extend(responder.map(|responder| (responder, Receipts(receipts))));
        Ok(())
    }

    fn apply_to(&self, current: &mut Current, entry: Entry) -> io::Result<Vec<state_machine::Receipt>> {
        let index = LogIndex(entry.log_id.index());
        let state = &mut current.state;
        let receipts = if index == LogIndex(0) { Vec::new() } else { self.change(state, index, &entry.payload)? };
        if let EntryPayload::Membership(membership) = entry.payload {
            current.membership = Arc::new(StoredMembership::new(Some(entry.log_id), membership));
        }
        current.last = Some(entry.log_id);
        Ok(receipts)
    }

    fn change(
        &self,
        state: &mut State,
        index: LogIndex,
        payload: &EntryPayload,
    ) -> io::Result<Vec<state_machine::Receipt>> {
        if index.0 != state.applied().0 + 1 {
            return Err(io::Error::other(format!("entry {index} cannot follow entry {}", state.applied())));
        }
        let (applied, entry, keys) = match payload {
            EntryPayload::Blank => (pass(state, index, &[])?, JournalEntry::encode_blank(), Vec::new()),
            EntryPayload::Membership(membership) => {
                let bytes = membership_record::encode(membership);
                (pass(state, index, &bytes)?, JournalEntry::encode_membership(&bytes), Vec::new())
            }
            EntryPayload::Normal(Payload(bytes)) => {
                // A committed entry that cannot be read stops the node: skipping it would be a guess.
                let packed_here = self.around.packed.take(bytes);
                let sealed = packed_here
                    .map_or_else(|| Sealed::open(&bytes[..]), Ok)
                    .map_err(|error| self.unreadable(index, &error))?;
                let applied = caught(index, || state_machine::apply(state, index, &sealed))?;
                let keys = applied.index_keys(&sealed);
                (applied, JournalEntry::encode_requests(bytes), keys)
            }
        };
        self.remember(state, applied, entry.into(), keys)
    }

    fn remember(
        &self,
        state: &State,
        applied: Applied,
        entry: Bytes,
        keys: Vec<Vec<u8>>,
    ) -> io::Result<Vec<state_machine::Receipt>> {
        let events = Bytes::from_owner(applied.events_bytes().clone());
        let record = JournalRecord {
            index: applied.index.0,
            time_ms: applied.time.as_millis(),
            hash: applied.hash.0,
            entry,
            events,
            keys: keys.into(),
        };
        let bytes = record.events.len();
        self.around.observer.entry_applied(&record, &applied, state);
        // The journal comes first: an audit index that is being made takes from there what it is not given.
        let indexed = self.around.storage.audit.as_ref().map(|audit| (audit, record.clone()));
        let appended = self.around.storage.journal.append_without_sync(record);
        appended.map_err(|error| self.journal_failed(state, &error))?;
        if let Some((audit, record)) = indexed {
            audit.insert(&record);
        }
        let happened = Happened { index: applied.index, time: applied.time, events: applied.events };
        self.around.published.remember(Recent { happened: Arc::new(happened), hash: applied.hash, bytes });
        Ok(applied.receipts)
    }

    fn unreadable(&self, index: LogIndex, error: &DecodeError) -> io::Error {
        let what = format!("committed entry {index}");
        if !error.is_newer() {
            return io::Error::other(format!("{what} cannot be read: {error}"));
        }
        let what = self.around.storage.too_new(&what, error);
        self.around.stop.raise(StopReason::TooOld { what: what.clone() });
        io::Error::other(what)
    }

    fn journal_failed(&self, state: &State, error: &JournalError) -> io::Error {
        if let JournalError::Diverged { index, .. } = error {
            // The journal of this very node says that the same entries once gave another state.
            let theirs = self.around.storage.journal.hash_at(*index).ok().flatten().map(Hash).unwrap_or_default();
            self.around.stop.raise(StopReason::Diverged { index: LogIndex(*index), ours: state.hash(), theirs });
        }
        io_error(error)
    }

    /// First everybody can see it, then its proposers are told: a receipt must never be ahead of what can be read.
    fn publish(&mut self, batch: &mut Batch) {
        if batch.entries == 0 {
            return;
        }
        batch.entries = 0;
        if batch.answers.is_empty() && self.holds_back() {
            return;
        }
        self.around.published.announce();
        for (responder, receipts) in batch.answers.drain(..) {
            responder.send(receipts);
        }
    }

    /// Whether readers can wait, because much more is to come of what was applied before a restart.
    fn holds_back(&mut self) -> bool {
        let now = self.around.clock.boottime();
        let applied = self.around.published.current().state.applied();
        if applied.0 < self.known_before && now.saturating_sub(self.shown_at) < SHOWN_EVERY {
            return true;
        }
        self.shown_at = now;
        false
    }

    /// Makes sure that the file is in this node's own store, as the latest.
    fn keep(&self, file: &loadline_log::SnapshotFile) -> Result<(), loadline_log::SnapshotError> {
        const COPIED_AT_ONCE: usize = 1 << 20;
        let snapshots = &self.around.storage.snapshots;
        if snapshots.latest().is_some_and(|latest| latest.meta() == file.meta()) {
            return Ok(());
        }
        let mut receiver = snapshots.receive()?;
        let mut offset = 0;
        while offset < file.len() {
            let chunk = file.read_at(offset, COPIED_AT_ONCE)?;
            offset += chunk.len() as u64;
            receiver.write_chunk(&chunk)?;
        }
        receiver.finish().map(drop)
    }
}

fn pass(state: &mut State, index: LogIndex, payload: &[u8]) -> io::Result<Applied> {
    caught(index, || state_machine::pass(state, index, payload))
}

/// A panic in here would kill openraft's worker and leave the node running without applying anything. As an
/// error it stops the node, which is what a broken invariant must do.
fn caught(index: LogIndex, work: impl FnOnce() -> Applied) -> io::Result<Applied> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| io::Error::other(format!("applying entry {index} panicked")))
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let current = self.around.published.current();
        Ok((current.last, StoredMembership::clone(&current.membership)))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let started = self.around.clock.boottime();
        let mut count = 0;
        let mut batch = Batch::default();
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            self.apply_one(entry, responder, &mut batch)?;
            count += 1;
            if batch.entries >= BATCH_MAX {
                self.publish(&mut batch);
                // A long catch-up must not keep heartbeats waiting on a machine with few cores.
                tokio::task::yield_now().await;
            }
        }
        self.publish(&mut batch);
        self.around.observer.applied(count, self.around.clock.boottime().saturating_sub(started));
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        Builder {
            view: self.around.published.current().fork(),
            group: self.around.group.clone(),
            storage: self.around.storage.clone(),
            clock: self.around.clock.clone(),
            observer: self.around.observer.clone(),
        }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> io::Result<()> {
        let SnapshotData { file, state } = data;
        let state = match state {
            Some(state) => state,
            None => {
                let (file, storage) = (file.clone(), self.around.storage.clone());
                self.around.storage.off_thread(move || snapshot::load(&file, &storage)).await?
            }
        };
        self.keep(&file).map_err(|error| io_error(&error))?;
        let journal = &self.around.storage.journal;
        let (index, hash) = (state.applied(), state.hash());
        if journal.last_index() < Some(index.0) {
            // These entries were never applied here: a gap that the journal knows of, instead of a silent one.
            journal.start_after(index.0, hash.0).map_err(|error| io_error(&error))?;
        } else if let Some(known) = journal.hash_at(index.0).map_err(|error| io_error(&error))?
            && known != hash.0
        {
            self.around.stop.raise(StopReason::Diverged { index, ours: Hash(known), theirs: hash });
            return Err(io::Error::other(format!("the snapshot at index {index} differs from what was applied here")));
        }
        let (last, membership) = (meta.last_log_id, Arc::new(meta.last_membership.clone()));
        self.around.published.replace(Current { state: State::clone(&state), last, membership, failed: false });
        self.around.observer.state_replaced(&state);
        tracing::info!(%index, bytes = file.len(), position = ?last.as_ref().map(position), "state replaced by a snapshot");
        self.around.observer.snapshot_installed(file.len());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        let Some(file) = self.around.storage.snapshots.latest() else { return Ok(None) };
        let meta = snapshot::meta(file.meta()).map_err(|error| io_error(&error))?;
        Ok(Some(RaftSnapshot { meta, snapshot: SnapshotData { file, state: None } }))
    }
}

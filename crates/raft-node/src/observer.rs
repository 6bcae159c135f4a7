//! What a node tells whoever counts: the server's metrics, a test, nobody.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use loadline_log::{JournalRecord, WalObserver, WalState};
use loadline_state_machine::{Applied, State};

/// Told of what the node does. Called on hot paths: it must not block.
pub trait NodeObserver: Debug + Send + Sync + 'static {
    /// The write-ahead log reached the disk.
    fn synced(&self, _took: Duration, _bytes: usize, _records: usize) {}
    /// So many entries at the end of this node's log were cut off, because another leader decided otherwise.
    fn truncated(&self, _entries: u64) {}
    /// This is what this node's log says after a restart.
    fn recovered(&self, _state: &WalState) {}
    /// From now on others may rely on this much of this node's log and on its vote.
    fn promised(&self, _state: &WalState) {}
    /// One entry was applied, for the first time or once more after a restart. This is what it brought about, and the
    /// state after it.
    fn entry_applied(&self, _record: &JournalRecord, _applied: &Applied, _state: &State) {}
    /// The state is another one as a whole: that of a snapshot, from this node's disk or from the leader.
    fn state_replaced(&self, _state: &State) {}
    /// So many entries were applied in one go.
    fn applied(&self, _entries: usize, _took: Duration) {}
    /// One entry with so many requests went into the log.
    fn proposed(&self, _requests: usize, _bytes: usize) {}
    /// A request was answered, so long after it was taken in.
    fn answered(&self, _took: Duration) {}
    /// A request was turned away before it went into the log.
    fn refused(&self, _reason: &'static str) {}
    /// A snapshot was written.
    fn snapshot_built(&self, _took: Duration, _bytes: u64) {}
    /// The state was replaced by a snapshot of the leader's.
    fn snapshot_installed(&self, _bytes: u64) {}
    /// A message of a peer made no sense and was not acted upon.
    fn peer_message_refused(&self) {}
    /// This node became leader.
    fn elected(&self) {}
    /// So many old segments of the journal were let go.
    fn history_let_go(&self, _segments: u64) {}
    /// This node has looked: so many entries are not in its journal, and will be fetched if anybody has them.
    fn history_lacking(&self, _entries: u64) {}
    /// So many old entries were fetched from another node.
    fn history_fetched(&self, _entries: u64) {}
    /// The wall clock of a peer is so far ahead (positive) or behind.
    fn clock_skew(&self, _peer: u64, _millis: i64) {}
}

/// Nobody counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl NodeObserver for NoObserver {}

/// Two who count.
#[derive(Debug, Clone)]
pub struct Observers(pub Arc<dyn NodeObserver>, pub Arc<dyn NodeObserver>);

impl Observers {
    fn each(&self, tell: impl Fn(&dyn NodeObserver)) {
        tell(self.0.as_ref());
        tell(self.1.as_ref());
    }
}

impl NodeObserver for Observers {
    fn synced(&self, took: Duration, bytes: usize, records: usize) {
        self.each(|one| one.synced(took, bytes, records));
    }

    fn truncated(&self, entries: u64) {
        self.each(|one| one.truncated(entries));
    }

    fn recovered(&self, state: &WalState) {
        self.each(|one| one.recovered(state));
    }

    fn promised(&self, state: &WalState) {
        self.each(|one| one.promised(state));
    }

    fn entry_applied(&self, record: &JournalRecord, applied: &Applied, state: &State) {
        self.each(|one| one.entry_applied(record, applied, state));
    }

    fn state_replaced(&self, state: &State) {
        self.each(|one| one.state_replaced(state));
    }

    fn applied(&self, entries: usize, took: Duration) {
        self.each(|one| one.applied(entries, took));
    }

    fn proposed(&self, requests: usize, bytes: usize) {
        self.each(|one| one.proposed(requests, bytes));
    }

    fn answered(&self, took: Duration) {
        self.each(|one| one.answered(took));
    }

    fn refused(&self, reason: &'static str) {
        self.each(|one| one.refused(reason));
    }

    fn snapshot_built(&self, took: Duration, bytes: u64) {
        self.each(|one| one.snapshot_built(took, bytes));
    }

    fn snapshot_installed(&self, bytes: u64) {
        self.each(|one| one.snapshot_installed(bytes));
    }

    fn peer_message_refused(&self) {
        self.each(|one| one.peer_message_refused());
    }

    fn elected(&self) {
        self.each(|one| one.elected());
    }

    fn history_let_go(&self, segments: u64) {
        self.each(|one| one.history_let_go(segments));
    }

    fn history_lacking(&self, entries: u64) {
        self.each(|one| one.history_lacking(entries));
    }

    fn history_fetched(&self, entries: u64) {
        self.each(|one| one.history_fetched(entries));
    }

    fn clock_skew(&self, peer: u64, millis: i64) {
        self.each(|one| one.clock_skew(peer, millis));
    }
}

/// Hands the log's own figures on.
pub(crate) struct WalFigures(pub(crate) Arc<dyn NodeObserver>);

impl WalObserver for WalFigures {
    fn synced(&self, took: Duration, bytes: usize, records: usize) {
        self.0.synced(took, bytes, records);
    }

    fn truncated(&self, entries: u64) {
        self.0.truncated(entries);
    }

    fn recovered(&self, state: &WalState) {
        self.0.recovered(state);
    }

    fn promised(&self, state: &WalState) {
        self.0.promised(state);
    }
}

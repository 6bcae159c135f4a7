//! What a node tells whoever counts: the server's metrics, a test, nobody.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use loadline_log::WalObserver;

/// Told of what the node does. Called on hot paths: it must not block.
pub trait NodeObserver: Debug + Send + Sync + 'static {
    /// The write-ahead log reached the disk.
    fn synced(&self, _took: Duration, _bytes: usize, _records: usize) {}
    /// So many entries at the end of this node's log were cut off, because another leader decided otherwise.
    fn truncated(&self, _entries: u64) {}
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
    /// The wall clock of a peer is so far ahead (positive) or behind.
    fn clock_skew(&self, _peer: u64, _millis: i64) {}
}

/// Nobody counts.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl NodeObserver for NoObserver {}

/// Hands the log's own figures on.
pub(crate) struct WalFigures(pub(crate) Arc<dyn NodeObserver>);

impl WalObserver for WalFigures {
    fn synced(&self, took: Duration, bytes: usize, records: usize) {
        self.0.synced(took, bytes, records);
    }

    fn truncated(&self, entries: u64) {
        self.0.truncated(entries);
    }
}

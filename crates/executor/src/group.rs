//! What the executor sees of the group that it acts for: a state to read and a log to write. No Raft.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use loadline_state_machine::{Command, LogIndex, Receipt, State};

/// The group, as its leader's executor sees it.
pub trait Group: fmt::Debug + Send + Sync + 'static {
    /// What has been applied on this node, at this moment.
    fn state(&self) -> Arc<State>;

    /// Resolves when something beyond this index has been applied.
    fn applied_beyond(&self, index: LogIndex) -> BoxFuture<'_, ()>;

    /// Resolves when something beyond this index has been applied and there are actions that are not settled, or another leader
    /// was announced. It may resolve without: whoever waits looks.
    fn work_beyond(&self, index: LogIndex) -> BoxFuture<'_, ()> {
        self.applied_beyond(index)
    }

    /// Has commands recorded, all or none. A refusal is in the receipt.
    fn record(&self, commands: Vec<Command>) -> BoxFuture<'_, Result<Receipt, NotRecorded>>;
}

/// Nobody knows whether it was recorded; the state will show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct NotRecorded {
    pub reason: String,
}

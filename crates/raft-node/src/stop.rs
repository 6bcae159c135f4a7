//! The one place where a node's end is recorded: the first reason counts, and everybody can wait for it.

use tokio::sync::watch;

use crate::errors::StopReason;

/// Raised once; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal(watch::Sender<Option<StopReason>>);

impl Default for StopSignal {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl StopSignal {
    /// Records why the node stops. What follows from the first reason is not news.
    pub(crate) fn raise(&self, reason: StopReason) {
        self.0.send_if_modified(|raised| {
            let first = raised.is_none();
            if first {
                if reason == StopReason::ShutDown {
                    tracing::info!("{reason}");
                } else {
                    tracing::error!("this node stops: {reason}");
                }
                *raised = Some(reason);
            }
            first
        });
    }

    pub(crate) fn raised(&self) -> Option<StopReason> {
        self.0.borrow().clone()
    }

    pub(crate) async fn wait(&self) -> StopReason {
        let mut raised = self.0.subscribe();
        loop {
            if let Some(reason) = raised.borrow_and_update().clone() {
                return reason;
            }
            if raised.changed().await.is_err() {
                // The sender is in `self`, so it cannot be gone while somebody waits.
                return StopReason::ShutDown;
            }
        }
    }
}

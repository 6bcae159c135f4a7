//! What a duty knows of the leadership that it works under.

use std::fmt;
use std::sync::Arc;

use loadline_state_machine::Epoch;
use tokio_util::sync::CancellationToken;

/// One leadership of this node, as its Raft group granted it.
#[derive(Clone)]
pub struct Leadership {
    pub epoch: Epoch,
    /// Whether a quorum has acknowledged this leader recently enough. Being leader is no permission to act: a node that
    /// slept still believes in it, and only this says otherwise.
    lease_holds: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Leadership {
    pub fn new(epoch: Epoch, lease_holds: impl Fn() -> bool + Send + Sync + 'static) -> Leadership {
        Leadership { epoch, lease_holds: Arc::new(lease_holds) }
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// A leadership as a duty holds it: it can end at any moment.
#[derive(Debug, Clone)]
pub struct Tenure {
    leadership: Leadership,
    ended: CancellationToken,
}

impl Tenure {
    pub(crate) fn new(leadership: Leadership) -> Tenure {
        Tenure { leadership, ended: CancellationToken::new() }
    }

    pub fn epoch(&self) -> Epoch {
        self.leadership.epoch
    }

    /// To be asked immediately before everything that is felt outside.
    pub fn may_act(&self) -> bool {
        !self.ended.is_cancelled() && (self.leadership.lease_holds)()
    }

    /// Resolves when the leadership is over. For work that goes on in a task or thread of its own, which the end of the
    /// duty would not reach.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }

    pub(crate) fn end(&self) {
        self.ended.cancel();
    }
}

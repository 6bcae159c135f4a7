//! What an executor has to tell while it works: for figures and for the log.
//!
//! Nothing is decided by it. What must not be forgotten is in the replicated log; a note is for whoever looks on now.

use std::fmt;
use std::time::Duration;

use loadline_state_machine::{Action, ActionId, ClusterId, Epoch, Outcome};
use tracing::{debug, error, info, warn};

/// Is told what happens. It is called from the loop itself, so it must not block.
pub trait Noting: fmt::Debug + Send + Sync + 'static {
    fn note(&self, note: &Note<'_>);
}

/// Nobody listens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unnoted;

impl Noting for Unnoted {
    fn note(&self, _note: &Note<'_>) {}
}

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Note<'a> {
    /// The backend refuses orders of earlier leaders from now on; for one that cannot, what they may have sent was waited out.
    Fenced {
        backend: &'a str,
        epoch: Epoch,
        took: Duration,
    },
    /// It is tried again after `again_in`.
    FenceFailed {
        backend: &'a str,
        epoch: Epoch,
        reason: &'a str,
        again_in: Duration,
    },
    /// The call goes out now. `resumed`: an earlier attempt may have been made by somebody else.
    CallStarted {
        backend: &'a str,
        action: &'a Action,
        resumed: bool,
    },
    CallEnded {
        backend: &'a str,
        action: &'a Action,
        took: Duration,
        ending: CallEnding,
        reason: Option<&'a str>,
    },
    /// An order of which nobody knew what had become of it was looked up by its key.
    ReadBack {
        backend: &'a str,
        action: &'a Action,
        finding: Finding,
        reason: Option<&'a str>,
    },
    /// An outcome is in the replicated log, with the action as it was before.
    Recorded {
        backend: &'a str,
        action: &'a Action,
        outcome: &'a Outcome,
    },
    /// A claim was not accepted.
    ClaimRefused {
        backend: &'a str,
        action: &'a Action,
        code: &'static str,
        reason: String,
    },
    /// A claim was answered by "nobody wants it any more".
    Obsolete {
        backend: &'a str,
        action: &'a Action,
    },
    Breaker {
        backend: &'a str,
        state: BreakerState,
        reason: Option<&'a str>,
    },
    /// Said once per leadership and cluster: it lives where this node cannot reach it, or nowhere.
    NoBackend {
        cluster: ClusterId,
        backend: Option<&'a str>,
    },
    /// Somebody has to look at this.
    Alarm {
        backend: &'a str,
        action: Option<ActionId>,
        alarm: Alarm,
        reason: &'a str,
    },
    /// The replicas of a cluster were looked at.
    Observed {
        backend: &'a str,
        cluster: ClusterId,
        took: Duration,
        problem: Option<&'a str>,
    },
    /// What was seen differently from what is believed, and signs of life, went to the replicated log.
    Reported {
        backend: &'a str,
        clusters: usize,
        differences: usize,
    },
}

/// How a call ended, as far as figures go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEnding {
    Succeeded,
    Refused,
    Unknown,
    Fenced,
    OtherParameters,
}

impl CallEnding {
    pub const ALL: [CallEnding; 5] = [
        CallEnding::Succeeded,
        CallEnding::Refused,
        CallEnding::Unknown,
        CallEnding::Fenced,
        CallEnding::OtherParameters,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CallEnding::Succeeded => "succeeded",
            CallEnding::Refused => "refused",
            CallEnding::Unknown => "unknown",
            CallEnding::Fenced => "fenced",
            CallEnding::OtherParameters => "other-parameters",
        }
    }
}

/// What a look by key brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finding {
    Done,
    Failed,
    UnderWay,
    /// Not to be seen so far, which means nothing yet.
    NotSeen,
    /// Not to be seen, and if it had been carried out it would be.
    NeverCarriedOut,
    OtherParameters,
    /// The backend did not answer.
    NoAnswer,
}

impl Finding {
    pub fn name(self) -> &'static str {
        match self {
            Finding::Done => "done",
            Finding::Failed => "failed",
            Finding::UnderWay => "under-way",
            Finding::NotSeen => "not-seen",
            Finding::NeverCarriedOut => "never-carried-out",
            Finding::OtherParameters => "other-parameters",
            Finding::NoAnswer => "no-answer",
        }
    }
}

/// Whether a backend is called at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerState {
    /// All is well: it is called.
    Closed,
    /// It did not answer too often: it is left alone for a while.
    Open,
    /// One call tries whether it answers again.
    HalfOpen,
}

impl BreakerState {
    pub const ALL: [BreakerState; 3] = [BreakerState::Closed, BreakerState::Open, BreakerState::HalfOpen];

    pub fn name(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half-open",
        }
    }
}

/// What somebody has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Alarm {
    /// A key is known with other parameters: a fault of ours, or somebody else uses our keys.
    OtherParameters,
    /// The backend has been fenced at a later epoch while this node still leads, or believes so.
    FencedByAnother,
    /// An action was tried as often as it may be.
    DeadLettered,
}

impl Alarm {
    pub const ALL: [Alarm; 3] = [Alarm::OtherParameters, Alarm::FencedByAnother, Alarm::DeadLettered];

    pub fn name(self) -> &'static str {
        match self {
            Alarm::OtherParameters => "other-parameters",
            Alarm::FencedByAnother => "fenced-by-another",
            Alarm::DeadLettered => "dead-lettered",
        }
    }
}

impl Note<'_> {
    /// One line in the log of this node, for what is worth one whoever else listens.
    pub(crate) fn log(&self) {
        match self {
            Note::Fenced { backend, epoch, took } => info!(backend, %epoch, ?took, "the backend is fenced"),
            Note::FenceFailed { backend, epoch, reason, again_in } => {
                warn!(backend, %epoch, ?again_in, "the backend could not be fenced: {reason}");
            }
            Note::CallStarted { backend, action, resumed } => {
                debug!(backend, action = %action.id, attempt = action.attempt, resumed, "{}", action.call);
            }
            Note::CallEnded { backend, action, took, ending, reason } => {
                debug!(backend, action = %action.id, ?took, ending = ending.name(), reason, "a call has ended");
            }
            Note::ReadBack { backend, action, finding, reason } => {
                debug!(backend, action = %action.id, finding = finding.name(), reason, "an order was read back");
            }
            Note::Recorded { backend, action, outcome } => {
                debug!(backend, action = %action.id, ?outcome, "an outcome is recorded");
            }
            Note::ClaimRefused { backend, action, code, reason } => {
                debug!(backend, action = %action.id, code, "a claim was refused: {reason}");
            }
            Note::Obsolete { backend, action } => {
                debug!(backend, action = %action.id, "nobody wants this any more: {}", action.call);
            }
            Note::Breaker { backend, state, reason } => match state {
                BreakerState::Open => {
                    warn!(backend, reason, "the backend does not answer and is left alone for a while");
                }
                BreakerState::HalfOpen => debug!(backend, "one call tries whether the backend answers again"),
                BreakerState::Closed => info!(backend, "the backend answers again"),
            },
            Note::NoBackend { cluster, backend: Some(backend) } => {
                warn!(%cluster, backend, "this node has no such backend: the actions of the cluster wait");
            }
            Note::NoBackend { cluster, backend: None } => {
                warn!(%cluster, "the cluster is placed on no backend: its actions wait");
            }
            Note::Alarm { backend, action: Some(action), alarm, reason } => {
                error!(backend, %action, alarm = alarm.name(), "{reason}");
            }
            Note::Alarm { backend, action: None, alarm, reason } => {
                error!(backend, alarm = alarm.name(), "{reason}");
            }
            Note::Observed { backend, cluster, problem: Some(problem), .. } => {
                debug!(backend, %cluster, "the replicas could not be looked at: {problem}");
            }
            Note::Observed { problem: None, .. } => {}
            Note::Reported { backend, clusters, differences } => {
                debug!(backend, clusters, differences, "what was seen is recorded");
            }
        }
    }
}

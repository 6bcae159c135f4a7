//! Actions: one call on a backend each, from being planned to being settled. Only unsettled ones are kept; their last
//! event is the audit row.
//!
//! Not here: who may claim one and what an outcome does (`claims`).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::configuration::StrategyKind;
use crate::strategies::desired::ReplicaSpec;
use crate::strategies::reason::Reason;
use crate::table::{Key, Table};
use crate::{ActionId, ClusterId, Epoch, OperationId, Revision, Span, StrategyId, Time};

/// What a backend is asked to do. New calls go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    CreateReplica(ReplicaSpec),
    /// Take no new work.
    CordonReplica(ReplicaLife),
    /// Hand over the work there is.
    DrainReplica(ReplicaLife),
    /// End it: what scale-down calls terminate.
    DropReplica(ReplicaLife),
    /// Take work again.
    UncordonReplica(ReplicaLife),
}

/// A replica that is there: its name may be given to another one, its incarnation may not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaLife {
    pub name: Key,
    pub size: Key,
    pub incarnation: Option<Key>,
}

impl Call {
    /// As in the `action_type` of an audit row.
    pub fn code(&self) -> &'static str {
        match self {
            Self::CreateReplica(_) => "create_replica",
            Self::CordonReplica(_) => "cordon_replica",
            Self::DrainReplica(_) => "drain_replica",
            Self::DropReplica(_) => "drop_replica",
            Self::UncordonReplica(_) => "uncordon_replica",
        }
    }

    pub fn replica(&self) -> &Key {
        match self {
            Self::CreateReplica(replica) => &replica.name,
            Self::CordonReplica(life)
            | Self::DrainReplica(life)
            | Self::DropReplica(life)
            | Self::UncordonReplica(life) => &life.name,
        }
    }

    pub fn size(&self) -> &Key {
        match self {
            Self::CreateReplica(replica) => &replica.size,
            Self::CordonReplica(life)
            | Self::DrainReplica(life)
            | Self::DropReplica(life)
            | Self::UncordonReplica(life) => &life.size,
        }
    }

    /// Whether the rate limit counts it. Steps on the way to a drop are part of that drop.
    pub fn is_counted(&self) -> bool {
        matches!(self, Self::CreateReplica(_) | Self::DropReplica(_))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CreateReplica(replica) => write!(f, "create replica {} of size {}", replica.name, replica.size),
            Self::CordonReplica(life) => write!(f, "cordon replica {}", life.name),
            Self::DrainReplica(life) => write!(f, "drain replica {}", life.name),
            Self::DropReplica(life) => write!(f, "drop replica {} of size {}", life.name, life.size),
            Self::UncordonReplica(life) => write!(f, "uncordon replica {}", life.name),
        }
    }
}

/// How far an action is. New states go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ActionStatus {
    AwaitingApproval {
        expires_at: Time,
    },
    /// Free to be claimed, after a failure not before a certain time.
    Pending {
        not_before: Option<Time>,
    },
    /// The intent to call is in the log; the call may have been made.
    Claimed {
        epoch: Epoch,
        at: Time,
    },
    /// The call was made and nobody knows what came of it.
    Unknown {
        epoch: Epoch,
        at: Time,
    },
    Succeeded,
    /// It failed in a way that trying again would not help.
    Failed,
    /// It failed too often.
    DeadLettered,
    /// Nobody wants it any more, and it was never called.
    Obsolete,
    /// The kill switch was off: it would have been executed.
    Suppressed,
    Rejected,
    /// Nobody approved it in time.
    Expired,
    /// A backup was restored: what became of it belongs to another life of the group.
    Abandoned,
}

impl ActionStatus {
    pub const CODES: &'static [(&'static str, &'static str)] = &[
        ("AWAITING_APPROVAL", "It waits for somebody to approve or reject it."),
        ("PENDING", "It is free to be claimed."),
        ("CLAIMED", "The leader is about to call, or has called, the backend."),
        ("UNKNOWN", "The backend was called, and nobody knows what came of it."),
        ("SUCCEEDED", "It was executed."),
        ("FAILED", "It failed, and trying again would not help."),
        ("DEAD_LETTERED", "It failed as often as it may be tried."),
        ("OBSOLETE", "It was no longer wanted before it was called."),
        ("SUPPRESSED", "Auto-scaling was disabled: it would have been executed."),
        ("REJECTED", "Somebody rejected it."),
        ("EXPIRED", "Nobody approved it in time."),
        ("ABANDONED", "A backup was restored before its outcome was known."),
    ];

    pub fn code(self) -> &'static str {
        let place = match self {
            Self::AwaitingApproval { .. } => 0,
            Self::Pending { .. } => 1,
            Self::Claimed { .. } => 2,
            Self::Unknown { .. } => 3,
            Self::Succeeded => 4,
            Self::Failed => 5,
            Self::DeadLettered => 6,
            Self::Obsolete => 7,
            Self::Suppressed => 8,
            Self::Rejected => 9,
            Self::Expired => 10,
            Self::Abandoned => 11,
        };
        Self::CODES[place].0
    }

    pub fn is_settled(self) -> bool {
        !matches!(
            self,
            Self::AwaitingApproval { .. } | Self::Pending { .. } | Self::Claimed { .. } | Self::Unknown { .. }
        )
    }

    /// The backend may have been called, so it has to be found out what came of it.
    pub fn is_in_flight(self) -> bool {
        matches!(self, Self::Claimed { .. } | Self::Unknown { .. })
    }
}

/// One call on a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Action {
    pub id: ActionId,
    /// Counted up, for those who know actions by number.
    pub number: u64,
    /// Which life of the group planned it. With the id, this is the key under which the backend is called.
    pub incarnation: u64,
    pub cluster: ClusterId,
    /// Nothing for one that was suppressed.
    pub operation: Option<OperationId>,
    pub strategy: StrategyId,
    pub kind: StrategyKind,
    pub reason: Reason,
    pub decision: Revision,
    pub call: Call,
    pub status: ActionStatus,
    /// How often it has been claimed.
    pub attempt: u32,
    pub created_at: Time,
    /// Nothing before it is settled.
    pub settled_at: Option<Time>,
    /// What the backend said when it failed last, or why it was rejected.
    pub error: Option<String>,
}

impl Action {
    /// What makes a repeat of the call recognisable to the backend, whichever leader makes it.
    pub fn key(&self) -> String {
        format!("{}/{}", self.incarnation, self.id)
    }

    pub(crate) fn with(&self, status: ActionStatus) -> Self {
        Self { status, ..self.clone() }
    }

    /// How long to wait after this attempt failed.
    pub(crate) fn backoff(&self) -> Span {
        const FIRST_MILLIS: u64 = 1_000;
        const LONGEST_MILLIS: u64 = 60_000;
        let doublings = self.attempt.saturating_sub(1).min(6);
        Span::from_millis((FIRST_MILLIS << doublings).min(LONGEST_MILLIS))
    }
}

/// What came of a call. New outcomes go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    Succeeded {
        report: Report,
    },
    Failed {
        retryable: bool,
        reason: String,
    },
    /// No answer came, or one that says nothing: it may have been done.
    Unknown {
        reason: String,
    },
}

/// What a backend had to tell about its success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Nothing,
    /// The life that was started.
    Created {
        incarnation: Option<String>,
    },
    Drained(DrainResult),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainResult {
    /// How much work was handed over.
    pub moved: u64,
    /// How much was left behind.
    pub left: u64,
}

/// The unsettled actions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    by_id: Table<ActionId, Arc<Action>>,
    /// The highest number ever given out.
    pub(crate) numbers: u64,
}

impl Actions {
    pub(crate) fn get(&self, id: ActionId) -> Option<&Arc<Action>> {
        self.by_id.get(&id)
    }

    /// The oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Action>> {
        self.by_id.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Keeps it for as long as it is not settled.
    pub(crate) fn put(&mut self, action: &Action) {
        self.numbers = self.numbers.max(action.number);
        match action.status.is_settled() {
            true => self.by_id.remove(&action.id),
            false => self.by_id.insert(action.id, Arc::new(action.clone())),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogIndex;

    #[test]
    fn the_wait_after_a_failure_doubles_up_to_a_minute() {
        let nothing = Revision { index: LogIndex(1), ordinal: 0 };
        let mut action = Action {
            id: nothing.into(),
            number: 1,
            incarnation: 7,
            cluster: nothing.into(),
            operation: None,
            strategy: nothing.into(),
            kind: StrategyKind::Burst,
            reason: Reason::NoOthers,
            decision: nothing,
            call: Call::CreateReplica(ReplicaSpec { name: "burst_auto".into(), size: "1".into() }),
            status: ActionStatus::Pending { not_before: None },
            attempt: 0,
            created_at: Time::default(),
            settled_at: None,
            error: None,
        };
        let mut waits = Vec::new();
        for attempt in [1, 2, 3, 6, 7, u32::MAX] {
            action.attempt = attempt;
            waits.push(action.backoff().as_millis() / 1_000);
        }
        assert_eq!(waits, [1, 2, 4, 32, 60, 60]);
        assert_eq!(action.key(), "7/a1.0");
    }
}

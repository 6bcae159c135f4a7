//! Actions: one call on a backend each, from being planned to being settled. Only unsettled ones are kept; their last
//! event is the audit row.
//!
//! Not here: who may claim one and what an outcome does (`claims`).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::plan::Origin;
use crate::encoding::Encoder;
use crate::strategies::desired::ReplicaSpec;
use crate::strategies::reason::Reason;
use crate::table::{Key, Table};
use crate::{ActionId, ClusterId, Epoch, Event, Hash, NodeNumber, OperationId, Revision, Span, Time};

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
    /// Keep what the next replica of that name can go on from. Asked only of a backend that says it can.
    CheckpointReplica(ReplicaLife),
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
            Self::CheckpointReplica(_) => "checkpoint_replica",
        }
    }

    pub fn replica(&self) -> &Key {
        match self {
            Self::CreateReplica(replica) => &replica.name,
            Self::CordonReplica(life)
            | Self::DrainReplica(life)
            | Self::DropReplica(life)
            | Self::UncordonReplica(life)
            | Self::CheckpointReplica(life) => &life.name,
        }
    }

    pub fn size(&self) -> &Key {
        match self {
            Self::CreateReplica(replica) => &replica.size,
            Self::CordonReplica(life)
            | Self::DrainReplica(life)
            | Self::DropReplica(life)
            | Self::UncordonReplica(life)
            | Self::CheckpointReplica(life) => &life.size,
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
            Self::CheckpointReplica(life) => write!(f, "checkpoint replica {}", life.name),
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
    /// Given up by an operator, or by a restored backup: what became of it belongs to another life of the group.
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
        ("ABANDONED", "An operator gave it up, or a backup was restored before its outcome was known."),
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

/// One try: who claimed it, and who found out what came of it. That may be another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// From 1.
    pub number: u32,
    pub epoch: Epoch,
    pub node: NodeNumber,
    pub claimed_at: Time,
    /// Nothing while nobody has said anything about it, and for good if it was sent again without that.
    pub ended: Option<AttemptEnd>,
}

/// The last word about an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    pub epoch: Epoch,
    /// The leader at that time.
    pub node: NodeNumber,
    pub at: Time,
    pub result: AttemptResult,
}

/// New results go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AttemptResult {
    Succeeded,
    Failed {
        retryable: bool,
    },
    /// So far.
    Unknown,
    /// An operator has said what came of it.
    Resolved {
        succeeded: bool,
    },
    /// An operator has given it up.
    Abandoned,
}

impl AttemptResult {
    pub fn code(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed { .. } => "FAILED",
            Self::Unknown => "UNKNOWN",
            Self::Resolved { .. } => "RESOLVED",
            Self::Abandoned => "ABANDONED",
        }
    }

    fn is_by_hand(self) -> bool {
        matches!(self, Self::Resolved { .. } | Self::Abandoned)
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
    /// What the cluster was called when it was planned, or claimed last. It may be gone by now.
    pub cluster_name: Key,
    /// Nothing for one that was suppressed.
    pub operation: Option<OperationId>,
    pub by: Origin,
    pub reason: Reason,
    pub decision: Revision,
    pub call: Call,
    pub status: ActionStatus,
    /// How often it has been claimed.
    pub attempt: u32,
    /// Where it is called. The first claim says so for good: a cluster that is moved does not take it along.
    pub backend: Option<Key>,
    /// Of all that its call says, as the first claim had it.
    pub intent: Option<Hash>,
    /// As many as it was claimed, the first one first.
    pub attempts: Vec<Attempt>,
    /// How often an operator wanted it to be tried, or read back, at once.
    pub hurried: u32,
    pub created_at: Time,
    /// Nothing before it is settled.
    pub settled_at: Option<Time>,
    /// What the backend said when it failed last, or what somebody said who settled it by hand.
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

    /// Of everything that the call says, on this backend. Whoever calls under the same key must come to the same.
    pub fn parameters(&self, backend: &str) -> Hash {
        let mut out = Encoder::bare();
        out.put(&self.key());
        out.put(&self.cluster);
        out.put(backend);
        out.put(&self.call);
        Hash::of(&out.into_bytes())
    }

    /// The nodes that have worked on it, each as often as it took over from another.
    pub fn worked_on_by(&self) -> Vec<NodeNumber> {
        let mut nodes: Vec<NodeNumber> = self
            .attempts
            .iter()
            .flat_map(|attempt| {
                let ended = attempt.ended.filter(|end| !end.result.is_by_hand()).map(|end| end.node);
                [Some(attempt.node), ended]
            })
            .flatten()
            .collect();
        nodes.dedup();
        nodes
    }

    /// How long to wait after this attempt failed: a second, doubled up to a minute, and up to a quarter more or less, so that
    /// what failed together is not tried again together. Every node comes to the same.
    pub(crate) fn backoff(&self) -> Span {
        const FIRST_MILLIS: u64 = 1_000;
        const LONGEST_MILLIS: u64 = 60_000;
        let doublings = self.attempt.saturating_sub(1).min(6);
        let millis = (FIRST_MILLIS << doublings).min(LONGEST_MILLIS);
        let mut out = Encoder::bare();
        out.put(&self.id);
        out.put(&self.attempt);
        let Hash(bytes) = Hash::of(&out.into_bytes());
        let drawn = bytes.iter().take(8).fold(0, |drawn: u64, byte| drawn << 8 | u64::from(*byte));
        Span::from_millis(millis - millis / 4 + drawn % (millis / 2 + 1))
    }

    /// The current attempt with its end.
    pub(crate) fn attempts_ended(&self, end: AttemptEnd) -> Vec<Attempt> {
        let mut attempts = self.attempts.clone();
        if let Some(last) = attempts.last_mut() {
            last.ended = Some(end);
        }
        attempts
    }

    /// Whether it could have come about here, as far as it can be told from itself.
    pub(crate) fn is_possible(&self) -> bool {
        let claimed = self.attempt > 0;
        let counted = match self.status {
            ActionStatus::AwaitingApproval { .. } => !claimed,
            status => claimed || !status.is_in_flight(),
        };
        let numbers = self.attempts.iter().map(|attempt| attempt.number);
        counted && self.backend.is_some() == claimed && self.intent.is_some() == claimed && numbers.eq(1..=self.attempt)
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

impl Event {
    /// The action that it is about, as it is after it.
    pub fn action(&self) -> Option<&Action> {
        match self {
            Self::ActionPlanned { action }
            | Self::ActionApproved { action }
            | Self::ActionClaimed { action }
            | Self::ActionReturned { action }
            | Self::ActionUnsure { action }
            | Self::ActionHurried { action }
            | Self::ActionSettled { action, .. }
            | Self::DeadLetterCleared { action, .. } => Some(action),
            _ => None,
        }
    }
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
pub(super) mod tests {
    use super::*;
    use crate::LogIndex;

    pub(in crate::scaling) fn action() -> Action {
        let nothing = Revision { index: LogIndex(1), ordinal: 0 };
        Action {
            id: nothing.into(),
            number: 1,
            incarnation: 7,
            cluster: nothing.into(),
            cluster_name: "demo".into(),
            operation: None,
            by: Origin::User,
            reason: Reason::NoOthers,
            decision: nothing,
            call: Call::CreateReplica(ReplicaSpec { name: "burst_auto".into(), size: "1".into() }),
            status: ActionStatus::Pending { not_before: None },
            attempt: 0,
            backend: None,
            intent: None,
            attempts: vec![],
            hurried: 0,
            created_at: Time::default(),
            settled_at: None,
            error: None,
        }
    }

    #[test]
    fn the_wait_after_a_failure_doubles_up_to_a_minute_and_differs_by_action() {
        let waits = |ordinal, attempt| {
            let id = ActionId { index: LogIndex(1), ordinal };
            Action { id, attempt, ..action() }.backoff().as_millis()
        };
        for (attempt, around) in [(1, 1_000), (2, 2_000), (3, 4_000), (6, 32_000), (7, 60_000), (u32::MAX, 60_000)] {
            let all: Vec<u64> = (0..100).map(|ordinal| waits(ordinal, attempt)).collect();
            let (least, most) = (around - around / 4, around + around / 4);
            assert!(all.iter().all(|wait| (least..=most).contains(wait)), "{attempt}: {all:?}");
            let spread = all.iter().max().zip(all.iter().min()).map_or(0, |(most, least)| most - least);
            assert!(spread > around / 3, "attempt {attempt} of many actions comes at different times: {spread}");
        }
        assert_eq!(waits(3, 2), waits(3, 2));
    }

    #[test]
    fn parameters_tell_every_part_of_a_call_and_neither_attempt_nor_name() {
        let known = action().parameters("local");
        assert_eq!(Action { attempt: 7, cluster_name: "renamed".into(), ..action() }.parameters("local"), known);
        assert_ne!(action().parameters("other"), known);
        assert_ne!(Action { incarnation: 8, ..action() }.parameters("local"), known);
        let other = Revision { index: LogIndex(2), ordinal: 0 };
        assert_ne!(Action { cluster: other.into(), ..action() }.parameters("local"), known);
        let call = Call::CreateReplica(ReplicaSpec { name: "burst_auto".into(), size: "2".into() });
        assert_ne!(Action { call, ..action() }.parameters("local"), known);
        assert_eq!(action().key(), "7/a1.0");
    }

    #[test]
    fn who_worked_on_an_action_is_told_in_order() {
        let epoch = Epoch { incarnation: 7, index: LogIndex(1) };
        let ended = |node, result| Some(AttemptEnd { epoch, node: NodeNumber(node), at: Time::default(), result });
        let attempt = |number, node, ended| {
            let node = NodeNumber(node);
            Attempt { number, epoch, node, claimed_at: Time::default(), ended }
        };
        let nodes = |attempts| Action { attempts, ..action() }.worked_on_by().iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(nodes(vec![]), [0; 0]);
        assert_eq!(nodes(vec![attempt(1, 1, ended(1, AttemptResult::Succeeded))]), [1]);
        assert_eq!(nodes(vec![attempt(1, 1, ended(2, AttemptResult::Succeeded))]), [1, 2]);
        let again = attempt(2, 2, ended(3, AttemptResult::Resolved { succeeded: true }));
        assert_eq!(nodes(vec![attempt(1, 1, None), again]), [1, 2], "an operator is no node");
    }
}

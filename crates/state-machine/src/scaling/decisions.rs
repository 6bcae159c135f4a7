//! A decision: what the strategies said for one cluster at one log index, with everything they saw, every reason, every
//! brake, and when it would come out differently by itself.
//!
//! A decision is data. It carries codes and values; the text is made when somebody looks (`explain`).

use serde::{Deserialize, Serialize};

use super::plan::Planned;
use crate::signals::Signals;
use crate::strategies::chain::{Said, Stage};
use crate::strategies::desired::{Change, ReplicaSpec};
use crate::strategies::reason::ChangesAt;
use crate::{ClusterId, OperationId, Revision, Span, Time};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// The event that recorded it.
    pub id: Revision,
    pub cluster: ClusterId,
    pub at: Time,
    /// What was known. How old each signal was follows from `at`, whether that was too old from `stale_after`.
    pub inputs: Signals,
    pub stale_after: Span,
    /// In the order in which the strategies ran.
    pub stages: Vec<Stage>,
    pub desired: Vec<ReplicaSpec>,
    /// What lies between what is there and what is wanted.
    pub planned: Vec<Planned>,
    /// The same with the strategies that are in dry run; nothing if none is.
    pub shadow: Option<Box<Shadow>>,
    pub brakes: Vec<Held>,
    pub conclusion: Conclusion,
    pub changes_at: Option<ChangesAt>,
}

/// The road not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shadow {
    pub stages: Vec<Stage>,
    pub desired: Vec<ReplicaSpec>,
    pub planned: Vec<Planned>,
}

/// What came of it. New conclusions go at the end: the place is the number in stored decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Conclusion {
    /// What is wanted is there.
    AsWanted,
    /// Something is wanted, and a brake holds it.
    Held,
    Began(OperationId),
    /// An operation that began earlier goes on.
    UnderWay(OperationId),
    /// The kill switch is off: what would have been done is recorded, and not done.
    Suppressed,
    /// A strategy failed.
    Faulted,
}

impl Conclusion {
    pub const CODES: &'static [(&'static str, &'static str)] = &[
        ("AS_WANTED", "What is wanted is there."),
        ("HELD", "Something is wanted, and a brake holds it."),
        ("BEGAN", "An operation began."),
        ("UNDER_WAY", "An operation that began earlier goes on."),
        ("SUPPRESSED", "The kill switch is off: recorded, and not carried out."),
        ("FAULTED", "A strategy failed: the cluster holds."),
    ];

    pub fn code(self) -> &'static str {
        let place = match self {
            Self::AsWanted => 0,
            Self::Held => 1,
            Self::Began(_) => 2,
            Self::UnderWay(_) => 3,
            Self::Suppressed => 4,
            Self::Faulted => 5,
        };
        Self::CODES[place].0
    }
}

/// What keeps something that is wanted from being done. New brakes go at the end: the place is the number in stored
/// decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Brake {
    KillSwitch,
    Paused,
    ClusterCooldown,
    RateLimit,
    FailureBackoff,
    OperationUnderWay,
    Rejected,
    StrategyFaulted,
    StrategyCooldown,
}

impl Brake {
    pub const ALL: &'static [Self] = &[
        Self::KillSwitch,
        Self::Paused,
        Self::ClusterCooldown,
        Self::RateLimit,
        Self::FailureBackoff,
        Self::OperationUnderWay,
        Self::Rejected,
        Self::StrategyFaulted,
        Self::StrategyCooldown,
    ];

    pub fn code(self) -> &'static str {
        match self {
            Self::KillSwitch => "KILL_SWITCH",
            Self::Paused => "PAUSED",
            Self::ClusterCooldown => "CLUSTER_COOLDOWN",
            Self::RateLimit => "RATE_LIMIT",
            Self::FailureBackoff => "FAILURE_BACKOFF",
            Self::OperationUnderWay => "OPERATION_UNDER_WAY",
            Self::Rejected => "REJECTED",
            Self::StrategyFaulted => "STRATEGY_FAULTED",
            Self::StrategyCooldown => "STRATEGY_COOLDOWN",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::KillSwitch => "auto-scaling is disabled: recorded as what would have been executed",
            Self::Paused => "the cluster is paused",
            Self::ClusterCooldown => "the cluster was changed a short while ago",
            Self::RateLimit => "as many actions as are allowed were taken lately",
            Self::FailureBackoff => "the last operation failed",
            Self::OperationUnderWay => "an operation is under way",
            Self::Rejected => "somebody rejected this change; it is proposed again when something else is wanted",
            Self::StrategyFaulted => "a strategy failed",
            Self::StrategyCooldown => "a strategy changed something a short while ago, and waits",
        }
    }
}

/// A brake that bit, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Held {
    pub brake: Brake,
    /// Nothing: not by the passing of time alone.
    pub until: Option<Time>,
}

impl Decision {
    /// The same decision on other facts: nobody needs to be told again that a cluster is idle one second longer. What is
    /// compared is what was said and done, not the numbers behind it.
    pub(crate) fn is_like(&self, said: &Said, planned: &[Planned], drafted: &(Conclusion, &[Held])) -> bool {
        let (conclusion, brakes) = *drafted;
        let same_brakes = self.brakes.len() == brakes.len()
            && self.brakes.iter().zip(brakes).all(|(one, other)| one.brake == other.brake);
        // Beginning an operation and then seeing it under way is one story.
        let same_conclusion = match (self.conclusion, conclusion) {
            (Conclusion::Began(one) | Conclusion::UnderWay(one), Conclusion::UnderWay(other)) => one == other,
            (one, other) => one == other,
        };
        same_conclusion
            && same_brakes
            && same_stages(&self.stages, &said.stages)
            && said.desired.replicas().eq(&self.desired)
            && same_plan(&self.planned, planned)
            && match (&self.shadow, &said.shadow) {
                (None, None) => true,
                (Some(one), Some(other)) => {
                    same_stages(&one.stages, &other.stages) && other.desired.replicas().eq(&one.desired)
                }
                _ => false,
            }
    }
}

fn same_stages(ones: &[Stage], others: &[Stage]) -> bool {
    ones.len() == others.len()
        && ones.iter().zip(others).all(|(one, other)| {
            one.strategy == other.strategy
                && one.tied_with == other.tied_with
                && one.reason.is_like(&other.reason)
                && same_changes(&one.changes, &other.changes)
                && same_changes(&one.held_back, &other.held_back)
        })
}

fn same_changes(ones: &[Change], others: &[Change]) -> bool {
    let same = |one: &Change, other: &Change| one.alteration == other.alteration && one.reason.is_like(&other.reason);
    ones.len() == others.len() && ones.iter().zip(others).all(|(one, other)| same(one, other))
}

/// The same steps for the same kind of reason.
pub(crate) fn same_plan(ones: &[Planned], others: &[Planned]) -> bool {
    ones.len() == others.len()
        && ones.iter().zip(others).all(|(one, other)| {
            one.step == other.step && one.strategy == other.strategy && one.reason.is_like(&other.reason)
        })
}

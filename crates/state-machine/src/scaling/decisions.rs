//! A decision: what the strategies said for one cluster at one log index, with everything they saw, every reason, every
//! brake, and when it would come out differently by itself.
//!
//! A decision is data. It carries codes and values; the text is made when somebody looks (`explain`).

use serde::{Deserialize, Serialize};

use super::essence::Essence;
use super::plan::Planned;
use crate::encoding::{Decoder, Encoder};
use crate::signals::Signals;
use crate::strategies::chain::Stage;
use crate::strategies::desired::ReplicaSpec;
use crate::strategies::reason::ChangesAt;
use crate::{Blob, ClusterId, DecodeError, OperationId, Revision, Span, Time};

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

    /// The same as the code, for those who only compare.
    pub(crate) fn number(self) -> u64 {
        self as u64
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

const DECISION_FORMAT: u16 = 1;

impl Decision {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::with_format(DECISION_FORMAT);
        out.put(self);
        out.into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::with_format("decision", DECISION_FORMAT, bytes)?;
        let decision = from.take()?;
        from.finish()?;
        Ok(decision)
    }
}

/// The latest decision about a cluster, as the state keeps it: in bytes, because it is read when somebody asks and not
/// at every evaluation. A hundred thousand of them as they are would take four times the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) essence: Essence,
    pub(crate) plan: Essence,
    pub(crate) conclusion: Conclusion,
    bytes: Blob,
}

impl Kept {
    pub(crate) fn new(decision: &Decision) -> Self {
        Self {
            essence: Essence::of_decision(decision),
            plan: Essence::of_plan(&decision.planned),
            conclusion: decision.conclusion,
            bytes: decision.encode().into(),
        }
    }

    pub(crate) fn read(&self) -> Result<Decision, DecodeError> {
        Decision::decode(self.bytes.as_slice())
    }
}

//! What goes over the wire: the bodies of requests and answers, and the headers that repeat what a proxy or a log wants to see.
//!
//! Not here: what an answer means (`answer`). `docs/backends/webhook.md` says the same for those who write a receiver. Fields are
//! only ever added; a receiver ignores those that it does not know.

use loadline_state_machine::Call;
use serde::{Deserialize, Serialize};

pub use crate::backends::epochs::{epoch_text, parse_epoch};
use crate::{ClusterAddress, ObservedHydration, ObservedReplica, Order};

pub const KEY_HEADER: &str = "idempotency-key";
pub const EPOCH_HEADER: &str = "loadline-epoch";
pub const ATTEMPT_HEADER: &str = "loadline-attempt";
pub const PARAMETERS_HEADER: &str = "loadline-parameters";
pub const DEADLINE_HEADER: &str = "loadline-deadline-ms";

/// What is asked. Its kind is part of the body, so that nobody can take the signed body of one request for another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    Execute(OrderBody),
    Find(OrderBody),
    Fence(FenceBody),
    Observe(ObserveBody),
}

impl Request {
    /// The last part of the address that it is sent to.
    pub fn endpoint(&self) -> &'static str {
        match self {
            Self::Execute(_) => "execute",
            Self::Find(_) => "find",
            Self::Fence(_) => "fence",
            Self::Observe(_) => "observe",
        }
    }

    /// Headers repeat what is in the body. They are not signed: what counts is the body.
    pub fn headers(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Execute(order) | Self::Find(order) => vec![
                (KEY_HEADER, order.key.clone()),
                (EPOCH_HEADER, order.epoch.clone()),
                (ATTEMPT_HEADER, order.attempt.to_string()),
                (PARAMETERS_HEADER, order.parameters.clone()),
                (DEADLINE_HEADER, order.deadline_ms.to_string()),
            ],
            Self::Fence(fence) => vec![(EPOCH_HEADER, fence.epoch.clone())],
            Self::Observe(_) => Vec::new(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderBody {
    pub key: String,
    pub epoch: String,
    pub attempt: u32,
    pub parameters: String,
    /// Counted from the time in the signature: carried out by then, or never.
    pub deadline_ms: u64,
    pub cluster: ClusterBody,
    pub call: CallBody,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterBody {
    pub id: String,
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallBody {
    /// `create_replica`, `cordon_replica`, `drain_replica`, `checkpoint_replica`, `drop_replica` or `uncordon_replica`.
    #[serde(rename = "type")]
    pub kind: String,
    pub replica: String,
    pub size: String,
    /// Which life of that name is meant. Nothing for one that is to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FenceBody {
    pub epoch: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserveBody {
    pub cluster: ClusterBody,
}

impl OrderBody {
    pub(super) fn of(order: &Order, deadline_ms: u64) -> Self {
        Self {
            key: order.key.clone(),
            epoch: epoch_text(order.epoch),
            attempt: order.attempt,
            parameters: order.parameters.to_string(),
            deadline_ms,
            cluster: ClusterBody::of(&order.cluster),
            call: CallBody::of(&order.call),
        }
    }
}

impl ClusterBody {
    pub(super) fn of(cluster: &ClusterAddress) -> Self {
        Self { id: cluster.id.to_string(), name: cluster.name.clone() }
    }
}

impl CallBody {
    fn of(call: &Call) -> Self {
        let incarnation = match call {
            Call::CreateReplica(_) => None,
            Call::CordonReplica(life)
            | Call::DrainReplica(life)
            | Call::DropReplica(life)
            | Call::UncordonReplica(life)
            | Call::CheckpointReplica(life) => life.incarnation.as_ref().map(ToString::to_string),
        };
        Self {
            kind: call.code().to_owned(),
            replica: call.replica().to_string(),
            size: call.size().to_string(),
            incarnation,
        }
    }
}

/// What a receiver says about an order or a fence. Which of these fields it needs goes with the status code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The key that was asked about. Without it, anything between us and the receiver could have answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Which life was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<DrainedBody>,
    /// Of a failure that `find` tells of: whether another attempt could help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The highest epoch that the receiver has seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest: Option<String>,
    /// The parameters under which it knows the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainedBody {
    pub moved: u64,
    pub left: u64,
}

/// The replicas of one cluster. There is no default for `replicas`: a list that is missing does not mean that there are none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// The id that was asked about.
    pub cluster: String,
    pub replicas: Vec<ReplicaBody>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaBody {
    pub name: String,
    pub size: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
    pub ready: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hydration: Option<HydrationBody>,
    #[serde(default)]
    pub crashes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_reason: Option<String>,
    #[serde(default)]
    pub oom: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HydrationBody {
    pub total: u64,
    pub hydrated: u64,
}

impl From<ReplicaBody> for ObservedReplica {
    fn from(replica: ReplicaBody) -> Self {
        Self {
            name: replica.name,
            size: replica.size,
            incarnation: replica.incarnation,
            ready: replica.ready,
            hydration: replica
                .hydration
                .map(|hydration| ObservedHydration { total: hydration.total, hydrated: hydration.hydrated }),
            crashes: replica.crashes,
            crash_reason: replica.crash_reason,
            oom: replica.oom,
        }
    }
}

/// What a receiver says about itself when it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilitiesBody {
    /// There is no default: whether it refuses lower epochs is nothing to be guessed.
    pub fences: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility_delay_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls_max: Option<usize>,
    /// Whether it keeps a checkpoint of a replica that is suspended. One that says nothing is not asked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<bool>,
}

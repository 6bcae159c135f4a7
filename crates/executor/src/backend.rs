//! The one small trait behind which replicas live, and its words.
//!
//! Not here: when a backend is called, and what follows from its answer (`acting`). Each backend is a folder in `backends`, and
//! each one runs the same suite, `conformance`.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use loadline_state_machine::{Call, ClusterId, Epoch, Hash, Report};

/// What a backend answers, or why it did not.
pub type Answering<'a, T> = BoxFuture<'a, Result<T, CallError>>;

/// Where replicas live.
///
/// Every call may be dropped at an await point, and may be made by several nodes at once: an old leader that does not know
/// yet that it is one, and the new one. The epoch says who may; the key says what has been asked for before.
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    fn capabilities(&self) -> Capabilities;

    /// From when this returns, and for good, no order of a lower epoch is carried out. One that was accepted before may still
    /// be under way; `find` says so.
    fn fence(&self, epoch: Epoch) -> Answering<'_, ()>;

    /// Does it once per key: a key that was carried out before is answered with what came of it then, and changes nothing.
    fn execute<'a>(&'a self, order: &'a Order) -> Answering<'a, Report>;

    /// What has become of an order, by its key. Nothing is changed.
    fn find<'a>(&'a self, order: &'a Order) -> Answering<'a, Found>;

    /// The replicas of a cluster that are there, whoever made them.
    fn observe<'a>(&'a self, cluster: &'a ClusterAddress) -> Answering<'a, Vec<ObservedReplica>>;
}

/// What can be expected of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether it refuses lower epochs. Where it cannot, a new leader waits out what the last one may still have sent: the
    /// call deadline and the visibility delay.
    pub fences: bool,
    /// How long after a call was carried out `find` and `observe` may still not show it.
    pub visibility_delay: Duration,
    /// A call that has not been answered by then counts as unknown, and is carried out by then or never.
    pub call_deadline: Duration,
    /// How many calls it takes at a time, over all clusters.
    pub calls_max: usize,
    /// How often it is looked at when nothing happens.
    pub observe_every: Duration,
    /// Whether it keeps a checkpoint of a replica when it is asked to, from which the next one of that name goes on. Where it does,
    /// a replica that is suspended is checkpointed before it is dropped.
    pub checkpoints: bool,
}

/// Which cluster, for a backend. The name may change; the id does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterAddress {
    pub id: ClusterId,
    pub name: String,
}

/// One call, as it goes to a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The same for every attempt, whichever leader makes it.
    pub key: String,
    pub epoch: Epoch,
    pub attempt: u32,
    /// Of cluster, backend and call: the same key with other parameters is a fault of ours, and not carried out.
    pub parameters: Hash,
    pub cluster: ClusterAddress,
    pub call: Call,
}

/// What a backend knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Done(Report),
    /// It was tried and refused for good; nothing has changed.
    Failed {
        retryable: bool,
        reason: String,
    },
    /// It was accepted and is not through.
    UnderWay,
    /// As far as can be seen, it was never carried out. Final only under a fence, and after the visibility delay.
    NotSeen,
    /// The key is known with other parameters.
    OtherParameters {
        known: String,
    },
}

/// Why there is no good answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The backend says that it did not do it.
    #[error("{reason}")]
    Refused { retryable: bool, reason: String },
    /// No answer, or one that says nothing: it may have been done.
    #[error("{reason}")]
    Unknown { reason: String },
    /// A later leader has been here.
    #[error("the backend is fenced at {highest}")]
    Fenced { highest: Epoch },
    #[error("the key {key} is known to the backend with other parameters ({known})")]
    OtherParameters { key: String, known: String },
}

/// A replica as its backend shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedReplica {
    pub name: String,
    pub size: String,
    /// Another one under the same name has another incarnation.
    pub incarnation: Option<String>,
    pub ready: bool,
    /// Objects that it has to take up, and how many it has; nothing if the backend cannot tell.
    pub hydration: Option<ObservedHydration>,
    /// How often this incarnation has crashed so far.
    pub crashes: u64,
    pub crash_reason: Option<String>,
    pub oom: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedHydration {
    pub total: u64,
    pub hydrated: u64,
}

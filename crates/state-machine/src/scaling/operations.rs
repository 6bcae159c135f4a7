//! Operations: multi-step changes of one cluster, one at a time. A scale-up creates replicas and waits until they are ready;
//! a scale-down cordons, drains and drops them one after the other; a replacement does the first and then the second. One that
//! suspends has each replica checkpointed before it is dropped, where the backend can.
//!
//! The whole plan is in the state before the first step is taken, and every step leaves its mark there, so whoever
//! leads next goes on where the last one stopped. Here is what an operation is and what its steps make of it; when a step is
//! taken is decided in `advance`, who takes it in `claims`.

use serde::{Deserialize, Serialize};

use super::actions::{Action, ActionStatus, AttemptResult, Call, DrainResult, Outcome, ReplicaLife, Report};
use super::plan::{Planned, Step};
use crate::table::Key;
use crate::{ActionId, ClusterId, OperationId, Revision, Time};

/// New kinds go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationKind {
    ScaleUp,
    ScaleDown,
    /// Something changes its size: up, then down.
    Replace,
}

impl OperationKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ScaleUp => "scale_up",
            Self::ScaleDown => "scale_down",
            Self::Replace => "replace",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    pub id: OperationId,
    pub cluster: ClusterId,
    pub kind: OperationKind,
    /// In the order in which they are worked on.
    pub units: Vec<Unit>,
    pub begun_at: Time,
    /// When something last moved.
    pub progress_at: Time,
    /// The decision that began it.
    pub decision: Revision,
    /// Set when it will not be completed: what was called is still waited for, and what was cordoned is uncordoned.
    pub failing: Option<FailureReason>,
}

/// One replica's part of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    pub planned: Planned,
    pub progress: Progress,
    /// The unsettled action of this unit, if there is one.
    pub action: Option<ActionId>,
    /// The life that was started for it.
    pub launched: Option<Key>,
    pub launched_at: Option<Time>,
    /// What was cordoned and not uncordoned since.
    pub cordoned: bool,
    pub drained: Option<DrainResult>,
}

/// How far a unit is. New states go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// Nothing was called for it yet.
    Waiting,
    Creating,
    /// Made, but not ready.
    Joining,
    Cordoning,
    Draining,
    Dropping,
    Uncordoning,
    Done,
    /// It was no longer wanted, or not allowed, before anything was called for it.
    Skipped,
    Failed,
    /// Drained, and about to be dropped: what it has is being kept.
    Checkpointing,
}

impl Progress {
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Skipped | Self::Failed)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Creating => "creating",
            Self::Joining => "joining",
            Self::Cordoning => "cordoning",
            Self::Draining => "draining",
            Self::Dropping => "dropping",
            Self::Uncordoning => "uncordoning",
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Checkpointing => "checkpointing",
        }
    }
}

/// Where an operation as a whole is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was called yet.
    Begun,
    Launching,
    Verifying,
    Draining,
    Terminating,
    /// It has failed and tidies up.
    Recovering,
    Ended,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Begun => "begun",
            Self::Launching => "launching",
            Self::Verifying => "verifying",
            Self::Draining => "draining",
            Self::Terminating => "terminating",
            Self::Recovering => "recovering",
            Self::Ended => "ended",
        }
    }
}

/// Why an operation was not completed. New reasons go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureReason {
    /// An action failed for good.
    ActionFailed,
    /// A new replica did not become ready in time.
    JoinTimeout,
    /// A new replica went away before it was ready.
    ReplicaLost,
    /// Nothing moved for too long.
    Stuck,
    KillSwitch,
    ClusterDropped,
    /// A backup was restored.
    Restored,
}

impl FailureReason {
    pub const ALL: &'static [Self] = &[
        Self::ActionFailed,
        Self::JoinTimeout,
        Self::ReplicaLost,
        Self::Stuck,
        Self::KillSwitch,
        Self::ClusterDropped,
        Self::Restored,
    ];

    pub fn code(self) -> &'static str {
        match self {
            Self::ActionFailed => "ACTION_FAILED",
            Self::JoinTimeout => "JOIN_TIMEOUT",
            Self::ReplicaLost => "REPLICA_LOST",
            Self::Stuck => "STUCK",
            Self::KillSwitch => "KILL_SWITCH",
            Self::ClusterDropped => "CLUSTER_DROPPED",
            Self::Restored => "RESTORED",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::ActionFailed => "an action failed for good",
            Self::JoinTimeout => "a new replica did not become ready in time",
            Self::ReplicaLost => "a new replica went away before it was ready",
            Self::Stuck => "nothing moved for too long",
            Self::KillSwitch => "auto-scaling was disabled",
            Self::ClusterDropped => "the cluster was dropped",
            Self::Restored => "a backup was restored",
        }
    }

    /// Whether the cluster has to wait before the next try: not when it was our own doing.
    pub(crate) fn backs_off(self) -> bool {
        matches!(self, Self::ActionFailed | Self::JoinTimeout | Self::ReplicaLost | Self::Stuck)
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OperationEnd {
    Completed,
    /// Nothing was done: what it was for is no longer wanted, or was not allowed.
    Cancelled,
    Failed(FailureReason),
}

impl OperationEnd {
    pub fn code(self) -> &'static str {
        match self {
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
            Self::Failed(_) => "FAILED",
        }
    }
}

impl Unit {
    pub(crate) fn new(planned: Planned) -> Self {
        Self {
            planned,
            progress: Progress::Waiting,
            action: None,
            launched: None,
            launched_at: None,
            cordoned: false,
            drained: None,
        }
    }

    fn life(&self) -> Option<ReplicaLife> {
        let replica = self.planned.step.drops()?;
        let incarnation = self.planned.step.dropped_incarnation().cloned();
        Some(ReplicaLife { name: replica.name.clone(), size: replica.size.clone(), incarnation })
    }

    /// The call that this unit needs next; nothing while it waits for something to be seen, and at its end.
    pub(crate) fn next_call(&self) -> Option<Call> {
        match self.progress {
            Progress::Waiting => match &self.planned.step {
                Step::Create(replica) | Step::Replace { new: replica, .. } => {
                    Some(Call::CreateReplica(replica.clone()))
                }
                Step::Drop { .. } | Step::Suspend { .. } => self.life().map(Call::CordonReplica),
            },
            Progress::Cordoning => self.life().map(Call::CordonReplica),
            Progress::Draining => self.life().map(Call::DrainReplica),
            Progress::Checkpointing => self.life().map(Call::CheckpointReplica),
            Progress::Dropping => self.life().map(Call::DropReplica),
            Progress::Uncordoning => self.life().map(Call::UncordonReplica),
            Progress::Creating | Progress::Joining | Progress::Done | Progress::Skipped | Progress::Failed => None,
        }
    }

    /// The call that ends the replica which this unit is to drop.
    pub(crate) fn drop_call(&self) -> Option<Call> {
        self.life().map(Call::DropReplica)
    }

    /// Something was called for it.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.progress, Progress::Waiting | Progress::Skipped)
    }

    /// Something was called for it, and it is not at its end.
    pub(crate) fn is_under_way(&self) -> bool {
        self.progress != Progress::Waiting && !self.progress.is_final()
    }

    /// Calls that the rate limit will count and has not counted yet.
    pub(crate) fn counted_ahead(&self, claimed: bool) -> u64 {
        if self.progress.is_final() || self.progress == Progress::Uncordoning {
            return 0;
        }
        let create = self.planned.step.creates().is_some() && self.progress == Progress::Waiting;
        let drop = self.planned.step.drops().is_some() && !(self.progress == Progress::Dropping && claimed);
        u64::from(create) + u64::from(drop)
    }

    /// What claiming its action makes of it.
    pub(crate) fn claimed(&mut self) {
        if self.progress == Progress::Waiting {
            self.progress = match self.planned.step {
                Step::Create(_) | Step::Replace { .. } => Progress::Creating,
                Step::Drop { .. } | Step::Suspend { .. } => Progress::Cordoning,
            };
        }
    }

    /// What settling its action makes of it.
    fn settled(&mut self, action: &Action, report: &Report, now: Time) {
        self.action = None;
        let succeeded = action.status == ActionStatus::Succeeded;
        self.progress = match (&action.call, succeeded) {
            (Call::CreateReplica(_), true) => {
                self.launched_at = Some(now);
                if let Report::Created { incarnation: Some(incarnation) } = report {
                    self.launched = Some(incarnation.as_str().into());
                }
                Progress::Joining
            }
            (Call::CordonReplica(_), true) => {
                self.cordoned = true;
                Progress::Draining
            }
            (Call::DrainReplica(_), true) => {
                if let Report::Drained(result) = report {
                    self.drained = Some(*result);
                }
                match self.planned.step {
                    Step::Suspend { .. } => Progress::Checkpointing,
                    _ => Progress::Dropping,
                }
            }
            // Without it nothing is dropped: what could not be kept stays.
            (Call::CheckpointReplica(_), true) => Progress::Dropping,
            (Call::DropReplica(_), true) => {
                self.cordoned = false;
                Progress::Done
            }
            (Call::UncordonReplica(_), true) => {
                self.cordoned = false;
                Progress::Failed
            }
            // Given up. What stays cordoned is visible on the replica.
            (Call::UncordonReplica(_), false) => {
                self.cordoned = false;
                Progress::Failed
            }
            // As a failure, so that the cluster waits before it wants the same again.
            (_, false) if action.status == ActionStatus::Abandoned => Progress::Failed,
            (_, false) if self.progress == Progress::Waiting => Progress::Skipped,
            (_, false) => Progress::Failed,
        };
    }
}

impl Operation {
    pub fn phase(&self) -> Phase {
        let any = |wanted: fn(Progress) -> bool| self.units.iter().any(|unit| wanted(unit.progress));
        let launches = |unit: &Unit| {
            unit.planned.step.creates().is_some() && matches!(unit.progress, Progress::Waiting | Progress::Creating)
        };
        if self.units.iter().all(|unit| unit.progress.is_final()) {
            Phase::Ended
        } else if self.failing.is_some() {
            Phase::Recovering
        } else if !self.has_begun() {
            Phase::Begun
        } else if any(|it| it == Progress::Dropping) {
            Phase::Terminating
        } else if self.units.iter().any(launches) {
            Phase::Launching
        } else if any(|it| it == Progress::Joining) {
            Phase::Verifying
        } else {
            Phase::Draining
        }
    }

    /// Replicas that it was asked to create.
    pub fn requested(&self) -> usize {
        self.units.iter().filter(|unit| unit.planned.step.creates().is_some()).count()
    }

    pub(crate) fn unit_of(&self, action: ActionId) -> Option<usize> {
        self.units.iter().position(|unit| unit.action == Some(action))
    }

    /// Something was called on a backend.
    pub(crate) fn has_begun(&self) -> bool {
        self.units.iter().any(Unit::has_begun)
    }

    /// What it becomes when an action of it is settled.
    pub(crate) fn after(&self, action: &Action, report: &Report, now: Time) -> Self {
        let mut operation = self.clone();
        if let Some(place) = operation.unit_of(action.id) {
            operation.units[place].settled(action, report, now);
            operation.progress_at = now;
        }
        operation
    }

    /// What it becomes when an action of it is claimed; nothing if that makes no difference.
    pub(crate) fn after_claim(&self, action: ActionId) -> Option<Self> {
        let place = self.unit_of(action)?;
        let mut operation = self.clone();
        operation.units[place].claimed();
        (operation != *self).then_some(operation)
    }
}

impl Outcome {
    pub(crate) fn result(&self) -> AttemptResult {
        match self {
            Self::Succeeded { .. } => AttemptResult::Succeeded,
            Self::Failed { retryable, .. } => AttemptResult::Failed { retryable: *retryable },
            Self::Unknown { .. } => AttemptResult::Unknown,
        }
    }

    /// The words of the backend, if it had any.
    pub(crate) fn reason(&self) -> Option<&str> {
        match self {
            Self::Succeeded { .. } => None,
            Self::Failed { reason, .. } | Self::Unknown { reason } => Some(reason),
        }
    }
}

//! Why a command about scaling is refused. Part of [`crate::Rejection`], in a file of its own.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::configuration::{ConfigurationProblem, StrategyKind};
use crate::{
    ActionId, ClusterId, Epoch, Field, Hash, LogIndex, OperationId, RejectionClass, ResourceName, StrategyId, Time,
};

/// New reasons go at the end: the place is the number in stored receipts.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ScalingRejection {
    #[error("auto-scaling is not enabled: set enable_auto_scaling to true first")]
    FeatureOff,
    #[error("{target} has no strategy of type {kind}")]
    StrategyNotFound { target: String, kind: StrategyKind },
    #[error(
        "ambiguous pattern overlap: '{pattern}' and '{other_pattern}' of {other} match equally many clusters ({matches}), \
         both of them {cluster}: make one of the two match fewer"
    )]
    AmbiguousPattern { pattern: String, other: StrategyId, other_pattern: String, matches: u64, cluster: String },
    #[error(
        "{pattern:?} is not a pattern: expected 1 to 255 bytes without control characters, not ending in a lone \\"
    )]
    InvalidPattern { pattern: String },
    #[error("{problem}{}", what_would_be_right(.expected))]
    Configuration { kind: StrategyKind, problem: ConfigurationProblem, expected: String },
    #[error("{count} is too many for {field}: at most {count_max}")]
    TooMany { field: Field, count: u64, count_max: u64 },
    #[error(
        "cluster {cluster} has {replicas} replicas and {unsettled} actions that are not settled: drop it with CASCADE, or \
         wait until it is empty"
    )]
    ClusterInUse { cluster: String, replicas: u64, unsettled: u64 },
    #[error("there is no unsettled action {action}: it is settled, or never was")]
    ActionNotFound { action: ActionId },
    #[error("epoch {given} is not the current one, {current}: another leader has taken over")]
    StaleEpoch { given: Epoch, current: Epoch },
    #[error("no leader has been announced yet")]
    NoEpoch,
    #[error("attempt {given} of action {action} is out of date: the current one is {current}")]
    StaleAttempt { action: ActionId, given: u32, current: u32 },
    #[error("action {action} is {status}: only one that is pending, or whose outcome is unknown, can be claimed")]
    NotClaimable { action: ActionId, status: String },
    #[error("action {action} is tried again at {not_before}, not before")]
    RetryNotDue { action: ActionId, not_before: Time },
    #[error("action {first} comes before action {action}: one call at a time, in order")]
    OutOfTurn { action: ActionId, first: ActionId },
    #[error("auto-scaling is disabled: set auto_scaling_enabled to true first")]
    KillSwitchOff,
    #[error("the rate limit leaves no room for another try of action {action} before {until}")]
    RateLimited { action: ActionId, until: Time },
    #[error("action {action} is {status}: only the outcome of a claimed one can be recorded")]
    NotClaimed { action: ActionId, status: String },
    #[error("action {action} is {status}: it does not wait for an approval")]
    NotAwaitingApproval { action: ActionId, status: String },
    #[error(
        "action {action} calls backend {} with parameters {}, not {} with {}: nothing else may be called under its key",
        .known.backend, .known.parameters, .given.backend, .given.parameters
    )]
    ParametersDiffer { action: ActionId, given: Box<CalledWith>, known: Box<CalledWith> },
    #[error("cluster {cluster} lives nowhere: give it a backend, or set default_backend")]
    NoBackend { cluster: String },
    #[error("the cluster of action {action} lives on {right}, not on {given}")]
    OtherBackend { action: ActionId, given: String, right: String },
    #[error("the cluster of action {action} is gone: record what came of it, it is not sent again")]
    ClusterGone { action: ActionId },
    #[error("action {action} was tried {attempts_max} times, as often as is allowed: record it as failed")]
    NoAttemptLeft { action: ActionId, attempts_max: u64 },
    #[error(
        "operation {operation} is under way on cluster {cluster}: move it when that has ended; a pause keeps the next one \
         from beginning"
    )]
    OperationUnderWay { cluster: String, operation: OperationId },
    #[error("action {action} is {status}: {}", instead_of_retry(.status))]
    NotRetryable { action: ActionId, status: String },
    #[error(
        "action {action} is {status}, so no call of it is in doubt: only one that is claimed, unknown or dead-lettered can be \
         resolved; abandon it if it must not be done"
    )]
    NotResolvable { action: ActionId, status: String },
    #[error("what {strategy} remembers about {cluster} is not as it was read: read it again, then decide")]
    StateChanged { strategy: StrategyId, cluster: ClusterId },
    #[error("{strategy} does not rule {cluster}, so there is nothing for it to remember")]
    NotRuling { strategy: StrategyId, cluster: ClusterId },
    #[error("this is nothing that a strategy of type {kind} can remember: {expected}")]
    InvalidState { kind: StrategyKind, expected: String },
    #[error("action {number} is not settled: only rows of settled actions can be deleted")]
    NotSettled { number: u64 },
    #[error("cluster {cluster} has a replica {replica} already, or is about to")]
    ReplicaExists { cluster: String, replica: String },
    #[error("cluster {cluster} has no replica {replica} that anybody has seen")]
    ReplicaNotFound { cluster: String, replica: String },
    #[error("{replica:?} ends in _auto, as the names do that strategies give: choose another")]
    NameReserved { replica: String },
    #[error(
        "no idle_suspend strategy rules cluster {cluster}, so it is never suspended and there is nothing to wake: create one with \
         CREATE SCALING STRATEGY FOR CLUSTER {cluster} TYPE IDLE_SUSPEND"
    )]
    NotSuspendable { cluster: String },
    #[error(
        "cluster {cluster} has no replica, never had one and no strategy names a size: say of which size they should be"
    )]
    SizeNeeded { cluster: String },
    #[error("{resource} {}, and revision {since} was looked at", when_changed(.changed))]
    ChangedSince {
        resource: ResourceName,
        since: LogIndex,
        /// Nothing: it is gone.
        changed: Option<LogIndex>,
    },
}

fn when_changed(changed: &Option<LogIndex>) -> String {
    changed.map_or("is gone".to_owned(), |changed| format!("was changed at revision {changed}"))
}

/// Where an action is called, and the hash of all that its call says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalledWith {
    pub backend: String,
    pub parameters: Hash,
}

fn instead_of_retry(status: &str) -> &'static str {
    match status {
        "AWAITING_APPROVAL" => "approve or reject it",
        "CLAIMED" => "the leader is at it; wait for its outcome, or resolve or abandon it",
        _ => "only one that waits to be tried again, is unknown or is dead-lettered can be retried",
    }
}

fn what_would_be_right(expected: &str) -> String {
    if expected.is_empty() { String::new() } else { format!(": expected {expected}") }
}

impl ScalingRejection {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::FeatureOff => "FEATURE_OFF",
            Self::StrategyNotFound { .. } => "STRATEGY_NOT_FOUND",
            Self::AmbiguousPattern { .. } => "AMBIGUOUS_PATTERN",
            Self::InvalidPattern { .. } => "INVALID_PATTERN",
            Self::Configuration { problem, .. } => problem.code(),
            Self::TooMany { .. } => "TOO_MANY",
            Self::ClusterInUse { .. } => "CLUSTER_IN_USE",
            Self::ActionNotFound { .. } => "ACTION_NOT_FOUND",
            Self::StaleEpoch { .. } => "STALE_EPOCH",
            Self::NoEpoch => "NO_EPOCH",
            Self::StaleAttempt { .. } => "STALE_ATTEMPT",
            Self::NotClaimable { .. } => "NOT_CLAIMABLE",
            Self::RetryNotDue { .. } => "RETRY_NOT_DUE",
            Self::OutOfTurn { .. } => "OUT_OF_TURN",
            Self::KillSwitchOff => "KILL_SWITCH_OFF",
            Self::RateLimited { .. } => "RATE_LIMITED",
            Self::NotClaimed { .. } => "NOT_CLAIMED",
            Self::NotAwaitingApproval { .. } => "NOT_AWAITING_APPROVAL",
            Self::ParametersDiffer { .. } => "PARAMETERS_DIFFER",
            Self::NoBackend { .. } => "NO_BACKEND",
            Self::OtherBackend { .. } => "OTHER_BACKEND",
            Self::ClusterGone { .. } => "CLUSTER_GONE",
            Self::NoAttemptLeft { .. } => "NO_ATTEMPT_LEFT",
            Self::OperationUnderWay { .. } => "OPERATION_UNDER_WAY",
            Self::NotRetryable { .. } => "NOT_RETRYABLE",
            Self::NotResolvable { .. } => "NOT_RESOLVABLE",
            Self::StateChanged { .. } => "STATE_CHANGED",
            Self::NotRuling { .. } => "NOT_RULING",
            Self::InvalidState { .. } => "INVALID_STATE",
            Self::NotSettled { .. } => "NOT_SETTLED",
            Self::ReplicaExists { .. } => "REPLICA_EXISTS",
            Self::ReplicaNotFound { .. } => "REPLICA_NOT_FOUND",
            Self::NameReserved { .. } => "NAME_RESERVED",
            Self::NotSuspendable { .. } => "NOT_SUSPENDABLE",
            Self::SizeNeeded { .. } => "SIZE_NEEDED",
            Self::ChangedSince { .. } => "CHANGED_SINCE",
        }
    }

    pub(crate) fn class(&self) -> RejectionClass {
        match self {
            Self::InvalidPattern { .. }
            | Self::Configuration { .. }
            | Self::TooMany { .. }
            | Self::InvalidState { .. }
            | Self::NameReserved { .. } => RejectionClass::Invalid,
            Self::ReplicaExists { .. } => RejectionClass::AlreadyExists,
            Self::StateChanged { .. } | Self::ChangedSince { .. } => RejectionClass::EtagMismatch,
            Self::StrategyNotFound { .. } | Self::ActionNotFound { .. } | Self::ReplicaNotFound { .. } => {
                RejectionClass::NotFound
            }
            Self::FeatureOff
            | Self::AmbiguousPattern { .. }
            | Self::ClusterInUse { .. }
            | Self::StaleEpoch { .. }
            | Self::NoEpoch
            | Self::StaleAttempt { .. }
            | Self::NotClaimable { .. }
            | Self::RetryNotDue { .. }
            | Self::OutOfTurn { .. }
            | Self::KillSwitchOff
            | Self::RateLimited { .. }
            | Self::NotClaimed { .. }
            | Self::NotAwaitingApproval { .. }
            | Self::ParametersDiffer { .. }
            | Self::NoBackend { .. }
            | Self::OtherBackend { .. }
            | Self::ClusterGone { .. }
            | Self::NoAttemptLeft { .. }
            | Self::OperationUnderWay { .. }
            | Self::NotRetryable { .. }
            | Self::NotResolvable { .. }
            | Self::NotRuling { .. }
            | Self::NotSuspendable { .. }
            | Self::SizeNeeded { .. }
            | Self::NotSettled { .. } => RejectionClass::Precondition,
        }
    }

    pub(crate) fn field(&self) -> Option<Field> {
        match self {
            Self::StrategyNotFound { .. } | Self::AmbiguousPattern { .. } | Self::InvalidPattern { .. } => {
                Some(Field::Target)
            }
            Self::Configuration { .. } => Some(Field::Options),
            Self::TooMany { field, .. } => Some(*field),
            Self::ClusterInUse { .. } | Self::NotSuspendable { .. } => Some(Field::Name),
            Self::SizeNeeded { .. } => Some(Field::Size),
            Self::StaleEpoch { .. } => Some(Field::Epoch),
            Self::StaleAttempt { .. } => Some(Field::Attempt),
            Self::ActionNotFound { .. }
            | Self::NotClaimable { .. }
            | Self::RetryNotDue { .. }
            | Self::OutOfTurn { .. }
            | Self::RateLimited { .. }
            | Self::NotClaimed { .. }
            | Self::NotAwaitingApproval { .. }
            | Self::ClusterGone { .. }
            | Self::NoAttemptLeft { .. }
            | Self::NotRetryable { .. }
            | Self::NotResolvable { .. }
            | Self::NotSettled { .. } => Some(Field::Action),
            Self::StateChanged { .. } | Self::NotRuling { .. } | Self::InvalidState { .. } => Some(Field::Value),
            Self::ReplicaExists { .. } | Self::ReplicaNotFound { .. } | Self::NameReserved { .. } => {
                Some(Field::Replica)
            }
            Self::ParametersDiffer { .. } => Some(Field::Parameters),
            Self::NoBackend { .. } | Self::OtherBackend { .. } | Self::OperationUnderWay { .. } => Some(Field::Backend),
            Self::FeatureOff | Self::NoEpoch | Self::KillSwitchOff | Self::ChangedSince { .. } => None,
        }
    }

    pub(crate) fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::FeatureOff | Self::NoEpoch | Self::KillSwitchOff => vec![],
            Self::StrategyNotFound { target, kind } => vec![("target", target.clone()), ("kind", kind.to_string())],
            Self::AmbiguousPattern { pattern, other, other_pattern, matches, cluster } => vec![
                ("pattern", pattern.clone()),
                ("other", other.to_string()),
                ("other_pattern", other_pattern.clone()),
                ("matches", matches.to_string()),
                ("cluster", cluster.clone()),
            ],
            Self::InvalidPattern { pattern } => vec![("pattern", pattern.clone())],
            Self::Configuration { kind, problem, expected } => vec![
                ("kind", kind.to_string()),
                ("option", problem.option().to_owned()),
                ("expected", expected.clone()),
            ],
            Self::TooMany { field, count, count_max } => {
                vec![("field", field.to_string()), ("count", count.to_string()), ("count_max", count_max.to_string())]
            }
            Self::ClusterInUse { cluster, replicas, unsettled } => vec![
                ("cluster", cluster.clone()),
                ("replicas", replicas.to_string()),
                ("unsettled", unsettled.to_string()),
            ],
            Self::ActionNotFound { action } => vec![("action", action.to_string())],
            Self::StaleEpoch { given, current } => {
                vec![("given", given.to_string()), ("current", current.to_string())]
            }
            Self::StaleAttempt { action, given, current } => {
                vec![("action", action.to_string()), ("given", given.to_string()), ("current", current.to_string())]
            }
            Self::NotClaimable { action, status }
            | Self::NotClaimed { action, status }
            | Self::NotAwaitingApproval { action, status }
            | Self::NotRetryable { action, status }
            | Self::NotResolvable { action, status } => {
                vec![("action", action.to_string()), ("status", status.clone())]
            }
            Self::RetryNotDue { action, not_before } => {
                vec![("action", action.to_string()), ("not_before_ms", not_before.as_millis().to_string())]
            }
            Self::OutOfTurn { action, first } => vec![("action", action.to_string()), ("first", first.to_string())],
            Self::ParametersDiffer { action, given, known } => vec![
                ("action", action.to_string()),
                ("given_backend", given.backend.clone()),
                ("given", given.parameters.to_string()),
                ("known_backend", known.backend.clone()),
                ("known", known.parameters.to_string()),
            ],
            Self::NoBackend { cluster } | Self::NotSuspendable { cluster } | Self::SizeNeeded { cluster } => {
                vec![("cluster", cluster.clone())]
            }
            Self::OtherBackend { action, given, right } => {
                vec![("action", action.to_string()), ("given", given.clone()), ("right", right.clone())]
            }
            Self::ClusterGone { action } => vec![("action", action.to_string())],
            Self::NoAttemptLeft { action, attempts_max } => {
                vec![("action", action.to_string()), ("attempts_max", attempts_max.to_string())]
            }
            Self::OperationUnderWay { cluster, operation } => {
                vec![("cluster", cluster.clone()), ("operation", operation.to_string())]
            }
            Self::StateChanged { strategy, cluster } | Self::NotRuling { strategy, cluster } => {
                vec![("strategy", strategy.to_string()), ("cluster", cluster.to_string())]
            }
            Self::InvalidState { kind, expected } => {
                vec![("kind", kind.to_string()), ("expected", expected.clone())]
            }
            Self::NotSettled { number } => vec![("number", number.to_string())],
            Self::ReplicaExists { cluster, replica } | Self::ReplicaNotFound { cluster, replica } => {
                vec![("cluster", cluster.clone()), ("replica", replica.clone())]
            }
            Self::NameReserved { replica } => vec![("replica", replica.clone())],
            Self::ChangedSince { resource, since, changed } => vec![
                ("resource", resource.to_string()),
                ("since", since.to_string()),
                ("changed", changed.map(|changed| changed.to_string()).unwrap_or_default()),
            ],
            Self::RateLimited { action, until } => {
                vec![("action", action.to_string()), ("until_ms", until.as_millis().to_string())]
            }
        }
    }
}

//! Why a command is refused. A refusal is an answer, not an error: it is in the receipt, and nothing was changed.
//!
//! Every reason carries the fact that helps and says what would be right. The codes are part of the API: callers
//! branch on them, so a code never changes its meaning.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::access::rejection::AccessRejection;
use crate::configured::rejection::SignalRejection;
use crate::scaling::rejection::ScalingRejection;
use crate::{Hash, LogIndex, NodeNumber, RequestId, ResourceName, Revision, RulesVersion, Span, Time};

/// New reasons go at the end: the place is the number in stored receipts.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Rejection {
    #[error("the request has no command: send at least one")]
    NoCommands,
    #[error("the request has {count} commands: at most {count_max} can be done at one index")]
    TooManyCommands { count: u64, count_max: u64 },
    #[error("request id {id} is not a UUID version 7: its time bounds how long a repeat is recognised")]
    RequestIdNotV7 { id: RequestId },
    #[error("request id {id} was used at index {index} for another request: make a new id for every new request")]
    RequestIdReused { id: RequestId, index: LogIndex },
    #[error(
        "request id {id} is from {made_at}, ids from before {floor} are no longer remembered (it is {now}): whether it was \
         done cannot be said; look at what is there, then ask under a new id"
    )]
    RequestTooOld { id: RequestId, made_at: Time, floor: Time, now: Time },
    #[error(
        "request id {id} is from {made_at}, more than {window} ahead of now ({now}): set the clock of the client right"
    )]
    RequestFromFuture { id: RequestId, made_at: Time, now: Time, window: Span },

    #[error(
        "{field} {value:?} {problem}: names are 1 to 63 letters, digits, '_', '-' or '.', and begin with a letter, digit or '_'"
    )]
    InvalidName { field: Field, value: String, problem: NameProblem },
    #[error("{field} {value:?} {problem}: expected 1 to 255 bytes without blanks and control characters")]
    InvalidText { field: Field, value: String, problem: NameProblem },
    #[error("{field} is {value}: it must be between {min} and {max}")]
    OutOfRange { field: Field, value: u64, min: u64, max: u64 },
    #[error("{resource} does not exist")]
    NotFound { resource: ResourceName },
    #[error("{resource} already exists (etag {etag})")]
    AlreadyExists { field: Field, resource: ResourceName, etag: Revision },
    #[error("rank {rank} is taken by {by}: every size has a rank of its own")]
    RankTaken { rank: u32, by: ResourceName },
    #[error(
        "{resource} is not as it was: the etag given is {given}, the current one is {}; read it again, then decide",
        shown(.current)
    )]
    EtagMismatch { resource: ResourceName, given: Revision, current: Option<Revision> },

    #[error("there is no setting {name:?}{}", did_you_mean(.close))]
    UnknownSetting { name: String, close: Vec<String> },
    #[error("{value:?} is not a value for setting {name}: expected {expected}")]
    InvalidSetting { name: String, value: String, expected: String },

    #[error("the rules are at version {current} and cannot go back to {to}")]
    RulesCannotFall { to: RulesVersion, current: RulesVersion },
    #[error("rules version {to} is not known here, the highest known is {known}: upgrade this node first")]
    RulesUnknown { to: RulesVersion, known: RulesVersion },
    #[error("node {node} announces term {term}, but node {current_node} leads since term {current_term}")]
    StaleTerm { node: NodeNumber, term: u64, current_node: NodeNumber, current_term: u64 },
    #[error("the group was founded with {nodes} nodes and cannot be founded again")]
    AlreadyFounded { nodes: u64 },
    #[error("the group is not founded yet: node numbers cannot be given out before FoundGroup")]
    NotFounded,

    #[error("no restore is under way: begin one first")]
    NoRestore,
    #[error("restore {given} is not under way, {current} is")]
    OtherRestore { given: Revision, current: Revision },
    #[error("the chunk begins at byte {offset}, but the next byte wanted is {expected}")]
    RestoreOffset { offset: u64, expected: u64 },
    #[error("{received} of {total} bytes of the backup have arrived: send the rest first")]
    RestoreIncomplete { received: u64, total: u64 },
    #[error("the backup that arrived has hash {found}, announced was {announced}: begin again")]
    RestoreHashMismatch { announced: Hash, found: Hash },
    #[error("the backup cannot be read: {reason}")]
    BackupUnreadable { reason: String },
    #[error("the backup was made under rules version {backup}, the group is at {current}: upgrade the group first")]
    BackupTooNew { backup: RulesVersion, current: RulesVersion },

    #[error(transparent)]
    Scaling(ScalingRejection),

    /// Boxed: it is the largest, and a `Result` is as large as the worst that can be in it.
    #[error(transparent)]
    Access(Box<AccessRejection>),

    #[error(transparent)]
    Signal(Box<SignalRejection>),
}

impl From<ScalingRejection> for Rejection {
    fn from(rejection: ScalingRejection) -> Self {
        Self::Scaling(rejection)
    }
}

impl From<AccessRejection> for Rejection {
    fn from(rejection: AccessRejection) -> Self {
        Self::Access(Box::new(rejection))
    }
}

impl From<SignalRejection> for Rejection {
    fn from(rejection: SignalRejection) -> Self {
        Self::Signal(Box::new(rejection))
    }
}

/// What kind of "no" it is: the edge chooses a status code by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionClass {
    /// Wrong by itself, whatever the state.
    Invalid,
    NotFound,
    AlreadyExists,
    /// Somebody else was faster: read again and retry.
    EtagMismatch,
    /// Right by itself, but not now.
    Precondition,
    /// It cannot be said any more whether this was done.
    TooOld,
    /// Nobody knows who asks.
    Unauthenticated,
    /// Whoever asks may not.
    Denied,
}

/// Which part of a command is meant. New ones go at the end: the place is the number in stored receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Field {
    Name,
    To,
    Rank,
    Slots,
    PriceMicrosPerHour,
    Address,
    Nodes,
    BytesTotal,
    Bytes,
    Value,
    RequestId,
    Etag,
    Commands,
    Target,
    Options,
    Collector,
    Clusters,
    Observations,
    Replica,
    Size,
    Metric,
    Incarnation,
    Reason,
    Hydrated,
    Count,
    Age,
    Expiry,
    Action,
    Epoch,
    Attempt,
    Backend,
    Parameters,
    Role,
    Token,
    Iterations,
    Salt,
    Every,
    Signal,
    ReplicasMin,
}

impl Field {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::To => "to",
            Self::Rank => "rank",
            Self::Slots => "slots",
            Self::PriceMicrosPerHour => "price_micros_per_hour",
            Self::Address => "address",
            Self::Nodes => "nodes",
            Self::BytesTotal => "bytes_total",
            Self::Bytes => "bytes",
            Self::Value => "value",
            Self::RequestId => "request_id",
            Self::Etag => "etag",
            Self::Commands => "commands",
            Self::Target => "target",
            Self::Options => "options",
            Self::Collector => "collector",
            Self::Clusters => "clusters",
            Self::Observations => "observations",
            Self::Replica => "replica",
            Self::Size => "size",
            Self::Metric => "metric",
            Self::Incarnation => "incarnation",
            Self::Reason => "reason",
            Self::Hydrated => "hydrated",
            Self::Count => "count",
            Self::Age => "age_ms",
            Self::Expiry => "expires_in",
            Self::Action => "action",
            Self::Epoch => "epoch",
            Self::Attempt => "attempt",
            Self::Backend => "backend",
            Self::Parameters => "parameters",
            Self::Role => "role",
            Self::Token => "token",
            Self::Iterations => "iterations",
            Self::Salt => "salt",
            Self::Every => "every",
            Self::Signal => "signal",
            Self::ReplicasMin => "replicas_min",
        }
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What is wrong with a name or another short text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum NameProblem {
    #[error("is empty")]
    Empty,
    #[error("has {bytes} bytes")]
    TooLong { bytes: u64 },
    #[error("begins with {character:?}")]
    BeginsWith { character: char },
    #[error("contains {character:?}")]
    Contains { character: char },
}

impl Rejection {
    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoCommands => "NO_COMMANDS",
            Self::TooManyCommands { .. } => "TOO_MANY_COMMANDS",
            Self::RequestIdNotV7 { .. } => "REQUEST_ID_NOT_V7",
            Self::RequestIdReused { .. } => "REQUEST_ID_REUSED",
            Self::RequestTooOld { .. } => "REQUEST_TOO_OLD",
            Self::RequestFromFuture { .. } => "REQUEST_FROM_FUTURE",
            Self::InvalidName { .. } => "INVALID_NAME",
            Self::InvalidText { .. } => "INVALID_TEXT",
            Self::OutOfRange { .. } => "OUT_OF_RANGE",
            Self::NotFound { .. } => "NOT_FOUND",
            Self::AlreadyExists { .. } => "ALREADY_EXISTS",
            Self::RankTaken { .. } => "RANK_TAKEN",
            Self::EtagMismatch { .. } => "ETAG_MISMATCH",
            Self::UnknownSetting { .. } => "UNKNOWN_SETTING",
            Self::InvalidSetting { .. } => "INVALID_SETTING",
            Self::RulesCannotFall { .. } => "RULES_CANNOT_FALL",
            Self::RulesUnknown { .. } => "RULES_UNKNOWN",
            Self::StaleTerm { .. } => "STALE_TERM",
            Self::AlreadyFounded { .. } => "ALREADY_FOUNDED",
            Self::NotFounded => "NOT_FOUNDED",
            Self::NoRestore => "NO_RESTORE",
            Self::OtherRestore { .. } => "OTHER_RESTORE",
            Self::RestoreOffset { .. } => "RESTORE_OFFSET",
            Self::RestoreIncomplete { .. } => "RESTORE_INCOMPLETE",
            Self::RestoreHashMismatch { .. } => "RESTORE_HASH_MISMATCH",
            Self::BackupUnreadable { .. } => "BACKUP_UNREADABLE",
            Self::BackupTooNew { .. } => "BACKUP_TOO_NEW",
            Self::Scaling(rejection) => rejection.code(),
            Self::Access(rejection) => rejection.code(),
            Self::Signal(rejection) => rejection.code(),
        }
    }

    pub fn class(&self) -> RejectionClass {
        match self {
            Self::NoCommands
            | Self::TooManyCommands { .. }
            | Self::RequestIdNotV7 { .. }
            | Self::RequestIdReused { .. }
            | Self::RequestFromFuture { .. }
            | Self::InvalidName { .. }
            | Self::InvalidText { .. }
            | Self::OutOfRange { .. }
            | Self::InvalidSetting { .. }
            | Self::RestoreHashMismatch { .. }
            | Self::BackupUnreadable { .. } => RejectionClass::Invalid,
            Self::NotFound { .. } | Self::UnknownSetting { .. } => RejectionClass::NotFound,
            Self::AlreadyExists { .. } | Self::RankTaken { .. } => RejectionClass::AlreadyExists,
            Self::EtagMismatch { .. } => RejectionClass::EtagMismatch,
            Self::RulesCannotFall { .. }
            | Self::RulesUnknown { .. }
            | Self::StaleTerm { .. }
            | Self::AlreadyFounded { .. }
            | Self::NotFounded
            | Self::NoRestore
            | Self::OtherRestore { .. }
            | Self::RestoreOffset { .. }
            | Self::RestoreIncomplete { .. }
            | Self::BackupTooNew { .. } => RejectionClass::Precondition,
            Self::RequestTooOld { .. } => RejectionClass::TooOld,
            Self::Scaling(rejection) => rejection.class(),
            Self::Access(rejection) => rejection.class(),
            Self::Signal(rejection) => rejection.class(),
        }
    }

    /// Which field of the command to look at, if it is one field.
    pub fn field(&self) -> Option<&'static str> {
        let field = match self {
            Self::InvalidName { field, .. }
            | Self::InvalidText { field, .. }
            | Self::OutOfRange { field, .. }
            | Self::AlreadyExists { field, .. } => *field,
            Self::NoCommands | Self::TooManyCommands { .. } => Field::Commands,
            Self::RequestIdNotV7 { .. }
            | Self::RequestIdReused { .. }
            | Self::RequestTooOld { .. }
            | Self::RequestFromFuture { .. } => Field::RequestId,
            Self::RankTaken { .. } => Field::Rank,
            Self::EtagMismatch { .. } => Field::Etag,
            Self::UnknownSetting { .. } | Self::NotFound { .. } => Field::Name,
            Self::InvalidSetting { .. } => Field::Value,
            Self::Scaling(rejection) => return rejection.field().map(Field::as_str),
            Self::Access(rejection) => return rejection.field().map(Field::as_str),
            Self::Signal(rejection) => rejection.field(),
            Self::RulesCannotFall { .. } | Self::RulesUnknown { .. } => Field::To,
            Self::StaleTerm { .. }
            | Self::AlreadyFounded { .. }
            | Self::NotFounded
            | Self::NoRestore
            | Self::OtherRestore { .. }
            | Self::RestoreOffset { .. }
            | Self::RestoreIncomplete { .. }
            | Self::RestoreHashMismatch { .. }
            | Self::BackupUnreadable { .. }
            | Self::BackupTooNew { .. } => return None,
        };
        Some(field.as_str())
    }

    /// The facts, for programs. Times are milliseconds since 1970.
    pub fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::NoCommands | Self::NotFounded | Self::NoRestore => vec![],
            Self::TooManyCommands { count, count_max } => {
                vec![("count", count.to_string()), ("count_max", count_max.to_string())]
            }
            Self::RequestIdNotV7 { id } => vec![("request_id", id.to_string())],
            Self::RequestIdReused { id, index } => {
                vec![("request_id", id.to_string()), ("index", index.to_string())]
            }
            Self::RequestTooOld { id, made_at, floor, now } => vec![
                ("request_id", id.to_string()),
                ("made_at_ms", millis(*made_at)),
                ("floor_ms", millis(*floor)),
                ("now_ms", millis(*now)),
            ],
            Self::RequestFromFuture { id, made_at, now, window } => vec![
                ("request_id", id.to_string()),
                ("made_at_ms", millis(*made_at)),
                ("now_ms", millis(*now)),
                ("window_ms", window.as_millis().to_string()),
            ],
            Self::InvalidName { field, value, problem } | Self::InvalidText { field, value, problem } => {
                vec![("field", field.to_string()), ("value", value.clone()), ("problem", problem.to_string())]
            }
            Self::OutOfRange { field, value, min, max } => vec![
                ("field", field.to_string()),
                ("value", value.to_string()),
                ("min", min.to_string()),
                ("max", max.to_string()),
            ],
            Self::NotFound { resource } => vec![("resource", resource.to_string())],
            Self::AlreadyExists { resource, etag, .. } => {
                vec![("resource", resource.to_string()), ("etag", etag.to_string())]
            }
            Self::RankTaken { rank, by } => vec![("rank", rank.to_string()), ("by", by.to_string())],
            Self::EtagMismatch { resource, given, current } => vec![
                ("resource", resource.to_string()),
                ("given", given.to_string()),
                ("current", current.map(|etag| etag.to_string()).unwrap_or_default()),
            ],
            Self::UnknownSetting { name, close } => vec![("name", name.clone()), ("close", close.join(","))],
            Self::InvalidSetting { name, value, expected } => {
                vec![("name", name.clone()), ("value", value.clone()), ("expected", expected.clone())]
            }
            Self::RulesCannotFall { to, current } => vec![("to", to.to_string()), ("current", current.to_string())],
            Self::RulesUnknown { to, known } => vec![("to", to.to_string()), ("known", known.to_string())],
            Self::StaleTerm { node, term, current_node, current_term } => vec![
                ("node", node.to_string()),
                ("term", term.to_string()),
                ("current_node", current_node.to_string()),
                ("current_term", current_term.to_string()),
            ],
            Self::AlreadyFounded { nodes } => vec![("nodes", nodes.to_string())],
            Self::OtherRestore { given, current } => {
                vec![("given", given.to_string()), ("current", current.to_string())]
            }
            Self::RestoreOffset { offset, expected } => {
                vec![("offset", offset.to_string()), ("expected", expected.to_string())]
            }
            Self::RestoreIncomplete { received, total } => {
                vec![("received", received.to_string()), ("total", total.to_string())]
            }
            Self::RestoreHashMismatch { announced, found } => {
                vec![("announced", announced.to_string()), ("found", found.to_string())]
            }
            Self::BackupUnreadable { reason } => vec![("reason", reason.clone())],
            Self::BackupTooNew { backup, current } => {
                vec![("backup", backup.to_string()), ("current", current.to_string())]
            }
            Self::Scaling(rejection) => rejection.metadata(),
            Self::Access(rejection) => rejection.metadata(),
            Self::Signal(rejection) => rejection.metadata(),
        }
    }
}

fn millis(time: Time) -> String {
    time.as_millis().to_string()
}

fn shown(etag: &Option<Revision>) -> String {
    etag.map_or_else(|| "none (nobody has ever set it)".to_owned(), |etag| etag.to_string())
}

fn did_you_mean(close: &[String]) -> String {
    match close {
        [] => String::new(),
        names => format!(": did you mean {}?", names.join(" or ")),
    }
}

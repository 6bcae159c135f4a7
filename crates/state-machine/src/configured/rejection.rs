//! What somebody is told whose signal is refused. None of it repeats what an option said: that may be a secret.

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Field, RejectionClass, Span};

/// New reasons go at the end: the place is the number in stored receipts.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum SignalRejection {
    #[error("option {option} {problem}: expected {expected}")]
    Option { option: String, problem: SignalOptionProblem, expected: String },
    #[error("option {option} and option {other} cannot both be there: leave one of them out")]
    NotBoth { option: String, other: String },
    #[error("there are {count} signals already, no more than {count_max} are possible: drop one first")]
    TooManySignals { count: u64, count_max: u64 },
    #[error(
        "every {every} is too seldom: a value is relied on for {stale_after} (setting signal_stale_after), so ask at least every \
         {longest}, or set it higher"
    )]
    TooSeldom { every: Span, stale_after: Span, longest: Span },
    #[error("a signal that is pushed is asked for by nobody: leave EVERY out")]
    PushedNotAsked,
    #[error("signal {signal} is collected from {kind}: only one FROM PUSH takes what is pushed")]
    NotPushed { signal: String, kind: String },
    #[error("signal {signal} is not for cluster {cluster}: it is for {target}")]
    NotForCluster { signal: String, cluster: String, target: String },
}

/// New problems go at the end: the place is the number in stored receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalOptionProblem {
    Unknown,
    Missing,
    Invalid,
    /// There is, or may be, a secret in it.
    SecretInPlain,
}

impl fmt::Display for SignalOptionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "does not exist",
            Self::Missing => "is required",
            Self::Invalid => "cannot be used as it is",
            Self::SecretInPlain => "may hold a secret, and secrets are never kept",
        })
    }
}

impl SignalRejection {
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Option { problem: SignalOptionProblem::Unknown, .. } => "UNKNOWN_SIGNAL_OPTION",
            Self::Option { problem: SignalOptionProblem::Missing, .. } => "MISSING_SIGNAL_OPTION",
            Self::Option { problem: SignalOptionProblem::Invalid, .. } => "INVALID_SIGNAL_OPTION",
            Self::Option { problem: SignalOptionProblem::SecretInPlain, .. } => "SECRET_IN_PLAIN",
            Self::NotBoth { .. } => "CONTRADICTING_SIGNAL_OPTIONS",
            Self::TooManySignals { .. } => "TOO_MANY_SIGNALS",
            Self::TooSeldom { .. } => "SIGNAL_TOO_SELDOM",
            Self::PushedNotAsked => "PUSHED_NOT_ASKED",
            Self::NotPushed { .. } => "NOT_PUSHED",
            Self::NotForCluster { .. } => "NOT_FOR_CLUSTER",
        }
    }

    pub(crate) fn class(&self) -> RejectionClass {
        match self {
            Self::Option { .. } | Self::NotBoth { .. } | Self::PushedNotAsked => RejectionClass::Invalid,
            Self::TooManySignals { .. }
            | Self::TooSeldom { .. }
            | Self::NotPushed { .. }
            | Self::NotForCluster { .. } => RejectionClass::Precondition,
        }
    }

    pub(crate) fn field(&self) -> Field {
        match self {
            Self::Option { .. } | Self::NotBoth { .. } => Field::Options,
            Self::TooManySignals { .. } => Field::Name,
            Self::TooSeldom { .. } | Self::PushedNotAsked => Field::Every,
            Self::NotPushed { .. } => Field::Signal,
            Self::NotForCluster { .. } => Field::Clusters,
        }
    }

    pub(crate) fn metadata(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Option { option, expected, .. } => {
                vec![("option", option.clone()), ("expected", expected.clone())]
            }
            Self::NotBoth { option, other } => vec![("option", option.clone()), ("other", other.clone())],
            Self::TooManySignals { count, count_max } => {
                vec![("count", count.to_string()), ("count_max", count_max.to_string())]
            }
            Self::TooSeldom { every, stale_after, longest } => vec![
                ("every_ms", every.as_millis().to_string()),
                ("stale_after_ms", stale_after.as_millis().to_string()),
                ("longest_ms", longest.as_millis().to_string()),
            ],
            Self::PushedNotAsked => vec![],
            Self::NotPushed { signal, kind } => vec![("signal", signal.clone()), ("kind", kind.clone())],
            Self::NotForCluster { signal, cluster, target } => {
                vec![("signal", signal.clone()), ("cluster", cluster.clone()), ("target", target.clone())]
            }
        }
    }
}

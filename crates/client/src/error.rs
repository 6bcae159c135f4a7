//! How a call can end badly, and what a caller can tell from it.
//!
//! Three ends, three meanings: the group said no ([`Error::Refused`]), nobody who could answer was found
//! ([`Error::Unavailable`]), or the time was up ([`Error::TimedOut`]). The last two say whether a write may
//! nevertheless have been recorded.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::endpoint::{EndpointError, innermost};

/// Why a call did not give what was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The group answered, and the answer is no. The same request would get the same answer.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// No node took the request: none could be reached, or none knew a leader.
    #[error("no node could serve the request: {}", causes(tried))]
    Unavailable {
        /// Each endpoint that was tried, and how it last failed.
        tried: Vec<(String, String)>,
        /// The answer of a node that was there but could not serve, if one was.
        answer: Option<Box<Refusal>>,
        /// True: an attempt may have reached a node, so the write may have been recorded.
        maybe_done: bool,
    },
    /// The deadline passed while waiting for an answer.
    #[error("no answer within {}{}", seconds(*after), causes_after(tried))]
    TimedOut { after: Duration, tried: Vec<(String, String)>, maybe_done: bool },
    /// A watch asked for changes that no node has any more. Begin again with a snapshot.
    #[error("the changes since revision {asked} are no longer kept{}; begin again with the present state", first_kept(*first))]
    Compacted { asked: u64, first: Option<u64> },
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The answer of a node does not make sense, which a node of another version could cause.
    #[error("the answer of {endpoint} lacks {lacks}; it may be of another version")]
    Malformed { endpoint: String, lacks: &'static str },
    /// Local reading or writing of a snapshot failed.
    #[error("{0}")]
    Local(String),
}

impl Error {
    /// True where a write may have been recorded although no answer came.
    pub fn maybe_done(&self) -> bool {
        match self {
            Error::Unavailable { maybe_done, .. } | Error::TimedOut { maybe_done, .. } => *maybe_done,
            _ => false,
        }
    }

    /// The refusal, if that is what it was.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Error::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

/// An answer of the group that is not what was asked for: `google.rpc.Status` with its details.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: Code,
    /// Stable, in UPPER_SNAKE; empty if the node gave none.
    pub reason: String,
    pub message: String,
    /// The facts behind the reason, such as the etag that would have matched.
    pub metadata: BTreeMap<String, String>,
    /// Which fields of the request are wrong.
    pub fields: Vec<FieldViolation>,
}

/// One wrong field of a request, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldViolation {
    pub field: String,
    pub description: String,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.message.is_empty() {
            return write!(f, "refused with {:?} {}", self.code, self.reason);
        }
        f.write_str(&self.message)
    }
}

/// How one attempt ended without an answer to the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The node decided against it. Final.
    Refused(Box<Refusal>),
    /// The node answered that it cannot serve now. Unless it said why not, whether the request was recorded is open: the
    /// leader may have died between recording and answering.
    NotNow { refusal: Box<Refusal>, surely_not_done: bool },
    /// No connection was made: the request has surely not arrived.
    NotSent(String),
    /// The connection broke or the time for one attempt was up: it may have arrived.
    NoAnswer { why: String, timed_out: bool },
}

/// Reason in `google.rpc.ErrorInfo`: the time in the id is before all ids that are still remembered.
pub(crate) const REQUEST_TOO_OLD: &str = "REQUEST_TOO_OLD";
/// Reason in `google.rpc.ErrorInfo`: the time in the id is too far ahead of the group's.
pub(crate) const REQUEST_FROM_FUTURE: &str = "REQUEST_FROM_FUTURE";
/// Reasons in `google.rpc.ErrorInfo` of a refusal that came without a look at what is remembered of the id. A repeat that is
/// refused so says nothing of an earlier attempt that was not answered.
pub(crate) const NOT_LOOKED_UP: [&str; 2] = [REQUEST_TOO_OLD, "DISK_RESERVE"];
/// Reason in `google.rpc.ErrorInfo`: too many requests at once.
const OVERLOADED: &str = "OVERLOADED";
/// Reasons in `google.rpc.ErrorInfo` of a node that did not hand the request to anybody who could have recorded it.
const NOBODY_TOOK_IT: [&str; 3] = ["NO_LEADER", "NOT_LEADER", OVERLOADED];
/// Reason in `google.rpc.ErrorInfo`: the wanted revision is no longer kept.
pub(crate) const REVISION_COMPACTED: &str = "REVISION_COMPACTED";

impl Failure {
    pub(crate) fn of(status: &Status) -> Failure {
        if has_cause::<tonic::ConnectError>(status) {
            return Failure::NotSent(why(status));
        }
        let refusal = Refusal::of(status);
        // tonic puts a source only under a status that it made itself; those of a node have none.
        let from_here = std::error::Error::source(status).is_some();
        let not_now = |refusal: Refusal| Failure::NotNow {
            surely_not_done: NOBODY_TOOK_IT.contains(&refusal.reason.as_str()),
            refusal: Box::new(refusal),
        };
        match status.code() {
            _ if from_here => {
                Failure::NoAnswer { why: why(status), timed_out: has_cause::<tonic::TimeoutExpired>(status) }
            }
            // Shed at the door before anybody looked at it: no decision, so no refusal.
            Code::ResourceExhausted if refusal.reason == OVERLOADED => not_now(refusal),
            Code::Unavailable => not_now(refusal),
            Code::DeadlineExceeded => Failure::NoAnswer { why: why(status), timed_out: true },
            // Without a reason these are what tonic says of an answer that was cut off.
            Code::Cancelled | Code::Unknown | Code::Internal if refusal.reason.is_empty() => {
                Failure::NoAnswer { why: why(status), timed_out: false }
            }
            _ => Failure::Refused(Box::new(refusal)),
        }
    }
}

impl Refusal {
    pub(crate) fn of(status: &Status) -> Refusal {
        let details = status.get_error_details();
        let (reason, metadata) = match details.error_info() {
            Some(info) => (info.reason.clone(), info.metadata.clone().into_iter().collect()),
            None => (String::new(), BTreeMap::new()),
        };
        let violations = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        let fields = violations
            .iter()
            .map(|v| FieldViolation { field: v.field.clone(), description: v.description.clone() })
            .collect();
        Refusal { code: status.code(), reason, message: status.message().to_owned(), metadata, fields }
    }
}

fn has_cause<E: std::error::Error + 'static>(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<E>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn why(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => innermost(source),
        None if status.message().is_empty() => format!("{:?}", status.code()),
        None => status.message().to_owned(),
    }
}

fn causes(tried: &[(String, String)]) -> String {
    if tried.is_empty() {
        return "there was no time to try".to_owned();
    }
    let each: Vec<String> = tried.iter().map(|(endpoint, why)| format!("{endpoint}: {why}")).collect();
    each.join("; ")
}

fn causes_after(tried: &[(String, String)]) -> String {
    if tried.is_empty() { String::new() } else { format!(" ({})", causes(tried)) }
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

fn first_kept(first: Option<u64>) -> String {
    first.map(|first| format!(" (the first kept is {first})")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tonic_types::ErrorDetails;

    use super::*;

    #[test]
    fn a_refusal_carries_code_reason_metadata_and_fields() {
        let mut details =
            ErrorDetails::with_error_info("NAME_INVALID", "loadline", [("max".to_owned(), "63".to_owned())]);
        details.add_bad_request_violation("cluster.name", "must not be empty");
        let status = Status::with_error_details(Code::InvalidArgument, "the name is empty", details);
        let expected = Refusal {
            code: Code::InvalidArgument,
            reason: "NAME_INVALID".to_owned(),
            message: "the name is empty".to_owned(),
            metadata: [("max".to_owned(), "63".to_owned())].into(),
            fields: vec![FieldViolation { field: "cluster.name".into(), description: "must not be empty".into() }],
        };
        assert_eq!(Failure::of(&status), Failure::Refused(Box::new(expected)));
    }

    #[test]
    fn only_what_may_differ_next_time_counts_as_transient() {
        for code in [
            Code::InvalidArgument,
            Code::NotFound,
            Code::AlreadyExists,
            Code::Aborted,
            Code::FailedPrecondition,
            Code::OutOfRange,
            Code::PermissionDenied,
            Code::ResourceExhausted,
            Code::Unimplemented,
        ] {
            assert!(matches!(Failure::of(&Status::new(code, "no")), Failure::Refused(_)), "{code:?}");
        }
        assert!(matches!(Failure::of(&Status::unavailable("?")), Failure::NotNow { surely_not_done: false, .. }));
        let no_leader = ErrorDetails::with_error_info("NO_LEADER", "loadline", []);
        let no_leader = Status::with_error_details(Code::Unavailable, "no leader", no_leader);
        assert!(matches!(Failure::of(&no_leader), Failure::NotNow { surely_not_done: true, .. }));
        for code in [Code::DeadlineExceeded, Code::Cancelled, Code::Unknown, Code::Internal] {
            assert!(matches!(Failure::of(&Status::new(code, "")), Failure::NoAnswer { .. }), "{code:?}");
        }
    }
}

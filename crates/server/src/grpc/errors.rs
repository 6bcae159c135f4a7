//! The one map from errors to gRPC status. Every status carries an `ErrorInfo` whose reason is stable.
//!
//! Codes are chosen by what the caller should do: UNAVAILABLE and DEADLINE_EXCEEDED mean "ask again with the same request
//! id", RESOURCE_EXHAUSTED "ask again later", ABORTED "read again, decide again", and the rest "do not ask again".

use std::collections::HashMap;
use std::time::Duration;

use crate::travel::TravelError;
use http::HeaderMap;
use loadline_api::{Invalid, Write};
use loadline_audit::TrailError;
use loadline_raft_node::{FeedError, MembershipError, ProposeError, ReadError};
use loadline_state_machine::{Refused, Rejection, RejectionClass};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

/// Whose reasons these are.
pub(crate) const DOMAIN: &str = "loadline";

/// What a caller may as well wait before it asks again, when too much was asked at once.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A status under construction.
pub(crate) struct Answer {
    code: Code,
    reason: &'static str,
    message: String,
    metadata: HashMap<String, String>,
    fields: Vec<FieldViolation>,
    retry_after: Option<Duration>,
}

impl Answer {
    pub(crate) fn new(code: Code, reason: &'static str, message: impl Into<String>) -> Answer {
        let message = message.into();
        Answer { code, reason, message, metadata: HashMap::new(), fields: Vec::new(), retry_after: None }
    }

    #[must_use]
    pub(crate) fn with(mut self, key: &str, value: &(impl ToString + ?Sized)) -> Answer {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    #[must_use]
    fn field(mut self, field: impl Into<String>, description: impl Into<String>) -> Answer {
        self.fields.push(FieldViolation::new(field, description));
        self
    }

    #[must_use]
    fn retry_later(mut self) -> Answer {
        self.retry_after = Some(RETRY_AFTER);
        self
    }

    pub(crate) fn status(self) -> Status {
        let mut details = ErrorDetails::with_error_info(self.reason, DOMAIN, self.metadata);
        if !self.fields.is_empty() {
            details.set_bad_request(self.fields);
        }
        if self.retry_after.is_some() {
            details.set_retry_info(self.retry_after);
        }
        Status::with_error_details(self.code, self.message, details)
    }
}

/// The end of a stream on a node that is about to stop.
pub(crate) fn shutting_down() -> Status {
    let message = "this node is shutting down; go on at another one, with what was not acknowledged";
    Answer::new(Code::Unavailable, "SHUTTING_DOWN", message).status()
}

/// A request whose shape is wrong.
pub(crate) fn invalid(invalid: Invalid) -> Status {
    let message = invalid.to_string();
    let mut answer = Answer::new(Code::InvalidArgument, "INVALID_REQUEST", message);
    for violation in invalid.violations {
        answer = answer.field(violation.field, violation.message);
    }
    answer.status()
}

pub(crate) fn invalid_field(field: &str, message: impl Into<String>) -> Status {
    invalid(Invalid::one(field, message))
}

/// What the state machine refused, in the words of the caller.
pub(crate) fn refused(refused: &Refused, write: &Write) -> Status {
    let mut answer = rejection(&refused.rejection);
    if let Some(field) = refused.rejection.field() {
        let mut field = write.field(refused.ordinal, field);
        // Of many options, which one.
        if let Some(option) = answer.metadata.get("option") {
            field = format!("{field}[{option}]");
        }
        answer = answer.field(field, refused.rejection.to_string());
    }
    // Which step of a transaction it was; a reader of logs should not have to count.
    if write.has_steps() {
        answer = answer.with("change", &refused.ordinal);
        answer.message = format!("changes[{}]: {}", refused.ordinal, answer.message);
    }
    answer.status()
}

/// A refusal of something that the caller did not write in fields, such as a read or a restore.
pub(crate) fn rejected(rejected: &Rejection) -> Status {
    rejection(rejected).status()
}

/// The same, where the fields of the caller have the names that the state machine uses.
pub(crate) fn rejected_field(rejected: &Rejection) -> Status {
    let answer = rejection(rejected);
    match rejected.field() {
        Some(field) => answer.field(field, rejected.to_string()).status(),
        None => answer.status(),
    }
}

fn rejection(rejection: &Rejection) -> Answer {
    let code = match rejection.class() {
        RejectionClass::Invalid => Code::InvalidArgument,
        RejectionClass::NotFound => Code::NotFound,
        RejectionClass::AlreadyExists => Code::AlreadyExists,
        RejectionClass::EtagMismatch => Code::Aborted,
        RejectionClass::Precondition | RejectionClass::TooOld => Code::FailedPrecondition,
        RejectionClass::Unauthenticated => Code::Unauthenticated,
        RejectionClass::Denied => Code::PermissionDenied,
    };
    let answer = Answer::new(code, rejection.code(), rejection.to_string());
    rejection.metadata().into_iter().fold(answer, |answer, (key, value)| answer.with(key, &value))
}

pub(crate) fn propose(error: &ProposeError) -> Status {
    let message = error.to_string();
    let answer = |code, reason| Answer::new(code, reason, &message);
    match error {
        ProposeError::NoLeader => answer(Code::Unavailable, "NO_LEADER"),
        ProposeError::Overloaded => answer(Code::ResourceExhausted, "OVERLOADED").retry_later(),
        ProposeError::DiskReserve { free, reserve, node } => answer(Code::ResourceExhausted, "DISK_RESERVE")
            .with("free_bytes", free)
            .with("reserve_bytes", reserve)
            .with("node", node),
        ProposeError::TooLarge { bytes, bytes_max } => {
            answer(Code::InvalidArgument, "TOO_LARGE").with("bytes", bytes).with("bytes_max", bytes_max)
        }
        // It may have been recorded: only a repeat with the same id can tell.
        ProposeError::Unknown { .. } => answer(Code::Unavailable, "OUTCOME_UNKNOWN"),
        ProposeError::Suspended => answer(Code::Unavailable, "DISAGREEMENT"),
        ProposeError::ShuttingDown => answer(Code::Unavailable, "SHUTTING_DOWN"),
        ProposeError::Stopped => answer(Code::Unavailable, "STOPPED"),
    }
    .status()
}

pub(crate) fn read(error: &ReadError) -> Status {
    let (code, reason) = match error {
        ReadError::NoLeader => (Code::Unavailable, "NO_LEADER"),
        ReadError::Behind { .. } => (Code::Unavailable, "BEHIND"),
        ReadError::Snapshot(_) => (Code::Internal, "SNAPSHOT_FAILED"),
        ReadError::ShuttingDown => (Code::Unavailable, "SHUTTING_DOWN"),
        ReadError::Stopped => (Code::Unavailable, "STOPPED"),
    };
    Answer::new(code, reason, error.to_string()).status()
}

pub(crate) fn feed(error: &FeedError) -> Status {
    match error {
        FeedError::Compacted { first } => compacted(first.0, format!("{error}; watch again without from_revision")),
        FeedError::Journal(_) => Answer::new(Code::Internal, "JOURNAL_FAILED", error.to_string()).status(),
        FeedError::ShuttingDown => Answer::new(Code::Unavailable, "SHUTTING_DOWN", error.to_string()).status(),
    }
}

/// Something about the past that this node cannot tell.
pub(crate) fn history(reason: &'static str, message: impl Into<String>) -> Status {
    Answer::new(Code::FailedPrecondition, reason, message).status()
}

pub(crate) fn journal_failed(error: &dyn std::fmt::Display) -> Status {
    Answer::new(Code::Internal, "JOURNAL_FAILED", format!("the journal of this node cannot be read: {error}")).status()
}

/// There is no state of the moment that was asked about.
pub(crate) fn travel(error: &TravelError) -> Status {
    match error {
        TravelError::NotYet { .. } => Answer::new(Code::OutOfRange, "NOT_YET", error.to_string()).status(),
        TravelError::Begins { .. } => history("JOURNAL_BEGINS_LATER", format!("{error}; another node may know more")),
        TravelError::Differs { .. } | TravelError::Replay(_) => journal_failed(error),
        TravelError::Stopped => Answer::new(Code::DeadlineExceeded, "TOO_LONG_AGO", error.to_string()).status(),
    }
}

/// An explanation could not be made.
pub(crate) fn trail(error: &TrailError) -> Status {
    match error {
        TrailError::Lacks { index, .. } => {
            Answer::new(Code::NotFound, "HISTORY_MISSING", error.to_string()).with("index", index).status()
        }
        TrailError::Several { .. } => invalid_field("name", error.to_string()),
        _ => journal_failed(error),
    }
}

/// Nothing of this name is there, or is in the journal of this node.
pub(crate) fn nothing_of_that_name(name: &str) -> Status {
    let message = format!("{name} is not there, and the journal of this node does not tell of it");
    Answer::new(Code::NotFound, "NOT_FOUND", message).with("resource", name).status()
}

/// A watch cannot go on from where it is; it can from `first`, or from the present.
pub(crate) fn compacted(first: u64, message: impl Into<String>) -> Status {
    Answer::new(Code::OutOfRange, "REVISION_COMPACTED", message).with("first", &first).status()
}

pub(crate) fn membership(error: &MembershipError) -> Status {
    let message = error.to_string();
    let answer = |code, reason| Answer::new(code, reason, &message);
    match error {
        MembershipError::NotLeader { leader } => {
            let answer = answer(Code::Unavailable, "NOT_LEADER");
            leader.iter().fold(answer, |answer, leader| answer.with("leader", leader))
        }
        MembershipError::NoSuchPeer { asked, known } => {
            answer(Code::NotFound, "NO_SUCH_PEER").with("asked", asked).with("known", known)
        }
        MembershipError::Ambiguous { asked, .. } => {
            answer(Code::InvalidArgument, "AMBIGUOUS_PEER").with("asked", asked)
        }
        MembershipError::AlreadyVoter { peer } => answer(Code::AlreadyExists, "ALREADY_VOTER").with("peer", peer),
        MembershipError::NotVoter { peer } => answer(Code::FailedPrecondition, "NOT_VOTER").with("peer", peer),
        MembershipError::WouldCollide { peer, voter } => {
            answer(Code::FailedPrecondition, "WOULD_COLLIDE").with("peer", peer).with("voter", voter)
        }
        MembershipError::StillBehind { peer, behind } => {
            answer(Code::FailedPrecondition, "STILL_BEHIND").with("peer", peer).with("behind", behind)
        }
        MembershipError::OnlyVoter { peer } => answer(Code::FailedPrecondition, "ONLY_VOTER").with("peer", peer),
        MembershipError::InProgress => answer(Code::Aborted, "CHANGE_IN_PROGRESS"),
        MembershipError::TransferFailed { .. } => answer(Code::Aborted, "TRANSFER_FAILED"),
        MembershipError::Unknown { .. } => answer(Code::Unavailable, "OUTCOME_UNKNOWN"),
        MembershipError::Stopped => answer(Code::Unavailable, "SHUTTING_DOWN"),
    }
    .status()
}

/// Gives a reason to an error that the transport made by itself, before or after a service had its say. Nothing if it is no
/// error, or has a reason already.
pub(crate) fn completed(headers: &HeaderMap) -> Option<Status> {
    let bare =
        headers.get("grpc-status").is_some_and(|code| code != "0") && !headers.contains_key("grpc-status-details-bin");
    let status = bare.then(|| Status::from_header_map(headers)).flatten()?;
    let (code, reason) = match status.code() {
        // The same message would be too large again.
        Code::OutOfRange => (Code::InvalidArgument, "MESSAGE_TOO_LARGE"),
        Code::Unimplemented => (Code::Unimplemented, "NO_SUCH_METHOD"),
        Code::Internal => (Code::InvalidArgument, "MALFORMED_MESSAGE"),
        code => (code, "TRANSPORT"),
    };
    Some(Answer::new(code, reason, status.message()).status())
}

/// Nobody knows who asks.
pub(crate) fn unauthenticated(reason: &'static str, message: &str) -> Status {
    Answer::new(Code::Unauthenticated, reason, message).status()
}

/// The first credential would lock a door whose other side stands open.
pub(crate) fn peer_secret_missing() -> Status {
    let message = "the nodes of this group do not prove to each other who they are, so roles would protect nothing: put the \
                   same secret into a file for every node and name it in peer_secret_file, then create roles";
    Answer::new(Code::FailedPrecondition, "PEER_SECRET_MISSING", message).status()
}

/// Turned away at the door.
pub(crate) fn overloaded(service: &str, at_once_max: usize) -> Status {
    let message =
        format!("this node serves at most {at_once_max} calls of {service} at once; try again, or another node");
    Answer::new(Code::ResourceExhausted, "OVERLOADED", message)
        .with("service", service)
        .with("at_once_max", &at_once_max)
        .retry_later()
        .status()
}

pub(crate) fn deadline(after: Duration) -> Status {
    let message = format!(
        "not done within {after:?}; a write may still be recorded, so ask again with the same request id to learn the outcome"
    );
    Answer::new(Code::DeadlineExceeded, "DEADLINE_EXCEEDED", message).with("after_ms", &after.as_millis()).status()
}

#[cfg(test)]
mod tests {
    use loadline_api::v1;
    use loadline_state_machine::{Field, LogIndex, ResourceKind};

    use super::*;

    #[track_caller]
    fn check(status: &Status, code: Code, reason: &str, metadata: &[(&str, &str)]) {
        assert_eq!(status.code(), code);
        let details = status.get_error_details();
        let info = details.error_info().expect("every status carries an ErrorInfo");
        assert_eq!((info.reason.as_str(), info.domain.as_str()), (reason, "loadline"));
        let expected: HashMap<String, String> =
            metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        assert_eq!(info.metadata, expected);
        assert!(!status.message().is_empty());
    }

    #[test]
    fn whoever_should_ask_again_is_told_so_by_the_code() {
        check(&propose(&ProposeError::NoLeader), Code::Unavailable, "NO_LEADER", &[]);
        check(&propose(&ProposeError::Overloaded), Code::ResourceExhausted, "OVERLOADED", &[]);
        assert!(propose(&ProposeError::Overloaded).get_error_details().retry_info().is_some());
        let unknown = ProposeError::Unknown { reason: "the leader went away".to_owned() };
        check(&propose(&unknown), Code::Unavailable, "OUTCOME_UNKNOWN", &[]);
        check(
            &propose(&ProposeError::DiskReserve { free: 1, reserve: 2, node: 3 }),
            Code::ResourceExhausted,
            "DISK_RESERVE",
            &[("free_bytes", "1"), ("reserve_bytes", "2"), ("node", "3")],
        );
        check(&read(&ReadError::NoLeader), Code::Unavailable, "NO_LEADER", &[]);
        check(&deadline(Duration::from_secs(2)), Code::DeadlineExceeded, "DEADLINE_EXCEEDED", &[("after_ms", "2000")]);
        check(
            &feed(&FeedError::Compacted { first: LogIndex(9) }),
            Code::OutOfRange,
            "REVISION_COMPACTED",
            &[("first", "9")],
        );
        check(
            &membership(&MembershipError::NotLeader { leader: Some("n2:7700".to_owned()) }),
            Code::Unavailable,
            "NOT_LEADER",
            &[("leader", "n2:7700")],
        );
    }

    #[test]
    fn a_refusal_names_the_field_as_the_caller_wrote_it() {
        let options = Some(v1::WriteOptions { validate_only: true, request_id: String::new() });
        let size = Some(v1::Size::default());
        let write = Write::create_size(v1::CreateSizeRequest { options: options.clone(), size }).unwrap();
        let rejection = Rejection::OutOfRange { field: Field::Slots, value: 0, min: 1, max: 9 };
        let status = refused(&Refused { ordinal: 0, rejection: rejection.clone() }, &write);
        check(
            &status,
            Code::InvalidArgument,
            "OUT_OF_RANGE",
            &[("field", "slots"), ("value", "0"), ("min", "1"), ("max", "9")],
        );
        let details = status.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "size.slots");

        let step = |name: &str| v1::Change {
            change: Some(v1::change::Change::DeleteSize(v1::DeleteRequest {
                name: name.to_owned(),
                ..v1::DeleteRequest::default()
            })),
        };
        let both = Write::transact(v1::TransactRequest { options, changes: vec![step("a"), step("b")] }).unwrap();
        let status = refused(&Refused { ordinal: 1, rejection }, &both);
        assert!(status.message().starts_with("changes[1]: "), "{}", status.message());
        let details = status.get_error_details();
        assert_eq!(details.bad_request().unwrap().field_violations[0].field, "changes[1].delete_size.slots");
        assert_eq!(details.error_info().unwrap().metadata["change"], "1");
    }

    #[test]
    fn errors_of_the_transport_get_a_reason_and_ours_stay_as_they_are() {
        let headers = |status: &Status| {
            let mut headers = HeaderMap::new();
            status.add_header(&mut headers).unwrap();
            headers
        };
        let large = completed(&headers(&Status::out_of_range("too large: 5 of 4"))).unwrap();
        check(&large, Code::InvalidArgument, "MESSAGE_TOO_LARGE", &[]);
        assert_eq!(large.message(), "too large: 5 of 4");
        let garbage = completed(&headers(&Status::internal("failed to decode"))).unwrap();
        check(&garbage, Code::InvalidArgument, "MALFORMED_MESSAGE", &[]);
        assert!(completed(&headers(&compacted(7, "gone"))).is_none());
        assert!(completed(&headers(&Status::ok(""))).is_none());
        assert!(completed(&HeaderMap::new()).is_none());
    }

    #[test]
    fn every_wrong_field_is_listed() {
        let wrong = v1::DeleteRequest { etag: "x".to_owned(), ..v1::DeleteRequest::default() };
        let status = invalid(Write::delete(ResourceKind::Size, wrong).unwrap_err());
        check(&status, Code::InvalidArgument, "INVALID_REQUEST", &[]);
        let details = status.get_error_details();
        let fields: Vec<&str> =
            details.bad_request().unwrap().field_violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["options.request_id", "etag"]);
    }
}

//! How a command ends: exit codes, and what is said when it ends badly.
//!
//! The codes are an interface. Scripts tell "not there" from "not reachable" by them, so a code never changes its
//! meaning.

use std::io;

use loadline_client::{EndpointError, Error, Refusal};
use tonic::Code;

/// The exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    /// It failed; or, for a command that compares, the two differ.
    Failure = 1,
    /// What was asked cannot be right, whatever the state.
    Usage = 2,
    NotFound = 3,
    /// Somebody else was faster, or it is there already.
    Conflict = 4,
    Unavailable = 5,
    TimedOut = 6,
    Denied = 7,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> std::process::ExitCode {
        (exit as u8).into()
    }
}

/// The end of a command that did not do what was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) exit: Exit,
    /// Empty: there is nothing to say.
    pub(crate) message: String,
    /// What the user could do about it, a line each.
    pub(crate) hints: Vec<String>,
}

impl Failed {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Failed {
        Failed { exit, message: message.into(), hints: Vec::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failed {
        Failed::new(Exit::Usage, message)
    }

    /// Ends with this code and without a word, because the output has said it.
    pub(crate) fn quietly(exit: Exit) -> Failed {
        Failed::new(exit, "")
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failed {
        self.hints.push(hint.into());
        self
    }
}

/// Failures of reading and writing files and streams of this process.
impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        // The reader has seen enough, as in `loadline get clusters | head -1`. That is no failure of ours.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failed::quietly(Exit::Ok);
        }
        Failed::new(Exit::Failure, error.to_string())
    }
}

impl From<EndpointError> for Failed {
    fn from(error: EndpointError) -> Failed {
        Failed::usage(error.to_string())
    }
}

/// A moment that the history does not have is missing, whatever side of it it would be on, as it is in a history at rest.
const NO_SUCH_MOMENT: [&str; 4] = ["HISTORY_MISSING", "NO_STATE_BEFORE", "NOT_YET", "JOURNAL_BEGINS_LATER"];

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let exit = match &error {
            Error::Refused(refusal) if NO_SUCH_MOMENT.contains(&refusal.reason.as_str()) => Exit::NotFound,
            Error::Refused(refusal) => of_code(refusal.code),
            Error::Unavailable { .. } => Exit::Unavailable,
            Error::TimedOut { .. } => Exit::TimedOut,
            Error::Endpoint(_) => Exit::Usage,
            Error::Compacted { .. } | Error::Malformed { .. } | Error::Local(_) => Exit::Failure,
        };
        let mut failed = Failed::new(exit, error.to_string());
        if let Error::Refused(refusal) = &error {
            failed.message = with_fields(refusal);
            if let Some(hint) = what_to_do(refusal) {
                failed = failed.hint(hint);
            }
        }
        if error.maybe_done() {
            failed = failed.hint("the request may have arrived: look at what is there before you repeat it");
        }
        failed
    }
}

/// What the user could type next, where that is clear.
fn what_to_do(refusal: &Refusal) -> Option<String> {
    let resource = refusal.metadata.get("resource").map(String::as_str).unwrap_or_default();
    match (refusal.reason.as_str(), resource.split_once('/')) {
        ("ETAG_MISMATCH", _) => {
            Some("somebody has changed it since it was read; look at it again, then decide".to_owned())
        }
        ("CHANGED_SINCE", _) => {
            let since = refusal.metadata.get("since").and_then(|since| since.parse().ok()).unwrap_or_default();
            Some(crate::commands::guard::what_to_do(since))
        }
        ("FEATURE_OFF", _) => Some("loadline set enable_auto_scaling true".to_owned()),
        ("ALREADY_EXISTS", Some(("strategies", id))) => {
            Some(format!("change it with loadline update strategy {id}, or let it be with --if-not-exists"))
        }
        ("ACTION_NOT_FOUND", _) => Some("see loadline get actions, and loadline get actions --history".to_owned()),
        _ => None,
    }
}

fn of_code(code: Code) -> Exit {
    match code {
        Code::InvalidArgument | Code::OutOfRange => Exit::Usage,
        Code::NotFound => Exit::NotFound,
        Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => Exit::Conflict,
        Code::Unavailable | Code::ResourceExhausted => Exit::Unavailable,
        Code::DeadlineExceeded => Exit::TimedOut,
        Code::PermissionDenied | Code::Unauthenticated => Exit::Denied,
        _ => Exit::Failure,
    }
}

/// The message, and those wrong fields that it does not already name.
fn with_fields(refusal: &Refusal) -> String {
    let mut message = refusal.to_string();
    for violation in &refusal.fields {
        if !message.contains(&violation.description) {
            message.push_str(&format!("\n  {}: {}", violation.field, violation.description));
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn refused(code: Code, reason: &str) -> Failed {
        let refusal = Refusal {
            code,
            reason: reason.to_owned(),
            message: "no".to_owned(),
            metadata: BTreeMap::new(),
            fields: Vec::new(),
        };
        Error::Refused(Box::new(refusal)).into()
    }

    #[test]
    fn every_kind_of_refusal_has_the_exit_code_that_scripts_expect() {
        for (code, exit) in [
            (Code::InvalidArgument, 2),
            (Code::OutOfRange, 2),
            (Code::NotFound, 3),
            (Code::AlreadyExists, 4),
            (Code::Aborted, 4),
            (Code::FailedPrecondition, 4),
            (Code::Unavailable, 5),
            (Code::ResourceExhausted, 5),
            (Code::DeadlineExceeded, 6),
            (Code::PermissionDenied, 7),
            (Code::Unauthenticated, 7),
            (Code::Internal, 1),
            (Code::Unimplemented, 1),
            (Code::DataLoss, 1),
        ] {
            assert_eq!(refused(code, "").exit as u8, exit, "{code:?}");
        }
    }

    #[test]
    fn a_moment_that_the_history_does_not_have_is_3_on_both_sides_of_it() {
        for (code, reason) in [
            (Code::OutOfRange, "HISTORY_MISSING"),
            (Code::OutOfRange, "NO_STATE_BEFORE"),
            (Code::OutOfRange, "NOT_YET"),
            (Code::FailedPrecondition, "JOURNAL_BEGINS_LATER"),
        ] {
            assert_eq!(refused(code, reason).exit as u8, 3, "{reason}");
        }
    }

    #[test]
    fn nobody_there_is_5_and_no_answer_in_time_is_6_and_both_say_if_it_may_have_arrived() {
        let gone: Failed = Error::Unavailable { tried: Vec::new(), answer: None, maybe_done: false }.into();
        assert_eq!((gone.exit, gone.hints.len()), (Exit::Unavailable, 0));
        let late: Failed =
            Error::TimedOut { after: Duration::from_secs(1), tried: Vec::new(), maybe_done: true }.into();
        assert_eq!((late.exit, late.hints.len()), (Exit::TimedOut, 1));
    }

    #[test]
    fn a_reader_that_went_away_is_no_failure() {
        let failed: Failed = io::Error::from(io::ErrorKind::BrokenPipe).into();
        assert_eq!(failed, Failed::quietly(Exit::Ok));
    }

    #[test]
    fn an_etag_that_does_not_match_says_what_to_do() {
        assert_eq!(refused(Code::Aborted, "ETAG_MISMATCH").hints.len(), 1);
    }
}

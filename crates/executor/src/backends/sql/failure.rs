//! What an error of the database says about whether something was done.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::CallError;

/// How far a call had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was sent that changes anything.
    Before,
    /// In a transaction that has not been committed: whatever the server says, it is not done.
    InTransaction,
    /// A statement of its own, which is done when it is through.
    Alone,
    /// The end of a transaction.
    Commit,
}

/// Judges an error by what was under way.
pub(super) fn judge(error: &Error, stage: Stage) -> CallError {
    let reason = describe(error);
    let Some(code) = error.code() else {
        // Not a word of the server: the connection broke.
        return match stage {
            Stage::Before => CallError::Refused { retryable: true, reason },
            _ => CallError::Unknown { reason },
        };
    };
    let retryable = is_passing(code);
    match stage {
        Stage::Before | Stage::InTransaction => CallError::Refused { retryable, reason },
        // It broke off in the middle of what cannot be rolled back.
        Stage::Alone | Stage::Commit if is_breaking_off(code) => CallError::Unknown { reason },
        Stage::Alone | Stage::Commit => CallError::Refused { retryable, reason },
    }
}

/// Another attempt may meet better times: no connection, no resources, a conflict with others, a shutdown.
fn is_passing(code: &SqlState) -> bool {
    ["08", "25", "40", "53", "55", "57", "58", "XX"].contains(&class(code))
}

/// The server stopped in the middle: cancelled, shut down, disconnected or broken.
fn is_breaking_off(code: &SqlState) -> bool {
    ["08", "25", "57", "58", "XX"].contains(&class(code)) || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// In one line, with the code by which it can be looked up.
pub(super) fn describe(error: &Error) -> String {
    match error.as_db_error() {
        Some(said) => {
            let detail = said.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
            format!("{}{detail} [{}]", said.message(), said.code().code())
        }
        None => match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}

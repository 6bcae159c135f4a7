//! What goes wrong with a statement, as a PostgreSQL client wants to hear it.

use std::fmt;

use thiserror::Error;

/// The five characters by which clients tell errors apart. Only those that we answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

impl SqlState {
    pub const SYNTAX_ERROR: Self = Self("42601");
    pub const FEATURE_NOT_SUPPORTED: Self = Self("0A000");
    pub const INVALID_PARAMETER_VALUE: Self = Self("22023");
    pub const STATEMENT_TOO_COMPLEX: Self = Self("54001");
    pub const PROGRAM_LIMIT_EXCEEDED: Self = Self("54000");
    pub const UNDEFINED_OBJECT: Self = Self("42704");
    pub const DUPLICATE_OBJECT: Self = Self("42710");
    pub const UNDEFINED_TABLE: Self = Self("42P01");
    pub const UNDEFINED_COLUMN: Self = Self("42703");
    pub const OBJECT_IN_USE: Self = Self("55006");
    pub const OBJECT_NOT_IN_PREREQUISITE_STATE: Self = Self("55000");
    pub const SERIALIZATION_FAILURE: Self = Self("40001");
    pub const INSUFFICIENT_PRIVILEGE: Self = Self("42501");
    pub const READ_ONLY_TRANSACTION: Self = Self("25006");
    pub const ACTIVE_TRANSACTION: Self = Self("25001");
    pub const FAILED_TRANSACTION: Self = Self("25P02");
    pub const NOT_NULL_VIOLATION: Self = Self("23502");
    pub const INVALID_AUTHORIZATION: Self = Self("28000");
    pub const INVALID_NAME: Self = Self("42602");
    pub const DEPENDENT_OBJECTS_STILL_EXIST: Self = Self("2BP01");
    pub const STATEMENT_COMPLETION_UNKNOWN: Self = Self("40003");
    pub const INTERNAL_ERROR: Self = Self("XX000");
}

impl fmt::Display for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// One error, with all that psql shows of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct SqlError {
    pub sqlstate: SqlState,
    pub message: String,
    /// What would be right, if that is more than the message says.
    pub hint: Option<String>,
    /// The character of the text that is meant, counted from 1 as PostgreSQL does; nothing if none is.
    pub position: Option<usize>,
}

/// Of a text that is no statement. The same type: a client is told both in the same way.
pub type ParseError = SqlError;

impl SqlError {
    pub fn new(sqlstate: SqlState, message: impl Into<String>) -> Self {
        Self { sqlstate, message: message.into(), hint: None, position: None }
    }

    #[must_use]
    pub fn at(self, position: usize) -> Self {
        Self { position: Some(position), ..self }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

//! The codes of what goes wrong in a query, beside those that statements know.

pub(crate) use crate::error::SqlError as QueryError;
use crate::error::SqlState;

/// <https://www.postgresql.org/docs/15/errcodes-appendix.html>
pub(crate) mod code {
    use super::SqlState;

    pub(crate) const SYNTAX: SqlState = SqlState("42601");
    pub(crate) const UNDEFINED_TABLE: SqlState = SqlState("42P01");
    pub(crate) const UNDEFINED_COLUMN: SqlState = SqlState("42703");
    pub(crate) const UNDEFINED_FUNCTION: SqlState = SqlState("42883");
    pub(crate) const UNDEFINED_PARAMETER: SqlState = SqlState("42P02");
    pub(crate) const UNDEFINED_OBJECT: SqlState = SqlState("42704");
    pub(crate) const AMBIGUOUS_COLUMN: SqlState = SqlState("42702");
    pub(crate) const GROUPING: SqlState = SqlState("42803");
    pub(crate) const WINDOWING: SqlState = SqlState("42P20");
    pub(crate) const OUT_OF_RANGE: SqlState = SqlState("22003");
    pub(crate) const INVALID_TEXT: SqlState = SqlState("22P02");
    pub(crate) const TOO_MUCH: SqlState = SqlState("54000");
    pub(crate) const CANCELLED: SqlState = SqlState("57014");
    pub(crate) const NOT_SUPPORTED: SqlState = SqlState("0A000");
    pub(crate) const INTERNAL: SqlState = SqlState("XX000");
}

pub(crate) fn not_supported(what: impl std::fmt::Display) -> QueryError {
    QueryError::new(code::NOT_SUPPORTED, format!("{what} is not supported"))
}

/// Says where, unless it is known already.
pub(crate) fn placed(error: QueryError, position: Option<usize>) -> QueryError {
    QueryError { position: error.position.or(position), ..error }
}

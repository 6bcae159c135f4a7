//! The functions of PostgreSQL that clients call and SQLite does not have, or has with another meaning.
//!
//! - [`values`]: casts, patterns, JSON, arrays, texts;
//! - [`times`]: moments and intervals;
//! - [`catalogue`]: what psql and drivers ask about the server itself.

pub(crate) mod catalogue;
mod times;
mod values;

use std::sync::Arc;

use rusqlite::functions::{Context, FunctionFlags, SqlFnOutput};
use rusqlite::types::{Value as Sqlite, ValueRef};
use rusqlite::{Connection, Error, Result};

use super::source::Source;

/// What a function of this name is called inside SQLite. What has the same meaning there has the same name.
pub(crate) fn sqlite_name(name: &str) -> &str {
    match name {
        "now"
        | "current_timestamp"
        | "transaction_timestamp"
        | "statement_timestamp"
        | "clock_timestamp"
        | "localtimestamp" => "pg_now",
        "current_date" => "pg_today",
        "string_agg" => "group_concat",
        "array_agg" => "pg_array_agg",
        "json_agg" | "jsonb_agg" => "pg_json_agg",
        "json_object_agg" | "jsonb_object_agg" => "json_group_object",
        "json_build_object" | "jsonb_build_object" => "json_object",
        "json_build_array" | "jsonb_build_array" => "json_array",
        "jsonb_array_length" => "json_array_length",
        "bool_and" | "every" => "min",
        "bool_or" => "max",
        "char_length" | "character_length" => "length",
        "strpos" => "instr",
        "btrim" => "trim",
        "ceiling" => "ceil",
        "power" => "pow",
        "greatest" => "pg_greatest",
        "least" => "pg_least",
        "format" => "pg_format",
        "left" => "pg_left",
        "right" => "pg_right",
        "repeat" => "pg_repeat",
        "split_part" => "pg_split_part",
        "starts_with" => "pg_starts_with",
        "regexp_replace" => "pg_regexp_replace",
        "date_trunc" => "pg_date_trunc",
        "date_part" => "pg_extract",
        "to_timestamp" => "pg_to_timestamp",
        "age" => "pg_age",
        "to_jsonb" | "to_json" => "pg_to_jsonb",
        "jsonb_extract_path_text" | "json_extract_path_text" => "pg_json_get_text",
        "array_to_string" => "pg_array_to_string",
        "array_length" | "array_upper" | "cardinality" => "pg_array_length",
        "quote_ident" => "pg_quote_ident",
        "quote_literal" => "pg_quote_literal",
        "current_user" | "session_user" | "user" | "current_role" => "pg_current_user",
        "current_database" | "current_catalog" => "pg_current_database",
        "current_schema" => "pg_current_schema",
        "current_schemas" => "pg_current_schemas",
        "current_setting" => "pg_current_setting",
        "version" => "pg_version",
        "md5" => "pg_md5_is_not_here",
        other => other,
    }
}

pub(crate) use times::parsed_interval as interval_of;

/// Makes all of them known to a connection.
pub(crate) fn register(connection: &Connection, source: &Arc<Source>) -> Result<()> {
    values::register(connection)?;
    times::register(connection, source)?;
    catalogue::register(connection, source)
}

/// The same arguments give the same answer.
const PURE: FunctionFlags =
    FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_DETERMINISTIC).union(FunctionFlags::SQLITE_INNOCUOUS);

fn pure<T: SqlFnOutput>(
    connection: &Connection,
    name: &str,
    arguments: i32,
    function: impl Fn(&Context<'_>) -> Result<T> + Send + 'static,
) -> Result<()> {
    connection.create_scalar_function(name, arguments, PURE, function)
}

/// An error that keeps its code on the way through SQLite, which knows only texts: see `query`.
fn failed(code: crate::error::SqlState, message: impl std::fmt::Display) -> Error {
    Error::UserFunctionError(format!("{}{code}{}{message}", super::CODE_MARK, super::CODE_MARK).into())
}

/// As a text, whatever it is; nothing of a null.
fn text_of(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(value) => Some(value.to_string()),
        ValueRef::Real(value) => Some(float_text(value)),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
    }
}

/// As PostgreSQL writes it: without a fraction if there is none.
pub(crate) fn float_text(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "Infinity".to_owned() } else { "-Infinity".to_owned() }
    } else {
        value.to_string()
    }
}

fn argument(context: &Context<'_>, place: usize) -> Option<String> {
    if place < context.len() { text_of(context.get_raw(place)) } else { None }
}

fn number(context: &Context<'_>, place: usize) -> Option<i64> {
    if place >= context.len() {
        return None;
    }
    match context.get_raw(place) {
        ValueRef::Integer(value) => Some(value),
        ValueRef::Null => None,
        other => text_of(other)?.trim().parse().ok(),
    }
}

fn optional(text: Option<String>) -> Sqlite {
    text.map_or(Sqlite::Null, Sqlite::Text)
}

//! The way of one query: prepared once (names looked up, kinds found, rewritten), then run over a [`Source`] as often as wanted.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::Value as Sqlite;
use rusqlite::{Connection, Error, ffi};
use sqlparser::ast::{Query, Statement as Tree};

use super::define::Table;
use super::engine::{self, value_of};
use super::error::{QueryError, code, not_supported, placed};
use super::kinds::{self, Scope};
use super::source::{Budget, NoPast, SessionFacts, Source};
use super::value::{Kind, Value};
use super::{CODE_MARK, dialect, functions};

/// SQLite asks after this many steps whether to go on: a few times per millisecond.
const STEPS_BETWEEN_CHECKS: i32 = 10_000;
/// One value, as text.
const VALUE_BYTES_MAX: i32 = 16 << 20;
/// Of an expression, as SQLite counts: deeper ones would need more stack than a thread has.
const DEPTH_MAX: i32 = 400;

/// How much an answer may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub rows_max: usize,
    pub bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { rows_max: 1_000_000, bytes_max: 256 << 20 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    pub name: String,
    pub kind: Kind,
}

/// A query that was understood.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub columns: Vec<OutputColumn>,
    /// The kinds of its parameters, the first one first.
    pub parameters: Vec<Kind>,
    sql: String,
    tables: Vec<(String, &'static dyn Table)>,
    /// As it was written, to find names in.
    text: String,
    plan: bool,
}

/// What came of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub columns: Vec<OutputColumn>,
    pub rows: Vec<Vec<Value>>,
}

/// Reads a query, or `EXPLAIN` of one. `text` is the whole text in which it stood.
pub fn prepare(tree: &Tree, text: &str, search_path: &[String]) -> Result<Prepared, QueryError> {
    match tree {
        Tree::Query(query) => prepare_query(query, text, search_path),
        Tree::Explain { statement, analyze: false, .. } => match &**statement {
            Tree::Query(query) => prepare_as(query, text, search_path, true),
            _ => Err(not_supported("EXPLAIN of anything but a query")),
        },
        Tree::Explain { .. } => Err(not_supported("EXPLAIN ANALYZE")),
        _ => Err(not_supported("this statement as a query")),
    }
}

pub(crate) fn prepare_query(query: &Query, text: &str, search_path: &[String]) -> Result<Prepared, QueryError> {
    prepare_as(query, text, search_path, false)
}

fn prepare_as(query: &Query, text: &str, search_path: &[String], plan: bool) -> Result<Prepared, QueryError> {
    let rewritten = dialect::rewrite(query, text, search_path)?;
    let parameters = parameters_of(query, search_path);
    let sql = if plan { format!("EXPLAIN QUERY PLAN {}", rewritten.sql) } else { rewritten.sql };
    let mut prepared =
        Prepared { columns: Vec::new(), parameters, sql, tables: rewritten.tables, text: text.to_owned(), plan };
    // SQLite checks the rest: names of columns and functions, grouping, and what the columns are called.
    let nothing = Source {
        state: Arc::default(),
        past: Arc::new(NoPast),
        nodes: Vec::new(),
        session: SessionFacts { search_path: search_path.to_vec(), ..SessionFacts::default() },
        budget: Budget::default(),
    };
    let failure = Arc::default();
    let connection = prepared.connection(&Arc::new(nothing), &failure).map_err(|error| prepared.explain(&error))?;
    let statement = connection.prepare(&prepared.sql).map_err(|error| about_the_text(prepared.explain(&error)))?;
    let said: Vec<rusqlite::Column<'_>> = statement.columns().collect();
    let known = kinds::columns(query, &Scope::new(search_path)).filter(|known| known.len() == said.len());
    prepared.columns = if plan {
        vec![OutputColumn { name: "QUERY PLAN".to_owned(), kind: Kind::Text }]
    } else {
        let column = |(place, column): (usize, &rusqlite::Column<'_>)| {
            let (name, kind) = match &known {
                Some(known) => known[place].clone(),
                None => {
                    let kind = column.decl_type().and_then(Kind::from_declaration).unwrap_or(Kind::Text);
                    (column.name().to_owned(), kind)
                }
            };
            OutputColumn { name, kind: if kind == Kind::Unknown { Kind::Text } else { kind } }
        };
        said.iter().enumerate().map(column).collect()
    };
    Ok(prepared)
}

/// Found before anything was looked at: whatever it is, the text is to blame.
fn about_the_text(error: QueryError) -> QueryError {
    let sqlstate = if error.sqlstate == code::INTERNAL { code::SYNTAX } else { error.sqlstate };
    QueryError { sqlstate, ..error }
}

impl Prepared {
    /// Answers from one state. It blocks: call it where nobody waits.
    pub fn run(&self, source: &Arc<Source>, parameters: &[Value], limits: Limits) -> Result<Answer, QueryError> {
        if parameters.len() < self.parameters.len() {
            let message = format!("there is no parameter ${}", parameters.len() + 1);
            return Err(QueryError::new(code::UNDEFINED_PARAMETER, message));
        }
        source.budget.check()?;
        let failure: Arc<Mutex<Option<QueryError>>> = Arc::default();
        let told = |error: &Error| {
            // What our own tables said is better than what SQLite made of it.
            let own = failure.lock().unwrap_or_else(PoisonError::into_inner).take();
            own.or_else(|| source.budget.check().err()).unwrap_or_else(|| self.explain(error))
        };
        let mut connection = self.connection(source, &failure).map_err(|error| told(&error))?;
        let budget = source.budget.clone();
        connection
            .progress_handler(STEPS_BETWEEN_CHECKS, Some(move || budget.is_over()))
            .map_err(|error| told(&error))?;
        let mut statement = connection.prepare(&self.sql).map_err(|error| told(&error))?;
        let bound = parameters.iter().map(sqlite).take(statement.parameter_count());
        let mut rows = statement.query(rusqlite::params_from_iter(bound)).map_err(|error| told(&error))?;
        let mut answer = Answer { columns: self.columns.clone(), rows: Vec::new() };
        let mut bytes = 0;
        while let Some(row) = rows.next().map_err(|error| told(&error))? {
            let values = if self.plan {
                // Of the four columns of a plan only the last is for people.
                vec![row.get_ref(3).map(value_of).unwrap_or(Value::Null)]
            } else {
                let value = |(place, column): (usize, &OutputColumn)| {
                    row.get_ref(place).map_or(Value::Null, |value| shaped(value_of(value), column.kind))
                };
                self.columns.iter().enumerate().map(value).collect()
            };
            bytes += values.iter().map(size).sum::<usize>();
            answer.rows.push(values);
            if answer.rows.len() > limits.rows_max {
                let message = format!("the answer has more than {} rows", limits.rows_max);
                return Err(QueryError::new(code::TOO_MUCH, message).with_hint("Add a LIMIT, or ask for less."));
            }
            if bytes > limits.bytes_max {
                let message = format!("the answer has more than {} bytes", limits.bytes_max);
                return Err(QueryError::new(code::TOO_MUCH, message).with_hint("Add a LIMIT, or ask for less."));
            }
        }
        Ok(answer)
    }

    fn connection(&self, source: &Arc<Source>, failure: &Arc<Mutex<Option<QueryError>>>) -> Result<Connection, Error> {
        let connection = Connection::open_in_memory()?;
        // A name in quotes that is no column must not turn into a text.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, DEPTH_MAX)?;
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        functions::register(&connection, source)?;
        rusqlite::vtab::series::load_module(&connection)?;
        for (name, table) in &self.tables {
            engine::register(&connection, name, *table, source, failure)?;
        }
        Ok(connection)
    }

    /// What SQLite says, as PostgreSQL would, with the place where the name stands.
    fn explain(&self, error: &Error) -> QueryError {
        let said = match error {
            Error::SqlInputError { msg, .. } => msg.clone(),
            Error::SqliteFailure(_, Some(text)) => text.clone(),
            Error::SqliteFailure(failure, None) if failure.code == ffi::ErrorCode::OperationInterrupted => {
                return QueryError::new(code::CANCELLED, "canceling statement due to user request");
            }
            other => other.to_string(),
        };
        if let Some((state, message)) = marked(&said) {
            return QueryError::new(state, message);
        }
        let rest = |prefix: &str| said.strip_prefix(prefix).map(|rest| rest.trim().to_owned());
        if let Some(column) = rest("no such column: ") {
            // SQLite takes a quoted name that it does not know for a string in the wrong quotes; we quote every name.
            let column = column.split(" - should this be").next().unwrap_or(&column).replace('"', "");
            let bare = column.rsplit('.').next().unwrap_or(&column).to_owned();
            let message = format!("column \"{column}\" does not exist");
            let close = self.tables.iter().flat_map(|(_, table)| table.columns());
            let close = close.map(|it| it.name).min_by_key(|name| strsim::damerau_levenshtein(&bare, name));
            let error = placed(QueryError::new(code::UNDEFINED_COLUMN, message), self.find(&bare));
            return match close.filter(|name| strsim::damerau_levenshtein(&bare, name) <= (bare.len() / 3).max(1)) {
                Some(close) => error.with_hint(format!("Perhaps you meant \"{close}\".")),
                None => error,
            };
        }
        if let Some(column) = rest("ambiguous column name: ") {
            let bare = column.rsplit('.').next().unwrap_or(&column).to_owned();
            let message = format!("column reference \"{column}\" is ambiguous");
            return placed(QueryError::new(code::AMBIGUOUS_COLUMN, message), self.find(&bare));
        }
        if let Some(function) = rest("no such function: ") {
            let message = format!("function {function}() does not exist");
            return placed(QueryError::new(code::UNDEFINED_FUNCTION, message), self.find(&function));
        }
        if let Some(function) = rest("wrong number of arguments to function ") {
            let bare = function.trim_end_matches("()").to_owned();
            let message = format!("function {function} does not take so many arguments");
            return placed(QueryError::new(code::UNDEFINED_FUNCTION, message), self.find(&bare));
        }
        if let Some(aggregate) = rest("misuse of aggregate") {
            let message =
                format!("an aggregate function is not allowed here: {}", aggregate.trim_start_matches([':', ' ']));
            return QueryError::new(code::GROUPING, message);
        }
        if said.contains("syntax error") || said.contains("unrecognized token") {
            return QueryError::new(code::NOT_SUPPORTED, format!("this form of query is not supported: {said}"));
        }
        let known = ["SELECTs to the left and right", "ORDER BY term", "GROUP BY term", "circular reference", "has "];
        if known.iter().any(|known| said.contains(known)) {
            return QueryError::new(code::SYNTAX, said);
        }
        if said.contains("string or blob too big") || said.contains("too many") || said.contains("too large") {
            return QueryError::new(code::TOO_MUCH, said);
        }
        if said.contains("window function") {
            return QueryError::new(code::WINDOWING, said);
        }
        if said.contains("Invalid filter parameter type") {
            let message = "a function in FROM was given a value of another type than it takes";
            return QueryError::new(code::UNDEFINED_FUNCTION, message);
        }
        if said.contains("integer overflow") {
            return QueryError::new(code::OUT_OF_RANGE, "bigint out of range");
        }
        if said.contains("JSON") {
            return QueryError::new(code::INVALID_TEXT, said);
        }
        QueryError::new(code::INTERNAL, said)
    }

    /// Where a name stands in the text, as a whole word.
    fn find(&self, name: &str) -> Option<usize> {
        let lower = self.text.to_lowercase();
        let name = name.to_lowercase();
        if name.is_empty() || lower.chars().count() != self.text.chars().count() {
            return None;
        }
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let whole = |(at, found): &(usize, &str)| {
            let before = lower[..*at].chars().next_back().is_none_or(|c| !word(c));
            before && lower[at + found.len()..].chars().next().is_none_or(|c| !word(c))
        };
        let at = lower.match_indices(name.as_str()).find(whole)?.0;
        Some(lower[..at].chars().count() + 1)
    }
}

/// The kinds of the parameters of a query, the first one first.
pub(crate) fn parameters_of(query: &Query, search_path: &[String]) -> Vec<Kind> {
    kinds::parameters(query, &kinds::flat_scope(query, search_path))
}

/// An error of one of our functions: its code, and its words.
fn marked(said: &str) -> Option<(crate::SqlState, String)> {
    let (_, rest) = said.split_once(CODE_MARK)?;
    let (state, message) = rest.split_once(CODE_MARK)?;
    // A code is one of a few that this crate wrote itself; it is looked up, so that it can live for ever.
    const STATES: &[&str] = &[
        "22P02", "22003", "22007", "22008", "22012", "22023", "2201B", "3F000", "42704", "42P01", "42883", "54000",
        "57014", "0A000",
    ];
    let state = STATES.iter().find(|known| **known == state).copied().unwrap_or("XX000");
    Some((crate::SqlState(state), message.to_owned()))
}

fn sqlite(value: &Value) -> Sqlite {
    match value {
        Value::Null => Sqlite::Null,
        Value::Bool(value) => Sqlite::Integer((*value).into()),
        Value::Int(value) => Sqlite::Integer(*value),
        Value::Float(value) => Sqlite::Real(*value),
        Value::Text(value) => Sqlite::Text(value.clone()),
    }
}

/// A value as its column's kind has it: SQLite hands out a bool as a number, and a sum as whatever it became.
fn shaped(value: Value, kind: Kind) -> Value {
    match (kind, value) {
        (_, Value::Null) => Value::Null,
        (Kind::Bool, Value::Int(value)) => Value::Bool(value != 0),
        (Kind::Bool, Value::Text(text)) => Value::Bool(matches!(text.as_str(), "t" | "true" | "1")),
        (Kind::Float8, Value::Int(value)) => value.to_string().parse().map_or(Value::Null, Value::Float),
        (Kind::Float8, Value::Text(text)) => text.parse().map_or(Value::Null, Value::Float),
        (Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid, Value::Float(value)) => {
            format!("{:.0}", value).parse().map_or(Value::Null, Value::Int)
        }
        (Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid, Value::Text(text)) => {
            text.parse().map_or(Value::Null, Value::Int)
        }
        (Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid | Kind::Float8, value) => value,
        (_, Value::Int(value)) => Value::Text(value.to_string()),
        (_, Value::Float(value)) => Value::Text(functions::float_text(value)),
        (_, value) => value,
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Text(text) => 24 + text.len(),
        _ => 24,
    }
}

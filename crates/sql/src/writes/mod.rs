//! `INSERT`, `UPDATE` and `DELETE` on the tables that can be written to.
//!
//! What to write is read first: the statement becomes a query over the fork that the session sees, so `WHERE` and the new
//! values may say whatever a `SELECT` may. The rows that it answers with become commands of the state machine, the same that
//! the statements become, so they are checked by the same rules. What was read is expected again when they are decided: if
//! somebody else has changed one of those rows meanwhile, all of it is refused with 40001.
//!
//! - [`reading`]: from a write to the query that reads for it.
//! - [`strategies`], [`memories`], [`actions`]: what a row of each table means.
//!
//! Not here: who may what, and the commit. Nothing is ever written through SQLite.

mod actions;
mod memories;
mod reading;
mod strategies;

pub(crate) use strategies::name_of as target_name;

use std::collections::BTreeSet;
use std::sync::Arc;

use loadline_state_machine::{Answer as Told, Done, State};
use sqlparser::ast::{Query, SelectItem, Statement as Tree};

use crate::error::{SqlError, SqlState};
use crate::tables::query::{self, Answer, Limits, OutputColumn};
use crate::tables::{Kind, Source, Table, Value};
use crate::to_command::Change;

/// A statement that writes to a table, understood.
#[derive(Debug, Clone)]
pub struct Write {
    table: &'static dyn Table,
    writable: Writable,
    verb: Verb,
    /// Answers with the keys of the rows that are meant, unless they are new, and then with what is assigned.
    query: Query,
    assigned: Vec<Assigned>,
    /// The cells of `VALUES` that say `DEFAULT`, by row and by place in `assigned`.
    defaults: BTreeSet<(usize, usize)>,
    /// Where each cell of `VALUES` stands.
    cells: Vec<Vec<Option<usize>>>,
    /// `ON CONFLICT DO NOTHING`.
    skip_existing: bool,
    returning: Option<Vec<SelectItem>>,
    /// What the table is called in the statement.
    alias: String,
    text: String,
    search_path: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Insert,
    Update,
    Delete,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writable {
    Strategies,
    Memories,
    Actions,
}

impl Writable {
    /// The columns by which a row is found again.
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Strategies => &["id"],
            Self::Memories => &["strategy_id", "cluster_id"],
            Self::Actions => &["action_id", "cluster_id"],
        }
    }
}

/// A column that gets a value, and where that stands if it is one place for all rows.
#[derive(Debug, Clone)]
struct Assigned {
    column: &'static str,
    place: Option<usize>,
}

/// What the statement says about one row.
#[derive(Debug)]
struct Row<'a> {
    /// Of a row that is there.
    key: &'a [Value],
    given: Vec<Given<'a>>,
}

#[derive(Debug, Clone, Copy)]
struct Given<'a> {
    column: &'static str,
    value: &'a Value,
    place: Option<usize>,
}

impl<'a> Row<'a> {
    fn get(&self, column: &str) -> Option<Given<'a>> {
        self.given.iter().find(|given| given.column == column).copied()
    }

    /// The place to show for what is wrong with this column.
    fn place(&self, column: &str) -> Option<usize> {
        self.get(column).and_then(|given| given.place).or_else(|| self.given.iter().find_map(|given| given.place))
    }

    fn key(&self, place: usize) -> String {
        self.key.get(place).and_then(text_of).unwrap_or_default()
    }

    /// A column that the log fills in.
    fn is_stamped(&self, column: &str) -> bool {
        self.get(column).is_some_and(|given| *given.value != Value::Null)
    }
}

impl Given<'_> {
    fn wrong(&self, state: SqlState, message: impl Into<String>) -> SqlError {
        at(SqlError::new(state, message), self.place)
    }

    fn null(&self) -> SqlError {
        self.wrong(SqlState::NOT_NULL_VIOLATION, format!("null value in column \"{}\"", self.column))
    }

    fn text(&self) -> Option<String> {
        text_of(self.value)
    }

    fn bool(&self) -> Result<bool, SqlError> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            Value::Int(value) => Ok(*value != 0),
            Value::Null => Err(self.null()),
            other => match text_of(other).unwrap_or_default().to_ascii_lowercase().as_str() {
                "t" | "true" | "on" | "yes" | "1" => Ok(true),
                "f" | "false" | "off" | "no" | "0" => Ok(false),
                text => {
                    Err(self.wrong(SqlState("22P02"), format!("invalid input syntax for type boolean: \"{text}\"")))
                }
            },
        }
    }

    fn json(&self) -> Result<serde_json::Map<String, serde_json::Value>, SqlError> {
        let text = self.text().ok_or_else(|| self.null())?;
        match serde_json::from_str(&text) {
            Ok(serde_json::Value::Object(fields)) => Ok(fields),
            Ok(_) => {
                let message = format!("column \"{}\" must hold a JSON object, not {text}", self.column);
                Err(self.wrong(SqlState::INVALID_PARAMETER_VALUE, message))
            }
            Err(error) => {
                let message = format!("invalid input syntax for type json: {error}");
                Err(self.wrong(SqlState("22P02"), message))
            }
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Bool(value) => Some(value.to_string()),
        Value::Int(value) => Some(value.to_string()),
        Value::Float(value) => Some(value.to_string()),
        Value::Text(text) => Some(text.clone()),
    }
}

fn at(error: SqlError, place: Option<usize>) -> SqlError {
    SqlError { position: error.position.or(place), ..error }
}

/// What a statement asks to be written, and to be told about it.
#[derive(Debug, Clone)]
pub struct Written {
    pub change: Change,
    /// How many rows it is about, as a client is told.
    pub rows: usize,
    /// The rows that are gone, if they are to be told.
    pub returned: Option<Answer>,
    keys: Vec<Vec<Value>>,
}

impl Write {
    /// Reads it. `text` is the whole text in which it stood.
    pub fn prepare(tree: &Tree, text: &str, search_path: &[String]) -> Result<Self, SqlError> {
        let write = reading::read(tree, text, search_path)?;
        // So that what is wrong with the query is said when it is prepared, as for one that only asks.
        query::prepare_query(&write.query, text, search_path)?;
        Ok(write)
    }

    /// What its parameters hold, the first one first.
    pub fn parameters(&self) -> Vec<Kind> {
        query::parameters_of(&self.query, &self.search_path)
    }

    /// The columns that it answers with; none unless it says RETURNING.
    pub fn columns(&self) -> Result<Vec<OutputColumn>, SqlError> {
        match self.returning_query(&[]) {
            None => Ok(Vec::new()),
            Some(query) => Ok(query::prepare_query(&query, &self.text, &self.search_path)?.columns),
        }
    }

    pub fn is_returning(&self) -> bool {
        self.returning.is_some()
    }

    /// Whether what it returns is only known once it is in the log: an id is given there.
    pub fn returns_new_ids(&self) -> bool {
        self.returning.is_some() && (self.verb, self.writable) == (Verb::Insert, Writable::Strategies)
    }

    /// What it asks for, given what the source shows. It blocks: call it where nobody waits.
    pub fn run(&self, source: &Arc<Source>, parameters: &[Value], limits: Limits) -> Result<Written, SqlError> {
        let prepared = query::prepare_query(&self.query, &self.text, &self.search_path)?;
        let answer = prepared.run(source, parameters, limits).map_err(|error| self.placed(error))?;
        let keys = if self.verb == Verb::Insert { 0 } else { self.writable.keys().len() };
        let mut seen = BTreeSet::new();
        let mut rows = Vec::new();
        for (number, values) in answer.rows.iter().enumerate() {
            let (key, given) = values.split_at(keys.min(values.len()));
            // A join may have found it more than once.
            if keys > 0 && !seen.insert(key.iter().map(text_of).collect::<Vec<_>>()) {
                continue;
            }
            let given = self.assigned.iter().zip(given).enumerate();
            let given = given.filter(|(place, _)| !self.defaults.contains(&(number, *place)));
            let given = given.map(|(place, (assigned, value))| Given {
                column: assigned.column,
                value,
                place: self.cells.get(number).and_then(|row| row.get(place).copied().flatten()).or(assigned.place),
            });
            rows.push(Row { key, given: given.collect() });
        }
        let mut change = Change::default();
        let state = &source.state;
        let mut written = 0;
        match (self.writable, self.verb) {
            (Writable::Actions, _) => {
                actions::delete(&rows, &mut change);
                written = rows.len();
            }
            _ => {
                for row in &rows {
                    written += usize::from(self.one(state, row, &mut change)?);
                }
            }
        }
        let keys = match self.verb {
            Verb::Insert if self.writable == Writable::Memories => {
                let key =
                    |row: &Row<'_>| ["strategy_id", "cluster_id"].map(|it| row.get(it).map(|it| it.value.clone()));
                rows.iter().map(|row| key(row).into_iter().flatten().collect()).collect()
            }
            Verb::Insert => Vec::new(),
            Verb::Update | Verb::Delete => rows.iter().map(|row| row.key.to_vec()).collect(),
        };
        let mut written = Written { change, rows: written, returned: None, keys };
        if self.verb == Verb::Delete && self.returning.is_some() {
            written.returned = self.answer(&written, source, limits)?;
        }
        Ok(written)
    }

    fn one(&self, state: &State, row: &Row<'_>, change: &mut Change) -> Result<bool, SqlError> {
        match (self.writable, self.verb) {
            (Writable::Strategies, Verb::Insert) => strategies::insert(state, row, self.skip_existing, change),
            (Writable::Strategies, Verb::Update) => strategies::update(state, row, change),
            (Writable::Strategies, Verb::Delete) => strategies::delete(state, row, change),
            (Writable::Memories, Verb::Insert) => memories::insert(state, row, self.skip_existing, change),
            (Writable::Memories, Verb::Update) => memories::update(state, row, change),
            (Writable::Memories, Verb::Delete) => memories::delete(state, row, change),
            (Writable::Actions, _) => Ok(false),
        }
    }

    /// Says where, for a mistake that only shows when a value is computed.
    fn placed(&self, error: SqlError) -> SqlError {
        match self.assigned.as_slice() {
            [only] => at(error, only.place),
            _ => error,
        }
    }

    /// The rows that it is to tell, as they are in this source: after it was done, or before for those that it deletes.
    pub fn answer(&self, written: &Written, source: &Arc<Source>, limits: Limits) -> Result<Option<Answer>, SqlError> {
        let Some(query) = self.returning_query(&written.keys) else { return Ok(None) };
        Ok(Some(query::prepare_query(&query, &self.text, &self.search_path)?.run(source, &[], limits)?))
    }

    fn returning_query(&self, keys: &[Vec<Value>]) -> Option<Query> {
        let items = self.returning.as_ref()?;
        Some(reading::returning(self.table, &self.alias, self.writable.keys(), items, keys))
    }
}

impl Written {
    /// Takes up the ids that the log has given to what was made.
    pub fn told(&mut self, done: &[Done]) {
        if !self.keys.is_empty() {
            return;
        }
        self.keys = done
            .iter()
            .filter_map(|done| match &done.answer {
                Told::Strategy(strategy) => Some(vec![Value::Text(strategy.id.to_string())]),
                _ => None,
            })
            .collect();
    }
}

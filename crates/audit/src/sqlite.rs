//! A history as a plain SQLite file: every table that SQL shows, as it was at one moment, and everything that was over by then.
//!
//! The file is for somebody who has nothing but `sqlite3`: real tables with types, times that SQLite's own functions read, a
//! table `meta` that says of which moment it is, and a table `refusals` of what was asked for in vain. What is over is written
//! while the history is replayed, a few thousand rows at a time, so that memory does not grow with the past.
//!
//! Left out: what PostgreSQL's clients ask about the server itself; `nodes`, which is what a running node sees and no part of the
//! history; and `explanations`, which are made when somebody asks: `loadline explain` does, also of a file.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use loadline_sql::SqlError;
use loadline_sql::tables::value::{items_of, timestamp_of};
use loadline_sql::tables::{Budget, Kind, NoPast, Past, SessionFacts, Source as Tables, Table, Value, own_tables};
use loadline_state_machine::{JournalEntry, State};
use rusqlite::types::ToSql;
use rusqlite::{Connection, Transaction};

use crate::part::{Part, proof_words};
use crate::replay::{Moment, ReplayError, Replayed, Start, Step, begin, replay_while};
use crate::source::Source;
use crate::words::asked_words;

/// See the module.
const LEFT_OUT: [&str; 2] = ["nodes", "explanations"];

/// Rows of the past that are held before they are written.
const ROWS_AT_ONCE: usize = 8_192;

/// Why there is no file.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    #[error(transparent)]
    Replay(#[from] ReplayError),
    #[error("the SQLite file cannot be written")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the table {table} cannot be read: {}", .source.message)]
    Table { table: &'static str, source: SqlError },
}

/// What stands in `meta` beside what the history itself says.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// Of which group, as far as that is known.
    pub group: String,
    /// Which program wrote the file.
    pub build: String,
    /// What was read.
    pub history: String,
}

/// Replays a history to a moment, and writes the state there and everything before it into a new file. `tell` hears of every
/// entry.
pub fn write(
    source: &dyn Source,
    start: Start,
    to: Moment,
    path: &Path,
    about: &About,
    tell: impl FnMut(&Step<'_>),
) -> Result<Replayed, SqliteError> {
    write_in_parts(source, start, to, path, about, ROWS_AT_ONCE, tell)
}

/// The same with at most about so many rows of the past in memory. The file is the same, however many those are.
pub fn write_in_parts(
    source: &dyn Source,
    start: Start,
    to: Moment,
    path: &Path,
    about: &About,
    rows_at_once: usize,
    mut tell: impl FnMut(&Step<'_>),
) -> Result<Replayed, SqliteError> {
    let began = begin(source, start)?;
    let mut connection = Connection::open(path)?;
    // Whoever is interrupted begins anew: the file is of no use before it is whole.
    connection.pragma_update(None, "journal_mode", "OFF")?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    let transaction = connection.transaction()?;
    let file = File { transaction: &transaction };
    file.create()?;
    // The decisions that still counted when the history begins are told by nobody else.
    file.fill(&began, Rows::OfTheState, is_about_decisions)?;
    let first = began.applied().0 + 1;
    let mut part = Part::default();
    let mut failed = None;
    let replayed = replay_while(source, Start::From(Box::new(began)), to, |step| {
        tell(step);
        part.add(step);
        failed = file.add_refusals(step).map_err(SqliteError::from).err();
        if failed.is_none() && part.rows() >= rows_at_once {
            failed = file.fill(step.state, Rows::OfThePast(std::mem::take(&mut part)), is_of_the_past).err();
        }
        if failed.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    failed.map_or(Ok(()), Err)?;
    file.fill(&replayed.state, Rows::OfThePast(part), is_of_the_past)?;
    file.fill(&replayed.state, Rows::OfTheState, |table| !is_about_decisions(table))?;
    file.say(&replayed, first, about)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(replayed)
}

/// Tables with rows of what is over.
fn is_of_the_past(table: &dyn Table) -> bool {
    const TABLES: [&str; 7] =
        ["decisions", "decision_stages", "operations", "actions", "attempts", "mz_scaling_actions", "events"];
    TABLES.contains(&table.name())
}

fn is_about_decisions(table: &dyn Table) -> bool {
    ["decisions", "decision_stages"].contains(&table.name())
}

/// The column that a table of what is over takes from the state, and that has to be as it was then: the name of the cluster. The first column
/// of these tables is the id that a part knows it by.
fn cluster_then(table: &dyn Table) -> Option<usize> {
    let takes = is_about_decisions(table) || table.name() == "operations";
    table.columns().iter().position(|column| column.name == "cluster").filter(|_| takes)
}

/// What is written at once.
enum Rows {
    OfTheState,
    OfThePast(Part),
}

struct File<'a> {
    transaction: &'a Transaction<'a>,
}

impl File<'_> {
    fn create(&self) -> Result<(), SqliteError> {
        let meta = "CREATE TABLE meta (log_index INTEGER NOT NULL, time TIMESTAMP NOT NULL, state_hash TEXT NOT NULL, \
                    group_name TEXT NOT NULL, incarnation INTEGER NOT NULL, rules_version INTEGER NOT NULL, \
                    first_index INTEGER NOT NULL, entries INTEGER NOT NULL, history TEXT NOT NULL, build TEXT NOT NULL)";
        self.transaction.execute(meta, [])?;
        self.transaction.execute("CREATE TABLE tables (name TEXT PRIMARY KEY, what TEXT NOT NULL)", [])?;
        let refusals = "CREATE TABLE refusals (log_index INTEGER NOT NULL, place INTEGER NOT NULL, at TIMESTAMP NOT NULL, \
                        actor TEXT NOT NULL, source TEXT NOT NULL, proof TEXT NOT NULL, request_id TEXT, \
                        asked TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (log_index, place))";
        self.transaction.execute(refusals, [])?;
        let what =
            "Requests that were recorded and refused: who asked for what, and why not. Nothing of them was done.";
        self.transaction.execute("INSERT INTO tables VALUES ('refusals', ?1)", [what])?;
        for table in tables() {
            let mut parts: Vec<String> = Vec::new();
            for column in table.columns() {
                let null = if column.nullable { "" } else { " NOT NULL" };
                parts.push(format!("\"{}\" {}{null}", column.name, declared(column.kind)));
            }
            let columns = table.columns();
            let key: Vec<String> = table.key().iter().map(|place| format!("\"{}\"", columns[*place].name)).collect();
            if !key.is_empty() {
                parts.push(format!("PRIMARY KEY ({})", key.join(", ")));
            }
            self.transaction.execute(&format!("CREATE TABLE \"{}\" ({})", table.name(), parts.join(", ")), [])?;
            let what = [&table.name() as &dyn ToSql, &table.comment()];
            self.transaction.execute("INSERT INTO tables VALUES (?1, ?2)", &what[..])?;
        }
        Ok(())
    }

    /// Adds the rows that there are of some of the tables. A row under a key that is there already is told anew.
    fn fill(&self, state: &State, rows: Rows, wanted: impl Fn(&dyn Table) -> bool) -> Result<(), SqliteError> {
        let part = match rows {
            Rows::OfTheState => None,
            Rows::OfThePast(part) => Some(Arc::new(part)),
        };
        let source = Arc::new(Tables {
            state: Arc::new(state.clone()),
            past: part.clone().map_or_else(|| Arc::new(NoPast) as Arc<dyn Past>, |part| part as Arc<dyn Past>),
            nodes: Vec::new(),
            session: SessionFacts::default(),
            budget: Budget::default(),
        });
        for table in tables().filter(|table| wanted(*table)) {
            let rows = table.open(&source).map_err(|source| SqliteError::Table { table: table.name(), source })?;
            let columns = table.columns();
            let places = vec!["?"; columns.len()].join(", ");
            let sql = format!("INSERT OR REPLACE INTO \"{}\" VALUES ({places})", table.name());
            let mut statement = self.transaction.prepare(&sql)?;
            let cluster = cluster_then(table);
            for row in 0..rows.count() {
                let named = cluster.and_then(|column| match rows.value(row, 0) {
                    Value::Text(id) => Some((column, part.as_ref()?.cluster_of(&id)?.to_owned())),
                    _ => None,
                });
                let value = |column: usize| match &named {
                    Some((place, name)) if *place == column => Value::Text(name.clone()),
                    _ => rows.value(row, column),
                };
                let values = (0..columns.len()).map(|column| cell(columns[column].kind, value(column)));
                statement.execute(rusqlite::params_from_iter(values))?;
            }
        }
        Ok(())
    }

    /// Adds what one entry asked for in vain. SQL has no such table: a node keeps no refusals but in its journal.
    fn add_refusals(&self, step: &Step<'_>) -> Result<(), rusqlite::Error> {
        let JournalEntry::Requests(sealed) = step.entry else { return Ok(()) };
        for (place, (request, receipt)) in (0_u32..).zip(sealed.entry().requests.iter().zip(&step.applied.receipts)) {
            // A repeat gets the answer of the first time, which stands there.
            let (Err(refused), false) = (&receipt.result, receipt.repeated) else { continue };
            let asked = usize::try_from(refused.ordinal).ok().and_then(|ordinal| request.commands.get(ordinal));
            let sql = "INSERT INTO refusals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
            self.transaction.execute(
                sql,
                rusqlite::params![
                    number(step.applied.index.0),
                    place,
                    iso(number(step.applied.time.as_millis()).saturating_mul(1_000)),
                    request.actor.name,
                    request.actor.source,
                    proof_words(&request.actor.proof),
                    request.request_id.map(|id| id.to_string()),
                    asked.map(asked_words).unwrap_or_default(),
                    refused.rejection.to_string(),
                ],
            )?;
        }
        Ok(())
    }

    fn say(&self, replayed: &Replayed, first: u64, about: &About) -> Result<(), SqliteError> {
        let state = &replayed.state;
        self.transaction.execute(
            "INSERT INTO meta VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            rusqlite::params![
                number(state.applied().0),
                iso(number(state.now().as_millis()).saturating_mul(1_000)),
                state.hash().to_string(),
                about.group,
                number(state.incarnation()),
                state.rules().0,
                number(first),
                number(replayed.entries),
                about.history,
                about.build,
            ],
        )?;
        Ok(())
    }
}

fn tables() -> impl Iterator<Item = &'static dyn Table> {
    own_tables().filter(|table| !LEFT_OUT.contains(&table.name()))
}

/// What a column is declared as. SQLite goes by the affinity that follows from it, people by the word.
fn declared(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "BOOLEAN",
        Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid => "INTEGER",
        Kind::Float8 => "REAL",
        // A text that is no number stays a text under it.
        Kind::Timestamptz => "TIMESTAMP",
        _ => "TEXT",
    }
}

/// A value as SQLite's own functions read it: times in ISO 8601, arrays as JSON.
fn cell(kind: Kind, value: Value) -> rusqlite::types::Value {
    use rusqlite::types::Value as Cell;
    match (kind, value) {
        (_, Value::Null) => Cell::Null,
        (_, Value::Bool(value)) => Cell::Integer(value.into()),
        (_, Value::Int(value)) => Cell::Integer(value),
        (_, Value::Float(value)) => Cell::Real(value),
        (Kind::Timestamptz, Value::Text(text)) => Cell::Text(timestamp_of(&text).map_or(text, iso)),
        (Kind::TextArray | Kind::OidArray | Kind::Int2Array, Value::Text(text)) => {
            Cell::Text(serde_json::Value::from(items_of(&text)).to_string())
        }
        (_, Value::Text(text)) => Cell::Text(text),
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// With milliseconds, always: so that the texts sort as the times do.
fn iso(micros: i64) -> String {
    match jiff::Timestamp::from_microsecond(micros) {
        Ok(at) => at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string(),
        Err(_) => "9999-12-31T23:59:59.999Z".to_owned(),
    }
}

//! What a table is: a name, columns with their kinds, and rows read from a [`Source`].
//!
//! A row is a handle (an id, a shared record); a column computes its value from it when SQLite asks. A query that looks at two
//! columns of a hundred thousand clusters does not pay for the others.

use std::fmt;
use std::sync::Arc;

use super::error::QueryError;
use super::source::Source;
use super::value::{Kind, Value};

/// A table as the engine and the catalogue see it.
pub trait Table: Sync {
    fn schema(&self) -> &'static str;
    fn name(&self) -> &'static str;
    fn comment(&self) -> &'static str;
    fn is_view(&self) -> bool;
    /// Of the primary key, by place; empty if there is none.
    fn key(&self) -> &'static [usize];
    fn columns(&self) -> Vec<ColumnInfo>;
    fn open(&self, source: &Arc<Source>) -> Result<Box<dyn Rows>, QueryError>;

    /// The rows in which a column holds this text, for a table that cannot show all of its rows but find any of them. Nothing: open
    /// it, and look.
    fn lookup(&self, _source: &Arc<Source>, _column: usize, _text: &str) -> Option<Result<Box<dyn Rows>, QueryError>> {
        None
    }
}

impl fmt::Debug for dyn Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema(), self.name())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    pub name: &'static str,
    pub kind: Kind,
    pub nullable: bool,
}

/// The rows of one table in one query.
pub trait Rows: Send + Sync {
    fn count(&self) -> usize;
    fn value(&self, row: usize, column: usize) -> Value;
}

/// One column of a table whose rows are `R`.
pub(crate) struct Column<R> {
    name: &'static str,
    kind: Kind,
    nullable: bool,
    read: fn(&Source, &R) -> Value,
}

pub(crate) const fn column<R>(name: &'static str, kind: Kind, read: fn(&Source, &R) -> Value) -> Column<R> {
    Column { name, kind, nullable: false, read }
}

/// One that may be null.
pub(crate) const fn optional<R>(name: &'static str, kind: Kind, read: fn(&Source, &R) -> Value) -> Column<R> {
    Column { name, kind, nullable: true, read }
}

pub(crate) struct Definition<R: 'static> {
    pub(crate) schema: &'static str,
    pub(crate) name: &'static str,
    pub(crate) comment: &'static str,
    pub(crate) is_view: bool,
    pub(crate) key: &'static [usize],
    pub(crate) columns: &'static [Column<R>],
    pub(crate) rows: fn(&Source) -> Result<Vec<R>, QueryError>,
}

impl<R: Send + Sync + 'static> Table for Definition<R> {
    fn schema(&self) -> &'static str {
        self.schema
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn comment(&self) -> &'static str {
        self.comment
    }

    fn is_view(&self) -> bool {
        self.is_view
    }

    fn key(&self) -> &'static [usize] {
        self.key
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        let info = |it: &Column<R>| ColumnInfo { name: it.name, kind: it.kind, nullable: it.nullable };
        self.columns.iter().map(info).collect()
    }

    fn open(&self, source: &Arc<Source>) -> Result<Box<dyn Rows>, QueryError> {
        let rows = (self.rows)(source)?;
        Ok(self.show(source, rows))
    }
}

impl<R: Send + Sync + 'static> Definition<R> {
    /// These rows, and no others.
    pub(crate) fn show(&self, source: &Arc<Source>, rows: Vec<R>) -> Box<dyn Rows> {
        Box::new(Opened { source: Arc::clone(source), rows, columns: self.columns })
    }
}

struct Opened<R: 'static> {
    source: Arc<Source>,
    rows: Vec<R>,
    columns: &'static [Column<R>],
}

impl<R: Send + Sync> Rows for Opened<R> {
    fn count(&self) -> usize {
        self.rows.len()
    }

    fn value(&self, row: usize, column: usize) -> Value {
        match (self.rows.get(row), self.columns.get(column)) {
            (Some(row), Some(column)) => (column.read)(&self.source, row),
            _ => Value::Null,
        }
    }
}

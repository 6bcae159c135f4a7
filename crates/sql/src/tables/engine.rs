//! SQLite over our tables: each table that a query names becomes a virtual table that reads the fork in place.
//!
//! Nothing is copied into SQLite first. A table hands out values one at a time, and where a query asks for equality (a join, a
//! filter by id), an index is built once per query over the column in question, so that joining ten thousand actions with a
//! hundred thousand clusters looks at each once.
//!
//! Not here: which SQL reaches SQLite (`dialect`) and what functions it finds there (`functions`).

// The interface of virtual tables is one of pointers: SQLite calls back into structures whose first field it owns. The traits
// of rusqlite are `unsafe` to implement for exactly that reason: the structures below are `repr(C)` and begin with it.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::types::ValueRef;
use rusqlite::vtab::{
    Context, Filters, IndexConstraintOp, IndexInfo, Module, VTab, VTabConfig, VTabConnection, VTabCursor,
};
use rusqlite::{Connection, Error, Result, ffi};

use super::define::{ColumnInfo, Rows, Table};
use super::error::QueryError;
use super::source::Source;
use super::value::Value;

/// Looking at every row. Nobody has counted them yet when a plan is made.
const SCAN_COST: f64 = 1_000_000.0;
/// Looking up those with one value.
const LOOKUP_COST: f64 = 20.0;

/// Makes a table known to a connection under a name.
pub(crate) fn register(
    connection: &Connection,
    name: &str,
    table: &'static dyn Table,
    source: &Arc<Source>,
    failure: &Arc<Mutex<Option<QueryError>>>,
) -> Result<()> {
    const MODULE: &Module<'static, VirtualTable> = &Module::eponymous_only_module();
    let opened = Opened {
        table,
        columns: table.columns(),
        source: Arc::clone(source),
        rows: OnceLock::new(),
        indexes: Mutex::default(),
        failure: Arc::clone(failure),
    };
    connection.create_module(name, MODULE, Some(Arc::new(opened)))
}

/// One table in one query.
struct Opened {
    table: &'static dyn Table,
    columns: Vec<ColumnInfo>,
    source: Arc<Source>,
    rows: OnceLock<Box<dyn Rows>>,
    /// By column.
    indexes: Mutex<HashMap<usize, Arc<Index>>>,
    /// What went wrong below, in our own words: SQLite passes on only a text.
    failure: Arc<Mutex<Option<QueryError>>>,
}

type Index = HashMap<Key, Vec<u32>>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Int(i64),
    Text(String),
}

impl Key {
    fn of(value: Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Int(value.into())),
            Value::Int(value) => Some(Self::Int(value)),
            Value::Text(value) => Some(Self::Text(value)),
            Value::Null | Value::Float(_) => None,
        }
    }
}

impl Opened {
    fn rows(&self) -> Result<&dyn Rows> {
        if let Some(rows) = self.rows.get() {
            return Ok(rows.as_ref());
        }
        let opened = self.table.open(&self.source).map_err(|error| self.failed(error))?;
        Ok(self.rows.get_or_init(|| opened).as_ref())
    }

    fn lookup(&self, column: usize, text: &str) -> Result<Option<Box<dyn Rows>>> {
        self.table.lookup(&self.source, column, text).transpose().map_err(|error| self.failed(error))
    }

    fn failed(&self, error: QueryError) -> Error {
        let text = error.message.clone();
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        Error::ModuleError(text)
    }

    fn index(&self, column: usize) -> Result<Arc<Index>> {
        let mut indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = indexes.get(&column) {
            return Ok(Arc::clone(index));
        }
        let rows = self.rows()?;
        let mut index = Index::new();
        for row in 0..rows.count() {
            if row % 4_096 == 0 && self.source.budget.is_over() {
                return Err(Error::ModuleError("interrupted".to_owned()));
            }
            if let (Some(key), Ok(row_number)) = (Key::of(rows.value(row, column)), u32::try_from(row)) {
                index.entry(key).or_default().push(row_number);
            }
        }
        let index = Arc::new(index);
        indexes.insert(column, Arc::clone(&index));
        Ok(index)
    }

    fn declaration(&self) -> String {
        let columns = self.columns.iter().map(|column| format!("\"{}\" {}", column.name, column.kind.declaration()));
        format!("CREATE TABLE x({})", columns.collect::<Vec<_>>().join(", "))
    }
}

#[repr(C)]
struct VirtualTable {
    /// SQLite's own; must be first.
    base: ffi::sqlite3_vtab,
    opened: Arc<Opened>,
}

// SAFETY: `repr(C)`, and `sqlite3_vtab` is the first field.
unsafe impl<'vtab> VTab<'vtab> for VirtualTable {
    type Aux = Arc<Opened>;
    type Cursor = Cursor<'vtab>;

    fn connect(
        db: &mut VTabConnection,
        aux: Option<&Self::Aux>,
        _module_name: &[u8],
        _database_name: &[u8],
        _table_name: &[u8],
        _args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let opened = aux.cloned().ok_or_else(|| Error::ModuleError("a table without rows".to_owned()))?;
        db.config(VTabConfig::Innocuous)?;
        let declaration = CString::new(opened.declaration()).map_err(|error| Error::ModuleError(error.to_string()))?;
        Ok((Cow::Owned(declaration), Self { base: ffi::sqlite3_vtab::default(), opened }))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let is_key = |column: usize| {
            let name = self.opened.columns.get(column).map_or("", |column| column.name);
            name.ends_with("id") || name.ends_with("name") || name == "subject"
        };
        let mut best: Option<(usize, usize)> = None;
        for (place, constraint) in info.constraints().enumerate() {
            let equal = constraint.operator() == IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ;
            let Ok(column) = usize::try_from(constraint.column()) else { continue };
            if equal && constraint.is_usable() && best.is_none_or(|(_, known)| is_key(column) && !is_key(known)) {
                best = Some((place, column));
            }
        }
        match best {
            Some((place, column)) => {
                // SQLite compares once more: it knows its own rules of equality best.
                info.constraint_usage(place).set_argv_index(1);
                info.set_idx_num(c_int::try_from(column + 1).unwrap_or(0));
                info.set_estimated_cost(if is_key(column) { LOOKUP_COST } else { LOOKUP_COST * 50.0 });
                info.set_estimated_rows(if is_key(column) { 10 } else { 1_000 });
            }
            None => {
                info.set_idx_num(0);
                info.set_estimated_cost(SCAN_COST);
                info.set_estimated_rows(100_000);
            }
        }
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        Ok(Cursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            opened: Arc::clone(&self.opened),
            at: 0,
            found: Found::All { len: 0 },
            table: PhantomData,
        })
    }
}

/// Which rows a cursor goes through.
enum Found {
    All {
        len: usize,
    },
    Some {
        index: Arc<Index>,
        key: Key,
    },
    /// Those that the table found by itself.
    Own {
        rows: Box<dyn Rows>,
    },
    None,
}

#[repr(C)]
struct Cursor<'vtab> {
    /// SQLite's own; must be first.
    base: ffi::sqlite3_vtab_cursor,
    opened: Arc<Opened>,
    at: usize,
    found: Found,
    table: PhantomData<&'vtab VirtualTable>,
}

impl Cursor<'_> {
    /// The number of the row, if the cursor stands on one.
    fn row(&self) -> Option<usize> {
        match &self.found {
            Found::All { len } => (self.at < *len).then_some(self.at),
            Found::Some { index, key } => {
                index.get(key).and_then(|rows| rows.get(self.at)).and_then(|row| usize::try_from(*row).ok())
            }
            Found::Own { rows } => (self.at < rows.count()).then_some(self.at),
            Found::None => None,
        }
    }
}

// SAFETY: `repr(C)`, and `sqlite3_vtab_cursor` is the first field.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, idx_num: c_int, _idx_str: Option<&str>, args: &Filters<'_>) -> Result<()> {
        self.at = 0;
        let column = usize::try_from(idx_num).ok().and_then(|number| number.checked_sub(1));
        if let (Some(column), Some(ValueRef::Text(bytes))) = (column, args.iter().next())
            && let Ok(text) = std::str::from_utf8(bytes)
            && let Some(rows) = self.opened.lookup(column, text)?
        {
            self.found = Found::Own { rows };
            return Ok(());
        }
        let len = self.opened.rows()?.count();
        self.found = Found::All { len };
        let (Some(column), Some(wanted)) = (column, args.iter().next()) else { return Ok(()) };
        let text = self.opened.columns.get(column).is_some_and(|it| it.kind.declaration().ends_with("text"));
        self.found = match (wanted, text) {
            (ValueRef::Null, _) => Found::None,
            (ValueRef::Text(bytes), true) => match std::str::from_utf8(bytes) {
                Ok(key) => Found::Some { index: self.opened.index(column)?, key: Key::Text(key.to_owned()) },
                Err(_) => Found::None,
            },
            (ValueRef::Integer(key), false) => Found::Some { index: self.opened.index(column)?, key: Key::Int(key) },
            // Of another kind than the column: SQLite may still call some of them equal.
            _ => Found::All { len },
        };
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.row().is_none()
    }

    fn column(&self, ctx: &mut Context, column: c_int) -> Result<()> {
        let (Some(row), Ok(column)) = (self.row(), usize::try_from(column)) else {
            return ctx.set_result(Option::<i64>::None);
        };
        let value = match &self.found {
            Found::Own { rows } => rows.value(row, column),
            _ => self.opened.rows()?.value(row, column),
        };
        match value {
            Value::Null => ctx.set_result(Option::<i64>::None),
            Value::Bool(value) => ctx.set_result(value),
            Value::Int(value) => ctx.set_result(value),
            Value::Float(value) => ctx.set_result(value),
            Value::Text(value) => ctx.set_result(value),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row().and_then(|row| i64::try_from(row).ok()).unwrap_or(-1))
    }
}

/// A value as SQLite hands it out.
pub(crate) fn value_of(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(value) => Value::Int(value),
        ValueRef::Real(value) => Value::Float(value),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
    }
}

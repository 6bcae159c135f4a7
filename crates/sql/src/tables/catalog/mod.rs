//! `pg_catalog` and `information_schema`: what psql, drivers and tools ask before they show anything.
//!
//! - `relations`: our tables, described; - `types`: the kinds there are; - `server`: databases, roles, settings;
//! - `empty`: what PostgreSQL has and we do not, so that whoever looks finds nothing rather than an error;
//! - `information`: the same as the standard has it.

pub(crate) mod empty;
pub(crate) mod information;
pub(crate) mod relations;
pub(crate) mod server;
pub(crate) mod types;

use std::sync::Arc;

use super::TABLES;
use super::define::{ColumnInfo, Rows, Table};
use super::error::QueryError;
use super::source::Source;
use super::value::{Kind, Value};

/// A table whose rows are made all at once: there are few.
pub(crate) struct Listed {
    pub(crate) schema: &'static str,
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
    pub(crate) rows: fn(&Source) -> Vec<Vec<Value>>,
}

impl Table for Listed {
    fn schema(&self) -> &'static str {
        self.schema
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn comment(&self) -> &'static str {
        ""
    }

    fn is_view(&self) -> bool {
        self.schema == "information_schema"
    }

    fn key(&self) -> &'static [usize] {
        &[]
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.columns.iter().map(|(name, kind)| ColumnInfo { name, kind: *kind, nullable: true }).collect()
    }

    fn open(&self, source: &Arc<Source>) -> Result<Box<dyn Rows>, QueryError> {
        let rows = (self.rows)(source);
        debug_assert!(rows.iter().all(|row| row.len() == self.columns.len()), "{} has ragged rows", self.name);
        Ok(Box::new(Made(rows)))
    }
}

struct Made(Vec<Vec<Value>>);

impl Rows for Made {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn value(&self, row: usize, column: usize) -> Value {
        self.0.get(row).and_then(|row| row.get(column)).cloned().unwrap_or(Value::Null)
    }
}

/// Who owns everything.
pub(crate) const OWNER_OID: i64 = 10;
pub(crate) const DATABASE_OID: i64 = 5;
/// Of the roles, by name: an oid is good for one query.
pub(crate) const ROLES_OID: i64 = 60_000;
const TABLES_OID: i64 = 20_000;
const KEYS_OID: i64 = 30_000;

/// The schemas there are, with their numbers.
pub(crate) const SCHEMAS: &[(&str, i64)] = &[
    ("pg_catalog", 11),
    ("information_schema", 13_000),
    ("loadline", 16_384),
    ("mz_internal", 16_385),
    ("mz_catalog", 16_386),
];

pub(crate) fn schema_oid(name: &str) -> Option<i64> {
    SCHEMAS.iter().find(|(known, _)| *known == name).map(|(_, oid)| *oid)
}

/// Every table with its number.
pub(crate) fn numbered_tables() -> impl Iterator<Item = (i64, &'static dyn Table)> {
    (TABLES_OID..).zip(TABLES.iter().copied())
}

pub(crate) fn table_oid(table: &dyn Table) -> Option<i64> {
    let same = |other: &dyn Table| other.schema() == table.schema() && other.name() == table.name();
    numbered_tables().find(|(_, other)| same(*other)).map(|(oid, _)| oid)
}

pub(crate) fn table_by_oid(oid: i64) -> Option<&'static dyn Table> {
    usize::try_from(oid - TABLES_OID).ok().and_then(|place| TABLES.get(place)).copied()
}

/// The number of the index, and of the constraint, of a table's primary key.
pub(crate) fn key_oid(table: i64) -> i64 {
    table - TABLES_OID + KEYS_OID
}

pub(crate) fn table_by_key_oid(oid: i64) -> Option<&'static dyn Table> {
    if (KEYS_OID..KEYS_OID + TABLES_OID).contains(&oid) { table_by_oid(oid - KEYS_OID + TABLES_OID) } else { None }
}

pub(crate) fn key_name(table: &dyn Table) -> String {
    format!("{}_pkey", table.name())
}

/// The columns of a table's primary key.
pub(crate) fn key_columns(table: &dyn Table) -> Vec<&'static str> {
    let columns = table.columns();
    table.key().iter().filter_map(|place| columns.get(*place)).map(|column| column.name).collect()
}

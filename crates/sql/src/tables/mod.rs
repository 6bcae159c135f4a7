//! What can be asked in SQL: tables over one fork of the state and over the journal.
//!
//! - one file per table or family of them (`clusters`, `actions`, ...), as data: columns, kinds, how a value is read;
//! - [`catalog`]: the tables in which PostgreSQL describes itself;
//! - [`query`]: the way of one query; `dialect` turns it into SQLite's SQL, `kinds` says what its columns hold, `functions`
//!   brings what SQLite lacks, `engine` lets SQLite read our tables.
//!
//! Deliberately not here: where the state and the past come from (`crates/server`), and what writing to these tables means
//! (`crate::writes`). Nothing is ever written through SQLite.

mod actions;
pub(crate) mod build;
pub(crate) mod catalog;
mod clusters;
mod configured_signals;
mod decisions;
pub mod define;
mod dialect;
mod engine;
pub(crate) mod error;
mod events;
mod explanations;
mod functions;
mod idle;
mod json;
mod kinds;
mod nodes;
mod operations;
mod pattern;
pub mod query;
mod replicas;
mod roles;
mod settings;
mod signals;
mod sizes;
pub mod source;
mod strategies;
pub mod value;

use sqlparser::ast::{Ident, ObjectName};

pub use define::{ColumnInfo, Table};
pub use pattern::like;
pub use query::{Answer, Limits, OutputColumn, Prepared};
pub use source::{Budget, EndedOperation, EventRow, NoPast, NodeRow, Past, SessionFacts, Source};
pub use strategies::config_json;
pub use value::{Kind, Value};

/// Every table there is, in the order in which they are listed.
pub(crate) static TABLES: &[&dyn Table] = &[
    &clusters::CLUSTERS,
    &replicas::REPLICAS,
    &sizes::SIZES,
    &idle::IDLE_STATE,
    &idle::SAVINGS_DAILY,
    &signals::SIGNALS,
    &configured_signals::CONFIGURED_SIGNALS,
    &decisions::DECISIONS,
    &decisions::STAGES,
    &operations::OPERATIONS,
    &actions::ACTIONS,
    &actions::ATTEMPTS,
    &settings::SETTINGS,
    &nodes::NODES,
    &events::EVENTS,
    &strategies::STRATEGIES,
    &strategies::STATE,
    &actions::MZ_ACTIONS,
    &strategies::EFFECTIVE,
    &clusters::MZ_CLUSTERS,
    &replicas::MZ_CLUSTER_REPLICAS,
    &catalog::relations::PG_NAMESPACE,
    &catalog::relations::PG_CLASS,
    &catalog::relations::PG_ATTRIBUTE,
    &catalog::relations::PG_INDEX,
    &catalog::relations::PG_CONSTRAINT,
    &catalog::relations::PG_DESCRIPTION,
    &catalog::relations::PG_TABLES,
    &catalog::relations::PG_VIEWS,
    &catalog::types::PG_TYPE,
    &catalog::server::PG_DATABASE,
    &catalog::server::PG_ROLES,
    &catalog::server::PG_USER,
    &catalog::server::PG_SETTINGS,
    &catalog::server::PG_AM,
    &catalog::server::PG_COLLATION,
    &catalog::empty::PG_ATTRDEF,
    &catalog::empty::PG_AUTH_MEMBERS,
    &catalog::empty::PG_AUTHID,
    &catalog::empty::PG_CAST,
    &catalog::empty::PG_DEPEND,
    &catalog::empty::PG_ENUM,
    &catalog::empty::PG_EVENT_TRIGGER,
    &catalog::empty::PG_EXTENSION,
    &catalog::empty::PG_FOREIGN_DATA_WRAPPER,
    &catalog::empty::PG_FOREIGN_SERVER,
    &catalog::empty::PG_FOREIGN_TABLE,
    &catalog::empty::PG_INHERITS,
    &catalog::empty::PG_LANGUAGE,
    &catalog::empty::PG_MATVIEWS,
    &catalog::empty::PG_OPERATOR,
    &catalog::empty::PG_PARTITIONED_TABLE,
    &catalog::empty::PG_POLICY,
    &catalog::empty::PG_PROC,
    &catalog::empty::PG_PUBLICATION,
    &catalog::empty::PG_PUBLICATION_NAMESPACE,
    &catalog::empty::PG_PUBLICATION_REL,
    &catalog::empty::PG_RANGE,
    &catalog::empty::PG_REWRITE,
    &catalog::empty::PG_SEQUENCE,
    &catalog::empty::PG_SHDESCRIPTION,
    &catalog::empty::PG_STAT_USER_TABLES,
    &catalog::empty::PG_STATISTIC_EXT,
    &catalog::empty::PG_SUBSCRIPTION,
    &catalog::empty::PG_TABLESPACE,
    &catalog::empty::PG_TRIGGER,
    &catalog::empty::PG_TS_CONFIG,
    &catalog::empty::PG_USER_MAPPINGS,
    &catalog::information::SCHEMATA,
    &catalog::information::INFORMATION_TABLES,
    &catalog::information::INFORMATION_VIEWS,
    &catalog::information::INFORMATION_COLUMNS,
    &catalog::information::TABLE_CONSTRAINTS,
    &catalog::information::KEY_COLUMN_USAGE,
    &catalog::empty::PG_AMOP,
    &catalog::empty::PG_STAT_ACTIVITY,
    &catalog::empty::PG_AMPROC,
    &catalog::empty::PG_CONVERSION,
    &catalog::empty::PG_DB_ROLE_SETTING,
    &catalog::empty::PG_DEFAULT_ACL,
    &catalog::empty::PG_LARGEOBJECT_METADATA,
    &catalog::empty::PG_OPCLASS,
    &catalog::empty::PG_OPFAMILY,
    &catalog::empty::PG_TS_DICT,
    &catalog::empty::PG_TS_PARSER,
    &catalog::empty::PG_TS_TEMPLATE,
    &roles::ROLES,
    &explanations::EXPLANATIONS,
];

/// The tables about what Loadline does, without those in which PostgreSQL describes itself.
pub fn own_tables() -> impl Iterator<Item = &'static dyn Table> {
    TABLES.iter().copied().filter(|table| ["loadline", "mz_internal", "mz_catalog"].contains(&table.schema()))
}

/// The table of this name: in that schema, or in the first one of the path that has it. The catalogue comes before them all, as
/// in PostgreSQL.
pub fn find_table(schema: Option<&str>, name: &str, search_path: &[String]) -> Option<&'static dyn Table> {
    let find = |schema: &str| TABLES.iter().copied().find(|table| table.schema() == schema && table.name() == name);
    match schema {
        Some(schema) => find(schema),
        None => std::iter::once("pg_catalog").chain(search_path.iter().map(String::as_str)).find_map(find),
    }
}

/// An identifier as PostgreSQL reads it: without quotes it is in small letters.
pub(crate) fn folded(ident: &Ident) -> String {
    kinds::fold(ident)
}

/// The parts of a name, each as PostgreSQL reads it.
pub(crate) fn parts(name: &ObjectName) -> Vec<String> {
    name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect()
}

/// The character, from 1, at a line and a column of a text, both from 1; nothing for 0, which is nowhere.
pub(crate) fn position_of(text: &str, line: u64, column: u64) -> Option<usize> {
    let lines = usize::try_from(line.checked_sub(1)?).ok()?;
    let before: usize = text.split_inclusive('\n').take(lines).map(|line| line.chars().count()).sum();
    Some(before + usize::try_from(column).ok()?)
}

/// What clients take us for: psql adapts its own queries to it.
pub const SERVER_VERSION: &str = functions::catalogue::SERVER_VERSION;

/// Stands around a code on its way through SQLite. No text that anybody writes has it.
pub(crate) const CODE_MARK: char = '\u{1}';

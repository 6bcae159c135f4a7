//! Loadline in SQL: what an operator writes, what it means, and what can be asked.
//!
//! - [`statement`]: the statements there are, as data.
//! - [`parse`]: from text to statements, with the place of every mistake. One tokenizer for ours and for `SELECT`.
//! - [`print`]: from statements back to text, in one canonical spelling.
//! - [`to_command`]: what a statement asks to be written, as commands of the state machine, and a transaction of them.
//! - [`writes`]: what `INSERT`, `UPDATE` and `DELETE` on the tables ask to be written.
//! - [`to_query`]: what a statement asks to be shown, as a query of the tables.
//! - [`tables`]: what can be asked: tables over a fork of the state and over the journal, through SQLite.
//! - [`error`]: what goes wrong, as an SQLSTATE with a place, whoever found it.
//!
//! Deliberately not here: connections, sessions and who may what (`crates/server`), and whether a name or an option makes
//! sense, which the state machine alone decides.

pub mod error;
mod parse;
mod print;
pub mod statement;
pub mod tables;
mod to_command;
mod to_query;
pub mod writes;

pub use error::{ParseError, SqlError, SqlState};
pub use parse::{Parsed, parse};
pub use print::{quote_identifier, quote_literal};
pub use statement::Statement;
pub use to_command::{Change, MakeVerifier, Transaction, change, change_with, refused};
pub use to_query::to_query;
pub use writes::{Write, Written};

//! The kinds of a query's columns and parameters, found by looking at the query alone.
//!
//! SQLite knows no type for what an expression computes, and PostgreSQL's clients want one. The rule: a column of a table has
//! the kind it is declared with; an operator, a function or a cast has the kind that it has in PostgreSQL; what is not known is
//! text.

mod expressions;
mod names;
mod parameters;
mod scope;

pub(crate) use expressions::kind_of;
pub(crate) use names::{fold, name_of, type_name};
pub(crate) use parameters::parameters;
pub(crate) use scope::{Scope, columns, flat_scope};

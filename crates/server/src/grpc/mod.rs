//! gRPC: what a caller says becomes a command or a read, and what the node says becomes an answer.

mod actor;
pub(crate) mod admin;
pub(crate) mod errors;
pub(crate) mod forward;
pub(crate) mod limits;
mod listing;
pub(crate) mod operator;
mod pages;
pub(crate) mod restore;
pub(crate) mod watch;

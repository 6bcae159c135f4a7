//! gRPC: what a caller says becomes a command or a read, and what the node says becomes an answer.

mod actor;
pub(crate) mod admin;
pub(crate) mod audit;
pub(crate) mod errors;
pub(crate) mod exchange;
pub(crate) mod forward;
mod gate;
pub(crate) mod guard;
mod history;
pub(crate) mod limits;
pub(crate) mod operator;
mod pages;
pub(crate) mod restore;
pub(crate) mod scale_to_zero;
pub(crate) mod scaling;
mod search;
pub(crate) mod services;
pub(crate) mod signals;
pub(crate) mod watch;
pub(crate) mod writes;

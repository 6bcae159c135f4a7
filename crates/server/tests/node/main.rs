//! Real nodes in this process, on real files and real sockets: every call, with good input and with bad.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test, its helpers too")]

mod access;
mod acting;
mod admin;
mod audit;
mod common;
mod group;
mod http;
mod http_signals;
mod limits;
mod operator;
mod scaling;
mod scaling_figures;
mod secrets;
mod sql;
mod sql_catalogue;
mod sql_clients;
mod sql_logic;
mod sql_login;
mod sql_permissions;
mod sql_writes;
mod start;
mod watch;
mod writes;

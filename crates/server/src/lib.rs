//! The composition root: wires the node together and serves gRPC and HTTP.
//!
//! A library, so that the command line, tests and a simulator run the same wiring. Where to look:
//! - [`config`] is what a node is told; [`serve`] is the wiring; `shutdown` is its end;
//! - `grpc` answers callers: `admin`, `watch`, `operator`, each behind a door (`limits`), with one map of `errors`;
//! - `pg` answers SQL, over the protocol of PostgreSQL;
//! - `http` answers probes and Prometheus, from `readiness` and `metrics`; `http_scaling` wakes clusters and tells what they saved;
//! - `incoming` is what a simulator brings its own of: sockets, and the clock that answers are dated by;
//! - `leading` is what only the leader does;
//! - `travel` brings an earlier state back;
//!
//! Not here: what a request means (`loadline-state-machine`), how it is recorded (`loadline-raft-node`), who acts on the
//! outside world (`loadline-executor`).

mod acting;
mod backend_figures;
pub mod config;
mod explaining;
mod grpc;
mod http;
mod http_scaling;
mod http_signals;
mod idle_figures;
mod incoming;
mod json_lines;
mod kept;
mod leading;
mod logging;
mod metrics;
mod peers;
mod pg;
mod proposals;
mod queue_figures;
mod readiness;
mod scaling_figures;
mod scaling_log;
mod serve;
mod shutdown;
mod signal_figures;
mod travel;
mod waking;
mod world;

pub use config::ServerConfig;
pub use incoming::Incoming;
pub use logging::init_logging;
pub use serve::{Listeners, ServeError, serve, serve_in, serve_on};
pub use world::World;

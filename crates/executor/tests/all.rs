//! Actions against backends, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod ahead;
mod chaos;
mod checkpoints;
mod edges;
mod local;
mod local_crashes;
mod local_support;
mod model;
mod observing;
mod sql;
mod sql_support;
mod webhook;
mod webhook_support;

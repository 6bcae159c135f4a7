//! Statements and queries over a state, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod hostile_queries;
mod properties;
mod queries;
mod refusals;
mod seed_a;
mod signals;
mod statements;
mod world;
mod writes;

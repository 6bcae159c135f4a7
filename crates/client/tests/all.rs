//! The client against nodes that answer as told, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod nodes;
mod retries;
mod signals;
mod support;
mod watching;
mod writes;

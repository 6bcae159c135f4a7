//! What an export proves and what is found in it, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod altered_folders;
mod backtests;
mod day_in_a_file;
mod diff;
mod everything;
mod evidence;
mod explain;
mod explain_origins;
mod manipulations;
mod retention;
mod search;
mod sqlite;
mod versions;
mod world;

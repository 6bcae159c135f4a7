//! The command as its users run it, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod at_rest;
mod bench_groups;
mod demo;
mod dev;
mod guarded_apply;
mod plan_and_bench;
mod sql;
mod support;
mod without_a_group;

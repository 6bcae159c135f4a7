//! The state machine from outside, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod chain;
mod codes;
mod common;
mod configured_signals;
mod conversations;
mod decisions;
mod golden_bytes;
mod hostile_bytes;
mod hostile_scaling;
mod house_rules;
mod permissions;
mod plans;
mod properties;
mod rejections;
mod requests;
mod restores;
mod roles;
mod savings;
mod scaling_properties;
mod scaling_work;

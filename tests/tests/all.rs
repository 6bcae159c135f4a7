//! Nodes as processes, one module for what a reader would look for.
//!
//! One program for all of them: each program more is linked with everything below it once more.

mod alerts;
mod audit_page;
mod backtesting;
mod bad_input;
mod brakes;
mod catching_up;
mod collected_scaling;
mod collectors;
mod dead_letters;
mod deploy;
mod dying_on_the_way;
mod four_layers;
mod journal_retention;
mod kill_the_leader;
mod paused_leader;
mod readme;
mod required_scenarios;
mod scale_to_zero;
mod scaling;
mod scaling_by_command;
mod scheduled_scaling;
mod sql_drivers;
mod synced_before_acknowledged;
mod watching;

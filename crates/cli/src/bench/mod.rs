//! `bench`: figures that anybody can measure again, each as a ratio to something measured in the same run.
//!
//! - `brain.rs`: what is measured about the state machine, and how.
//! - `world.rs`: the made-up group that it is measured on.
//! - `machine.rs`: what this runs on.
//! - `report.rs`: the rows, as a table and as data.
//!
//! Not here: goals that fail a build. A figure depends on the machine and on who else uses it, so a goal that is not met is
//! shown, and the exit code stays 0.

mod brain;
mod machine;
mod report;
mod world;

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::console::Console;
use crate::exit::Failed;
use crate::output::Format;
use crate::text::parse_duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The state machine alone: cost of a signal and of a tick, evaluations per second, memory per cluster
    Brain(BrainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BrainArgs {
    /// Numbers of clusters to compare; the smallest is what the others are measured against
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',', default_values_t = [1_000, 100_000])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    clusters: Vec<u32>,
    /// How long to measure, beside the time it takes to build the clusters
    #[arg(long = "for", value_name = "DURATION", default_value = "15s", value_parser = parse_duration)]
    duration: Duration,
}

pub(crate) fn run(what: &Bench, format: Format, console: &mut Console) -> Result<(), Failed> {
    let Bench::Brain(args) = what;
    let report = brain::measure(&args.clusters, args.duration, console)?;
    console.data(&report.shown(format)?)
}

//! `loadline-sim`: runs seeds, repeats one, and tests itself.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this is a command-line tool")]

mod children;
mod progress;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use loadline_mutants::Mutant;
use loadline_sim::batch::{self, Until};
use loadline_sim::known::{KNOWN, Known};
use loadline_sim::plan::Plan;
use loadline_sim::run::Outcome;
use loadline_sim::trace::Tracing;

use crate::progress::Progress;

/// A seed of which it is known that it fails where disks lie.
const CANARY: u64 = 1;

#[derive(Debug, Parser)]
#[command(name = "loadline-sim", about = "Runs Loadline in a made-up world, where one seed decides everything")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs many seeds; ends with 0 only if all pass
    Run {
        /// How many
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// The first one
        #[arg(long, default_value_t = 1)]
        first: u64,
        /// Begin no new seed after so many seconds
        #[arg(long)]
        seconds: Option<u64>,
        /// With --seconds: but not before so many were run
        #[arg(long, default_value_t = 1, requires = "seconds")]
        at_least: u64,
        /// Take this protection of the product away
        #[arg(long)]
        mutant: Option<Mutant>,
    },
    /// Runs one seed
    Reproduce {
        seed: u64,
        /// Show one line for each transition
        #[arg(long)]
        trace: bool,
        #[arg(long)]
        mutant: Option<Mutant>,
        /// Let the product log to standard error: "debug", "loadline_raft_node=trace"
        #[arg(long)]
        log: Option<String>,
    },
    /// Shows what a seed decides, and runs nothing
    Plan { seed: u64 },
    /// Runs one seed and says in two lines how it went: what `run` and `mutants` start for each seed
    #[command(hide = true)]
    Seed {
        seed: u64,
        #[arg(long)]
        mutant: Option<Mutant>,
    },
    /// Runs some seeds twice each and compares every line
    Meta {
        #[arg(long, default_value_t = 5)]
        seeds: u64,
        #[arg(long, default_value_t = 1)]
        first: u64,
    },
    /// Runs a seed that must fail, because its disks lie
    Canary {
        #[arg(default_value_t = CANARY)]
        seed: u64,
    },
    /// Runs each seeded mutant of the product until it is found out
    Mutants {
        /// Try at most so many seeds for each
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// Only this one
        #[arg(long)]
        only: Option<Mutant>,
        /// Run exactly the seeds at which each was found out before, with the mutant and without
        #[arg(long)]
        known: bool,
    },
}

fn main() -> ExitCode {
    let done = match Args::parse().command {
        Command::Run { seeds, first, seconds, at_least, mutant } => {
            let most = seconds.map(Duration::from_secs);
            run(seeds, first, most.map_or(Until::TheEnd, |most| Until::Elapsed { most, at_least }), mutant)
        }
        Command::Reproduce { seed, trace, mutant, log } => reproduce(seed, trace, mutant, log.as_deref()),
        Command::Plan { seed } => {
            print!("{}", Plan::of(seed));
            true
        }
        Command::Seed { seed, mutant } => {
            mutant.inspect(|mutant| mutant.switch_on());
            print!("{}", children::told(&batch::one(Plan::of(seed), Tracing::Off)));
            true
        }
        Command::Meta { seeds, first } => meta(seeds, first),
        Command::Canary { seed } => canary(seed),
        Command::Mutants { only, known: true, .. } => known(only),
        Command::Mutants { seeds, only, known: false } => mutants(seeds, only),
    };
    if done { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn with(mutant: Option<Mutant>) -> String {
    mutant.map(|mutant| format!(" --mutant {mutant}")).unwrap_or_default()
}

/// The one line for each failure.
fn failure(outcome: &Outcome, mutant: Option<Mutant>) -> Option<String> {
    let violation = outcome.violation.as_ref()?;
    Some(format!(
        "seed {} at {:.3} s: {}: {}\n    cargo run -p loadline-sim -- reproduce {} --trace{}",
        outcome.seed,
        violation.at.as_secs_f64(),
        violation.invariant,
        violation.what,
        outcome.seed,
        with(mutant),
    ))
}

fn run(seeds: u64, first: u64, until: Until, mutant: Option<Mutant>) -> bool {
    let progress = Progress::new((until == Until::TheEnd).then_some(seeds));
    let one = |seed| children::run(seed, mutant);
    let tally = batch::batch(first, seeds, until, one, |outcome| progress.one(failure(outcome, mutant)));
    progress.finish();
    println!(
        "{} seeds from {first}, {} failed; {:.0} seeds per minute, {:.0} simulated seconds per second, at most {} MiB each",
        tally.seeds,
        tally.failed.len(),
        tally.seeds_per_minute(),
        tally.simulated_per_second(),
        tally.allocated >> 20,
    );
    tally.failed.is_empty() && tally.seeds > 0
}

fn reproduce(seed: u64, trace: bool, mutant: Option<Mutant>, log: Option<&str>) -> bool {
    mutant.inspect(|mutant| mutant.switch_on());
    if let Some(filter) = log {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    }
    let plan = Plan::of(seed);
    print!("{plan}");
    let tracing = if trace { Tracing::Told(|line| println!("{line}")) } else { Tracing::Off };
    let outcome = batch::one(plan, tracing);
    let (seconds, mebibytes) = (outcome.took.as_secs_f64(), outcome.allocated >> 20);
    println!("{} sightings in {seconds:.3} simulated seconds, at most {mebibytes} MiB", outcome.sightings);
    match failure(&outcome, mutant) {
        Some(line) => println!("{line}"),
        None => println!("seed {seed} passes"),
    }
    outcome.violation.is_none()
}

fn meta(seeds: u64, first: u64) -> bool {
    let mut same = true;
    for seed in first..first.saturating_add(seeds) {
        let trace = |seed| batch::one(Plan::of(seed), Tracing::Kept).trace;
        let (one, other) = (trace(seed), trace(seed));
        let differs = one.iter().zip(&other).position(|(one, other)| one != other);
        match differs.or((one.len() != other.len()).then_some(one.len().min(other.len()))) {
            None => println!("seed {seed}: {} lines, twice the same", one.len()),
            Some(line) => {
                same = false;
                println!("seed {seed}: line {} differs", line + 1);
                println!("  {}", one.get(line).map_or("(the end)", String::as_str));
                println!("  {}", other.get(line).map_or("(the end)", String::as_str));
            }
        }
    }
    same
}

/// Whether it was noticed that every disk lies.
fn canary(seed: u64) -> bool {
    let outcome = batch::one(Plan::canary(seed), Tracing::Off);
    match &outcome.violation {
        Some(violation) => println!("canary {seed} fails, as it must: {}: {}", violation.invariant, violation.what),
        None => println!("canary {seed} passes, and must not: syncs did nothing, and nobody noticed"),
    }
    outcome.violation.is_some()
}

fn mutants(seeds: u64, only: Option<Mutant>) -> bool {
    let mut all_found = true;
    println!("{:<32} {:>6} {:<16} what was seen", "mutant", "seed", "invariant");
    for mutant in Mutant::ALL.iter().copied().filter(|mutant| only.is_none_or(|only| only == *mutant)) {
        let tally = batch::batch(1, seeds, Until::FirstFailure, |seed| children::run(seed, Some(mutant)), |_| {});
        let found = tally.failed.first().and_then(|outcome| Some((outcome.seed, outcome.violation.as_ref()?)));
        match found {
            Some((seed, violation)) => {
                println!("{:<32} {seed:>6} {:<16} {}", mutant.name(), violation.invariant, violation.what);
            }
            None => {
                all_found = false;
                println!("{:<32} {:>6} not found", mutant.name(), "-");
            }
        }
    }
    all_found
}

/// Every mutant is found out where it was before, by the same invariant; and the product itself passes there.
fn known(only: Option<Mutant>) -> bool {
    let mut as_known = true;
    let chosen = || KNOWN.iter().filter(|known| only.is_none_or(|only| only == known.mutant));
    for Known { mutant, seed, invariant } in chosen() {
        let violation = children::run(*seed, Some(*mutant)).violation;
        let found = violation.as_ref().is_some_and(|violation| violation.invariant == *invariant);
        as_known &= found;
        let seen = violation.map_or_else(|| "nothing".to_owned(), |seen| format!("{}: {}", seen.invariant, seen.what));
        let word = if found { "found" } else { "NOT FOUND" };
        println!("{:<32} {seed:>6} {invariant:<16} {word}: {seen}", mutant.name());
    }
    let seeds: BTreeSet<u64> = chosen().map(|known| known.seed).collect();
    for seed in seeds {
        let outcome = children::run(seed, None);
        match failure(&outcome, None) {
            None => println!("{:<32} {seed:>6} passes", "no mutant"),
            Some(line) => {
                as_known = false;
                println!("{line}");
            }
        }
    }
    as_known
}

//! `bench`: figures that anybody can measure again, each as a ratio to something measured in the same run.
//!
//! - `brain.rs`: what is measured about the state machine, and how; `world.rs`: the made-up group that it is measured on;
//!   `report.rs`: its rows, as a table and as data.
//! - `write.rs`, `signals.rs`, `read.rs`, `react.rs`, `failover.rs`, `replay.rs`, `scale.rs`, `sql.rs`: what is measured about three nodes. `group.rs` starts the
//!   nodes, `etcd.rs` a real etcd beside them, `processes.rs` both; `receiver.rs` is the backend that they call; `drive.rs` makes
//!   callers; `baseline.rs` measures disk and loopback in the same run; `stage.rs` is what they share, `figures.rs` the statistics,
//!   `rows.rs` the result, `plot.rs` the picture.
//! - `machine.rs`: what this runs on.
//!
//! Not here: goals that fail a build. A figure depends on the machine and on who else uses it, so a goal that is not met is
//! shown, and the exit code stays 0.

mod baseline;
mod brain;
mod drive;
mod etcd;
mod failover;
mod felt;
mod figures;
mod group;
mod machine;
mod plot;
mod processes;
mod react;
mod read;
mod receiver;
mod replay;
mod report;
mod rows;
mod scale;
mod signals;
mod sql;
mod stage;
mod world;
mod write;

use std::path::Path;
use std::time::Duration;

use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use self::rows::{Row, Suite};
use self::scale::Scale;
use self::signals::Mix;
use self::sql::Asked;
use self::stage::{Stage, StageArgs};
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::output::Format;
use crate::text::parse_duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The state machine alone: cost of a signal and of a tick, evaluations per second, memory per cluster
    Brain(BrainArgs),
    /// Three nodes: durable commands per second and how long one takes, beside etcd's puts
    Write(ClientsArgs),
    /// Three nodes: streamed signals per second, durable and applied, beside etcd's puts and transactions
    Signals(SignalsArgs),
    /// Three nodes: from a signal to the call of a backend, idle and under load
    React(ReactArgs),
    /// Three nodes: from the death of the leader to the next write and the next call of a backend, beside etcd
    Failover(FailoverArgs),
    /// Three nodes: linearizable and stale reads, beside etcd's
    Read(ClientsArgs),
    /// Three nodes: the journal of one of them applied once more, with every hash compared
    Replay(ReplayArgs),
    /// Three nodes and many clusters: cost of a signal, memory, snapshots, restart, a new node
    Scale(ScaleArgs),
    /// Three nodes: a join and an aggregate over many actions in SQL, while others write
    Sql(SqlArgs),
    /// All that run three nodes, one after the other
    All(AllArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ClientsArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Numbers of clients that ask at the same time
    #[arg(long, value_name = "N", num_args = 1.., value_delimiter = ',')]
    clients: Vec<u16>,
}

impl ClientsArgs {
    fn clients(&self, otherwise: &[usize]) -> Vec<usize> {
        if self.clients.is_empty() {
            return otherwise.to_vec();
        }
        self.clients.iter().map(|count| usize::from(*count).max(1)).collect()
    }
}

const WRITE_CLIENTS: [usize; 4] = [1, 16, 64, 256];
const READ_CLIENTS: [usize; 3] = [1, 16, 64];

#[derive(Debug, Args)]
pub(crate) struct SignalsArgs {
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    mix: Mix,
}

#[derive(Debug, Args)]
pub(crate) struct ReactArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// Samples in one round, one after the other and again under load; a quarter as many idle
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: u32,
}

#[derive(Debug, Args)]
pub(crate) struct FailoverArgs {
    #[command(flatten)]
    stage: StageArgs,
    /// How often a leader is killed
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: u32,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    stage: StageArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    scale: Scale,
}

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    asked: Asked,
}

#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    #[command(flatten)]
    stage: StageArgs,
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    mix: Mix,
    #[command(flatten)]
    scale: Scale,
    /// Samples of `react` in one round
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    samples: u32,
    /// How often `failover` kills a leader
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    kills: u32,
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
    let stage = match what {
        Bench::Brain(args) => {
            let report = brain::measure(&args.clusters, args.duration, console)?;
            return console.data(&report.shown(format)?);
        }
        Bench::Write(args) | Bench::Read(args) => &args.stage,
        Bench::Signals(args) => &args.stage,
        Bench::React(args) => &args.stage,
        Bench::Failover(args) => &args.stage,
        Bench::Replay(args) => &args.stage,
        Bench::Scale(args) => &args.stage,
        Bench::Sql(args) => &args.stage,
        Bench::All(args) => &args.stage,
    };
    let runtime = runtime()?;
    let suite = runtime.block_on(async {
        let interrupted = interrupted()?;
        tokio::select! {
            suite = whole(what, stage, console) => suite,
            // What it has started and put into its folder goes with it.
            () = interrupted => Err(Failed::new(Exit::Failure, "interrupted")),
        }
    });
    // Whoever interrupts it does not wait for a history to be read to its end on a thread of its own.
    runtime.shutdown_background();
    let suite = suite?;
    if let Some(path) = &stage.json {
        write_file(path, &suite.shown(Format::Json)?)?;
    }
    if let Some(path) = &stage.plot {
        match plot::draw(&suite.rows) {
            Some(svg) => write_file(path, &svg)?,
            None => console.warn("a plot needs `write` with at least two numbers of clients; none was drawn"),
        }
    }
    console.data(&suite.shown(format)?)?;
    if suite.missing.is_empty() { Ok(()) } else { Err(Failed::new(Exit::Failure, suite.missing.join("\n  "))) }
}

/// Returns when somebody wants this to end.
fn interrupted() -> Result<impl Future<Output = ()>, Failed> {
    let [mut interrupt, mut terminate] = [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// As many threads as a busy caller of either side would have.
fn runtime() -> Result<tokio::runtime::Runtime, Failed> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// The benchmarks that run whole groups.
async fn whole(what: &Bench, args: &StageArgs, console: &mut Console) -> Result<Suite, Failed> {
    let mut stage = Stage::set(args, console).await?;
    let rows = match what {
        Bench::Brain(_) => Vec::new(),
        Bench::Write(args) => write::measure(&args.clients(&WRITE_CLIENTS), &mut stage).await?,
        Bench::Signals(args) => signals::measure(&args.mix, &mut stage).await?,
        Bench::React(args) => react::measure(args.samples, &mut stage).await?,
        Bench::Failover(args) => failover::measure(args.kills, &mut stage).await?,
        Bench::Read(args) => read::measure(&args.clients(&READ_CLIENTS), &mut stage).await?,
        Bench::Replay(_) => replay::measure(&mut stage).await?,
        Bench::Scale(args) => scale::measure(&args.scale, &mut stage).await?,
        Bench::Sql(args) => sql::measure(&args.asked, &mut stage).await?,
        Bench::All(args) => all(args, &mut stage).await?,
    };
    Ok(stage.end(&rows))
}

/// One after the other. What was measured is written down after each, and one that fails does not take the others with it.
async fn all(args: &AllArgs, stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    let mut rows = Vec::new();
    for part in ["write", "signals", "react", "read", "sql", "replay", "failover", "scale"] {
        let measured = match part {
            "write" => write::measure(&WRITE_CLIENTS, stage).await,
            "signals" => signals::measure(&args.mix, stage).await,
            "react" => react::measure(args.samples, stage).await,
            "read" => read::measure(&READ_CLIENTS, stage).await,
            "sql" => sql::measure(&args.asked, stage).await,
            "replay" => replay::measure(stage).await,
            "failover" => failover::measure(args.kills, stage).await,
            _ => scale::measure(&args.scale, stage).await,
        };
        match measured {
            Ok(measured) => rows.extend(measured),
            Err(failed) => stage.missing.push(format!("{part} was not measured: {}", failed.message)),
        }
        if let Some(path) = &args.stage.json {
            write_file(path, &stage.so_far(&rows).shown(Format::Json)?)?;
        }
    }
    Ok(rows)
}

fn write_file(path: &Path, text: &str) -> Result<(), Failed> {
    std::fs::write(path, text)
        .map_err(|error| Failed::new(Exit::Failure, format!("{} cannot be written: {error}", path.display())))
}

//! What the state machine costs, on one core and with nothing around it.
//!
//! The worlds take turns in every round, and every other round begins at the other end, so that a noisy minute hits all of
//! them. A figure is the middle one of its rounds, in time that this thread was at work.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::machine::{Machine, Stopwatch, resident_bytes};
use super::report::{Against, Baseline, Cost, Figure, Goal, Lookup, Report, Row, ratio};
use super::world::{World, mix};
use crate::console::Console;
use crate::exit::Failed;

/// Entries in one round: enough that reading the clock does not count, few enough that the worlds change often.
const ENTRIES_PER_ROUND: u32 = 500;
const LOOKUPS_PER_ROUND: u32 = 5_000;

/// However little time there is: the middle one of fewer says nothing.
const ROUNDS_MIN: usize = 3;

/// For how long a new world is at work before its memory is counted: an allocator gives back what only the building needed
/// after ten seconds (see `main.rs`), and only while it is asked for something.
const SETTLING: Duration = Duration::from_secs(12);

const RATIO_MAX: f64 = 1.5;
const EVALUATIONS_PER_S_MIN: u64 = 200_000;
const BYTES_PER_CLUSTER_MAX: u64 = 4 * 1024;

pub(super) fn measure(clusters: &[u32], duration: Duration, console: &mut Console) -> Result<Report, Failed> {
    let mut clusters = clusters.to_vec();
    clusters.sort_unstable();
    clusters.dedup();
    if clusters.len() < 2 {
        return Err(Failed::usage("--clusters needs two different numbers: a figure is a ratio, such as 1000,100000"));
    }
    let machine = Machine::this();
    console.say(&machine.line());
    if Machine::is_debug() {
        console.warn("this is a build for debugging, its figures mean nothing; measure with a release build");
    }
    let mut bench = Subjects::build(&clusters, duration, console)?;
    bench.rounds(duration, console)?;
    Ok(Report { machine, baseline: bench.baseline(), rows: bench.rows() })
}

/// One world, the yardstick of the same size, and what was measured on them so far.
#[derive(Debug)]
struct Subject {
    world: World,
    names: BTreeMap<String, u32>,
    signals: Vec<Duration>,
    ticks: Vec<Duration>,
    evaluations: Vec<Duration>,
    lookups: Vec<Duration>,
}

/// Those of one measurement.
type Rounds = fn(&Subject) -> &[Duration];

#[derive(Debug)]
struct Subjects {
    /// The smallest first; never fewer than two.
    all: Vec<Subject>,
    memory: Memory,
}

/// Of the largest world, for each of its clusters.
#[derive(Clone, Copy, Debug)]
struct Memory {
    resident: Option<u64>,
    encoded: u64,
}

impl Subjects {
    /// The largest world comes first, when the process has nothing to give back yet: what it grows by is that world's.
    fn build(clusters: &[u32], duration: Duration, console: &Console) -> Result<Subjects, Failed> {
        let mut all = Vec::new();
        let mut memory = None;
        for &count in clusters.iter().rev() {
            let progress = bar(console, u64::from(count), "{spinner} building {wide_bar} {pos}/{len} clusters");
            let before = resident_bytes();
            let mut world = World::build(count, |built| progress.set_position(built.into()))?;
            if memory.is_none() {
                settle(&mut world, duration.min(SETTLING))?;
            }
            let grown = resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));
            progress.finish_and_clear();
            memory.get_or_insert_with(|| Memory {
                resident: grown.map(|bytes| bytes / u64::from(count)),
                encoded: world.encoded_bytes() / u64::from(count),
            });
            let names = (0..count).map(|number| (format!("cluster-{number:06}"), number)).collect();
            let (signals, ticks, evaluations, lookups) = (vec![], vec![], vec![], vec![]);
            all.push(Subject { world, names, signals, ticks, evaluations, lookups });
        }
        all.reverse();
        Ok(Subjects { all, memory: memory.unwrap_or(Memory { resident: None, encoded: 0 }) })
    }

    fn rounds(&mut self, duration: Duration, console: &Console) -> Result<(), Failed> {
        let total = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let progress = bar(console, total, "{spinner} measuring {wide_bar} {msg}");
        let begin = Instant::now();
        let mut round = 0;
        while round < ROUNDS_MIN || begin.elapsed() < duration {
            self.in_turn(round, |subject| {
                subject.signals.push(subject.world.signals(ENTRIES_PER_ROUND)?);
                Ok(())
            })?;
            self.in_turn(round, |subject| {
                subject.ticks.push(subject.world.idle_ticks(ENTRIES_PER_ROUND)?);
                Ok(())
            })?;
            self.in_turn(round, |subject| {
                subject.evaluations.push(subject.world.sweep()?);
                Ok(())
            })?;
            self.in_turn(round, |subject| {
                subject.lookups.push(look_up(&subject.names, round));
                Ok(())
            })?;
            round += 1;
            progress.set_position(u64::try_from(begin.elapsed().as_millis()).unwrap_or(total).min(total));
            progress.set_message(format!("round {round}"));
        }
        progress.finish_and_clear();
        Ok(())
    }

    fn in_turn(
        &mut self,
        round: usize,
        mut step: impl FnMut(&mut Subject) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        match round % 2 {
            0 => self.all.iter_mut().try_for_each(&mut step),
            _ => self.all.iter_mut().rev().try_for_each(&mut step),
        }
    }

    fn baseline(&self) -> Baseline {
        let lookup = |subject: &Subject| Lookup { names: subject.world.clusters, cost: Cost::of(&subject.lookups) };
        Baseline { lookups: self.all.iter().map(lookup).collect() }
    }

    fn rows(&self) -> Vec<Row> {
        let (Some(smallest), Some(largest)) = (self.all.first(), self.all.last()) else { return vec![] };
        let mut rows = Vec::new();
        let compared: [(&'static str, Rounds); 2] =
            [("signal", |subject| &subject.signals), ("idle_tick", |subject| &subject.ticks)];
        for (name, rounds) in compared {
            let base = Cost::of(rounds(smallest));
            for subject in &self.all[1..] {
                let cost = Cost::of(rounds(subject));
                let against = Against { name, clusters: Some(smallest.world.clusters), figure: Figure::Cost(base) };
                let goal = Goal::Ratio { at_most: RATIO_MAX };
                rows.push(row(name, subject, Figure::Cost(cost), against, Some(cost.against(base)), goal));
            }
        }
        let (evaluation, lookup) = (Cost::of(&largest.evaluations), Cost::of(&largest.lookups));
        let against = Against { name: "lookup", clusters: Some(largest.world.clusters), figure: Figure::Cost(lookup) };
        let goal = Goal::OpsPerS { at_least: EVALUATIONS_PER_S_MIN };
        let times = Some(evaluation.against(lookup));
        rows.push(row("evaluation", largest, Figure::Cost(evaluation), against, times, goal));

        let Memory { resident, encoded } = self.memory;
        let figure = |bytes_per_cluster| Figure::Memory { bytes_per_cluster };
        let against = Against { name: "encoded", clusters: None, figure: figure(Some(encoded)) };
        let goal = Goal::BytesPerCluster { at_most: BYTES_PER_CLUSTER_MAX };
        let times = resident.map(|bytes| ratio(bytes, encoded));
        rows.push(row("memory", largest, figure(resident), against, times, goal));
        rows
    }
}

fn row(name: &'static str, on: &Subject, figure: Figure, against: Against, ratio: Option<f64>, goal: Goal) -> Row {
    Row { name, clusters: on.world.clusters, figure, against, ratio, met: goal.met(figure, ratio), goal }
}

/// The same work as later, not counted.
fn settle(world: &mut World, duration: Duration) -> Result<(), Failed> {
    let begin = Instant::now();
    while begin.elapsed() < duration {
        world.signals(ENTRIES_PER_ROUND)?;
        world.idle_ticks(ENTRIES_PER_ROUND)?;
    }
    Ok(())
}

/// How long it takes on the average to find a name.
fn look_up(names: &BTreeMap<String, u32>, round: usize) -> Duration {
    let count = names.len() as u64;
    let first = round as u64 * u64::from(LOOKUPS_PER_ROUND);
    let wanted: Vec<String> = (first..first + u64::from(LOOKUPS_PER_ROUND))
        .map(|number| format!("cluster-{:06}", mix(number) % count.max(1)))
        .collect();
    let begin = Stopwatch::start();
    for name in &wanted {
        black_box(names.get(black_box(name)));
    }
    begin.elapsed() / LOOKUPS_PER_ROUND
}

/// On a terminal only.
fn bar(console: &Console, length: u64, look: &str) -> ProgressBar {
    if !console.watched {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(look).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}

//! The same world in small: a [`Script`] says every call and every fault, so that one that fails can be made shorter.
//!
//! - [`steps`] is what a script consists of;
//! - [`chance`] makes scripts up, with proptest, and shortens one that fails to what is needed to fail.
//!
//! A script runs as a seed does: [`plan_of`] and [`Script::deeds`] put it into the terms of [`crate::run`], so the wiring, the
//! network, the disks, the backend, the healing and the invariants are those of every run. Only what a seed would throw for
//! users and faults is written down instead.

pub mod chance;
pub mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use self::steps::{Step, What};
use crate::calls::Call;
use crate::faults::{Deed, Family};
use crate::plan::{BackendPlan, Plan};
use crate::run::{Outcome, run_with};
use crate::trace::Tracing;

/// When the first step may come: a group that is left alone has a leader by then, and its users have begun.
const BEGIN: Duration = Duration::from_millis(1_500);
/// Users of a script; each makes one call after the other.
pub const USERS: usize = 2;

/// A world and what happens in it, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// For what is still left to chance: which message takes how long, which node stands for election first.
    pub seed: u64,
    pub nodes: usize,
    pub clusters: usize,
    pub snapshot_every: u64,
    pub keep_entries: u64,
    pub lies: Lies,
    pub steps: Vec<Step>,
}

/// How the backend of a script lies, for as long as it runs. Percentages are of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lies {
    pub unanswered_percent: u64,
    pub lost_percent: u64,
    pub refused_percent: u64,
    pub cannot_fence: bool,
}

impl Script {
    /// Each step with its time.
    fn timed(&self) -> impl Iterator<Item = (Duration, &What)> {
        self.steps.iter().scan(BEGIN, |at, step| {
            *at += step.after;
            Some((*at, &step.what))
        })
    }

    /// What is done to the world, and undone, in order of time.
    pub fn deeds(&self) -> Vec<(Duration, Deed)> {
        let mut deeds = Vec::new();
        for (at, what) in self.timed() {
            let What::Fault { fault, lasts } = what else { continue };
            let (begin, end) = fault.deeds(self.nodes, LATENCY.1);
            deeds.extend(begin.into_iter().map(|deed| (at, deed)));
            deeds.extend(end.into_iter().map(|deed| (at + *lasts, deed)));
        }
        // Of two at one time the order of the steps stays.
        deeds.sort_by_key(|(at, _)| *at);
        deeds
    }

    /// What each user does, by name.
    fn calls(&self) -> BTreeMap<String, Vec<(Duration, Call)>> {
        let mut calls: BTreeMap<String, Vec<(Duration, Call)>> =
            (1..=USERS).map(|user| (format!("u{user}"), Vec::new())).collect();
        for (at, what) in self.timed() {
            let What::Call { user, call } = what else { continue };
            calls.entry(format!("u{}", user % USERS + 1)).or_default().push((at, call.clone()));
        }
        calls
    }

    fn families(&self) -> BTreeSet<Family> {
        let faults = self.steps.iter().filter_map(|step| match &step.what {
            What::Fault { fault, .. } => Some(fault.family()),
            What::Call { .. } => None,
        });
        let lies = [
            (self.lies.unanswered_percent > 0, Family::BackendUnanswered),
            (self.lies.lost_percent > 0, Family::BackendLoses),
            (self.lies.refused_percent > 0, Family::BackendRefuses),
        ];
        faults.chain(lies.into_iter().filter(|(on, _)| *on).map(|(_, family)| family)).collect()
    }
}

const LATENCY: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(4));

/// A script in the terms of a run.
pub fn plan_of(script: &Script) -> Plan {
    let end = script.timed().last().map_or(BEGIN, |(at, _)| at);
    let last = script.deeds().last().map_or(end, |(at, _)| *at);
    Plan {
        founders: script.nodes,
        machines: script.nodes,
        snapshot_every: script.snapshot_every,
        keep_entries: script.keep_entries,
        latency: LATENCY,
        users: USERS,
        clusters: script.clusters,
        // The last fault is undone before the world heals, and there is time to do what the last call asked for.
        chaos: (BEGIN, end.max(last) + Duration::from_millis(500)),
        families: script.families(),
        backend: BackendPlan {
            unanswered_percent: script.lies.unanswered_percent,
            lost_percent: script.lies.lost_percent,
            refused_percent: script.lies.refused_percent,
            fences: !script.lies.cannot_fence,
            ..BackendPlan::default()
        },
        patient: false,
        calls: script.calls(),
        ..Plan::of(script.seed)
    }
}

/// Runs a script to its end, on a thread with enough stack. Nothing if there was no such thread.
pub fn run(script: &Script, tracing: Tracing) -> Option<Outcome> {
    let (plan, deeds) = (plan_of(script), script.deeds());
    crate::batch::on_a_thread("script".to_owned(), move || run_with(&plan, deeds, tracing))
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Script { seed, nodes, clusters, snapshot_every, keep_entries, lies, steps } = self;
        writeln!(f, "nodes     {nodes}; a snapshot every {snapshot_every} entries, {keep_entries} kept behind it")?;
        writeln!(f, "clusters  {clusters}, with a target_size each")?;
        writeln!(
            f,
            "backend   unanswered {}%, lost {}%, refused {}%, {}",
            lies.unanswered_percent,
            lies.lost_percent,
            lies.refused_percent,
            if lies.cannot_fence { "cannot fence" } else { "fences" },
        )?;
        writeln!(f, "chances   of seed {seed}")?;
        for (number, ((at, what), _)) in self.timed().zip(steps).enumerate() {
            write!(f, "{:>4}. {:>7.3} s  ", number + 1, at.as_secs_f64())?;
            match what {
                What::Call { user, call } => writeln!(f, "u{}: {call}", user % USERS + 1)?,
                What::Fault { fault, lasts } => {
                    let (begin, end) = fault.deeds(*nodes, LATENCY.1);
                    let words: Vec<String> = begin.iter().map(ToString::to_string).collect();
                    let lasts = if end.is_empty() { String::new() } else { format!(", for {lasts:?}") };
                    writeln!(f, "{}{lasts}", words.join(", "))?;
                }
            }
        }
        writeln!(f, "      then nothing goes wrong any more")
    }
}

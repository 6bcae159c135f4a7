//! Many seeds, on several threads.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::invariants::Violation;
use crate::plan::Plan;
use crate::run::{Outcome, run};

/// Each seed has a thread to itself; so many run at a time.
const THREADS: usize = 2;
/// Futures of a build without optimisation are large, and nested.
const STACK_BYTES: usize = 256 << 20;

/// What came of a batch.
#[derive(Debug, Default)]
pub struct Tally {
    pub seeds: u64,
    pub failed: Vec<Outcome>,
    pub simulated: Duration,
    pub took: Duration,
}

impl Tally {
    pub fn seeds_per_minute(&self) -> f64 {
        self.seeds as f64 / self.took.as_secs_f64().max(0.001) * 60.0
    }

    pub fn simulated_per_second(&self) -> f64 {
        self.simulated.as_secs_f64() / self.took.as_secs_f64().max(0.001)
    }
}

/// When to stop before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    TheEnd,
    FirstFailure,
    /// No new seed is begun after so long, once so many have been.
    Elapsed {
        most: Duration,
        at_least: u64,
    },
}

/// Runs `count` seeds from `first` on, and tells of each as it ends.
pub fn batch(first: u64, count: u64, until: Until, tell: impl Fn(&Outcome) + Sync) -> Tally {
    let began = Instant::now();
    let next = AtomicU64::new(first);
    let stop = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let end = first.saturating_add(count);
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let too_late = match until {
            Until::Elapsed { most, at_least } => began.elapsed() > most && seed - first >= at_least,
            Until::TheEnd | Until::FirstFailure => false,
        };
        if seed >= end || too_late || stop.load(Ordering::Relaxed) {
            return;
        }
        // On a thread of its own: what a seed leaves behind in a thread must not steer the next one.
        let outcome = one(Plan::of(seed), false).unwrap_or_else(|| died(seed));
        tell(&outcome);
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.seeds += 1;
        tally.simulated += outcome.took;
        if outcome.violation.is_some() {
            tally.failed.push(outcome);
            if until == Until::FirstFailure {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(work);
        }
    });
    let mut tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
    tally.took = began.elapsed();
    tally.failed.sort_by_key(|outcome| outcome.seed);
    tally
}

/// One seed on a thread with enough stack.
pub fn one(plan: Plan, with_trace: bool) -> Option<Outcome> {
    on_a_thread(format!("seed {}", plan.seed), move || run(&plan, with_trace))
}

/// What is said of a seed that had no thread, or whose thread is gone.
fn died(seed: u64) -> Outcome {
    let what = "its thread died".to_owned();
    let violation = Some(Violation { invariant: "no-panic", at: Duration::ZERO, what });
    Outcome { seed, violation, took: Duration::ZERO, sightings: 0, trace: Vec::new() }
}

/// A run on a thread that has enough stack for it, and that nothing is left of afterwards. Its name is in what a panic says:
/// one that comes while a world is being taken down ends the process, and that is all there is to read then.
pub(crate) fn on_a_thread(name: String, run: impl FnOnce() -> Outcome + Send + 'static) -> Option<Outcome> {
    let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(run).ok()?;
    thread.join().ok()
}

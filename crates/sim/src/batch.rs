//! Many seeds, on several threads. How one of them is run is up to whoever asks: on a thread, or in a process of its own.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::invariants::{NO_PANIC, Violation};
use crate::plan::Plan;
use crate::run::{Outcome, run};
use crate::trace::Tracing;

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
    /// The most bytes that one of them had allocated.
    pub allocated: usize,
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

/// Runs `count` seeds from `first` on, each by `one`, and tells of each as it ends.
pub fn batch(
    first: u64,
    count: u64,
    until: Until,
    one: impl Fn(u64) -> Outcome + Sync,
    tell: impl Fn(&Outcome) + Sync,
) -> Tally {
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
        let outcome = one(seed);
        tell(&outcome);
        let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.seeds += 1;
        tally.simulated += outcome.took;
        tally.allocated = tally.allocated.max(outcome.allocated);
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

/// One seed on a thread of its own, with enough stack: what a seed leaves behind in a thread must not steer the next one.
pub fn one(plan: Plan, tracing: Tracing) -> Outcome {
    let seed = plan.seed;
    let ran = on_a_thread(format!("seed {seed}"), move || run(&plan, tracing));
    ran.unwrap_or_else(|| died(seed, "its thread died".to_owned()))
}

/// What is said of a seed that had no thread or process, or whose is gone.
pub fn died(seed: u64, what: String) -> Outcome {
    let violation = Some(Violation { invariant: NO_PANIC, at: Duration::ZERO, what });
    Outcome { seed, violation, took: Duration::ZERO, sightings: 0, allocated: 0, trace: Vec::new() }
}

/// A run on a thread that has enough stack for it, and that nothing is left of afterwards. Its name is in what a panic says:
/// one that comes while a world is being taken down ends the process, and that is all there is to read then.
pub(crate) fn on_a_thread(name: String, run: impl FnOnce() -> Outcome + Send + 'static) -> Option<Outcome> {
    let thread = std::thread::Builder::new().name(name).stack_size(STACK_BYTES).spawn(run).ok()?;
    thread.join().ok()
}

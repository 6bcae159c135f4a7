//! Scripts by chance, and the shortest of those that fail.
//!
//! Everything shrinks towards less: fewer steps, fewer nodes and clusters, an honest backend, no time between steps. Parts are
//! made independently of each other: what is made from another part cannot be shortened without throwing it all anew.

use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use super::steps::{Fault, Nodes, Step, What};
use super::{Lies, Script, USERS};
use crate::calls::{Call, Sign};
use crate::dice::Dice;
use crate::invariants::{NO_PANIC, Violation};
use crate::trace::Tracing;
use crate::workload::SIZES;

/// A script that fails, as short as it could be made.
#[derive(Debug)]
pub struct Found {
    pub script: Script,
    pub violation: Violation,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Violation { invariant, at, what } = &self.violation;
        write!(f, "{}at {:.3} s: {invariant}: {what}", self.script, at.as_secs_f64())
    }
}

/// How long it is looked for, and from where.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    pub cases: u32,
    /// The same seed makes the same scripts.
    pub seed: u64,
    /// How many shorter scripts are tried.
    pub shrinks_max: u32,
    /// Only worlds of up to so many nodes.
    pub nodes_max: usize,
}

impl Search {
    /// Runs scripts until one fails, then shorter ones for as long as they fail, too.
    pub fn run(self) -> Result<(), Box<Found>> {
        let config = Config {
            cases: self.cases,
            max_shrink_iters: self.shrinks_max,
            failure_persistence: None,
            ..Config::default()
        };
        let mut dice = Dice::of(self.seed, "small");
        let mut seed = [0; 32];
        seed.iter_mut().for_each(|byte| *byte = u8::try_from(dice.below(256)).unwrap_or(0));
        let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let failing = runner.run(&scripts(self.nodes_max), |script| match failure(&script) {
            None => Ok(()),
            Some(violation) => Err(TestCaseError::fail(violation.what)),
        });
        let script = match failing {
            Ok(()) => return Ok(()),
            Err(TestError::Fail(_, script)) => script,
            // No script is ever turned down, so this is proptest itself.
            Err(TestError::Abort(why)) => {
                let violation =
                    Violation { invariant: "no-panic", at: Duration::ZERO, what: format!("proptest stopped: {why}") };
                return Err(Box::new(Found { script: nothing(), violation }));
            }
        };
        let violation = failure(&script).unwrap_or_else(|| Violation {
            invariant: "same-seed",
            at: Duration::ZERO,
            what: "it failed, and once more it does not".to_owned(),
        });
        Err(Box::new(Found { script, violation }))
    }
}

fn failure(script: &Script) -> Option<Violation> {
    match super::run(script, Tracing::Off) {
        Some(outcome) => outcome.violation,
        None => {
            let what = "there was no thread to run it on".to_owned();
            Some(Violation { invariant: NO_PANIC, at: Duration::ZERO, what })
        }
    }
}

fn nothing() -> Script {
    Script {
        seed: 0,
        nodes: 1,
        clusters: 1,
        snapshot_every: 20,
        keep_entries: 1,
        lies: Lies::default(),
        steps: Vec::new(),
    }
}

/// In worlds of up to so many nodes.
pub fn scripts(nodes_max: usize) -> impl Strategy<Value = Script> {
    let entries = (select(vec![20_u64, 60, 1_000]), select(vec![1_u64, 10, 200]));
    // Three nodes are what is meant to be run, and where most is to be found.
    let sizes = [1, 2, 3, 3, 3, 3, 3, 4, 5];
    let nodes = select(sizes.into_iter().filter(|nodes| *nodes == 1 || *nodes <= nodes_max).collect::<Vec<usize>>());
    (0..1_000_u64, nodes, 1..4_usize, entries, lies(), proptest::collection::vec(step(), 0..16)).prop_map(
        |(seed, nodes, clusters, (snapshot_every, keep_entries), lies, steps)| Script {
            seed,
            nodes,
            clusters,
            snapshot_every,
            keep_entries,
            lies,
            steps,
        },
    )
}

fn lies() -> impl Strategy<Value = Lies> {
    // An honest one is the simplest, so it comes first.
    let percent = || prop_oneof![2 => Just(0_u64), 1 => 1..20_u64];
    let cannot_fence = prop_oneof![4 => Just(false), 1 => Just(true)];
    (percent(), percent(), percent(), cannot_fence).prop_map(
        |(unanswered_percent, lost_percent, refused_percent, cannot_fence)| Lies {
            unanswered_percent,
            lost_percent,
            refused_percent,
            cannot_fence,
        },
    )
}

fn millis(range: std::ops::Range<u64>) -> impl Strategy<Value = Duration> {
    range.prop_map(Duration::from_millis)
}

fn step() -> impl Strategy<Value = Step> {
    let call = (0..USERS, call()).prop_map(|(user, call)| What::Call { user, call });
    let fault = (fault(), millis(10..2_500)).prop_map(|(fault, lasts)| What::Fault { fault, lasts });
    let what = prop_oneof![3 => call, 2 => fault];
    (millis(0..1_200), what).prop_map(|(after, what)| Step { after, what })
}

fn call() -> impl Strategy<Value = Call> {
    let cluster = || 0..5_usize;
    let size = || select(SIZES.map(|(name, _)| name).to_vec());
    let sign = prop_oneof![
        proptest::option::of(0..5_000_u64).prop_map(|idle_for_ms| Sign::Activity { idle_for_ms }),
        Just(Sign::Alive),
    ];
    prop_oneof![
        2 => cluster().prop_map(|cluster| Call::Read { cluster }),
        2 => cluster().prop_map(|cluster| Call::CreateCluster { cluster }),
        2 => (cluster(), size()).prop_map(|(cluster, size)| Call::CreateTargetSize { cluster, size }),
        4 => (cluster(), size()).prop_map(|(cluster, size)| Call::Resize { cluster, size }),
        2 => (cluster(), any::<bool>()).prop_map(|(cluster, cascade)| Call::DropCluster { cluster, cascade }),
        2 => (cluster(), cluster()).prop_map(|(cluster, to)| Call::Rename { cluster, to }),
        2 => cluster().prop_map(|cluster| Call::CreateIdleSuspend { cluster }),
        1 => (cluster(), select(vec!["target_size", "idle_suspend"]))
            .prop_map(|(cluster, kind)| Call::DropStrategy { cluster, kind }),
        2 => any::<bool>().prop_map(|enabled| Call::KillSwitch { enabled }),
        3 => (cluster(), sign).prop_map(|(cluster, seen)| Call::Report { cluster, seen }),
    ]
}

fn fault() -> impl Strategy<Value = Fault> {
    let nodes = || (1..32_u8).prop_map(Nodes);
    let nth = || 1..60_u64;
    prop_oneof![
        4 => (nodes(), any::<bool>()).prop_map(|(nodes, lose_power)| Fault::Kill { nodes, lose_power }),
        2 => nodes().prop_map(|nodes| Fault::Pause { nodes }),
        3 => (nodes(), any::<bool>()).prop_map(|(nodes, both_ways)| Fault::Cut { nodes, both_ways }),
        1 => millis(20..250).prop_map(|max| Fault::Latency { max }),
        1 => (nodes(), -3_600_000..3_600_000_i64).prop_map(|(nodes, millis)| Fault::ClockJump { nodes, millis }),
        1 => (nodes(), millis(1..400)).prop_map(|(nodes, takes)| Fault::SlowDisk { nodes, takes }),
        1 => (nodes(), nth()).prop_map(|(nodes, nth)| Fault::FailSync { nodes, nth }),
        2 => (nodes(), nth()).prop_map(|(nodes, nth)| Fault::CutPowerAt { nodes, nth }),
        1 => (nodes(), 0..200_000_u64).prop_map(|(nodes, bytes)| Fault::DiskRoom { nodes, bytes }),
        1 => Just(Fault::BackendGone),
    ]
}

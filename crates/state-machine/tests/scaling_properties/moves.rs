//! What people, collectors and backends may do, drawn at random.

use loadline_state_machine::{
    ClusterRef, ClusterReport, Command, NodeNumber, NoticeKind, Observation, Options, Outcome, Report, Seen, Span,
    StrategyKind, TargetName,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::common;

pub(crate) const CLUSTERS: [&str; 4] = ["a", "b", "ab", "c"];
pub(crate) const SIZES: [&str; 3] = ["1", "2", "3"];
const REPLICAS: [&str; 6] = ["r1_auto", "main", "burst_auto", "1_auto", "2_auto", "x_auto"];

/// What somebody does. Where it needs an action, it says which of those there are.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Command(Command),
    Report {
        collector: String,
        repeated: bool,
        clusters: Vec<ClusterReport>,
    },
    /// Claims the action that is next, or another one, under the current epoch or an old one.
    Claim {
        pick: usize,
        in_turn: bool,
        stale: bool,
    },
    Outcome {
        pick: usize,
        outcome: Outcome,
        stale: bool,
    },
    Approve {
        pick: usize,
        yes: bool,
    },
    /// An operator deals with an unsettled action, or with one that was given up.
    ByHand {
        pick: usize,
        letter: bool,
        verb: Verb,
    },
    /// Every action is done at once, and every new replica seen, as a backend in good health would.
    Work {
        steps: usize,
    },
    /// Somebody sets what a strategy remembers, or deletes the rows of settled actions.
    Rows {
        pick: usize,
        deletes: bool,
    },
    /// One action fails as often as it may be tried; somebody is impatient about it.
    Fail,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb {
    Retry,
    Resolve { succeeded: bool },
    Abandon,
}

fn word(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(words.to_vec()).prop_map(str::to_owned)
}

fn target() -> impl Strategy<Value = TargetName> {
    prop_oneof![
        4 => word(&CLUSTERS).prop_map(TargetName::Cluster),
        2 => word(&["a%", "%b", "_", "%", "c\\%"]).prop_map(TargetName::Pattern),
        1 => Just(TargetName::All),
    ]
}

fn kind() -> impl Strategy<Value = StrategyKind> {
    prop_oneof![
        4 => select(vec![
            StrategyKind::TargetSize,
            StrategyKind::ShrinkToFit,
            StrategyKind::Burst,
            StrategyKind::IdleSuspend,
        ]),
        1 => select(vec![StrategyKind::TargetTracking, StrategyKind::QueueDepth]),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let size = || select(vec!["1", "2", "2", "3", "5"]);
    let common = (
        proptest::option::of(select(vec![0_i64, 20, 60, 600])),
        proptest::option::weighted(0.2, any::<bool>()),
        proptest::option::weighted(0.3, select(vec!["ALL", "MANAGED_ONLY"])),
        proptest::option::weighted(0.1, Just(true)),
        proptest::option::weighted(0.2, select(vec!["auto", "manual"])),
    );
    let own = (size(), select(vec!["r1_auto", "main", "x_auto"]), select(vec![1_i64, 60, 300]), 1..3_i64);
    (common, own).prop_map(|((cooldown, enabled, scope, dry_run, approval), (size, name, idle, count))| {
        let mut options = Options::default();
        if let Some(cooldown) = cooldown {
            options.set("cooldown_s", cooldown);
        }
        if let Some(enabled) = enabled {
            options.set("enabled", enabled);
        }
        if let Some(scope) = scope {
            options.set("replica_scope", scope);
        }
        if let Some(dry_run) = dry_run {
            options.set("dry_run", dry_run);
        }
        if let Some(approval) = approval {
            options.set("approval", approval);
        }
        options.with("#size", size).with("#name", name).with("#idle", idle).with("#count", count)
    })
}

/// The options that a strategy of this kind takes, of those that were drawn.
fn fitting(kind: StrategyKind, drawn: &Options) -> Options {
    let mut options: Options =
        drawn.iter().filter(|(key, _)| !key.starts_with('#')).map(|(key, value)| (key, value.clone())).collect();
    let take = |key: &str| drawn.get(key).cloned().expect("it was drawn");
    match kind {
        StrategyKind::TargetSize => {
            options.set("size", take("#size"));
            options.set("replica_name", take("#name"));
        }
        StrategyKind::ShrinkToFit => {
            options.set("max_size", take("#size"));
            options.set("min_crash_count", take("#count"));
            options.set("crash_window_s", 120);
        }
        StrategyKind::Burst => options.set("burst_size", take("#size")),
        StrategyKind::IdleSuspend => options.set("idle_after_s", take("#idle")),
        StrategyKind::TargetTracking => {
            options.set("size", take("#size"));
            options.set("max_replicas", 3);
            options.set("min_replicas", 0);
            options.set("signals", "cpu value 1; load average 10");
            options.set("stabilization_down_s", take("#idle"));
        }
        StrategyKind::QueueDepth => {
            options.set("size", take("#size"));
            options.set("max_replicas", 4);
            options.set("depth_signal", "load");
        }
    }
    options
}

fn seen() -> impl Strategy<Value = Seen> {
    let replica = || word(&REPLICAS);
    let life = || proptest::option::of(word(&["i-1", "i-2"]));
    prop_oneof![
        2 => Just(Seen::Alive),
        4 => proptest::option::weighted(0.8, select(vec![0_u64, 0, 30, 1_000]))
            .prop_map(|idle| Seen::Activity { idle_for: idle.map(Span::from_secs) }),
        4 => (replica(), word(&SIZES), life(), any::<bool>())
            .prop_map(|(name, size, incarnation, ready)| Seen::Replica { name, size, incarnation, ready }),
        2 => (replica(), life()).prop_map(|(name, incarnation)| Seen::ReplicaGone { name, incarnation }),
        6 => (replica(), select(vec![(0, 0), (3, 1), (3, 3), (3, 3)]))
            .prop_map(|(replica, (total, hydrated))| Seen::Hydration { replica, total, hydrated }),
        2 => (replica(), any::<bool>(), 1..3_u64)
            .prop_map(|(replica, oom, count)| Seen::Crash { replica, oom, reason: "killed".to_owned(), count }),
        3 => (word(&["cpu", "load"]), select(vec![0_i64, 500, 1_000, 3_000, 45_000]))
            .prop_map(|(name, value_milli)| Seen::Metric { name, value_milli }),
        3 => replica().prop_map(|replica| Seen::Notice { replica, kind: NoticeKind::Spot, gone_in: None }),
    ]
}

fn report() -> impl Strategy<Value = Move> {
    let observation = (prop_oneof![4 => Just(0_u64), 1 => 0..200_000_u64], seen())
        .prop_map(|(age, seen)| Observation { age: Span::from_millis(age), seen });
    let cluster = (word(&CLUSTERS), vec(observation, 0..6))
        .prop_map(|(name, observations)| ClusterReport { cluster: ClusterRef::Name(name), observations });
    (word(&["watcher", "other"]), proptest::bool::weighted(0.1), vec(cluster, 1..3))
        .prop_map(|(collector, repeated, clusters)| Move::Report { collector, repeated, clusters })
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let reason = || "because".to_owned();
    prop_oneof![
        6 => Just(Outcome::Succeeded { report: Report::Nothing }),
        2 => Just(Outcome::Succeeded { report: Report::Created { incarnation: Some("i-1".to_owned()) } }),
        2 => proptest::bool::weighted(0.7).prop_map(move |retryable| Outcome::Failed { retryable, reason: reason() }),
        1 => Just(Outcome::Unknown { reason: reason() }),
    ]
}

fn flag() -> impl Strategy<Value = Command> {
    (select(vec!["enable_auto_scaling", "auto_scaling_enabled"]), select(vec!["true", "true", "false"]))
        .prop_map(|(name, value)| common::set(name, value))
}

fn a_move() -> impl Strategy<Value = Move> {
    let command = prop_oneof![
        3 => word(&CLUSTERS).prop_map(|name| Command::CreateCluster { name }),
        1 => word(&CLUSTERS).prop_map(|name| Command::DropCluster { name, etag: None, allow_missing: false }),
        1 => word(&CLUSTERS).prop_map(|name| Command::DropClusterCascade { name, etag: None, allow_missing: false }),
        1 => (word(&CLUSTERS), word(&CLUSTERS)).prop_map(|(name, to)| Command::RenameCluster { name, to, etag: None }),
        6 => (target(), kind(), options()).prop_map(|(target, kind, drawn)| {
            let options = fitting(kind, &drawn);
            Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false }
        }),
        2 => (target(), kind(), options(), any::<bool>()).prop_map(|(target, kind, drawn, unchecked)| {
            let options = fitting(kind, &drawn);
            Command::ChangeStrategy { target, kind, options, reset: vec![], etag: None, unchecked }
        }),
        1 => (target(), kind())
            .prop_map(|(target, kind)| Command::DropStrategy { target, kind, etag: None, allow_missing: false }),
        1 => word(&SIZES).prop_map(|name| Command::DropSize { name, etag: None, allow_missing: true }),
        1 => word(&SIZES).prop_map(|name| common::create_size(&name, None)),
        1 => flag(),
        1 => (word(&CLUSTERS), proptest::option::of(1..600_u64)).prop_map(|(cluster, secs)| Command::PauseCluster {
            cluster,
            reason: String::new(),
            expires_in: secs.map(Span::from_secs),
        }),
        1 => word(&CLUSTERS).prop_map(|cluster| Command::ResumeCluster { cluster }),
        2 => (word(&CLUSTERS), word(&["main", "mine", "x_auto"]), word(&SIZES)).prop_map(|(cluster, replica, size)| {
            Command::CreateReplica { cluster, replica, size, if_not_exists: false }
        }),
        1 => (word(&CLUSTERS), word(&REPLICAS))
            .prop_map(|(cluster, replica)| Command::DropReplica { cluster, replica, allow_missing: false }),
        1 => (1..4_u64, 0..9_u64)
            .prop_map(|(node, term)| Command::AnnounceLeader { node: NodeNumber(node), term }),
        1 => Just(Command::Tick),
        1 => (word(&CLUSTERS), proptest::option::of(word(&["sim", "other"])))
            .prop_map(|(name, backend)| Command::PlaceCluster { name, backend, etag: None }),
        1 => select(vec!["sim", "sim", "other", ""]).prop_map(|name| common::set("default_backend", name)),
    ];
    let verb = select(vec![
        Verb::Retry,
        Verb::Retry,
        Verb::Resolve { succeeded: true },
        Verb::Resolve { succeeded: false },
        Verb::Abandon,
    ]);
    prop_oneof![
        10 => command.prop_map(Move::Command),
        8 => report(),
        3 => (any::<usize>(), proptest::bool::weighted(0.6), proptest::bool::weighted(0.1))
            .prop_map(|(pick, in_turn, stale)| Move::Claim { pick, in_turn, stale }),
        3 => (any::<usize>(), outcome(), proptest::bool::weighted(0.1))
            .prop_map(|(pick, outcome, stale)| Move::Outcome { pick, outcome, stale }),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(pick, yes)| Move::Approve { pick, yes }),
        2 => (any::<usize>(), any::<bool>(), verb)
            .prop_map(|(pick, letter, verb)| Move::ByHand { pick, letter, verb }),
        5 => (1..10_usize).prop_map(|steps| Move::Work { steps }),
        1 => Just(Move::Fail),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(pick, deletes)| Move::Rows { pick, deletes }),
    ]
}

/// Moves, and how much time passes before each.
pub(crate) fn history() -> impl Strategy<Value = Vec<(u64, Move)>> {
    let pause = prop_oneof![5 => Just(0_u64), 3 => 0..40_000_u64, 1 => 0..1_200_000_u64];
    vec((pause, a_move()), 1..80)
}

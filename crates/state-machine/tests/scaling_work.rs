//! How much work one entry does: what changed, in bounded portions, the oldest first.

use crate::common;
use crate::common::{World, create_cluster, create_size, set};
use loadline_state_machine::{
    Applied, ClusterId, ClusterRef, ClusterReport, Command, Entry, Event, NodeNumber, Observation, Options, Sealed,
    Seen, Span, StrategyKind, TargetName, apply,
};

/// As many clusters as one entry looks at.
const PORTION: usize = 256;

fn world(clusters: usize) -> World {
    let mut world = World::new();
    world.must(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
    world.must(set("enable_auto_scaling", "true"));
    world.must(create_size("1", None));
    world.must(create_size("2", None));
    for number in 0..clusters {
        world.must(create_cluster(&format!("c{number:05}")));
    }
    world
}

fn target_size(target: TargetName, size: &str) -> Command {
    let options = Options::from([("size", size)]);
    Command::CreateStrategy { target, kind: StrategyKind::TargetSize, options, if_not_exists: false, unchecked: false }
}

fn idle_suspend() -> Command {
    let options = Options::from([("idle_after_s", 300)]);
    let (target, kind) = (TargetName::All, StrategyKind::IdleSuspend);
    Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false }
}

fn one(world: &mut World, command: Command) -> Applied {
    let requests = vec![common::anonymous(vec![command])];
    let sealed = Sealed::seal(Entry { stamped_at: world.time, requests });
    let index = world.next_index();
    apply(&mut world.state, index, &sealed)
}

fn decided(applied: &Applied) -> Vec<ClusterId> {
    let decision = |event: &Event| match event {
        Event::DecisionMade { decision } => Some(decision.cluster),
        _ => None,
    };
    applied.events.iter().filter_map(decision).collect()
}

fn report(sequence: u64, clusters: impl Iterator<Item = String>, seen: &Seen) -> Command {
    let observation = Observation { age: Span::default(), seen: seen.clone() };
    let report = |name| ClusterReport { cluster: ClusterRef::Name(name), observations: vec![observation.clone()] };
    Command::ReportSignals { collector: "watcher".to_owned(), sequence, clusters: clusters.map(report).collect() }
}

fn name(number: usize) -> String {
    format!("c{number:05}")
}

#[test]
fn a_change_for_all_clusters_is_worked_off_in_portions() {
    let mut world = world(1_000);
    let mut all = Vec::new();
    let mut applied = one(&mut world, target_size(TargetName::All, "1"));
    for left in [744, 488, 232, 0] {
        let mut portion = decided(&applied);
        assert!(portion.len() <= PORTION);
        assert!(portion.is_sorted(), "in the order of their ids");
        all.append(&mut portion);
        assert_eq!(all.len(), 1_000 - left);
        assert_eq!(world.state.evaluations_wait(), left > 0, "whoever ticks knows that there is more to do");
        world = world.through_snapshot();
        applied = one(&mut world, Command::Tick);
    }
    assert!(applied.events.is_empty(), "and then there is nothing left");
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 1_000, "every cluster once");
}

#[test]
fn a_report_about_many_clusters_is_worked_off_in_portions_and_none_is_forgotten() {
    let mut world = world(600);
    one(&mut world, idle_suspend());
    while world.state.evaluations_wait() {
        world.must(Command::Tick);
    }
    let seen = Seen::Activity { idle_for: Some(Span::from_secs(10)) };
    let first = decided(&one(&mut world, report(1, (0..600).map(name), &seen)));
    assert_eq!(first.len(), PORTION);
    let second = decided(&one(&mut world, Command::Tick));
    let third = decided(&one(&mut world, Command::Tick));
    assert_eq!((second.len(), third.len()), (PORTION, 600 - 2 * PORTION));
    let mut all = [first, second, third].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 600);
    assert!(!world.state.evaluations_wait());
}

#[test]
fn a_flood_of_signals_for_one_cluster_is_one_decision_and_delays_nobody() {
    let mut world = world(3);
    one(&mut world, idle_suspend());
    let observations: Vec<Observation> = (0..10_000)
        .map(|number| {
            let seen = match number % 3 {
                0 => Seen::Replica { name: "r1".to_owned(), size: "1".to_owned(), incarnation: None, ready: true },
                1 => Seen::Hydration { replica: "r1".to_owned(), total: 10_000, hydrated: number },
                _ => Seen::Crash { replica: "r1".to_owned(), oom: false, reason: "x".to_owned(), count: 1 },
            };
            Observation { age: Span::default(), seen }
        })
        .collect();
    let flood = ClusterReport { cluster: ClusterRef::Name(name(0)), observations };
    let idle = Observation { age: Span::default(), seen: Seen::Activity { idle_for: None } };
    let other = ClusterReport { cluster: ClusterRef::Name(name(1)), observations: vec![idle] };
    let clusters = vec![flood, other];
    let applied = one(&mut world, Command::ReportSignals { collector: "watcher".to_owned(), sequence: 1, clusters });
    assert_eq!(decided(&applied).len(), 2, "one look at each, however much was said");
    let flooded = world.state.cluster(&name(0)).expect("it is there").id;
    let replica = world.state.standing(flooded).and_then(|it| it.signals().replica("r1").cloned());
    let crashes = replica.expect("it was seen").crashes;
    assert!(crashes.len() <= 16, "the flood is counted, not kept");
    assert_eq!(crashes.iter().map(|crash| crash.count).sum::<u64>(), 3_333);
}

/// The required scenario of an event flood: ticks go on, deadlines are met, and nobody else waits.
#[test]
fn scenario_6_a_flood_of_events_starves_neither_ticks_nor_other_clusters() {
    let mut world = world(3);
    one(&mut world, idle_suspend());
    let seen = [
        Seen::Replica { name: "r1".to_owned(), size: "1".to_owned(), incarnation: None, ready: true },
        Seen::Activity { idle_for: Some(Span::from_secs(280)) },
    ];
    for (sequence, seen) in (1..).zip(&seen) {
        world.must(report(sequence, std::iter::once(name(1)), seen));
    }
    // The other cluster is idle in twenty seconds. A thousand entries about the first one come before that, and after.
    let mut due = None;
    for sequence in 3..2_003_u64 {
        world.pass_time(Span::from_millis(20));
        let seen = match sequence % 2 {
            0 => Seen::Hydration { replica: "r1".to_owned(), total: 9, hydrated: sequence % 9 },
            _ => Seen::Crash { replica: "r1".to_owned(), oom: true, reason: "x".to_owned(), count: 1 },
        };
        let applied = one(&mut world, report(sequence, std::iter::once(name(0)), &seen));
        let others =
            decided(&applied).into_iter().filter(|id| Some(*id) == world.state.cluster(&name(1)).map(|it| it.id));
        if others.count() > 0 {
            due.get_or_insert((sequence, applied.time));
        }
        assert!(decided(&applied).len() <= 2, "an entry looks at what it touched and what is due, and at nothing else");
        assert!(!world.state.evaluations_wait(), "nothing is left behind");
    }
    // 280 s idle, and 300 s and a millisecond after the last use it is too long.
    let (sequence, at) = due.expect("the other cluster was looked at when it was due");
    assert_eq!(sequence, 3 + 1_000, "with the first entry after its deadline, not behind the flood");
    assert_eq!(at, world.time.before(Span::from_millis(999 * 20)));
    assert!(one(&mut world, Command::Tick).events.is_empty(), "a tick in between finds nothing to do");
}

#[test]
fn the_passing_of_time_costs_only_what_it_brings_about() {
    let mut world = world(500);
    one(&mut world, idle_suspend());
    while world.state.evaluations_wait() {
        world.must(Command::Tick);
    }
    let active = Seen::Activity { idle_for: Some(Span::default()) };
    for (sequence, number) in (1..).zip(0..500) {
        world.must(report(sequence, std::iter::once(name(number)), &active));
    }
    while world.state.evaluations_wait() {
        world.must(Command::Tick);
    }
    // Before anything is due nothing happens.
    world.pass_time(Span::from_secs(60));
    assert!(one(&mut world, Command::Tick).events.is_empty());
    // One collector speaks for one cluster; the other 499 go stale, in portions, the oldest first.
    world.must(report(501, std::iter::once(name(7)), &Seen::Alive));
    world.pass_time(Span::from_millis(60_001));
    let first = decided(&one(&mut world, Command::Tick));
    let second = decided(&one(&mut world, Command::Tick));
    assert!(first.len() <= PORTION);
    assert_eq!(first.len() + second.len(), 499);
    assert!(one(&mut world, Command::Tick).events.is_empty());
}

#[test]
fn a_sweep_gets_through_while_deadlines_and_signals_keep_coming() {
    let mut world = world(2_000);
    let mut looked_at = std::collections::BTreeSet::new();
    looked_at.extend(decided(&one(&mut world, target_size(TargetName::All, "1"))));
    let mut entries = 1;
    for (sequence, round) in (1..).zip(1_usize..) {
        // More clusters are touched at every entry than one entry looks at.
        let seen = Seen::Metric { name: "cpu".to_owned(), value_milli: i64::try_from(round).unwrap() };
        let from = round * 300 % 2_000;
        let applied = one(&mut world, report(sequence, (from..from + 300).map(|it| name(it % 2_000)), &seen));
        looked_at.extend(decided(&applied));
        entries += 1;
        if looked_at.len() == 2_000 {
            break;
        }
        assert!(entries < 40, "the sweep starves");
    }
}

#[test]
fn who_is_touched_does_not_wait_behind_all_who_fall_due_at_once() {
    let mut world = world(2_000);
    one(&mut world, idle_suspend());
    let idle = Seen::Activity { idle_for: Some(Span::from_secs(280)) };
    for (sequence, from) in (1..).zip((0..2_000).step_by(200)) {
        world.must(report(sequence, (from..from + 200).map(name), &idle));
    }
    while world.state.evaluations_wait() {
        world.must(Command::Tick);
    }
    // All of them are idle for long enough at the same moment, and just then something is heard of the last one.
    world.pass_time(Span::from_secs(21));
    let last = world.state.cluster(&name(1_999)).expect("it is there").id;
    let longer = Seen::Activity { idle_for: Some(Span::from_secs(400)) };
    let applied = one(&mut world, report(11, std::iter::once(name(1_999)), &longer));
    assert!(decided(&applied).contains(&last), "it is looked at with the entry that speaks of it");
    assert!(world.state.evaluations_wait(), "while most of the others wait for the next ones");
}

#[test]
fn rows_of_actions_are_shown_for_as_long_as_they_are_kept() {
    let mut world = world(1);
    world.must(set("auto_scaling_enabled", "false"));
    let applied = one(&mut world, target_size(TargetName::All, "1"));
    let settled = applied.events.iter().find_map(|event| match event {
        Event::ActionSettled { action, .. } => Some(action.clone()),
        _ => None,
    });
    let (row, index) = (settled.expect("it would have been executed"), applied.index);
    assert!(row.settled_at.is_some(), "a settled action has a time");
    assert!(world.state.shows_action(&row, index));
    // Dropping the cluster keeps the rows.
    let drop = Command::DropCluster { name: name(0), etag: None, allow_missing: false };
    world.must(drop);
    assert_eq!(world.state.standing(row.cluster).map(|_| ()), None);
    world.pass_time(Span::from_days(7));
    world.must(Command::Tick);
    assert!(world.state.shows_action(&row, index));
    world.pass_time(Span::from_millis(1));
    world.must(Command::Tick);
    assert!(!world.state.shows_action(&row, index), "a deadline has collected them");
    assert_eq!(world.state.action_history(row.cluster), None);
}

#[test]
fn a_collector_that_says_nothing_for_a_week_is_forgotten() {
    let mut world = world(1);
    world.must(report(9, std::iter::once(name(0)), &Seen::Alive));
    world.pass_time(Span::from_days(4));
    world.must(report(10, std::iter::empty(), &Seen::Alive));
    world.pass_time(Span::from_days(6));
    world.must(Command::Tick);
    assert_eq!(world.state.collector("watcher").map(|it| it.sequence), Some(10), "it was heard six days ago");
    let world_after_snapshot = world.through_snapshot();
    assert_eq!(world_after_snapshot.state, world.state);
    world.pass_time(Span::from_days(1));
    world.must(Command::Tick);
    assert_eq!(world.state.collector("watcher"), None);
}

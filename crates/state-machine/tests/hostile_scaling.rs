//! A state full of strategies, signals and operations, damaged in every bit: it is refused, or it can be worked with.

use crate::common;
use crate::common::{World, create_cluster, create_size, samples, set};
use loadline_state_machine::{
    ActionStatus, ClusterRef, ClusterReport, Command, Entry, Hash, LogIndex, NodeNumber, NoticeKind, Observation,
    Options, Outcome, Report, Sealed, Seen, Span, State, StrategyKind, TargetName, apply,
};

fn seen(world: &mut World, seen: Vec<Seen>) {
    let sequence = world.state.collector("watcher").map_or(1, |known| known.sequence + 1);
    let observations = seen.into_iter().map(|seen| Observation { age: Span::default(), seen }).collect();
    let clusters = vec![ClusterReport { cluster: ClusterRef::Name("demo".to_owned()), observations }];
    world.must(Command::ReportSignals { collector: "watcher".to_owned(), sequence, clusters });
}

/// One operation in the middle of a drop, and one that waits for an approval.
fn a_state() -> State {
    let mut world = World::new();
    world.must(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
    world.must(set("enable_auto_scaling", "true"));
    world.must(set("default_backend", "sim"));
    world.must(create_size("1", None));
    world.must(create_size("2", None));
    world.must(create_cluster("demo"));
    world.must(create_cluster("other"));
    let replica = |name: &str| Seen::Replica {
        name: name.to_owned(),
        size: "1".to_owned(),
        incarnation: Some("i".to_owned()),
        ready: true,
    };
    let hydration = Seen::Hydration { replica: "a".to_owned(), total: 2, hydrated: 1 };
    let crash = Seen::Crash { replica: "a".to_owned(), oom: true, reason: "x".to_owned(), count: 1 };
    let notice = Seen::Notice { replica: "b".to_owned(), kind: NoticeKind::Spot, gone_in: None };
    let metric = Seen::Metric { name: "m".to_owned(), value_milli: 5 };
    let idle = Seen::Activity { idle_for: Some(Span::from_mins(10)) };
    seen(&mut world, vec![replica("a"), replica("b"), hydration, crash, notice, metric, idle, Seen::Alive]);
    let strategy = |target, kind, options| Command::CreateStrategy {
        target,
        kind,
        options,
        if_not_exists: false,
        unchecked: false,
    };
    let all = TargetName::All;
    world.must(strategy(all.clone(), StrategyKind::IdleSuspend, Options::from([("idle_after_s", 60)])));
    let options = Options::from([("size", "2")]).with("approval", "manual");
    world.must(strategy(TargetName::Pattern("o%".to_owned()), StrategyKind::TargetSize, options));
    for drained in [false, true, true] {
        let action = world.state.claimable_actions().next().cloned().expect("there is something to do");
        let epoch = world.state.epoch().expect("a leader was announced");
        world.must(common::claim(&world.state, &action, epoch, 1));
        if drained {
            let outcome = Outcome::Succeeded { report: Report::Nothing };
            if world.state.action(action.id).is_some_and(|it| it.call.code() != "drop_replica") {
                world.must(Command::RecordOutcome { action: action.id, epoch, attempt: 1, outcome });
            }
        } else {
            let outcome = Outcome::Succeeded { report: Report::Nothing };
            world.must(Command::RecordOutcome { action: action.id, epoch, attempt: 1, outcome });
        }
    }
    let pause = Command::PauseCluster { cluster: "demo".to_owned(), reason: "x".to_owned(), expires_in: None };
    world.must(pause);
    let state = world.through_snapshot().state;
    assert!(state.actions().any(|action| action.status.is_in_flight()));
    assert!(state.actions().any(|action| matches!(action.status, ActionStatus::AwaitingApproval { .. })));
    state
}

/// Everything that can be asked, then a long time, then everything again.
fn work_with(mut state: State) {
    if state.applied() == LogIndex(0) || state.applied() > LogIndex(u64::MAX - 10) {
        return;
    }
    assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
    let ids: Vec<_> = state.actions().map(|action| (action.id, action.attempt)).collect();
    let names: Vec<String> = state.clusters_after(None).map(|cluster| cluster.name.clone()).collect();
    let mut requests = vec![samples::scaling_request()];
    if let Some(epoch) = state.epoch() {
        for (action, attempt) in ids {
            let outcome = Outcome::Succeeded { report: Report::Nothing };
            let claim = Command::ClaimAction {
                action,
                epoch,
                attempt: attempt.saturating_add(1),
                backend: "sim".to_owned(),
                parameters: Hash::default(),
            };
            let outcome = Command::RecordOutcome { action, epoch, attempt, outcome };
            requests.extend([claim, outcome, Command::ApproveAction { action }].map(|it| common::anonymous(vec![it])));
        }
    }
    let mut later = state.now();
    for requests in [requests.clone(), vec![], requests] {
        let sealed = Sealed::seal(Entry { stamped_at: later, requests });
        let index = LogIndex(state.applied().0 + 1);
        apply(&mut state, index, &sealed);
        later = later + Span::from_hours(2);
    }
    for name in names {
        if let Some(explanation) = state.explain(&name) {
            assert!(!explanation.lines().is_empty());
        }
    }
    assert_eq!(State::decode(&state.encode()).as_ref(), Ok(&state));
}

#[test]
fn every_flipped_bit_of_a_state_is_refused_or_can_be_worked_with() {
    let bytes = a_state().encode();
    work_with(State::decode(&bytes).expect("undamaged"));
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(state) = State::decode(&flipped) {
            work_with(state);
        }
    }
}

#[test]
fn every_prefix_of_a_state_is_refused_or_can_be_worked_with() {
    let bytes = a_state().encode();
    for end in 0..bytes.len() {
        if let Ok(state) = State::decode(&bytes[..end]) {
            work_with(state);
        }
    }
}

#[test]
fn every_flipped_bit_of_a_request_is_an_error_or_a_request() {
    let bytes = samples::scaling_request().encode();
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(request) = loadline_state_machine::Request::decode(&flipped) {
            let mut state = a_state();
            let index = LogIndex(state.applied().0 + 1);
            let stamped_at = state.now();
            apply(&mut state, index, &Sealed::seal(Entry { stamped_at, requests: vec![request] }));
        }
    }
}

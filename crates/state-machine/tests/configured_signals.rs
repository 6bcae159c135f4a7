//! Signals that somebody configures: how they come and go, what their values become, and that no secret gets in.

use crate::common::{World, anonymous, create_cluster, restore_commands, set, signal_samples};
use loadline_state_machine::{
    ClusterId, Collected, CollectedOutcome, Command, Epoch, Event, NodeNumber, Options, PushedValue, Receipt,
    Rejection, Revision, ScalingRejection, Sealed, SignalKind, SignalOptionProblem, SignalRejection, Span, TargetName,
};

fn prometheus(name: &str, target: TargetName) -> Command {
    let options = Options::from([("url", "http://127.0.0.1:9090"), ("query", "sum(queue_depth)")]);
    let kind = SignalKind::Prometheus;
    Command::CreateSignal { name: name.to_owned(), kind, target, every: None, options, if_not_exists: false }
}

fn world() -> World {
    let mut world = World::new();
    world.must(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
    for name in ["prod_a", "prod_b", "test"] {
        world.must(create_cluster(name));
    }
    world
}

fn id(world: &World, name: &str) -> ClusterId {
    world.state.cluster(name).expect("it was created").id
}

fn epoch(world: &World) -> Epoch {
    world.state.epoch().expect("a leader was announced")
}

fn record(world: &World, signal: &str, outcome: CollectedOutcome) -> Command {
    let updated = world.state.signal(signal).map_or_else(Revision::default, |signal| signal.updated);
    let collected = vec![Collected { signal: signal.to_owned(), updated, outcome }];
    Command::RecordSignals { epoch: epoch(world), collected }
}

fn values(values: &[(ClusterId, i64)]) -> CollectedOutcome {
    CollectedOutcome::Values { age: Span::from_secs(1), values: values.to_vec() }
}

fn refused(receipt: Receipt) -> Rejection {
    receipt.result.expect_err("it must be refused").rejection
}

fn metric(world: &World, cluster: &str, name: &str) -> Option<i64> {
    let signals = world.state.standing(id(world, cluster))?.signals();
    signals.metrics.iter().find(|metric| metric.name.as_ref() == name).map(|metric| metric.value_milli)
}

#[test]
fn a_signal_is_created_changed_and_dropped_and_survives_a_snapshot() {
    let mut world = world();
    let pattern = || TargetName::Pattern("prod%".to_owned());
    world.must(prometheus("queue", pattern()));
    let made = world.state.signal("queue").expect("it is there").clone();
    assert_eq!(made.every, Some(Span::from_secs(15)), "unless somebody says how often");
    let meant: Vec<&str> = world.state.clusters_of_signal(&made).map(|it| it.name.as_str()).collect();
    assert_eq!(meant, ["prod_a", "prod_b"]);
    assert!(matches!(
        refused(world.ask(anonymous(vec![prometheus("queue", TargetName::All)]))),
        Rejection::AlreadyExists { .. }
    ));

    let change = Command::ChangeSignal {
        name: "queue".to_owned(),
        target: Some(TargetName::All),
        every: Some(Span::from_secs(5)),
        options: Options::from([("timeout", "2s")]),
        reset: vec![],
        etag: Some(made.updated),
    };
    world.must(change.clone());
    let changed = world.state.signal("queue").expect("it is there").clone();
    assert_eq!((changed.every, changed.options.iter().count()), (Some(Span::from_secs(5)), 3));
    assert!(matches!(refused(world.ask(anonymous(vec![change]))), Rejection::EtagMismatch { .. }));
    assert!(world.through_snapshot().state.signal("queue").is_some());

    world.must(Command::DropSignal { name: "queue".to_owned(), etag: None, allow_missing: false });
    assert_eq!(world.state.signal_count(), 0);
    let again = |allow_missing| Command::DropSignal { name: "queue".to_owned(), etag: None, allow_missing };
    world.must(again(true));
    assert!(matches!(refused(world.ask(anonymous(vec![again(false)]))), Rejection::NotFound { .. }));
}

#[test]
fn a_value_becomes_a_metric_of_its_clusters_and_the_signal_says_how_fresh_it_is() {
    let mut world = world();
    world.must(prometheus("queue", TargetName::All));
    assert!(world.state.signal_view("queue").is_some_and(|view| view.is_stale()), "nothing has come yet");
    let (a, b) = (id(&world, "prod_a"), id(&world, "prod_b"));
    let command = record(&world, "queue", values(&[(a, 7_000), (b, 9_500)]));
    let applied = world.apply(vec![anonymous(vec![command])]);
    let reported = applied.events.iter().filter(|event| matches!(event, Event::SignalsReported { .. })).count();
    assert_eq!(reported, 2, "one of each cluster: {:?}", applied.events);
    assert_eq!((metric(&world, "prod_a", "queue"), metric(&world, "prod_b", "queue")), (Some(7_000), Some(9_500)));
    assert_eq!(metric(&world, "test", "queue"), None, "no value is not zero");
    let signals = world.state.standing(a).expect("it is known").signals().clone();
    assert!(signals.collectors.is_empty(), "a number says nothing about who watches the replicas: {signals:?}");

    let view = world.state.signal_view("queue").expect("it is there");
    assert_eq!((view.standing.errors, view.is_stale()), (0, false));
    world.pass_time(Span::from_mins(3));
    world.must(Command::Tick);
    assert!(world.state.signal_view("queue").is_some_and(|view| view.is_stale()));
    assert_eq!(metric(&world, "prod_a", "queue"), Some(7_000), "what it was last is still known");
}

#[test]
fn a_failure_is_told_and_counted_and_changes_no_value() {
    let mut world = world();
    world.must(prometheus("queue", TargetName::All));
    let a = id(&world, "prod_a");
    let good = record(&world, "queue", values(&[(a, 1_000)]));
    world.must(good.clone());
    for _ in 0..2 {
        world.must(record(&world, "queue", CollectedOutcome::Nothing { error: "x".repeat(9_000) }));
    }
    let standing = world.state.signal_view("queue").expect("it is there").standing;
    assert_eq!(standing.errors, 2);
    assert!(standing.error.is_some_and(|error| error.len() < 300), "somebody's page of HTML is not kept");
    assert_eq!(metric(&world, "prod_a", "queue"), Some(1_000));
    world.pass_time(Span::from_secs(5));
    world.must(good);
    let standing = world.state.signal_view("queue").expect("it is there").standing;
    assert_eq!((standing.errors, standing.error), (2, None), "it is well again, and was not always");
    world.through_snapshot();
}

#[test]
fn what_an_earlier_leader_or_an_earlier_configuration_gave_does_not_count() {
    let mut world = world();
    world.must(prometheus("queue", TargetName::All));
    let a = id(&world, "prod_a");
    let of_the_old_leader = record(&world, "queue", values(&[(a, 1_000)]));
    world.must(Command::AnnounceLeader { node: NodeNumber(2), term: 2 });
    let rejection = refused(world.ask(anonymous(vec![of_the_old_leader])));
    assert!(matches!(rejection, Rejection::Scaling(ScalingRejection::StaleEpoch { .. })), "{rejection}");
    let of_the_old_query = record(&world, "queue", values(&[(a, 1_000)]));
    let options = Options::from([("query", "sum(other)")]);
    let name = "queue".to_owned();
    world.must(Command::ChangeSignal { name, target: None, every: None, options, reset: vec![], etag: None });
    world.must(of_the_old_query);
    assert_eq!(metric(&world, "prod_a", "queue"), None);
}

#[test]
fn a_pushed_signal_takes_values_for_the_clusters_it_is_for_and_nobody_asks_for_it() {
    let mut world = world();
    let create = |every| Command::CreateSignal {
        name: "pushed".to_owned(),
        kind: SignalKind::Push,
        target: TargetName::Pattern("prod%".to_owned()),
        every,
        options: Options::default(),
        if_not_exists: false,
    };
    let rejection = refused(world.ask(anonymous(vec![create(Some(Span::from_secs(5)))])));
    assert_eq!(rejection, SignalRejection::PushedNotAsked.into());
    world.must(create(None));
    world.must(prometheus("asked", TargetName::All));
    let push = |signal: &str, cluster: Option<&str>, value_milli| Command::PushSignals {
        values: vec![PushedValue {
            signal: signal.to_owned(),
            cluster: cluster.map(str::to_owned),
            value_milli,
            age: Span::from_secs(0),
        }],
    };
    world.must(push("pushed", Some("prod_b"), 4_000));
    assert_eq!((metric(&world, "prod_a", "pushed"), metric(&world, "prod_b", "pushed")), (None, Some(4_000)));
    world.pass_time(Span::from_secs(1));
    world.must(push("pushed", None, 6_000));
    assert_eq!((metric(&world, "prod_a", "pushed"), metric(&world, "prod_b", "pushed")), (Some(6_000), Some(6_000)));
    assert_eq!(metric(&world, "test", "pushed"), None);
    for (signal, cluster, code) in [
        ("pushed", Some("test"), "NOT_FOR_CLUSTER"),
        ("pushed", Some("none"), "NOT_FOUND"),
        ("none", None, "NOT_FOUND"),
        ("asked", None, "NOT_PUSHED"),
    ] {
        assert_eq!(refused(world.ask(anonymous(vec![push(signal, cluster, 1)]))).code(), code, "{signal} {cluster:?}");
    }
}

#[test]
fn a_signal_that_is_asked_for_too_seldom_would_always_be_stale() {
    let mut world = world();
    let every = |secs| match prometheus("queue", TargetName::All) {
        Command::CreateSignal { name, kind, target, options, .. } => {
            let every = Some(Span::from_secs(secs));
            Command::CreateSignal { name, kind, target, every, options, if_not_exists: false }
        }
        other => other,
    };
    assert_eq!(refused(world.ask(anonymous(vec![every(61)]))).code(), "SIGNAL_TOO_SELDOM");
    assert_eq!(refused(world.ask(anonymous(vec![every(0)]))).code(), "OUT_OF_RANGE");
    world.must(set("signal_stale_after", "10m"));
    world.must(every(61));
}

#[test]
fn a_signal_for_one_cluster_goes_with_it_and_a_restore_brings_back_what_a_backup_holds() {
    let mut world = world();
    world.must(prometheus("own", TargetName::Cluster("test".to_owned())));
    world.must(prometheus("all", TargetName::All));
    let backup = world.state.encode();
    world.must(Command::DropCluster { name: "test".to_owned(), etag: None, allow_missing: false });
    assert_eq!(world.state.signals_after(None).map(|it| it.name.to_string()).collect::<Vec<_>>(), ["all"]);
    world.must(prometheus("later", TargetName::All));
    for command in restore_commands(&backup, world.next_index(), 1 << 20) {
        world.must(command);
    }
    let names: Vec<String> = world.state.signals_after(None).map(|it| it.name.to_string()).collect();
    assert_eq!(names, ["all", "own"]);
    world.through_snapshot();
}

#[test]
fn a_secret_is_turned_away_before_it_can_get_into_the_log() {
    let create = |key: &str, value: &str| {
        let options = signal_samples::options().with(key, value);
        let (kind, target) = (SignalKind::Prometheus, TargetName::All);
        Command::CreateSignal { name: "s".to_owned(), kind, target, every: None, options, if_not_exists: false }
    };
    let change = |key: &str, value: &str| Command::ChangeSignal {
        name: "s".to_owned(),
        target: None,
        every: None,
        options: Options::from([(key, value)]),
        reset: vec![],
        etag: None,
    };
    for (key, value) in [
        ("password", "hunter2"),
        ("bearer_token", "hunter2"),
        ("url", "http://me:hunter2@127.0.0.1:9090"),
        ("url", "http://127.0.0.1:9090/?key=hunter2"),
    ] {
        for command in [create(key, value), change(key, value)] {
            let refused = anonymous(vec![Command::Tick, command]).proposable().expect_err("it must be turned away");
            assert_eq!(refused.ordinal, 1);
            let Rejection::Signal(rejection) = &refused.rejection else { panic!("{refused:?}") };
            let in_plain = SignalOptionProblem::SecretInPlain;
            assert!(matches!(&**rejection, SignalRejection::Option { problem, .. } if *problem == in_plain));
            assert!(!format!("{refused:?} {}", refused.rejection).contains("hunter2"));
        }
    }
    // What has got in by another way is still refused, by every node alike.
    let mut world = world();
    let request = anonymous(vec![create("password", "hunter2")]);
    let sealed = Sealed::seal(loadline_state_machine::Entry { stamped_at: world.time, requests: vec![request] });
    let opened = Sealed::open(sealed.bytes().to_vec()).expect("it is an entry all the same");
    let index = world.next_index();
    let applied = loadline_state_machine::apply(&mut world.state, index, &opened);
    assert!(applied.receipts[0].result.is_err() && applied.events.is_empty());
}

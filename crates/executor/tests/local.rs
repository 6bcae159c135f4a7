//! Local replicas, as real processes: what they promise, and what they do for who asks.

use crate::local_support;
use std::time::Duration;

use crate::local_support::{
    Machine, create, create_of, epoch, found, incarnation, life, order, refused, request, seen, sees_one, signal,
    state_of, until,
};
use loadline_executor::backends::local::LocalSize;
use loadline_executor::conformance::{self, Subject};
use loadline_executor::{Backend as _, CallError, Found};
use loadline_state_machine::{Call, DrainResult, ReplicaLife, Report};
use nix::sys::signal::Signal;

#[tokio::test(flavor = "multi_thread")]
async fn it_keeps_what_every_backend_promises() {
    conformance::suite(async || {
        let machine = Machine::new();
        // The suite waits out the deadline of a call that was given up.
        let quick = |config: &mut loadline_executor::backends::local::LocalConfig| {
            config.drain_deadline = Duration::from_secs(1);
        };
        let (one, other) = (machine.node_with(quick), machine.node_with(quick));
        Subject::new(one).with_other_node(other).keeping(machine)
    })
    .await;
}

#[tokio::test]
async fn a_replica_starts_hydrates_and_answers_requests() {
    let machine = Machine::new();
    let node = machine.node_with(|config| {
        config.startup_delay = Duration::from_millis(300);
        config.hydration_time = Duration::from_millis(600);
        config.objects = 40;
    });
    node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    let new = sees_one(&node, "there", |_| true).await;
    assert!(!new.ready, "it takes its time to start: {new:?}");
    let hydrating = sees_one(&node, "ready", |replica| replica.ready).await;
    let progress = hydrating.hydration.unwrap();
    assert_eq!(progress.total, 40);
    assert!(progress.hydrated < 40, "it hydrates after it is ready: {progress:?}");
    sees_one(&node, "hydrated", |replica| replica.hydration.unwrap().hydrated == 40).await;

    let address = machine.life("r1_auto")["address"].as_str().unwrap().to_owned();
    for (words, expected) in [
        ("GET /livez", "HTTP/1.1 200"),
        ("GET /readyz", "HTTP/1.1 200"),
        ("GET /work?ms=1", "HTTP/1.1 200"),
        ("GET /crash", "HTTP/1.1 405"),
        ("GET /work?ms=soon", "HTTP/1.1 400"),
    ] {
        let answer = request(&address, words).await.unwrap();
        assert!(answer.starts_with(expected), "{words}: {answer}");
    }
    let status = request(&address, "GET /status").await.unwrap();
    assert!(status.contains(r#""objects_hydrated":40"#) && status.contains(r#""requests_finished":1"#), "{status}");
}

#[tokio::test]
async fn a_size_has_settings_of_its_own() {
    let machine = Machine::new();
    let text = format!(
        "folder = {:?}\nprogram = {:?}\nstartup_delay = \"10ms\"\nsizes.50cc = {{ objects = 7, hydration_time = \"0s\" }}",
        machine.path(),
        local_support::PROGRAM
    );
    let config = toml::from_str(&text).expect("a configuration");
    let node = loadline_executor::backends::local::LocalBackend::new(config).unwrap();
    node.execute(&order("k1", 5, 1, create_of("r1_auto", "50cc"))).await.unwrap();
    let replica = sees_one(&node, "hydrated", |replica| replica.hydration.unwrap().hydrated > 0).await;
    assert_eq!(replica.hydration.unwrap().total, 7);
    assert_eq!(replica.size, "50cc");
}

#[tokio::test]
async fn a_crash_is_counted_and_the_same_replica_comes_back() {
    let machine = Machine::new();
    let node = machine.node();
    node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    let before = sees_one(&node, "ready", |replica| replica.ready).await;
    let address = machine.life("r1_auto")["address"].as_str().unwrap().to_owned();

    assert!(request(&address, "POST /crash?oom=true").await.is_ok_and(|answer| answer.is_empty()));
    let once = sees_one(&node, "up again", |replica| replica.crashes == 1 && replica.ready).await;
    assert_eq!((once.oom, once.crash_reason.as_deref()), (true, Some("out of memory")));
    assert_eq!(once.incarnation, before.incarnation, "it is still the same replica");

    // By a hand that gives no reason.
    signal(machine.pid("r1_auto", "server").unwrap(), Signal::SIGKILL);
    let twice = sees_one(&node, "crashed again", |replica| replica.crashes == 2 && replica.ready).await;
    assert!(!twice.oom);
    assert!(twice.crash_reason.as_deref().unwrap().contains("signal: 9"), "{twice:?}");
    assert_eq!(machine.life("r1_auto")["address"].as_str(), Some(address.as_str()), "and found at the same place");
}

#[tokio::test]
async fn a_drain_finishes_the_requests_and_takes_no_new_ones() {
    let machine = Machine::new();
    let node = machine.node();
    let report = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    sees_one(&node, "ready", |replica| replica.ready).await;
    let address = machine.life("r1_auto")["address"].as_str().unwrap().to_owned();
    let long = tokio::spawn({
        let address = address.clone();
        async move { request(&address, "GET /work?ms=1500").await }
    });
    until("the request is in flight", async || {
        request(&address, "GET /status").await.ok().filter(|status| status.contains(r#""requests_in_flight":1"#))
    })
    .await;

    let life = life("r1_auto", &report);
    let drained = node.execute(&order("k2", 5, 1, Call::DrainReplica(life.clone()))).await;
    assert_eq!(drained, Ok(Report::Drained(DrainResult { moved: 1, left: 0 })));
    assert!(long.await.unwrap().unwrap().starts_with("HTTP/1.1 200"), "the request was finished, not cut off");
    assert!(request(&address, "GET /work").await.unwrap().starts_with("HTTP/1.1 503"));
    assert!(seen(&node).await[0].ready, "it is there, and ready to be used again");

    node.execute(&order("k3", 5, 1, Call::UncordonReplica(life))).await.unwrap();
    until("it takes requests again", async || {
        request(&address, "GET /work").await.ok().filter(|answer| answer.starts_with("HTTP/1.1 200"))
    })
    .await;
}

#[tokio::test]
async fn the_next_replica_of_a_name_and_size_goes_on_from_the_checkpoint() {
    let machine = Machine::new();
    let node = machine.node_with(|config| {
        // Whoever has to hydrate all of them has four of them after two seconds, not at once.
        let own =
            LocalSize { hydration_time: Some(Duration::from_secs(20)), objects: Some(40), ..LocalSize::default() };
        config.sizes.insert("slow".to_owned(), own);
    });
    let made = node.execute(&order("k1", 5, 1, create_of("r1_auto", "slow"))).await.unwrap();
    let before = sees_one(&node, "on its way", |it| it.hydration.unwrap().hydrated >= 4).await;
    let first = ReplicaLife { size: "slow".into(), ..life("r1_auto", &made) };
    let kept = node.execute(&order("k2", 5, 1, Call::CheckpointReplica(first.clone()))).await;
    assert_eq!(kept, Ok(Report::Nothing));
    node.execute(&order("k3", 5, 1, Call::DropReplica(first))).await.unwrap();

    // Another size has nothing to go on from, and leaves what is kept for whoever has.
    let other = node.execute(&order("k4", 5, 1, create("r1_auto"))).await.unwrap();
    assert_eq!(machine.life("r1_auto")["restored_from"], serde_json::Value::Null);
    node.execute(&order("k5", 5, 1, Call::DropReplica(life("r1_auto", &other)))).await.unwrap();

    node.execute(&order("k6", 5, 1, create_of("r1_auto", "slow"))).await.unwrap();
    let again = sees_one(&node, "ready", |replica| replica.ready).await;
    assert_eq!(machine.life("r1_auto")["restored_from"], incarnation(&made).as_str());
    let (was, is) = (before.hydration.unwrap().hydrated, again.hydration.unwrap().hydrated);
    assert!(is >= was, "{is} objects at once, of {was} that were kept");
}

#[tokio::test]
async fn what_goes_on_after_all_does_not_go_back_to_its_checkpoint_later() {
    let machine = Machine::new();
    let node = machine.node();
    let made = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    sees_one(&node, "hydrated", |replica| replica.hydration.unwrap().hydrated > 0).await;
    let meant = life("r1_auto", &made);
    node.execute(&order("k2", 5, 1, Call::CheckpointReplica(meant.clone()))).await.unwrap();
    node.execute(&order("k3", 5, 1, Call::UncordonReplica(meant.clone()))).await.unwrap();
    node.execute(&order("k4", 5, 1, Call::DropReplica(meant))).await.unwrap();
    node.execute(&order("k5", 5, 1, create("r1_auto"))).await.unwrap();
    sees_one(&node, "ready", |replica| replica.ready).await;
    assert_eq!(machine.life("r1_auto")["restored_from"], serde_json::Value::Null);
}

#[tokio::test]
async fn a_drain_that_takes_too_long_says_what_is_left() {
    let machine = Machine::new();
    let node = machine.node_with(|config| config.drain_deadline = Duration::from_millis(200));
    let report = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    sees_one(&node, "ready", |replica| replica.ready).await;
    let address = machine.life("r1_auto")["address"].as_str().unwrap().to_owned();
    let long = tokio::spawn({
        let address = address.clone();
        async move { request(&address, "GET /work?ms=60000").await }
    });
    until("the request is in flight", async || {
        request(&address, "GET /status").await.ok().filter(|status| status.contains(r#""requests_in_flight":1"#))
    })
    .await;
    let life = life("r1_auto", &report);
    let drained = node.execute(&order("k2", 5, 1, Call::DrainReplica(life.clone()))).await;
    assert_eq!(drained, Ok(Report::Drained(DrainResult { moved: 0, left: 1 })));
    // And a drop does not wait for it longer than the grace.
    assert_eq!(node.execute(&order("k3", 5, 1, Call::DropReplica(life))).await, Ok(Report::Nothing));
    assert_eq!(seen(&node).await, []);
    long.abort();
}

#[tokio::test]
async fn a_cordon_outlives_a_crash_of_the_server() {
    let machine = Machine::new();
    let node = machine.node();
    let report = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    sees_one(&node, "ready", |replica| replica.ready).await;
    node.execute(&order("k2", 5, 1, Call::CordonReplica(life("r1_auto", &report)))).await.unwrap();
    let address = machine.life("r1_auto")["address"].as_str().unwrap().to_owned();
    let _ = request(&address, "POST /crash").await;
    sees_one(&node, "up again", |replica| replica.crashes == 1 && replica.ready).await;
    until("it is cordoned", async || {
        request(&address, "GET /work").await.ok().filter(|answer| answer.starts_with("HTTP/1.1 503"))
    })
    .await;
}

#[tokio::test]
async fn a_name_has_one_replica_whoever_asks() {
    let machine = Machine::new();
    let (one, other) = (machine.node(), machine.node());
    let (first, second) = (order("k1", 5, 1, create("r1_auto")), order("k2", 5, 1, create("r1_auto")));
    // Both at once: whichever comes first, there is one replica and one refusal.
    let (a, b) = tokio::join!(one.execute(&first), other.execute(&second));
    let (made, not_made) = if a.is_ok() { (a, b) } else { (b, a) };
    let reason = refused(&not_made);
    assert!(reason.contains("taken") || reason.contains("there already"), "{reason}");
    let replica = sees_one(&one, "there", |_| true).await;
    assert_eq!(replica.incarnation, Some(incarnation(&made.unwrap())));
    assert_eq!(machine.keepers().len(), 1);
    assert!(refused(&one.execute(&order("k3", 5, 1, create("r1_auto"))).await).contains("there already"));
}

#[tokio::test]
async fn a_failed_create_can_be_tried_again_under_its_key() {
    let machine = Machine::new();
    let broken = machine.node_with(|config| config.program = Some("/bin/false".into()));
    let first = order("k1", 5, 1, create("r1_auto"));
    let answer = broken.execute(&first).await;
    assert!(refused(&answer).contains("ended at once (exit status: 1)"), "{answer:?}");
    assert!(matches!(found(&broken, &first).await, Found::Failed { retryable: true, .. }));
    let node = machine.node();
    let again = order("k1", 5, 2, create("r1_auto"));
    let made = node.execute(&again).await.unwrap();
    assert_eq!(found(&broken, &again).await, Found::Done(made));
    assert_eq!(seen(&node).await.len(), 1);
}

#[tokio::test]
async fn what_cannot_be_started_in_time_is_withdrawn_and_never_comes() {
    let machine = Machine::new();
    let node = machine.node_with(|config| config.start_deadline = Duration::from_millis(700));
    // The process stops while it starts, with its name taken.
    let stuck = order("k1", 5, 1, create_of("r1_auto", "stop:before-begun"));
    let answer = node.execute(&stuck).await;
    assert!(refused(&answer).contains("did not come up"), "{answer:?}");
    let keeper = machine.keepers()[0];
    assert_eq!(state_of(keeper), Some('T'));
    signal(keeper, Signal::SIGCONT);
    until("it gives up", async || machine.keepers().is_empty().then_some(())).await;
    assert_eq!(seen(&node).await, []);
    assert!(matches!(found(&node, &stuck).await, Found::Failed { retryable: true, .. }));
}

#[tokio::test]
async fn a_replica_that_does_not_react_is_killed_by_a_drop_and_only_that_one() {
    let machine = Machine::new();
    let node = machine.node();
    let report = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    node.execute(&order("k2", 5, 1, create("r2_auto"))).await.unwrap();
    let (keeper, server) = until("both processes are known", async || {
        Some((machine.pid("r1_auto", "keeper")?, machine.pid("r1_auto", "server")?))
    })
    .await;
    signal(keeper, Signal::SIGSTOP);
    signal(server, Signal::SIGSTOP);
    let dropped = node.execute(&order("k3", 5, 1, Call::DropReplica(life("r1_auto", &report)))).await;
    assert_eq!(dropped, Ok(Report::Nothing));
    for pid in [keeper, server] {
        until("it has ended", async || matches!(state_of(pid), None | Some('Z')).then_some(())).await;
    }
    sees_one(&node, "the other one is left", |replica| replica.name == "r2_auto").await;
}

#[tokio::test]
async fn a_replica_that_does_not_react_is_not_cordoned_later() {
    let machine = Machine::new();
    let node = machine.node();
    let report = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    let keeper = machine.pid("r1_auto", "keeper").unwrap();
    sees_one(&node, "ready", |replica| replica.ready).await;
    signal(keeper, Signal::SIGSTOP);
    let cordon = order("k2", 5, 1, Call::CordonReplica(life("r1_auto", &report)));
    let answer = node.execute(&cordon).await;
    assert!(refused(&answer).contains("does not react"), "{answer:?}");
    signal(keeper, Signal::SIGCONT);
    // The next order shows that it reads the ledger again.
    node.execute(&order("k3", 5, 1, Call::UncordonReplica(life("r1_auto", &report)))).await.unwrap();
    assert_eq!(machine.life("r1_auto")["cordoned"], false);
    assert!(matches!(found(&node, &cordon).await, Found::Failed { retryable: true, .. }));
}

#[tokio::test]
async fn a_drop_without_an_incarnation_means_who_is_there() {
    let machine = Machine::new();
    let node = machine.node();
    node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    let unnamed = ReplicaLife { name: "r1_auto".into(), size: "25cc".into(), incarnation: None };
    let drop = order("k2", 5, 1, Call::DropReplica(unnamed.clone()));
    assert_eq!(node.execute(&drop).await, Ok(Report::Nothing));
    assert_eq!(seen(&node).await, []);
    // It is settled, and about the one that was there then.
    node.execute(&order("k3", 5, 1, create("r1_auto"))).await.unwrap();
    assert_eq!(node.execute(&drop).await, Ok(Report::Nothing));
    assert_eq!(seen(&node).await.len(), 1);
    // What is not there cannot be cordoned.
    let nobody = ReplicaLife { name: "r9_auto".into(), ..unnamed };
    let answer = node.execute(&order("k4", 5, 1, Call::CordonReplica(nobody))).await;
    assert!(matches!(answer, Err(CallError::Refused { retryable: false, .. })), "{answer:?}");
}

#[tokio::test]
async fn a_replica_whose_keeper_dies_is_gone_with_its_server() {
    let machine = Machine::new();
    let node = machine.node();
    let report = node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    let server = until("a server", async || machine.pid("r1_auto", "server")).await;
    signal(machine.pid("r1_auto", "keeper").unwrap(), Signal::SIGKILL);
    until("gone", async || seen(&node).await.is_empty().then_some(())).await;
    until("its server, too", async || matches!(state_of(server), None | Some('Z')).then_some(())).await;
    // Its name is free, and what was asked of it before is answered.
    assert_eq!(
        node.execute(&order("k2", 5, 1, Call::DropReplica(life("r1_auto", &report)))).await,
        Ok(Report::Nothing)
    );
    node.execute(&order("k3", 5, 1, create("r1_auto"))).await.unwrap();
    assert_eq!(found(&node, &order("k1", 5, 1, create("r1_auto"))).await, Found::Done(report));
}

#[tokio::test]
async fn replicas_end_when_their_folder_is_removed() {
    let machine = Machine::new();
    let node = machine.node();
    node.execute(&order("k1", 5, 1, create("r1_auto"))).await.unwrap();
    let server = until("a server", async || machine.pid("r1_auto", "server")).await;
    std::fs::remove_dir_all(machine.path()).unwrap();
    until("nobody is left", async || machine.keepers().is_empty().then_some(())).await;
    until("no server either", async || matches!(state_of(server), None | Some('Z')).then_some(())).await;
}

#[tokio::test]
async fn a_replica_that_was_started_by_hand_is_seen_and_can_be_dropped() {
    let machine = Machine::new();
    let node = machine.node();
    node.fence(epoch(5)).await.unwrap();
    let by_hand = std::process::Command::new(local_support::PROGRAM)
        .args(["replica", "--cluster=c7.0", "--name=mine", "--size=25cc"])
        .arg(format!("--folder={}", machine.path().display()))
        .spawn();
    let mut by_hand = by_hand.unwrap();
    let mine = sees_one(&node, "ready", |replica| replica.ready).await;
    assert_eq!(mine.name, "mine");
    let life = ReplicaLife {
        name: "mine".into(),
        size: "25cc".into(),
        incarnation: mine.incarnation.as_deref().map(Into::into),
    };
    assert_eq!(node.execute(&order("k1", 5, 1, Call::DropReplica(life))).await, Ok(Report::Nothing));
    let status = until("it ends", async || by_hand.try_wait().unwrap()).await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn a_name_that_is_no_name_is_refused_for_good() {
    let machine = Machine::new();
    let node = machine.node();
    let answer = node.execute(&order("k1", 5, 1, create("../r1"))).await;
    assert!(matches!(answer, Err(CallError::Refused { retryable: false, .. })), "{answer:?}");
    assert_eq!(found(&node, &order("k1", 5, 1, create("../r1"))).await, Found::NotSeen);
}

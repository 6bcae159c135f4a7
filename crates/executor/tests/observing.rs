//! What is there gets into the log, and only what differs from what is believed.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Faults, Model, Node, audit, place};
use loadline_executor::backends::scripted::{LedgerEvent, Script, Scripted};
use loadline_executor::{Backends, Settings, Unwatched};
use loadline_state_machine::{ActionStatus, ClusterId, Command, State};
use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(120);

fn names(state: &State, cluster: ClusterId) -> Vec<String> {
    let replicas = state.standing(cluster).map(|standing| standing.signals().replicas.clone()).unwrap_or_default();
    replicas.iter().map(|replica| replica.name.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_user_makes_and_drops_by_hand_is_noticed() {
    let model = Model::new();
    let cluster = model.furnish(1)[0];
    let (backend, backends) = place(Script::default());
    let mut node = Node::new(&model, 1, backends);
    node.lead();
    backend.add_replica(cluster, "mine", "50cc");
    model.until("it is seen", PATIENCE, |state| names(state, cluster) == ["mine"]).await;
    model
        .until("it is ready and hydrated", PATIENCE, |state| {
            let replica = state.standing(cluster).unwrap().signals().replica("mine").cloned().unwrap();
            replica.ready && replica.hydration.is_some_and(|hydration| hydration.is_complete())
        })
        .await;
    backend.remove_replica(cluster, "mine");
    model.until("it is gone", PATIENCE, |state| names(state, cluster).is_empty()).await;
}

/// Time goes on only when nobody has anything to do: a watcher that wakes up without end would hold it, and this test, for ever.
fn end_after(patience: Duration) -> std::sync::mpsc::Sender<()> {
    let (over, waits) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        if waits.recv_timeout(patience) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("time stands still: somebody wakes up without end");
            std::process::abort();
        }
    });
    over
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_goes_between_a_look_and_its_report_leaves_nothing_that_wakes_up_without_end() {
    let over = end_after(Duration::from_secs(60));
    let model = Model::new();
    model.furnish(1);
    let (_backend, backends) = place(Script::default());
    let mut settings = Settings::default();
    settings.observing.batch_for = Duration::from_secs(3);
    let mut node = Node::watched(&model, 1, backends, Arc::new(Unwatched), settings);
    node.lead();
    sleep(Duration::from_millis(500)).await;
    let (name, etag) = ("demo0".to_owned(), None);
    model.must(Command::DropClusterCascade { name, etag, allow_missing: false });
    sleep(Duration::from_secs(10)).await;
    drop(over);
}

#[tokio::test(start_paused = true)]
async fn every_crash_is_counted_once_although_receipts_are_lost() {
    let model = Model::new();
    let cluster = model.furnish(1)[0];
    let (backend, backends) = place(Script::default());
    let mut node = Node::new(&model, 1, backends.clone());
    node.lead();
    backend.add_replica(cluster, "mine", "50cc");
    model.until("it is seen", PATIENCE, |state| names(state, cluster) == ["mine"]).await;
    model.set_faults(Faults { seed: 1, lost_percent: 20, receipt_lost_percent: 20, late_percent: 20 });
    let mut next = Node::new(&model, 2, backends);
    for round in 0..30 {
        backend.crash(cluster, "mine", 2, round % 2 == 0);
        sleep(Duration::from_secs(3)).await;
        if round == 15 {
            node.step_down();
            next.lead();
        }
    }
    let crashes = |state: &State| {
        let signals = state.standing(cluster).unwrap().signals();
        signals.replica("mine").unwrap().crashes.iter().map(|crash| crash.count).sum::<u64>()
    };
    model.until("all are counted", PATIENCE, |state| crashes(state) >= 60).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(crashes(&model.state()), 60);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_costs_a_few_entries_and_its_facts_stay_fresh() {
    let model = Model::new();
    let cluster = model.furnish(1)[0];
    let (backend, backends) = place(Script::default());
    let mut node = Node::new(&model, 1, backends);
    node.lead();
    backend.add_replica(cluster, "mine", "50cc");
    sleep(Duration::from_secs(30)).await;
    let began = model.state();
    for _ in 0..60 {
        sleep(Duration::from_secs(10)).await;
        let state = model.state();
        let signals = state.standing(cluster).unwrap().signals().clone();
        let hydration = signals.replica("mine").unwrap().hydration.clone().unwrap();
        let stale_after = "2m".parse().unwrap();
        assert!(signals.freshness(&hydration.collector, hydration.as_of, state.now(), stale_after).is_fresh());
    }
    let reports =
        model.state().collector("backend-place").unwrap().sequence - began.collector("backend-place").unwrap().sequence;
    assert!((10..=20).contains(&reports), "{reports} reports in ten minutes in which nothing happened");
}

#[tokio::test(start_paused = true)]
async fn silence_of_a_backend_is_not_absence() {
    let model = Model::new();
    let cluster = model.furnish(1)[0];
    let (backend, backends) = place(Script::default());
    let mut node = Node::new(&model, 1, backends);
    node.lead();
    backend.add_replica(cluster, "mine", "50cc");
    model.until("it is seen", PATIENCE, |state| names(state, cluster) == ["mine"]).await;
    backend.set_unreachable(true);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(names(&model.state(), cluster), ["mine"]);
}

/// A stale read right after a create must not make anybody believe that the replica is gone again, nor a stale read after a drop
/// that it is back.
#[tokio::test(start_paused = true)]
async fn old_reads_take_back_nothing_that_a_call_has_brought_about() {
    for seed in 0..10 {
        let model = Model::new();
        let cluster = model.furnish(1)[0];
        let script = Script { unanswered_percent: 0, lost_percent: 0, slow_percent: 0, ..Script::lying(seed) };
        let (backend, backends) = place(script);
        let mut node = Node::new(&model, 1, backends);
        node.lead();
        for size in ["25cc", "50cc", "25cc", "50cc"] {
            model.want("demo0", size);
            let as_wanted = |state: &State| {
                let standing = state.standing(cluster).unwrap();
                let sizes: Vec<String> =
                    standing.signals().replicas.iter().map(|replica| replica.size.to_string()).collect();
                standing.operation().is_none() && sizes == [size]
            };
            model.until("the size is changed", PATIENCE, as_wanted).await;
        }
        sleep(Duration::from_secs(30)).await;
        assert_eq!(audit(&model, &backend), Vec::<String>::new());
        // Four creates, and three times cordon, drain, drop: nothing was done to correct an illusion.
        assert_eq!(model.planned_count(), 4 + 3 * 3);
    }
}

#[tokio::test(start_paused = true)]
async fn one_slow_backend_does_not_hold_up_another_and_is_left_alone_for_a_while() {
    let model = Model::new();
    model.furnish(0);
    let slow = Scripted::new(Script::default());
    let quick = Scripted::new(Script::default());
    let backends = Backends::new().with("slow", Arc::new(slow.clone())).with("quick", Arc::new(quick.clone()));
    let mut node = Node::new(&model, 1, backends);
    node.lead();
    sleep(Duration::from_secs(1)).await;
    slow.set_unreachable(true);
    for number in 0..100 {
        model.add_cluster(&format!("slow{number}"), Some("slow"));
        model.want(&format!("slow{number}"), "25cc");
    }
    for number in 0..20 {
        model.add_cluster(&format!("quick{number}"), Some("quick"));
        model.want(&format!("quick{number}"), "25cc");
    }
    let began = Instant::now();
    let quick_done = |state: &State| !state.actions().any(|action| action.cluster_name.starts_with("quick"));
    model.until("the quick ones are through", PATIENCE, quick_done).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    sleep(Duration::from_secs(60)).await;
    let sent = slow.count(LedgerEvent::Sent);
    assert!(sent < 30, "the breaker lets few calls out to a backend that does not answer: {sent}");
    slow.set_unreachable(false);
    model.until_settled(Duration::from_secs(600)).await;
    assert_eq!(slow.effects().len(), 100);
    assert!(slow.effects().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_backend_is_not_here_waits_and_the_others_go_on() {
    let model = Model::new();
    model.furnish(1);
    let (backend, backends) = place(Script::default());
    let elsewhere = model.add_cluster("elsewhere", Some("somewhere-else"));
    let mut node = Node::new(&model, 1, backends);
    node.lead();
    model.want("elsewhere", "25cc");
    model.want("demo0", "25cc");
    let through = |state: &State| state.actions().all(|action| action.cluster == elsewhere);
    model.until("the others are through", PATIENCE, through).await;
    sleep(Duration::from_secs(60)).await;
    let waiting = model.state().actions().next().cloned().unwrap();
    assert_eq!((waiting.status, waiting.attempt), (ActionStatus::Pending { not_before: None }, 0));
    assert_eq!(backend.count(LedgerEvent::Sent), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_known_with_other_parameters_is_an_alarm_and_no_call() {
    let model = Model::new();
    let cluster = model.furnish(1)[0];
    let (backend, backends) = place(Script::default());
    let mut node = Node::new(&model, 1, backends);
    model.want("demo0", "25cc");
    let key = model.only_action().key();
    backend.tamper(&key);
    node.lead();
    let first = model.only_action().id;
    model.until("it has failed", PATIENCE, |state| state.action(first).is_none()).await;
    let failed = model.action(first);
    assert_eq!(failed.status, ActionStatus::Failed);
    assert!(failed.error.unwrap().contains("other parameters"));
    assert_eq!((backend.effects().get(&key), backend.replicas(cluster)), (None, vec![]));
}

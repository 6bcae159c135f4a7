//! What a backend keeps of a replica that is suspended: the leader puts into the log whether it can, and from there on it is asked
//! before anything is dropped.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Model, Node, PLACE, audit, place};
use loadline_executor::Capabilities;
use loadline_executor::backends::scripted::{LedgerEvent, Script, Scripted};
use loadline_state_machine::{
    ActionStatus, ClusterId, ClusterRef, ClusterReport, Command, Observation, Options, Seen, Span, State, StrategyKind,
    TargetName,
};

const PATIENCE: Duration = Duration::from_secs(120);

fn script(checkpoints: bool) -> Script {
    let honest = Script::default();
    Script { capabilities: Capabilities { checkpoints, ..honest.capabilities }, ..honest }
}

/// A cluster that falls asleep as soon as a collector says that nobody uses it.
fn sleeper(model: &Arc<Model>) -> ClusterId {
    let cluster = model.furnish(1)[0];
    let target = TargetName::Cluster("demo0".to_owned());
    let options = Options::default().with("idle_after_s", 3_600).with("cooldown_s", 0);
    let kind = StrategyKind::IdleSuspend;
    model.must(Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false });
    cluster
}

/// A collector says for the first time that nobody has used it for two hours; before, nobody knew.
fn falls_asleep(model: &Arc<Model>) {
    let seen = Seen::Activity { idle_for: Some(Span::from_hours(2)) };
    let observations = vec![Observation { age: Span::from_millis(0), seen }];
    let clusters = vec![ClusterReport { cluster: ClusterRef::Name("demo0".to_owned()), observations }];
    model.must(Command::ReportSignals { collector: "watcher".to_owned(), sequence: 1, clusters });
}

fn runs(state: &State, cluster: ClusterId) -> bool {
    let standing = state.standing(cluster).unwrap();
    standing.operation().is_none() && standing.signals().replicas.iter().any(|it| it.ready)
}

fn sleeps(state: &State, cluster: ClusterId) -> bool {
    state.idle_state(cluster).is_some_and(|it| it.is_scaled_to_zero())
}

fn done(backend: &Scripted) -> Vec<&'static str> {
    let effects = backend.ledger().into_iter().filter(|line| line.event == LedgerEvent::Effect);
    effects.map(|line| line.call.code()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_suspended_is_checkpointed_where_the_leader_says_that_it_can_be() {
    for keeps in [false, true] {
        let model = Model::new();
        let cluster = sleeper(&model);
        let (backend, backends) = place(script(keeps));
        let mut node = Node::new(&model, 1, backends);
        node.lead();
        model.want("demo0", "25cc");
        model.until("it runs", PATIENCE, |state| runs(state, cluster)).await;
        assert_eq!(model.state().keeps_checkpoints(PLACE), keeps);
        falls_asleep(&model);
        model.until("it sleeps", PATIENCE, |state| sleeps(state, cluster)).await;
        let mut expected = vec!["create_replica", "cordon_replica", "drain_replica", "drop_replica"];
        if keeps {
            expected.insert(3, "checkpoint_replica");
        }
        assert_eq!(done(&backend), expected);
        assert_eq!(audit(&model, &backend), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_says_what_its_own_backends_can_do() {
    let model = Model::new();
    let cluster = sleeper(&model);
    let (backend, backends) = place(script(true));
    let mut first = Node::new(&model, 1, backends);
    first.lead();
    model.want("demo0", "25cc");
    model.until("it runs", PATIENCE, |state| runs(state, cluster)).await;
    model.until("it is known", PATIENCE, |state| state.keeps_checkpoints(PLACE)).await;
    let said_at = model.state().applied();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(model.state().keeps_checkpoints(PLACE));
    assert!(model.state().applied().0 - said_at.0 < 400, "it is not said again and again: only the clock ticks");

    first.crash();
    // The same place, reached by a node that was told to keep none.
    let told_otherwise = Arc::new(backend.reached_with(script(false)));
    let mut second = Node::new(&model, 2, loadline_executor::Backends::new().with(PLACE, told_otherwise));
    second.lead();
    model.until("it is said otherwise", PATIENCE, |state| !state.keeps_checkpoints(PLACE)).await;
    falls_asleep(&model);
    model.until("it sleeps", PATIENCE, |state| sleeps(state, cluster)).await;
    assert!(!done(&backend).contains(&"checkpoint_replica"), "{:?}", done(&backend));
    let statuses = model.settled().into_values().flatten().map(|it| it.status);
    assert!(statuses.into_iter().all(|it| it == ActionStatus::Succeeded));
}

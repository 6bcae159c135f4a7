//! What seldom happens: an operator who does not want to wait, a backend whose replicas cannot be told apart, a cluster
//! that is dropped while a call is under way.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Gate, Model, Node, PLACE, audit, place};
use loadline_executor::backends::scripted::{LedgerEvent, Script, Scripted};
use loadline_executor::{
    Answering, Backend, Backends, Capabilities, ClusterAddress, Found, ObservedReplica, Order, Settings, Step,
    Unwatched,
};
use loadline_state_machine::{ActionStatus, Command, Epoch, Report, State};
use tokio::time::{Instant, sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(120);

/// How long it takes to find out what came of a call, from when the backend answers again; nothing if longer than a minute.
async fn found_out(hurry: bool) -> Option<Duration> {
    let model = Model::new();
    model.furnish(1);
    let (backend, backends) = place(Script::default());
    let mut settings = Settings::default();
    // Nobody looks again by itself within the hour, and no breaker is in the way.
    settings.acting.retry_first = Duration::from_secs(3_600);
    settings.acting.retry_longest = Duration::from_secs(3_600);
    settings.acting.breaker_failures_max = 1_000;
    let mut node = Node::watched(&model, 1, backends, Arc::new(Unwatched), settings);
    node.lead();
    model.until("the backend is fenced", PATIENCE, |state| state.epoch().is_some()).await;
    sleep(Duration::from_secs(1)).await;
    backend.set_mute(true);
    model.want("demo0", "25cc");
    while backend.count(LedgerEvent::Effect) == 0 {
        sleep(Duration::from_millis(10)).await;
    }
    // It was done. Its answer does not come, and nobody can be asked.
    backend.set_unreachable(true);
    let is_unknown = |state: &State| state.actions().any(|it| matches!(it.status, ActionStatus::Unknown { .. }));
    model.until("nobody knows what came of it", PATIENCE, is_unknown).await;
    sleep(Duration::from_secs(60)).await;
    backend.set_unreachable(false);
    let (action, begin) = (model.only_action().id, Instant::now());
    if hurry {
        model.must(Command::RetryAction { action, reason: "it answers again".to_owned() });
    }
    let settled = model.until("it is settled", Duration::from_secs(7_200), |state| state.action(action).is_none());
    timeout(Duration::from_secs(60), settled).await.ok()?;
    assert_eq!(model.action(action).status, ActionStatus::Succeeded);
    assert_eq!(backend.count(LedgerEvent::Sent), 1, "it is asked about, not sent again");
    Some(begin.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_retry_by_hand_asks_at_once_what_came_of_an_unknown_action() {
    assert_eq!(found_out(false).await, None, "without it nobody looks for an hour");
    let took = found_out(true).await.expect("it is asked about at once");
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// A backend that calls its replicas by what cannot be written down.
#[derive(Debug)]
struct Illegible(Scripted);

fn illegible(incarnation: Option<String>) -> Option<String> {
    incarnation.map(|it| format!("no name\n{it}"))
}

fn illegible_report(report: Report) -> Report {
    match report {
        Report::Created { incarnation } => Report::Created { incarnation: illegible(incarnation) },
        other => other,
    }
}

impl Backend for Illegible {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn fence(&self, epoch: Epoch) -> Answering<'_, ()> {
        self.0.fence(epoch)
    }

    fn execute<'a>(&'a self, order: &'a Order) -> Answering<'a, Report> {
        Box::pin(async move { self.0.execute(order).await.map(illegible_report) })
    }

    fn find<'a>(&'a self, order: &'a Order) -> Answering<'a, Found> {
        Box::pin(async move {
            Ok(match self.0.find(order).await? {
                Found::Done(report) => Found::Done(illegible_report(report)),
                other => other,
            })
        })
    }

    fn observe<'a>(&'a self, cluster: &'a ClusterAddress) -> Answering<'a, Vec<ObservedReplica>> {
        Box::pin(async move {
            let seen = self.0.observe(cluster).await?;
            Ok(seen.into_iter().map(|it| ObservedReplica { incarnation: illegible(it.incarnation), ..it }).collect())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_incarnation_that_cannot_be_recorded_holds_up_nothing_and_is_no_news_at_every_look() {
    let model = Model::new();
    let cluster = model.furnish(1)[0];
    let backend = Scripted::new(Script::default());
    let backends = Backends::new().with(PLACE, Arc::new(Illegible(backend.clone())));
    let mut node = Node::new(&model, 1, backends);
    node.lead();
    model.want("demo0", "25cc");
    let first = model.only_action().id;
    model.until("it is settled", PATIENCE, |state| state.action(first).is_none()).await;
    assert_eq!(model.action(first).status, ActionStatus::Succeeded, "that it was made is what matters");
    assert_eq!(audit(&model, &backend), Vec::<String>::new());
    let is_ready = |state: &State| {
        let standing = state.standing(cluster).unwrap();
        standing.operation().is_none() && standing.signals().replica("r1_auto").is_some_and(|it| it.ready)
    };
    model.until("it is seen, and the operation is through", PATIENCE, is_ready).await;
    let replica = model.state().standing(cluster).unwrap().signals().replica("r1_auto").cloned().unwrap();
    assert_eq!(replica.incarnation, None);

    let reports = || model.state().collector("backend-place").unwrap().sequence;
    let before = reports();
    sleep(Duration::from_secs(600)).await;
    let told = reports() - before;
    assert!(told <= 20, "a look that shows nothing new is not written down: {told} reports in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_is_dropped_with_all_it_has_leaves_no_call_unsettled() {
    for step in [Step::BeforeClaim, Step::AfterClaim, Step::BeforeCall, Step::AfterCall, Step::BeforeRecord] {
        let model = Model::new();
        let cluster = model.furnish(2)[0];
        let (backend, backends) = place(Script::default());
        let gate = Gate::at(step);
        let mut node = Node::watched(&model, 1, backends, gate.clone(), Settings::default());
        node.lead();
        model.want("demo0", "25cc");
        gate.holds().await;
        let (name, etag) = ("demo0".to_owned(), None);
        model.must(Command::DropClusterCascade { name, etag, allow_missing: false });
        gate.open();
        model.until_settled(PATIENCE).await;
        assert_eq!(audit(&model, &backend), Vec::<String>::new(), "{step:?}");
        assert!(model.state().cluster_by_id(cluster).is_none());
        let status = model.settled().into_values().flatten().next().unwrap().status;
        let expected = if step == Step::BeforeClaim { ActionStatus::Obsolete } else { ActionStatus::Succeeded };
        assert_eq!(status, expected, "{step:?}: only what nobody has claimed is not done any more");
        // The next one has nothing to wait for.
        model.want("demo1", "25cc");
        model.until_settled(PATIENCE).await;
        assert_eq!(audit(&model, &backend), Vec::<String>::new(), "{step:?}");
    }
}

//! Claims that go into the log with what makes them possible: when there are any, and what becomes of those that did not get where
//! they were expected.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::model::{Model, Node, audit, place};
use futures::future::BoxFuture;
use loadline_executor::backends::scripted::{LedgerEvent, Script, Scripted};
use loadline_executor::{Settings, Step, Witness};
use loadline_state_machine::{ActionId, ActionStatus, Command, Request};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(600);

/// Writes down what was reached.
#[derive(Debug, Default)]
struct Steps(Mutex<Vec<Step>>);

impl Steps {
    fn seen(&self) -> Vec<Step> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Witness for Steps {
    fn reached(&self, step: Step, _action: ActionId) -> BoxFuture<'_, ()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(step);
        Box::pin(std::future::ready(()))
    }
}

/// A leader that has been there long enough to be let in by the backend, and one cluster that wants nothing.
async fn settled_in() -> (Arc<Model>, Scripted, Node, Arc<Steps>) {
    let model = Model::new();
    model.furnish(1);
    let (backend, backends) = place(Script::default());
    let steps = Arc::new(Steps::default());
    let mut node = Node::watched(&model, 1, backends, steps.clone(), Settings::default());
    node.lead();
    // Between two ticks.
    sleep(Duration::from_millis(30_200)).await;
    (model, backend, node, steps)
}

/// What the leader would have follow the entry by which the cluster wants a replica, and that entry alone in the log. The duty has
/// not seen it yet.
fn wanted(model: &Arc<Model>, node: &Node) -> Vec<Request> {
    model.want("demo0", "25cc");
    node.claims_ahead(&model.state())
}

/// However it went: carried out once, by one call, and settled.
async fn happens_once(model: &Arc<Model>, backend: &Scripted) {
    model.until_settled(PATIENCE).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(audit(model, backend), Vec::<String>::new());
    assert_eq!(model.only_action().status, ActionStatus::Succeeded);
    assert_eq!(backend.count(LedgerEvent::Sent), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_in_the_log_with_what_makes_it_possible_and_the_call_follows() {
    let (model, backend, node, steps) = settled_in().await;
    node.foresees();
    let before = model.state().applied().0;
    model.want("demo0", "25cc");
    assert_eq!(model.state().applied().0, before + 2, "the strategy, and the claim");
    assert!(matches!(model.only_action().status, ActionStatus::Claimed { .. }), "{:?}", model.only_action());
    assert_eq!(backend.count(LedgerEvent::Sent), 0, "nothing is called before the state says so");
    happens_once(&model, &backend).await;
    assert_eq!(model.claims().len(), 1);
    assert_eq!(steps.seen().first(), Some(&Step::AfterClaim), "it is not claimed a second time: {:?}", steps.seen());
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_never_arrives_is_made_again() {
    let (model, backend, node, steps) = settled_in().await;
    assert_eq!(wanted(&model, &node).len(), 1);
    sleep(Duration::from_millis(500)).await;
    assert_eq!(steps.seen(), [], "until the state is past it, it may still come");
    happens_once(&model, &backend).await;
    assert_eq!(steps.seen().first(), Some(&Step::BeforeClaim));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_comes_later_than_expected_counts_or_is_refused() {
    for late_ms in [0, 1, 2, 3, 5, 10, 100, 5_000] {
        let (model, backend, node, _) = settled_in().await;
        let claims = wanted(&model, &node);
        model.must(Command::Tick);
        sleep(Duration::from_millis(late_ms)).await;
        model.record(claims);
        happens_once(&model, &backend).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_what_is_not_wanted_any_more_calls_nothing() {
    let (model, backend, node, _) = settled_in().await;
    let claims = wanted(&model, &node);
    // Somebody was faster than the claim.
    let (name, etag) = ("demo0".to_owned(), None);
    model.must(Command::DropClusterCascade { name, etag, allow_missing: false });
    model.record(claims);
    model.until_settled(PATIENCE).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(backend.count(LedgerEvent::Sent), 0);
    assert_eq!(model.only_action().status, ActionStatus::Obsolete);
}

#[tokio::test(start_paused = true)]
async fn a_brake_that_comes_between_an_entry_and_its_claim_stops_the_call() {
    let (model, backend, node, _) = settled_in().await;
    let claims = wanted(&model, &node);
    model.set("auto_scaling_enabled", "false");
    let refused = model.record(claims);
    assert!(refused.iter().all(|receipt| receipt.result.is_err()), "{refused:?}");
    sleep(Duration::from_secs(60)).await;
    assert_eq!((backend.count(LedgerEvent::Sent), model.claims().len()), (0, 0));
    // What was decided meanwhile is given up, and decided again.
    model.set("auto_scaling_enabled", "true");
    model.until_settled(PATIENCE).await;
    assert_eq!((backend.count(LedgerEvent::Sent), audit(&model, &backend)), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn whoever_leads_next_asks_what_became_of_a_claim_that_went_ahead() {
    for crashes in [false, true] {
        let (model, backend, mut node, _) = settled_in().await;
        let claims = wanted(&model, &node);
        model.record(claims);
        // Before the duty has seen any of it.
        if crashes {
            node.crash();
        } else {
            node.step_down();
        }
        node.lead();
        model.until_settled(PATIENCE).await;
        assert_eq!(audit(&model, &backend), Vec::<String>::new());
        assert_eq!(model.only_action().status, ActionStatus::Succeeded);
        assert_eq!(backend.count(LedgerEvent::Sent), 1);
        assert_eq!(model.only_action().attempt, 2, "under the new leadership it is claimed once more");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_ahead_where_the_duty_would_not_claim() {
    let (model, _, node, _) = settled_in().await;
    assert_eq!(node.claims_ahead(&model.state()), [], "nothing is wanted");

    let claims = wanted(&model, &node);
    assert_eq!(claims.len(), 1);
    assert_eq!(node.claims_ahead(&model.state()), [], "it is on its way already");

    let (model, _, node, _) = settled_in().await;
    model.set("auto_scaling_enabled", "false");
    assert_eq!(wanted(&model, &node), [], "the brakes are on");

    let (model, _, node, _) = settled_in().await;
    node.lose_lease();
    assert_eq!(wanted(&model, &node), [], "the lease is over");

    let (model, _, node, _) = settled_in().await;
    node.step_down();
    sleep(Duration::from_millis(1)).await;
    assert_eq!(wanted(&model, &node), [], "it leads no more");

    let (model, _, node, _) = settled_in().await;
    model.elect(2);
    assert_eq!(wanted(&model, &node), [], "somebody else leads");

    let (model, backend, mut node, _) = settled_in().await;
    node.step_down();
    backend.set_unreachable(true);
    node.lead();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(wanted(&model, &node), [], "the backend has not let this leadership in");
}

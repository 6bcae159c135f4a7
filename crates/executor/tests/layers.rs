//! The layers that keep a leader from acting when it is none, each by the fault that it alone stops; and each test again with
//! that layer taken away, to show that it would notice.

#![allow(clippy::unwrap_used)]

mod model;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_executor::backends::scripted::{LedgerEvent, Script};
use loadline_executor::{Settings, Step};
use loadline_mutants::Mutant;
use loadline_state_machine::{ActionStatus, AttemptResult, Command};
use model::{Gate, Model, Node, audit, place};
use tokio::time::sleep;

const PATIENCE: Duration = Duration::from_secs(600);

/// Mutants are for the whole process, and tests run side by side.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Seeded(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Seeded {
    fn with(mutant: Option<Mutant>) -> Seeded {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        mutant.into_iter().for_each(Mutant::switch_on);
        Seeded(guard)
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        Mutant::switch_all_off();
    }
}

/// Runs a scenario as it is and with the mutant; it must tell the two apart.
fn check(mutant: Mutant, scenario: impl AsyncFn() -> Vec<String>) {
    for seeded in [None, Some(mutant)] {
        let _seeded = Seeded::with(seeded);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let wrong = runtime.block_on(scenario());
        match seeded {
            None => assert_eq!(wrong, Vec::<String>::new()),
            Some(mutant) => assert!(!wrong.is_empty(), "nobody notices {mutant}"),
        }
    }
}

fn held_node(model: &Arc<Model>, id: u64, backends: &loadline_executor::Backends, step: Step) -> (Node, Arc<Gate>) {
    let gate = Gate::at(step);
    (Node::watched(model, id, backends.clone(), gate.clone(), Settings::default()), gate)
}

#[test]
fn a_claim_of_an_earlier_leader_that_comes_late_is_refused() {
    check(Mutant::StaleEpochAccepted, async || {
        let model = Model::new();
        model.furnish(1);
        let (backend, backends) = place(Script::default());
        let (mut old, gate) = held_node(&model, 1, &backends, Step::BeforeClaim);
        old.lead();
        model.want("demo0", "25cc");
        gate.holds().await;
        // The next one cannot act yet, so that nothing but the claim itself is in question.
        old.lose_lease();
        backend.set_unreachable(true);
        let mut new = Node::new(&model, 2, backends.clone());
        new.lead();
        old.speak_late(true);
        gate.open();
        sleep(Duration::from_secs(5)).await;
        old.crash();
        backend.set_unreachable(false);
        model.until_settled(PATIENCE).await;
        let mut wrong = audit(&model, &backend);
        for (action, claimed, current) in model.claims() {
            if claimed != current {
                wrong.push(format!("{action} was claimed in epoch {claimed}, when it was {current}"));
            }
        }
        wrong
    });
}

#[test]
fn a_leader_that_slept_before_it_looked_at_its_lease_does_not_call() {
    check(Mutant::LeaseNotChecked, async || {
        let model = Model::new();
        model.furnish(1);
        let (backend, backends) = place(Script::default());
        let (mut old, gate) = held_node(&model, 1, &backends, Step::BeforeLeaseCheck);
        let epoch = old.lead();
        model.want("demo0", "25cc");
        gate.holds().await;
        old.lose_lease();
        let mut new = Node::new(&model, 2, backends.clone());
        new.lead();
        model.until_settled(PATIENCE).await;
        gate.open();
        sleep(Duration::from_secs(5)).await;
        let mut wrong = audit(&model, &backend);
        let sent = backend.ledger().into_iter().filter(|line| line.event == LedgerEvent::Sent && line.epoch == epoch);
        wrong.extend(sent.map(|line| format!("{} was sent without a lease", line.key)));
        wrong
    });
}

#[test]
fn a_leader_that_slept_after_it_looked_at_its_lease_is_refused_by_the_backend() {
    check(Mutant::BackendNotFenced, async || {
        let model = Model::new();
        model.furnish(1);
        let (backend, backends) = place(Script::default());
        let (mut old, gate) = held_node(&model, 1, &backends, Step::BeforeCall);
        old.lead();
        model.want("demo0", "25cc");
        gate.holds().await;
        old.lose_lease();
        // Nobody wants it any more, so the next leader only finds out that it was never done.
        model.set("auto_scaling_enabled", "false");
        let mut new = Node::new(&model, 2, backends.clone());
        new.lead();
        model.until_settled(PATIENCE).await;
        gate.open();
        sleep(Duration::from_secs(5)).await;
        assert_eq!(model.only_action().status, ActionStatus::Failed);
        audit(&model, &backend)
    });
}

#[test]
fn what_a_leader_did_before_it_died_is_read_back_and_not_done_again() {
    check(Mutant::TakeOverWithoutReadBack, async || {
        let model = Model::new();
        model.furnish(1);
        // The key alone would stop it on most backends; this one does what it is told.
        let (backend, backends) = place(Script { remembers_keys: false, ..Script::default() });
        let (mut old, gate) = held_node(&model, 1, &backends, Step::AfterCall);
        old.lead();
        model.want("demo0", "25cc");
        gate.holds().await;
        old.crash();
        let mut new = Node::new(&model, 2, backends.clone());
        new.lead();
        model.until_settled(PATIENCE).await;
        audit(&model, &backend)
    });
}

#[test]
fn nothing_is_called_before_the_claim_is_in_the_log() {
    check(Mutant::CallWithoutClaim, async || {
        let model = Model::new();
        model.furnish(1);
        let (backend, backends) = place(Script::default());
        let early = Arc::new(Mutex::new(Vec::new()));
        let (seen, group) = (Arc::clone(&early), Arc::clone(&model));
        backend.on_send(move |order| {
            let state = group.state();
            let claimed = state.actions().any(|action| {
                let ours = matches!(action.status, ActionStatus::Claimed { epoch, .. } if epoch == order.epoch);
                ours && action.key() == order.key && action.attempt == order.attempt
            });
            if !claimed {
                seen.lock().unwrap().push(format!("{} was sent without a claim", order.key));
            }
        });
        let mut node = Node::new(&model, 1, backends);
        node.lead();
        model.want("demo0", "25cc");
        model.until_settled(PATIENCE).await;
        let mut wrong = audit(&model, &backend);
        wrong.extend(early.lock().unwrap().drain(..));
        wrong
    });
}

#[test]
fn every_attempt_has_the_same_key() {
    check(Mutant::NewKeyOnRetry, async || {
        let model = Model::new();
        model.furnish(1);
        let (backend, backends) = place(Script::default());
        let mut node = Node::new(&model, 1, backends);
        node.lead();
        sleep(Duration::from_secs(1)).await;
        backend.set_unreachable(true);
        model.want("demo0", "25cc");
        let in_doubt = |status| matches!(status, ActionStatus::Unknown { .. });
        model.until("it is in doubt", PATIENCE, |state| state.actions().any(|action| in_doubt(action.status))).await;
        backend.set_unreachable(false);
        model.until_settled(PATIENCE).await;
        let action = model.only_action();
        assert!(action.attempt > 1, "the scenario needs a second attempt: {action:?}");
        let sent = backend.ledger().into_iter().filter(|line| line.event == LedgerEvent::Sent);
        sent.filter(|line| line.key != action.key())
            .map(|line| format!("{} went out as {}", action.id, line.key))
            .collect()
    });
}

#[test]
fn a_call_without_an_answer_is_unknown_and_not_failed() {
    check(Mutant::TimeOutTakenAsFailure, async || {
        let model = Model::new();
        model.furnish(1);
        let (backend, backends) = place(Script { remembers_keys: false, ..Script::default() });
        let mut node = Node::new(&model, 1, backends);
        node.lead();
        backend.set_mute(true);
        model.want("demo0", "25cc");
        model
            .until("somebody gives up waiting", PATIENCE, |state| {
                state.actions().any(|action| action.attempts.iter().any(|attempt| attempt.ended.is_some()))
                    || state.action_count() == 0
            })
            .await;
        backend.set_mute(false);
        model.until_settled(PATIENCE).await;
        audit(&model, &backend)
    });
}

/// Whoever leads next finds the same work, wherever the last one was stopped.
#[test]
fn a_leader_can_die_at_any_step_and_the_action_happens_once() {
    for step in Step::ALL {
        let _seeded = Seeded::with(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let model = Model::new();
            model.furnish(1);
            let (backend, backends) = place(Script::default());
            let (mut old, gate) = held_node(&model, 1, &backends, step);
            old.lead();
            model.want("demo0", "25cc");
            gate.holds().await;
            old.crash();
            let mut new = Node::new(&model, 2, backends.clone());
            new.lead();
            model
                .until("the cluster is as wanted", PATIENCE, |state| {
                    let cluster = state.cluster("demo0").unwrap().id;
                    state.action_count() == 0 && state.standing(cluster).unwrap().operation().is_none()
                })
                .await;
            assert_eq!(audit(&model, &backend), Vec::<String>::new(), "{step:?}");
            let action = model.only_action();
            assert_eq!(action.status, ActionStatus::Succeeded, "{step:?}");
            let cluster = action.cluster;
            assert_eq!(backend.replicas(cluster), ["r1_auto"], "{step:?}");
            let results: Vec<Option<AttemptResult>> =
                action.attempts.iter().map(|attempt| attempt.ended.map(|end| end.result)).collect();
            let sent_again = matches!(step, Step::AfterClaim | Step::BeforeLeaseCheck | Step::BeforeCall);
            let expected = match sent_again {
                true => vec![None, Some(AttemptResult::Succeeded)],
                false => vec![Some(AttemptResult::Succeeded)],
            };
            assert_eq!(results, expected, "{step:?}");
            let nodes: Vec<u64> = action.worked_on_by().into_iter().map(|node| node.0).collect();
            let by = match step {
                Step::BeforeClaim => vec![2],
                Step::AfterRecord => vec![1],
                _ => vec![1, 2],
            };
            assert_eq!(nodes, by, "{step:?}");
        });
    }
}

/// Breaks down the first time that it comes to its step.
#[derive(Debug)]
struct Stumble {
    step: Step,
    stumbled: std::sync::atomic::AtomicBool,
}

impl loadline_executor::Witness for Stumble {
    fn reached(&self, step: Step, _action: loadline_state_machine::ActionId) -> futures::future::BoxFuture<'_, ()> {
        let first = step == self.step && !self.stumbled.swap(true, std::sync::atomic::Ordering::SeqCst);
        assert!(!first, "it breaks down here");
        Box::pin(std::future::ready(()))
    }
}

/// The leadership goes on, so no fence tells the calls of the duty before from those of the one after.
#[test]
fn a_duty_that_breaks_down_and_begins_again_under_the_same_leadership_does_nothing_twice() {
    for (step, results) in [
        (Step::BeforeCall, vec![Some(AttemptResult::Unknown), Some(AttemptResult::Succeeded)]),
        (Step::AfterCall, vec![Some(AttemptResult::Succeeded)]),
        (Step::BeforeRecord, vec![Some(AttemptResult::Succeeded)]),
    ] {
        let _seeded = Seeded::with(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let model = Model::new();
            model.furnish(1);
            let (backend, backends) = place(Script { remembers_keys: false, ..Script::default() });
            let witness = Arc::new(Stumble { step, stumbled: false.into() });
            let mut node = Node::watched(&model, 1, backends, witness, Settings::default());
            node.lead();
            model.want("demo0", "25cc");
            model.until_settled(PATIENCE).await;
            assert_eq!(audit(&model, &backend), Vec::<String>::new(), "{step:?}");
            let attempts = model.only_action().attempts;
            let ended: Vec<_> = attempts.iter().map(|attempt| attempt.ended.map(|end| end.result)).collect();
            assert_eq!(ended, results, "{step:?}");
        });
    }
}

/// A backend that cannot fence is left alone until what the last leader sent has arrived or never will.
#[test]
fn a_backend_that_cannot_fence_is_waited_out() {
    let _seeded = Seeded::with(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let model = Model::new();
        model.furnish(1);
        let honest = Script::default();
        let capabilities = loadline_executor::Capabilities { fences: false, ..honest.capabilities };
        let (backend, backends) = place(Script { slow_percent: 100, capabilities, ..honest });
        let (mut old, gate) = held_node(&model, 1, &backends, Step::AfterRecord);
        gate.open();
        old.lead();
        model.want("demo0", "25cc");
        model.until("it is claimed", PATIENCE, |state| state.actions_in_flight().next().is_some()).await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(backend.count(LedgerEvent::Sent), 1);
        old.crash();
        let mut new = Node::new(&model, 2, backends.clone());
        let began = tokio::time::Instant::now();
        new.lead();
        model.until_settled(PATIENCE).await;
        assert!(began.elapsed() >= capabilities.call_deadline, "{:?}", began.elapsed());
        assert_eq!(audit(&model, &backend), Vec::<String>::new());
        assert_eq!(backend.count(LedgerEvent::Sent), 1, "it was done, and found");
    });
}

/// With the switch off nothing is called, and what may have been called is found out all the same.
#[test]
fn the_kill_switch_stops_every_call_but_no_finding_out() {
    let _seeded = Seeded::with(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let model = Model::new();
        model.furnish(2);
        let (backend, backends) = place(Script::default());
        let (mut old, gate) = held_node(&model, 1, &backends, Step::BeforeRecord);
        old.lead();
        model.want("demo0", "25cc");
        gate.holds().await;
        model.set("auto_scaling_enabled", "false");
        model.want("demo1", "25cc");
        old.crash();
        let mut new = Node::new(&model, 2, backends.clone());
        new.lead();
        model.until_settled(PATIENCE).await;
        sleep(Duration::from_secs(60)).await;
        let sent = backend.ledger().into_iter().filter(|line| line.event == LedgerEvent::Sent).count();
        assert_eq!(sent, 1, "only what was sent before: {:?}", backend.ledger());
        let first = model.settled().into_values().flatten().next().unwrap();
        assert_eq!(first.status, ActionStatus::Succeeded, "what was done is recorded as done");
    });
}

/// An operator says what happened while the executor still looks for it.
#[test]
fn an_action_that_an_operator_resolves_is_left_alone() {
    let _seeded = Seeded::with(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let model = Model::new();
        model.furnish(1);
        let (backend, backends) = place(Script::default());
        let mut node = Node::new(&model, 1, backends);
        node.lead();
        model.want("demo0", "25cc");
        model.until("it is claimed", PATIENCE, |state| state.actions_in_flight().next().is_some()).await;
        backend.set_unreachable(true);
        backend.set_mute(true);
        model
            .until("it is unknown", PATIENCE, |state| {
                state.actions().any(|action| matches!(action.status, ActionStatus::Unknown { .. }))
            })
            .await;
        let action = model.state().actions().next().unwrap().id;
        model.must(Command::ResolveAction { action, succeeded: false, reason: "I looked".to_owned() });
        sleep(Duration::from_secs(1)).await;
        let sent = backend.count(LedgerEvent::Sent);
        backend.set_unreachable(false);
        backend.set_mute(false);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(model.action(action).status, ActionStatus::Failed);
        let again = backend.ledger().into_iter().filter(|line| line.key == model.action(action).key());
        assert_eq!(again.filter(|line| line.event == LedgerEvent::Sent).count(), sent);
    });
}

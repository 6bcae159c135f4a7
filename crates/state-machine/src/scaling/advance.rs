//! The next step of an operation: what was seen is taken in, what is no longer wanted is left out, what has failed is tidied
//! up, and what comes next is planned. It runs whenever the cluster is looked at, so it resumes by itself wherever the last
//! leader stopped.

use super::actions::{Action, ActionStatus, Report};
use super::asked;
use super::assess::Assessment;
use super::brakes::choose;
use super::conclude::new_action;
use super::evaluate::Writer;
use super::knobs::Knobs;
use super::operations::{FailureReason, Operation, OperationEnd, Progress, Unit};
use super::pause::ResumeReason;
use super::plan::{Planned, Step};
use crate::signals::Signals;
use crate::signals::replica::Replica;
use crate::strategies::reason::{ChangeCause, ChangesAt, earlier, just_after};
use crate::strategies::{Hydrated, View};
use crate::{ActionId, ClusterId, Event, State, Time};

/// What ends by the passing of time alone: a pause, an override, and the wait for an approval.
pub(crate) fn expire(writer: &mut Writer<'_>, id: ClusterId) {
    let now = writer.at.now;
    let Some(record) = writer.state.scaling.record(id) else { return };
    let paused = record.pause.as_ref().and_then(|pause| pause.expires_at);
    let operation = record.operation.clone();
    let overridden = record.floor.as_ref().map(|floor| floor.expires_at);
    if overridden.is_some_and(|expires_at| expires_at <= now) {
        writer.emit(Event::OverrideEnded { cluster: id, reason: ResumeReason::Expired });
    }
    if paused.is_some_and(|expires_at| expires_at <= now) {
        writer.emit(Event::ClusterResumed { cluster: id, reason: ResumeReason::Expired });
    }
    let Some(operation) = operation else { return };
    let mut after = (*operation).clone();
    for action in operation.units.iter().filter_map(|unit| unit.action) {
        let Some(action) = writer.state.scaling.actions.get(action).cloned() else { continue };
        if let ActionStatus::AwaitingApproval { expires_at } = action.status
            && expires_at <= now
        {
            after = settle(writer, &after, &action, ActionStatus::Expired);
        }
    }
    if after != *operation {
        writer.emit(Event::OperationAdvanced { operation: after });
    }
}

/// Settles an action that was never called, and answers what becomes of its operation.
fn settle(writer: &mut Writer<'_>, operation: &Operation, action: &Action, status: ActionStatus) -> Operation {
    let now = writer.at.now;
    let action = Action { settled_at: Some(now), ..action.with(status) };
    let after = operation.after(&action, &Report::Nothing, now);
    writer.emit(Event::ActionSettled { action: Box::new(action), report: Report::Nothing });
    after
}

/// Brings the cluster's operation forward.
pub(crate) fn advance(writer: &mut Writer<'_>, id: ClusterId, knobs: &Knobs, assessment: &Assessment) {
    let Some(before) = writer.state.scaling.record(id).and_then(|record| record.operation.clone()) else { return };
    let mut operation = drop_what_is_gone(writer, id, (*before).clone());
    notice(&mut operation, writer.state, id, knobs);
    if operation.failing.is_none() {
        operation.failing = failure(writer.state, &operation, knobs);
    }
    let leave_out = match operation.failing {
        Some(reason) => given_up(&operation, reason),
        None => unwanted(&operation, writer.state, id, assessment),
    };
    for (action, status) in leave_out {
        let action = writer.state.scaling.actions.get(action).cloned();
        if let Some(action) = action.filter(|action| !action.status.is_in_flight()) {
            operation = settle(writer, &operation, &action, status);
        }
    }
    let in_flight = |unit: &Unit| {
        let action = unit.action.and_then(|action| writer.state.scaling.actions.get(action));
        action.is_some_and(|action| action.status.is_in_flight())
    };
    if operation.failing.is_some() && !operation.units.iter().any(in_flight) {
        tidy_up(&mut operation);
    }
    if operation.units.iter().all(|unit| unit.progress.is_final()) {
        let done = operation.units.iter().any(|unit| unit.progress == Progress::Done);
        let end = match operation.failing {
            Some(reason) => OperationEnd::Failed(reason),
            None if done => OperationEnd::Completed,
            None => OperationEnd::Cancelled,
        };
        writer.emit(Event::OperationEnded { operation, end });
        return;
    }
    let planned = plan_next(writer, &mut operation);
    if operation != *before {
        writer.emit(Event::OperationAdvanced { operation });
    }
    for action in planned {
        writer.emit(Event::ActionPlanned { action: Box::new(action) });
    }
}

/// Somebody else has dropped a replica that we were about to drop: what was planned for it and not called is not needed.
fn drop_what_is_gone(writer: &mut Writer<'_>, id: ClusterId, mut operation: Operation) -> Operation {
    for place in 0..operation.units.len() {
        let unit = &operation.units[place];
        let gone = writer.state.scaling.record(id).is_some_and(|record| is_gone(&record.signals, unit));
        let action = unit.action.filter(|_| gone && unit.is_under_way());
        let action = action.and_then(|action| writer.state.scaling.actions.get(action)).cloned();
        if let Some(action) = action.filter(|action| !action.status.is_in_flight()) {
            operation = settle(writer, &operation, &action, ActionStatus::Obsolete);
        }
    }
    operation
}

/// Takes in what was seen since: new replicas that are ready, and replicas that are gone.
fn notice(operation: &mut Operation, state: &State, id: ClusterId, knobs: &Knobs) {
    let nothing = Signals::default();
    let signals = state.scaling.record(id).map_or(&nothing, |record| &record.signals);
    let view = View {
        now: state.now,
        stale_after: knobs.stale_after,
        replicas: &signals.replicas,
        signals,
        sizes: &state.sizes,
        idle: knobs.idle,
        wake: None,
    };
    let mut moved = false;
    for unit in &mut operation.units {
        let before = unit.progress;
        match unit.progress {
            Progress::Joining => {
                let made = unit.planned.step.creates().and_then(|made| signals.replica(&made.name));
                unit.progress = match (made, &unit.planned.step) {
                    (None, _) => Progress::Failed,
                    (Some(made), Step::Replace { .. }) if can_take_over(&view, made) => Progress::Cordoning,
                    (Some(made), Step::Create(_)) if made.ready => Progress::Done,
                    _ => Progress::Joining,
                };
                if unit.progress == Progress::Failed {
                    operation.failing.get_or_insert(FailureReason::ReplicaLost);
                }
            }
            // Somebody else has dropped it, so even what failed has come about. A call that was made is still waited for.
            Progress::Cordoning
            | Progress::Draining
            | Progress::Checkpointing
            | Progress::Dropping
            | Progress::Uncordoning
            | Progress::Failed
                if unit.action.is_none() && is_gone(signals, unit) =>
            {
                unit.cordoned = false;
                unit.progress = Progress::Done;
            }
            _ => {}
        }
        moved |= unit.progress != before;
    }
    if moved {
        operation.progress_at = state.now;
    }
}

/// Whether a new replica can do the work of the one it replaces: it is ready, and hydrated where anybody reports that.
fn can_take_over(view: &View<'_>, made: &Replica) -> bool {
    let reported = view.replicas.iter().any(|replica| replica.hydration.is_some());
    made.ready && (!reported || matches!(view.hydrated(&made.name), Hydrated::Yes { .. }))
}

/// The replica that the unit is to drop is not there, or is another one under the same name.
pub(crate) fn is_gone(signals: &Signals, unit: &Unit) -> bool {
    let Some(dropped) = unit.planned.step.drops() else { return false };
    let Some(replica) = signals.replica(&dropped.name) else { return true };
    match (&replica.incarnation, unit.planned.step.dropped_incarnation()) {
        (Some(there), Some(meant)) => there != meant,
        _ => false,
    }
}

fn failure(state: &State, operation: &Operation, knobs: &Knobs) -> Option<FailureReason> {
    let now = state.now;
    if !knobs.acting {
        return Some(FailureReason::KillSwitch);
    }
    if operation.units.iter().any(|unit| unit.progress == Progress::Failed) {
        return Some(FailureReason::ActionFailed);
    }
    if operation.units.iter().filter_map(|unit| join_by(unit, knobs)).any(|by| now > by) {
        return Some(FailureReason::JoinTimeout);
    }
    (now > stuck_at(state, operation, knobs)?).then_some(FailureReason::Stuck)
}

fn join_by(unit: &Unit, knobs: &Knobs) -> Option<Time> {
    let joining = unit.progress == Progress::Joining;
    unit.launched_at.filter(|_| joining).map(|launched_at| launched_at + knobs.join_timeout)
}

/// Nothing while it waits for a person, or for a replica to become ready: those waits have ends of their own.
fn stuck_at(state: &State, operation: &Operation, knobs: &Knobs) -> Option<Time> {
    let waits_for_others = operation.failing.is_some()
        || operation.units.iter().any(|unit| unit.progress == Progress::Joining)
        || waits_for_approval(state, operation);
    (!waits_for_others).then(|| operation.progress_at + knobs.stuck_after)
}

/// Nothing goes on before a person has said yes or no.
fn waits_for_approval(state: &State, operation: &Operation) -> bool {
    let mut actions = operation.units.iter().filter_map(|unit| unit.action).peekable();
    let awaits = |action: ActionId| {
        let action = state.scaling.actions.get(action);
        action.is_some_and(|action| matches!(action.status, ActionStatus::AwaitingApproval { .. }))
    };
    actions.peek().is_some() && actions.all(awaits)
}

/// What a failing operation will not do any more.
fn given_up(operation: &Operation, reason: FailureReason) -> Vec<(ActionId, ActionStatus)> {
    let status = match reason {
        FailureReason::KillSwitch => ActionStatus::Suppressed,
        _ => ActionStatus::Obsolete,
    };
    let given_up = operation.units.iter().filter(|unit| unit.progress != Progress::Uncordoning);
    given_up.filter_map(|unit| unit.action).map(|action| (action, status)).collect()
}

/// What has not been begun and is no longer wanted, or must not begin.
fn unwanted(
    operation: &Operation,
    state: &State,
    id: ClusterId,
    assessment: &Assessment,
) -> Vec<(ActionId, ActionStatus)> {
    let Some(record) = state.scaling.record(id) else { return vec![] };
    let by_strategies = operation.units.iter().any(|unit| !unit.planned.is_asked());
    if by_strategies && assessment.said.fault().is_some() {
        return vec![];
    }
    let wanted = |unit: &Unit| match unit.planned.is_asked() {
        true => asked::makes_sense(record, &unit.planned),
        false => assessment.planned.iter().any(|it| it.step == unit.planned.step),
    };
    let held = record.pause.is_some() && !operation.has_begun() && by_strategies;
    let superseded = waits_for_approval(state, operation) && !operation.has_begun() && {
        let now_first = choose(&assessment.planned, u64::MAX);
        !same_steps(&now_first, operation)
    };
    operation
        .units
        .iter()
        .filter(|unit| unit.progress == Progress::Waiting)
        .filter(|unit| held || superseded || !wanted(unit) || is_gone(&record.signals, unit))
        .filter_map(|unit| unit.action)
        .map(|action| (action, ActionStatus::Obsolete))
        .collect()
}

/// Whether the operation does nothing but the first of what is wanted. The rate limit may have left it less than all.
fn same_steps(wanted: &[Planned], operation: &Operation) -> bool {
    let live = operation.units.iter().filter(|unit| !unit.progress.is_final());
    live.map(|unit| &unit.planned.step).zip(wanted).all(|(step, wanted)| *step == wanted.step)
}

/// What was begun and will not be completed: what was cordoned takes work again, everything else stays as it is.
fn tidy_up(operation: &mut Operation) {
    for unit in operation.units.iter_mut().filter(|unit| unit.action.is_none()) {
        unit.progress = match unit.progress {
            Progress::Done | Progress::Skipped => continue,
            _ if unit.cordoned => Progress::Uncordoning,
            Progress::Waiting => Progress::Skipped,
            _ => Progress::Failed,
        };
    }
}

/// Plans the call that each unit needs next. Their turn is minded when they are claimed.
fn plan_next(writer: &Writer<'_>, operation: &mut Operation) -> Vec<Action> {
    let mut planned = Vec::new();
    let (cluster, id, decision) = (operation.cluster, operation.id, operation.decision);
    for unit in operation.units.iter_mut().filter(|unit| unit.action.is_none()) {
        let Some(call) = unit.next_call() else { continue };
        // The operation itself is the next event.
        let action = ActionId::from(writer.revision_of(1 + planned.len()));
        unit.action = Some(action);
        let status = ActionStatus::Pending { not_before: None };
        planned.push(new_action(writer.state, action, planned.len(), cluster, Some(id), decision, unit, call, status));
    }
    planned
}

/// When something happens to the operation though nobody does anything.
pub(crate) fn changes_at(state: &State, operation: &Operation, knobs: &Knobs) -> Option<ChangesAt> {
    let stuck = stuck_at(state, operation, knobs).map(|at| just_after(at, ChangeCause::Stuck));
    operation.units.iter().fold(stuck, |earliest, unit| {
        let joins = join_by(unit, knobs).map(|by| just_after(by, ChangeCause::JoinTimeout));
        let action = unit.action.and_then(|action| state.scaling.actions.get(action));
        let expires = action.and_then(|action| match action.status {
            ActionStatus::AwaitingApproval { expires_at } => {
                Some(ChangesAt { at: expires_at, why: ChangeCause::ApprovalExpires })
            }
            _ => None,
        });
        earlier(earliest, earlier(joins, expires))
    })
}

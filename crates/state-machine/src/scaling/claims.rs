//! Who may call a backend, and what came of it.
//!
//! A claim is the intent to call, in the log before the call is made. It names the leadership and the attempt, so that a
//! leader that was replaced, or an executor that took too long, cannot settle what belongs to another. Whatever may have
//! changed since an action was planned is looked at again here; what is no longer wanted becomes obsolete instead of claimed.

use loadline_mutants::Mutant;

use super::actions::{Action, ActionStatus, Attempt, AttemptEnd, Call, Outcome, Report};
use super::advance::is_gone;
use super::asked;
use super::assess::assess;
use super::brakes;
use super::knobs::{Knobs, require_feature};
use super::operations::{Operation, Progress};
use super::rejection::{CalledWith, ScalingRejection};
use crate::decide::Moment;
use crate::names::shortened;
use crate::signals::report::check_outside_name;
use crate::strategies::STRATEGIES;
use crate::{ActionId, Epoch, Event, Field, Hash, NodeNumber, Rejection, State};

/// What the executor is about to call, as whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim<'a> {
    pub(crate) action: ActionId,
    pub(crate) epoch: Epoch,
    pub(crate) attempt: u32,
    pub(crate) backend: &'a str,
    pub(crate) parameters: Hash,
}

pub(crate) fn claim(state: &State, at: Moment, claim: &Claim<'_>) -> Result<Vec<Event>, Rejection> {
    let Claim { action: id, epoch, attempt, backend, parameters } = *claim;
    require_feature(&state.settings)?;
    let knobs = *state.settings.knobs();
    if !knobs.acting && !Mutant::KillSwitchIgnored.is_on() {
        return Err(ScalingRejection::KillSwitchOff.into());
    }
    let node = check_epoch(state, epoch)?;
    let action = existing(state, id)?;
    let next = action.attempt.saturating_add(1);
    if attempt != next {
        return Err(ScalingRejection::StaleAttempt { action: id, given: attempt, current: next }.into());
    }
    match action.status {
        ActionStatus::Pending { not_before: Some(not_before) } if at.now < not_before => {
            return Err(ScalingRejection::RetryNotDue { action: id, not_before }.into());
        }
        ActionStatus::Pending { .. } | ActionStatus::Unknown { .. } => {}
        // The leader that claimed it is gone, and with it what it knew.
        ActionStatus::Claimed { epoch: earlier, .. } if earlier < epoch => {}
        status => return Err(ScalingRejection::NotClaimable { action: id, status: status.code().to_owned() }.into()),
    }
    let kept = Mutant::DroppedClusterClaimed.is_on().then_some(action.cluster_name.as_ref());
    let Some(cluster_name) = state.clusters.name(action.cluster).or(kept) else {
        return Err(ScalingRejection::ClusterGone { action: id }.into());
    };
    // One that was returned was given another try when it was.
    if action.status.is_in_flight() && u64::from(action.attempt) >= knobs.attempts_max {
        return Err(ScalingRejection::NoAttemptLeft { action: id, attempts_max: knobs.attempts_max }.into());
    }
    let operation = operation_of(state, action);
    if let Some(operation) = operation {
        check_turn(state, operation, id)?;
        if let Some(events) = obsolete(state, at, &knobs, operation, action) {
            return Ok(events);
        }
    }
    check_call(state, action, backend, parameters)?;
    check_rate(state, at, &knobs, operation, action)?;

    let mut attempts = action.attempts.clone();
    attempts.push(Attempt { number: attempt, epoch, node, claimed_at: at.now, ended: None });
    let claimed = Action {
        attempt,
        attempts,
        backend: Some(backend.into()),
        intent: Some(parameters),
        cluster_name: cluster_name.into(),
        ..action.with(ActionStatus::Claimed { epoch, at: at.now })
    };
    let mut events = vec![Event::ActionClaimed { action: Box::new(claimed) }];
    let advanced = operation.and_then(|operation| operation.after_claim(id));
    events.extend(advanced.map(|operation| Event::OperationAdvanced { operation }));
    Ok(events)
}

pub(crate) fn record_outcome(
    state: &State,
    at: Moment,
    id: ActionId,
    epoch: Epoch,
    attempt: u32,
    outcome: &Outcome,
) -> Result<Vec<Event>, Rejection> {
    // A straggler from an executor that lost leadership must not settle what the next one has taken over.
    let node = check_epoch(state, epoch)?;
    let action = existing(state, id)?;
    if attempt != action.attempt && !Mutant::StaleAttemptAccepted.is_on() {
        return Err(ScalingRejection::StaleAttempt { action: id, given: attempt, current: action.attempt }.into());
    }
    if !action.status.is_in_flight() {
        return Err(ScalingRejection::NotClaimed { action: id, status: action.status.code().to_owned() }.into());
    }
    if let Outcome::Succeeded { report: Report::Created { incarnation: Some(incarnation) } } = outcome {
        check_outside_name(Field::Incarnation, incarnation)?;
    }
    let error = outcome.reason().map(shortened);
    let end = AttemptEnd { epoch, node, at: at.now, result: outcome.result() };
    let told = |status| Action {
        error: error.clone().or_else(|| action.error.clone()),
        attempts: action.attempts_ended(end),
        ..action.with(status)
    };
    let any_left = u64::from(action.attempt) < state.settings.knobs().attempts_max;
    match outcome {
        Outcome::Unknown { .. } => {
            let action = told(ActionStatus::Unknown { epoch, at: at.now });
            Ok(vec![Event::ActionUnsure { action: Box::new(action) }])
        }
        Outcome::Failed { retryable: true, .. } if any_left && !is_given_up(state, action) => {
            let not_before = Some(at.now + action.backoff());
            Ok(vec![Event::ActionReturned { action: Box::new(told(ActionStatus::Pending { not_before })) }])
        }
        Outcome::Failed { retryable, .. } => {
            let too_often = *retryable && !any_left;
            let status = if too_often { ActionStatus::DeadLettered } else { ActionStatus::Failed };
            Ok(settled(state, at, told(status), &Report::Nothing))
        }
        Outcome::Succeeded { report } => Ok(settled(state, at, told(ActionStatus::Succeeded), report)),
    }
}

pub(crate) fn approve(state: &State, at: Moment, id: ActionId) -> Result<Vec<Event>, Rejection> {
    require_feature(&state.settings)?;
    let action = awaiting(state, id)?;
    let approved = action.with(ActionStatus::Pending { not_before: None });
    let mut events = vec![Event::ActionApproved { action: Box::new(approved) }];
    // That a person took an hour does not make the operation stuck.
    let moved = operation_of(state, action).map(|it| Operation { progress_at: at.now, ..it.clone() });
    events.extend(moved.map(|operation| Event::OperationAdvanced { operation }));
    Ok(events)
}

pub(crate) fn reject(state: &State, at: Moment, id: ActionId, reason: &str) -> Result<Vec<Event>, Rejection> {
    require_feature(&state.settings)?;
    let action = awaiting(state, id)?;
    let rejected = Action { error: Some(shortened(reason)), ..action.with(ActionStatus::Rejected) };
    Ok(settled(state, at, rejected, &Report::Nothing))
}

/// The action in the end, and what that makes of its operation.
pub(crate) fn settled(state: &State, at: Moment, action: Action, report: &Report) -> Vec<Event> {
    let action = Action { settled_at: Some(at.now), ..action };
    let operation = operation_of(state, &action).map(|operation| operation.after(&action, report, at.now));
    let mut events = vec![Event::ActionSettled { action: Box::new(action), report: report.clone() }];
    events.extend(operation.map(|operation| Event::OperationAdvanced { operation }));
    events
}

/// Answers which node leads in this epoch.
pub(crate) fn check_epoch(state: &State, given: Epoch) -> Result<NodeNumber, Rejection> {
    let (current, leader) = state.epoch().zip(state.leader()).ok_or(ScalingRejection::NoEpoch)?;
    if given == current || Mutant::StaleEpochAccepted.is_on() {
        return Ok(leader.node);
    }
    Err(ScalingRejection::StaleEpoch { given, current }.into())
}

/// A repeat that says anything else under the same key would be another call, and the backend may have done the first.
fn check_call(state: &State, action: &Action, backend: &str, parameters: Hash) -> Result<(), Rejection> {
    let right = match &action.backend {
        Some(backend) => backend.as_ref(),
        None => {
            let cluster = || action.cluster_name.to_string();
            let right =
                state.backend_of(action.cluster).ok_or_else(|| ScalingRejection::NoBackend { cluster: cluster() })?;
            // The cluster may have been moved since the executor looked.
            if right != backend {
                let (given, right) = (shortened(backend), right.to_owned());
                return Err(ScalingRejection::OtherBackend { action: action.id, given, right }.into());
            }
            right
        }
    };
    let known = action.intent.unwrap_or_else(|| action.parameters(right));
    if right == backend && known == parameters {
        return Ok(());
    }
    let given = Box::new(CalledWith { backend: shortened(backend), parameters });
    let known = Box::new(CalledWith { backend: right.to_owned(), parameters: known });
    Err(ScalingRejection::ParametersDiffer { action: action.id, given, known }.into())
}

pub(crate) fn existing(state: &State, id: ActionId) -> Result<&Action, Rejection> {
    Ok(state.scaling.actions.get(id).ok_or(ScalingRejection::ActionNotFound { action: id })?)
}

fn awaiting(state: &State, id: ActionId) -> Result<&Action, Rejection> {
    let action = existing(state, id)?;
    match action.status {
        ActionStatus::AwaitingApproval { .. } => Ok(action),
        status => Err(ScalingRejection::NotAwaitingApproval { action: id, status: status.code().to_owned() }.into()),
    }
}

/// Nothing for an action whose cluster is gone.
fn operation_of<'a>(state: &'a State, action: &Action) -> Option<&'a Operation> {
    let operation = state.scaling.record(action.cluster)?.operation.as_deref()?;
    (Some(operation.id) == action.operation).then_some(operation)
}

/// Trying again would only put off the end of an operation that has failed. What was cordoned is uncordoned all the same,
/// unless its cluster is gone: every claim would be refused, and the action would wait for ever.
fn is_given_up(state: &State, action: &Action) -> bool {
    if state.cluster_by_id(action.cluster).is_none() {
        return true;
    }
    let failing = operation_of(state, action).is_none_or(|operation| operation.failing.is_some());
    failing && !matches!(action.call, Call::UncordonReplica(_))
}

/// The action that comes first; nothing while the operation waits for something else.
pub(crate) fn first_in_turn(state: &State, operation: &Operation) -> Option<ActionId> {
    let actions = &state.scaling.actions;
    let status = |id: ActionId| actions.get(id).map(|action| action.status);
    // One call at a time: a second one before the first has settled could act on a replica that is about to go.
    let in_flight = operation.units.iter().filter_map(|unit| unit.action);
    if let Some(first) = in_flight.clone().find(|id| status(*id).is_some_and(ActionStatus::is_in_flight)) {
        return Some(first);
    }
    for unit in &operation.units {
        match unit.action {
            Some(id) if matches!(status(id), Some(ActionStatus::AwaitingApproval { .. })) => {}
            Some(id) => return Some(id),
            None if unit.progress == Progress::Joining || !unit.is_under_way() => {}
            // Its next step is not planned yet; no other replica is begun before it is through.
            None => return None,
        }
    }
    None
}

fn check_turn(state: &State, operation: &Operation, id: ActionId) -> Result<(), Rejection> {
    match first_in_turn(state, operation) {
        Some(first) if first != id => Err(ScalingRejection::OutOfTurn { action: id, first }.into()),
        _ => Ok(()),
    }
}

/// What to record instead of a claim, if the action has become pointless since it was planned.
fn obsolete(state: &State, at: Moment, knobs: &Knobs, operation: &Operation, action: &Action) -> Option<Vec<Event>> {
    // What may have been called is no longer ours to drop: it has to be found out what came of it.
    if action.status.is_in_flight() {
        return None;
    }
    let record = state.scaling.record(action.cluster)?;
    let unit = &operation.units[operation.unit_of(action.id)?];
    let pointless = is_gone(&record.signals, unit) && unit.progress != Progress::Waiting
        || unit.progress == Progress::Waiting && unit.planned.is_asked() && !asked::makes_sense(record, &unit.planned)
        || unit.progress == Progress::Waiting && !unit.planned.is_asked() && {
            let held = record.pause.is_some() && !operation.has_begun();
            let assessment = assess(state, action.cluster, Some(record), knobs, &STRATEGIES);
            let wanted = assessment.planned.iter().any(|planned| planned.step == unit.planned.step);
            held || !wanted || assessment.said.fault().is_some()
        };
    pointless.then(|| settled(state, at, action.with(ActionStatus::Obsolete), &Report::Nothing))
}

/// The limit is a hard one. Room for the first try of every step was set aside when the operation began, so what is refused
/// here is a further try.
fn check_rate(
    state: &State,
    at: Moment,
    knobs: &Knobs,
    operation: Option<&Operation>,
    action: &Action,
) -> Result<(), Rejection> {
    let (true, Some(record)) = (action.call.is_counted(), state.scaling.record(action.cluster)) else {
        return Ok(());
    };
    let set_aside: u64 = operation
        .map_or(0, |operation| operation.units.iter().map(|unit| unit.counted_ahead(tried(state, unit.action))).sum());
    let needed = if action.attempt == 0 { 1 } else { set_aside.saturating_add(1).min(knobs.rate_limit) };
    if brakes::room(record, knobs, at.now) >= needed {
        return Ok(());
    }
    let until = brakes::room_at(record, knobs, at.now, needed).unwrap_or(at.now + knobs.rate_window);
    Err(ScalingRejection::RateLimited { action: action.id, until }.into())
}

fn tried(state: &State, action: Option<ActionId>) -> bool {
    action.and_then(|id| state.scaling.actions.get(id)).is_some_and(|action| action.attempt > 0)
}

//! What an operator says about an action that does not get on by itself: try it now, this is what came of it, leave it.
//!
//! Who said so is in the entry, as for any request. Not here: approving one (`claims`), and what keeps a dead letter
//! (`dead_letters`).

use super::actions::{Action, ActionStatus, AttemptEnd, AttemptResult, Report};
use super::claims::{existing, settled};
use super::rejection::ScalingRejection;
use crate::decide::Moment;
use crate::names::shortened;
use crate::{ActionId, Event, Rejection, State};

/// Nobody waits any longer: one that backs off is due, one that is unknown is read back, and what a dead letter was for is
/// decided about afresh. If it is still wanted, a new action with a key of its own follows.
pub(crate) fn retry(state: &State, id: ActionId, reason: &str) -> Result<Vec<Event>, Rejection> {
    if let Some(letter) = state.dead_letter(id) {
        return Ok(vec![Event::DeadLetterCleared { action: Box::new(letter.clone()), reason: shortened(reason) }]);
    }
    let action = existing(state, id)?;
    let status = match action.status {
        ActionStatus::Pending { not_before: None } => return Ok(vec![]),
        ActionStatus::Pending { .. } => ActionStatus::Pending { not_before: None },
        ActionStatus::Unknown { .. } => action.status,
        status => return Err(ScalingRejection::NotRetryable { action: id, status: status.code().to_owned() }.into()),
    };
    let hurried = action.hurried.saturating_add(1);
    Ok(vec![Event::ActionHurried { action: Box::new(Action { hurried, ..action.with(status) }) }])
}

/// An operator has looked at the backend and says what came of the call.
pub(crate) fn resolve(
    state: &State,
    at: Moment,
    id: ActionId,
    succeeded: bool,
    reason: &str,
) -> Result<Vec<Event>, Rejection> {
    let action = unsettled_or_letter(state, id)?;
    if !action.status.is_in_flight() && action.status != ActionStatus::DeadLettered {
        let status = action.status.code().to_owned();
        return Err(ScalingRejection::NotResolvable { action: id, status }.into());
    }
    let status = if succeeded { ActionStatus::Succeeded } else { ActionStatus::Failed };
    let said = said(state, at, action, AttemptResult::Resolved { succeeded }, status, reason);
    Ok(settled(state, at, said, &Report::Nothing))
}

/// Nobody will find out what came of it, or wants it to be done.
pub(crate) fn abandon(state: &State, at: Moment, id: ActionId, reason: &str) -> Result<Vec<Event>, Rejection> {
    let action = unsettled_or_letter(state, id)?;
    let said = said(state, at, action, AttemptResult::Abandoned, ActionStatus::Abandoned, reason);
    Ok(settled(state, at, said, &Report::Nothing))
}

fn unsettled_or_letter(state: &State, id: ActionId) -> Result<&Action, Rejection> {
    match state.dead_letter(id) {
        Some(letter) => Ok(letter),
        None => existing(state, id),
    }
}

fn said(
    state: &State,
    at: Moment,
    action: &Action,
    result: AttemptResult,
    status: ActionStatus,
    reason: &str,
) -> Action {
    let reason = Some(shortened(reason)).filter(|reason| !reason.is_empty());
    let mut said = Action { error: reason.or_else(|| action.error.clone()), ..action.with(status) };
    // The word of the executor about an attempt stays; the operator has the word about one of which it had none.
    if action.status.is_in_flight()
        && let Some((epoch, leader)) = state.epoch().zip(state.leader())
    {
        said.attempts = action.attempts_ended(AttemptEnd { epoch, node: leader.node, at: at.now, result });
    }
    said
}

//! What came of an action that may have been called: read back by its key, and put into the log.
//!
//! Not here: claims and calls (`course`).

use loadline_state_machine::{Action, ActionStatus, Call, Command, Outcome, RejectionClass, Report, State};
use tokio::time::Instant;

use super::breaker::doubled;
use super::course::{Course, Next};
use crate::{Alarm, CallError, Finding, Found, Note, Step};

/// What a look by key has shown in the end.
enum Fate {
    Settled(Outcome),
    OtherParameters {
        known: String,
    },
    NeverCarriedOut,
    /// It is no longer ours to find out.
    NotOurs,
}

impl Course {
    pub(super) async fn settle_unknown(&mut self, begun_by: Instant) -> Next {
        match self.read_back(begun_by).await {
            Fate::NotOurs => Next::Part(None),
            Fate::Settled(outcome) => self.record(outcome).await,
            Fate::OtherParameters { known } => self.other_parameters(&known).await,
            Fate::NeverCarriedOut if self.is_given_up() => {
                let reason = "it was never carried out, and its operation has been given up".to_owned();
                self.record(Outcome::Failed { retryable: true, reason }).await
            }
            Fate::NeverCarriedOut => {
                // A claim of our own has to be said to be in doubt before it can be made again.
                if matches!(self.action.status, ActionStatus::Claimed { epoch, .. } if epoch == self.epoch()) {
                    let reason = "whoever was to call has stopped in the middle".to_owned();
                    match self.record(Outcome::Unknown { reason }).await {
                        Next::ReadBack { .. } => {}
                        next => return next,
                    }
                }
                Next::Send(None)
            }
        }
    }

    /// Looks for the order by its key, until it is certain what came of it.
    async fn read_back(&self, begun_by: Instant) -> Fate {
        let settings = &self.executor.settings.acting;
        // Whatever was begun can be seen from here on.
        let visible_by = begun_by + self.lane.backend.capabilities().visibility_delay;
        let order = self.order(&self.action);
        let mut failures = 0;
        loop {
            let hurried = match self.executor.group.state().action(self.action.id) {
                Some(action) if self.is_same_try(action) => action.hurried,
                _ => return Fate::NotOurs,
            };
            let slot = self.lane.slot().await;
            let asked_at = Instant::now();
            let answer = self.lane.bounded(self.lane.backend.find(&order)).await;
            slot.used(&answer);
            let (finding, fate) = match &answer {
                Ok(Found::Done(report)) => {
                    (Finding::Done, Some(Fate::Settled(Outcome::Succeeded { report: report.clone() })))
                }
                Ok(Found::Failed { retryable, reason }) => {
                    let outcome = Outcome::Failed { retryable: *retryable, reason: reason.clone() };
                    (Finding::Failed, Some(Fate::Settled(outcome)))
                }
                Ok(Found::OtherParameters { known }) => {
                    (Finding::OtherParameters, Some(Fate::OtherParameters { known: known.clone() }))
                }
                // Asked before that moment, it may only not be visible yet.
                Ok(Found::NotSeen) if asked_at >= visible_by => (Finding::NeverCarriedOut, Some(Fate::NeverCarriedOut)),
                Ok(Found::NotSeen) => (Finding::NotSeen, None),
                Ok(Found::UnderWay) => (Finding::UnderWay, None),
                Err(error @ CallError::Fenced { .. }) => {
                    self.lane.fenced_by_another(&self.tenure, error);
                    (Finding::NoAnswer, Some(Fate::NotOurs))
                }
                Err(_) => (Finding::NoAnswer, None),
            };
            let reason = answer.as_ref().err().map(ToString::to_string);
            let (backend, action) = (self.name(), &self.action);
            self.executor.note(&Note::ReadBack { backend, action, finding, reason: reason.as_deref() });
            if let Some(fate) = fate {
                return fate;
            }
            let wait = doubled(settings.retry_first, failures, settings.retry_longest);
            failures += 1;
            // Not to be seen so far: the one look that counts is the first one after it must be visible.
            let again_at = match finding {
                Finding::NotSeen => (Instant::now() + wait).min(visible_by),
                _ => Instant::now() + wait,
            };
            self.until(again_at, |state| {
                state.action(self.action.id).is_none_or(|action| action.hurried != hurried || !self.is_same_try(action))
            })
            .await;
        }
    }

    pub(super) fn is_ours(&self, state: &State) -> bool {
        state.epoch() == Some(self.epoch())
            && state.action(self.action.id).is_some_and(|action| self.is_same_try(action))
    }

    /// Whether it is still this try of the action that is in doubt.
    pub(super) fn is_same_try(&self, action: &Action) -> bool {
        action.attempt == self.action.attempt && action.status.is_in_flight()
    }

    /// Sending it again would only put off the end of an operation that has failed. What was cordoned is uncordoned all the same.
    fn is_given_up(&self) -> bool {
        let state = self.executor.group.state();
        let operation = state.standing(self.action.cluster).and_then(|standing| standing.operation());
        let operation = operation.filter(|operation| Some(operation.id) == self.action.operation);
        let failing = operation.is_none_or(|operation| operation.failing.is_some());
        failing && !matches!(self.action.call, Call::UncordonReplica(_))
    }

    // Record.

    /// Puts the outcome into the log, however long that takes: the call was made, and only the log may forget it.
    pub(super) async fn record(&mut self, mut outcome: Outcome) -> Next {
        self.executor.witness.says(&self.outcome_as_command(&outcome));
        self.witness(Step::BeforeRecord).await;
        let mut failures = 0;
        loop {
            let record = self.outcome_as_command(&outcome);
            let receipt = match self.executor.group.record(vec![record]).await {
                Ok(receipt) => receipt,
                Err(_) => {
                    // It may have been recorded, or be recorded yet. Said twice it is refused the second time.
                    self.pause(&mut failures).await;
                    let state = self.executor.group.state();
                    match state.action(self.action.id).filter(|action| self.is_same_try(action)) {
                        None => return self.recorded(&outcome, None),
                        Some(action) if is_told(action, &outcome) => {
                            return self.recorded(&outcome, Some(action));
                        }
                        Some(_) => continue,
                    }
                }
            };
            self.applied(receipt.index).await;
            match self.answer_to(&receipt) {
                Ok(action) => {
                    let action = action.cloned();
                    self.witness(Step::AfterRecord).await;
                    return self.recorded(&outcome, action.as_ref());
                }
                // What the backend calls its replica cannot be written down. That it was made is what matters most.
                Err(rejection)
                    if rejection.class() == RejectionClass::Invalid
                        && !matches!(&outcome, Outcome::Succeeded { report: Report::Nothing }) =>
                {
                    let reason = format!("what the backend reported cannot be recorded: {rejection}");
                    tracing::error!(backend = self.name(), action = %self.action.id, "{reason}");
                    outcome = Outcome::Succeeded { report: Report::Nothing };
                }
                // Somebody else has settled it, or leads by now. Then the state says what is to be done.
                Err(rejection) => {
                    tracing::debug!(backend = self.name(), action = %self.action.id, "an outcome was refused: {rejection}");
                    return Next::Part(None);
                }
            }
        }
    }

    fn outcome_as_command(&self, outcome: &Outcome) -> Command {
        let (epoch, attempt, outcome) = (self.epoch(), self.action.attempt, outcome.clone());
        Command::RecordOutcome { action: self.action.id, epoch, attempt, outcome }
    }

    /// What follows from an outcome that is in the log.
    fn recorded(&mut self, outcome: &Outcome, now: Option<&Action>) -> Next {
        self.executor.note(&Note::Recorded { backend: self.name(), action: &self.action, outcome });
        self.executor.touched(self.name()).add(self.action.cluster);
        let Some(now) = now else { return Next::Part(None) };
        if now.status == ActionStatus::DeadLettered {
            let reason =
                format!("{} was tried as often as it may be: {}", now.call, now.error.as_deref().unwrap_or("-"));
            self.alarm(Alarm::DeadLettered, &reason);
        }
        self.action = now.clone();
        match now.status {
            ActionStatus::Unknown { .. } => Next::ReadBack { begun_by: self.begun_by() },
            _ => Next::Part(None),
        }
    }
}

/// Whether the action shows this outcome already.
fn is_told(action: &Action, outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Unknown { .. }) && matches!(action.status, ActionStatus::Unknown { .. })
}

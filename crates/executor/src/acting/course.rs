//! The way of one action: claim, call, record; and where nobody knows what came of a call, read back before anything else.
//!
//! It can be dropped at any await, when the leadership ends. Nothing is lost by that: what is to be done, and what may have been
//! done, is in the state, and the next leader begins there. What this file remembers between two awaits is only what makes
//! it quicker.

use std::future::Future;
use std::sync::Arc;

use loadline_mutants::Mutant;
use loadline_state_machine::{
    Action, ActionStatus, Answer, ClusterId, Epoch, LogIndex, Outcome, Receipt, Rejection, ScalingRejection, Span,
    State, Time,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::ahead::claim;
use super::breaker::doubled;
use super::lane::{Lane, Slot};
use crate::{Alarm, CallEnding, CallError, ClusterAddress, Executor, Note, Order, Step, Tenure};

/// How long an action is left alone after an answer that nobody expected.
const AFTER_SURPRISE: Span = Span::from_secs(1);
/// How long one is left alone that only a person can help.
const AFTER_ALARM: Span = Span::from_mins(1);

/// What is known of one action's way from here.
pub(super) struct Course {
    pub(super) executor: Executor,
    pub(super) tenure: Tenure,
    pub(super) lane: Arc<Lane>,
    /// As it was in the state when the way began.
    pub(super) action: Action,
    /// When this duty began: what an earlier life of it under the same leadership sent was sent before.
    pub(super) duty_began: Instant,
}

/// How a way has ended for now. The state says whether there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parting {
    pub(super) action: loadline_state_machine::ActionId,
    pub(super) cluster: ClusterId,
    /// Not to be looked at again before this moment of the log.
    pub(super) not_before: Option<Time>,
}

/// Where a way begins.
pub(super) enum Begin {
    /// With a claim, for which there may be a slot already, or with a look at what may have been called.
    AsItStands(Option<Slot>),
    /// With the call: the claim went ahead, and the state shows it.
    Call(Slot),
}

/// What may be done next.
pub(super) enum Next {
    /// Claim it and call. The slot is there already if it was free.
    Send(Option<Slot>),
    /// It may have been called. What was sent is begun before this moment, or never.
    ReadBack {
        begun_by: Instant,
    },
    Part(Option<Time>),
}

enum Claimed {
    Yes(Box<Action>),
    /// Not, and the way ends here.
    No(Option<Time>),
    /// Not, and it will not be called again: this is to be recorded.
    NotAgain(Outcome),
}

impl Course {
    pub(super) async fn run(mut self, begin: Begin) -> Parting {
        let may_have_been_called = self.action.status.is_in_flight() && !Mutant::TakeOverWithoutReadBack.is_on();
        let mut next = match begin {
            Begin::Call(slot) => self.call_claimed(slot).await,
            Begin::AsItStands(_) if may_have_been_called => Next::ReadBack { begun_by: self.begun_by() },
            Begin::AsItStands(slot) => Next::Send(slot),
        };
        loop {
            next = match next {
                Next::Send(slot) => self.send(slot).await,
                Next::ReadBack { begun_by } => self.settle_unknown(begun_by).await,
                Next::Part(not_before) => {
                    return Parting { action: self.action.id, cluster: self.action.cluster, not_before };
                }
            };
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.tenure.epoch()
    }

    pub(super) fn name(&self) -> &str {
        &self.lane.name
    }

    /// Until when a call that somebody else made may still begin.
    pub(super) fn begun_by(&self) -> Instant {
        let claimed_in = self.action.attempts.last().map(|attempt| attempt.epoch);
        if claimed_in.is_none_or(|epoch| epoch == self.epoch()) {
            // This duty broke down and began again: no fence keeps out what it sent itself.
            return self.duty_began + self.lane.capabilities.call_deadline;
        }
        self.lane.quiet_since().unwrap_or_else(Instant::now)
    }

    pub(super) async fn witness(&self, step: Step) {
        self.executor.witness.reached(step, self.action.id).await;
    }

    // Claim and call.

    async fn send(&mut self, slot: Option<Slot>) -> Next {
        let slot = match slot {
            Some(slot) => slot,
            None => self.lane.slot().await,
        };
        self.witness(Step::BeforeClaim).await;
        if Mutant::CallWithoutClaim.is_on() {
            let early = Action { attempt: self.action.attempt + 1, ..self.action.clone() };
            let _ = self.lane.bounded(self.lane.backend.execute(&self.order(&early))).await;
        }
        match self.claim().await {
            Claimed::Yes(claimed) => self.action = *claimed,
            Claimed::No(not_before) => return Next::Part(not_before),
            Claimed::NotAgain(outcome) => return self.record(outcome).await,
        }
        self.call_claimed(slot).await
    }

    /// Puts the intent into the log. Only an answer that says "claimed" allows the call.
    async fn claim(&self) -> Claimed {
        let attempt = self.action.attempt.saturating_add(1);
        let claim = claim(&self.action, &self.tenure, self.name());
        self.executor.witness.says(&claim);
        let mut failures = 0;
        loop {
            let receipt = match self.executor.group.record(vec![claim.clone()]).await {
                Ok(receipt) => receipt,
                Err(_) => {
                    // It may be in the log, or get there yet. To claim once more is safe, because only one claim of an attempt is
                    // accepted; and whichever it was, it was ours, and nothing has been called for it.
                    self.pause(&mut failures).await;
                    if let Some(answer) = self.claimed_meanwhile(attempt) {
                        return answer;
                    }
                    continue;
                }
            };
            match self.answer_to(&receipt) {
                Ok(Some(action)) if self.is_claimed_here(action, attempt) => {
                    return Claimed::Yes(Box::new(action.clone()));
                }
                Ok(_) => {
                    self.applied(receipt.index).await;
                    self.executor.note(&Note::Obsolete { backend: self.name(), action: &self.action });
                    return Claimed::No(None);
                }
                Err(rejection) => {
                    self.applied(receipt.index).await;
                    return match self.claimed_meanwhile(attempt) {
                        Some(Claimed::Yes(claimed)) => Claimed::Yes(claimed),
                        _ => self.not_claimed(rejection),
                    };
                }
            }
        }
    }

    /// What the state says about a claim whose receipt did not come; nothing if it shows no trace of it.
    fn claimed_meanwhile(&self, attempt: u32) -> Option<Claimed> {
        let state = self.executor.group.state();
        match state.action(self.action.id) {
            Some(action) if self.is_claimed_here(action, attempt) => Some(Claimed::Yes(Box::new(action.clone()))),
            Some(action) if action.attempt.saturating_add(1) == attempt => None,
            _ => Some(Claimed::No(None)),
        }
    }

    fn is_claimed_here(&self, action: &Action, attempt: u32) -> bool {
        let ours = matches!(action.status, ActionStatus::Claimed { epoch, .. } if epoch == self.epoch());
        ours && action.attempt == attempt
    }

    fn not_claimed(&self, rejection: &Rejection) -> Claimed {
        let code = rejection.code();
        let note =
            Note::ClaimRefused { backend: self.name(), action: &self.action, code, reason: rejection.to_string() };
        self.executor.note(&note);
        let now = self.executor.group.state().now();
        let may_have_been_called = self.action.status.is_in_flight();
        let Rejection::Scaling(rejection) = rejection else { return Claimed::No(Some(now + AFTER_SURPRISE)) };
        let not_again = |retryable| {
            let reason = format!("it was never carried out, and is not sent again: {rejection}");
            Claimed::NotAgain(Outcome::Failed { retryable, reason })
        };
        match rejection {
            ScalingRejection::ClusterGone { .. }
            | ScalingRejection::NoAttemptLeft { .. }
            | ScalingRejection::KillSwitchOff
            | ScalingRejection::FeatureOff
                if may_have_been_called =>
            {
                not_again(true)
            }
            ScalingRejection::RetryNotDue { not_before, .. } => Claimed::No(Some(*not_before)),
            ScalingRejection::RateLimited { until, .. } => Claimed::No(Some(*until)),
            // The state has moved on; what it says now is looked at afresh.
            ScalingRejection::ActionNotFound { .. }
            | ScalingRejection::StaleAttempt { .. }
            | ScalingRejection::StaleEpoch { .. } => Claimed::No(None),
            ScalingRejection::ParametersDiffer { .. } => {
                self.alarm(Alarm::OtherParameters, &rejection.to_string());
                match may_have_been_called {
                    true => not_again(false),
                    false => Claimed::No(Some(now + AFTER_ALARM)),
                }
            }
            // The views of the state would not have shown it, so it has changed in between; if not, a look a second is enough.
            _ => Claimed::No(Some(now + AFTER_SURPRISE)),
        }
    }

    /// Makes the call for a claim that is in the log.
    async fn call_claimed(&mut self, slot: Slot) -> Next {
        self.witness(Step::AfterClaim).await;
        let order = self.order(&self.action);
        self.witness(Step::BeforeLeaseCheck).await;
        let mut waited = false;
        while !self.tenure.may_act() && !Mutant::LeaseNotChecked.is_on() {
            waited = true;
            sleep(self.executor.settings.acting.lease_look_every).await;
        }
        // Somebody may have settled it by hand while the lease was away.
        if waited && !self.is_ours(&self.executor.group.state()) {
            return Next::Part(None);
        }
        let resumed = self.action.attempts.len() > 1;
        self.executor.note(&Note::CallStarted { backend: self.name(), action: &self.action, resumed });
        // From the look at the lease to the call nothing is waited for, unless a witness makes it wait: that is what it is for.
        self.witness(Step::BeforeCall).await;
        let started = Instant::now();
        let answer = self.lane.bounded(self.lane.backend.execute(&order)).await;
        self.witness(Step::AfterCall).await;
        slot.used(&answer);
        let (ending, reason) = match &answer {
            Ok(_) => (CallEnding::Succeeded, None),
            Err(error) => {
                let ending = match error {
                    CallError::Refused { .. } => CallEnding::Refused,
                    CallError::Unknown { .. } => CallEnding::Unknown,
                    CallError::Fenced { .. } => CallEnding::Fenced,
                    CallError::OtherParameters { .. } => CallEnding::OtherParameters,
                };
                (ending, Some(error.to_string()))
            }
        };
        let took = started.elapsed();
        let (backend, action) = (self.name(), &self.action);
        self.executor.note(&Note::CallEnded { backend, action, took, ending, reason: reason.as_deref() });
        match answer {
            Ok(report) => self.record(Outcome::Succeeded { report }).await,
            Err(CallError::Refused { retryable, reason }) => self.record(Outcome::Failed { retryable, reason }).await,
            Err(CallError::Unknown { reason }) if Mutant::TimeOutTakenAsFailure.is_on() => {
                self.record(Outcome::Failed { retryable: true, reason }).await
            }
            Err(CallError::Unknown { reason }) => {
                let begun_by = started + self.lane.capabilities.call_deadline;
                match self.record(Outcome::Unknown { reason }).await {
                    Next::ReadBack { .. } => Next::ReadBack { begun_by },
                    next => next,
                }
            }
            Err(error @ CallError::Fenced { .. }) => {
                self.lane.fenced_by_another(&self.tenure, &error);
                Next::Part(None)
            }
            Err(CallError::OtherParameters { known, .. }) => self.other_parameters(&known).await,
        }
    }

    pub(super) fn order(&self, action: &Action) -> Order {
        let mut key = action.key();
        if Mutant::NewKeyOnRetry.is_on() {
            key = format!("{key}#{}", action.attempt);
        }
        let state = self.executor.group.state();
        // The cluster may be gone by now, and what was called for it still has to be found out.
        let name = state.cluster_by_id(action.cluster).map_or(action.cluster_name.as_ref(), |cluster| &cluster.name);
        Order {
            key,
            epoch: self.epoch(),
            attempt: action.attempt,
            parameters: action.intent.unwrap_or_else(|| action.parameters(self.name())),
            cluster: ClusterAddress { id: action.cluster, name: name.to_owned() },
            call: action.call.clone(),
        }
    }

    pub(super) async fn other_parameters(&mut self, known: &str) -> Next {
        let key = self.action.key();
        let reason =
            format!("the backend knows the key {key} with other parameters ({known}); it was not called again");
        self.alarm(Alarm::OtherParameters, &reason);
        self.record(Outcome::Failed { retryable: false, reason }).await
    }

    pub(super) fn alarm(&self, alarm: Alarm, reason: &str) {
        self.executor.note(&Note::Alarm { backend: self.name(), action: Some(self.action.id), alarm, reason });
    }

    // The group.

    pub(super) fn answer_to<'a>(&self, receipt: &'a Receipt) -> Result<Option<&'a Action>, &'a Rejection> {
        match &receipt.result {
            Err(refused) => Err(&refused.rejection),
            Ok(done) => Ok(done.iter().find_map(|done| match &done.answer {
                Answer::Action(action) => Some(action.as_ref()),
                _ => None,
            })),
        }
    }

    /// Until this node's state shows what was recorded: whoever looks before would take it for not done.
    pub(super) fn applied(&self, index: LogIndex) -> impl Future<Output = ()> {
        let before = LogIndex(index.0.saturating_sub(1));
        self.executor.group.applied_beyond(before)
    }

    pub(super) async fn pause(&self, failures: &mut u32) {
        let settings = &self.executor.settings.acting;
        let wait = doubled(settings.retry_first, *failures, settings.retry_longest);
        *failures += 1;
        sleep(wait).await;
    }

    /// Until that moment, or until the state is such.
    pub(super) async fn until(&self, at: Instant, is_such: impl Fn(&State) -> bool) {
        let waiting = async {
            loop {
                let state = self.executor.group.state();
                if is_such(&state) {
                    return;
                }
                self.executor.group.applied_beyond(state.applied()).await;
            }
        };
        tokio::select! {
            biased;
            () = waiting => {}
            () = sleep_until(at) => {}
        }
    }
}

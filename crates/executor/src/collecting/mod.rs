//! The duty that asks for configured signals and tells the log what came of it.
//!
//! - Here: which signals are asked for, when, and how a failure puts the next time off. [`prometheus`], [`nats`], [`postgres`]: how
//!   each is asked. [`number`]: what counts as a value. [`meaning`]: whose value it is. [`secret`]: where secrets are.
//!
//! No answer is never taken for a zero: whatever is not exactly a number is a failure, and the failure says why. Nothing is
//! remembered that would be missed: a new leader asks for everything at once, and what an earlier one still brings is refused.

mod meaning;
mod nats;
mod number;
mod postgres;
mod prometheus;
mod secret;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use loadline_state_machine::{
    Collected, CollectedOutcome, Command, Hash, LogIndex, OptionValue, Revision, Signal, SignalKind, Span, State,
    signal_timeout,
};
use tokio::time::{Instant, sleep_until, timeout};

use crate::backends::settings::process_environment;
use crate::{Duty, Group, Tenure};
use meaning::Sample;
use secret::Secrets;

/// How often it is looked which signals there are.
const ROSTER_EVERY: Duration = Duration::from_millis(250);
/// Signals that are asked for at a time. Each has a time-out, so a slow one delays others by little.
const ASKING_MAX: usize = 64;
/// How long an answer may wait for others, so that one entry of the log carries several.
const BATCH_FOR: Duration = Duration::from_millis(20);
/// What fails is asked for again after twice the time, up to this, or as often as it is asked for anyway if that is longer.
const BACKOFF_LONGEST: Duration = Duration::from_secs(30);

/// How an environment variable is looked up. A test hands in its own.
pub type Variables = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Asks for configured signals for as long as this node leads.
#[derive(Clone)]
pub struct Collecting {
    group: Arc<dyn Group>,
    variables: Variables,
}

impl fmt::Debug for Collecting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collecting").finish_non_exhaustive()
    }
}

impl Collecting {
    pub fn new(group: Arc<dyn Group>) -> Collecting {
        Collecting { group, variables: Arc::new(process_environment) }
    }

    #[must_use]
    pub fn with_variables(mut self, variables: Variables) -> Collecting {
        self.variables = variables;
        self
    }
}

impl Duty for Collecting {
    fn name(&self) -> &'static str {
        "collecting"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let round = Round {
            collecting: self,
            tenure,
            roster: BTreeMap::new(),
            asking: FuturesUnordered::new(),
            to_tell: Vec::new(),
            tell_at: None,
            telling: FuturesUnordered::new(),
        };
        Box::pin(round.run())
    }
}

/// One signal, and when it is asked for next.
struct Wanted {
    updated: Revision,
    every: Duration,
    /// Nothing while it is being asked for.
    due: Option<Instant>,
    failures: u32,
}

/// An answer, or why there is none.
struct Answer {
    signal: String,
    updated: Revision,
    began: Instant,
    outcome: Result<Sample, String>,
}

/// The collecting of one leadership.
struct Round<'a> {
    collecting: &'a Collecting,
    tenure: Tenure,
    roster: BTreeMap<String, Wanted>,
    asking: FuturesUnordered<BoxFuture<'a, Answer>>,
    to_tell: Vec<(Answer, Instant)>,
    tell_at: Option<Instant>,
    telling: FuturesUnordered<BoxFuture<'a, ()>>,
}

impl Round<'_> {
    async fn run(mut self) {
        loop {
            let now = Instant::now();
            let state = self.collecting.group.state();
            // Before our announcement is applied here, the state may be that of the last leader's day.
            if state.epoch() == Some(self.tenure.epoch()) {
                self.call_roll(&state, now);
                self.begin_asking(&state, now);
                self.begin_to_tell(now);
            }
            let next_ask = self.roster.values().filter_map(|wanted| wanted.due).min();
            let next_report = self.tell_at.filter(|_| self.telling.is_empty());
            let next = [next_ask, next_report].into_iter().flatten().fold(now + ROSTER_EVERY, Instant::min);
            // A due time in the past waits for room, or for the lease: not in a hot loop.
            let next = next.max(now + Duration::from_millis(5));
            tokio::select! {
                biased;
                Some(answer) = self.asking.next(), if !self.asking.is_empty() => self.answered(answer),
                Some(()) = self.telling.next(), if !self.telling.is_empty() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Which signals there are now. A new one, and one that was changed, is asked for without delay.
    fn call_roll(&mut self, state: &State, now: Instant) {
        let asked_for = |signal: &&Signal| signal.kind != SignalKind::Push;
        self.roster.retain(|name, _| state.signal(name).is_some());
        for signal in state.signals_after(None).filter(asked_for) {
            let every = signal.every.map_or(ROSTER_EVERY, |every| Duration::from_millis(every.as_millis()));
            let known = self.roster.get(signal.name.as_ref());
            if known.is_none_or(|known| known.updated != signal.updated) {
                let wanted = Wanted { updated: signal.updated, every, due: Some(now), failures: 0 };
                self.roster.insert(signal.name.to_string(), wanted);
            }
        }
    }

    fn begin_asking(&mut self, state: &State, now: Instant) {
        // Being leader is no permission: one that slept must not use up somebody else's quota, or bring old news.
        if !self.tenure.may_act() {
            return;
        }
        for (name, wanted) in &mut self.roster {
            if self.asking.len() >= ASKING_MAX {
                return;
            }
            if wanted.due.is_none_or(|due| due > now) {
                continue;
            }
            let Some(signal) = state.signal(name).cloned() else { continue };
            wanted.due = None;
            let variables = Arc::clone(&self.collecting.variables);
            self.asking.push(Box::pin(async move {
                let (name, updated, began) = (signal.name.to_string(), signal.updated, Instant::now());
                Answer { signal: name, updated, began, outcome: ask(signal, variables).await }
            }));
        }
    }

    fn answered(&mut self, answer: Answer) {
        let now = Instant::now();
        if let Some(wanted) = self.roster.get_mut(&answer.signal).filter(|it| it.updated == answer.updated) {
            wanted.failures = if answer.outcome.is_ok() { 0 } else { wanted.failures.saturating_add(1) };
            let pause = pause(&answer.signal, wanted.every, wanted.failures);
            wanted.due = Some((answer.began + pause).max(now));
        }
        self.to_tell.push((answer, now));
        self.tell_at.get_or_insert(now + BATCH_FOR);
    }

    /// One report at a time: the log has them in the order in which they were got.
    fn begin_to_tell(&mut self, now: Instant) {
        if !self.telling.is_empty() || self.tell_at.is_none_or(|at| at > now) {
            return;
        }
        self.tell_at = None;
        let answers = std::mem::take(&mut self.to_tell);
        self.telling.push(Box::pin(tell(self.collecting, self.tenure.clone(), answers)));
    }
}

/// How long from one time to the next: as configured, or longer and longer while it fails, and never all at the same moment.
fn pause(name: &str, every: Duration, failures: u32) -> Duration {
    if failures == 0 {
        return every;
    }
    let longer = every.saturating_mul(1_u32.checked_shl(failures.min(10)).unwrap_or(u32::MAX));
    let base = longer.min(BACKOFF_LONGEST.max(every));
    let chance = u32::from(Hash::of(format!("{name} {failures}").as_bytes()).0[0]);
    // Between three quarters and five quarters of it, and never more often than it was asked for.
    (base.saturating_mul(192 + chance / 2) / 256).max(every)
}

async fn ask(signal: Signal, variables: Variables) -> Result<Sample, String> {
    let span = signal_timeout(&signal.options);
    let limit = Duration::from_millis(span.as_millis());
    let mut secrets = Secrets::new(variables);
    let asked = async {
        match signal.kind {
            SignalKind::Prometheus => prometheus::ask(&signal.options, &mut secrets, limit).await,
            SignalKind::Nats => nats::ask(&signal.options, &mut secrets).await,
            SignalKind::Postgres => postgres::ask(&signal.options, &mut secrets, limit).await,
            SignalKind::Push => Err("nobody asks for what is pushed".to_owned()),
        }
    };
    let outcome = match timeout(limit, AssertUnwindSafe(asked).catch_unwind()).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => Err("the collector failed on a fault of its own".to_owned()),
        Err(_) => Err(format!("no answer within {span}")),
    };
    // Whatever somebody answered, or a library put into its words: no secret gets into the log.
    outcome.map_err(|error| secrets.scrub(&error))
}

async fn tell(collecting: &Collecting, tenure: Tenure, answers: Vec<(Answer, Instant)>) {
    let state = collecting.group.state();
    let collected: Vec<Collected> = answers
        .into_iter()
        .filter_map(|(answer, at)| {
            let signal = state.signal(&answer.signal)?;
            let outcome = answer.outcome.and_then(|sample| meaning::of(sample, signal, &state));
            let age = Span::from_millis(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX));
            let outcome = match outcome {
                Ok(values) => CollectedOutcome::Values { age, values },
                Err(error) => {
                    tracing::warn!(signal = answer.signal, "a signal could not be collected: {error}");
                    CollectedOutcome::Nothing { error }
                }
            };
            Some(Collected { signal: answer.signal, updated: answer.updated, outcome })
        })
        .collect();
    if collected.is_empty() {
        return;
    }
    let command = Command::RecordSignals { epoch: tenure.epoch(), collected };
    match collecting.group.record(vec![command]).await {
        Ok(receipt) => {
            if let Err(refused) = &receipt.result {
                tracing::warn!("what was collected was not accepted: {}", refused.rejection);
            }
            collecting.group.applied_beyond(LogIndex(receipt.index.0.saturating_sub(1))).await;
        }
        // What was not recorded is soon asked for again.
        Err(not_recorded) => tracing::debug!("what was collected is lost: {not_recorded}"),
    }
}

/// What an option says, if it is there.
fn text<'a>(options: &'a loadline_state_machine::Options, key: &str) -> Option<&'a str> {
    match options.get(key)? {
        OptionValue::Text(text) => Some(text),
        _ => None,
    }
}

fn required<'a>(options: &'a loadline_state_machine::Options, key: &str) -> Result<&'a str, String> {
    text(options, key).ok_or_else(|| format!("option {key} is missing"))
}

/// The reason that helps is mostly the innermost one.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_asked_for_less_and_less_often_up_to_a_limit() {
        let every = Duration::from_secs(5);
        assert_eq!(pause("queue", every, 0), every);
        let longest = BACKOFF_LONGEST * 5 / 4;
        for failures in 1..50 {
            let pause = pause("queue", every, failures);
            assert!(pause >= every && pause <= longest, "{failures}: {pause:?}");
        }
        assert!(pause("queue", every, 20) > pause("queue", every, 1));
        let seldom = Duration::from_secs(600);
        for failures in 1..50 {
            assert!(pause("queue", seldom, failures) >= seldom, "never more often than it was asked for");
        }
        let spread: std::collections::BTreeSet<Duration> =
            (0..20).map(|number| pause(&format!("s{number}"), every, 3)).collect();
        assert!(spread.len() > 10, "{spread:?}");
    }
}

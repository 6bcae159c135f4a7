//! What is recorded about a call is true: what is said to have failed was not done, what is said to have succeeded was; and
//! what may have been done is read back before it is sent again.
//!
//! Not asked: that a backend which cannot fence keeps out a leader that looked at its lease, slept, and called when another
//! one had been announced. Nothing on our side can, and `docs/executor.md` says so. What such a straggler has carried out may be said to have
//! failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use loadline_executor::backends::scripted::LedgerEvent;
use loadline_state_machine::{ActionStatus, Epoch, Event};

use super::{Agreed, Invariant};
use crate::plan::Plan;
use crate::record::{Seen, Sighting};

/// Lines of the ledger come no later than this.
const LEDGER_LATE: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Outcomes {
    log: Agreed,
    backend_fences: bool,
    /// When each leader was announced.
    announced: Vec<(Epoch, Duration)>,
    /// Orders that were sent when another leader had been announced, to a backend that cannot refuse them.
    stragglers: BTreeSet<(String, Epoch)>,
    /// Keys that a straggler carried out.
    straggled: BTreeSet<String>,
    /// By key: the attempt whose order was carried out.
    effects: BTreeMap<String, u32>,
    /// By key: up to which attempt it is said to have failed.
    failed: BTreeMap<String, u32>,
    /// By key: the index at which it is said to have succeeded, and when that was.
    succeeded: BTreeMap<String, (u64, Duration)>,
    now: Duration,
    in_flight: BTreeSet<String>,
    /// Attempts that were claimed when the one before was still out: to be sent only after it was read back.
    resent: BTreeSet<(String, u32)>,
    /// Keys that were read back since they were sent last, and the epoch of whoever did.
    read_back: BTreeMap<String, Epoch>,
    /// By key: the highest epoch that has read it back, and fenced the backend before.
    fenced: BTreeMap<String, Epoch>,
}

impl Outcomes {
    pub(super) fn new(plan: &Plan) -> Outcomes {
        Outcomes { backend_fences: plan.backend.fences, ..Outcomes::default() }
    }

    fn fails(&mut self, key: String, attempt: u32) -> Result<(), String> {
        self.in_flight.remove(&key);
        if let Some(done) = self.effects.get(&key).filter(|done| **done <= attempt) {
            return Err(format!(
                "attempt {attempt} of {key} is said to have failed, and attempt {done} was carried out"
            ));
        }
        self.failed.insert(key, attempt);
        Ok(())
    }
}

impl Invariant for Outcomes {
    fn name(&self) -> &'static str {
        "outcomes"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        self.now = sighting.at;
        if let Some(applied) = self.log.first(sighting) {
            for event in &applied.events {
                match event {
                    Event::LeaderAnnounced { epoch, .. } => self.announced.push((*epoch, sighting.at)),
                    Event::ActionClaimed { action } => {
                        let key = action.key();
                        if !self.in_flight.insert(key.clone()) {
                            self.resent.insert((key, action.attempt));
                        }
                    }
                    Event::ActionReturned { action } => self.fails(action.key(), action.attempt)?,
                    Event::ActionSettled { action, .. } => match action.status {
                        ActionStatus::Failed | ActionStatus::DeadLettered => {
                            self.fails(action.key(), action.attempt)?;
                        }
                        ActionStatus::Succeeded => {
                            self.in_flight.remove(&action.key());
                            self.succeeded.insert(action.key(), (applied.index.0, sighting.at));
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
        let Seen::Ledger(line) = &sighting.what else { return Ok(()) };
        let sender = (line.key.clone(), line.epoch);
        if line.event == LedgerEvent::Sent && !self.backend_fences {
            let overtaken = |(epoch, at): &(Epoch, Duration)| line.epoch < *epoch && *at < sighting.at;
            if self.announced.iter().any(overtaken) {
                self.stragglers.insert(sender.clone());
            }
        }
        match line.event {
            LedgerEvent::ReadBack => {
                self.read_back.insert(line.key.clone(), line.epoch);
                let fenced = self.fenced.entry(line.key.clone()).or_insert(line.epoch);
                *fenced = line.epoch.max(*fenced);
            }
            // A straggler: whoever read back had fenced before, so it will be refused, and what was read stays true.
            LedgerEvent::Sent if self.fenced.get(&line.key).is_some_and(|epoch| line.epoch < *epoch) => {}
            // It was not refused.
            LedgerEvent::Accepted if self.read_back.get(&line.key).is_some_and(|epoch| line.epoch < *epoch) => {
                self.read_back.remove(&line.key);
            }
            LedgerEvent::Sent => {
                let known = self.read_back.remove(&line.key).is_some();
                if !known && self.resent.contains(&(line.key.clone(), line.attempt)) {
                    return Err(format!(
                        "attempt {} of {} ({}) was sent, and nobody had read back what came of the one before",
                        line.attempt, line.key, line.call
                    ));
                }
            }
            LedgerEvent::Effect if self.stragglers.contains(&sender) => {
                self.straggled.insert(line.key.clone());
            }
            LedgerEvent::Effect => {
                if let Some(failed) = self.failed.get(&line.key).filter(|failed| **failed >= line.attempt) {
                    return Err(format!(
                        "attempt {} of {} was carried out, and attempt {failed} is said to have failed",
                        line.attempt, line.key
                    ));
                }
                self.effects.entry(line.key.clone()).or_insert(line.attempt);
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        // The very last lines of the ledger may not have been read.
        let due = |at: Duration| at + LEDGER_LATE < self.now;
        let done = |key: &String| self.effects.contains_key(key) || self.straggled.contains(key);
        match self.succeeded.iter().find(|(key, (_, at))| due(*at) && !done(key)) {
            Some((key, (index, _))) => {
                Err(format!("at {index} {key} is said to have succeeded, and was never carried out"))
            }
            None => Ok(()),
        }
    }
}

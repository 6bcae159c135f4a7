//! Nothing is sent to a backend without a claim in the log that has the same key, epoch and attempt.

use std::collections::BTreeMap;

use loadline_executor::backends::scripted::LedgerEvent;
use loadline_state_machine::{Epoch, Event};

use super::{Agreed, Invariant};
use crate::record::{Seen, Sighting};

#[derive(Debug, Default)]
pub(super) struct Claimed {
    log: Agreed,
    /// By key: the epoch of each attempt.
    claims: BTreeMap<String, BTreeMap<u32, Epoch>>,
}

impl Invariant for Claimed {
    fn name(&self) -> &'static str {
        "claimed"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        if let Some(applied) = self.log.first(sighting) {
            for event in &applied.events {
                let Event::ActionClaimed { action } = event else { continue };
                let Some(last) = action.attempts.last() else { continue };
                self.claims.entry(action.key()).or_default().insert(action.attempt, last.epoch);
            }
        }
        let Seen::Ledger(line) = &sighting.what else { return Ok(()) };
        if line.event != LedgerEvent::Sent {
            return Ok(());
        }
        match self.claims.get(&line.key).and_then(|attempts| attempts.get(&line.attempt)) {
            Some(epoch) if *epoch == line.epoch => Ok(()),
            Some(epoch) => Err(format!(
                "attempt {} of {} ({}) was sent under epoch {}, and claimed under {epoch}",
                line.attempt, line.key, line.call, line.epoch
            )),
            None => Err(format!("attempt {} of {} ({}) was sent and never claimed", line.attempt, line.key, line.call)),
        }
    }
}

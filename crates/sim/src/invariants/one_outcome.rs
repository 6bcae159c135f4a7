//! An action has at most one recorded outcome.
//!
//! A second one is right only where an operator resolves what had been given up; no user here does.

use std::collections::BTreeMap;

use loadline_state_machine::{ActionId, Event};

use super::{Agreed, Invariant};
use crate::record::Sighting;

#[derive(Debug, Default)]
pub(super) struct OneOutcome {
    log: Agreed,
    settled: BTreeMap<ActionId, u64>,
}

impl Invariant for OneOutcome {
    fn name(&self) -> &'static str {
        "one-outcome"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        for event in &applied.events {
            let Event::ActionSettled { action, .. } = event else { continue };
            if let Some(before) = self.settled.insert(action.id, applied.index.0) {
                return Err(format!("action {} was settled at {before} and again at {}", action.id, applied.index));
            }
        }
        Ok(())
    }
}

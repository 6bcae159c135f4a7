//! A backend that can fence takes no order of an earlier leadership once a later one has sent its first.
//!
//! A leader fences before it sends anything, so whatever arrives after its first order and is older was to be refused. Nothing
//! is said about backends that cannot fence: there only time keeps a straggler out.

use loadline_executor::backends::scripted::LedgerEvent;
use loadline_state_machine::Epoch;

use super::Invariant;
use crate::plan::Plan;
use crate::record::{Seen, Sighting};

#[derive(Debug)]
pub(super) struct Fenced {
    fences: bool,
    highest: Option<Epoch>,
}

impl Fenced {
    pub(super) fn new(plan: &Plan) -> Fenced {
        Fenced { fences: plan.backend.fences, highest: None }
    }
}

impl Invariant for Fenced {
    fn name(&self) -> &'static str {
        "fenced"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Seen::Ledger(line) = &sighting.what else { return Ok(()) };
        match line.event {
            LedgerEvent::Sent | LedgerEvent::ReadBack => self.highest = self.highest.max(Some(line.epoch)),
            // The epoch is looked at before anything else is.
            LedgerEvent::Accepted
            | LedgerEvent::Repeated
            | LedgerEvent::RefusedForNow
            | LedgerEvent::OtherParameters
                if self.fences =>
            {
                if let Some(highest) = self.highest.filter(|highest| line.epoch < *highest) {
                    return Err(format!(
                        "the backend took in the order {} ({}) of epoch {} after it was fenced at {highest}",
                        line.key, line.call, line.epoch
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

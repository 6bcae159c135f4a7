//! Nobody begins a call when another node has been elected since: that is what the lease is for.
//!
//! Judged where the executor has just looked at its lease, and not where the call arrives: it may be held up in between, and
//! then the backend's fence is what keeps it out (`fenced`).

use loadline_executor::Step;

use super::Invariant;
use crate::record::{Place, Seen, Sighting};

#[derive(Debug, Default)]
pub(super) struct Lease {
    /// Who was elected last.
    elected: Option<Place>,
}

impl Invariant for Lease {
    fn name(&self) -> &'static str {
        "lease"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        match &sighting.what {
            Seen::Elected { node, .. } => self.elected = Some(*node),
            Seen::Step { node, step: Step::BeforeCall, action } => {
                if let Some(elected) = self.elected.filter(|elected| elected != node) {
                    let (n, elected) = (node + 1, elected + 1);
                    return Err(format!("n{n} is about to call for action {action}, and n{elected} was elected since"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

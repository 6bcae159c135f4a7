//! Where nothing goes wrong, nobody is elected after the first; and no two nodes announce themselves under one epoch.

use loadline_state_machine::Event;

use super::{Agreed, Invariant};
use crate::plan::Plan;
use crate::record::Sighting;

#[derive(Debug)]
pub(super) struct Elections {
    log: Agreed,
    calm: bool,
    announced: u64,
    last_term: u64,
}

impl Elections {
    pub(super) fn new(plan: &Plan) -> Elections {
        Elections { log: Agreed::default(), calm: plan.calm(), announced: 0, last_term: 0 }
    }
}

impl Invariant for Elections {
    fn name(&self) -> &'static str {
        "elections"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        for event in &applied.events {
            let Event::LeaderAnnounced { node, term, .. } = event else { continue };
            self.announced += 1;
            if *term <= self.last_term {
                return Err(format!(
                    "at {} node {node} leads in term {term}, after term {}",
                    applied.index, self.last_term
                ));
            }
            self.last_term = *term;
            if self.calm && self.announced > 1 {
                return Err(format!("nothing went wrong, and at {} there was another election", applied.index));
            }
        }
        Ok(())
    }
}

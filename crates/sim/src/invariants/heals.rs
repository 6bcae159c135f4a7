//! Once nothing goes wrong any more, the group serves within 30 s, and within 30 s after the last brake has run out it has
//! done everything there is to do.
//!
//! `run` says when it serves and when it has converged; here it is only counted.

use std::time::Duration;

use super::Invariant;
use crate::plan::Plan;
use crate::record::{Phase, Seen, Sighting};

/// How long either may take.
pub(crate) const WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Heals {
    began: Option<Duration>,
    served: Option<Duration>,
    converged: bool,
}

impl Heals {
    pub(super) fn new(_plan: &Plan) -> Heals {
        Heals { began: None, served: None, converged: false }
    }
}

impl Invariant for Heals {
    fn name(&self) -> &'static str {
        "heals"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        if let Seen::Phase(phase) = &sighting.what {
            match phase {
                Phase::Chaos => {}
                Phase::Heal => self.began = Some(sighting.at),
                Phase::Serves => self.served = Some(sighting.at),
                Phase::Converged => self.converged = true,
            }
        }
        match (self.began, self.served) {
            (Some(began), None) if sighting.at > began + WITHIN => {
                Err(format!("nothing goes wrong since {:.1} s, and nobody serves", began.as_secs_f64()))
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self) -> Result<(), String> {
        if self.converged { Ok(()) } else { Err("it did not converge in time".to_owned()) }
    }
}

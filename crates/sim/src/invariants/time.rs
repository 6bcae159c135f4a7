//! Logical time never goes back, on any node.

use std::collections::BTreeMap;

use loadline_state_machine::Time;

use super::Invariant;
use crate::record::{Place, Seen, Sighting};

#[derive(Debug, Default)]
pub(super) struct LogicalTime {
    last: BTreeMap<(Place, u64), Time>,
}

impl Invariant for LogicalTime {
    fn name(&self) -> &'static str {
        "time"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Seen::Applied(applied) = &sighting.what else { return Ok(()) };
        let before = self.last.insert((applied.node, applied.life), applied.time);
        match before.filter(|before| *before > applied.time) {
            Some(before) => Err(format!(
                "at {} it is {} ms on n{}, and it was {} ms before",
                applied.index,
                applied.time.as_millis(),
                applied.node + 1,
                before.as_millis()
            )),
            None => Ok(()),
        }
    }
}

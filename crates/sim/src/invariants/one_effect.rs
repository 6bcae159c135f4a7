//! The backend carried out at most one order for each action, by its key and by what it does.

use std::collections::BTreeMap;

use loadline_executor::backends::scripted::LedgerEvent;

use super::Invariant;
use crate::record::{Seen, Sighting};

#[derive(Debug, Default)]
pub(super) struct OneEffect {
    effects: BTreeMap<String, u32>,
}

impl Invariant for OneEffect {
    fn name(&self) -> &'static str {
        "one-effect"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Seen::Ledger(line) = &sighting.what else { return Ok(()) };
        if line.event != LedgerEvent::Effect {
            return Ok(());
        }
        let times = self.effects.entry(line.key.clone()).or_default();
        *times += 1;
        if *times > 1 {
            return Err(format!("the order {} ({}) was carried out {times} times", line.key, line.call));
        }
        Ok(())
    }
}

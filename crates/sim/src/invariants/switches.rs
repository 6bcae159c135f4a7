//! No claim is accepted after the index of the kill switch, nor for a cluster that is gone.

use std::collections::BTreeSet;

use loadline_state_machine::{ClusterId, Event, SettingValue};

use super::{Agreed, Invariant};
use crate::record::Sighting;

const KILL_SWITCH: &str = "auto_scaling_enabled";

#[derive(Debug, Default)]
pub(super) struct Switches {
    log: Agreed,
    /// Since which index nothing may be claimed.
    off_since: Option<u64>,
    dropped: BTreeSet<ClusterId>,
}

impl Invariant for Switches {
    fn name(&self) -> &'static str {
        "switches"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        for event in &applied.events {
            match event {
                Event::SettingSet { name, value, .. } if name == KILL_SWITCH => {
                    let off = *value == SettingValue::Bool(false);
                    self.off_since = off.then_some(self.off_since.unwrap_or(applied.index.0));
                }
                Event::SettingReset { name, .. } if name == KILL_SWITCH => self.off_since = None,
                Event::ClusterDropped { cluster } => drop(self.dropped.insert(cluster.id)),
                Event::ActionClaimed { action } => {
                    let (id, index) = (action.id, applied.index);
                    if let Some(off) = self.off_since {
                        return Err(format!(
                            "action {id} was claimed at {index}, and the kill switch is off since {off}"
                        ));
                    }
                    if self.dropped.contains(&action.cluster) {
                        return Err(format!(
                            "action {id} was claimed at {index} for {}, which is gone",
                            action.cluster_name
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

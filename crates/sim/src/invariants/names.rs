//! Names are given once: no two clusters share one, and no two replicas of a cluster. There is never less than nothing of
//! anything.

use std::collections::{BTreeMap, BTreeSet};

use loadline_executor::backends::scripted::LedgerEvent;
use loadline_state_machine::{Call, ClusterId, State};

use super::{Agreed, Invariant};
use crate::record::{Seen, Sighting};

#[derive(Debug, Default)]
pub(super) struct Names {
    log: Agreed,
    /// Replicas that orders made and did not end, with their names.
    made: BTreeMap<(ClusterId, String), i64>,
}

fn check(state: &State) -> Result<(), String> {
    let mut names = BTreeSet::new();
    let mut listed = 0;
    for cluster in state.clusters_after(None) {
        listed += 1;
        if !names.insert(cluster.name.as_str()) {
            return Err(format!("two clusters are called {}", cluster.name));
        }
        if state.cluster_by_id(cluster.id).is_none_or(|by_id| by_id.name != cluster.name) {
            return Err(format!("the cluster {} is known under another name by its id", cluster.name));
        }
        let Some(standing) = state.standing(cluster.id) else { continue };
        let replicas: Vec<&str> = standing.signals().replicas.iter().map(|replica| replica.name.as_ref()).collect();
        if let Some(pair) = replicas.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(format!("replicas of {} are called {} and {}, in this order", cluster.name, pair[0], pair[1]));
        }
    }
    if listed != state.cluster_count() {
        return Err(format!("there are {} clusters, and names for {listed}: two share one", state.cluster_count()));
    }
    Ok(())
}

impl Invariant for Names {
    fn name(&self) -> &'static str {
        "names"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        if let Some(applied) = self.log.first(sighting) {
            return check(&applied.state).map_err(|what| format!("at {}: {what}", applied.index));
        }
        let Seen::Ledger(line) = &sighting.what else { return Ok(()) };
        if line.event != LedgerEvent::Effect {
            return Ok(());
        }
        let change = match &line.call {
            Call::CreateReplica(_) => 1,
            Call::DropReplica(_) => -1,
            _ => return Ok(()),
        };
        let name = line.call.replica().to_string();
        let count = self.made.entry((line.cluster, name.clone())).or_default();
        // What somebody else made may be ended: that is no replica of ours.
        *count = (*count + change).max(0);
        if *count > 1 {
            return Err(format!("there are {count} replicas {name} of cluster {}", line.cluster));
        }
        Ok(())
    }
}

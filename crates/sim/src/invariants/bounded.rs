//! What is kept in memory does not grow with what has happened, only with what there is.

use loadline_state_machine::State;

use super::{Agreed, Invariant};
use crate::record::Sighting;

/// How often the whole state is measured.
const MEASURED_EVERY: u64 = 64;
/// A state with nothing in it, settings included.
const EMPTY_BYTES: usize = 16 << 10;
/// Of one cluster with its signals, its latest decision and its operation; also of one action.
const ROW_BYTES: usize = 16 << 10;
/// Of one request that is remembered, with its answer.
const REQUEST_BYTES: usize = 4 << 10;
/// Actions that a cluster has at one time: one for each replica that is added or goes.
const ACTIONS_PER_CLUSTER: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Bounded {
    log: Agreed,
    /// Clusters that ever were: an action may outlive its cluster, until it is known what came of it.
    clusters_max: usize,
}

fn check(state: &State, clusters_max: usize) -> Result<(), String> {
    let actions_max = (clusters_max + 1) * ACTIONS_PER_CLUSTER;
    if state.action_count() > actions_max {
        return Err(format!("{} actions are unsettled, of {clusters_max} clusters", state.action_count()));
    }
    let kept_max = state.setting("request_window_count").and_then(|it| it.value.parse().ok()).unwrap_or(usize::MAX);
    if state.request_count() > kept_max {
        return Err(format!("{} requests are remembered, and {kept_max} may be", state.request_count()));
    }
    let rows = state.cluster_count() + state.strategy_count() + state.size_count() + state.collectors().count();
    let rows = rows + state.action_count() + state.dead_letter_count() + clusters_max;
    let bytes_max = EMPTY_BYTES + rows * ROW_BYTES + state.request_count() * REQUEST_BYTES;
    let bytes = state.encode().len();
    if bytes > bytes_max {
        return Err(format!("the state takes {bytes} bytes, and what is in it should take no more than {bytes_max}"));
    }
    Ok(())
}

impl Invariant for Bounded {
    fn name(&self) -> &'static str {
        "bounded"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        self.clusters_max = self.clusters_max.max(applied.state.cluster_count());
        if !applied.index.0.is_multiple_of(MEASURED_EVERY) {
            return Ok(());
        }
        check(&applied.state, self.clusters_max).map_err(|what| format!("at {}: {what}", applied.index))
    }
}

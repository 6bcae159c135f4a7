//! Queues as figures: what the clusters wait for that a `queue_depth` strategy rules, read from the state when somebody asks.
//!
//! Clusters are labels only up to a number, because there may be 100,000. A number that nobody knows at the moment is absent.

use loadline_state_machine::State;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, Opts, Registry};

/// Clusters that get time series of their own, the oldest first.
const CLUSTERS_SHOWN_MAX: usize = 100;

/// Made anew each time: what was dropped is gone.
pub(crate) fn families(state: &State) -> Result<Vec<MetricFamily>, prometheus::Error> {
    let registry = Registry::new();
    let gauge = |name: &str, help: &str| GaugeVec::new(Opts::new(name, help), &["cluster"]);
    let depth = gauge("loadline_queue_depth", "Jobs that wait for a cluster that queue_depth rules. The first 100.")?;
    let wait = gauge("loadline_queue_oldest_wait_seconds", "How long the oldest job of such a cluster has waited.")?;
    let busy = gauge("loadline_worker_saturation", "How busy a worker of such a cluster is on average, 0 to 1.")?;
    for (id, queue) in state.queues().take(CLUSTERS_SHOWN_MAX) {
        let Some(cluster) = state.cluster_by_id(id) else { continue };
        let values = [(&depth, queue.depth_milli), (&wait, queue.oldest_wait_milli), (&busy, queue.saturation_milli)];
        for (gauge, value) in values {
            if let Some(milli) = value {
                gauge.with_label_values(&[cluster.name.as_str()]).set(units(milli));
            }
        }
    }
    for gauge in [depth, wait, busy] {
        registry.register(Box::new(gauge))?;
    }
    Ok(registry.gather())
}

#[expect(clippy::cast_precision_loss, reason = "a graph needs no more than 53 bits of precision")]
fn units(milli: i64) -> f64 {
    milli as f64 / 1_000.0
}

//! Clusters that sleep as figures, read from the state when somebody asks. Every node shows the same, as far as it has applied.
//!
//! Clusters are labels only up to a number, because there may be 100,000; how many sleep is told of all.

use loadline_state_machine::State;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntGauge, IntGaugeVec, Opts, Registry};

/// Clusters that get time series of their own, the oldest first.
const CLUSTERS_SHOWN_MAX: usize = 100;

/// Made anew each time: what was dropped is gone.
pub(crate) fn families(state: &State) -> Result<Vec<MetricFamily>, prometheus::Error> {
    let registry = Registry::new();
    let idle_for = GaugeVec::new(
        Opts::new(
            "loadline_scaling_idle_duration_seconds",
            "How long nobody has used a cluster that idle_suspend rules; 0 within the keep-alive window, or a shorter threshold. The first 100.",
        ),
        &["cluster"],
    )?;
    let last_activity = GaugeVec::new(
        Opts::new(
            "loadline_scaling_last_activity_timestamp",
            "When such a cluster was used last, in seconds since 1970; absent if nobody was seen to.",
        ),
        &["cluster"],
    )?;
    let at_zero = IntGaugeVec::new(
        Opts::new("loadline_scaling_is_scaled_to_zero", "1 while such a cluster is at zero."),
        &["cluster"],
    )?;
    let clusters_at_zero =
        IntGauge::new("loadline_scaling_clusters_at_zero", "How many clusters are at zero, of all of them.")?;
    for idle in state.idle_states().take(CLUSTERS_SHOWN_MAX) {
        let Some(cluster) = state.cluster_by_id(idle.cluster) else { continue };
        let label = [cluster.name.as_str()];
        let quiet = idle.idle_since.map_or(0, |since| state.now().since(since).as_millis());
        idle_for.with_label_values(&label).set(seconds(quiet));
        if let Some(at) = idle.last_activity_at {
            last_activity.with_label_values(&label).set(seconds(at.as_millis()));
        }
        at_zero.with_label_values(&label).set(idle.is_scaled_to_zero().into());
    }
    clusters_at_zero.set(i64::try_from(state.clusters_at_zero().count()).unwrap_or(i64::MAX));
    registry.register(Box::new(idle_for))?;
    registry.register(Box::new(last_activity))?;
    registry.register(Box::new(at_zero))?;
    registry.register(Box::new(clusters_at_zero))?;
    Ok(registry.gather())
}

#[expect(clippy::cast_precision_loss, reason = "a graph needs no more than 53 bits of precision")]
fn seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0
}

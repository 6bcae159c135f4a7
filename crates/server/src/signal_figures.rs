//! Configured signals as figures, read from the state when somebody asks. Every node shows the same, as far as it has applied.
//!
//! A signal's name is a label: there are at most a thousand of them. Clusters are labels only up to a number, because there may be
//! 100,000.

use loadline_state_machine::State;
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounterVec, IntGaugeVec, Opts, Registry};

/// Values of signals that get a time series of their own.
const VALUES_SHOWN_MAX: usize = 200;

/// Made anew each time: what was dropped is gone, and two who ask at once do not disturb each other.
pub(crate) fn families(state: &State) -> Result<Vec<MetricFamily>, prometheus::Error> {
    let registry = Registry::new();
    let opts = |name: &str, help: &str| Opts::new(name, help);
    let age = GaugeVec::new(
        opts("loadline_signal_age_seconds", "How old the newest value of a signal is; absent before the first."),
        &["signal"],
    )?;
    let value = GaugeVec::new(
        opts("loadline_signal_value", "The value of a signal that a cluster goes by, of the first 200 of them."),
        &["signal", "cluster"],
    )?;
    let errors = IntCounterVec::new(
        opts("loadline_signal_errors_total", "How often a signal could not be collected, since it was created."),
        &["signal", "kind"],
    )?;
    let stale = IntGaugeVec::new(
        opts(
            "loadline_signal_stale",
            "1 if nobody may rely on a signal: its newest value is too old, or there is none.",
        ),
        &["signal", "kind"],
    )?;
    let mut left = VALUES_SHOWN_MAX;
    for signal in state.signals_after(None) {
        let Some(view) = state.signal_view(&signal.name) else { continue };
        let (name, kind) = (signal.name.as_ref(), signal.kind.as_str());
        errors.with_label_values(&[name, kind]).inc_by(view.standing.errors);
        stale.with_label_values(&[name, kind]).set(view.is_stale().into());
        if let Some(at) = view.standing.collected_at {
            age.with_label_values(&[name]).set(thousandths(state.now().since(at).as_millis()));
        }
        for cluster in state.clusters_of_signal(signal).take(left) {
            let signals = state.standing(cluster.id).map(|standing| standing.signals());
            let metric = signals.and_then(|it| it.metrics.iter().find(|metric| metric.name.as_ref() == name));
            if let Some(metric) = metric {
                let shown = thousandths(metric.value_milli.unsigned_abs());
                value.with_label_values(&[name, &cluster.name]).set(if metric.value_milli < 0 {
                    -shown
                } else {
                    shown
                });
                left -= 1;
            }
        }
    }
    registry.register(Box::new(age))?;
    registry.register(Box::new(value))?;
    registry.register(Box::new(errors))?;
    registry.register(Box::new(stale))?;
    Ok(registry.gather())
}

#[expect(clippy::cast_precision_loss, reason = "a graph needs no more than 53 bits of precision")]
fn thousandths(value: u64) -> f64 {
    value as f64 / 1_000.0
}

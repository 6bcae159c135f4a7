//! What the executor does at backends, as figures. Only a leader acts, so only a leader's figures move: sum them over the nodes.
//!
//! Labels are the names of backends, which a node's own configuration bounds, and kinds and codes.

use loadline_executor::{Alarm, Backends, BreakerState, CallEnding, Finding, Note, Noting};
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec};

use crate::metrics::{Maker, SECONDS};

/// A replica can take a while to start, longer than anything that this node does by itself.
const CALL_SECONDS: [f64; 12] = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

#[derive(Debug)]
pub(crate) struct BackendFigures {
    calls: IntCounterVec,
    call_duration: HistogramVec,
    read_backs: IntCounterVec,
    fences: IntCounterVec,
    breaker: IntGaugeVec,
    alarms: IntCounterVec,
    claims_refused: IntCounterVec,
    obsolete: IntCounter,
    unplaced: IntCounter,
    observations: IntCounterVec,
    observed_differences: IntCounterVec,
    signal_collection: Histogram,
}

impl BackendFigures {
    pub(crate) fn new(m: &Maker) -> BackendFigures {
        BackendFigures {
            calls: m.counters(
                "loadline_backend_calls_total",
                "Calls on a backend that ended, by call and outcome.",
                &["backend", "call", "outcome"],
            ),
            call_duration: m.histograms(
                "loadline_backend_call_duration_seconds",
                "Time of a call on a backend, until its answer or its deadline.",
                &CALL_SECONDS,
                &["backend"],
            ),
            read_backs: m.counters(
                "loadline_backend_read_backs_total",
                "Looks by key for an order of which nobody knew what had become of it, by what was found.",
                &["backend", "finding"],
            ),
            fences: m.counters(
                "loadline_backend_fences_total",
                "Times that a new leader shut earlier ones out of a backend, by result.",
                &["backend", "result"],
            ),
            breaker: m.gauges(
                "loadline_backend_breaker_state",
                "1 for the state of the circuit breaker of a backend, 0 for the others.",
                &["backend", "state"],
            ),
            alarms: m.counters(
                "loadline_backend_alarms_total",
                "Things that somebody has to look at, by kind.",
                &["backend", "alarm"],
            ),
            claims_refused: m.counters(
                "loadline_executor_claims_refused_total",
                "Claims of actions that the group did not accept, by reason.",
                &["reason"],
            ),
            obsolete: m.counter(
                "loadline_executor_obsolete_actions_total",
                "Actions that nobody wanted any more when they were claimed.",
            ),
            unplaced: m.counter(
                "loadline_executor_clusters_without_backend_total",
                "Clusters that a leader found placed on no backend that it can reach; once for each leadership.",
            ),
            observations: m.counters(
                "loadline_backend_observations_total",
                "Looks at the replicas of a cluster, by result.",
                &["backend", "result"],
            ),
            observed_differences: m.counters(
                "loadline_backend_differences_total",
                "Observations in which a backend showed something else than was believed.",
                &["backend"],
            ),
            signal_collection: m.histogram(
                "loadline_auto_scaling_signal_collection_duration_seconds",
                "Time to look at the replicas of one cluster.",
                &SECONDS,
            ),
        }
    }

    /// Shows every backend at once, so that a graph begins with a zero and not with the first failure.
    pub(crate) fn know(&self, backends: &Backends) {
        for name in backends.names() {
            self.set_breaker(name, BreakerState::Closed);
            for alarm in Alarm::ALL {
                self.alarms.with_label_values(&[name, alarm.name()]);
            }
            self.call_duration.with_label_values(&[name]);
        }
    }

    fn set_breaker(&self, backend: &str, state: BreakerState) {
        for each in BreakerState::ALL {
            self.breaker.with_label_values(&[backend, each.name()]).set((each == state).into());
        }
    }
}

impl Noting for BackendFigures {
    fn note(&self, note: &Note<'_>) {
        match note {
            Note::Fenced { backend, .. } => self.fences.with_label_values(&[*backend, "done"]).inc(),
            Note::FenceFailed { backend, .. } => self.fences.with_label_values(&[*backend, "failed"]).inc(),
            Note::CallEnded { backend, action, took, ending, .. } => {
                self.calls.with_label_values(&[backend, action.call.code(), CallEnding::name(*ending)]).inc();
                self.call_duration.with_label_values(&[*backend]).observe(took.as_secs_f64());
            }
            Note::ReadBack { backend, finding, .. } => {
                self.read_backs.with_label_values(&[backend, Finding::name(*finding)]).inc();
            }
            Note::ClaimRefused { code, .. } => self.claims_refused.with_label_values(&[*code]).inc(),
            Note::Obsolete { .. } => self.obsolete.inc(),
            Note::Breaker { backend, state, .. } => self.set_breaker(backend, *state),
            Note::NoBackend { .. } => self.unplaced.inc(),
            Note::Alarm { backend, alarm, .. } => self.alarms.with_label_values(&[backend, alarm.name()]).inc(),
            Note::Observed { backend, took, problem, .. } => {
                let result = if problem.is_some() { "failed" } else { "done" };
                self.observations.with_label_values(&[*backend, result]).inc();
                self.signal_collection.observe(took.as_secs_f64());
            }
            Note::Reported { backend, differences, .. } => {
                self.observed_differences.with_label_values(&[*backend]).inc_by(*differences as u64);
            }
            Note::CallStarted { .. } | Note::Recorded { .. } => {}
        }
    }
}

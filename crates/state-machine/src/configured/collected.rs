//! What the leader's collectors and those who push say about configured signals.
//!
//! Neither carries a sequence, as other reports do: a collector's report names the epoch of its leader, which orders it, and a
//! push that is sent again carries the request id of the first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::commands::{check_epoch, existing};
use super::rejection::SignalRejection;
use super::{Signal, SignalKind};
use crate::names::{check_range, shortened};
use crate::scaling::rejection::ScalingRejection;
use crate::{
    Cluster, ClusterId, Epoch, Event, Field, Observation, Rejection, ResourceName, Revision, Seen, Span, State,
};

/// The names under which these values are in the log. They tell numbers and nothing else, so that they are heard says nothing
/// about the replicas of a cluster.
pub(crate) const COLLECTED: &str = "loadline-signals";
pub(crate) const PUSHED: &str = "loadline-push";

const VALUES_MAX: u64 = 50_000;
const AGE_MAX: Span = Span::from_days(30);

/// What came of asking for one signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collected {
    pub signal: String,
    /// The etag of the signal that was asked for: what an earlier configuration gave is not this one's.
    pub updated: Revision,
    pub outcome: CollectedOutcome,
}

/// New outcomes go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CollectedOutcome {
    /// A number for each of these clusters, as old as this.
    Values { age: Span, values: Vec<(ClusterId, i64)> },
    /// No number: not zero, not the last one, none.
    Nothing { error: String },
}

/// A value that somebody tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushedValue {
    pub signal: String,
    /// One of those that the signal is for; nothing: all of them.
    pub cluster: Option<String>,
    pub value_milli: i64,
    /// How long ago it was measured.
    pub age: Span,
}

pub(crate) fn record(state: &State, epoch: Epoch, collected: &[Collected]) -> Result<Vec<Event>, Rejection> {
    check_epoch(state, epoch)?;
    let values = |it: &Collected| match &it.outcome {
        CollectedOutcome::Values { values, .. } => values.len() as u64,
        CollectedOutcome::Nothing { .. } => 1,
    };
    check_count(collected.iter().map(values).sum())?;
    let mut events = Vec::new();
    let mut reports = Reports::new(state, COLLECTED);
    for it in collected {
        // It may have been dropped or changed since it was asked for.
        let Some(signal) = state.signal(&it.signal).filter(|signal| signal.updated == it.updated) else { continue };
        match &it.outcome {
            CollectedOutcome::Nothing { error } => {
                events.push(Event::SignalFailed { signal: signal.name.to_string(), error: shortened(error) });
            }
            CollectedOutcome::Values { age, values } => {
                check_range(Field::Age, age.as_millis(), 0, AGE_MAX.as_millis())?;
                for (cluster, value_milli) in values {
                    reports.add(*cluster, &signal.name, *value_milli, *age);
                }
            }
        }
    }
    events.extend(reports.into_events());
    Ok(events)
}

pub(crate) fn push(state: &State, pushed: &[PushedValue]) -> Result<Vec<Event>, Rejection> {
    let mut reports = Reports::new(state, PUSHED);
    let mut count = 0;
    for it in pushed {
        let signal = existing(state, &it.signal)?;
        if signal.kind != SignalKind::Push {
            let (signal, kind) = (it.signal.clone(), signal.kind.to_string());
            return Err(SignalRejection::NotPushed { signal, kind }.into());
        }
        check_range(Field::Age, it.age.as_millis(), 0, AGE_MAX.as_millis())?;
        let clusters = meant(state, signal, it.cluster.as_deref())?;
        count += clusters.len() as u64;
        check_count(count)?;
        for cluster in clusters {
            reports.add(cluster, &signal.name, it.value_milli, it.age);
        }
    }
    Ok(reports.into_events())
}

fn check_count(count: u64) -> Result<(), Rejection> {
    if count <= VALUES_MAX {
        return Ok(());
    }
    Err(ScalingRejection::TooMany { field: Field::Observations, count, count_max: VALUES_MAX }.into())
}

fn meant(state: &State, signal: &Signal, cluster: Option<&str>) -> Result<Vec<ClusterId>, Rejection> {
    let mut all = state.clusters_of_signal(signal);
    let Some(name) = cluster else { return Ok(all.map(|cluster| cluster.id).collect()) };
    let missing = || Rejection::NotFound { resource: ResourceName::cluster(shortened(name)) };
    let wanted: &Cluster = state.cluster(name).ok_or_else(missing)?;
    if all.any(|cluster| cluster.id == wanted.id) {
        return Ok(vec![wanted.id]);
    }
    let target = state.target_name(&signal.target).to_string();
    Err(SignalRejection::NotForCluster { signal: signal.name.to_string(), cluster: name.to_owned(), target }.into())
}

/// Values by cluster: each cluster is told, and decided about, once.
struct Reports<'a> {
    state: &'a State,
    collector: &'static str,
    clusters: BTreeMap<ClusterId, Vec<Observation>>,
}

impl<'a> Reports<'a> {
    fn new(state: &'a State, collector: &'static str) -> Self {
        Self { state, collector, clusters: BTreeMap::new() }
    }

    fn add(&mut self, cluster: ClusterId, name: &str, value_milli: i64, age: Span) {
        if self.state.exists(cluster) {
            let seen = Seen::Metric { name: name.to_owned(), value_milli };
            self.clusters.entry(cluster).or_default().push(Observation { age, seen });
        }
    }

    fn into_events(self) -> Vec<Event> {
        let known = self.state.scaling.collectors.get(self.collector);
        let sequence = known.map_or(1, |known| known.sequence.saturating_add(1));
        let told = |(cluster, observations)| Event::SignalsReported {
            collector: self.collector.into(),
            sequence,
            cluster,
            observations,
        };
        self.clusters.into_iter().map(told).collect()
    }
}

//! At which entry each signal came that a decision was made on, and who brought it.

use std::collections::BTreeMap;

use loadline_state_machine::{Decision, Event, Observation, Seen, Time};

use super::{Explainer, Origin};
use crate::trail::TrailError;

/// Entries before a decision that are looked through. Of a signal that came earlier, that is said.
const ENTRIES_MAX: u64 = 20_000;

/// Where the signals of a decision came from.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// By the name under which the decision tells of each.
    pub(super) found: BTreeMap<String, Origin>,
    /// The first entry that was looked at, if what is not found may have come before it.
    pub(super) not_before: Option<u64>,
}

/// A signal that is looked for: under which name it is told, and of when it is.
struct Wanted {
    name: String,
    as_of: Time,
    collector: String,
}

impl Explainer<'_> {
    pub(super) fn arrivals(&self, decision: &Decision, up_to: u64) -> Result<Arrivals, TrailError> {
        let wanted = wanted(decision);
        let Some(earliest) = wanted.iter().map(|it| it.as_of).min() else { return Ok(Arrivals::default()) };
        // What was seen at a time came at that time or later.
        let before = Time::from_millis(earliest.as_millis().saturating_sub(1));
        let earliest = self.trail.not_after(before)?.map_or(1, |index| index + 1);
        let first = earliest.max(up_to.saturating_sub(ENTRIES_MAX)).max(1);
        let mut found: BTreeMap<String, (bool, Origin)> = BTreeMap::new();
        self.trail.walk(first, up_to, |opened| {
            for (cause, event) in &opened.events {
                let Event::SignalsReported { collector, cluster, observations, .. } = event else { continue };
                if *cluster != decision.cluster {
                    continue;
                }
                for it in &wanted {
                    let matching = observations.iter().filter(|seen| is_about(seen, &it.name));
                    for observation in matching.filter(|_| it.collector.is_empty() || *it.collector == **collector) {
                        // The value itself if it is of that very moment; else the last that came, which said the same.
                        let exact = opened.at.since(it.as_of) == observation.age;
                        let known = found.get(&it.name).is_some_and(|(known, _)| *known);
                        if exact || !known {
                            found.insert(it.name.clone(), (exact, Origin::of(opened, *cause)));
                        }
                    }
                }
                for it in wanted.iter().filter(|it| it.name == format!("collector {collector}")) {
                    found.insert(it.name.clone(), (true, Origin::of(opened, *cause)));
                }
            }
            true
        })?;
        let exact = |it: &Wanted| found.get(&it.name).is_some_and(|(exact, _)| *exact);
        if !wanted.iter().all(exact) {
            self.depends_on(first - 1, up_to);
        }
        let found = found.into_iter().map(|(name, (_, origin))| (name, origin)).collect();
        Ok(Arrivals { found, not_before: (first > earliest).then_some(first) })
    }
}

fn wanted(decision: &Decision) -> Vec<Wanted> {
    let inputs = &decision.inputs;
    let mut wanted = Vec::new();
    let mut want = |name: String, as_of: Time, collector: &str| {
        wanted.push(Wanted { name, as_of, collector: collector.to_owned() });
    };
    if let Some(activity) = &inputs.activity {
        want("activity".to_owned(), activity.as_of, &activity.collector);
    }
    for replica in &inputs.replicas {
        let hydrated = replica.hydration.as_ref();
        let as_of = hydrated.map_or(replica.seen_at, |it| it.as_of.max(replica.seen_at));
        want(format!("replica {}", replica.name), as_of, "");
    }
    for metric in &inputs.metrics {
        want(metric.name.to_string(), metric.as_of, &metric.collector);
    }
    for heard in &inputs.collectors {
        want(format!("collector {}", heard.collector), heard.at, &heard.collector);
    }
    wanted
}

fn is_about(observation: &Observation, name: &str) -> bool {
    match &observation.seen {
        Seen::Activity { .. } => name == "activity",
        Seen::Replica { name: replica, .. } | Seen::Hydration { replica, .. } | Seen::Crash { replica, .. } => {
            name.strip_prefix("replica ") == Some(replica)
        }
        Seen::Metric { name: metric, .. } => name == metric,
        Seen::Alive | Seen::ReplicaGone { .. } | Seen::Notice { .. } => false,
    }
}

//! At which entry each signal came that a decision was made on, and who brought it.
//!
//! What is known of a replica comes in parts: that it is there from whoever saw it, or from the outcome of the action that made it; its
//! hydration, its crashes and its notices each from whoever reported those. Each part has an entry of its own.

use std::collections::BTreeMap;

use loadline_state_machine::{ActionStatus, Call, ClusterId, Decision, Event, Observation, Replica, Seen, Span, Time};

use super::{Explainer, Origin};
use crate::trail::TrailError;

/// Entries before a decision that are looked through. Of a signal that came earlier, that is said.
const ENTRIES_MAX: u64 = 20_000;

/// Where the signals of a decision came from.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    found: BTreeMap<Part, Arrival>,
    /// What more is known of replicas than that they are there, in words.
    more: Vec<(Part, String)>,
    /// The first entry that was looked at, if what is not found may have come before it.
    pub(super) not_before: Option<u64>,
}

/// Where a part came from.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) origin: Origin,
    /// It is known from what this action did, and nobody has reported it since.
    pub(super) outcome_of: Option<String>,
    /// It is of that very moment; else it is the last that came, which said the same.
    exact: bool,
}

/// A part of what is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Under the name under which the decision tells of it.
    Whole(String),
    Hydration(String),
    Crash(String),
    Notice(String),
}

/// A part that is looked for, and of when it is.
struct Wanted {
    part: Part,
    as_of: Time,
    collector: String,
}

impl Arrivals {
    /// By the name under which the decision tells of it.
    pub(super) fn of(&self, name: &str) -> Option<&Arrival> {
        self.found.get(&Part::Whole(name.to_owned()))
    }

    /// What more is known of a replica, if it came with another entry than its sight: which part, in words, and where it came from.
    pub(super) fn more_of(&self, name: &str) -> impl Iterator<Item = (String, String, Origin)> {
        let Some(replica) = name.strip_prefix("replica ") else { return Vec::new().into_iter() };
        let sight = self.of(name).map(|arrival| arrival.origin.index);
        let mut more = Vec::new();
        for (part, text) in self.more.iter().filter(|(part, _)| part.replica() == Some(replica)) {
            let origin = match (self.found.get(part), self.not_before) {
                (Some(arrival), _) if Some(arrival.origin.index) == sight => continue,
                (Some(arrival), _) => arrival.origin.clone(),
                (None, Some(_)) => Origin::default(),
                (None, None) => continue,
            };
            let known = origin.index.is_some();
            let before = self.not_before.filter(|_| !known);
            let before = before.map(|first| format!("; it came before entry {first}, further back than was looked"));
            more.push((format!("{name} {}", part.word()), text.clone() + &before.unwrap_or_default(), origin));
        }
        more.into_iter()
    }
}

impl Part {
    /// The replica of which this is more than that it is there.
    fn replica(&self) -> Option<&str> {
        match self {
            Part::Whole(_) => None,
            Part::Hydration(replica) | Part::Crash(replica) | Part::Notice(replica) => Some(replica),
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Part::Whole(_) => "sight",
            Part::Hydration(_) => "hydration",
            Part::Crash(_) => "crash",
            Part::Notice(_) => "notice",
        }
    }

    fn is_about(&self, observation: &Observation) -> bool {
        match (self, &observation.seen) {
            (Part::Whole(name), Seen::Activity { .. }) => name == "activity",
            (Part::Whole(name), Seen::Replica { name: replica, .. }) => name.strip_prefix("replica ") == Some(replica),
            (Part::Whole(name), Seen::Metric { name: metric, .. }) => name == metric,
            (Part::Hydration(name), Seen::Hydration { replica, .. })
            | (Part::Crash(name), Seen::Crash { replica, .. })
            | (Part::Notice(name), Seen::Notice { replica, .. }) => name == replica,
            _ => false,
        }
    }
}

impl Explainer<'_> {
    pub(super) fn arrivals(&self, decision: &Decision, up_to: u64) -> Result<Arrivals, TrailError> {
        let (wanted, more) = wanted(decision);
        let Some(earliest) = wanted.iter().map(|it| it.as_of).min() else { return Ok(Arrivals::default()) };
        // What was seen at a time came at that time or later.
        let before = Time::from_millis(earliest.as_millis().saturating_sub(1));
        let earliest = self.trail.not_after(before)?.map_or(1, |index| index + 1);
        let first = earliest.max(up_to.saturating_sub(ENTRIES_MAX)).max(1);
        let mut found: BTreeMap<Part, Arrival> = BTreeMap::new();
        self.trail.walk(first, up_to, |opened| {
            for (cause, event) in &opened.events {
                let mut came = |it: &Wanted, age: Span, outcome_of: Option<String>| {
                    let exact = opened.at.since(it.as_of) == age;
                    let known = found.get(&it.part).is_some_and(|known| known.exact);
                    // What an action did is known of that very moment or from somebody else.
                    if exact || (!known && outcome_of.is_none()) {
                        let origin = Origin::of(opened, *cause);
                        found.insert(it.part.clone(), Arrival { origin, outcome_of, exact });
                    }
                };
                if let Some((replica, action)) = made(event, decision.cluster) {
                    let part = Part::Whole(format!("replica {replica}"));
                    wanted.iter().filter(|it| it.part == part).for_each(|it| {
                        came(it, Span::default(), Some(action.clone()));
                    });
                }
                let Event::SignalsReported { collector, cluster, observations, .. } = event else { continue };
                if *cluster != decision.cluster {
                    continue;
                }
                for it in &wanted {
                    let matching = observations.iter().filter(|seen| it.part.is_about(seen));
                    for observation in matching.filter(|_| it.collector.is_empty() || *it.collector == **collector) {
                        came(it, observation.age, None);
                    }
                }
                let heard = Part::Whole(format!("collector {collector}"));
                if wanted.iter().any(|it| it.part == heard) {
                    let origin = Origin::of(opened, *cause);
                    found.insert(heard, Arrival { origin, outcome_of: None, exact: true });
                }
            }
            true
        })?;
        if !wanted.iter().all(|it| found.get(&it.part).is_some_and(|known| known.exact)) {
            self.depends_on(first - 1, up_to);
        }
        Ok(Arrivals { found, more, not_before: (first > earliest).then_some(first) })
    }
}

/// The replica of a cluster that is known to be there because an action has made it, and the action.
fn made(event: &Event, cluster: ClusterId) -> Option<(&str, String)> {
    match event {
        Event::ActionSettled { action, .. } if action.cluster == cluster => match (&action.call, action.status) {
            (Call::CreateReplica(_), ActionStatus::Succeeded) => Some((action.call.replica(), action.id.to_string())),
            _ => None,
        },
        _ => None,
    }
}

fn wanted(decision: &Decision) -> (Vec<Wanted>, Vec<(Part, String)>) {
    let inputs = &decision.inputs;
    let mut wanted = Vec::new();
    let mut want = |part: Part, as_of: Time, collector: &str| {
        wanted.push(Wanted { part, as_of, collector: collector.to_owned() });
    };
    if let Some(activity) = &inputs.activity {
        want(Part::Whole("activity".to_owned()), activity.as_of, &activity.collector);
    }
    let mut more = Vec::new();
    for replica in &inputs.replicas {
        want(Part::Whole(format!("replica {}", replica.name)), replica.seen_at, "");
        for (part, as_of, collector, text) in parts(replica) {
            want(part.clone(), as_of, collector);
            more.push((part, text));
        }
    }
    for metric in &inputs.metrics {
        want(Part::Whole(metric.name.to_string()), metric.as_of, &metric.collector);
    }
    for heard in &inputs.collectors {
        want(Part::Whole(format!("collector {}", heard.collector)), heard.at, &heard.collector);
    }
    (wanted, more)
}

/// What more is known of a replica, of when, from whom if that is kept, and in words.
fn parts(replica: &Replica) -> Vec<(Part, Time, &str, String)> {
    let name = || replica.name.to_string();
    let mut parts = Vec::new();
    if let Some(it) = &replica.hydration {
        let text = format!("hydration of {}: {} of {}", replica.name, it.hydrated, it.total);
        parts.push((Part::Hydration(name()), it.as_of, &*it.collector, text));
    }
    if let Some(last) = replica.crashes.last() {
        parts.push((Part::Crash(name()), last.at, "", format!("the last crash of {}", replica.name)));
    }
    if let Some(notice) = &replica.notice {
        let text = format!("the {} notice for {}", notice.kind.as_str(), replica.name);
        parts.push((Part::Notice(name()), notice.given_at, "", text));
    }
    parts
}

//! How collectors tell what they see, and how it is written down.
//!
//! One report carries many observations about many clusters. Reports of one collector are a stream with a sequence: one
//! that was heard before is answered and changes nothing. Observations that say the same again only make it fresh again.

use serde::{Deserialize, Serialize};

use super::replica::{Crash, Hydration, Notice, NoticeKind, Replica};
use super::shared::SharedNames;
use super::{Activity, Gone, Heard, Metric, Signals, insert_exactly};
use crate::access::authorize::authorize;
use crate::apply::COMMANDS_PER_REQUEST_MAX;
use crate::configured::collected::{COLLECTED, PUSHED};
use crate::decide::Moment;
use crate::names::{check_name, check_range, shortened};
use crate::scaling::rejection::ScalingRejection;
use crate::sizes::Sizes;
use crate::table::Key;
use crate::{ClusterId, Command, Event, Field, NameProblem, Rejection, Request, Span, State, Time};

/// What one collector has to say about one cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterReport {
    pub cluster: ClusterRef,
    pub observations: Vec<Observation>,
}

/// A cluster by the name that users know, or by the id that stays when it is renamed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClusterRef {
    Name(String),
    Id(ClusterId),
}

/// Something that was seen some time ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// How long ago the collector saw it. Its clock is not ours, but a second is a second.
    pub age: Span,
    pub seen: Seen,
}

/// New sights go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seen {
    /// The collector looks, and there is nothing new: everything it said last still holds.
    Alive,
    /// How long ago the cluster was last used when the collector looked; nothing if it has seen no use at all.
    Activity {
        idle_for: Option<Span>,
    },
    Replica {
        name: String,
        size: String,
        incarnation: Option<String>,
        ready: bool,
    },
    /// With an incarnation: only if it is that one.
    ReplicaGone {
        name: String,
        incarnation: Option<String>,
    },
    /// An object without a status counts as not hydrated.
    Hydration {
        replica: String,
        total: u64,
        hydrated: u64,
    },
    Crash {
        replica: String,
        oom: bool,
        reason: String,
        count: u64,
    },
    Metric {
        name: String,
        value_milli: i64,
    },
    Notice {
        replica: String,
        kind: NoticeKind,
        gone_in: Option<Span>,
    },
}

const CLUSTERS_PER_REPORT_MAX: u64 = 10_000;
const OBSERVATIONS_PER_REPORT_MAX: u64 = 50_000;
const CRASHES_PER_REPORT_MAX: u64 = 1_000_000;
/// An observation older than this says nothing about now.
const AGE_MAX: Span = Span::from_days(30);
/// Long enough for a name of Kubernetes or an instance id.
const OUTSIDE_NAME_BYTES_MAX: usize = 253;

/// Per cluster. What is beyond is left out: the rest of a report about other things must not suffer.
pub(crate) const REPLICAS_MAX: usize = 256;
const METRICS_MAX: usize = 64;
const COLLECTORS_PER_CLUSTER_MAX: usize = 16;
const GONE_KEPT_MAX: usize = 16;

/// What became of a report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReceipt {
    /// True: it was heard before.
    pub repeated: bool,
    /// The last sequence that was accepted; the next report must have a higher one.
    pub sequence: u64,
    /// Clusters that do not exist, or no longer.
    pub unknown: Vec<String>,
}

pub(crate) fn report(
    state: &State,
    collector: &str,
    sequence: u64,
    clusters: &[ClusterReport],
) -> Result<Vec<Event>, Rejection> {
    check_name(Field::Collector, collector)?;
    let known = state.scaling.collectors.get(collector);
    if known.is_some_and(|known| sequence <= known.sequence) {
        return Ok(vec![]);
    }
    let collectors = state.scaling.collectors.len();
    if known.is_none() && collectors >= super::collectors::COLLECTORS_MAX {
        let (count, count_max) = (collectors as u64 + 1, super::collectors::COLLECTORS_MAX as u64);
        return Err(ScalingRejection::TooMany { field: Field::Collector, count, count_max }.into());
    }
    check_all(clusters)?;

    let mut events = Vec::with_capacity(clusters.len());
    let collector = Key::from(collector);
    for report in clusters {
        if let Some(cluster) = find(state, &report.cluster) {
            let observations = report.observations.iter().map(trimmed).collect();
            let collector = Key::clone(&collector);
            events.push(Event::SignalsReported { collector, sequence, cluster, observations });
        }
    }
    if events.is_empty() {
        events.push(Event::CollectorHeard { collector, sequence });
    }
    Ok(events)
}

/// Whether the request is of reports only, none of which is refused. Nothing that a report brings about can have another one
/// refused, so all of them can be asked before the first is carried out, and nobody needs a fork to go back to.
pub(crate) fn none_is_refused(state: &State, at: Moment, request: &Request) -> bool {
    let room = state.scaling.collectors.len() + request.commands.len() <= super::collectors::COLLECTORS_MAX;
    let accepted = |command: &Command| match command {
        Command::ReportSignals { collector, clusters, .. } => {
            check_report(collector, clusters).is_ok() && authorize(state, at, &request.actor, command).is_ok()
        }
        _ => false,
    };
    room && request.commands.len() <= COMMANDS_PER_REQUEST_MAX && request.commands.iter().all(accepted)
}

/// More or less, to make room for.
pub(crate) fn events_expected(command: &Command) -> usize {
    match command {
        Command::ReportSignals { clusters, .. } => clusters.len(),
        _ => 2,
    }
}

/// What no state would accept. Whoever takes reports in asks before they cost everybody an entry of the log.
pub fn check_report(collector: &str, clusters: &[ClusterReport]) -> Result<(), Rejection> {
    check_name(Field::Collector, collector)?;
    check_all(clusters)
}

fn check_all(clusters: &[ClusterReport]) -> Result<(), Rejection> {
    let too_many = |field, count, count_max| Err(ScalingRejection::TooMany { field, count, count_max }.into());
    if clusters.len() as u64 > CLUSTERS_PER_REPORT_MAX {
        return too_many(Field::Clusters, clusters.len() as u64, CLUSTERS_PER_REPORT_MAX);
    }
    let observations: u64 = clusters.iter().map(|report| report.observations.len() as u64).sum();
    if observations > OBSERVATIONS_PER_REPORT_MAX {
        return too_many(Field::Observations, observations, OBSERVATIONS_PER_REPORT_MAX);
    }
    clusters.iter().flat_map(|report| &report.observations).try_for_each(check)
}

pub(crate) fn find(state: &State, cluster: &ClusterRef) -> Option<ClusterId> {
    match cluster {
        ClusterRef::Name(name) => state.clusters.id(name),
        ClusterRef::Id(id) => state.exists(*id).then_some(*id),
    }
}

/// What to answer after the report was decided.
pub(crate) fn receipt(state: &State, collector: &str, clusters: &[ClusterReport], events: &[Event]) -> ReportReceipt {
    const UNKNOWN_LISTED_MAX: usize = 20;
    // One event for each cluster that exists; if there are as many as clusters, none needs to be looked for.
    let all_known = events.len() == clusters.len() && !matches!(events, [Event::CollectorHeard { .. }]);
    let some = if all_known { &[] } else { clusters };
    let unknown = some.iter().filter(|report| find(state, &report.cluster).is_none());
    let shown = |cluster: &ClusterRef| match cluster {
        ClusterRef::Name(name) => shortened(name),
        ClusterRef::Id(id) => id.to_string(),
    };
    ReportReceipt {
        repeated: events.is_empty(),
        sequence: state.scaling.collectors.get(collector).map_or(0, |known| known.sequence),
        unknown: unknown.map(|report| shown(&report.cluster)).take(UNKNOWN_LISTED_MAX).collect(),
    }
}

fn check(observation: &Observation) -> Result<(), Rejection> {
    check_range(Field::Age, observation.age.as_millis(), 0, AGE_MAX.as_millis())?;
    match &observation.seen {
        Seen::Alive | Seen::Activity { .. } => Ok(()),
        Seen::Replica { name, size, incarnation, ready: _ } => {
            check_outside_name(Field::Replica, name)?;
            check_outside_name(Field::Size, size)?;
            incarnation.as_deref().map_or(Ok(()), |it| check_outside_name(Field::Incarnation, it))
        }
        Seen::ReplicaGone { name, incarnation } => {
            check_outside_name(Field::Replica, name)?;
            incarnation.as_deref().map_or(Ok(()), |it| check_outside_name(Field::Incarnation, it))
        }
        Seen::Hydration { replica, total, hydrated } => {
            check_outside_name(Field::Replica, replica)?;
            check_range(Field::Hydrated, *hydrated, 0, *total)
        }
        Seen::Crash { replica, count, .. } => {
            check_outside_name(Field::Replica, replica)?;
            check_range(Field::Count, *count, 1, CRASHES_PER_REPORT_MAX)
        }
        Seen::Metric { name, .. } => check_outside_name(Field::Metric, name),
        Seen::Notice { replica, .. } => check_outside_name(Field::Replica, replica),
    }
}

/// Names that others give follow their rules; here only what would spoil a listing.
pub(crate) fn check_outside_name(field: Field, name: &str) -> Result<(), Rejection> {
    let problem = if name.is_empty() {
        NameProblem::Empty
    } else if name.len() > OUTSIDE_NAME_BYTES_MAX {
        NameProblem::TooLong { bytes: name.len() as u64 }
    } else if let Some(character) = name.chars().find(|c| c.is_control() || c.is_whitespace()) {
        NameProblem::Contains { character }
    } else {
        return Ok(());
    };
    Err(Rejection::InvalidText { field, value: shortened(name), problem })
}

/// A crash's reason is somebody's log line: enough to recognise it.
fn trimmed(observation: &Observation) -> Observation {
    let mut observation = observation.clone();
    if let Seen::Crash { reason, .. } = &mut observation.seen {
        *reason = shortened(reason);
    }
    observation
}

impl Noting<'_> {
    fn size(&self, size: &str) -> Key {
        self.sizes.key(size).unwrap_or_else(|| size.into())
    }
}

/// Around what a collector saw.
#[derive(Debug)]
pub(crate) struct Noting<'a> {
    pub(crate) collector: Key,
    pub(crate) now: Time,
    pub(crate) stale_after: Span,
    pub(crate) sizes: &'a Sizes,
    pub(crate) names: &'a mut SharedNames,
}

impl Signals {
    /// Writes down what a collector saw. True: a cluster without replicas got its first.
    pub(crate) fn note(&mut self, observations: &[Observation], mut noting: Noting<'_>) -> bool {
        let was_empty = self.replicas.is_empty();
        let mut latest = None;
        let mut confirmed = None;
        for observation in observations {
            let as_of = noting.now.before(observation.age);
            latest = latest.max(Some(as_of));
            if observation.seen == Seen::Alive {
                confirmed = confirmed.max(Some(as_of));
            }
            self.note_one(as_of, &observation.seen, &mut noting);
        }
        // Whoever tells numbers of configured signals sees nothing of the replicas: silence of those who do must not be
        // covered up.
        let sees = !matches!(noting.collector.as_ref(), COLLECTED | PUSHED);
        if let Some(as_of) = latest.filter(|_| sees) {
            self.hear(&noting.collector, as_of, confirmed);
        }
        was_empty && !self.replicas.is_empty()
    }

    fn hear(&mut self, collector: &Key, at: Time, confirmed_at: Option<Time>) {
        match self.collectors.binary_search_by(|heard| heard.collector.cmp(collector)) {
            Ok(place) => {
                let heard = &mut self.collectors[place];
                heard.at = heard.at.max(at);
                heard.confirmed_at = heard.confirmed_at.max(confirmed_at);
            }
            Err(place) => {
                insert_exactly(
                    &mut self.collectors,
                    place,
                    Heard { collector: Key::clone(collector), at, confirmed_at },
                );
                if self.collectors.len() > COLLECTORS_PER_CLUSTER_MAX {
                    let oldest = self.collectors.iter().map(|heard| heard.at).min();
                    if let Some(place) = self.collectors.iter().position(|heard| Some(heard.at) == oldest) {
                        self.collectors.remove(place);
                    }
                }
            }
        }
    }

    fn note_one(&mut self, as_of: Time, seen: &Seen, noting: &mut Noting<'_>) {
        let collector = &noting.collector;
        match seen {
            Seen::Alive => {}
            Seen::Activity { idle_for } => self.note_activity(as_of, *idle_for, noting),
            Seen::Replica { name, size, incarnation, ready } => {
                self.note_replica(as_of, name, size, incarnation.as_deref(), *ready, noting);
            }
            Seen::ReplicaGone { name, incarnation } => self.note_gone(as_of, name, incarnation.as_deref()),
            Seen::Hydration { replica, total, hydrated } => {
                let Some(replica) = self.replica_mut(replica) else { return };
                if replica.hydration.as_ref().is_none_or(|known| known.as_of <= as_of) && replica.since <= as_of {
                    let collector = Key::clone(collector);
                    replica.hydration = Some(Hydration { total: *total, hydrated: *hydrated, as_of, collector });
                }
            }
            Seen::Crash { replica, oom, reason, count } => {
                let Some(replica) = self.replica_mut(replica) else { return };
                // A crash of an earlier life under this name is not this one's.
                if replica.since <= as_of {
                    let oom_count = if *oom { *count } else { 0 };
                    replica.crashed(Crash { at: as_of, count: *count, oom_count, reason: reason.as_str().into() });
                }
            }
            Seen::Metric { name, value_milli } => {
                self.make_room_for_metric(name, noting.now, noting.stale_after);
                self.note_metric(collector, as_of, name, *value_milli);
            }
            Seen::Notice { replica, kind, gone_in } => {
                let Some(replica) = self.replica_mut(replica) else { return };
                if replica.since <= as_of {
                    let gone_at = gone_in.map(|span| as_of + span);
                    replica.notice = Some(Box::new(Notice { kind: *kind, given_at: as_of, gone_at }));
                }
            }
        }
    }

    fn note_activity(&mut self, as_of: Time, idle_for: Option<Span>, noting: &Noting<'_>) {
        let Noting { collector, now, stale_after, .. } = noting;
        let last_at = idle_for.map(|idle_for| as_of.before(idle_for));
        let Some(known) = &self.activity else {
            let none_since = as_of;
            self.activity = Some(Activity { last_at, none_since, as_of, collector: Key::clone(collector) });
            return;
        };
        // Nobody looked for a while, so that nobody was seen since then is not known.
        let watched =
            self.freshness(&known.collector, known.as_of, *now, *stale_after).is_fresh() && known.last_at.is_none();
        let activity = Activity {
            // What one collector did not see, another may have.
            last_at: known.last_at.max(last_at),
            none_since: if watched { known.none_since.min(as_of) } else { as_of },
            as_of: known.as_of.max(as_of),
            collector: Key::clone(if known.as_of <= as_of { collector } else { &known.collector }),
        };
        self.activity = Some(activity);
    }

    fn note_replica(
        &mut self,
        as_of: Time,
        name: &str,
        size: &str,
        incarnation: Option<&str>,
        ready: bool,
        noting: &mut Noting<'_>,
    ) {
        // Seen before it went: an old sight must not bring a dropped replica back.
        if self.gone.iter().any(|gone| gone.name.as_ref() == name && as_of <= gone.at) {
            return;
        }
        if let Some(known) = self.replica_mut(name) {
            let same_life = match (&known.incarnation, incarnation) {
                (Some(known), Some(seen)) => known.as_ref() == seen,
                _ => true,
            };
            if same_life {
                if as_of >= known.seen_at {
                    known.seen_at = as_of;
                    known.ready = ready;
                    if known.size.as_ref() != size {
                        known.size = noting.size(size);
                    }
                    known.incarnation = known.incarnation.take().or_else(|| incarnation.map(Key::from));
                }
                return;
            }
            if as_of < known.seen_at {
                return;
            }
        } else if self.replicas.len() >= REPLICAS_MAX {
            return;
        }
        let (name, size) = (noting.names.key(name), noting.size(size));
        let mut replica = Replica::new(name, size, incarnation.map(Key::from), as_of);
        replica.ready = ready;
        self.put_replica(replica);
    }

    fn note_gone(&mut self, as_of: Time, name: &str, incarnation: Option<&str>) {
        let Some(known) = self.replica(name) else { return };
        let same_life = match (&known.incarnation, incarnation) {
            (Some(known), Some(gone)) => known.as_ref() == gone,
            _ => true,
        };
        if same_life && as_of >= known.seen_at {
            self.forget_replica(name, as_of);
        }
    }

    /// The replica is gone, and sights of it from before are to be disregarded.
    pub(crate) fn forget_replica(&mut self, name: &str, at: Time) {
        self.remove_replica(name);
        self.gone.retain(|gone| gone.name.as_ref() != name);
        let last = self.gone.len();
        insert_exactly(&mut self.gone, last, Gone { name: name.into(), at });
        if self.gone.len() > GONE_KEPT_MAX {
            self.gone.remove(0);
        }
    }

    /// A signal that was dropped leaves its last value behind: it must not keep the place of another for ever.
    fn make_room_for_metric(&mut self, name: &str, now: Time, stale_after: Span) {
        let known = self.metrics.binary_search_by(|metric| metric.name.as_ref().cmp(name)).is_ok();
        if known || self.metrics.len() < METRICS_MAX {
            return;
        }
        let oldest = self.metrics.iter().enumerate().min_by_key(|(_, metric)| metric.as_of);
        if let Some((place, metric)) = oldest
            && now.since(metric.as_of) > stale_after
        {
            self.metrics.remove(place);
        }
    }

    fn note_metric(&mut self, collector: &Key, as_of: Time, name: &str, value_milli: i64) {
        match self.metrics.binary_search_by(|metric| metric.name.as_ref().cmp(name)) {
            Ok(place) => {
                let metric = &mut self.metrics[place];
                if metric.as_of <= as_of {
                    *metric =
                        Metric { name: Key::clone(&metric.name), value_milli, as_of, collector: Key::clone(collector) };
                }
            }
            Err(place) if self.metrics.len() < METRICS_MAX => {
                let collector = Key::clone(collector);
                insert_exactly(&mut self.metrics, place, Metric { name: name.into(), value_milli, as_of, collector });
            }
            Err(_) => {}
        }
    }
}

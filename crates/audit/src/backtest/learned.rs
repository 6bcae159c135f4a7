//! What the record says about how long things take: until an action is taken up, until a call has come back, until a new
//! replica is ready, until it is hydrated.
//!
//! From the window alone, though the record may have more before it. How much more depends on who is asked: a folder can be replayed
//! from a snapshot on, an export from where it begins, and what is let go is set for each node. Whoever can run the window has all of
//! it, so the same question gets the same answer everywhere. The price is that a window in which nothing was started says nothing
//! about starting; a longer one does.
//!
//! Medians, because one replica that took an hour says nothing about the next; in whole milliseconds, so that every machine
//! comes to the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use loadline_state_machine::{
    Action, ActionId, ActionStatus, Applied, Call, ClusterId, Command, Event, JournalEntry, Observation, Seen, Span,
    State, Time,
};

use super::given::replica_of;

/// How long a call takes of which the record has none.
pub(super) const CALL_DEFAULT: Span = Span::from_millis(100);
/// How long a replica takes to become ready if none in the record did.
pub(super) const START_UP_DEFAULT: Span = Span::from_secs(10);

/// How far entries are apart at least, even if the record's are closer: what a node writes in between is not the same in two
/// runs.
const ENTRIES_APART_MIN: Span = Span::from_secs(1);

/// How often each length of time was seen. There are far fewer lengths than events.
#[derive(Debug, Clone, Default)]
struct Samples {
    millis: BTreeMap<u64, u64>,
    count: u64,
}

impl Samples {
    fn add(&mut self, span: Span) {
        *self.millis.entry(span.as_millis()).or_default() += 1;
        self.count += 1;
    }

    /// The middle one; of two in the middle, what lies between them, in whole milliseconds.
    fn median(&self) -> Option<Span> {
        let (lower, upper) = (self.at(self.count.checked_sub(1)? / 2)?, self.at(self.count / 2)?);
        Some(Span::from_millis(lower + (upper - lower).div_ceil(2)))
    }

    /// The one at this place, from the shortest on.
    fn at(&self, place: u64) -> Option<u64> {
        let mut before = 0;
        let mut is_there = |count: &u64| {
            before += count;
            before > place
        };
        self.millis.iter().find(|(_, count)| is_there(count)).map(|(millis, _)| *millis)
    }
}

/// A replica that was made in the record and is not through yet.
#[derive(Debug, Clone)]
struct Young {
    size: Arc<str>,
    made_at: Time,
    ready: bool,
}

/// What was seen of a replica before it was known to be made.
#[derive(Debug, Clone, Default)]
struct Early {
    claimed_at: Time,
    ready: bool,
    hydrated: bool,
}

/// Something that took its time on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Length {
    TakenUp,
    Call(&'static str),
    StartUp(Arc<str>),
    Hydration(Arc<str>),
}

/// An action that was planned and never taken up.
#[derive(Debug, Clone)]
pub(super) struct Unclaimed {
    pub(super) what: String,
    pub(super) planned_at: Time,
    pub(super) until: Time,
}

impl Unclaimed {
    pub(super) fn of(action: &Action, until: Time) -> Unclaimed {
        let Action { call, cluster_name, .. } = action;
        let what = format!("{} {} of size {} on {cluster_name}", call.code(), call.replica(), call.size());
        Unclaimed { what, planned_at: action.created_at, until }
    }
}

/// How long things took in the record.
#[derive(Debug, Clone, Default)]
pub(super) struct Learned {
    /// The time of the state before the window.
    before: Time,
    taken_up: Samples,
    /// How long nobody said anything before a tick came.
    silences: Samples,
    last_at: Option<Time>,
    calls: BTreeMap<&'static str, Samples>,
    start_up: BTreeMap<Arc<str>, Samples>,
    hydration: BTreeMap<Arc<str>, Samples>,
    young: BTreeMap<(ClusterId, Arc<str>), Young>,
    /// Those that are being made: they may be there, and be seen, before the call comes back.
    making: BTreeMap<(ClusterId, Arc<str>), Early>,
    /// When somebody approved an action that nobody has taken up yet.
    approved_at: BTreeMap<ActionId, Time>,
    /// When the last call on a cluster came back: the next one could not begin before.
    free_at: BTreeMap<ClusterId, Time>,
    /// Clusters of which anybody reports hydration, and those of which any replica was seen.
    hydrating: BTreeSet<ClusterId>,
    seen: BTreeSet<ClusterId>,
    /// How many calls on each cluster failed, or ended so that nobody knew what had come of them.
    failed_calls: BTreeMap<ClusterId, u64>,
    /// The shortest and the longest of each cluster.
    took: BTreeMap<ClusterId, BTreeMap<Length, (Span, Span)>>,
    /// Of each cluster, the one that waited longest of those that were given up.
    unclaimed: BTreeMap<ClusterId, Unclaimed>,
}

/// What was learned about one size.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LearnedSize {
    pub size: String,
    pub start_up_ms: Option<u64>,
    pub start_ups: u64,
    pub hydration_ms: Option<u64>,
    pub hydrations: u64,
}

impl Learned {
    /// Before the window there is a state, the same on every machine, and what it says by itself.
    pub(super) fn beginning_with(state: &State) -> Learned {
        let mut learned = Learned { before: state.now(), ..Learned::default() };
        for cluster in state.clusters_after(None) {
            let Some(standing) = state.standing(cluster.id) else { continue };
            let replicas = &standing.signals().replicas;
            if !replicas.is_empty() {
                learned.seen.insert(cluster.id);
            }
            if replicas.iter().any(|replica| replica.hydration.is_some()) {
                learned.hydrating.insert(cluster.id);
            }
        }
        for action in state.actions_in_flight() {
            let standing = state.standing(action.cluster);
            let seen = standing.and_then(|it| it.signals().replica(action.call.replica()));
            if let Some(early) = learned.begun(action) {
                early.ready = seen.is_some_and(|it| it.ready);
                early.hydrated = seen.is_some_and(|it| it.hydration.as_ref().is_some_and(|it| it.is_complete()));
            }
        }
        learned
    }

    /// Learns from one entry of the window.
    pub(super) fn note(&mut self, entry: &JournalEntry, applied: &Applied) {
        let before = self.last_at.replace(applied.time);
        if let (Some(before), JournalEntry::Requests(sealed)) = (before, entry) {
            let commands = sealed.entry().requests.iter().flat_map(|request| &request.commands);
            if commands.clone().all(|command| matches!(command, Command::Tick)) {
                self.silences.add(applied.time.since(before));
            }
        }
        for event in &applied.events {
            match event {
                Event::ActionApproved { action } => drop(self.approved_at.insert(action.id, applied.time)),
                Event::ActionClaimed { action } => self.claimed(action, applied.time),
                Event::ActionReturned { action } | Event::ActionUnsure { action } => self.failed(action),
                Event::ActionSettled { action, .. } => self.settled(action, applied.time),
                Event::SignalsReported { cluster, observations, .. } => {
                    self.reported(*cluster, observations, applied.time);
                }
                Event::ClusterDropped { cluster } => self.forget(cluster.id),
                _ => {}
            }
        }
    }

    fn claimed(&mut self, action: &Action, now: Time) {
        let free_at = self.free_at.get(&action.cluster).copied().unwrap_or_default();
        // How long a person thought about it is told by the answer, which the model gets when it came.
        let approved_at = self.approved_at.remove(&action.id).unwrap_or_default();
        let its_turn = action.created_at.max(free_at).max(approved_at);
        // Of what was planned before the window it is not known when the call before it came back.
        if action.attempt == 1 && its_turn > self.before {
            self.lasted(action.cluster, Length::TakenUp, now.since(its_turn));
        }
        self.begun(action);
    }

    fn begun(&mut self, action: &Action) -> Option<&mut Early> {
        let Call::CreateReplica(made) = &action.call else { return None };
        let claimed_at = action.attempts.first().map_or(action.created_at, |attempt| attempt.claimed_at);
        let early = self.making.entry((action.cluster, Arc::clone(&made.name)));
        Some(early.or_insert(Early { claimed_at, ..Early::default() }))
    }

    fn failed(&mut self, action: &Action) {
        *self.failed_calls.entry(action.cluster).or_default() += 1;
    }

    fn lasted(&mut self, cluster: ClusterId, length: Length, span: Span) {
        let samples = match &length {
            Length::TakenUp => &mut self.taken_up,
            Length::Call(code) => self.calls.entry(code).or_default(),
            Length::StartUp(size) => self.start_up.entry(Arc::clone(size)).or_default(),
            Length::Hydration(size) => self.hydration.entry(Arc::clone(size)).or_default(),
        };
        samples.add(span);
        let range = self.took.entry(cluster).or_default().entry(length).or_insert((span, span));
        *range = (range.0.min(span), range.1.max(span));
    }

    /// Nobody wanted it any more before anybody took it up, although its turn had come.
    fn given_up(&mut self, action: &Action, now: Time) {
        let free_at = self.free_at.get(&action.cluster).copied().unwrap_or_default();
        if action.status != ActionStatus::Obsolete || action.attempt > 0 || free_at > action.created_at {
            return;
        }
        let given_up = Unclaimed::of(action, now);
        let waited = |it: &Unclaimed| it.until.since(it.planned_at);
        if self.unclaimed.get(&action.cluster).is_none_or(|longest| waited(longest) < waited(&given_up)) {
            self.unclaimed.insert(action.cluster, given_up);
        }
    }

    fn settled(&mut self, action: &Action, now: Time) {
        self.given_up(action, now);
        self.free_at.insert(action.cluster, now);
        self.approved_at.remove(&action.id);
        let key = (action.cluster, Arc::clone(action.call.replica()));
        let early = match &action.call {
            Call::CreateReplica(_) => self.making.remove(&key).unwrap_or_default(),
            _ => Early::default(),
        };
        if matches!(action.status, ActionStatus::Failed | ActionStatus::DeadLettered) {
            self.failed(action);
        }
        if action.status != ActionStatus::Succeeded {
            return;
        }
        if let Some(attempt) = action.attempts.last() {
            self.lasted(action.cluster, Length::Call(action.call.code()), now.since(attempt.claimed_at));
        }
        match &action.call {
            Call::CreateReplica(made) => {
                self.seen.insert(action.cluster);
                if early.ready {
                    self.lasted(action.cluster, Length::StartUp(Arc::clone(&made.size)), Span::default());
                }
                if early.hydrated {
                    self.lasted(action.cluster, Length::Hydration(Arc::clone(&made.size)), Span::default());
                }
                if !early.hydrated {
                    self.young.insert(key, Young { size: Arc::clone(&made.size), made_at: now, ready: early.ready });
                }
            }
            Call::DropReplica(_) => drop(self.young.remove(&key)),
            _ => {}
        }
    }

    fn reported(&mut self, cluster: ClusterId, observations: &[Observation], now: Time) {
        for observation in observations {
            let at = now.before(observation.age);
            if let Some(early) = replica_of(&observation.seen)
                .and_then(|name| self.making.get_mut(&(cluster, Arc::from(name))))
                .filter(|early| at >= early.claimed_at)
            {
                early.saw(&observation.seen);
            }
            match &observation.seen {
                Seen::Replica { name, ready, .. } => {
                    self.seen.insert(cluster);
                    let young = self.young.get_mut(&(cluster, name.as_str().into()));
                    if let Some(young) = young.filter(|young| *ready && !young.ready) {
                        young.ready = true;
                        let (size, span) = (Arc::clone(&young.size), at.since(young.made_at));
                        self.lasted(cluster, Length::StartUp(size), span);
                    }
                }
                Seen::Hydration { replica, total, hydrated } => {
                    self.hydrating.insert(cluster);
                    let key = (cluster, Arc::from(replica.as_str()));
                    if *total > 0
                        && hydrated >= total
                        && let Some(young) = self.young.remove(&key)
                    {
                        self.lasted(cluster, Length::Hydration(young.size), at.since(young.made_at));
                    }
                }
                Seen::ReplicaGone { name, .. } => drop(self.young.remove(&(cluster, name.as_str().into()))),
                _ => {}
            }
        }
    }

    fn forget(&mut self, cluster: ClusterId) {
        self.free_at.remove(&cluster);
        self.young.retain(|(of, _), _| *of != cluster);
        self.making.retain(|(of, _), _| *of != cluster);
    }

    /// How long a deadline may have passed before an entry comes that notices it.
    pub(super) fn entries_apart(&self) -> Span {
        let tick = self.silences.median().unwrap_or_default();
        Span::from_millis(tick.as_millis().saturating_mul(3) / 2).max(ENTRIES_APART_MIN)
    }

    /// From being planned, and its turn, to being claimed.
    pub(super) fn taken_up(&self) -> Span {
        self.taken_up.median().unwrap_or_default()
    }

    /// From being claimed to its outcome.
    pub(super) fn call(&self, code: &str) -> Span {
        let own = self.calls.get(code).and_then(Samples::median);
        own.or_else(|| median_of_all(self.calls.values())).unwrap_or(CALL_DEFAULT)
    }

    /// From being made to being ready.
    pub(super) fn start_up(&self, size: &str) -> Span {
        let own = self.start_up.get(size).and_then(Samples::median);
        own.or_else(|| median_of_all(self.start_up.values())).unwrap_or(START_UP_DEFAULT)
    }

    /// From being made to being hydrated; nothing if nobody in the record ever reported that of a new replica.
    pub(super) fn hydration(&self, size: &str) -> Option<Span> {
        let own = self.hydration.get(size).and_then(Samples::median);
        own.or_else(|| median_of_all(self.hydration.values()))
    }

    /// Whether somebody tells how far the replicas of this cluster are hydrated. Of one that never had a replica it is
    /// taken that it is as with the others.
    pub(super) fn reports_hydration(&self, cluster: ClusterId) -> bool {
        if self.seen.contains(&cluster) { self.hydrating.contains(&cluster) } else { !self.hydrating.is_empty() }
    }

    /// Calls of the window on this cluster that failed, or of which nobody knew what had come.
    pub(super) fn failed_calls(&self, cluster: ClusterId) -> u64 {
        self.failed_calls.get(&cluster).copied().unwrap_or(0)
    }

    /// The clusters on which there were any, with how many.
    pub(super) fn failures(&self) -> impl Iterator<Item = (ClusterId, u64)> {
        self.failed_calls.iter().map(|(cluster, calls)| (*cluster, *calls))
    }

    /// Of clusters on which an action was given up that nobody had taken up.
    pub(super) fn unclaimed(&self) -> impl Iterator<Item = (&ClusterId, &Unclaimed)> {
        self.unclaimed.iter()
    }

    /// Whether anything on this cluster took, or takes so far, another time than the model goes by, by more than entries are apart.
    pub(super) fn took_otherwise(&self, cluster: ClusterId) -> bool {
        let apart = self.entries_apart();
        let median = |length: &Length| match length {
            Length::TakenUp => self.taken_up(),
            Length::Call(code) => self.call(code),
            Length::StartUp(size) => self.start_up(size),
            Length::Hydration(size) => self.hydration(size).unwrap_or_default(),
        };
        let is_other = |(length, (shortest, longest)): (&Length, &(Span, Span))| {
            let median = median(length);
            let apart_from = |span: &Span| span.as_millis().abs_diff(median.as_millis());
            apart_from(shortest).max(apart_from(longest)) > apart.as_millis()
        };
        let now = self.last_at.unwrap_or_default();
        let of_cluster = |of: &ClusterId| *of == cluster;
        let is_late = |young: &Young| !young.ready && now > young.made_at + self.start_up(&young.size) + apart;
        let is_slow = |early: &Early| now > early.claimed_at + self.call("create_replica") + apart;
        self.took.get(&cluster).into_iter().flatten().any(is_other)
            || self.young.iter().any(|((of, _), young)| of_cluster(of) && is_late(young))
            || self.making.iter().any(|((of, _), early)| of_cluster(of) && is_slow(early))
    }

    /// By name.
    pub(super) fn sizes(&self) -> Vec<LearnedSize> {
        let names: BTreeSet<&Arc<str>> = self.start_up.keys().chain(self.hydration.keys()).collect();
        let row = |size: &Arc<str>| {
            let (start_up, hydration) = (self.start_up.get(size), self.hydration.get(size));
            LearnedSize {
                size: size.to_string(),
                start_up_ms: start_up.and_then(Samples::median).map(Span::as_millis),
                start_ups: start_up.map_or(0, |it| it.count),
                hydration_ms: hydration.and_then(Samples::median).map(Span::as_millis),
                hydrations: hydration.map_or(0, |it| it.count),
            }
        };
        names.into_iter().map(row).collect()
    }

    /// The kinds of calls that came back in the record, each with its median.
    pub(super) fn calls(&self) -> impl Iterator<Item = (&'static str, Span)> {
        self.calls.iter().filter_map(|(code, samples)| Some((*code, samples.median()?)))
    }
}

impl Early {
    fn saw(&mut self, seen: &Seen) {
        match seen {
            Seen::Replica { ready, .. } => self.ready |= ready,
            Seen::Hydration { total, hydrated, .. } => self.hydrated |= *total > 0 && hydrated >= total,
            Seen::ReplicaGone { .. } => (self.ready, self.hydrated) = (false, false),
            _ => {}
        }
    }
}

fn median_of_all<'a>(all: impl Iterator<Item = &'a Samples>) -> Option<Span> {
    let mut together = Samples::default();
    for samples in all {
        for (millis, count) in &samples.millis {
            *together.millis.entry(*millis).or_default() += count;
            together.count += count;
        }
    }
    together.median()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_and_of_two_what_lies_between_them() {
        let median = |all: &[u64]| {
            let mut samples = Samples::default();
            all.iter().for_each(|millis| samples.add(Span::from_millis(*millis)));
            samples.median().map(Span::as_millis)
        };
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7]), Some(7));
        assert_eq!(median(&[9, 3_600_000, 5]), Some(9));
        assert_eq!(median(&[4, 8, 6, 2]), Some(5));
        assert_eq!(median(&[2_000, 9_001]), Some(5_501), "whole milliseconds");
        assert_eq!(median(&[1, 1, 1, 50]), Some(1));
    }

    #[test]
    fn a_size_of_which_nothing_is_known_takes_as_long_as_the_others_or_the_default() {
        let mut learned = Learned::default();
        assert_eq!(learned.start_up("25cc"), START_UP_DEFAULT);
        assert_eq!((learned.call("create_replica"), learned.hydration("25cc")), (CALL_DEFAULT, None));
        learned.start_up.entry("25cc".into()).or_default().add(Span::from_secs(3));
        learned.start_up.entry("50cc".into()).or_default().add(Span::from_secs(8));
        learned.start_up.entry("50cc".into()).or_default().add(Span::from_secs(9));
        assert_eq!(learned.start_up("50cc"), Span::from_millis(8_500));
        assert_eq!(learned.start_up("100cc"), Span::from_secs(8), "the median of 3, 8 and 9");
    }
}

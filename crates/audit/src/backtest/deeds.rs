//! What a run did, and where two runs part.
//!
//! Two runs of the model begin alike, so whatever one decides or does differently, or at another time, comes from the change.
//! Times are the same if they are no further apart than entries are: a deadline is noticed with the next entry, whatever that is
//! for, and the runs do not have the same entries.
//!
//! The record and the model are compared by what was called in which order on each cluster: the model's times are medians, and
//! when exactly a call came is shown, not judged. Only one that is so far ahead that the other would have to do hundreds of calls to
//! come up with it has gone its own way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use loadline_state_machine::{
    Action, Brake, Cluster, ClusterId, Command, Conclusion, Decision, Event, ReplicaSpec, Request, Span, State, Time,
};

use crate::why::{dropped, dry_run, replicas_of, why, why_begun};

/// Calls on one cluster that one run may be ahead of the other: as many as the replicas that a strategy may ask for at once. A run
/// that does nothing at all on a busy cluster would otherwise leave every call of the other one waiting, for as long as the window is.
const AHEAD_MAX: usize = 256;

/// Something that a run decided or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deed {
    pub(super) at: Time,
    /// The entry of the record that had been read last.
    pub(super) index: u64,
    pub(super) cluster: ClusterId,
    pub(super) name: String,
    pub(super) what: What,
    pub(super) why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Decided {
        desired: Vec<ReplicaSpec>,
        conclusion: &'static str,
        brakes: Vec<Brake>,
        /// What would be wanted with the strategies in dry run, where that is something else.
        dry_run: Option<Vec<ReplicaSpec>>,
    },
    Called {
        call: &'static str,
        replica: Arc<str>,
        size: Arc<str>,
    },
    /// The cluster is gone, and nobody drops these.
    Dropped {
        left: Vec<ReplicaSpec>,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Called { call, replica, size } => write!(f, "{call} {replica} of size {size}"),
            Self::Decided { desired, conclusion, brakes, dry_run } => {
                write!(f, "wants {}: {conclusion}", listed(desired))?;
                brakes.iter().try_for_each(|brake| write!(f, ", {}", brake.code()))?;
                dry_run.iter().try_for_each(|wanted| write!(f, ", in dry run {}", listed(wanted)))
            }
            Self::Dropped { left } => f.write_str(&dropped(left)),
        }
    }
}

fn listed(wanted: &[ReplicaSpec]) -> String {
    let wanted: Vec<String> = wanted.iter().map(|spec| format!("{} ({})", spec.name, spec.size)).collect();
    if wanted.is_empty() { "no replica".to_owned() } else { wanted.join(", ") }
}

impl What {
    fn of(decision: &Decision) -> What {
        What::Decided {
            desired: decision.desired.clone(),
            conclusion: decision.conclusion.code(),
            brakes: decision.brakes.iter().map(|held| held.brake).collect(),
            dry_run: dry_run(decision).map(|shadow| shadow.desired.clone()),
        }
    }
}

impl What {
    /// What is there is wanted, whatever it is: if that is something else than in another run, somebody did it.
    fn is_at_rest(&self) -> bool {
        let Self::Decided { conclusion, brakes, dry_run, .. } = self else { return false };
        *conclusion == Conclusion::AsWanted.code() && brakes.is_empty() && dry_run.is_none()
    }
}

impl Deed {
    pub(super) fn is_call(&self) -> bool {
        matches!(self.what, What::Called { .. })
    }

    /// Whether this action is the same call, on whichever cluster.
    pub(super) fn is_call_of(&self, action: &Action) -> bool {
        let What::Called { call, replica, size } = &self.what else { return false };
        action.call.code() == *call && action.call.replica() == replica && action.call.size() == size
    }
}

/// What was decided last about each cluster: the same again, for another reason, is no deed.
#[derive(Debug)]
pub(super) struct Decided {
    /// Before anything of the run.
    fork: State,
    last: BTreeMap<ClusterId, What>,
    /// Before an entry that may drop clusters: afterwards nothing tells any more what they had.
    before: Option<State>,
}

impl Decided {
    pub(super) fn at(fork: &State) -> Decided {
        Decided { fork: fork.clone(), last: BTreeMap::new(), before: None }
    }

    /// Before these are applied.
    pub(super) fn foresee(&mut self, state: &State, requests: &[Request]) {
        let drops =
            |command: &Command| matches!(command, Command::DropCluster { .. } | Command::DropClusterCascade { .. });
        let any = requests.iter().flat_map(|request| &request.commands).any(drops);
        self.before = any.then(|| state.clone());
    }

    /// What is lost with a cluster; nothing if it neither had nor wanted anything.
    fn lost(&mut self, cluster: &Cluster) -> Option<What> {
        self.last.remove(&cluster.id);
        let before = self.before.as_ref()?;
        let left = replicas_of(before, cluster.id);
        let wants = |decision: Decision| !decision.desired.is_empty() || decision.conclusion != Conclusion::AsWanted;
        let wanted = before.decision_by_id(cluster.id).is_some_and(wants);
        (wanted || !left.is_empty()).then_some(What::Dropped { left })
    }

    fn is_news(&mut self, decision: &Decision, what: &What) -> bool {
        let id = decision.cluster;
        let before = || self.fork.decision_by_id(id).map(|decision| What::of(&decision));
        let news = match self.last.get(&id).cloned().or_else(before) {
            Some(before) => before != *what,
            // About a cluster without strategies nothing is decided, which comes to the same.
            None => !what.is_at_rest(),
        };
        if news {
            self.last.insert(id, what.clone());
        }
        news
    }
}

/// What these events say that the run did.
pub(super) fn deeds_of(state: &State, index: u64, at: Time, events: &[Event], decided: &mut Decided) -> Vec<Deed> {
    let deed = |cluster: ClusterId, what, why| {
        let name = state.cluster_by_id(cluster).map_or_else(|| cluster.to_string(), |it| it.name.clone());
        Deed { at, index, cluster, name, what, why }
    };
    let mut deeds = Vec::new();
    for event in events {
        match event {
            Event::DecisionMade { decision } => {
                let what = What::of(decision);
                if decided.is_news(decision, &what) {
                    let begun = events.iter().find_map(|event| match event {
                        Event::OperationBegun { operation } if operation.decision == decision.id => Some(operation),
                        _ => None,
                    });
                    let why = begun.and_then(why_begun).unwrap_or_else(|| why(decision));
                    deeds.push(deed(decision.cluster, what, why));
                }
            }
            Event::ActionClaimed { action } if action.attempt == 1 => {
                let what = What::Called {
                    call: action.call.code(),
                    replica: Arc::clone(action.call.replica()),
                    size: Arc::clone(action.call.size()),
                };
                deeds.push(deed(action.cluster, what, format!("{}: {}", action.by.code(), action.reason)));
            }
            Event::ClusterDropped { cluster } => {
                if let Some(what) = decided.lost(cluster) {
                    let why = "somebody asked for that".to_owned();
                    deeds.push(Deed { name: cluster.name.clone(), ..deed(cluster.id, what, why) });
                }
            }
            _ => {}
        }
    }
    deeds
}

/// Where two runs part for the first time.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The entry of the record that had been read last.
    pub index: u64,
    /// In milliseconds since 1970.
    pub at_ms: u64,
    pub cluster: String,
    /// What the run did that is compared with; nothing if it did nothing more.
    pub one: Option<String>,
    pub one_why: Option<String>,
    pub other: Option<String>,
    pub other_why: Option<String>,
}

impl Difference {
    fn between(one: Option<&Deed>, other: Option<&Deed>) -> Option<Difference> {
        let both = [one, other];
        let earlier = both.into_iter().flatten().min_by_key(|deed| (deed.at, deed.index))?;
        let told = |deed: Option<&Deed>| match deed {
            // The same at another time would else look like no difference.
            Some(deed) if one.zip(other).is_some_and(|(one, other)| one.what == other.what) => {
                Some(format!("{} at {}", deed.what, deed.at))
            }
            deed => deed.map(|deed| deed.what.to_string()),
        };
        Some(Difference {
            index: earlier.index,
            at_ms: earlier.at.as_millis(),
            cluster: earlier.name.clone(),
            one: told(one),
            one_why: one.map(|deed| deed.why.clone()),
            other: told(other),
            other_why: other.map(|deed| deed.why.clone()),
        })
    }

    fn key(&self) -> (u64, u64, &str) {
        (self.at_ms, self.index, &self.cluster)
    }
}

/// Which clusters differ, and where first.
#[derive(Debug, Default)]
pub(super) struct Parted {
    /// Each with the moments between which it parts.
    pub(super) clusters: BTreeMap<ClusterId, (Time, Time)>,
    pub(super) first: Option<Difference>,
}

impl Parted {
    fn note(&mut self, cluster: ClusterId, one: Option<&Deed>, other: Option<&Deed>) {
        let times = || [one, other].into_iter().flatten().map(|deed| deed.at);
        let between = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
        self.clusters.insert(cluster, between);
        let Some(difference) = Difference::between(one, other) else { return };
        if self.first.as_ref().is_none_or(|first| difference.key() < first.key()) {
            self.first = Some(difference);
        }
    }
}

/// Compares two runs of the model.
#[derive(Debug)]
pub(super) struct InTime {
    pub(super) parted: Parted,
    one: BTreeMap<ClusterId, VecDeque<Deed>>,
    other: BTreeMap<ClusterId, VecDeque<Deed>>,
    /// What is no further apart is at the same time.
    apart_max: Span,
}

impl InTime {
    pub(super) fn new(apart_max: Span) -> InTime {
        InTime { parted: Parted::default(), one: BTreeMap::new(), other: BTreeMap::new(), apart_max }
    }

    /// What both did up to this moment, since they were compared last.
    pub(super) fn compare(&mut self, one: Vec<Deed>, other: Vec<Deed>, now: Time) {
        for (deeds, queues) in [(one, &mut self.one), (other, &mut self.other)] {
            for deed in deeds.into_iter().filter(|deed| !self.parted.clusters.contains_key(&deed.cluster)) {
                queues.entry(deed.cluster).or_default().push_back(deed);
            }
        }
        // Mostly none: what both have done is forgotten at once.
        let waiting: BTreeSet<ClusterId> = self.one.keys().chain(self.other.keys()).copied().collect();
        for cluster in waiting {
            self.pair(cluster, now);
        }
    }

    fn pair(&mut self, cluster: ClusterId, now: Time) {
        let mut one = self.one.remove(&cluster).unwrap_or_default();
        let mut other = self.other.remove(&cluster).unwrap_or_default();
        loop {
            let parts = match (one.front(), other.front()) {
                (Some(first), Some(second)) => {
                    let apart = first.at.since(second.at).max(second.at.since(first.at));
                    first.what != second.what || apart > self.apart_max
                }
                // The other one may still come to it.
                (Some(alone), None) | (None, Some(alone)) => {
                    if now.since(alone.at) <= self.apart_max {
                        break;
                    }
                    true
                }
                (None, None) => return,
            };
            if parts {
                self.parted.note(cluster, one.front(), other.front());
                return;
            }
            one.pop_front();
            other.pop_front();
        }
        self.one.insert(cluster, one);
        self.other.insert(cluster, other);
    }
}

/// Compares the calls of the record with those of the model, cluster by cluster, in order.
#[derive(Debug, Default)]
pub(super) struct InOrder {
    pub(super) parted: Parted,
    recorded: BTreeMap<ClusterId, VecDeque<Deed>>,
    modelled: BTreeMap<ClusterId, VecDeque<Deed>>,
    pub(super) matched: u64,
    /// The longest that one came before the other.
    pub(super) apart_max: Span,
}

impl InOrder {
    pub(super) fn add(&mut self, recorded: &[Deed], modelled: &[Deed]) {
        let mut touched = BTreeSet::new();
        for (deeds, queues) in [(recorded, &mut self.recorded), (modelled, &mut self.modelled)] {
            for deed in deeds.iter().filter(|deed| deed.is_call()) {
                if !self.parted.clusters.contains_key(&deed.cluster) {
                    touched.insert(deed.cluster);
                    queues.entry(deed.cluster).or_default().push_back(deed.clone());
                }
            }
        }
        for cluster in touched {
            self.pair(cluster);
            self.part_if_far_ahead(cluster);
        }
    }

    /// Only one of the two has calls that wait: those that both have made are paired.
    fn part_if_far_ahead(&mut self, cluster: ClusterId) {
        let is_far = |queue: Option<&VecDeque<Deed>>| queue.is_some_and(|deeds| deeds.len() > AHEAD_MAX);
        let (recorded, modelled) = (self.recorded.get(&cluster), self.modelled.get(&cluster));
        if is_far(recorded) || is_far(modelled) {
            let first = |queue: Option<&VecDeque<Deed>>| queue.and_then(|deeds| deeds.front().cloned());
            let (one, other) = (first(recorded), first(modelled));
            self.parted.note(cluster, one.as_ref(), other.as_ref());
            self.recorded.remove(&cluster);
            self.modelled.remove(&cluster);
        }
    }

    fn pair(&mut self, cluster: ClusterId) {
        let (Some(recorded), Some(modelled)) = (self.recorded.get_mut(&cluster), self.modelled.get_mut(&cluster))
        else {
            return;
        };
        while let (Some(one), Some(other)) = (recorded.front(), modelled.front()) {
            if one.what != other.what {
                self.parted.note(cluster, Some(one), Some(other));
                self.recorded.remove(&cluster);
                self.modelled.remove(&cluster);
                return;
            }
            self.apart_max = self.apart_max.max(one.at.since(other.at)).max(other.at.since(one.at));
            self.matched += 1;
            recorded.pop_front();
            modelled.pop_front();
        }
        if recorded.is_empty() {
            self.recorded.remove(&cluster);
        }
        if modelled.is_empty() {
            self.modelled.remove(&cluster);
        }
    }

    /// At the end of the window. `is_planned` says whether the other run is about to do the same: it is only not so far.
    pub(super) fn end(&mut self, is_planned: impl Fn(Side, &Deed) -> bool) {
        let recorded = std::mem::take(&mut self.recorded).into_iter().map(|it| (Side::Modelled, it));
        let modelled = std::mem::take(&mut self.modelled).into_iter().map(|it| (Side::Recorded, it));
        for (missing_in, (cluster, deeds)) in recorded.chain(modelled) {
            let Some(first) = deeds.iter().find(|deed| !is_planned(missing_in, deed)) else { continue };
            match missing_in {
                Side::Modelled => self.parted.note(cluster, Some(first), None),
                Side::Recorded => self.parted.note(cluster, None, Some(first)),
            }
        }
    }
}

/// Where something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Recorded,
    Modelled,
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::LogIndex;

    use super::*;

    fn cluster(index: u64) -> ClusterId {
        ClusterId { index: LogIndex(index), ordinal: 0 }
    }

    /// The call of this number on a cluster, a second after the one before.
    fn call(on: ClusterId, number: u64) -> Deed {
        let what = What::Called { call: "create_replica", replica: format!("r{number}").into(), size: "1".into() };
        let (name, why) = (format!("cluster {}", on.index.0), "target_size: because".to_owned());
        Deed { at: Time::from_millis(number * 1_000), index: number, cluster: on, name, what, why }
    }

    fn waiting(compared: &InOrder) -> usize {
        compared.recorded.values().chain(compared.modelled.values()).map(VecDeque::len).sum()
    }

    #[test]
    fn calls_of_a_run_that_is_alone_with_them_do_not_wait_for_ever() {
        let (busy, quiet) = (cluster(1), cluster(2));
        for alone in [Side::Recorded, Side::Modelled] {
            let mut compared = InOrder::default();
            for number in 0..10_000 {
                let (only, both) = (call(busy, number), call(quiet, number));
                let one = [only.clone(), both.clone()];
                let other = [both];
                match alone {
                    Side::Recorded => compared.add(&one, &other),
                    Side::Modelled => compared.add(&other, &one),
                }
                assert!(waiting(&compared) <= AHEAD_MAX, "{} wait at {number}", waiting(&compared));
            }
            compared.end(|_, _| false);
            assert_eq!((compared.matched, compared.parted.clusters.len()), (10_000, 1), "{alone:?}");
            let first = compared.parted.first.unwrap();
            assert_eq!((first.at_ms, first.index, first.cluster.as_str()), (0, 0, "cluster 1"));
            let told = Some("create_replica r0 of size 1".to_owned());
            let nothing = None;
            let sides = if alone == Side::Recorded { (told, nothing) } else { (nothing, told) };
            assert_eq!((first.one, first.other), sides);
        }
    }

    #[test]
    fn a_run_that_comes_later_to_all_that_the_other_did_at_once_has_done_the_same() {
        let on = cluster(1);
        let mut compared = InOrder::default();
        let at_once: Vec<Deed> = (0..AHEAD_MAX as u64).map(|number| call(on, number)).collect();
        compared.add(&at_once, &[]);
        assert_eq!(waiting(&compared), AHEAD_MAX);
        for deed in &at_once {
            compared.add(&[], &[Deed { at: deed.at + Span::from_secs(9), ..deed.clone() }]);
        }
        compared.end(|_, _| false);
        assert_eq!((compared.matched, compared.parted.clusters.len()), (AHEAD_MAX as u64, 0));
        assert_eq!((compared.apart_max, waiting(&compared)), (Span::from_secs(9), 0));
    }
}

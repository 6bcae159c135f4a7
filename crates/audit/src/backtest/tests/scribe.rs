//! Writes a history by hand: an entry at least every second, and an executor that is as simple as can be. What it does takes
//! whole seconds that a reader can add up: an action is claimed in the second in which it is planned, its call takes 1 s, a replica
//! is ready 10 s and hydrated 20 s after it was made.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use loadline_log::{JournalError, JournalRecord};
use loadline_state_machine::{
    Action, ActionStatus, Actor, Call, ClusterId, ClusterRef, ClusterReport, Command, DrainResult, Entry, Hash,
    JournalEntry, LogIndex, NodeNumber, Observation, Outcome, Report, Request, Revision, Sealed, Seen, Span, State,
    Time, apply,
};

use crate::change::Change;
use crate::source::{Source, SourceError};

pub(crate) const CALL: u64 = 1;
pub(crate) const START_UP: u64 = 10;
pub(crate) const HYDRATION: u64 = 20;
/// So that no moment of a test is the beginning of time.
const FIRST_SECOND: u64 = 1_000_000;

pub(crate) fn second(second: u64) -> Time {
    Time::from_millis((FIRST_SECOND + second) * 1_000)
}

/// What was written, or what is left of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    records: Vec<JournalRecord>,
    /// After each entry that was ever written.
    states: Vec<State>,
    /// After which entries the state is kept.
    snapshots: Vec<u64>,
}

impl History {
    /// The same with a state kept after each of these entries, the oldest first.
    pub(crate) fn with_snapshots(&self, after: &[u64]) -> History {
        History { snapshots: after.to_vec(), ..self.clone() }
    }

    /// The same as if these entries had never been here.
    pub(crate) fn without(&self, gone: RangeInclusive<u64>) -> History {
        let mut left = self.clone();
        left.records.retain(|record| !gone.contains(&record.index));
        left
    }

    /// The first entry that is not before a second.
    pub(crate) fn first_at(&self, at: u64) -> u64 {
        let first = self.records.iter().find(|record| record.time_ms >= second(at).as_millis());
        first.expect("the history goes on until then").index
    }
}

impl Source for History {
    fn range(&self) -> Option<RangeInclusive<u64>> {
        Some(self.records.first()?.index..=self.records.last()?.index)
    }

    fn stretches(&self) -> Vec<RangeInclusive<u64>> {
        let mut stretches: Vec<RangeInclusive<u64>> = Vec::new();
        for record in &self.records {
            match stretches.last_mut() {
                Some(last) if *last.end() + 1 == record.index => *last = *last.start()..=record.index,
                _ => stretches.push(record.index..=record.index),
            }
        }
        stretches
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, SourceError> {
        let at = self.records.partition_point(|record| record.index < from);
        if let Some(next) = self.records.get(at).map(|record| record.index).filter(|next| *next != from) {
            return Err(SourceError::Journal(JournalError::Missing { index: from, next: Some(next) }));
        }
        let mut bytes = 0;
        let fits = |(expected, record): &(u64, &JournalRecord)| {
            let is_first = bytes == 0;
            bytes += record.entry.len() + record.events.len() + 1;
            record.index == *expected && (is_first || bytes <= bytes_max)
        };
        Ok((from..).zip(&self.records[at..]).take_while(fits).map(|(_, record)| record.clone()).collect())
    }

    fn starts(&self) -> Vec<u64> {
        self.snapshots.clone()
    }

    fn start(&self, not_after: u64) -> Result<Option<State>, SourceError> {
        let newest = self.snapshots.iter().rfind(|index| **index <= not_after);
        let place = newest.and_then(|index| usize::try_from(*index).ok()?.checked_sub(1));
        Ok(place.and_then(|place| self.states.get(place).cloned()))
    }
}

/// A replica that the executor has made.
#[derive(Debug)]
struct Made {
    at: u64,
    size: String,
    incarnation: String,
    /// After how long it is ready.
    start_up: u64,
}

pub(crate) struct Scribe {
    pub(crate) history: History,
    pub(crate) state: State,
    pub(crate) now: u64,
    sequence: u64,
    incarnations: u64,
    claimed: BTreeMap<String, u64>,
    made: BTreeMap<(ClusterId, Arc<str>), Made>,
    /// Whether anybody reports how far replicas are hydrated.
    pub(crate) hydrates: bool,
    /// How long a replica takes to become ready.
    pub(crate) start_up: u64,
    /// How the next call ends, if it does not succeed.
    pub(crate) next_fails: Option<Outcome>,
    /// How every call ends, if none succeeds.
    pub(crate) all_fail: Option<Outcome>,
    /// Whether nobody claims anything.
    pub(crate) away: bool,
    /// Whether a replica is there, ready and hydrated, and is seen, before the call that makes it has come back.
    pub(crate) early: bool,
}

impl Scribe {
    /// A group that scales, with sizes 1 and 2, which cost a whole and two wholes an hour and have 1 and 4 slots.
    pub(crate) fn new() -> Scribe {
        let mut scribe = Scribe {
            history: History::default(),
            state: State::new(),
            now: 0,
            sequence: 0,
            incarnations: 0,
            claimed: BTreeMap::new(),
            made: BTreeMap::new(),
            hydrates: true,
            start_up: START_UP,
            next_fails: None,
            all_fail: None,
            away: false,
            early: false,
        };
        scribe.elect(1, 1);
        for (name, slots, price) in [("1", 1, 1_000_000), ("2", 4, 2_000_000)] {
            let (name, price_micros_per_hour) = (name.to_owned(), price);
            scribe.entry(vec![Command::CreateSize { name, rank: None, slots, price_micros_per_hour }]);
        }
        scribe.sql("ALTER SYSTEM SET enable_auto_scaling = true");
        scribe.sql("ALTER SYSTEM SET default_backend = 'local'");
        scribe
    }

    fn entry(&mut self, commands: Vec<Command>) {
        let request = |commands| Request { actor: Actor::new("somebody", "test"), request_id: None, commands };
        let requests = commands.into_iter().map(|command| request(vec![command])).collect();
        let sealed = Sealed::seal(Entry { stamped_at: second(self.now), requests });
        let index = LogIndex(self.state.applied().0 + 1);
        let applied = apply(&mut self.state, index, &sealed);
        let refused = applied.receipts.iter().find(|receipt| receipt.result.is_err());
        assert!(refused.is_none(), "second {}: {refused:?}", self.now);
        self.history.states.push(self.state.clone());
        self.history.records.push(JournalRecord {
            index: index.0,
            time_ms: applied.time.as_millis(),
            hash: applied.hash.0,
            entry: JournalEntry::encode_requests(sealed.bytes()).into(),
            events: applied.encode_events().into(),
            keys: vec![].into(),
        });
    }

    pub(crate) fn sql(&mut self, text: &str) {
        let commands = Change::parse(text).unwrap().commands(&self.state, &Actor::default()).unwrap();
        self.entry(commands);
        self.act();
    }

    /// A collector that is not the executor's says something.
    pub(crate) fn seen(&mut self, collector: &str, cluster: &str, seen: Seen) {
        self.sequence += 1;
        let observations = vec![Observation { age: Span::default(), seen }];
        let clusters = vec![ClusterReport { cluster: ClusterRef::Name(cluster.to_owned()), observations }];
        self.entry(vec![Command::ReportSignals { collector: collector.to_owned(), sequence: self.sequence, clusters }]);
        self.act();
    }

    /// Lets time pass up to and including this second. `every` is called in each.
    pub(crate) fn until(&mut self, end: u64, mut every: impl FnMut(&mut Scribe, u64)) {
        while self.now < end {
            self.now += 1;
            self.settle();
            self.look();
            self.entry(vec![Command::Tick]);
            self.act();
            every(self, self.now);
        }
    }

    fn settle(&mut self) {
        let due: Vec<_> = self
            .state
            .actions_in_flight()
            .filter(|action| self.claimed.get(&action.key()).is_some_and(|at| at + CALL <= self.now))
            .cloned()
            .collect();
        for action in due {
            if let Some(outcome) = self.next_fails.take().or_else(|| self.all_fail.clone()) {
                self.came_back(&action, outcome);
                continue;
            }
            let report = match &action.call {
                Call::CreateReplica(made) => {
                    self.incarnations += 1;
                    let incarnation = format!("recorded-{}", self.incarnations);
                    let (size, start_up) = (made.size.to_string(), self.start_up);
                    let at = if self.early { self.now - HYDRATION - 1 } else { self.now };
                    let made_now = Made { at, size, incarnation: incarnation.clone(), start_up };
                    self.made.insert((action.cluster, made.name.clone()), made_now);
                    Report::Created { incarnation: Some(incarnation) }
                }
                Call::DrainReplica(_) => Report::Drained(DrainResult { moved: 3, left: 0 }),
                Call::DropReplica(life) => {
                    self.made.remove(&(action.cluster, life.name.clone()));
                    Report::Nothing
                }
                _ => Report::Nothing,
            };
            self.came_back(&action, Outcome::Succeeded { report });
        }
    }

    fn came_back(&mut self, action: &Action, outcome: Outcome) {
        let epoch = self.state.epoch().unwrap();
        self.entry(vec![Command::RecordOutcome { action: action.id, epoch, attempt: action.attempt, outcome }]);
        self.act();
    }

    /// A backup of all that there is is put in its place.
    pub(crate) fn restore(&mut self) {
        let bytes = self.state.encode();
        self.entry(vec![Command::BeginRestore { bytes_total: bytes.len() as u64, hash: Hash::of(&bytes) }]);
        let restore = Revision { index: self.state.applied(), ordinal: 0 };
        self.entry(vec![Command::RestoreChunk { restore, offset: 0, bytes: bytes.into() }]);
        self.entry(vec![Command::FinishRestore { restore }]);
    }

    /// Another node leads from here on.
    pub(crate) fn elect(&mut self, node: u64, term: u64) {
        self.entry(vec![Command::AnnounceLeader { node: NodeNumber(node), term }]);
        self.act();
    }

    /// Somebody says yes to everything that waits for it.
    pub(crate) fn approve(&mut self) {
        let waits = |action: &&Action| matches!(action.status, ActionStatus::AwaitingApproval { .. });
        let waiting: Vec<_> = self.state.actions().filter(waits).map(|action| action.id).collect();
        assert!(!waiting.is_empty(), "nothing waits in second {}", self.now);
        for action in waiting {
            self.entry(vec![Command::ApproveAction { action }]);
        }
        self.act();
    }

    /// Claims what can be claimed.
    fn act(&mut self) {
        if self.away {
            return;
        }
        let claimable: Vec<_> = self.state.claimable_actions().cloned().collect();
        for action in claimable.into_iter().filter(|it| matches!(it.status, ActionStatus::Pending { .. })) {
            let (epoch, attempt) = (self.state.epoch().unwrap(), action.attempt + 1);
            let (backend, parameters) = ("local".to_owned(), action.parameters("local"));
            self.claimed.insert(action.key(), self.now);
            self.entry(vec![Command::ClaimAction { action: action.id, epoch, attempt, backend, parameters }]);
            if let (true, Call::CreateReplica(made)) = (self.early, &action.call) {
                let (name, size) = (made.name.to_string(), made.size.to_string());
                let incarnation = Some(format!("recorded-{}", self.incarnations + 1));
                let seen = [
                    Seen::Replica { name: name.clone(), size, incarnation, ready: true },
                    Seen::Hydration { replica: name, total: 7, hydrated: 7 },
                ];
                for seen in seen {
                    self.seen("backend-local", &action.cluster_name, seen);
                }
            }
        }
    }

    /// Reports every replica in the second in which it becomes ready or hydrated, and every 30 s.
    fn look(&mut self) {
        let mut reports: BTreeMap<ClusterId, Vec<Seen>> = BTreeMap::new();
        for ((cluster, name), made) in &self.made {
            let age = self.now - made.at;
            let news = age == made.start_up || age == HYDRATION;
            if !news && !self.now.is_multiple_of(30) {
                continue;
            }
            let seen = reports.entry(*cluster).or_default();
            let (name, incarnation) = (name.to_string(), Some(made.incarnation.clone()));
            let ready = age >= made.start_up;
            seen.push(Seen::Replica { name: name.clone(), size: made.size.clone(), incarnation, ready });
            if self.hydrates {
                let hydrated = if age >= HYDRATION { 7 } else { 0 };
                seen.push(Seen::Hydration { replica: name, total: 7, hydrated });
            }
            seen.push(Seen::Alive);
        }
        if reports.is_empty() {
            return;
        }
        self.sequence += 1;
        let report = |(cluster, seen): (ClusterId, Vec<Seen>)| ClusterReport {
            cluster: ClusterRef::Id(cluster),
            observations: seen.into_iter().map(|seen| Observation { age: Span::default(), seen }).collect(),
        };
        let clusters = reports.into_iter().map(report).collect();
        let collector = "backend-local".to_owned();
        self.entry(vec![Command::ReportSignals { collector, sequence: self.sequence, clusters }]);
        self.act();
    }
}

//! A made-up day of a busy group: clusters that are used and left alone, strategies that answer, a backend that fails now and then,
//! collectors that repeat themselves, and leaders that come and go.
//!
//! The same seed gives the same day. It is not here to be realistic in its numbers, but in its kinds: everything that a log of a real
//! group is full of is in it, so that what reads histories meets it all. For tests and measurements only.

use std::collections::VecDeque;

use loadline_log::JournalRecord;
use loadline_state_machine::{
    Action, ActionId, Actor, Applied, Call, ClusterRef, ClusterReport, Command, Entry, Epoch, Event, JournalEntry,
    LogIndex, NodeNumber, Observation, Options, Outcome, Report, Request, RequestId, Sealed, Seen, Span, State,
    StrategyKind, TargetName, Time, WakeReason, apply, pass,
};

/// Clusters that one entry creates, or reports on for the first time.
const CLUSTERS_PER_ENTRY: u32 = 50;
const SIZES: [&str; 4] = ["25cc", "50cc", "100cc", "200cc"];
/// Entries from one failover to the next, about.
const LEADERSHIP_ENTRIES: u64 = 40_000;
/// Calls of the backend that are under way at once.
const IN_FLIGHT_MAX: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Day {
    state: State,
    now: Time,
    clusters: u32,
    chance: Chance,
    /// What has been decided on and comes next.
    planned: VecDeque<Next>,
    /// Calls that were claimed, with what they were claimed as.
    in_flight: VecDeque<(Action, Epoch, u32)>,
    sequence: u64,
    term: u64,
    /// From one failover to the next.
    leadership_entries: u64,
    last_stale: Option<Command>,
}

/// One entry before it is applied.
#[derive(Debug)]
enum Next {
    Blank,
    Membership,
    Ask(&'static str, Vec<Command>),
}

impl Day {
    /// The morning of a group with so many clusters.
    pub fn new(clusters: u32, seed: u64) -> Day {
        let mut day = Day {
            state: State::new(),
            // 2026-11-16T00:00:00Z
            now: Time::from_millis(1_794_787_200_000),
            clusters,
            chance: Chance(seed),
            planned: VecDeque::new(),
            in_flight: VecDeque::new(),
            sequence: 0,
            term: 0,
            leadership_entries: LEADERSHIP_ENTRIES,
            last_stale: None,
        };
        day.planned.extend([Next::Membership, Next::Ask("node", vec![Command::FoundGroup { nodes: 3 }])]);
        day.elect();
        let mut first = vec![set("enable_auto_scaling", "true"), set("default_backend", "made-up")];
        first.extend(SIZES.map(|name| Command::CreateSize {
            name: name.to_owned(),
            rank: None,
            slots: 4,
            price_micros_per_hour: 250_000,
        }));
        day.planned.push_back(Next::Ask("alice", first));
        for begin in (0..clusters).step_by(CLUSTERS_PER_ENTRY as usize) {
            let numbers = begin..clusters.min(begin + CLUSTERS_PER_ENTRY);
            day.planned.push_back(Next::Ask("alice", numbers.clone().flat_map(founding).collect()));
        }
        day
    }

    /// The same day with failovers so often: a short one has some, too.
    pub fn with_failover_every(self, entries: u64) -> Day {
        Day { leadership_entries: entries.max(1), ..self }
    }

    /// Somebody asks for this next.
    pub fn ask(&mut self, who: &'static str, commands: Vec<Command>) {
        self.planned.push_back(Next::Ask(who, commands));
    }

    /// The state after the last entry.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The next entry, applied.
    pub fn record(&mut self) -> JournalRecord {
        let index = LogIndex(self.state.applied().0 + 1);
        // A day of a million entries has some 86 ms for each.
        self.now = self.now + Span::from_millis(20 + self.chance.below(130));
        let next = match self.planned.pop_front() {
            Some(next) => next,
            None => self.choose(index),
        };
        let (entry, applied, keys) = match next {
            Next::Blank => (JournalEntry::encode_blank(), pass(&mut self.state, index, &[]), Vec::new()),
            Next::Membership => {
                let payload = b"n1 n2 n3";
                (JournalEntry::encode_membership(payload), pass(&mut self.state, index, payload), Vec::new())
            }
            Next::Ask(who, commands) => {
                let sealed = self.seal(who, commands);
                let applied = apply(&mut self.state, index, &sealed);
                let keys = applied.index_keys(&sealed);
                self.follow(&applied);
                (JournalEntry::encode_requests(sealed.bytes()), applied, keys)
            }
        };
        JournalRecord {
            index: index.0,
            time_ms: applied.time.as_millis(),
            hash: applied.hash.0,
            entry: entry.into(),
            events: applied.encode_events().into(),
            keys: keys.into(),
        }
    }

    fn seal(&mut self, who: &str, commands: Vec<Command>) -> Sealed {
        // A UUID version 7, as clients make them.
        let millis = u128::from(self.now.as_millis());
        let id = RequestId(millis << 80 | 7 << 76 | 0b10 << 62 | u128::from(self.chance.below(1 << 60)));
        let request_id = (who == "alice").then_some(id);
        let actor = Actor::new(who, "10.0.0.7:40112");
        Sealed::seal(Entry { stamped_at: self.now, requests: vec![Request { actor, request_id, commands }] })
    }

    /// A new leader: Raft's own first entry, and its announcement.
    fn elect(&mut self) {
        self.term += 1 + self.chance.below(2);
        let node = NodeNumber(1 + self.term % 3);
        self.planned.push_back(Next::Blank);
        self.planned.push_back(Next::Ask("node", vec![Command::AnnounceLeader { node, term: self.term }]));
    }

    fn choose(&mut self, index: LogIndex) -> Next {
        if index.0.is_multiple_of(self.leadership_entries) {
            self.elect();
            if self.chance.one_in(2) {
                self.planned.push_back(Next::Membership);
            }
            return self.planned.pop_front().unwrap_or(Next::Blank);
        }
        match self.chance.below(100) {
            0..50 => self.reported(),
            50..75 => self.work().unwrap_or_else(|| Next::Ask("node", vec![Command::Tick])),
            75..90 => self.outcome().unwrap_or_else(|| self.reported()),
            90..94 => Next::Ask("node", vec![Command::Tick]),
            94..96 => Next::Ask("bob", vec![self.change()]),
            96..98 => {
                let cluster = self.cluster();
                Next::Ask("bob", vec![Command::WakeCluster { cluster, reason: WakeReason::Manual }])
            }
            // Somebody says again what was said, or what holds no longer. Refused, and in the log all the same.
            _ => match self.last_stale.clone() {
                Some(stale) => Next::Ask("node", vec![stale]),
                None => self.reported(),
            },
        }
    }

    /// What a collector saw of a few clusters.
    fn reported(&mut self) -> Next {
        let clusters = (0..=self.chance.below(4)).map(|_| {
            let cluster = ClusterRef::Name(self.cluster());
            let seen = match self.chance.below(10) {
                0..4 => Seen::Activity { idle_for: Some(Span::from_secs(self.chance.below(4_000))) },
                4 => Seen::Activity { idle_for: None },
                5..8 => Seen::Metric { name: "queue_depth".to_owned(), value_milli: self.chance.small(9_000) },
                8 => Seen::Alive,
                _ => Seen::Crash {
                    replica: "r1_auto".to_owned(),
                    oom: self.chance.one_in(2),
                    reason: "killed".to_owned(),
                    count: 1,
                },
            };
            ClusterReport { cluster, observations: vec![Observation { age: Span::from_millis(5), seen }] }
        });
        let clusters = clusters.collect();
        self.sequence += 1;
        let report = Command::ReportSignals { collector: "made-up".to_owned(), sequence: self.sequence, clusters };
        if self.chance.one_in(20) {
            self.last_stale = Some(report.clone());
        }
        Next::Ask("collector", vec![report])
    }

    /// The executor of the leader claims what is due.
    fn work(&mut self) -> Option<Next> {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return self.outcome();
        }
        let epoch = self.state.epoch()?;
        let busy =
            |id: ActionId| self.in_flight.iter().any(|(action, claimed, _)| action.id == id && *claimed == epoch);
        let action = self.state.claimable_actions().find(|action| !busy(action.id))?.clone();
        let attempt = action.attempt + 1;
        let backend = self.state.backend_for(&action)?.to_owned();
        let parameters = action.parameters(&backend);
        let claim = Command::ClaimAction { action: action.id, epoch, attempt, backend, parameters };
        self.in_flight.push_back((action, epoch, attempt));
        Some(Next::Ask("node", vec![claim]))
    }

    /// What came of the call that has been under way longest, and what there is to see then.
    fn outcome(&mut self) -> Option<Next> {
        let (action, epoch, attempt) = self.in_flight.pop_front()?;
        let outcome = match self.chance.below(100) {
            0..5 => Outcome::Failed { retryable: true, reason: "no room".to_owned() },
            5..6 => Outcome::Failed { retryable: false, reason: "no such size".to_owned() },
            6..8 => Outcome::Unknown { reason: "no answer in 10 s".to_owned() },
            _ => Outcome::Succeeded { report: Report::Nothing },
        };
        let created = match (&outcome, &action.call) {
            (Outcome::Succeeded { .. }, Call::CreateReplica(replica)) => Some(replica.clone()),
            _ => None,
        };
        if let Some(replica) = created {
            let name = replica.name.to_string();
            let ready =
                Seen::Replica { name: name.clone(), size: replica.size.to_string(), incarnation: None, ready: true };
            let hydrated = Seen::Hydration { replica: name, total: 3, hydrated: 3 };
            let observations =
                [ready, hydrated].map(|seen| Observation { age: Span::default(), seen }).into_iter().collect();
            self.sequence += 1;
            let clusters = vec![ClusterReport { cluster: ClusterRef::Id(action.cluster), observations }];
            let report = Command::ReportSignals { collector: "made-up".to_owned(), sequence: self.sequence, clusters };
            self.planned.push_back(Next::Ask("collector", vec![report]));
        }
        let record = Command::RecordOutcome { action: action.id, epoch, attempt, outcome };
        if self.chance.one_in(20) {
            self.last_stale = Some(record.clone());
        }
        Some(Next::Ask("node", vec![record]))
    }

    /// Somebody changes the configuration.
    fn change(&mut self) -> Command {
        let cluster = self.cluster();
        match self.chance.below(4) {
            0 => Command::PauseCluster {
                cluster,
                reason: "maintenance".to_owned(),
                expires_in: Some(Span::from_mins(5)),
            },
            1 => Command::ResumeCluster { cluster },
            2 => Command::ChangeStrategy {
                target: TargetName::Cluster(cluster),
                kind: StrategyKind::TargetSize,
                options: Options::from([("size", self.chance.pick(&SIZES))]),
                reset: Vec::new(),
                etag: None,
                unchecked: false,
            },
            _ => set("auto_scaling_cluster_cooldown", self.chance.pick(&["30s", "31s"])),
        }
    }

    /// Notes what an entry brought about.
    fn follow(&mut self, applied: &Applied) {
        for event in &applied.events {
            // What was settled by somebody else has no outcome any more.
            if let Event::ActionSettled { action, .. } = event {
                self.in_flight.retain(|(in_flight, ..)| in_flight.id != action.id);
            }
        }
    }

    fn cluster(&mut self) -> String {
        name(u32::try_from(self.chance.below(u64::from(self.clusters.max(1)))).unwrap_or_default())
    }
}

fn name(number: u32) -> String {
    format!("cluster-{number:04}")
}

fn set(name: &str, value: &str) -> Command {
    Command::SetSetting { name: name.to_owned(), value: value.to_owned(), etag: None }
}

fn founding(number: u32) -> Vec<Command> {
    let cluster = name(number);
    let strategy = |kind, options| Command::CreateStrategy {
        target: TargetName::Cluster(cluster.clone()),
        kind,
        options,
        if_not_exists: false,
        unchecked: false,
    };
    let mut commands = vec![
        Command::CreateCluster { name: cluster.clone() },
        strategy(StrategyKind::TargetSize, Options::from([("size", "100cc")])),
    ];
    match number % 3 {
        0 => commands.push(strategy(StrategyKind::IdleSuspend, Options::from([("idle_after_s", 1_800)]))),
        1 => commands.push(strategy(StrategyKind::Burst, Options::from([("burst_size", "200cc")]))),
        _ => {}
    }
    commands
}

/// Numbers that look like chance, the same ones for the same seed (splitmix64).
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn small(&mut self, bound: u64) -> i64 {
        i64::try_from(self.below(bound)).unwrap_or_default()
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let place = usize::try_from(self.below(from.len() as u64)).unwrap_or_default();
        from[place]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_day_has_everything_that_a_log_is_full_of_and_the_same_seed_gives_the_same() {
        let kinds = |seed| {
            let mut day = Day::new(30, seed);
            let mut kinds: BTreeMap<&'static str, u64> = BTreeMap::new();
            for _ in 0..6_000 {
                let record = day.record();
                for event in loadline_state_machine::decode_events(&record.events).unwrap() {
                    *kinds.entry(event.kind_name()).or_default() += 1;
                }
            }
            (kinds, day.state().hash())
        };
        let (seen, hash) = kinds(1);
        for kind in
            ["LeaderAnnounced", "DecisionMade", "ActionPlanned", "ActionClaimed", "ActionSettled", "OperationEnded"]
        {
            assert!(seen.contains_key(kind), "no {kind} among {seen:?}");
        }
        assert_eq!(kinds(1).1, hash);
        assert_ne!(kinds(2).1, hash);
    }

    #[test]
    fn a_short_day_has_failovers_calls_that_fail_and_calls_that_nobody_knows_the_end_of() {
        let mut day = Day::new(30, 1).with_failover_every(700);
        let mut kinds: BTreeMap<&'static str, u64> = BTreeMap::new();
        for _ in 0..6_000 {
            for event in loadline_state_machine::decode_events(&day.record().events).unwrap() {
                *kinds.entry(event.kind_name()).or_default() += 1;
            }
        }
        let count = |kind| kinds.get(kind).copied().unwrap_or(0);
        assert!(count("LeaderAnnounced") >= 8, "{kinds:?}");
        assert!(count("ActionReturned") > 0, "a call that failed is tried again: {kinds:?}");
        assert!(count("ActionUnsure") > 0, "{kinds:?}");
    }
}

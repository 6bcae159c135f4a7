//! A small world that keeps its history: what happens in it is done to a real state machine, and recorded as a node records it.

#![allow(unreachable_pub, reason = "the tests beside it use this")]

use std::ops::RangeInclusive;

use loadline_audit::{Source, SourceError};
use loadline_log::JournalRecord;
use loadline_state_machine::{
    ActionId, Actor, Applied, ClusterRef, ClusterReport, Command, Entry, JournalEntry, LogIndex, NodeNumber,
    Observation, OptionValue, Options, Outcome, Proof, Report, Request, RequestId, Sealed, Seen, Span, State,
    StrategyKind, TargetName, Time, apply,
};

/// 2026-11-16T12:00:00Z.
pub const NOON: Time = Time::from_millis(1_794_830_400_000);

/// See the module.
#[derive(Debug)]
pub struct World {
    pub state: State,
    pub time: Time,
    pub records: Vec<JournalRecord>,
    sequence: u64,
}

impl World {
    /// A group with a leader, sizes, and the feature on.
    pub fn new() -> World {
        let mut world = World { state: State::new(), time: NOON, records: Vec::new(), sequence: 0 };
        world.node(vec![Command::FoundGroup { nodes: 3 }]);
        world.node(vec![Command::AnnounceLeader { node: NodeNumber(1), term: 1 }]);
        for (name, slots) in [("25cc", 1), ("100cc", 4), ("200cc", 8)] {
            let price_micros_per_hour = u64::from(slots) * 250_000;
            world
                .ask("root", vec![Command::CreateSize { name: name.into(), rank: None, slots, price_micros_per_hour }]);
        }
        world.set("root", "enable_auto_scaling", "true");
        world.set("root", "default_backend", "local");
        world
    }

    fn entry(&mut self, requests: Vec<Request>) -> Applied {
        let sealed = Sealed::seal(Entry { stamped_at: self.time, requests });
        let index = self.state.applied().0 + 1;
        let applied = apply(&mut self.state, LogIndex(index), &sealed);
        self.records.push(JournalRecord {
            index,
            time_ms: applied.time.as_millis(),
            hash: applied.hash.0,
            entry: JournalEntry::encode_requests(sealed.bytes()).into(),
            events: applied.encode_events().into(),
            keys: applied.index_keys(&sealed).into(),
        });
        applied
    }

    /// One of the nodes, about its duties.
    pub fn node(&mut self, commands: Vec<Command>) -> Applied {
        let request = Request { actor: Actor::node("loadline", "n1"), request_id: None, commands };
        let applied = self.entry(vec![request]);
        assert!(applied.receipts[0].result.is_ok(), "{applied:?}");
        applied
    }

    /// Somebody who has logged in. It may be refused.
    pub fn try_ask(&mut self, actor: &str, commands: Vec<Command>) -> Applied {
        let request = self.request(actor, commands, 0);
        self.entry(vec![request])
    }

    fn request(&self, actor: &str, commands: Vec<Command>, place: u128) -> Request {
        let request_id = Some(RequestId(
            (u128::from(self.time.as_millis()) << 80)
                | (7 << 76)
                | (2 << 62)
                | (place << 40)
                | u128::from(self.state.applied().0),
        ));
        let actor = Actor::new(actor, "10.0.0.7:4711").proven(Proof::Machine);
        Request { actor, request_id, commands }
    }

    /// What several ask for at about the same time, in one entry.
    #[track_caller]
    pub fn batch(&mut self, asked: Vec<(&str, Vec<Command>)>) -> Applied {
        let placed = (0..).zip(asked);
        let requests = placed.map(|(place, (actor, commands))| self.request(actor, commands, place)).collect();
        let applied = self.entry(requests);
        assert!(applied.receipts.iter().all(|receipt| receipt.result.is_ok()), "{applied:?}");
        applied
    }

    #[track_caller]
    pub fn ask(&mut self, actor: &str, commands: Vec<Command>) -> Applied {
        let applied = self.try_ask(actor, commands);
        assert!(applied.receipts[0].result.is_ok(), "{applied:?}");
        applied
    }

    pub fn set(&mut self, actor: &str, name: &str, value: &str) {
        self.ask(actor, vec![Command::SetSetting { name: name.into(), value: value.into(), etag: None }]);
    }

    pub fn cluster(&mut self, actor: &str, name: &str) {
        self.ask(actor, vec![Command::CreateCluster { name: name.into() }]);
    }

    pub fn strategy(&mut self, actor: &str, cluster: &str, kind: StrategyKind, options: &[(&str, OptionValue)]) {
        let target = TargetName::Cluster(cluster.into());
        let options = given(options);
        self.ask(
            actor,
            vec![Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false }],
        );
    }

    pub fn change_strategy(&mut self, actor: &str, cluster: &str, kind: StrategyKind, options: &[(&str, OptionValue)]) {
        let target = TargetName::Cluster(cluster.into());
        let (options, reset) = (given(options), Vec::new());
        self.ask(actor, vec![Command::ChangeStrategy { target, kind, options, reset, etag: None, unchecked: false }]);
    }

    pub fn pass(&mut self, span: Span) {
        self.time = self.time + span;
        self.node(vec![Command::Tick]);
    }

    /// A collector tells what it saw so long ago.
    pub fn report(&mut self, cluster: &str, age: Span, seen: Vec<Seen>) -> Applied {
        self.sequence += 1;
        let observations = seen.into_iter().map(|seen| Observation { age, seen }).collect();
        let clusters = vec![ClusterReport { cluster: ClusterRef::Name(cluster.into()), observations }];
        let command = Command::ReportSignals { collector: "watcher".into(), sequence: self.sequence, clusters };
        self.ask("watcher", vec![command])
    }

    /// The leader claims what is due, and the backend does it.
    pub fn carry_out(&mut self) -> Vec<ActionId> {
        let due: Vec<ActionId> = self.state.claimable_actions().map(|action| action.id).collect();
        for id in &due {
            self.claim(*id);
            self.outcome(*id, Outcome::Succeeded { report: Report::Created { incarnation: None } });
        }
        due
    }

    pub fn claim(&mut self, id: ActionId) {
        let action = self.state.action(id).expect("it is there").clone();
        let epoch = self.state.epoch().expect("somebody leads");
        let parameters = action.parameters("local");
        let attempt = action.attempt + 1;
        self.node(vec![Command::ClaimAction { action: id, epoch, attempt, backend: "local".into(), parameters }]);
    }

    pub fn outcome(&mut self, id: ActionId, outcome: Outcome) {
        let action = self.state.action(id).expect("it is there").clone();
        let epoch = self.state.epoch().expect("somebody leads");
        self.node(vec![Command::RecordOutcome { action: id, epoch, attempt: action.attempt, outcome }]);
    }

    pub fn last(&self) -> u64 {
        self.state.applied().0
    }
}

pub fn given(options: &[(&str, OptionValue)]) -> Options {
    options.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

pub fn replica(name: &str, size: &str, ready: bool) -> Seen {
    Seen::Replica { name: name.into(), size: size.into(), incarnation: None, ready }
}

impl Source for World {
    fn range(&self) -> Option<RangeInclusive<u64>> {
        Some(self.records.first()?.index..=self.records.last()?.index)
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, SourceError> {
        let mut bytes = 0;
        let rest = self.records.iter().skip_while(|record| record.index < from);
        let fits = |record: &&JournalRecord| {
            let first = bytes == 0;
            bytes += record.entry.len() + record.events.len() + 1;
            first || bytes <= bytes_max
        };
        Ok(rest.take_while(fits).cloned().collect())
    }

    fn start(&self, _: u64) -> Result<Option<State>, SourceError> {
        Ok(None)
    }

    fn group(&self) -> Option<String> {
        Some("a group".to_owned())
    }
}

//! A short life of a group in which everything happens once that can be asked for.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use loadline_log::JournalRecord;
use loadline_state_machine::{
    Action, ActionId, ActionStatus, Actor, Applied, Call, ClusterId, ClusterRef, ClusterReport, Collected,
    CollectedOutcome, Command, Entry, Epoch, Event, Hash, JournalEntry, LogIndex, Memory, NodeNumber, Observation,
    OptionValue, Options, Outcome, PasswordChange, Proof, PushedValue, RULES_VERSION_MAX, Report, Request, RequestId,
    Revision, STRATEGY_STATE_VERSION, ScramVerifier, Sealed, Seen, SignalKind, Span, State, StrategyKind,
    StrategyState, TargetName, Time, UsageOn, WakeReason, apply, decode_events, pass,
};

/// See the module.
pub(crate) struct Life {
    pub(crate) records: Vec<JournalRecord>,
    pub(crate) state: State,
    now: Time,
    sequence: u64,
    requests: u128,
}

/// The records of all of it, and the state at its end.
pub(crate) fn life() -> Life {
    let mut life = Life {
        records: Vec::new(),
        state: State::new(),
        // 2026-11-16T08:00:00Z, a Monday.
        now: Time::from_millis(1_794_816_000_000),
        sequence: 0,
        requests: 0,
    };
    life.begins();
    life.is_configured();
    life.strategies_come_and_go();
    life.signals_are_collected();
    life.people_have_roles();
    life.works_for_a_while();
    life.goes_wrong();
    life.people_interfere();
    life.is_suspended_and_wakes();
    life.is_tidied();
    life.is_restored();
    life
}

fn name(name: &str) -> String {
    name.to_owned()
}

fn set(setting: &str, value: &str) -> Command {
    Command::SetSetting { name: name(setting), value: name(value), etag: None }
}

fn on(cluster: &str) -> TargetName {
    TargetName::Cluster(name(cluster))
}

fn create<const N: usize>(target: TargetName, kind: StrategyKind, options: [(&str, &str); N]) -> Command {
    let value = |text: &str| match (text.parse::<i64>(), text) {
        (Ok(number), _) => OptionValue::from(number),
        (_, "true") => OptionValue::from(true),
        (_, text) => OptionValue::from(text),
    };
    let options = Options::from(options.map(|(key, text)| (key, value(text))));
    Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false }
}

fn drop_strategy(cluster: &str, kind: StrategyKind) -> Command {
    Command::DropStrategy { target: on(cluster), kind, etag: None, allow_missing: false }
}

fn verifier() -> ScramVerifier {
    ScramVerifier { iterations: 4_096, salt: vec![7; 16].into(), stored_key: [0xa1; 32], server_key: [0xb2; 32] }
}

fn is_asked_about(action: &Action) -> bool {
    matches!(action.status, ActionStatus::AwaitingApproval { .. })
}

fn metric(metric: &str, value_milli: i64) -> Seen {
    Seen::Metric { name: name(metric), value_milli }
}

impl Life {
    fn keep(&mut self, entry: Vec<u8>, applied: &Applied, keys: Vec<Vec<u8>>) {
        self.records.push(JournalRecord {
            index: applied.index.0,
            time_ms: applied.time.as_millis(),
            hash: applied.hash.0,
            entry: entry.into(),
            events: applied.encode_events().into(),
            keys: keys.into(),
        });
    }

    fn index(&self) -> LogIndex {
        LogIndex(self.state.applied().0 + 1)
    }

    /// One entry with one request, whatever comes of it.
    fn ask(&mut self, commands: Vec<Command>) -> Applied {
        self.now = self.now + Span::from_millis(50);
        let (actor, request_id) = self.who(&commands);
        let sealed =
            Sealed::seal(Entry { stamped_at: self.now, requests: vec![Request { actor, request_id, commands }] });
        let index = self.index();
        let applied = apply(&mut self.state, index, &sealed);
        self.keep(JournalEntry::encode_requests(sealed.bytes()), &applied, applied.index_keys(&sealed));
        applied
    }

    /// The nodes have their duties; from the first role on people have to say who they are.
    fn who(&mut self, commands: &[Command]) -> (Actor, Option<RequestId>) {
        let is_duty = |command: &Command| {
            matches!(
                command,
                Command::AnnounceLeader { .. }
                    | Command::ClaimAction { .. }
                    | Command::RecordOutcome { .. }
                    | Command::ReportSignals { .. }
                    | Command::RecordSignals { .. }
                    | Command::Tick
            )
        };
        if commands.iter().all(is_duty) {
            return (Actor::node("n1", "10.0.0.1:7001"), None);
        }
        self.requests += 1;
        let id = u128::from(self.now.as_millis()) << 80 | 7 << 76 | 0b10 << 62 | self.requests;
        let alice = Actor::new("alice", "10.0.0.7:40112");
        let root = Actor::new("root", "10.0.0.7:40113").proven(Proof::Password);
        (if self.state.role("root").is_some() { root } else { alice }, Some(RequestId(id)))
    }

    /// The same of what is not refused.
    #[track_caller]
    fn must(&mut self, command: Command) -> Applied {
        let asked = format!("{command:?}");
        let applied = self.ask(vec![command]);
        assert!(applied.receipts[0].result.is_ok(), "{asked}: {:?}", applied.receipts[0]);
        applied
    }

    /// Time passes.
    fn later(&mut self, span: Span) {
        self.now = self.now + span;
        self.must(Command::Tick);
    }

    fn epoch(&self) -> Epoch {
        self.state.epoch().unwrap()
    }

    fn id(&self, cluster: &str) -> ClusterId {
        self.state.cluster(cluster).unwrap().id
    }

    fn see(&mut self, cluster: &str, seen: Vec<Seen>) {
        self.sequence += 1;
        let observations = seen.into_iter().map(|seen| Observation { age: Span::from_millis(5), seen }).collect();
        let clusters = vec![ClusterReport { cluster: ClusterRef::Name(name(cluster)), observations }];
        self.must(Command::ReportSignals { collector: name("watcher"), sequence: self.sequence, clusters });
    }

    fn claimable(&self, cluster: &str) -> Action {
        let cluster = self.id(cluster);
        self.state.claimable_actions().find(|action| action.cluster == cluster).expect("something to do").clone()
    }

    fn claim(&mut self, action: &Action) -> u32 {
        let (epoch, attempt) = (self.epoch(), action.attempt + 1);
        let backend = name(self.state.backend_for(action).unwrap());
        let parameters = action.parameters(&backend);
        self.must(Command::ClaimAction { action: action.id, epoch, attempt, backend, parameters });
        attempt
    }

    fn outcome(&mut self, action: ActionId, attempt: u32, outcome: Outcome) {
        let epoch = self.epoch();
        self.must(Command::RecordOutcome { action, epoch, attempt, outcome });
    }

    /// The backend does whatever is to be done, for a while.
    fn work(&mut self) {
        for _ in 0..12 {
            let actions: Vec<Action> = self.state.claimable_actions().cloned().collect();
            for action in actions {
                let attempt = self.claim(&action);
                self.outcome(action.id, attempt, Outcome::Succeeded { report: Report::Nothing });
                let cluster = self.state.cluster_by_id(action.cluster).map(|cluster| cluster.name.clone());
                if let (Call::CreateReplica(replica), Some(cluster)) = (&action.call, cluster) {
                    let (name, size) = (replica.name.to_string(), replica.size.to_string());
                    let ready = Seen::Replica { name: name.clone(), size, incarnation: None, ready: true };
                    self.see(&cluster, vec![ready, Seen::Hydration { replica: name, total: 3, hydrated: 3 }]);
                }
            }
            self.later(Span::from_secs(40));
        }
    }

    fn begins(&mut self) {
        let index = self.index();
        let applied = pass(&mut self.state, index, b"n1 n2 n3");
        self.keep(JournalEntry::encode_membership(b"n1 n2 n3"), &applied, Vec::new());
        let index = self.index();
        let applied = pass(&mut self.state, index, &[]);
        self.keep(JournalEntry::encode_blank(), &applied, Vec::new());
        self.must(Command::FoundGroup { nodes: 3 });
        self.must(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
        self.must(Command::AdmitNode { name: name("n4"), address: name("10.0.0.4:7001") });
        self.ask(vec![Command::RaiseRules { to: RULES_VERSION_MAX }]);
    }

    fn is_configured(&mut self) {
        self.must(Command::SuggestSetting { name: name("default_backend"), value: name("made-up") });
        for (setting, value) in [
            ("enable_auto_scaling", "true"),
            ("auto_scaling_cluster_cooldown", "0s"),
            ("auto_scaling_attempts_max", "2"),
            ("request_window", "20m"),
        ] {
            self.must(set(setting, value));
        }
        self.must(Command::ResetSetting { name: name("request_window"), etag: None });
        for size in ["25cc", "50cc", "100cc", "200cc", "tiny"] {
            let (rank, slots) = (None, 4);
            self.must(Command::CreateSize { name: name(size), rank, slots, price_micros_per_hour: 250_000 });
        }
        let (rank, slots, price_micros_per_hour) = (None, Some(8), Some(500_000));
        self.must(Command::ChangeSize { name: name("200cc"), rank, slots, price_micros_per_hour, etag: None });
        self.must(Command::DropSize { name: name("tiny"), etag: None, allow_missing: false });
        for cluster in
            ["fixed", "fitted", "helped", "idle", "tracked", "queued", "judged", "manual", "prod_a", "old", "older"]
        {
            self.must(Command::CreateCluster { name: name(cluster) });
        }
        self.must(Command::RenameCluster { name: name("prod_a"), to: name("prod_b"), etag: None });
        let backend = Some(name("elsewhere"));
        self.must(Command::PlaceCluster { name: name("prod_b"), backend, etag: None });
        self.must(Command::DropCluster { name: name("old"), etag: None, allow_missing: false });
        self.must(Command::DropClusterCascade { name: name("older"), etag: None, allow_missing: false });
        let epoch = self.epoch();
        self.must(Command::DescribeBackend { epoch, backend: name("made-up"), checkpoints: true });
    }

    fn strategies_come_and_go(&mut self) {
        use StrategyKind::{Burst, IdleSuspend, QueueDepth, ShrinkToFit, TargetSize, TargetTracking};
        self.must(create(on("fixed"), TargetSize, [("size", "50cc"), ("cooldown_s", "0")]));
        self.must(create(on("fitted"), ShrinkToFit, [("max_size", "100cc"), ("cooldown_s", "0")]));
        self.must(create(on("helped"), Burst, [("burst_size", "200cc"), ("cooldown_s", "0")]));
        self.must(create(on("idle"), TargetSize, [("size", "25cc"), ("cooldown_s", "0")]));
        let schedule = ("schedule", "mon 20:00-21:00 suspended");
        self.must(create(on("idle"), IdleSuspend, [("idle_after_s", "1800"), ("cooldown_s", "0"), schedule]));
        let tracked = [
            ("size", "25cc"),
            ("signals", "requests average 100; load average 10"),
            ("max_replicas", "5"),
            ("time_zone", "Europe/Berlin"),
            ("schedule", "weekdays 12:00-18:00 size=50cc min_replicas=2"),
        ];
        self.must(create(on("tracked"), TargetTracking, tracked));
        self.must(create(on("queued"), QueueDepth, [("size", "25cc"), ("min_replicas", "0"), ("max_replicas", "4")]));
        self.must(create(on("judged"), TargetSize, [("size", "25cc"), ("approval", "manual"), ("cooldown_s", "0")]));
        self.must(create(TargetName::Pattern(name("prod%")), TargetSize, [("size", "25cc")]));
        self.must(create(TargetName::All, IdleSuspend, [("idle_after_s", "28800"), ("dry_run", "true")]));
        self.must(create(on("manual"), ShrinkToFit, [("max_size", "100cc")]));
        self.must(create(on("manual"), Burst, [("burst_size", "200cc")]));
        self.must(Command::ChangeStrategy {
            target: on("fixed"),
            kind: TargetSize,
            options: Options::from([("size", "100cc")]),
            reset: vec![name("cooldown_s")],
            etag: None,
            unchecked: false,
        });
        let (id, etag) = self.strategy("fixed", TargetSize);
        self.must(Command::ExpectStrategy { strategy: id, target: on("fixed"), etag });
        let since = self.state.applied();
        self.must(Command::ExpectUnchanged { since, targets: vec![on("fixed")], strategies: vec![id] });
        self.must(drop_strategy("manual", Burst));
        self.must(Command::DropStrategies { target: on("manual") });
    }

    fn strategy(&self, cluster: &str, kind: StrategyKind) -> (loadline_state_machine::StrategyId, Revision) {
        let strategy = self.state.strategy_for(&on(cluster), kind).unwrap();
        (strategy.id, strategy.updated)
    }

    fn signals_are_collected(&mut self) {
        let prometheus = Options::from([("url", "http://127.0.0.1:9090"), ("query", "sum(requests)")]);
        let signal = |signal: &str, kind, every, options| Command::CreateSignal {
            name: name(signal),
            kind,
            target: on("tracked"),
            every,
            options,
            if_not_exists: false,
        };
        self.must(signal("requests", SignalKind::Prometheus, Some(Span::from_secs(5)), prometheus));
        self.must(signal("load", SignalKind::Push, None, Options::default()));
        self.must(signal("unused", SignalKind::Push, None, Options::default()));
        self.must(Command::ChangeSignal {
            name: name("requests"),
            target: None,
            every: Some(Span::from_secs(10)),
            options: Options::from([("timeout", "2s")]),
            reset: Vec::new(),
            etag: None,
        });
        self.must(Command::DropSignal { name: name("unused"), etag: None, allow_missing: false });
        let (epoch, cluster) = (self.epoch(), self.id("tracked"));
        let updated = self.state.signal("requests").unwrap().updated;
        for outcome in [
            CollectedOutcome::Nothing { error: name("no answer") },
            CollectedOutcome::Values { age: Span::from_millis(40), values: vec![(cluster, 250_000)] },
        ] {
            let collected = vec![Collected { signal: name("requests"), updated, outcome }];
            self.must(Command::RecordSignals { epoch, collected });
        }
        let value = PushedValue { signal: name("load"), cluster: None, value_milli: 15_000, age: Span::from_millis(3) };
        self.must(Command::PushSignals { values: vec![value] });
    }

    fn people_have_roles(&mut self) {
        let (ops, viewer) = (|| name("ops"), || name("viewer"));
        for (name, superuser) in [(name("root"), true), (ops(), false)] {
            self.must(Command::CreateRole { name, superuser, verifier: Some(verifier()), if_not_exists: false });
        }
        self.must(Command::CreateRole { name: viewer(), superuser: false, verifier: None, if_not_exists: false });
        let password = PasswordChange::Clear;
        self.must(Command::AlterRole { name: ops(), superuser: Some(true), password, etag: None });
        self.must(Command::GrantUsage { role: viewer(), on: UsageOn::AllClusters });
        self.must(Command::GrantUsage { role: viewer(), on: UsageOn::Cluster(name("fixed")) });
        self.must(Command::RevokeUsage { role: viewer(), on: UsageOn::AllClusters });
        let token = || name("0123456789abcdef");
        let expires_in = Some(Span::from_hours(1));
        self.must(Command::CreateToken { role: ops(), token: token(), hash: Hash([0xc3; 32]), expires_in });
        self.must(Command::DropToken { role: ops(), token: token(), allow_missing: false });
        self.must(Command::DropRole { name: ops(), etag: None, allow_missing: false });
    }

    fn works_for_a_while(&mut self) {
        self.see("idle", vec![Seen::Activity { idle_for: None }, Seen::Alive]);
        self.see("queued", vec![metric("queue_depth", 6_000), metric("queue_oldest_wait_seconds", 0)]);
        // A replica that has yet to load everything is helped.
        let ready = Seen::Replica { name: name("main"), size: name("50cc"), incarnation: None, ready: true };
        let hydration = |hydrated| Seen::Hydration { replica: name("main"), total: 3, hydrated };
        self.see("helped", vec![ready, hydration(0)]);
        let waits = self.state.actions().find(|action| is_asked_about(action));
        let waits = waits.expect("somebody is asked").id;
        self.must(Command::ApproveAction { action: waits });
        self.work();
        // What crashes again and again for want of memory does not come back in this size.
        let crash = Seen::Crash { replica: name("r1_auto"), oom: true, reason: name("killed"), count: 5 };
        self.see("fitted", vec![crash, Seen::Activity { idle_for: None }]);
        self.see("queued", vec![metric("queue_depth", 0), metric("queue_oldest_wait_seconds", 0)]);
        self.see("helped", vec![hydration(3)]);
        self.work();
        // The leader loses its place in the middle.
        self.must(Command::AnnounceLeader { node: NodeNumber(2), term: 2 });
    }

    /// Calls that fail, and calls of which nobody knows what came of them.
    fn goes_wrong(&mut self) {
        let asked = |replica: &str| Command::CreateReplica {
            cluster: name("manual"),
            replica: name(replica),
            size: name("25cc"),
            if_not_exists: false,
        };
        self.must(asked("m1"));
        let action = self.claimable("manual");
        let attempt = self.claim(&action);
        self.outcome(action.id, attempt, Outcome::Failed { retryable: true, reason: name("no room") });
        self.must(Command::RetryAction { action: action.id, reason: name("there is room now") });
        let action = self.claimable("manual");
        let attempt = self.claim(&action);
        self.outcome(action.id, attempt, Outcome::Unknown { reason: name("no answer in 10 s") });
        self.must(Command::ResolveAction { action: action.id, succeeded: true, reason: name("it is there") });
        self.see(
            "manual",
            vec![Seen::Replica { name: name("m1"), size: name("25cc"), incarnation: None, ready: true }],
        );
        self.work();
        self.must(asked("m2"));
        let action = self.claimable("manual").id;
        self.must(Command::AbandonAction { action, reason: name("not today") });
        self.later(Span::from_mins(5));
        // Given up after so many times: somebody has to look.
        self.must(asked("m3"));
        for _ in 0..2 {
            let action = self.claimable("manual");
            let attempt = self.claim(&action);
            self.outcome(action.id, attempt, Outcome::Failed { retryable: true, reason: name("no room") });
            self.later(Span::from_mins(6));
        }
        let letter = self.state.dead_letters().next().expect("what was given up").id;
        self.must(Command::RetryAction { action: letter, reason: name("decide afresh") });
        self.must(Command::DropReplica { cluster: name("manual"), replica: name("m1"), allow_missing: false });
        self.work();
    }

    fn people_interfere(&mut self) {
        let (cluster, reason) = (|| name("fixed"), || name("maintenance"));
        self.must(Command::PauseCluster { cluster: cluster(), reason: reason(), expires_in: Some(Span::from_mins(5)) });
        self.must(Command::ResumeCluster { cluster: cluster() });
        self.must(Command::OverrideCluster {
            cluster: cluster(),
            replicas_min: 2,
            size: Some(name("50cc")),
            reason: reason(),
            expires_in: Span::from_hours(1),
        });
        self.work();
        self.must(Command::ClearOverride { cluster: cluster() });
        // Nobody has anything done that somebody is asked about and does not want.
        let options = Options::from([("size", "50cc")]);
        self.must(Command::ChangeStrategy {
            target: on("judged"),
            kind: StrategyKind::TargetSize,
            options,
            reset: Vec::new(),
            etag: None,
            unchecked: false,
        });
        let judged = self.id("judged");
        let asked = self.state.actions().find(|action| action.cluster == judged && is_asked_about(action));
        let action = asked.expect("somebody is asked").id;
        self.must(Command::RejectAction { action, reason: name("it is large enough") });
        let (strategy, _) = self.strategy("fixed", StrategyKind::TargetSize);
        let cluster = self.id("fixed");
        let known = |life: &Life| {
            let standing = life.state.standing(cluster).unwrap();
            standing.strategy_state(StrategyKind::TargetSize).cloned()
        };
        let state = Some(StrategyState {
            version: STRATEGY_STATE_VERSION,
            strategy,
            last_change_at: Some(self.state.now()),
            memory: Memory::Nothing,
        });
        self.must(Command::SetStrategyState { strategy, cluster, expected: known(self), state });
    }

    fn is_suspended_and_wakes(&mut self) {
        self.see("idle", vec![Seen::Activity { idle_for: Some(Span::from_mins(45)) }]);
        self.work();
        self.must(Command::WakeCluster { cluster: name("idle"), reason: WakeReason::Manual });
        self.work();
    }

    fn is_tidied(&mut self) {
        let cluster = self.id("manual");
        let settled = self.events().find_map(|event| match event {
            Event::ActionSettled { action, .. } if action.cluster == cluster => Some(action.number),
            _ => None,
        });
        self.must(Command::DeleteActions { cluster, numbers: vec![settled.expect("a row")] });
        // A collector that has nothing to say is there all the same.
        self.sequence += 1;
        let (collector, sequence) = (name("watcher"), self.sequence);
        self.must(Command::ReportSignals { collector, sequence, clusters: Vec::new() });
    }

    fn events(&self) -> impl Iterator<Item = Event> {
        self.records.iter().flat_map(|record| decode_events(&record.events).unwrap())
    }

    fn is_restored(&mut self) {
        let backup = self.state.encode();
        let begin = Command::BeginRestore { bytes_total: backup.len() as u64, hash: Hash::of(&backup) };
        self.must(begin.clone());
        self.must(Command::AbortRestore { restore: None });
        let restore = Revision { index: self.index(), ordinal: 0 };
        self.must(begin);
        for (nth, chunk) in backup.chunks(32 << 10).enumerate() {
            let offset = (nth * (32 << 10)) as u64;
            self.must(Command::RestoreChunk { restore, offset, bytes: chunk.to_vec().into() });
        }
        self.must(Command::FinishRestore { restore });
        self.must(Command::AnnounceLeader { node: NodeNumber(3), term: 3 });
        self.work();
    }
}

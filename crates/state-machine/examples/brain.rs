//! What the brain costs: one signal and one idle tick at 1,000 and at 100,000 clusters, one evaluation with four strategies,
//! and the memory of a cluster.
//!
//! `cargo run --release -p loadline-state-machine --example brain`

// Measuring needs a clock and the size of this process; the state machine itself may know neither.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, clippy::print_stdout)]

use std::time::Duration;

use loadline_state_machine::{
    Actor, ClusterId, ClusterRef, ClusterReport, Command, Entry, LogIndex, NodeNumber, Observation, Options, Request,
    Sealed, Seen, Span, State, StrategyKind, TargetName, Time, apply,
};

fn main() {
    let small = World::with(1_000, Strategies::ForAll);
    let before = resident_bytes();
    let mut own = World::with(100_000, Strategies::ForEach);
    let own_bytes = resident_bytes().saturating_sub(before) / 100_000;
    let before = resident_bytes();
    let mut large = World::with(100_000, Strategies::ForAll);
    let shared_bytes = resident_bytes().saturating_sub(before) / 100_000;
    let mut small = small;

    println!("memory of a cluster with four strategies of its own: {own_bytes} bytes");
    println!("memory of a cluster with four strategies for all: {shared_bytes} bytes");
    println!("evaluations with four strategies: {} a second at 1,000 clusters", small.evaluations_per_second());
    println!("evaluations with four strategies: {} a second at 100,000 clusters", large.evaluations_per_second());
    println!("evaluations with four own strategies: {} a second at 100,000 clusters", own.evaluations_per_second());
    let (signal_small, signal_large, signal_own) = (small.signal(), large.signal(), own.signal());
    println!(
        "signal at 1,000 clusters {signal_small:?}, at 100,000 {signal_large:?}, {signal_own:?} with own strategies"
    );
    let (tick_small, tick_large) = (small.tick(), large.tick());
    println!("idle tick at 1,000 clusters {tick_small:?}, at 100,000 {tick_large:?}");
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Strategies {
    ForAll,
    ForEach,
}

struct World {
    state: State,
    time: Time,
    ids: Vec<ClusterId>,
    sequence: u64,
    random: u64,
}

impl World {
    fn with(clusters: usize, strategies: Strategies) -> Self {
        let time = Time::from_millis(1_800_000_000_000);
        let mut world = Self { state: State::new(), time, ids: Vec::new(), sequence: 0, random: 42 };
        world.apply(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
        world.set("enable_auto_scaling", "true");
        for name in ["25cc", "50cc", "100cc", "200cc", "400cc"] {
            let name = name.to_owned();
            world.apply(Command::CreateSize { name, rank: None, slots: 1, price_micros_per_hour: 0 });
        }
        if strategies == Strategies::ForAll {
            world.strategies(&TargetName::All);
        }
        for number in 0..clusters {
            let name = format!("cluster_{number:06}");
            world.apply(Command::CreateCluster { name: name.clone() });
            world.ids.push(world.state.cluster(&name).expect("it was created").id);
            world.report(number, vec![replica("r1_auto", "100cc"), replica("r2", "100cc")]);
            if strategies == Strategies::ForEach {
                world.strategies(&TargetName::Cluster(name));
            }
            world.report(number, vec![hydration("r1_auto", 3), hydration("r2", 3), idle(10)]);
        }
        while world.state.evaluations_wait() {
            world.apply(Command::Tick);
        }
        world
    }

    fn strategies(&mut self, target: &TargetName) {
        let of = [
            (StrategyKind::TargetSize, Options::from([("size", "100cc")])),
            (StrategyKind::ShrinkToFit, Options::from([("max_size", "100cc")])),
            (StrategyKind::Burst, Options::from([("burst_size", "400cc")])),
            (StrategyKind::IdleSuspend, Options::from([("idle_after_s", 1_800)])),
        ];
        for (kind, options) in of {
            let target = target.clone();
            self.apply(Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false });
        }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.apply(Command::SetSetting { name: name.to_owned(), value: value.to_owned(), etag: None });
    }

    fn apply(&mut self, command: Command) {
        let request = Request { actor: Actor::new("bench", "example"), request_id: None, commands: vec![command] };
        // As it goes through a group: sealed by the leader, opened and applied by every other node.
        let sealed = Sealed::seal(Entry { stamped_at: self.time, requests: vec![request] });
        let sealed = Sealed::open(std::sync::Arc::clone(sealed.bytes())).expect("what was sealed can be opened");
        let index = LogIndex(self.state.applied().0 + 1);
        let applied = apply(&mut self.state, index, &sealed);
        assert!(applied.receipts.iter().all(|receipt| receipt.result.is_ok()), "{:?}", applied.receipts);
    }

    fn report(&mut self, cluster: usize, seen: Vec<Seen>) {
        self.sequence += 1;
        let observations = seen.into_iter().map(|seen| Observation { age: Span::default(), seen }).collect();
        let cluster = ClusterRef::Id(self.ids[cluster]);
        self.apply(Command::ReportSignals {
            collector: "bench".to_owned(),
            sequence: self.sequence,
            clusters: vec![ClusterReport { cluster, observations }],
        });
    }

    fn next(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % self.ids.len() as u64).unwrap_or(0)
    }

    fn evaluations_per_second(&mut self) -> u128 {
        const COUNT: u128 = 400_000;
        let started = cpu_time();
        for _ in 0..COUNT {
            let next = self.next();
            let cluster = self.ids[next];
            std::hint::black_box(self.state.would_conclude(cluster));
        }
        COUNT * 1_000_000_000 / (cpu_time() - started).as_nanos().max(1)
    }

    /// The cost of one entry with one signal for some cluster.
    fn signal(&mut self) -> Duration {
        const COUNT: u32 = 50_000;
        self.time = self.time + Span::from_millis(1);
        let started = cpu_time();
        for _ in 0..COUNT {
            let cluster = self.next();
            self.report(cluster, vec![idle(7)]);
        }
        (cpu_time() - started) / COUNT
    }

    fn tick(&mut self) -> Duration {
        const COUNT: u32 = 200_000;
        let started = cpu_time();
        for _ in 0..COUNT {
            self.apply(Command::Tick);
        }
        (cpu_time() - started) / COUNT
    }
}

fn replica(name: &str, size: &str) -> Seen {
    Seen::Replica {
        name: name.to_owned(),
        size: size.to_owned(),
        incarnation: Some("i-0123456789".to_owned()),
        ready: true,
    }
}

fn hydration(replica: &str, hydrated: u64) -> Seen {
    Seen::Hydration { replica: replica.to_owned(), total: 3, hydrated }
}

fn idle(secs: u64) -> Seen {
    Seen::Activity { idle_for: Some(Span::from_secs(secs)) }
}

/// What this process has computed for, whoever else uses the machine. It is counted in hundredths of a second.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

/// What the operating system has given this process.
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4_096
}

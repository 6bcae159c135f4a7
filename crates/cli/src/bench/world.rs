//! A made-up group: clusters with four strategies of their own each, two replicas, and a collector that reports on them.
//!
//! Nothing is wanted that is not there, and it stays so. A measurement is then of looking, not of whatever an operation
//! would do, and the thousandth round finds the same world as the first.

use std::time::Duration;

use loadline_state_machine::{
    Actor, ClusterRef, ClusterReport, Command, Entry, LogIndex, Observation, Options, Request, Sealed, Seen, Span,
    State, StrategyKind, TargetName, Time, apply,
};

use super::machine::Stopwatch;
use crate::exit::{Exit, Failed};

const SIZES: [&str; 5] = ["25cc", "50cc", "100cc", "200cc", "400cc"];
const REPLICAS: [&str; 2] = ["r1_auto", "r2_auto"];
const COLLECTOR: &str = "bench";
/// Of each cluster, see [`founding`].
const STRATEGIES: usize = 4;

/// Clusters that one entry creates, or reports on: few enough that all of them are looked at with that entry.
const CLUSTERS_PER_ENTRY: u32 = 100;

/// Two values of one setting that no decision depends on here. Each change of it has every cluster looked at again.
const STALE_AFTER: [&str; 2] = ["2m", "121s"];

#[derive(Debug)]
pub(super) struct World {
    pub(super) clusters: u32,
    state: State,
    now: Time,
    sequence: u64,
    /// How many clusters were picked so far.
    picked: u64,
    /// How many sweeps there were.
    swept: usize,
}

impl World {
    /// `tell` hears how many clusters are there.
    pub(super) fn build(clusters: u32, mut tell: impl FnMut(u32)) -> Result<World, Failed> {
        let state = State::new();
        let mut world =
            World { clusters, state, now: Time::from_millis(1_800_000_000_000), sequence: 0, picked: 0, swept: 0 };
        let mut first =
            vec![Command::SetSetting { name: "enable_auto_scaling".to_owned(), value: "true".to_owned(), etag: None }];
        first.extend(SIZES.map(|name| Command::CreateSize {
            name: name.to_owned(),
            rank: None,
            slots: 1,
            price_micros_per_hour: 250_000,
        }));
        world.run(first)?;
        for begin in (0..clusters).step_by(CLUSTERS_PER_ENTRY as usize) {
            let names = || (begin..clusters.min(begin + CLUSTERS_PER_ENTRY)).map(name);
            world.run(names().flat_map(|name| founding(&name)).collect())?;
            let report = world.report(names().map(first_report).collect());
            world.run(vec![report])?;
            tell(begin);
        }
        while world.state.evaluations_wait() {
            world.run(vec![Command::Tick])?;
        }
        world.check()?;
        Ok(world)
    }

    /// Every cluster must have been looked at by all four strategies, and none may want anything.
    fn check(&self) -> Result<(), Failed> {
        let settled = |name: &str| {
            let id = self.state.cluster(name)?.id;
            let decision = self.state.standing(id)?.decision()?;
            (decision.stages.len() == STRATEGIES && decision.planned.is_empty()).then_some(())
        };
        match (0..self.clusters).map(name).find(|name| settled(name).is_none()) {
            None => Ok(()),
            Some(name) => Err(Failed::new(Exit::Failure, format!("{name} did not settle, so nothing can be measured"))),
        }
    }

    /// How long one signal takes on the average, about clusters that are picked evenly.
    pub(super) fn signals(&mut self, count: u32) -> Result<Duration, Failed> {
        let commands = (0..count).map(|_| {
            let cluster = name(self.pick());
            let idle_for = Some(Span::from_millis(self.picked % 1_000));
            let seen = Seen::Activity { idle_for };
            self.report(vec![ClusterReport { cluster: ClusterRef::Name(cluster), observations: vec![just_now(seen)] }])
        });
        let commands: Vec<Command> = commands.collect();
        self.time_each(commands).map(|took| took / count)
    }

    /// How long a tick takes on the average when nothing is due.
    pub(super) fn idle_ticks(&mut self, count: u32) -> Result<Duration, Failed> {
        let commands = (0..count).map(|_| Command::Tick).collect();
        self.time_each(commands).map(|took| took / count)
    }

    /// How long one evaluation takes on the average when every cluster is looked at once.
    pub(super) fn sweep(&mut self) -> Result<Duration, Failed> {
        self.swept += 1;
        let value = STALE_AFTER[self.swept % STALE_AFTER.len()].to_owned();
        let change = Command::SetSetting { name: "signal_stale_after".to_owned(), value, etag: None };
        let mut took = self.time_each(vec![change])?;
        while self.state.evaluations_wait() {
            took += self.time_each(vec![Command::Tick])?;
        }
        Ok(took / self.clusters)
    }

    /// What a snapshot would hold, before it is compressed.
    pub(super) fn encoded_bytes(&self) -> u64 {
        self.state.encode().len() as u64
    }

    /// The next cluster. Neighbours in time are none in memory, as when collectors report on many clusters.
    fn pick(&mut self) -> u32 {
        self.picked += 1;
        let mixed = mix(self.picked) % u64::from(self.clusters);
        u32::try_from(mixed).unwrap_or_default()
    }

    fn report(&mut self, clusters: Vec<ClusterReport>) -> Command {
        self.sequence += 1;
        Command::ReportSignals { collector: COLLECTOR.to_owned(), sequence: self.sequence, clusters }
    }

    /// One entry with all of these commands.
    fn run(&mut self, commands: Vec<Command>) -> Result<(), Failed> {
        self.now = self.now + Span::from_millis(1);
        let entry = self.seal(commands);
        self.apply(&entry)
    }

    /// An entry for each of them. What the leader does before (packing) is not counted, what every node does is.
    fn time_each(&mut self, commands: Vec<Command>) -> Result<Duration, Failed> {
        self.now = self.now + Span::from_millis(1);
        let entries: Vec<Sealed> = commands.into_iter().map(|command| self.seal(vec![command])).collect();
        let begin = Stopwatch::start();
        for entry in &entries {
            self.apply(entry)?;
        }
        Ok(begin.elapsed())
    }

    fn seal(&self, commands: Vec<Command>) -> Sealed {
        let actor = Actor::new("bench", "bench");
        let requests = vec![Request { actor, request_id: None, commands }];
        Sealed::seal(Entry { stamped_at: self.now, requests })
    }

    fn apply(&mut self, entry: &Sealed) -> Result<(), Failed> {
        let index = LogIndex(self.state.applied().0 + 1);
        let applied = apply(&mut self.state, index, entry);
        match applied.receipts.iter().find_map(|receipt| receipt.result.as_ref().err()) {
            None => Ok(()),
            Some(refused) => {
                Err(Failed::new(Exit::Failure, format!("the made-up group refused: {}", refused.rejection)))
            }
        }
    }
}

fn name(number: u32) -> String {
    format!("cluster-{number:06}")
}

fn founding(name: &str) -> Vec<Command> {
    let strategy = |kind, options| Command::CreateStrategy {
        target: TargetName::Cluster(name.to_owned()),
        kind,
        options,
        if_not_exists: false,
        unchecked: false,
    };
    vec![
        Command::CreateCluster { name: name.to_owned() },
        strategy(StrategyKind::TargetSize, Options::from([("size", "100cc")])),
        strategy(StrategyKind::ShrinkToFit, Options::from([("max_size", "400cc")])),
        strategy(StrategyKind::Burst, Options::from([("burst_size", "400cc")])),
        strategy(StrategyKind::IdleSuspend, Options::from([("idle_after_s", 1_800)])),
    ]
}

fn first_report(name: String) -> ClusterReport {
    let mut seen = vec![Seen::Activity { idle_for: Some(Span::from_secs(5)) }];
    for replica in REPLICAS {
        let (name, size, incarnation) = (replica.to_owned(), "100cc".to_owned(), None);
        seen.push(Seen::Replica { name, size, incarnation, ready: true });
        seen.push(Seen::Hydration { replica: replica.to_owned(), total: 3, hydrated: 3 });
    }
    ClusterReport { cluster: ClusterRef::Name(name), observations: seen.into_iter().map(just_now).collect() }
}

fn just_now(seen: Seen) -> Observation {
    Observation { age: Span::default(), seen }
}

/// Spreads numbers evenly, the same ones in every run (the finalizer of splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_stays_as_it_was_built_through_every_measurement() {
        let mut world = World::build(301, |_| {}).expect("built");
        assert_eq!((world.state.cluster_count(), world.state.strategy_count()), (301, 4 * 301));
        for _ in 0..2 {
            world.signals(50).expect("measured");
            world.idle_ticks(50).expect("measured");
            world.sweep().expect("measured");
        }
        world.check().expect("nothing is wanted");
        assert_eq!(world.state.action_count(), 0);
        assert!(!world.state.evaluations_wait());
    }

    #[test]
    fn a_sweep_looks_at_every_cluster() {
        let mut world = World::build(600, |_| {}).expect("built");
        let before = world.state.applied();
        world.sweep().expect("measured");
        assert!(world.state.applied().0 - before.0 >= 3, "600 clusters are more than two entries look at");
    }
}

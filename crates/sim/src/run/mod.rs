//! One run: chaos, in which every invariant is checked at every step, then healing, until there is nothing left to do.
//!
//! Here: what goes on from step to step, and what is done to the world. [`healing`]: the second part, and when it is over.
//! [`ambushed`]: what becomes of an executor that walked into an ambush. [`late`]: what was said once and arrives later.

mod ambushed;
mod healing;
mod late;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use loadline_log::Disk as _;
use loadline_raft_node::seed_randomness;
use loadline_state_machine::{ClusterId, State, Time};
use tokio::sync::{mpsc, watch};

use crate::calls::Call;
use crate::dice::Dice;
use crate::faults::{self, Deed, Family};
use crate::history::Told;
use crate::invariants::{Judge, NO_PANIC, Violation};
use crate::journals;
use crate::memory::live_bytes;
use crate::operator::{self, Order};
use crate::plan::Plan;
use crate::record::{Phase, Place, Seen, Sighting};
use crate::stragglers;
use crate::trace::{self, Tracing};
use crate::watchers;
use crate::workload::{User, client};
use crate::world::World;
use crate::world::clock::EPOCH_MS;
use crate::world::node::host;

use self::ambushed::Overtaken;
use self::late::Late;

/// The user that finds out whether the group serves, once nothing goes wrong any more.
const PROBE: &str = "probe";
/// A process that ended by itself is started again after about so long.
const RESTART_MS: (u64, u64) = (200, 1_500);
/// How often processes are measured.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whether there is anything left to do.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    pub seed: u64,
    pub violation: Option<Violation>,
    /// Simulated.
    pub took: Duration,
    pub sightings: u64,
    /// The most bytes that were allocated when it was looked, by all nodes and the simulator.
    pub allocated: usize,
    /// One line for each sighting, if it was asked for.
    pub trace: Vec<String>,
}

/// Runs a seed to its end.
pub fn run(plan: &Plan, tracing: Tracing) -> Outcome {
    run_with(plan, faults::schedule(plan), tracing)
}

/// The same with other faults than the seed's.
pub fn run_with(plan: &Plan, deeds: Vec<(Duration, Deed)>, tracing: Tracing) -> Outcome {
    seed_randomness(Dice::of(plan.seed, "raft").throw());
    loadline_mutants::start_coins(plan.seed);
    loadline_mutants::read_clock_with(simulated_ms);
    let mut run = Run::new(plan, deeds, tracing);
    let ended = catch_unwind(AssertUnwindSafe(|| run.until_it_is_over()));
    let violation = match ended {
        Ok(ended) => ended.err(),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
            Some(Violation { invariant: NO_PANIC, at: run.world.record.now(), what: said.to_owned() })
        }
    };
    let outcome = Outcome {
        seed: plan.seed,
        took: run.world.sim.elapsed(),
        sightings: run.sightings,
        allocated: run.allocated,
        trace: std::mem::take(&mut run.trace),
        violation,
    };
    if outcome.violation.as_ref().is_some_and(|violation| violation.invariant == NO_PANIC) {
        // Its destructors would find a world that was left in the middle of something.
        std::mem::forget(run);
    }
    outcome
}

/// What a clock says that an entry has no business to read.
fn simulated_ms() -> u64 {
    let passed = turmoil::sim_elapsed().unwrap_or_default().as_millis();
    EPOCH_MS.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
}

struct Run<'a> {
    plan: &'a Plan,
    world: World,
    judge: Judge,
    deeds: VecDeque<(Duration, Deed)>,
    /// Processes that ended by themselves, and when they are started again.
    restarts: BTreeMap<Place, Duration>,
    /// Those that are held for a time.
    resumes: BTreeMap<Place, Duration>,
    /// The node on whose disk a bit is wrong.
    rotten: Option<Place>,
    down: BTreeSet<Place>,
    /// The node whose disk is gone for good, until an operator has taken it out of the group.
    lost: Option<Place>,
    /// At most one in a run: see `faults::members`.
    disk_was_lost: bool,
    operator: mpsc::UnboundedSender<Order>,
    paused: BTreeSet<Place>,
    /// What each node has applied last.
    latest: BTreeMap<Place, State>,
    phase: Phase,
    healing_since: Duration,
    served: Option<(Duration, u64)>,
    /// The latest end of a brake that was seen.
    brake_until: Time,
    stop: watch::Sender<bool>,
    /// Nodes that are held until another leader is at work.
    outlasting: BTreeSet<Place>,
    /// The executors that wait until what forbids their claim is recorded.
    overtaken: BTreeMap<Place, Overtaken>,
    /// When the kill switch that was to overtake is taken back.
    switch_on_at: Option<Duration>,
    /// Who records that.
    rusher: mpsc::UnboundedSender<Call>,
    late: Late,
    dice: Dice,
    tracing: Tracing,
    trace: Vec<String>,
    sightings: u64,
    allocated: usize,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, deeds: Vec<(Duration, Deed)>, tracing: Tracing) -> Run<'a> {
        let mut world = World::new(plan);
        let stop = watch::Sender::new(false);
        let (operator, orders) = mpsc::unbounded_channel();
        let (rusher, rushed) = mpsc::unbounded_channel();
        let (handed_on, arriving) = mpsc::unbounded_channel();
        let record = world.record.clone();
        if let Some(user) = User::new(plan, "rusher", record.clone()) {
            world.invite(user.live_on(rushed));
        }
        if plan.has(Family::Straggler) {
            world.invite(stragglers::live(arriving, record));
        }
        people(plan, &mut world, &stop, orders);
        let mut dice = Dice::of(plan.seed, "run");
        if plan.has(Family::Drift) {
            for machine in &world.machines {
                machine.clock.set_drift(i64::try_from(dice.below(1_000)).unwrap_or(0) - 500);
            }
        }
        Run {
            plan,
            world,
            judge: Judge::new(plan),
            deeds: deeds.into(),
            restarts: BTreeMap::new(),
            resumes: BTreeMap::new(),
            rotten: None,
            down: BTreeSet::new(),
            lost: None,
            disk_was_lost: false,
            operator,
            paused: BTreeSet::new(),
            latest: BTreeMap::new(),
            phase: Phase::Chaos,
            healing_since: Duration::ZERO,
            served: None,
            brake_until: Time::from_millis(0),
            stop,
            outlasting: BTreeSet::new(),
            overtaken: BTreeMap::new(),
            switch_on_at: None,
            rusher,
            late: Late::new(plan, handed_on),
            dice,
            tracing,
            trace: Vec::new(),
            sightings: 0,
            allocated: 0,
        }
    }

    fn until_it_is_over(&mut self) -> Result<(), Violation> {
        self.world.record.see(Seen::Phase(Phase::Chaos));
        let (mut look_at, mut measure_at) = (Duration::ZERO, MEASURE_EVERY);
        loop {
            let now = self.world.sim.elapsed();
            self.world.record.set_now(now);
            if self.phase == Phase::Chaos && now >= self.plan.chaos.1 {
                self.heal();
            }
            self.do_what_is_due(now);
            if let Err(error) = self.world.sim.step() {
                return Err(Violation { invariant: NO_PANIC, at: now, what: error.to_string() });
            }
            if now >= measure_at {
                measure_at = now + MEASURE_EVERY;
                self.measure();
            }
            for sighting in self.world.record.take() {
                self.see(sighting)?;
            }
            if self.phase != Phase::Chaos && now >= look_at {
                look_at = now + LOOK_EVERY;
                if self.is_over(now)? {
                    self.read_journals()?;
                    return self.judge.end(now);
                }
            }
        }
    }

    fn see(&mut self, sighting: Sighting) -> Result<(), Violation> {
        self.sightings += 1;
        match self.tracing {
            Tracing::Off => {}
            Tracing::Kept => self.trace.push(trace::line(&sighting)),
            Tracing::Told(tell) => tell(&trace::line(&sighting)),
        }
        self.judge.see(&sighting)?;
        match sighting.what {
            Seen::Applied(applied) => {
                self.late.applied(sighting.at, &applied);
                self.overtakes(&applied);
                self.latest.insert(applied.node, applied.state);
            }
            Seen::Replaced { node, state, .. } => drop(self.latest.insert(node, *state)),
            Seen::Ambushed { node, action, then } => self.ambushed(sighting.at, node, action, then),
            Seen::Said { node, command } => self.late.said(sighting.at, node, *command),
            Seen::Elected { node, .. } => self.late.elected(node),
            Seen::Ledger(line) => self.backend_was_called(sighting.at, &line),
            Seen::Removed { node } => {
                self.lost = None;
                let seed = self.world.dice.throw();
                self.world.machines[node].replace_disk(seed);
                self.latest.remove(&node);
                self.restart(node);
            }
            Seen::Ended { node, ref why, .. } => {
                self.kill(node, false);
                // That is what a node says whose disk cannot be trusted, and what its operator does then.
                if why.contains("remove-peer") && self.rotten == Some(node) {
                    self.lose_disk(node);
                }
                let again = sighting.at + self.dice.millis(RESTART_MS.0, RESTART_MS.1);
                self.restarts.insert(node, again);
            }
            Seen::Answered(answered) if self.phase == Phase::Heal && answered.tag.starts_with(PROBE) => {
                if let Told::Done { index, .. } = answered.answer {
                    self.served = Some((sighting.at, index));
                    self.enter(Phase::Serves);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Everything has ended; now it is looked what is on the disks.
    fn read_journals(&mut self) -> Result<(), Violation> {
        for node in 0..self.world.machines.len() {
            self.kill(node, false);
            let disk = self.world.machines[node].disk().model.reopen();
            self.world.record.see(Seen::Journal { node, kept: journals::read(Arc::new(disk)) });
        }
        for sighting in self.world.record.take() {
            self.see(sighting)?;
        }
        Ok(())
    }

    fn measure(&mut self) {
        for machine in self.world.machines.iter().filter(|machine| !self.down.contains(&machine.place)) {
            self.world.record.see(Seen::Sizes { node: machine.place, sizes: machine.sizes() });
        }
        let bytes = live_bytes();
        self.allocated = self.allocated.max(bytes);
        self.world.record.see(Seen::Allocated { bytes });
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.world.record.see(Seen::Phase(phase));
    }

    fn do_what_is_due(&mut self, now: Duration) {
        for place in 0..self.world.machines.len() {
            // A cut that was scheduled in the middle of something has come.
            if !self.down.contains(&place) && self.world.machines[place].disk().model.power_is_off() {
                self.kill(place, true);
                let again = now + self.dice.millis(RESTART_MS.0, RESTART_MS.1);
                self.restarts.insert(place, again);
            }
        }
        while let Some((_, deed)) = self.deeds.pop_front_if(|(at, _)| *at <= now) {
            self.world.record.deed(deed.to_string());
            self.carry_out(&deed);
        }
        self.late.deliver_what_is_due(now);
        self.let_the_overtaken_go(now);
        self.switch_on_again(now);
        let due: Vec<Place> = self.resumes.iter().filter(|(_, at)| **at <= now).map(|(place, _)| *place).collect();
        for place in due {
            self.world.record.deed(Deed::Resume { node: place }.to_string());
            self.resume(place);
        }
        let due: Vec<Place> = self.restarts.iter().filter(|(_, at)| **at <= now).map(|(place, _)| *place).collect();
        for place in due {
            self.world.record.deed(Deed::Restart { node: place }.to_string());
            self.restart(place);
        }
    }

    fn carry_out(&mut self, deed: &Deed) {
        let hosts = |places: &[Place]| places.iter().copied().map(host).collect::<Vec<_>>();
        let machine = |place: &Place| &self.world.machines[*place];
        match deed {
            Deed::Kill { node, lose_power } => self.kill(*node, *lose_power),
            Deed::Restart { node } => self.restart(*node),
            Deed::Pause { node } => self.pause(*node),
            Deed::Resume { node } => self.resume(*node),
            Deed::Cut { from, to, both_ways } => {
                for (a, b) in pairs(&hosts(from), &hosts(to)) {
                    if *both_ways { self.world.sim.partition(a, b) } else { self.world.sim.partition_oneway(a, b) }
                }
            }
            Deed::Mend { from, to } => {
                let untouchable: BTreeSet<String> = self.paused.iter().copied().map(host).collect();
                for (a, b) in pairs(&hosts(from), &hosts(to)) {
                    if !untouchable.contains(&a) && !untouchable.contains(&b) {
                        self.world.sim.repair(a, b);
                    }
                }
            }
            Deed::Latency { max } => self.world.sim.set_max_message_latency(*max),
            Deed::Loss { per_ten_thousand } => self.world.sim.set_fail_rate(f64::from(*per_ten_thousand) / 10_000.0),
            Deed::ClockJump { node, millis } => machine(node).clock.jump(*millis),
            Deed::SlowDisk { node, takes } => machine(node).disk().pace.set(*takes),
            Deed::FailSync { node, nth } => machine(node).disk().model.fail_sync(*nth),
            Deed::FailWrite { node, nth } => machine(node).disk().model.fail_write(*nth),
            Deed::CutPowerAt { node, nth } => machine(node).disk().model.cut_power_at(*nth),
            Deed::DiskRoom { node, bytes } => {
                let disk = machine(node).disk().model;
                let used = disk.reopen().used_bytes().unwrap_or(0);
                disk.set_capacity(bytes.map(|bytes| used + bytes));
            }
            Deed::CutPowerIn { node, folder, nth } => machine(node).disk().model.cut_power_in(folder, *nth),
            Deed::FlipBit { node, roll } => self.flip_bit(*node, *roll),
            Deed::LoseDisk { node } => {
                if self.may_lose_a_disk() {
                    self.kill(*node, true);
                    self.lose_disk(*node);
                }
            }
            // The operator lives as long as the run.
            Deed::Transfer => drop(self.operator.send(Order::Transfer)),
            Deed::Ambush { step, skip, then } => self.world.ambushes.lay(*step, *skip, *then),
            Deed::ByHand { cluster, replica, ended } => {
                let Some(state) = self.latest.values().max_by_key(|state| state.applied()) else { return };
                let clusters: Vec<ClusterId> = state.clusters_after(None).map(|cluster| cluster.id).collect();
                let Some(id) = clusters.get(cluster % clusters.len().max(1)).copied() else { return };
                let (name, ended) = (replica.clone(), *ended);
                self.world.backend.tell(move |backend| {
                    let there = backend.replicas(id).contains(&name);
                    match (ended, there) {
                        (true, true) => backend.remove_replica(id, &name),
                        (false, false) => backend.add_replica(id, &name, "50cc"),
                        _ => {}
                    }
                });
            }
            Deed::BackendReachable { reachable } => {
                let unreachable = !reachable;
                self.world.backend.tell(move |backend| backend.set_unreachable(unreachable));
            }
        }
    }

    /// Only one, and only where a majority keeps theirs; not before there is a group to be taken out of.
    fn may_lose_a_disk(&self) -> bool {
        self.plan.founders >= 3 && !self.disk_was_lost && !self.latest.is_empty()
    }

    fn lose_disk(&mut self, node: Place) {
        (self.lost, self.disk_was_lost) = (Some(node), true);
        let _ = self.operator.send(Order::Remove(node));
    }

    fn flip_bit(&mut self, node: Place, roll: u64) {
        if !self.may_lose_a_disk() {
            return;
        }
        self.kill(node, false);
        if let Some(place) = self.world.machines[node].disk().rot(roll) {
            self.world.record.deed(format!("a bit is wrong in {place} of {}", host(node)));
            (self.rotten, self.disk_was_lost) = (Some(node), true);
        }
        self.restart(node);
    }

    /// Cut off first: what its destructors would still say must not get out, and their order is not the seed's.
    fn kill(&mut self, place: Place, lose_power: bool) {
        if !self.down.insert(place) {
            return;
        }
        self.resume(place);
        self.overtaken.remove(&place);
        self.world.machines[place].gate.set_open(true);
        for other in self.world.others(place) {
            self.world.sim.partition(host(place), other);
        }
        let disk = self.world.machines[place].disk().model;
        if lose_power {
            disk.power_cut();
        } else {
            disk.kill_process();
        }
        self.world.sim.crash(host(place));
    }

    fn restart(&mut self, place: Place) {
        self.restarts.remove(&place);
        if self.lost == Some(place) || !self.down.remove(&place) {
            return;
        }
        // First this: of a process that ended by itself, what it left behind goes only now, in an order that is not the seed's.
        self.world.sim.bounce(host(place));
        for other in self.world.others(place) {
            self.world.sim.repair(host(place), other);
        }
    }

    fn pause(&mut self, place: Place) {
        // One that was ambushed has its gate shut already, also if it was held by somebody else before.
        if self.down.contains(&place) || !self.paused.insert(place) {
            return;
        }
        for other in self.world.others(place) {
            self.world.sim.hold(host(place), other);
        }
        self.world.machines[place].gate.set_open(false);
    }

    fn resume(&mut self, place: Place) {
        self.resumes.remove(&place);
        self.outlasting.remove(&place);
        if !self.paused.remove(&place) {
            return;
        }
        for other in self.world.others(place) {
            self.world.sim.release(host(place), other);
        }
        self.world.machines[place].gate.set_open(true);
    }
}

fn pairs(a: &[String], b: &[String]) -> Vec<(String, String)> {
    let all = a.iter().flat_map(|a| b.iter().map(move |b| (a.clone(), b.clone())));
    all.filter(|(a, b)| a != b).collect()
}

/// Everybody who is not a node.
fn people(plan: &Plan, world: &mut World, stop: &watch::Sender<bool>, orders: mpsc::UnboundedReceiver<Order>) {
    let record = world.record.clone();
    if let Some(user) = User::new(plan, "setup", record.clone()) {
        world.invite(user.set_up());
    }
    for number in 0..plan.users {
        let name = format!("u{}", number + 1);
        let Some(user) = User::new(plan, &name, record.clone()) else { continue };
        let stopped = stop.subscribe();
        world.invite(user.live(stopped));
    }
    if let Some(user) = User::new(plan, PROBE, record.clone()) {
        let stopped = stop.subscribe();
        world.invite(user.probe(stopped));
    }
    if let Some(client) = client(plan, "operator", record.clone()) {
        world.invite(operator::live(client, orders, record.clone()));
    }
    if let Some(client) = client(plan, "watcher", record.clone()) {
        world.invite(watchers::watch("watcher".to_owned(), client, record));
    }
    world.open();
}

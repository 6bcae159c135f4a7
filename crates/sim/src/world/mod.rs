//! What nodes take for granted, made up: machines with disks and clocks, a network between them, a backend.
//!
//! Each part has the name of the real thing. What a machine runs is the product itself ([`node`]).

pub mod backend;
pub mod clock;
pub mod disk;
pub mod net;
pub mod node;

use std::pin::Pin;

use turmoil::Sim;

use self::backend::BackendPlace;
use self::node::{Ambushes, Machine, host};
use crate::dice::Dice;
use crate::plan::Plan;
use crate::record::{Place, Record};

/// The one host that is no node: users, operators, watchers and the backend. Nothing is ever wrong between them, and every
/// host costs time in every step.
pub const OUTSIDE: &str = "outside";

pub struct World {
    pub sim: Sim<'static>,
    pub record: Record,
    pub backend: BackendPlace,
    pub machines: Vec<Machine>,
    /// Those who live outside, until they are let in.
    lives: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    pub ambushes: Ambushes,
    /// For what is decided while it runs: seeds of new disks.
    pub dice: Dice,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("machines", &self.machines).finish_non_exhaustive()
    }
}

/// One step of simulated time, and of the network.
pub const TICK: std::time::Duration = std::time::Duration::from_millis(1);

impl World {
    /// Machines that are switched on, and a backend; no users yet.
    pub fn new(plan: &Plan) -> World {
        let mut builder = turmoil::Builder::new();
        builder
            .rng_seed(Dice::of(plan.seed, "network").throw())
            .tick_duration(TICK)
            // Longer than any run; the run itself says when it is over.
            .simulation_duration(std::time::Duration::from_secs(3_600))
            .epoch(std::time::UNIX_EPOCH + std::time::Duration::from_millis(clock::EPOCH_MS))
            .min_message_latency(plan.latency.0)
            .max_message_latency(plan.latency.1)
            .tcp_capacity(100_000)
            .ephemeral_ports(1_024..=65_535);
        let mut sim = builder.build();
        let record = Record::default();
        let mut dice = Dice::of(plan.seed, "world");
        let backend = BackendPlace::new(plan.script());
        let lives: Vec<Pin<Box<dyn Future<Output = ()>>>> = vec![Box::pin(backend.clone().live(record.clone()))];
        let ambushes = Ambushes::default();
        let mut machines = Vec::new();
        for place in 0..plan.machines {
            let machine = Machine::new(plan, place, dice.throw(), backend.clone(), record.clone(), ambushes.clone());
            machine.disk().model.ignore_syncs(plan.lying_disks);
            let living = machine.clone();
            sim.host(host(place), move || {
                let living = living.clone();
                async move {
                    living.live().await;
                    Ok(())
                }
            });
            machines.push(machine);
        }
        World { sim, record, backend, machines, lives, ambushes, dice }
    }

    /// Somebody who will live outside.
    pub fn invite(&mut self, life: impl Future<Output = ()> + 'static) {
        self.lives.push(Box::pin(life));
    }

    /// From now on everybody who was invited lives.
    pub fn open(&mut self) {
        let lives = std::mem::take(&mut self.lives);
        self.sim.client(OUTSIDE, async move {
            let all: Vec<_> = lives.into_iter().map(tokio::task::spawn_local).collect();
            for life in all {
                life.await?;
            }
            Ok(())
        });
    }

    pub fn runs(&mut self, place: Place) -> bool {
        self.sim.is_host_running(host(place))
    }

    /// Everybody but this node.
    pub fn others(&self, place: Place) -> Vec<String> {
        let nodes = (0..self.machines.len()).filter(|other| *other != place).map(host);
        nodes.chain([OUTSIDE.to_owned()]).collect()
    }
}

//! What nodes take for granted, made up: machines with disks and clocks, a network between them, a backend.
//!
//! Each part has the name of the real thing. What a machine runs is the product itself ([`node`]).

pub mod backend;
pub mod clock;
pub mod disk;
pub mod net;
pub mod node;

use turmoil::Sim;

use self::backend::BackendPlace;
use self::node::{Machine, host};
use crate::dice::Dice;
use crate::plan::Plan;
use crate::record::{Place, Record};

/// The hosts that are no nodes.
pub const BACKEND_HOST: &str = "backend";

pub struct World {
    pub sim: Sim<'static>,
    pub record: Record,
    pub backend: BackendPlace,
    pub machines: Vec<Machine>,
    /// Hosts of users and watchers.
    pub users: Vec<String>,
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
        let (place, told) = (backend.clone(), record.clone());
        sim.client(BACKEND_HOST, async move {
            place.live(told).await;
            Ok(())
        });
        let mut machines = Vec::new();
        for place in 0..plan.machines {
            let machine = Machine::new(plan, place, dice.throw(), backend.clone(), record.clone());
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
        World { sim, record, backend, machines, users: Vec::new(), dice }
    }

    pub fn runs(&mut self, place: Place) -> bool {
        self.sim.is_host_running(host(place))
    }

    /// Everybody but this node.
    pub fn others(&self, place: Place) -> Vec<String> {
        let nodes = (0..self.machines.len()).filter(|other| *other != place).map(host);
        nodes.chain(self.users.iter().cloned()).collect()
    }
}

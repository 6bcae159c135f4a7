//! The simulator: `server`'s own wiring in a made-up world, where one seed decides everything.
//!
//! - [`plan`] is what a seed decides, before anything runs; [`dice`] is where its chances come from;
//! - [`world`] is what a node takes for granted: disk, network, clock, and a backend that lies;
//! - [`faults`] is what goes wrong, one file for each family, as a list of [`faults::Deed`]s with their times;
//! - [`workload`] is what users do meanwhile, [`watchers`] is who looks on, [`operator`] is who mends, [`stragglers`] is what arrives late; what they were told is in [`history`];
//! - [`record`] is everything that was seen, in order; [`trace`] shows it in columns;
//! - [`invariants`] judge it, one file each; [`run`] brings all of it together: chaos, then healing;
//! - [`memory`] is how much a run has allocated;
//! - [`batch`] is many seeds; [`small`] is the same world on a script, so that what fails can be made shorter.
//!
//! Not here: any copy of the product. What runs is `loadline_server::serve_in`, over `loadline_log`'s model of a disk.
//! `docs/simulator.md` says what is modelled and what is not.

#[cfg(not(tokio_unstable))]
compile_error!(
    "the simulator must be built with --cfg tokio_unstable (.cargo/config.toml): without it no run can be repeated"
);

pub mod batch;
pub mod calls;
pub mod dice;
pub mod faults;
pub mod history;
pub mod invariants;
pub mod journals;
pub mod known;
pub mod memory;
pub mod operator;
pub mod plan;
pub mod profile;
pub mod record;
pub mod run;
pub mod small;
pub mod stragglers;
pub mod trace;
pub mod watchers;
pub mod workload;
pub mod world;

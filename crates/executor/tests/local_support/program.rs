//! What the tests of local replicas start instead of `loadline`: a replica, or a node that gives one order and can be stopped or
//! killed at a place of the way.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program speaks that way")]

use std::process::ExitCode;

use clap::{Args, Parser};
use loadline_executor::backends::local::replica::{ReplicaOptions, run};
use loadline_executor::backends::local::{LocalBackend, LocalConfig, Place, watch};
use loadline_executor::{Backend as _, ClusterAddress, Order};
use loadline_mutants::Mutant;
use loadline_state_machine::{Call, ClusterId, Epoch, Hash, LogIndex, ReplicaLife, ReplicaSpec};
use nix::sys::signal::{Signal, raise};

#[derive(Debug, Parser)]
enum Program {
    Replica(ReplicaOptions),
    Order(OrderArgs),
}

#[derive(Debug, Args)]
struct OrderArgs {
    #[arg(long)]
    folder: std::path::PathBuf,
    #[arg(long)]
    cluster: ClusterId,
    #[arg(long)]
    key: String,
    #[arg(long)]
    epoch: u64,
    #[arg(long)]
    attempt: u32,
    #[arg(long)]
    name: String,
    #[arg(long)]
    size: String,
    /// Drop this one instead of creating one.
    #[arg(long)]
    drop: Option<String>,
    /// `stop:PLACE` or `die:PLACE`.
    #[arg(long)]
    at: Option<String>,
    #[arg(long)]
    mutant: Option<Mutant>,
}

/// Stops or kills this process at a place, by its own hand: no test could hit the place from outside.
fn halt_at(wish: &str) {
    let Some((signal, place)) = wish.split_once(':') else { return };
    let signal = match signal {
        "stop" => Signal::SIGSTOP,
        "die" => Signal::SIGKILL,
        _ => return,
    };
    let place = Place::ALL.into_iter().find(|it| it.name() == place).expect("a place");
    watch(move |reached| {
        if reached == place {
            // To this very thread: sent to the process, another thread may take it, and this one runs on for a moment.
            raise(signal).expect("a signal to oneself");
        }
    });
}

fn order(args: OrderArgs) {
    if let Some(wish) = &args.at {
        halt_at(wish);
    }
    if let Some(mutant) = args.mutant {
        mutant.switch_on();
    }
    let mut config = LocalConfig::new(&args.folder);
    config.terminate_grace = std::time::Duration::from_millis(500);
    let (name, size) = (args.name.as_str().into(), args.size.as_str().into());
    let call = match args.drop {
        Some(incarnation) => {
            Call::DropReplica(ReplicaLife { name, size, incarnation: Some(incarnation.as_str().into()) })
        }
        None => Call::CreateReplica(ReplicaSpec { name, size }),
    };
    let order = Order {
        key: args.key,
        epoch: Epoch { incarnation: 1, index: LogIndex(args.epoch) },
        attempt: args.attempt,
        parameters: Hash::of(call.to_string().as_bytes()),
        cluster: ClusterAddress { id: args.cluster, name: "test".to_owned() },
        call,
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let answer = runtime.block_on(async {
        let backend = LocalBackend::new(config).expect("a backend");
        backend.execute(&order).await
    });
    println!("{answer:?}");
}

fn main() -> ExitCode {
    match Program::parse() {
        Program::Order(args) => order(args),
        Program::Replica(options) => {
            // A replica is started with nothing but its options, so the wish is in one of them.
            halt_at(&options.size);
            if let Err(error) = run(&options) {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

//! `loadline dev`: a group of real nodes on this machine, and a supervisor that looks after them.
//!
//! Every node is a process of its own, running `loadline serve` as it would anywhere else, so that `kill -9` means what it
//! means in production. The supervisor starts them (`supervisor.rs`), and leaves in its folder who runs where
//! (`state.rs`), so that `dev kill` and `dev stop` (`kill.rs`) find them. Each node has a backend `local` whose replicas are
//! processes on this machine (`replicas.rs`), and a new group gets a cluster to play with (`demo.rs`).
//!
//! Not here: anything that a node does differently because of it. There is nothing.

mod demo;
mod kill;
mod layout;
mod lock;
mod node;
mod ports;
mod process;
mod replicas;
mod secret;
mod start;
mod state;
mod supervisor;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::console::Console;
use crate::exit::Failed;
use crate::output::Format;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DevArgs {
    #[command(subcommand)]
    verb: Option<DevVerb>,
    #[command(flatten)]
    start: StartArgs,
}

#[derive(Debug, Subcommand)]
enum DevVerb {
    /// Start the nodes and look after them; the same as dev alone
    Start(StartArgs),
    /// Kill a node with kill -9; the supervisor starts it again
    Kill {
        /// leader, or the name of a node such as n2
        node: String,
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Stop the nodes and the supervisor
    Stop {
        #[command(flatten)]
        folder: FolderArgs,
    },
    /// Show the nodes and their processes
    Status {
        #[command(flatten)]
        folder: FolderArgs,
    },
}

#[derive(Debug, Clone, Args)]
struct FolderArgs {
    /// Folder of the nodes
    #[arg(long, value_name = "PATH", default_value = "./.loadline")]
    data_dir: PathBuf,
}

#[derive(Debug, Clone, Args)]
struct StartArgs {
    #[command(flatten)]
    folder: FolderArgs,
    /// How many nodes [default: 3, or as many as the folder has]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: Option<u16>,
    /// Keep the data in a temporary folder, and throw it away at the end
    #[arg(long)]
    ephemeral: bool,
    /// gRPC port of the first node, the others follow; 0 takes free ones [default: 7701, or as before]
    #[arg(long, value_name = "PORT")]
    grpc_port: Option<u16>,
    /// HTTP port of the first node, the others follow; 0 takes free ones [default: 8701, or as before]
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,
    /// SQL port of the first node, the others follow; 0 takes free ones [default: 5701, or as before]
    #[arg(long, value_name = "PORT")]
    pg_port: Option<u16>,
    /// Leave out the cluster demo, its sizes and its strategies
    #[arg(long)]
    no_demo: bool,
    /// Return when the nodes are ready, and leave the supervisor running
    #[arg(long)]
    detach: bool,
    /// This process is the supervisor that --detach left running.
    #[arg(long, hide = true)]
    detached: bool,
}

pub(crate) fn run(args: DevArgs, format: Format, console: &mut Console) -> Result<(), Failed> {
    match args.verb {
        None => start::start(&args.start, format, console),
        Some(DevVerb::Start(args)) => start::start(&args, format, console),
        Some(DevVerb::Kill { node, folder }) => kill::kill(&node, &folder.data_dir, console),
        Some(DevVerb::Stop { folder }) => kill::stop(&folder.data_dir, console),
        Some(DevVerb::Status { folder }) => kill::status(&folder.data_dir, format, console),
    }
}

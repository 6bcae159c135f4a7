//! `replica`: one replica of a `local` backend, in this process and one behind it. Nodes start it; so may anybody, to see what they
//! make of it.

use loadline_executor::backends::local::replica::{ReplicaError, ReplicaOptions, run};
use loadline_server::config::ServerConfig;

use crate::exit::{Exit, Failed};

pub(crate) fn replica(options: &ReplicaOptions) -> Result<(), Failed> {
    loadline_server::init_logging(&ServerConfig::default());
    run(options).map_err(|error| failed(&error))
}

fn failed(error: &ReplicaError) -> Failed {
    let message = error.to_string();
    match error {
        ReplicaError::BadName { .. } => Failed::usage(message),
        ReplicaError::NameTaken { .. } | ReplicaError::OrderNotHeld { .. } => Failed::new(Exit::Conflict, message),
        ReplicaError::Folder { .. } | ReplicaError::Io(_) => Failed::new(Exit::Failure, message),
    }
}

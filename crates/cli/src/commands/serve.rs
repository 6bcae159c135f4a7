//! `serve`: one node in this process.

use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failed};
use crate::serve_args::ServeArgs;

pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failed> {
    if let Some(supervisor) = args.supervisor {
        die_with(Pid::from_raw(supervisor))?;
    }
    let config = loadline_server::config::load(&args.sources()).map_err(|error| {
        Failed::usage(format!("the configuration is not right:\n{error}")).hint("see loadline serve --help")
    })?;
    let name = config.name.clone();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        loadline_server::serve(config, shutdown)
            .await
            .map_err(|error| Failed::new(Exit::Failure, format!("node {name} has stopped: {}", with_causes(&error))))
    })
}

/// This process ends with `supervisor`, even if that is killed with no time to say so: nobody wants nodes that run on
/// unseen. SIGKILL, because there is no one left to wait for a slow end; what a node has acknowledged is on disk.
fn die_with(supervisor: Pid) -> Result<(), Failed> {
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| Failed::new(Exit::Failure, format!("this node cannot be tied to its supervisor: {error}")))?;
    // It may have ended before the line above.
    if getppid() != supervisor {
        return Err(Failed::new(Exit::Failure, "the supervisor of this node is gone"));
    }
    Ok(())
}

/// An error and what is behind it, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(&format!(": {inner}"));
        cause = inner.source();
    }
    text
}

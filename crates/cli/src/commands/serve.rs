//! `serve`: one node in this process.

use loadline_server::{Listeners, ServerConfig, World, init_logging, serve_in};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Exit, Failed};
use crate::hooks::Hooks;
use crate::serve_args::ServeArgs;

pub(crate) fn serve(args: &ServeArgs, hooks: &Hooks) -> Result<(), Failed> {
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
        run(config, hooks, shutdown)
            .await
            .map_err(|error| Failed::new(Exit::Failure, format!("node {name} has stopped: {}", with_causes(&error))))
    })
}

/// The port before the data folder: a taken one is the more common mistake, and the easier one to undo.
async fn run(
    config: ServerConfig,
    hooks: &Hooks,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), loadline_server::ServeError> {
    init_logging(&config);
    let listeners = Listeners::bind(&config).await?;
    let world = hooks.world(World::real(&config)?);
    serve_in(world, listeners, config, shutdown).await
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

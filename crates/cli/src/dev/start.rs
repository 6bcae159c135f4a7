//! `dev` and `dev start`: everything before and after the supervisor's own work.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::StartArgs;
use super::demo;
use super::layout::Layout;
use super::lock::Lock;
use super::ports;
use super::replicas;
use super::state::{DevState, DevView};
use super::supervisor::{Supervisor, views};
use crate::commands::block_on;
use crate::console::Console;
use crate::context::{self, NewContext};
use crate::exit::{Exit, Failed};
use crate::output::{Format, list};

/// The name of the context that `dev` writes.
const CONTEXT: &str = "dev";
/// What a detached supervisor says goes here.
const LOG: &str = "dev.log";

pub(super) fn start(args: &StartArgs, format: Format, console: &mut Console) -> Result<(), Failed> {
    let folder = make_folder(&args.folder.data_dir)?;
    if args.detach && !args.detached {
        return detach(args, &folder, format, console);
    }
    if args.detached {
        // Out of the terminal's reach: it ends by `dev stop`.
        let _ = nix::unistd::setsid();
    }
    let Some(lock) = Lock::try_take(&folder)? else { return Err(already_runs(&folder)) };
    let temporary =
        if args.ephemeral { Some(tempfile::Builder::new().prefix("loadline-dev-").tempdir()?) } else { None };
    let home = temporary.as_ref().map_or(folder.as_path(), tempfile::TempDir::path);
    let layout = free_layout(args, Layout::kept(home)?.as_ref())?;
    if !args.ephemeral {
        layout.keep(&folder)?;
    }
    let waiting = waiting(layout.nodes.len(), console);
    let mut supervisor = Supervisor::new(&folder, home, layout, args.ephemeral, !args.no_demo)?;
    let ended = block_on(supervisor.run(console, |console, state, views| {
        waiting.finish_and_clear();
        announce(state, views, args, format, console)
    }))?;
    // Without nodes nobody would look after them. The next `dev` makes those that are still wanted anew.
    replicas::end_all(home, console);
    // The lock goes last: whoever waits for it finds nothing running, and nothing half removed.
    drop(temporary);
    if args.ephemeral {
        lock.remove(&folder);
        // Succeeds only if there is nothing of value in it.
        let _ = std::fs::remove_dir(&folder);
    } else {
        drop(lock);
    }
    ended
}

/// Free ports may be taken between finding and using them; those that were asked for by number are not replaced.
fn free_layout(args: &StartArgs, kept: Option<&Layout>) -> Result<Layout, Failed> {
    let any = (args.grpc_port == Some(0) && kept.is_none()) || args.http_port == Some(0) || args.pg_port == Some(0);
    let mut tries = 0;
    loop {
        tries += 1;
        let layout = Layout::decide(args, kept)?;
        match ports::check(&layout.wanted()) {
            Ok(()) => return Ok(layout),
            Err(_) if any && tries < 10 => {}
            Err(failed) => return Err(failed),
        }
    }
}

fn make_folder(path: &Path) -> Result<PathBuf, Failed> {
    let made = std::fs::create_dir_all(path).and_then(|()| path.canonicalize());
    made.map_err(|error| Failed::new(Exit::Failure, format!("{} cannot be used: {error}", path.display())))
}

fn already_runs(folder: &Path) -> Failed {
    let who =
        DevState::read(folder).map(|state| format!(" (supervisor: pid {})", state.supervisor)).unwrap_or_default();
    Failed::new(Exit::Conflict, format!("a group already runs from {}{who}", folder.display()))
        .hint("stop it with loadline dev stop, or use another --data-dir with other ports")
}

/// A sign of life on a terminal; a line elsewhere.
fn waiting(count: usize, console: &mut Console) -> indicatif::ProgressBar {
    if !console.watched {
        console.say(&format!("starting {count} nodes"));
        return indicatif::ProgressBar::hidden();
    }
    let spinner = indicatif::ProgressBar::new_spinner().with_message(format!("starting {count} nodes"));
    spinner.enable_steady_tick(Duration::from_millis(100));
    spinner
}

/// The table, the context, and what to type next.
fn announce(
    state: &DevState,
    views: &[DevView],
    args: &StartArgs,
    format: Format,
    console: &mut Console,
) -> Result<(), Failed> {
    if args.detached {
        // Whoever left this process running says it.
        return Ok(());
    }
    console.data(&list(format, "nodes", None, views)?)?;
    let kept = if state.ephemeral {
        "The data is thrown away at the end.".to_owned()
    } else {
        format!("The data is kept in {}.", args.folder.data_dir.display())
    };
    let (endpoints, sql_endpoints) = (state.endpoints(), state.sql_endpoints());
    let new = NewContext { endpoints: &endpoints, sql_endpoints: &sql_endpoints, timeout: None };
    match context::path().and_then(|path| context::save(&path, CONTEXT, new, true)) {
        Ok(()) => console.say(&format!("\nThe context is '{CONTEXT}' now. {kept}")),
        Err(failed) => {
            console.warn(&failed.message);
            console.say(&format!("\nName the nodes yourself: --endpoint {}. {kept}", endpoints.join(",")));
        }
    }
    console.say(
        "Whoever is on this machine is a superuser without a password, over SQL, too; the nodes listen nowhere else.",
    );
    let me = how_to_call_me();
    let (place, end) = if args.detach { ("", "") } else { (" in another terminal", "Ctrl-C here, or ") };
    let try_this = if state.demo { demo_commands(&me) } else { plain_commands(&me) };
    let sql = state.nodes.first().map(|node| sql_hint(&me, &node.pg)).unwrap_or_default();
    console.say(&format!("Try{place}:\n{try_this}{sql}Stop with {end}{me} dev stop."));
    Ok(())
}

/// How to use SQL. Who may was said for everything at once.
fn sql_hint(me: &str, address: &str) -> String {
    let port = address.rsplit_once(':').map_or(address, |(_, port)| port);
    format!("SQL: {me} sql, or psql -h 127.0.0.1 -p {port} -U loadline loadline\n")
}

fn plain_commands(me: &str) -> String {
    format!("  {me} create cluster shop\n  {me} get clusters --watch\n  {me} dev kill leader\n  {me} status\n")
}

fn demo_commands(me: &str) -> String {
    let cluster = demo::CLUSTER;
    let lines = [
        (format!("{me} get actions --history"), "what was done: its replica is a process on this machine"),
        (format!("{me} load {cluster} --shape idle --for 1m"), "nobody uses it: after 30 s it is suspended"),
        (format!("{me} load {cluster} --shape spike --for 2m"), "it is used again: it wakes"),
        (format!("{me} dev kill leader"), "at any time; nothing is done twice"),
        (format!("{me} explain cluster/{cluster}"), "why it is as it is"),
    ];
    let width = lines.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    lines.iter().map(|(command, why)| format!("  {command:width$}   # {why}\n")).collect()
}

/// `loadline` if that is what a shell would find, and otherwise the path of this binary.
fn how_to_call_me() -> String {
    let Ok(me) = std::env::current_exe().and_then(|path| path.canonicalize()) else { return "loadline".to_owned() };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&folders).map(|folder| folder.join("loadline")).find(|path| path.is_file());
    if first.and_then(|path| path.canonicalize().ok()).as_ref() == Some(&me) {
        return "loadline".to_owned();
    }
    let here = std::env::current_dir().and_then(|path| path.canonicalize()).unwrap_or_default();
    me.strip_prefix(&here).unwrap_or(&me).display().to_string()
}

/// Starts the supervisor as a process of its own, and waits until its nodes are ready.
fn detach(args: &StartArgs, folder: &Path, format: Format, console: &mut Console) -> Result<(), Failed> {
    if Lock::is_held(folder)? {
        return Err(already_runs(folder));
    }
    let path = folder.join(LOG);
    let log = std::fs::File::create(&path)
        .map_err(|error| Failed::new(Exit::Failure, format!("{} cannot be written: {error}", path.display())))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["dev", "start", "--detached", "--data-dir"]).arg(folder);
    let ports = [("--grpc-port", args.grpc_port), ("--http-port", args.http_port), ("--pg-port", args.pg_port)];
    for (flag, value) in [("--nodes", args.nodes)].into_iter().chain(ports) {
        if let Some(value) = value {
            command.args([flag, &value.to_string()]);
        }
    }
    for (flag, given) in [("--ephemeral", args.ephemeral), ("--no-demo", args.no_demo)] {
        if given {
            command.arg(flag);
        }
    }
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let waiting = waiting(usize::from(args.nodes.unwrap_or(3)), console);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).unwrap_or_default();
    let state = loop {
        if let Some(status) = child.try_wait()? {
            waiting.finish_and_clear();
            let said = std::fs::read_to_string(&path).unwrap_or_default();
            return Err(failed_like(status.code(), &said));
        }
        match DevState::read(folder) {
            Some(state) if state.ready && state.supervisor == pid => break state,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    waiting.finish_and_clear();
    let reports = block_on(super::kill::look(&state))??;
    announce(&state, &views(&state, &reports), args, format, console)
}

/// The end of the supervisor, told as if it were our own.
fn failed_like(code: Option<i32>, said: &str) -> Failed {
    let all = [Exit::Usage, Exit::NotFound, Exit::Conflict, Exit::Unavailable, Exit::TimedOut, Exit::Denied];
    let exit = all.into_iter().find(|exit| Some(*exit as i32) == code).unwrap_or(Exit::Failure);
    let lines = said.lines().filter(|line| !line.starts_with("starting ") && !line.starts_with("stopping "));
    let text = lines.collect::<Vec<_>>().join("\n");
    let text = text.strip_prefix("error: ").unwrap_or(&text).to_owned();
    Failed::new(exit, if text.is_empty() { "the supervisor has ended without a word".to_owned() } else { text })
}

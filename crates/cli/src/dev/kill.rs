//! `dev kill`, `dev stop`, `dev status`: finding what the supervisor started.
//!
//! Signals go only to processes whose numbers the supervisor wrote down, and only after they were seen to be what it
//! started.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

use loadline_client::{Client, Endpoints, NodeReport, Options};
use rustix::process::Signal;

use super::lock::Lock;
use super::process::Process;
use super::replicas;
use super::state::{DevState, NodeState};
use super::supervisor::views;
use crate::commands::block_on;
use crate::console::Console;
use crate::exit::{Exit, Failed};
use crate::output::{Format, list};
use crate::text::did_you_mean;

/// A process that was killed is gone at once, unless the machine is very busy.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
const STOP_PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn kill(which: &str, folder: &Path, console: &mut Console) -> Result<(), Failed> {
    let state = DevState::of_running(folder)?;
    let (node, shown) = if which == "leader" {
        let node = leader(&state)?;
        (node, format!("{}, the leader,", node.name))
    } else {
        let node = state.nodes.iter().find(|node| node.name == which).ok_or_else(|| {
            let known = state.nodes.iter().map(|node| node.name.as_str()).chain(["leader"]);
            let names: Vec<&str> = state.nodes.iter().map(|node| node.name.as_str()).collect();
            Failed::new(Exit::NotFound, format!("there is no node '{which}'{}", did_you_mean(which, known)))
                .hint(format!("there are {} and leader", names.join(", ")))
        })?;
        (node, node.name.clone())
    };
    let pid = node.pid.ok_or_else(|| {
        Failed::new(Exit::Conflict, format!("{} is down at the moment; it is started again", node.name))
    })?;
    let process = Process::find(pid, |words| is_node(words, node, state.supervisor)).ok_or_else(|| {
        Failed::new(Exit::Conflict, format!("process {pid} is not {} any more; nothing was killed", node.name))
            .hint("the supervisor may be starting it again; try again in a moment")
    })?;
    process.signal(Signal::KILL)?;
    if !process.ends_within(KILL_PATIENCE) {
        return Err(Failed::new(Exit::TimedOut, format!("{shown} was killed, but process {pid} is still there")));
    }
    console.line(&format!("{shown} was killed (pid {}); it is started again", process.pid()))
}

pub(super) fn stop(folder: &Path, console: &mut Console) -> Result<(), Failed> {
    let state = match DevState::of_running(folder) {
        // A supervisor that was killed took its nodes with it. Their replicas outlive them, and nobody else would end them.
        Err(failed) if failed.exit == Exit::NotFound => {
            let home = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
            return match replicas::end_all(&home, console) {
                0 => Err(failed),
                _ => console.line("no supervisor was left; only its replicas were"),
            };
        }
        state => state?,
    };
    let pid = state.supervisor;
    let process = Process::find(pid, |words| words.iter().any(|word| word == "dev")).ok_or_else(|| {
        Failed::new(Exit::Failure, format!("process {pid} is not the supervisor of {}", folder.display()))
            .hint("somebody else holds the folder; nothing was stopped")
    })?;
    process.signal(Signal::TERM)?;
    let until = Instant::now() + STOP_PATIENCE;
    // The lock is the last thing that a supervisor lets go, so it tells when everything is gone.
    if !process.ends_within(STOP_PATIENCE) || (folder.exists() && Lock::is_held(folder)? && Instant::now() > until) {
        return Err(Failed::new(
            Exit::TimedOut,
            format!("the supervisor (pid {pid}) is still there after {STOP_PATIENCE:?}"),
        ));
    }
    let nodes: Vec<&str> = state.nodes.iter().map(|node| node.name.as_str()).collect();
    console.line(&format!("stopped {} and the supervisor (pid {pid})", nodes.join(", ")))
}

pub(super) fn status(folder: &Path, format: Format, console: &mut Console) -> Result<(), Failed> {
    let state = DevState::of_running(folder)?;
    let reports = block_on(look(&state))??;
    console.data(&list(format, "nodes", None, &views(&state, &reports))?)
}

/// What each node says of itself.
pub(super) async fn look(state: &DevState) -> Result<Vec<NodeReport>, Failed> {
    let options = Options { attempt_timeout: Duration::from_secs(1), ..Options::default() };
    Ok(Client::connect(Endpoints::parse(state.endpoints())?, options).status_all().await)
}

fn leader(state: &DevState) -> Result<&NodeState, Failed> {
    let reports = block_on(look(state))??;
    let leaders = reports.iter().filter_map(|report| report.status.as_ref()).filter(|status| status.role == "leader");
    // One that was cut off may not know yet that it has been replaced.
    let latest = leaders.max_by_key(|status| status.term);
    latest
        .and_then(|status| state.nodes.iter().find(|node| node.name == status.name))
        .ok_or_else(|| Failed::new(Exit::Unavailable, "there is no leader at the moment").hint("try again in a second"))
}

/// Was this process started as that node, by that supervisor?
fn is_node(words: &[OsString], node: &NodeState, supervisor: i32) -> bool {
    let has = |flag: &str, value: &OsStr| words.windows(2).any(|pair| pair[0] == flag && pair[1] == value);
    words.iter().any(|word| word == "serve")
        && has("--name", node.name.as_ref())
        && has("--data-dir", node.data_dir.as_os_str())
        && has("--supervisor", supervisor.to_string().as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_a_node_only_with_its_name_its_folder_and_its_supervisor() {
        let node = NodeState {
            name: "n2".into(),
            pid: Some(7),
            grpc: String::new(),
            http: String::new(),
            pg: String::new(),
            data_dir: "/x/n2/data".into(),
            log: "/x/n2/node.log".into(),
        };
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let good = "loadline serve --name n2 --data-dir /x/n2/data --supervisor 42";
        assert!(is_node(&words(good), &node, 42));
        for (other, supervisor) in [
            (good, 43),
            ("loadline serve --name n1 --data-dir /x/n2/data --supervisor 42", 42),
            ("loadline serve --name n2 --data-dir /y/n2/data --supervisor 42", 42),
            ("vim --name n2 --data-dir /x/n2/data --supervisor 42", 42),
        ] {
            assert!(!is_node(&words(other), &node, supervisor), "{other}");
        }
    }
}

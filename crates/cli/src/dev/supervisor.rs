//! Starts the nodes, sees to it that they run, and stops them in the end.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use futures::future::{join_all, select_all};
use loadline_client::{Client, Endpoints, Kind, NodeReport, Options, Reading};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::demo;
use super::layout::Layout;
use super::node::{DevNode, Fate};
use super::state::{DevState, DevView};
use crate::console::Console;
use crate::exit::{Exit, Failed};

/// A leader is there within a second or two; after this long something is wrong.
const READY_PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the nodes' own grace.
const STOP_PATIENCE: Duration = Duration::from_secs(6);

#[derive(Debug)]
pub(super) struct Supervisor {
    /// Where `dev.json` is.
    folder: PathBuf,
    nodes: Vec<DevNode>,
    peers: Vec<String>,
    pid: i32,
    ephemeral: bool,
    ready: bool,
    /// Where the nodes are, if the demo is to be made there.
    demo_home: Option<PathBuf>,
    demo: bool,
}

/// Why the supervisor ended.
#[derive(Debug)]
enum Event {
    Fate(usize, Fate),
    Asked,
    Ready(Vec<NodeReport>, Result<bool, Failed>),
    NotReady,
}

impl Supervisor {
    /// `folder` holds what is known of this run, `home` the nodes: the same unless they are to be thrown away.
    pub(super) fn new(
        folder: &Path,
        home: &Path,
        layout: Layout,
        ephemeral: bool,
        with_demo: bool,
    ) -> Result<Supervisor, Failed> {
        let peers = layout.nodes.iter().map(super::layout::Place::grpc).collect();
        let nodes = layout.nodes.into_iter().map(|place| DevNode::new(place, home)).collect::<Result<_, _>>()?;
        Ok(Supervisor {
            folder: folder.to_owned(),
            nodes,
            peers,
            pid: nix::unistd::getpid().as_raw(),
            ephemeral,
            ready: false,
            demo_home: with_demo.then(|| home.to_owned()),
            demo: false,
        })
    }

    /// Runs until it is asked to stop. `announce` is called once, when there is a leader.
    pub(super) async fn run(
        &mut self,
        console: &mut Console,
        announce: impl FnOnce(&mut Console, &DevState, &[DevView]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let ended = self.look_after(console, announce).await;
        self.stop(console).await;
        DevState::remove(&self.folder);
        ended
    }

    async fn look_after(
        &mut self,
        console: &mut Console,
        announce: impl FnOnce(&mut Console, &DevState, &[DevView]) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        for node in &mut self.nodes {
            node.start(&self.peers, self.pid)?;
        }
        self.state().write(&self.folder)?;
        let mut announce = Some(announce);
        let mut get_ready = pin!(get_ready(self.peers.clone(), self.demo_home.clone()));
        let give_up = Instant::now() + READY_PATIENCE;
        loop {
            let ready = self.ready;
            let fates = select_all(self.nodes.iter_mut().map(|node| Box::pin(node.fate())));
            let event = tokio::select! {
                (fate, number, _) = fates => Event::Fate(number, fate?),
                _ = terminate.recv() => Event::Asked,
                _ = interrupt.recv() => Event::Asked,
                _ = hangup.recv() => Event::Asked,
                (reports, demo) = &mut get_ready, if !ready => Event::Ready(reports, demo),
                () = tokio::time::sleep_until(give_up), if !ready => Event::NotReady,
            };
            match event {
                Event::Asked => return Ok(()),
                Event::Fate(number, Fate::Due) => {
                    self.nodes[number].start(&self.peers, self.pid)?;
                    self.state().write(&self.folder)?;
                }
                Event::Fate(number, Fate::Died { pid, status, again_in }) => {
                    self.state().write(&self.folder)?;
                    let node = &self.nodes[number];
                    let name = &node.place.name;
                    if !self.ready && status.code().is_some() {
                        return Err(Failed::new(Exit::Failure, format!("{name} does not start:{}", node.last_words()))
                            .hint(format!("its log is {}", node.log.display())));
                    }
                    let again = again_in.as_secs_f64();
                    console.say(&format!("{name} (pid {pid}) has ended: {status}; starting it again in {again:.1} s"));
                }
                Event::Ready(reports, demo) => {
                    self.ready = true;
                    match demo {
                        Ok(there) => self.demo = there,
                        // The nodes are fine without it.
                        Err(failed) => console.warn(&format!("the demo could not be made: {}", failed.message)),
                    }
                    let state = self.state();
                    state.write(&self.folder)?;
                    if let Some(announce) = announce.take() {
                        announce(console, &state, &views(&state, &reports))?;
                    }
                }
                Event::NotReady => {
                    let words: String = self
                        .nodes
                        .iter()
                        .map(|node| format!("\n{} said last:{}", node.place.name, node.last_words()))
                        .collect();
                    return Err(Failed::new(Exit::TimedOut, format!("no leader within {READY_PATIENCE:?}{words}")));
                }
            }
        }
    }

    /// All at once: with nobody left to take over, an order among them would only take longer.
    async fn stop(&mut self, console: &mut Console) {
        if self.nodes.iter().all(|node| node.pid().is_none()) {
            return;
        }
        console.say("stopping the nodes");
        for node in &self.nodes {
            node.signal(Signal::SIGTERM);
        }
        let mut interrupt = signal(SignalKind::interrupt()).ok();
        let impatience = async {
            match &mut interrupt {
                Some(interrupt) => drop(interrupt.recv().await),
                None => std::future::pending().await,
            }
        };
        let in_time = tokio::select! {
            _ = join_all(self.nodes.iter_mut().map(DevNode::gone)) => true,
            () = tokio::time::sleep(STOP_PATIENCE) => false,
            // Ctrl-C once more.
            () = impatience => false,
        };
        if !in_time {
            for node in &self.nodes {
                node.signal(Signal::SIGKILL);
            }
            join_all(self.nodes.iter_mut().map(DevNode::gone)).await;
        }
    }

    fn state(&self) -> DevState {
        DevState {
            supervisor: self.pid,
            ready: self.ready,
            ephemeral: self.ephemeral,
            demo: self.demo,
            nodes: self.nodes.iter().map(DevNode::state).collect(),
        }
    }
}

/// Waits for a leader, then sees to the demo. Says how the nodes are, and whether the demo is there.
async fn get_ready(peers: Vec<String>, demo_home: Option<PathBuf>) -> (Vec<NodeReport>, Result<bool, Failed>) {
    let Ok(endpoints) = Endpoints::parse(peers) else { return std::future::pending().await };
    let reports = wait_for_leader(endpoints.clone()).await;
    let demo = match demo_home {
        Some(home) => demo::set_up(&home, &Client::connect(endpoints, Options::default())).await,
        None => Ok(false),
    };
    (reports, demo)
}

/// Asks until a node leads and a read that needs the leader is answered.
async fn wait_for_leader(endpoints: Endpoints) -> Vec<NodeReport> {
    let options = Options {
        timeout: Duration::from_secs(1),
        attempt_timeout: Duration::from_millis(500),
        connect_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let client = Client::connect(endpoints, options);
    loop {
        let reports = client.status_all().await;
        let all_answer = reports.iter().all(|report| report.status.is_some());
        let leads = reports.iter().any(|report| report.status.as_ref().is_some_and(|status| status.role == "leader"));
        if all_answer && leads && client.list(Kind::Setting, Reading::Linearizable).await.is_ok() {
            return reports;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The processes, and what each node says of itself.
pub(super) fn views(state: &DevState, reports: &[NodeReport]) -> Vec<DevView> {
    let role = |name: &str| -> Option<String> {
        let statuses = reports.iter().filter_map(|report| report.status.as_ref());
        statuses.filter(|status| status.name == name).map(|status| status.role.clone()).next()
    };
    state
        .nodes
        .iter()
        .map(|node| DevView {
            node: node.name.clone(),
            pid: node.pid,
            role: role(&node.name),
            grpc: node.grpc.clone(),
            http: node.http.clone(),
            sql: node.pg.clone(),
            log: node.log.clone(),
        })
        .collect()
}

//! Three nodes of ours, as processes of this very binary.

use std::path::{Path, PathBuf};
use std::time::Duration;

use loadline_client::{Client, Endpoints, Options};
use tokio::process::Command;
use tokio::time::Instant;

use super::processes::{Running, free_ports, make_folder};
use super::scale::caught_up;
use crate::exit::{Exit, Failed};

/// How long a group may take to elect somebody: debug builds on a busy machine are slow.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Group {
    nodes: Vec<GroupNode>,
    peers: String,
    folder: PathBuf,
    /// Further arguments of every node.
    arguments: Vec<String>,
}

#[derive(Debug)]
pub(super) struct GroupNode {
    pub(super) name: String,
    pub(super) endpoint: String,
    http: String,
    /// For SQL.
    pub(super) pg: String,
    pub(super) data: PathBuf,
    /// Nothing while it is down.
    running: Option<Running>,
}

impl GroupNode {
    fn start<'a>(&mut self, folder: &Path, arguments: impl Iterator<Item = &'a String>) -> Result<(), Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["serve", "--name", &self.name, "--grpc-listen", &self.endpoint, "--http-listen", &self.http])
            .args(["--pg-listen", &self.pg])
            .args(["--advertise", &self.endpoint, "--shutdown-grace", "1s"])
            .args(["--supervisor", &std::process::id().to_string()])
            .arg("--data-dir")
            .arg(&self.data)
            .args(arguments);
        // What is meant for the group of somebody's shell is not meant for this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LOADLINE_") {
                command.env_remove(name);
            }
        }
        self.running = Some(Running::start(&self.name, command, folder)?);
        Ok(())
    }
}

impl Group {
    /// In a folder of this name.
    pub(super) async fn start(parent: &Path, name: &str, arguments: &[String]) -> Result<Group, Failed> {
        let folder = make_folder(parent, name)?;
        let ports = free_ports(9)?;
        let nodes: Vec<GroupNode> = (0..3)
            .map(|number| {
                let name = format!("n{}", number + 1);
                GroupNode {
                    endpoint: format!("127.0.0.1:{}", ports[number]),
                    http: format!("127.0.0.1:{}", ports[number + 3]),
                    pg: format!("127.0.0.1:{}", ports[number + 6]),
                    data: folder.join(&name),
                    name,
                    running: None,
                }
            })
            .collect();
        let peers = nodes.iter().map(|node| node.endpoint.as_str()).collect::<Vec<_>>().join(",");
        let mut group = Group { nodes, peers, folder, arguments: arguments.to_vec() };
        for place in 0..group.nodes.len() {
            group.start_node(place)?;
        }
        group.leader().await?;
        Ok(group)
    }

    pub(super) fn start_node(&mut self, place: usize) -> Result<(), Failed> {
        let founders = ["--peers".to_owned(), self.peers.clone()];
        let node = &mut self.nodes[place];
        node.start(&self.folder, founders.iter().chain(&self.arguments))
    }

    /// One more node, which asks to be let in. Gives its endpoint.
    pub(super) fn start_joiner(&mut self) -> Result<String, Failed> {
        let ports = free_ports(3)?;
        let name = format!("n{}", self.nodes.len() + 1);
        let mut node = GroupNode {
            endpoint: format!("127.0.0.1:{}", ports[0]),
            http: format!("127.0.0.1:{}", ports[1]),
            pg: format!("127.0.0.1:{}", ports[2]),
            data: self.folder.join(&name),
            name,
            running: None,
        };
        let join = ["--join".to_owned(), self.peers.clone()];
        node.start(&self.folder, join.iter().chain(&self.arguments))?;
        let endpoint = node.endpoint.clone();
        self.nodes.push(node);
        Ok(endpoint)
    }

    pub(super) fn nodes(&self) -> &[GroupNode] {
        &self.nodes
    }

    pub(super) fn pid(&self, place: usize) -> Option<u32> {
        self.nodes[place].running.as_ref().and_then(Running::pid)
    }

    /// `kill -9`.
    pub(super) async fn kill(&mut self, place: usize) -> Result<(), Failed> {
        match self.nodes[place].running.take() {
            Some(mut running) => running.kill().await,
            None => Ok(()),
        }
    }

    /// Starts one node again, which is told this besides from now on, and waits until it is where it was.
    pub(super) async fn restart_with(&mut self, place: usize, argument: &str) -> Result<(), Failed> {
        let last = self.applied().await?;
        if !self.arguments.iter().any(|it| it == argument) {
            self.arguments.push(argument.to_owned());
        }
        self.kill(place).await?;
        self.start_node(place)?;
        caught_up(&self.nodes[place].endpoint, last).await?;
        self.leader().await?;
        Ok(())
    }

    /// One connection to these endpoints, for as many callers as share it.
    pub(super) fn connect<'a>(endpoints: impl IntoIterator<Item = &'a str>) -> Result<Client, Failed> {
        let (timeout, actor) = (Duration::from_secs(30), "bench".to_owned());
        let options = Options { timeout, actor, stream_writes: true, ..Options::default() };
        Ok(Client::connect(Endpoints::parse(endpoints)?, options))
    }

    /// One that goes on at another node when one fails.
    pub(super) fn client(&self) -> Result<Client, Failed> {
        Group::connect(self.nodes.iter().map(|node| node.endpoint.as_str()))
    }

    /// Which of the nodes leads, once one does and the other running ones know it.
    pub(super) async fn leader(&mut self) -> Result<usize, Failed> {
        let until = Instant::now() + PATIENCE;
        loop {
            for node in &mut self.nodes {
                if let Some(running) = &mut node.running {
                    running.check()?;
                }
            }
            if let Some(place) = self.leader_now().await {
                return Ok(place);
            }
            if Instant::now() > until {
                let message = format!("three nodes on loopback elected no leader within {PATIENCE:?}");
                return Err(Failed::new(Exit::Unavailable, message));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn leader_now(&self) -> Option<usize> {
        let mut leader = None;
        let mut term = 0;
        for (place, node) in self.nodes.iter().enumerate().filter(|(_, node)| node.running.is_some()) {
            let options = Options { timeout: Duration::from_secs(1), ..Options::default() };
            let client = Client::connect(Endpoints::parse([&node.endpoint]).ok()?, options);
            let status = client.status().await.ok()?;
            if status.leader_id == 0 {
                return None;
            }
            if status.role == "leader" && status.term > term {
                (leader, term) = (Some(place), status.term);
            }
        }
        leader
    }

    /// What the leader has applied: any other node may be behind what was answered.
    pub(super) async fn applied(&mut self) -> Result<u64, Failed> {
        let leader = self.leader_endpoint().await?;
        Ok(Group::connect([leader.as_str()])?.status().await?.applied_index)
    }

    /// The endpoint of the leader: whoever asks there saves a hop.
    pub(super) async fn leader_endpoint(&mut self) -> Result<String, Failed> {
        let place = self.leader().await?;
        Ok(self.nodes[place].endpoint.clone())
    }
}

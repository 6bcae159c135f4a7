//! A group of nodes in one process, over real loopback connections. Each node has a runtime of its own, so that killing
//! it ends all of it at once: tasks, connections, files, as the death of a process would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

pub(crate) mod impostor;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use loadline_api::raft::raft_client::RaftClient;
use loadline_log::{ModelDisk, SharedDisk};
use loadline_raft_node::{
    Clock, Consistency, MembershipError, NoObserver, Node, NodeConfig, NodeObserver, PeerView, PlainDial, ProposeError,
    Role, SystemClock,
};
use loadline_state_machine::{Actor, Command, Hash, LogIndex, Receipt, Request, RequestId};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

/// Longer than anything takes on a machine that does a hundred other things.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `look` finds what it looks for.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let give_up = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < give_up, "gave up waiting: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn wall_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// A new request id: a UUID of version 7.
pub(crate) fn request_id() -> RequestId {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let now = wall_ms();
    let count = u128::from(COUNT.fetch_add(1, Ordering::Relaxed));
    RequestId((now << 80) | (7 << 76) | (0b10 << 62) | count)
}

pub(crate) fn request(command: Command) -> Request {
    Request { actor: Actor::new("tester", "test"), request_id: Some(request_id()), commands: vec![command] }
}

pub(crate) fn create_cluster(name: &str) -> Request {
    request(Command::CreateCluster { name: name.to_owned() })
}

/// The clocks of this machine, with the wall clock set wrong.
#[derive(Debug)]
struct WrongClock(u64);

impl Clock for WrongClock {
    fn wall_ms(&self) -> u64 {
        SystemClock.wall_ms() + self.0
    }

    fn boottime(&self) -> Duration {
        SystemClock.boottime()
    }
}

/// One node that may be up or down.
pub(crate) struct Member {
    pub(crate) config: NodeConfig,
    pub(crate) disk: ModelDisk,
    /// How far its wall clock is ahead.
    pub(crate) clock_ahead_ms: u64,
    pub(crate) observer: Arc<dyn NodeObserver>,
    listener: Option<TcpListener>,
    up: Option<Up>,
}

struct Up {
    node: Node,
    runtime: Runtime,
}

impl Member {
    /// A node that is not running yet, at a port that is its own.
    pub(crate) fn new(name: &str, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = NodeConfig::new(name, listener.local_addr().unwrap().to_string());
        config.timing.heartbeat = Duration::from_millis(50);
        config.timing.probe_every = Duration::from_millis(200);
        config.tick_every = Duration::from_millis(200);
        config.disk_reserve_bytes = 1 << 20;
        config.wal_segment_bytes = 256 << 10;
        let (disk, observer) = (ModelDisk::new(seed), Arc::new(NoObserver));
        Self { config, disk, clock_ahead_ms: 0, observer, listener: Some(listener), up: None }
    }

    /// The port, for somebody who pretends to be this node.
    pub(crate) fn take_listener(&mut self) -> TcpListener {
        self.listener.take().expect("the node was never started")
    }

    pub(crate) fn is_up(&self) -> bool {
        self.up.is_some()
    }

    #[track_caller]
    pub(crate) fn node(&self) -> Node {
        self.up.as_ref().expect("the node is up").node.clone()
    }

    pub(crate) async fn start(&mut self) {
        let started = self.try_start().await;
        started.expect("the node starts");
    }

    /// Starts the node as its process would. The message, if it does not start.
    pub(crate) async fn try_start(&mut self) -> Result<(), String> {
        assert!(self.up.is_none(), "{} is up already", self.config.name);
        let listener = self.listener.take().unwrap_or_else(|| {
            let address: SocketAddr = self.config.address.parse().unwrap();
            TcpListener::bind(address).expect("the port is free again")
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let disk: SharedDisk = Arc::new(self.disk.clone());
        let (config, clock) = (self.config.clone(), Arc::new(WrongClock(self.clock_ahead_ms)));
        let observer = self.observer.clone();
        let serving = runtime.spawn(async move {
            let node = Node::start(config, disk, Arc::new(PlainDial), clock, observer)
                .await
                .map_err(|error| format!("{error}: {:?}", std::error::Error::source(&error)))?;
            listener.set_nonblocking(true).unwrap();
            let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener).unwrap());
            let server = tonic::transport::Server::builder().add_service(node.raft_service());
            tokio::spawn(server.serve_with_incoming(incoming));
            Ok::<_, String>(node)
        });
        match serving.await.unwrap() {
            Ok(node) => {
                self.up = Some(Up { node, runtime });
                Ok(())
            }
            Err(error) => {
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// The process dies. What it had written is there, as the operating system still has it.
    pub(crate) fn kill(&mut self) {
        let up = self.up.take().expect("the node is up");
        self.disk.kill_process();
        drop(up.node);
        tokio::task::block_in_place(|| up.runtime.shutdown_timeout(DEADLINE));
        self.disk = self.disk.reopen();
    }

    /// The machine loses its power. What was not synced may be gone.
    pub(crate) fn cut_power(&mut self) {
        let up = self.up.take().expect("the node is up");
        self.disk.power_cut();
        drop(up.node);
        tokio::task::block_in_place(|| up.runtime.shutdown_timeout(DEADLINE));
        self.disk = self.disk.reopen();
    }

    /// The node ends in order.
    pub(crate) async fn shut_down(&mut self) {
        self.shut_down_gently().await;
        let up = self.up.take().expect("the node is up");
        drop(up.node);
        tokio::task::block_in_place(|| up.runtime.shutdown_timeout(DEADLINE));
        self.disk = self.disk.reopen();
    }

    /// Somebody empties the data folder.
    pub(crate) fn empty_folder(&mut self, seed: u64) {
        assert!(!self.is_up());
        self.disk = ModelDisk::new(seed);
    }

    /// The node ends in order, and the rest of its process goes on.
    pub(crate) async fn shut_down_gently(&self) {
        let node = self.node();
        self.run(async move { node.shutdown().await }).await;
    }

    /// Starts work on the node's own runtime.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.up.as_ref().expect("the node is up").runtime.spawn(work)
    }

    /// Runs on the node's own runtime, so that nothing of it outlives the node.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.spawn(work).await.expect("the node stays up")
    }

    pub(crate) async fn propose(&self, request: Request) -> Result<Receipt, ProposeError> {
        let node = self.node();
        self.run(async move { node.propose(request).await }).await
    }

    /// Records a cluster, however long it takes to find somebody who does, and gives the index.
    pub(crate) async fn create(&self, name: &str) -> LogIndex {
        let request = create_cluster(name);
        let receipt = eventually("the request to be recorded", async || match self.propose(request.clone()).await {
            Ok(receipt) => Some(receipt),
            Err(ProposeError::TooLarge { .. } | ProposeError::ShuttingDown | ProposeError::Stopped) => {
                panic!("nobody would ever record it")
            }
            // Everything else passes.
            Err(_) => None,
        })
        .await;
        receipt.result.unwrap();
        receipt.index
    }

    pub(crate) async fn add_peer(&self, peer: &str, replace: Option<&str>) -> Result<Vec<PeerView>, MembershipError> {
        let (node, peer, replace) = (self.node(), peer.to_owned(), replace.map(str::to_owned));
        self.run(async move { node.add_peer(&peer, replace.as_deref()).await }).await
    }

    pub(crate) async fn remove_peer(&self, peer: &str) -> Result<Vec<PeerView>, MembershipError> {
        let (node, peer) = (self.node(), peer.to_owned());
        self.run(async move { node.remove_peer(&peer).await }).await
    }

    pub(crate) async fn transfer_leadership(&self, to: Option<&str>) -> Result<PeerView, MembershipError> {
        let (node, to) = (self.node(), to.map(str::to_owned));
        self.run(async move { node.transfer_leadership(to.as_deref()).await }).await
    }

    /// The names of all clusters, linearizable.
    pub(crate) async fn clusters(&self) -> BTreeSet<String> {
        let node = self.node();
        let state = eventually("a linearizable read", async || {
            let node = node.clone();
            self.run(async move { node.read(Consistency::Linearizable).await }).await.ok()
        })
        .await;
        state.clusters_after(None).map(|cluster| cluster.name.clone()).collect()
    }

    pub(crate) async fn hash_at(&self, index: LogIndex) -> Option<Hash> {
        let node = self.node();
        self.run(async move { node.hash_at(index, DEADLINE).await }).await
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(up) = self.up.take() {
            up.runtime.shutdown_background();
        }
    }
}

/// Several nodes that found a group together.
pub(crate) struct Group {
    pub(crate) members: Vec<Member>,
}

impl Group {
    /// Nodes n1, n2, ... that know of each other; none is running.
    pub(crate) fn new(count: u64) -> Self {
        Self::with(count, |_| ())
    }

    pub(crate) fn with(count: u64, configure: impl Fn(&mut NodeConfig)) -> Self {
        let mut members: Vec<Member> = (1..=count).map(|id| Member::new(&format!("n{id}"), id)).collect();
        let peers: Vec<String> = members.iter().map(|member| member.config.address.clone()).collect();
        for member in &mut members {
            member.config.peers.clone_from(&peers);
            configure(&mut member.config);
        }
        Self { members }
    }

    pub(crate) async fn started(count: u64) -> Self {
        Self::new(count).start_all().await
    }

    pub(crate) async fn start_all(mut self) -> Self {
        for member in &mut self.members {
            member.start().await;
        }
        self.leader().await;
        self
    }

    /// The place of the member that leads, once there is one.
    pub(crate) async fn leader(&self) -> usize {
        eventually("a leader", async || self.leads()).await
    }

    pub(crate) fn leads(&self) -> Option<usize> {
        self.members.iter().position(|member| {
            let leads = |up: &Up| up.node.leadership().borrow().as_ref().is_some_and(|leads| leads.lease.holds());
            member.up.as_ref().is_some_and(leads)
        })
    }

    /// A member that is up and follows.
    pub(crate) async fn follower(&self) -> usize {
        eventually("a follower", async || {
            let leader = self.leads()?;
            let follows = |place: &usize| {
                let member = &self.members[*place];
                *place != leader && member.is_up() && member.node().status().role == Role::Follower
            };
            (0..self.members.len()).find(follows)
        })
        .await
    }

    /// Waits until every node that is up has applied the same, and gives the hash that all of them have.
    pub(crate) async fn agreed(&self) -> (LogIndex, Hash) {
        let leader = self.leader().await;
        let index = self.members[leader].node().status().applied_index;
        let mut hashes = BTreeMap::new();
        for member in self.members.iter().filter(|member| member.is_up()) {
            hashes.insert(member.config.name.clone(), member.hash_at(index).await);
        }
        let first = hashes.values().next().copied().flatten().expect("the hash is known");
        assert!(hashes.values().all(|hash| *hash == Some(first)), "at index {index} the nodes have {hashes:?}");
        (index, first)
    }

    /// Who votes, as the leader sees it.
    pub(crate) async fn voters(&self) -> Vec<u64> {
        let leader = self.leader().await;
        self.members[leader].node().peers().into_iter().filter(|peer| peer.voter).map(|peer| peer.id).collect()
    }

    pub(crate) async fn voters_are(&self, expected: &[u64]) {
        eventually(&format!("the voters {expected:?}"), async || (self.voters().await == expected).then_some(())).await;
    }

    pub(crate) fn add(&mut self, member: Member) -> &mut Member {
        self.members.push(member);
        self.members.last_mut().expect("just pushed")
    }
}

/// A connection to a node's Raft service, for somebody who is no node.
pub(crate) async fn dial(address: &str) -> RaftClient<tonic::transport::Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    RaftClient::new(endpoint.connect().await.expect("the node listens"))
}

/// The outcome of a check, with everything that was seen, for a message that helps.
pub(crate) fn expect_err<T: Debug, E>(outcome: Result<T, E>) -> E {
    match outcome {
        Ok(unexpected) => panic!("this must not succeed, but gave {unexpected:?}"),
        Err(error) => error,
    }
}

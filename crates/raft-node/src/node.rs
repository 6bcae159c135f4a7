//! One node: everything that runs together, and the handle to it.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use loadline_api::raft as wire;
use loadline_api::raft::raft_server::RaftServer;
use loadline_log::{
    AuditIndex, Identity, Journal, SharedDisk, SigningKey, SnapshotFile, SnapshotStore, WalObserver, signing,
};
use loadline_state_machine::{Done, Hash, LogIndex, Receipt, Refused, Request, RulesVersion, State};
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::Fatal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::config::{NodeConfig, raft_config};
use crate::errors::{FeedError, MembershipError, ProposeError, ReadError, StartError, StopReason};
use crate::feed::Feed;
use crate::foresight::Foresight;
use crate::lease::LeaseTracker;
use crate::membership::{self, PeerView};
use crate::network::client::Network;
use crate::network::links::Links;
use crate::network::service::RaftService;
use crate::network::{Dial, MESSAGE_BYTES_MAX};
use crate::observer::{NodeObserver, WalFigures};
use crate::office::{self, Leadership};
use crate::packed::Packed;
use crate::packing::Queue;
use crate::probe::{self, Neighbours};
use crate::reads::{Consistency, Rounds};
use crate::reserve::{self, Reserve};
use crate::status::Status;
use crate::stop::StopSignal;
use crate::storage::log_store::LogStore;
use crate::storage::published::{Published, Work};
use crate::storage::snapshot::Builder;
use crate::storage::state_machine::{Machine, Surroundings};
use crate::storage::{Storage, causes};
use crate::types::{Metrics, Raft, StoredMembership};
use crate::{fetching, founding, storage};

/// How often somebody who waits for a leader looks again, in case nothing tells it of a change.
const LEADER_LOOK_EVERY: Duration = Duration::from_millis(25);

/// A handle to one node; clones are the same node. The node runs until [`Node::shutdown`], or until it stops by itself.
#[derive(Debug, Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

/// A node's Raft, and who it is in it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) identity: Identity,
    pub(crate) raft: Raft,
}

impl Running {
    /// Everything that Raft says of itself. A copy: on hot paths, ask for less.
    pub(crate) fn metrics(&self) -> Metrics {
        self.raft.metrics().borrow_watched().clone()
    }

    pub(crate) fn membership(&self) -> Arc<StoredMembership> {
        self.raft.server_metrics().borrow_watched().membership_config.clone()
    }

    /// Id and address of the leader, as far as this node knows.
    fn leader(&self) -> Option<(u64, String)> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        let leader = metrics.current_leader?;
        Some((leader, metrics.membership_config.get_node(&leader)?.address.clone()))
    }

    pub(crate) fn envelope(&self, to: u64) -> wire::Envelope {
        wire::Envelope { group: self.identity.group.clone(), from: self.identity.node_id, to }
    }

    /// Whether anything was ever voted for or appended under this identity.
    pub(crate) fn initialised(&self, inner: &Inner) -> bool {
        let state = inner.storage.wal.state();
        state.vote.is_some() || state.last.is_some()
    }
}

/// What the parts of a node share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: NodeConfig,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn NodeObserver>,
    pub(crate) links: Links,
    pub(crate) storage: Storage,
    pub(crate) signing_key: Arc<SigningKey>,
    pub(crate) published: Arc<Published>,
    pub(crate) lease: Arc<LeaseTracker>,
    pub(crate) reserve: Reserve,
    pub(crate) neighbours: Neighbours,
    pub(crate) queue: Queue,
    pub(crate) packed: Arc<Packed>,
    pub(crate) foresight: OnceLock<Arc<dyn Foresight>>,
    pub(crate) rounds: Rounds,
    pub(crate) leadership: watch::Sender<Option<Leadership>>,
    pub(crate) stop: StopSignal,
    /// Set when the node ends, for whatever reason. Everything that waits looks at it.
    pub(crate) ended: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// Held while this node becomes somebody.
    pub(crate) becoming: tokio::sync::Mutex<()>,
    /// Held while another node is let into the group.
    pub(crate) admitting: tokio::sync::Mutex<()>,
    /// Counts the snapshots that are coming in: a newer one ends an older one.
    pub(crate) receiving: watch::Sender<u64>,
    running: watch::Sender<Option<Arc<Running>>>,
    /// Before this moment of the boot-time clock, this node gives no vote: see `votes_from` in [`Inner::run_as`].
    votes_from: Mutex<Duration>,
    /// What this node waits for before it is part of a group.
    waiting: Mutex<Option<String>>,
}

impl Node {
    /// Opens the data folder and starts. A node that is nobody yet is `joining` until it has founded or joined a group.
    pub async fn start(
        config: NodeConfig,
        disk: SharedDisk,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn NodeObserver>,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let identity = Identity::load(disk.as_ref()).map_err(StartError::Identity)?;
        if let Some(identity) = identity.as_ref().filter(|identity| identity.name != config.name) {
            return Err(StartError::OtherName { stored: identity.name.clone(), configured: config.name });
        }
        let figures: Arc<dyn WalObserver> = Arc::new(WalFigures(observer.clone()));
        let storage = Storage::open(disk.clone(), &config, identity.is_some(), Some(figures))?;
        let signing_key = match &config.signing_seed {
            Some(seed) => SigningKey::of_seed(seed),
            None => SigningKey::load_or_make(disk.as_ref(), signing::system_seed),
        };
        let inner = Arc::new(Inner {
            signing_key: Arc::new(signing_key.map_err(StartError::SigningKey)?),
            links: Links::new(dial, config.timing.call),
            lease: Arc::new(LeaseTracker::new(clock.clone(), config.timing.election_max)),
            reserve: Reserve::new(disk, config.disk_reserve_bytes),
            config,
            clock,
            observer,
            storage,
            published: Arc::default(),
            neighbours: Neighbours::default(),
            queue: Queue::default(),
            packed: Arc::default(),
            foresight: OnceLock::new(),
            rounds: Rounds::default(),
            leadership: watch::Sender::new(None),
            stop: StopSignal::default(),
            ended: CancellationToken::new(),
            tasks: TaskTracker::new(),
            becoming: tokio::sync::Mutex::default(),
            admitting: tokio::sync::Mutex::default(),
            receiving: watch::Sender::new(0),
            running: watch::Sender::new(None),
            votes_from: Mutex::default(),
            waiting: Mutex::default(),
        });
        if let Some(identity) = identity {
            inner.run_as(identity).await?;
        }
        inner.spawn(founding::run(inner.clone()));
        inner.spawn(probe::run(inner.clone()));
        inner.spawn(watch_disk(inner.clone()));
        if inner.config.fetch_history {
            inner.spawn(fetching::run(inner.clone()));
        }
        // Not cancelled with the others: it is what ends them.
        inner.tasks.spawn(end_when_stopped(inner.clone()));
        Ok(Self { inner })
    }

    /// Records a request in the log, here or at the leader, and waits for its receipt.
    pub async fn propose(&self, request: Request) -> Result<Receipt, ProposeError> {
        self.inner.propose(request).await
    }

    /// The same for who has the bytes of this very request at hand.
    pub async fn propose_encoded(&self, request: Request, encoded: Bytes) -> Result<Receipt, ProposeError> {
        self.inner.propose_encoded(request, encoded).await
    }

    /// The same for requests of many callers, each recorded and answered by itself, whose answers are waited for together.
    pub async fn propose_together(&self, requests: Vec<(Request, Bytes)>) -> Vec<Result<Receipt, ProposeError>> {
        self.inner.propose_together(requests).await
    }

    /// From now on, and while this node leads, this one is asked what is to follow. Only the first one ever is.
    pub fn foresee(&self, foresight: Arc<dyn Foresight>) {
        let _ = self.inner.foresight.set(foresight);
    }

    /// What a request would be answered now, without recording anything.
    pub async fn rehearse(&self, request: Request) -> Result<Result<Vec<Done>, Refused>, ReadError> {
        self.inner.rehearse(&request).await
    }

    /// A fork of the state.
    pub async fn read(&self, consistency: Consistency) -> Result<Arc<State>, ReadError> {
        self.inner.read(consistency).await
    }

    /// The state as this node has it, at once.
    pub fn latest(&self) -> Arc<State> {
        self.inner.published.state()
    }

    /// Everything that happens at `from` and later, in order.
    pub fn follow(&self, from: LogIndex) -> Result<Feed, FeedError> {
        let inner = &self.inner;
        Feed::new(from, inner.published.clone(), inner.storage.clone(), inner.ended.clone())
    }

    pub fn status(&self) -> Status {
        self.inner.status()
    }

    /// The hash of the state at exactly this index; waits for it to be applied. None: not in time, or no longer known.
    pub async fn hash_at(&self, index: LogIndex, wait: Duration) -> Option<Hash> {
        self.inner.hash_at(index, wait).await
    }

    /// Changes when this node begins or ceases to lead. Some only after the announcement is in the log.
    pub fn leadership(&self) -> watch::Receiver<Option<Leadership>> {
        self.inner.leadership.subscribe()
    }

    /// Changes whenever more was applied.
    pub fn watch_applied(&self) -> watch::Receiver<LogIndex> {
        self.inner.published.watch_applied()
    }

    /// Changes when there is something to do for whoever acts for the group; not with every report that changes nothing.
    pub fn watch_work(&self) -> watch::Receiver<Work> {
        self.inner.published.watch_work()
    }

    /// Id and address of the leader, this node or another, as far as this node knows.
    pub fn leader(&self) -> Option<(u64, String)> {
        self.inner.known_leader()
    }

    /// Members of the group.
    pub fn peers(&self) -> Vec<PeerView> {
        self.inner.peers()
    }

    /// The highest version of the rules that every member of the group knows. None while one has not said so lately: it may
    /// come back as an older release, which could not apply by newer rules.
    pub fn rules_known_to_all(&self) -> Option<RulesVersion> {
        self.inner.rules_known_to_all()
    }

    /// Makes a learner a voter; `replace` is a voter that leaves in the same change. Only on the leader.
    pub async fn add_peer(&self, peer: &str, replace: Option<&str>) -> Result<Vec<PeerView>, MembershipError> {
        self.inner.add_peer(peer, replace).await
    }

    /// Takes a node out of the group. Only on the leader.
    pub async fn remove_peer(&self, peer: &str) -> Result<Vec<PeerView>, MembershipError> {
        self.inner.remove_peer(peer).await
    }

    /// Hands leadership over; without `to`, to the voter that is furthest ahead. Only on the leader.
    pub async fn transfer_leadership(&self, to: Option<&str>) -> Result<PeerView, MembershipError> {
        self.inner.transfer_leadership(to).await
    }

    /// Writes a snapshot of the state as it is now, linearizable.
    pub async fn save_snapshot(&self) -> Result<SnapshotFile, ReadError> {
        let inner = &self.inner;
        inner.read(Consistency::Linearizable).await?;
        let running = inner.running().ok_or(ReadError::NoLeader)?;
        let builder = Builder {
            view: inner.published.view(),
            group: running.identity.group.clone(),
            storage: inner.storage.clone(),
            clock: inner.clock.clone(),
            observer: inner.observer.clone(),
        };
        builder.write().await.map_err(|error| ReadError::Snapshot(error.to_string()))
    }

    /// Every entry that this node has applied, with what it brought about.
    pub fn journal(&self) -> &Journal {
        &self.inner.storage.journal
    }

    /// The newest version that has written to this node's folder, or was seen in its group.
    pub fn newest_program(&self) -> Option<String> {
        loadline_log::noted_program(&*self.inner.storage.disk)
    }

    /// The states that this node has kept.
    pub fn snapshots(&self) -> &SnapshotStore {
        &self.inner.storage.snapshots
    }

    /// What this node signs exports of its history with.
    pub fn signing_key(&self) -> &Arc<SigningKey> {
        &self.inner.signing_key
    }

    /// The index into the journal, if this node keeps one.
    pub fn audit_index(&self) -> Option<&AuditIndex> {
        self.inner.storage.audit.as_ref().map(storage::Audit::index)
    }

    /// What the other nodes talk to. It answers before this node is part of a group, too.
    pub fn raft_service(&self) -> RaftServer<RaftService> {
        RaftServer::new(RaftService::new(self.inner.clone()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Waits until the node has ended, and says why. Unless it was asked to, the process must exit.
    pub async fn stopped(&self) -> StopReason {
        let reason = self.inner.stop.wait().await;
        self.inner.ended.cancelled().await;
        reason
    }

    /// Ends the node and closes its files. Leadership is not handed over; do that before, if there is time.
    pub async fn shutdown(&self) {
        self.inner.stop.raise(StopReason::ShutDown);
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }
}

impl Inner {
    /// Runs a task until the node ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ended = self.ended.clone();
        self.tasks.spawn(async move {
            ended.run_until_cancelled_owned(task).await;
        });
    }

    pub(crate) fn running(&self) -> Option<Arc<Running>> {
        self.running.borrow().clone()
    }

    /// Starts Raft under this identity, which is on disk.
    pub(crate) async fn run_as(self: &Arc<Self>, identity: Identity) -> Result<(), StartError> {
        // A follower that acknowledged a leader has promised to elect nobody else for a while, and a restart makes it
        // forget. So it waits that time out: it gives no vote, and does not stand itself. A leader's own promise to
        // itself ended with its process.
        let vote = self.storage.wal.state().vote;
        let promised = vote.is_some_and(|vote| vote.committed && vote.node != identity.node_id);
        let lease = self.config.timing.election_max;
        if promised {
            *self.votes_from.lock().unwrap_or_else(PoisonError::into_inner) = self.clock.boottime() + lease;
        }
        let config = raft_config(&self.config, &identity.group, !promised)?;
        let network = Network {
            group: identity.group.clone(),
            me: identity.node_id,
            links: self.links.clone(),
            lease: self.lease.clone(),
            append_progress: self.config.timing.append_progress,
            install_snapshot: self.config.timing.install_snapshot,
        };
        let machine = Machine::new(Surroundings {
            group: identity.group.clone(),
            storage: self.storage.clone(),
            published: self.published.clone(),
            packed: self.packed.clone(),
            clock: self.clock.clone(),
            observer: self.observer.clone(),
            stop: self.stop.clone(),
        });
        let log = LogStore::new(self.storage.wal.clone(), identity.node_id);
        tracing::info!(group = identity.group, id = identity.node_id, "starting Raft");
        let raft = Raft::new(identity.node_id, Arc::new(config), network, log, machine)
            .await
            .map_err(|error| StartError::Raft(causes(&error)))?;
        let running = Arc::new(Running { identity, raft });
        self.running.send_replace(Some(running.clone()));
        if promised {
            let raft = running.raft.clone();
            self.spawn(async move {
                tokio::time::sleep(lease).await;
                raft.runtime_config().elect(true);
            });
        }
        self.spawn(office::run(self.clone(), running.clone()));
        self.spawn(watch_raft(self.clone(), running));
        Ok(())
    }

    /// Ends Raft without ending the node.
    pub(crate) async fn stop_running(&self, running: &Running) {
        self.running.send_replace(None);
        if let Err(error) = running.raft.shutdown().await {
            tracing::warn!("Raft did not end in order: {error}");
        }
    }

    /// Whether a vote given now could break the promise of a lease that was made before a restart.
    pub(crate) fn may_vote(&self) -> bool {
        self.clock.boottime() >= *self.votes_from.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_waiting(&self, waiting: Option<String>) {
        let mut current = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != waiting {
            if let Some(reason) = &waiting {
                tracing::info!("not part of a group yet: {reason}");
            }
            *current = waiting;
        }
    }

    pub(crate) fn waiting(&self) -> Option<String> {
        // Who clears it looks around only now and then, and the group may exist by now.
        if self.running().is_some_and(|running| running.initialised(self)) {
            return None;
        }
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn audit_failed(&self) -> Option<String> {
        self.storage.audit.as_ref().and_then(|audit| audit.failed()).map(str::to_owned)
    }

    pub(crate) fn peers(&self) -> Vec<PeerView> {
        self.running().map(|running| membership::peers(&running.metrics())).unwrap_or_default()
    }

    pub(crate) fn known_leader(&self) -> Option<(u64, String)> {
        self.running()?.leader()
    }

    /// The leader, if it is known and another than this node.
    pub(crate) fn other_leader(&self) -> Option<(Arc<Running>, u64, String)> {
        let running = self.running()?;
        let (leader, address) = running.leader()?;
        (leader != running.identity.node_id).then_some((running, leader, address))
    }

    /// Waits a moment, or less if something about the leader has changed.
    pub(crate) async fn leader_may_have_changed(&self) {
        let mut leadership = self.leadership.subscribe();
        leadership.mark_unchanged();
        tokio::select! {
            biased;
            () = self.ended.cancelled() => {}
            _ = leadership.changed() => {}
            () = tokio::time::sleep(LEADER_LOOK_EVERY) => {}
        }
    }

    /// True if the node ended by itself and not because it was asked to.
    pub(crate) fn stopped_for_good(&self) -> bool {
        self.stop.raised().is_some_and(|reason| reason != StopReason::ShutDown)
    }
}

/// Notices when Raft ends by itself.
async fn watch_raft(inner: Arc<Inner>, running: Arc<Running>) {
    // These change only with roles, votes and members. Whoever waits for all metrics is woken whenever Raft has done anything,
    // several times for every write, and holds up those who have something to do.
    let mut metrics = running.raft.server_metrics();
    while metrics.changed().await.is_ok() {}
    // They are closed when Raft is gone, and its last words come before that; it panicked if there are none.
    let fatal = running.metrics().running_state.err().unwrap_or(Fatal::Panicked);
    let replaced = !inner.running().is_some_and(|current| Arc::ptr_eq(&current, &running));
    if !replaced {
        inner.stop.raise(stop_reason(&inner, &fatal));
    }
}

fn stop_reason(inner: &Inner, fatal: &Fatal<crate::types::Types>) -> StopReason {
    match (inner.storage.wal.failed(), fatal) {
        (Some(what), _) => StopReason::Storage { what },
        (None, Fatal::StorageError(error)) => StopReason::Storage { what: error.to_string() },
        (None, Fatal::Panicked) => StopReason::Raft { what: "it panicked".to_owned() },
        (None, Fatal::Stopped) => StopReason::Raft { what: "it ended".to_owned() },
    }
}

async fn watch_disk(inner: Arc<Inner>) {
    loop {
        tokio::time::sleep(reserve::LOOK_EVERY).await;
        inner.reserve.look();
        if let Some(what) = inner.storage.wal.failed() {
            inner.stop.raise(StopReason::Storage { what });
        }
    }
}

/// Ends everything, in order, once there is a reason to.
async fn end_when_stopped(inner: Arc<Inner>) {
    inner.stop.wait().await;
    inner.leadership.send_replace(None);
    if let Some(running) = inner.running() {
        let metrics = running.metrics();
        let office = crate::lease::Office { term: metrics.current_term, node: metrics.id };
        inner.lease.give_up(office);
        inner.stop_running(&running).await;
    }
    inner.ended.cancel();
    let storage = inner.storage.clone();
    let closed = inner.storage.off_thread(move || close(&storage)).await;
    if let Err(error) = closed {
        tracing::warn!("not everything could be closed in order: {error}");
    }
}

fn close(storage: &Storage) -> std::io::Result<()> {
    let wal = storage.wal.close();
    let journal = storage.journal.close().map_err(|error| storage::io_error(&error));
    if let Some(audit) = &storage.audit {
        audit.index().close().map_err(|error| storage::io_error(&error))?;
    }
    wal.and(journal)
}

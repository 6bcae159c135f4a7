//! A group without Raft: one state, one log, several nodes that may lead, and a clock that only moves when everybody waits.
//!
//! The entries are real and go through the real `apply`. What Raft may do to whoever proposes is drawn from a seed: a proposal
//! is lost, or recorded and its receipt is lost, or recorded later than anybody waits for.

// Every test file is a program of its own and uses the part it needs.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use loadline_executor::backends::scripted::{Script, Scripted};
use loadline_executor::{
    Backends, Duties, Executor, Group, Leadership, NotRecorded, Settings, Step, Unwatched, Witness,
};
use loadline_state_machine::{
    Action, ActionId, ActionStatus, Actor, ClusterId, Command, Entry, Epoch, Event, Hash, LogIndex, NodeNumber,
    Options, Receipt, Request, Sealed, Span, State, StrategyKind, TargetName, Time, apply,
};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

pub const NOON: Time = Time::from_millis(1_794_830_400_000);
/// The backend where clusters live that say nothing else.
pub const PLACE: &str = "place";

/// What may happen to a proposal, in hundredths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub seed: u64,
    pub lost_percent: u64,
    pub receipt_lost_percent: u64,
    pub late_percent: u64,
}

pub struct Model {
    inner: Mutex<Inner>,
    applied: watch::Sender<LogIndex>,
    began: Instant,
}

struct Inner {
    state: Arc<State>,
    term: u64,
    leader: u64,
    faults: Faults,
    proposals: u64,
    /// The executors of those who may lead, when the log asks them what follows from an entry.
    foreseeing: BTreeMap<u64, Executor>,
    claims_ahead: u64,
    /// Every time that an action was settled.
    settled: BTreeMap<ActionId, Vec<Action>>,
    planned: BTreeMap<ActionId, Action>,
    /// Claims that were accepted, with the epoch that was the current one.
    claims: Vec<(ActionId, Epoch, Epoch)>,
    receipts: Vec<Receipt>,
}

impl Inner {
    /// What may happen to the next proposal, and the hundredth that says what does.
    fn draw(&mut self) -> (Faults, u64) {
        self.proposals += 1;
        let text = format!("{} proposal {}", self.faults.seed, self.proposals);
        (self.faults, u64::from(Hash::of(text.as_bytes()).0[0]) * 100 / 256)
    }
}

impl std::fmt::Debug for Model {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Model")
    }
}

impl Model {
    pub fn new() -> Arc<Model> {
        let inner = Inner {
            state: Arc::new(State::new()),
            term: 0,
            leader: 0,
            faults: Faults::default(),
            proposals: 0,
            foreseeing: BTreeMap::new(),
            claims_ahead: 0,
            settled: BTreeMap::new(),
            planned: BTreeMap::new(),
            claims: vec![],
            receipts: vec![],
        };
        let (applied, _) = watch::channel(LogIndex(0));
        let model = Arc::new(Model { inner: Mutex::new(inner), applied, began: Instant::now() });
        let ticking = Arc::downgrade(&model);
        tokio::spawn(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                let Some(model) = ticking.upgrade() else { return };
                model.apply("clock", vec![Command::Tick]);
            }
        });
        model
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.inner().state)
    }

    pub fn apply(self: &Arc<Model>, actor: &str, commands: Vec<Command>) -> Receipt {
        let mut inner = self.inner();
        let request = Request { actor: Actor::new(actor, "model"), request_id: None, commands };
        let follows = self.foreseen(&inner, &request);
        let receipt = self.apply_entry(&mut inner, vec![request]).remove(0);
        inner.receipts.push(receipt.clone());
        if !follows.is_empty() {
            self.add_claims(&mut inner, follows);
        }
        receipt
    }

    fn seal(&self, requests: Vec<Request>) -> Sealed {
        let millis = u64::try_from(self.began.elapsed().as_millis()).unwrap();
        Sealed::seal(Entry { stamped_at: NOON + Span::from_millis(millis), requests })
    }

    /// What the leader would have follow. It is asked after every command: more often than it has to be.
    fn foreseen(&self, inner: &Inner, request: &Request) -> Vec<Request> {
        let Some(executor) = inner.foreseeing.get(&inner.leader) else { return vec![] };
        let mut fork = State::clone(&inner.state);
        let index = LogIndex(fork.applied().0 + 1);
        apply(&mut fork, index, &self.seal(vec![request.clone()]));
        executor.claims_ahead().after(&fork, &Actor::new("ahead", "model"))
    }

    /// Claims that went ahead are lost and come late like everything else. Nobody waits for them.
    fn add_claims(self: &Arc<Model>, inner: &mut Inner, claims: Vec<Request>) {
        let (faults, drawn) = inner.draw();
        if drawn < faults.lost_percent {
            return;
        }
        if drawn < faults.lost_percent + faults.late_percent {
            let model = Arc::clone(self);
            tokio::spawn(async move {
                sleep(Duration::from_millis(drawn * drawn)).await;
                model.apply_entry(&mut model.inner(), claims);
            });
            return;
        }
        inner.claims_ahead += claims.len() as u64;
        self.apply_entry(inner, claims);
    }

    fn apply_entry(&self, inner: &mut Inner, requests: Vec<Request>) -> Vec<Receipt> {
        let sealed = self.seal(requests);
        let mut state = State::clone(&inner.state);
        let index = LogIndex(state.applied().0 + 1);
        let applied = apply(&mut state, index, &sealed);
        for event in &applied.events {
            match event {
                Event::ActionSettled { action, .. } => {
                    inner.settled.entry(action.id).or_default().push(Action::clone(action));
                }
                Event::ActionPlanned { action } => drop(inner.planned.insert(action.id, Action::clone(action))),
                Event::ActionClaimed { action } => {
                    let claimed = action.attempts.last().unwrap().epoch;
                    inner.claims.push((action.id, claimed, state.epoch().unwrap()));
                }
                _ => {}
            }
        }
        inner.state = Arc::new(state);
        self.applied.send_replace(index);
        applied.receipts
    }

    /// One entry with these requests.
    pub fn record(&self, requests: Vec<Request>) -> Vec<Receipt> {
        self.apply_entry(&mut self.inner(), requests)
    }

    /// How many claims went into the log right behind what made them possible.
    pub fn claims_ahead(&self) -> u64 {
        self.inner().claims_ahead
    }

    /// One command that must be accepted.
    pub fn must(self: &Arc<Model>, command: Command) -> Receipt {
        let receipt = self.apply("alice", vec![command]);
        assert!(receipt.result.is_ok(), "{receipt:?}");
        receipt
    }

    pub fn set(self: &Arc<Model>, name: &str, value: &str) {
        self.must(Command::SetSetting { name: name.to_owned(), value: value.to_owned(), etag: None });
    }

    /// Announces a leader, whose epoch is answered.
    pub fn elect(self: &Arc<Model>, node: u64) -> Epoch {
        let term = {
            let mut inner = self.inner();
            inner.term += 1;
            inner.leader = node;
            inner.term
        };
        self.must(Command::AnnounceLeader { node: NodeNumber(node), term });
        self.state().epoch().unwrap()
    }

    fn leads(&self, node: u64) -> bool {
        self.inner().leader == node
    }

    /// Sizes, settings that leave no pauses, and these clusters, all living on [`PLACE`].
    pub fn furnish(self: &Arc<Model>, clusters: usize) -> Vec<ClusterId> {
        self.elect(1);
        for (name, value) in [
            ("enable_auto_scaling", "true"),
            ("default_backend", PLACE),
            ("auto_scaling_cluster_cooldown", "0s"),
            ("auto_scaling_rate_limit", "1000"),
            ("auto_scaling_rate_window", "1s"),
        ] {
            self.set(name, value);
        }
        for (name, rank) in [("25cc", 10), ("50cc", 20)] {
            self.must(Command::CreateSize {
                name: name.to_owned(),
                rank: Some(rank),
                slots: 4,
                price_micros_per_hour: 1,
            });
        }
        (0..clusters).map(|number| self.add_cluster(&format!("demo{number}"), None)).collect()
    }

    pub fn add_cluster(self: &Arc<Model>, name: &str, backend: Option<&str>) -> ClusterId {
        self.must(Command::CreateCluster { name: name.to_owned() });
        if let Some(backend) = backend {
            let backend = Some(backend.to_owned());
            self.must(Command::PlaceCluster { name: name.to_owned(), backend, etag: None });
        }
        self.state().cluster(name).unwrap().id
    }

    /// From now on the cluster wants one replica of this size.
    pub fn want(self: &Arc<Model>, cluster: &str, size: &str) {
        let target = TargetName::Cluster(cluster.to_owned());
        let kind = StrategyKind::TargetSize;
        let options = Options::default().with("size", size).with("cooldown_s", 0);
        let known = self.state().strategy_for(&target, kind).is_some();
        self.must(match known {
            false => Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false },
            true => Command::ChangeStrategy { target, kind, options, reset: vec![], etag: None, unchecked: false },
        });
    }

    pub fn planned(&self) -> BTreeMap<ActionId, Action> {
        self.inner().planned.clone()
    }

    pub fn planned_count(&self) -> usize {
        self.inner().planned.len()
    }

    pub fn settled(&self) -> BTreeMap<ActionId, Vec<Action>> {
        self.inner().settled.clone()
    }

    /// The only action that was ever planned, as it is or was last.
    pub fn only_action(&self) -> Action {
        let planned = self.planned();
        assert_eq!(planned.len(), 1, "{planned:?}");
        self.action(*planned.keys().next().unwrap())
    }

    /// As it is, or as it was settled.
    pub fn action(&self, id: ActionId) -> Action {
        let state = self.state();
        let settled = || self.settled().get(&id).and_then(|all| all.last().cloned());
        state.action(id).cloned().or_else(settled).unwrap()
    }

    pub fn claims(&self) -> Vec<(ActionId, Epoch, Epoch)> {
        self.inner().claims.clone()
    }

    /// Waits until the state is such, for so long at most.
    pub async fn until(&self, what: &str, patience: Duration, is_such: impl Fn(&State) -> bool) {
        let mut applied = self.applied.subscribe();
        let waiting = async {
            while !is_such(&self.state()) {
                applied.changed().await.unwrap();
            }
        };
        let in_time = tokio::time::timeout(patience, waiting).await;
        assert!(in_time.is_ok(), "not within {patience:?}: {what}; {:?}", self.state().actions().collect::<Vec<_>>());
    }

    pub async fn until_settled(&self, patience: Duration) {
        self.until("everything is settled", patience, |state| state.action_count() == 0).await;
    }
}

/// One node's view of the group.
#[derive(Debug)]
struct Member {
    model: Arc<Model>,
    id: u64,
    /// Whether what it proposes after it was replaced still reaches the log, as what an earlier leader sent may.
    speaks_late: AtomicBool,
}

impl Group for Member {
    fn state(&self) -> Arc<State> {
        self.model.state()
    }

    fn applied_beyond(&self, index: LogIndex) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut applied = self.model.applied.subscribe();
            let _ = applied.wait_for(|applied| *applied > index).await;
        })
    }

    fn record(&self, commands: Vec<Command>) -> BoxFuture<'_, Result<Receipt, NotRecorded>> {
        Box::pin(async move {
            let lost = |reason: &str| Err(NotRecorded { reason: reason.to_owned() });
            let (faults, drawn) = self.model.inner().draw();
            sleep(Duration::from_millis(1 + drawn % 5)).await;
            if !self.model.leads(self.id) && !self.speaks_late.load(Ordering::SeqCst) {
                return lost("not the leader");
            }
            let actor = format!("node {}", self.id);
            if drawn < faults.lost_percent {
                sleep(Duration::from_millis(500)).await;
                return lost("lost");
            }
            if drawn < faults.lost_percent + faults.late_percent {
                let model = Arc::clone(&self.model);
                tokio::spawn(async move {
                    sleep(Duration::from_millis(50 * (1 + drawn % 50))).await;
                    model.apply(&actor, commands);
                });
                return lost("late");
            }
            let receipt = self.model.apply(&actor, commands);
            if drawn < faults.lost_percent + faults.late_percent + faults.receipt_lost_percent {
                return lost("the receipt is lost");
            }
            Ok(receipt)
        })
    }
}

/// A node that runs an executor and may lead.
pub struct Node {
    model: Arc<Model>,
    member: Arc<Member>,
    id: u64,
    executor: Executor,
    leadership: mpsc::UnboundedSender<Option<Leadership>>,
    lease: Arc<AtomicBool>,
    running: JoinHandle<()>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Node {
    pub fn new(model: &Arc<Model>, id: u64, backends: Backends) -> Node {
        Node::watched(model, id, backends, Arc::new(Unwatched), Settings::default())
    }

    pub fn watched(
        model: &Arc<Model>,
        id: u64,
        backends: Backends,
        witness: Arc<dyn Witness>,
        settings: Settings,
    ) -> Node {
        let member = Arc::new(Member { model: Arc::clone(model), id, speaks_late: AtomicBool::new(false) });
        let executor = Executor::new(Arc::clone(&member) as Arc<dyn Group>, backends)
            .witnessed_by(witness)
            .with_settings(settings);
        let (leadership, running) = start(&executor);
        let lease = Arc::new(AtomicBool::new(false));
        Node { model: Arc::clone(model), member, id, executor, leadership, lease, running }
    }

    pub fn lead(&mut self) -> Epoch {
        let epoch = self.model.elect(self.id);
        self.lease = Arc::new(AtomicBool::new(true));
        let lease = Arc::clone(&self.lease);
        let leadership = Leadership::new(epoch, move || lease.load(Ordering::SeqCst));
        self.leadership.send(Some(leadership)).unwrap();
        epoch
    }

    /// From now on the log asks this node what is to follow, while it leads.
    pub fn foresees(&self) {
        self.model.inner().foreseeing.insert(self.id, self.executor.clone());
    }

    /// What it would have follow the entry that left this state.
    pub fn claims_ahead(&self, state: &State) -> Vec<Request> {
        self.executor.claims_ahead().after(state, &Actor::new("ahead", "model"))
    }

    /// Its lease is over; it does not know yet that it is not the leader any more.
    pub fn lose_lease(&self) {
        self.lease.store(false, Ordering::SeqCst);
    }

    pub fn step_down(&self) {
        self.lose_lease();
        self.leadership.send(None).unwrap();
    }

    /// Dies in the middle of whatever it does, and starts again.
    pub fn crash(&mut self) {
        self.lose_lease();
        self.running.abort();
        (self.leadership, self.running) = start(&self.executor);
    }

    /// What it proposes reaches the log though it leads no more.
    pub fn speak_late(&self, late: bool) {
        self.member.speaks_late.store(late, Ordering::SeqCst);
    }
}

fn start(executor: &Executor) -> (mpsc::UnboundedSender<Option<Leadership>>, JoinHandle<()>) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let stream = futures::stream::poll_fn(move |cx| receiver.poll_recv(cx));
    (sender, tokio::spawn(executor.join(Duties::new()).run(stream)))
}

/// Holds whoever comes to a step, until it is let go.
#[derive(Debug)]
pub struct Gate {
    step: Step,
    closed: AtomicBool,
    held: AtomicBool,
    came: Notify,
    opened: Notify,
}

impl Gate {
    pub fn at(step: Step) -> Arc<Gate> {
        Arc::new(Gate {
            step,
            closed: AtomicBool::new(true),
            held: AtomicBool::new(false),
            came: Notify::new(),
            opened: Notify::new(),
        })
    }

    pub fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        self.opened.notify_waiters();
    }

    /// Until somebody stands at the gate.
    pub async fn holds(&self) {
        let waiting = async {
            loop {
                let came = self.came.notified();
                if self.held.load(Ordering::SeqCst) {
                    return;
                }
                came.await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), waiting).await.is_ok(), "nobody came to {:?}", self.step);
    }
}

impl Witness for Gate {
    fn reached(&self, step: Step, _action: ActionId) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if step != self.step {
                return;
            }
            loop {
                let opened = self.opened.notified();
                if !self.closed.load(Ordering::SeqCst) {
                    return;
                }
                self.held.store(true, Ordering::SeqCst);
                self.came.notify_waiters();
                opened.await;
            }
        })
    }
}

pub fn place(script: Script) -> (Scripted, Backends) {
    let scripted = Scripted::new(script);
    let backends = Backends::new().with(PLACE, Arc::new(scripted.clone()));
    (scripted, backends)
}

/// What must hold whatever has failed: every action is settled once, exactly those that succeeded were carried out, once, and those
/// that did not say why. Answers what is wrong.
pub fn audit(model: &Model, backend: &Scripted) -> Vec<String> {
    // A key of its own for every attempt counts for the action all the same.
    let mut effects: BTreeMap<String, u32> = BTreeMap::new();
    for (key, count) in backend.effects() {
        let of_action = key.split('#').next().unwrap().to_owned();
        *effects.entry(of_action).or_default() += count;
    }
    let settled = model.settled();
    let mut wrong = Vec::new();
    for (id, action) in model.planned() {
        let carried_out = effects.get(&action.key()).copied().unwrap_or(0);
        let [end] = settled.get(&id).map_or(&[][..], Vec::as_slice) else {
            wrong.push(format!("{id} was settled {} times", settled.get(&id).map_or(0, Vec::len)));
            continue;
        };
        let expected = u32::from(end.status == ActionStatus::Succeeded);
        if carried_out != expected {
            wrong.push(format!("{id} is {} and was carried out {carried_out} times", end.status.code()));
        }
        let needs_reason = matches!(end.status, ActionStatus::Failed | ActionStatus::DeadLettered);
        if needs_reason && end.error.is_none() {
            wrong.push(format!("{id} is {} and does not say why", end.status.code()));
        }
    }
    wrong
}

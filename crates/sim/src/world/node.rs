//! One place where a node runs: a machine with a disk and clocks, on which processes come and go.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use loadline_executor::{Backends, Step, Witness};
use loadline_log::{JournalRecord, Threading, WalState};
use loadline_raft_node::NodeObserver;
use loadline_server::{Listeners, ServerConfig, World as ServerWorld, serve_in};
use loadline_state_machine::{self as state_machine, ActionId, Command, Hash, LogIndex, State};
use tokio::runtime::Handle;

use super::backend::{BackendPlace, Gate, NAME as BACKEND};
use super::clock::MachineClock;
use super::disk::MachineDisk;
use super::net::{PORT, Port, Silent, SimulatedDial};
use crate::faults::Then;
use crate::plan::Plan;
use crate::record::{Applied, Place, Promise, Record, Seen, Sizes};

/// A machine. Clones are the same.
#[derive(Debug, Clone)]
pub struct Machine {
    pub place: Place,
    pub clock: MachineClock,
    pub gate: Gate,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    disk: Mutex<MachineDisk>,
    lives: AtomicU64,
    backend: BackendPlace,
    record: Record,
    config: ServerConfig,
    wal_segment_bytes: u64,
    ambushes: Ambushes,
    /// The runtime of the process that lives here.
    runtime: Mutex<Option<Handle>>,
    /// Entries in its log, by what it said last.
    log_entries: Arc<AtomicU64>,
}

/// The name of a node as the network knows it.
pub fn host(place: Place) -> String {
    format!("n{}", place + 1)
}

pub fn address(place: Place) -> String {
    format!("{}:{PORT}", host(place))
}

impl Machine {
    pub fn new(
        plan: &Plan,
        place: Place,
        disk_seed: u64,
        backend: BackendPlace,
        record: Record,
        ambushes: Ambushes,
    ) -> Machine {
        let config = ServerConfig {
            name: host(place),
            advertise: address(place),
            grpc_listen: address(place),
            peers: (0..plan.founders).map(address).collect(),
            heartbeat: plan.heartbeat,
            election_timeout_min: plan.heartbeat * 3,
            election_timeout_max: plan.heartbeat * 6,
            snapshot_every: plan.snapshot_every,
            keep_entries: plan.keep_entries,
            disk_reserve: plan.disk_reserve,
            tick_every: Duration::from_secs(1),
            ..ServerConfig::default()
        };
        Machine {
            place,
            clock: MachineClock::new(record.clone()),
            gate: Gate::default(),
            inner: Arc::new(Inner {
                disk: Mutex::new(MachineDisk::new(disk_seed)),
                lives: AtomicU64::new(0),
                backend,
                record,
                config,
                wal_segment_bytes: plan.wal_segment_bytes,
                ambushes,
                runtime: Mutex::default(),
                log_entries: Arc::default(),
            }),
        }
    }

    pub fn disk(&self) -> MachineDisk {
        self.inner.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An operator puts an empty disk in.
    pub fn replace_disk(&self, seed: u64) {
        *self.inner.disk.lock().unwrap_or_else(PoisonError::into_inner) = MachineDisk::new(seed);
    }

    /// What the process that lives here has outstanding and keeps.
    pub fn sizes(&self) -> Sizes {
        let runtime = self.inner.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let disk = self.disk().model;
        let files = disk.files();
        let of = |folder: &'static str| files.iter().filter(move |path| path.starts_with(folder));
        Sizes {
            tasks: runtime.as_ref().map_or(0, |runtime| runtime.metrics().num_alive_tasks()),
            log_entries: self.inner.log_entries.load(Ordering::Relaxed),
            log_bytes: of("wal/").filter_map(|path| disk.contents(path).ok()).map(|bytes| bytes.len()).sum(),
            snapshots: of("snapshots/").count(),
        }
    }

    pub fn lives(&self) -> u64 {
        self.inner.lives.load(Ordering::Relaxed)
    }

    /// One process, from its start to its end.
    pub async fn live(self) {
        let inner = &self.inner;
        let life = inner.lives.fetch_add(1, Ordering::Relaxed) + 1;
        let (record, node) = (inner.record.clone(), self.place);
        record.see(Seen::Started { node, life });
        *inner.runtime.lock().unwrap_or_else(PoisonError::into_inner) = Some(Handle::current());
        let why = match Port::bind().await {
            Err(error) => format!("cannot listen: {error}"),
            Ok(port) => {
                let onlooker = Arc::new(Onlooker {
                    node,
                    life,
                    record: record.clone(),
                    promised: Mutex::default(),
                    log_entries: inner.log_entries.clone(),
                });
                let disk = self.disk();
                let world = ServerWorld {
                    disk: Arc::new(disk.model.reopen()),
                    wal_segment_bytes: inner.wal_segment_bytes,
                    audit_index: None,
                    replay_starts: 0,
                    fetch_history: false,
                    dial: Arc::new(SimulatedDial),
                    clock: Arc::new(self.clock.clone()),
                    threading: Threading::Inline,
                    // Kept nowhere: a run must not change its course because a node writes one more file when it starts.
                    signing_seed: Some([u8::try_from(self.place).unwrap_or(u8::MAX); 32]),
                    pace: Some(Arc::new(disk.pace)),
                    backends: Backends::new().with(BACKEND, Arc::new(inner.backend.door(self.gate.clone()))),
                    collecting: false,
                    witness: Arc::new(Watcher {
                        node,
                        record: record.clone(),
                        gate: self.gate.clone(),
                        ambushes: inner.ambushes.clone(),
                    }),
                    onlooker,
                };
                let listeners = Listeners { grpc: port, http: Silent, pg: None };
                match serve_in(world, listeners, inner.config.clone(), std::future::pending()).await {
                    Ok(()) => "it was told to".to_owned(),
                    Err(error) => with_causes(&error),
                }
            }
        };
        record.see(Seen::Ended { node, life, why });
    }
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

/// Tells the record what one process does.
#[derive(Debug)]
struct Onlooker {
    node: Place,
    life: u64,
    record: Record,
    promised: Mutex<Option<Promise>>,
    log_entries: Arc<AtomicU64>,
}

fn promise(state: &WalState) -> Promise {
    Promise { vote: state.vote.map(|vote| (vote.term, vote.committed)) }
}

impl NodeObserver for Onlooker {
    fn entry_applied(&self, record: &JournalRecord, applied: &state_machine::Applied, state: &State) {
        self.record.see(Seen::Applied(Box::new(Applied {
            node: self.node,
            life: self.life,
            index: LogIndex(record.index),
            time: applied.time,
            hash: Hash(record.hash),
            entry: record.entry.clone(),
            receipts: applied.receipts.clone(),
            events: applied.events.clone(),
            state: state.clone(),
        })));
    }

    fn recovered(&self, state: &WalState) {
        self.record.see(Seen::Recovered { node: self.node, promise: promise(state) });
    }

    fn promised(&self, state: &WalState) {
        let (last, purged) = (state.last.map_or(0, |last| last.index), state.purged.map_or(0, |purged| purged.index));
        self.log_entries.store(last.saturating_sub(purged), Ordering::Relaxed);
        let promise = promise(state);
        let mut before = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        // Only what is news: every batch promises something.
        if before.replace(promise) != Some(promise) {
            self.record.see(Seen::Promised { node: self.node, promise });
        }
    }

    fn state_replaced(&self, state: &State) {
        self.record.see(Seen::Replaced { node: self.node, life: self.life, state: Box::new(state.clone()) });
    }

    fn snapshot_built(&self, _took: Duration, _bytes: u64) {
        self.record.see(Seen::SnapshotBuilt { node: self.node, life: self.life });
    }

    fn truncated(&self, entries: u64) {
        self.record.see(Seen::Truncated { node: self.node, entries });
    }

    fn elected(&self) {
        self.record.see(Seen::Elected { node: self.node, life: self.life });
    }
}

/// Steps at which somebody lies in wait, for whoever comes. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Ambushes(Arc<Mutex<Laid>>);

#[derive(Debug, Default)]
struct Laid {
    ambushes: Vec<(Step, u64, Then)>,
    /// Actions of which a try is out.
    in_doubt: BTreeSet<ActionId>,
}

impl Ambushes {
    pub fn lay(&self, step: Step, skip: u64, then: Then) {
        self.laid().ambushes.push((step, skip, then));
    }

    pub fn clear(&self) {
        self.laid().ambushes.clear();
    }

    /// Whether nobody knows what came of an action.
    pub fn doubt(&self, action: ActionId, is_in_doubt: bool) {
        let doubts = &mut self.laid().in_doubt;
        if is_in_doubt {
            doubts.insert(action)
        } else {
            doubts.remove(&action)
        };
    }

    fn laid(&self) -> MutexGuard<'_, Laid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is at this step: what befalls them, if anything.
    fn sprung(&self, at: Step, action: ActionId) -> Option<Then> {
        let Laid { ambushes, in_doubt } = &mut *self.laid();
        let for_this = |then: &Then| !matches!(then, Then::Overtaken(_)) || in_doubt.contains(&action);
        let found = ambushes.iter().position(|(step, _, then)| *step == at && for_this(then))?;
        match ambushes[found].1.checked_sub(1) {
            Some(left) => {
                ambushes[found].1 = left;
                None
            }
            None => Some(ambushes.remove(found).2),
        }
    }
}

/// Tells the record where an executor is, and holds one that is paused.
#[derive(Debug)]
struct Watcher {
    node: Place,
    record: Record,
    gate: Gate,
    ambushes: Ambushes,
}

impl Witness for Watcher {
    fn reached(&self, step: Step, action: ActionId) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.record.see(Seen::Step { node: self.node, step, action });
            if let Some(then) = self.ambushes.sprung(step, action) {
                // Nothing more happens here until the run, which sees this next, has done what is to be done.
                self.gate.set_open(false);
                self.record.see(Seen::Ambushed { node: self.node, action, then });
            }
            self.gate.passed().await;
        })
    }

    fn says(&self, command: &Command) {
        self.record.see(Seen::Said { node: self.node, command: Box::new(command.clone()) });
    }
}

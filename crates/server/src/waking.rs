//! Waking clusters, and waiting until they are ready: the same for gRPC and HTTP, at any node.
//!
//! Waiting reads what this node has applied, so it survives a change of leader, and needs no leader to end.

use std::collections::BTreeSet;
use std::time::Duration;

use loadline_raft_node::Consistency;
use loadline_state_machine::{
    Actor, Answer as Left, COMMANDS_PER_REQUEST_MAX, ClusterId, Command, Done, LogIndex, Rejection, Request, RequestId,
    ResourceName, State, StrategyId, StrategyKind, WakeReason, Woke,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use uuid::{NoContext, Timestamp, Uuid};

use crate::grpc::errors::{self, Answer};
use crate::grpc::exchange::Exchange;

#[derive(Debug, Clone)]
pub(crate) struct Waking {
    pub(crate) exchange: Exchange,
    pub(crate) closing: CancellationToken,
}

/// Whom to wake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sleepers {
    /// Every cluster that is at zero.
    All,
    Named(Vec<String>),
}

/// What was recorded.
#[derive(Debug, Clone)]
pub(crate) struct Woken {
    pub(crate) index: LogIndex,
    pub(crate) clusters: Vec<Woke>,
}

/// A text that somebody gave as the reason.
pub(crate) fn reason(text: &str) -> Result<WakeReason, Status> {
    if text.is_empty() {
        return Ok(WakeReason::Manual);
    }
    let known = WakeReason::ASKED.map(WakeReason::as_str).join(", ");
    WakeReason::asked(text)
        .ok_or_else(|| errors::invalid_field("reason", format!("is {text:?}: expected one of {known}")))
}

/// The clusters that are meant by names or ids of clusters, or by ids of strategies, which stand for those that they rule. Each
/// once, in the order in which they are named.
pub(crate) fn meant(state: &State, names: &[String]) -> Result<Vec<ClusterId>, Status> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for name in names {
        let ids = meant_by(state, name)?;
        found.extend(ids.into_iter().filter(|id| seen.insert(*id)));
    }
    Ok(found)
}

fn meant_by(state: &State, name: &str) -> Result<Vec<ClusterId>, Status> {
    if let Some(cluster) = state.cluster(name) {
        return Ok(vec![cluster.id]);
    }
    if let Some(cluster) = name.parse::<ClusterId>().ok().and_then(|id| state.cluster_by_id(id)) {
        return Ok(vec![cluster.id]);
    }
    if let Some(strategy) = name.parse::<StrategyId>().ok().and_then(|id| state.strategy(id)) {
        if strategy.kind != StrategyKind::IdleSuspend {
            let message = format!("{name} is of type {}: only idle_suspend puts clusters to sleep", strategy.kind);
            return Err(errors::invalid_field("names", message));
        }
        let ruled = |id: &ClusterId| state.idle_state(*id).is_some_and(|idle| idle.strategy == strategy.id);
        return Ok(state.clusters_after(None).map(|cluster| cluster.id).filter(ruled).collect());
    }
    Err(errors::rejected(&Rejection::NotFound { resource: ResourceName::cluster(name) }))
}

/// By the time of the log: that of a machine may be so far off that its ids are refused, and somebody waits for what is to wake.
fn fresh_id(state: &State) -> RequestId {
    let now = Duration::from_millis(state.now().as_millis());
    let made_at = Timestamp::from_unix(NoContext, now.as_secs(), now.subsec_nanos());
    RequestId(Uuid::new_v7(made_at).as_u128())
}

impl Waking {
    /// Has them woken. What comes with an id is recorded once, however often it is asked for. All that sleep are whoever sleeps when
    /// it is asked, and waking one that is on its way changes nothing, so that need not come with one; it gets one here, by which the
    /// history can name it.
    pub(crate) async fn wake(
        &self,
        actor: Actor,
        sleepers: &Sleepers,
        reason: WakeReason,
        request_id: Option<RequestId>,
    ) -> Result<Woken, Status> {
        let read = self.exchange.node.read(Consistency::Linearizable).await;
        let state = read.map_err(|error| errors::read(&error))?;
        let (clusters, request_id) = match sleepers {
            Sleepers::All => (state.clusters_at_zero().collect(), None),
            Sleepers::Named(names) => (meant(&state, names)?, request_id),
        };
        let wake = |id: &ClusterId| {
            let cluster = state.cluster_by_id(*id)?.name.clone();
            Some(Command::WakeCluster { cluster, reason })
        };
        let commands: Vec<Command> = clusters.iter().filter_map(wake).collect();
        let mut woken = Woken { index: state.applied(), clusters: Vec::new() };
        for commands in commands.chunks(COMMANDS_PER_REQUEST_MAX) {
            // A request has one id; of what does not fit into one, each part gets its own.
            let request_id = request_id.filter(|_| clusters.len() <= COMMANDS_PER_REQUEST_MAX);
            let request_id = Some(request_id.unwrap_or_else(|| fresh_id(&state)));
            let request = Request { actor: actor.clone(), request_id, commands: commands.to_vec() };
            let receipt = self.exchange.proposals.propose(request).await.map_err(|error| errors::propose(&error))?;
            let done = receipt.result.map_err(|refused| errors::rejected(&refused.rejection))?;
            woken.index = woken.index.max(receipt.index);
            woken.clusters.extend(done.into_iter().filter_map(|done: Done| match done.answer {
                Left::Woke(woke) => Some(*woke),
                _ => None,
            }));
        }
        Ok(woken)
    }

    /// Waits until one of them is ready that was not, takes it out and gives it back; nothing when none is left. An error when
    /// one has not become ready in the time that a cold start may take.
    pub(crate) async fn next_ready(&self, woken: &mut Woken) -> Result<Option<Woke>, Status> {
        let node = &self.exchange.node;
        let mut applied = node.watch_applied();
        let mut give_up: Option<Instant> = None;
        loop {
            if woken.clusters.is_empty() {
                return Ok(None);
            }
            let state = node.latest();
            if state.applied() >= woken.index {
                let place = woken.clusters.iter().position(|woke| is_ready(&state, woke));
                if let Some(place) = place {
                    return Ok(Some(woken.clusters.remove(place)));
                }
                let gone = woken.clusters.iter().find(|woke| state.cluster_by_id(woke.cluster.id).is_none());
                if let Some(gone) = gone {
                    let resource = ResourceName::cluster(&gone.cluster.name);
                    return Err(errors::rejected(&Rejection::NotFound { resource }));
                }
                let first = woken.clusters.iter().map(|woke| woke.ready_by.since(state.now()).as_millis()).min();
                give_up.get_or_insert_with(|| Instant::now() + Duration::from_millis(first.unwrap_or_default()));
            }
            let over = async {
                match give_up {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = applied.changed() => {
                    if changed.is_err() {
                        return Err(errors::shutting_down());
                    }
                }
                () = self.closing.cancelled() => return Err(errors::shutting_down()),
                () = over => return Err(too_slow(&node.latest(), woken)),
            }
        }
    }
}

fn is_ready(state: &State, woke: &Woke) -> bool {
    state.idle_state(woke.cluster.id).is_some_and(|idle| idle.serves)
}

/// Says what holds them up, as far as that is known.
fn too_slow(state: &State, woken: &Woken) -> Status {
    let name = |woke: &Woke| woke.cluster.name.clone();
    let names: Vec<String> = woken.clusters.iter().map(name).collect();
    let why = woken.clusters.iter().find_map(|woke| {
        let decision = state.decision_by_id(woke.cluster.id)?;
        let held = decision.brakes.first()?;
        Some(format!(": {} is held, {}", woke.cluster.name, held.brake.text()))
    });
    let message = format!(
        "woken, and not ready within the time that a cold start may take: {}{}; it goes on, and `loadline explain cluster/{}` \
         says where it is",
        names.join(", "),
        why.unwrap_or_default(),
        names.first().map_or("NAME", String::as_str)
    );
    Answer::new(Code::DeadlineExceeded, "COLD_START_TIMEOUT", message).with("clusters", &names.join(",")).status()
}

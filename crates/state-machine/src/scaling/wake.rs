//! Waking a cluster by hand: what `idle_suspend` took away comes back, and it is not suspended again before the keep-alive
//! window is over.
//!
//! That it was woken is all that is recorded here. What follows is the strategy's: it sees the wake and wants the replicas
//! back, without a cooldown, and what was about to be dropped and had not begun is left.

use serde::{Deserialize, Serialize};

use super::idle::{Wake, WakeReason, serves, suspendable};
use crate::decide::Moment;
use crate::names::shortened;
use crate::{Cluster, ClusterId, Event, Rejection, ResourceName, Span, State, StrategyId, Time};

pub(crate) fn wake(state: &State, at: Moment, cluster: &str, reason: WakeReason) -> Result<Vec<Event>, Rejection> {
    let missing = || Rejection::NotFound { resource: ResourceName::cluster(shortened(cluster)) };
    let id = state.cluster(cluster).ok_or_else(missing)?.id;
    let strategy = suspendable(state, id, cluster)?;
    let record = state.scaling.record(id);
    let times = state.idle_times(strategy);
    // It is on its way: asked for twice, it is not given twice the time.
    let on_its_way = |wake: &Wake| wake.ready_at.is_none() && at.now <= wake.holds_until(times);
    if record.and_then(|record| record.wake()).is_some_and(|wake| on_its_way(&wake)) {
        return Ok(vec![]);
    }
    Ok(vec![Event::ClusterWoken { cluster: id, wake: new_wake(state, id, at, reason) }])
}

/// That a cluster is being woken from now on.
pub(crate) fn new_wake(state: &State, cluster: ClusterId, at: Moment, reason: WakeReason) -> Wake {
    let record = state.scaling.record(cluster);
    let is_empty = record.is_none_or(|record| record.signals.replicas.is_empty());
    let serves = record.is_some_and(serves);
    Wake { at: at.now, reason, cold: is_empty, ready_at: serves.then_some(at.now) }
}

/// What wakes a cluster by itself is told once: when the operation begins that brings it back, unless that is for somebody who
/// had it woken since it went to sleep.
pub(crate) fn is_news(state: &State, cluster: ClusterId) -> bool {
    let Some(idle) = state.scaling.record(cluster).and_then(|record| record.idle.as_deref()) else { return true };
    let times = state.idle_suspend_of(cluster).map_or(state.settings.knobs().idle, |it| state.idle_times(it));
    let asked_since = |wake: &Wake| idle.scaled_to_zero_at.is_none_or(|since| wake.at >= since);
    !idle.wake.is_some_and(|wake| state.now <= wake.holds_until(times) && asked_since(&wake))
}

/// What somebody hears who woke a cluster. Kept with the receipt, so that a repeat hears the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Woke {
    pub cluster: Cluster,
    pub strategy: StrategyId,
    /// Why it is awake, or will be: of whoever came first.
    pub reason: WakeReason,
    /// A replica of it was ready; it is only kept awake.
    pub already_running: bool,
    pub replicas_before: u64,
    pub replicas_wanted: u64,
    /// From now, as past starts took; nothing if there was none.
    pub ready_in: Option<Span>,
    /// When whoever waits for it should give up.
    pub ready_by: Time,
}

pub(crate) fn woke(state: &State, cluster: &str) -> Option<Woke> {
    let cluster = state.cluster(cluster)?;
    let idle = state.idle_state(cluster.id)?;
    let wake = idle.last_wake?;
    let gone_by = state.now.since(wake.at).as_millis();
    let left = |start: Span| Span::from_millis(start.as_millis().saturating_sub(gone_by));
    Some(Woke {
        cluster: cluster.clone(),
        strategy: idle.strategy,
        reason: wake.reason,
        already_running: wake.ready_at.is_some(),
        replicas_before: idle.replicas,
        replicas_wanted: idle.replicas_awake,
        ready_in: idle.start_expected.filter(|_| wake.ready_at.is_none()).map(left),
        ready_by: wake.at + idle.times.cold_start_timeout,
    })
}

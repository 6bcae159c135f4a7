//! Dropping a cluster. Its strategies and their state go with it; the rows of its actions stay.

use super::actions::{Action, ActionStatus, Report};
use super::operations::{FailureReason, OperationEnd};
use super::rejection::ScalingRejection;
use crate::access::commands as access;
use crate::configured::commands as configured;
use crate::decide::Moment;
use crate::{Event, Rejection, Revision, State, clusters};

/// Whether what still runs keeps the cluster from being dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Restrict,
    /// Its replicas are left to whoever finds them, and what was called is still waited for.
    Cascade,
}

pub(crate) fn drop_cluster(
    state: &State,
    at: Moment,
    name: &str,
    etag: Option<Revision>,
    allow_missing: bool,
    removal: Removal,
) -> Result<Vec<Event>, Rejection> {
    let dropped = clusters::drop(&state.clusters, name, etag, allow_missing)?;
    let Some(Event::ClusterDropped { cluster }) = dropped.first() else { return Ok(dropped) };
    let record = state.scaling.record(cluster.id);
    let operation = record.and_then(|record| record.operation.as_deref());
    let actions: Vec<&Action> = operation
        .iter()
        .flat_map(|operation| &operation.units)
        .filter_map(|unit| state.scaling.actions.get(unit.action?))
        .map(AsRef::as_ref)
        .collect();
    let replicas = record.map_or(0, |record| record.signals.replicas.len() as u64);
    let unsettled = actions.iter().filter(|action| action.status.is_in_flight()).count() as u64;
    if removal == Removal::Restrict && (replicas > 0 || unsettled > 0) {
        return Err(ScalingRejection::ClusterInUse { cluster: cluster.name.clone(), replicas, unsettled }.into());
    }

    let mut events = Vec::new();
    // What was claimed may have been called: it stays until its outcome is known.
    for action in actions.into_iter().filter(|action| !action.status.is_in_flight()) {
        let action = Action { settled_at: Some(at.now), ..action.with(ActionStatus::Obsolete) };
        events.push(Event::ActionSettled { action: Box::new(action), report: Report::Nothing });
    }
    if let Some(operation) = operation {
        let end = OperationEnd::Failed(FailureReason::ClusterDropped);
        events.push(Event::OperationEnded { operation: operation.clone(), end });
    }
    let own = state.scaling.strategies.of_cluster(cluster.id);
    events.extend(own.map(|strategy| Event::StrategyDropped { strategy: strategy.clone() }));
    access::cluster_goes(state, at, cluster.id, &mut events);
    configured::cluster_goes(state, cluster.id, &mut events);
    events.extend(dropped);
    Ok(events)
}

//! What a restored backup means for scaling.
//!
//! Strategies, what they remember and pauses come from the backup. Replicas and signals come from whoever saw them last: if
//! we know the cluster, that is us. What was under way belongs to the life that ends here and is not carried over.

use serde::{Deserialize, Serialize};

use super::actions::{Action, ActionStatus, Report};
use super::floor::Override;
use super::idle::IdleRecord;
use super::operations::{FailureReason, OperationEnd};
use super::pause::Pause;
use crate::configuration::StrategyKind;
use crate::configuration::stored::Strategy;
use crate::decide::Moment;
use crate::signals::Signals;
use crate::strategies::StrategyState;
use crate::{Cluster, Event, State};

/// What is known about a cluster after a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredKnowledge {
    pub signals: Signals,
    /// By the number of the kind.
    #[serde(with = "crate::strategies::by_kind")]
    pub states: [Option<StrategyState>; StrategyKind::COUNT],
    pub pause: Option<Pause>,
    /// What the backup knew of idle days, wakes and starts.
    pub idle: Option<IdleRecord>,
    pub floor: Option<Override>,
}

/// What ends before the backup is put in place.
pub(crate) fn endings(state: &State, backup: &State, at: Moment, events: &mut Vec<Event>) {
    for action in state.scaling.actions.iter() {
        let status = match action.status.is_in_flight() {
            true => ActionStatus::Abandoned,
            false => ActionStatus::Obsolete,
        };
        let action = Action { settled_at: Some(at.now), ..action.with(status) };
        events.push(Event::ActionSettled { action: Box::new(action), report: Report::Nothing });
    }
    for operation in state.operations() {
        let end = OperationEnd::Failed(FailureReason::Restored);
        events.push(Event::OperationEnded { operation: operation.clone(), end });
    }
    let gone = state.scaling.strategies.iter().filter(|ours| backup.scaling.strategies.get(ours.id).is_none());
    events.extend(gone.map(|ours| Event::StrategyDropped { strategy: ours.clone() }));
}

/// What comes in after the clusters of the backup are there.
pub(crate) fn beginnings(state: &State, backup: &State, at: Moment, events: &mut Vec<Event>) {
    for strategy in backup.scaling.strategies.iter() {
        let strategy = Strategy { updated: at.revision_of(events.len()), ..strategy.clone() };
        events.push(Event::StrategyRestored { strategy });
    }
    for cluster in backup.clusters.after(None) {
        let knowledge = knowledge(state, backup, cluster);
        if knowledge != RestoredKnowledge::default() {
            events.push(Event::ClusterKnowledgeRestored { cluster: cluster.id, knowledge: Box::new(knowledge) });
        }
    }
}

fn knowledge(state: &State, backup: &State, cluster: &Cluster) -> RestoredKnowledge {
    let theirs = backup.scaling.record(cluster.id);
    // Another group may have given the same id to another cluster.
    let is_ours = state.clusters.by_id(cluster.id).is_some_and(|ours| ours.created_at == cluster.created_at);
    let seen_last = if is_ours { state.scaling.record(cluster.id) } else { theirs };
    RestoredKnowledge {
        signals: seen_last.map(|record| record.signals.clone()).unwrap_or_default(),
        states: theirs.map(|record| record.states.clone().map(|state| state.map(|it| *it))).unwrap_or_default(),
        pause: theirs.and_then(|record| record.pause.as_deref().cloned()),
        idle: theirs.and_then(|record| record.idle.as_deref().cloned()),
        floor: theirs.and_then(|record| record.floor.as_deref().cloned()),
    }
}

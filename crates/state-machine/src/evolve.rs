//! What an event does to the state. Evolving writes and may not refuse: the event has happened.

use std::sync::Arc;

use loadline_mutants::Mutant;

use crate::access::Roles;
use crate::clusters::Clusters;
use crate::configured::ConfiguredSignals;
use crate::nodes::{Leader, Nodes};
use crate::restore::Staging;
use crate::scaling::checkpoints;
use crate::scaling::evolve as scaling;
use crate::scaling::idle;
use crate::settings::{SettingRow, Settings};
use crate::sizes::Sizes;
use crate::{Event, Planned, State};

pub(crate) fn evolve(state: &mut State, event: &Event) {
    match event {
        Event::LeaderAnnounced { node, term, epoch } => {
            state.incarnation = epoch.incarnation;
            state.leader = Some(Leader { node: *node, term: *term, announced: epoch.index });
            if Mutant::BrakesReleasedAtFailover.is_on() {
                scaling::brakes_released(state);
            }
        }
        Event::RulesRaised { to, .. } => state.rules = *to,
        Event::NodeAdmitted { node, .. } => state.nodes.highest = node.0,
        Event::GroupFounded { nodes } => {
            // A restore may have brought higher numbers before.
            state.nodes = Nodes { founding: *nodes, highest: state.nodes.highest.max(*nodes) };
        }

        Event::SizeCreated { size } | Event::SizeChanged { size, .. } | Event::SizeRestored { size } => {
            state.sizes.put(size);
        }
        Event::SizeDropped { size } => state.sizes.remove(&size.name),

        Event::ClusterCreated { cluster } | Event::ClusterRestored { cluster } => {
            state.clusters.put(cluster);
            state.scaling.cluster_renamed(None, Some(&cluster.name));
        }
        Event::ClusterRenamed { from, cluster } => {
            state.clusters.put(cluster);
            state.scaling.cluster_renamed(Some(from), Some(&cluster.name));
        }
        Event::ClusterPlaced { cluster, backend } => {
            state.clusters.put(cluster);
            state.clusters.place(cluster.id, backend.clone());
        }
        Event::ClusterDropped { cluster } => {
            state.clusters.remove(cluster.id);
            state.scaling.cluster_renamed(Some(&cluster.name), None);
            state.scaling.remove_cluster(cluster.id);
        }

        Event::SettingSet { name, value, updated } => {
            state.settings.put(name, SettingRow { value: Some(value.clone()), updated: *updated });
        }
        Event::SettingReset { name, updated } => {
            state.settings.put(name, SettingRow { value: None, updated: *updated });
        }
        Event::SettingRestored { name, value, updated } => {
            state.settings.put(name, SettingRow { value: value.clone(), updated: *updated });
        }

        Event::RestoreBegun { restore, bytes_total, hash } => {
            state.restore = Some(Arc::new(Staging::begin(*restore, *bytes_total, *hash, state.now)));
        }
        Event::RestoreChunkStored { offset, bytes, .. } => {
            if let Some(staging) = &mut state.restore {
                Arc::make_mut(staging).store(*offset, bytes, state.now);
            }
        }
        Event::RestoreFinished { incarnation, nodes, .. } => {
            state.restore = None;
            state.incarnation = *incarnation;
            state.nodes.highest = *nodes;
            state.sizes = Sizes::default();
            state.clusters = Clusters::default();
            state.settings = Settings::default();
            state.roles = Roles::default();
            state.signals = ConfiguredSignals::default();
            state.scaling.forget_all_clusters();
        }
        Event::RestoreAborted { .. } => state.restore = None,
        Event::ClusterKnowledgeRestored { cluster, knowledge } => {
            scaling::knowledge_restored(state, *cluster, knowledge);
        }

        Event::StrategyCreated { strategy }
        | Event::StrategyChanged { strategy, .. }
        | Event::StrategyRestored { strategy } => {
            scaling::strategy_put(state, strategy);
        }
        Event::StrategyDropped { strategy } => scaling::strategy_dropped(state, strategy),
        Event::StrategyFaulted { .. } => {}
        Event::StrategyStateSet { cluster, kind, state: remembered } => {
            state.scaling.record_mut(*cluster).states[kind.slot()] = remembered.clone().map(Box::new);
            idle::settle_in(state, *cluster);
        }

        Event::CourseNoted { cluster, strategy, kind, noted } => {
            scaling::course_noted(state, *cluster, *strategy, *kind, noted);
        }

        Event::SignalsReported { collector, sequence, cluster, observations } => {
            scaling::signals_reported(state, collector, *sequence, *cluster, observations);
        }
        Event::CollectorHeard { collector, sequence } => scaling::collector_heard(state, collector, *sequence),
        Event::ClusterPaused { cluster, pause } => {
            state.scaling.record_mut(*cluster).pause = Some(Box::new(pause.clone()));
        }
        Event::ClusterResumed { cluster, .. } => state.scaling.record_mut(*cluster).pause = None,
        Event::ReplicaAsked { cluster, asked } => state.scaling.record_mut(*cluster).asked.push(Planned::clone(asked)),
        Event::ClusterWoken { cluster, wake } => {
            let now = state.now;
            state.scaling.record_mut(*cluster).idle_mut(now).wake = Some(*wake);
        }
        Event::ClusterOverridden { cluster, floor } => {
            state.scaling.record_mut(*cluster).floor = Some(Box::new(floor.clone()));
        }
        Event::OverrideEnded { cluster, .. } => state.scaling.record_mut(*cluster).floor = None,
        Event::BackendDescribed { backend, checkpoints } => {
            checkpoints::described(&mut state.scaling, backend, *checkpoints);
        }
        Event::DecisionMade { decision } => scaling::decision_made(state, decision),

        Event::ActionPlanned { action }
        | Event::ActionApproved { action }
        | Event::ActionReturned { action }
        | Event::ActionUnsure { action }
        | Event::ActionHurried { action } => state.scaling.actions.put(action),
        Event::ActionClaimed { action } => scaling::action_claimed(state, action),
        Event::ActionSettled { action, report } => scaling::action_settled(state, action, report),
        Event::DeadLetterCleared { action, .. } => scaling::dead_letter_cleared(state, action),
        Event::ActionRowsDeleted { cluster, numbers } => scaling::action_rows_deleted(state, *cluster, numbers),
        Event::OperationBegun { operation } | Event::OperationAdvanced { operation } => {
            scaling::operation_put(state, operation);
        }
        Event::OperationEnded { operation, end } => scaling::operation_ended(state, operation, *end),

        Event::RoleCreated { role }
        | Event::RoleChanged { role }
        | Event::UsageGranted { role, .. }
        | Event::UsageRevoked { role, .. }
        | Event::TokenCreated { role, .. }
        | Event::TokenDropped { role, .. }
        | Event::RoleRestored { role } => state.roles.put(role),
        Event::RoleDropped { role } => state.roles.remove(&role.name),

        Event::SignalCreated { signal } | Event::SignalChanged { signal, .. } | Event::SignalRestored { signal } => {
            state.signals.put(signal);
        }
        Event::SignalDropped { signal } => state.signals.remove(&signal.name),
        Event::SignalFailed { signal, error } => state.signals.failed(signal, error, state.now),
    }
}

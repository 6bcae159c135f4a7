//! What an event does to the state. Evolving writes and may not refuse: the event has happened.

use std::sync::Arc;

use crate::clusters::Clusters;
use crate::nodes::{Leader, Nodes};
use crate::restore::Staging;
use crate::settings::{SettingRow, Settings};
use crate::sizes::Sizes;
use crate::{Event, State};

pub(crate) fn evolve(state: &mut State, event: &Event) {
    match event {
        Event::LeaderAnnounced { node, term, epoch } => {
            state.incarnation = epoch.incarnation;
            state.leader = Some(Leader { node: *node, term: *term, announced: epoch.index });
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

        Event::ClusterCreated { cluster }
        | Event::ClusterRenamed { cluster, .. }
        | Event::ClusterRestored { cluster } => state.clusters.put(cluster),
        Event::ClusterDropped { cluster } => state.clusters.remove(cluster.id),

        Event::SettingSet { name, value, updated } => {
            state.settings.put(name, SettingRow { value: Some(*value), updated: *updated });
        }
        Event::SettingReset { name, updated } => {
            state.settings.put(name, SettingRow { value: None, updated: *updated });
        }
        Event::SettingRestored { name, value, updated } => {
            state.settings.put(name, SettingRow { value: *value, updated: *updated });
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
        }
        Event::RestoreAborted { .. } => state.restore = None,
    }
}

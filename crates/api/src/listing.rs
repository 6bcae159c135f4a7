//! Resources in the order in which they are listed and watched, a bounded number at a time.

use loadline_state_machine as domain;
use loadline_state_machine::{ActionId, ClusterId, OperationId, ResourceKind, State, StrategyId};

use crate::resource;
use crate::v1::Resource;

/// Up to `count` resources after a position, each with its own position: sizes by rank, clusters, settings, roles and signals by name, the
/// latest decisions by the names of their clusters, the rest by age. Nothing if the position is none of this kind.
pub fn rows(state: &State, kind: ResourceKind, after: Option<&str>, count: usize) -> Option<Vec<(String, Resource)>> {
    Some(match kind {
        ResourceKind::Size => {
            let after: Option<u32> = after.map(str::parse).transpose().ok()?;
            let rest = state.sizes().filter(|size| after.is_none_or(|after| size.rank > after));
            rest.take(count).map(|size| (size.rank.to_string(), size.into())).collect()
        }
        ResourceKind::Cluster => {
            let rest = state.clusters_after(after);
            let shown = |it| resource(&domain::Resource::Cluster(state.cluster_view(it)), state);
            rest.take(count).map(|cluster| (cluster.name.clone(), shown(cluster))).collect()
        }
        ResourceKind::Setting => {
            let mut settings = state.settings();
            settings.sort_by(|a, b| a.name.cmp(&b.name));
            settings.retain(|setting| after.is_none_or(|after| setting.name.as_str() > after));
            settings.iter().take(count).map(|setting| (setting.name.clone(), setting.into())).collect()
        }
        ResourceKind::Strategy => {
            let after: Option<StrategyId> = after.map(str::parse).transpose().ok()?;
            let rest = state.strategies().filter(|it| after.is_none_or(|after| it.id > after)).take(count);
            let shown = |it: &domain::Strategy| resource(&domain::Resource::Strategy(it.clone()), state);
            rest.map(|it| (it.id.to_string(), shown(it))).collect()
        }
        ResourceKind::Decision => {
            let decided = |id: ClusterId| state.decision_by_id(id).map(Box::new);
            let shown = |it| resource(&domain::Resource::Decision(it), state);
            let rest = state.clusters_after(after);
            rest.filter_map(|it| Some((it.name.clone(), shown(decided(it.id)?)))).take(count).collect()
        }
        ResourceKind::Operation => {
            let after: Option<OperationId> = after.map(str::parse).transpose().ok()?;
            let mut rest: Vec<_> = state.operations().filter(|it| after.is_none_or(|after| it.id > after)).collect();
            // They are kept by cluster.
            rest.sort_by_key(|it| it.id);
            let shown = |it: &domain::Operation| resource(&domain::Resource::Operation(Box::new(it.clone())), state);
            rest.into_iter().take(count).map(|it| (it.id.to_string(), shown(it))).collect()
        }
        ResourceKind::Action => {
            let after: Option<ActionId> = after.map(str::parse).transpose().ok()?;
            let rest = state.actions().filter(|it| after.is_none_or(|after| it.id > after)).take(count);
            let shown = |it: &domain::Action| resource(&domain::Resource::Action(Box::new(it.clone())), state);
            rest.map(|it| (it.id.to_string(), shown(it))).collect()
        }
        ResourceKind::Signal => {
            let names = state.signals_after(after).take(count).map(|signal| signal.name.to_string());
            let shown = |it| resource(&domain::Resource::Signal(Box::new(it)), state);
            names.filter_map(|name| Some((name.clone(), shown(state.signal_view(&name)?)))).collect()
        }
        ResourceKind::Role => {
            let shown = |it: &domain::Role| resource(&domain::Resource::Role(it.view()), state);
            state.roles_after(after).take(count).map(|it| (it.name.clone(), shown(it))).collect()
        }
    })
}

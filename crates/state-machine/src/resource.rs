//! What a user can get and watch: one name space of sizes, clusters, settings, roles and what scaling makes, and how events change it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::ParseIdError;
use crate::settings::{self, SettingView};
use crate::{
    Action, ActionId, ClusterId, ClusterView, Decision, Event, Operation, OperationId, Rejection, Revision, RoleView,
    Signal, SignalStanding, SignalView, Size, Strategy, StrategyId,
};

/// New kinds go at the end: the place is the number in stored receipts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceKind {
    Size,
    Cluster,
    Setting,
    Strategy,
    /// The latest decision about a cluster, under the id of that cluster.
    Decision,
    /// Only while it is under way.
    Operation,
    /// Only until it is settled.
    Action,
    Role,
    Signal,
}

impl ResourceKind {
    pub const ALL: &'static [Self] = &[
        Self::Size,
        Self::Cluster,
        Self::Setting,
        Self::Strategy,
        Self::Decision,
        Self::Operation,
        Self::Action,
        Self::Role,
        Self::Signal,
    ];

    /// As in a resource name: "clusters".
    pub fn plural(self) -> &'static str {
        match self {
            Self::Size => "sizes",
            Self::Cluster => "clusters",
            Self::Setting => "settings",
            Self::Strategy => "strategies",
            Self::Decision => "decisions",
            Self::Operation => "operations",
            Self::Action => "actions",
            Self::Role => "roles",
            Self::Signal => "signals",
        }
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural())
    }
}

impl FromStr for ResourceKind {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.iter().copied().find(|kind| kind.plural() == text).ok_or_else(|| {
            let expected = "sizes, clusters, settings, strategies, decisions, operations, actions, roles or signals";
            ParseIdError::new("kind of resource", text, expected)
        })
    }
}

/// The name of a resource among all resources: "clusters/demo".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResourceName {
    pub kind: ResourceKind,
    pub name: String,
}

impl ResourceName {
    pub fn size(name: impl Into<String>) -> Self {
        Self { kind: ResourceKind::Size, name: name.into() }
    }

    pub fn cluster(name: impl Into<String>) -> Self {
        Self { kind: ResourceKind::Cluster, name: name.into() }
    }

    pub fn setting(name: impl Into<String>) -> Self {
        Self { kind: ResourceKind::Setting, name: name.into() }
    }

    pub fn strategy(id: StrategyId) -> Self {
        Self { kind: ResourceKind::Strategy, name: id.to_string() }
    }

    /// The latest decision about this cluster.
    pub fn decision(cluster: ClusterId) -> Self {
        Self { kind: ResourceKind::Decision, name: cluster.to_string() }
    }

    pub fn operation(id: OperationId) -> Self {
        Self { kind: ResourceKind::Operation, name: id.to_string() }
    }

    pub fn role(name: impl Into<String>) -> Self {
        Self { kind: ResourceKind::Role, name: name.into() }
    }

    pub fn signal(name: impl Into<String>) -> Self {
        Self { kind: ResourceKind::Signal, name: name.into() }
    }

    pub fn action(id: ActionId) -> Self {
        Self { kind: ResourceKind::Action, name: id.to_string() }
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl FromStr for ResourceName {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdError::new("resource name", text, "KIND/NAME, as in clusters/demo");
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        if name.is_empty() || name.contains('/') {
            return Err(wrong());
        }
        Ok(Self { kind: kind.parse().map_err(|_| wrong())?, name: name.to_owned() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    Size(Size),
    Cluster(ClusterView),
    Setting(SettingView),
    Strategy(Strategy),
    Decision(Box<Decision>),
    Operation(Box<Operation>),
    Action(Box<Action>),
    Role(RoleView),
    Signal(Box<SignalView>),
}

impl Resource {
    pub fn name(&self) -> ResourceName {
        match self {
            Self::Size(size) => ResourceName::size(&size.name),
            Self::Cluster(shown) => ResourceName::cluster(&shown.cluster.name),
            Self::Setting(setting) => ResourceName::setting(&setting.name),
            Self::Strategy(strategy) => ResourceName::strategy(strategy.id),
            Self::Decision(decision) => ResourceName::decision(decision.cluster),
            Self::Operation(operation) => ResourceName::operation(operation.id),
            Self::Action(action) => ResourceName::action(action.id),
            Self::Role(role) => ResourceName::role(&role.name),
            Self::Signal(shown) => ResourceName::signal(&*shown.signal.name),
        }
    }

    /// Nothing for a setting that nobody has ever set, and for what cannot be changed by hand.
    pub fn etag(&self) -> Option<Revision> {
        match self {
            Self::Size(size) => Some(size.updated),
            Self::Cluster(shown) => Some(shown.cluster.updated),
            Self::Setting(setting) => setting.updated,
            Self::Strategy(strategy) => Some(strategy.updated),
            Self::Role(role) => Some(role.updated),
            Self::Signal(shown) => Some(shown.signal.updated),
            Self::Decision(_) | Self::Operation(_) | Self::Action(_) => None,
        }
    }
}

/// One resource after a change; without a resource, it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceChange {
    pub name: ResourceName,
    pub resource: Option<Resource>,
}

impl ResourceChange {
    fn put(resource: Resource) -> Self {
        Self { name: resource.name(), resource: Some(resource) }
    }

    fn gone(name: ResourceName) -> Self {
        Self { name, resource: None }
    }
}

/// What the events of one entry mean to somebody who watches resources, in the order in which it happened.
///
/// A setting is never gone: reset, it shows its default again. A decision goes with its cluster, without a word.
pub fn resource_changes(events: &[Event]) -> Vec<ResourceChange> {
    let mut changes = Vec::new();
    for event in events {
        match event {
            Event::SizeCreated { size } | Event::SizeChanged { size, .. } | Event::SizeRestored { size } => {
                changes.push(ResourceChange::put(Resource::Size(size.clone())));
            }
            Event::SizeDropped { size } => changes.push(ResourceChange::gone(ResourceName::size(&size.name))),
            // Where one lives that was renamed or restored is said by the event that follows.
            Event::ClusterCreated { cluster } | Event::ClusterRestored { cluster } => {
                changes.push(ResourceChange::put(Resource::Cluster(cluster.clone().into())));
            }
            Event::ClusterRenamed { from, cluster } => {
                changes.push(ResourceChange::gone(ResourceName::cluster(from)));
                changes.push(ResourceChange::put(Resource::Cluster(cluster.clone().into())));
            }
            Event::ClusterPlaced { cluster, backend } => {
                let placed = ClusterView { cluster: cluster.clone(), backend: backend.clone() };
                changes.push(ResourceChange::put(Resource::Cluster(placed)));
            }
            Event::ClusterDropped { cluster } => {
                changes.push(ResourceChange::gone(ResourceName::cluster(&cluster.name)));
            }
            Event::SettingSet { name, value, updated } => {
                changes.extend(
                    settings::view(name, Some(value), Some(*updated)).map(Resource::Setting).map(ResourceChange::put),
                );
            }
            Event::SettingReset { name, updated } => {
                changes
                    .extend(settings::view(name, None, Some(*updated)).map(Resource::Setting).map(ResourceChange::put));
            }
            Event::SettingRestored { name, value, updated } => {
                changes.extend(
                    settings::view(name, value.as_ref(), Some(*updated))
                        .map(Resource::Setting)
                        .map(ResourceChange::put),
                );
            }
            Event::StrategyCreated { strategy }
            | Event::StrategyChanged { strategy, .. }
            | Event::StrategyRestored { strategy } => {
                changes.push(ResourceChange::put(Resource::Strategy(strategy.clone())));
            }
            Event::StrategyDropped { strategy } => {
                changes.push(ResourceChange::gone(ResourceName::strategy(strategy.id)));
            }
            Event::DecisionMade { decision } => {
                changes.push(ResourceChange::put(Resource::Decision(decision.clone())));
            }
            Event::OperationBegun { operation } | Event::OperationAdvanced { operation } => {
                changes.push(ResourceChange::put(Resource::Operation(Box::new(operation.clone()))));
            }
            Event::OperationEnded { operation, .. } => {
                changes.push(ResourceChange::gone(ResourceName::operation(operation.id)));
            }
            Event::ActionPlanned { action }
            | Event::ActionApproved { action }
            | Event::ActionClaimed { action }
            | Event::ActionReturned { action }
            | Event::ActionUnsure { action }
            | Event::ActionHurried { action } => {
                changes.push(ResourceChange::put(Resource::Action(action.clone())));
            }
            Event::ActionSettled { action, .. } => {
                changes.push(ResourceChange::gone(ResourceName::action(action.id)));
            }
            Event::RoleCreated { role }
            | Event::RoleChanged { role }
            | Event::UsageGranted { role, .. }
            | Event::UsageRevoked { role, .. }
            | Event::TokenCreated { role, .. }
            | Event::TokenDropped { role, .. }
            | Event::RoleRestored { role } => changes.push(ResourceChange::put(Resource::Role(role.view()))),
            Event::RoleDropped { role } => changes.push(ResourceChange::gone(ResourceName::role(&role.name))),
            // What came of it is not known here; whoever shows it looks that up.
            Event::SignalCreated { signal }
            | Event::SignalChanged { signal, .. }
            | Event::SignalRestored { signal } => {
                changes.push(ResourceChange::put(Resource::Signal(Box::new(configured(signal)))));
            }
            Event::SignalDropped { signal } => {
                changes.push(ResourceChange::gone(ResourceName::signal(&*signal.name)));
            }
            Event::SignalFailed { .. }
            | Event::StrategyFaulted { .. }
            | Event::StrategyStateSet { .. }
            | Event::CourseNoted { .. }
            | Event::DeadLetterCleared { .. }
            | Event::ActionRowsDeleted { .. }
            | Event::SignalsReported { .. }
            | Event::CollectorHeard { .. }
            | Event::ClusterPaused { .. }
            | Event::ClusterResumed { .. }
            | Event::ClusterWoken { .. }
            | Event::ClusterOverridden { .. }
            | Event::OverrideEnded { .. }
            | Event::BackendDescribed { .. }
            | Event::ReplicaAsked { .. }
            | Event::ClusterKnowledgeRestored { .. }
            | Event::LeaderAnnounced { .. }
            | Event::RulesRaised { .. }
            | Event::NodeAdmitted { .. }
            | Event::GroupFounded { .. }
            | Event::RestoreBegun { .. }
            | Event::RestoreChunkStored { .. }
            | Event::RestoreFinished { .. }
            | Event::RestoreAborted { .. } => {}
        }
    }
    changes
}

fn configured(signal: &Signal) -> SignalView {
    SignalView { signal: signal.clone(), standing: SignalStanding::default(), freshness: None }
}

/// An etag that was given must be the current one.
pub(crate) fn check_etag(
    resource: impl FnOnce() -> ResourceName,
    given: Option<Revision>,
    current: Option<Revision>,
) -> Result<(), Rejection> {
    match given {
        Some(given) if Some(given) != current => Err(Rejection::EtagMismatch { resource: resource(), given, current }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_name_is_read_back_as_it_was_written() {
        for name in [ResourceName::size("25cc"), ResourceName::cluster("demo"), ResourceName::setting("request_window")]
        {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert_eq!(ResourceName::cluster("demo").to_string(), "clusters/demo");
        for wrong in ["", "demo", "clusters/", "cluster/demo", "/demo", "clusters/a/b", "clusters"] {
            assert!(wrong.parse::<ResourceName>().is_err(), "{wrong:?} must not be a resource name");
        }
    }
}

//! What the system believes: the tables, and how one reads them.
//!
//! Every table is persistent, so cloning a state is O(1) however much it holds. A read, a transaction, a snapshot and a
//! what-if are all clones, and none of them stops [`crate::apply`].
//!
//! Not here: how it changes (`decide`, `evolve`, `apply`) and how it becomes bytes (`state_encoding`).

use std::fmt;
use std::sync::Arc;

use crate::access::Roles;
use crate::chain::CHECKPOINT_EVERY;
use crate::clusters::Clusters;
use crate::configured::ConfiguredSignals;
use crate::nodes::{Leader, Nodes};
use crate::requests::Requests;
use crate::restore::Staging;
use crate::rules::RULES_VERSION_FIRST;
use crate::scaling::Scaling;
use crate::settings::{DEFAULT_BACKEND, Settings};
use crate::sizes::Sizes;
use crate::table::Table;
use crate::{
    Cluster, ClusterId, ClusterView, Epoch, Hash, LogIndex, Resource, ResourceKind, ResourceName, RulesVersion,
    SettingView, Size, Time, Whereabouts,
};

/// The whole state. It changes only through [`crate::apply`] and [`crate::pass`].
#[derive(Clone, PartialEq, Eq)]
pub struct State {
    pub(crate) applied: LogIndex,
    pub(crate) hash: Hash,
    pub(crate) checkpoints: Table<LogIndex, Hash>,
    pub(crate) now: Time,
    pub(crate) rules: RulesVersion,
    /// Which life of the group; 0 before the first leader was announced.
    pub(crate) incarnation: u64,
    pub(crate) leader: Option<Leader>,
    pub(crate) nodes: Nodes,
    pub(crate) sizes: Sizes,
    pub(crate) clusters: Clusters,
    pub(crate) settings: Settings,
    pub(crate) roles: Roles,
    pub(crate) signals: ConfiguredSignals,
    pub(crate) requests: Requests,
    pub(crate) restore: Option<Arc<Staging>>,
    pub(crate) scaling: Scaling,
}

impl State {
    /// Before the first entry.
    pub fn new() -> Self {
        Self {
            applied: LogIndex(0),
            hash: Hash::default(),
            checkpoints: Table::new(),
            now: Time::default(),
            rules: RULES_VERSION_FIRST,
            incarnation: 0,
            leader: None,
            nodes: Nodes::default(),
            sizes: Sizes::default(),
            clusters: Clusters::default(),
            settings: Settings::default(),
            roles: Roles::default(),
            signals: ConfiguredSignals::default(),
            requests: Requests::default(),
            restore: None,
            scaling: Scaling::default(),
        }
    }

    /// True before the first entry: no chain of entries hashes to nothing.
    pub(crate) fn is_new(&self) -> bool {
        self.hash == Hash::default()
    }

    /// The index of the last entry in this state; 0 also before the first.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// The hash chain over all entries up to `applied`.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Logical time: that of the last entry, or of an earlier one that was ahead of it.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The leadership that was announced last; nothing before the first.
    pub fn epoch(&self) -> Option<Epoch> {
        self.leader.map(|leader| Epoch { incarnation: self.incarnation, index: leader.announced })
    }

    /// The leader that was announced last.
    pub fn leader(&self) -> Option<Leader> {
        self.leader
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    pub fn rules(&self) -> RulesVersion {
        self.rules
    }

    /// From the smallest to the largest.
    pub fn sizes(&self) -> impl Iterator<Item = &Size> {
        self.sizes.ladder()
    }

    pub fn size(&self, name: &str) -> Option<&Size> {
        self.sizes.get(name)
    }

    pub fn size_count(&self) -> usize {
        self.sizes.len()
    }

    /// By name, from the first name after `name`: the next page of a listing. Without it, from the beginning.
    pub fn clusters_after(&self, name: Option<&str>) -> impl Iterator<Item = &Cluster> {
        self.clusters.after(name)
    }

    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.get(name)
    }

    pub fn cluster_by_id(&self, id: ClusterId) -> Option<&Cluster> {
        self.clusters.by_id(id)
    }

    /// With where it lives, if it says so itself.
    pub fn cluster_view(&self, cluster: &Cluster) -> ClusterView {
        self.clusters.view(cluster)
    }

    /// Where its replicas live: where it says so itself, else where the setting `default_backend` says. Nothing: nobody has
    /// said so, or there is no such cluster.
    pub fn backend_of(&self, id: ClusterId) -> Option<&str> {
        self.clusters.by_id(id)?;
        self.clusters.backend(id).map(AsRef::as_ref).or_else(|| self.default_backend())
    }

    /// Which clusters there are and where they live, as far as that can be compared later.
    pub fn whereabouts(&self) -> Whereabouts {
        self.clusters.whereabouts(self.default_backend())
    }

    /// Where the replicas of those live that do not say so themselves.
    pub fn default_backend(&self) -> Option<&str> {
        self.settings.name(&DEFAULT_BACKEND)
    }

    pub fn cluster_count(&self) -> usize {
        self.clusters.len()
    }

    /// Every setting there is, by name, set or not.
    pub fn settings(&self) -> Vec<SettingView> {
        self.settings.views(self.rules)
    }

    pub fn setting(&self, name: &str) -> Option<SettingView> {
        self.settings.view(self.rules, name)
    }

    pub fn resource(&self, name: &ResourceName) -> Option<Resource> {
        match name.kind {
            ResourceKind::Size => self.size(&name.name).cloned().map(Resource::Size),
            ResourceKind::Cluster => self.cluster(&name.name).map(|it| self.clusters.view(it)).map(Resource::Cluster),
            ResourceKind::Setting => self.setting(&name.name).map(Resource::Setting),
            ResourceKind::Strategy => self.strategy(name.name.parse().ok()?).cloned().map(Resource::Strategy),
            ResourceKind::Decision => {
                let id = name.name.parse().ok()?;
                self.decision_by_id(id).map(Box::new).map(Resource::Decision)
            }
            ResourceKind::Operation => {
                self.operation(name.name.parse().ok()?).cloned().map(Box::new).map(Resource::Operation)
            }
            ResourceKind::Action => self.action(name.name.parse().ok()?).cloned().map(Box::new).map(Resource::Action),
            ResourceKind::Role => self.role(&name.name).map(|role| Resource::Role(role.view())),
            ResourceKind::Signal => self.signal_view(&name.name).map(Box::new).map(Resource::Signal),
        }
    }

    /// The last checkpoints, the oldest first: every node has the same hash at the same index, or they have diverged.
    pub fn checkpoints(&self) -> impl Iterator<Item = (LogIndex, Hash)> {
        self.checkpoints.iter().map(|(index, hash)| (*index, *hash))
    }

    /// The hash at this index, if it is a checkpoint that is still known or the last entry.
    pub fn hash_at(&self, index: LogIndex) -> Option<Hash> {
        if index == self.applied && !self.is_new() {
            return Some(self.hash);
        }
        if !index.0.is_multiple_of(CHECKPOINT_EVERY) {
            return None;
        }
        self.checkpoints.get(&index).copied()
    }

    /// How many answers are remembered for clients that ask again.
    pub fn request_count(&self) -> usize {
        self.requests.len()
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Where it stands and how much it holds; the tables themselves would fill pages.
impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("applied", &self.applied)
            .field("hash", &self.hash)
            .field("now", &self.now)
            .field("rules", &self.rules)
            .field("epoch", &self.epoch())
            .field("sizes", &self.size_count())
            .field("clusters", &self.cluster_count())
            .field("roles", &self.role_count())
            .field("signals", &self.signal_count())
            .field("strategies", &self.strategy_count())
            .field("actions", &self.action_count())
            .field("requests", &self.request_count())
            .field("restoring", &self.restore.is_some())
            .finish()
    }
}

//! The clusters, by id and by name. What is known *about* a cluster hangs on its id, so that a rename moves nothing.

use std::ops::Bound;
use std::sync::Arc;

use loadline_mutants::Mutant;
use serde::{Deserialize, Serialize};

use crate::decide::Moment;
use crate::index::{Index, Spread};
use crate::names::check_name;
use crate::resource::check_etag;
use crate::table::{Key, Table};
use crate::{ClusterId, Event, Field, Hash, Rejection, ResourceName, Revision, ScalingRejection, State, Time};

/// A group of compute that is scaled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    pub id: ClusterId,
    pub name: String,
    pub created: Revision,
    /// The etag.
    pub updated: Revision,
    pub created_at: Time,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clusters {
    by_id: Table<ClusterId, Arc<Cluster>>,
    /// To list them.
    by_name: Table<Key, ClusterId>,
    /// To find one: comparing names takes a visit to each of them, and most signals name a cluster.
    by_hash: Index<NameHash, ClusterId>,
    /// Where those live that say so themselves.
    backends: Table<ClusterId, Key>,
}

/// A cluster as a user sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterView {
    pub cluster: Cluster,
    /// Where its replicas live, if it says so itself; else the setting `default_backend` does.
    pub backend: Option<Key>,
}

/// Which clusters there are and where they live, to see later whether that is still so without a walk over all of them.
#[derive(Clone, Debug)]
pub struct Whereabouts {
    by_id: Table<ClusterId, Arc<Cluster>>,
    backends: Table<ClusterId, Key>,
    default_backend: Option<String>,
}

impl Whereabouts {
    /// False may also mean that something was changed and changed back.
    pub fn are(&self, others: &Self) -> bool {
        self.by_id.ptr_eq(&others.by_id)
            && self.backends.ptr_eq(&others.backends)
            && self.default_backend == others.default_backend
    }
}

/// One that says nothing about where it lives.
impl From<Cluster> for ClusterView {
    fn from(cluster: Cluster) -> Self {
        Self { cluster, backend: None }
    }
}

/// Enough of a cryptographic hash that no two names share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NameHash(u128);

impl Spread for NameHash {
    fn spread(&self) -> u64 {
        // Half of a hash is a hash.
        (self.0 >> 64) as u64
    }
}

impl NameHash {
    fn of(name: &str) -> Self {
        let Hash(bytes) = Hash::of(name.as_bytes());
        let mut half = [0; 16];
        half.copy_from_slice(&bytes[..16]);
        Self(u128::from_le_bytes(half))
    }
}

impl Clusters {
    pub(crate) fn get(&self, name: &str) -> Option<&Cluster> {
        self.by_id(self.id(name)?)
    }

    pub(crate) fn by_id(&self, id: ClusterId) -> Option<&Cluster> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    pub(crate) fn id(&self, name: &str) -> Option<ClusterId> {
        self.by_hash.get(&NameHash::of(name)).copied()
    }

    pub(crate) fn name(&self, id: ClusterId) -> Option<&str> {
        self.by_id(id).map(|cluster| cluster.name.as_str())
    }

    /// By name, from the first name after `name`, or from the beginning.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &Cluster> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<_, str>((from, Bound::Unbounded)).filter_map(|(_, id)| self.by_id(*id))
    }

    /// By age, from the first id after `id`, or from the beginning.
    pub(crate) fn ids_after(&self, id: Option<ClusterId>) -> impl Iterator<Item = ClusterId> {
        let from = id.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((from, Bound::Unbounded)).map(|(id, _)| *id)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn whereabouts(&self, default_backend: Option<&str>) -> Whereabouts {
        let (by_id, backends) = (self.by_id.clone(), self.backends.clone());
        Whereabouts { by_id, backends, default_backend: default_backend.map(str::to_owned) }
    }

    /// Where it lives, if it says so itself.
    pub(crate) fn backend(&self, id: ClusterId) -> Option<&Key> {
        self.backends.get(&id)
    }

    pub(crate) fn placements(&self) -> impl Iterator<Item = (&ClusterId, &Key)> {
        self.backends.iter()
    }

    pub(crate) fn view(&self, cluster: &Cluster) -> ClusterView {
        ClusterView { cluster: cluster.clone(), backend: self.backend(cluster.id).cloned() }
    }

    pub(crate) fn place(&mut self, id: ClusterId, backend: Option<Key>) {
        match backend {
            Some(backend) => self.backends.insert(id, backend),
            None => self.backends.remove(&id),
        };
    }

    /// It lives where it lived.
    pub(crate) fn put(&mut self, cluster: &Cluster) {
        self.unlist(cluster.id);
        self.by_name.insert(cluster.name.as_str().into(), cluster.id);
        self.by_hash.insert(NameHash::of(&cluster.name), cluster.id);
        self.by_id.insert(cluster.id, Arc::new(cluster.clone()));
    }

    pub(crate) fn remove(&mut self, id: ClusterId) {
        self.backends.remove(&id);
        self.unlist(id);
    }

    fn unlist(&mut self, id: ClusterId) {
        if let Some(cluster) = self.by_id.remove(&id) {
            self.by_name.remove(cluster.name.as_str());
            self.by_hash.remove(&NameHash::of(&cluster.name));
        }
    }

    /// The id of a cluster made by this event. A backup of another group may have brought an id from an index that this
    /// log reaches only now; then the next ordinal that is free.
    fn allocate(&self, made: Revision) -> ClusterId {
        let mut id = ClusterId::from(made);
        while self.by_id.contains_key(&id) {
            id.ordinal += 1;
        }
        id
    }
}

pub(crate) fn create(clusters: &Clusters, at: Moment, name: &str) -> Result<Vec<Event>, Rejection> {
    check_name(Field::Name, name)?;
    name_is_free(clusters, Field::Name, name)?;
    let cluster = Cluster {
        id: clusters.allocate(at.revision()),
        name: name.to_owned(),
        created: at.revision(),
        updated: at.revision(),
        created_at: at.now,
    };
    Ok(vec![Event::ClusterCreated { cluster }])
}

pub(crate) fn rename(
    clusters: &Clusters,
    at: Moment,
    name: &str,
    to: &str,
    etag: Option<Revision>,
) -> Result<Vec<Event>, Rejection> {
    let before = existing(clusters, name)?;
    check_etag(|| ResourceName::cluster(name), etag, Some(before.updated))?;
    check_name(Field::To, to)?;
    if name == to {
        return Ok(vec![]);
    }
    name_is_free(clusters, Field::To, to)?;
    let cluster = Cluster { name: to.to_owned(), updated: at.revision(), ..before.clone() };
    let backend = clusters.backend(cluster.id).cloned();
    let mut events = vec![Event::ClusterRenamed { from: name.to_owned(), cluster: cluster.clone() }];
    // Said again, so that whoever watches never has half of a cluster.
    if backend.is_some() {
        events.push(Event::ClusterPlaced { cluster, backend });
    }
    Ok(events)
}

/// Says where its replicas live; nothing: wherever the setting `default_backend` says.
pub(crate) fn place(
    state: &State,
    at: Moment,
    name: &str,
    backend: Option<&str>,
    etag: Option<Revision>,
) -> Result<Vec<Event>, Rejection> {
    let before = existing(&state.clusters, name)?;
    check_etag(|| ResourceName::cluster(name), etag, Some(before.updated))?;
    if let Some(backend) = backend {
        check_name(Field::Backend, backend)?;
    }
    if state.clusters.backend(before.id).map(AsRef::as_ref) == backend {
        return Ok(vec![]);
    }
    // What was begun on one backend cannot be gone on with on another: a replica that is drained here is not there.
    let operation = state.scaling.record(before.id).and_then(|record| record.operation.as_deref());
    if let Some(operation) = operation.filter(|operation| operation.has_begun()) {
        let (cluster, operation) = (name.to_owned(), operation.id);
        return Err(ScalingRejection::OperationUnderWay { cluster, operation }.into());
    }
    let cluster = Cluster { updated: at.revision(), ..before.clone() };
    Ok(vec![Event::ClusterPlaced { cluster, backend: backend.map(Key::from) }])
}

pub(crate) fn drop(
    clusters: &Clusters,
    name: &str,
    etag: Option<Revision>,
    allow_missing: bool,
) -> Result<Vec<Event>, Rejection> {
    match existing(clusters, name) {
        Err(Rejection::NotFound { .. }) if allow_missing => Ok(vec![]),
        Err(rejection) => Err(rejection),
        Ok(cluster) => {
            check_etag(|| ResourceName::cluster(name), etag, Some(cluster.updated))?;
            Ok(vec![Event::ClusterDropped { cluster: cluster.clone() }])
        }
    }
}

/// Whether this cluster could stand beside those: what is read from a snapshot or backup was not decided here.
pub(crate) fn is_possible(clusters: &Clusters, cluster: &Cluster) -> bool {
    let ascending = clusters.by_name.get_max().is_none_or(|(last, _)| last.as_ref() < cluster.name.as_str());
    ascending && check_name(Field::Name, &cluster.name).is_ok() && clusters.by_id(cluster.id).is_none()
}

/// Whether this cluster could live there, after all those before.
pub(crate) fn is_possible_place(clusters: &Clusters, id: ClusterId, backend: &str) -> bool {
    let ascending = clusters.backends.get_max().is_none_or(|(last, _)| *last < id);
    ascending && clusters.by_id(id).is_some() && check_name(Field::Backend, backend).is_ok()
}

fn existing<'a>(clusters: &'a Clusters, name: &str) -> Result<&'a Cluster, Rejection> {
    check_name(Field::Name, name)?;
    clusters.get(name).ok_or_else(|| Rejection::NotFound { resource: ResourceName::cluster(name) })
}

fn name_is_free(clusters: &Clusters, field: Field, name: &str) -> Result<(), Rejection> {
    match clusters.get(name) {
        Some(_) if Mutant::DuplicateNames.is_on() => Ok(()),
        Some(taken) => {
            Err(Rejection::AlreadyExists { field, resource: ResourceName::cluster(name), etag: taken.updated })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogIndex;

    fn clusters(count: u64) -> Clusters {
        let mut clusters = Clusters::default();
        for index in 0..count {
            let made = Revision { index: LogIndex(index), ordinal: 0 };
            clusters.put(&Cluster {
                id: made.into(),
                name: format!("c{index}"),
                created: made,
                updated: made,
                created_at: Time::default(),
            });
        }
        clusters
    }

    #[test]
    fn a_fork_shares_everything_until_one_of_the_two_changes() {
        let clusters = clusters(1_000);
        let mut fork = clusters.clone();
        assert!(fork.by_id.ptr_eq(&clusters.by_id) && fork.by_name.ptr_eq(&clusters.by_name));
        let id = fork.get("c7").map(|cluster| cluster.id).expect("it was put there");
        fork.remove(id);
        assert_eq!((fork.len(), clusters.len()), (999, 1_000));
        let untouched = fork.by_id.iter().zip(&clusters.by_id).take(7).all(|(one, other)| Arc::ptr_eq(one.1, other.1));
        assert!(untouched, "rows are shared, not copied");
    }

    #[test]
    fn whereabouts_are_the_same_until_a_cluster_comes_goes_or_moves() {
        let mut clusters = clusters(100);
        let id = clusters.get("c7").map(|cluster| cluster.id).expect("it was put there");
        let here = clusters.whereabouts(Some("here"));
        assert!(here.are(&clusters.clone().whereabouts(Some("here"))));
        assert!(!here.are(&clusters.whereabouts(Some("there"))));
        clusters.place(id, Some("there".into()));
        let moved = clusters.whereabouts(Some("here"));
        assert!(!here.are(&moved) && moved.are(&clusters.whereabouts(Some("here"))));
        clusters.remove(id);
        assert!(!moved.are(&clusters.whereabouts(Some("here"))));
    }
}

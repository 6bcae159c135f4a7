//! What is known about one cluster from outside: its replicas, whether anybody uses it, and who told us.
//!
//! - Here: what is kept, and how fresh it is.
//! - [`replica`]: what is known about one replica.
//! - [`report`]: how collectors tell us, and how what they tell is written down.
//! - [`collectors`]: the collectors themselves, and how far each has been heard. [`shared`]: names that many use.
//!
//! A collector tells how long ago something was, never when: its clock is not ours. What is kept is our own time of it.

pub(crate) mod collectors;
pub(crate) mod replica;
pub(crate) mod report;
pub(crate) mod shared;

use serde::{Deserialize, Serialize};

use crate::sizes::Sizes;
use crate::table::Key;
use crate::{Span, Time};
use replica::Replica;
use shared::SharedNames;

/// Everything that collectors have said about one cluster, as far as it still matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// By name.
    pub replicas: Vec<Replica>,
    pub activity: Option<Activity>,
    /// By name.
    pub metrics: Vec<Metric>,
    /// By name.
    pub collectors: Vec<Heard>,
    /// Replicas that went lately, the oldest first.
    pub gone: Vec<Gone>,
}

/// A replica that went, and when. Sights of it from before then come late and mean nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    pub name: Key,
    pub at: Time,
}

/// Whether anybody uses the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// The last time that somebody did; nothing if the collector has seen nobody.
    pub last_at: Option<Time>,
    /// When the collector looked first and saw nobody since: how long the cluster has been idle at least.
    pub none_since: Time,
    /// When the collector looked last.
    pub as_of: Time,
    pub collector: Key,
}

impl Activity {
    /// Since when nobody has used the cluster.
    pub fn idle_since(&self) -> Time {
        self.last_at.unwrap_or(self.none_since)
    }
}

/// A number that a collector measured, in thousandths.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    pub name: Key,
    pub value_milli: i64,
    pub as_of: Time,
    pub collector: Key,
}

/// The last sign of life of a collector, about this cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    pub collector: Key,
    pub at: Time,
    /// When it last said that nothing had changed: everything it had said until then still held.
    pub confirmed_at: Option<Time>,
}

/// Whether something that was reported can still be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Freshness {
    /// Until this moment, if nothing more is heard.
    FreshUntil(Time),
    /// Since this moment.
    StaleSince(Time),
}

impl Freshness {
    pub(crate) fn of(confirmed_at: Time, now: Time, stale_after: Span) -> Self {
        let until = confirmed_at + stale_after;
        if now > until { Self::StaleSince(until) } else { Self::FreshUntil(until) }
    }

    pub fn is_fresh(self) -> bool {
        matches!(self, Self::FreshUntil(_))
    }
}

/// A cluster has a handful of each, and there are a hundred thousand clusters: room for more is not kept ready.
pub(crate) fn insert_exactly<T>(all: &mut Vec<T>, place: usize, one: T) {
    all.reserve_exact(1);
    all.insert(place, one);
}

/// Mostly there are one or two, and mostly the name is the very one that the replica has: then it need not be read.
pub(crate) fn find_replica<'a>(replicas: &'a [Replica], name: &str) -> Option<&'a Replica> {
    const FEW: usize = 8;
    if replicas.len() <= FEW
        && let Some(same) = replicas.iter().find(|replica| std::ptr::eq::<str>(&*replica.name, name))
    {
        return Some(same);
    }
    let place = replicas.binary_search_by(|replica| replica.name.as_ref().cmp(name)).ok()?;
    replicas.get(place)
}

impl Signals {
    /// Shares every name that others have as well: what was read from a snapshot has its own copy of each.
    pub(crate) fn share_names(&mut self, sizes: &Sizes, names: &mut SharedNames) {
        for replica in &mut self.replicas {
            replica.name = names.key(&replica.name);
            if let Some(size) = sizes.key(&replica.size) {
                replica.size = size;
            }
            if let Some(hydration) = &mut replica.hydration {
                hydration.collector = names.key(&hydration.collector);
            }
        }
        for metric in &mut self.metrics {
            metric.name = names.key(&metric.name);
            metric.collector = names.key(&metric.collector);
        }
        for heard in &mut self.collectors {
            heard.collector = names.key(&heard.collector);
        }
        if let Some(activity) = &mut self.activity {
            activity.collector = names.key(&activity.collector);
        }
    }

    pub fn replica(&self, name: &str) -> Option<&Replica> {
        find_replica(&self.replicas, name)
    }

    pub(crate) fn replica_mut(&mut self, name: &str) -> Option<&mut Replica> {
        let place = self.replicas.binary_search_by(|replica| replica.name.as_ref().cmp(name)).ok()?;
        self.replicas.get_mut(place)
    }

    pub(crate) fn put_replica(&mut self, replica: Replica) {
        match self.replicas.binary_search_by(|known| known.name.cmp(&replica.name)) {
            Ok(place) => self.replicas[place] = replica,
            Err(place) => insert_exactly(&mut self.replicas, place, replica),
        }
    }

    pub(crate) fn remove_replica(&mut self, name: &str) {
        self.replicas.retain(|replica| replica.name.as_ref() != name);
    }

    /// How fresh something is that `collector` saw at `as_of`: as of then, or of when it said that nothing had changed. That
    /// it is alive enough to report something else does not count: it may be blind on one eye.
    pub fn freshness(&self, collector: &str, as_of: Time, now: Time, stale_after: Span) -> Freshness {
        let heard = self.collectors.iter().find(|heard| heard.collector.as_ref() == collector);
        let confirmed_at = heard.and_then(|heard| heard.confirmed_at);
        Freshness::of(confirmed_at.map_or(as_of, |confirmed_at| confirmed_at.max(as_of)), now, stale_after)
    }

    /// How fresh the cluster's best collector is; nothing if none was ever heard.
    pub fn watched(&self, now: Time, stale_after: Span) -> Option<Freshness> {
        let latest = self.collectors.iter().map(|heard| heard.at).max()?;
        Some(Freshness::of(latest, now, stale_after))
    }
}

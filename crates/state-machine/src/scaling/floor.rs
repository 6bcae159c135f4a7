//! An override: for a while, a cluster has at least so many replicas, whatever its strategies say.
//!
//! It is laid over what the strategies want, after the last of them. What they would take away stays; what is missing is brought
//! back if it was suspended, else made, under names of its own (`floor1_auto`). When it ends, by its deadline or by hand, what
//! it made goes, and the strategies have the last word again.
//!
//! It does not lift the other brakes: a pause, the kill switch and the rate limit hold it as they hold the strategies. Cooldowns
//! do not: somebody is waiting.

use serde::{Deserialize, Serialize};

use super::ClusterRecord;
use super::knobs::require_feature;
use super::pause::ResumeReason;
use super::rejection::ScalingRejection;
use crate::decide::Moment;
use crate::names::{check_range, shortened};
use crate::signals::replica::Replica;
use crate::signals::report::REPLICAS_MAX;
use crate::strategies::desired::{Desired, ReplicaSpec};
use crate::strategies::reason::Reason;
use crate::table::Key;
use crate::{Actor, Cluster, Event, Field, Rejection, ResourceName, Revision, Span, State, Time};

/// A month; whoever wants it longer wants a strategy.
const OVERRIDE_MAX: Span = Span::from_days(31);

const MADE_PREFIX: &str = "floor";

/// At least so many replicas, until a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Override {
    pub replicas_min: u32,
    /// Of those that have to be made.
    pub size: Key,
    pub reason: String,
    /// Who wanted it.
    pub by: Key,
    pub since: Time,
    pub expires_at: Time,
    /// The event that began it.
    pub begun: Revision,
}

/// What somebody wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) replicas_min: u32,
    pub(crate) size: Option<&'a str>,
    pub(crate) reason: &'a str,
    pub(crate) expires_in: Span,
}

pub(crate) fn set(
    state: &State,
    at: Moment,
    actor: &Actor,
    cluster: &str,
    wanted: Wanted<'_>,
) -> Result<Vec<Event>, Rejection> {
    require_feature(&state.settings)?;
    let cluster = existing(state, cluster)?;
    check_range(Field::ReplicasMin, wanted.replicas_min.into(), 1, REPLICAS_MAX as u64)?;
    check_range(Field::Expiry, wanted.expires_in.as_millis(), 1, OVERRIDE_MAX.as_millis())?;
    let size = match wanted.size {
        Some(size) => {
            let missing = || Rejection::NotFound { resource: ResourceName::size(shortened(size)) };
            state.sizes.key(size).ok_or_else(missing)?
        }
        None => {
            let unknown = || ScalingRejection::SizeNeeded { cluster: cluster.name.clone() };
            usual_size(state, cluster).ok_or_else(unknown)?
        }
    };
    let floor = Override {
        replicas_min: wanted.replicas_min,
        size,
        reason: shortened(wanted.reason),
        by: shortened(&actor.name).as_str().into(),
        since: at.now,
        expires_at: at.now + wanted.expires_in,
        begun: at.revision(),
    };
    Ok(vec![Event::ClusterOverridden { cluster: cluster.id, floor }])
}

pub(crate) fn clear(state: &State, cluster: &str) -> Result<Vec<Event>, Rejection> {
    require_feature(&state.settings)?;
    let cluster = existing(state, cluster)?;
    let overridden = state.scaling.record(cluster.id).is_some_and(|record| record.floor.is_some());
    let ended = Event::OverrideEnded { cluster: cluster.id, reason: ResumeReason::Asked };
    Ok(if overridden { vec![ended] } else { vec![] })
}

fn existing<'a>(state: &'a State, name: &str) -> Result<&'a Cluster, Rejection> {
    state.cluster(name).ok_or_else(|| Rejection::NotFound { resource: ResourceName::cluster(shortened(name)) })
}

/// The size that a replica of this cluster has: the largest that is there, else the largest that was suspended, else the one
/// that a strategy names.
fn usual_size(state: &State, cluster: &Cluster) -> Option<Key> {
    let rank = |size: &str| state.sizes.get(size).map(|size| size.rank);
    let record = state.scaling.record(cluster.id);
    let there = record.into_iter().flat_map(|record| &record.signals.replicas).map(|replica| &replica.size);
    let taken_away = record.and_then(ClusterRecord::taken_away).unwrap_or_default();
    let largest = |sizes: &mut dyn Iterator<Item = &Key>| {
        let known = sizes.filter(|size| rank(size).is_some());
        known.max_by_key(|size| rank(size)).and_then(|size| state.sizes.key(size))
    };
    let named = || {
        let ruling = state.ruling(cluster.id).into_iter();
        let configurations = ruling.filter_map(|ruled| ruled.strategy.configuration().ok());
        let mut sizes = configurations.filter_map(|it| it.rule.size().and_then(|(_, size)| state.sizes.key(size)));
        sizes.next()
    };
    largest(&mut there.into_iter())
        .or_else(|| largest(&mut taken_away.iter().map(|replica| &replica.size)))
        .or_else(named)
}

/// Lays the override over what the strategies want. `actual` is what is there.
pub(crate) fn apply(record: Option<&ClusterRecord>, actual: &[Replica], desired: &mut Desired, now: Time) {
    let Some(record) = record else { return };
    match record.floor.as_deref().filter(|floor| floor.expires_at > now) {
        Some(floor) => raise(record, floor, actual, desired),
        None => tidy_up(actual, desired),
    }
}

fn raise(record: &ClusterRecord, floor: &Override, actual: &[Replica], desired: &mut Desired) {
    let min = usize::try_from(floor.replicas_min).unwrap_or(usize::MAX);
    let reason = Reason::Overridden { replicas_min: floor.replicas_min, until: floor.expires_at };
    // What is there first: nothing has to be made for it.
    for replica in actual {
        if desired.len() >= min {
            return;
        }
        desired.keep(&ReplicaSpec { name: replica.name.clone(), size: replica.size.clone() });
    }
    for replica in record.taken_away().unwrap_or_default() {
        if desired.len() >= min {
            return;
        }
        desired.add_beyond(replica.clone(), reason.clone());
    }
    let mut number = 1_u32;
    while desired.len() < min {
        let name: Key = format!("{MADE_PREFIX}{number}_auto").as_str().into();
        number = number.saturating_add(1);
        desired.add_beyond(ReplicaSpec { name, size: floor.size.clone() }, reason.clone());
    }
}

/// What an override made goes when it is over.
fn tidy_up(actual: &[Replica], desired: &mut Desired) {
    for replica in actual.iter().filter(|replica| is_made(&replica.name)) {
        desired.remove_beyond(&replica.name, Reason::OverrideOver);
    }
}

/// Whether a replica of this name was made for an override.
pub(crate) fn is_made(name: &str) -> bool {
    let number = name.strip_prefix(MADE_PREFIX).and_then(|rest| rest.strip_suffix("_auto"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

//! Replicas that somebody wants made or dropped, beside the strategies.
//!
//! It is asked for once, not kept: it becomes an operation like any other, under the same claims, keys, rate limit and kill
//! switch, as soon as nothing else is under way on the cluster. Neither a pause nor a cooldown holds it, since both are there
//! to hold the strategies. What a strategy makes of the replica afterwards is for its scope to say: with `ALL` it may go again,
//! with `MANAGED_ONLY` it is not touched, which is why a name that ends as managed ones do is refused.

use super::ClusterRecord;
use super::knobs::require_feature;
use super::plan::{Origin, Planned, Step};
use super::rejection::ScalingRejection;
use crate::configuration::is_managed;
use crate::names::{check_name, shortened};
use crate::strategies::desired::ReplicaSpec;
use crate::strategies::reason::Reason;
use crate::{Actor, Cluster, ClusterId, Event, Field, Rejection, ResourceName, State};

/// What may wait on one cluster. Whoever wants more replicas than that by hand wants a strategy.
const ASKED_MAX: usize = 64;

pub(crate) fn create(
    state: &State,
    actor: &Actor,
    cluster: &str,
    replica: &str,
    size: &str,
    if_not_exists: bool,
) -> Result<Vec<Event>, Rejection> {
    let cluster = open(state, cluster)?;
    check_name(Field::Replica, replica)?;
    if is_managed(replica) {
        return Err(ScalingRejection::NameReserved { replica: replica.to_owned() }.into());
    }
    let Some(size) = state.sizes.key(size) else {
        return Err(Rejection::NotFound { resource: ResourceName::size(shortened(size)) });
    };
    let record = state.scaling.record(cluster.id);
    if record.is_some_and(|record| has(record, replica)) {
        return match if_not_exists {
            true => Ok(vec![]),
            false => {
                let (cluster, replica) = (cluster.name.clone(), replica.to_owned());
                Err(ScalingRejection::ReplicaExists { cluster, replica }.into())
            }
        };
    }
    ask(record, actor, cluster.id, Step::Create(ReplicaSpec { name: replica.into(), size }))
}

pub(crate) fn drop(
    state: &State,
    actor: &Actor,
    cluster: &str,
    replica: &str,
    allow_missing: bool,
) -> Result<Vec<Event>, Rejection> {
    let cluster = match open(state, cluster) {
        Err(Rejection::NotFound { .. }) if allow_missing => return Ok(vec![]),
        other => other?,
    };
    let record = state.scaling.record(cluster.id);
    let Some(seen) = record.and_then(|record| record.signals.replica(replica)) else {
        return match allow_missing {
            true => Ok(vec![]),
            false => {
                let (cluster, replica) = (cluster.name.clone(), shortened(replica));
                Err(ScalingRejection::ReplicaNotFound { cluster, replica }.into())
            }
        };
    };
    // The life that was seen: one made anew under the same name is not meant.
    let step = Step::Drop {
        replica: ReplicaSpec { name: seen.name.clone(), size: seen.size.clone() },
        incarnation: seen.incarnation.clone(),
    };
    if record.is_some_and(|record| goes(record, replica)) {
        return Ok(vec![]);
    }
    ask(record, actor, cluster.id, step)
}

/// A cluster for which something can be asked for.
fn open<'a>(state: &'a State, cluster: &str) -> Result<&'a Cluster, Rejection> {
    require_feature(&state.settings)?;
    // It could only wait, and would come as a surprise when the switch is on again.
    if !state.settings.knobs().acting {
        return Err(ScalingRejection::KillSwitchOff.into());
    }
    state.cluster(cluster).ok_or_else(|| Rejection::NotFound { resource: ResourceName::cluster(shortened(cluster)) })
}

fn ask(record: Option<&ClusterRecord>, actor: &Actor, cluster: ClusterId, step: Step) -> Result<Vec<Event>, Rejection> {
    let count = record.map_or(0, |record| record.asked.len()) + 1;
    if count > ASKED_MAX {
        let (count, count_max) = (count as u64, ASKED_MAX as u64);
        return Err(ScalingRejection::TooMany { field: Field::Replica, count, count_max }.into());
    }
    let reason = Reason::Asked { by: shortened(&actor.name).as_str().into() };
    Ok(vec![Event::ReplicaAsked { cluster, asked: Box::new(Planned { step, by: Origin::User, reason }) }])
}

/// It is there, or about to be.
fn has(record: &ClusterRecord, replica: &str) -> bool {
    let creates = |planned: &Planned| planned.step.creates().is_some_and(|made| made.name.as_ref() == replica);
    let under_way = record.operation.iter().flat_map(|operation| &operation.units);
    record.signals.replica(replica).is_some()
        || record.asked.iter().any(creates)
        || under_way.filter(|unit| !unit.progress.is_final()).any(|unit| creates(&unit.planned))
}

/// It is about to go.
fn goes(record: &ClusterRecord, replica: &str) -> bool {
    let drops = |planned: &Planned| planned.step.drops().is_some_and(|gone| gone.name.as_ref() == replica);
    let under_way = record.operation.iter().flat_map(|operation| &operation.units);
    record.asked.iter().any(drops)
        || under_way.filter(|unit| !unit.progress.is_final()).any(|unit| drops(&unit.planned))
}

/// Whether what was asked for can still be done: nobody else has made or dropped it meanwhile.
pub(crate) fn makes_sense(record: &ClusterRecord, planned: &Planned) -> bool {
    let there = |replica: &ReplicaSpec| record.signals.replica(&replica.name);
    match &planned.step {
        Step::Create(replica) => there(replica).is_none(),
        Step::Drop { replica, incarnation }
        | Step::Suspend { replica, incarnation }
        | Step::Replace { old: replica, incarnation, .. } => {
            there(replica).is_some_and(|it| match (&it.incarnation, incarnation) {
                (Some(there), Some(meant)) => there == meant,
                _ => true,
            })
        }
    }
}

/// What others have done already need not be begun.
pub(crate) fn forget_what_is_over(state: &mut State, id: ClusterId) {
    let Some(record) = state.scaling.record(id) else { return };
    if record.asked.iter().all(|asked| makes_sense(record, asked)) {
        return;
    }
    let left: Vec<Planned> = record.asked.iter().filter(|asked| makes_sense(record, asked)).cloned().collect();
    state.scaling.record_mut(id).asked = left;
}

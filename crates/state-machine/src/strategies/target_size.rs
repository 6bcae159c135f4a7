//! `target_size`: one replica of a given size, and no other once that one is hydrated.
//!
//! It looks at what is *there*: a replica of the target size under any name will do, and whatever has another size goes
//! when one of the target size is hydrated.

use super::desired::{Desired, ReplicaSpec};
use super::reason::{ChangeCause, Reason, earlier, just_after};
use super::{Hydrated, Overran, Question, Steps, Verdict};
use crate::configuration::Rule;

pub(crate) fn decide(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
    let Rule::TargetSize { size: target, replica_name } = &question.configuration.rule else {
        return Ok(Verdict::now(Reason::Disabled));
    };
    if let Some(until) = question.cooldown_until {
        return Ok(Verdict::now(Reason::InCooldown { until }));
    }
    let view = &question.view;
    steps.take(2 * view.replicas.len())?;
    let of_target = || view.replicas.iter().filter(|replica| replica.size == *target);
    if of_target().next().is_none() {
        let reason = Reason::TargetMissing { size: target.clone() };
        desired.add(ReplicaSpec { name: replica_name.clone(), size: target.clone() }, reason.clone());
        return Ok(Verdict::now(reason));
    }
    if view.replicas.iter().all(|replica| replica.size == *target) {
        return Ok(Verdict::now(Reason::TargetAlone));
    }

    let mut holds = None;
    let mut changes_at = None;
    for replica in of_target() {
        let reason = match view.hydrated(&replica.name) {
            Hydrated::Yes { fresh_until } => {
                let reason = Reason::TargetHydrated { replica: replica.name.clone() };
                for other in view.replicas.iter().filter(|other| other.size != *target) {
                    desired.remove(&other.name, reason.clone());
                }
                return Ok(Verdict::until(reason, just_after(fresh_until, ChangeCause::SignalStale)));
            }
            Hydrated::No { total, hydrated, fresh_until } => {
                changes_at = earlier(changes_at, Some(just_after(fresh_until, ChangeCause::SignalStale)));
                Reason::TargetNotHydrated { replica: replica.name.clone(), total, hydrated }
            }
            Hydrated::Stale { since } => Reason::SignalStale { since },
            Hydrated::UnderNotice => Reason::UnderNotice { replica: replica.name.clone() },
            Hydrated::Unwatched => Reason::SignalMissing,
        };
        // The first one speaks for all: it is the one that most likely was made for this.
        holds.get_or_insert(reason);
    }
    Ok(Verdict { reason: holds.unwrap_or(Reason::TargetAlone), changes_at, noted: None })
}

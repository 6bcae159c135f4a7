//! `burst`: a large replica that helps while no other one is hydrated.
//!
//! Whether it is needed is asked of what is *wanted* (an earlier strategy may be about to change it), whether it exists of
//! what is *there*. A burst replica that is alone is left to others: dropping it would leave nothing.

use super::desired::{Desired, ReplicaSpec};
use super::reason::{ChangeCause, Reason, earlier, just_after};
use super::{Hydrated, Overran, Question, Steps, Verdict};
use crate::configuration::Rule;

pub(crate) const BURST_REPLICA: &str = "burst_auto";

pub(crate) fn decide(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
    let Rule::Burst { burst_size } = &question.configuration.rule else {
        return Ok(Verdict::now(Reason::Disabled));
    };
    if let Some(until) = question.cooldown_until {
        return Ok(Verdict::now(Reason::InCooldown { until }));
    }
    let view = &question.view;
    steps.take(2 * desired.len())?;
    let is_there = view.replica(BURST_REPLICA).is_some();

    let mut hydrated = None;
    let mut unsure = None;
    let mut others = 0_u32;
    let mut goes_stale = None;
    for replica in desired.replicas().filter(|replica| replica.name.as_ref() != BURST_REPLICA) {
        others += 1;
        match view.hydrated(&replica.name) {
            Hydrated::Yes { fresh_until } => {
                hydrated.get_or_insert((replica.name.clone(), fresh_until));
            }
            Hydrated::No { fresh_until, .. } => {
                goes_stale = earlier(goes_stale, Some(just_after(fresh_until, ChangeCause::SignalStale)));
            }
            Hydrated::Stale { since } => unsure = Some(Reason::SignalStale { since }),
            Hydrated::UnderNotice => unsure = Some(Reason::UnderNotice { replica: replica.name.clone() }),
            Hydrated::Unwatched => unsure = unsure.or(Some(Reason::SignalMissing)),
        }
    }

    if let Some((replica, fresh_until)) = hydrated {
        let changes_at = just_after(fresh_until, ChangeCause::SignalStale);
        if !is_there {
            return Ok(Verdict::until(Reason::BurstNotNeeded { hydrated: replica }, changes_at));
        }
        let reason = Reason::OtherHydrated { replica };
        desired.remove(&BURST_REPLICA.into(), reason.clone());
        return Ok(Verdict::until(reason, changes_at));
    }
    if others == 0 {
        return Ok(Verdict::now(Reason::NoOthers));
    }
    if is_there {
        return Ok(Verdict { reason: unsure.unwrap_or(Reason::BurstHelping), changes_at: goes_stale, noted: None });
    }
    if let Some(replica) = desired.replicas().find(|replica| replica.size == *burst_size) {
        return Ok(Verdict::now(Reason::BurstSizePresent { replica: replica.name.clone() }));
    }
    match unsure {
        // A replica that is about to go does not help for long, but nor is it lost yet: help is needed all the same.
        None | Some(Reason::UnderNotice { .. }) => {
            let reason = Reason::BurstNeeded { size: burst_size.clone() };
            desired.add(ReplicaSpec { name: BURST_REPLICA.into(), size: burst_size.clone() }, reason.clone());
            Ok(Verdict::now(reason))
        }
        // Whether the others are hydrated is not known: what is there stays.
        Some(reason) => Ok(Verdict::now(reason)),
    }
}

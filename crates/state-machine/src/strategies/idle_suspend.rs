//! `idle_suspend`: no replicas while nobody uses the cluster. It has the last word, so a cluster that is idle stays empty
//! whatever the strategies before it want.
//!
//! Only a live collector can say that nobody uses a cluster. When it falls silent, a cluster that runs keeps running and
//! one that is suspended stays suspended: a collector that breaks must neither stop nor start a thousand clusters.

use super::desired::Desired;
use super::reason::{ChangeCause, Reason, just_after};
use super::{Memory, Overran, Question, Steps, Verdict};
use crate::configuration::Rule;
use crate::signals::Freshness;
use crate::table::Key;

pub(crate) fn decide(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
    let Rule::IdleSuspend { idle_after } = &question.configuration.rule else {
        return Ok(Verdict::now(Reason::Disabled));
    };
    let view = &question.view;
    steps.take(2 * desired.len())?;
    let taken_away = match &question.state.memory {
        Memory::Suspended(replicas) => Some(replicas),
        _ => None,
    };
    let suspended = taken_away.filter(|_| view.replicas.is_empty());
    if let Some(verdict) = woken_by_schedule(question, desired) {
        return Ok(verdict);
    }

    let Some(activity) = &view.signals.activity else {
        return Ok(unknown(Reason::SignalMissing, suspended.is_some(), desired));
    };
    let freshness = view.signals.freshness(&activity.collector, activity.as_of, view.now, view.stale_after);
    let fresh_until = match freshness {
        Freshness::FreshUntil(until) => until,
        Freshness::StaleSince(since) => {
            return Ok(unknown(Reason::SignalStale { since }, suspended.is_some(), desired));
        }
    };
    let goes_stale = just_after(fresh_until, ChangeCause::SignalStale);

    let idle = match activity.last_at {
        None => Some(Reason::NoActivitySeen { since: activity.none_since }),
        Some(last_at) => (view.now.since(last_at) > *idle_after).then_some(Reason::Idle { since: last_at }),
    };
    let (reason, changes_at) = match (idle, activity.last_at) {
        (Some(reason), _) => {
            if desired.is_empty() {
                let reason = if suspended.is_some() { Reason::StaysSuspended } else { Reason::NothingToSuspend };
                return Ok(Verdict::until(reason, goes_stale));
            }
            return Ok(Verdict::until(suspend(question, reason, desired), goes_stale));
        }
        (None, Some(last_at)) => {
            let suspends_at = just_after(last_at + *idle_after, ChangeCause::IdleThreshold);
            (Reason::Active { last_at, suspends_at: suspends_at.at }, goes_stale.min(suspends_at))
        }
        (None, None) => (Reason::NothingToSuspend, goes_stale),
    };
    if let Some(replicas) = taken_away.filter(|_| !desired.has_additions()) {
        // Nobody else brings the replicas back, so whoever took them away does, also when the suspension was cut short.
        // Somebody is waiting: no cooldown here.
        for replica in replicas {
            desired.add(replica.clone(), Reason::Woken);
        }
        return Ok(Verdict::until(Reason::Woken, changes_at));
    }
    Ok(Verdict::until(reason, changes_at))
}

/// Removes what may be removed. In cooldown that is only what is not there yet: the cooldown keeps this strategy from
/// changing the cluster, and is no licence for others to start what is to stay suspended.
fn suspend(question: &Question<'_>, reason: Reason, desired: &mut Desired) -> Reason {
    let is_there = |name: &str| question.view.replica(name).is_some();
    let may_touch_any = desired.replicas().any(|replica| desired.may_touch(&replica.name));
    let held_back = question
        .cooldown_until
        .filter(|_| desired.replicas().any(|replica| is_there(&replica.name) && desired.may_touch(&replica.name)));
    remove_unless(desired, &reason, |name| question.cooldown_until.is_some() && is_there(name));
    match held_back {
        Some(until) => Reason::InCooldown { until },
        None if may_touch_any => reason,
        None => Reason::NothingToSuspend,
    }
}

/// A profile had the cluster suspended and has ended: what it took away comes back, once, however late that is seen. What was
/// taken away since is another matter.
fn woken_by_schedule(question: &Question<'_>, desired: &mut Desired) -> Option<Verdict> {
    let woken_at = question.woken_at?;
    let Memory::Suspended(replicas) = &question.state.memory else { return None };
    if question.state.last_change_at.is_some_and(|changed| changed >= woken_at) || desired.has_additions() {
        return None;
    }
    for replica in replicas {
        desired.add(replica.clone(), Reason::WokenBySchedule);
    }
    Some(Verdict::now(Reason::WokenBySchedule))
}

/// Nobody can say whether the cluster is used.
fn unknown(reason: Reason, suspended: bool, desired: &mut Desired) -> Verdict {
    if suspended {
        remove_unless(desired, &reason, |_| false);
    }
    Verdict::now(reason)
}

fn remove_unless(desired: &mut Desired, reason: &Reason, keep: impl Fn(&str) -> bool) {
    let names: Vec<Key> = desired.replicas().map(|replica| replica.name.clone()).filter(|name| !keep(name)).collect();
    for name in &names {
        desired.remove(name, reason.clone());
    }
}

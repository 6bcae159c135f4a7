//! `idle_suspend`: no replicas while nobody uses the cluster. It has the last word, so a cluster that is idle stays empty
//! whatever the strategies before it want.
//!
//! Only a live collector can say that nobody uses a cluster. When it falls silent, a cluster that runs keeps running and
//! one that is suspended stays suspended: a collector that breaks must neither stop nor start a thousand clusters. A person who
//! wakes it needs no collector, and is not overruled before the keep-alive window is over.

use super::desired::Desired;
use super::reason::{ChangeCause, ChangesAt, Reason, just_after};
use super::{Memory, Overran, Question, Steps, Verdict, View};
use crate::Time;
use crate::configuration::Rule;
use crate::scaling::idle::IdleTimes;
use crate::signals::Freshness;
use crate::table::Key;

/// What the signals say, whoever was woken.
enum Use {
    Unknown(Reason),
    Idle(Reason, ChangesAt),
    Active(Reason, ChangesAt),
}

pub(crate) fn decide(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
    let rule = &question.configuration.rule;
    let Rule::IdleSuspend { .. } = rule else { return Ok(Verdict::now(Reason::Disabled)) };
    let view = &question.view;
    let times = view.idle.with(rule);
    steps.take(2 * desired.len())?;
    let taken_away = match &question.state.memory {
        Memory::Suspended(replicas) => Some(replicas),
        _ => None,
    };
    let suspended = taken_away.filter(|_| view.replicas.is_empty()).is_some();
    if let Some(verdict) = woken_by_schedule(question, suspended, desired) {
        return Ok(verdict);
    }
    let kept_until = view.wake.map(|wake| wake.holds_until(times)).filter(|until| view.now <= *until);

    let (reason, changes_at) = match (used(view, times), kept_until) {
        (Use::Active(reason, changes_at), _) => (reason, changes_at),
        (Use::Idle(..) | Use::Unknown(_), Some(until)) => {
            (Reason::KeptAwake { until }, just_after(until, ChangeCause::KeepAliveOver))
        }
        (Use::Unknown(reason), None) => return Ok(unknown(reason, suspended, desired)),
        (Use::Idle(reason, changes_at), None) => {
            let reason = match (desired.is_empty(), suspended) {
                (true, true) => Reason::StaysSuspended,
                (true, false) => Reason::NothingToSuspend,
                (false, _) => suspend(question, reason, desired),
            };
            return Ok(Verdict::until(reason, changes_at));
        }
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

fn used(view: &View<'_>, times: IdleTimes) -> Use {
    let Some(activity) = &view.signals.activity else { return Use::Unknown(Reason::SignalMissing) };
    let fresh_until: Time =
        match view.signals.freshness(&activity.collector, activity.as_of, view.now, view.stale_after) {
            Freshness::FreshUntil(until) => until,
            Freshness::StaleSince(since) => return Use::Unknown(Reason::SignalStale { since }),
        };
    let goes_stale = just_after(fresh_until, ChangeCause::SignalStale);
    match activity.last_at {
        None => Use::Idle(Reason::NoActivitySeen { since: activity.none_since }, goes_stale),
        Some(last_at) if view.now.since(last_at) > times.threshold => {
            Use::Idle(Reason::Idle { since: last_at }, goes_stale)
        }
        Some(last_at) => {
            let idle_at = just_after(last_at + times.threshold, ChangeCause::IdleThreshold);
            let held_to = view.wake.map(|wake| just_after(wake.at + times.keep_alive, ChangeCause::KeepAliveOver).at);
            let suspends_at = held_to.map_or(idle_at.at, |held_to| held_to.max(idle_at.at));
            Use::Active(Reason::Active { last_at, suspends_at }, goes_stale.min(idle_at))
        }
    }
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
fn woken_by_schedule(question: &Question<'_>, suspended: bool, desired: &mut Desired) -> Option<Verdict> {
    let woken_at = question.woken_at?;
    let Memory::Suspended(replicas) = &question.state.memory else { return None };
    if question.state.last_change_at.is_some_and(|changed| changed >= woken_at) {
        return None;
    }
    match (desired.has_additions(), suspended) {
        // Another strategy wants replicas again. It would have had them all along but for this one, which lets them be now.
        (true, true) => desired.take_over(&Reason::WokenBySchedule),
        (true, false) => return None,
        (false, _) => {
            for replica in replicas {
                desired.add(replica.clone(), Reason::WokenBySchedule);
            }
        }
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

//! Whether something that is wanted may begin now. The brakes are in the state, so a new leader does not release them.
//!
//! They gate the *start* of an operation. Its further steps are not held up in the middle, or a replica could stay drained
//! and unused for the length of a cooldown. The rate limit is a hard one all the same: room for every step is set aside at
//! the start, and a claim that has no room is refused.

use super::ClusterRecord;
use super::decisions::{Brake, Held};
use super::knobs::Knobs;
use super::plan::{Planned, Step};
use crate::strategies::reason::Reason;
use crate::{Span, Time};

/// What bit, and how much the rate limit leaves room for.
#[derive(Debug)]
pub(crate) struct Brakes {
    pub(crate) held: Vec<Held>,
    pub(crate) room: u64,
}

/// `needed` is what the first step of the operation counts in the rate limit; a cluster that somebody waits for is
/// `waking`, and not held by its cooldown.
pub(crate) fn check(record: &ClusterRecord, knobs: &Knobs, now: Time, needed: u64, waking: bool) -> Brakes {
    let mut held = Vec::new();
    if let Some(pause) = &record.pause {
        held.push(Held { brake: Brake::Paused, until: pause.expires_at });
    }
    let later = |until: Time| (until > now).then_some(until);
    let cooled_at = record.scaled_at.map(|at| at + knobs.cluster_cooldown).and_then(later);
    if let Some(until) = cooled_at.filter(|_| !waking) {
        held.push(Held { brake: Brake::ClusterCooldown, until: Some(until) });
    }
    let room = room(record, knobs, now);
    if room < needed.min(knobs.rate_limit) {
        held.push(Held { brake: Brake::RateLimit, until: room_at(record, knobs, now, needed) });
    }
    if let Some(until) = record.failed_at.map(|at| at + backoff(record.failures)).and_then(later) {
        held.push(Held { brake: Brake::FailureBackoff, until: Some(until) });
    }
    Brakes { held, room }
}

/// The calls that count now.
fn counted<'a>(record: &'a ClusterRecord, knobs: &Knobs, now: Time) -> impl Iterator<Item = Time> + use<'a> {
    let window = knobs.rate_window;
    record.counted.iter().copied().filter(move |at| now.since(*at) < window)
}

/// How many more calls the rate limit allows right now.
pub(crate) fn room(record: &ClusterRecord, knobs: &Knobs, now: Time) -> u64 {
    knobs.rate_limit.saturating_sub(counted(record, knobs, now).count() as u64)
}

/// When there will be room for `needed` calls, if nothing else is called.
pub(crate) fn room_at(record: &ClusterRecord, knobs: &Knobs, now: Time, needed: u64) -> Option<Time> {
    let all: Vec<Time> = counted(record, knobs, now).collect();
    let too_many = (all.len() as u64).saturating_add(needed.min(knobs.rate_limit)).saturating_sub(knobs.rate_limit);
    let last_to_leave = usize::try_from(too_many.checked_sub(1)?).ok()?;
    all.get(last_to_leave).map(|at| *at + knobs.rate_window)
}

/// How long to wait after this many failures in a row: half a minute, doubled up to half an hour.
fn backoff(failures: u32) -> Span {
    const FIRST_SECS: u64 = 30;
    const LONGEST_SECS: u64 = 30 * 60;
    let doublings = failures.saturating_sub(1).min(6);
    Span::from_secs((FIRST_SECS << doublings).min(LONGEST_SECS))
}

/// The steps that one operation takes on: what is added or replaced, or, if there is nothing of that kind, what goes.
/// So something is always made before anything is broken. No more than the rate limit leaves room for.
pub(crate) fn choose(planned: &[Planned], room: u64) -> Vec<Planned> {
    let adds = |planned: &&Planned| planned.step.creates().is_some();
    let any_added = planned.iter().any(|it| adds(&it));
    let mut left = room;
    let mut chosen = Vec::new();
    for planned in planned.iter().filter(|it| adds(it) == any_added) {
        // One step may need more than the limit allows at all; then it goes alone, and waits at its claims.
        let needed = planned.step.counted_actions();
        if needed > left && !(chosen.is_empty() && left > 0) {
            break;
        }
        left = left.saturating_sub(needed);
        chosen.push(planned.clone());
    }
    chosen
}

/// Somebody waits: the cluster is being woken, or is to have a minimum of replicas now.
pub(crate) fn somebody_waits(record: &ClusterRecord, planned: &[Planned]) -> bool {
    is_waking(record, planned) || planned.iter().any(|it| matches!(it.reason, Reason::Overridden { .. }))
}

/// Somebody waits for this cluster: it was suspended, and is used again.
pub(crate) fn is_waking(record: &ClusterRecord, planned: &[Planned]) -> bool {
    let suspended = record.taken_away().is_some();
    let woken =
        planned.iter().any(|it| it.reason.is_like(&Reason::Woken) || it.reason.is_like(&Reason::WokenBySchedule));
    let creates = planned.iter().any(|it| matches!(it.step, Step::Create(_)));
    woken || (suspended && creates && record.signals.replicas.is_empty())
}

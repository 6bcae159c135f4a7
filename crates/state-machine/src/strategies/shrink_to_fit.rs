//! `shrink_to_fit`: the smallest size that carries the work. It starts one replica of every size, drops those that crash
//! (they are too small) and those that are larger than one that is healthy (they are too large).
//!
//! A size that was dropped for crashing is not tried again for the crash window. Without that memory a cluster whose
//! every size crashes would swing between no replica and all of them for ever.

use super::desired::{Desired, ReplicaSpec};
use super::reason::{ChangeCause, ChangesAt, Reason, earlier, just_after};
use super::{Hydrated, Memory, Overran, Question, Steps, Verdict};
use crate::Time;
use crate::configuration::{MANAGED_SUFFIX, Rule};
use crate::table::Key;

pub(crate) fn decide(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
    let Rule::ShrinkToFit { max_size, min_oom_count, min_crash_count, crash_window } = &question.configuration.rule
    else {
        return Ok(Verdict::now(Reason::Disabled));
    };
    if let Some(until) = question.cooldown_until {
        return Ok(Verdict::now(Reason::InCooldown { until }));
    }
    if desired.is_empty() {
        return start_ladder(question, max_size, desired, steps);
    }
    let view = &question.view;

    // Too small: they crash. Memory comes first, because it is what a larger size gives.
    steps.take(2 * desired.len())?;
    let mut first = None;
    let mut changes_at = None;
    for replica in desired.specs() {
        let count = view.crashes(&replica.name, *crash_window);
        let reason = if count.ooms >= *min_oom_count {
            Reason::OomLooping { ooms: count.ooms }
        } else if count.crashes >= *min_crash_count {
            Reason::CrashLooping { crashes: count.crashes }
        } else {
            continue;
        };
        first.get_or_insert_with(|| reason.clone());
        changes_at = earlier(changes_at, count.until.map(|until| just_after(until, ChangeCause::CrashWindowOver)));
        desired.remove(&replica.name, reason);
    }

    // Too large: a smaller one carries the work.
    let looping = |name: &str| {
        let count = view.crashes(name, *crash_window);
        count.ooms >= *min_oom_count || count.crashes >= *min_crash_count
    };
    let mut healthy: Option<(u32, Key, Time)> = None;
    let mut unsure = None;
    for replica in desired.replicas().filter(|replica| !looping(&replica.name)) {
        match view.hydrated(&replica.name) {
            Hydrated::Yes { fresh_until } => {
                let rank = view.rank(&replica.size);
                if healthy.as_ref().is_none_or(|(smallest, ..)| rank < *smallest) {
                    healthy = Some((rank, replica.name.clone(), fresh_until));
                }
            }
            Hydrated::No { fresh_until, .. } => {
                changes_at = earlier(changes_at, Some(just_after(fresh_until, ChangeCause::SignalStale)));
            }
            Hydrated::Stale { since } => unsure = Some(Reason::SignalStale { since }),
            Hydrated::UnderNotice => unsure = Some(Reason::UnderNotice { replica: replica.name.clone() }),
            Hydrated::Unwatched => unsure = unsure.or(Some(Reason::SignalMissing)),
        }
    }
    let Some((smallest, healthy, fresh_until)) = healthy else {
        let reason = first.or(unsure).unwrap_or(Reason::NoneHealthy);
        return Ok(Verdict { reason, changes_at, noted: None });
    };
    changes_at = earlier(changes_at, Some(just_after(fresh_until, ChangeCause::SignalStale)));
    for replica in desired.specs().iter().filter(|replica| view.rank(&replica.size) > smallest) {
        let reason = Reason::LargerThanHealthy { healthy: healthy.clone() };
        first.get_or_insert_with(|| reason.clone());
        desired.remove(&replica.name, reason);
    }
    Ok(Verdict { reason: first.unwrap_or(Reason::FitsAlready { healthy }), changes_at, noted: None })
}

/// One replica of every size up to the largest allowed, except of those that failed lately.
fn start_ladder(
    question: &Question<'_>,
    max_size: &Key,
    desired: &mut Desired,
    steps: &mut Steps,
) -> Result<Verdict, Overran> {
    let Rule::ShrinkToFit { crash_window, .. } = &question.configuration.rule else {
        return Ok(Verdict::now(Reason::Disabled));
    };
    let view = &question.view;
    let max_rank = view.rank(max_size);
    let mut first = None;
    let mut next_try: Option<ChangesAt> = None;
    for size in view.sizes.ladder().take_while(|size| size.rank <= max_rank) {
        steps.take(1)?;
        let failed_until = match &question.state.memory {
            Memory::FailedSizes(failed) => failed
                .iter()
                .filter(|failed| failed.size.as_ref() == size.name)
                .map(|failed| failed.at + *crash_window)
                .filter(|until| view.now <= *until)
                .max(),
            _ => None,
        };
        if let Some(until) = failed_until {
            next_try = earlier(next_try, Some(just_after(until, ChangeCause::CrashWindowOver)));
            continue;
        }
        let reason = Reason::LadderNeeded { size: size.name.as_str().into() };
        first.get_or_insert_with(|| reason.clone());
        let name = format!("{}{MANAGED_SUFFIX}", size.name);
        desired.add(ReplicaSpec { name: name.into(), size: size.name.as_str().into() }, reason);
    }
    match (first, next_try) {
        (None, Some(next_try)) => Ok(Verdict::until(Reason::LadderExhausted { until: next_try.at }, next_try)),
        (first, _) => Ok(Verdict::now(first.unwrap_or(Reason::NoneHealthy))),
    }
}

//! `target_tracking` and `queue_depth`: as many replicas of a size as signals ask for.
//!
//! - Here: which signals can be relied on, what they ask for together, and why that is or is not done.
//! - [`arithmetic`]: from one signal to a number. [`pace`]: how fast the number may change, and what is remembered for it.
//!   [`pool`]: which replicas are counted, made and removed.
//!
//! A signal that is missing or stale never takes a replica away: the others may still ask for more, and the bounds of the
//! configuration hold in any case.
//!
//! A signal that is a ratio counts once for each number of replicas: measured before the last change, it would ask for the same
//! change again, and again, until the maximum or the minimum. Others look every so often and have a new value by then; here it is
//! looked when something happens, so that the next value is waited for.

pub(crate) mod arithmetic;
pub(crate) mod pace;
mod pool;

use super::desired::Desired;
use super::reason::{ChangeCause, ChangesAt, Reason, earlier, just_after};
use super::{Memory, Overran, Question, Steps, Verdict, View};
use crate::configuration::Rule;
use crate::configuration::tracking::{Algorithm, Knative, TargetKind, TrackedSignal, Tracking};
use crate::signals::Freshness;
use crate::table::Key;
use crate::{Span, Time};
use arithmetic::{Count, KnativeWish};
use pace::{Course, Hold, Noted, Paced, Panic};
use pool::Pool;

pub(crate) fn decide(question: &Question<'_>, desired: &mut Desired, steps: &mut Steps) -> Result<Verdict, Overran> {
    let (rule, prefix) = match &question.configuration.rule {
        Rule::TargetTracking(rule) => (rule, 't'),
        Rule::QueueDepth(rule) => (rule, 'q'),
        _ => return Ok(Verdict::now(Reason::Disabled)),
    };
    let view = &question.view;
    let most = view.replicas.len() + desired.len() + rule.replicas_max as usize;
    steps.take(4 * most + rule.signals.len() * (view.signals.metrics.len() + 1))?;
    let pool = Pool::new(rule.size.clone(), prefix);
    let count = pool.count(view.replicas);
    let nothing = Course::default();
    let course = match &question.state.memory {
        Memory::Course(course) => course,
        _ => &nothing,
    };
    let mut answer = answer(rule, course, question.state.last_change_at, view, count);
    // Two strategies that count the same replicas want them for different work: the larger number is right for both.
    let needed = desired.needed(&rule.size);
    if needed > answer.replicas {
        answer.replicas = needed;
        answer.reason = Reason::NeededByOther { replicas: needed };
    }
    desired.need(&rule.size, answer.replicas);
    let reason = match question.cooldown_until {
        Some(until) => Reason::InCooldown { until },
        None => {
            pool.settle(view, desired, answer.replicas as usize, &answer.reason);
            answer.reason
        }
    };
    Ok(Verdict { reason, changes_at: answer.changes_at, noted: answer.noted })
}

#[derive(Debug)]
struct Answered {
    replicas: u32,
    reason: Reason,
    changes_at: Option<ChangesAt>,
    noted: Option<Noted>,
}

/// What a signal says.
#[derive(Clone, Copy, Debug)]
struct Read {
    value_milli: i64,
    /// Over the short window, if that is a signal of its own.
    panic_milli: i64,
    fresh_until: Time,
    /// When it was measured, or said to be unchanged.
    known_at: Time,
}

/// What the signals ask for together, before anything paces it.
#[derive(Debug)]
struct Wish {
    replicas: u32,
    /// Whose wish it is.
    signal: Key,
    value_milli: i64,
    panic: Option<Panic>,
    /// It is older than the last change, and asks for nothing.
    is_old: bool,
}

fn answer(rule: &Tracking, course: &Course, changed_at: Option<Time>, view: &View<'_>, count: Count) -> Answered {
    let current = count.current;
    let holds = |replicas, reason, changes_at| Answered { replicas, reason, changes_at, noted: None };
    if current > rule.replicas_max {
        let reason = Reason::AboveMaximum { replicas: current, replicas_max: rule.replicas_max };
        return holds(rule.replicas_max, reason, None);
    }
    if current < rule.replicas_min {
        let reason = Reason::BelowMinimum { replicas: current, replicas_min: rule.replicas_min };
        return holds(rule.replicas_min, reason, None);
    }

    let mut unknown = None;
    let mut goes_stale = None;
    let mut known = Vec::with_capacity(rule.signals.len());
    for signal in &rule.signals {
        match read(signal, view) {
            Ok(read) => {
                goes_stale = earlier(goes_stale, Some(just_after(read.fresh_until, ChangeCause::SignalStale)));
                known.push((signal, read));
            }
            Err(reason) => unknown = unknown.or(Some(reason)),
        }
    }
    let wish = match wish(rule, course, &known, count, changed_at, view.now) {
        Some(wish) if unknown.is_none() => wish,
        // More is asked for by what is known. What all have to agree to cannot be known.
        Some(wish) if wish.replicas > current && !rule.require_all => wish,
        _ => return holds(current, unknown.unwrap_or(Reason::SignalMissing), goes_stale),
    };

    let noted = noted(rule, course, &wish);
    let mut remembered = None;
    let course = match &noted {
        None => course,
        Some(noted) => {
            // What ends a window is also what is about to be remembered.
            let with = remembered.insert(course.clone());
            with.note(noted, view.now);
            &*with
        }
    };
    let Paced { replicas, held } = pace::settled(rule, course, current, wish.replicas, view.now);
    let until = held.and_then(|held| match held {
        Hold::Stabilizing { until } => until.map(|at| ChangesAt { at, why: ChangeCause::WindowOver }),
        Hold::Policy { until } => until.map(|at| ChangesAt { at, why: ChangeCause::PolicyPeriodOver }),
        Hold::Disabled => None,
    });
    let calm = match (rule.algorithm, &wish.panic) {
        (Algorithm::Knative(Knative { stable_window, .. }), Some(panic)) => {
            Some(just_after(panic.at + stable_window, ChangeCause::PanicOver))
        }
        _ => None,
    };
    let reason = reason(rule, &wish, current, replicas, held);
    Answered { replicas, reason, changes_at: earlier(earlier(goes_stale, until), calm), noted }
}

fn reason(rule: &Tracking, wish: &Wish, current: u32, replicas: u32, held: Option<Hold>) -> Reason {
    let Wish { replicas: wanted, signal, value_milli, .. } = wish;
    let (wanted, signal, value_milli) = (*wanted, signal.clone(), *value_milli);
    match held {
        _ if replicas > current => Reason::SignalAbove { signal, value_milli, wanted, replicas },
        _ if replicas < current => Reason::SignalBelow { signal, value_milli, wanted, replicas },
        _ if wanted == current && current == 0 => Reason::NotActivated,
        _ if wanted == current && wish.is_old => Reason::AwaitsSignal { signal, replicas },
        _ if wanted == current => Reason::SignalOnTarget { signal, value_milli, replicas },
        _ if wanted > current && current == rule.replicas_max => Reason::AtMaximum { wanted, replicas },
        _ if wanted < current && current == rule.replicas_min => Reason::AtMinimum { wanted, replicas },
        Some(Hold::Stabilizing { until }) => Reason::Stabilizing { wanted, replicas, until },
        Some(Hold::Policy { until }) => Reason::PolicyHolds { wanted, replicas, until },
        Some(Hold::Disabled) | None => Reason::DirectionDisabled { wanted, replicas },
    }
}

/// What is new about a wish. A recommendation is remembered when it changes, and only where a window asks for it later.
fn noted(rule: &Tracking, course: &Course, wish: &Wish) -> Option<Noted> {
    /// How far a panic moves on before that is worth an entry in the log.
    const PANIC_GRAIN: u64 = 16;
    let window = rule.window_max();
    let is_news = window > Span::default() && !wish.is_old && course.latest() != Some(wish.replicas);
    let recommended = is_news.then_some(wish.replicas);
    let grain = match rule.algorithm {
        Algorithm::Knative(knative) => Span::from_millis(knative.stable_window.as_millis() / PANIC_GRAIN),
        Algorithm::Hpa | Algorithm::Nomad => Span::default(),
    };
    let panic_is_news = match (&course.panic, &wish.panic) {
        (Some(before), Some(now)) => before.highest != now.highest || now.at.since(before.at) > grain,
        (before, now) => before.is_some() != now.is_some(),
    };
    let panic = if panic_is_news { wish.panic } else { course.panic };
    (recommended.is_some() || panic_is_news).then_some(Noted { recommended, panic, window })
}

fn read(signal: &TrackedSignal, view: &View<'_>) -> Result<Read, Reason> {
    let mut fresh_until = None::<Time>;
    let mut one = |name: &Key| {
        let metrics = &view.signals.metrics;
        let Ok(place) = metrics.binary_search_by(|metric| metric.name.cmp(name)) else {
            return Err(Reason::MetricMissing { signal: name.clone() });
        };
        let metric = &metrics[place];
        match view.signals.freshness(&metric.collector, metric.as_of, view.now, view.stale_after) {
            Freshness::StaleSince(since) => Err(Reason::MetricStale { signal: name.clone(), since }),
            Freshness::FreshUntil(until) => {
                fresh_until = Some(fresh_until.map_or(until, |earliest| earliest.min(until)));
                Ok(metric.value_milli)
            }
        }
    };
    let mut value_milli = 0_i64;
    for name in &signal.metrics {
        value_milli = value_milli.saturating_add(one(name)?);
    }
    let panic_milli = match &signal.panic {
        Some(name) => one(name)?,
        None => value_milli,
    };
    let fresh_until = fresh_until.unwrap_or(view.now);
    Ok(Read { value_milli, panic_milli, fresh_until, known_at: fresh_until.before(view.stale_after) })
}

/// Nothing if no signal is known.
fn wish(
    rule: &Tracking,
    course: &Course,
    known: &[(&TrackedSignal, Read)],
    count: Count,
    changed_at: Option<Time>,
    now: Time,
) -> Option<Wish> {
    // Where there may be none at all, a signal that is not above its activation asks for none.
    let asks = |signal: &TrackedSignal, read: &Read| {
        let any = match signal.activation_milli {
            Some(activation_milli) => read.value_milli > activation_milli,
            None => count.current > 0,
        };
        any || rule.replicas_min > 0
    };
    let lasting = match rule.algorithm {
        Algorithm::Knative(knative) => course.panic.filter(|panic| now.since(panic.at) <= knative.stable_window),
        Algorithm::Hpa | Algorithm::Nomad => None,
    };
    // What is shared out asks for the same number however many there are, and so does the first one.
    let is_old = |signal: &TrackedSignal, read: &Read| {
        let depends = signal.target == TargetKind::Value && count.current > 0;
        depends && changed_at.is_some_and(|changed_at| read.known_at <= changed_at)
    };
    let mut panics = false;
    let wishes = known.iter().map(|(signal, read)| {
        let replicas = match rule.algorithm {
            _ if !asks(signal, read) => 0,
            _ if is_old(signal, read) => count.current,
            Algorithm::Hpa => arithmetic::hpa(signal, read.value_milli, count, rule.tolerance_milli),
            Algorithm::Nomad => {
                arithmetic::nomad(signal.target_milli, read.value_milli, count.current, rule.tolerance_milli)
            }
            Algorithm::Knative(knative) => {
                let KnativeWish { stable, panic, panics: over } =
                    arithmetic::knative(&knative, signal.target_milli, read.value_milli, read.panic_milli, count.ready);
                panics |= over;
                if over || lasting.is_some() { stable.max(panic) } else { stable }
            }
        };
        (replicas, signal, read)
    });
    let wishes: Vec<_> = wishes.collect();
    // The first of equal ones speaks for them.
    let most = wishes.iter().rev().max_by_key(|(replicas, ..)| *replicas);
    let least = wishes.iter().min_by_key(|(replicas, ..)| *replicas);
    let (replicas, signal, read) = *if rule.require_all { least } else { most }?;
    let is_old = is_old(signal, read);
    let mut wish = Wish { replicas, signal: signal.name(), value_milli: read.value_milli, panic: None, is_old };
    if let Algorithm::Knative(_) = rule.algorithm {
        let at = if panics { Some(now) } else { lasting.map(|panic| panic.at) };
        wish.panic = at.map(|at| {
            let before = lasting.map_or(0, |panic| panic.highest);
            Panic { at, highest: before.max(wish.replicas) }
        });
        // In panic it only goes up.
        wish.replicas = wish.panic.map_or(wish.replicas, |panic| panic.highest);
    }
    Some(wish)
}

//! From a signal to a number of replicas, as the Kubernetes HPA v2, Knative and Nomad do it. Whole numbers only; every published
//! example of theirs that we know is a test here.
//!
//! Not here: which signals there are and whether they are fresh (`super`), and how fast the number may change (`super::pace`).

use crate::configuration::tracking::{Knative, TargetKind, TrackedSignal};

/// How many replicas there are, and how many of them do work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) current: u32,
    pub(crate) ready: u32,
}

/// `count` times `by` over `over`, rounded up. A target of 0 makes the signal itself the factor, as Nomad has it.
fn scaled_up(count: u128, by: u128, over: u128) -> u32 {
    u32::try_from((count * by).div_ceil(over)).unwrap_or(u32::MAX)
}

fn positive(milli: i64) -> u128 {
    u128::try_from(milli).unwrap_or(0)
}

/// Whether `value` is so near to `target` that nothing changes, both ends included.
fn within(tolerance_milli: i64, value: u128, target: u128) -> bool {
    value.abs_diff(target) * 1_000 <= positive(tolerance_milli) * target
}

/// HPA v2.
pub(crate) fn hpa(signal: &TrackedSignal, value_milli: i64, count: Count, tolerance_milli: i64) -> u32 {
    let (value, target) = (positive(value_milli), positive(signal.target_milli));
    let current = u128::from(count.current);
    if current == 0 {
        return scaled_up(1, value, target);
    }
    match signal.target {
        TargetKind::Average if within(tolerance_milli, value, target * current) => count.current,
        TargetKind::Average => scaled_up(1, value, target),
        TargetKind::Value if within(tolerance_milli, value, target) => count.current,
        // What has just been started does no work yet, so that the signal has not heard of it: growing by all of them once
        // more, for as long as they start, would end at the maximum.
        TargetKind::Value if value > target => scaled_up(count.ready.into(), value, target).max(count.current),
        TargetKind::Value => scaled_up(current, value, target),
    }
}

/// Nomad's target-value.
pub(crate) fn nomad(target_milli: i64, value_milli: i64, current: u32, tolerance_milli: i64) -> u32 {
    let target = if target_milli == 0 { 1_000 } else { positive(target_milli) };
    let value = positive(value_milli);
    match current {
        // From none there is nothing to be near to: on target is one replica.
        0 => scaled_up(1, value, target),
        _ if within(tolerance_milli, value, target) => current,
        _ => scaled_up(current.into(), value, target),
    }
}

/// What the two windows of Knative ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnativeWish {
    pub(crate) stable: u32,
    pub(crate) panic: u32,
    /// The short window asks for so much more than is ready that there is no time to wait for the long one.
    pub(crate) panics: bool,
}

/// Knative's autoscaler.
pub(crate) fn knative(
    rule: &Knative,
    target_milli: i64,
    stable_milli: i64,
    panic_milli: i64,
    ready: u32,
) -> KnativeWish {
    // From nothing it counts as from one.
    let ready = u128::from(ready.max(1));
    let target = positive(target_milli);
    let highest = scaled_up(ready, positive(rule.up_rate_milli), 1_000);
    let lowest = u32::try_from(ready * 1_000 / positive(rule.down_rate_milli).max(1)).unwrap_or(u32::MAX);
    let bounded = |wanted: u32| wanted.max(lowest).min(highest);
    let (stable, panic) = (scaled_up(1, positive(stable_milli), target), scaled_up(1, positive(panic_milli), target));
    KnativeWish {
        stable: bounded(stable),
        panic: bounded(panic),
        panics: u128::from(panic) * 1_000 >= positive(rule.panic_threshold_milli) * ready,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Span;

    fn signal(target: TargetKind, target_milli: i64) -> TrackedSignal {
        TrackedSignal { metrics: vec!["load".into()], target, target_milli, activation_milli: Some(0), panic: None }
    }

    #[test]
    fn a_target_of_hpa_is_followed_outside_of_its_tolerance() {
        // Target, value, current -> replicas.
        for (target, value, current, expected) in [
            (100_000, 400_000, 2, 4),
            (100_000, 110_000, 1, 1),
            (100_000, 110_001, 1, 2),
            (100_000, 450_000, 5, 5),
            (100_000, 449_999, 5, 5),
            (100_000, 399_999, 5, 4),
            (100_000, 0, 5, 0),
            (100_000, 1, 0, 1),
            (100_000, -5, 3, 0),
        ] {
            let count = Count { current, ready: current };
            assert_eq!(hpa(&signal(TargetKind::Average, target), value, count, 100), expected, "{value} of {target}");
        }
        for (target, value, current, expected) in [
            (50_000, 100_000, 3, 6),
            (50_000, 55_000, 10, 10),
            (50_000, 55_001, 10, 12),
            (50_000, 45_000, 10, 10),
            (50_000, 44_999, 10, 9),
            (50_000, 30_000, 10, 6),
            (50_000, 60_000, 0, 2),
        ] {
            let count = Count { current, ready: current };
            assert_eq!(hpa(&signal(TargetKind::Value, target), value, count, 100), expected, "{value} of {target}");
        }
    }

    #[test]
    fn replicas_that_only_start_are_no_reason_for_more() {
        let twice = signal(TargetKind::Value, 1_000);
        let asked = |current, ready| hpa(&twice, 2_000, Count { current, ready }, 100);
        assert_eq!(asked(2, 2), 4);
        assert_eq!(asked(4, 2), 4, "two of them have yet to begin");
        assert_eq!(asked(4, 0), 4);
        assert_eq!(asked(4, 3), 6);
    }

    const KNATIVE: Knative = Knative {
        panic_threshold_milli: 2_000,
        stable_window: Span::from_secs(60),
        up_rate_milli: 1_000_000,
        down_rate_milli: 2_000,
    };

    #[test]
    fn the_examples_of_knative_come_out_equal() {
        let up = Knative { up_rate_milli: 1_100, ..KNATIVE };
        let down = Knative { down_rate_milli: 1_100, ..KNATIVE };
        // Rule; target; stable, panic; ready -> scale.
        for (rule, target, stable, panic, ready, expected) in [
            (KNATIVE, 10_000, 50_000, 49_000, 1, 5),
            (KNATIVE, 1_000, 50_000, 30_000, 5, 50),
            (KNATIVE, 1_000, 20_000, 30_000, 5, 30),
            (up, 1_000, 3_000, 3_100, 2, 3),
            (down, 10_000, 1_000, 1_000, 100, 90),
            (KNATIVE, 10_000, 50_000, 100_000, 1, 10),
        ] {
            let wish = knative(&rule, target, stable, panic, ready);
            let scale = if wish.panics { wish.stable.max(wish.panic) } else { wish.stable };
            assert_eq!(scale, expected, "{target}; {stable}, {panic}; {ready}: {wish:?}");
        }
    }

    #[test]
    fn the_examples_of_nomad_come_out_equal() {
        for (value, target, count, expected) in [
            (13_000, 13_000, 2, 2),
            (26_000, 13_000, 2, 4),
            (20_000, 10_000, 0, 2),
            (1_000, 10_000, 0, 1),
            (10_000, 10_000, 0, 1),
            (0, 10_000, 0, 0),
            (0, 0, 5, 0),
            (210_000, 50_000, 1, 5),
            (10_000, 210_000, 5, 1),
        ] {
            assert_eq!(nomad(target, value, count, 10), expected, "{value} / {target}, {count}");
        }
    }

    proptest! {
        #[test]
        fn no_signal_makes_the_arithmetic_fail(
            value in any::<i64>(),
            target in 1..=i64::MAX,
            current in any::<u32>(),
            ready in any::<u32>(),
            tolerance in 0..=1_000_i64,
        ) {
            let count = Count { current, ready };
            hpa(&signal(TargetKind::Average, target), value, count, tolerance);
            hpa(&signal(TargetKind::Value, target), value, count, tolerance);
            nomad(target, value, current, tolerance);
            knative(&KNATIVE, target, value, value, ready);
        }

        #[test]
        fn within_the_tolerance_nothing_changes(
            target in 1..=1_000_000_i64,
            current in 1..=1_000_u32,
            tolerance in 0..=1_000_i64,
            off in -1_000..=1_000_i64,
        ) {
            let count = Count { current, ready: current };
            let total = target * i64::from(current);
            let value = total + total * off / 1_000;
            let near = off.abs() <= tolerance;
            let asked = hpa(&signal(TargetKind::Average, target), value, count, tolerance);
            prop_assert!(!near || asked == current, "{} asks for {}", value, asked);
        }

        #[test]
        fn a_signal_above_its_target_never_shrinks(
            target in 1..=1_000_000_i64,
            more in 0..=1_000_000_i64,
            current in 1..=1_000_u32,
            ready in 0..=1_000_u32,
        ) {
            let count = Count { current, ready };
            prop_assert!(hpa(&signal(TargetKind::Value, target), target + more, count, 100) >= current);
        }
    }
}

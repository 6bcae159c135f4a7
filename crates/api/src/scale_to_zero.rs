//! Clusters that sleep: from the state machine to the wire.

use loadline_state_machine::{IdleState, Override, SavingsDay, Span, State, Time, Wake, Woke};

use crate::{millis, v1};

/// What is taken for granted in the amounts of savings.
pub const ASSUMPTION: &str = "without suspension, the replicas that were taken away would have run on, all of them, at the \
                              hourly prices that their sizes had when they were taken away";

fn time(time: Option<Time>) -> i64 {
    time.map(millis).unwrap_or_default()
}

pub fn idle_state(idle: &IdleState, state: &State) -> v1::IdleState {
    v1::IdleState {
        cluster: state.cluster_by_id(idle.cluster).map(|cluster| cluster.name.clone()).unwrap_or_default(),
        cluster_id: idle.cluster.to_string(),
        strategy: idle.strategy.to_string(),
        last_activity_ms: time(idle.last_activity_at),
        idle_since_ms: time(idle.idle_since),
        scaled_to_zero_ms: time(idle.scaled_to_zero_at),
        last_wake_ms: time(idle.last_wake.map(|wake| wake.at)),
        wake_reason: idle.last_wake.map(|wake| wake.reason.as_str().to_owned()).unwrap_or_default(),
        woken_ready_ms: time(idle.last_wake.and_then(|wake: Wake| wake.ready_at)),
        is_scaled_to_zero: idle.is_scaled_to_zero(),
        ready: idle.serves,
        replicas: idle.replicas,
        idle_threshold_ms: idle.times.threshold.as_millis(),
        keep_alive_ms: idle.times.keep_alive.as_millis(),
        cold_start_timeout_ms: idle.times.cold_start_timeout.as_millis(),
        estimated_ready_ms: idle.start_expected.map(Span::as_millis),
        create_time_ms: millis(idle.created_at),
        update_time_ms: millis(idle.updated_at),
    }
}

pub fn overridden(floor: &Override) -> v1::Override {
    v1::Override {
        replicas_min: floor.replicas_min,
        size: floor.size.to_string(),
        reason: floor.reason.clone(),
        by: floor.by.to_string(),
        since_ms: millis(floor.since),
        expire_time_ms: millis(floor.expires_at),
    }
}

pub fn woken(woke: &Woke) -> v1::WokenCluster {
    v1::WokenCluster {
        cluster: woke.cluster.name.clone(),
        cluster_id: woke.cluster.id.to_string(),
        strategy: woke.strategy.to_string(),
        status: if woke.already_running { "already_running" } else { "waking" }.to_owned(),
        reason: woke.reason.as_str().to_owned(),
        previous_replicas: woke.replicas_before,
        target_replicas: woke.replicas_wanted,
        estimated_ready_ms: woke.ready_in.map(Span::as_millis),
        ready_by_ms: millis(woke.ready_by),
    }
}

pub fn savings_day(saved: &SavingsDay, state: &State) -> v1::SavingsDay {
    v1::SavingsDay {
        cluster: state.cluster_by_id(saved.cluster).map(|cluster| cluster.name.clone()).unwrap_or_default(),
        cluster_id: saved.cluster.to_string(),
        strategy: saved.strategy.to_string(),
        date: saved.row.day.to_string(),
        idle_ms: saved.row.idle_millis.into(),
        scaled_to_zero_ms: saved.row.zero_millis.into(),
        saved_micros: saved.row.saved_micros,
        hourly_micros: saved.row.hourly_micros,
    }
}

/// What amounts are shown as when only whole units of so many are, such that the parts add up to the whole: each is what the sum up
/// to it gains by it. The whole is rounded down, and no part is off by as much as one unit.
pub fn parts_that_add_up(amounts: impl IntoIterator<Item = u64>, unit: u64) -> Vec<u64> {
    let mut sum = 0_u64;
    let part = |amount: u64| {
        let before = sum / unit;
        sum = sum.saturating_add(amount);
        sum / unit - before
    };
    amounts.into_iter().map(part).collect()
}

/// What amounts of savings are shown in: a cent is so many millionths.
pub const CENT_MICROS: u64 = 10_000;
/// What times are shown in: a hundredth of an hour is so many milliseconds.
pub const HOUR_HUNDREDTH_MILLIS: u64 = 36_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_what_the_whole_is_shown_as() {
        // Three days of 1.659999: 4.979997 in all, which is shown as 4.97.
        assert_eq!(parts_that_add_up([1_659_999; 3], CENT_MICROS), [165, 166, 166]);
        assert_eq!(parts_that_add_up([], CENT_MICROS), [0; 0]);
        assert_eq!(parts_that_add_up([9_999, 1, 9_999], CENT_MICROS), [0, 1, 0]);
        for step in 1..200_u64 {
            let amounts: Vec<u64> = (0..50).map(|day| day * step * 7_919 % 3_000_000).collect();
            let shown = parts_that_add_up(amounts.iter().copied(), CENT_MICROS);
            assert_eq!(shown.iter().sum::<u64>(), amounts.iter().sum::<u64>() / CENT_MICROS);
            let near = |(amount, cents): (&u64, &u64)| (cents * CENT_MICROS).abs_diff(*amount) < CENT_MICROS;
            assert!(amounts.iter().zip(&shown).all(near), "{amounts:?} {shown:?}");
        }
        assert_eq!(parts_that_add_up([u64::MAX, 5], 1), [u64::MAX, 0]);
    }
}

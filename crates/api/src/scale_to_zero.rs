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

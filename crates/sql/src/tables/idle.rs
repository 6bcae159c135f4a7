//! `loadline.idle_state` and `loadline.savings_daily`: who sleeps, and what that is worth.

use loadline_state_machine::{Day, IdleState, SavingsDay};

use super::define::{Definition, column, optional};
use super::source::Source;
use super::value::{Kind, Value};

fn name(source: &Source, id: loadline_state_machine::ClusterId) -> Value {
    source.state.cluster_by_id(id).map(|cluster| cluster.name.as_str()).into()
}

fn seconds(millis: u64) -> Value {
    Value::count(millis / 1_000)
}

pub(crate) static IDLE_STATE: Definition<IdleState> = Definition {
    schema: "loadline",
    name: "idle_state",
    comment: "Every cluster that an idle_suspend strategy rules: when it was used, since when it is at zero, who woke it.",
    is_view: false,
    key: &[1],
    columns: &[
        column("strategy_id", Kind::Text, |_, idle| Value::show(idle.strategy)),
        column("cluster_id", Kind::Text, |_, idle| Value::show(idle.cluster)),
        column("cluster", Kind::Text, |source, idle| name(source, idle.cluster)),
        optional("last_activity_at", Kind::Timestamptz, |_, idle| idle.last_activity_at.map(Value::time).into()),
        optional("idle_since", Kind::Timestamptz, |_, idle| idle.idle_since.map(Value::time).into()),
        optional("scaled_to_zero_at", Kind::Timestamptz, |_, idle| idle.scaled_to_zero_at.map(Value::time).into()),
        optional("last_wake_at", Kind::Timestamptz, |_, idle| idle.last_wake.map(|wake| Value::time(wake.at)).into()),
        optional("wake_reason", Kind::Text, |_, idle| idle.last_wake.map(|wake| wake.reason.as_str()).into()),
        optional("woken_ready_at", Kind::Timestamptz, |_, idle| {
            idle.last_wake.and_then(|wake| wake.ready_at).map(Value::time).into()
        }),
        column("is_scaled_to_zero", Kind::Bool, |_, idle| idle.is_scaled_to_zero().into()),
        column("ready", Kind::Bool, |_, idle| idle.serves.into()),
        column("idle_threshold_seconds", Kind::Int8, |_, idle| seconds(idle.times.threshold.as_millis())),
        column("keep_alive_window_seconds", Kind::Int8, |_, idle| seconds(idle.times.keep_alive.as_millis())),
        column("cold_start_timeout_seconds", Kind::Int8, |_, idle| seconds(idle.times.cold_start_timeout.as_millis())),
        optional("estimated_ready_seconds", Kind::Int8, |_, idle| {
            idle.start_expected.map(|span| Value::count(span.as_millis().div_ceil(1_000))).into()
        }),
        column("created_at", Kind::Timestamptz, |_, idle| Value::time(idle.created_at)),
        column("updated_at", Kind::Timestamptz, |_, idle| Value::time(idle.updated_at)),
    ],
    rows: |source| Ok(source.state.idle_states().collect()),
};

pub(crate) static SAVINGS_DAILY: Definition<SavingsDay> = Definition {
    schema: "loadline",
    name: "savings_daily",
    comment: "Idle time, time at zero and what that saved, per cluster and day of the zone of scale_to_zero_time_zone.",
    is_view: false,
    key: &[1, 3],
    columns: &[
        column("strategy_id", Kind::Text, |_, saved| Value::show(saved.strategy)),
        column("cluster_id", Kind::Text, |_, saved| Value::show(saved.cluster)),
        column("cluster", Kind::Text, |source, saved| name(source, saved.cluster)),
        column("date", Kind::Text, |_, saved| Value::show(saved.row.day)),
        column("idle_seconds", Kind::Int8, |_, saved| seconds(saved.row.idle_millis.into())),
        column("scaled_to_zero_seconds", Kind::Int8, |_, saved| seconds(saved.row.zero_millis.into())),
        column("estimated_savings_micros", Kind::Int8, |_, saved| Value::count(saved.row.saved_micros)),
        column("estimated_savings_cents", Kind::Int8, |_, saved| Value::count(saved.row.saved_micros / 10_000)),
        column("hourly_cost_micros", Kind::Int8, |_, saved| Value::count(saved.row.hourly_micros)),
    ],
    rows: |source| {
        let ids = source.state.clusters_after(None).map(|cluster| cluster.id);
        Ok(ids.flat_map(|id| source.state.savings(id, Day::default())).collect())
    },
};

//! How a cluster sleeps, as it is shown beside the cluster.

use std::fmt;

use loadline_client::v1;
use serde::Serialize;

use crate::text::show_time;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct IdleView {
    strategy: String,
    is_scaled_to_zero: bool,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_activity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idle_since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scaled_to_zero: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_wake: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_reason: Option<String>,
    idle_threshold_seconds: u64,
    keep_alive_seconds: u64,
    cold_start_timeout_seconds: u64,
}

fn shown(millis: i64) -> Option<String> {
    (millis > 0).then(|| show_time(millis))
}

impl From<v1::IdleState> for IdleView {
    fn from(idle: v1::IdleState) -> IdleView {
        IdleView {
            strategy: idle.strategy,
            is_scaled_to_zero: idle.is_scaled_to_zero,
            ready: idle.ready,
            last_activity: shown(idle.last_activity_ms),
            idle_since: shown(idle.idle_since_ms),
            scaled_to_zero: shown(idle.scaled_to_zero_ms),
            last_wake: shown(idle.last_wake_ms),
            wake_reason: Some(idle.wake_reason).filter(|reason| !reason.is_empty()),
            idle_threshold_seconds: idle.idle_threshold_ms / 1_000,
            keep_alive_seconds: idle.keep_alive_ms / 1_000,
            cold_start_timeout_seconds: idle.cold_start_timeout_ms / 1_000,
        }
    }
}

impl IdleView {
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let wake = match (&self.last_wake, &self.wake_reason) {
            (Some(at), Some(reason)) => format!("{at} ({reason})"),
            _ => String::new(),
        };
        vec![
            ("Last activity", self.last_activity.clone().unwrap_or_default()),
            ("Idle since", self.idle_since.clone().unwrap_or_default()),
            ("Scaled to zero", self.scaled_to_zero.clone().unwrap_or_default()),
            ("Last wake", wake),
        ]
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct OverrideView {
    replicas_min: u32,
    size: String,
    reason: String,
    by: String,
    since: String,
    expire_time: String,
}

impl From<v1::Override> for OverrideView {
    fn from(floor: v1::Override) -> OverrideView {
        OverrideView {
            replicas_min: floor.replicas_min,
            size: floor.size,
            reason: floor.reason,
            by: floor.by,
            since: show_time(floor.since_ms),
            expire_time: show_time(floor.expire_time_ms),
        }
    }
}

impl fmt::Display for OverrideView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at least {} replicas until {}, by {}", self.replicas_min, self.expire_time, self.by)?;
        if self.reason.is_empty() { Ok(()) } else { write!(f, ": {}", self.reason) }
    }
}

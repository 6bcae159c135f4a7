//! The settings that scaling goes by, read when one of them changes.

use super::idle::IdleTimes;
use crate::settings::{
    AUTO_SCALING_ACTION_RETENTION, AUTO_SCALING_ACTION_ROWS_MAX, AUTO_SCALING_APPROVAL_EXPIRY,
    AUTO_SCALING_ATTEMPTS_MAX, AUTO_SCALING_CLUSTER_COOLDOWN, AUTO_SCALING_ENABLED, AUTO_SCALING_JOIN_TIMEOUT,
    AUTO_SCALING_RATE_LIMIT, AUTO_SCALING_RATE_WINDOW, AUTO_SCALING_STUCK_AFTER, ENABLE_AUTO_SCALING,
    SCALE_TO_ZERO_COLD_START_TIMEOUT, SCALE_TO_ZERO_IDLE_THRESHOLD, SCALE_TO_ZERO_KEEP_ALIVE, SIGNAL_STALE_AFTER,
    Settings,
};
use crate::{Rejection, Span, scaling::rejection::ScalingRejection};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Knobs {
    /// The feature as a whole.
    pub(crate) feature: bool,
    /// False: the kill switch was used.
    pub(crate) acting: bool,
    pub(crate) stale_after: Span,
    pub(crate) cluster_cooldown: Span,
    pub(crate) rate_limit: u64,
    pub(crate) rate_window: Span,
    pub(crate) join_timeout: Span,
    pub(crate) stuck_after: Span,
    pub(crate) approval_expiry: Span,
    pub(crate) attempts_max: u64,
    pub(crate) retention: Span,
    pub(crate) rows_max: u64,
    pub(crate) idle: IdleTimes,
}

impl Knobs {
    pub(crate) fn read(settings: &Settings) -> Self {
        Self {
            feature: settings.flag(&ENABLE_AUTO_SCALING),
            acting: settings.flag(&AUTO_SCALING_ENABLED),
            stale_after: settings.span(&SIGNAL_STALE_AFTER),
            cluster_cooldown: settings.span(&AUTO_SCALING_CLUSTER_COOLDOWN),
            rate_limit: settings.count(&AUTO_SCALING_RATE_LIMIT),
            rate_window: settings.span(&AUTO_SCALING_RATE_WINDOW),
            join_timeout: settings.span(&AUTO_SCALING_JOIN_TIMEOUT),
            stuck_after: settings.span(&AUTO_SCALING_STUCK_AFTER),
            approval_expiry: settings.span(&AUTO_SCALING_APPROVAL_EXPIRY),
            attempts_max: settings.count(&AUTO_SCALING_ATTEMPTS_MAX),
            retention: settings.span(&AUTO_SCALING_ACTION_RETENTION),
            rows_max: settings.count(&AUTO_SCALING_ACTION_ROWS_MAX),
            idle: IdleTimes {
                threshold: settings.span(&SCALE_TO_ZERO_IDLE_THRESHOLD),
                keep_alive: settings.span(&SCALE_TO_ZERO_KEEP_ALIVE),
                cold_start_timeout: settings.span(&SCALE_TO_ZERO_COLD_START_TIMEOUT),
            },
        }
    }
}

/// What steers scaling is refused while the feature is off. Facts (signals, outcomes) are not: they would be missing when
/// it is switched on.
pub(crate) fn require_feature(settings: &Settings) -> Result<(), Rejection> {
    if settings.knobs().feature { Ok(()) } else { Err(ScalingRejection::FeatureOff.into()) }
}

/// Whether a setting of this name may change what is decided about any cluster.
pub(crate) fn concerns_decisions(name: &str) -> bool {
    [
        &ENABLE_AUTO_SCALING,
        &AUTO_SCALING_ENABLED,
        &SIGNAL_STALE_AFTER,
        &AUTO_SCALING_CLUSTER_COOLDOWN,
        &AUTO_SCALING_RATE_LIMIT,
        &AUTO_SCALING_RATE_WINDOW,
        &AUTO_SCALING_JOIN_TIMEOUT,
        &AUTO_SCALING_STUCK_AFTER,
        &SCALE_TO_ZERO_IDLE_THRESHOLD,
        &SCALE_TO_ZERO_KEEP_ALIVE,
        &SCALE_TO_ZERO_COLD_START_TIMEOUT,
    ]
    .iter()
    .any(|definition| definition.name == name)
}

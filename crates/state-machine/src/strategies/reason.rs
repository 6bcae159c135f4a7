//! Why a strategy decided as it did: a stable code for programs, the facts beside it, and a text for people that is made
//! from both when somebody looks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::configuration::ConfigurationProblem;
use crate::configuration::decimal::show_milli;
use crate::table::Key;
use crate::{Span, Time};

/// New reasons go at the end: the place is the number in stored decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    Disabled,
    BadConfiguration(Box<ConfigurationProblem>),
    InCooldown {
        until: Time,
    },

    TargetMissing {
        size: Key,
    },
    /// Nothing to do: the target is there, and nothing else.
    TargetAlone,
    TargetNotHydrated {
        replica: Key,
        total: u64,
        hydrated: u64,
    },
    TargetHydrated {
        replica: Key,
    },

    LadderNeeded {
        size: Key,
    },
    /// Every size failed within the window; the first may be tried again at `until`.
    LadderExhausted {
        until: Time,
    },
    OomLooping {
        ooms: u64,
    },
    CrashLooping {
        crashes: u64,
    },
    LargerThanHealthy {
        healthy: Key,
    },
    /// No replica is hydrated and free of crashes yet.
    NoneHealthy,
    /// Nothing larger than the smallest healthy replica.
    FitsAlready {
        healthy: Key,
    },

    BurstNeeded {
        size: Key,
    },
    /// The burst replica has done its work.
    OtherHydrated {
        replica: Key,
    },
    /// The burst replica is there, and still needed.
    BurstHelping,
    BurstNotNeeded {
        hydrated: Key,
    },
    BurstSizePresent {
        replica: Key,
    },
    NoOthers,

    Idle {
        since: Time,
    },
    /// A live collector has seen no activity at all.
    NoActivitySeen {
        since: Time,
    },
    Active {
        last_at: Time,
        suspends_at: Time,
    },
    NothingToSuspend,
    /// It was suspended, and somebody uses it again.
    Woken,
    /// It was suspended, and nothing says that this should end.
    StaysSuspended,

    /// A signal that the strategy relies on was reported too long ago.
    SignalStale {
        since: Time,
    },
    /// No live collector has said anything about it.
    SignalMissing,
    /// The replica that others would make room for is about to be taken away.
    UnderNotice {
        replica: Key,
    },

    Panicked,
    Overran {
        steps_max: u32,
    },
    /// Of no strategy: somebody wants it.
    Asked {
        by: Key,
    },

    /// A signal asks for more: this one the most, or the least where all must agree.
    SignalAbove {
        signal: Key,
        value_milli: i64,
        wanted: u32,
        /// As many as it may be at once.
        replicas: u32,
    },
    SignalBelow {
        signal: Key,
        value_milli: i64,
        wanted: u32,
        replicas: u32,
    },
    SignalOnTarget {
        signal: Key,
        value_milli: i64,
        replicas: u32,
    },
    /// Not long enough ago, something else was recommended.
    Stabilizing {
        wanted: u32,
        replicas: u32,
        until: Option<Time>,
    },
    /// So many were added or removed lately that the policies allow no more.
    PolicyHolds {
        wanted: u32,
        replicas: u32,
        until: Option<Time>,
    },
    DirectionDisabled {
        wanted: u32,
        replicas: u32,
    },
    AtMaximum {
        wanted: u32,
        replicas: u32,
    },
    AtMinimum {
        wanted: u32,
        replicas: u32,
    },
    BelowMinimum {
        replicas: u32,
        replicas_min: u32,
    },
    AboveMaximum {
        replicas: u32,
        replicas_max: u32,
    },
    /// There is no replica, and no signal asks for the first.
    NotActivated,
    /// No live collector has reported this signal of the configuration.
    MetricMissing {
        signal: Key,
    },
    MetricStale {
        signal: Key,
        since: Time,
    },
    /// Another strategy needs more of the same replicas.
    NeededByOther {
        replicas: u32,
    },
    /// A replica of the strategy's own has another size than it should have now.
    OtherSizeWanted {
        size: Key,
    },
    /// By a profile of the strategy's schedule.
    SuspendedBySchedule {
        until: Option<Time>,
    },
    /// A profile that had the cluster suspended has ended.
    WokenBySchedule,
    /// It is idle, and was woken too short a while ago to be suspended.
    KeptAwake {
        until: Time,
    },
    /// Of no strategy: somebody wants a minimum of replicas for a while.
    Overridden {
        replicas_min: u32,
        until: Time,
    },
    /// Of no strategy: what an override made goes.
    OverrideOver,
    /// The signal was measured before the number of replicas changed, and says nothing about those there are.
    AwaitsSignal {
        signal: Key,
        replicas: u32,
    },
}

impl Reason {
    /// Every code there is, and what it means.
    pub const CODES: &'static [(&'static str, &'static str)] = &[
        ("DISABLED", "The strategy is switched off."),
        ("BAD_CONFIGURATION", "The configuration cannot be used; only this strategy is affected."),
        ("IN_COOLDOWN", "The strategy changed something a short while ago and waits."),
        ("TARGET_MISSING", "There is no replica of the target size: one is added."),
        ("TARGET_ALONE", "There is a replica of the target size and no other."),
        ("TARGET_NOT_HYDRATED", "The others stay until the replica of the target size is hydrated."),
        ("TARGET_HYDRATED", "The replica of the target size is hydrated: others go."),
        ("LADDER_NEEDED", "There is no replica: one of every size is tried."),
        ("LADDER_EXHAUSTED", "There is no replica, and every size failed lately."),
        ("OOM_LOOPING", "The replica runs out of memory again and again: it goes."),
        ("CRASH_LOOPING", "The replica crashes again and again: it goes."),
        ("LARGER_THAN_HEALTHY", "A smaller replica is healthy: this one goes."),
        ("NONE_HEALTHY", "No replica is hydrated and free of crashes yet."),
        ("FITS_ALREADY", "Nothing is larger than the smallest healthy replica."),
        ("BURST_NEEDED", "No replica is hydrated: a burst replica is added."),
        ("OTHER_HYDRATED", "Another replica is hydrated: the burst replica goes."),
        ("BURST_HELPING", "The burst replica stays until another is hydrated."),
        ("BURST_NOT_NEEDED", "A replica is hydrated."),
        ("BURST_SIZE_PRESENT", "There is a replica of the burst size already."),
        ("NO_OTHERS", "There is no other replica to help."),
        ("IDLE", "Nobody has used the cluster for longer than the threshold."),
        ("NO_ACTIVITY_SEEN", "A live collector has seen no activity at all."),
        ("ACTIVE", "The cluster was used within the threshold."),
        ("NOTHING_TO_SUSPEND", "There is no replica to suspend."),
        ("WOKEN", "The suspended cluster is used again: its replicas come back."),
        ("STAYS_SUSPENDED", "The cluster is suspended and stays so."),
        ("SIGNAL_STALE", "A signal is too old to rely on: what is there stays."),
        ("SIGNAL_MISSING", "No live collector has reported the signal: what is there stays."),
        ("UNDER_NOTICE", "The replica to rely on is about to be taken away: what is there stays."),
        ("PANICKED", "The strategy failed; the cluster holds."),
        ("OVERRAN", "The strategy took more steps than it may; the cluster holds."),
        ("ASKED", "Somebody asked for exactly this, beside the strategies."),
        ("SIGNAL_ABOVE", "A signal asks for more replicas: they are added."),
        ("SIGNAL_BELOW", "The signals ask for fewer replicas: some go."),
        ("SIGNAL_ON_TARGET", "The signals ask for as many replicas as there are."),
        ("STABILIZING", "Within the stabilization window something else was recommended: what is there stays."),
        ("POLICY_HOLDS", "The scale policies allow no further change yet."),
        ("DIRECTION_DISABLED", "The scale policies are disabled in this direction."),
        ("AT_MAXIMUM", "The signals ask for more than the maximum."),
        ("AT_MINIMUM", "The signals ask for fewer than the minimum."),
        ("BELOW_MINIMUM", "There are fewer replicas than the minimum: the rest is added."),
        ("ABOVE_MAXIMUM", "There are more replicas than the maximum: some go."),
        ("NOT_ACTIVATED", "There is no replica, and no signal is above its activation."),
        ("METRIC_MISSING", "No live collector has reported a signal: nothing shrinks."),
        ("METRIC_STALE", "A signal is too old to rely on: nothing shrinks."),
        ("NEEDED_BY_OTHER", "Another strategy needs more of the same replicas."),
        ("OTHER_SIZE_WANTED", "The replica should have another size: one of that size takes its place."),
        ("SUSPENDED_BY_SCHEDULE", "The schedule of the strategy has the cluster suspended."),
        ("WOKEN_BY_SCHEDULE", "The schedule has the cluster suspended no longer: its replicas come back."),
        ("KEPT_AWAKE", "The cluster was woken within the keep-alive window: it is not suspended."),
        ("OVERRIDDEN", "Somebody wants a minimum of replicas for a while, whatever the strategies say."),
        ("OVERRIDE_OVER", "The override has ended: what it made goes."),
        ("AWAITS_SIGNAL", "The signal is older than the last change, so the next value is waited for."),
    ];

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        Self::CODES[self.place()].0
    }

    /// The same as the code, for those who only compare.
    pub(crate) fn number(&self) -> u64 {
        self.place() as u64
    }

    fn place(&self) -> usize {
        match self {
            Self::Disabled => 0,
            Self::BadConfiguration(_) => 1,
            Self::InCooldown { .. } => 2,
            Self::TargetMissing { .. } => 3,
            Self::TargetAlone => 4,
            Self::TargetNotHydrated { .. } => 5,
            Self::TargetHydrated { .. } => 6,
            Self::LadderNeeded { .. } => 7,
            Self::LadderExhausted { .. } => 8,
            Self::OomLooping { .. } => 9,
            Self::CrashLooping { .. } => 10,
            Self::LargerThanHealthy { .. } => 11,
            Self::NoneHealthy => 12,
            Self::FitsAlready { .. } => 13,
            Self::BurstNeeded { .. } => 14,
            Self::OtherHydrated { .. } => 15,
            Self::BurstHelping => 16,
            Self::BurstNotNeeded { .. } => 17,
            Self::BurstSizePresent { .. } => 18,
            Self::NoOthers => 19,
            Self::Idle { .. } => 20,
            Self::NoActivitySeen { .. } => 21,
            Self::Active { .. } => 22,
            Self::NothingToSuspend => 23,
            Self::Woken => 24,
            Self::StaysSuspended => 25,
            Self::SignalStale { .. } => 26,
            Self::SignalMissing => 27,
            Self::UnderNotice { .. } => 28,
            Self::Panicked => 29,
            Self::Overran { .. } => 30,
            Self::Asked { .. } => 31,
            Self::SignalAbove { .. } => 32,
            Self::SignalBelow { .. } => 33,
            Self::SignalOnTarget { .. } => 34,
            Self::Stabilizing { .. } => 35,
            Self::PolicyHolds { .. } => 36,
            Self::DirectionDisabled { .. } => 37,
            Self::AtMaximum { .. } => 38,
            Self::AtMinimum { .. } => 39,
            Self::BelowMinimum { .. } => 40,
            Self::AboveMaximum { .. } => 41,
            Self::NotActivated => 42,
            Self::MetricMissing { .. } => 43,
            Self::MetricStale { .. } => 44,
            Self::NeededByOther { .. } => 45,
            Self::OtherSizeWanted { .. } => 46,
            Self::SuspendedBySchedule { .. } => 47,
            Self::WokenBySchedule => 48,
            Self::KeptAwake { .. } => 49,
            Self::Overridden { .. } => 50,
            Self::OverrideOver => 51,
            Self::AwaitsSignal { .. } => 52,
        }
    }

    /// The same reason with other facts: the idle time went on, one more object is hydrated.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// The strategy did not come to a decision, and its cluster holds.
    pub(crate) fn is_fault(&self) -> bool {
        matches!(self, Self::Panicked | Self::Overran { .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disabled => f.write_str("the strategy is disabled"),
            Self::BadConfiguration(problem) => write!(f, "the configuration cannot be used: {problem}"),
            Self::InCooldown { until } => write!(f, "in cooldown until {until}"),
            Self::TargetMissing { size } => write!(f, "target size {size} not present"),
            Self::TargetAlone => f.write_str("the target size is present, and nothing else"),
            Self::TargetNotHydrated { replica, total, hydrated } => {
                write!(f, "{replica} is of the target size, but has {hydrated} of {total} objects hydrated")
            }
            Self::TargetHydrated { replica } => write!(f, "{replica} is of the target size and hydrated"),
            Self::LadderNeeded { size } => write!(f, "there is no replica, so size {size} is tried"),
            Self::LadderExhausted { until } => {
                write!(f, "there is no replica, and every size failed lately; the next try is at {until}")
            }
            Self::OomLooping { ooms } => write!(f, "{ooms} crashes for want of memory in the window"),
            Self::CrashLooping { crashes } => write!(f, "{crashes} crashes in the window"),
            Self::LargerThanHealthy { healthy } => write!(f, "{healthy} is smaller and healthy"),
            Self::NoneHealthy => f.write_str("no replica is hydrated and free of crashes yet"),
            Self::FitsAlready { healthy } => write!(f, "nothing is larger than {healthy}, which is healthy"),
            Self::BurstNeeded { size } => write!(f, "no replica is hydrated and none has the burst size {size}"),
            Self::OtherHydrated { replica } => write!(f, "{replica} is hydrated"),
            Self::BurstHelping => f.write_str("no other replica is hydrated yet"),
            Self::BurstNotNeeded { hydrated } => write!(f, "{hydrated} is hydrated"),
            Self::BurstSizePresent { replica } => write!(f, "{replica} has the burst size already"),
            Self::NoOthers => f.write_str("there is no other replica to help"),
            Self::Idle { since } => write!(f, "idle since {since}"),
            Self::NoActivitySeen { since } => write!(f, "no activity seen since a collector looks, {since}"),
            Self::Active { last_at, suspends_at } => {
                write!(f, "last used at {last_at}; it would be suspended after {suspends_at}")
            }
            Self::NothingToSuspend => f.write_str("there is no replica to suspend"),
            Self::Woken => f.write_str("the suspended cluster is used again"),
            Self::StaysSuspended => f.write_str("the cluster is suspended and stays so"),
            Self::SignalStale { since } => write!(f, "a signal is stale since {since}, what is there stays"),
            Self::SignalMissing => f.write_str("no live collector has reported the signal, what is there stays"),
            Self::UnderNotice { replica } => write!(f, "{replica} is about to be taken away, what is there stays"),
            Self::Panicked => f.write_str("the strategy failed, what is there stays"),
            Self::Overran { steps_max } => write!(f, "the strategy took more than {steps_max} steps"),
            Self::Asked { by } => write!(f, "asked for by {by}"),
            Self::SignalAbove { signal, value_milli, wanted, replicas }
            | Self::SignalBelow { signal, value_milli, wanted, replicas } => {
                write!(f, "signal {signal} is {} and asks for {wanted} replicas", show_milli(*value_milli))?;
                if wanted == replicas { Ok(()) } else { write!(f, ", of which {replicas} may be now") }
            }
            Self::SignalOnTarget { signal, value_milli, replicas } => {
                write!(
                    f,
                    "signal {signal} is {} and asks for the {replicas} replicas there are",
                    show_milli(*value_milli)
                )
            }
            Self::Stabilizing { wanted, replicas, until } => {
                write!(f, "{wanted} replicas are asked for, and {replicas} stay for the stabilization window")?;
                until.map_or(Ok(()), |until| write!(f, " until {until}"))
            }
            Self::PolicyHolds { wanted, replicas, until } => {
                write!(f, "{wanted} replicas are asked for, and the scale policies leave {replicas} for now")?;
                until.map_or(Ok(()), |until| write!(f, ", until {until}"))
            }
            Self::DirectionDisabled { wanted, replicas } => {
                write!(
                    f,
                    "{wanted} replicas are asked for, and the scale policies that way are disabled: {replicas} stay"
                )
            }
            Self::AtMaximum { wanted, replicas } => {
                write!(f, "{wanted} replicas are asked for, and the maximum is {replicas}")
            }
            Self::AtMinimum { wanted, replicas } => {
                write!(f, "{wanted} replicas are asked for, and the minimum is {replicas}")
            }
            Self::BelowMinimum { replicas, replicas_min } => {
                write!(f, "there are {replicas} replicas, and the minimum is {replicas_min}")
            }
            Self::AboveMaximum { replicas, replicas_max } => {
                write!(f, "there are {replicas} replicas, and the maximum is {replicas_max}")
            }
            Self::NotActivated => f.write_str("there is no replica, and no signal is above its activation"),
            Self::MetricMissing { signal } => {
                write!(f, "no live collector has reported the signal {signal}, so nothing shrinks")
            }
            Self::MetricStale { signal, since } => {
                write!(f, "the signal {signal} is stale since {since}, so nothing shrinks")
            }
            Self::NeededByOther { replicas } => write!(f, "another strategy needs {replicas} of the same replicas"),
            Self::OtherSizeWanted { size } => write!(f, "its size should be {size} now"),
            Self::SuspendedBySchedule { until } => {
                f.write_str("suspended by the schedule")?;
                until.map_or(Ok(()), |until| write!(f, " until {until}"))
            }
            Self::WokenBySchedule => f.write_str("the schedule has the cluster suspended no longer"),
            Self::AwaitsSignal { signal, replicas } => write!(
                f,
                "signal {signal} was measured before the last change and says nothing about the {replicas} replicas there are"
            ),
            Self::KeptAwake { until } => write!(f, "idle, but woken lately: kept awake until {until}"),
            Self::Overridden { replicas_min, until } => {
                write!(f, "overridden until {until}: at least {replicas_min} replicas")
            }
            Self::OverrideOver => f.write_str("the override has ended"),
        }
    }
}

/// When a decision would come out differently by itself, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChangesAt {
    pub at: Time,
    pub why: ChangeCause,
}

/// New causes go at the end: the place is the number in stored decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChangeCause {
    CooldownOver,
    IdleThreshold,
    SignalStale,
    CrashWindowOver,
    PauseOver,
    RateLimitOver,
    BackoffOver,
    ApprovalExpires,
    JoinTimeout,
    Stuck,
    RetryDue,
    WindowOver,
    PolicyPeriodOver,
    PanicOver,
    ProfileOver,
    KeepAliveOver,
    OverrideOver,
}

impl ChangeCause {
    pub const ALL: &'static [Self] = &[
        Self::CooldownOver,
        Self::IdleThreshold,
        Self::SignalStale,
        Self::CrashWindowOver,
        Self::PauseOver,
        Self::RateLimitOver,
        Self::BackoffOver,
        Self::ApprovalExpires,
        Self::JoinTimeout,
        Self::Stuck,
        Self::RetryDue,
        Self::WindowOver,
        Self::PolicyPeriodOver,
        Self::PanicOver,
        Self::ProfileOver,
        Self::KeepAliveOver,
        Self::OverrideOver,
    ];

    pub fn code(self) -> &'static str {
        match self {
            Self::CooldownOver => "COOLDOWN_OVER",
            Self::IdleThreshold => "IDLE_THRESHOLD",
            Self::SignalStale => "SIGNAL_STALE",
            Self::CrashWindowOver => "CRASH_WINDOW_OVER",
            Self::PauseOver => "PAUSE_OVER",
            Self::RateLimitOver => "RATE_LIMIT_OVER",
            Self::BackoffOver => "BACKOFF_OVER",
            Self::ApprovalExpires => "APPROVAL_EXPIRES",
            Self::JoinTimeout => "JOIN_TIMEOUT",
            Self::Stuck => "STUCK",
            Self::RetryDue => "RETRY_DUE",
            Self::WindowOver => "WINDOW_OVER",
            Self::PolicyPeriodOver => "POLICY_PERIOD_OVER",
            Self::PanicOver => "PANIC_OVER",
            Self::ProfileOver => "PROFILE_OVER",
            Self::KeepAliveOver => "KEEP_ALIVE_OVER",
            Self::OverrideOver => "OVERRIDE_OVER",
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::CooldownOver => "a cooldown ends",
            Self::IdleThreshold => "the cluster would have been idle for long enough",
            Self::SignalStale => "a signal would be too old to rely on",
            Self::CrashWindowOver => "a crash would no longer count",
            Self::PauseOver => "the pause ends",
            Self::RateLimitOver => "the rate limit leaves room again",
            Self::BackoffOver => "the wait after a failure ends",
            Self::ApprovalExpires => "the wait for an approval ends",
            Self::JoinTimeout => "a new replica would have had long enough to become ready",
            Self::Stuck => "the operation would have made no progress for too long",
            Self::RetryDue => "a failed step is tried again",
            Self::WindowOver => "a recommendation leaves the stabilization window",
            Self::PolicyPeriodOver => "a change leaves the period of a scale policy",
            Self::PanicOver => "the panic ends",
            Self::ProfileOver => "another profile of the schedule holds",
            Self::KeepAliveOver => "it would have been awake for long enough to be suspended again",
            Self::OverrideOver => "the override ends",
        }
    }
}

/// The earlier of the two.
pub(crate) fn earlier(one: Option<ChangesAt>, other: Option<ChangesAt>) -> Option<ChangesAt> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The first moment after `until`: what holds up to and including a moment changes one tick later.
pub(crate) fn just_after(until: Time, why: ChangeCause) -> ChangesAt {
    ChangesAt { at: until + Span::from_millis(1), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_there_once() {
        let mut codes: Vec<&str> = Reason::CODES.iter().map(|(code, _)| *code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), Reason::CODES.len());
        assert_eq!(Reason::Overran { steps_max: 1 }.code(), "OVERRAN", "the last one is the last one");
        assert_eq!(Reason::Idle { since: Time::from_millis(0) }.code(), "IDLE");
        assert_eq!(Reason::SignalMissing.code(), "SIGNAL_MISSING");
    }
}

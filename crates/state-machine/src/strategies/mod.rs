//! The strategies: pure functions from what is seen, and what earlier strategies wanted, to what this one wants.
//!
//! - Here: what a strategy is given ([`View`], its own [`StrategyState`]) and what it answers ([`Verdict`]).
//! - One file for each kind (`tracking` serves two); [`chain`] runs them in order; [`desired`] is what they work on; [`reason`] is why.
//!
//! A strategy builds no text and reads no clock. What it cannot know (a signal that is stale or was never reported)
//! holds what is there: missing data never scales down.

pub(crate) mod burst;
pub(crate) mod by_kind;
pub(crate) mod chain;
pub(crate) mod desired;
pub(crate) mod idle_suspend;
pub(crate) mod reason;
pub(crate) mod shrink_to_fit;
pub(crate) mod target_size;
pub(crate) mod tracking;

use serde::{Deserialize, Serialize};

use crate::configuration::{Configuration, StrategyKind};
use crate::scaling::idle::{IdleTimes, Wake};
use crate::signals::replica::{CrashCount, Replica};
use crate::signals::{Freshness, Signals, find_replica};
use crate::sizes::Sizes;
use crate::table::Key;
use crate::{Span, StrategyId, Time};

use desired::{Desired, ReplicaSpec};
use reason::{ChangesAt, Reason};
use tracking::pace::{Course, Noted};

/// What a strategy sees.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) now: Time,
    pub(crate) stale_after: Span,
    /// The replicas that are there, by name.
    pub(crate) replicas: &'a [Replica],
    pub(crate) signals: &'a Signals,
    pub(crate) sizes: &'a Sizes,
    /// As the settings say, where a strategy does not.
    pub(crate) idle: IdleTimes,
    /// When the cluster was woken last.
    pub(crate) wake: Option<Wake>,
}

/// Whether a replica serves everything it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hydrated {
    Yes {
        fresh_until: Time,
    },
    No {
        total: u64,
        hydrated: u64,
        fresh_until: Time,
    },
    /// It was reported, but too long ago.
    Stale {
        since: Time,
    },
    /// It may be, but must not be relied on: it is about to be taken away.
    UnderNotice,
    /// Nobody watches this cluster, so that nothing was reported means nothing.
    Unwatched,
}

impl View<'_> {
    pub(crate) fn replica(&self, name: &str) -> Option<&Replica> {
        find_replica(self.replicas, name)
    }

    /// Whether the replica of this name is hydrated. One that is wanted but not there, or that a live collector says nothing
    /// about, is not.
    pub(crate) fn hydrated(&self, name: &str) -> Hydrated {
        let replica = self.replica(name);
        let Some(report) = replica.and_then(|replica| replica.hydration.as_ref()) else {
            return match self.signals.watched(self.now, self.stale_after) {
                Some(Freshness::FreshUntil(fresh_until)) => Hydrated::No { total: 0, hydrated: 0, fresh_until },
                Some(Freshness::StaleSince(since)) => Hydrated::Stale { since },
                None => Hydrated::Unwatched,
            };
        };
        match self.signals.freshness(&report.collector, report.as_of, self.now, self.stale_after) {
            Freshness::StaleSince(since) => Hydrated::Stale { since },
            Freshness::FreshUntil(fresh_until) if !report.is_complete() => {
                Hydrated::No { total: report.total, hydrated: report.hydrated, fresh_until }
            }
            Freshness::FreshUntil(_) if replica.is_some_and(|replica| replica.notice.is_some()) => {
                Hydrated::UnderNotice
            }
            Freshness::FreshUntil(fresh_until) => Hydrated::Yes { fresh_until },
        }
    }

    pub(crate) fn crashes(&self, name: &str, window: Span) -> CrashCount {
        let none = CrashCount { crashes: 0, ooms: 0, until: None };
        self.replica(name).map_or(none, |replica| replica.crashes_within(window, self.now))
    }

    /// Where a size stands on the ladder. One that is not there counts as the largest: nothing is known to be larger.
    pub(crate) fn rank(&self, size: &str) -> u32 {
        self.sizes.get(size).map_or(u32::MAX, |size| size.rank)
    }
}

/// What a strategy remembers about one cluster from one evaluation to the next. Nobody else's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StrategyState {
    pub version: u32,
    /// Whose state this is: another strategy of the same kind starts anew.
    pub strategy: StrategyId,
    /// When a change of this strategy was carried out last: its cooldown counts from here.
    pub last_change_at: Option<Time>,
    pub memory: Memory,
}

/// The version of [`StrategyState`]. State of another version is not guessed at, but begun anew.
pub const STRATEGY_STATE_VERSION: u32 = 1;

/// What is particular to a kind. New variants go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Memory {
    Nothing,
    /// Of `shrink_to_fit`: the sizes whose replicas were dropped because they crashed, and when.
    FailedSizes(Vec<FailedSize>),
    /// Of `idle_suspend`: what was there before the cluster was suspended.
    Suspended(Vec<ReplicaSpec>),
    /// Of `target_tracking` and `queue_depth`: what they recommended and changed lately.
    Course(Box<Course>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedSize {
    pub size: Key,
    pub at: Time,
}

impl StrategyState {
    pub(crate) fn new(strategy: StrategyId) -> Self {
        Self { version: STRATEGY_STATE_VERSION, strategy, last_change_at: None, memory: Memory::Nothing }
    }

    /// Whether this is the state of that strategy, in a form that is understood here.
    pub(crate) fn is_of(&self, strategy: StrategyId) -> bool {
        self.strategy == strategy && self.version == STRATEGY_STATE_VERSION
    }

    /// Until when the strategy has to wait; nothing if it need not.
    pub(crate) fn in_cooldown(&self, cooldown: Span, now: Time) -> Option<Time> {
        let until = self.last_change_at? + cooldown;
        (now < until).then_some(until)
    }
}

/// What a strategy answers, beside what it did to the desired state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) reason: Reason,
    /// When it would answer differently though nothing is heard.
    pub(crate) changes_at: Option<ChangesAt>,
    /// What it has to remember, even if nothing comes of it now.
    pub(crate) noted: Option<Noted>,
}

impl Verdict {
    pub(crate) fn now(reason: Reason) -> Self {
        Self { reason, changes_at: None, noted: None }
    }

    pub(crate) fn until(reason: Reason, changes_at: ChangesAt) -> Self {
        Self { reason, changes_at: Some(changes_at), noted: None }
    }
}

/// The strategy took too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overran;

/// Counts the steps of a strategy. A limit in time would cut in at another place on every machine; a count of replicas and
/// sizes looked at is the same everywhere.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    left: u32,
}

/// Far more than 1,000 replicas on a ladder of 100 sizes need.
pub(crate) const STEPS_MAX: u32 = 20_000;

impl Steps {
    pub(crate) fn new() -> Self {
        Self { left: STEPS_MAX }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<(), Overran> {
        self.left = u32::try_from(count).ok().and_then(|count| self.left.checked_sub(count)).ok_or(Overran)?;
        Ok(())
    }
}

/// What a strategy of any kind is asked.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) configuration: &'a Configuration,
    pub(crate) state: &'a StrategyState,
    pub(crate) view: View<'a>,
    /// Set while the strategy may not change what is there.
    pub(crate) cooldown_until: Option<Time>,
    /// When a profile ended that had the cluster suspended, if no other came since.
    pub(crate) woken_at: Option<Time>,
}

pub(crate) type Decide = fn(&Question<'_>, &mut Desired, &mut Steps) -> Result<Verdict, Overran>;

/// Who decides for each kind, by [`StrategyKind::slot`].
pub(crate) const STRATEGIES: [Decide; StrategyKind::COUNT] = [
    target_size::decide,
    shrink_to_fit::decide,
    burst::decide,
    idle_suspend::decide,
    tracking::decide,
    tracking::decide,
];

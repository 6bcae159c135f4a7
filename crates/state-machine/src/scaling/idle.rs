//! What is kept about a cluster that may be scaled to zero: since when it is, when it was woken and why, how long starts take.
//!
//! - Here: the record, and how what happens to the replicas changes it. [`super::wake`]: waking by hand. [`super::savings`]: what
//!   the time at zero was worth. Whether it is time to suspend is decided by `strategies::idle_suspend`.
//!
//! Whether a cluster is at zero is not told by anybody: it follows from its replicas and from what `idle_suspend` took away. So
//! every event that may change either ends with a look here ([`settle`]).

use serde::{Deserialize, Serialize};

use super::ClusterRecord;
use super::savings::{DayRow, Ledger};
use crate::configuration::{Rule, StrategyKind};
use crate::sizes::Sizes;
use crate::strategies::Memory;
use crate::strategies::desired::ReplicaSpec;
use crate::{ClusterId, Rejection, Span, State, StrategyId, Time};

/// How many past starts an estimate goes by. Older ones say little about today's image and machine.
const STARTS_KEPT_MAX: usize = 8;

/// How long idleness must last, and what waking has time for. As an option of the strategy says, else as the settings do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTimes {
    /// Without activity for longer than this, the cluster is suspended.
    pub threshold: Span,
    /// It is not suspended before it was awake for this long.
    pub keep_alive: Span,
    /// How long a woken cluster may take to become ready.
    pub cold_start_timeout: Span,
}

impl IdleTimes {
    /// These, with what the strategy says for itself.
    #[must_use]
    pub(crate) fn with(self, rule: &Rule) -> Self {
        let Rule::IdleSuspend { idle_after, keep_alive, cold_start_timeout } = rule else { return self };
        Self {
            threshold: idle_after.unwrap_or(self.threshold),
            keep_alive: keep_alive.unwrap_or(self.keep_alive),
            cold_start_timeout: cold_start_timeout.unwrap_or(self.cold_start_timeout),
        }
    }
}

/// Why a cluster was woken. New reasons go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakeReason {
    Manual,
    Scheduled,
    Webhook,
    ApiRequest,
    /// Somebody used it.
    Activity,
    /// Somebody wants a minimum of replicas for a while.
    Override,
}

impl WakeReason {
    pub const ALL: [Self; 6] =
        [Self::Manual, Self::Scheduled, Self::Webhook, Self::ApiRequest, Self::Activity, Self::Override];
    /// Those that somebody may give who wakes a cluster.
    pub const ASKED: [Self; 4] = [Self::Manual, Self::Scheduled, Self::Webhook, Self::ApiRequest];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Scheduled => "scheduled",
            Self::Webhook => "webhook",
            Self::ApiRequest => "api_request",
            Self::Activity => "activity",
            Self::Override => "override",
        }
    }

    /// What somebody gave as the reason; nothing if it is none of those that can be given.
    pub fn asked(text: &str) -> Option<Self> {
        Self::ASKED.into_iter().find(|reason| reason.as_str().eq_ignore_ascii_case(text))
    }
}

/// The last time that a cluster was woken, or kept awake by somebody who wanted it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wake {
    pub at: Time,
    pub reason: WakeReason,
    /// It had no replica then: how long it takes to become ready says how long the next one may.
    pub cold: bool,
    /// When a replica of it was ready; at once if one was.
    pub ready_at: Option<Time>,
}

impl Wake {
    /// Until when it keeps the cluster from being suspended. One that is not ready yet is given the time that a cold start may
    /// take: a slow start must not be undone by a short window.
    pub(crate) fn holds_until(self, times: IdleTimes) -> Time {
        let window = match self.ready_at {
            Some(_) => times.keep_alive,
            None => times.keep_alive.max(times.cold_start_timeout),
        };
        self.at + window
    }
}

/// Nothing is kept about a cluster that was never at zero, never woken and never idle for long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleRecord {
    pub created_at: Time,
    pub updated_at: Time,
    /// Set while it has no replica because `idle_suspend` took them away.
    pub scaled_to_zero_at: Option<Time>,
    /// What the replicas that were taken away cost an hour, as their sizes were priced then.
    pub hourly_micros: u64,
    pub wake: Option<Wake>,
    /// How long the last cold starts took, in milliseconds, the oldest first.
    pub starts: Vec<u32>,
    /// The oldest first.
    pub days: Vec<DayRow>,
}

impl IdleRecord {
    /// The middle one of the past starts; nothing if there was none.
    pub fn start_expected(&self) -> Option<Span> {
        let mut starts = self.starts.clone();
        starts.sort_unstable();
        starts.get(starts.len() / 2).map(|millis| Span::from_millis(u64::from(*millis)))
    }
}

impl ClusterRecord {
    /// What `idle_suspend` took away.
    pub(crate) fn taken_away(&self) -> Option<&[ReplicaSpec]> {
        match &self.state_of(StrategyKind::IdleSuspend)?.memory {
            Memory::Suspended(replicas) => Some(replicas),
            _ => None,
        }
    }

    pub(crate) fn wake(&self) -> Option<Wake> {
        self.idle.as_ref().and_then(|idle| idle.wake)
    }

    pub(crate) fn idle_mut(&mut self, now: Time) -> &mut IdleRecord {
        let idle = self.idle.get_or_insert_with(|| Box::new(IdleRecord { created_at: now, ..IdleRecord::default() }));
        idle.updated_at = now;
        idle
    }
}

/// Looks whether the cluster has got to zero, or away from it, or is ready after it was woken.
pub(crate) fn settle(record: &mut ClusterRecord, sizes: &Sizes, ledger: &Ledger<'_>, now: Time) {
    if record.idle.is_none() && record.taken_away().is_none() {
        return;
    }
    let hourly = record.signals.replicas.is_empty().then(|| record.taken_away().map(|all| price(all, sizes))).flatten();
    let zero_since = record.idle.as_ref().and_then(|idle| idle.scaled_to_zero_at);
    match (zero_since, hourly) {
        (None, Some(hourly)) => {
            let idle = record.idle_mut(now);
            idle.scaled_to_zero_at = Some(now);
            idle.hourly_micros = hourly;
        }
        (Some(since), None) => {
            let idle = record.idle_mut(now);
            idle.scaled_to_zero_at = None;
            ledger.at_zero(&mut idle.days, since, now, idle.hourly_micros);
        }
        _ => {}
    }
    let starting = record.wake().filter(|wake| wake.ready_at.is_none());
    if let Some(wake) = starting
        && serves(record)
    {
        let idle = record.idle_mut(now);
        idle.wake = Some(Wake { ready_at: Some(now), ..wake });
        if wake.cold {
            idle.starts.push(u32::try_from(now.since(wake.at).as_millis()).unwrap_or(u32::MAX));
            let too_many = idle.starts.len().saturating_sub(STARTS_KEPT_MAX);
            idle.starts.drain(..too_many);
        }
    }
}

/// Whether somebody who needs the cluster finds a replica that is ready, and not on its way out.
pub(crate) fn serves(record: &ClusterRecord) -> bool {
    let goes = |name: &str| {
        let units = record.operation.iter().flat_map(|operation| &operation.units);
        let going = units.filter(|unit| unit.has_begun() && !unit.progress.is_final());
        going.filter_map(|unit| unit.planned.step.drops()).any(|dropped| dropped.name.as_ref() == name)
    };
    record.signals.replicas.iter().any(|replica| replica.ready && !replica.cordoned && !goes(&replica.name))
}

/// The same for whoever has the whole state.
pub(crate) fn settle_in(state: &mut State, cluster: ClusterId) {
    let Some(record) = state.scaling.clusters.get_mut(&cluster) else { return };
    if record.idle.is_none() && record.taken_away().is_none() {
        return;
    }
    let ledger = Ledger::of(&state.settings);
    settle(std::sync::Arc::make_mut(record), &state.sizes, &ledger, state.now);
}

pub(crate) fn price(replicas: &[ReplicaSpec], sizes: &Sizes) -> u64 {
    let prices = replicas.iter().filter_map(|replica| sizes.get(&replica.size)).map(|size| size.price_micros_per_hour);
    prices.fold(0, u64::saturating_add)
}

/// Where a cluster stands that an `idle_suspend` strategy rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdleState {
    pub strategy: StrategyId,
    pub cluster: ClusterId,
    pub times: IdleTimes,
    /// Nothing if nobody was seen to use it.
    pub last_activity_at: Option<Time>,
    /// Since when nobody has used it; nothing while it was used within the keep-alive window, or the threshold where that is
    /// shorter, or nobody has looked.
    pub idle_since: Option<Time>,
    pub scaled_to_zero_at: Option<Time>,
    pub last_wake: Option<Wake>,
    pub created_at: Time,
    pub updated_at: Time,
    /// Replicas that are there.
    pub replicas: u64,
    /// Whether one of them is ready, and not on its way out.
    pub serves: bool,
    /// How many there will be once it is awake.
    pub replicas_awake: u64,
    /// How long a start is expected to take, as past ones did.
    pub start_expected: Option<Span>,
}

impl IdleState {
    pub fn is_scaled_to_zero(&self) -> bool {
        self.scaled_to_zero_at.is_some()
    }

    /// Until when somebody who has it woken now should wait for it to be ready.
    pub fn ready_by(&self) -> Option<Time> {
        self.last_wake.map(|wake| wake.at + self.times.cold_start_timeout)
    }
}

impl State {
    /// Nothing if no `idle_suspend` strategy rules the cluster.
    pub fn idle_state(&self, cluster: ClusterId) -> Option<IdleState> {
        let strategy = self.idle_suspend_of(cluster)?;
        let record = self.scaling.record(cluster);
        let times = self.idle_times(strategy);
        let idle = record.and_then(|record| record.idle.as_deref());
        let activity = record.and_then(|record| record.signals.activity.as_ref());
        let replicas = record.map_or(&[][..], |record| &record.signals.replicas);
        let taken_away = record.and_then(ClusterRecord::taken_away).unwrap_or_default();
        let missing =
            taken_away.iter().filter(|gone| !replicas.iter().any(|replica| replica.name == gone.name)).count();
        let made = self.strategy(strategy).map(|strategy| strategy.created_at).unwrap_or_default();
        Some(IdleState {
            strategy,
            cluster,
            times,
            last_activity_at: activity.and_then(|activity| activity.last_at),
            idle_since: activity
                .map(crate::signals::Activity::idle_since)
                .filter(|since| self.now.since(*since) >= times.keep_alive.min(times.threshold)),
            scaled_to_zero_at: idle.and_then(|idle| idle.scaled_to_zero_at),
            last_wake: idle.and_then(|idle| idle.wake),
            created_at: idle.map_or(made, |idle| idle.created_at.min(made)),
            updated_at: idle.map_or(made, |idle| idle.updated_at),
            replicas: replicas.len() as u64,
            serves: record.is_some_and(serves),
            replicas_awake: (replicas.len() + missing) as u64,
            start_expected: idle.and_then(IdleRecord::start_expected),
        })
    }

    /// Of every cluster that an `idle_suspend` strategy rules, by age of the cluster.
    pub fn idle_states(&self) -> impl Iterator<Item = IdleState> {
        self.clusters.ids_after(None).filter_map(|id| self.idle_state(id))
    }

    /// The clusters that are at zero, by age. Those that nothing is known about are not looked at.
    pub fn clusters_at_zero(&self) -> impl Iterator<Item = ClusterId> {
        let at_zero = |record: &ClusterRecord| record.idle.as_ref().is_some_and(|it| it.scaled_to_zero_at.is_some());
        self.records().filter(move |(_, record)| at_zero(record)).map(|(id, _)| id)
    }

    pub(crate) fn idle_suspend_of(&self, cluster: ClusterId) -> Option<StrategyId> {
        let own = self.scaling.strategies.own(cluster).map(AsRef::as_ref);
        let rulings = self.scaling.strategies.rulings(own, || self.clusters.name(cluster));
        let mut ruled = rulings.iter().flatten().map(|ruling| ruling.ruler);
        ruled.find(|ruler| ruler.kind == StrategyKind::IdleSuspend).map(|ruler| ruler.id)
    }

    pub(crate) fn idle_times(&self, strategy: StrategyId) -> IdleTimes {
        let defaults = self.settings.knobs().idle;
        let configuration = self.strategy(strategy).and_then(|strategy| strategy.configuration().ok());
        configuration.map_or(defaults, |configuration| defaults.with(&configuration.rule))
    }
}

/// Which strategy may suspend the cluster; a rejection if none does.
pub(crate) fn suspendable(state: &State, cluster: ClusterId, name: &str) -> Result<StrategyId, Rejection> {
    let cluster_name = || crate::scaling::rejection::ScalingRejection::NotSuspendable { cluster: name.to_owned() };
    state.idle_suspend_of(cluster).ok_or_else(|| cluster_name().into())
}

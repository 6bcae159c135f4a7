//! What suspending was worth: per cluster and day, how long nobody used it, how long it was at zero, and what the replicas that
//! were taken away would have cost in that time.
//!
//! All of it in whole milliseconds and millionths of the currency. **The assumption:** without suspension the replicas that were
//! taken away would have run on, all of them, at the prices that their sizes had when they were taken away.
//!
//! A stretch of time is written down when it ends, cut at the midnights of the zone of the settings. What goes on is added when
//! somebody looks, so nothing has to happen at midnight. Days are kept for as long as a setting says, and no longer.

use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::idle::IdleRecord;
use crate::settings::{SCALE_TO_ZERO_COST_TRACKING, SCALE_TO_ZERO_SAVINGS_DAYS, SCALE_TO_ZERO_TIME_ZONE, Settings};
use crate::signals::{Freshness, Signals};
use crate::zones::{Day, zone};
use crate::{ClusterId, Span, State, StrategyId, Time};

const HOUR_MILLIS: u128 = 60 * 60 * 1_000;

/// One day of one cluster. A day has at most 25 hours, so its milliseconds fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayRow {
    pub day: Day,
    pub idle_millis: u32,
    pub zero_millis: u32,
    pub saved_micros: u64,
    /// What an hour at zero saved, the last time that day.
    pub hourly_micros: u64,
}

/// How time is written down: where midnight is, and how long days are kept. Looked up only when there is something to write.
#[derive(Debug)]
pub(crate) struct Ledger<'a> {
    settings: &'a Settings,
}

impl<'a> Ledger<'a> {
    pub(crate) fn of(settings: &'a Settings) -> Self {
        Self { settings }
    }

    fn zone(&self) -> TimeZone {
        let name = self.settings.name(&SCALE_TO_ZERO_TIME_ZONE);
        // A name that is no zone is refused when it is set.
        name.and_then(zone).unwrap_or(TimeZone::UTC)
    }

    fn tracks(&self) -> bool {
        self.settings.flag(&SCALE_TO_ZERO_COST_TRACKING)
    }

    fn days_max(&self) -> u64 {
        self.settings.count(&SCALE_TO_ZERO_SAVINGS_DAYS)
    }

    pub(crate) fn at_zero(&self, days: &mut Vec<DayRow>, from: Time, to: Time, hourly_micros: u64) {
        self.add(days, from, to, |row, begin, end| {
            row.zero_millis = row.zero_millis.saturating_add(millis(begin, end));
            // The difference of two sums from the same start, so that what a midnight cuts apart adds up to what it was.
            let spent = cost(from, end, hourly_micros).saturating_sub(cost(from, begin, hourly_micros));
            row.saved_micros = row.saved_micros.saturating_add(spent);
            row.hourly_micros = hourly_micros;
        });
    }

    pub(crate) fn idle(&self, days: &mut Vec<DayRow>, from: Time, to: Time) {
        self.add(days, from, to, |row, begin, end| {
            row.idle_millis = row.idle_millis.saturating_add(millis(begin, end));
        });
    }

    fn add(&self, days: &mut Vec<DayRow>, from: Time, to: Time, mut write: impl FnMut(&mut DayRow, Time, Time)) {
        if !self.tracks() || from >= to {
            return;
        }
        let (zone, days_max) = (self.zone(), self.days_max());
        // What is older would be dropped again below. One day more, for those that have 25 hours.
        let mut begin = from.max(to.before(Span::from_days(days_max + 1)));
        while begin < to {
            let Some(day) = Day::of(begin, &zone) else { return };
            // The end of the calendar, or a database that makes no sense: rather no row than a walk without an end.
            let Some(end) = day.end(&zone).filter(|end| *end > begin) else { return };
            let end = end.min(to);
            let place = match days.binary_search_by_key(&day, |row| row.day) {
                Ok(place) => place,
                Err(place) => {
                    days.insert(place, DayRow { day, ..DayRow::default() });
                    place
                }
            };
            write(&mut days[place], begin, end);
            begin = end;
        }
        let too_many = days.len().saturating_sub(usize::try_from(days_max).unwrap_or(usize::MAX));
        days.drain(..too_many);
        days.shrink_to_fit();
    }
}

fn millis(begin: Time, end: Time) -> u32 {
    u32::try_from(end.since(begin).as_millis()).unwrap_or(u32::MAX)
}

/// Rounded down: nobody is told more than was saved.
fn cost(from: Time, to: Time, hourly_micros: u64) -> u64 {
    let micros = u128::from(to.since(from).as_millis()) * u128::from(hourly_micros) / HOUR_MILLIS;
    u64::try_from(micros).unwrap_or(u64::MAX)
}

/// What was known about the use of a cluster before a report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quiet {
    since: Time,
    /// Up to where anybody has looked; nothing: up to now. While nobody looked it may have been used.
    seen_to: Option<Time>,
}

/// Nothing if nobody had ever looked.
pub(crate) fn quiet(before: &Signals, now: Time, stale_after: Span) -> Option<Quiet> {
    let activity = before.activity.as_ref()?;
    let seen_to = match before.freshness(&activity.collector, activity.as_of, now, stale_after) {
        Freshness::FreshUntil(_) => None,
        Freshness::StaleSince(until) => Some(until),
    };
    Some(Quiet { since: activity.idle_since(), seen_to })
}

impl Quiet {
    /// The stretch without use that a report has ended; nothing if it goes on, or was too short to matter.
    pub(crate) fn ended_by(self, after: &Signals, at_least: Span) -> Option<(Time, Time)> {
        let used_at = after.activity.as_ref()?.last_at.filter(|used_at| *used_at > self.since)?;
        let to = self.seen_to.map_or(used_at, |seen_to| seen_to.min(used_at));
        (used_at.since(self.since) >= at_least && to > self.since).then_some((self.since, to))
    }
}

/// What one cluster saved on one day, and what goes on counted up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavingsDay {
    pub strategy: StrategyId,
    pub cluster: ClusterId,
    pub row: DayRow,
}

impl State {
    /// The day it is, in the zone of the settings.
    pub fn today(&self) -> Day {
        Day::of(self.now, &Ledger::of(&self.settings).zone()).unwrap_or_default()
    }

    /// What suspending this cluster was worth, the oldest day first. Nothing while no `idle_suspend` strategy rules it.
    pub fn savings(&self, cluster: ClusterId, since: Day) -> Vec<SavingsDay> {
        let Some(strategy) = self.idle_suspend_of(cluster) else { return vec![] };
        let Some(record) = self.scaling.record(cluster) else { return vec![] };
        let ledger = Ledger::of(&self.settings);
        let nothing = IdleRecord::default();
        let idle = record.idle.as_deref().unwrap_or(&nothing);
        let mut days = idle.days.clone();
        if let Some(from) = idle.scaled_to_zero_at {
            ledger.at_zero(&mut days, from, self.now, idle.hourly_micros);
        }
        if let Some((from, to)) = self.idle_now(cluster, strategy) {
            ledger.idle(&mut days, from, to);
        }
        let wanted = days.into_iter().filter(|row| row.day >= since);
        wanted.map(|row| SavingsDay { strategy, cluster, row }).collect()
    }

    /// The stretch without activity that goes on, as far as anybody has looked.
    fn idle_now(&self, cluster: ClusterId, strategy: StrategyId) -> Option<(Time, Time)> {
        let signals = &self.scaling.record(cluster)?.signals;
        let activity = signals.activity.as_ref()?;
        let made = self.strategy(strategy)?.created_at;
        let knobs = self.settings.knobs();
        let since = activity.idle_since();
        let to = match signals.freshness(&activity.collector, activity.as_of, self.now, knobs.stale_after) {
            Freshness::FreshUntil(_) => self.now,
            Freshness::StaleSince(until) => until,
        };
        (to.since(since) >= knobs.idle.keep_alive).then_some((since.max(made), to)).filter(|(from, to)| from < to)
    }
}

/// A report has ended a stretch without activity.
pub(crate) fn idle_ended(state: &mut State, cluster: ClusterId, from: Time, to: Time) {
    let Some(strategy) = state.idle_suspend_of(cluster) else { return };
    // What was before the strategy is not its doing.
    let from = state.strategy(strategy).map_or(from, |strategy| from.max(strategy.created_at));
    if from >= to {
        return;
    }
    let (now, ledger) = (state.now, Ledger { settings: &state.settings });
    if !ledger.tracks() {
        return;
    }
    let record = std::sync::Arc::make_mut(state.scaling.clusters.get_or_default(cluster));
    ledger.idle(&mut record.idle_mut(now).days, from, to);
}

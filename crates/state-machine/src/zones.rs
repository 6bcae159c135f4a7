//! Days where people live: which calendar day a moment falls on in a time zone, and when that day ends.
//!
//! The zone database is compiled in and the files of the host are never asked, so every node finds the same midnight. A newer
//! database belongs to newer rules.

use std::fmt;
use std::str::FromStr;

use jiff::civil::{Date, date};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

use crate::Time;
use crate::ids::ParseIdError;

/// A zone by its name, as in `Europe/Berlin`; nothing if the database has none of that name.
pub(crate) fn zone(name: &str) -> Option<TimeZone> {
    TimeZoneDatabase::bundled().get(name).ok()
}

/// A day of the calendar, counted from 1970-01-01. It has no zone of its own: it is what a calendar on the wall shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Day(pub u32);

impl Day {
    /// The day on which `at` falls there. Nothing beyond the end of the calendar.
    pub(crate) fn of(at: Time, zone: &TimeZone) -> Option<Self> {
        Self::from_date(timestamp(at)?.to_zoned(zone.clone()).date())
    }

    /// When the day after this one begins there.
    pub(crate) fn end(self, zone: &TimeZone) -> Option<Time> {
        let tomorrow = self.date()?.tomorrow().ok()?;
        let begins = tomorrow.to_zoned(zone.clone()).ok()?.timestamp().as_millisecond();
        u64::try_from(begins).ok().map(Time::from_millis)
    }

    fn date(self) -> Option<Date> {
        date(1970, 1, 1).checked_add(i64::from(self.0).days()).ok()
    }

    fn from_date(on: Date) -> Option<Self> {
        let hours = on.duration_since(date(1970, 1, 1)).as_hours();
        u32::try_from(hours / 24).ok().map(Self)
    }

    #[must_use]
    pub fn before(self, days: u32) -> Self {
        Self(self.0.saturating_sub(days))
    }
}

/// As in `2026-01-30`.
impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.date() {
            Some(date) => date.fmt(f),
            None => write!(f, "day {}", self.0),
        }
    }
}

impl FromStr for Day {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdError::new("day", text, "a date since 1970, as in 2026-01-30");
        let on: Date = text.parse().map_err(|_| wrong())?;
        if on < date(1970, 1, 1) { Err(wrong()) } else { Self::from_date(on).ok_or_else(wrong) }
    }
}

fn timestamp(at: Time) -> Option<Timestamp> {
    i64::try_from(at.as_millis()).ok().and_then(|millis| Timestamp::from_millisecond(millis).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(zone_name: &str, at: &str, day: &str, ends: &str) {
        let zone = zone(zone_name).unwrap();
        let millis = |text: &str| u64::try_from(text.parse::<Timestamp>().unwrap().as_millisecond()).unwrap();
        let found = Day::of(Time::from_millis(millis(at)), &zone).unwrap();
        assert_eq!(found.to_string(), day);
        assert_eq!(day.parse(), Ok(found));
        assert_eq!(found.end(&zone), Some(Time::from_millis(millis(ends))), "{at} in {zone_name}");
    }

    #[test]
    fn a_day_ends_at_midnight_there_and_has_23_24_or_25_hours() {
        check("UTC", "2026-01-30T23:59:59.999Z", "2026-01-30", "2026-01-31T00:00:00Z");
        check("Europe/Berlin", "2026-01-30T22:59:59Z", "2026-01-30", "2026-01-30T23:00:00Z");
        check("Europe/Berlin", "2026-01-30T23:00:00Z", "2026-01-31", "2026-01-31T23:00:00Z");
        // The clocks go forward: from 23:00Z to 22:00Z are 23 hours.
        check("Europe/Berlin", "2026-03-28T23:00:00Z", "2026-03-29", "2026-03-29T22:00:00Z");
        // And back: 25 hours.
        check("Europe/Berlin", "2026-10-24T22:00:00Z", "2026-10-25", "2026-10-25T23:00:00Z");
        // A zone whose clocks go forward at midnight: its day begins at one.
        check("America/Santiago", "2026-09-05T12:00:00Z", "2026-09-05", "2026-09-06T04:00:00Z");
    }

    #[test]
    fn what_is_no_zone_and_no_day_is_none() {
        assert!(zone("Europe/Nowhere").is_none() && zone("").is_none() && zone("../UTC").is_none());
        assert_eq!(Day::of(Time::from_millis(u64::MAX), &zone("UTC").unwrap()), None);
        for wrong in ["", "2026-13-01", "1969-12-31", "tomorrow"] {
            assert!(wrong.parse::<Day>().is_err(), "{wrong:?}");
        }
    }
}

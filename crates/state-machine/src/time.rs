//! Logical time. The leader stamps it into the log; nothing here reads a clock.
//!
//! Not here: time zones and calendars, see `configuration::schedule`.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

const SECOND_MILLIS: u64 = 1_000;
const MINUTE_MILLIS: u64 = 60 * SECOND_MILLIS;
const HOUR_MILLIS: u64 = 60 * MINUTE_MILLIS;
const DAY_MILLIS: u64 = 24 * HOUR_MILLIS;
const WEEK_MILLIS: u64 = 7 * DAY_MILLIS;

/// A moment: milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Time(u64);

impl Time {
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; nothing if it is not earlier.
    pub fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The moment `span` before this one, or the beginning of time.
    pub fn before(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// Saturates: a deadline beyond the end of time never comes.
impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// RFC 3339 in UTC, for years that have four digits; plain milliseconds beyond.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0 / DAY_MILLIS);
        if year > 9999 {
            return write!(f, "{}ms", self.0);
        }
        let (hour, minute) = (self.0 / HOUR_MILLIS % 24, self.0 / MINUTE_MILLIS % 60);
        let (second, millis) = (self.0 / SECOND_MILLIS % 60, self.0 % SECOND_MILLIS);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Year, month and day of a day counted from 1970. Whole 400-year cycles are taken out first, then years and months
/// are walked, so it stays short and obviously right; it runs only when a time is shown.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_IN_400_YEARS: u64 = 146_097;
    let mut year = 1970 + days / DAYS_IN_400_YEARS * 400;
    let mut days = days % DAYS_IN_400_YEARS;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let year_days = |year| if leap(year) { 366 } else { 365 };
    while days >= year_days(year) {
        days -= year_days(year);
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for month_days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < month_days {
            break;
        }
        days -= month_days;
        month += 1;
    }
    (year, month, days + 1)
}

/// A length of time in milliseconds.
///
/// Written and read as `30s`, `10m`, `1h30m`, `7d`; also read are spelled-out units, as in `10 minutes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Span(u64);

impl Span {
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * SECOND_MILLIS)
    }

    pub const fn from_mins(mins: u64) -> Self {
        Self(mins * MINUTE_MILLIS)
    }

    pub const fn from_hours(hours: u64) -> Self {
        Self(hours * HOUR_MILLIS)
    }

    pub const fn from_days(days: u64) -> Self {
        Self(days * DAY_MILLIS)
    }

    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        let units = [(DAY_MILLIS, "d"), (HOUR_MILLIS, "h"), (MINUTE_MILLIS, "m"), (SECOND_MILLIS, "s"), (1, "ms")];
        for (millis, unit) in units {
            if rest >= millis {
                write!(f, "{}{unit}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

/// The text is not a length of time.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a duration: expected numbers with units, as in 30s, 10 minutes, 1h30m or 7 days")]
pub struct ParseSpanError {
    pub text: String,
}

impl FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_span(text).ok_or_else(|| ParseSpanError { text: text.to_owned() })
    }
}

fn parse_span(text: &str) -> Option<Span> {
    let mut rest = text.trim();
    let mut total: u64 = 0;
    // A bare number is refused: whether it means seconds or milliseconds is exactly what people get wrong.
    while !rest.is_empty() || text.trim().is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..unit_at].parse().ok()?;
        rest = rest[unit_at..].trim_start();
        let next_at = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        total = total.checked_add(number.checked_mul(unit_millis(&rest[..next_at])?)?)?;
        rest = rest[next_at..].trim_start();
    }
    Some(Span(total))
}

fn unit_millis(unit: &str) -> Option<u64> {
    match unit.to_ascii_lowercase().as_str() {
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Some(1),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(SECOND_MILLIS),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(MINUTE_MILLIS),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some(HOUR_MILLIS),
        "d" | "day" | "days" => Some(DAY_MILLIS),
        "w" | "week" | "weeks" => Some(WEEK_MILLIS),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_as_utc() {
        for (millis, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
            (253_402_300_800_000, "253402300800000ms"),
            (u64::MAX, "18446744073709551615ms"),
        ] {
            assert_eq!(Time::from_millis(millis).to_string(), shown);
        }
    }

    #[test]
    fn a_span_is_read_in_the_forms_people_write_and_shown_in_one() {
        for (text, shown) in [
            ("30s", "30s"),
            ("10 minutes", "10m"),
            ("7 days", "7d"),
            ("1h30m", "1h30m"),
            ("1 hour 30 min", "1h30m"),
            (" 90 MINUTES ", "1h30m"),
            ("2 weeks", "14d"),
            ("1500ms", "1s500ms"),
            ("0s", "0s"),
            ("24h", "1d"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), shown, "{text:?}");
            assert_eq!(span.to_string().parse(), Ok(span), "what is shown must be read back");
        }
    }

    #[test]
    fn a_span_without_a_unit_or_beyond_all_bounds_is_refused() {
        for wrong in ["", " ", "10", "s", "1.5h", "-3s", "10 fortnights", "3s 4", "18446744073709551615d", "1h,30m"] {
            assert!(wrong.parse::<Span>().is_err(), "{wrong:?} must not be a span");
        }
    }

    #[test]
    fn time_saturates_at_both_ends() {
        assert_eq!(Time::from_millis(5).before(Span::from_secs(1)), Time::from_millis(0));
        assert_eq!(Time::from_millis(u64::MAX) + Span::from_secs(1), Time::from_millis(u64::MAX));
        assert_eq!(Time::from_millis(5).since(Time::from_millis(9)), Span::from_millis(0));
    }
}

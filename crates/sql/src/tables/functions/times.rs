//! Moments and intervals.

use std::sync::Arc;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value as Sqlite, ValueRef};
use rusqlite::{Connection, Result};

use super::{argument, failed, pure, text_of};
use crate::tables::error::code;
use crate::tables::source::Source;
use crate::tables::value::{timestamp, timestamp_micros, timestamp_of};

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

pub(super) fn register(connection: &Connection, source: &Arc<Source>) -> Result<()> {
    // The time of the state that the query sees, so that "older than an hour" means the same for the whole of it.
    let now = timestamp(source.state.now());
    let today = now.get(..10).map(|day| format!("{day} 00:00:00+00")).unwrap_or_default();
    connection.create_scalar_function("pg_now", -1, FunctionFlags::SQLITE_UTF8, move |_| Ok(now.clone()))?;
    connection.create_scalar_function("pg_today", -1, FunctionFlags::SQLITE_UTF8, move |_| Ok(today.clone()))?;
    pure(connection, "pg_timestamptz", 1, |it| Ok(moment(it, 0)?.map(timestamp_micros)))?;
    pure(connection, "pg_date", 1, |it| Ok(moment(it, 0)?.map(|at| timestamp_micros(at - at.rem_euclid(DAY)))))?;
    pure(connection, "pg_interval", 1, |it| {
        Ok(argument(it, 0).map(|text| interval(&text)).transpose()?.map(interval_text))
    })?;
    pure(connection, "pg_plus", 2, |it| sum(it, 1))?;
    pure(connection, "pg_minus", 2, |it| sum(it, -1))?;
    pure(connection, "pg_extract", 2, extract)?;
    pure(connection, "pg_date_trunc", -1, |it| {
        let (Some(unit), Some(at)) = (argument(it, 0), moment(it, 1)?) else { return Ok(None) };
        let unit = unit.to_ascii_lowercase();
        Ok(Some(timestamp_micros(truncated(&unit, at)?)))
    })?;
    pure(connection, "pg_to_timestamp", 1, |it| {
        Ok(argument(it, 0).and_then(|text| text.parse::<f64>().ok()).map(|seconds| timestamp_micros(micros(seconds))))
    })?;
    let ages = Arc::clone(source);
    connection.create_scalar_function("pg_age", -1, FunctionFlags::SQLITE_UTF8, move |it| {
        let now = timestamp_of(&timestamp(ages.state.now())).unwrap_or(0);
        let (first, second) = (moment(it, 0)?, if it.len() > 1 { moment(it, 1)? } else { None });
        Ok(match (first, second) {
            (Some(later), Some(earlier)) => Some(interval_text(later - earlier)),
            (Some(earlier), None) => Some(interval_text(now - earlier)),
            _ => None,
        })
    })
}

// Truncation is what is wanted: a fraction of a microsecond is nothing anybody can see.
#[allow(clippy::cast_possible_truncation)]
fn micros(seconds: f64) -> i64 {
    (seconds * 1_000_000.0).round() as i64
}

fn moment(it: &Context<'_>, place: usize) -> Result<Option<i64>> {
    let Some(text) = argument(it, place) else { return Ok(None) };
    match timestamp_of(&text) {
        Some(at) => Ok(Some(at)),
        None => {
            let message = format!("invalid input syntax for type timestamp with time zone: \"{text}\"");
            Err(failed(crate::SqlState("22007"), message))
        }
    }
}

/// In microseconds. `1 day 02:03:04`, `5 minutes`, `1h30m`, `90`.
fn interval(text: &str) -> Result<i64> {
    let wrong = || failed(crate::SqlState("22007"), format!("invalid input syntax for type interval: \"{text}\""));
    parsed_interval(text).ok_or_else(wrong)
}

pub(crate) fn parsed_interval(text: &str) -> Option<i64> {
    let mut total: i64 = 0;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let negative = rest.starts_with('-');
        let unsigned = rest.trim_start_matches(['-', '+']);
        let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ':').unwrap_or(unsigned.len());
        let (amount, after) = unsigned.split_at(digits);
        if amount.is_empty() {
            return None;
        }
        let after = after.trim_start();
        let value = if amount.contains(':') {
            rest = after;
            clock(amount)?
        } else {
            let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(letters);
            rest = after.trim_start();
            let amount: f64 = amount.parse().ok()?;
            let unit = match unit.to_ascii_lowercase().as_str() {
                "us" | "microsecond" | "microseconds" => 1,
                "ms" | "millisecond" | "milliseconds" => 1_000,
                "" | "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
                "m" | "min" | "mins" | "minute" | "minutes" => MINUTE,
                "h" | "hr" | "hrs" | "hour" | "hours" => HOUR,
                "d" | "day" | "days" => DAY,
                "w" | "week" | "weeks" => 7 * DAY,
                "mon" | "mons" | "month" | "months" => 30 * DAY,
                "y" | "year" | "years" => 365 * DAY,
                _ => return None,
            };
            let unit = i32::try_from(unit / SECOND)
                .ok()
                .filter(|_| unit >= SECOND)
                .map(f64::from)
                .unwrap_or(if unit == 1 { 0.000_001 } else { 0.001 });
            micros(amount * unit)
        };
        total = total.checked_add(if negative { -value } else { value })?;
    }
    Some(total)
}

/// `02:03:04.5`
fn clock(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next().unwrap_or("0").parse().ok()?;
    parts.next().is_none().then_some(hours.checked_mul(HOUR)? + minutes.checked_mul(MINUTE)? + micros(seconds))
}

/// As PostgreSQL writes one: `1 day 02:03:04.5`.
fn interval_text(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let rest = micros.unsigned_abs();
    let day = DAY.unsigned_abs();
    let (days, rest) = (rest / day, rest % day);
    let (hours, rest) = (rest / HOUR.unsigned_abs(), rest % HOUR.unsigned_abs());
    let (minutes, rest) = (rest / MINUTE.unsigned_abs(), rest % MINUTE.unsigned_abs());
    let (seconds, fraction) = (rest / SECOND.unsigned_abs(), rest % SECOND.unsigned_abs());
    let mut text = String::new();
    if days > 0 {
        text += &format!("{sign}{days} day{}", if days == 1 { "" } else { "s" });
    }
    if hours + minutes + seconds + fraction > 0 || days == 0 {
        if days > 0 {
            text.push(' ');
        }
        text += &format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
        if fraction > 0 {
            text += format!(".{fraction:06}").trim_end_matches('0');
        }
    }
    text
}

/// A moment and an interval, two moments, or two intervals.
fn sum(it: &Context<'_>, sign: i64) -> Result<Option<String>> {
    let (Some(left), Some(right)) = (argument(it, 0), argument(it, 1)) else { return Ok(None) };
    let far = || failed(crate::SqlState("22008"), "timestamp out of range");
    let add = |a: i64, b: i64| b.checked_mul(sign).and_then(|b| a.checked_add(b)).ok_or_else(far);
    match (timestamp_of(&left), timestamp_of(&right)) {
        (Some(a), Some(b)) if sign < 0 => Ok(Some(interval_text(add(a, b)?))),
        (Some(_), Some(_)) => Err(failed(code::UNDEFINED_FUNCTION, "two moments cannot be added")),
        (Some(a), None) => Ok(Some(timestamp_micros(add(a, interval(&right)?)?))),
        (None, Some(b)) if sign > 0 => Ok(Some(timestamp_micros(add(interval(&left)?, b)?))),
        _ => Ok(Some(interval_text(add(interval(&left)?, interval(&right)?)?))),
    }
}

fn extract(it: &Context<'_>) -> Result<Sqlite> {
    let Some(field) = argument(it, 0) else { return Ok(Sqlite::Null) };
    if matches!(it.get_raw(1), ValueRef::Null) {
        return Ok(Sqlite::Null);
    }
    let text = text_of(it.get_raw(1)).unwrap_or_default();
    let field = field.to_ascii_lowercase();
    let seconds = |micros: i64| {
        let (whole, rest) = (micros.div_euclid(SECOND), micros.rem_euclid(SECOND));
        format!("{whole}.{rest:06}").parse::<f64>().map_or(Sqlite::Null, Sqlite::Real)
    };
    let Some(at) = timestamp_of(&text) else {
        let length = interval(&text)?;
        return Ok(match field.as_str() {
            "epoch" => seconds(length),
            "day" | "days" => Sqlite::Integer(length / DAY),
            "hour" | "hours" => Sqlite::Integer(length % DAY / HOUR),
            "minute" | "minutes" => Sqlite::Integer(length % HOUR / MINUTE),
            "second" | "seconds" => seconds(length % MINUTE),
            _ => return Err(failed(code::NOT_SUPPORTED, format!("{field} of an interval is not supported"))),
        });
    };
    let Ok(civil) = jiff::Timestamp::from_microsecond(at) else { return Ok(Sqlite::Null) };
    let civil = jiff::tz::TimeZone::UTC.to_datetime(civil);
    Ok(match field.as_str() {
        "epoch" => seconds(at),
        "year" => Sqlite::Integer(civil.year().into()),
        "month" => Sqlite::Integer(civil.month().into()),
        "day" => Sqlite::Integer(civil.day().into()),
        "hour" => Sqlite::Integer(civil.hour().into()),
        "minute" => Sqlite::Integer(civil.minute().into()),
        "second" => seconds(at.rem_euclid(MINUTE)),
        "milliseconds" => Sqlite::Integer(at.rem_euclid(MINUTE) / 1_000),
        "dow" => Sqlite::Integer(civil.weekday().to_sunday_zero_offset().into()),
        "isodow" => Sqlite::Integer(civil.weekday().to_monday_one_offset().into()),
        "doy" => Sqlite::Integer(civil.day_of_year().into()),
        _ => return Err(failed(code::NOT_SUPPORTED, format!("{field} of a moment is not supported"))),
    })
}

fn truncated(unit: &str, at: i64) -> Result<i64> {
    let whole = |unit: i64| at - at.rem_euclid(unit);
    let civil = || {
        let moment = jiff::Timestamp::from_microsecond(at).unwrap_or_default();
        jiff::tz::TimeZone::UTC.to_datetime(moment).date()
    };
    let from = |date: jiff::civil::Date| {
        let start = date.to_zoned(jiff::tz::TimeZone::UTC).map(|zoned| zoned.timestamp().as_microsecond());
        start.unwrap_or(at)
    };
    Ok(match unit {
        "microseconds" => at,
        "milliseconds" => whole(1_000),
        "second" => whole(SECOND),
        "minute" => whole(MINUTE),
        "hour" => whole(HOUR),
        "day" => whole(DAY),
        // The first day of our time was a Thursday.
        "week" => at - (at - 4 * DAY).rem_euclid(7 * DAY),
        "month" => from(civil().first_of_month()),
        "year" => from(civil().first_of_year()),
        _ => return Err(failed(crate::SqlState("22023"), format!("unit \"{unit}\" is not known"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_in_the_spellings_that_people_use() {
        for (text, expected) in [
            ("1 hour", HOUR),
            ("1h30m", HOUR + 30 * MINUTE),
            ("1 day 02:03:04.5", DAY + 2 * HOUR + 3 * MINUTE + 4 * SECOND + SECOND / 2),
            ("-5 minutes", -5 * MINUTE),
            ("90", 90 * SECOND),
            ("1.5 hours", HOUR + 30 * MINUTE),
            ("250 ms", 250_000),
        ] {
            assert_eq!(parsed_interval(text), Some(expected), "{text}");
        }
        for wrong in ["", "soon", "5 parsecs", "hour", "1:2:3:4", "--"] {
            assert_eq!(parsed_interval(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_interval_is_written_as_postgresql_does() {
        assert_eq!(interval_text(0), "00:00:00");
        assert_eq!(interval_text(HOUR + SECOND / 2), "01:00:00.5");
        assert_eq!(interval_text(DAY), "1 day");
        assert_eq!(interval_text(2 * DAY + MINUTE), "2 days 00:01:00");
        assert_eq!(interval_text(-HOUR), "-01:00:00");
    }
}

//! A moment of the history as people write it: an index of the log, a time, or how long ago.

use jiff::civil;

use crate::text::parse_duration;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    Index(u64),
    /// Milliseconds since 1970.
    TimeMs(i64),
}

/// `412`, `2026-11-16T10:00:00Z`, `2026-11-16 10:00` and `2026-11-16` in universal time, or `24h` before now.
pub(crate) fn parse_moment(text: &str) -> Result<Moment, String> {
    parse_at(text, jiff::Timestamp::now())
}

fn parse_at(text: &str, now: jiff::Timestamp) -> Result<Moment, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return match text.parse() {
            Ok(0) | Err(_) => Err(format!("'{text}' is not an index: the first entry is 1")),
            Ok(index) => Ok(Moment::Index(index)),
        };
    }
    if let Some(time) = time(text) {
        return Ok(Moment::TimeMs(time.as_millisecond()));
    }
    if let Ok(ago) = parse_duration(text) {
        let then = now.checked_sub(ago).map_err(|_| format!("'{text}' is longer ago than time is counted"))?;
        return Ok(Moment::TimeMs(then.as_millisecond()));
    }
    Err(format!(
        "'{text}' is neither an index nor a time; write an index such as 412, a time such as 2026-11-16T10:00:00Z, or how long \
         ago, such as 24h"
    ))
}

fn time(text: &str) -> Option<jiff::Timestamp> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time);
    }
    let local =
        text.parse::<civil::DateTime>().or_else(|_| text.parse::<civil::Date>().map(|date| date.at(0, 0, 0, 0)));
    local.ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_a_time_or_how_long_ago() {
        let now: jiff::Timestamp = "2026-11-16T10:00:00Z".parse().expect("a time");
        let at = |text: &str| parse_at(text, now);
        assert_eq!(at("412"), Ok(Moment::Index(412)));
        let morning = Ok(Moment::TimeMs(1_794_787_200_000));
        assert_eq!(at("2026-11-16"), morning);
        assert_eq!(at("2026-11-16 00:00"), morning);
        assert_eq!(at("2026-11-16T00:00:00"), morning);
        assert_eq!(at("2026-11-16T01:00:00+01:00"), morning);
        assert_eq!(at("10h"), morning);
        for wrong in ["", "0", "yesterday", "-5", "99999999999999999999"] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
    }
}

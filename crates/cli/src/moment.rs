//! A moment of the history as people write it: an index of the log, a time, how long ago, or the end.

use loadline_audit::Moment;
use loadline_sql::tables::value::timestamp_of;
use loadline_state_machine::Time;

/// `412`, `2026-11-16T10:00:00Z`, `2026-11-16 10:00` and `2026-11-16` in universal time, `24h` or `24h ago`, or `end`.
pub(crate) fn parse_moment(text: &str) -> Result<Moment, String> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().map(Moment::Index).map_err(|_| format!("'{text}' is larger than any index"));
    }
    if matches!(text, "end" | "now" | "latest") {
        return Ok(Moment::End);
    }
    time_at(text, jiff::Timestamp::now()).map(Moment::Time).ok_or_else(|| {
        format!(
            "'{text}' is neither an index nor a time; write an index such as 412, a time such as 2026-11-16T10:00:00Z, how long \
             ago, such as 24h, or end"
        )
    })
}

/// A time, or how long ago.
pub(crate) fn parse_time(text: &str) -> Result<Time, String> {
    time_at(text, jiff::Timestamp::now()).ok_or_else(|| {
        format!("'{text}' is not a time; write one such as 2026-11-16T10:00:00Z, or how long ago, such as 24h")
    })
}

fn time_at(text: &str, now: jiff::Timestamp) -> Option<Time> {
    let text = text.trim();
    if let Some(micros) = timestamp_of(text) {
        return u64::try_from(micros / 1_000).ok().map(Time::from_millis);
    }
    let ago = text.strip_suffix("ago").unwrap_or(text).trim();
    let ago: jiff::Span = ago.parse().ok().filter(|_| ago.starts_with(|first: char| first.is_ascii_digit()))?;
    // `24h ago ago` would be tomorrow.
    if ago.is_negative() {
        return None;
    }
    // A day is one of 24 hours here, whatever a clock on a wall does.
    let ago = ago.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
    let then = now.checked_sub(ago).ok()?;
    u64::try_from(then.as_millisecond()).ok().map(Time::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_a_time_how_long_ago_or_the_end() {
        assert_eq!(parse_moment("412"), Ok(Moment::Index(412)));
        assert_eq!(parse_moment(" end "), Ok(Moment::End));
        let now: jiff::Timestamp = "2026-11-16T10:00:00Z".parse().expect("a time");
        let midnight = Some(Time::from_millis(1_794_787_200_000));
        for text in [
            "2026-11-16",
            "2026-11-16 00:00",
            "2026-11-16T00:00:00",
            "2026-11-16T01:00:00+01:00",
            "10h",
            "10h ago",
            "9h 60m",
            "600m",
        ] {
            assert_eq!(time_at(text, now), midnight, "{text}");
        }
        assert_eq!(time_at("3d", now), Some(Time::from_millis(1_794_787_200_000 + 36_000_000 - 3 * 86_400_000)));
        for wrong in
            ["", "yesterday", "-5", "-5h", "99999999999999999999", "2026-13-01", "ago", "2 moons ago", "24h ago ago"]
        {
            assert!(parse_moment(wrong).is_err(), "{wrong}");
        }
        assert!(parse_time("412").is_err(), "an index is no time");
    }
}

//! Numbers, times and names as people write and read them.

use std::time::Duration;

/// A duration such as `10s`, `500ms`, `1m30s` or `90d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    const WANTED: &str = "write a number with a unit, such as 10s, 500ms or 1m30s";
    if text.parse::<f64>().is_ok() {
        return Err(format!("'{text}' has no unit; {WANTED}"));
    }
    let parsed: jiff::Span = text.parse().map_err(|_| format!("'{text}' is not a duration; {WANTED}"))?;
    // A day is one of 24 hours; how long a month is nobody can say.
    let parsed = parsed.to_duration(jiff::SpanRelativeTo::days_are_24_hours());
    match Duration::try_from(parsed.map_err(|_| format!("'{text}' has no certain length; {WANTED}"))?) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err(format!("'{text}' is not more than zero; {WANTED}")),
    }
}

/// A price per hour such as `0.25`, in millionths.
pub(crate) fn parse_price(text: &str) -> Result<u64, String> {
    let wrong = |why: &str| format!("'{text}' is not a price: {why}; write the price per hour, such as 0.25");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return Err(wrong("it is not a decimal number"));
    }
    if fraction.len() > 6 {
        return Err(wrong("it has more than six digits after the point"));
    }
    let micros = |part: &str| if part.is_empty() { Some(0) } else { part.parse::<u64>().ok() };
    micros(whole)
        .and_then(|whole| whole.checked_mul(1_000_000))
        .and_then(|whole| whole.checked_add(micros(&format!("{fraction:0<6}"))?))
        .ok_or_else(|| wrong("it is too large"))
}

/// The shortest form that [`parse_price`] reads back.
pub(crate) fn show_price(micros: u64) -> String {
    let (whole, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let text = format!("{whole}.{fraction:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A number such as `-12.5`, in thousandths.
pub(crate) fn parse_milli(text: &str) -> Result<i64, String> {
    let wrong = |why: &str| format!("'{text}' is not a number: {why}; write one such as 12 or -0.5");
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return Err(wrong("it is not written in digits"));
    }
    if fraction.len() > 3 {
        return Err(wrong("it has more than three digits after the point"));
    }
    let whole = if whole.is_empty() { "0" } else { whole };
    let milli: Option<i64> = format!("{whole}{fraction:0<3}").parse().ok();
    milli.map(|milli| sign * milli).ok_or_else(|| wrong("it is too large"))
}

/// `2026-11-16T02:50:53Z`; empty for 0, which stands for "not known".
pub(crate) fn show_time(millis: i64) -> String {
    if millis <= 0 {
        return String::new();
    }
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => format!("{millis} ms since 1970"),
    }
}

/// `12.5 MiB`, `980 B`.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let mut unit = "B";
    let mut tenths = u128::from(bytes) * 10;
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if tenths < 10_240 {
            break;
        }
        tenths /= 1024;
        unit = larger;
    }
    if tenths % 10 == 0 { format!("{}{unit}", tenths / 10) } else { format!("{}.{}{unit}", tenths / 10, tenths % 10) }
}

/// The word in `known` that is closest to `given`, if it is close enough to be meant.
pub(crate) fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    let scored = known.into_iter().map(|word| (strsim::normalized_damerau_levenshtein(&given, word), word));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.6).then_some(best.1)
}

/// `; did you mean 'clusters'?`, or nothing.
pub(crate) fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    closest(given, known).map(|word| format!("; did you mean '{word}'?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_exact_to_the_millionth() {
        for (text, micros) in
            [("0.25", 250_000), ("1", 1_000_000), (".5", 500_000), ("0.000001", 1), ("12.", 12_000_000)]
        {
            assert_eq!(parse_price(text), Ok(micros), "{text}");
            assert_eq!(parse_price(&show_price(micros)), Ok(micros), "{text}");
        }
        for text in ["", ".", "-1", "1e3", "0.0000001", "1,5", "99999999999999999999", "18446744073709551615", "NaN"] {
            let error = parse_price(text).expect_err(text);
            assert!(error.contains("such as 0.25"), "{error}");
        }
        assert_eq!((show_price(0), show_price(1_500_000)), ("0".to_owned(), "1.5".to_owned()));
    }

    #[test]
    fn durations_need_a_unit_and_are_more_than_zero() {
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("90d"), Ok(Duration::from_secs(90 * 86_400)));
        for text in ["10", "0s", "-1s", "soon", "", "1mo", "1y"] {
            assert!(parse_duration(text).expect_err(text).contains("such as 10s"), "{text}");
        }
    }

    #[test]
    fn sizes_of_files_are_shown_with_one_digit() {
        for (bytes, text) in [(0, "0B"), (1023, "1023B"), (1024, "1KiB"), (1536, "1.5KiB"), (16 << 20, "16MiB")] {
            assert_eq!(show_bytes(bytes), text);
        }
    }

    #[test]
    fn a_close_word_is_suggested_and_a_far_one_is_not() {
        assert_eq!(closest("clutser", ["sizes", "cluster"]), Some("cluster"));
        assert_eq!(closest("Sizs", ["sizes", "cluster"]), Some("sizes"));
        assert_eq!(closest("pods", ["sizes", "cluster"]), None);
    }

    #[test]
    fn times_are_universal() {
        assert_eq!(show_time(1_763_261_453_000), "2025-11-16T02:50:53Z");
        assert_eq!(show_time(0), "");
    }
}

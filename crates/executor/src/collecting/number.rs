//! What counts as a value: a finite number that fits, in thousandths.

/// A number as text, in thousandths. Neither NaN nor an infinity is one, nor is nothing.
pub(super) fn milli(text: &str) -> Result<i64, String> {
    let text = text.trim();
    let shown = || text.chars().take(40).collect::<String>();
    let number: f64 = match text {
        "" => return Err("the answer is empty, which is no number".to_owned()),
        text => text.parse().map_err(|_| format!("{:?} is no number", shown()))?,
    };
    if !number.is_finite() {
        return Err(format!("{} is no value to go by", shown()));
    }
    let scaled = (number * 1_000.0).round();
    // Below 2^63 by a margin that the rounding of such large numbers cannot cross.
    if scaled.abs() > 9.2e18 {
        return Err(format!("{} is too large: at most 9.2e15 can be kept", shown()));
    }
    #[expect(clippy::cast_possible_truncation, reason = "it was checked just above")]
    Ok(scaled as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_in_thousandths() {
        for (text, expected) in [
            ("0", 0),
            ("12", 12_000),
            ("12.5", 12_500),
            ("-0.0004", 0),
            ("0.0005", 1),
            ("1e+06", 1_000_000_000),
            (" 7 ", 7_000),
            ("-3.25", -3_250),
            ("9.2e15", 9_200_000_000_000_000_000),
        ] {
            assert_eq!(milli(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_no_zero() {
        for text in ["", " ", "NaN", "+Inf", "-Inf", "null", "12 jobs", "1e300", "-9.3e15", "0x10"] {
            assert!(milli(text).is_err(), "{text}");
        }
    }
}

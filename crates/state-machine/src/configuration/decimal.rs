//! Numbers with decimals, without floats: thousandths in whole numbers, as every metric has them.

/// The largest number that is read: anything beyond is a slip of the finger, and products of two stay far from overflow.
const WHOLE_MAX: i64 = 1_000_000_000_000;

/// What a text such as `0.8`, `2` or `-1.25` says, in thousandths. Nothing if it is no number, or has more than three decimals.
pub fn milli_of(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |text: &str| !text.is_empty() && text.len() <= 13 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
        return None;
    }
    let whole: i64 = whole.parse().ok().filter(|whole| *whole <= WHOLE_MAX)?;
    let decimals: i64 = format!("{decimals:0<3}").parse().ok()?;
    Some(sign * (whole * 1_000 + decimals))
}

/// The shortest text that says the same: `800` is `0.8`.
pub fn show_milli(milli: i64) -> String {
    let (sign, milli) = (if milli < 0 { "-" } else { "" }, milli.unsigned_abs());
    let decimals = format!("{:03}", milli % 1_000);
    match decimals.trim_end_matches('0') {
        "" => format!("{sign}{}", milli / 1_000),
        decimals => format!("{sign}{}.{decimals}", milli / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_thousandths_and_comes_back_as_its_shortest_text() {
        for (text, milli, shown) in [
            ("0.8", 800, "0.8"),
            ("2", 2_000, "2"),
            ("2.50", 2_500, "2.5"),
            ("-1.25", -1_250, "-1.25"),
            ("0", 0, "0"),
            ("-0.001", -1, "-0.001"),
            ("1000000000000", 1_000_000_000_000_000, "1000000000000"),
        ] {
            assert_eq!(milli_of(text), Some(milli), "{text}");
            assert_eq!(show_milli(milli), shown);
        }
        for text in ["", ".", "1.", ".5", "1.2345", "1e3", "+1", "--1", "1 000", "0x1", "99999999999999", "NaN"] {
            assert_eq!(milli_of(text), None, "{text}");
        }
        assert_eq!(show_milli(i64::MIN), "-9223372036854775.808");
    }
}

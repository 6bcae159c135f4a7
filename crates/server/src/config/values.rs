//! How each kind of value is written, read and shown. An error says what would be right; the caller adds key and place.

use std::path::PathBuf;
use std::time::Duration;

use tracing_subscriber::EnvFilter;

use super::{LogFormat, Trust};

/// A value as it was written. Variables and flags are always text; the file has types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Raw {
    Text(String),
    Integer(i64),
    List(Vec<String>),
    /// Anything else TOML has, by the name of its type.
    Other(&'static str),
}

impl Raw {
    fn text(&self, wanted: &str) -> Result<&str, String> {
        match self {
            Raw::Text(text) if text.trim().is_empty() => Err(format!("is empty; write {wanted}")),
            Raw::Text(text) => Ok(text.trim()),
            Raw::Integer(number) => Err(format!("{number} is a number; write {wanted}")),
            Raw::List(_) => Err(format!("is a list; write {wanted}")),
            Raw::Other(kind) => Err(format!("is a {kind}; write {wanted}")),
        }
    }
}

pub(super) fn name(raw: &Raw) -> Result<String, String> {
    const WANTED: &str = "1 to 63 letters, digits, '-', '_' or '.', such as \"n1\"";
    let text = raw.text(WANTED)?;
    let fits = text.len() <= 63 && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if !fits {
        return Err(format!("{text:?} cannot be a name; write {WANTED}"));
    }
    // Operators name a node by its name or by its id, and must not hit another one than they mean.
    if text.chars().all(|c| c.is_ascii_digit()) {
        return Err(format!("{text:?} could be taken for the id of a node; add a letter, such as \"n{text}\""));
    }
    Ok(text.to_owned())
}

pub(super) fn path(raw: &Raw) -> Result<PathBuf, String> {
    raw.text("a path").map(PathBuf::from)
}

pub(super) fn address(raw: &Raw) -> Result<String, String> {
    const WANTED: &str = "host:port, such as \"127.0.0.1:7700\"";
    let text = raw.text(WANTED)?;
    check_address(text, WANTED)?;
    Ok(text.to_owned())
}

pub(super) fn addresses(raw: &Raw) -> Result<Vec<String>, String> {
    const WANTED: &str = "host:port of each, such as [\"n1:7700\", \"n2:7700\"], or \"n1:7700,n2:7700\"";
    let items: Vec<String> = match raw {
        Raw::List(items) => items.clone(),
        other => other.text(WANTED)?.split(',').map(|item| item.trim().to_owned()).collect(),
    };
    for (position, item) in items.iter().enumerate() {
        check_address(item, WANTED)?;
        if items[..position].contains(item) {
            return Err(format!("{item:?} is there twice"));
        }
    }
    Ok(items)
}

fn check_address(text: &str, wanted: &str) -> Result<(), String> {
    if text.contains("://") {
        return Err(format!("{text:?} has a scheme; write {wanted}"));
    }
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(format!("{text:?} has no port; write {wanted}"));
    };
    let brackets = host.starts_with('[') && host.ends_with(']');
    if host.contains(':') && !brackets {
        return Err(format!("{text:?} is an IPv6 address without brackets; write it as \"[::1]:7700\""));
    }
    let host_fits = if brackets {
        host[1..host.len() - 1].parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
    };
    if !host_fits {
        return Err(format!("{text:?} has no valid host; write {wanted}"));
    }
    if port.parse::<u16>().is_err() {
        return Err(format!("{text:?}: the port must be a number from 0 to 65535"));
    }
    Ok(())
}

pub(super) fn count(raw: &Raw, min: u64, max: u64) -> Result<u64, String> {
    let wanted = format!("a whole number from {min} to {max}");
    let number = match raw {
        Raw::Integer(number) => u64::try_from(*number).ok(),
        other => {
            let text = other.text(&wanted)?;
            Some(text.replace('_', "").parse().map_err(|_| format!("{text:?} is not a number; write {wanted}"))?)
        }
    };
    number.filter(|number| (min..=max).contains(number)).ok_or_else(|| match raw {
        Raw::Integer(number) => format!("{number} is out of bounds; write {wanted}"),
        _ => format!("is out of bounds; write {wanted}"),
    })
}

pub(super) fn duration(raw: &Raw, min: Duration, max: Duration) -> Result<Duration, String> {
    let wanted =
        format!("a duration from {} to {}, such as \"100ms\" or \"1m30s\"", show_duration(min), show_duration(max));
    if let Raw::Integer(number) = raw {
        return Err(format!("{number} has no unit; write {wanted}"));
    }
    let text = raw.text(&wanted)?;
    let value = parse_duration(text).ok_or_else(|| format!("{text:?} is not a duration; write {wanted}"))?;
    if value < min || value > max {
        return Err(format!("{text} is out of bounds; write {wanted}"));
    }
    Ok(value)
}

/// `100ms`, `10s`, `1m30s`, `2h`, `1d`.
fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total_ms: u64 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit_ms = match rest[..end].trim() {
            "ms" => 1,
            "s" => 1_000,
            "m" | "min" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return None,
        };
        rest = &rest[end..];
        total_ms = total_ms.checked_add(number.checked_mul(unit_ms)?)?;
    }
    (!text.is_empty()).then(|| Duration::from_millis(total_ms))
}

/// The shortest single-unit form, which `parse_duration` reads back.
pub(super) fn show_duration(value: Duration) -> String {
    let ms = value.as_millis();
    match ms {
        0 => "0s".to_owned(),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(60_000) && ms > 60_000 => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1_000) => format!("{}s", ms / 1_000),
        _ => format!("{ms}ms"),
    }
}

pub(super) fn bytes(raw: &Raw, min: u64, max: u64) -> Result<u64, String> {
    let wanted = format!("a size from {} to {}, such as \"512MiB\"", show_bytes(min), show_bytes(max));
    let value = match raw {
        Raw::Integer(number) => u64::try_from(*number).map_err(|_| format!("{number} is negative; write {wanted}"))?,
        other => {
            let text = other.text(&wanted)?;
            parse_bytes(text).ok_or_else(|| format!("{text:?} is not a size; write {wanted}"))?
        }
    };
    if value < min || value > max {
        return Err(format!("{} is out of bounds; write {wanted}", show_bytes(value)));
    }
    Ok(value)
}

/// `4096`, `64KiB`, `512MiB`, `2GiB`. Powers of 1,024 only: MB would leave in doubt which is meant.
fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match text[digits..].trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(unit)
}

/// The largest unit that leaves a whole number.
pub(super) fn show_bytes(value: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if value != 0 && value.is_multiple_of(1 << shift) {
            return format!("{}{unit}", value >> shift);
        }
    }
    format!("{value}B")
}

pub(super) fn log_level(raw: &Raw) -> Result<String, String> {
    const WANTED: &str = "error, warn, info, debug or trace, or per module, such as \"info,loadline_raft_node=debug\"";
    let text = raw.text(WANTED)?;
    // A lone unknown word is a valid filter: it means a module of that name, and would silence everything else.
    let lone_word_is_a_level = text.contains(['=', ','])
        || ["off", "error", "warn", "info", "debug", "trace"].contains(&text.to_ascii_lowercase().as_str());
    if !lone_word_is_a_level || EnvFilter::try_new(text).is_err() {
        return Err(format!("{text:?} is not a level; write {WANTED}"));
    }
    Ok(text.to_owned())
}

pub(super) fn log_format(raw: &Raw) -> Result<LogFormat, String> {
    const WANTED: &str = "\"text\" or \"json\"";
    match raw.text(WANTED)? {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        other => Err(format!("{other:?} is not a format; write {WANTED}")),
    }
}

pub(super) fn trust(raw: &Raw) -> Result<Trust, String> {
    const WANTED: &str = "\"nobody\" or \"loopback\"";
    match raw.text(WANTED)? {
        "nobody" => Ok(Trust::Nobody),
        "loopback" => Ok(Trust::Loopback),
        other => Err(format!("{other:?} cannot be trusted; write {WANTED}")),
    }
}

pub(super) fn flag(raw: &Raw) -> Result<bool, String> {
    const WANTED: &str = "\"true\" or \"false\"";
    match raw.text(WANTED)? {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        other => Err(format!("{other:?} is neither; write {WANTED}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Raw {
        Raw::Text(text.to_owned())
    }

    #[test]
    fn durations_need_a_unit_and_may_be_put_together() {
        let read = |raw: Raw| duration(&raw, Duration::ZERO, Duration::from_secs(3600));
        for (written, ms) in [("100ms", 100), ("10s", 10_000), ("1m30s", 90_000), ("1h", 3_600_000), ("2min", 120_000)]
        {
            assert_eq!(read(text(written)), Ok(Duration::from_millis(ms)), "{written}");
        }
        for written in ["100", "ms", "1.5s", "-1s", "1w", "", "s10", "99999999999999999999s", "2h"] {
            assert!(read(text(written)).is_err(), "{written}");
        }
        assert_eq!(
            read(Raw::Integer(100)),
            Err("100 has no unit; write a duration from 0s to 1h, such as \"100ms\" or \"1m30s\"".to_owned())
        );
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        let read = |raw: Raw| bytes(&raw, 1, 1 << 40);
        for (written, value) in [("512MiB", 512 << 20), ("4096", 4096), ("1 KiB", 1024), ("1TiB", 1 << 40), ("7B", 7)] {
            assert_eq!(read(text(written)), Ok(value), "{written}");
        }
        assert_eq!(read(Raw::Integer(4096)), Ok(4096));
        for written in ["512MB", "0", "2TiB", "-1", "99999999999GiB", "MiB", "1.5GiB"] {
            assert!(read(text(written)).is_err(), "{written}");
        }
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for written in ["127.0.0.1:7700", "[::1]:7700", "loadline-0.loadline-peers.x.svc:7700", "0.0.0.0:0"] {
            assert_eq!(address(&text(written)), Ok(written.to_owned()));
        }
        for (written, part) in [
            ("127.0.0.1", "no port"),
            ("http://a:1", "scheme"),
            (":7700", "no valid host"),
            ("a:65536", "0 to 65535"),
            ("::1:7700", "brackets"),
            ("a b:1", "no valid host"),
            ("[x]:1", "no valid host"),
        ] {
            let error = address(&text(written)).unwrap_err();
            assert!(error.contains(part), "{written}: {error}");
        }
    }

    #[test]
    fn a_list_is_written_with_commas_or_as_an_array() {
        let both = ["a:1".to_owned(), "b:2".to_owned()];
        assert_eq!(addresses(&text("a:1, b:2")), Ok(both.to_vec()));
        assert_eq!(addresses(&Raw::List(both.to_vec())), Ok(both.to_vec()));
        assert!(addresses(&text("a:1,a:1")).unwrap_err().contains("twice"));
        assert!(addresses(&text("a:1,,b:2")).is_err());
    }

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_module() {
        assert_eq!(log_level(&text("info,loadline_log=debug")), Ok("info,loadline_log=debug".to_owned()));
        assert!(log_level(&text("inof")).unwrap_err().contains("not a level"));
        assert!(log_level(&text("a=b=c")).is_err());
    }

    #[test]
    fn a_name_cannot_be_a_number() {
        assert_eq!(name(&text("n1")), Ok("n1".to_owned()));
        for written in ["3", "a/b", "a b", "", "ü", &"x".repeat(64)] {
            assert!(name(&text(written)).is_err(), "{written}");
        }
    }
}

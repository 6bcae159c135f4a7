//! What a column holds: a kind that PostgreSQL's clients know, and values of it.
//!
//! SQLite knows fewer kinds than PostgreSQL. The mapping is decided here, once: a bool is 0 or 1, a time and a JSON document
//! are texts in the form in which PostgreSQL writes them. That form of a time sorts as the times do.

use std::fmt::Write as _;

use loadline_state_machine::Time;

/// The type of a column, as far as any of ours has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Bool,
    Int2,
    Int4,
    Int8,
    Float8,
    Text,
    Jsonb,
    Timestamptz,
    Interval,
    /// Of the catalogue: an identifier.
    Name,
    /// Of the catalogue: one letter.
    Char,
    /// Of the catalogue: a number of a thing.
    Oid,
    TextArray,
    OidArray,
    Int2Array,
    /// A literal that nothing has given a type yet.
    Unknown,
}

impl Kind {
    pub const ALL: &'static [Self] = &[
        Self::Bool,
        Self::Int2,
        Self::Int4,
        Self::Int8,
        Self::Float8,
        Self::Text,
        Self::Jsonb,
        Self::Timestamptz,
        Self::Interval,
        Self::Name,
        Self::Char,
        Self::Oid,
        Self::TextArray,
        Self::OidArray,
        Self::Int2Array,
        Self::Unknown,
    ];

    /// The number under which every client knows it.
    pub fn oid(self) -> u32 {
        match self {
            Self::Bool => 16,
            Self::Char => 18,
            Self::Name => 19,
            Self::Int8 => 20,
            Self::Int2 => 21,
            Self::Int4 => 23,
            Self::Text => 25,
            Self::Oid => 26,
            Self::Float8 => 701,
            Self::Unknown => 705,
            Self::Int2Array => 1005,
            Self::TextArray => 1009,
            Self::OidArray => 1028,
            Self::Timestamptz => 1184,
            Self::Interval => 1186,
            Self::Jsonb => 3802,
        }
    }

    /// As in `pg_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Char => "char",
            Self::Name => "name",
            Self::Int8 => "int8",
            Self::Int2 => "int2",
            Self::Int4 => "int4",
            Self::Text => "text",
            Self::Oid => "oid",
            Self::Float8 => "float8",
            Self::Unknown => "unknown",
            Self::Int2Array => "_int2",
            Self::TextArray => "_text",
            Self::OidArray => "_oid",
            Self::Timestamptz => "timestamptz",
            Self::Interval => "interval",
            Self::Jsonb => "jsonb",
        }
    }

    /// As in SQL, and in `\d`.
    pub fn sql_name(self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Char => "\"char\"",
            Self::Int8 => "bigint",
            Self::Int2 => "smallint",
            Self::Int4 => "integer",
            Self::Float8 => "double precision",
            Self::Int2Array => "smallint[]",
            Self::TextArray => "text[]",
            Self::OidArray => "oid[]",
            Self::Timestamptz => "timestamp with time zone",
            other => other.name(),
        }
    }

    /// Bytes of a value; -1 if that depends.
    pub fn length(self) -> i64 {
        match self {
            Self::Bool | Self::Char => 1,
            Self::Int2 => 2,
            Self::Int4 | Self::Oid => 4,
            Self::Int8 | Self::Float8 | Self::Timestamptz => 8,
            Self::Interval => 16,
            Self::Name => 64,
            _ => -1,
        }
    }

    pub fn is_number(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8 | Self::Float8 | Self::Oid)
    }

    /// How a column of it is declared to SQLite. The first word says the kind, the second decides how values compare.
    pub(crate) fn declaration(self) -> &'static str {
        match self {
            Self::Bool => "bool int",
            Self::Int2 => "int2 int",
            Self::Int4 => "int4 int",
            Self::Int8 => "int8 int",
            Self::Oid => "oid int",
            Self::Float8 => "float8 real",
            Self::Text => "text",
            Self::Jsonb => "jsonb text",
            Self::Timestamptz => "timestamptz text",
            Self::Interval => "interval text",
            Self::Name => "name text",
            Self::Char => "char text",
            Self::TextArray => "_text text",
            Self::OidArray => "_oid text",
            Self::Int2Array => "_int2 text",
            Self::Unknown => "unknown text",
        }
    }

    pub(crate) fn from_declaration(text: &str) -> Option<Self> {
        let word = text.split(' ').next().unwrap_or(text);
        Self::ALL.iter().copied().find(|kind| kind.name().eq_ignore_ascii_case(word))
    }

    /// The kind that a cast names; nothing if there is none such here.
    pub fn from_sql(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "bool" | "boolean" => Self::Bool,
            "int2" | "smallint" => Self::Int2,
            "int4" | "int" | "integer" | "regproc_number" => Self::Int4,
            "int8" | "bigint" => Self::Int8,
            "float4" | "float8" | "real" | "double precision" | "double" | "numeric" | "decimal" => Self::Float8,
            "text"
            | "varchar"
            | "character varying"
            | "bpchar"
            | "regtype"
            | "regclass"
            | "regproc"
            | "regnamespace"
            | "uuid"
            | "inet"
            | "information_schema.sql_identifier" => Self::Text,
            "json" | "jsonb" => Self::Jsonb,
            "timestamptz" | "timestamp with time zone" | "timestamp" | "timestamp without time zone" | "date" => {
                Self::Timestamptz
            }
            "interval" => Self::Interval,
            "name" => Self::Name,
            "char" | "\"char\"" | "character" => Self::Char,
            "oid" | "xid" => Self::Oid,
            "text[]" | "name[]" | "varchar[]" | "\"char\"[]" | "char[]" => Self::TextArray,
            "oid[]" | "int4[]" | "int[]" | "int8[]" | "oidvector" => Self::OidArray,
            "int2[]" | "smallint[]" | "int2vector" => Self::Int2Array,
            "unknown" => Self::Unknown,
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl Value {
    pub(crate) fn count(count: impl TryInto<i64>) -> Self {
        Self::Int(count.try_into().unwrap_or(i64::MAX))
    }

    pub(crate) fn time(time: Time) -> Self {
        Self::Text(timestamp(time))
    }

    pub(crate) fn json(value: &serde_json::Value) -> Self {
        Self::Text(super::json::text(value))
    }

    pub(crate) fn show(value: impl std::fmt::Display) -> Self {
        Self::Text(value.to_string())
    }

    /// An array as PostgreSQL writes it.
    pub(crate) fn array<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::Text(array_text(items.into_iter().map(|item| Some(item.as_ref().to_owned()))))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// As PostgreSQL writes it: the fraction without its last zeros. It sorts as the times do, since `+` comes before `.` and
/// before every digit.
pub fn timestamp(time: Time) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    timestamp_micros(millis.saturating_mul(1_000))
}

pub(crate) fn timestamp_micros(micros: i64) -> String {
    let Ok(at) = jiff::Timestamp::from_microsecond(micros) else { return "infinity".to_owned() };
    let mut text = at.strftime("%Y-%m-%d %H:%M:%S").to_string();
    let fraction = micros.rem_euclid(1_000_000);
    if fraction != 0 {
        let digits = format!("{fraction:06}");
        let _ = write!(text, ".{}", digits.trim_end_matches('0'));
    }
    text + "+00"
}

/// Reads what [`timestamp`] writes and what people write instead: a date, with or without a time, a fraction and a zone. Without
/// a zone it is UTC.
pub fn timestamp_of(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(at) = text.parse::<jiff::Timestamp>() {
        return Some(at.as_microsecond());
    }
    // PostgreSQL writes a zone of whole hours without its minutes.
    let (body, zone) = match text.rfind(['+', '-']) {
        Some(place) if place > 10 => text.split_at(place),
        _ => (text.strip_suffix(['Z', 'z']).unwrap_or(text), "+00"),
    };
    let zone = match zone.len() {
        3 => format!("{zone}:00"),
        _ => zone.to_owned(),
    };
    let body = body.trim_end();
    let body = if body.len() == 10 { format!("{body}T00:00:00") } else { body.replacen(' ', "T", 1) };
    format!("{body}{zone}").parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_microsecond)
}

/// A moment, in microseconds, as PostgreSQL writes it.
pub fn timestamp_text(micros: i64) -> String {
    timestamp_micros(micros)
}

/// An interval as it is written, in microseconds.
pub fn interval_of(text: &str) -> Option<i64> {
    super::functions::interval_of(text)
}

/// The items of an array as PostgreSQL writes it; none of what is no array.
pub fn items_of(text: &str) -> Vec<Option<String>> {
    array_items(text).unwrap_or_else(|| text.split_whitespace().map(|item| Some(item.to_owned())).collect())
}

pub fn array_of(items: Vec<Option<String>>) -> String {
    array_text(items.into_iter())
}

/// An array in PostgreSQL's own notation.
pub(crate) fn array_text(items: impl Iterator<Item = Option<String>>) -> String {
    let quoted = items.map(|item| match item {
        None => "NULL".to_owned(),
        Some(item) => {
            let plain = !item.is_empty()
                && !item.eq_ignore_ascii_case("null")
                && item.chars().all(|c| !matches!(c, '{' | '}' | ',' | '"' | '\\') && !c.is_whitespace());
            if plain { item } else { format!("\"{}\"", item.replace('\\', "\\\\").replace('"', "\\\"")) }
        }
    });
    format!("{{{}}}", quoted.collect::<Vec<_>>().join(","))
}

/// The items of such an array; nothing if it is none.
pub(crate) fn array_items(text: &str) -> Option<Vec<Option<String>>> {
    let inner = text.trim().strip_prefix('{')?.strip_suffix('}')?;
    let mut items = Vec::new();
    let mut chars = inner.chars().peekable();
    if inner.trim().is_empty() {
        return Some(items);
    }
    loop {
        let mut item = String::new();
        let quoted = chars.peek() == Some(&'"');
        if quoted {
            chars.next();
            loop {
                match chars.next()? {
                    '"' => break,
                    '\\' => item.push(chars.next()?),
                    other => item.push(other),
                }
            }
        }
        loop {
            match chars.next() {
                Some(',') => break,
                None => {
                    items.push(finished(item, quoted));
                    return Some(items);
                }
                Some(_) if quoted => return None,
                Some(other) => item.push(other),
            }
        }
        items.push(finished(item, quoted));
    }
}

fn finished(item: String, quoted: bool) -> Option<String> {
    (quoted || !item.eq_ignore_ascii_case("null")).then_some(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_postgresql_writes_it_and_sorts_as_it_passes() {
        let texts: Vec<String> = [0, 1, 10, 500, 999, 1_000, 1_500, 1_793_318_400_000]
            .map(|millis| timestamp(Time::from_millis(millis)))
            .into();
        assert_eq!(texts[0], "1970-01-01 00:00:00+00");
        assert_eq!(texts[3], "1970-01-01 00:00:00.5+00");
        assert!(texts.windows(2).all(|pair| pair[0] < pair[1]), "{texts:?}");
    }

    #[test]
    fn a_time_is_read_in_the_spellings_that_people_use() {
        for text in [
            "2026-11-16",
            "2026-11-16 00:00:00",
            "2026-11-16T00:00:00Z",
            "2026-11-16 02:00:00+02",
            " 2026-11-16 00:00+00",
        ] {
            assert_eq!(timestamp_of(text), Some(1_794_787_200_000_000), "{text}");
        }
        assert_eq!(timestamp_of("2026-11-16 00:00:00.5+00"), Some(1_794_787_200_500_000));
        for wrong in ["", "yesterday-ish", "2026-13-01", "2026-11-16 25:00", "é"] {
            assert_eq!(timestamp_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_array_is_read_back_as_it_was_written() {
        for items in [vec![], vec!["a", "b"], vec!["", "null", "a,b", "c\"d\\e", "{x}", " "]] {
            let text = array_text(items.iter().map(|item| Some((*item).to_owned())));
            let read = array_items(&text).unwrap_or_default();
            assert_eq!(read, items.iter().map(|item| Some((*item).to_owned())).collect::<Vec<_>>(), "{text}");
        }
        assert_eq!(array_items("{NULL,a}"), Some(vec![None, Some("a".to_owned())]));
        assert_eq!(array_items("a,b"), None);
    }
}

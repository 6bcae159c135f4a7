//! Casts, patterns, JSON, arrays and texts.

use rusqlite::functions::{Aggregate, Context};
use rusqlite::types::{Value as Sqlite, ValueRef};
use rusqlite::{Connection, Result};
use serde_json::Value as Json;

use super::{PURE, argument, failed, number, optional, pure, text_of};
use crate::tables::error::code;
use crate::tables::value::{array_items, array_text};
use crate::tables::{json, pattern};

pub(super) fn register(connection: &Connection) -> Result<()> {
    casts(connection)?;
    patterns(connection)?;
    documents(connection)?;
    arrays(connection)?;
    texts(connection)
}

fn casts(connection: &Connection) -> Result<()> {
    pure(connection, "pg_text", 1, |it| Ok(optional(argument(it, 0))))?;
    pure(connection, "pg_bool_text", 1, |it| {
        Ok(optional(argument(it, 0).map(|text| if text == "0" { "false" } else { "true" }.to_owned())))
    })?;
    pure(connection, "pg_bool", 1, |it| {
        let Some(text) = argument(it, 0) else { return Ok(Sqlite::Null) };
        match text.trim().to_ascii_lowercase().as_str() {
            "t" | "true" | "yes" | "y" | "on" | "1" => Ok(Sqlite::Integer(1)),
            "f" | "false" | "no" | "n" | "off" | "0" => Ok(Sqlite::Integer(0)),
            _ => Err(failed(code::INVALID_TEXT, format!("invalid input syntax for type boolean: \"{text}\""))),
        }
    })?;
    pure(connection, "pg_int", 1, |it| match it.get_raw(0) {
        ValueRef::Null => Ok(Sqlite::Null),
        ValueRef::Integer(value) => Ok(Sqlite::Integer(value)),
        ValueRef::Real(value) => match format!("{:.0}", value.round_ties_even()).parse() {
            Ok(value) => Ok(Sqlite::Integer(value)),
            Err(_) => Err(failed(crate::SqlState("22003"), "integer out of range")),
        },
        other => {
            let text = text_of(other).unwrap_or_default();
            let value = text.trim().parse().map_err(|_| {
                failed(code::INVALID_TEXT, format!("invalid input syntax for type integer: \"{text}\""))
            })?;
            Ok(Sqlite::Integer(value))
        }
    })?;
    pure(connection, "pg_float", 1, |it| match it.get_raw(0) {
        ValueRef::Null => Ok(Sqlite::Null),
        other => {
            let text = text_of(other).unwrap_or_default();
            let value = text.trim().parse().map_err(|_| {
                failed(code::INVALID_TEXT, format!("invalid input syntax for type double precision: \"{text}\""))
            })?;
            Ok(Sqlite::Real(value))
        }
    })?;
    // As PostgreSQL: whole numbers give whole numbers, and nothing can be divided by nothing.
    pure(connection, "pg_divide", 2, |it| {
        let zero = || failed(crate::SqlState("22012"), "division by zero");
        match (it.get_raw(0), it.get_raw(1)) {
            (ValueRef::Null, _) | (_, ValueRef::Null) => Ok(Sqlite::Null),
            (ValueRef::Integer(a), ValueRef::Integer(b)) => a.checked_div(b).map(Sqlite::Integer).ok_or_else(zero),
            (a, b) => {
                let float = |value| text_of(value).and_then(|text| text.trim().parse::<f64>().ok());
                match (float(a), float(b)) {
                    (Some(_), Some(0.0)) => Err(zero()),
                    (Some(a), Some(b)) => Ok(Sqlite::Real(a / b)),
                    _ => Err(failed(code::INVALID_TEXT, "only numbers can be divided")),
                }
            }
        }
    })
}

fn patterns(connection: &Connection) -> Result<()> {
    let like = |it: &Context<'_>, fold: bool| -> Result<Option<bool>> {
        let (Some(pattern), Some(text)) = (argument(it, 0), argument(it, 1)) else { return Ok(None) };
        let escape = if it.len() > 2 { argument(it, 2).unwrap_or_default().chars().next() } else { Some('\\') };
        Ok(Some(pattern::like(&pattern, &text, escape, fold)))
    };
    for arguments in [2, 3] {
        pure(connection, "pg_like", arguments, move |it| like(it, false))?;
        pure(connection, "pg_ilike", arguments, move |it| like(it, true))?;
    }
    let regex = |it: &Context<'_>, fold: bool| -> Result<Option<bool>> {
        let (Some(pattern), Some(text)) = (argument(it, 0), argument(it, 1)) else { return Ok(None) };
        let wrong = |what| failed(crate::SqlState("2201B"), format!("invalid regular expression: {what}"));
        pattern::regex(&pattern, &text, fold).map(Some).map_err(wrong)
    };
    pure(connection, "pg_regex", 2, move |it| regex(it, false))?;
    pure(connection, "pg_iregex", 2, move |it| regex(it, true))
}

fn parsed(text: &str) -> Result<Json> {
    serde_json::from_str(text)
        .map_err(|error| failed(code::INVALID_TEXT, format!("invalid input syntax for type json: {error}")))
}

/// A document, if there is one in this place.
fn document(it: &Context<'_>, place: usize) -> Result<Option<Json>> {
    argument(it, place).map(|text| parsed(&text)).transpose()
}

fn documents(connection: &Connection) -> Result<()> {
    pure(connection, "pg_jsonb", 1, |it| Ok(optional(document(it, 0)?.map(|value| json::text(&value)))))?;
    pure(connection, "pg_to_jsonb", 1, |it| {
        let value = match it.get_raw(0) {
            ValueRef::Null => return Ok(Sqlite::Null),
            ValueRef::Integer(value) => Json::from(value),
            ValueRef::Real(value) => Json::from(value),
            other => {
                let text = text_of(other).unwrap_or_default();
                serde_json::from_str(&text)
                    .ok()
                    .filter(|it: &Json| it.is_object() || it.is_array())
                    .unwrap_or(Json::from(text))
            }
        };
        Ok(Sqlite::Text(json::text(&value)))
    })?;
    let get = |it: &Context<'_>| -> Result<Option<Json>> {
        let (Some(value), Some(key)) = (document(it, 0)?, argument(it, 1)) else { return Ok(None) };
        Ok(json::step(&value, &key).cloned())
    };
    pure(connection, "pg_json_get", 2, move |it| Ok(optional(get(it)?.map(|value| json::text(&value)))))?;
    pure(connection, "pg_json_get_text", 2, move |it| Ok(optional(get(it)?.as_ref().and_then(json::plain))))?;
    let path = |it: &Context<'_>| -> Result<Option<Json>> {
        let (Some(mut value), Some(path)) = (document(it, 0)?, argument(it, 1)) else { return Ok(None) };
        let keys = array_items(&path).ok_or_else(|| failed(code::INVALID_TEXT, format!("malformed array: {path}")))?;
        for key in keys.into_iter().flatten() {
            match json::step(&value, &key) {
                Some(inner) => value = inner.clone(),
                None => return Ok(None),
            }
        }
        Ok(Some(value))
    };
    pure(connection, "pg_json_path", 2, move |it| Ok(optional(path(it)?.map(|value| json::text(&value)))))?;
    pure(connection, "pg_json_path_text", 2, move |it| Ok(optional(path(it)?.as_ref().and_then(json::plain))))?;
    pure(connection, "pg_json_concat", 2, |it| {
        let (Some(a), Some(b)) = (document(it, 0)?, document(it, 1)?) else { return Ok(Sqlite::Null) };
        Ok(Sqlite::Text(json::text(&json::concatenated(a, b))))
    })?;
    pure(connection, "pg_json_without", 2, |it| {
        let (Some(mut value), Some(key)) = (document(it, 0)?, argument(it, 1)) else { return Ok(Sqlite::Null) };
        if let Json::Object(fields) = &mut value {
            fields.remove(&key);
        }
        Ok(Sqlite::Text(json::text(&value)))
    })?;
    pure(connection, "pg_json_has", 2, |it| {
        let (Some(value), Some(key)) = (document(it, 0)?, argument(it, 1)) else { return Ok(None) };
        Ok(Some(match &value {
            Json::Object(fields) => fields.contains_key(&key),
            Json::Array(items) => items.iter().any(|item| item.as_str() == Some(&key)),
            Json::String(text) => *text == key,
            _ => false,
        }))
    })?;
    pure(connection, "pg_contains", 2, |it| {
        let (Some(a), Some(b)) = (argument(it, 0), argument(it, 1)) else { return Ok(None) };
        if let (Some(a), Some(b)) = (array_items(&a), array_items(&b))
            && serde_json::from_str::<Json>(&argument(it, 0).unwrap_or_default()).is_err()
        {
            return Ok(Some(b.iter().all(|item| a.contains(item))));
        }
        Ok(Some(json::contains(&parsed(&a)?, &parsed(&b)?)))
    })?;
    pure(connection, "pg_object_keys", 1, |it| {
        let Some(value) = document(it, 0)? else { return Ok(Sqlite::Null) };
        let keys = value.as_object().map(|fields| fields.keys().cloned().map(Json::from).collect::<Vec<_>>());
        Ok(Sqlite::Text(Json::Array(keys.unwrap_or_default()).to_string()))
    })?;
    connection.create_aggregate_function("pg_json_agg", 1, PURE, JsonAgg)
}

/// `jsonb_agg`: documents as documents, the rest as values.
struct JsonAgg;

impl Aggregate<Vec<String>, Sqlite> for JsonAgg {
    fn init(&self, _: &mut Context<'_>) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn step(&self, it: &mut Context<'_>, items: &mut Vec<String>) -> Result<()> {
        let item = match it.get_raw(0) {
            ValueRef::Null => Json::Null,
            ValueRef::Integer(value) => Json::from(value),
            ValueRef::Real(value) => Json::from(value),
            other => {
                let text = text_of(other).unwrap_or_default();
                let document = serde_json::from_str(&text).ok().filter(|it: &Json| it.is_object() || it.is_array());
                document.unwrap_or(Json::from(text))
            }
        };
        items.push(json::text(&item));
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, items: Option<Vec<String>>) -> Result<Sqlite> {
        Ok(items.map_or(Sqlite::Null, |items| Sqlite::Text(format!("[{}]", items.join(", ")))))
    }
}

/// `array_agg`.
struct ArrayAgg;

impl Aggregate<Vec<Option<String>>, Sqlite> for ArrayAgg {
    fn init(&self, _: &mut Context<'_>) -> Result<Vec<Option<String>>> {
        Ok(Vec::new())
    }

    fn step(&self, it: &mut Context<'_>, items: &mut Vec<Option<String>>) -> Result<()> {
        items.push(argument(it, 0));
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, items: Option<Vec<Option<String>>>) -> Result<Sqlite> {
        Ok(items.map_or(Sqlite::Null, |items| Sqlite::Text(array_text(items.into_iter()))))
    }
}

fn arrays(connection: &Connection) -> Result<()> {
    pure(connection, "pg_array", -1, |it| Ok(array_text((0..it.len()).map(|place| argument(it, place)))))?;
    connection.create_aggregate_function("pg_array_agg", 1, PURE, ArrayAgg)?;
    pure(connection, "pg_subscript", 2, |it| {
        let (Some(array), Some(place)) = (argument(it, 0), number(it, 1)) else { return Ok(Sqlite::Null) };
        // Of a vector of the catalogue: numbers with blanks between them, counted from 0.
        let (items, place) = match array_items(&array) {
            Some(items) => (items, place - 1),
            None => (array.split_whitespace().map(|item| Some(item.to_owned())).collect(), place),
        };
        let item = usize::try_from(place).ok().and_then(|place| items.get(place).cloned()).flatten();
        Ok(item.map_or(Sqlite::Null, |item| item.parse().map_or(Sqlite::Text(item), Sqlite::Integer)))
    })?;
    pure(connection, "pg_array_length", -1, |it| {
        let items = argument(it, 0).and_then(|array| array_items(&array));
        Ok(items.filter(|items| !items.is_empty()).and_then(|items| i64::try_from(items.len()).ok()))
    })?;
    pure(connection, "pg_array_to_string", -1, |it| {
        let (Some(array), Some(between)) = (argument(it, 0), argument(it, 1)) else { return Ok(Sqlite::Null) };
        let items = array_items(&array).unwrap_or_default();
        let null = argument(it, 2);
        let shown: Vec<String> = items.into_iter().filter_map(|item| item.or_else(|| null.clone())).collect();
        Ok(Sqlite::Text(shown.join(&between)))
    })?;
    pure(connection, "array_remove", 2, |it| {
        let (Some(array), gone) = (argument(it, 0), argument(it, 1)) else { return Ok(Sqlite::Null) };
        let items = array_items(&array).unwrap_or_default();
        Ok(Sqlite::Text(array_text(items.into_iter().filter(|item| *item != gone))))
    })?;
    pure(connection, "pg_array_json", 1, |it| {
        let items = argument(it, 0).and_then(|array| array_items(&array)).unwrap_or_default();
        Ok(Json::Array(items.into_iter().map(Json::from).collect()).to_string())
    })?;
    let compare = |it: &Context<'_>, all: bool| -> Result<Option<bool>> {
        let (Some(left), Some(op), Some(array)) = (argument(it, 0), argument(it, 1), argument(it, 2)) else {
            return Ok(None);
        };
        let items = match array_items(&array) {
            Some(items) => items,
            None => array.split_whitespace().map(|item| Some(item.to_owned())).collect(),
        };
        let holds = |item: &Option<String>| {
            let Some(item) = item else { return false };
            let order = match (left.parse::<i64>(), item.parse::<i64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                _ => left.cmp(item),
            };
            match op.as_str() {
                "=" => order.is_eq(),
                "<>" | "!=" => order.is_ne(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                ">" => order.is_gt(),
                ">=" => order.is_ge(),
                "~~" => pattern::like(item, &left, Some('\\'), false),
                _ => false,
            }
        };
        Ok(Some(if all { items.iter().all(holds) } else { items.iter().any(holds) }))
    };
    pure(connection, "pg_any", 3, move |it| compare(it, false))?;
    pure(connection, "pg_all", 3, move |it| compare(it, true))
}

fn texts(connection: &Connection) -> Result<()> {
    // SQLite's own know the letters of ASCII alone.
    pure(connection, "upper", 1, |it| Ok(argument(it, 0).map(|text| text.to_uppercase())))?;
    pure(connection, "lower", 1, |it| Ok(argument(it, 0).map(|text| text.to_lowercase())))?;
    pure(connection, "pg_left", 2, |it| Ok(optional(cut(it, |chars, count| chars.into_iter().take(count).collect()))))?;
    pure(connection, "pg_right", 2, |it| {
        Ok(optional(cut(it, |chars, count| {
            let skip = chars.len().saturating_sub(count);
            chars.into_iter().skip(skip).collect()
        })))
    })?;
    pure(connection, "pg_repeat", 2, |it| {
        let (Some(text), Some(count)) = (argument(it, 0), number(it, 1)) else { return Ok(Sqlite::Null) };
        let count = usize::try_from(count).unwrap_or(0);
        if text.len().saturating_mul(count) > 1 << 20 {
            return Err(failed(code::TOO_MUCH, "the text would be too long"));
        }
        Ok(Sqlite::Text(text.repeat(count)))
    })?;
    pure(connection, "pg_split_part", 3, |it| {
        let (Some(text), Some(at), Some(part)) = (argument(it, 0), argument(it, 1), number(it, 2)) else {
            return Ok(Sqlite::Null);
        };
        let place = usize::try_from(part - 1).unwrap_or(usize::MAX);
        let found = if at.is_empty() { Some(text.as_str()).filter(|_| place == 0) } else { text.split(&at).nth(place) };
        Ok(Sqlite::Text(found.unwrap_or_default().to_owned()))
    })?;
    pure(connection, "pg_starts_with", 2, |it| {
        Ok(argument(it, 0).zip(argument(it, 1)).map(|(text, start)| text.starts_with(&start)))
    })?;
    pure(connection, "pg_greatest", -1, |it| Ok(extreme(it, true)))?;
    pure(connection, "pg_least", -1, |it| Ok(extreme(it, false)))?;
    pure(connection, "pg_quote_ident", 1, |it| {
        Ok(optional(argument(it, 0).map(|name| crate::quote_identifier(&name).to_string())))
    })?;
    pure(connection, "pg_quote_literal", 1, |it| {
        Ok(optional(argument(it, 0).map(|text| format!("'{}'", text.replace('\'', "''")))))
    })?;
    pure(connection, "pg_format", -1, |it| {
        let Some(template) = argument(it, 0) else { return Ok(Sqlite::Null) };
        let (mut out, mut next, mut chars) = (String::new(), 1, template.chars());
        while let Some(c) = chars.next() {
            if c != '%' {
                out.push(c);
                continue;
            }
            let value = argument(it, next).unwrap_or_default();
            match chars.next() {
                Some('%') => out.push('%'),
                Some('s') => {
                    out += &value;
                    next += 1;
                }
                Some('I') => {
                    out += &crate::quote_identifier(&value).to_string();
                    next += 1;
                }
                Some('L') => {
                    out += &format!("'{}'", value.replace('\'', "''"));
                    next += 1;
                }
                _ => return Err(failed(crate::SqlState("22023"), "format() knows %s, %I, %L and %%")),
            }
        }
        Ok(Sqlite::Text(out))
    })
}

fn cut(it: &Context<'_>, pick: impl Fn(Vec<char>, usize) -> String) -> Option<String> {
    let (text, count) = (argument(it, 0)?, number(it, 1)?);
    let chars: Vec<char> = text.chars().collect();
    let len = i64::try_from(chars.len()).ok()?;
    // A negative count: all but so many.
    let count = if count < 0 { (len + count).max(0) } else { count };
    Some(pick(chars, usize::try_from(count).unwrap_or(usize::MAX)))
}

fn extreme(it: &Context<'_>, largest: bool) -> Sqlite {
    let mut best = Sqlite::Null;
    for place in 0..it.len() {
        let Ok(value) = it.get::<Sqlite>(place) else { continue };
        let wins = match (&best, &value) {
            (_, Sqlite::Null) => false,
            (Sqlite::Null, _) => true,
            (Sqlite::Integer(a), Sqlite::Integer(b)) => (b > a) == largest && a != b,
            (a, b) => {
                let text = |value: &Sqlite| text_of(value.into()).unwrap_or_default();
                match (text(a).parse::<f64>(), text(b).parse::<f64>()) {
                    (Ok(a), Ok(b)) => (b > a) == largest,
                    _ => (text(b) > text(a)) == largest,
                }
            }
        };
        if wins {
            best = value;
        }
    }
    best
}

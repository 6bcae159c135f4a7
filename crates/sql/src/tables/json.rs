//! JSON documents as `jsonb` shows and handles them.

use std::fmt::Write as _;

use serde_json::{Map, Value};

/// As PostgreSQL writes a `jsonb`: a space after each colon and comma, shorter keys first.
pub(crate) fn text(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
            out.push('{');
            for (place, (key, field)) in fields.into_iter().enumerate() {
                if place > 0 {
                    out.push_str(", ");
                }
                let _ = write!(out, "{}: ", Value::from(key.as_str()));
                write(field, out);
            }
            out.push('}');
        }
        plain => {
            let _ = write!(out, "{plain}");
        }
    }
}

/// One step into a document, by key or by place; from the end if the place is negative.
pub(crate) fn step<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => fields.get(key),
        Value::Array(items) => {
            let place: i64 = key.parse().ok()?;
            let place = if place < 0 { place + i64::try_from(items.len()).ok()? } else { place };
            items.get(usize::try_from(place).ok()?)
        }
        _ => None,
    }
}

/// What `->>` makes of a value: a text without its quotes, nothing of a null.
pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(text(other)),
    }
}

/// `a || b`.
pub(crate) fn concatenated(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            a.extend(b);
            Value::Object(a)
        }
        (a, b) => {
            let list = |value| match value {
                Value::Array(items) => items,
                other => vec![other],
            };
            Value::Array(list(a).into_iter().chain(list(b)).collect())
        }
    }
}

/// `a @> b`.
pub(crate) fn contains(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            b.iter().all(|(key, wanted)| a.get(key).is_some_and(|found| contains(found, wanted)))
        }
        (Value::Array(a), Value::Array(b)) => b.iter().all(|wanted| a.iter().any(|found| contains(found, wanted))),
        (Value::Array(a), plain) if !plain.is_object() => a.contains(plain),
        (a, b) => a == b,
    }
}

pub(crate) fn object(fields: impl IntoIterator<Item = (impl Into<String>, Value)>) -> Value {
    Value::Object(fields.into_iter().map(|(key, value)| (key.into(), value)).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_document_is_written_as_postgresql_does() {
        let value = json!({"size": "200cc", "config_version": 1, "on": true, "list": [1, null, {"a": "x\"y"}]});
        assert_eq!(
            text(&value),
            r#"{"on": true, "list": [1, null, {"a": "x\"y"}], "size": "200cc", "config_version": 1}"#
        );
    }

    #[test]
    fn what_is_laid_over_a_document_wins() {
        let merged = concatenated(json!({"a": 1, "b": 2}), json!({"b": 3}));
        assert_eq!(merged, json!({"a": 1, "b": 3}));
        assert_eq!(concatenated(json!([1]), json!(2)), json!([1, 2]));
    }

    #[test]
    fn containment_looks_inside() {
        assert!(contains(&json!({"a": {"b": 1, "c": 2}}), &json!({"a": {"b": 1}})));
        assert!(!contains(&json!({"a": 1}), &json!({"a": 2})));
        assert!(contains(&json!([1, 2, 3]), &json!([3, 1])));
        assert!(contains(&json!(["x"]), &json!("x")));
    }
}

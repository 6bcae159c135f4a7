//! The kinds of values there are, as `pg_catalog` describes them.

use super::{Listed, OWNER_OID};
use crate::tables::value::{Kind, Value};

pub(crate) static PG_TYPE: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_type",
    columns: &[
        ("oid", Kind::Oid),
        ("typname", Kind::Name),
        ("typnamespace", Kind::Oid),
        ("typowner", Kind::Oid),
        ("typlen", Kind::Int2),
        ("typbyval", Kind::Bool),
        ("typtype", Kind::Char),
        ("typcategory", Kind::Char),
        ("typispreferred", Kind::Bool),
        ("typisdefined", Kind::Bool),
        ("typdelim", Kind::Char),
        ("typrelid", Kind::Oid),
        ("typelem", Kind::Oid),
        ("typarray", Kind::Oid),
        ("typinput", Kind::Text),
        ("typoutput", Kind::Text),
        ("typreceive", Kind::Text),
        ("typsend", Kind::Text),
        ("typalign", Kind::Char),
        ("typstorage", Kind::Char),
        ("typnotnull", Kind::Bool),
        ("typbasetype", Kind::Oid),
        ("typtypmod", Kind::Int4),
        ("typndims", Kind::Int4),
        ("typcollation", Kind::Oid),
        ("typdefault", Kind::Text),
        ("typacl", Kind::TextArray),
    ],
    rows: |_| Kind::ALL.iter().map(|kind| row(*kind)).collect(),
};

fn row(kind: Kind) -> Vec<Value> {
    let element = match kind {
        Kind::TextArray => Some(Kind::Text),
        Kind::OidArray => Some(Kind::Oid),
        Kind::Int2Array => Some(Kind::Int2),
        _ => None,
    };
    let array = match kind {
        Kind::Text => Some(Kind::TextArray),
        Kind::Oid => Some(Kind::OidArray),
        Kind::Int2 => Some(Kind::Int2Array),
        _ => None,
    };
    let category = match kind {
        Kind::Bool => "B",
        Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Float8 | Kind::Oid => "N",
        Kind::Text | Kind::Name => "S",
        Kind::Timestamptz => "D",
        Kind::Interval => "T",
        Kind::TextArray | Kind::OidArray | Kind::Int2Array => "A",
        Kind::Char => "Z",
        Kind::Jsonb => "U",
        Kind::Unknown => "X",
    };
    let number = |kind: Option<Kind>| Value::Int(kind.map_or(0, |kind| kind.oid().into()));
    let function = |end: &str| match kind {
        _ if element.is_some() => Value::Text(format!("array_{end}")),
        Kind::Timestamptz | Kind::Jsonb | Kind::Interval => Value::Text(format!("{}_{end}", kind.name())),
        _ => Value::Text(format!("{}{end}", kind.name())),
    };
    vec![
        Value::Int(kind.oid().into()),
        kind.name().into(),
        Value::Int(11),
        Value::Int(OWNER_OID),
        Value::Int(kind.length()),
        Value::Bool(kind.length() > 0),
        Value::from("b"),
        category.into(),
        Value::Bool(matches!(kind, Kind::Bool | Kind::Text | Kind::Float8 | Kind::Timestamptz)),
        Value::Bool(true),
        Value::from(","),
        Value::Int(0),
        number(element),
        number(array),
        function("in"),
        function("out"),
        function("recv"),
        function("send"),
        Value::from("i"),
        Value::from("p"),
        Value::Bool(false),
        Value::Int(0),
        Value::Int(-1),
        Value::Int(0),
        Value::Int(if matches!(kind, Kind::Text | Kind::Name | Kind::TextArray) { 100 } else { 0 }),
        Value::Null,
        Value::Null,
    ]
}

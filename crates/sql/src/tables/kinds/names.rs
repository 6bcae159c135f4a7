//! What things are called: columns without a name, and types.

use sqlparser::ast::{Expr, Ident, SelectItem, SetExpr, Value as Literal};

use crate::tables::{folded, parts};

/// Whose name PostgreSQL gives up for that of the type it is cast to.
fn is_weakly_named(expr: &Expr) -> bool {
    matches!(expr, Expr::Value(_) | Expr::Cast { .. } | Expr::TypedString(_) | Expr::Case { .. })
}

/// `int4` for `int`: the name that PostgreSQL itself has for a type.
fn own_type_name(written: &str) -> String {
    let name = type_name(written);
    match name.as_str() {
        "int" | "integer" => "int4".to_owned(),
        "bigint" => "int8".to_owned(),
        "smallint" => "int2".to_owned(),
        "boolean" => "bool".to_owned(),
        "double precision" => "float8".to_owned(),
        "real" => "float4".to_owned(),
        "decimal" => "numeric".to_owned(),
        _ => name,
    }
}

/// What PostgreSQL calls a column that has no name of its own.
pub(crate) fn name_of(expr: &Expr) -> String {
    match expr {
        Expr::Identifier(name) => folded(name),
        Expr::CompoundIdentifier(names) => names.last().map(folded).unwrap_or_default(),
        Expr::Function(function) => parts(&function.name).last().cloned().unwrap_or_default(),
        Expr::Cast { expr, data_type, .. } => match name_of(expr) {
            name if name == "?column?" || is_weakly_named(expr) => own_type_name(&data_type.to_string()),
            name => name,
        },
        Expr::TypedString(it) => type_name(&it.data_type.to_string()),
        Expr::Nested(expr) | Expr::Collate { expr, .. } | Expr::AtTimeZone { timestamp: expr, .. } => name_of(expr),
        Expr::Case { else_result, .. } => match else_result.as_deref().map(name_of) {
            Some(name) if name != "?column?" => name,
            _ => "case".to_owned(),
        },
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Array(_) => "array".to_owned(),
        Expr::Interval(_) => "interval".to_owned(),
        Expr::Extract { .. } => "extract".to_owned(),
        Expr::Substring { .. } => "substring".to_owned(),
        Expr::Position { .. } => "position".to_owned(),
        Expr::Trim { .. } => "btrim".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        Expr::Value(value) if matches!(value.value, Literal::Boolean(_)) => "bool".to_owned(),
        Expr::Subquery(query) => match &*query.body {
            SetExpr::Select(select) => match select.projection.first() {
                Some(SelectItem::UnnamedExpr(expr)) => name_of(expr),
                Some(SelectItem::ExprWithAlias { alias, .. }) => folded(alias),
                _ => "?column?".to_owned(),
            },
            _ => "?column?".to_owned(),
        },
        _ => "?column?".to_owned(),
    }
}

/// The bare name of a type as it is written: without a schema, a length, or letters in capitals.
pub(crate) fn type_name(written: &str) -> String {
    let lower = written.to_ascii_lowercase().replace('"', "");
    let lower = lower.strip_prefix("pg_catalog.").unwrap_or(&lower);
    let (head, tail) = match (lower.find('('), lower.find(')')) {
        (Some(from), Some(to)) if from < to => (&lower[..from], &lower[to + 1..]),
        _ => (lower, ""),
    };
    match format!("{}{tail}", head.trim()).as_str() {
        "timestamp" => "timestamp".to_owned(),
        other => other.to_owned(),
    }
}

/// As PostgreSQL reads an identifier.
pub(crate) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

//! The kind of what an expression computes.

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value as Literal,
};

use super::names::type_name;
use super::scope::{Scope, columns};
use crate::tables::value::Kind;
use crate::tables::{folded, parts};

pub(super) fn settled(kind: Kind) -> Kind {
    if kind == Kind::Unknown { Kind::Text } else { kind }
}

/// The kind of a value that an expression computes.
pub(crate) fn kind_of(expr: &Expr, scope: &Scope) -> Kind {
    match expr {
        Expr::Identifier(name) => scope.look_up(None, &folded(name)).unwrap_or(Kind::Text),
        Expr::CompoundIdentifier(names) => {
            let names: Vec<String> = names.iter().map(folded).collect();
            let table = names.len().checked_sub(2).and_then(|place| names.get(place));
            let column = names.last().map(String::as_str).unwrap_or_default();
            scope.look_up(table.map(String::as_str), column).unwrap_or(Kind::Text)
        }
        Expr::IsFalse(_)
        | Expr::IsNotFalse(_)
        | Expr::IsTrue(_)
        | Expr::IsNotTrue(_)
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::IsUnknown(_)
        | Expr::IsNotUnknown(_)
        | Expr::IsDistinctFrom(..)
        | Expr::IsNotDistinctFrom(..)
        | Expr::InList { .. }
        | Expr::InSubquery { .. }
        | Expr::InUnnest { .. }
        | Expr::Between { .. }
        | Expr::Like { .. }
        | Expr::ILike { .. }
        | Expr::SimilarTo { .. }
        | Expr::RLike { .. }
        | Expr::AnyOp { .. }
        | Expr::AllOp { .. }
        | Expr::Exists { .. } => Kind::Bool,
        Expr::UnaryOp { op: UnaryOperator::Not, .. } => Kind::Bool,
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) | Expr::Collate { expr, .. } => kind_of(expr, scope),
        Expr::BinaryOp { left, op, right } => operator(kind_of(left, scope), op, kind_of(right, scope)),
        Expr::Cast { data_type, .. } => Kind::from_sql(&type_name(&data_type.to_string())).unwrap_or(Kind::Text),
        Expr::TypedString(it) => Kind::from_sql(&type_name(&it.data_type.to_string())).unwrap_or(Kind::Text),
        Expr::AtTimeZone { .. } => Kind::Timestamptz,
        Expr::Interval(_) => Kind::Interval,
        Expr::Extract { .. } | Expr::Ceil { .. } | Expr::Floor { .. } => Kind::Float8,
        Expr::Position { .. } => Kind::Int4,
        Expr::Array(_) => Kind::TextArray,
        Expr::Value(value) => match &value.value {
            Literal::Number(text, _) if text.contains(['.', 'e', 'E']) => Kind::Float8,
            Literal::Number(text, _) if text.parse::<i32>().is_ok() => Kind::Int4,
            Literal::Number(..) => Kind::Int8,
            Literal::Boolean(_) => Kind::Bool,
            Literal::Null | Literal::Placeholder(_) => Kind::Unknown,
            _ => Kind::Text,
        },
        Expr::Case { conditions, else_result, .. } => {
            let results = conditions.iter().map(|when| &when.result).chain(else_result.as_deref());
            first_known(results, scope)
        }
        Expr::Subquery(query) => {
            columns(query, scope).and_then(|columns| columns.first().map(|(_, kind)| *kind)).unwrap_or(Kind::Text)
        }
        Expr::Function(function) => function_kind(function, scope),
        Expr::CompoundFieldAccess { root, .. } => match kind_of(root, scope) {
            Kind::OidArray => Kind::Oid,
            Kind::Int2Array => Kind::Int2,
            Kind::Jsonb => Kind::Jsonb,
            _ => Kind::Text,
        },
        _ => Kind::Text,
    }
}

fn first_known<'a>(exprs: impl Iterator<Item = &'a Expr>, scope: &Scope) -> Kind {
    exprs.map(|expr| kind_of(expr, scope)).find(|kind| *kind != Kind::Unknown).unwrap_or(Kind::Unknown)
}

fn operator(left: Kind, op: &BinaryOperator, right: Kind) -> Kind {
    match op {
        BinaryOperator::Plus | BinaryOperator::Minus => match (left, right) {
            (Kind::Timestamptz, Kind::Timestamptz) => Kind::Interval,
            (Kind::Timestamptz, _) | (_, Kind::Timestamptz) => Kind::Timestamptz,
            (Kind::Interval, _) | (_, Kind::Interval) => Kind::Interval,
            _ => wider(left, right),
        },
        BinaryOperator::Multiply | BinaryOperator::Divide | BinaryOperator::Modulo => wider(left, right),
        BinaryOperator::PGExp => Kind::Float8,
        BinaryOperator::BitwiseAnd
        | BinaryOperator::BitwiseOr
        | BinaryOperator::PGBitwiseXor
        | BinaryOperator::PGBitwiseShiftLeft
        | BinaryOperator::PGBitwiseShiftRight => wider(left, right),
        BinaryOperator::StringConcat => match (left, right) {
            (Kind::Jsonb, _) | (_, Kind::Jsonb) => Kind::Jsonb,
            (Kind::TextArray, _) | (_, Kind::TextArray) => Kind::TextArray,
            _ => Kind::Text,
        },
        BinaryOperator::Arrow | BinaryOperator::HashArrow | BinaryOperator::HashMinus => Kind::Jsonb,
        BinaryOperator::LongArrow | BinaryOperator::HashLongArrow => Kind::Text,
        _ => Kind::Bool,
    }
}

fn wider(left: Kind, right: Kind) -> Kind {
    match (left, right) {
        (Kind::Float8, _) | (_, Kind::Float8) => Kind::Float8,
        (Kind::Jsonb, _) | (_, Kind::Jsonb) => Kind::Jsonb,
        (Kind::Int8, _) | (_, Kind::Int8) => Kind::Int8,
        (Kind::Unknown, Kind::Unknown) => Kind::Int8,
        (Kind::Unknown, other) | (other, Kind::Unknown) => other,
        (Kind::Oid, _) | (_, Kind::Oid) => Kind::Int8,
        _ => Kind::Int4,
    }
}

fn arguments(function: &Function) -> Vec<&Expr> {
    let FunctionArguments::List(list) = &function.args else { return Vec::new() };
    let plain = list.args.iter().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    plain.collect()
}

fn function_kind(function: &Function, scope: &Scope) -> Kind {
    let name = parts(&function.name).last().cloned().unwrap_or_default();
    let arguments = arguments(function);
    let first = || arguments.first().map_or(Kind::Text, |expr| kind_of(expr, scope));
    match name.as_str() {
        "count"
        | "row_number"
        | "rank"
        | "dense_rank"
        | "ntile"
        | "length"
        | "char_length"
        | "strpos"
        | "pg_table_size"
        | "pg_total_relation_size"
        | "pg_relation_size"
        | "pg_database_size"
        | "octet_length"
        | "array_length"
        | "array_upper"
        | "cardinality"
        | "jsonb_array_length"
        | "json_array_length"
        | "generate_series"
        | "txid_current"
        | "loadline_index" => Kind::Int8,
        "pg_backend_pid" | "inet_server_port" | "inet_client_port" => Kind::Int4,
        "sum" => match first() {
            Kind::Float8 => Kind::Float8,
            Kind::Interval => Kind::Interval,
            _ => Kind::Int8,
        },
        "avg" | "extract" | "date_part" | "random" | "percent_rank" | "cume_dist" | "stddev" | "sqrt" | "power"
        | "ln" | "exp" => Kind::Float8,
        "min" | "max" | "abs" | "lag" | "lead" | "first_value" | "last_value" | "nth_value" | "round" | "ceil"
        | "floor" | "sign" | "mod" | "nullif" => first(),
        "coalesce" | "greatest" | "least" => first_known(arguments.iter().copied(), scope),
        "bool_and"
        | "bool_or"
        | "every"
        | "exists"
        | "starts_with"
        | "pg_is_in_recovery"
        | "pg_table_is_visible"
        | "pg_type_is_visible"
        | "pg_function_is_visible"
        | "has_table_privilege"
        | "has_schema_privilege"
        | "has_database_privilege"
        | "has_column_privilege"
        | "has_any_column_privilege"
        | "pg_relation_is_publishable"
        | "pg_relation_is_updatable" => Kind::Bool,
        "now"
        | "current_timestamp"
        | "transaction_timestamp"
        | "statement_timestamp"
        | "clock_timestamp"
        | "date_trunc"
        | "to_timestamp"
        | "pg_postmaster_start_time"
        | "current_date"
        | "localtimestamp" => Kind::Timestamptz,
        "age" | "justify_interval" | "make_interval" => Kind::Interval,
        "json_agg" | "jsonb_agg" | "json_object_agg" | "jsonb_object_agg" | "json_build_object"
        | "jsonb_build_object" | "json_build_array" | "jsonb_build_array" | "to_json" | "to_jsonb" | "jsonb_set"
        | "row_to_json" | "json_extract_path" | "jsonb_extract_path" | "jsonb_strip_nulls" => Kind::Jsonb,
        "array_agg" | "array" | "current_schemas" | "string_to_array" | "array_append" => Kind::TextArray,
        "current_user" | "session_user" | "user" | "current_role" | "current_database" | "current_catalog"
        | "current_schema" | "pg_get_userbyid" => Kind::Name,
        _ => Kind::Text,
    }
}

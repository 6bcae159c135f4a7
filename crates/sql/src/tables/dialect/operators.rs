//! Operators and casts: which of our functions does what SQLite has no operator for.

use sqlparser::ast::{BinaryOperator, Expr};

use crate::tables::build::call;
use crate::tables::error::{QueryError, code};
use crate::tables::value::Kind;

/// What becomes of an operator.
pub(super) enum Binary {
    Call(&'static str),
    /// Pattern first.
    Flipped(&'static str),
    Not(&'static str),
    Plain(BinaryOperator),
    Unknown,
}

pub(super) fn binary(op: &BinaryOperator, left: Kind, right: Kind) -> Option<Binary> {
    let temporal = [left, right].iter().any(|kind| matches!(kind, Kind::Timestamptz | Kind::Interval));
    Some(match op {
        BinaryOperator::Plus if temporal => Binary::Call("pg_plus"),
        BinaryOperator::Minus if temporal => Binary::Call("pg_minus"),
        BinaryOperator::Minus if left == Kind::Jsonb => Binary::Call("pg_json_without"),
        BinaryOperator::Divide => Binary::Call("pg_divide"),
        BinaryOperator::StringConcat if left == Kind::Jsonb || right == Kind::Jsonb => Binary::Call("pg_json_concat"),
        BinaryOperator::Arrow => Binary::Call("pg_json_get"),
        BinaryOperator::LongArrow => Binary::Call("pg_json_get_text"),
        BinaryOperator::HashArrow => Binary::Call("pg_json_path"),
        BinaryOperator::HashLongArrow => Binary::Call("pg_json_path_text"),
        BinaryOperator::AtArrow => Binary::Call("pg_contains"),
        BinaryOperator::ArrowAt => Binary::Flipped("pg_contains"),
        BinaryOperator::Question => Binary::Call("pg_json_has"),
        BinaryOperator::PGExp => Binary::Call("pow"),
        BinaryOperator::PGRegexMatch => Binary::Flipped("pg_regex"),
        BinaryOperator::PGRegexIMatch => Binary::Flipped("pg_iregex"),
        BinaryOperator::PGRegexNotMatch => Binary::Not("pg_regex"),
        BinaryOperator::PGRegexNotIMatch => Binary::Not("pg_iregex"),
        BinaryOperator::PGLikeMatch => Binary::Flipped("pg_like"),
        BinaryOperator::PGILikeMatch => Binary::Flipped("pg_ilike"),
        BinaryOperator::PGNotLikeMatch => Binary::Not("pg_like"),
        BinaryOperator::PGNotILikeMatch => Binary::Not("pg_ilike"),
        BinaryOperator::PGStartsWith => Binary::Call("pg_starts_with"),
        BinaryOperator::PGBitwiseShiftLeft => Binary::Plain(BinaryOperator::Custom("<<".to_owned())),
        BinaryOperator::PGBitwiseShiftRight => Binary::Plain(BinaryOperator::Custom(">>".to_owned())),
        BinaryOperator::PGCustomBinaryOperator(name) => {
            let plain = match name.last().map(String::as_str) {
                Some("~") => return binary(&BinaryOperator::PGRegexMatch, left, right),
                Some("~*") => return binary(&BinaryOperator::PGRegexIMatch, left, right),
                Some("!~") => return binary(&BinaryOperator::PGRegexNotMatch, left, right),
                Some("!~*") => return binary(&BinaryOperator::PGRegexNotIMatch, left, right),
                Some("~~") => return binary(&BinaryOperator::PGLikeMatch, left, right),
                Some("!~~") => return binary(&BinaryOperator::PGNotLikeMatch, left, right),
                Some("=") => BinaryOperator::Eq,
                Some("<>") => BinaryOperator::NotEq,
                Some("<") => BinaryOperator::Lt,
                Some("<=") => BinaryOperator::LtEq,
                Some(">") => BinaryOperator::Gt,
                Some(">=") => BinaryOperator::GtEq,
                Some("||") => BinaryOperator::StringConcat,
                Some("+") => BinaryOperator::Plus,
                Some("-") => BinaryOperator::Minus,
                Some("*") => BinaryOperator::Multiply,
                Some("/") => BinaryOperator::Divide,
                Some("->") => BinaryOperator::Arrow,
                Some("->>") => BinaryOperator::LongArrow,
                _ => return Some(Binary::Unknown),
            };
            return Some(binary(&plain, left, right).unwrap_or(Binary::Plain(plain)));
        }
        BinaryOperator::PGOverlap | BinaryOperator::AtAt | BinaryOperator::AtQuestion | BinaryOperator::Custom(_) => {
            Binary::Unknown
        }
        _ => return None,
    })
}

pub(super) fn cast(expr: Expr, from: Kind, written: &str) -> Result<Expr, QueryError> {
    let function = match written {
        "regclass" => "pg_regclass",
        "regtype" => "pg_regtype",
        "regproc" | "regprocedure" | "regoper" | "regoperator" => "pg_text",
        "regnamespace" => "pg_regnamespace",
        "regrole" => "pg_text",
        _ => match Kind::from_sql(written) {
            None => {
                let message = format!("type \"{written}\" does not exist");
                return Err(QueryError::new(code::UNDEFINED_OBJECT, message));
            }
            Some(Kind::Bool) => "pg_bool",
            Some(Kind::Int2 | Kind::Int4 | Kind::Int8 | Kind::Oid) => "pg_int",
            Some(Kind::Float8) => "pg_float",
            Some(Kind::Jsonb) => "pg_jsonb",
            Some(Kind::Timestamptz) if written == "date" => "pg_date",
            Some(Kind::Timestamptz) => "pg_timestamptz",
            Some(Kind::Interval) => "pg_interval",
            Some(_) if from == Kind::Bool => "pg_bool_text",
            Some(_) => "pg_text",
        },
    };
    Ok(call(function, vec![expr]))
}

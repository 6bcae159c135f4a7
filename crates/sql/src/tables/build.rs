//! Pieces of syntax trees: what stands in the place of something that SQLite does not know, and queries of our own.

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, ObjectNamePart, Query, SetExpr, TableAlias, TableFactor, UnaryOperator, Value as Literal,
};

pub(crate) fn select_all(schema: Option<String>, name: String) -> SetExpr {
    let names = schema.into_iter().chain([name]).map(|part| ObjectNamePart::Identifier(Ident::new(part)));
    star_from(ObjectName(names.collect()), Vec::new())
}

/// `SELECT * FROM name(arguments)`.
pub(crate) fn star_from(name: ObjectName, arguments: Vec<FunctionArg>) -> SetExpr {
    let mut query = template("SELECT * FROM t");
    if let SetExpr::Select(select) = &mut *query.body
        && let Some(from) = select.from.first_mut()
        && let TableFactor::Table { name: own, args, .. } = &mut from.relation
    {
        *own = name;
        if !arguments.is_empty() {
            *args = Some(sqlparser::ast::TableFunctionArgs { args: arguments, settings: None });
        }
    }
    *query.body
}

pub(crate) fn empty_query() -> Query {
    template("SELECT 1")
}

/// Text of our own, which parses: a tree has more fields than anybody wants to write.
pub(crate) fn template(text: &'static str) -> Query {
    let dialect = sqlparser::dialect::SQLiteDialect {};
    let parsed =
        sqlparser::parser::Parser::new(&dialect).try_with_sql(text).and_then(|mut parser| parser.parse_query());
    match parsed {
        Ok(query) => *query,
        Err(error) => unreachable!("a text of our own does not parse: {error}"),
    }
}

pub(crate) fn plain_alias(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: quoted(name), columns: Vec::new(), at: None }
}

pub(crate) fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

pub(crate) fn argument(argument: &FunctionArg) -> Option<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

pub(crate) fn list(arguments: Vec<Expr>) -> FunctionArguments {
    let args = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() })
}

pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(quoted(name))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: list(arguments),
        within_group: Vec::new(),
        filter: None,
        null_treatment: None,
        over: None,
    })
}

pub(crate) fn text(value: &str) -> Expr {
    Expr::Value(Literal::SingleQuotedString(value.to_owned()).into())
}

pub(crate) fn number(value: i64) -> Expr {
    Expr::Value(Literal::Number(value.to_string(), false).into())
}

pub(crate) fn concat(left: Expr, right: Expr) -> Expr {
    let nested = |expr| Box::new(Expr::Nested(Box::new(expr)));
    Expr::BinaryOp { left: nested(left), op: BinaryOperator::StringConcat, right: nested(right) }
}

pub(crate) fn negate(negated: bool, expr: Expr) -> Expr {
    if !negated {
        return expr;
    }
    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }))
}

pub(crate) fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Literal::Null.into()))
}

pub(crate) fn take(expr: &mut Box<Expr>) -> Expr {
    taken(expr)
}

pub(crate) fn unwrapped(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

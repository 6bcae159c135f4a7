//! What stands in FROM, or in the place of an expression, as a query of its own.

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    Cte, Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, TableAlias,
    TableFactor, With,
};

use crate::tables::build::{call, empty_query, plain_alias, quoted, star_from, taken};
use crate::tables::folded;

/// What a query is called whose columns are renamed.
pub(super) const RENAMED: &str = "renamed";

/// `(SELECT a FROM ...) AS t(x)`, for which SQLite has a name only in front: `WITH t(x) AS (...) SELECT * FROM t`.
pub(super) fn name_columns(query: &mut Query, alias: &mut TableAlias) {
    let inner = std::mem::replace(query, empty_query());
    let named = TableAlias { explicit: false, columns: std::mem::take(&mut alias.columns), ..plain_alias(RENAMED) };
    let cte = Cte {
        alias: named,
        query: Box::new(inner),
        from: None,
        materialized: None,
        closing_paren_token: AttachedToken::empty(),
    };
    *query.body = star_from(ObjectName(vec![ObjectNamePart::Identifier(quoted(RENAMED))]), Vec::new());
    query.with = Some(With { with_token: AttachedToken::empty(), recursive: false, cte_tables: vec![cte] });
}

/// A function in FROM whose only column is called as the table is, or as its alias says.
pub(super) fn with_only_column(mut alias: TableAlias, function: &str) -> (TableAlias, Ident) {
    let column = match alias.columns.first() {
        Some(column) => column.name.clone(),
        // `FROM generate_series(1, 3) AS n` makes a column `n`, too.
        None if folded(&alias.name) != function => alias.name.clone(),
        None => quoted(function),
    };
    alias.columns.clear();
    (alias, column)
}

pub(super) fn derived(mut query: Query, (alias, column): (TableAlias, Ident)) -> TableFactor {
    if let SetExpr::Select(select) = &mut *query.body {
        select.projection = vec![SelectItem::ExprWithAlias { expr: Expr::Identifier(quoted("value")), alias: column }];
    }
    TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(alias), sample: None }
}

pub(super) fn table_function(name: &str, arguments: Vec<Expr>) -> Option<Query> {
    let (function, arguments) = match (name, arguments.len()) {
        ("generate_series", 2 | 3) => ("generate_series", arguments),
        ("unnest", 1) => ("json_each", vec![call("pg_array_json", arguments)]),
        ("jsonb_array_elements" | "json_array_elements", 1) => ("json_each", arguments),
        ("jsonb_array_elements_text" | "json_array_elements_text", 1) => ("json_each", arguments),
        ("jsonb_object_keys" | "json_object_keys", 1) => ("pg_object_keys", arguments),
        _ => return None,
    };
    let (function, arguments) = match function {
        "pg_object_keys" => ("json_each", vec![call("pg_object_keys", arguments)]),
        other => (other, arguments),
    };
    let arguments = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    let mut query = empty_query();
    *query.body = star_from(ObjectName(vec![ObjectNamePart::Identifier(quoted(function))]), arguments);
    Some(query)
}

/// Whether it is what [`table_function`] makes.
pub(super) fn is_replaced(name: &ObjectName) -> bool {
    let [ObjectNamePart::Identifier(own)] = name.0.as_slice() else { return false };
    own.quote_style.is_some() && matches!(own.value.as_str(), "generate_series" | "json_each")
}

/// `ARRAY(SELECT ...)`.
pub(super) fn array_of(mut query: Box<Query>) -> Expr {
    if let SetExpr::Select(select) = &mut *query.body
        && let Some(item) = select.projection.first_mut()
    {
        let expr = match item {
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => taken(expr),
            _ => Expr::Identifier(quoted("value")),
        };
        *item = SelectItem::ExprWithAlias { expr, alias: quoted("item") };
    }
    let mut outer = empty_query();
    *outer.body = star_from(ObjectName(Vec::new()), Vec::new());
    if let SetExpr::Select(select) = &mut *outer.body {
        let items = call("pg_array_agg", vec![Expr::Identifier(quoted("item"))]);
        select.projection = vec![SelectItem::ExprWithAlias { expr: items, alias: quoted("array") }];
        if let Some(from) = select.from.first_mut() {
            let alias = Some(plain_alias("items"));
            from.relation = TableFactor::Derived { lateral: false, subquery: query, alias, sample: None };
        }
    }
    Expr::Subquery(Box::new(outer))
}

/// A query in parentheses inside a UNION, which SQLite knows only as a table.
pub(super) fn unwrap_nested(body: &mut SetExpr) {
    if let SetExpr::SetOperation { left, right, .. } = body {
        for side in [left, right] {
            if let SetExpr::Query(query) = &mut **side {
                let query = std::mem::replace(query, Box::new(empty_query()));
                let mut select = star_from(ObjectName(Vec::new()), Vec::new());
                if let SetExpr::Select(select) = &mut select
                    && let Some(from) = select.from.first_mut()
                {
                    let alias = Some(plain_alias("nested"));
                    from.relation = TableFactor::Derived { lateral: false, subquery: query, alias, sample: None };
                }
                **side = select;
            } else {
                unwrap_nested(side);
            }
        }
    }
}

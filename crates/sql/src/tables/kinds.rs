//! The kinds of a query's columns and parameters, found by looking at the query alone.
//!
//! SQLite knows no type for what an expression computes, and PostgreSQL's clients want one. The rule: a column of a table has
//! the kind it is declared with; an operator, a function or a cast has the kind that it has in PostgreSQL; what is not known is
//! text.

use std::collections::BTreeMap;

use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, JoinOperator, LimitClause,
    ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins,
    UnaryOperator, Value as Literal, Visit, Visitor,
};
use std::ops::ControlFlow;

use super::value::Kind;
use super::{find_table, folded, parts};

/// A name and what it holds.
pub(crate) type Named = (String, Kind);

/// What the names in a query stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// By alias, in the order of the query.
    tables: Vec<(String, Vec<Named>)>,
    /// Queries that have a name.
    ctes: BTreeMap<String, Vec<Named>>,
    search_path: Vec<String>,
}

impl Scope {
    pub(crate) fn new(search_path: &[String]) -> Self {
        Self { search_path: search_path.to_vec(), ..Self::default() }
    }

    fn look_up(&self, table: Option<&str>, column: &str) -> Option<Kind> {
        let of = |(alias, columns): &(String, Vec<Named>)| {
            let here = table.is_none_or(|table| table == alias);
            here.then(|| columns.iter().find(|(name, _)| name == column).map(|(_, kind)| *kind)).flatten()
        };
        // The innermost are the last ones.
        self.tables.iter().rev().find_map(of)
    }

    /// Everything of the other that this one does not know.
    fn extend(&mut self, other: Self) {
        self.tables.extend(other.tables);
        self.ctes.extend(other.ctes);
    }
}

/// The columns that a query answers with. Nothing where they cannot be told, as after a join that merges columns.
pub(crate) fn columns(query: &Query, outer: &Scope) -> Option<Vec<Named>> {
    let mut scope = outer.clone();
    add_ctes(query, &mut scope);
    columns_of(&query.body, &scope)
}

fn add_ctes(query: &Query, scope: &mut Scope) {
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        let name = folded(&cte.alias.name);
        let mut found = columns(&cte.query, scope).unwrap_or_default();
        for (place, alias) in cte.alias.columns.iter().enumerate() {
            match found.get_mut(place) {
                Some(column) => column.0 = folded(&alias.name),
                None => found.push((folded(&alias.name), Kind::Text)),
            }
        }
        scope.ctes.insert(name, found);
    }
}

fn columns_of(body: &SetExpr, scope: &Scope) -> Option<Vec<Named>> {
    match body {
        SetExpr::Select(select) => select_columns(select, scope),
        SetExpr::Query(query) => columns(query, scope),
        SetExpr::SetOperation { left, right, .. } => {
            let mut found = columns_of(left, scope)?;
            // A null on one side takes the kind of the other.
            if let Some(other) = columns_of(right, scope) {
                for (column, (_, kind)) in found.iter_mut().zip(other) {
                    if column.1 == Kind::Unknown {
                        column.1 = kind;
                    }
                }
            }
            Some(found)
        }
        SetExpr::Values(values) => {
            let first = values.rows.first()?;
            let named = first.iter().enumerate();
            Some(named.map(|(place, expr)| (format!("column{}", place + 1), settled(kind_of(expr, scope)))).collect())
        }
        SetExpr::Table(table) => {
            let name = table.table_name.as_deref()?;
            let found = find_table(table.schema_name.as_deref(), name, &scope.search_path)?;
            Some(found.columns().iter().map(|column| (column.name.to_owned(), column.kind)).collect())
        }
        _ => None,
    }
}

fn select_columns(select: &Select, outer: &Scope) -> Option<Vec<Named>> {
    let scope = select_scope(select, outer);
    let own = &scope.tables[outer.tables.len()..];
    let mut found = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(expr) => found.push((name_of(expr), kind_of(expr, &scope))),
            SelectItem::ExprWithAlias { expr, alias } => found.push((folded(alias), kind_of(expr, &scope))),
            SelectItem::Wildcard(_) => {
                if merges_columns(select) {
                    return None;
                }
                found.extend(own.iter().flat_map(|(_, columns)| columns.iter().cloned()));
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                let table = parts(name).last().cloned()?;
                let (_, columns) = own.iter().find(|(alias, _)| *alias == table)?;
                found.extend(columns.iter().cloned());
            }
            _ => return None,
        }
    }
    Some(found)
}

fn merges_columns(select: &Select) -> bool {
    let merging = |join: &JoinOperator| {
        let text = format!("{join:?}");
        text.contains("Using(") || text.contains("Natural")
    };
    select.from.iter().flat_map(|from| &from.joins).any(|join| merging(&join.join_operator))
}

fn select_scope(select: &Select, outer: &Scope) -> Scope {
    let mut scope = outer.clone();
    for from in &select.from {
        add_from(from, &mut scope);
    }
    scope
}

fn add_from(from: &TableWithJoins, scope: &mut Scope) {
    add_factor(&from.relation, scope);
    for join in &from.joins {
        add_factor(&join.relation, scope);
    }
}

fn add_factor(factor: &TableFactor, scope: &mut Scope) {
    let (alias, found) = match factor {
        TableFactor::Table { name, alias, args, .. } => {
            let own = parts(name);
            let Some(bare) = own.last().cloned() else { return };
            let found = match args {
                Some(_) => {
                    let kind = if bare == "generate_series" { Kind::Int8 } else { Kind::Text };
                    // `FROM generate_series(1, 3) AS n` makes a column `n`, too.
                    let named = alias.as_ref().map(|alias| {
                        alias.columns.first().map_or_else(|| folded(&alias.name), |column| folded(&column.name))
                    });
                    vec![(named.unwrap_or_else(|| bare.clone()), kind)]
                }
                None => table_columns(name, scope),
            };
            (alias.as_ref().map_or(bare, |alias| folded(&alias.name)), found)
        }
        TableFactor::Derived { subquery, alias, .. } => {
            let found = columns(subquery, scope).unwrap_or_default();
            (alias.as_ref().map_or_else(String::new, |alias| folded(&alias.name)), found)
        }
        TableFactor::NestedJoin { table_with_joins, .. } => return add_from(table_with_joins, scope),
        TableFactor::UNNEST { alias, .. } => {
            (alias.as_ref().map_or("unnest".to_owned(), |it| folded(&it.name)), vec![("unnest".to_owned(), Kind::Text)])
        }
        _ => return,
    };
    let renamed = match factor {
        TableFactor::Table { alias: Some(alias), .. }
        | TableFactor::Derived { alias: Some(alias), .. }
        | TableFactor::UNNEST { alias: Some(alias), .. } => alias.columns.as_slice(),
        _ => &[],
    };
    let mut found = found;
    for (column, alias) in found.iter_mut().zip(renamed) {
        column.0 = folded(&alias.name);
    }
    scope.tables.push((alias, found));
}

fn table_columns(name: &ObjectName, scope: &Scope) -> Vec<Named> {
    let parts = parts(name);
    if let [bare] = parts.as_slice()
        && let Some(found) = scope.ctes.get(bare)
    {
        return found.clone();
    }
    let (schema, bare) = match parts.as_slice() {
        [.., schema, bare] => (Some(schema.as_str()), bare),
        [bare] => (None, bare),
        [] => return Vec::new(),
    };
    let table = find_table(schema, bare, &scope.search_path);
    let columns = table.map(|table| table.columns()).unwrap_or_default();
    columns.iter().map(|column| (column.name.to_owned(), column.kind)).collect()
}

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

fn settled(kind: Kind) -> Kind {
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

/// The kinds of a query's parameters, the first one first: what each is compared with, or cast to.
pub(crate) fn parameters<V: Visit>(tree: &V, flat: &Scope) -> Vec<Kind> {
    struct Finder<'a> {
        scope: &'a Scope,
        found: BTreeMap<usize, Kind>,
    }

    impl Finder<'_> {
        fn number(expr: &Expr) -> Option<usize> {
            match expr {
                Expr::Value(value) => match &value.value {
                    Literal::Placeholder(name) => name.trim_start_matches(['$', '?']).parse().ok(),
                    _ => None,
                },
                Expr::Nested(expr) => Self::number(expr),
                _ => None,
            }
        }

        fn note(&mut self, expr: &Expr, kind: Kind) {
            if let Some(number) = Self::number(expr) {
                let known = self.found.entry(number).or_insert(Kind::Unknown);
                if *known == Kind::Unknown {
                    *known = kind;
                }
            }
        }

        fn pair(&mut self, left: &Expr, right: &Expr) {
            self.note(left, kind_of(right, self.scope));
            self.note(right, kind_of(left, self.scope));
        }
    }

    impl Visitor for Finder<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::BinaryOp { left, op: BinaryOperator::Arrow | BinaryOperator::LongArrow, right } => {
                    self.note(left, Kind::Jsonb);
                    self.note(right, Kind::Text);
                }
                Expr::BinaryOp { left, right, .. } => self.pair(left, right),
                Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right) => self.pair(left, right),
                Expr::InList { expr, list, .. } => {
                    for item in list {
                        self.pair(expr, item);
                    }
                }
                Expr::Between { expr, low, high, .. } => {
                    self.pair(expr, low);
                    self.pair(expr, high);
                }
                Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } => {
                    let array = match kind_of(left, self.scope) {
                        Kind::Oid | Kind::Int4 | Kind::Int8 => Kind::OidArray,
                        _ => Kind::TextArray,
                    };
                    self.note(right, array);
                }
                Expr::Cast { expr, data_type, .. } => {
                    if let Some(kind) = Kind::from_sql(&type_name(&data_type.to_string())) {
                        self.note(expr, kind);
                    }
                }
                Expr::Value(_) => self.note(expr, Kind::Unknown),
                _ => {}
            }
            ControlFlow::Continue(())
        }

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause {
                for expr in limit.iter().chain(offset.as_ref().map(|offset| &offset.value)) {
                    self.note(expr, Kind::Int8);
                }
            }
            ControlFlow::Continue(())
        }
    }

    let mut finder = Finder { scope: flat, found: BTreeMap::new() };
    let _ = tree.visit(&mut finder);
    let count = finder.found.keys().last().copied().unwrap_or(0);
    (1..=count).map(|number| finder.found.get(&number).copied().map_or(Kind::Text, settled)).collect()
}

/// Every table of a query and of the queries inside it, for looking up a column by name wherever it stands.
pub(crate) fn flat_scope<V: Visit>(tree: &V, search_path: &[String]) -> Scope {
    struct Finder(Scope);

    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let mut scope = self.0.clone();
            add_ctes(query, &mut scope);
            self.0.extend(Scope { ctes: scope.ctes, ..Scope::default() });
            ControlFlow::Continue(())
        }

        fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
            let known = self.0.tables.len();
            let scope = select_scope(select, &self.0);
            self.0.tables.extend(scope.tables.into_iter().skip(known));
            ControlFlow::Continue(())
        }
    }

    let mut finder = Finder(Scope::new(search_path));
    let _ = tree.visit(&mut finder);
    finder.0
}

/// As PostgreSQL reads an identifier.
pub(crate) fn fold(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    }
}

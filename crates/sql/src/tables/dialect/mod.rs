//! From the SQL that PostgreSQL's clients write to the SQL that SQLite reads.
//!
//! The query is a syntax tree all the way, and is printed from the tree (`printing`): no text of the caller's is pasted
//! anywhere, so a quote or a semicolon in a name stays part of that name. Tables are looked up here, by schema and search path,
//! and become names of virtual tables; what is not one of them does not reach SQLite at all. `operators` says what becomes of
//! an operator or a cast, `from` what becomes of a function in FROM and the like.
//!
//! Not here: what the functions do that are put in (`functions`).

mod from;
mod operators;
mod printing;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, CeilFloorKind, Distinct, Expr, Function, FunctionArguments, Ident,
    LimitClause, ObjectName, ObjectNamePart, Offset, OffsetRows, OrderByExpr, OrderBySort, Query, Select, SelectItem,
    SetExpr, Spanned, Subscript, TableAlias, TableFactor, TrimWhereField, Value as Literal, ValueWithSpan, VisitMut,
    VisitorMut,
};

use self::from::{
    RENAMED, array_of, derived, is_replaced, name_columns, table_function, unwrap_nested, with_only_column,
};
use self::operators::{Binary, binary, cast};
use self::printing::{check_printable, printed};
use super::build::{
    argument, call, concat, empty_query, list, negate, number, plain_alias, quoted, select_all, take, taken, text,
    unwrapped,
};
use super::define::Table;
use super::error::{QueryError, code, not_supported, placed};
use super::kinds::{self, Scope, kind_of, name_of, type_name};
use super::value::Kind;
use super::{TABLES, find_table, folded, parts};

/// A query that SQLite understands, and the tables that it names.
#[derive(Debug)]
pub(crate) struct Rewritten {
    pub(crate) sql: String,
    pub(crate) tables: Vec<(String, &'static dyn Table)>,
}

/// What a virtual table is called inside SQLite.
fn flat_name(table: &dyn Table) -> String {
    format!("{}.{}", table.schema(), table.name())
}

/// `text` is the whole text that the query stood in: its spans count lines and columns there.
pub(crate) fn rewrite(query: &Query, text: &str, search_path: &[String]) -> Result<Rewritten, QueryError> {
    check_printable(text)?;
    let mut query = query.clone();
    let scope = kinds::flat_scope(&query, search_path);
    let mut ctes = cte_names(&query);
    ctes.insert(RENAMED.to_owned());
    let mut rewriter = Rewriter { text, search_path, scope, tables: Vec::new(), ctes, budget: REWRITES_MAX };
    match query.visit(&mut rewriter) {
        ControlFlow::Break(error) => Err(*error),
        ControlFlow::Continue(()) => Ok(Rewritten { sql: printed(query), tables: rewriter.tables }),
    }
}

/// Nodes of a tree that are looked at. A statement that has more is refused before it costs anything.
const REWRITES_MAX: usize = 200_000;

fn cte_names(query: &Query) -> BTreeSet<String> {
    struct Finder(BTreeSet<String>);

    impl sqlparser::ast::Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let names = query.with.iter().flat_map(|with| &with.cte_tables).map(|cte| folded(&cte.alias.name));
            self.0.extend(names);
            ControlFlow::Continue(())
        }
    }

    let mut finder = Finder(BTreeSet::new());
    let _ = sqlparser::ast::Visit::visit(query, &mut finder);
    finder.0
}

struct Rewriter<'a> {
    text: &'a str,
    search_path: &'a [String],
    scope: Scope,
    tables: Vec<(String, &'static dyn Table)>,
    ctes: BTreeSet<String>,
    budget: usize,
}

type Flow = ControlFlow<Box<QueryError>>;

fn refuse(error: QueryError) -> Flow {
    ControlFlow::Break(Box::new(error))
}

impl Rewriter<'_> {
    fn position(&self, spanned: &impl Spanned) -> Option<usize> {
        let start = spanned.span().start;
        super::position_of(self.text, start.line, start.column)
    }

    fn table(&mut self, name: &mut ObjectName, alias: &mut Option<TableAlias>) -> Result<(), QueryError> {
        let own = parts(name);
        let (schema, bare) = match own.as_slice() {
            [bare] if self.ctes.contains(bare) => return Ok(()),
            [bare] => (None, bare),
            [.., schema, bare] => (Some(schema.as_str()), bare),
            [] => return Ok(()),
        };
        let Some(table) = find_table(schema, bare, self.search_path) else {
            return Err(placed(self.unknown_table(&own), self.position(name)));
        };
        let flat = flat_name(table);
        if !self.tables.iter().any(|(known, _)| *known == flat) {
            self.tables.push((flat.clone(), table));
        }
        if alias.is_none() {
            *alias = Some(plain_alias(bare));
        }
        *name = ObjectName(vec![ObjectNamePart::Identifier(quoted(&flat))]);
        Ok(())
    }

    fn unknown_table(&self, own: &[String]) -> QueryError {
        let error = QueryError::new(code::UNDEFINED_TABLE, format!("relation \"{}\" does not exist", own.join(".")));
        let wanted = own.last().map(String::as_str).unwrap_or_default();
        let distance = |table: &&&dyn Table| strsim::damerau_levenshtein(wanted, table.name());
        let visible = TABLES.iter().filter(|table| !table.schema().starts_with("pg_"));
        match visible.min_by_key(distance).filter(|table| distance(table) <= (wanted.len() / 3).max(1)) {
            Some(close) => error.with_hint(format!("Perhaps you meant {}.{}.", close.schema(), close.name())),
            None => error.with_hint("\\d lists the tables there are."),
        }
    }

    fn factor(&mut self, factor: &mut TableFactor) -> Result<(), QueryError> {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => self.table(name, alias),
            // The visitor goes on into what was put in place of a function: that must not be replaced for ever.
            TableFactor::Table { name, args: Some(_), .. } if is_replaced(name) => Ok(()),
            TableFactor::Table { name, alias, args: Some(arguments), .. } => {
                let bare = parts(name).last().cloned().unwrap_or_default();
                let given = arguments.args.iter().filter_map(argument).cloned().collect::<Vec<_>>();
                let query = table_function(&bare, given).ok_or_else(|| {
                    let message = format!("function {bare} does not exist in FROM");
                    placed(QueryError::new(code::UNDEFINED_FUNCTION, message), self.position(name))
                })?;
                let alias = alias.take().unwrap_or_else(|| plain_alias(&bare));
                *factor = derived(query, with_only_column(alias, &bare));
                Ok(())
            }
            TableFactor::UNNEST { alias, array_exprs, .. } => {
                let query = table_function("unnest", array_exprs.clone())
                    .ok_or_else(|| not_supported("unnest of several arrays"))?;
                let alias = alias.take().unwrap_or_else(|| plain_alias("unnest"));
                *factor = derived(query, with_only_column(alias, "unnest"));
                Ok(())
            }
            TableFactor::Derived { lateral: true, subquery, .. } => {
                Err(placed(not_supported("LATERAL"), self.position(subquery.as_ref())))
            }
            TableFactor::Derived { subquery, alias: Some(alias), .. } => {
                if !alias.columns.is_empty() {
                    name_columns(subquery, alias);
                }
                Ok(())
            }
            TableFactor::Derived { .. } | TableFactor::NestedJoin { .. } => Ok(()),
            other => Err(placed(not_supported("this kind of table"), self.position(other))),
        }
    }

    fn expr(&mut self, expr: &mut Expr) -> Result<(), QueryError> {
        let kind = |expr: &Expr| kind_of(expr, &self.scope);
        let replacement = match expr {
            // A schema before a table before a column: SQLite knows the table by its alias alone.
            Expr::CompoundIdentifier(names) if names.len() > 2 => {
                names.drain(..names.len() - 2);
                return Ok(());
            }
            Expr::Collate { expr, .. } | Expr::AtTimeZone { timestamp: expr, .. } => take(expr),
            Expr::Cast { expr: inner, data_type, kind: CastKind::Cast | CastKind::DoubleColon, .. } => {
                let written = type_name(&data_type.to_string());
                let from = kind(inner);
                cast(take(inner), from, &written)?
            }
            Expr::TypedString(it) => {
                let written = type_name(&it.data_type.to_string());
                cast(Expr::Value(it.value.clone()), Kind::Unknown, &written)?
            }
            Expr::Interval(interval) => {
                let unit = interval.leading_field.as_ref().map(|field| format!(" {field}")).unwrap_or_default();
                call("pg_interval", vec![concat(take(&mut interval.value), text(&unit))])
            }
            Expr::Value(ValueWithSpan { value, .. }) => {
                match value {
                    Literal::EscapedStringLiteral(it) | Literal::UnicodeStringLiteral(it) => {
                        *value = Literal::SingleQuotedString(std::mem::take(it));
                    }
                    Literal::NationalStringLiteral(it) => *value = Literal::SingleQuotedString(std::mem::take(it)),
                    Literal::DollarQuotedString(it) => {
                        *value = Literal::SingleQuotedString(std::mem::take(&mut it.value));
                    }
                    Literal::Placeholder(name) => {
                        let number = name.strip_prefix('$').and_then(|number| number.parse::<u16>().ok());
                        // SQLite knows parameters by name, too; nobody could give one.
                        let number = number.filter(|number| *number > 0).ok_or_else(|| {
                            QueryError::new(
                                code::SYNTAX,
                                format!("parameters are $1, $2 and so on, and not \"{name}\""),
                            )
                        })?;
                        *name = format!("?{number}");
                    }
                    _ => {}
                }
                return Ok(());
            }
            Expr::Like { negated, expr, pattern, escape_char, any: false } => {
                let mut arguments = vec![take(pattern), take(expr)];
                arguments.extend(escape_char.as_deref_mut().map(taken));
                negate(*negated, call("pg_like", arguments))
            }
            Expr::ILike { negated, expr, pattern, escape_char, any: false } => {
                let mut arguments = vec![take(pattern), take(expr)];
                arguments.extend(escape_char.as_deref_mut().map(taken));
                negate(*negated, call("pg_ilike", arguments))
            }
            Expr::SimilarTo { .. } => return Err(placed(not_supported("SIMILAR TO"), self.position(expr))),
            Expr::IsUnknown(inner) => Expr::IsNull(Box::new(take(inner))),
            Expr::IsNotUnknown(inner) => Expr::IsNotNull(Box::new(take(inner))),
            Expr::AnyOp { left, compare_op, right, .. } => match (&compare_op, unwrapped(right)) {
                (BinaryOperator::Eq, Expr::Subquery(query)) => {
                    Expr::InSubquery { expr: Box::new(take(left)), subquery: query.clone(), negated: false }
                }
                (BinaryOperator::Eq, Expr::Array(array)) if !array.elem.is_empty() => {
                    Expr::InList { expr: Box::new(take(left)), list: array.elem.clone(), negated: false }
                }
                (op, _) => call("pg_any", vec![take(left), text(&op.to_string()), take(right)]),
            },
            Expr::AllOp { left, compare_op, right } => match (&compare_op, unwrapped(right)) {
                (BinaryOperator::NotEq, Expr::Subquery(query)) => {
                    Expr::InSubquery { expr: Box::new(take(left)), subquery: query.clone(), negated: true }
                }
                (op, _) => call("pg_all", vec![take(left), text(&op.to_string()), take(right)]),
            },
            Expr::Array(array) => call("pg_array", std::mem::take(&mut array.elem)),
            Expr::CompoundFieldAccess { root, access_chain } => match access_chain.as_slice() {
                [AccessExpr::Subscript(Subscript::Index { index })] => {
                    let function = if kind(root) == Kind::Jsonb { "pg_json_get" } else { "pg_subscript" };
                    call(function, vec![take(root), index.clone()])
                }
                _ => return Err(placed(not_supported("this kind of access"), self.position(expr))),
            },
            Expr::Extract { field, expr, .. } => {
                call("pg_extract", vec![text(&field.to_string().to_ascii_lowercase()), take(expr)])
            }
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(_) } => call("ceil", vec![take(expr)]),
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(_) } => call("floor", vec![take(expr)]),
            Expr::Position { expr, r#in } => call("instr", vec![take(r#in), take(expr)]),
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let from = substring_from.as_deref_mut().map_or_else(|| number(1), taken);
                let mut arguments = vec![take(expr), from];
                arguments.extend(substring_for.as_deref_mut().map(taken));
                call("substr", arguments)
            }
            Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    Some(TrimWhereField::Both) | None => "trim",
                };
                let mut arguments = vec![take(expr)];
                arguments.extend(trim_what.as_deref_mut().map(taken));
                arguments.extend(trim_characters.take().unwrap_or_default());
                call(name, arguments)
            }
            Expr::BinaryOp { left, op, right } => {
                let (from, to) = (kind(left), kind(right));
                match binary(op, from, to) {
                    None => return Ok(()),
                    Some(Binary::Call(name)) => call(name, vec![take(left), take(right)]),
                    Some(Binary::Flipped(name)) => call(name, vec![take(right), take(left)]),
                    Some(Binary::Not(name)) => negate(true, call(name, vec![take(right), take(left)])),
                    Some(Binary::Plain(plain)) => {
                        *op = plain;
                        return Ok(());
                    }
                    Some(Binary::Unknown) => {
                        let message = format!("operator does not exist: {op}");
                        return Err(placed(QueryError::new(code::UNDEFINED_FUNCTION, message), self.position(expr)));
                    }
                }
            }
            Expr::Function(function) => {
                if let FunctionArguments::Subquery(query) = &mut function.args {
                    array_of(std::mem::replace(query, Box::new(empty_query())))
                } else {
                    self.function(function)?;
                    return Ok(());
                }
            }
            _ => return Ok(()),
        };
        *expr = replacement;
        Ok(())
    }

    fn function(&self, function: &mut Function) -> Result<(), QueryError> {
        let own = parts(&function.name);
        let bare = own.last().cloned().unwrap_or_default();
        if let [schema, _] = own.as_slice()
            && !["pg_catalog", "information_schema", "loadline"].contains(&schema.as_str())
        {
            let message = format!("function {} does not exist", own.join("."));
            return Err(placed(QueryError::new(code::UNDEFINED_FUNCTION, message), self.position(&function.name)));
        }
        let renamed = super::functions::sqlite_name(&bare);
        function.name = ObjectName(vec![ObjectNamePart::Identifier(quoted(renamed))]);
        if matches!(function.args, FunctionArguments::None) {
            function.args = list(Vec::new());
        }
        Ok(())
    }

    fn query(&mut self, query: &mut Query) -> Result<(), QueryError> {
        if let Some(lock) = query.locks.first() {
            let _ = lock;
            return Err(placed(not_supported("FOR UPDATE: nothing is locked here"), self.position(&*query)));
        }
        unwrap_nested(&mut query.body);
        if let SetExpr::Table(table) = &mut *query.body {
            let (schema, name) = (table.schema_name.clone(), table.table_name.clone().unwrap_or_default());
            *query.body = select_all(schema, name);
        }
        if let Some(fetch) = query.fetch.take() {
            let limit = Some(fetch.quantity.unwrap_or_else(|| number(1)));
            let offset = match query.limit_clause.take() {
                Some(LimitClause::LimitOffset { offset, .. }) => offset,
                _ => None,
            };
            query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by: Vec::new() });
        }
        // SQLite has no OFFSET without LIMIT.
        if let Some(LimitClause::LimitOffset { limit: limit @ None, offset: Some(offset), .. }) =
            &mut query.limit_clause
        {
            offset.rows = OffsetRows::None;
            *limit = Some(number(-1));
        }
        if let Some(LimitClause::LimitOffset { offset: Some(Offset { rows, .. }), .. }) = &mut query.limit_clause {
            *rows = OffsetRows::None;
        }
        Ok(())
    }

    fn select(&self, select: &mut Select) -> Result<(), QueryError> {
        if matches!(select.distinct, Some(Distinct::On(_))) {
            return Err(placed(not_supported("DISTINCT ON"), self.position(&*select)));
        }
        if select.into.is_some() {
            return Err(placed(not_supported("SELECT INTO"), self.position(&*select)));
        }
        for item in &mut select.projection {
            match item {
                SelectItem::UnnamedExpr(expr) => {
                    let alias = quoted(&name_of(expr));
                    *item = SelectItem::ExprWithAlias { expr: taken(expr), alias };
                }
                SelectItem::QualifiedWildcard(sqlparser::ast::SelectItemQualifiedWildcardKind::ObjectName(name), _)
                    if name.0.len() > 1 =>
                {
                    let last = name.0.len() - 1;
                    name.0.drain(..last);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl VisitorMut for Rewriter<'_> {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> Flow {
        self.query(query).map_or_else(refuse, ControlFlow::Continue)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> Flow {
        self.select(select).map_or_else(refuse, ControlFlow::Continue)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        self.factor(factor).map_or_else(refuse, ControlFlow::Continue)
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        let Some(budget) = self.budget.checked_sub(1) else {
            return refuse(QueryError::new(code::TOO_MUCH, "the statement is too long"));
        };
        self.budget = budget;
        self.expr(expr).map_or_else(refuse, ControlFlow::Continue)
    }

    fn pre_visit_ident(&mut self, ident: &mut Ident) -> Flow {
        // Quoted, whatever it is: SQLite has other reserved words than PostgreSQL.
        if ident.quote_style.is_none() {
            *ident = quoted(&folded(ident));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_order_by_expr(&mut self, order: &mut OrderByExpr) -> Flow {
        // PostgreSQL takes a null for the largest, SQLite for the smallest.
        if order.options.nulls_first.is_none() {
            order.options.nulls_first = Some(matches!(order.options.sort, Some(OrderBySort::Desc)));
        }
        if let Some(OrderBySort::Using(operator)) = &order.options.sort {
            let descending = operator.to_string().ends_with('>');
            order.options.sort = Some(if descending { OrderBySort::Desc } else { OrderBySort::Asc });
        }
        ControlFlow::Continue(())
    }
}

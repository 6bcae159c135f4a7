//! From the SQL that PostgreSQL's clients write to the SQL that SQLite reads.
//!
//! The query is a syntax tree all the way, and is printed from the tree: no text of the caller's is pasted anywhere, so a
//! quote or a semicolon in a name stays part of that name. Tables are looked up here, by schema and search path, and become
//! names of virtual tables; what is not one of them does not reach SQLite at all.
//!
//! Not here: what the functions do that are put in (`functions`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use sqlparser::ast::helpers::attached_token::AttachedToken;
use sqlparser::ast::{
    AccessExpr, BinaryOperator, CastKind, CeilFloorKind, Cte, Distinct, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, Ident, LimitClause, ObjectName, ObjectNamePart, Offset, OffsetRows,
    OrderByExpr, OrderBySort, Query, Select, SelectItem, SetExpr, Spanned, Subscript, TableAlias, TableFactor,
    TrimWhereField, UnaryOperator, Value as Literal, ValueWithSpan, VisitMut, VisitorMut, With,
};
use sqlparser::tokenizer::{Token, Tokenizer};

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

/// Stands around the number of a string while the tree is printed.
const MARK: char = '\u{E000}';

/// The printer of the tree takes a quote after a backslash, and two quotes in a row, for escaped already. In SQLite the name
/// would end there, and what follows would be read as a statement.
fn check_printable(text: &str) -> Result<(), QueryError> {
    if text.contains(MARK) {
        return Err(not_supported("the character U+E000 in a statement"));
    }
    let dialect = sqlparser::dialect::PostgreSqlDialect {};
    let Ok(tokens) = Tokenizer::new(&dialect, text).tokenize() else { return Ok(()) };
    let misread = |token: &Token| match token {
        Token::Word(word) => word.quote_style.is_some() && (word.value.contains("\\\"") || word.value.contains("\"\"")),
        _ => false,
    };
    match tokens.iter().any(misread) {
        true => Err(not_supported("a name with two quotes in a row, or with a backslash before a quote")),
        false => Ok(()),
    }
}

/// The text for SQLite, in which every string is quoted by ourselves: see [`check_printable`].
fn printed(mut query: Query) -> String {
    struct Strings(Vec<String>);

    impl VisitorMut for Strings {
        type Break = ();

        fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
            if let Literal::SingleQuotedString(text) = &mut value.value {
                let marked = format!("{MARK}{}{MARK}", self.0.len());
                self.0.push(std::mem::replace(text, marked));
            }
            ControlFlow::Continue(())
        }
    }

    let mut strings = Strings(Vec::new());
    let _ = query.visit(&mut strings);
    let mut sql = String::new();
    for (part, is_number) in query.to_string().split(MARK).zip([false, true].into_iter().cycle()) {
        match part.parse::<usize>().ok().filter(|_| is_number).and_then(|number| strings.0.get(number)) {
            Some(text) => sql.push_str(&text.replace('\'', "''")),
            None => sql.push_str(part),
        }
    }
    sql
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
                    Literal::Placeholder(name) => *name = name.replacen('$', "?", 1),
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

/// What becomes of an operator.
enum Binary {
    Call(&'static str),
    /// Pattern first.
    Flipped(&'static str),
    Not(&'static str),
    Plain(BinaryOperator),
    Unknown,
}

fn binary(op: &BinaryOperator, left: Kind, right: Kind) -> Option<Binary> {
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

fn cast(expr: Expr, from: Kind, written: &str) -> Result<Expr, QueryError> {
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

/// What a query is called whose columns are renamed.
const RENAMED: &str = "renamed";

/// `(SELECT a FROM ...) AS t(x)`, for which SQLite has a name only in front: `WITH t(x) AS (...) SELECT * FROM t`.
fn name_columns(query: &mut Query, alias: &mut TableAlias) {
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
fn with_only_column(mut alias: TableAlias, function: &str) -> (TableAlias, Ident) {
    let column = match alias.columns.first() {
        Some(column) => column.name.clone(),
        // `FROM generate_series(1, 3) AS n` makes a column `n`, too.
        None if folded(&alias.name) != function => alias.name.clone(),
        None => quoted(function),
    };
    alias.columns.clear();
    (alias, column)
}

fn derived(mut query: Query, (alias, column): (TableAlias, Ident)) -> TableFactor {
    if let SetExpr::Select(select) = &mut *query.body {
        select.projection = vec![SelectItem::ExprWithAlias { expr: Expr::Identifier(quoted("value")), alias: column }];
    }
    TableFactor::Derived { lateral: false, subquery: Box::new(query), alias: Some(alias), sample: None }
}

fn table_function(name: &str, arguments: Vec<Expr>) -> Option<Query> {
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
fn is_replaced(name: &ObjectName) -> bool {
    let [ObjectNamePart::Identifier(own)] = name.0.as_slice() else { return false };
    own.quote_style.is_some() && matches!(own.value.as_str(), "generate_series" | "json_each")
}

/// `ARRAY(SELECT ...)`.
fn array_of(mut query: Box<Query>) -> Expr {
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
fn unwrap_nested(body: &mut SetExpr) {
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

fn select_all(schema: Option<String>, name: String) -> SetExpr {
    let names = schema.into_iter().chain([name]).map(|part| ObjectNamePart::Identifier(Ident::new(part)));
    star_from(ObjectName(names.collect()), Vec::new())
}

/// `SELECT * FROM name(arguments)`.
fn star_from(name: ObjectName, arguments: Vec<FunctionArg>) -> SetExpr {
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

fn empty_query() -> Query {
    template("SELECT 1")
}

/// Text of our own, which parses: a tree has more fields than anybody wants to write.
fn template(text: &'static str) -> Query {
    let dialect = sqlparser::dialect::SQLiteDialect {};
    let parsed =
        sqlparser::parser::Parser::new(&dialect).try_with_sql(text).and_then(|mut parser| parser.parse_query());
    match parsed {
        Ok(query) => *query,
        Err(error) => unreachable!("a text of our own does not parse: {error}"),
    }
}

fn plain_alias(name: &str) -> TableAlias {
    TableAlias { explicit: true, name: quoted(name), columns: Vec::new(), at: None }
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn argument(argument: &FunctionArg) -> Option<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

fn list(arguments: Vec<Expr>) -> FunctionArguments {
    let args = arguments.into_iter().map(|expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))).collect();
    FunctionArguments::List(FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() })
}

fn call(name: &str, arguments: Vec<Expr>) -> Expr {
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

fn text(value: &str) -> Expr {
    Expr::Value(Literal::SingleQuotedString(value.to_owned()).into())
}

fn number(value: i64) -> Expr {
    Expr::Value(Literal::Number(value.to_string(), false).into())
}

fn concat(left: Expr, right: Expr) -> Expr {
    let nested = |expr| Box::new(Expr::Nested(Box::new(expr)));
    Expr::BinaryOp { left: nested(left), op: BinaryOperator::StringConcat, right: nested(right) }
}

fn negate(negated: bool, expr: Expr) -> Expr {
    if !negated {
        return expr;
    }
    Expr::Nested(Box::new(Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(expr) }))
}

fn taken(expr: &mut Expr) -> Expr {
    std::mem::replace(expr, Expr::Value(Literal::Null.into()))
}

fn take(expr: &mut Box<Expr>) -> Expr {
    taken(expr)
}

fn unwrapped(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

//! From a statement that writes to the query that reads for it.

use std::collections::BTreeSet;

use sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, CastKind, Delete, Expr, FromTable, Ident, Insert, ObjectName,
    ObjectNamePart, OnConflictAction, OnInsert, Query, SelectItem, SetExpr, Spanned, Statement as Tree, TableFactor,
    TableObject, TableWithJoins, Update, UpdateTableFromKind, Value as Literal, With,
};

use super::{Assigned, Verb, Writable, Write};
use crate::error::{SqlError, SqlState};
use crate::tables::build::{plain_alias, quoted, template};
use crate::tables::{ColumnInfo, Table, Value, find_table, folded, parts, position_of};

pub(super) fn read(tree: &Tree, text: &str, search_path: &[String]) -> Result<Write, SqlError> {
    let reader = Reader { text, search_path };
    match tree {
        Tree::Insert(insert) => reader.insert(insert, None),
        Tree::Update(update) => reader.update(update, None),
        Tree::Delete(delete) => reader.delete(delete, None),
        // `WITH ... INSERT`.
        Tree::Query(query) => match &*query.body {
            SetExpr::Insert(Tree::Insert(insert)) => reader.insert(insert, query.with.as_ref()),
            SetExpr::Update(Tree::Update(update)) => reader.update(update, query.with.as_ref()),
            SetExpr::Delete(Tree::Delete(delete)) => reader.delete(delete, query.with.as_ref()),
            _ => Err(not_supported("this statement")),
        },
        _ => Err(not_supported("this statement")),
    }
}

fn not_supported(what: &str) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
}

struct Reader<'a> {
    text: &'a str,
    search_path: &'a [String],
}

/// A table that is written to.
struct Target {
    table: &'static dyn Table,
    writable: Writable,
    alias: String,
}

impl Reader<'_> {
    fn place(&self, spanned: &impl Spanned) -> Option<usize> {
        let start = spanned.span().start;
        position_of(self.text, start.line, start.column)
    }

    fn refuse<T>(&self, error: SqlError, spanned: &impl Spanned) -> Result<T, SqlError> {
        Err(SqlError { position: error.position.or_else(|| self.place(spanned)), ..error })
    }

    fn target(&self, name: &ObjectName, alias: Option<&Ident>, verb: Verb) -> Result<Target, SqlError> {
        let own = parts(name);
        let (schema, bare) = match own.as_slice() {
            [.., schema, bare] => (Some(schema.as_str()), bare.clone()),
            [bare] => (None, bare.clone()),
            [] => return self.refuse(not_supported("a table without a name"), name),
        };
        let Some(table) = find_table(schema, &bare, self.search_path) else {
            let message = format!("relation \"{}\" does not exist", own.join("."));
            return self.refuse(SqlError::new(SqlState::UNDEFINED_TABLE, message), name);
        };
        let full = format!("{}.{}", table.schema(), table.name());
        let writable = match full.as_str() {
            "mz_internal.mz_scaling_strategies" => Writable::Strategies,
            "mz_internal.mz_scaling_strategy_state" => Writable::Memories,
            "mz_internal.mz_scaling_actions" if verb == Verb::Delete => Writable::Actions,
            "mz_internal.mz_scaling_actions" => {
                let message = format!("rows of {full} are made by the log alone: settled ones can be deleted");
                return self.refuse(SqlError::new(SqlState("42809"), message), name);
            }
            _ => {
                let message = format!("{full} cannot be written to");
                let hint = "Only mz_scaling_strategies, mz_scaling_strategy_state and mz_scaling_actions can; everything \
                            else has statements of its own.";
                return self.refuse(SqlError::new(SqlState("42809"), message).with_hint(hint), name);
            }
        };
        Ok(Target { table, writable, alias: alias.map_or(bare, folded) })
    }

    fn column(&self, table: &dyn Table, name: &ObjectName) -> Result<ColumnInfo, SqlError> {
        let wanted = parts(name).last().cloned().unwrap_or_default();
        if let Some(column) = table.columns().into_iter().find(|column| column.name == wanted) {
            return Ok(column);
        }
        let message = format!("column \"{wanted}\" of relation \"{}\" does not exist", table.name());
        let error = SqlError::new(SqlState::UNDEFINED_COLUMN, message);
        let close = table.columns().into_iter().map(|column| column.name);
        let close = close.min_by_key(|name| strsim::damerau_levenshtein(&wanted, name));
        match close.filter(|name| strsim::damerau_levenshtein(&wanted, name) <= (wanted.len() / 3).max(1)) {
            Some(close) => self.refuse(error.with_hint(format!("Perhaps you meant \"{close}\".")), name),
            None => self.refuse(error, name),
        }
    }

    fn write(&self, target: Target, verb: Verb, query: Query, returning: Option<&Vec<SelectItem>>) -> Write {
        Write {
            table: target.table,
            writable: target.writable,
            verb,
            query,
            assigned: Vec::new(),
            defaults: BTreeSet::new(),
            cells: Vec::new(),
            skip_existing: false,
            returning: returning.cloned(),
            alias: target.alias,
            text: self.text.to_owned(),
            search_path: self.search_path.to_vec(),
        }
    }

    fn insert(&self, insert: &Insert, with: Option<&With>) -> Result<Write, SqlError> {
        let TableObject::TableName(name) = &insert.table else { return Err(not_supported("INSERT INTO a function")) };
        let target = self.target(name, insert.table_alias.as_ref().map(|it| &it.alias), Verb::Insert)?;
        let skip_existing = match &insert.on {
            None => false,
            Some(OnInsert::OnConflict(conflict)) if matches!(conflict.action, OnConflictAction::DoNothing) => true,
            Some(_) => return Err(not_supported("ON CONFLICT DO UPDATE")),
        };
        let mut columns = Vec::new();
        for name in &insert.columns {
            let column = self.column(target.table, name)?;
            if columns.iter().any(|known: &ColumnInfo| known.name == column.name) {
                let message = format!("column \"{}\" specified more than once", column.name);
                return self.refuse(SqlError::new(SqlState("42701"), message), name);
            }
            columns.push(column);
        }
        if columns.is_empty() {
            columns = target.table.columns();
        }
        let (mut query, given) = match &insert.source {
            Some(source) => ((**source).clone(), true),
            // DEFAULT VALUES.
            None => (template("SELECT 1"), false),
        };
        add_with(&mut query, with);
        let (mut defaults, mut cells, mut width) = (BTreeSet::new(), Vec::new(), 0);
        if let SetExpr::Values(values) = &mut *query.body {
            width = values.rows.first().map_or(0, |row| row.len());
            for (number, row) in values.rows.iter_mut().enumerate() {
                if row.len() != width {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
                }
                cells.push(row.iter().map(|cell| self.place(cell)).collect());
                for (place, cell) in row.iter_mut().enumerate() {
                    let Some(column) = columns.get(place) else { continue };
                    if is_default(cell) {
                        defaults.insert((number, place));
                        *cell = Expr::Value(Literal::Null.into());
                    }
                    cast(cell, column)?;
                }
            }
        } else if given {
            let prepared = crate::tables::query::prepare_query(&query, self.text, self.search_path)?;
            width = prepared.columns.len();
        }
        if width > columns.len() || (width < columns.len() && !insert.columns.is_empty()) {
            let more = if width > columns.len() {
                "expressions than target columns"
            } else {
                "target columns than expressions"
            };
            return self.refuse(SqlError::new(SqlState::SYNTAX_ERROR, format!("INSERT has more {more}")), name);
        }
        columns.truncate(width);
        let assigned = columns.iter().map(|column| Assigned { column: column.name, place: None }).collect();
        let write = self.write(target, Verb::Insert, query, insert.returning.as_ref());
        Ok(Write { assigned, defaults, cells, skip_existing, ..write })
    }

    fn update(&self, update: &Update, with: Option<&With>) -> Result<Write, SqlError> {
        if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() {
            return Err(not_supported("ORDER BY or LIMIT in UPDATE"));
        }
        let target = self.relation(&update.table, Verb::Update)?;
        let others = match &update.from {
            None => Vec::new(),
            Some(UpdateTableFromKind::BeforeSet(tables) | UpdateTableFromKind::AfterSet(tables)) => tables.clone(),
        };
        let mut assigned = Vec::new();
        let mut values = Vec::new();
        for Assignment { target: to, value } in &update.assignments {
            let AssignmentTarget::ColumnName(name) = to else {
                return Err(not_supported("SET of several columns at once"));
            };
            let column = self.column(target.table, name)?;
            if assigned.iter().any(|known: &Assigned| known.column == column.name) {
                let message = format!("multiple assignments to same column \"{}\"", column.name);
                return self.refuse(SqlError::new(SqlState("42601"), message), name);
            }
            if is_default(value) {
                return self.refuse(not_supported("DEFAULT in UPDATE"), value);
            }
            assigned.push(Assigned { column: column.name, place: self.place(value) });
            let mut value = value.clone();
            cast(&mut value, &column)?;
            values.push(value);
        }
        let query = rows(&target, values, &update.table, others, update.selection.as_ref(), with);
        let write = self.write(target, Verb::Update, query, update.returning.as_ref());
        Ok(Write { assigned, ..write })
    }

    fn delete(&self, delete: &Delete, with: Option<&With>) -> Result<Write, SqlError> {
        if !delete.order_by.is_empty() || delete.limit.is_some() || !delete.tables.is_empty() {
            return Err(not_supported("this form of DELETE"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [table] = from.as_slice() else { return Err(not_supported("DELETE from several tables")) };
        let target = self.relation(table, Verb::Delete)?;
        let others = delete.using.clone().unwrap_or_default();
        let query = rows(&target, Vec::new(), table, others, delete.selection.as_ref(), with);
        Ok(self.write(target, Verb::Delete, query, delete.returning.as_ref()))
    }

    fn relation(&self, table: &TableWithJoins, verb: Verb) -> Result<Target, SqlError> {
        match &table.relation {
            TableFactor::Table { name, alias, args: None, .. } if table.joins.is_empty() => {
                self.target(name, alias.as_ref().map(|alias| &alias.name), verb)
            }
            _ => Err(not_supported("writing to anything but a table")),
        }
    }
}

/// The keys of the rows that are meant, and the values for them.
fn rows(
    target: &Target,
    values: Vec<Expr>,
    table: &TableWithJoins,
    others: Vec<TableWithJoins>,
    selection: Option<&Expr>,
    with: Option<&With>,
) -> Query {
    let mut query = template("SELECT 1 FROM t");
    if let SetExpr::Select(select) = &mut *query.body {
        let keys = target.writable.keys().iter().map(|key| column_of(&target.alias, key));
        select.projection = keys.chain(values).map(SelectItem::UnnamedExpr).collect();
        select.from = std::iter::once(table.clone()).chain(others).collect();
        select.selection = selection.cloned();
    }
    add_with(&mut query, with);
    query
}

/// What RETURNING asks for, of the rows with these keys.
pub(super) fn returning(
    table: &dyn Table,
    alias: &str,
    keys: &[&str],
    items: &[SelectItem],
    meant: &[Vec<Value>],
) -> Query {
    let mut query = template("SELECT 1 FROM t WHERE 1 = 2");
    let equal = |key: &&str, value: &Value| Expr::BinaryOp {
        left: Box::new(column_of(alias, key)),
        op: BinaryOperator::Eq,
        right: Box::new(literal(value)),
    };
    let joined = |left: Expr, op: BinaryOperator, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op,
        right: Box::new(right),
    };
    let row = |values: &Vec<Value>| {
        let all = keys.iter().zip(values).map(|(key, value)| equal(key, value));
        all.reduce(|left, right| joined(left, BinaryOperator::And, right)).map(|all| Expr::Nested(Box::new(all)))
    };
    if let SetExpr::Select(select) = &mut *query.body {
        select.projection = items.to_vec();
        if let Some(from) = select.from.first_mut()
            && let TableFactor::Table { name, alias: own, .. } = &mut from.relation
        {
            let names = [table.schema(), table.name()].map(|it| ObjectNamePart::Identifier(Ident::new(it)));
            *name = ObjectName(names.into());
            *own = Some(plain_alias(alias));
        }
        let any =
            balanced(meant.iter().filter_map(row).collect(), &|left, right| joined(left, BinaryOperator::Or, right));
        if let Some(any) = any {
            select.selection = Some(any);
        }
    }
    query
}

/// A chain of a thousand operators would be a tree too deep to walk.
fn balanced(mut all: Vec<Expr>, join: &dyn Fn(Expr, Expr) -> Expr) -> Option<Expr> {
    if all.len() <= 1 {
        return all.pop();
    }
    let rest = all.split_off(all.len() / 2);
    let (left, right) = (balanced(all, join)?, balanced(rest, join)?);
    Some(Expr::Nested(Box::new(join(left, right))))
}

fn literal(value: &Value) -> Expr {
    let literal = match value {
        Value::Null => Literal::Null,
        Value::Bool(value) => Literal::Boolean(*value),
        Value::Int(value) => Literal::Number(value.to_string(), false),
        Value::Float(value) => Literal::Number(value.to_string(), false),
        Value::Text(text) => Literal::SingleQuotedString(text.clone()),
    };
    Expr::Value(literal.into())
}

fn column_of(alias: &str, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![quoted(alias), quoted(column)])
}

fn add_with(query: &mut Query, with: Option<&With>) {
    match (&mut query.with, with) {
        (Some(own), Some(outer)) => {
            own.recursive |= outer.recursive;
            own.cte_tables.splice(0..0, outer.cte_tables.iter().cloned());
        }
        (own @ None, Some(outer)) => *own = Some(outer.clone()),
        (_, None) => {}
    }
}

fn is_default(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(name) if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

/// What is assigned has the kind of its column, which also tells what a parameter holds.
fn cast(expr: &mut Expr, column: &ColumnInfo) -> Result<(), SqlError> {
    let dialect = sqlparser::dialect::PostgreSqlDialect {};
    let parsed = sqlparser::parser::Parser::new(&dialect).try_with_sql(column.kind.sql_name());
    let data_type = parsed.and_then(|mut parser| parser.parse_data_type());
    let data_type = data_type.map_err(|error| SqlError::new(SqlState::INTERNAL_ERROR, error.to_string()))?;
    let inner = std::mem::replace(expr, Expr::Value(Literal::Null.into()));
    *expr = Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(Expr::Nested(Box::new(inner))),
        data_type,
        format: None,
    };
    Ok(())
}

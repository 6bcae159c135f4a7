//! What the names in a query stand for, and the columns that it answers with.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{
    JoinOperator, ObjectName, Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableFactor,
    TableWithJoins, Visit, Visitor,
};

use super::expressions::{kind_of, settled};
use super::names::name_of;
use crate::tables::value::Kind;
use crate::tables::{find_table, folded, parts};

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

    pub(super) fn look_up(&self, table: Option<&str>, column: &str) -> Option<Kind> {
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

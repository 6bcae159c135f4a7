//! The kinds of parameters.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, Expr, LimitClause, Query, Value as Literal, Visit, Visitor};

use super::expressions::{kind_of, settled};
use super::names::type_name;
use super::scope::Scope;
use crate::tables::value::Kind;

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

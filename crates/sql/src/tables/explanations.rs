//! `loadline.explanations`: why something is as it is, line by line, with where in the log each line comes from and who is behind it.
//!
//! An explanation is made when somebody asks for it. So this table finds the rows of any subject that is asked for by name
//! (`WHERE subject = 'actions/a12.0'`), but shows without that only the unsettled actions and the newest settled ones.

use std::sync::Arc;

use loadline_state_machine::Fact;

use super::define::{ColumnInfo, Definition, Rows, Table, column, optional};
use super::error::QueryError;
use super::source::Source;
use super::value::{Kind, Value};

/// Settled actions that are explained to somebody who does not say which.
const SETTLED_SHOWN: usize = 20;
/// The place of `subject`.
const SUBJECT: usize = 0;

/// See the module.
pub(crate) struct Explanations(Definition<Fact>);

pub(crate) static EXPLANATIONS: Explanations = Explanations(Definition {
    schema: "loadline",
    name: "explanations",
    comment: "Why something is as it is: of actions, decisions and clusters; name the subject.",
    is_view: false,
    key: &[0, 1],
    columns: &[
        column("subject", Kind::Text, |_, it| it.subject.as_str().into()),
        column("ordinal", Kind::Int8, |_, it| it.ordinal.into()),
        column("topic", Kind::Text, |_, it| it.topic.into()),
        column("name", Kind::Text, |_, it| it.name.as_str().into()),
        column("text", Kind::Text, |_, it| it.text.as_str().into()),
        optional("log_index", Kind::Int8, |_, it| it.index.map(Value::count).into()),
        optional("at", Kind::Timestamptz, |_, it| it.at.map(Value::time).into()),
        optional("actor", Kind::Text, |_, it| it.actor.clone().into()),
        optional("source", Kind::Text, |_, it| it.source.clone().into()),
        optional("proof", Kind::Text, |_, it| it.proof.clone().into()),
        optional("request_id", Kind::Text, |_, it| it.request_id.clone().into()),
        optional("node_id", Kind::Int8, |_, it| it.node_id.map(Value::count).into()),
        optional("epoch", Kind::Text, |_, it| it.epoch.clone().into()),
        optional("resource", Kind::Text, |_, it| it.resource.clone().into()),
    ],
    rows: |source| {
        let settled = source.past.actions(&source.state, &source.budget)?;
        let mut ids: Vec<String> = settled.iter().take(SETTLED_SHOWN).map(|action| action.id.to_string()).collect();
        if source.past.shows_what_is() {
            ids.extend(source.state.actions().map(|action| action.id.to_string()));
        }
        let mut rows = Vec::new();
        for id in ids {
            source.budget.check()?;
            rows.extend(source.past.explain(&source.state, &format!("actions/{id}"), &source.budget)?);
        }
        Ok(rows)
    },
});

impl Table for Explanations {
    fn schema(&self) -> &'static str {
        self.0.schema()
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn comment(&self) -> &'static str {
        self.0.comment()
    }

    fn is_view(&self) -> bool {
        self.0.is_view()
    }

    fn key(&self) -> &'static [usize] {
        self.0.key()
    }

    fn columns(&self) -> Vec<ColumnInfo> {
        self.0.columns()
    }

    fn open(&self, source: &Arc<Source>) -> Result<Box<dyn Rows>, QueryError> {
        self.0.open(source)
    }

    fn lookup(&self, source: &Arc<Source>, column: usize, text: &str) -> Option<Result<Box<dyn Rows>, QueryError>> {
        let explain = || source.past.explain(&source.state, text, &source.budget);
        (column == SUBJECT).then(|| explain().map(|rows| self.0.show(source, rows)))
    }
}

//! `loadline.operations`: those under way from the state, those that ended from the journal.

use std::sync::Arc;

use loadline_state_machine::{Operation, OperationEnd, Step};
use serde_json::{Value as Json, json};

use super::define::{Definition, column, optional};
use super::source::EndedOperation;
use super::value::{Kind, Value};

pub(crate) enum Row {
    UnderWay(Operation),
    Ended(Arc<EndedOperation>),
}

impl Row {
    fn operation(&self) -> &Operation {
        match self {
            Self::UnderWay(operation) => operation,
            Self::Ended(ended) => &ended.operation,
        }
    }

    fn ended(&self) -> Option<&EndedOperation> {
        match self {
            Self::UnderWay(_) => None,
            Self::Ended(ended) => Some(ended),
        }
    }
}

fn units(operation: &Operation) -> Json {
    let one = |unit: &loadline_state_machine::Unit| {
        let (step, replica, size) = match &unit.planned.step {
            Step::Create(it) => ("create", &it.name, &it.size),
            Step::Drop { replica, .. } => ("drop", &replica.name, &replica.size),
            Step::Suspend { replica, .. } => ("suspend", &replica.name, &replica.size),
            Step::Replace { new, .. } => ("replace", &new.name, &new.size),
        };
        json!({"step": step, "replica": &**replica, "size": &**size, "progress": unit.progress.as_str()})
    };
    Json::Array(operation.units.iter().map(one).collect())
}

pub(crate) static OPERATIONS: Definition<Row> = Definition {
    schema: "loadline",
    name: "operations",
    comment: "Changes of clusters in several steps, under way and ended.",
    is_view: false,
    key: &[0],
    columns: &[
        column("id", Kind::Text, |_, row| Value::show(row.operation().id)),
        column("cluster_id", Kind::Text, |_, row| Value::show(row.operation().cluster)),
        optional("cluster", Kind::Text, |source, row| {
            source.state.cluster_by_id(row.operation().cluster).map(|it| it.name.as_str()).into()
        }),
        column("kind", Kind::Text, |_, row| row.operation().kind.as_str().into()),
        column("phase", Kind::Text, |_, row| match row.ended() {
            Some(_) => "ended".into(),
            None => row.operation().phase().as_str().into(),
        }),
        optional("result", Kind::Text, |_, row| row.ended().map(|it| it.end.code()).into()),
        optional("failure", Kind::Text, |_, row| match row.ended().map(|it| it.end) {
            Some(OperationEnd::Failed(reason)) => reason.code().into(),
            _ => row.operation().failing.map(|reason| reason.code()).into(),
        }),
        column("units", Kind::Jsonb, |_, row| Value::json(&units(row.operation()))),
        column("decision_id", Kind::Text, |_, row| Value::show(row.operation().decision)),
        column("begun_at", Kind::Timestamptz, |_, row| Value::time(row.operation().begun_at)),
        column("progress_at", Kind::Timestamptz, |_, row| Value::time(row.operation().progress_at)),
        optional("ended_at", Kind::Timestamptz, |_, row| row.ended().map(|it| Value::time(it.ended_at)).into()),
    ],
    rows: |source| {
        let past = source.past.operations(&source.state, &source.budget)?;
        let mut rows: Vec<Row> = past.into_iter().map(Row::Ended).collect();
        if source.past.shows_what_is() {
            rows.extend(source.state.operations().cloned().map(Row::UnderWay));
        }
        rows.sort_by_key(|row| row.operation().id);
        Ok(rows)
    },
};

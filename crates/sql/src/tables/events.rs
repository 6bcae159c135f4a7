//! `loadline.events`: what happened, from the journal, the newest first.

use std::sync::Arc;

use super::define::{Definition, column, optional};
use super::source::EventRow;
use super::value::{Kind, Value};

pub(crate) static EVENTS: Definition<Arc<EventRow>> = Definition {
    schema: "loadline",
    name: "events",
    comment: "What happened at each index of the log, and who asked for it.",
    is_view: false,
    key: &[0, 1],
    columns: &[
        column("log_index", Kind::Int8, |_, it| Value::count(it.index.0)),
        column("ordinal", Kind::Int8, |_, it| it.ordinal.into()),
        column("at", Kind::Timestamptz, |_, it| Value::time(it.at)),
        column("kind", Kind::Text, |_, it| it.kind.into()),
        optional("cluster_id", Kind::Text, |_, it| it.cluster.map(Value::show).into()),
        optional("resource", Kind::Text, |_, it| it.resource.clone().into()),
        optional("actor", Kind::Text, |_, it| it.actor.clone().into()),
        optional("source", Kind::Text, |_, it| it.source.clone().into()),
        optional("proof", Kind::Text, |_, it| it.proof.clone().into()),
        optional("request_id", Kind::Text, |_, it| it.request_id.clone().into()),
        optional("cluster", Kind::Text, |_, it| it.cluster_name.clone().into()),
        column("what", Kind::Text, |_, it| it.what.as_str().into()),
    ],
    rows: |source| source.past.events(&source.state, &source.budget),
};

//! `loadline.nodes`: our own nodes, as the one that answers sees them.

use super::define::{Definition, column, optional};
use super::source::NodeRow;
use super::value::{Kind, Value};

pub(crate) static NODES: Definition<NodeRow> = Definition {
    schema: "loadline",
    name: "nodes",
    comment: "The nodes of the group, as the one that answers sees them.",
    is_view: false,
    key: &[0],
    columns: &[
        column("id", Kind::Int8, |_, node| Value::count(node.id)),
        column("name", Kind::Text, |_, node| node.name.as_str().into()),
        column("address", Kind::Text, |_, node| node.address.as_str().into()),
        column("voter", Kind::Bool, |_, node| node.voter.into()),
        column("leader", Kind::Bool, |_, node| node.leader.into()),
        column("answers", Kind::Bool, |_, node| node.is_self.into()),
        optional("matched_index", Kind::Int8, |_, node| node.matched_index.map(Value::count).into()),
        column("applied_index", Kind::Int8, |source, _| Value::count(source.state.applied().0)),
    ],
    rows: |source| Ok(source.nodes.clone()),
};

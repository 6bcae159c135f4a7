//! An explanation, as programs get it. What people read are its lines.

use loadline_client::v1;
use serde_json::{Value, json};

use super::actions::{action, operation};
use super::scaling::{decision, object, time};

/// One line of an explanation, with where it comes from.
fn fact(it: &v1::ExplainedFact) -> Value {
    let number = |number: u64| if number == 0 { Value::Null } else { json!(number) };
    object([
        ("topic", json!(it.topic)),
        ("name", json!(it.name)),
        ("text", json!(it.text)),
        ("log_index", number(it.log_index)),
        ("time", time(it.time_ms)),
        ("actor", json!(it.actor)),
        ("source", json!(it.source)),
        ("proof", json!(it.proof)),
        ("request_id", json!(it.request_id)),
        ("node_id", number(it.node_id)),
        ("epoch", json!(it.epoch)),
        ("resource", json!(it.resource)),
    ])
}

/// The whole of an explanation, for programs.
pub(crate) fn explanation(it: &v1::ExplainResponse) -> Value {
    let pause = it.pause.as_ref().map_or(Value::Null, |pause| {
        object([
            ("reason", json!(pause.reason)),
            ("since", time(pause.since_ms)),
            ("expire_time", time(pause.expire_time_ms)),
        ])
    });
    object([
        ("decision", it.decision.as_ref().map_or(Value::Null, decision)),
        ("recorded", it.recorded.as_ref().map_or(Value::Null, decision)),
        ("pause", pause),
        ("operation", it.operation.as_ref().map_or(Value::Null, operation)),
        ("actions", Value::Array(it.actions.iter().map(action).collect())),
        ("pending_since", time(it.pending_since_ms)),
        ("idle_since", time(it.idle_since_ms)),
        ("facts", Value::Array(it.facts.iter().map(fact).collect())),
        ("lines", json!(it.lines)),
        ("revision", json!(it.revision)),
    ])
}

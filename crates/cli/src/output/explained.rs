//! An explanation, as programs get it. What people read are its lines.

use loadline_client::v1;
use serde_json::{Value, json};

use super::actions::{action, operation};
use super::scaling::{decision, object, time};
use super::{csv_line, csv_name};
use crate::exit::Failed;
use crate::text::show_time;

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

/// The facts as rows: the columns of `loadline.explanations` in SQL, but for those that say what was asked.
pub(crate) fn facts_as_csv(it: &v1::ExplainResponse) -> Result<String, Failed> {
    let columns = [
        "topic",
        "name",
        "text",
        "log-index",
        "time",
        "actor",
        "source",
        "proof",
        "request-id",
        "node-id",
        "epoch",
        "resource",
    ];
    let mut text = csv_line(&columns.map(csv_name))?;
    let number = |number: u64| if number == 0 { String::new() } else { number.to_string() };
    for it in &it.facts {
        text.push_str(&csv_line(&[
            it.topic.clone(),
            it.name.clone(),
            it.text.clone(),
            number(it.log_index),
            show_time(it.time_ms),
            it.actor.clone(),
            it.source.clone(),
            it.proof.clone(),
            it.request_id.clone(),
            number(it.node_id),
            it.epoch.clone(),
            it.resource.clone(),
        ])?);
    }
    Ok(text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_are_rows_in_csv() {
        let fact = v1::ExplainedFact {
            topic: "brake".to_owned(),
            name: "PAUSED".to_owned(),
            text: "paused: moving, soon".to_owned(),
            log_index: 7,
            actor: "alice".to_owned(),
            ..v1::ExplainedFact::default()
        };
        let answer = v1::ExplainResponse { facts: vec![fact], ..v1::ExplainResponse::default() };
        assert_eq!(
            facts_as_csv(&answer).expect("CSV"),
            "topic,name,text,log_index,time,actor,source,proof,request_id,node_id,epoch,resource\n\
             brake,PAUSED,\"paused: moving, soon\",7,,alice,,,,,,\n"
        );
    }
}

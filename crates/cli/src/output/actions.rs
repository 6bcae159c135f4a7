//! Operations and their actions, as they are shown.

use loadline_client::v1;
use serde_json::{Value, json};

use super::scaling::{ActionView, OperationView, Shown, code, object, planned, reason, time};
use crate::text::show_time;

pub(super) fn operation(it: &v1::Operation) -> Value {
    let units = it.units.iter().map(|unit| {
        object([
            ("planned", unit.planned.as_ref().map_or(Value::Null, planned)),
            ("progress", json!(unit.progress)),
            ("action", json!(unit.action)),
            ("launched", json!(unit.launched)),
            ("cordoned", json!(unit.cordoned)),
            ("drained", unit.drained.map_or(Value::Null, |it| json!({ "moved": it.moved, "left": it.left }))),
        ])
    });
    object([
        ("kind", json!("operation")),
        ("name", json!(it.id)),
        ("cluster", json!(it.cluster)),
        ("cluster_id", json!(it.cluster_id)),
        ("operation", json!(it.kind)),
        ("phase", json!(it.phase)),
        ("units", Value::Array(units.collect())),
        ("begin_time", time(it.begin_time_ms)),
        ("progress_time", time(it.progress_time_ms)),
        ("decision", json!(it.decision)),
        ("failing", reason(it.failing.as_ref())),
        ("end", json!(it.end)),
    ])
}

impl From<v1::Operation> for OperationView {
    fn from(it: v1::Operation) -> OperationView {
        let units = it.units.iter().map(|unit| {
            let step = unit.planned.as_ref();
            let name = step.and_then(|step| step.replica.as_ref()).map(|it| it.name.clone()).unwrap_or_default();
            format!("{name}:{}", unit.progress)
        });
        let cells = vec![
            it.id.clone(),
            if it.cluster.is_empty() { it.cluster_id.clone() } else { it.cluster.clone() },
            it.kind.clone(),
            if it.end.is_empty() { it.phase.clone() } else { it.end.clone() },
            units.collect::<Vec<_>>().join(","),
            show_time(it.begin_time_ms),
            show_time(it.progress_time_ms),
            code(it.failing.as_ref()),
        ];
        let whole = operation(&it);
        OperationView(Shown { name: it.id, etag: String::new(), cells, further: Vec::new(), whole })
    }
}

fn attempt(it: &v1::Attempt) -> Value {
    object([
        ("number", json!(it.number)),
        ("node", json!(it.node)),
        ("epoch", json!(it.epoch)),
        ("claim_time", time(it.claim_time_ms)),
        ("result", json!(it.result)),
        ("end_node", json!(it.end_node)),
        ("end_time", time(it.end_time_ms)),
    ])
}

/// `1: claimed by n1 at ...; UNKNOWN, as n2 recorded at ...`
fn attempt_in_words(it: &v1::Attempt) -> String {
    let claimed = format!("{}: claimed by {} at {}", it.number, it.node, show_time(it.claim_time_ms));
    match it.result.as_str() {
        "" => format!("{claimed}; nobody has said what came of it"),
        result if it.end_node == it.node => format!("{claimed}; {result} at {}", show_time(it.end_time_ms)),
        result => format!("{claimed}; {result}, as {} recorded at {}", it.end_node, show_time(it.end_time_ms)),
    }
}

pub(super) fn action(it: &v1::Action) -> Value {
    object([
        ("kind", json!("action")),
        ("name", json!(it.id)),
        ("number", json!(it.number)),
        ("cluster", json!(it.cluster)),
        ("cluster_id", json!(it.cluster_id)),
        ("operation", json!(it.operation)),
        ("strategy", json!(it.strategy)),
        ("type", json!(it.r#type)),
        ("reason", reason(it.reason.as_ref())),
        ("decision", json!(it.decision)),
        ("call", json!(it.call)),
        ("replica", json!(it.replica)),
        ("size", json!(it.size)),
        ("status", reason(it.status.as_ref())),
        ("attempt", json!(it.attempt)),
        ("attempts", Value::Array(it.attempts.iter().map(attempt).collect())),
        ("by", json!(it.by)),
        ("backend", json!(it.backend)),
        ("create_time", time(it.create_time_ms)),
        ("settle_time", time(it.settle_time_ms)),
        ("expire_time", time(it.expire_time_ms)),
        ("not_before", time(it.not_before_ms)),
        ("error", json!(it.error)),
        ("key", json!(it.key)),
    ])
}

impl From<v1::Action> for ActionView {
    fn from(it: v1::Action) -> ActionView {
        let cells = vec![
            it.id.clone(),
            if it.cluster.is_empty() { it.cluster_id.clone() } else { it.cluster.clone() },
            it.call.clone(),
            it.replica.clone(),
            it.size.clone(),
            code(it.status.as_ref()),
            code(it.reason.as_ref()),
            it.attempt.to_string(),
            it.by.clone(),
            it.backend.clone(),
            format!("{} {}", it.r#type, it.strategy),
            show_time(it.create_time_ms),
            show_time(it.settle_time_ms),
            it.error.clone(),
        ];
        let further = it.attempts.iter().map(|each| ("ATTEMPT", attempt_in_words(each))).collect();
        let whole = action(&it);
        ActionView(Shown { name: it.id, etag: String::new(), cells, further, whole })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, list};
    use super::*;

    #[test]
    fn an_action_tells_who_tried_it_and_who_went_on() {
        let attempt = |number, node: &str, end_node: &str, result: &str| v1::Attempt {
            number,
            node: node.to_owned(),
            end_node: end_node.to_owned(),
            result: result.to_owned(),
            claim_time_ms: 1_000,
            end_time_ms: 2_000,
            ..v1::Attempt::default()
        };
        let it = v1::Action {
            id: "a7.0".to_owned(),
            cluster: "demo".to_owned(),
            attempt: 2,
            attempts: vec![attempt(1, "n1", "n2", "UNKNOWN"), attempt(2, "n2", "", "")],
            by: "n1, resumed by n2".to_owned(),
            ..v1::Action::default()
        };
        assert_eq!(
            it.attempts.iter().map(attempt_in_words).collect::<Vec<_>>(),
            [
                "1: claimed by n1 at 1970-01-01T00:00:01Z; UNKNOWN, as n2 recorded at 1970-01-01T00:00:02Z",
                "2: claimed by n2 at 1970-01-01T00:00:01Z; nobody has said what came of it",
            ]
        );
        let table = list(Format::Table, "actions", None, &[ActionView::from(it)]).expect("a table");
        let cells: Vec<&str> = table.lines().map(|line| line.split("   ").last().unwrap_or_default().trim()).collect();
        assert_eq!(cells, ["BY", "n1, resumed by n2"]);
    }
}

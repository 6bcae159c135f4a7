//! Reports as JSON lines: what `loadline signal --file` reads.
//!
//! A line is one report about one cluster. It names the cluster and one thing or more that were seen:
//!
//! ```json
//! {"cluster": "demo", "replica": {"name": "main", "size": "100cc", "ready": true}}
//! {"cluster": "demo", "metric": {"name": "queue_depth", "value": 12.5}, "age": "5s"}
//! ```

use std::time::Duration;

use loadline_client::v1::observation::Seen;
use loadline_client::v1::{
    ActivitySeen, ClusterSignals, CrashSeen, HydrationSeen, MetricSeen, NoticeSeen, NoticeType, Observation,
    ReplicaGone, ReplicaSeen, cluster_signals,
};
use serde_json::Value;

use crate::plan::reader::{Fields, Node, Read};
use crate::text::{parse_duration, parse_milli};

/// What one line says. A mistake names the field and what would be right there.
pub(crate) fn parse(line: &str) -> Result<ClusterSignals, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    read(&value).map_err(|wrong| format!("{}: {}", wrong.field, wrong.problem))
}

fn read(value: &Value) -> Read<ClusterSignals> {
    let mut fields = Node::root(value).object("an object with cluster and what was seen")?;
    let cluster = fields.required("cluster", "the name of the cluster")?.name()?.to_owned();
    let age_ms = fields.optional("age").map_or(Ok(0), |age| span(&age))?;
    let mut seen = Vec::new();
    if let Some(node) = fields.optional("alive") {
        match node.value {
            Value::Bool(true) => seen.push(Seen::Alive(true)),
            _ => return Err(node.wrong("must be true; leave it out if it is not")),
        }
    }
    if let Some(node) = fields.optional("activity") {
        seen.push(Seen::Activity(activity(&node)?));
    }
    if let Some(node) = fields.optional("replica") {
        let mut it = node.object("an object with name, size and ready")?;
        let name = it.required("name", "the name of the replica")?.name()?.to_owned();
        let size = it.required("size", "its size")?.name()?.to_owned();
        let (ready, incarnation) = (flag(&mut it, "ready")?, text(&mut it, "incarnation")?);
        it.finish()?;
        seen.push(Seen::Replica(ReplicaSeen { name, size, incarnation, ready }));
    }
    if let Some(node) = fields.optional("gone") {
        let mut it = node.object("an object with name")?;
        let name = it.required("name", "the name of the replica")?.name()?.to_owned();
        let incarnation = text(&mut it, "incarnation")?;
        it.finish()?;
        seen.push(Seen::Gone(ReplicaGone { name, incarnation }));
    }
    if let Some(node) = fields.optional("hydration") {
        let mut it = node.object("an object with replica, total and hydrated")?;
        let replica = replica(&mut it)?;
        let total = it.required("total", "how many objects it should have")?.count()?;
        let hydrated = it.required("hydrated", "how many of them are hydrated")?.count()?;
        it.finish()?;
        seen.push(Seen::Hydration(HydrationSeen { replica, total, hydrated }));
    }
    if let Some(node) = fields.optional("crash") {
        let mut it = node.object("an object with replica")?;
        let replica = replica(&mut it)?;
        let (oom, reason) = (flag(&mut it, "oom")?, text(&mut it, "reason")?);
        let count = it.optional("count").map_or(Ok(1), |count| count.count())?;
        it.finish()?;
        seen.push(Seen::Crash(CrashSeen { replica, oom, reason, count }));
    }
    if let Some(node) = fields.optional("metric") {
        let mut it = node.object("an object with name and value")?;
        let name = it.required("name", "the name of the metric")?.name()?.to_owned();
        let value_milli = milli(&it.required("value", "a number")?)?;
        it.finish()?;
        seen.push(Seen::Metric(MetricSeen { name, value_milli }));
    }
    if let Some(node) = fields.optional("notice") {
        seen.push(Seen::Notice(notice(node)?));
    }
    fields.finish()?;
    if seen.is_empty() {
        let kinds = "alive, activity, replica, gone, hydration, crash, metric, notice";
        return Err(Node::root(value).wrong(format!("it says nothing about {cluster}; write one of {kinds}")));
    }
    let observations = seen.into_iter().map(|seen| Observation { age_ms, seen: Some(seen) }).collect();
    Ok(ClusterSignals { cluster: Some(cluster_signals::Cluster::Name(cluster)), observations })
}

/// `{"idle_for": "1h"}`; `{}` means just now, `{"none": true}` that nobody was seen at all.
fn activity(node: &Node<'_>) -> Read<ActivitySeen> {
    let mut it = node.clone().object("an object with idle_for, or with none")?;
    let none = flag(&mut it, "none")?;
    let idle_for = it.optional("idle_for").map(|node| span(&node)).transpose()?;
    it.finish()?;
    match (none, idle_for) {
        (true, Some(_)) => Err(node.wrong("idle_for and none exclude each other")),
        (true, None) => Ok(ActivitySeen { idle_for_ms: None }),
        (false, idle_for) => Ok(ActivitySeen { idle_for_ms: Some(idle_for.unwrap_or_default()) }),
    }
}

fn notice(node: Node<'_>) -> Read<NoticeSeen> {
    let mut it = node.object("an object with replica and type")?;
    let replica = replica(&mut it)?;
    let word = it.required("type", "spot or preemption")?;
    let kind = match word.value.as_str() {
        Some("spot") => NoticeType::Spot,
        Some("preemption") => NoticeType::Preemption,
        _ => return Err(word.wrong(format!("{} must be spot or preemption", word.value))),
    };
    let gone_in_ms = it.optional("in").map(|node| span(&node)).transpose()?;
    it.finish()?;
    Ok(NoticeSeen { replica, r#type: kind.into(), gone_in_ms })
}

fn replica(fields: &mut Fields<'_>) -> Read<String> {
    Ok(fields.required("replica", "the name of the replica")?.name()?.to_owned())
}

fn flag(fields: &mut Fields<'_>, key: &'static str) -> Read<bool> {
    match fields.optional(key) {
        None => Ok(false),
        Some(node) => node.value.as_bool().ok_or_else(|| node.wrong("must be true or false")),
    }
}

fn text(fields: &mut Fields<'_>, key: &'static str) -> Read<String> {
    match fields.optional(key) {
        None => Ok(String::new()),
        Some(node) => node.value.as_str().map(str::to_owned).ok_or_else(|| node.wrong("must be text")),
    }
}

/// `"30s"`, or seconds as a number; in milliseconds.
fn span(node: &Node<'_>) -> Read<u64> {
    match node.value {
        Value::String(text) if text == "0" || text == "0s" => Ok(0),
        Value::String(text) => parse_duration(text).map(millis).map_err(|problem| node.wrong(problem)),
        Value::Number(_) => node.seconds(u64::MAX),
        _ => Err(node.wrong("must be a length of time, such as \"30s\", or a number of seconds")),
    }
}

fn milli(node: &Node<'_>) -> Read<i64> {
    match node.value {
        Value::Number(number) => parse_milli(&number.to_string()).map_err(|problem| node.wrong(problem)),
        Value::String(text) => parse_milli(text).map_err(|problem| node.wrong(problem)),
        other => Err(node.wrong(format!("{other} is not a number"))),
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, age_ms: u64, seen: Seen) {
        let observations = vec![Observation { age_ms, seen: Some(seen) }];
        let cluster = Some(cluster_signals::Cluster::Name("demo".to_owned()));
        assert_eq!(parse(line), Ok(ClusterSignals { cluster, observations }), "{line}");
    }

    #[test]
    fn every_kind_of_signal_can_be_written() {
        check(r#"{"cluster": "demo", "alive": true, "age": "5s"}"#, 5_000, Seen::Alive(true));
        let activity = |idle_for_ms| Seen::Activity(ActivitySeen { idle_for_ms });
        check(r#"{"cluster": "demo", "activity": {}}"#, 0, activity(Some(0)));
        check(r#"{"cluster": "demo", "activity": {"idle_for": "1h"}, "age": 0.5}"#, 500, activity(Some(3_600_000)));
        check(r#"{"cluster": "demo", "activity": {"none": true}}"#, 0, activity(None));
        let (name, size) = ("main".to_owned(), "100cc".to_owned());
        let replica = ReplicaSeen { name: name.clone(), size, incarnation: "i-7".to_owned(), ready: true };
        let line =
            r#"{"cluster": "demo", "replica": {"name": "main", "size": "100cc", "incarnation": "i-7", "ready": true}}"#;
        check(line, 0, Seen::Replica(replica));
        let gone = ReplicaGone { name, incarnation: String::new() };
        check(r#"{"cluster": "demo", "gone": {"name": "main"}}"#, 0, Seen::Gone(gone));
        let hydration = HydrationSeen { replica: "main".to_owned(), total: 4, hydrated: 3 };
        let line = r#"{"cluster": "demo", "hydration": {"replica": "main", "total": 4, "hydrated": 3}}"#;
        check(line, 0, Seen::Hydration(hydration));
        let crash = CrashSeen { replica: "main".to_owned(), oom: true, reason: "killed".to_owned(), count: 1 };
        let line = r#"{"cluster": "demo", "crash": {"replica": "main", "oom": true, "reason": "killed"}}"#;
        check(line, 0, Seen::Crash(crash));
        let metric = MetricSeen { name: "queue".to_owned(), value_milli: -12_500 };
        check(r#"{"cluster": "demo", "metric": {"name": "queue", "value": -12.5}}"#, 0, Seen::Metric(metric));
        let notice =
            NoticeSeen { replica: "main".to_owned(), r#type: NoticeType::Spot.into(), gone_in_ms: Some(120_000) };
        let line = r#"{"cluster": "demo", "notice": {"replica": "main", "type": "spot", "in": "2m"}}"#;
        check(line, 0, Seen::Notice(notice));
    }

    #[test]
    fn mistakes_name_the_field_and_what_would_be_right() {
        for (line, part) in [
            ("", "not JSON"),
            ("[]", "document: a list is not an object with cluster"),
            (r#"{"alive": true}"#, "cluster: it is missing"),
            (r#"{"cluster": 7, "alive": true}"#, "cluster: 7 is not a name"),
            (r#"{"cluster": "demo"}"#, "write one of alive, activity"),
            (r#"{"cluster": "demo", "alive": false}"#, "alive: must be true"),
            (r#"{"cluster": "demo", "metrc": {}}"#, "metrc: there is no such field; did you mean 'metric'?"),
            (
                r#"{"cluster": "demo", "metric": {"name": "q", "value": "many"}}"#,
                "metric.value: 'many' is not a number",
            ),
            (r#"{"cluster": "demo", "metric": {"name": "q", "value": 0.0001}}"#, "more than three digits"),
            (r#"{"cluster": "demo", "metric": {"value": 1}}"#, "metric.name: it is missing"),
            (
                r#"{"cluster": "demo", "notice": {"replica": "m", "type": "spto"}}"#,
                "notice.type: \"spto\" must be spot",
            ),
            (r#"{"cluster": "demo", "crash": {"replica": "m", "count": -1}}"#, "crash.count: -1 is not a whole number"),
            (r#"{"cluster": "demo", "activity": {"idle_for": "1h", "none": true}}"#, "exclude each other"),
            (r#"{"cluster": "demo", "alive": true, "age": "soon"}"#, "age: 'soon' is not a duration"),
            (
                r#"{"cluster": "demo", "replica": {"name": "m", "size": "s", "ready": 1}}"#,
                "replica.ready: must be true",
            ),
        ] {
            let wrong = parse(line).expect_err(line);
            assert!(wrong.contains(part), "{line}: {wrong}");
        }
    }
}

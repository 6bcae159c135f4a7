//! `loadline.signals`: what is known from outside about each cluster, one row per fact.

use loadline_state_machine::{ClusterId, Freshness, Time};
use serde_json::json;

use super::define::{Definition, column, optional};
use super::json;
use super::source::Source;
use super::value::{Kind, Value};

pub(crate) struct Row {
    cluster: ClusterId,
    kind: &'static str,
    /// Of a replica or a metric.
    subject: Option<String>,
    value: serde_json::Value,
    collector: Option<String>,
    as_of: Option<Time>,
    fresh: Option<bool>,
}

fn time(at: Time) -> serde_json::Value {
    json!(super::value::timestamp(at))
}

fn of(source: &Source, cluster: ClusterId, rows: &mut Vec<Row>) {
    let Some(standing) = source.state.standing(cluster) else { return };
    let signals = standing.signals();
    // What was fresh when it was judged is what the latest decision worked with.
    let stale_after = standing.decision().map(|decision| decision.stale_after);
    let fresh = |collector: &str, as_of| {
        let freshness = signals.freshness(collector, as_of, source.state.now(), stale_after?);
        Some(matches!(freshness, Freshness::FreshUntil(_)))
    };
    if let Some(it) = &signals.activity {
        rows.push(Row {
            cluster,
            kind: "activity",
            subject: None,
            value: json!({"last_at": it.last_at.map(time), "idle_since": time(it.idle_since())}),
            collector: Some(it.collector.to_string()),
            as_of: Some(it.as_of),
            fresh: fresh(&it.collector, it.as_of),
        });
    }
    for replica in &signals.replicas {
        let seen = json!({"size": &*replica.size, "ready": replica.ready, "cordoned": replica.cordoned});
        let subject = Some(replica.name.to_string());
        rows.push(Row {
            cluster,
            kind: "replica",
            subject: subject.clone(),
            value: seen,
            collector: None,
            as_of: Some(replica.seen_at),
            fresh: None,
        });
        if let Some(it) = &replica.hydration {
            rows.push(Row {
                cluster,
                kind: "hydration",
                subject: subject.clone(),
                value: json!({"hydrated": it.hydrated, "total": it.total}),
                collector: Some(it.collector.to_string()),
                as_of: Some(it.as_of),
                fresh: fresh(&it.collector, it.as_of),
            });
        }
        for crash in &replica.crashes {
            rows.push(Row {
                cluster,
                kind: "crash",
                subject: subject.clone(),
                value: json!({"count": crash.count, "oom_count": crash.oom_count, "reason": &*crash.reason}),
                collector: None,
                as_of: Some(crash.at),
                fresh: None,
            });
        }
    }
    for it in &signals.metrics {
        rows.push(Row {
            cluster,
            kind: "metric",
            subject: Some(it.name.to_string()),
            value: json!({"value_milli": it.value_milli}),
            collector: Some(it.collector.to_string()),
            as_of: Some(it.as_of),
            fresh: fresh(&it.collector, it.as_of),
        });
    }
    for it in &signals.collectors {
        rows.push(Row {
            cluster,
            kind: "collector",
            subject: Some(it.collector.to_string()),
            value: json::object([("confirmed_at", it.confirmed_at.map_or(serde_json::Value::Null, time))]),
            collector: Some(it.collector.to_string()),
            as_of: Some(it.at),
            fresh: fresh(&it.collector, it.at),
        });
    }
}

pub(crate) static SIGNALS: Definition<Row> = Definition {
    schema: "loadline",
    name: "signals",
    comment: "What was reported about each cluster, one row per fact.",
    is_view: false,
    key: &[],
    columns: &[
        column("cluster_id", Kind::Text, |_, row| Value::show(row.cluster)),
        column("cluster", Kind::Text, |source, row| {
            source.state.cluster_by_id(row.cluster).map(|it| it.name.as_str()).into()
        }),
        column("kind", Kind::Text, |_, row| row.kind.into()),
        optional("subject", Kind::Text, |_, row| row.subject.clone().into()),
        column("value", Kind::Jsonb, |_, row| Value::json(&row.value)),
        optional("collector", Kind::Text, |_, row| row.collector.clone().into()),
        optional("as_of", Kind::Timestamptz, |_, row| row.as_of.map(Value::time).into()),
        optional("fresh", Kind::Bool, |_, row| row.fresh.into()),
    ],
    rows: |source| {
        let mut rows = Vec::new();
        for (place, cluster) in source.state.clusters_after(None).enumerate() {
            if place % 1_024 == 0 {
                source.budget.check()?;
            }
            of(source, cluster.id, &mut rows);
        }
        Ok(rows)
    },
};

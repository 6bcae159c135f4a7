//! Strategies, decisions, operations and actions, and roles, as they are shown.
//!
//! Programs get everything that the wire carries, under the names that it has there; tables the few columns that tell what is
//! going on.

use loadline_client::v1;
use loadline_client::v1::strategy_target::Target;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{Column, View};
use crate::text::show_time;

/// A thing that is shown: its row, and the whole of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    /// Its id.
    pub(crate) name: String,
    pub(crate) etag: String,
    pub(super) cells: Vec<String>,
    /// What `describe` says beyond the columns.
    pub(super) further: Vec<(&'static str, String)>,
    pub(super) whole: Value,
}

macro_rules! views {
    ($($(#[$meta:meta])* $View:ident, $plural:literal, [$($column:expr),* $(,)?];)*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $View(pub(crate) Shown);

        impl Serialize for $View {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.0.whole.serialize(serializer)
            }
        }

        impl View for $View {
            const COLUMNS: &'static [Column] = &[$($column),*];

            fn cells(&self) -> Vec<String> {
                self.0.cells.clone()
            }

            fn name(&self) -> String {
                format!(concat!($plural, "/{}"), self.0.name)
            }
        }

        impl $View {
            /// Everything that is known, for `describe`.
            pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
                let columns = Self::COLUMNS.iter().map(|column| column.head).zip(self.cells());
                columns.chain(self.0.further.iter().cloned()).collect()
            }
        }
    )*};
}

views! {
    StrategyView, "strategies", [
        Column::always("ID"),
        Column::always("TYPE"),
        Column::always("TARGET"),
        Column::always("STATE"),
        Column::always("OPTIONS"),
        Column::wide("MATCHES"),
        Column::wide("ETAG"),
        Column::wide("CHANGED"),
    ];
    DecisionView, "decisions", [
        Column::always("ID"),
        Column::always("CLUSTER"),
        Column::always("CONCLUSION"),
        Column::always("WANTED"),
        Column::always("HELD-BY"),
        Column::always("CHANGES-AT"),
        Column::wide("REASONS"),
        Column::wide("TIME"),
    ];
    OperationView, "operations", [
        Column::always("ID"),
        Column::always("CLUSTER"),
        Column::always("KIND"),
        Column::always("PHASE"),
        Column::always("REPLICAS"),
        Column::wide("BEGAN"),
        Column::wide("PROGRESS"),
        Column::wide("FAILING"),
    ];
    ActionView, "actions", [
        Column::always("ID"),
        Column::always("CLUSTER"),
        Column::always("CALL"),
        Column::always("REPLICA"),
        Column::always("SIZE"),
        Column::always("STATUS"),
        Column::always("REASON"),
        Column::always("ATTEMPTS"),
        Column::always("BY"),
        Column::wide("BACKEND"),
        Column::wide("STRATEGY"),
        Column::wide("CREATED"),
        Column::wide("SETTLED"),
        Column::wide("ERROR"),
    ];
}

views! {
    RoleView, "roles", [
        Column::always("NAME"),
        Column::always("SUPERUSER"),
        Column::always("USAGE"),
        Column::always("PASSWORD"),
        Column::always("TOKENS"),
        Column::wide("CREATED"),
        Column::wide("ETAG"),
        Column::wide("CHANGED"),
    ];
}

impl From<v1::Role> for RoleView {
    fn from(it: v1::Role) -> RoleView {
        let usage = match it.all_clusters {
            true => "all clusters".to_owned(),
            false => it.clusters.join(","),
        };
        let cells = vec![
            it.name.clone(),
            it.superuser.to_string(),
            usage,
            if it.has_password { "set" } else { "" }.to_owned(),
            it.tokens.len().to_string(),
            show_time(it.create_time_ms),
            it.etag.clone(),
            it.update_revision.to_string(),
        ];
        let said = |token: &v1::Token| match token.expire_time_ms {
            0 => format!("{} does not expire", token.id),
            end => format!("{} until {}", token.id, show_time(end)),
        };
        let further = it.tokens.iter().map(|token| ("TOKEN", said(token))).collect();
        let tokens = it.tokens.iter().map(|token| {
            object([
                ("id", json!(token.id)),
                ("create_time", time(token.create_time_ms)),
                ("expire_time", time(token.expire_time_ms)),
            ])
        });
        let whole = object([
            ("kind", json!("role")),
            ("name", json!(it.name)),
            ("superuser", json!(it.superuser)),
            ("all_clusters", json!(it.all_clusters)),
            ("clusters", json!(it.clusters)),
            ("has_password", json!(it.has_password)),
            ("tokens", Value::Array(tokens.collect())),
            ("etag", json!(it.etag)),
            ("create_time", time(it.create_time_ms)),
        ]);
        RoleView(Shown { name: it.name, etag: it.etag, cells, further, whole })
    }
}

/// Leaves out what is empty: a reader asks whether it is there.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    let kept = fields.into_iter().filter(|(_, value)| !empty(value)).map(|(key, value)| (key.to_owned(), value));
    Value::Object(kept.collect::<Map<_, _>>())
}

pub(super) fn time(millis: i64) -> Value {
    Value::String(show_time(millis))
}

pub(super) fn code(reason: Option<&v1::Reason>) -> String {
    reason.map(|reason| reason.code.clone()).unwrap_or_default()
}

pub(super) fn reason(reason: Option<&v1::Reason>) -> Value {
    reason.map_or(Value::Null, |reason| json!({ "code": reason.code, "text": reason.text }))
}

/// `{"r1_auto": "200cc"}`, as in the input and output of `plan`.
fn replicas(specs: &[v1::ReplicaSpec]) -> Value {
    Value::Object(specs.iter().map(|spec| (spec.name.clone(), Value::String(spec.size.clone()))).collect())
}

fn in_words(specs: &[v1::ReplicaSpec]) -> String {
    match specs {
        [] => "nothing".to_owned(),
        specs => specs.iter().map(|spec| format!("{}={}", spec.name, spec.size)).collect::<Vec<_>>().join(","),
    }
}

fn would_change(at: Option<&v1::WouldChange>) -> Value {
    at.map_or(Value::Null, |at| object([("time", time(at.time_ms)), ("cause", reason(at.cause.as_ref()))]))
}

impl From<v1::Strategy> for StrategyView {
    fn from(it: v1::Strategy) -> StrategyView {
        let (word, target) = match it.target.clone().and_then(|target| target.target) {
            Some(Target::Cluster(name)) => (name.clone(), json!({ "cluster": name })),
            Some(Target::Pattern(pattern)) => (format!("like '{pattern}'"), json!({ "pattern": pattern })),
            Some(Target::All(_)) => ("all".to_owned(), json!({ "all": true })),
            None => (String::new(), Value::Null),
        };
        let state = match &it.problem {
            Some(problem) => format!("bad: {}", problem.code),
            None if !it.enabled => "disabled".to_owned(),
            None if it.dry_run => "dry run".to_owned(),
            None => "enabled".to_owned(),
        };
        let shown = it.options.iter().filter(|(key, _)| *key != "config_version" && *key != "enabled");
        let options = shown.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ");
        let matches = it.matches.map(|count| count.to_string()).unwrap_or_default();
        let whole = object([
            ("kind", json!("strategy")),
            ("name", json!(it.id)),
            ("spec", object([("type", json!(it.r#type)), ("target", target), ("options", json!(it.options))])),
            (
                "status",
                object([
                    ("enabled", json!(it.enabled)),
                    ("dry_run", json!(it.dry_run)),
                    (
                        "problem",
                        it.problem.as_ref().map_or(Value::Null, |it| json!({"code": it.code, "text": it.text})),
                    ),
                    ("matches", json!(it.matches)),
                    ("migrated_from", json!(it.migrated_from)),
                    ("profile", it.profile.as_ref().map_or(Value::Null, profile)),
                ]),
            ),
            (
                "metadata",
                object([
                    ("etag", json!(it.etag)),
                    ("cluster_id", json!(it.cluster_id)),
                    ("create_revision", json!(it.create_revision)),
                    ("update_revision", json!(it.update_revision)),
                    ("create_time", time(it.create_time_ms)),
                    ("update_time", time(it.update_time_ms)),
                ]),
            ),
        ]);
        let changed = it.update_revision.to_string();
        let cells = vec![it.id.clone(), it.r#type, word, state, options, matches, it.etag.clone(), changed];
        StrategyView(Shown { name: it.id, etag: it.etag, cells, further: Vec::new(), whole })
    }
}

/// Which row of a schedule holds, and until when.
fn profile(profile: &v1::Profile) -> Value {
    object([("row", json!(profile.row)), ("until", time(profile.until_ms))])
}

fn stage(stage: &v1::Stage) -> Value {
    let changes = stage.changes.iter().map(|change| {
        object([
            ("what", json!(change.what)),
            ("replica", json!(change.replica.as_ref().map(|it| it.name.clone()))),
            ("size", json!(change.replica.as_ref().map(|it| it.size.clone()))),
            ("from_size", json!(change.from_size)),
            ("reason", reason(change.reason.as_ref())),
        ])
    });
    let mut whole = object([
        ("strategy", json!(stage.strategy)),
        ("type", json!(stage.r#type)),
        ("reason", reason(stage.reason.as_ref())),
        ("changes", Value::Array(changes.collect())),
        ("would_change", would_change(stage.would_change.as_ref())),
        ("tied_with", json!(stage.tied_with)),
        ("profile", stage.profile.as_ref().map_or(Value::Null, profile)),
    ]);
    // Wanting nothing is something to know.
    whole["desired"] = replicas(&stage.desired);
    whole
}

pub(super) fn planned(step: &v1::PlannedStep) -> Value {
    object([
        ("step", json!(step.step)),
        ("replica", json!(step.replica.as_ref().map(|it| it.name.clone()))),
        ("size", json!(step.replica.as_ref().map(|it| it.size.clone()))),
        ("old_replica", json!(step.old.as_ref().map(|it| it.name.clone()))),
        ("old_size", json!(step.old.as_ref().map(|it| it.size.clone()))),
        ("strategy", json!(step.strategy)),
        ("type", json!(step.r#type)),
        ("reason", reason(step.reason.as_ref())),
    ])
}

fn freshness(it: Option<&v1::Freshness>) -> Value {
    it.map_or(Value::Null, |it| {
        object([
            ("collector", json!(it.collector)),
            ("age_ms", json!(it.age_ms)),
            ("stale", json!(it.stale)),
            ("stale_at", time(it.stale_at_ms)),
        ])
    })
}

fn signals(signals: &v1::SignalsView) -> Value {
    let activity = signals.activity.as_ref().map_or(Value::Null, |it| {
        object([
            ("last_time", time(it.last_time_ms)),
            ("idle_since", time(it.idle_since_ms)),
            ("freshness", freshness(it.freshness.as_ref())),
        ])
    });
    let replicas = signals.replicas.iter().map(|it| {
        let hydration = it.hydration.as_ref().map_or(Value::Null, |it| {
            object([
                ("total", json!(it.total)),
                ("hydrated", json!(it.hydrated)),
                ("freshness", freshness(it.freshness.as_ref())),
            ])
        });
        object([
            ("name", json!(it.name)),
            ("size", json!(it.size)),
            ("incarnation", json!(it.incarnation)),
            ("ready", json!(it.ready)),
            ("cordoned", json!(it.cordoned)),
            ("hydration", hydration),
            ("crashes", json!(it.crashes)),
            ("ooms", json!(it.ooms)),
            ("last_crash_time", time(it.last_crash_time_ms)),
            ("last_crash_reason", json!(it.last_crash_reason)),
            ("notice", json!(it.notice)),
            ("gone_at", time(it.gone_at_ms)),
        ])
    });
    let metrics = signals.metrics.iter().map(|it| {
        object([
            ("name", json!(it.name)),
            ("value_milli", json!(it.value_milli)),
            ("freshness", freshness(it.freshness.as_ref())),
        ])
    });
    let collectors =
        signals.collectors.iter().map(|it| object([("name", json!(it.name)), ("heard_time", time(it.heard_time_ms))]));
    object([
        ("activity", activity),
        ("replicas", Value::Array(replicas.collect())),
        ("metrics", Value::Array(metrics.collect())),
        ("collectors", Value::Array(collectors.collect())),
    ])
}

/// The form of a decision wherever one is shown, `plan` included.
pub(crate) fn decision(it: &v1::Decision) -> Value {
    let brakes =
        it.brakes.iter().map(|held| object([("brake", reason(held.brake.as_ref())), ("until", time(held.until_ms))]));
    let shadow = it.shadow.as_ref().map_or(Value::Null, |shadow| {
        json!({
            "stages": shadow.stages.iter().map(stage).collect::<Vec<_>>(),
            "desired": replicas(&shadow.desired),
            "planned": shadow.planned.iter().map(planned).collect::<Vec<_>>(),
        })
    });
    let mut whole = object([
        ("kind", json!("decision")),
        ("name", json!(it.id)),
        ("cluster", json!(it.cluster)),
        ("cluster_id", json!(it.cluster_id)),
        ("time", time(it.time_ms)),
        ("conclusion", reason(it.conclusion.as_ref())),
        ("operation", json!(it.operation)),
        ("signals", it.signals.as_ref().map_or(Value::Null, signals)),
        ("stages", Value::Array(it.stages.iter().map(stage).collect())),
        ("planned", Value::Array(it.planned.iter().map(planned).collect())),
        ("shadow", shadow),
        ("brakes", Value::Array(brakes.collect())),
        ("would_change", would_change(it.would_change.as_ref())),
    ]);
    // Wanting nothing is something to know.
    whole["desired"] = replicas(&it.desired);
    whole
}

impl From<v1::Decision> for DecisionView {
    fn from(it: v1::Decision) -> DecisionView {
        let held = it.brakes.iter().map(|held| code(held.brake.as_ref())).collect::<Vec<_>>().join(",");
        let reasons = it.stages.iter().map(|stage| format!("{}:{}", stage.r#type, code(stage.reason.as_ref())));
        let cells = vec![
            it.id.clone(),
            if it.cluster.is_empty() { it.cluster_id.clone() } else { it.cluster.clone() },
            code(it.conclusion.as_ref()),
            in_words(&it.desired),
            held,
            it.would_change.as_ref().map(|at| show_time(at.time_ms)).unwrap_or_default(),
            reasons.collect::<Vec<_>>().join(" "),
            show_time(it.time_ms),
        ];
        let whole = decision(&it);
        DecisionView(Shown { name: it.id, etag: String::new(), cells, further: Vec::new(), whole })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, list};
    use super::*;

    #[test]
    fn a_strategy_shows_what_it_is_for_and_whether_it_is_in_order() {
        let mut it = v1::Strategy {
            id: "s4.0".to_owned(),
            r#type: "target_size".to_owned(),
            target: Some(v1::StrategyTarget { target: Some(Target::Pattern("prod%".to_owned())) }),
            options: [("config_version", "1"), ("size", "25cc")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            enabled: true,
            matches: Some(2),
            ..v1::Strategy::default()
        };
        let table = |it: &v1::Strategy| list(Format::Table, "strategies", None, &[StrategyView::from(it.clone())]);
        let expected = "ID     TYPE          TARGET         STATE     OPTIONS\n\
                        s4.0   target_size   like 'prod%'   enabled   size=25cc\n";
        assert_eq!(table(&it).as_deref(), Ok(expected));
        it.problem = Some(v1::Problem { code: "UNKNOWN_SIZE".to_owned(), text: "gone".to_owned() });
        assert!(table(&it).expect("a table").contains("bad: UNKNOWN_SIZE"));
    }

    #[test]
    fn wanting_nothing_is_said_in_a_decision_and_what_is_not_known_is_left_out() {
        let it = v1::Decision { id: "9.1".to_owned(), cluster: "demo".to_owned(), ..v1::Decision::default() };
        let view = DecisionView::from(it);
        assert_eq!(view.name(), "decisions/9.1");
        assert_eq!(view.cells()[3], "nothing");
        let expected = json!({"kind": "decision", "name": "9.1", "cluster": "demo", "desired": {}});
        assert_eq!(serde_json::to_value(&view).expect("JSON"), expected);
    }
}

//! `loadline.configured_signals`: what the leader collects, and what came of it.

use loadline_state_machine::{OptionValue, SignalView, TargetName};

use super::define::{Definition, column, optional};
use super::value::{Kind, Value};

pub(crate) static CONFIGURED_SIGNALS: Definition<SignalView> = Definition {
    schema: "loadline",
    name: "configured_signals",
    comment: "What the leader collects or is told, and what came of it. Secrets are named, never shown.",
    is_view: false,
    key: &[0],
    columns: &[
        column("name", Kind::Text, |_, row| row.signal.name.as_ref().into()),
        column("kind", Kind::Text, |_, row| row.signal.kind.as_str().into()),
        optional("cluster", Kind::Text, |source, row| match source.state.target_name(&row.signal.target) {
            TargetName::Cluster(name) => Some(name).into(),
            TargetName::Pattern(_) | TargetName::All => None::<String>.into(),
        }),
        optional("cluster_pattern", Kind::Text, |source, row| match source.state.target_name(&row.signal.target) {
            TargetName::Pattern(pattern) => Some(pattern).into(),
            TargetName::Cluster(_) | TargetName::All => None::<String>.into(),
        }),
        optional("every", Kind::Text, |_, row| row.signal.every.map(|every| every.to_string()).into()),
        column("options", Kind::Jsonb, |_, row| {
            let options: serde_json::Map<String, serde_json::Value> = row
                .signal
                .options
                .iter()
                .map(|(key, value)| match value {
                    OptionValue::Text(text) => (key.to_owned(), text.as_str().into()),
                    other => (key.to_owned(), other.to_string().into()),
                })
                .collect();
            Value::json(&serde_json::Value::Object(options))
        }),
        optional("value_milli", Kind::Int8, |_, row| row.standing.value_milli.into()),
        optional("collected_at", Kind::Timestamptz, |_, row| row.standing.collected_at.map(Value::time).into()),
        optional("age_ms", Kind::Int8, |source, row| {
            let age = row.standing.collected_at.map(|at| source.state.now().since(at).as_millis());
            age.map(|age| i64::try_from(age).unwrap_or(i64::MAX)).into()
        }),
        column("stale", Kind::Bool, |_, row| row.is_stale().into()),
        column("errors", Kind::Int8, |_, row| i64::try_from(row.standing.errors).unwrap_or(i64::MAX).into()),
        optional("error", Kind::Text, |_, row| row.standing.error.as_deref().map(str::to_owned).into()),
        optional("failed_at", Kind::Timestamptz, |_, row| row.standing.failed_at.map(Value::time).into()),
        column("created_at", Kind::Timestamptz, |_, row| Value::time(row.signal.created_at)),
        column("updated_at", Kind::Timestamptz, |_, row| Value::time(row.signal.updated_at)),
    ],
    rows: |source| {
        let names = source.state.signals_after(None).map(|signal| signal.name.to_string());
        Ok(names.filter_map(|name| source.state.signal_view(&name)).collect())
    },
};

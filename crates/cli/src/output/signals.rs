//! Configured signals as they are shown. As an object one has the form of a manifest; what came of it stands in `status`.

use std::collections::BTreeMap;

use loadline_client::v1;
use loadline_client::v1::strategy_target::Target;
use loadline_state_machine::Span;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Column, View};
use crate::text::show_time;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct SignalView {
    kind: &'static str,
    pub(crate) name: String,
    spec: SignalSpec,
    metadata: Value,
    status: Value,
    #[serde(skip)]
    pub(crate) wire: v1::Signal,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct SignalSpec {
    r#type: String,
    target: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<String>,
    options: BTreeMap<String, String>,
}

/// A whole number of thousandths as people write it.
pub(crate) fn show_milli(milli: i64) -> String {
    let (whole, rest) = (milli.unsigned_abs() / 1_000, milli.unsigned_abs() % 1_000);
    let sign = if milli < 0 { "-" } else { "" };
    let text = format!("{sign}{whole}.{rest:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn show_target(target: Option<&Target>) -> String {
    match target {
        Some(Target::Cluster(name)) => name.clone(),
        Some(Target::Pattern(pattern)) => format!("like '{pattern}'"),
        Some(Target::All(_)) | None => "all clusters".to_owned(),
    }
}

impl From<v1::Signal> for SignalView {
    fn from(it: v1::Signal) -> SignalView {
        let target = match it.target.as_ref().and_then(|target| target.target.as_ref()) {
            Some(Target::Cluster(name)) => json!({"cluster": name}),
            Some(Target::Pattern(pattern)) => json!({"pattern": pattern}),
            Some(Target::All(_)) | None => json!({"all": true}),
        };
        let every = (it.every_ms > 0).then(|| Span::from_millis(it.every_ms).to_string());
        let time = |millis: i64| (millis > 0).then(|| show_time(millis));
        SignalView {
            kind: "signal",
            name: it.name.clone(),
            spec: SignalSpec { r#type: it.r#type.clone(), target, every, options: it.options.clone() },
            metadata: json!({
                "etag": it.etag,
                "create_revision": it.create_revision,
                "update_revision": it.update_revision,
                "create_time": show_time(it.create_time_ms),
            }),
            status: json!({
                "value": it.value_milli.map(show_milli),
                "collect_time": time(it.collect_time_ms),
                "stale": it.stale,
                "errors": it.error_count,
                "error": Some(&it.error).filter(|error| !error.is_empty()),
                "fail_time": time(it.fail_time_ms),
            }),
            wire: it,
        }
    }
}

impl View for SignalView {
    const COLUMNS: &'static [Column] = &[
        Column::always("NAME"),
        Column::always("TYPE"),
        Column::always("FOR"),
        Column::always("EVERY"),
        Column::always("VALUE"),
        Column::always("AGE"),
        Column::always("STALE"),
        Column::always("ERRORS"),
        Column::wide("ERROR"),
        Column::wide("ETAG"),
    ];

    fn cells(&self) -> Vec<String> {
        let it = &self.wire;
        let age = Span::from_millis(it.age_ms / 1_000 * 1_000).to_string();
        vec![
            it.name.clone(),
            it.r#type.clone(),
            show_target(it.target.as_ref().and_then(|target| target.target.as_ref())),
            self.spec.every.clone().unwrap_or_default(),
            it.value_milli.map(show_milli).unwrap_or_default(),
            if it.collect_time_ms > 0 { age } else { String::new() },
            it.stale.to_string(),
            it.error_count.to_string(),
            it.error.clone(),
            it.etag.clone(),
        ]
    }

    fn name(&self) -> String {
        format!("signals/{}", self.name)
    }
}

impl SignalView {
    /// Everything that is known, for `describe`.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let columns = Self::COLUMNS.iter().map(|column| column.head).zip(self.cells());
        let options = self.spec.options.iter().map(|(key, value)| ("OPTION", format!("{key} = {value}")));
        let time = |millis: i64| if millis > 0 { show_time(millis) } else { String::new() };
        let times = [("COLLECTED", time(self.wire.collect_time_ms)), ("FAILED", time(self.wire.fail_time_ms))];
        columns.chain(options).chain(times).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Format, list};
    use super::*;

    fn signal() -> v1::Signal {
        v1::Signal {
            name: "queue".into(),
            r#type: "prometheus".into(),
            target: Some(v1::StrategyTarget { target: Some(Target::Pattern("prod%".into())) }),
            every_ms: 5_000,
            options: [("url", "http://p:9090"), ("query", "sum(q)"), ("password", "env:P"), ("username", "u")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            etag: "7.0".into(),
            value_milli: Some(-12_340),
            collect_time_ms: 1,
            age_ms: 3_200,
            ..v1::Signal::default()
        }
    }

    #[test]
    fn a_signal_is_a_row_and_what_get_prints_as_yaml_changes_nothing_when_it_is_applied() {
        let view = SignalView::from(signal());
        let cells = view.cells();
        assert_eq!(cells[..8], ["queue", "prometheus", "like 'prod%'", "5s", "-12.34", "3s", "false", "0"]);
        let yaml = list(Format::Yaml, "signals", None, &[view]).expect("YAML");
        let manifest = crate::manifest::parse(&yaml).expect("a manifest").remove(0);
        let found = crate::manifest::Found::Signal(signal());
        assert_eq!(crate::manifest::plan(&manifest, Some(&found)).request, None);
    }
}

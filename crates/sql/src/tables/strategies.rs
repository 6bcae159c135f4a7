//! `mz_internal.mz_scaling_strategies`, `mz_scaling_strategy_state` and the view `mz_scaling_strategies_effective`.

use loadline_state_machine::{
    CONFIG_VERSION, Changed, ClusterId, Memory, OptionValue, STRATEGY_STATE_VERSION, Strategy, StrategyId,
    StrategyState, Target, Time,
};
use serde_json::{Value as Json, json};

use super::define::{Definition, column, optional};
use super::error::QueryError;
use super::json;
use super::source::Source;
use super::value::{Kind, Value, timestamp};

/// The option that is a column of its own.
const ENABLED: &str = "enabled";

/// The options as the column `config` shows them: versioned, and without what is a column of its own.
pub fn config_json(strategy: &Strategy) -> Json {
    let options = strategy.options.iter().filter(|(key, _)| *key != ENABLED);
    let mut config = json::object(options.map(|(key, value)| {
        let value = match value {
            OptionValue::Text(text) => json!(text),
            OptionValue::Number(number) => json!(number),
            OptionValue::Bool(value) => json!(value),
        };
        (key, value)
    }));
    if let Json::Object(fields) = &mut config {
        fields.entry("config_version").or_insert(json!(CONFIG_VERSION));
    }
    config
}

fn enabled(strategy: &Strategy) -> bool {
    !matches!(strategy.options.get(ENABLED), Some(OptionValue::Bool(false)))
}

fn target(strategy: &Strategy) -> Option<ClusterId> {
    match strategy.target {
        Target::Cluster(id) => Some(id),
        Target::Pattern(_) | Target::All => None,
    }
}

pub(crate) static STRATEGIES: Definition<Strategy> = Definition {
    schema: "mz_internal",
    name: "mz_scaling_strategies",
    comment: "The configured strategies.",
    is_view: false,
    key: &[0],
    columns: &[
        column("id", Kind::Text, |_, it| Value::show(it.id)),
        optional("cluster_id", Kind::Text, |_, it| target(it).map(Value::show).into()),
        optional("cluster_pattern", Kind::Text, |_, it| match &it.target {
            Target::Pattern(pattern) => Value::from(&**pattern),
            Target::Cluster(_) | Target::All => Value::Null,
        }),
        column("strategy_type", Kind::Text, |_, it| it.kind.as_str().into()),
        column("config", Kind::Jsonb, |_, it| Value::json(&config_json(it))),
        column("enabled", Kind::Bool, |_, it| enabled(it).into()),
        column("created_at", Kind::Timestamptz, |_, it| Value::time(it.created_at)),
        column("updated_at", Kind::Timestamptz, |_, it| Value::time(it.updated_at)),
    ],
    rows: |source| Ok(source.state.strategies().cloned().collect()),
};

/// What one strategy remembers about one cluster that it rules.
pub(crate) struct StateRow {
    strategy: StrategyId,
    cluster: ClusterId,
    payload: Json,
    version: u32,
    updated_at: Time,
}

fn payload(state: Option<&StrategyState>) -> Json {
    let time = |at: Time| json!(timestamp(at));
    let mut fields = vec![("last_change_at", state.and_then(|it| it.last_change_at).map_or(Json::Null, time))];
    match state.map(|it| &it.memory) {
        Some(Memory::FailedSizes(sizes)) => {
            let sizes = sizes.iter().map(|it| json!({"size": &*it.size, "at": time(it.at)}));
            fields.push(("failed_sizes", Json::Array(sizes.collect())));
        }
        Some(Memory::Suspended(replicas)) => {
            let replicas = replicas.iter().map(|it| json!({"name": &*it.name, "size": &*it.size}));
            fields.push(("suspended", Json::Array(replicas.collect())));
        }
        Some(Memory::Course(course)) => {
            let recommendations = course
                .recommendations
                .iter()
                .map(|it| json!({"at": time(it.at), "lowest": it.lowest, "highest": it.highest, "latest": it.latest}));
            let changes = |all: &[Changed]| {
                Json::Array(all.iter().map(|it| json!({"at": time(it.at), "count": it.count})).collect())
            };
            fields.push(("recommendations", Json::Array(recommendations.collect())));
            fields.push(("added", changes(&course.added)));
            fields.push(("removed", changes(&course.removed)));
            if let Some(panic) = &course.panic {
                fields.push(("panic", json!({"at": time(panic.at), "highest": panic.highest})));
            }
        }
        Some(Memory::Nothing) | None => {}
    }
    json::object(fields)
}

/// One row for each cluster and each strategy that rules it, whether or not it has had anything to remember.
fn state_rows(source: &Source) -> Result<Vec<StateRow>, QueryError> {
    let state = &source.state;
    let mut rows = Vec::new();
    if state.strategy_count() == 0 {
        return Ok(rows);
    }
    for (place, cluster) in state.clusters_after(None).enumerate() {
        if place % 1_024 == 0 {
            source.budget.check()?;
        }
        for ruled in state.ruling(cluster.id) {
            let strategy = ruled.strategy;
            let standing = state.standing(cluster.id);
            let known =
                standing.and_then(|it| it.strategy_state(strategy.kind)).filter(|it| it.strategy == strategy.id);
            rows.push(StateRow {
                strategy: strategy.id,
                cluster: cluster.id,
                payload: payload(known),
                version: known.map_or(STRATEGY_STATE_VERSION, |it| it.version),
                updated_at: known.and_then(|it| it.last_change_at).unwrap_or(strategy.updated_at),
            });
        }
    }
    Ok(rows)
}

pub(crate) static STATE: Definition<StateRow> = Definition {
    schema: "mz_internal",
    name: "mz_scaling_strategy_state",
    comment: "What each strategy remembers about each cluster that it rules.",
    is_view: false,
    key: &[0, 1],
    columns: &[
        column("strategy_id", Kind::Text, |_, row| Value::show(row.strategy)),
        column("cluster_id", Kind::Text, |_, row| Value::show(row.cluster)),
        column("state_version", Kind::Int4, |_, row| row.version.into()),
        column("payload", Kind::Jsonb, |_, row| Value::json(&row.payload)),
        column("updated_at", Kind::Timestamptz, |_, row| Value::time(row.updated_at)),
    ],
    rows: state_rows,
};

/// A strategy with one of the clusters that it rules; without one if it rules none.
pub(crate) struct EffectiveRow {
    strategy: StrategyId,
    cluster: Option<ClusterId>,
    payload: Option<Json>,
}

fn strategy<'a>(source: &'a Source, row: &EffectiveRow) -> Option<&'a Strategy> {
    source.state.strategy(row.strategy)
}

pub(crate) static EFFECTIVE: Definition<EffectiveRow> = Definition {
    schema: "mz_internal",
    name: "mz_scaling_strategies_effective",
    comment: "Each strategy with the clusters that it rules.",
    is_view: true,
    key: &[],
    columns: &[
        column("id", Kind::Text, |_, row| Value::show(row.strategy)),
        column("strategy_type", Kind::Text, |source, row| strategy(source, row).map(|it| it.kind.as_str()).into()),
        optional("effective_cluster_id", Kind::Text, |source, row| {
            strategy(source, row).and_then(target).or(row.cluster).map(Value::show).into()
        }),
        column("config", Kind::Jsonb, |source, row| {
            strategy(source, row).map(|it| Value::json(&config_json(it))).into()
        }),
        column("enabled", Kind::Bool, |source, row| strategy(source, row).map(enabled).into()),
        optional("state", Kind::Jsonb, |_, row| row.payload.as_ref().map(Value::json).into()),
    ],
    rows: |source| {
        let mut ruled: std::collections::BTreeMap<StrategyId, Vec<StateRow>> = std::collections::BTreeMap::new();
        for row in state_rows(source)? {
            ruled.entry(row.strategy).or_default().push(row);
        }
        let mut rows = Vec::new();
        for strategy in source.state.strategies() {
            match ruled.remove(&strategy.id) {
                None => rows.push(EffectiveRow { strategy: strategy.id, cluster: None, payload: None }),
                Some(of) => rows.extend(of.into_iter().map(|row| EffectiveRow {
                    strategy: row.strategy,
                    cluster: Some(row.cluster),
                    payload: Some(row.payload),
                })),
            }
        }
        Ok(rows)
    },
};

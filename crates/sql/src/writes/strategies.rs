//! Rows of `mz_scaling_strategies`: what `CREATE`, `ALTER` and `DROP SCALING STRATEGY` say, as a row.
//!
//! `config` replaces all options together: one that is not in it any more, or is null there, goes back to its default. The id
//! and the times of a row are given by the log. What a strategy is for and its type are what it is, so they cannot be changed:
//! what it remembers would be another's.

use loadline_state_machine::{
    ClusterId, Command, OptionValue, Options, State, Strategy, StrategyKind, Target, TargetName,
};
use serde_json::Value as Json;

use super::{Given, Row, at};
use crate::error::{SqlError, SqlState};
use crate::to_command::Change;

const ENABLED: &str = "enabled";
const CONFIG_VERSION: &str = "config_version";

/// Answers whether there is a row to make.
pub(super) fn insert(state: &State, row: &Row<'_>, skip_existing: bool, change: &mut Change) -> Result<bool, SqlError> {
    if let Some(given) = row.get("id").filter(|given| given.text().is_some()) {
        let error = given.wrong(SqlState("428C9"), "cannot insert a non-DEFAULT value into column \"id\"");
        return Err(error.with_hint("The log gives the id. Leave the column out, or say DEFAULT."));
    }
    note_stamped(row, change);
    let target = target(state, row)?;
    let kind = match row.get("strategy_type") {
        None => return Err(missing(row, "strategy_type")),
        Some(given) => kind(given)?,
    };
    let config = row.get("config").ok_or_else(|| missing(row, "config"))?;
    let mut options = options(config)?;
    if let Some(enabled) = row.get(ENABLED) {
        options.set(ENABLED, enabled.bool()?);
    }
    if skip_existing && state.strategy_for(&target, kind).is_some() {
        return Ok(false);
    }
    let command = Command::CreateStrategy { target, kind, options, if_not_exists: skip_existing, unchecked: false };
    change.add(command, row.place("config"));
    Ok(true)
}

pub(super) fn update(state: &State, row: &Row<'_>, change: &mut Change) -> Result<bool, SqlError> {
    let Some(strategy) = found(state, row) else { return Ok(false) };
    note_stamped(row, change);
    let (cluster, pattern) = match &strategy.target {
        Target::Cluster(id) => (Some(id.to_string()), None),
        Target::Pattern(pattern) => (None, Some(pattern.to_string())),
        Target::All => (None, None),
    };
    for (column, current) in [
        ("id", Some(strategy.id.to_string())),
        ("cluster_id", cluster),
        ("cluster_pattern", pattern),
        ("strategy_type", Some(strategy.kind.as_str().to_owned())),
    ] {
        if let Some(given) = row.get(column).filter(|given| given.text() != current) {
            let message = format!("column \"{column}\" of a strategy cannot be changed");
            let hint = "DELETE it and INSERT another one, in one transaction.";
            return Err(given.wrong(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint(hint));
        }
    }
    let (mut wanted, mut reset) = (Options::default(), Vec::new());
    if let Some(config) = row.get("config") {
        wanted = options(config)?;
        let kept = |key: &str| wanted.get(key).is_some() || [ENABLED, CONFIG_VERSION].contains(&key);
        reset = strategy.options.iter().map(|(key, _)| key).filter(|key| !kept(key)).map(str::to_owned).collect();
    }
    if let Some(given) = row.get(ENABLED) {
        let enabled = given.bool()?;
        if enabled == matches!(strategy.options.get(ENABLED), Some(OptionValue::Bool(false))) {
            wanted.set(ENABLED, enabled);
        }
    }
    change.touch(strategy.id);
    if !wanted.is_empty() || !reset.is_empty() {
        let target = name_of(state, strategy);
        let kind = strategy.kind;
        let command = Command::ChangeStrategy { target, kind, options: wanted, reset, etag: None, unchecked: false };
        change.add(command, row.place("config"));
    }
    Ok(true)
}

pub(super) fn delete(state: &State, row: &Row<'_>, change: &mut Change) -> Result<bool, SqlError> {
    let Some(strategy) = found(state, row) else { return Ok(false) };
    change.touch(strategy.id);
    let (target, kind) = (name_of(state, strategy), strategy.kind);
    change.add(Command::DropStrategy { target, kind, etag: None, allow_missing: false }, None);
    Ok(true)
}

fn found<'a>(state: &'a State, row: &Row<'_>) -> Option<&'a Strategy> {
    row.key(0).parse().ok().and_then(|id| state.strategy(id))
}

/// What it is for, as statements say it.
pub(crate) fn name_of(state: &State, strategy: &Strategy) -> TargetName {
    match &strategy.target {
        Target::Cluster(id) => {
            let name = state.cluster_by_id(*id).map(|cluster| cluster.name.clone());
            TargetName::Cluster(name.unwrap_or_else(|| id.to_string()))
        }
        Target::Pattern(pattern) => TargetName::Pattern(pattern.to_string()),
        Target::All => TargetName::All,
    }
}

fn missing(row: &Row<'_>, column: &str) -> SqlError {
    let message = format!("null value in column \"{column}\": it has no default");
    at(SqlError::new(SqlState::NOT_NULL_VIOLATION, message), row.place(column))
}

fn note_stamped(row: &Row<'_>, change: &mut Change) {
    if row.is_stamped("created_at") || row.is_stamped("updated_at") {
        change.note_once("created_at and updated_at are stamped by the log: what was given for them is not used");
    }
}

fn target(state: &State, row: &Row<'_>) -> Result<TargetName, SqlError> {
    let text = |column| row.get(column).and_then(|given| given.text().map(|text| (given, text)));
    match (text("cluster_id"), text("cluster_pattern")) {
        (None, None) => Ok(TargetName::All),
        (None, Some((_, pattern))) => Ok(TargetName::Pattern(pattern)),
        (Some((given, id)), None) => cluster(state, &given, &id),
        (Some(_), Some((given, _))) => {
            let message = "a strategy is for a cluster, for a pattern, or, with neither, for all clusters";
            Err(given.wrong(SqlState::INVALID_PARAMETER_VALUE, message))
        }
    }
}

fn cluster(state: &State, given: &Given<'_>, id: &str) -> Result<TargetName, SqlError> {
    let found = id.parse::<ClusterId>().ok().and_then(|id| state.cluster_by_id(id));
    if let Some(cluster) = found {
        return Ok(TargetName::Cluster(cluster.name.clone()));
    }
    let error = given.wrong(SqlState::UNDEFINED_OBJECT, format!("there is no cluster with the id '{id}'"));
    Err(match state.cluster(id) {
        Some(named) => error.with_hint(format!("The cluster of that name has the id '{}'.", named.id)),
        None => error.with_hint("SELECT id, name FROM mz_clusters lists them."),
    })
}

fn kind(given: Given<'_>) -> Result<StrategyKind, SqlError> {
    let text = given.text().ok_or_else(|| given.null())?;
    text.parse().map_err(|_| {
        let known: Vec<&str> = StrategyKind::PRIORITY_ORDER.iter().map(|kind| kind.as_str()).collect();
        let message = format!("there is no type of strategy '{text}'");
        given.wrong(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(format!("Expected {}.", known.join(", ")))
    })
}

fn options(config: Given<'_>) -> Result<Options, SqlError> {
    let mut options = Options::default();
    for (key, value) in config.json()? {
        let value = match value {
            Json::Null => continue,
            Json::String(text) => OptionValue::Text(text),
            Json::Bool(value) => OptionValue::Bool(value),
            Json::Number(number) if number.as_i64().is_some() => {
                OptionValue::Number(number.as_i64().unwrap_or_default())
            }
            other => {
                let message = format!("{other} is not a value for option {key}");
                let hint = "An option holds a text, a whole number, true or false.";
                return Err(config.wrong(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint));
            }
        };
        options.set(&key, value);
    }
    Ok(options)
}

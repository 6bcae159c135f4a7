//! Rows of `mz_scaling_strategy_state`: what a strategy remembers about a cluster that it rules.
//!
//! There is a row for every strategy and every cluster that it rules, so a row that is deleted comes back empty: the strategy
//! has forgotten its last change, and with it its cooldown, the sizes that failed, and what a suspended cluster is to come back
//! with. An update says what it is to remember instead. Somebody who sets a cluster right by hand needs exactly that, and no
//! statement gives it. What it cannot remember is refused; when it was remembered is for the log to say.

use loadline_state_machine::{
    Changed, ClusterId, Command, Course, FailedSize, Memory, Panic, Recommended, ReplicaSpec, STRATEGY_STATE_VERSION,
    State, StrategyId, StrategyState, Time,
};
use serde_json::Value as Json;

use super::{Given, Row, at};
use crate::error::{SqlError, SqlState};
use crate::tables::value::timestamp_of;
use crate::to_command::Change;

pub(super) fn insert(state: &State, row: &Row<'_>, skip_existing: bool, change: &mut Change) -> Result<bool, SqlError> {
    let id = |column: &str| {
        let given = row.get(column).and_then(|given| Some((given, given.text()?)));
        let missing = || SqlError::new(SqlState::NOT_NULL_VIOLATION, format!("null value in column \"{column}\""));
        given.ok_or_else(|| at(missing(), row.place(column)))
    };
    let (strategy_given, strategy) = id("strategy_id")?;
    let (cluster_given, cluster) = id("cluster_id")?;
    let unknown = |given: Given<'_>, what: &str, id: &str| {
        given.wrong(SqlState::UNDEFINED_OBJECT, format!("there is no {what} with the id '{id}'"))
    };
    let found = strategy.parse().ok().filter(|id| state.strategy(*id).is_some());
    let strategy: StrategyId = found.ok_or_else(|| unknown(strategy_given, "strategy", &strategy))?;
    let found = cluster.parse().ok().filter(|id| state.cluster_by_id(*id).is_some());
    let cluster: ClusterId = found.ok_or_else(|| unknown(cluster_given, "cluster", &cluster))?;
    if remembered(state, strategy, cluster).is_some() {
        if skip_existing {
            return Ok(false);
        }
        let message = format!("{strategy} remembers something about {cluster} already");
        let error = strategy_given.wrong(SqlState("23505"), message);
        return Err(error.with_hint("UPDATE that row, or DELETE it first."));
    }
    set(state, row, (strategy, cluster), change)
}

pub(super) fn update(state: &State, row: &Row<'_>, change: &mut Change) -> Result<bool, SqlError> {
    let Some((strategy, cluster)) = ids(row) else { return Ok(false) };
    for (place, column) in ["strategy_id", "cluster_id"].into_iter().enumerate() {
        if let Some(given) = row.get(column).filter(|given| given.text().as_deref() != Some(row.key(place).as_str())) {
            let message = format!("column \"{column}\" cannot be changed: what is remembered belongs to it");
            return Err(given.wrong(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
    }
    set(state, row, (strategy, cluster), change)
}

pub(super) fn delete(state: &State, row: &Row<'_>, change: &mut Change) -> Result<bool, SqlError> {
    let Some((strategy, cluster)) = ids(row) else { return Ok(false) };
    let expected = remembered(state, strategy, cluster);
    if expected.is_some() {
        change.add(Command::SetStrategyState { strategy, cluster, expected, state: None }, None);
    }
    Ok(true)
}

fn ids(row: &Row<'_>) -> Option<(StrategyId, ClusterId)> {
    row.key(0).parse().ok().zip(row.key(1).parse().ok())
}

fn remembered(state: &State, strategy: StrategyId, cluster: ClusterId) -> Option<StrategyState> {
    let kind = state.strategy(strategy)?.kind;
    let known = state.standing(cluster)?.strategy_state(kind)?;
    (known.strategy == strategy && known.version == STRATEGY_STATE_VERSION).then(|| known.clone())
}

fn set(
    state: &State,
    row: &Row<'_>,
    (strategy, cluster): (StrategyId, ClusterId),
    change: &mut Change,
) -> Result<bool, SqlError> {
    if let Some(given) = row.get("state_version")
        && given.text() != Some(STRATEGY_STATE_VERSION.to_string())
    {
        let message = format!("state_version is {STRATEGY_STATE_VERSION}");
        return Err(given.wrong(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if row.is_stamped("updated_at") {
        change.note_once("updated_at is stamped by the log: what was given for it is not used");
    }
    let Some(payload) = row.get("payload") else { return Ok(true) };
    let wanted = read(payload, strategy)?;
    let expected = remembered(state, strategy, cluster);
    if expected != wanted {
        change.add(Command::SetStrategyState { strategy, cluster, expected, state: wanted }, payload.place);
    }
    Ok(true)
}

/// As the table shows it; nothing if there is nothing in it.
fn read(payload: Given<'_>, strategy: StrategyId) -> Result<Option<StrategyState>, SqlError> {
    let wrong = |message: String| {
        let hint = "As in {\"last_change_at\": \"2026-11-16 10:00:00+00\", \"failed_sizes\": [{\"size\": \"25cc\", \"at\": ...}], \
                    \"suspended\": [{\"name\": \"r1\", \"size\": \"25cc\"}]}.";
        payload.wrong(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint)
    };
    let time = |what: &str, value: &Json| {
        let micros = value.as_str().and_then(timestamp_of);
        let millis = micros.and_then(|micros| u64::try_from(micros / 1_000).ok());
        millis.map(Time::from_millis).ok_or_else(|| wrong(format!("{what} is not a time: {value}")))
    };
    let text = |of: &Json, field: &str| {
        let found = of.get(field).and_then(Json::as_str);
        found.map(str::to_owned).ok_or_else(|| wrong(format!("{of} has no text \"{field}\"")))
    };
    let list = |what: &str, value: &Json| {
        value.as_array().cloned().ok_or_else(|| wrong(format!("{what} is not a list: {value}")))
    };
    let count = |of: &Json, field: &str| {
        let found = of.get(field).and_then(Json::as_u64).and_then(|count| u32::try_from(count).ok());
        found.ok_or_else(|| wrong(format!("{of} has no count \"{field}\"")))
    };
    let mut course: Option<Course> = None;
    let mut state =
        StrategyState { version: STRATEGY_STATE_VERSION, strategy, last_change_at: None, memory: Memory::Nothing };
    for (key, value) in payload.json()? {
        match key.as_str() {
            _ if value.is_null() => {}
            "last_change_at" => state.last_change_at = Some(time(&key, &value)?),
            "failed_sizes" => {
                let one = |it: &Json| {
                    let at = time("at", it.get("at").unwrap_or(&Json::Null))?;
                    Ok(FailedSize { size: text(it, "size")?.into(), at })
                };
                let sizes: Vec<FailedSize> = list(&key, &value)?.iter().map(one).collect::<Result<_, SqlError>>()?;
                if !sizes.is_empty() {
                    state.memory = Memory::FailedSizes(sizes);
                }
            }
            "suspended" => {
                let one =
                    |it: &Json| Ok(ReplicaSpec { name: text(it, "name")?.into(), size: text(it, "size")?.into() });
                let mut all: Vec<ReplicaSpec> = list(&key, &value)?.iter().map(one).collect::<Result<_, SqlError>>()?;
                all.sort();
                if !all.is_empty() {
                    state.memory = Memory::Suspended(all);
                }
            }
            "recommendations" => {
                let one = |it: &Json| {
                    let at = time("at", it.get("at").unwrap_or(&Json::Null))?;
                    let (lowest, highest) = (count(it, "lowest")?, count(it, "highest")?);
                    Ok(Recommended { at, lowest, highest, latest: count(it, "latest")? })
                };
                let all = list(&key, &value)?.iter().map(one).collect::<Result<_, SqlError>>()?;
                course.get_or_insert_default().recommendations = all;
            }
            "added" | "removed" => {
                let one = |it: &Json| {
                    let at = time("at", it.get("at").unwrap_or(&Json::Null))?;
                    Ok(Changed { at, count: count(it, "count")? })
                };
                let all = list(&key, &value)?.iter().map(one).collect::<Result<_, SqlError>>()?;
                let course = course.get_or_insert_default();
                if key == "added" {
                    course.added = all;
                } else {
                    course.removed = all;
                }
            }
            "panic" => {
                let at = time("at", value.get("at").unwrap_or(&Json::Null))?;
                course.get_or_insert_default().panic = Some(Panic { at, highest: count(&value, "highest")? });
            }
            _ => return Err(wrong(format!("a strategy remembers nothing called {key:?}"))),
        }
    }
    if let Some(course) = course.filter(|course| *course != Course::default()) {
        state.memory = Memory::Course(Box::new(course));
    }
    let empty = state.last_change_at.is_none() && state.memory == Memory::Nothing;
    Ok((!empty).then_some(state))
}

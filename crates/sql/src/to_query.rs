//! Statements that only ask, as the queries of the tables that they are short for.

use loadline_state_machine::State;

use crate::error::{SqlError, SqlState};
use crate::print::{quote_identifier, quote_literal};
use crate::statement::{ShowActions, Statement, TargetName};

/// The query that a statement stands for; nothing if it stands for none, or for a parameter of the session.
pub fn to_query(statement: &Statement, state: &State) -> Result<Option<String>, SqlError> {
    Ok(Some(match statement {
        Statement::ShowStrategies { target } => {
            require_feature(state)?;
            strategies(target.as_ref(), state)?
        }
        Statement::ShowActions(show) => {
            require_feature(state)?;
            actions(show, state)?
        }
        Statement::ShowSignals => SIGNALS.to_owned(),
        Statement::Show { name: Some(name) } if state.setting(name).is_some() => {
            let shown = quote_identifier(name);
            format!("SELECT value AS {shown} FROM loadline.settings WHERE name = {}", quote_literal(name))
        }
        Statement::Show { name: None } => {
            "SELECT name, value AS setting, description FROM loadline.settings ORDER BY name".to_owned()
        }
        _ => return Ok(None),
    }))
}

const SIGNALS: &str = "SELECT name, kind, cluster, cluster_pattern, every, value_milli / 1000.0 AS value, age_ms / 1000.0 AS \
                       age_seconds, stale, errors, error FROM loadline.configured_signals ORDER BY name";

/// While the feature is off its statements are refused, those that only ask too.
fn require_feature(state: &State) -> Result<(), SqlError> {
    if state.setting("enable_auto_scaling").is_some_and(|setting| setting.value == "true") {
        return Ok(());
    }
    let message = "auto-scaling is not enabled";
    let hint = "ALTER SYSTEM SET enable_auto_scaling = true;";
    Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_hint(hint))
}

fn cluster_id(state: &State, name: &str) -> Result<String, SqlError> {
    let missing = || SqlError::new(SqlState::UNDEFINED_OBJECT, format!("unknown cluster '{name}'"));
    Ok(state.cluster(name).ok_or_else(missing)?.id.to_string())
}

fn strategies(target: Option<&TargetName>, state: &State) -> Result<String, SqlError> {
    let only = match target {
        None => String::new(),
        Some(TargetName::Cluster(name)) => {
            format!(" WHERE s.cluster_id = {}", quote_literal(&cluster_id(state, name)?))
        }
        Some(TargetName::Pattern(pattern)) => format!(" WHERE s.cluster_pattern = {}", quote_literal(pattern)),
        Some(TargetName::All) => " WHERE s.cluster_id IS NULL AND s.cluster_pattern IS NULL".to_owned(),
    };
    Ok(format!(
        "SELECT s.id, c.name AS cluster, s.cluster_pattern, s.strategy_type, s.config, s.enabled, s.created_at, s.updated_at \
         FROM mz_internal.mz_scaling_strategies s LEFT JOIN mz_clusters c ON c.id = s.cluster_id{only} \
         ORDER BY s.created_at, s.id"
    ))
}

fn actions(show: &ShowActions, state: &State) -> Result<String, SqlError> {
    let only = match &show.cluster {
        Some(name) => format!(" WHERE a.cluster_id = {}", quote_literal(&cluster_id(state, name)?)),
        None => String::new(),
    };
    let limit = show.limit.map(|limit| format!(" LIMIT {limit}")).unwrap_or_default();
    Ok(format!(
        "SELECT a.action_id, c.name AS cluster, a.strategy_id, a.action_type, a.action_sql, a.reason, a.executed, \
         a.error_message, a.created_at FROM mz_internal.mz_scaling_actions a LEFT JOIN mz_clusters c ON c.id = a.cluster_id\
         {only} ORDER BY a.action_id DESC{limit}"
    ))
}

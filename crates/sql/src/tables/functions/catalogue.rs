//! What psql and drivers ask about the server itself.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value as Sqlite, ValueRef};
use rusqlite::{Connection, Result};

use super::{argument, failed, number, optional, pure, text_of};
use crate::SqlState;
use crate::tables::catalog::relations::{index_definition, key_definition};
use crate::tables::catalog::{OWNER_OID, SCHEMAS, schema_oid, table_by_key_oid, table_by_oid, table_oid};
use crate::tables::define::Table;
use crate::tables::error::code;
use crate::tables::find_table;
use crate::tables::source::Source;
use crate::tables::value::{Kind, Value, array_text};

/// What clients take us for. psql adapts its own queries to it.
pub(crate) const SERVER_VERSION: &str = "15.0 (loadline)";

/// Depends on the session, so that SQLite asks again for every row.
fn asked<T: rusqlite::functions::SqlFnOutput>(
    connection: &Connection,
    name: &str,
    arguments: i32,
    function: impl Fn(&Context<'_>) -> Result<T> + Send + 'static,
) -> Result<()> {
    connection.create_scalar_function(name, arguments, FunctionFlags::SQLITE_UTF8, function)
}

pub(super) fn register(connection: &Connection, source: &Arc<Source>) -> Result<()> {
    session(connection, source)?;
    names(connection, source)?;
    definitions(connection)?;
    always(connection)
}

fn session(connection: &Connection, source: &Arc<Source>) -> Result<()> {
    let fact = |read: fn(&Source) -> Sqlite| {
        let source = Arc::clone(source);
        move |_: &Context<'_>| Ok(read(&source))
    };
    let text = |text: &str| Sqlite::Text(text.to_owned());
    let _ = text;
    asked(connection, "pg_current_user", -1, fact(|it| Sqlite::Text(it.session.user.clone())))?;
    asked(connection, "pg_current_database", -1, fact(|it| Sqlite::Text(it.session.database.clone())))?;
    asked(connection, "pg_current_schema", -1, fact(|it| optional(it.session.search_path.first().cloned())))?;
    asked(connection, "pg_current_schemas", -1, {
        let source = Arc::clone(source);
        move |it| {
            let implicit = matches!(it.get_raw(0), ValueRef::Integer(1)).then(|| "pg_catalog".to_owned());
            Ok(array_text(implicit.into_iter().chain(source.session.search_path.iter().cloned()).map(Some)))
        }
    })?;
    asked(connection, "pg_backend_pid", 0, fact(|it| Sqlite::Integer(it.session.process_id)))?;
    asked(connection, "inet_server_addr", 0, fact(|it| Sqlite::Text(it.session.server_address.clone())))?;
    asked(connection, "inet_server_port", 0, fact(|it| Sqlite::Integer(it.session.server_port)))?;
    asked(
        connection,
        "loadline_index",
        0,
        fact(|it| Sqlite::Integer(i64::try_from(it.state.applied().0).unwrap_or(0))),
    )?;
    asked(connection, "txid_current", 0, fact(|it| Sqlite::Integer(i64::try_from(it.state.applied().0).unwrap_or(0))))?;
    asked(connection, "pg_current_setting", -1, {
        let source = Arc::clone(source);
        move |it| {
            let name = argument(it, 0).unwrap_or_default().to_ascii_lowercase();
            let of_session = source.session.settings.iter().find(|(known, _)| *known == name);
            let value = of_session.map(|(_, value)| value.clone());
            let value = value.or_else(|| source.state.setting(&name).map(|setting| setting.value));
            let missing_is_fine = matches!(number(it, 1), Some(1));
            if value.is_none() && !missing_is_fine {
                let message = format!("unrecognized configuration parameter \"{name}\"");
                return Err(failed(code::UNDEFINED_OBJECT, message));
            }
            Ok(optional(value))
        }
    })?;
    // A function cannot change the session; what is asked for must be set already.
    asked(connection, "set_config", 3, |it| Ok(optional(argument(it, 1))))?;
    asked(connection, "pg_sleep", 1, {
        let source = Arc::clone(source);
        move |it| {
            let seconds = argument(it, 0).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
            let until = std::time::Instant::now() + Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4);
            while std::time::Instant::now() < until {
                source.budget.check().map_err(|error| failed(error.sqlstate, error.message))?;
                let rest = until.saturating_duration_since(std::time::Instant::now());
                std::thread::sleep(rest.min(Duration::from_millis(10)));
            }
            Ok(Sqlite::Text(String::new()))
        }
    })
}

fn names(connection: &Connection, source: &Arc<Source>) -> Result<()> {
    let path = source.session.search_path.clone();
    asked(connection, "pg_table_is_visible", 1, move |it| {
        let Some(table) = number(it, 0).and_then(|oid| table_by_oid(oid).or_else(|| table_by_key_oid(oid))) else {
            return Ok(false);
        };
        Ok(table.schema() == "pg_catalog" || path.iter().any(|schema| schema == table.schema()))
    })?;
    let path = source.session.search_path.clone();
    asked(connection, "pg_regclass", 1, move |it| match it.get_raw(0) {
        ValueRef::Null => Ok(Sqlite::Null),
        ValueRef::Integer(oid) => Ok(Sqlite::Text(relation_name(oid, &path))),
        other => {
            let text = text_of(other).unwrap_or_default();
            if let Ok(oid) = text.parse::<i64>() {
                return Ok(Sqlite::Text(relation_name(oid, &path)));
            }
            let plain = text.replace('"', "");
            let (schema, name) = match plain.rsplit_once('.') {
                Some((schema, name)) => (Some(schema), name),
                None => (None, plain.as_str()),
            };
            match find_table(schema, name, &path).and_then(table_oid) {
                Some(oid) => Ok(Sqlite::Integer(oid)),
                None => Err(failed(code::UNDEFINED_TABLE, format!("relation \"{text}\" does not exist"))),
            }
        }
    })?;
    pure(connection, "pg_regtype", 1, |it| match it.get_raw(0) {
        ValueRef::Null => Ok(Sqlite::Null),
        ValueRef::Integer(oid) => Ok(Sqlite::Text(type_name(oid))),
        other => {
            let text = text_of(other).unwrap_or_default();
            let bare = text.strip_prefix("pg_catalog.").unwrap_or(&text);
            match Kind::from_sql(bare) {
                Some(kind) => Ok(Sqlite::Integer(kind.oid().into())),
                None => Err(failed(code::UNDEFINED_OBJECT, format!("type \"{text}\" does not exist"))),
            }
        }
    })?;
    pure(connection, "pg_regnamespace", 1, |it| match it.get_raw(0) {
        ValueRef::Null => Ok(Sqlite::Null),
        ValueRef::Integer(oid) => {
            let name = SCHEMAS.iter().find(|(_, known)| *known == oid).map(|(name, _)| (*name).to_owned());
            Ok(Sqlite::Text(name.unwrap_or_else(|| oid.to_string())))
        }
        other => {
            let text = text_of(other).unwrap_or_default();
            match schema_oid(&text) {
                Some(oid) => Ok(Sqlite::Integer(oid)),
                None => Err(failed(SqlState("3F000"), format!("schema \"{text}\" does not exist"))),
            }
        }
    })?;
    let user = source.session.user.clone();
    asked(connection, "pg_get_userbyid", 1, move |it| match number(it, 0) {
        Some(OWNER_OID) => Ok(user.clone()),
        other => Ok(format!("unknown (OID={})", other.unwrap_or(0))),
    })
}

fn relation_name(oid: i64, path: &[String]) -> String {
    match (table_by_oid(oid), table_by_key_oid(oid)) {
        (Some(table), _) if path.iter().any(|schema| schema == table.schema()) => table.name().to_owned(),
        (Some(table), _) => format!("{}.{}", table.schema(), table.name()),
        (None, Some(table)) => crate::tables::catalog::key_name(table),
        (None, None) => oid.to_string(),
    }
}

fn type_name(oid: i64) -> String {
    let kind = Kind::ALL.iter().find(|kind| i64::from(kind.oid()) == oid);
    kind.map_or_else(|| "???".to_owned(), |kind| kind.sql_name().to_owned())
}

fn definitions(connection: &Connection) -> Result<()> {
    pure(connection, "format_type", 2, |it| Ok(number(it, 0).map(type_name)))?;
    pure(connection, "pg_get_constraintdef", -1, |it| {
        Ok(number(it, 0).and_then(table_by_key_oid).map(key_definition))
    })?;
    pure(connection, "pg_get_indexdef", -1, |it| {
        let Some(table) = number(it, 0).and_then(table_by_key_oid) else { return Ok(None) };
        // With a number: only that column.
        match number(it, 1).filter(|column| *column > 0) {
            Some(column) => {
                let place = usize::try_from(column - 1).unwrap_or(usize::MAX);
                Ok(crate::tables::catalog::key_columns(table).get(place).map(|name| (*name).to_owned()))
            }
            None => Ok(Some(index_definition(table))),
        }
    })?;
    pure(connection, "obj_description", -1, |it| {
        let comment = number(it, 0).and_then(table_by_oid).map(Table::comment);
        Ok(comment.filter(|comment| !comment.is_empty()).map(str::to_owned))
    })?;
    pure(connection, "pg_get_viewdef", -1, |it| {
        Ok(number(it, 0).and_then(table_by_oid).map(|table| format!(" -- {}", table.comment())))
    })
}

/// Always the same, whatever is asked.
fn always(connection: &Connection) -> Result<()> {
    let version = format!("PostgreSQL {SERVER_VERSION} {}", env!("CARGO_PKG_VERSION"));
    pure(connection, "pg_version", 0, move |_| Ok(version.clone()))?;
    for name in [
        "has_table_privilege",
        "has_schema_privilege",
        "has_database_privilege",
        "has_column_privilege",
        "has_any_column_privilege",
        "has_function_privilege",
        "pg_type_is_visible",
        "pg_function_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_opfamily_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
        "pg_has_role",
    ] {
        constant(connection, name, Value::Bool(true))?;
    }
    for name in ["pg_is_in_recovery", "pg_relation_is_publishable", "pg_is_other_temp_schema", "pg_try_advisory_lock"] {
        constant(connection, name, Value::Bool(false))?;
    }
    for name in [
        "col_description",
        "shobj_description",
        "pg_get_expr",
        "pg_get_partkeydef",
        "pg_get_statisticsobjdef_columns",
        "pg_get_function_arguments",
        "pg_get_function_result",
        "pg_get_function_sqlbody",
        "pg_get_function_identity_arguments",
        "pg_get_functiondef",
        "pg_get_triggerdef",
        "pg_get_ruledef",
        "pg_get_serial_sequence",
        "pg_tablespace_location",
        "pg_my_temp_schema_name",
        "pg_advisory_unlock_all",
    ] {
        constant(connection, name, Value::Null)?;
    }
    for name in [
        "pg_table_size",
        "pg_total_relation_size",
        "pg_relation_size",
        "pg_indexes_size",
        "pg_database_size",
        "pg_tablespace_size",
        "pg_my_temp_schema",
        "pg_relation_is_updatable",
        "pg_column_is_updatable",
    ] {
        constant(connection, name, Value::Int(0))?;
    }
    for name in ["pg_encoding_to_char", "getdatabaseencoding", "pg_client_encoding"] {
        constant(connection, name, Value::from("UTF8"))?;
    }
    constant(connection, "pg_char_to_encoding", Value::Int(6))?;
    pure(connection, "pg_size_pretty", 1, |it| Ok(number(it, 0).map(|bytes| format!("{bytes} bytes"))))
}

fn constant(connection: &Connection, name: &str, value: Value) -> Result<()> {
    let value = match value {
        Value::Null => Sqlite::Null,
        Value::Bool(value) => Sqlite::Integer(value.into()),
        Value::Int(value) => Sqlite::Integer(value),
        Value::Float(value) => Sqlite::Real(value),
        Value::Text(value) => Sqlite::Text(value),
    };
    pure(connection, name, -1, move |_| Ok(value.clone()))
}

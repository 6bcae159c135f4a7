//! `information_schema`: our tables as the standard describes them.

use super::{Listed, SCHEMAS, key_columns, key_name, numbered_tables};
use crate::tables::value::{Kind, Value};

fn text(value: &str) -> Value {
    Value::from(value)
}

fn yes_or_no(value: bool) -> Value {
    text(if value { "YES" } else { "NO" })
}

pub(crate) static SCHEMATA: Listed = Listed {
    schema: "information_schema",
    name: "schemata",
    columns: &[("catalog_name", Kind::Name), ("schema_name", Kind::Name), ("schema_owner", Kind::Name)],
    rows: |source| {
        let row = |(name, _): &(&str, i64)| vec![text(&source.session.database), text(name), text("loadline")];
        SCHEMAS.iter().map(row).collect()
    },
};

pub(crate) static INFORMATION_TABLES: Listed = Listed {
    schema: "information_schema",
    name: "tables",
    columns: &[
        ("table_catalog", Kind::Name),
        ("table_schema", Kind::Name),
        ("table_name", Kind::Name),
        ("table_type", Kind::Text),
        ("is_insertable_into", Kind::Text),
    ],
    rows: |source| {
        let row = |(_, table): (i64, &'static dyn crate::tables::define::Table)| {
            let kind = if table.is_view() { "VIEW" } else { "BASE TABLE" };
            let writable = table.schema() == "mz_internal" && !table.is_view();
            vec![
                text(&source.session.database),
                text(table.schema()),
                text(table.name()),
                text(kind),
                yes_or_no(writable),
            ]
        };
        numbered_tables().map(row).collect()
    },
};

pub(crate) static INFORMATION_VIEWS: Listed = Listed {
    schema: "information_schema",
    name: "views",
    columns: &[
        ("table_catalog", Kind::Name),
        ("table_schema", Kind::Name),
        ("table_name", Kind::Name),
        ("view_definition", Kind::Text),
    ],
    rows: |source| {
        let views = numbered_tables().filter(|(_, table)| table.is_view());
        let database = &source.session.database;
        views.map(|(_, it)| vec![text(database), text(it.schema()), text(it.name()), Value::Null]).collect()
    },
};

pub(crate) static INFORMATION_COLUMNS: Listed = Listed {
    schema: "information_schema",
    name: "columns",
    columns: &[
        ("table_catalog", Kind::Name),
        ("table_schema", Kind::Name),
        ("table_name", Kind::Name),
        ("column_name", Kind::Name),
        ("ordinal_position", Kind::Int4),
        ("column_default", Kind::Text),
        ("is_nullable", Kind::Text),
        ("data_type", Kind::Text),
        ("character_maximum_length", Kind::Int4),
        ("numeric_precision", Kind::Int4),
        ("numeric_scale", Kind::Int4),
        ("udt_schema", Kind::Name),
        ("udt_name", Kind::Name),
        ("is_updatable", Kind::Text),
    ],
    rows: |source| {
        let mut rows = Vec::new();
        for (_, table) in numbered_tables() {
            for (column, number) in table.columns().into_iter().zip(1_i64..) {
                let array = matches!(column.kind, Kind::TextArray | Kind::OidArray | Kind::Int2Array);
                rows.push(vec![
                    text(&source.session.database),
                    text(table.schema()),
                    text(table.name()),
                    text(column.name),
                    Value::Int(number),
                    Value::Null,
                    yes_or_no(column.nullable),
                    text(if array { "ARRAY" } else { column.kind.sql_name() }),
                    Value::Null,
                    Value::Null,
                    Value::Null,
                    text("pg_catalog"),
                    text(column.kind.name()),
                    yes_or_no(false),
                ]);
            }
        }
        rows
    },
};

pub(crate) static TABLE_CONSTRAINTS: Listed = Listed {
    schema: "information_schema",
    name: "table_constraints",
    columns: &[
        ("constraint_catalog", Kind::Name),
        ("constraint_schema", Kind::Name),
        ("constraint_name", Kind::Name),
        ("table_schema", Kind::Name),
        ("table_name", Kind::Name),
        ("constraint_type", Kind::Text),
    ],
    rows: |source| {
        let keyed = numbered_tables().filter(|(_, table)| !table.key().is_empty());
        let row = |(_, table): (i64, &'static dyn crate::tables::define::Table)| {
            vec![
                text(&source.session.database),
                text(table.schema()),
                Value::Text(key_name(table)),
                text(table.schema()),
                text(table.name()),
                text("PRIMARY KEY"),
            ]
        };
        keyed.map(row).collect()
    },
};

pub(crate) static KEY_COLUMN_USAGE: Listed = Listed {
    schema: "information_schema",
    name: "key_column_usage",
    columns: &[
        ("constraint_schema", Kind::Name),
        ("constraint_name", Kind::Name),
        ("table_schema", Kind::Name),
        ("table_name", Kind::Name),
        ("column_name", Kind::Name),
        ("ordinal_position", Kind::Int4),
    ],
    rows: |_| {
        let mut rows = Vec::new();
        for (_, table) in numbered_tables() {
            for (column, number) in key_columns(table).into_iter().zip(1_i64..) {
                rows.push(vec![
                    text(table.schema()),
                    Value::Text(key_name(table)),
                    text(table.schema()),
                    text(table.name()),
                    text(column),
                    Value::Int(number),
                ]);
            }
        }
        rows
    },
};

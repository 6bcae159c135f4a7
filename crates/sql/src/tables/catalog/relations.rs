//! Our tables, as `pg_catalog` describes them.

use super::{Listed, OWNER_OID, SCHEMAS, key_columns, key_name, key_oid, numbered_tables, schema_oid};
use crate::tables::define::Table;
use crate::tables::value::{Kind, Value};

fn none() -> Value {
    Value::Null
}

fn int(value: i64) -> Value {
    Value::Int(value)
}

fn yes(value: bool) -> Value {
    Value::Bool(value)
}

fn text(value: &str) -> Value {
    Value::from(value)
}

pub(crate) static PG_NAMESPACE: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_namespace",
    columns: &[("oid", Kind::Oid), ("nspname", Kind::Name), ("nspowner", Kind::Oid), ("nspacl", Kind::TextArray)],
    rows: |_| SCHEMAS.iter().map(|(name, oid)| vec![int(*oid), text(name), int(OWNER_OID), none()]).collect(),
};

fn relation(oid: i64, name: &str, schema: &str, kind: &str, columns: usize, has_key: bool) -> Vec<Value> {
    vec![
        int(oid),
        text(name),
        int(schema_oid(schema).unwrap_or(0)),
        int(0),
        int(0),
        int(OWNER_OID),
        int(if kind == "v" { 0 } else { 2 }),
        int(0),
        int(0),
        int(0),
        Value::Float(-1.0),
        int(0),
        int(0),
        yes(has_key),
        yes(false),
        text("p"),
        text(kind),
        Value::count(columns),
        int(0),
        yes(false),
        yes(kind == "v"),
        yes(false),
        yes(false),
        yes(false),
        yes(false),
        yes(true),
        text("n"),
        yes(false),
        int(0),
        int(0),
        none(),
        none(),
        none(),
    ]
}

pub(crate) static PG_CLASS: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_class",
    columns: &[
        ("oid", Kind::Oid),
        ("relname", Kind::Name),
        ("relnamespace", Kind::Oid),
        ("reltype", Kind::Oid),
        ("reloftype", Kind::Oid),
        ("relowner", Kind::Oid),
        ("relam", Kind::Oid),
        ("relfilenode", Kind::Oid),
        ("reltablespace", Kind::Oid),
        ("relpages", Kind::Int4),
        ("reltuples", Kind::Float8),
        ("relallvisible", Kind::Int4),
        ("reltoastrelid", Kind::Oid),
        ("relhasindex", Kind::Bool),
        ("relisshared", Kind::Bool),
        ("relpersistence", Kind::Char),
        ("relkind", Kind::Char),
        ("relnatts", Kind::Int2),
        ("relchecks", Kind::Int2),
        ("relhasrules", Kind::Bool),
        ("relhasview", Kind::Bool),
        ("relhastriggers", Kind::Bool),
        ("relhassubclass", Kind::Bool),
        ("relrowsecurity", Kind::Bool),
        ("relforcerowsecurity", Kind::Bool),
        ("relispopulated", Kind::Bool),
        ("relreplident", Kind::Char),
        ("relispartition", Kind::Bool),
        ("relrewrite", Kind::Oid),
        ("relfrozenxid", Kind::Int4),
        ("relacl", Kind::TextArray),
        ("reloptions", Kind::TextArray),
        ("relpartbound", Kind::Text),
    ],
    rows: |_| {
        let mut rows = Vec::new();
        for (oid, table) in numbered_tables() {
            let kind = if table.is_view() { "v" } else { "r" };
            let has_key = !table.key().is_empty();
            rows.push(relation(oid, table.name(), table.schema(), kind, table.columns().len(), has_key));
            if has_key {
                rows.push(relation(key_oid(oid), &key_name(table), table.schema(), "i", table.key().len(), false));
            }
        }
        rows
    },
};

fn attributes(oid: i64, columns: Vec<(&'static str, Kind, bool)>) -> impl Iterator<Item = Vec<Value>> {
    columns.into_iter().zip(1..).map(move |((name, kind, nullable), number)| {
        vec![
            int(oid),
            text(name),
            int(kind.oid().into()),
            int(-1),
            int(kind.length()),
            int(number),
            int(0),
            int(-1),
            int(-1),
            yes(kind.length() > 0),
            text("p"),
            text("i"),
            yes(!nullable),
            yes(false),
            yes(false),
            text(""),
            text(""),
            text(""),
            yes(false),
            yes(true),
            int(0),
            int(if matches!(kind, Kind::Text | Kind::Name | Kind::TextArray) { 100 } else { 0 }),
            none(),
            none(),
            none(),
            none(),
        ]
    })
}

pub(crate) static PG_ATTRIBUTE: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_attribute",
    columns: &[
        ("attrelid", Kind::Oid),
        ("attname", Kind::Name),
        ("atttypid", Kind::Oid),
        ("attstattarget", Kind::Int4),
        ("attlen", Kind::Int2),
        ("attnum", Kind::Int2),
        ("attndims", Kind::Int4),
        ("attcacheoff", Kind::Int4),
        ("atttypmod", Kind::Int4),
        ("attbyval", Kind::Bool),
        ("attstorage", Kind::Char),
        ("attalign", Kind::Char),
        ("attnotnull", Kind::Bool),
        ("atthasdef", Kind::Bool),
        ("atthasmissing", Kind::Bool),
        ("attcompression", Kind::Char),
        ("attidentity", Kind::Char),
        ("attgenerated", Kind::Char),
        ("attisdropped", Kind::Bool),
        ("attislocal", Kind::Bool),
        ("attinhcount", Kind::Int4),
        ("attcollation", Kind::Oid),
        ("attacl", Kind::TextArray),
        ("attoptions", Kind::TextArray),
        ("attfdwoptions", Kind::TextArray),
        ("attmissingval", Kind::TextArray),
    ],
    rows: |_| {
        let mut rows = Vec::new();
        for (oid, table) in numbered_tables() {
            let columns = table.columns();
            rows.extend(attributes(oid, columns.iter().map(|it| (it.name, it.kind, it.nullable)).collect()));
            if !table.key().is_empty() {
                let key = table.key().iter().filter_map(|place| columns.get(*place));
                rows.extend(attributes(key_oid(oid), key.map(|it| (it.name, it.kind, it.nullable)).collect()));
            }
        }
        rows
    },
};

fn key_numbers(table: &dyn Table) -> Vec<String> {
    table.key().iter().map(|place| (place + 1).to_string()).collect()
}

pub(crate) static PG_INDEX: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_index",
    columns: &[
        ("indexrelid", Kind::Oid),
        ("indrelid", Kind::Oid),
        ("indnatts", Kind::Int2),
        ("indnkeyatts", Kind::Int2),
        ("indisunique", Kind::Bool),
        ("indnullsnotdistinct", Kind::Bool),
        ("indisprimary", Kind::Bool),
        ("indisexclusion", Kind::Bool),
        ("indimmediate", Kind::Bool),
        ("indisclustered", Kind::Bool),
        ("indisvalid", Kind::Bool),
        ("indcheckxmin", Kind::Bool),
        ("indisready", Kind::Bool),
        ("indislive", Kind::Bool),
        ("indisreplident", Kind::Bool),
        ("indkey", Kind::Int2Array),
        ("indcollation", Kind::OidArray),
        ("indclass", Kind::OidArray),
        ("indoption", Kind::Int2Array),
        ("indexprs", Kind::Text),
        ("indpred", Kind::Text),
    ],
    rows: |_| {
        let keyed = numbered_tables().filter(|(_, table)| !table.key().is_empty());
        let row = |(oid, table): (i64, &'static dyn Table)| {
            let count = Value::count(table.key().len());
            vec![
                int(key_oid(oid)),
                int(oid),
                count.clone(),
                count,
                yes(true),
                yes(false),
                yes(true),
                yes(false),
                yes(true),
                yes(false),
                yes(true),
                yes(false),
                yes(true),
                yes(true),
                yes(false),
                Value::Text(key_numbers(table).join(" ")),
                text("0"),
                text("0"),
                text("0"),
                none(),
                none(),
            ]
        };
        keyed.map(row).collect()
    },
};

/// The catalogue of constraints itself, as PostgreSQL numbers it.
const CONSTRAINTS_OID: i64 = 2606;

pub(crate) static PG_CONSTRAINT: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_constraint",
    columns: &[
        ("oid", Kind::Oid),
        ("conname", Kind::Name),
        ("connamespace", Kind::Oid),
        ("contype", Kind::Char),
        ("condeferrable", Kind::Bool),
        ("condeferred", Kind::Bool),
        ("convalidated", Kind::Bool),
        ("conrelid", Kind::Oid),
        ("contypid", Kind::Oid),
        ("conindid", Kind::Oid),
        ("conparentid", Kind::Oid),
        ("confrelid", Kind::Oid),
        ("confupdtype", Kind::Char),
        ("confdeltype", Kind::Char),
        ("confmatchtype", Kind::Char),
        ("conislocal", Kind::Bool),
        ("coninhcount", Kind::Int4),
        ("connoinherit", Kind::Bool),
        ("conkey", Kind::Int2Array),
        ("confkey", Kind::Int2Array),
        ("conbin", Kind::Text),
        ("tableoid", Kind::Oid),
    ],
    rows: |_| {
        let keyed = numbered_tables().filter(|(_, table)| !table.key().is_empty());
        let row = |(oid, table): (i64, &'static dyn Table)| {
            vec![
                int(key_oid(oid)),
                Value::Text(key_name(table)),
                int(schema_oid(table.schema()).unwrap_or(0)),
                text("p"),
                yes(false),
                yes(false),
                yes(true),
                int(oid),
                int(0),
                int(key_oid(oid)),
                int(0),
                int(0),
                text(" "),
                text(" "),
                text(" "),
                yes(true),
                int(0),
                yes(true),
                Value::array(key_numbers(table)),
                none(),
                none(),
                int(CONSTRAINTS_OID),
            ]
        };
        keyed.map(row).collect()
    },
};

pub(crate) static PG_DESCRIPTION: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_description",
    columns: &[("objoid", Kind::Oid), ("classoid", Kind::Oid), ("objsubid", Kind::Int4), ("description", Kind::Text)],
    rows: |_| {
        let described = numbered_tables().filter(|(_, table)| !table.comment().is_empty());
        described.map(|(oid, table)| vec![int(oid), int(1259), int(0), text(table.comment())]).collect()
    },
};

pub(crate) static PG_TABLES: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_tables",
    columns: &[
        ("schemaname", Kind::Name),
        ("tablename", Kind::Name),
        ("tableowner", Kind::Name),
        ("tablespace", Kind::Name),
        ("hasindexes", Kind::Bool),
        ("hasrules", Kind::Bool),
        ("hastriggers", Kind::Bool),
        ("rowsecurity", Kind::Bool),
    ],
    rows: |_| {
        let tables = numbered_tables().filter(|(_, table)| !table.is_view());
        let row = |(_, table): (i64, &'static dyn Table)| {
            let has_key = yes(!table.key().is_empty());
            vec![
                text(table.schema()),
                text(table.name()),
                text("loadline"),
                none(),
                has_key,
                yes(false),
                yes(false),
                yes(false),
            ]
        };
        tables.map(row).collect()
    },
};

pub(crate) static PG_VIEWS: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_views",
    columns: &[
        ("schemaname", Kind::Name),
        ("viewname", Kind::Name),
        ("viewowner", Kind::Name),
        ("definition", Kind::Text),
    ],
    rows: |_| {
        let views = numbered_tables().filter(|(_, table)| table.is_view());
        views.map(|(_, it)| vec![text(it.schema()), text(it.name()), text("loadline"), text(it.comment())]).collect()
    },
};

/// As `pg_get_constraintdef` and `pg_get_indexdef` say it.
pub(crate) fn key_definition(table: &dyn Table) -> String {
    format!("PRIMARY KEY ({})", key_columns(table).join(", "))
}

pub(crate) fn index_definition(table: &dyn Table) -> String {
    let (schema, name) = (table.schema(), table.name());
    format!(
        "CREATE UNIQUE INDEX {} ON {schema}.{name} USING btree ({})",
        key_name(table),
        key_columns(table).join(", ")
    )
}

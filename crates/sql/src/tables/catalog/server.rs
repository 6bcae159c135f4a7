//! The server itself: its one database, who is here, what is set.

use loadline_state_machine::Role;

use super::{DATABASE_OID, Listed, OWNER_OID, ROLES_OID};
use crate::tables::source::Source;
use crate::tables::value::{Kind, Value};

fn text(value: &str) -> Value {
    Value::from(value)
}

pub(crate) static PG_DATABASE: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_database",
    columns: &[
        ("oid", Kind::Oid),
        ("datname", Kind::Name),
        ("datdba", Kind::Oid),
        ("encoding", Kind::Int4),
        ("datlocprovider", Kind::Char),
        ("datistemplate", Kind::Bool),
        ("datallowconn", Kind::Bool),
        ("datconnlimit", Kind::Int4),
        ("dattablespace", Kind::Oid),
        ("datcollate", Kind::Text),
        ("datctype", Kind::Text),
        ("daticulocale", Kind::Text),
        ("datcollversion", Kind::Text),
        ("datacl", Kind::TextArray),
    ],
    rows: |source| {
        vec![vec![
            Value::Int(DATABASE_OID),
            text(&source.session.database),
            Value::Int(OWNER_OID),
            Value::Int(6),
            text("c"),
            Value::Bool(false),
            Value::Bool(true),
            Value::Int(-1),
            Value::Int(1663),
            text("C"),
            text("C"),
            Value::Null,
            Value::Null,
            Value::Null,
        ]]
    },
};

/// One that can be given privileges, or that somebody is here as.
pub(crate) struct RoleRow {
    oid: i64,
    name: String,
    superuser: bool,
    can_log_in: bool,
}

/// All roles there are, and whoever asks: on a machine that is trusted that may be a name without a role.
pub(crate) fn roles(source: &Source) -> Vec<RoleRow> {
    let own = &source.session.user;
    let asks = source.state.role(own);
    let first = RoleRow {
        oid: OWNER_OID,
        name: own.clone(),
        superuser: asks.is_none_or(|role| role.superuser),
        can_log_in: asks.is_none_or(Role::can_log_in),
    };
    let others = source.state.roles_after(None).filter(|role| role.name != *own);
    let others = (ROLES_OID..).zip(others).map(|(oid, role)| RoleRow {
        oid,
        name: role.name.clone(),
        superuser: role.superuser,
        can_log_in: role.can_log_in(),
    });
    std::iter::once(first).chain(others).collect()
}

pub(crate) static PG_ROLES: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_roles",
    columns: &[
        ("rolname", Kind::Name),
        ("rolsuper", Kind::Bool),
        ("rolinherit", Kind::Bool),
        ("rolcreaterole", Kind::Bool),
        ("rolcreatedb", Kind::Bool),
        ("rolcanlogin", Kind::Bool),
        ("rolreplication", Kind::Bool),
        ("rolconnlimit", Kind::Int4),
        ("rolpassword", Kind::Text),
        ("rolvaliduntil", Kind::Timestamptz),
        ("rolbypassrls", Kind::Bool),
        ("rolconfig", Kind::TextArray),
        ("oid", Kind::Oid),
    ],
    rows: |source| {
        let row = |RoleRow { oid, name, superuser, can_log_in }: RoleRow| {
            vec![
                Value::Text(name),
                Value::Bool(superuser),
                Value::Bool(true),
                Value::Bool(superuser),
                Value::Bool(false),
                Value::Bool(can_log_in),
                Value::Bool(false),
                Value::Int(-1),
                Value::Null,
                Value::Null,
                Value::Bool(superuser),
                Value::Null,
                Value::Int(oid),
            ]
        };
        roles(source).into_iter().map(row).collect()
    },
};

pub(crate) static PG_USER: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_user",
    columns: &[("usename", Kind::Name), ("usesysid", Kind::Oid), ("usesuper", Kind::Bool)],
    rows: |source| {
        let row = |it: RoleRow| vec![Value::Text(it.name), Value::Int(it.oid), Value::Bool(it.superuser)];
        roles(source).into_iter().filter(|it| it.can_log_in).map(row).collect()
    },
};

pub(crate) static PG_SETTINGS: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_settings",
    columns: &[
        ("name", Kind::Text),
        ("setting", Kind::Text),
        ("unit", Kind::Text),
        ("category", Kind::Text),
        ("short_desc", Kind::Text),
        ("context", Kind::Text),
        ("vartype", Kind::Text),
        ("source", Kind::Text),
        ("boot_val", Kind::Text),
        ("reset_val", Kind::Text),
    ],
    rows: |source| {
        let session = source.session.settings.iter().map(|(name, value)| (name.clone(), value.clone(), String::new()));
        let group = source.state.settings().into_iter().map(|it| (it.name, it.value, it.description));
        let row = |(name, value, description): (String, String, String)| {
            let shown = Value::Text(value);
            vec![
                Value::Text(name),
                shown.clone(),
                Value::Null,
                text("loadline"),
                Value::Text(description),
                text("user"),
                text("string"),
                text("session"),
                shown.clone(),
                shown,
            ]
        };
        session.chain(group).map(row).collect()
    },
};

pub(crate) static PG_AM: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_am",
    columns: &[("oid", Kind::Oid), ("amname", Kind::Name), ("amhandler", Kind::Text), ("amtype", Kind::Char)],
    rows: |_| {
        vec![
            vec![Value::Int(2), text("heap"), text("heap_tableam_handler"), text("t")],
            vec![Value::Int(403), text("btree"), text("bthandler"), text("i")],
        ]
    },
};

pub(crate) static PG_COLLATION: Listed = Listed {
    schema: "pg_catalog",
    name: "pg_collation",
    columns: &[
        ("oid", Kind::Oid),
        ("collname", Kind::Name),
        ("collnamespace", Kind::Oid),
        ("collprovider", Kind::Char),
        ("collisdeterministic", Kind::Bool),
        ("collencoding", Kind::Int4),
        ("collcollate", Kind::Text),
        ("collctype", Kind::Text),
        ("colliculocale", Kind::Text),
    ],
    rows: |_| {
        let name = [Value::Int(100), text("default"), Value::Int(11), text("d")];
        let rest = [Value::Bool(true), Value::Int(-1), text("C"), text("C"), Value::Null];
        vec![name.into_iter().chain(rest).collect()]
    },
};

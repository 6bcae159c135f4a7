//! `loadline.roles`: who can log in, and on which clusters they may do something. Nothing of it is enough to log in with.

use loadline_state_machine::{RoleView, TokenView};
use serde_json::{Value as Json, json};

use super::define::{Definition, column};
use super::value::{Kind, Value, timestamp};

fn token(token: &TokenView) -> Json {
    json!({"id": token.id, "created_at": timestamp(token.created_at), "expires_at": token.expires_at.map(timestamp)})
}

pub(crate) static ROLES: Definition<RoleView> = Definition {
    schema: "loadline",
    name: "roles",
    comment: "Who can be given privileges, and which they have.",
    is_view: false,
    key: &[0],
    columns: &[
        column("name", Kind::Text, |_, it| it.name.as_str().into()),
        column("superuser", Kind::Bool, |_, it| it.superuser.into()),
        column("all_clusters", Kind::Bool, |_, it| it.all_clusters.into()),
        column("cluster_ids", Kind::TextArray, |_, it| Value::array(it.clusters.iter().map(ToString::to_string))),
        column("has_password", Kind::Bool, |_, it| it.has_password.into()),
        column("tokens", Kind::Jsonb, |_, it| Value::json(&Json::Array(it.tokens.iter().map(token).collect()))),
        column("created_at", Kind::Timestamptz, |_, it| Value::time(it.created_at)),
        column("etag", Kind::Text, |_, it| Value::show(it.updated)),
    ],
    rows: |source| Ok(source.state.roles_after(None).map(|role| role.view()).collect()),
};

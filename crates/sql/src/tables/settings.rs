//! `loadline.settings`: what `ALTER SYSTEM SET` changes.

use loadline_state_machine::SettingView;

use super::define::{Definition, column, optional};
use super::value::Kind;

pub(crate) static SETTINGS: Definition<SettingView> = Definition {
    schema: "loadline",
    name: "settings",
    comment: "Every setting of the group, set or not.",
    is_view: false,
    key: &[0],
    columns: &[
        column("name", Kind::Text, |_, it| it.name.as_str().into()),
        column("value", Kind::Text, |_, it| it.value.as_str().into()),
        column("default_value", Kind::Text, |_, it| it.default_value.as_str().into()),
        column("is_default", Kind::Bool, |_, it| it.is_default.into()),
        column("description", Kind::Text, |_, it| it.description.as_str().into()),
        optional("etag", Kind::Text, |_, it| it.updated.map(|it| it.to_string()).into()),
    ],
    rows: |source| Ok(source.state.settings()),
};

//! `loadline.sizes`: the ladder.

use loadline_state_machine::Size;

use super::define::{Definition, column};
use super::value::{Kind, Value};

pub(crate) static SIZES: Definition<Size> = Definition {
    schema: "loadline",
    name: "sizes",
    comment: "The ladder of sizes, the smallest rank first.",
    is_view: false,
    key: &[0],
    columns: &[
        column("name", Kind::Text, |_, size| size.name.as_str().into()),
        column("rank", Kind::Int8, |_, size| size.rank.into()),
        column("slots", Kind::Int8, |_, size| size.slots.into()),
        column("price_micros_per_hour", Kind::Int8, |_, size| Value::count(size.price_micros_per_hour)),
        column("etag", Kind::Text, |_, size| Value::show(size.updated)),
    ],
    rows: |source| Ok(source.state.sizes().cloned().collect()),
};

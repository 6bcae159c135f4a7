//! How data is shown: one format for people, the others for programs.
//!
//! A [`View`] says what a thing looks like as a row and as an object; [`list`] and [`one`] put it into the format that
//! was asked for. Not here: what is said on stderr (`console.rs`).

mod actions;
pub(crate) mod explained;
pub(crate) mod idle;
pub(crate) mod nodes;
pub(crate) mod resources;
pub(crate) mod scaling;
pub(crate) mod seen;
pub(crate) mod signals;
mod table;

use std::ffi::{OsStr, OsString};

use clap::ValueEnum;
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::exit::{Exit, Failed};
pub(crate) use table::{Column, Lines, describe, table};

/// `-o`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// Aligned columns for people.
    #[default]
    Table,
    /// The same with more columns.
    Wide,
    /// One indented JSON document.
    Json,
    /// One JSON object per line.
    Jsonl,
    /// YAML documents, as `apply -f` reads them.
    Yaml,
    /// Only resource names, such as clusters/demo.
    Name,
    /// Comma-separated values with a header.
    Csv,
    /// Statements, as `apply -f` and `loadline sql` read them; of strategies, clusters and settings.
    Sql,
}

/// What `-o` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    Format(Format),
    /// Something else, for the few commands that know what to do with it.
    Other(OsString),
}

/// The commands for which `-o` may be more than a format: a file to write, or a kind of picture.
const TAKE_MORE: [&str; 2] = ["backtest", "export"];

/// Reads `-o`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputParser;

impl TypedValueParser for OutputParser {
    type Value = Output;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<Output, clap::Error> {
        match EnumValueParser::<Format>::new().parse_ref(command, argument, value) {
            Ok(format) => Ok(Output::Format(format)),
            Err(_) if TAKE_MORE.contains(&command.get_name()) => Ok(Output::Other(value.to_owned())),
            Err(error) => Err(error),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Format::value_variants().iter().filter_map(ValueEnum::to_possible_value)))
    }
}

/// A thing that can be shown: its cells for tables, `Serialize` for programs.
pub(crate) trait View: Serialize {
    const COLUMNS: &'static [Column];
    /// One for each column.
    fn cells(&self) -> Vec<String>;
    /// As in `-o name`.
    fn name(&self) -> String;
}

/// Many things: `{"clusters": [...], "revision": 7}` in JSON.
pub(crate) fn list<V: View>(format: Format, key: &str, revision: Option<u64>, items: &[V]) -> Result<String, Failed> {
    Ok(match format {
        Format::Table => table(items, false),
        Format::Wide => table(items, true),
        Format::Json => pretty(&Listing { key, items, revision })?,
        Format::Jsonl => items.iter().map(json_line).collect::<Result<_, _>>()?,
        Format::Yaml => yaml_documents(items)?,
        Format::Name => items.iter().map(|item| item.name() + "\n").collect(),
        Format::Csv => csv(items)?,
        // Who can be said in SQL is (`commands/get_sql.rs`) before it gets here.
        Format::Sql => table(items, false),
    })
}

/// One thing: the object itself in JSON.
pub(crate) fn one<V: View>(format: Format, item: &V) -> Result<String, Failed> {
    match format {
        Format::Json => pretty(item),
        _ => list(format, "", None, std::slice::from_ref(item)),
    }
}

#[derive(Debug)]
struct Listing<'a, V> {
    key: &'a str,
    items: &'a [V],
    revision: Option<u64>,
}

impl<V: Serialize> Serialize for Listing<'_, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.key, self.items)?;
        if let Some(revision) = self.revision {
            map.serialize_entry("revision", &revision)?;
        }
        map.end()
    }
}

pub(crate) fn pretty(value: &impl Serialize) -> Result<String, Failed> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(unwritable)
}

pub(crate) fn json_line(value: &impl Serialize) -> Result<String, Failed> {
    serde_json::to_string(value).map(|text| text + "\n").map_err(unwritable)
}

pub(crate) fn yaml_documents(items: &[impl Serialize]) -> Result<String, Failed> {
    let mut text = String::new();
    for item in items {
        text.push_str("---\n");
        text.push_str(&serde_saphyr::to_string(item).map_err(unwritable)?);
    }
    Ok(text)
}

/// Every column of the wide table, under names that a program can use.
fn csv<V: View>(items: &[V]) -> Result<String, Failed> {
    let header: Vec<String> = V::COLUMNS.iter().map(|column| csv_name(column.head)).collect();
    let mut text = csv_line(&header)?;
    for item in items {
        text.push_str(&csv_line(&item.cells())?);
    }
    Ok(text)
}

pub(crate) fn csv_name(head: &str) -> String {
    head.to_lowercase().replace('-', "_")
}

pub(crate) fn csv_line(cells: &[String]) -> Result<String, Failed> {
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    writer.write_record(cells).map_err(unwritable)?;
    let bytes = writer.into_inner().map_err(unwritable)?;
    String::from_utf8(bytes).map_err(unwritable)
}

fn unwritable(error: impl std::fmt::Display) -> Failed {
    Failed::new(Exit::Failure, format!("the answer cannot be shown in this format: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize)]
    struct Fruit {
        name: &'static str,
        note: &'static str,
    }

    impl View for Fruit {
        const COLUMNS: &'static [Column] = &[Column::always("NAME"), Column::wide("A-NOTE")];
        fn cells(&self) -> Vec<String> {
            vec![self.name.to_owned(), self.note.to_owned()]
        }
        fn name(&self) -> String {
            format!("fruits/{}", self.name)
        }
    }

    const FRUITS: [Fruit; 2] = [Fruit { name: "fig", note: "soft, sweet" }, Fruit { name: "pear", note: "" }];

    #[track_caller]
    fn check(format: Format, expected: &str) {
        assert_eq!(list(format, "fruits", Some(7), &FRUITS).as_deref(), Ok(expected));
    }

    #[test]
    fn each_format_shows_the_same_things() {
        check(Format::Table, "NAME\nfig\npear\n");
        check(Format::Wide, "NAME   A-NOTE\nfig    soft, sweet\npear   -\n");
        check(Format::Name, "fruits/fig\nfruits/pear\n");
        check(Format::Csv, "name,a_note\nfig,\"soft, sweet\"\npear,\n");
        check(Format::Jsonl, "{\"name\":\"fig\",\"note\":\"soft, sweet\"}\n{\"name\":\"pear\",\"note\":\"\"}\n");
        check(Format::Yaml, "---\nname: fig\nnote: soft, sweet\n---\nname: pear\nnote: \"\"\n");
        let json = list(Format::Json, "fruits", Some(7), &FRUITS).expect("JSON");
        assert!(json.starts_with("{\n  \"fruits\": [\n    {\n      \"name\": \"fig\","), "{json}");
        assert!(json.ends_with("  ],\n  \"revision\": 7\n}\n"), "{json}");
    }

    #[test]
    fn one_thing_is_an_object_and_not_a_list_in_json() {
        let json = one(Format::Json, &FRUITS[1]);
        assert_eq!(json.as_deref(), Ok("{\n  \"name\": \"pear\",\n  \"note\": \"\"\n}\n"));
        assert_eq!(one(Format::Name, &FRUITS[1]).as_deref(), Ok("fruits/pear\n"));
    }
}

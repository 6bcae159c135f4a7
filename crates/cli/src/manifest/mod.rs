//! Manifests: what `apply -f` and `diff -f` read.
//!
//! YAML or JSON, one document or many; each has `kind`, `name` and `spec`. `metadata` may be there and is left alone, and
//! what `get -o json` prints is read, too. Every mistake names the document and what would be right, and nothing is sent
//! before all documents are right.

mod plan;

use loadline_client::Kind;
use serde_json::{Map, Value};

pub(crate) use plan::{Change, Step, plan};

use crate::exit::Failed;
use crate::text::{did_you_mean, parse_price};

/// What somebody wants to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) spec: Spec,
}

/// A field that is absent is left as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Spec {
    Size { rank: Option<u32>, slots: Option<u32>, price_micros: Option<u64> },
    Cluster,
    Setting { value: String },
}

impl Manifest {
    pub(crate) fn kind(&self) -> Kind {
        match self.spec {
            Spec::Size { .. } => Kind::Size,
            Spec::Cluster => Kind::Cluster,
            Spec::Setting { .. } => Kind::Setting,
        }
    }

    /// `clusters/demo`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.kind().plural(), self.name)
    }
}

/// Reads all documents of a text.
pub(crate) fn parse(text: &str) -> Result<Vec<Manifest>, Failed> {
    let mut documents = Vec::new();
    for (number, value) in values(text)?.into_iter().enumerate() {
        gather(&format!("document {}", number + 1), value, &mut documents)?;
    }
    let mut manifests: Vec<Manifest> = Vec::new();
    for (place, object) in documents {
        let manifest = manifest(&place, &object)?;
        if manifests.iter().any(|other| other.full_name() == manifest.full_name()) {
            return Err(Failed::usage(format!("{place}: {} is there twice", manifest.full_name())));
        }
        manifests.push(manifest);
    }
    if manifests.is_empty() {
        return Err(Failed::usage("there is nothing in it; write kind, name and spec"));
    }
    Ok(manifests)
}

/// JSON documents may follow each other without a mark, as in `-o jsonl`; YAML documents are divided by `---`.
fn values(text: &str) -> Result<Vec<Value>, Failed> {
    if text.trim_start().starts_with(['{', '[']) {
        let read: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(values) = read {
            return Ok(values);
        }
    }
    serde_saphyr::from_multiple::<Value>(text)
        .map_err(|error| Failed::usage(format!("neither YAML nor JSON: {}", error.to_string().trim_end())))
}

/// Takes lists apart: `[...]`, and `{"clusters": [...]}` as `get -o json` prints it.
fn gather(place: &str, value: Value, documents: &mut Vec<(String, Map<String, Value>)>) -> Result<(), Failed> {
    match value {
        Value::Null => Ok(()),
        Value::Array(items) => {
            for (number, item) in items.into_iter().enumerate() {
                gather(&format!("{place}, item {}", number + 1), item, documents)?;
            }
            Ok(())
        }
        Value::Object(object) if object.contains_key("kind") => {
            documents.push((place.to_owned(), object));
            Ok(())
        }
        Value::Object(object) if object.keys().any(|key| key.parse::<Kind>().is_ok()) => {
            for (key, items) in object {
                if key.parse::<Kind>().is_ok() {
                    gather(&format!("{place}, {key}"), items, documents)?;
                } else if key != "revision" {
                    return Err(Failed::usage(format!("{place}: there is no list '{key}'")));
                }
            }
            Ok(())
        }
        Value::Object(_) => Err(Failed::usage(format!("{place}: kind is missing; write size, cluster or setting"))),
        other => Err(Failed::usage(format!("{place}: {other} is not a manifest; write kind, name and spec"))),
    }
}

fn manifest(place: &str, object: &Map<String, Value>) -> Result<Manifest, Failed> {
    let wrong = |message: String| Failed::usage(format!("{place}: {message}"));
    known_keys(object, &["kind", "name", "spec", "metadata"]).map_err(&wrong)?;
    let kind = match object.get("kind") {
        Some(Value::String(word)) => word.to_lowercase().parse::<Kind>().map_err(|()| {
            let known = ["size", "cluster", "setting"];
            wrong(format!("there is no kind '{word}'{}", did_you_mean(word, known)))
        })?,
        _ => return Err(wrong("kind must be size, cluster or setting".to_owned())),
    };
    let name = match object.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name.clone(),
        // A name such as 100 is a number to YAML, and a name to everybody else.
        Some(Value::Number(number)) => number.to_string(),
        Some(_) => return Err(wrong(format!("the name of the {kind} must be text"))),
        None => return Err(wrong(format!("name is missing; which {kind}?"))),
    };
    let place = format!("{place} ({kind} '{name}')");
    let wrong = |message: String| Failed::usage(format!("{place}: {message}"));
    let empty = Map::new();
    let spec = match object.get("spec") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(spec)) => spec,
        Some(_) => return Err(wrong("spec must hold fields".to_owned())),
    };
    let spec = match kind {
        Kind::Size => size(spec),
        Kind::Cluster => known_keys(spec, &[]).map(|()| Spec::Cluster),
        Kind::Setting => setting(spec),
        Kind::Strategy | Kind::Decision | Kind::Operation | Kind::Action => {
            Err(format!("{} are not applied from a file; use loadline create strategy", kind.plural()))
        }
    };
    Ok(Manifest { name, spec: spec.map_err(wrong)? })
}

fn size(spec: &Map<String, Value>) -> Result<Spec, String> {
    known_keys(spec, &["rank", "slots", "price"])?;
    let number = |field: &str| match spec.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
            .map(Some)
            .ok_or_else(|| format!("spec.{field}: {value} is not a whole number from 0 to {}", u32::MAX)),
    };
    let price_micros = match spec.get("price") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(parse_price(text).map_err(|why| format!("spec.price: {why}"))?),
        Some(Value::Number(number)) => {
            Some(parse_price(&number.to_string()).map_err(|why| format!("spec.price: {why}"))?)
        }
        Some(other) => {
            return Err(format!("spec.price: {other} is not a price; write the price per hour, such as 0.25"));
        }
    };
    Ok(Spec::Size { rank: number("rank")?, slots: number("slots")?, price_micros })
}

fn setting(spec: &Map<String, Value>) -> Result<Spec, String> {
    known_keys(spec, &["value"])?;
    let value = match spec.get("value") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(yes)) => yes.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => return Err(format!("spec.value: {other} is not one value")),
        None => return Err("spec.value is missing; what should the setting be?".to_owned()),
    };
    Ok(Spec::Setting { value })
}

fn known_keys(object: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) if known.is_empty() => Err(format!("there is no field '{key}'; this kind has none")),
        Some(key) => {
            let hint = did_you_mean(key, known.iter().copied());
            Err(format!("there is no field '{key}'{hint} (there are {})", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "
# a ladder
kind: size
name: 100cc
spec: {slots: 1, price: 0.25}
---
kind: Cluster
name: demo
---
kind: setting
name: enable_auto_scaling
spec:
  value: true
";

    fn wanted() -> Vec<Manifest> {
        vec![
            Manifest {
                name: "100cc".into(),
                spec: Spec::Size { rank: None, slots: Some(1), price_micros: Some(250_000) },
            },
            Manifest { name: "demo".into(), spec: Spec::Cluster },
            Manifest { name: "enable_auto_scaling".into(), spec: Spec::Setting { value: "true".into() } },
        ]
    }

    #[test]
    fn yaml_json_lists_and_lines_are_all_read() {
        assert_eq!(parse(YAML), Ok(wanted()));
        let size = r#"{"kind":"size","name":"100cc","spec":{"slots":1,"price":"0.25"}}"#;
        let cluster = r#"{"kind":"cluster","name":"demo","spec":{},"metadata":{"etag":"4.0"}}"#;
        let setting = r#"{"kind":"setting","name":"enable_auto_scaling","spec":{"value":"true"}}"#;
        assert_eq!(parse(&format!("{size}\n{cluster}\n{setting}\n")), Ok(wanted()));
        assert_eq!(parse(&format!("[{size},{cluster},{setting}]")), Ok(wanted()));
        let listing = format!(r#"{{"clusters":[{cluster}],"revision":7}}"#);
        assert_eq!(parse(&listing), Ok(vec![wanted()[1].clone()]));
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let failed = parse(text).expect_err(text);
        assert!(failed.message.contains(part), "{}", failed.message);
        assert_eq!(failed.exit, crate::exit::Exit::Usage);
    }

    #[test]
    fn mistakes_name_the_document_the_field_and_what_would_be_right() {
        refused("", "nothing in it");
        refused("---\n---\n", "nothing in it");
        refused("just words", "write kind, name and spec");
        refused("kind: [", "neither YAML nor JSON");
        refused("{\"kind\": ", "neither YAML nor JSON");
        refused("name: demo", "document 1: kind is missing");
        refused("kind: clutser\nname: demo", "did you mean 'cluster'?");
        refused("kind: cluster", "name is missing; which cluster?");
        refused("kind: cluster\nname: ''", "must be text");
        refused("kind: cluster\nname: a\n---\nkind: cluster\nname: a", "document 2: clusters/a is there twice");
        refused("kind: cluster\nname: a\nspec: {size: x}", "document 1 (cluster 'a'): there is no field 'size'");
        refused("kind: cluster\nnmae: a", "did you mean 'name'?");
        refused("kind: size\nname: s\nspec: {slot: 1}", "did you mean 'slots'?");
        refused("kind: size\nname: s\nspec: {slots: -1}", "spec.slots: -1 is not a whole number");
        refused("kind: size\nname: s\nspec: {slots: 1.5}", "spec.slots");
        refused("kind: size\nname: s\nspec: {price: cheap}", "spec.price: 'cheap' is not a price");
        refused("kind: setting\nname: s", "spec.value is missing");
        refused("kind: setting\nname: s\nspec: {value: [1]}", "spec.value: [1] is not one value");
        refused("kind: cluster\nname: a\nspec: 3", "spec must hold fields");
        refused("{\"clusters\": [], \"pods\": []}", "there is no list 'pods'");
    }
}

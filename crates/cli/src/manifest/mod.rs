//! Manifests: what `apply -f` and `diff -f` read.
//!
//! SQL ([`statements`]), or YAML or JSON, one document or many; each has `kind`, `name` and `spec`. `metadata` may be there and is left alone, and
//! what `get -o json` prints is read, too. Every mistake names the document, the line where that can be told, and what would
//! be right, and nothing is sent before all documents are right.

mod lines;
mod plan;
mod signal;
mod statements;
mod strategy;

use loadline_client::Kind;
use serde_json::{Map, Value};

pub(crate) use plan::{Change, Difference, Found, Step, plan};
pub(crate) use signal::SignalSpec;
pub(crate) use strategy::StrategySpec;

use lines::Into as Way;

use crate::exit::Failed;
use crate::text::{did_you_mean, parse_price};

/// What somebody wants to be there.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Manifest {
    /// Empty for a strategy, which is known by its type and its target.
    pub(crate) name: String,
    pub(crate) spec: Spec,
    /// It must be there: only what is said about it changes.
    pub(crate) alters: bool,
    /// `document 2 (cluster 'demo')`, for whoever has to find it.
    pub(crate) place: String,
}

/// A field that is absent is left as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Spec {
    Size {
        rank: Option<u32>,
        slots: Option<u32>,
        price_micros: Option<u64>,
    },
    /// Empty: it lives wherever the setting default_backend says.
    Cluster {
        backend: Option<String>,
    },
    Setting {
        value: String,
    },
    /// Here an option that is absent goes back to its default.
    Strategy(StrategySpec),
    /// Here, too.
    Signal(SignalSpec),
}

/// A mistake in one document.
#[derive(Debug)]
struct Wrong {
    /// `spec.options.SIZE`; empty if it is about the document as a whole.
    field: String,
    message: String,
}

impl Wrong {
    fn at(field: impl Into<String>, message: impl Into<String>) -> Wrong {
        Wrong { field: field.into(), message: message.into() }
    }
}

impl Manifest {
    pub(crate) fn kind(&self) -> Kind {
        match self.spec {
            Spec::Size { .. } => Kind::Size,
            Spec::Cluster { .. } => Kind::Cluster,
            Spec::Setting { .. } => Kind::Setting,
            Spec::Strategy(_) => Kind::Strategy,
            Spec::Signal(_) => Kind::Signal,
        }
    }

    /// `clusters/demo`, or `strategies/target_size for demo`: no two documents may have the same.
    pub(crate) fn full_name(&self) -> String {
        match &self.spec {
            Spec::Strategy(strategy) => format!("strategies/{}", strategy.about()),
            _ => format!("{}/{}", self.kind().plural(), self.name),
        }
    }

    /// What has to be there before something else: a strategy needs its cluster, its sizes and the setting that allows it.
    pub(crate) fn rank(&self) -> u8 {
        match self.spec {
            Spec::Size { .. } => 0,
            Spec::Setting { .. } => 1,
            Spec::Cluster { .. } => 2,
            Spec::Signal(_) => 3,
            Spec::Strategy(_) => 4,
        }
    }
}

/// A document, and the way to it.
#[derive(Debug)]
struct Document {
    /// `document 2, item 1`.
    place: String,
    way: Vec<Way>,
    object: Map<String, Value>,
}

/// Reads all that a text says, in whichever of its languages it is written.
pub(crate) fn parse(text: &str) -> Result<Vec<Manifest>, Failed> {
    if statements::is_sql(text) { statements::parse(text) } else { documents(text) }
}

fn documents(text: &str) -> Result<Vec<Manifest>, Failed> {
    let mut documents = Vec::new();
    for (number, value) in values(text)?.into_iter().enumerate() {
        gather(&format!("document {}", number + 1), vec![Way::Item(number)], value, &mut documents)
            .map_err(|(place, way, wrong)| failed(text, &place, way, &wrong))?;
    }
    let mut manifests: Vec<Manifest> = Vec::new();
    for Document { place, way, object } in documents {
        let manifest = manifest(&place, &object).map_err(|(place, wrong)| failed(text, &place, way.clone(), &wrong))?;
        if manifests.iter().any(|other| other.full_name() == manifest.full_name()) {
            let wrong = Wrong::at("", format!("{} is there twice", manifest.full_name()));
            return Err(failed(text, &place, way, &wrong));
        }
        manifests.push(manifest);
    }
    if manifests.is_empty() {
        return Err(Failed::usage("there is nothing in it; write kind, name and spec"));
    }
    Ok(manifests)
}

fn failed(text: &str, place: &str, mut way: Vec<Way>, wrong: &Wrong) -> Failed {
    way.extend(wrong.field.split('.').filter(|key| !key.is_empty()).map(|key| Way::Key(key.to_owned())));
    let line = lines::line_of(text, &way).map(|line| format!(", line {line}")).unwrap_or_default();
    let field = if wrong.field.is_empty() { String::new() } else { format!("{}: ", wrong.field) };
    Failed::usage(format!("{place}{line}: {field}{}", wrong.message))
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
fn gather(
    place: &str,
    way: Vec<Way>,
    value: Value,
    documents: &mut Vec<Document>,
) -> Result<(), (String, Vec<Way>, Wrong)> {
    let further = |step: Way| way.iter().cloned().chain([step]).collect::<Vec<_>>();
    let wrong = |message: String| Err((place.to_owned(), way.clone(), Wrong::at("", message)));
    match value {
        Value::Null => Ok(()),
        Value::Array(items) => {
            for (number, item) in items.into_iter().enumerate() {
                gather(&format!("{place}, item {}", number + 1), further(Way::Item(number)), item, documents)?;
            }
            Ok(())
        }
        Value::Object(object) if object.contains_key("kind") => {
            documents.push(Document { place: place.to_owned(), way, object });
            Ok(())
        }
        Value::Object(object) if object.keys().any(|key| key.parse::<Kind>().is_ok()) => {
            for (key, items) in object {
                if key.parse::<Kind>().is_ok() {
                    gather(&format!("{place}, {key}"), further(Way::Key(key)), items, documents)?;
                } else if key != "revision" {
                    return wrong(format!("there is no list '{key}'"));
                }
            }
            Ok(())
        }
        Value::Object(_) => wrong(format!("kind is missing; write {KINDS}")),
        other => wrong(format!("{other} is not a manifest; write kind, name and spec")),
    }
}

const KINDS: &str = "size, cluster, setting, signal or strategy";

fn manifest(place: &str, object: &Map<String, Value>) -> Result<Manifest, (String, Wrong)> {
    let here = |wrong: Wrong| (place.to_owned(), wrong);
    let kind = match object.get("kind") {
        Some(Value::String(word)) => word.to_lowercase().parse::<Kind>().map_err(|()| {
            let known = ["size", "cluster", "setting", "signal", "strategy"];
            here(Wrong::at("kind", format!("there is no kind '{word}'{}; write {KINDS}", did_you_mean(word, known))))
        })?,
        _ => return Err(here(Wrong::at("kind", format!("must be {KINDS}")))),
    };
    // What is said about a strategy beside its options is the system's, as metadata is.
    let known: &[&str] = if matches!(kind, Kind::Strategy | Kind::Signal) {
        &["kind", "name", "spec", "metadata", "status"]
    } else {
        &["kind", "name", "spec", "metadata"]
    };
    known_keys(object, "", known).map_err(here)?;
    let name = match (kind, object.get("name")) {
        (Kind::Strategy, name) => {
            id(name).map_err(here)?;
            String::new()
        }
        (Kind::Role, _) => {
            let message = "roles are not applied from a file: see loadline create role and loadline grant";
            return Err(here(Wrong::at("kind", message)));
        }
        (Kind::Decision | Kind::Operation | Kind::Action, _) => {
            let message = format!("{} are not applied from a file: they are a record", kind.plural());
            return Err(here(Wrong::at("kind", message)));
        }
        (_, Some(Value::String(name))) if !name.is_empty() => name.clone(),
        // A name such as 100 is a number to YAML, and a name to everybody else.
        (_, Some(Value::Number(number))) => number.to_string(),
        (_, Some(_)) => return Err(here(Wrong::at("name", format!("the name of the {kind} must be text")))),
        (_, None) => return Err(here(Wrong::at("name", format!("it is missing; which {kind}?")))),
    };
    let place = if name.is_empty() { format!("{place} ({kind})") } else { format!("{place} ({kind} '{name}')") };
    let here = |wrong: Wrong| (place.clone(), wrong);
    let empty = Map::new();
    let fields = match object.get("spec") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(spec)) => spec,
        Some(_) => return Err(here(Wrong::at("spec", "must hold fields"))),
    };
    let spec = match kind {
        Kind::Size => size(fields),
        Kind::Cluster => cluster(fields),
        Kind::Setting => setting(fields),
        Kind::Signal => signal::read(fields).map(Spec::Signal),
        Kind::Strategy | Kind::Decision | Kind::Operation | Kind::Action | Kind::Role => {
            strategy::read(fields).map(Spec::Strategy)
        }
    };
    let spec = spec.map_err(here)?;
    let place = match &spec {
        Spec::Strategy(strategy) => place.replace("(strategy)", &format!("({})", strategy.about())),
        _ => place,
    };
    Ok(Manifest { name, spec, alters: false, place })
}

/// The id of a strategy may be there, as `get -o yaml` prints it. It says nothing: another group gave it.
fn id(name: Option<&Value>) -> Result<(), Wrong> {
    let looks_like_one =
        |text: &str| text.strip_prefix('s').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    match name {
        None => Ok(()),
        Some(Value::String(text)) if looks_like_one(text) => Ok(()),
        Some(other) => Err(Wrong::at(
            "name",
            format!("{other} cannot be chosen: a strategy is known by spec.type and spec.target"),
        )),
    }
}

fn cluster(spec: &Map<String, Value>) -> Result<Spec, Wrong> {
    known_keys(spec, "spec", &["backend"])?;
    match spec.get("backend") {
        None | Some(Value::Null) => Ok(Spec::Cluster { backend: None }),
        Some(Value::String(backend)) => Ok(Spec::Cluster { backend: Some(backend.clone()) }),
        Some(other) => {
            let message = format!(
                "{other} is not the name of a backend; write a name of the node's configuration, or \"\" for wherever the setting default_backend says"
            );
            Err(Wrong::at("spec.backend", message))
        }
    }
}

fn size(spec: &Map<String, Value>) -> Result<Spec, Wrong> {
    known_keys(spec, "spec", &["rank", "slots", "price"])?;
    let number = |field: &str| match spec.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => value.as_u64().and_then(|number| u32::try_from(number).ok()).map(Some).ok_or_else(|| {
            Wrong::at(format!("spec.{field}"), format!("{value} is not a whole number from 0 to {}", u32::MAX))
        }),
    };
    let price = |text: &str| parse_price(text).map(Some).map_err(|why| Wrong::at("spec.price", why));
    let price_micros = match spec.get("price") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => price(text)?,
        Some(Value::Number(number)) => price(&number.to_string())?,
        Some(other) => {
            let message = format!("{other} is not a price; write the price per hour, such as 0.25");
            return Err(Wrong::at("spec.price", message));
        }
    };
    Ok(Spec::Size { rank: number("rank")?, slots: number("slots")?, price_micros })
}

fn setting(spec: &Map<String, Value>) -> Result<Spec, Wrong> {
    known_keys(spec, "spec", &["value"])?;
    let value = match spec.get("value") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(yes)) => yes.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(other) => return Err(Wrong::at("spec.value", format!("{other} is not one value"))),
        None => return Err(Wrong::at("spec.value", "it is missing; what should the setting be?")),
    };
    Ok(Spec::Setting { value })
}

fn known_keys(object: &Map<String, Value>, within: &str, known: &[&str]) -> Result<(), Wrong> {
    let Some(key) = object.keys().find(|key| !known.contains(&key.as_str())) else { return Ok(()) };
    let field = if within.is_empty() { key.clone() } else { format!("{within}.{key}") };
    if let [only] = known {
        return Err(Wrong::at(field, format!("there is no such field; the only one is {only}")));
    }
    let hint = did_you_mean(key, known.iter().copied());
    Err(Wrong::at(field, format!("there is no such field{hint} (there are {})", known.join(", "))))
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

    fn wanted() -> Vec<(String, Spec)> {
        vec![
            ("100cc".into(), Spec::Size { rank: None, slots: Some(1), price_micros: Some(250_000) }),
            ("demo".into(), Spec::Cluster { backend: None }),
            ("enable_auto_scaling".into(), Spec::Setting { value: "true".into() }),
        ]
    }

    fn read(text: &str) -> Result<Vec<(String, Spec)>, Failed> {
        parse(text).map(|manifests| manifests.into_iter().map(|it| (it.name, it.spec)).collect())
    }

    #[test]
    fn yaml_json_lists_and_lines_are_all_read() {
        assert_eq!(read(YAML), Ok(wanted()));
        let size = r#"{"kind":"size","name":"100cc","spec":{"slots":1,"price":"0.25"}}"#;
        let cluster = r#"{"kind":"cluster","name":"demo","spec":{},"metadata":{"etag":"4.0"}}"#;
        let setting = r#"{"kind":"setting","name":"enable_auto_scaling","spec":{"value":"true"}}"#;
        assert_eq!(read(&format!("{size}\n{cluster}\n{setting}\n")), Ok(wanted()));
        assert_eq!(read(&format!("[{size},{cluster},{setting}]")), Ok(wanted()));
        let listing = format!(r#"{{"clusters":[{cluster}],"revision":7}}"#);
        assert_eq!(read(&listing), Ok(vec![wanted()[1].clone()]));
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
        refused("name: demo", "document 1, line 1: kind is missing");
        refused("kind: clutser\nname: demo", "did you mean 'cluster'?");
        refused("kind: cluster", "name: it is missing; which cluster?");
        refused("kind: cluster\nname: ''", "must be text");
        refused("kind: cluster\nname: a\n---\nkind: cluster\nname: a", "document 2, line 4: clusters/a is there twice");
        refused(
            "kind: cluster\nname: a\nspec: {size: x}",
            "document 1 (cluster 'a'), line 3: spec.size: there is no such field; the only one is backend",
        );
        refused("kind: cluster\nnmae: a", "line 2: nmae: there is no such field; did you mean 'name'?");
        refused("kind: size\nname: s\nspec: {slot: 1}", "did you mean 'slots'?");
        refused("kind: size\nname: s\nspec: {slots: -1}", "spec.slots: -1 is not a whole number");
        refused("kind: size\nname: s\nspec: {slots: 1.5}", "spec.slots");
        refused("kind: size\nname: s\nspec: {price: cheap}", "spec.price: 'cheap' is not a price");
        refused("kind: setting\nname: s", "spec.value: it is missing");
        refused("kind: setting\nname: s\nspec: {value: [1]}", "spec.value: [1] is not one value");
        refused("kind: cluster\nname: a\nspec: 3", "spec: must hold fields");
        refused("kind: action\nname: a1.0", "kind: actions are not applied from a file");
        refused("{\"clusters\": [], \"pods\": []}", "there is no list 'pods'");
    }

    fn strategy(text: &str) -> StrategySpec {
        match parse(text).map(|mut manifests| manifests.remove(0).spec) {
            Ok(Spec::Strategy(strategy)) => strategy,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_strategy_is_read_by_type_and_target_and_its_options_as_they_are_stored() {
        use loadline_client::v1::strategy_target::Target;
        let short = "kind: strategy\nspec: {type: idle_suspend, target: {pattern: 'dev%'}, options: {IDLE_AFTER: 30m, dry_run: on}}";
        let it = strategy(short);
        assert_eq!((it.kind.as_str(), &it.target), ("idle_suspend", &Target::Pattern("dev%".into())));
        let expected =
            [("dry_run", "true"), ("idle_after_s", "1800")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(it.options, expected.into());
        // As `get -o json` prints it: with its id, its status and its version.
        let printed = r#"{"kind":"strategy","name":"s12.0","spec":{"type":"idle_suspend","target":{"pattern":"dev%"},
            "options":{"config_version":"1","dry_run":"true","idle_after_s":"1800"}},"status":{"enabled":true},"metadata":{}}"#;
        assert_eq!(strategy(printed), it);
        let all = strategy("kind: strategy\nspec: {type: burst, target: {all: true}, options: {BURST_SIZE: 100}}");
        assert_eq!((all.target.clone(), all.options["burst_size"].as_str()), (Target::All(true), "100"));
        assert_eq!(all.about(), "burst for all clusters");
    }

    #[test]
    fn mistakes_in_a_strategy_name_the_line_the_option_and_what_would_be_right() {
        let with = |spec: &str| format!("kind: strategy\nspec:\n{spec}");
        let on = "  type: target_size\n  target: {cluster: demo}\n";
        for (spec, part) in [
            ("  target: {cluster: demo}", "line 2: spec.type: it is missing; write one of target_size"),
            ("  type: target_sise", "line 3: spec.type: there is no type 'target_sise'; did you mean 'target_size'?"),
            ("  type: burst", "spec.target: it is missing; write {cluster: NAME}"),
            ("  type: burst\n  target: demo", "line 4: spec.target: \"demo\" does not say for which clusters"),
            ("  type: burst\n  target: {cluster: a, all: true}", "it must say one thing"),
            ("  type: burst\n  target: {all: false}", "spec.target.all: false must be true"),
            (
                "  type: burst\n  target: {clutser: a}",
                "spec.target.clutser: there is no such field; did you mean 'cluster'?",
            ),
            (on, "spec.options: option size is required"),
            (
                &format!("{on}  options:\n    SIEZ: 1cc"),
                "line 6: spec.options.SIEZ: target_size has no such option; did you mean 'size'?",
            ),
            (&format!("{on}  options: {{SIZE: a, size: b}}"), "are the same option"),
            (&format!("{on}  options: {{SIZE: a, COOLDOWN: soon}}"), "spec.options.COOLDOWN: \"soon\" is not a value"),
            (&format!("{on}  options: {{SIZE: a, COOLDOWN: -1}}"), "write whole seconds, at least 0"),
            (&format!("{on}  options: {{SIZE: a, REPLICA_SCOPE: SOME}}"), "write ALL or MANAGED_ONLY"),
            (&format!("{on}  options: {{SIZE: [a]}}"), "spec.options.SIZE: [\"a\"] is not one value"),
            (&format!("{on}  options: {{SIZE: a, config_version: 0}}"), "0 is not the present version"),
        ] {
            refused(&with(spec), part);
        }
        refused("kind: strategy\nname: mine\nspec: {type: burst}", "name: \"mine\" cannot be chosen");
        let twice = "kind: strategy\nspec: {type: burst, target: {all: true}, options: {BURST_SIZE: a}}";
        refused(
            &format!("{twice}\n---\n{twice}"),
            "document 2, line 4: strategies/burst for all clusters is there twice",
        );
    }
}

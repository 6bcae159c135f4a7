//! Manifests of strategies. Type and target say which one is meant; the id is the group's to give.
//!
//! The options of a file are all there are: one that is not in it goes back to its default, so that a file applied twice, and
//! a file from which a line was taken, both mean what they say.

use std::collections::BTreeMap;

use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{self, change};
use loadline_state_machine::{
    CONFIG_VERSION, Configuration, OptionValue, Options, StrategyKind, option_definition, option_definitions,
};
use serde_json::{Map, Value};

use super::{Wrong, known_keys};
use crate::text::did_you_mean;

const CONFIG_VERSION_KEY: &str = "config_version";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StrategySpec {
    pub(crate) kind: StrategyKind,
    pub(crate) target: Target,
    /// By the key under which each is stored, as it is stored.
    pub(crate) options: BTreeMap<String, String>,
    /// What is not among them stays as it is.
    pub(crate) rest_stays: bool,
}

impl StrategySpec {
    /// `target_size for demo`.
    pub(crate) fn about(&self) -> String {
        match &self.target {
            Target::Cluster(name) => format!("{} for {name}", self.kind),
            Target::Pattern(pattern) => format!("{} for clusters like '{pattern}'", self.kind),
            Target::All(_) => format!("{} for all clusters", self.kind),
        }
    }

    pub(crate) fn is(&self, found: &v1::Strategy) -> bool {
        let target = found.target.as_ref().and_then(|target| target.target.as_ref());
        found.r#type == self.kind.as_str() && target == Some(&self.target)
    }

    /// Option, value now, value wanted; nothing for the default.
    pub(crate) fn differences(&self, found: Option<&v1::Strategy>) -> Vec<(String, Option<String>, Option<String>)> {
        let empty = BTreeMap::new();
        let now = found.map_or(&empty, |found| &found.options);
        let keys: std::collections::BTreeSet<&String> = now.keys().chain(self.options.keys()).collect();
        keys.into_iter()
            .filter(|key| key.as_str() != CONFIG_VERSION_KEY)
            .filter(|key| !self.rest_stays || self.options.contains_key(*key))
            .map(|key| (key.clone(), now.get(key).cloned(), self.options.get(key).cloned()))
            .filter(|(_, now, wanted)| now != wanted)
            .collect()
    }

    fn target(&self) -> Option<v1::StrategyTarget> {
        Some(v1::StrategyTarget { target: Some(self.target.clone()) })
    }

    pub(crate) fn create(&self) -> change::Change {
        let strategy = v1::Strategy {
            r#type: self.kind.as_str().to_owned(),
            target: self.target(),
            options: self.options.clone(),
            ..v1::Strategy::default()
        };
        let strategy = Some(strategy);
        change::Change::CreateStrategy(v1::CreateStrategyRequest { options: None, strategy, allow_existing: false })
    }

    pub(crate) fn configure(
        &self,
        differences: &[(String, Option<String>, Option<String>)],
        etag: String,
    ) -> change::Change {
        let set = differences.iter().filter_map(|(key, _, wanted)| Some((key.clone(), wanted.clone()?))).collect();
        let reset = differences.iter().filter(|(_, _, wanted)| wanted.is_none()).map(|(key, _, _)| key.clone());
        change::Change::UpdateStrategy(v1::UpdateStrategyRequest {
            options: None,
            target: self.target(),
            r#type: self.kind.as_str().to_owned(),
            set,
            reset: reset.collect(),
            etag,
        })
    }
}

pub(super) fn read(spec: &Map<String, Value>) -> Result<StrategySpec, Wrong> {
    known_keys(spec, "spec", &["type", "target", "options"])?;
    let kinds = StrategyKind::PRIORITY_ORDER.map(StrategyKind::as_str);
    let kind = match spec.get("type") {
        Some(Value::String(text)) => text.parse::<StrategyKind>().map_err(|_| {
            let hint = did_you_mean(text, kinds);
            Wrong::at("spec.type", format!("there is no type '{text}'{hint} (there are {})", kinds.join(", ")))
        })?,
        Some(other) => return Err(Wrong::at("spec.type", format!("{other} must be one of {}", kinds.join(", ")))),
        None => return Err(Wrong::at("spec.type", format!("it is missing; write one of {}", kinds.join(", ")))),
    };
    let target = target(spec.get("target"))?;
    let options = options(kind, spec.get("options"))?;
    Ok(StrategySpec { kind, target, options, rest_stays: false })
}

pub(super) fn target(given: Option<&Value>) -> Result<Target, Wrong> {
    const RIGHT: &str = "write {cluster: NAME}, {pattern: LIKE} or {all: true}";
    let wrong = |message: String| Wrong::at("spec.target", message);
    let fields = match given {
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(wrong(format!("{other} does not say for which clusters; {RIGHT}"))),
        None => return Err(wrong(format!("it is missing; {RIGHT}"))),
    };
    known_keys(fields, "spec.target", &["cluster", "pattern", "all"])?;
    let mut fields = fields.iter();
    let (Some((key, value)), None) = (fields.next(), fields.next()) else {
        return Err(wrong(format!("it must say one thing; {RIGHT}")));
    };
    match (key.as_str(), value) {
        ("cluster", Value::String(name)) if !name.is_empty() => Ok(Target::Cluster(name.clone())),
        ("cluster", Value::Number(number)) => Ok(Target::Cluster(number.to_string())),
        ("pattern", Value::String(pattern)) if !pattern.is_empty() => Ok(Target::Pattern(pattern.clone())),
        ("all", Value::Bool(true)) => Ok(Target::All(true)),
        ("all", _) => Err(Wrong::at("spec.target.all", format!("{value} must be true"))),
        (key, value) => Err(Wrong::at(format!("spec.target.{key}"), format!("{value} must be text"))),
    }
}

/// All the options that a strategy is to have. They must mean something together.
pub(super) fn options(kind: StrategyKind, given: Option<&Value>) -> Result<BTreeMap<String, String>, Wrong> {
    let (options, written) = written(kind, given)?;
    check(kind, &options, &written)?;
    Ok(stored(&options))
}

/// Those that change. What they mean with those that stay, the group says.
pub(super) fn changed_options(kind: StrategyKind, given: &Value) -> Result<BTreeMap<String, String>, Wrong> {
    Ok(stored(&written(kind, Some(given))?.0))
}

/// What is written, as it is stored, and under which name each was written.
fn written(kind: StrategyKind, given: Option<&Value>) -> Result<(Options, BTreeMap<String, String>), Wrong> {
    let empty = Map::new();
    let fields = match given {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(fields)) => fields,
        Some(other) => return Err(Wrong::at("spec.options", format!("{other} must hold options and their values"))),
    };
    let mut options = Options::default();
    let mut written: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in fields {
        let field = format!("spec.options.{name}");
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(yes) => yes.to_string(),
            Value::Number(number) => number.to_string(),
            other => return Err(Wrong::at(field, format!("{other} is not one value"))),
        };
        if name == CONFIG_VERSION_KEY {
            if text != CONFIG_VERSION.to_string() {
                let right = format!("write the options under their present names, and {CONFIG_VERSION} or no version");
                return Err(Wrong::at(field, format!("{text} is not the present version; {right}")));
            }
            continue;
        }
        let Some(known) = option_definition(kind, name) else {
            // They are read in any case.
            let names: Vec<String> = option_definitions(kind).map(|known| known.sql_name.to_lowercase()).collect();
            let hint = did_you_mean(name, names.iter().map(String::as_str));
            return Err(Wrong::at(field, format!("{kind} has no such option{hint} (there are {})", names.join(", "))));
        };
        if let Some(other) = written.insert(known.key.to_owned(), name.clone()) {
            return Err(Wrong::at(field, format!("'{other}' and '{name}' are the same option: write it once")));
        }
        let read = known.parse(&text).unwrap_or(OptionValue::Text(text));
        options.set(known.key, read);
    }
    Ok((options, written))
}

fn stored(options: &Options) -> BTreeMap<String, String> {
    options.iter().map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

/// Whether they mean something together.
fn check(kind: StrategyKind, options: &Options, written: &BTreeMap<String, String>) -> Result<(), Wrong> {
    if let Err(problem) = Configuration::read(kind, options) {
        let key = problem.option();
        let expected = option_definition(kind, key).map(|known| format!("; write {}", known.kind.expected()));
        let field = written.get(key).map_or_else(|| "spec.options".to_owned(), |name| format!("spec.options.{name}"));
        return Err(Wrong::at(field, format!("{problem}{}", expected.unwrap_or_default())));
    }
    Ok(())
}

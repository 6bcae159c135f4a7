//! Manifests of signals. As with strategies, the options of a file are all there are: one that is not in it goes back to its
//! default. What an option may hold is checked before anything is sent, so that a secret does not leave this machine.

use std::collections::{BTreeMap, BTreeSet};

use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{self, change};
use loadline_state_machine::{SignalKind, Span, read_signal_option, signal_option, signal_options};
use serde_json::{Map, Value};

use super::plan::Difference;
use super::{Wrong, known_keys, strategy};
use crate::output::signals::show_target;
use crate::text::did_you_mean;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SignalSpec {
    pub(crate) kind: SignalKind,
    pub(crate) target: Target,
    /// Nothing: as it is, or as often as a new one is asked for.
    pub(crate) every: Option<Span>,
    /// By key, as they are stored.
    pub(crate) options: BTreeMap<String, String>,
}

impl SignalSpec {
    /// Field, value now, value wanted; nothing for the default.
    pub(crate) fn differences(&self, found: Option<&v1::Signal>) -> Vec<Difference> {
        let empty = v1::Signal::default();
        let now = found.unwrap_or(&empty);
        let there = |text: String| found.map(|_| text);
        let target = now.target.as_ref().and_then(|target| target.target.as_ref());
        let every = Some(now.every_ms).filter(|millis| *millis > 0).map(|millis| Span::from_millis(millis).to_string());
        let mut all = vec![
            ("type".to_owned(), there(now.r#type.clone()), Some(self.kind.to_string())),
            ("target".to_owned(), there(show_target(target)), Some(show_target(Some(&self.target)))),
        ];
        if let Some(wanted) = self.every {
            all.push(("every".to_owned(), every, Some(wanted.to_string())));
        }
        let keys: BTreeSet<&String> = now.options.keys().chain(self.options.keys()).collect();
        all.extend(
            keys.into_iter()
                .map(|key| (format!("options.{key}"), now.options.get(key).cloned(), self.options.get(key).cloned())),
        );
        all.retain(|(_, now, wanted)| now != wanted);
        all
    }

    fn target(&self) -> Option<v1::StrategyTarget> {
        Some(v1::StrategyTarget { target: Some(self.target.clone()) })
    }

    pub(crate) fn create(&self, name: String) -> change::Change {
        let signal = v1::Signal {
            name,
            r#type: self.kind.as_str().to_owned(),
            target: self.target(),
            every_ms: self.every.map_or(0, Span::as_millis),
            options: self.options.clone(),
            ..v1::Signal::default()
        };
        let signal = Some(signal);
        change::Change::CreateSignal(v1::CreateSignalRequest { options: None, signal, allow_existing: false })
    }

    pub(crate) fn configure(&self, name: String, fields: &[Difference], etag: String) -> change::Change {
        if fields.iter().any(|(field, ..)| field == "type") {
            // Where a signal comes from does not change: the group says that there is one of this name already.
            return self.create(name);
        }
        let option = |field: &str| field.strip_prefix("options.").map(str::to_owned);
        let set = fields.iter().filter_map(|(field, _, wanted)| Some((option(field)?, wanted.clone()?)));
        let reset = fields.iter().filter(|(_, _, wanted)| wanted.is_none()).filter_map(|(field, ..)| option(field));
        change::Change::UpdateSignal(v1::UpdateSignalRequest {
            options: None,
            name,
            target: self.target(),
            every_ms: self.every.map_or(0, Span::as_millis),
            set: set.collect(),
            reset: reset.collect(),
            etag,
        })
    }
}

pub(super) fn read(spec: &Map<String, Value>) -> Result<SignalSpec, Wrong> {
    known_keys(spec, "spec", &["type", "target", "every", "options"])?;
    let kinds = SignalKind::ALL.map(SignalKind::as_str);
    let right = || format!("write one of {}", kinds.join(", "));
    let kind = match spec.get("type") {
        Some(Value::String(text)) => text.parse::<SignalKind>().map_err(|_| {
            let hint = did_you_mean(text, kinds);
            Wrong::at("spec.type", format!("there is no type '{text}'{hint}; {}", right()))
        })?,
        Some(other) => return Err(Wrong::at("spec.type", format!("{other} is no type; {}", right()))),
        None => return Err(Wrong::at("spec.type", format!("it is missing; {}", right()))),
    };
    let target = match spec.get("target") {
        None | Some(Value::Null) => Target::All(true),
        given => strategy::target(given)?,
    };
    let every = match spec.get("every") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(
            text.parse()
                .map_err(|error: loadline_state_machine::ParseSpanError| Wrong::at("spec.every", error.to_string()))?,
        ),
        Some(other) => return Err(Wrong::at("spec.every", format!("{other} is no duration; write 5s, for example"))),
    };
    Ok(SignalSpec { kind, target, every, options: options(kind, spec.get("options"))? })
}

/// What an option says is never repeated: it may be a secret.
pub(super) fn options(kind: SignalKind, given: Option<&Value>) -> Result<BTreeMap<String, String>, Wrong> {
    let empty = Map::new();
    let fields = match given {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(fields)) => fields,
        Some(_) => return Err(Wrong::at("spec.options", "must hold options and their values")),
    };
    let mut options = BTreeMap::new();
    for (name, value) in fields {
        let field = format!("spec.options.{name}");
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(yes) => yes.to_string(),
            Value::Number(number) => number.to_string(),
            _ => return Err(Wrong::at(field, "must be one value")),
        };
        if signal_option(kind, name).is_none() {
            let names: Vec<&str> = signal_options(kind).iter().map(|known| known.key).collect();
            let hint = did_you_mean(name, names.iter().copied());
            let there =
                if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) };
            return Err(Wrong::at(field, format!("a signal from {kind} has no such option{hint} ({there})")));
        }
        let (key, read) = read_signal_option(kind, name, &text);
        if let Err(problem) = loadline_state_machine::check_signal_option(kind, &key, &read.to_string()) {
            return Err(Wrong::at(field, problem.to_string()));
        }
        if options.insert(key, read.to_string()).is_some() {
            return Err(Wrong::at(field, "it is there twice, in two spellings: write it once"));
        }
    }
    Ok(options)
}

//! A document taken apart piece by piece. Each piece knows where it is, so that a mistake names its field and what would
//! be right there.

use std::collections::BTreeSet;

use loadline_state_machine::PlanError;
use serde_json::{Map, Value};

use crate::text::did_you_mean;

pub(crate) type Read<T> = Result<T, PlanError>;

/// A value and its path, such as `strategies[1].config`.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    path: String,
    pub(crate) value: &'a Value,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value) -> Node<'a> {
        Node { path: String::new(), value }
    }

    /// This value is wrong, and `problem` says what would be right.
    pub(crate) fn wrong(&self, problem: impl Into<String>) -> PlanError {
        let field = if self.path.is_empty() { "document".to_owned() } else { self.path.clone() };
        PlanError::new(field, &problem.into())
    }

    fn expected(&self, what: &str) -> PlanError {
        self.wrong(format!("{} is not {what}", brief(self.value)))
    }

    fn below(&self, key: &str, value: &'a Value) -> Node<'a> {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Node { path, value }
    }

    /// The place of a field that need not be there.
    pub(crate) fn at(&self, key: &str) -> Node<'a> {
        self.below(key, &Value::Null)
    }

    /// `what` says what is written here, as in `an object with name and replicas`.
    pub(crate) fn object(self, what: &str) -> Read<Fields<'a>> {
        match self.value {
            Value::Object(values) => Ok(Fields { node: self, values, known: Vec::new() }),
            _ => Err(self.expected(what)),
        }
    }

    pub(crate) fn items(&self, what: &str) -> Read<Vec<Node<'a>>> {
        let Value::Array(items) = self.value else { return Err(self.expected(what)) };
        Ok((0..).zip(items).map(|(place, value)| Node { path: format!("{}[{place}]", self.path), value }).collect())
    }

    /// An object whose keys are names that somebody gave.
    pub(crate) fn entries(&self, what: &str) -> Read<Vec<(&'a str, Node<'a>)>> {
        let Value::Object(values) = self.value else { return Err(self.expected(what)) };
        Ok(values.iter().map(|(key, value)| (key.as_str(), self.below(key, value))).collect())
    }

    pub(crate) fn name(&self) -> Read<&'a str> {
        match self.value {
            Value::String(name) if name.is_empty() => Err(self.wrong("it is empty; write a name")),
            Value::String(name) if name.chars().any(|c| c.is_control() || c.is_whitespace()) => {
                Err(self.wrong(format!("{} has white space or control characters in it", brief(self.value))))
            }
            Value::String(name) => Ok(name),
            _ => Err(self.expected("a name; write text in quotation marks")),
        }
    }

    pub(crate) fn count(&self) -> Read<u64> {
        self.value.as_u64().ok_or_else(|| self.expected("a whole number, 0 or more"))
    }

    /// Seconds, as milliseconds, and no more than `millis_max`.
    pub(crate) fn seconds(&self, millis_max: u64) -> Read<u64> {
        let wanted = || self.expected("a number of seconds, 0 or more");
        let millis = match self.value.as_u64() {
            Some(secs) => secs.saturating_mul(1_000),
            None => {
                let millis = (self.value.as_f64().ok_or_else(wanted)? * 1_000.0).round();
                // Beyond the range of the type it is the largest number there is, which is too long ago as well.
                #[expect(clippy::cast_possible_truncation, reason = "a float that is too large becomes the maximum")]
                #[expect(clippy::cast_sign_loss, reason = "it is checked in the same line")]
                if millis >= 0.0 { millis as u64 } else { return Err(wanted()) }
            }
        };
        if millis > millis_max {
            return Err(self.wrong(format!("{} seconds ago is before 1970; write fewer, or a later now", self.value)));
        }
        Ok(millis)
    }
}

/// The fields of an object. Those that nobody asked for are a mistake.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    node: Node<'a>,
    values: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(crate) fn optional(&mut self, key: &'static str) -> Option<Node<'a>> {
        self.known.push(key);
        self.values.get(key).map(|value| self.node.below(key, value))
    }

    /// `what` says what would be there.
    pub(crate) fn required(&mut self, key: &'static str, what: &str) -> Read<Node<'a>> {
        match self.optional(key) {
            Some(node) => Ok(node),
            // A slip in the key is the likelier mistake.
            None => match self.values.keys().find(|given| !did_you_mean(given, [key]).is_empty()) {
                Some(given) => Err(self.unknown(given, &[key])),
                None => Err(self.node.at(key).wrong(format!("it is missing; write {what}"))),
            },
        }
    }

    /// To be called when every field was asked for.
    pub(crate) fn finish(self) -> Read<()> {
        let known: BTreeSet<&str> = self.known.iter().copied().collect();
        match self.values.keys().find(|key| !known.contains(key.as_str())) {
            Some(key) => Err(self.unknown(key, &self.known)),
            None => Ok(()),
        }
    }

    fn unknown(&self, key: &str, known: &[&'static str]) -> PlanError {
        let suggestion = match did_you_mean(key, known.iter().copied()) {
            none if none.is_empty() => format!("; there are {}", known.join(", ")),
            suggestion => suggestion,
        };
        self.node.at(key).wrong(format!("there is no such field{suggestion}"))
    }
}

/// Enough of a value to recognise it.
fn brief(value: &Value) -> String {
    const CHARS_MAX: usize = 40;
    let text = match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    };
    if text.chars().count() <= CHARS_MAX { text } else { text.chars().take(CHARS_MAX).collect::<String>() + "..." }
}

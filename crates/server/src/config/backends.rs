//! `[backends.NAME]`: where replicas live, as this node reaches it. Tables only: they hold paths and name secrets, so they are
//! a matter of the node and of its file, not of flags or of the replicated state.
//!
//! Not here: what the keys of a kind mean. Each kind's own struct in `loadline-executor` says so, and its fields are the keys.

use std::fmt;
use std::sync::Arc;

use loadline_executor::backends::local::{LocalBackend, LocalConfig};
use loadline_executor::backends::settings::{ConfigError, process_environment};
use loadline_executor::backends::sql::{Sql, SqlConfig};
use loadline_executor::backends::webhook::{Webhook, WebhookConfig};
use loadline_executor::{Backend, Backends};
use serde::Deserializer;
use serde::de::{DeserializeOwned, Error as _, Visitor};
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::ServerConfig;
use super::load::suggestion;
use super::values::{self, Raw};

/// The kinds there are, as they are written.
const KINDS: [&str; 3] = ["local", "sql", "webhook"];

/// One `[backends.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendTable {
    pub name: String,
    pub config: BackendConfig,
    /// Every key but `kind`, as it was written. No secret is among them: only where each is kept.
    written: Vec<(String, String)>,
}

/// What a backend of each kind is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendConfig {
    Local(LocalConfig),
    Sql(Box<SqlConfig>),
    Webhook(WebhookConfig),
}

impl BackendConfig {
    pub fn kind(&self) -> &'static str {
        match self {
            BackendConfig::Local(_) => "local",
            BackendConfig::Sql(_) => "sql",
            BackendConfig::Webhook(_) => "webhook",
        }
    }

    fn open(&self) -> Result<Arc<dyn Backend>, ConfigError> {
        Ok(match self.clone() {
            BackendConfig::Local(config) => Arc::new(LocalBackend::new(config)?),
            BackendConfig::Sql(config) => {
                let password = config.password(&process_environment)?;
                Arc::new(Sql::new(*config, password.as_ref())?)
            }
            BackendConfig::Webhook(config) => {
                let secrets = config.secrets(&process_environment)?;
                Arc::new(Webhook::new(config, secrets)?)
            }
        })
    }
}

/// A backend that cannot be used as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("backends.{backend}.{problem}")]
pub struct BackendProblem {
    pub backend: String,
    pub problem: ConfigError,
}

impl ServerConfig {
    /// Opens every backend that is configured. None of them is called yet: one that is down does not keep a node from starting.
    pub fn open_backends(&self) -> Result<Backends, BackendProblem> {
        let mut backends = Backends::new();
        for table in &self.backends {
            let failed = |problem| BackendProblem { backend: table.name.clone(), problem };
            backends = backends.with(&table.name, table.config.open().map_err(failed)?);
        }
        Ok(backends)
    }
}

impl BackendTable {
    /// Each key with its value, for `config check`.
    pub(super) fn effective(&self) -> impl Iterator<Item = (String, String)> {
        let kind = [("kind".to_owned(), self.config.kind().to_owned())];
        let keys = kind.into_iter().chain(self.written.iter().cloned());
        keys.map(|(key, value)| (format!("backends.{}.{key}", self.name), value))
    }
}

/// Something that is wrong with a table: at which byte of the file, with which key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) at: usize,
    pub(super) key: String,
    pub(super) message: String,
}

/// Reads one table; everything that is wrong with it, if anything is.
pub(super) fn read(name: &str, at: usize, table: &DeTable<'_>) -> Result<BackendTable, Vec<Wrong>> {
    let wrong = |at, key: &str, message: String| {
        let key = if key.is_empty() { format!("backends.{name}") } else { format!("backends.{name}.{key}") };
        vec![Wrong { at, key, message }]
    };
    values::name(&Raw::Text(name.to_owned())).map_err(|message| wrong(at, "", message))?;
    let expected = KINDS.map(|kind| format!("{kind:?}")).join(", ");
    let Some((key, kind)) = table.iter().find(|(key, _)| key.get_ref() == "kind") else {
        return Err(wrong(at, "kind", format!("is missing; write one of {expected}")));
    };
    let reading = Reading { name, at, table };
    let config = match kind.get_ref().as_str() {
        Some("local") => reading.config(LocalConfig::check).map(BackendConfig::Local)?,
        Some("sql") => reading.config(SqlConfig::check).map(Box::new).map(BackendConfig::Sql)?,
        Some("webhook") => reading.config(WebhookConfig::check).map(BackendConfig::Webhook)?,
        other => {
            let hint = other.map(|kind| suggestion(kind, KINDS.iter().map(|kind| (*kind).to_owned())));
            let message = format!("there is no such kind{}; write one of {expected}", hint.unwrap_or_default());
            return Err(wrong(key.span().start, "kind", message));
        }
    };
    let others = table.iter().filter(|(key, _)| key.get_ref() != "kind");
    let written = others.map(|(key, value)| (key.get_ref().to_string(), shown(value.get_ref()))).collect();
    Ok(BackendTable { name: name.to_owned(), config, written })
}

struct Reading<'a, 'i> {
    name: &'a str,
    at: usize,
    table: &'a DeTable<'i>,
}

impl Reading<'_, '_> {
    /// Into the struct of its kind, whose fields are the keys.
    fn config<T: DeserializeOwned>(&self, check: fn(&T) -> Result<(), ConfigError>) -> Result<T, Vec<Wrong>> {
        let known = fields_of::<T>();
        let unknown: Vec<Wrong> = self
            .table
            .keys()
            .filter(|key| key.get_ref() != "kind" && !known.contains(&key.get_ref().as_ref()))
            .map(|key| {
                // The value is not repeated: it may be a secret under a wrong name.
                let hint = suggestion(key.get_ref(), known.iter().map(|name| (*name).to_owned()));
                self.wrong(key.span().start, key.get_ref(), format!("there is no such key{hint}"))
            })
            .collect();
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let others = self.table.iter().filter(|(key, _)| key.get_ref() != "kind");
        let table: DeTable<'_> = others.map(|(key, value)| (key.clone(), value.clone())).collect();
        let whole = toml::Spanned::new(self.at..self.at, DeValue::Table(table));
        let config = T::deserialize(ValueDeserializer::from(whole)).map_err(|error| {
            let at = error.span().map_or(self.at, |span| span.start);
            vec![self.wrong(at, &self.key_at(at), error.message().to_owned())]
        })?;
        check(&config).map_err(|error| {
            let at = self.table.keys().find(|key| key.get_ref() == error.key.as_str()).map(|key| key.span().start);
            vec![self.wrong(at.unwrap_or(self.at), &error.key, error.problem)]
        })?;
        Ok(config)
    }

    fn wrong(&self, at: usize, key: &str, message: String) -> Wrong {
        let key = if key.is_empty() { self.name.to_owned() } else { format!("{}.{key}", self.name) };
        Wrong { at, key: format!("backends.{key}"), message }
    }

    /// The key whose value begins here or around here.
    fn key_at(&self, at: usize) -> String {
        let found = self.table.iter().find(|(_, value)| value.span().contains(&at) && !value.span().is_empty());
        found.map(|(key, _)| key.get_ref().to_string()).unwrap_or_default()
    }
}

/// As it was written, but for a password in an address, which a kind may refuse, and which nobody should see until it does.
fn shown(value: &DeValue<'_>) -> String {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Array(items) => items.iter().map(|item| shown(item.get_ref())).collect::<Vec<_>>().join(","),
        DeValue::Table(inner) => {
            let pair = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                format!("{key}={}", shown(value.get_ref()))
            };
            inner.iter().map(pair).collect::<Vec<_>>().join(",")
        }
        other => other.type_str().to_owned(),
    };
    match text.split_once("://") {
        Some((scheme, rest)) if rest.split('/').next().is_some_and(|host| host.contains('@')) => {
            let host = rest.split_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://...@{host}")
        }
        _ => text,
    }
}

/// The names of the fields of a struct, as it tells them to whoever deserializes it.
fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Asking<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Asking<'_> {
        type Error = stop::Stop;

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(Self::Error::custom("only a struct has fields"))
        }

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = fields;
            Err(Self::Error::custom("that was all"))
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    let mut fields: &'static [&'static str] = &[];
    let _asked = T::deserialize(Asking(&mut fields));
    fields
}

/// The end of a deserialization that only wanted to know something.
mod stop {
    use super::fmt;

    #[derive(Debug)]
    pub(super) struct Stop;

    impl fmt::Display for Stop {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("nothing is read here")
        }
    }

    impl std::error::Error for Stop {}

    impl serde::de::Error for Stop {
        fn custom<T: fmt::Display>(_: T) -> Stop {
            Stop
        }
    }
}

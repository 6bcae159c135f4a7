//! What the configurations of backends have in common: secrets that never print themselves, times written as text, and errors
//! that name the key.
//!
//! Not here: where the configuration comes from, and which backend a table configures. That is the server's business.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loadline_state_machine::Span;
use serde::{Deserialize, Deserializer};

/// A shorter secret than this can be tried out.
pub(crate) const SECRET_BYTES_MIN: usize = 16;

/// A key of a backend's configuration is wrong. The server says which backend, and in which file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    pub key: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ConfigError {
    pub(crate) fn new(key: &str, problem: impl Into<String>) -> Self {
        Self { key: key.to_owned(), problem: problem.into() }
    }
}

/// A value that nobody may read in a log, an error or a dump.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The value itself. Whoever calls this must not print it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// Where a secret is kept: in an environment variable or in a file, never in the configuration itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecretPlace<'a> {
    /// As in `secret`, of which `secret_env` and `secret_file` are the keys.
    pub key: &'static str,
    pub env: Option<&'a str>,
    pub file: Option<&'a Path>,
}

impl SecretPlace<'_> {
    /// Reads it; nothing if neither place is named.
    pub(crate) fn read(self, environment: &Environment<'_>) -> Result<Option<Secret>, ConfigError> {
        let (env_key, file_key) = (format!("{}_env", self.key), format!("{}_file", self.key));
        let secret = match (self.env, self.file) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                return Err(ConfigError::new(&env_key, format!("give either this or {file_key}, not both")));
            }
            (Some(variable), None) => environment(variable).ok_or_else(|| {
                ConfigError::new(&env_key, format!("the environment variable {variable} is not set for this node"))
            })?,
            (None, Some(path)) => std::fs::read_to_string(path).map_err(|error| {
                ConfigError::new(&file_key, format!("{} cannot be read as text: {error}", path.display()))
            })?,
        };
        // Editors and `echo` end a file with a line break, which nobody means as part of a secret.
        let secret = secret.trim_end_matches(['\r', '\n']);
        if secret.is_empty() {
            let key = if self.env.is_some() { env_key } else { file_key };
            return Err(ConfigError::new(&key, "the secret is empty"));
        }
        Ok(Some(Secret::new(secret)))
    }
}

/// How an environment variable is looked up. A test hands in its own: the environment of a process is shared by its tests.
pub type Environment<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// The environment of this process.
pub fn process_environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

/// Times are written as in every other configuration of ours: `500ms`, `10s`, `2m`.
pub(crate) fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span: Span = text.parse().map_err(serde::de::Error::custom)?;
    Ok(Duration::from_millis(span.as_millis()))
}

pub(crate) fn optional_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    time(deserializer).map(Some)
}

pub(crate) fn check_time(key: &str, time: Duration, shortest: Duration, longest: Duration) -> Result<(), ConfigError> {
    if (shortest..=longest).contains(&time) {
        return Ok(());
    }
    Err(ConfigError::new(key, format!("{time:?} is out of range: expected {shortest:?} to {longest:?}")))
}

pub(crate) fn check_file(key: &str, path: Option<&PathBuf>) -> Result<(), ConfigError> {
    match path {
        Some(path) if !path.is_file() => {
            Err(ConfigError::new(key, format!("{} is not a file that this node can read", path.display())))
        }
        _ => Ok(()),
    }
}

/// A call has at least the time of a slow network, and an operator does not wait longer than this for an answer.
pub(crate) const CALL_DEADLINES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(600));
pub(crate) const VISIBILITY_DELAYS: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(600));
pub(crate) const OBSERVE_EVERY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3_600));
pub(crate) const CALLS_MAX: usize = 1_000;

pub(crate) fn check_calls_max(calls_max: Option<usize>) -> Result<(), ConfigError> {
    match calls_max {
        Some(calls) if !(1..=CALLS_MAX).contains(&calls) => {
            Err(ConfigError::new("calls_max", format!("{calls} is out of range: expected 1 to {CALLS_MAX}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(env: Option<&str>, file: Option<&Path>) -> Result<Option<Secret>, ConfigError> {
        let place = SecretPlace { key: "secret", env, file };
        place.read(&|variable| (variable == "SET").then(|| "from the environment".to_owned()))
    }

    #[test]
    fn a_secret_comes_from_a_variable_or_a_file_and_never_prints_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (file, empty) = (folder.path().join("secret"), folder.path().join("empty"));
        std::fs::write(&file, "from a file\n").unwrap();
        std::fs::write(&empty, "\n").unwrap();

        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some("SET"), None), Ok(Some(Secret::new("from the environment"))));
        assert_eq!(read(None, Some(&file)), Ok(Some(Secret::new("from a file"))));
        assert_eq!(format!("{:?}", Secret::new("from a file")), "Secret(not shown)");

        let problem = |result: Result<Option<Secret>, ConfigError>| result.unwrap_err().to_string();
        assert_eq!(problem(read(Some("SET"), Some(&file))), "secret_env: give either this or secret_file, not both");
        assert_eq!(
            problem(read(Some("UNSET"), None)),
            "secret_env: the environment variable UNSET is not set for this node"
        );
        assert_eq!(problem(read(None, Some(&empty))), "secret_file: the secret is empty");
        assert!(problem(read(None, Some(Path::new("no/such")))).starts_with("secret_file: no/such cannot be read"));
    }
}

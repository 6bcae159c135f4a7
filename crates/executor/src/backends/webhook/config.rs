//! What a webhook is told: the keys of its table, and what may be in them.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use serde::Deserialize;

use super::signature::WebhookSecrets;
use crate::backends::settings::{
    self, CALL_DEADLINES, ConfigError, Environment, OBSERVE_EVERY, SECRET_BYTES_MIN, Secret, SecretPlace,
    VISIBILITY_DELAYS,
};

/// The table of a backend of kind `webhook`. `docs/backends/webhook.md` has a row for each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// The address below which the endpoints are.
    pub url: String,
    #[serde(default)]
    pub secret_env: Option<String>,
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    #[serde(default)]
    pub previous_secret_env: Option<String>,
    #[serde(default)]
    pub previous_secret_file: Option<PathBuf>,
    /// Authorities to trust instead of the machine's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Whether the receiver refuses lower epochs. It is asked when nothing is said here.
    #[serde(default)]
    pub fences: Option<bool>,
    /// Whether the receiver keeps checkpoints of what is suspended. It is asked when nothing is said here.
    #[serde(default)]
    pub checkpoints: Option<bool>,
    #[serde(default, deserialize_with = "settings::optional_time")]
    pub visibility_delay: Option<Duration>,
    #[serde(default)]
    pub calls_max: Option<usize>,
    #[serde(default = "default_call_deadline", deserialize_with = "settings::time")]
    pub call_deadline: Duration,
    #[serde(default = "default_observe_every", deserialize_with = "settings::time")]
    pub observe_every: Duration,
}

fn default_call_deadline() -> Duration {
    Duration::from_secs(10)
}

fn default_observe_every() -> Duration {
    Duration::from_secs(5)
}

impl WebhookConfig {
    /// One with this address, and the default of everything else. It still needs a secret.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            secret_env: None,
            secret_file: None,
            previous_secret_env: None,
            previous_secret_file: None,
            ca_file: None,
            fences: None,
            checkpoints: None,
            visibility_delay: None,
            calls_max: None,
            call_deadline: default_call_deadline(),
            observe_every: default_observe_every(),
        }
    }

    /// Everything that can be said without calling anybody and without reading a secret.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.check_values()?;
        if self.secret_env.is_none() && self.secret_file.is_none() {
            return Err(ConfigError::new(
                "secret_env",
                "every request is signed: name the environment variable that holds the secret, or use secret_file",
            ));
        }
        Ok(())
    }

    /// The same for one whose secrets come from elsewhere.
    pub(super) fn check_values(&self) -> Result<(), ConfigError> {
        self.base()?;
        let times = [
            ("call_deadline", Some(self.call_deadline), CALL_DEADLINES),
            ("observe_every", Some(self.observe_every), OBSERVE_EVERY),
            ("visibility_delay", self.visibility_delay, VISIBILITY_DELAYS),
        ];
        for (key, time, (shortest, longest)) in times {
            if let Some(time) = time {
                settings::check_time(key, time, shortest, longest)?;
            }
        }
        settings::check_calls_max(self.calls_max)?;
        settings::check_file("ca_file", self.ca_file.as_ref())
    }

    /// Reads the secrets from where the configuration says they are.
    pub fn secrets(&self, environment: &Environment<'_>) -> Result<WebhookSecrets, ConfigError> {
        let current = SecretPlace { key: "secret", env: self.secret_env.as_deref(), file: self.secret_file.as_deref() };
        let previous = SecretPlace {
            key: "previous_secret",
            env: self.previous_secret_env.as_deref(),
            file: self.previous_secret_file.as_deref(),
        };
        let current = long_enough("secret", current.read(environment)?)?
            .ok_or_else(|| ConfigError::new("secret_env", "every request is signed: a secret is needed"))?;
        Ok(WebhookSecrets { current, previous: long_enough("previous_secret", previous.read(environment)?)? })
    }

    /// The address without a slash at its end.
    pub(super) fn base(&self) -> Result<String, ConfigError> {
        let wrong = |problem: String| ConfigError::new("url", problem);
        let example = "expected an address like https://scaling.example.com/loadline";
        let uri: Uri = self.url.parse().map_err(|error| wrong(format!("{:?}: {error}; {example}", self.url)))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err(wrong(format!("{:?} is not an http or https address; {example}", self.url)));
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            // Not repeated in the message: it may be a password.
            return Err(wrong("a user or password in the address is not sent; requests are signed instead".to_owned()));
        }
        if uri.query().is_some() || self.url.contains('#') {
            return Err(wrong(format!("{:?} must end with its path: the endpoints are below it", self.url)));
        }
        Ok(self.url.trim_end_matches('/').to_owned())
    }
}

fn long_enough(key: &str, secret: Option<Secret>) -> Result<Option<Secret>, ConfigError> {
    match secret {
        Some(secret) if secret.reveal().len() < SECRET_BYTES_MIN => Err(ConfigError::new(
            key,
            format!(
                "{} bytes can be guessed: at least {SECRET_BYTES_MIN}, as from `openssl rand -hex 32`",
                secret.reveal().len()
            ),
        )),
        secret => Ok(secret),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<WebhookConfig, String> {
        let config: WebhookConfig = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[track_caller]
    fn refused(text: &str, expected: &str) {
        let error = table(text).unwrap_err();
        assert!(error.contains(expected), "{error:?} does not say {expected:?}");
    }

    #[test]
    fn little_is_needed_and_the_rest_has_defaults() {
        let config = table("url = 'https://example.com/loadline/'\nsecret_env = 'S'").unwrap();
        assert_eq!(
            config,
            WebhookConfig { secret_env: Some("S".into()), ..WebhookConfig::at("https://example.com/loadline/") }
        );
        assert_eq!(config.base().unwrap(), "https://example.com/loadline");
    }

    #[test]
    fn a_wrong_key_or_value_is_named_with_what_would_be_right() {
        let good = "url = 'http://localhost:1'\nsecret_env = 'S'\n";
        refused("secret_env = 'S'", "missing field `url`");
        refused("url = 'http://localhost:1'", "secret_env: every request is signed");
        refused(&format!("{good}timeout = '1s'"), "unknown field `timeout`, expected one of `url`");
        refused(&format!("{good}call_deadline = '1ms'"), "call_deadline: 1ms is out of range: expected 100ms to 600s");
        refused(&format!("{good}call_deadline = 'soon'"), "soon");
        refused(&format!("{good}calls_max = 0"), "calls_max: 0 is out of range: expected 1 to 1000");
        refused(&format!("{good}ca_file = 'no/such'"), "ca_file: no/such is not a file");
        for url in ["localhost:1", "ftp://localhost", "/path", "http://", "nonsense"] {
            refused(&format!("url = '{url}'\nsecret_env = 'S'"), "expected an address like https://");
        }
        refused("url = 'http://localhost/a?b=c'\nsecret_env = 'S'", "must end with its path");
        refused("url = 'http://me:word@localhost/a'\nsecret_env = 'S'", "requests are signed instead");
    }

    #[test]
    fn a_secret_that_can_be_guessed_is_refused() {
        let mut config = WebhookConfig { secret_env: Some("NEW".into()), ..WebhookConfig::at("http://localhost") };
        let environment = |variable: &str| match variable {
            "NEW" => Some("0123456789abcdef".to_owned()),
            _ => Some("0123456789abcde".to_owned()),
        };
        let secrets = config.secrets(&environment).unwrap();
        assert_eq!(secrets, WebhookSecrets { current: Secret::new("0123456789abcdef"), previous: None });
        config.previous_secret_env = Some("OLD".into());
        let error = config.secrets(&environment).unwrap_err();
        assert_eq!(error.key, "previous_secret");
        assert!(!error.to_string().contains("0123"), "{error} shows the secret");
    }
}

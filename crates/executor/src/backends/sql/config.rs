//! What a SQL backend is told: the keys of its table, and what may be in them.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use tokio_postgres::config::{Host, SslMode};

use super::template::{About, Template};
use crate::backends::settings::{
    self, CALL_DEADLINES, ConfigError, Environment, OBSERVE_EVERY, Secret, SecretPlace, VISIBILITY_DELAYS,
};

/// The table of a backend of kind `sql`. `docs/backends/sql.md` has a row for each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlConfig {
    /// Keywords and values, or an address, as `psql` takes them; without the password.
    pub connect: String,
    #[serde(default)]
    pub password_env: Option<String>,
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    #[serde(default)]
    pub tls: SqlTls,
    /// Authorities to trust instead of the machine's.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The table that keeps keys and the highest epoch. Without it, the backend cannot fence.
    #[serde(default)]
    pub ledger: Option<String>,
    #[serde(default = "default_ledger_keep", deserialize_with = "settings::time")]
    pub ledger_keep: Duration,
    #[serde(default = "default_create")]
    pub create: String,
    #[serde(default = "default_drop")]
    pub drop: String,
    #[serde(default)]
    pub cordon: Option<String>,
    #[serde(default)]
    pub drain: Option<String>,
    #[serde(default)]
    pub uncordon: Option<String>,
    /// What keeps a checkpoint of a replica. Without it, nothing that is suspended is checkpointed.
    #[serde(default)]
    pub checkpoint: Option<String>,
    /// The replicas of one cluster.
    #[serde(default = "default_observe")]
    pub observe: String,
    /// One replica; by default, what `observe` shows of it.
    #[serde(default)]
    pub verify: Option<String>,
    /// Whether the database manages the replicas of a cluster itself. Without it, and with statements of one's own, none is.
    #[serde(default)]
    pub managed: Option<String>,
    #[serde(default, deserialize_with = "settings::optional_time")]
    pub visibility_delay: Option<Duration>,
    #[serde(default)]
    pub calls_max: Option<usize>,
    #[serde(default = "default_call_deadline", deserialize_with = "settings::time")]
    pub call_deadline: Duration,
    #[serde(default = "default_observe_every", deserialize_with = "settings::time")]
    pub observe_every: Duration,
}

/// Whether the way to the database is encrypted. A Unix socket never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SqlTls {
    /// With a certificate that fits the host and that is trusted.
    #[default]
    Require,
    Off,
}

fn default_ledger_keep() -> Duration {
    Duration::from_secs(7 * 24 * 3_600)
}

fn default_create() -> String {
    "CREATE CLUSTER REPLICA {cluster}.{replica} SIZE = {size}".to_owned()
}

fn default_drop() -> String {
    "DROP CLUSTER REPLICA {cluster}.{replica}".to_owned()
}

fn default_observe() -> String {
    "SELECT r.name, r.size, r.id AS incarnation, COALESCE(s.ready, false) AS ready \
     FROM mz_catalog.mz_cluster_replicas AS r \
     JOIN mz_catalog.mz_clusters AS c ON c.id = r.cluster_id \
     LEFT JOIN (SELECT replica_id, bool_and(status IN ('online', 'ready')) AS ready \
     FROM mz_internal.mz_cluster_replica_statuses GROUP BY replica_id) AS s ON s.replica_id = r.id \
     WHERE c.name = {cluster_name}"
        .to_owned()
}

const DEFAULT_MANAGED: &str = "SELECT managed, size, replication_factor AS replicas FROM mz_catalog.mz_clusters \
                               WHERE name = {cluster_name}";

fn default_call_deadline() -> Duration {
    Duration::from_secs(30)
}

fn default_observe_every() -> Duration {
    Duration::from_secs(5)
}

/// The statements, read and checked.
#[derive(Clone, Debug)]
pub(super) struct Templates {
    pub create: Template,
    pub drop: Template,
    pub cordon: Option<Template>,
    pub drain: Option<Template>,
    pub uncordon: Option<Template>,
    pub checkpoint: Option<Template>,
    pub observe: Template,
    pub verify: Option<Template>,
    pub managed: Option<Template>,
}

impl SqlConfig {
    /// One that connects so, and the default of everything else.
    pub fn to(connect: impl Into<String>) -> Self {
        Self {
            connect: connect.into(),
            password_env: None,
            password_file: None,
            tls: SqlTls::default(),
            ca_file: None,
            ledger: None,
            ledger_keep: default_ledger_keep(),
            create: default_create(),
            drop: default_drop(),
            cordon: None,
            drain: None,
            uncordon: None,
            checkpoint: None,
            observe: default_observe(),
            verify: None,
            managed: None,
            visibility_delay: None,
            calls_max: None,
            call_deadline: default_call_deadline(),
            observe_every: default_observe_every(),
        }
    }

    /// Everything that can be said without connecting and without reading a secret.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.connection()?;
        self.templates()?;
        self.ledger_name()?;
        let times = [
            ("call_deadline", Some(self.call_deadline), CALL_DEADLINES),
            ("observe_every", Some(self.observe_every), OBSERVE_EVERY),
            ("visibility_delay", self.visibility_delay, VISIBILITY_DELAYS),
            // A key must be known for as long as its action can still be unsettled.
            (
                "ledger_keep",
                Some(self.ledger_keep),
                (Duration::from_secs(24 * 3_600), Duration::from_secs(3_650 * 86_400)),
            ),
        ];
        for (key, time, (shortest, longest)) in times {
            if let Some(time) = time {
                settings::check_time(key, time, shortest, longest)?;
            }
        }
        settings::check_calls_max(self.calls_max)?;
        settings::check_file("ca_file", self.ca_file.as_ref())
    }

    /// Reads the password from where the configuration says it is; nothing if the database asks for none.
    pub fn password(&self, environment: &Environment<'_>) -> Result<Option<Secret>, ConfigError> {
        let (env, file) = (self.password_env.as_deref(), self.password_file.as_deref());
        SecretPlace { key: "password", env, file }.read(environment)
    }

    pub(super) fn connection(&self) -> Result<tokio_postgres::Config, ConfigError> {
        let wrong = |problem: &str| ConfigError::new("connect", problem);
        // Errors of the parser are not repeated: they may quote a password.
        let mut config: tokio_postgres::Config = self.connect.parse().map_err(|_| {
            wrong("expected keywords and values, as in \"host=db.example.com user=loadline dbname=shop\", or a postgresql:// address")
        })?;
        if config.get_password().is_some() {
            return Err(wrong("a password does not belong here: use password_env or password_file"));
        }
        if config.get_hosts().is_empty() {
            return Err(wrong("host is missing: a name, an address, or the folder of a Unix socket"));
        }
        if config.get_user().is_none() {
            return Err(wrong("user is missing"));
        }
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let encrypted = self.tls == SqlTls::Require && !local;
        config.ssl_mode(if encrypted { SslMode::Require } else { SslMode::Disable });
        config.connect_timeout(self.call_deadline / 2);
        config.tcp_user_timeout(self.call_deadline);
        config.keepalives_idle(Duration::from_secs(30));
        if config.get_application_name().is_none() {
            config.application_name("loadline");
        }
        Ok(config)
    }

    pub(super) fn templates(&self) -> Result<Templates, ConfigError> {
        let order = |key: &str, text: &str| Template::parse(key, text, About::Order);
        let optional = |key: &str, text: Option<&String>| text.map(|text| order(key, text)).transpose();
        Ok(Templates {
            create: order("create", &self.create)?,
            drop: order("drop", &self.drop)?,
            cordon: optional("cordon", self.cordon.as_ref())?,
            drain: optional("drain", self.drain.as_ref())?,
            uncordon: optional("uncordon", self.uncordon.as_ref())?,
            checkpoint: optional("checkpoint", self.checkpoint.as_ref())?,
            observe: Template::parse("observe", &self.observe, About::Cluster)?,
            verify: optional("verify", self.verify.as_ref())?,
            managed: self.managed_query().map(|it| Template::parse("managed", it, About::Cluster)).transpose()?,
        })
    }

    /// The default belongs to the default statements: another catalog has another way to say so.
    fn managed_query(&self) -> Option<&str> {
        let usual = || (self.create == default_create()).then_some(DEFAULT_MANAGED);
        self.managed.as_deref().or_else(usual)
    }

    /// Schema, if there is one, and table.
    pub(super) fn ledger_name(&self) -> Result<Option<Vec<String>>, ConfigError> {
        // PostgreSQL cuts longer names off, and another table is named after this one.
        const NAME_BYTES_MAX: usize = 50;
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let parts: Vec<String> = ledger.split('.').map(str::to_owned).collect();
        let fits = |part: &String| {
            (1..=NAME_BYTES_MAX).contains(&part.len())
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        };
        if parts.len() > 2 || !parts.iter().all(fits) {
            return Err(ConfigError::new(
                "ledger",
                format!(
                    "{ledger:?} is no name for it: expected TABLE or SCHEMA.TABLE of lower-case letters, digits and _, up to \
                     {NAME_BYTES_MAX} each"
                ),
            ));
        }
        Ok(Some(parts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Result<SqlConfig, String> {
        let config: SqlConfig = toml::from_str(text).map_err(|error| error.message().to_owned())?;
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
        let config = table("connect = 'host=db user=loadline'").unwrap();
        assert_eq!(config, SqlConfig::to("host=db user=loadline"));
        assert_eq!(config.connection().unwrap().get_ssl_mode(), SslMode::Require);
        let local = table("connect = 'host=/run/postgresql user=loadline'").unwrap();
        assert_eq!(local.connection().unwrap().get_ssl_mode(), SslMode::Disable);
        let plain = table("connect = 'postgresql://loadline@db:6875/materialize'\ntls = 'off'").unwrap();
        assert_eq!(plain.connection().unwrap().get_ssl_mode(), SslMode::Disable);
    }

    #[test]
    fn a_wrong_key_or_value_is_named_with_what_would_be_right() {
        let good = "connect = 'host=db user=loadline'\n";
        refused("", "missing field `connect`");
        refused("connect = 'host=db'", "connect: user is missing");
        refused("connect = 'user=me'", "connect: host is missing");
        refused("connect = 'hosst=db'", "connect: expected keywords and values");
        refused("connect = 'host=db user=me password=word'", "connect: a password does not belong here");
        refused(&format!("{good}password = 'word'"), "unknown field `password`, expected one of `connect`");
        refused(&format!("{good}tls = 'maybe'"), "unknown variant `maybe`, expected `require` or `off`");
        refused(&format!("{good}create = 'CREATE {{nmae}}'"), "create: there is no placeholder {nmae} here");
        refused(&format!("{good}observe = 'SELECT {{size}}'"), "observe: there is no placeholder {size} here");
        refused(
            &format!("{good}ledger = 'a.b.c'"),
            "ledger: \"a.b.c\" is no name for it: expected TABLE or SCHEMA.TABLE",
        );
        refused(&format!("{good}ledger = 'Ledger'"), "ledger: \"Ledger\" is no name for it");
        refused(&format!("{good}ledger_keep = '1h'"), "ledger_keep: 3600s is out of range");
        refused(&format!("{good}calls_max = 0"), "calls_max: 0 is out of range");
    }

    #[test]
    fn a_password_never_shows_in_an_error() {
        let config = SqlConfig::to("host=db user=me password='a very secret word");
        let error = config.check().unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}

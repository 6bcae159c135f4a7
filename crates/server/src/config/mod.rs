//! What a node is told before it starts.
//!
//! [`keys`] is the one list of keys: the file, the `LOADLINE_*` variables, the flags, the help text and `config check` all
//! come from it. `backends` are the tables of where replicas live. [`load`](fn@load) puts the layers on top of each other: default, file, environment, flag; the last one wins.
//! Not here: settings that all nodes share and that change while they run. Those are in the replicated state.

mod backends;
mod check;
pub mod keys;
mod load;
mod values;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub use backends::{BackendConfig, BackendProblem, BackendTable};
pub use keys::{KEYS, Key};
pub use load::{Sources, load};

/// Everything one node is told. [`load`](fn@load) makes one that is checked; tests may start from [`ServerConfig::default`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerConfig {
    pub name: String,
    pub data_dir: PathBuf,
    pub grpc_listen: String,
    pub http_listen: String,
    /// For SQL; empty: there is none.
    pub pg_listen: String,
    /// Where other nodes and clients reach `grpc_listen`. Never empty after [`load`](fn@load).
    pub advertise: String,
    pub peers: Vec<String>,
    pub join: Vec<String>,
    pub heartbeat: Duration,
    pub election_timeout_min: Duration,
    pub election_timeout_max: Duration,
    pub install_snapshot_timeout: Duration,
    pub snapshot_every: u64,
    pub keep_entries: u64,
    pub entry_requests_max: u64,
    pub disk_reserve: u64,
    pub tick_every: Duration,
    pub shutdown_grace: Duration,
    pub log_level: String,
    pub log_format: LogFormat,
    /// Holds what the nodes of the group prove to each other that they are. Empty: they prove nothing.
    pub peer_secret_file: PathBuf,
    pub trust: Trust,
    pub limits: Limits,
    pub scale_to_zero: ScaleToZero,
    /// Where replicas live, as this node reaches it; by name.
    pub backends: Vec<BackendTable>,
}

/// What a node refuses to be burdened with. Traffic between nodes has limits of its own and is never shed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    pub streams_max: u64,
    pub message_in_max: u64,
    pub message_out_max: u64,
    pub request_deadline: Duration,
    pub request_deadline_max: Duration,
    pub requests_max: u64,
    pub watches_max: u64,
    pub operator_calls_max: u64,
    pub pg_connections_max: u64,
    pub pg_statements_max: u64,
    pub pg_statement_timeout: Duration,
    pub pg_rows_max: u64,
    pub restore_max: u64,
    pub keepalive_interval: Duration,
    pub keepalive_timeout: Duration,
    pub connection_age_max: Duration,
}

/// What becomes a setting of the group if nobody has ever set it. Nothing: this node has no opinion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScaleToZero {
    pub idle_threshold: Option<Duration>,
    pub keep_alive: Option<Duration>,
    pub cold_start_timeout: Option<Duration>,
    /// Without effect: deadlines are looked at when they come, not every so often.
    pub check_interval: Option<Duration>,
    pub cost_tracking: Option<bool>,
}

/// Who needs no login where everybody else does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    Nobody,
    /// Whoever calls from this machine. For development.
    Loopback,
}

impl fmt::Display for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trust::Nobody => "nobody",
            Trust::Loopback => "loopback",
        })
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        })
    }
}

impl ServerConfig {
    /// The settings that this node is configured with.
    pub(crate) fn suggestions(&self) -> Vec<(&'static str, String)> {
        let ScaleToZero { idle_threshold, keep_alive, cold_start_timeout, check_interval: _, cost_tracking } =
            self.scale_to_zero;
        let span = |name, value: Option<Duration>| value.map(|value| (name, values::show_duration(value)));
        let all = [
            span("scale_to_zero_idle_threshold", idle_threshold),
            span("scale_to_zero_keep_alive", keep_alive),
            span("scale_to_zero_cold_start_timeout", cold_start_timeout),
            cost_tracking.map(|value| ("scale_to_zero_cost_tracking", value.to_string())),
        ];
        all.into_iter().flatten().collect()
    }

    /// Each key with the value in force, as it would be written in the file. Secrets are never among them.
    pub fn effective(&self) -> Vec<(String, String)> {
        let keys = KEYS.iter().map(|key| (key.name.to_owned(), key.show(self)));
        keys.chain(self.backends.iter().flat_map(BackendTable::effective)).collect()
    }
}

/// Everything that is wrong, not only the first thing: nobody likes to start a node eight times to find eight mistakes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
}

/// One mistake, and where it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The dotted key; empty when no key is concerned, as with a file that is not TOML.
    pub key: String,
    pub origin: Origin,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Environment { variable: String },
    Flag { flag: String },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::Environment { variable } => f.write_str(variable),
            Origin::Flag { flag } => f.write_str(flag),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.origin != Origin::Default {
            write!(f, "{}: ", self.origin)?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        f.write_str(&self.message)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, problem) in self.problems.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

//! The one list of keys, with the type, the bounds, the default and the help of each.
//!
//! To add a key: a field in [`ServerConfig`], a row in [`KEYS`]. Its variable, its flag, its help and its check follow.

use std::time::Duration;

use super::values::{self, Raw};
use super::{LogFormat, ServerConfig, Trust};

/// One thing a node can be told.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// As in the file; a dot means a table.
    pub name: &'static str,
    /// As it would be written in the file. Empty: there is no default.
    pub default: &'static str,
    pub help: &'static str,
    pub(super) field: Field,
}

/// The field of [`ServerConfig`] that a key fills, and what may be written there. One enum for both, so that a key cannot
/// be parsed as one thing and stored as another.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field {
    /// A name without spaces, slashes or control characters.
    Name(fn(&mut ServerConfig) -> &mut String),
    Path(fn(&mut ServerConfig) -> &mut std::path::PathBuf),
    /// `host:port`.
    Address(fn(&mut ServerConfig) -> &mut String),
    Addresses(fn(&mut ServerConfig) -> &mut Vec<String>),
    Duration(fn(&mut ServerConfig) -> &mut Duration, Duration, Duration),
    Bytes(fn(&mut ServerConfig) -> &mut u64, u64, u64),
    Count(fn(&mut ServerConfig) -> &mut u64, u64, u64),
    LogLevel(fn(&mut ServerConfig) -> &mut String),
    LogFormat(fn(&mut ServerConfig) -> &mut LogFormat),
    Trust(fn(&mut ServerConfig) -> &mut Trust),
    /// Nothing if this node has no opinion.
    SuggestedDuration(fn(&mut ServerConfig) -> &mut Option<Duration>, Duration, Duration),
    SuggestedFlag(fn(&mut ServerConfig) -> &mut Option<bool>),
}

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

/// Every key there is.
pub static KEYS: &[Key] = &[
    Key {
        name: "name",
        default: "",
        help: "Name of this node, unlike that of any other node of the group, such as n1.",
        field: Field::Name(|c| &mut c.name),
    },
    Key {
        name: "data_dir",
        default: "loadline-data",
        help: "Folder that holds the log and the identity of this node; on a local disk, for this node alone.",
        field: Field::Path(|c| &mut c.data_dir),
    },
    Key {
        name: "grpc_listen",
        default: "127.0.0.1:7700",
        help: "Address to listen on for clients and other nodes.",
        field: Field::Address(|c| &mut c.grpc_listen),
    },
    Key {
        name: "http_listen",
        default: "127.0.0.1:8700",
        help: "Address to listen on for /livez, /readyz, /metrics and /api/v1/scaling.",
        field: Field::Address(|c| &mut c.http_listen),
    },
    Key {
        name: "pg_listen",
        default: "",
        help: "Address to listen on for SQL, with psql or any PostgreSQL driver, such as 127.0.0.1:5432; no SQL if not given.",
        field: Field::Address(|c| &mut c.pg_listen),
    },
    Key {
        name: "advertise",
        default: "",
        help: "Address at which other nodes and clients reach this one; grpc_listen if not given.",
        field: Field::Address(|c| &mut c.advertise),
    },
    Key {
        name: "peers",
        default: "",
        help: "Addresses of all nodes that found the group, this one among them, in the same order everywhere; the \
               first one founds it.",
        field: Field::Addresses(|c| &mut c.peers),
    },
    Key {
        name: "join",
        default: "",
        help: "Addresses of nodes of a running group that this node asks to let it in.",
        field: Field::Addresses(|c| &mut c.join),
    },
    Key {
        name: "heartbeat",
        default: "100ms",
        help: "How often a leader shows that it is alive.",
        field: Field::Duration(|c| &mut c.heartbeat, Duration::from_millis(10), Duration::from_secs(10)),
    },
    Key {
        name: "election_timeout_min",
        default: "300ms",
        help: "The least silence of a leader after which a node stands for election; at least twice the heartbeat.",
        field: Field::Duration(|c| &mut c.election_timeout_min, Duration::from_millis(20), Duration::from_secs(60)),
    },
    Key {
        name: "election_timeout_max",
        default: "600ms",
        help: "The longest such silence. Each node draws its own time between the two, so that they rarely stand at once.",
        field: Field::Duration(|c| &mut c.election_timeout_max, Duration::from_millis(30), Duration::from_secs(60)),
    },
    Key {
        name: "install_snapshot_timeout",
        default: "30s",
        help: "How long a snapshot may take to reach a node that is too far behind for the log.",
        field: Field::Duration(|c| &mut c.install_snapshot_timeout, Duration::from_secs(1), Duration::from_secs(3600)),
    },
    Key {
        name: "snapshot_every",
        default: "10000",
        help: "Log entries between two snapshots.",
        field: Field::Count(|c| &mut c.snapshot_every, 10, 10_000_000),
    },
    Key {
        name: "keep_entries",
        default: "1000",
        help: "Log entries kept behind a snapshot, for nodes that are a little behind.",
        field: Field::Count(|c| &mut c.keep_entries, 0, 10_000_000),
    },
    Key {
        name: "entry_requests_max",
        default: "1024",
        help: "Requests that one log entry carries at most. 1: each has an entry, and a hash, of its own, at the cost of speed.",
        field: Field::Count(|c| &mut c.entry_requests_max, 1, 8_192),
    },
    Key {
        name: "disk_reserve",
        default: "256MiB",
        help: "Free disk below which writes are refused. Votes and heartbeats go on.",
        field: Field::Bytes(|c| &mut c.disk_reserve, 0, 1024 * GIB),
    },
    Key {
        name: "tick_every",
        default: "1s",
        help: "How often logical time advances when nothing else is written.",
        field: Field::Duration(|c| &mut c.tick_every, Duration::from_millis(50), Duration::from_secs(60)),
    },
    Key {
        name: "shutdown_grace",
        default: "10s",
        help: "How long requests in flight and the hand-over of leadership may take when the node stops.",
        field: Field::Duration(|c| &mut c.shutdown_grace, Duration::from_millis(100), Duration::from_secs(600)),
    },
    Key {
        name: "log_level",
        default: "info",
        help: "error, warn, info, debug or trace; or per module, such as info,loadline_raft_node=debug.",
        field: Field::LogLevel(|c| &mut c.log_level),
    },
    Key { name: "log_format", default: "text", help: "text or json.", field: Field::LogFormat(|c| &mut c.log_format) },
    Key {
        name: "peer_secret_file",
        default: "",
        help: "File with the secret that all nodes of the group share, at least 16 printable characters; without it \
               anybody who reaches grpc_listen can speak as a node, and a group of several nodes takes no roles.",
        field: Field::Path(|c| &mut c.peer_secret_file),
    },
    Key {
        name: "trust",
        default: "nobody",
        help: "Who needs no login where roles can log in: nobody, or loopback, which is everybody on this machine and for \
               development only.",
        field: Field::Trust(|c| &mut c.trust),
    },
    Key {
        name: "scale_to_zero.idle_threshold",
        default: "",
        help: "Time without use after which clusters are suspended; becomes the setting scale_to_zero_idle_threshold of the group \
               if nobody has ever set that.",
        field: Field::SuggestedDuration(
            |c| &mut c.scale_to_zero.idle_threshold,
            Duration::from_secs(1),
            Duration::from_secs(365 * 86_400),
        ),
    },
    Key {
        name: "scale_to_zero.keep_alive",
        default: "",
        help: "How long a woken cluster is kept awake; becomes scale_to_zero_keep_alive if nobody has ever set that.",
        field: Field::SuggestedDuration(
            |c| &mut c.scale_to_zero.keep_alive,
            Duration::ZERO,
            Duration::from_secs(30 * 86_400),
        ),
    },
    Key {
        name: "scale_to_zero.cold_start_timeout",
        default: "",
        help: "How long a woken cluster may take to become ready; becomes scale_to_zero_cold_start_timeout if nobody has ever \
               set that.",
        field: Field::SuggestedDuration(
            |c| &mut c.scale_to_zero.cold_start_timeout,
            Duration::from_secs(1),
            Duration::from_secs(86_400),
        ),
    },
    Key {
        name: "scale_to_zero.check_interval",
        default: "",
        help: "Accepted and without effect: idle clusters are looked at when their deadline comes, not every so often.",
        field: Field::SuggestedDuration(
            |c| &mut c.scale_to_zero.check_interval,
            Duration::from_secs(1),
            Duration::from_secs(86_400),
        ),
    },
    Key {
        name: "scale_to_zero.cost_tracking",
        default: "",
        help: "Whether savings are counted; becomes scale_to_zero_cost_tracking if nobody has ever set that.",
        field: Field::SuggestedFlag(|c| &mut c.scale_to_zero.cost_tracking),
    },
    Key {
        name: "limits.streams_max",
        default: "100",
        help: "Calls at once on one connection; more wait.",
        field: Field::Count(|c| &mut c.limits.streams_max, 1, 10_000),
    },
    Key {
        name: "limits.message_in_max",
        default: "1MiB",
        help: "Largest message from a client.",
        field: Field::Bytes(|c| &mut c.limits.message_in_max, KIB, 64 * MIB),
    },
    Key {
        name: "limits.message_out_max",
        default: "4MiB",
        help: "Largest message to a client. Clients refuse more than 4 MiB unless told otherwise.",
        field: Field::Bytes(|c| &mut c.limits.message_out_max, 64 * KIB, 64 * MIB),
    },
    Key {
        name: "limits.request_deadline",
        default: "10s",
        help: "Deadline of a call whose caller gave none.",
        field: Field::Duration(
            |c| &mut c.limits.request_deadline,
            Duration::from_millis(10),
            Duration::from_secs(3600),
        ),
    },
    Key {
        name: "limits.request_deadline_max",
        default: "60s",
        help: "Longest deadline that a caller may ask for; a longer one is cut to this.",
        field: Field::Duration(
            |c| &mut c.limits.request_deadline_max,
            Duration::from_millis(10),
            Duration::from_secs(3600),
        ),
    },
    Key {
        name: "limits.requests_max",
        default: "1000",
        help: "Admin calls at once; more are refused with RESOURCE_EXHAUSTED.",
        field: Field::Count(|c| &mut c.limits.requests_max, 1, 1_000_000),
    },
    Key {
        name: "limits.watches_max",
        default: "1000",
        help: "Open watches; more are refused with RESOURCE_EXHAUSTED.",
        field: Field::Count(|c| &mut c.limits.watches_max, 1, 1_000_000),
    },
    Key {
        name: "limits.operator_calls_max",
        default: "16",
        help: "Operator calls at once; more are refused with RESOURCE_EXHAUSTED.",
        field: Field::Count(|c| &mut c.limits.operator_calls_max, 1, 10_000),
    },
    Key {
        name: "limits.pg_connections_max",
        default: "200",
        help: "SQL connections at once; more are refused with 53300.",
        field: Field::Count(|c| &mut c.limits.pg_connections_max, 1, 100_000),
    },
    Key {
        name: "limits.pg_statements_max",
        default: "16",
        help: "SQL queries under way at once; more are refused with 53300.",
        field: Field::Count(|c| &mut c.limits.pg_statements_max, 1, 1_000),
    },
    Key {
        name: "limits.pg_statement_timeout",
        default: "30s",
        help: "Longest time that a SQL statement may take; a session may ask for less with statement_timeout.",
        field: Field::Duration(
            |c| &mut c.limits.pg_statement_timeout,
            Duration::from_millis(10),
            Duration::from_secs(3600),
        ),
    },
    Key {
        name: "limits.pg_rows_max",
        default: "1000000",
        help: "Rows of one SQL answer; a query with more is refused with 54000.",
        field: Field::Count(|c| &mut c.limits.pg_rows_max, 1, 100_000_000),
    },
    Key {
        name: "limits.restore_max",
        default: "256MiB",
        help: "Largest snapshot file that can be restored; it is held in memory while it is checked.",
        field: Field::Bytes(|c| &mut c.limits.restore_max, MIB, loadline_state_machine::RESTORE_BYTES_MAX),
    },
    Key {
        name: "limits.keepalive_interval",
        default: "30s",
        help: "How long a connection may be silent before it is asked whether it is still there.",
        field: Field::Duration(|c| &mut c.limits.keepalive_interval, Duration::from_secs(1), Duration::from_secs(3600)),
    },
    Key {
        name: "limits.keepalive_timeout",
        default: "10s",
        help: "How long it may take to answer that.",
        field: Field::Duration(
            |c| &mut c.limits.keepalive_timeout,
            Duration::from_millis(100),
            Duration::from_secs(600),
        ),
    },
    Key {
        name: "limits.connection_age_max",
        default: "30m",
        help: "Age at which a connection takes no new calls, so that clients spread anew over the nodes. Calls and \
               watches under way go on.",
        field: Field::Duration(
            |c| &mut c.limits.connection_age_max,
            Duration::from_secs(1),
            Duration::from_secs(30 * 24 * 3600),
        ),
    },
];

impl Key {
    /// `LOADLINE_LIMITS_STREAMS_MAX`
    pub fn variable(&self) -> String {
        format!("LOADLINE_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// `--limits-streams-max`
    pub fn flag(&self) -> String {
        format!("--{}", self.name.replace(['.', '_'], "-"))
    }

    /// What the value looks like, for a usage line.
    pub fn placeholder(&self) -> &'static str {
        match self.field {
            Field::Name(_) => "NAME",
            Field::Path(_) => "PATH",
            Field::Address(_) => "HOST:PORT",
            Field::Addresses(_) => "HOST:PORT,...",
            Field::Duration(..) | Field::SuggestedDuration(..) => "DURATION",
            Field::SuggestedFlag(_) => "BOOL",
            Field::Bytes(..) => "BYTES",
            Field::Count(..) => "COUNT",
            Field::LogLevel(_) => "LEVEL",
            Field::LogFormat(_) => "FORMAT",
            Field::Trust(_) => "WHOM",
        }
    }

    /// The value in force, as it would be written in the file (without quotes).
    pub fn show(&self, config: &ServerConfig) -> String {
        // The fields are reached by `&mut` alone, so that each has one accessor; showing works on a copy.
        let mut copy = config.clone();
        match self.field {
            Field::Name(at) | Field::Address(at) | Field::LogLevel(at) => at(&mut copy).clone(),
            Field::Path(at) => at(&mut copy).display().to_string(),
            Field::Addresses(at) => at(&mut copy).join(","),
            Field::Duration(at, ..) => values::show_duration(*at(&mut copy)),
            Field::Bytes(at, ..) => values::show_bytes(*at(&mut copy)),
            Field::Count(at, ..) => at(&mut copy).to_string(),
            Field::LogFormat(at) => at(&mut copy).to_string(),
            Field::Trust(at) => at(&mut copy).to_string(),
            Field::SuggestedDuration(at, ..) => at(&mut copy).map(values::show_duration).unwrap_or_default(),
            Field::SuggestedFlag(at) => at(&mut copy).map(|flag| flag.to_string()).unwrap_or_default(),
        }
    }

    /// Parses and stores; an error says what would be right.
    pub(super) fn set(&self, config: &mut ServerConfig, raw: &Raw) -> Result<(), String> {
        match self.field {
            Field::Name(at) => *at(config) = values::name(raw)?,
            Field::Path(at) => *at(config) = values::path(raw)?,
            Field::Address(at) => *at(config) = values::address(raw)?,
            Field::Addresses(at) => *at(config) = values::addresses(raw)?,
            Field::Duration(at, min, max) => *at(config) = values::duration(raw, min, max)?,
            Field::Bytes(at, min, max) => *at(config) = values::bytes(raw, min, max)?,
            Field::Count(at, min, max) => *at(config) = values::count(raw, min, max)?,
            Field::LogLevel(at) => *at(config) = values::log_level(raw)?,
            Field::LogFormat(at) => *at(config) = values::log_format(raw)?,
            Field::Trust(at) => *at(config) = values::trust(raw)?,
            Field::SuggestedDuration(at, min, max) => *at(config) = Some(values::duration(raw, min, max)?),
            Field::SuggestedFlag(at) => *at(config) = Some(values::flag(raw)?),
        }
        Ok(())
    }
}

impl Default for ServerConfig {
    /// The defaults of [`KEYS`]. Keys without one (`name`, `advertise`, `peers`, `join`) are empty.
    fn default() -> ServerConfig {
        let zero = Duration::ZERO;
        let mut config = ServerConfig {
            name: String::new(),
            data_dir: std::path::PathBuf::new(),
            grpc_listen: String::new(),
            http_listen: String::new(),
            pg_listen: String::new(),
            advertise: String::new(),
            peers: Vec::new(),
            join: Vec::new(),
            heartbeat: zero,
            election_timeout_min: zero,
            election_timeout_max: zero,
            install_snapshot_timeout: zero,
            snapshot_every: 0,
            keep_entries: 0,
            entry_requests_max: 0,
            disk_reserve: 0,
            tick_every: zero,
            shutdown_grace: zero,
            log_level: String::new(),
            log_format: LogFormat::Text,
            peer_secret_file: std::path::PathBuf::new(),
            trust: Trust::Nobody,
            limits: super::Limits {
                streams_max: 0,
                message_in_max: 0,
                message_out_max: 0,
                request_deadline: zero,
                request_deadline_max: zero,
                requests_max: 0,
                watches_max: 0,
                operator_calls_max: 0,
                pg_connections_max: 0,
                pg_statements_max: 0,
                pg_statement_timeout: zero,
                pg_rows_max: 0,
                restore_max: 0,
                keepalive_interval: zero,
                keepalive_timeout: zero,
                connection_age_max: zero,
            },
            scale_to_zero: super::ScaleToZero::default(),
            backends: Vec::new(),
        };
        for key in KEYS.iter().filter(|key| !key.default.is_empty()) {
            key.set(&mut config, &Raw::Text(key.default.to_owned())).expect("the defaults in KEYS are right");
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_reads_back_as_it_is_written() {
        let config = ServerConfig::default();
        for key in KEYS {
            assert_eq!(key.show(&config), key.default, "{}", key.name);
        }
    }

    #[test]
    fn every_key_fills_a_field_of_its_own() {
        // A row copied and not finished would fill the field of its neighbour.
        for key in KEYS {
            let mut config = ServerConfig::default();
            let other = match key.field {
                Field::Name(_) => "other",
                Field::Path(_) => "/other",
                Field::Address(_) | Field::Addresses(_) => "other:1",
                Field::Duration(_, _, max) | Field::SuggestedDuration(_, _, max) => &values::show_duration(max),
                Field::SuggestedFlag(_) => "false",
                Field::Bytes(_, _, max) => &values::show_bytes(max),
                Field::Count(_, _, max) => &max.to_string(),
                Field::LogLevel(_) => "trace",
                Field::LogFormat(_) => "json",
                Field::Trust(_) => "loopback",
            };
            key.set(&mut config, &Raw::Text(other.to_owned())).unwrap();
            let changed: Vec<&str> = KEYS
                .iter()
                .filter(|key| key.show(&config) != key.show(&ServerConfig::default()))
                .map(|key| key.name)
                .collect();
            assert_eq!(changed, [key.name]);
            assert_eq!(key.show(&config), other);
        }
    }

    #[test]
    fn names_of_variables_and_flags_follow_from_the_key() {
        let key = KEYS.iter().find(|key| key.name == "limits.streams_max").unwrap();
        assert_eq!(key.variable(), "LOADLINE_LIMITS_STREAMS_MAX");
        assert_eq!(key.flag(), "--limits-streams-max");
    }
}

//! The flags of the verbs about scaling: strategies, pauses, approvals, signals.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use crate::args::WriteArgs;
use crate::text::{parse_duration, parse_milli};

/// Which clusters a strategy is for.
#[derive(Debug, Clone, Args)]
#[group(required = false, multiple = true)]
pub(crate) struct TargetArgs {
    /// For this cluster
    #[arg(long, value_name = "NAME", conflicts_with = "all_clusters")]
    pub(crate) cluster: Option<String>,
    /// For every cluster, also those that come later
    #[arg(long)]
    pub(crate) all_clusters: bool,
    /// With --all-clusters: only those whose name is LIKE this; % is any text, _ one character
    #[arg(long, requires = "all_clusters", value_name = "PATTERN")]
    pub(crate) like: Option<String>,
}

/// `KEY=VALUE`, as in `SIZE=200cc` or `cooldown_s=60`.
fn parse_option(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE, such as SIZE=200cc or COOLDOWN=5m")),
    }
}

#[derive(Debug, Args)]
pub(crate) struct CreateStrategyArgs {
    /// target_size, shrink_to_fit, target_tracking, queue_depth, burst or idle_suspend
    #[arg(value_name = "TYPE")]
    pub(crate) kind: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// An option of the strategy, such as SIZE=200cc or COOLDOWN=5m; can be repeated
    #[arg(long = "option", value_name = "KEY=VALUE", value_parser = parse_option)]
    pub(crate) options: Vec<(String, String)>,
    /// No error if there is one of this type already; it stays as it is
    #[arg(long)]
    pub(crate) if_not_exists: bool,
    /// Say what would happen, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateReplicaArgs {
    /// Its name, which must not end in _auto
    pub(crate) name: String,
    /// The cluster that it is one of
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: String,
    /// A step on the ladder of sizes
    #[arg(long)]
    pub(crate) size: String,
    /// No error if there is one of this name already; it stays as it is
    #[arg(long)]
    pub(crate) if_not_exists: bool,
    /// Say what would happen, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// A strategy that is there.
#[derive(Debug, Clone, Args)]
pub(crate) struct StrategyRef {
    /// Its id, such as s12.0, or its type together with --cluster or --all-clusters
    #[arg(value_name = "ID|TYPE")]
    pub(crate) which: String,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Update {
    /// Where a cluster lives; nothing may be under way on it
    Cluster {
        /// Name of the cluster
        name: String,
        /// The backend that its replicas are to live on; empty: where the setting default_backend says
        #[arg(long, value_name = "NAME")]
        backend: String,
        #[command(flatten)]
        write: WriteArgs,
    },
    /// Whether a role is a superuser, and its password
    Role(crate::role_args::UpdateRoleArgs),
    /// Options of a strategy; what is not named stays as it is
    Strategy {
        #[command(flatten)]
        strategy: StrategyRef,
        /// An option to set, such as COOLDOWN=5m; can be repeated
        #[arg(long = "option", value_name = "KEY=VALUE", value_parser = parse_option)]
        options: Vec<(String, String)>,
        /// An option that goes back to its default; can be repeated
        #[arg(long = "reset", value_name = "KEY")]
        reset: Vec<String>,
        #[command(flatten)]
        write: WriteArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Switch {
    /// A strategy
    Strategy {
        #[command(flatten)]
        strategy: StrategyRef,
        #[command(flatten)]
        write: WriteArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// Name of the cluster
    pub(crate) cluster: String,
    /// Why, for whoever wonders
    #[arg(long)]
    pub(crate) reason: String,
    /// How long, such as 2h; until somebody resumes it if not given
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) lasts: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct SignalArgs {
    /// Name of the cluster
    #[arg(required_unless_present = "file")]
    pub(crate) cluster: Option<String>,
    /// Reports as JSON lines, such as {"cluster": "demo", "metric": {"name": "queue", "value": 7}}; - reads stdin as it comes
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with_all = ["cluster", "age"])]
    pub(crate) file: Option<PathBuf>,
    /// Who saw it; a collector of its own, so that it does not get into another one's stream
    #[arg(long, global = true, default_value = "by-hand", value_name = "NAME")]
    pub(crate) collector: String,
    /// Number of the first report, higher than any before; the time in milliseconds if not given
    #[arg(long, global = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sequence: Option<u64>,
    /// How long ago it was seen, such as 30s; just now if not given
    #[arg(long, global = true, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) age: Option<Duration>,
    #[command(subcommand)]
    pub(crate) what: Option<Sight>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Sight {
    /// Nothing new: what was said last still holds
    Alive,
    /// When the cluster was used last
    Activity {
        /// How long ago; just now if not given
        #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "none")]
        idle_for: Option<Duration>,
        /// Nobody has used it for as long as anybody has looked
        #[arg(long)]
        none: bool,
    },
    /// A replica is there
    Replica {
        /// Its name
        name: String,
        /// Its size
        #[arg(long)]
        size: String,
        /// It takes work
        #[arg(long)]
        ready: bool,
        /// Which life of a replica of this name
        #[arg(long, default_value = "", hide_default_value = true)]
        incarnation: String,
    },
    /// A replica is gone
    Gone {
        /// Its name
        name: String,
        /// Only if it is this life of it
        #[arg(long, default_value = "", hide_default_value = true)]
        incarnation: String,
    },
    /// How many of its objects a replica has ready
    Hydration {
        /// Name of the replica
        replica: String,
        /// Objects that it should have
        #[arg(long)]
        total: u64,
        /// Objects that are hydrated
        #[arg(long)]
        hydrated: u64,
    },
    /// A replica crashed
    Crash {
        /// Name of the replica
        replica: String,
        /// For want of memory
        #[arg(long)]
        oom: bool,
        /// In the words of whoever saw it
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        /// How often
        #[arg(long, default_value_t = 1)]
        count: u64,
    },
    /// A number that somebody measures
    Metric {
        /// Its name, such as queue_depth
        name: String,
        /// Its value, with up to three digits after the point
        #[arg(allow_hyphen_values = true, value_parser = parse_milli)]
        value: i64,
    },
    /// A replica is about to be taken away
    Notice {
        /// Name of the replica
        replica: String,
        /// Why
        #[arg(value_enum)]
        kind: NoticeWord,
        /// When, such as 2m from now; not known if not given
        #[arg(long = "in", value_name = "DURATION", value_parser = parse_duration)]
        gone_in: Option<Duration>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum NoticeWord {
    /// A spot instance will be taken back
    Spot,
    /// Something of higher priority needs the place
    Preemption,
}

//! The flags of `audit`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use loadline_audit::Moment;

use loadline_state_machine::Time;

use crate::history::{HistoryArgs, parse_moment, parse_time};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Show the state as it was, or write it with everything before it into a SQLite file
    Replay(ReplayArgs),
    /// Show what happened and who did it, the newest first; with --actor only what that one asked for
    Log(LogArgs),
    /// Show what changed between two moments, and who did it; exit code 1 if anything did
    Diff(DiffArgs),
}

impl AuditVerb {
    /// Whether it works on what is at rest alone.
    pub(crate) fn needs_no_group(&self) -> bool {
        match self {
            AuditVerb::Replay(args) => args.history.is_given(),
            AuditVerb::Diff(args) => args.history.is_given(),
            AuditVerb::Log(args) => args.history.is_given(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Only what is about this cluster, by the name that it has or had, or by id
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// Only of this kind, such as CreateCluster or ClusterCreated; can be repeated
    #[arg(long = "kind", value_name = "KIND", value_delimiter = ',')]
    pub(crate) kinds: Vec<String>,
    /// Not earlier than this: a time such as '2026-11-16 10:00:00', or how long ago, such as 24h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) since: Option<Time>,
    /// Not later than this
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) until: Option<Time>,
    /// At most so many rows
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The earlier moment: an index of the log, a time such as '2026-11-16 10:00:00', or '2h ago'
    #[arg(value_name = "A", value_parser = parse_moment)]
    pub(crate) from: Moment,
    /// The later moment; end is the last entry
    #[arg(value_name = "B", value_parser = parse_moment)]
    pub(crate) to: Moment,
    /// Begin with the newest kept state before the earlier moment, instead of the first entry
    #[arg(long)]
    pub(crate) from_snapshot: bool,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// Only these types, such as clusters strategies; everything if not given
    #[arg(value_name = "TYPE")]
    pub(crate) kinds: Vec<String>,
    /// To which moment: an index of the log, a time such as '2026-11-16 10:00:00', '2h ago', or end
    #[arg(long, value_name = "INDEX|TIME", default_value = "end", value_parser = parse_moment)]
    pub(crate) to: Moment,
    /// Begin with the newest kept state before that moment, instead of the first entry; faster, and what is over begins there
    #[arg(long)]
    pub(crate) from_snapshot: bool,
    /// Write a new SQLite file instead of showing the state
    #[arg(long, value_name = "FILE", conflicts_with = "kinds")]
    pub(crate) to_db: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long, requires = "to_db")]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

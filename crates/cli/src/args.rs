//! The command line: verbs, flags and their help.
//!
//! The flags of `serve` and `config check` are not written here: they follow from the server's list of keys
//! (`serve_args.rs`).

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use loadline_audit::Moment;
use loadline_client::Secret;
use loadline_executor::backends::local::replica::ReplicaOptions;

use crate::audit_args::AuditVerb;
use crate::bench::Bench;
use crate::commands::action::ActionVerb;
use crate::commands::backtest::BacktestArgs;
use crate::commands::load::LoadArgs;
use crate::commands::sql::SqlArgs;
use crate::commands::whatif::WhatIfArgs;
use crate::dev::DevArgs;
use crate::history::HistoryArgs;
use crate::moment::parse_moment;
use crate::output::{Format, Output, OutputParser};
use crate::plan::PlanArgs;
use crate::role_args::{CreateRoleArgs, Grant, Revoke, parse_secret};
use crate::scaling_args::{CreateReplicaArgs, CreateStrategyArgs, PauseArgs, SignalArgs, Switch, Update};
use crate::serve_args::ServeArgs;
use crate::sleep_args::{OverrideArgs, SavingsArgs, WakeArgs};
use crate::text::{parse_duration, parse_price};

/// Variables that this command reads. Those of a node are in the server's list of keys.
pub(crate) const CLIENT_VARIABLES: [&str; 9] = [
    "LOADLINE_ACTOR",
    "LOADLINE_CONTEXT",
    "LOADLINE_ENDPOINT",
    "LOADLINE_OUTPUT",
    "LOADLINE_PASSWORD",
    "LOADLINE_ROLE",
    "LOADLINE_SQL_ENDPOINT",
    "LOADLINE_TIMEOUT",
    "LOADLINE_TOKEN",
];

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 failure (or different), 2 usage, 3 not found, 4 conflict, 5 unavailable, \
                          6 timed out, 7 denied.";

/// A scaling coordinator: three nodes, one durable log, and an answer to every why.
#[derive(Debug, Parser)]
#[command(name = "loadline", version, after_help = EXIT_CODES, disable_help_subcommand = true, max_term_width = 120)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// How to show the answer
    #[arg(short, long, global = true, env = "LOADLINE_OUTPUT", hide_env_values = true, value_parser = OutputParser)]
    #[arg(value_name = "FORMAT")]
    pub(crate) output: Option<Output>,
    /// Context to use instead of the current one
    #[arg(long, global = true, env = "LOADLINE_CONTEXT", hide_env_values = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Node to ask, instead of those of the context; can be repeated
    #[arg(long = "endpoint", global = true, env = "LOADLINE_ENDPOINT", hide_env_values = true, value_delimiter = ',')]
    #[arg(value_name = "HOST:PORT")]
    pub(crate) endpoints: Vec<String>,
    /// How long to try, such as 10s
    #[arg(long, global = true, env = "LOADLINE_TIMEOUT", hide_env_values = true, value_parser = parse_duration)]
    #[arg(value_name = "DURATION")]
    pub(crate) timeout: Option<Duration>,
    /// Read what the answering node has applied; works without a leader
    #[arg(long, global = true)]
    pub(crate) stale: bool,
    /// Who asks, for the audit log; user@host if not given. Of audit log itself: whose doings to show
    #[arg(long, global = true, env = "LOADLINE_ACTOR", hide_env_values = true, value_name = "NAME")]
    pub(crate) actor: Option<String>,
    /// It was named on the command line, and not by a variable.
    #[arg(skip)]
    pub(crate) actor_named: bool,
    /// Token of a role, where a login is needed; better in LOADLINE_TOKEN or the context, where others do not see it
    #[arg(long, global = true, env = "LOADLINE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    #[arg(value_parser = parse_secret)]
    pub(crate) token: Option<Secret>,
    /// No colours on stderr
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

impl Global {
    /// The format that was asked for.
    pub(crate) fn format(&self) -> Option<Format> {
        match &self.output {
            Some(Output::Format(format)) => Some(*format),
            Some(Output::Other(_)) | None => None,
        }
    }

    /// What was asked for with `-o` that is no format. Only some commands take it.
    pub(crate) fn other_output(&self) -> Option<&OsStr> {
        match &self.output {
            Some(Output::Other(other)) => Some(other),
            Some(Output::Format(_)) | None => None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run three nodes on this machine, to try things out
    Dev(DevArgs),
    /// Run one node
    Serve(ServeArgs),
    /// Run one replica of a local backend; nodes do that by themselves
    Replica(ReplicaOptions),
    /// Every node: who leads, how far each has come, whether they agree
    Status,
    /// Create a size, a cluster, a strategy, a role or a token
    Create {
        #[command(subcommand)]
        what: Create,
    },
    /// Show sizes, clusters, settings, strategies, decisions, operations, actions, roles or nodes
    Get(GetArgs),
    /// Show everything that is known of one or more of them
    Describe {
        #[command(flatten)]
        what: Words,
    },
    /// Delete sizes, clusters, strategies or a role, or set settings back to their defaults
    Delete(DeleteArgs),
    /// Give a role a privilege
    Grant {
        #[command(subcommand)]
        what: Grant,
    },
    /// Take a privilege or a token back
    Revoke {
        #[command(subcommand)]
        what: Revoke,
    },
    /// Change some options of a strategy, where a cluster lives, or a role
    Update {
        #[command(subcommand)]
        what: Update,
    },
    /// Switch a strategy on
    Enable {
        #[command(subcommand)]
        what: Switch,
    },
    /// Switch a strategy off; it keeps its place, so that no wider one takes over
    Disable {
        #[command(subcommand)]
        what: Switch,
    },
    /// Say why a cluster is as it is, or why something was decided or done
    Explain(ExplainArgs),
    /// Hold a cluster: nothing new begins on it
    Pause(PauseArgs),
    /// Let a cluster that was paused be scaled again
    Resume {
        /// Name of the cluster
        cluster: String,
    },
    /// Bring back what idle_suspend took away, and keep it awake for a while
    Wake(WakeArgs),
    /// Show what suspending idle clusters was worth, day by day
    Savings(SavingsArgs),
    /// Keep a minimum of replicas for a while, whatever the strategies say
    Override(OverrideArgs),
    /// Let an action that waits for an approval go ahead
    Approve {
        /// Its id, such as a12.3
        action: String,
    },
    /// Reject an action that waits for an approval
    Reject {
        /// Its id, such as a12.3
        action: String,
        /// Why, for whoever wonders
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Deal with an action that does not settle by itself
    Action {
        #[command(subcommand)]
        what: ActionVerb,
    },
    /// Report by hand what a collector would see, to try things out
    Signal(SignalArgs),
    /// Make believe that a cluster is used for a while, to see it scale
    Load(LoadArgs),
    /// Give a cluster another name
    Rename {
        #[command(subcommand)]
        what: Rename,
    },
    /// Change a setting
    Set {
        /// Name of the setting
        name: String,
        /// Its new value
        #[arg(allow_hyphen_values = true)]
        value: String,
        #[command(flatten)]
        write: WriteArgs,
    },
    /// Set settings back to their defaults
    #[command(visible_alias = "unset")]
    Reset {
        /// Names of settings
        #[arg(required = true)]
        names: Vec<String>,
        /// Say what would happen, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Make what is there equal to what a file says, all of it or nothing
    Apply {
        #[command(flatten)]
        file: FileArgs,
        /// Only if nothing that decides has changed after this revision, such as the one that whatif has shown: what the file names, the
        /// clusters it is about with their backend, pause and override, the strategies that rule them, settings and sizes
        #[arg(long, value_name = "REVISION")]
        if_revision: Option<u64>,
        /// Say what would happen, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what apply would change; exit code 1 if it would change anything
    Diff {
        #[command(flatten)]
        file: FileArgs,
    },
    /// Run SQL statements, or ask for them at a prompt
    Sql(SqlArgs),
    /// Wait until something is so
    Wait(WaitArgs),
    /// Say what would be decided about a cluster that a file describes; no node is needed
    Plan(PlanArgs),
    /// The past: export and check it, show it as it was, what changed, and who did it
    Audit {
        #[command(subcommand)]
        what: AuditVerb,
    },
    /// Show which clusters would decide differently right now if statements were run; exit code 1 if any would
    #[command(name = "whatif")]
    WhatIf(WhatIfArgs),
    /// Try statements on the past: what they would have done, beside what was done; exit code 1 if that differs
    Backtest(BacktestArgs),
    /// Measure on this machine; no node is needed
    Bench {
        #[command(subcommand)]
        what: Bench,
    },
    /// Run the nodes themselves: peers, leadership, snapshots
    Operator {
        #[command(subcommand)]
        what: Operator,
    },
    /// Contexts of this command, and the configuration of a node
    Config {
        #[command(subcommand)]
        what: Config,
    },
    /// Print a script that completes this command in a shell
    Completion {
        /// The shell that will read it
        shell: Shell,
    },
    /// Print the version
    Version,
}

#[derive(Debug, Args)]
pub(crate) struct Words {
    /// TYPE, TYPE NAME... or TYPE/NAME...; the types are sizes, clusters, settings, strategies, decisions, operations,
    /// actions and nodes
    #[arg(required = true, value_name = "TYPE [NAME...]")]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// cluster/NAME, decision/INDEX or action/ID
    #[arg(required = true, value_name = "TYPE/NAME")]
    pub(crate) words: Vec<String>,
    /// As it was at this moment: an index of the log, a time such as '2026-11-16 10:00:00', or '2h ago'
    #[arg(long, value_name = "INDEX|TIME", value_parser = parse_moment)]
    pub(crate) at: Option<Moment>,
    #[command(flatten)]
    pub(crate) history: HistoryArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct WriteArgs {
    /// Only if it has not changed since it had this etag
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) etag: String,
    /// Say what would happen, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Create {
    /// A step on the ladder of sizes
    Size {
        /// Name of the size
        name: String,
        /// Work that one replica of this size takes at once
        #[arg(long)]
        slots: u32,
        /// Price of one replica for an hour, such as 0.25
        #[arg(long, value_parser = parse_price)]
        price: u64,
        /// Position on the ladder: larger is larger. Ten above the highest if not given
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        rank: Option<u32>,
        /// Say what would happen, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// A group of compute that is scaled
    Cluster {
        /// Name of the cluster
        name: String,
        /// Where its replicas live; where the setting default_backend says if not given
        #[arg(long, value_name = "NAME")]
        backend: Option<String>,
        /// Say what would happen, and do nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// One more replica of a cluster, beside whatever its strategies want; it is made once, and not kept
    Replica(CreateReplicaArgs),
    /// A rule by which clusters are scaled
    Strategy(CreateStrategyArgs),
    /// Somebody who can be given privileges. From the first password or token on, everybody has to log in
    Role(CreateRoleArgs),
    /// A token for a role, which is printed once
    Token {
        /// Name of the role
        role: String,
        /// How long it is good for, such as 90d; for ever if not given
        #[arg(long, value_parser = parse_duration, value_name = "DURATION")]
        expires_in: Option<Duration>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    pub(crate) what: Words,
    /// Then show each change as it happens
    #[arg(short, long)]
    pub(crate) watch: bool,
    /// With --watch: begin with the changes of this revision instead of what is there now
    #[arg(long, requires = "watch", value_name = "REVISION", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) from_revision: Option<u64>,
    /// Only what is about this cluster; of strategies, decisions, operations and actions
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// What is over instead of what is, the newest first; of decisions, operations and actions
    #[arg(long, conflicts_with = "watch")]
    pub(crate) history: bool,
    /// Those that failed too often and that nobody has dealt with; of actions
    #[arg(long, conflicts_with_all = ["watch", "history"])]
    pub(crate) dead_letters: bool,
    /// At most so many rows
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "watch")]
    pub(crate) limit: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// TYPE NAME... or TYPE/NAME...; several are deleted together or not at all. Strategies by id, or by type with --cluster
    /// or --all-clusters; without a name, all that are for exactly that. A replica by name with --cluster
    #[arg(required = true, value_name = "TYPE NAME...")]
    pub(crate) words: Vec<String>,
    /// No error if one is not there
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
    /// Of clusters: also those that have replicas, or actions whose outcome is not known
    #[arg(long)]
    pub(crate) cascade: bool,
    #[command(flatten)]
    pub(crate) target: crate::scaling_args::TargetArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rename {
    /// A cluster; its id stays
    Cluster {
        /// Its name now
        name: String,
        /// Its new name
        new_name: String,
        #[command(flatten)]
        write: WriteArgs,
    },
}

#[derive(Debug, Args)]
pub(crate) struct FileArgs {
    /// SQL statements, or YAML or JSON documents with kind, name and spec; - reads stdin. Can be repeated
    #[arg(short = 'f', long = "filename", required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// TYPE NAME or TYPE/NAME
    #[arg(required = true, value_name = "TYPE/NAME")]
    pub(crate) words: Vec<String>,
    /// exists, deleted, or FIELD=VALUE such as value=true
    #[arg(long = "for", value_name = "CONDITION")]
    pub(crate) condition: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Operator {
    /// Members of the group and who leads it
    Raft {
        #[command(subcommand)]
        what: Raft,
    },
    /// Backups of the state
    Snapshot {
        #[command(subcommand)]
        what: Snapshot,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Raft {
    /// Show the members of the group
    ListPeers,
    /// Make a node that has joined a voter
    AddPeer {
        /// Name, id or address of the node
        peer: String,
        /// Name or id of a voter that leaves in the same change
        #[arg(long, value_name = "PEER")]
        replace: Option<String>,
    },
    /// Remove a member. It never comes back under its id
    RemovePeer {
        /// Id, or a name that only one member has
        peer: String,
    },
    /// Let another node lead
    TransferLeadership {
        /// Name or id; the voter that is furthest ahead if not given
        #[arg(long, value_name = "PEER")]
        to: Option<String>,
        /// Only if the node at the endpoint leads; otherwise nothing happens
        #[arg(long)]
        if_leader: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Snapshot {
    /// Save the state as it is now to a file
    Save {
        /// A new file
        file: PathBuf,
        /// Replace the file if it is there
        #[arg(long)]
        overwrite: bool,
    },
    /// Say what is in a file; no node is needed
    Inspect { file: PathBuf },
    /// Put the state of a file in place of what is there, and start a new incarnation
    Restore {
        file: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Say what is wrong with the configuration of a node, or show what is in force
    Check(ServeArgs),
    /// Show the contexts
    Contexts,
    /// Make a context the current one
    Use {
        /// Its name
        name: String,
    },
    /// Save --endpoint, --sql-endpoint and --timeout as a context
    Save {
        /// Its name
        name: String,
        /// Where one of the nodes speaks SQL; can be repeated
        #[arg(long = "sql-endpoint", value_name = "HOST:PORT")]
        sql_endpoints: Vec<String>,
        /// And make it the current one
        #[arg(long = "use")]
        use_it: bool,
    },
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_flag_and_verb_has_help() {
        fn walk(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path} has no help");
            for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
                // What a file is for is said by its verb.
                let clear = ["help", "version", "file"].contains(&argument.get_id().as_str());
                assert!(clear || argument.get_help().is_some(), "{path}: {} has no help", argument.get_id());
            }
            command.get_subcommands().for_each(|inner| walk(inner, &path));
        }
        walk(&Cli::command(), "");
    }
}

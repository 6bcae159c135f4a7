//! Arguments of the verbs about roles.

use std::convert::Infallible;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand};
use loadline_client::Secret;

use crate::args::WriteArgs;

#[derive(Debug, Args)]
pub(crate) struct CreateRoleArgs {
    /// Name of the role
    pub(crate) name: String,
    /// May do everything
    #[arg(long)]
    pub(crate) superuser: bool,
    #[command(flatten)]
    pub(crate) password: PasswordArgs,
    /// Say what would happen, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UpdateRoleArgs {
    /// Name of the role
    pub(crate) name: String,
    /// Whether it may do everything
    #[arg(long, value_name = "true|false")]
    pub(crate) superuser: Option<bool>,
    /// It cannot log in with a password any more
    #[arg(long, conflicts_with_all = ["password_file", "password_stdin"])]
    pub(crate) no_password: bool,
    #[command(flatten)]
    pub(crate) password: PasswordArgs,
    #[command(flatten)]
    pub(crate) write: WriteArgs,
}

/// Where a password comes from. Not from the command line: others can see that.
#[derive(Debug, Args)]
pub(crate) struct PasswordArgs {
    /// File with the password
    #[arg(long, value_name = "PATH")]
    pub(crate) password_file: Option<PathBuf>,
    /// Read the password from stdin
    #[arg(long, conflicts_with = "password_file")]
    pub(crate) password_stdin: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Grant {
    /// Strategies, pauses, actions and signals of a cluster
    Usage(UsageArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Revoke {
    /// Strategies, pauses, actions and signals of a cluster
    Usage(UsageArgs),
    /// A token: whoever has it is nobody from now on
    Token {
        /// Name of the role
        role: String,
        /// Id of the token, as in loadline describe role
        id: String,
    },
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("on").required(true).args(["cluster", "all_clusters"])))]
pub(crate) struct UsageArgs {
    /// Name of the role
    pub(crate) role: String,
    /// On this cluster
    #[arg(long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// On all clusters, also those to come
    #[arg(long)]
    pub(crate) all_clusters: bool,
    /// Say what would happen, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Never an error: what is wrong with a token is for the group to say, without repeating it.
pub(crate) fn parse_secret(text: &str) -> Result<Secret, Infallible> {
    Ok(Secret::new(text))
}

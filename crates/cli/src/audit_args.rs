//! The flags of `audit`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use loadline_audit::Moment;

use loadline_state_machine::Time;

use crate::exit::Failed;
use crate::history::HistoryArgs;
use crate::moment::{parse_moment, parse_time};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Write the history, or a part of it, into one signed file
    Export(ExportArgs),
    /// Check a history to the last byte, and apply every entry once more; exit code 1 if anything is wrong
    Verify(VerifyArgs),
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
            AuditVerb::Export(_) => false,
            AuditVerb::Verify(args) => args.needs_no_group(),
            AuditVerb::Replay(args) => args.history.is_given(),
            AuditVerb::Diff(args) => args.history.is_given(),
            AuditVerb::Log(args) => args.history.is_given(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The first entry: an index, a time such as 2026-11-16T10:00:00Z, or how long ago, such as 24h. From the beginning if not
    /// given
    #[arg(long, value_name = "INDEX|TIME", value_parser = parse_moment)]
    pub(crate) from: Option<Moment>,
    /// The last entry, likewise. To the end if not given
    #[arg(long, value_name = "INDEX|TIME", value_parser = parse_moment)]
    pub(crate) to: Option<Moment>,
    /// A new file; -o FILE says the same
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    pub(crate) overwrite: bool,
}

impl ExportArgs {
    /// Takes the file from `-o`.
    pub(crate) fn take_output(&mut self, other: Option<&OsStr>) -> Result<(), Failed> {
        match (&self.file, other) {
            (Some(_), Some(_)) => Err(Failed::usage("the file is named twice: with --file and with -o")),
            (None, None) => Err(Failed::usage("where to? Name a new file with -o FILE")),
            (Some(_), None) => Ok(()),
            (None, Some(file)) => {
                self.file = Some(PathBuf::from(file));
                Ok(())
            }
        }
    }
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "data_dir", "node"]))]
pub(crate) struct VerifyArgs {
    /// An export; no node is needed
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Data folder of a node that is not running
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// A running node, by name, id or endpoint; whichever answers if none is named. Its whole history is fetched and checked here
    #[arg(long, value_name = "NODE", num_args = 0..=1)]
    pub(crate) node: Option<Option<String>>,
    /// The key that must have signed it, as `status -o wide` of that node shows it
    #[arg(long, value_name = "HEX", value_parser = parse_public_key)]
    pub(crate) public_key: Option<PublicKey>,
}

impl VerifyArgs {
    pub(crate) fn needs_no_group(&self) -> bool {
        self.node.is_none()
    }
}

/// An Ed25519 public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublicKey(pub(crate) [u8; 32]);

pub(crate) fn parse_public_key(text: &str) -> Result<PublicKey, String> {
    let wrong = || "write the 64 hexadecimal digits that status -o wide shows as PUBLIC-KEY".to_owned();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(PublicKey(key))
}

#[derive(Debug, Args)]
pub(crate) struct LogArgs {
    /// Only what is about this cluster, by the name that it has or had, or by id
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
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
    /// Only these types, such as clusters strategies, or replicas and reports, which were seen of clusters; everything if not given
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_64_hexadecimal_digits() {
        assert_eq!(parse_public_key(&"0a".repeat(32)), Ok(PublicKey([10; 32])));
        for wrong in ["", "0a", &"0g".repeat(32), &"0a".repeat(33)] {
            assert!(parse_public_key(wrong).is_err(), "{wrong}");
        }
    }
}

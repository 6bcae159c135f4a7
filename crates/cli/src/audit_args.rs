//! The command line of `audit`.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::exit::Failed;
use crate::moment::{Moment, parse_moment};

#[derive(Debug, Subcommand)]
pub(crate) enum AuditVerb {
    /// Write the history, or a part of it, into one signed file
    Export(ExportArgs),
    /// Check a history to the last byte, and apply every entry once more; exit code 1 if anything is wrong
    Verify(VerifyArgs),
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

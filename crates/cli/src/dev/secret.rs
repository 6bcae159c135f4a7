//! What the nodes of one group on this machine prove to each other that they are its nodes.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use loadline_credentials::token::Token;

use crate::exit::{Exit, Failed};

/// The file with the secret of the group in this folder. Made once: nodes that are started again must know the others.
pub(super) fn of_group(folder: &Path) -> Result<PathBuf, Failed> {
    let path = folder.join("peer-secret");
    let failed =
        |error: std::io::Error| Failed::new(Exit::Failure, format!("{} cannot be made: {error}", path.display()));
    // Nobody else may read it, from the first moment on.
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(mut file) => writeln!(file, "{}", Token::mint().reveal()).map_err(failed)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_group_has_one_secret_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = of_group(folder.path()).expect("made");
        let text = std::fs::read_to_string(&path).expect("read");
        assert!(text.trim().len() >= 64);
        let mode = std::fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        assert_eq!(of_group(folder.path()), Ok(path.clone()));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), text, "the next start finds the same");
    }
}

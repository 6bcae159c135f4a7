//! One supervisor per folder: whoever holds the lock on `dev.lock` looks after the nodes there.
//!
//! The system drops the lock when its holder dies, however it dies, so a lock that can be had means: nobody is there.

use std::fs::{File, OpenOptions};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};

use crate::exit::{Exit, Failed};

const FILE: &str = "dev.lock";

/// Held as long as it lives.
#[derive(Debug)]
pub(super) struct Lock {
    _held: Flock<File>,
}

impl Lock {
    /// Nothing if another process has it.
    pub(super) fn try_take(folder: &Path) -> Result<Option<Lock>, Failed> {
        let path = folder.join(FILE);
        let unusable = |error: &dyn std::fmt::Display| {
            Failed::new(Exit::Failure, format!("{} cannot be locked: {error}", path.display()))
        };
        let opened = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|error| unusable(&error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Some(Lock { _held: held })),
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(unusable(&error)),
        }
    }

    /// Does somebody look after the nodes of this folder?
    pub(super) fn is_held(folder: &Path) -> Result<bool, Failed> {
        if !folder.join(FILE).exists() {
            return Ok(false);
        }
        Ok(Lock::try_take(folder)?.is_none())
    }

    /// Takes the file away, too; only for a folder that is about to go.
    pub(super) fn remove(self, folder: &Path) {
        let _ = std::fs::remove_file(folder.join(FILE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_can_hold_it_and_it_is_free_again_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(Lock::is_held(folder.path()), Ok(false));
        let lock = Lock::try_take(folder.path()).expect("a lock").expect("free");
        assert_eq!(Lock::is_held(folder.path()), Ok(true));
        drop(lock);
        assert_eq!(Lock::is_held(folder.path()), Ok(false));
    }
}

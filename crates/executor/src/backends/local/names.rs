//! The name of a replica: a folder with a lock that its replica holds for as long as it lives, and what that replica says of itself.
//!
//! The lock makes sure that two never run under one name. It belongs to the open file (`F_OFD_SETLK`), so the system drops it when
//! the last process that has the file open ends, however it ends. Whether it is held can be *asked* (`F_OFD_GETLK`) without taking
//! it for a moment: a node that is stopped while it looks holds nothing that a replica waits for. `flock` cannot do that.
//!
//! The lock file is never removed: a second file under its path would be a second lock.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use loadline_state_machine::ClusterId;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};

use super::process::Process;

const REPLICAS: &str = "replicas";
const LOCK: &str = "lock";
const LIFE: &str = "life.json";
const LOG: &str = "log";
const CHECKPOINT: &str = "checkpoint.json";

/// A name is part of a path. Longer than any name that Loadline makes, shorter than any file system's limit.
const NAME_BYTES_MAX: usize = 200;

/// Where the replica of one name is described, whether it is there or not.
#[derive(Clone, Debug)]
pub(super) struct Place {
    folder: PathBuf,
}

/// Held until the last process that has it ends.
#[derive(Debug)]
pub(super) struct NameLock {
    file: File,
}

/// What a replica says of itself. Believed only while its lock is held and its keeper is the process that it names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Life {
    pub(super) incarnation: String,
    pub(super) size: String,
    /// The order that it was made by; nothing if somebody started it by hand.
    pub(super) key: Option<String>,
    /// False until the ledger says that it may be.
    pub(super) begun: bool,
    pub(super) keeper: Process,
    pub(super) server: Option<Process>,
    /// Where it answers, as in `127.0.0.1:41234`.
    pub(super) address: Option<String>,
    pub(super) ready: bool,
    pub(super) cordoned: bool,
    pub(super) objects_total: u64,
    pub(super) objects_hydrated: u64,
    pub(super) crashes: u64,
    pub(super) crash_reason: Option<String>,
    pub(super) oom: bool,
    /// The life whose checkpoint it went on from.
    #[serde(default)]
    pub(super) restored_from: Option<String>,
}

/// What is kept of a replica that is suspended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) incarnation: String,
    pub(super) size: String,
    pub(super) objects_hydrated: u64,
}

/// What is wrong with a name, if anything is.
pub(super) fn check(name: &str) -> Result<(), String> {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.len() > NAME_BYTES_MAX {
        Err(format!("the name of a replica has at most {NAME_BYTES_MAX} bytes"))
    } else if !name.starts_with(word) || !name.chars().all(|c| word(c) || c == '-' || c == '.') {
        Err(format!(
            "{name:?} cannot be the name of a local replica: letters, digits, '_', '-' and '.' make one, and it begins with none \
             of the last two"
        ))
    } else {
        Ok(())
    }
}

/// The names that are known in a cluster, sorted. Most of them may be nobody's at the moment.
pub(super) fn known(folder: &Path, cluster: ClusterId) -> io::Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder.join(REPLICAS).join(cluster.to_string())) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

impl Place {
    pub(super) fn of(folder: &Path, cluster: ClusterId, name: &str) -> Place {
        Place { folder: folder.join(REPLICAS).join(cluster.to_string()).join(name) }
    }

    pub(super) fn make(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)
    }

    /// Where its replica may write what it has to say.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join(LOG)
    }

    /// Nothing if somebody else has it.
    pub(super) fn try_lock(&self) -> io::Result<Option<NameLock>> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(self.folder.join(LOCK))?;
        match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&whole(libc::F_WRLCK))) {
            Ok(_) => Ok(Some(NameLock { file })),
            Err(Errno::EAGAIN | Errno::EACCES) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn is_held(&self) -> io::Result<bool> {
        let file = match OpenOptions::new().write(true).open(self.folder.join(LOCK)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut asked = whole(libc::F_WRLCK);
        fcntl(file.as_fd(), FcntlArg::F_OFD_GETLK(&mut asked))?;
        Ok(i32::from(asked.l_type) != libc::F_UNLCK)
    }

    /// Whoever is there under this name now.
    pub(super) fn life(&self) -> io::Result<Option<Life>> {
        if !self.is_held()? {
            return Ok(None);
        }
        let text = match std::fs::read(self.folder.join(LIFE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let life: Life = serde_json::from_slice(&text)?;
        // The lock may be held by the next one already, which has not said anything yet.
        Ok(life.keeper.is_there().then_some(life))
    }

    /// The same, if it is this incarnation.
    pub(super) fn life_of(&self, incarnation: &str) -> io::Result<Option<Life>> {
        Ok(self.life()?.filter(|life| life.incarnation == incarnation))
    }

    /// Only for who holds the lock. Not synced: no replica outlives a power cut.
    pub(super) fn write(&self, life: &Life, _held: &NameLock) -> io::Result<()> {
        let fresh = self.folder.join("life.json.new");
        std::fs::write(&fresh, serde_json::to_vec_pretty(life)?)?;
        std::fs::rename(&fresh, self.folder.join(LIFE))
    }

    /// Only for who holds the lock. Synced: whoever is told that it is kept drops the replica next.
    pub(super) fn keep(&self, checkpoint: &Checkpoint, _held: &NameLock) -> io::Result<()> {
        let fresh = self.folder.join("checkpoint.json.new");
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec_pretty(checkpoint)?)?;
        file.sync_all()?;
        std::fs::rename(&fresh, self.folder.join(CHECKPOINT))?;
        File::open(&self.folder)?.sync_all()
    }

    /// What was kept of a replica of this size. One of another size has nothing to go on from.
    pub(super) fn kept(&self, size: &str) -> io::Result<Option<Checkpoint>> {
        match std::fs::read(self.folder.join(CHECKPOINT)) {
            Ok(text) => Ok(serde_json::from_slice::<Checkpoint>(&text).ok().filter(|kept| kept.size == size)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Only for who holds the lock.
    pub(super) fn forget_checkpoint(&self, _held: &NameLock) -> io::Result<()> {
        match std::fs::remove_file(self.folder.join(CHECKPOINT)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl NameLock {
    /// Lets every process that is started from here on hold the lock, too: while any of them lives, nobody else gets the name.
    pub(super) fn share_with_children(&self) -> io::Result<()> {
        Ok(fcntl_setfd(&self.file, FdFlags::empty())?)
    }
}

fn whole(kind: libc::c_int) -> libc::flock {
    libc::flock {
        // Small constants of the system, and the field is a short.
        l_type: i16::try_from(kind).unwrap_or_default(),
        l_whence: 0,
        l_start: 0,
        l_len: 0,
        // Must be zero for locks that belong to the open file.
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::LogIndex;

    use super::*;

    #[test]
    fn a_name_has_one_holder_and_looking_at_the_lock_does_not_take_it() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::of(folder.path(), ClusterId { index: LogIndex(3), ordinal: 0 }, "r1_auto");
        assert!(!place.is_held().unwrap());
        place.make().unwrap();
        let lock = place.try_lock().unwrap().expect("free");
        assert!(place.is_held().unwrap());
        assert!(place.try_lock().unwrap().is_none());
        drop(lock);
        assert!(!place.is_held().unwrap());
        assert!(place.try_lock().unwrap().is_some());
    }

    #[test]
    fn a_name_that_would_leave_its_folder_is_refused() {
        for good in ["r1_auto", "_x", "burst-2.auto", "25cc_auto"] {
            assert_eq!(check(good), Ok(()));
        }
        for bad in ["", ".", "..", "a/b", "-x", "ä", "a b", &"x".repeat(201)] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }
}

//! A folder of the operating system, held by one process.

use std::{
    ffi::OsString,
    fs::{self, File, TryLockError},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

use super::{Disk, DiskFile};

/// The file that is locked. The lock belongs to the open file, so the kernel releases it when the process dies, however
/// it dies; what is left in the file afterwards is only the pid of the last holder.
pub(super) const LOCK_FILE: &str = "lock";

/// Who has the lock for longer has the folder.
const LOCKED_MAX: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Why a data folder could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot create the data folder {path}")]
    CreateFolder { path: PathBuf, source: io::Error },
    #[error("cannot open the lock file {path}")]
    LockFile { path: PathBuf, source: io::Error },
    #[error("cannot read the folder {path}")]
    ReadFolder { path: PathBuf, source: io::Error },
    #[error("the data folder {path} is in use by {holder}; stop that one first, or give this node a folder of its own")]
    InUse { path: PathBuf, holder: Holder },
}

/// Who has the folder, as far as the lock file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    Pid(u32),
    /// The holder has locked the file but not yet written its pid.
    Unknown,
}

impl Holder {
    pub(super) fn in_file(lock: &mut File) -> Holder {
        let mut text = String::new();
        let pid = lock.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
        pid.map_or(Holder::Unknown, Holder::Pid)
    }
}

/// Tries to get a lock for a while: a process that is just being started has the files of the one that starts it for a moment, and with
/// them a lock that was let go in that moment, by a node that ends or by one that was killed.
pub(super) fn patiently(try_lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    let began = Instant::now();
    loop {
        match try_lock() {
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCKED_MAX => std::thread::sleep(LOOK_EVERY),
            tried => return tried,
        }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "another process (pid {pid})"),
            Self::Unknown => f.write_str("another process"),
        }
    }
}

/// See the module. Dropping it releases the folder.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
    /// Held for its lock.
    _lock: File,
}

impl RealDisk {
    /// Creates the folder if need be and takes it for this process.
    pub fn open(root: &Path) -> Result<Self, OpenError> {
        create_folder(root).map_err(|source| OpenError::CreateFolder { path: root.to_owned(), source })?;
        let path = root.join(LOCK_FILE);
        let failed = |source| OpenError::LockFile { path: path.clone(), source };
        let mut lock =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match patiently(|| lock.try_lock()) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: root.to_owned(), holder: Holder::in_file(&mut lock) });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        lock.set_len(0).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { root: root.to_owned(), _lock: lock })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> io::Result<PathBuf> {
        inside(&self.root, path)
    }
}

/// The path of something in the folder. Paths come from our own code, but some are built from file names; none may lead out.
pub(super) fn inside(root: &Path, path: &str) -> io::Result<PathBuf> {
    if Path::new(path).components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path:?} leads out of the data folder")));
    }
    Ok(root.join(path))
}

/// The names in a folder, sorted.
pub(super) fn names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let not_text = |name: OsString| io::Error::other(format!("the file name {name:?} is not UTF-8"));
        names.push(entry?.file_name().into_string().map_err(not_text)?);
    }
    names.sort_unstable();
    Ok(names)
}

/// Bytes that a folder occupies.
pub(super) fn used_below(dir: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // A file that vanishes while we count (a purged segment) counts nothing.
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => bytes += used_below(&entry.path())?,
            Ok(meta) => bytes += meta.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Fills as much as there is.
pub(super) fn read_whole_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Creates the folder and makes its name durable, and the names of its parents that did not exist either.
fn create_folder(root: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    let mut at = root;
    while !at.as_os_str().is_empty() && !at.exists() {
        missing.push(at);
        match at.parent() {
            Some(parent) => at = parent,
            None => break,
        }
    }
    fs::create_dir_all(root)?;
    for made in missing {
        let parent = made.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)?.sync_all()?;
    }
    Ok(())
}

impl Disk for RealDisk {
    fn open(&self, path: &str, create: bool) -> io::Result<Box<dyn DiskFile>> {
        let file = File::options().read(true).write(true).create(create).truncate(false).open(self.path(path)?)?;
        Ok(Box::new(RealFile(file)))
    }

    fn create_private(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(self.path(path)?)?;
        Ok(Box::new(RealFile(file)))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        names(&self.path(dir)?)
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.path(path)?.try_exists()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from)?, self.path(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        fs::remove_file(self.path(path)?)
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        match fs::create_dir(self.path(path)?) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        File::open(self.path(path)?)?.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        // f_bavail, not f_bfree: the blocks that are reserved for root are not ours.
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn used_bytes(&self) -> io::Result<u64> {
        used_below(&self.root)
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_whole_at(&self.0, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
}

//! A folder of the operating system that is only read.
//!
//! Whoever opens the files of a stopped node repairs them as a node would: cuts a torn end, notes that they were opened. For somebody who has
//! to check those files, each such byte is a changed piece of evidence, and a copy on a read-only medium could not be opened at all. So what
//! is written here stays in memory, and the folder is what it was before. What is read is, to the byte, what a node would go on with.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
};

use super::{
    Disk, DiskFile, Holder, OpenError,
    real::{LOCK_FILE, inside, names, patiently, read_whole_at, used_below},
};
use crate::lock;

/// An end of a file that nobody counted on, and that is left out: it was being written when its writer died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub path: String,
    /// What is before is read.
    pub offset: u64,
    pub bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub struct ReadOnlyDisk {
    root: PathBuf,
    /// Held for its lock, which keeps a node from starting meanwhile.
    _lock: Option<File>,
    unguarded: Option<String>,
    made: Arc<Mutex<Made>>,
}

/// What was written, which is nowhere but here.
#[derive(Debug, Default)]
struct Made {
    /// Every file that somebody has open.
    open: BTreeMap<String, Weak<Mutex<Layer>>>,
    /// Those that are not what the folder has.
    changed: BTreeMap<String, Arc<Mutex<Layer>>>,
    folders: BTreeSet<String>,
    removed: BTreeSet<String>,
    cuts: Vec<Cut>,
}

/// A file of the folder up to some place, and what was written behind it.
#[derive(Debug)]
struct Layer {
    below: Option<File>,
    /// Bytes of the file below that count.
    kept: u64,
    above: Vec<u8>,
}

impl ReadOnlyDisk {
    /// Opens a folder that must be there, unless a node has it. Where that cannot be told, [`Self::unguarded`] says why.
    pub fn open(root: &Path) -> Result<Self, OpenError> {
        let unreadable = |source| OpenError::ReadFolder { path: root.to_owned(), source };
        fs::read_dir(root).map_err(unreadable)?;
        let unsure = |error: &io::Error| Some(format!("the lock file cannot be looked at: {error}"));
        let (lock, unguarded) = match File::open(root.join(LOCK_FILE)) {
            Ok(mut lock) => match patiently(|| lock.try_lock_shared()) {
                Ok(()) => (Some(lock), None),
                Err(TryLockError::WouldBlock) => {
                    return Err(OpenError::InUse { path: root.to_owned(), holder: Holder::in_file(&mut lock) });
                }
                Err(TryLockError::Error(error)) => (None, unsure(&error)),
            },
            // A node makes it before anything else, so none is here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => (None, None),
            Err(error) => (None, unsure(&error)),
        };
        Ok(Self { root: root.to_owned(), _lock: lock, unguarded, made: Arc::default() })
    }

    /// Why nobody can say whether a node is writing to the folder right now. None: none is.
    pub fn unguarded(&self) -> Option<&str> {
        self.unguarded.as_deref()
    }

    /// The ends that were left out so far.
    pub fn cuts(&self) -> Vec<Cut> {
        lock(&self.made).cuts.clone()
    }

    fn handle(&self, path: &str, layer: Arc<Mutex<Layer>>) -> Box<dyn DiskFile> {
        Box::new(ReadOnlyFile { path: path.to_owned(), layer, made: self.made.clone() })
    }
}

impl Disk for ReadOnlyDisk {
    fn open(&self, path: &str, create: bool) -> io::Result<Box<dyn DiskFile>> {
        let real = inside(&self.root, path)?;
        let mut made = lock(&self.made);
        if let Some(layer) = made.open.get(path).and_then(Weak::upgrade) {
            return Ok(self.handle(path, layer));
        }
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let below = if made.removed.contains(path) { Err(missing()) } else { File::open(real) };
        let layer = match below {
            Ok(file) => {
                let kept = file.metadata()?.len();
                Arc::new(Mutex::new(Layer { below: Some(file), kept, above: Vec::new() }))
            }
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                let layer = Arc::new(Mutex::new(Layer { below: None, kept: 0, above: Vec::new() }));
                made.changed.insert(path.to_owned(), layer.clone());
                layer
            }
            Err(error) => return Err(error),
        };
        made.open.insert(path.to_owned(), Arc::downgrade(&layer));
        Ok(self.handle(path, layer))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let made = lock(&self.made);
        let prefix = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let mut found: BTreeSet<String> = match names(&inside(&self.root, dir)?) {
            Ok(found) => found.into_iter().collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound && made.folders.contains(dir) => BTreeSet::new(),
            Err(error) => return Err(error),
        };
        found.retain(|name| !made.removed.contains(&format!("{prefix}{name}")));
        let new = made.changed.keys().chain(&made.folders).filter_map(|path| path.strip_prefix(&prefix));
        found.extend(new.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned));
        Ok(found.into_iter().collect())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        let made = lock(&self.made);
        if made.changed.contains_key(path) || made.folders.contains(path) {
            return Ok(true);
        }
        Ok(!made.removed.contains(path) && inside(&self.root, path)?.try_exists()?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // Opened first, for whoever has neither open: what is renamed is the same file under another name.
        let _held = self.open(from, false)?;
        let mut made = lock(&self.made);
        let Some(layer) = made.open.remove(from).as_ref().and_then(Weak::upgrade) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        made.changed.remove(from);
        made.removed.insert(from.to_owned());
        made.removed.remove(to);
        made.open.insert(to.to_owned(), Arc::downgrade(&layer));
        made.changed.insert(to.to_owned(), layer);
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        if !self.exists(path)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut made = lock(&self.made);
        made.changed.remove(path);
        made.open.remove(path);
        made.removed.insert(path.to_owned());
        Ok(())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        if !inside(&self.root, path)?.is_dir() {
            lock(&self.made).folders.insert(path.to_owned());
        }
        Ok(())
    }

    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        // Nothing is written, so nothing can be full.
        Ok(u64::MAX)
    }

    fn used_bytes(&self) -> io::Result<u64> {
        used_below(&self.root)
    }
}

#[derive(Debug)]
struct ReadOnlyFile {
    path: String,
    layer: Arc<Mutex<Layer>>,
    made: Arc<Mutex<Made>>,
}

impl ReadOnlyFile {
    /// It is no longer what the folder has, so it must outlive whoever has it open.
    fn remember(&self, made: &mut Made) {
        made.changed.insert(self.path.clone(), self.layer.clone());
        made.removed.remove(&self.path);
    }
}

impl Layer {
    fn len(&self) -> u64 {
        self.kept + self.above.len() as u64
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        if let Some(file) = self.below.as_ref().filter(|_| offset < self.kept) {
            let wanted = usize::try_from(self.kept - offset).unwrap_or(usize::MAX).min(buf.len());
            done = read_whole_at(file, &mut buf[..wanted], offset)?;
            if done < wanted {
                return Ok(done);
            }
        }
        let from = usize::try_from((offset + done as u64).saturating_sub(self.kept)).unwrap_or(usize::MAX);
        let rest = self.above.get(from..).unwrap_or_default();
        let more = rest.len().min(buf.len() - done);
        buf[done..done + more].copy_from_slice(&rest[..more]);
        Ok(done + more)
    }

    /// Everything from here on is kept in memory.
    fn lift(&mut self, from: u64) -> io::Result<()> {
        if let Some(file) = self.below.as_ref().filter(|_| from < self.kept) {
            let mut lifted = vec![0; usize::try_from(self.kept - from).map_err(io::Error::other)?];
            file.read_exact_at(&mut lifted, from)?;
            lifted.append(&mut self.above);
            self.above = lifted;
            self.kept = from;
        }
        Ok(())
    }

    /// Whether this is what stands there anyway: recovery writes again what may not be durable.
    fn holds(&self, buf: &[u8], offset: u64) -> io::Result<bool> {
        let mut there = vec![0; buf.len()];
        Ok(self.read_at(&mut there, offset)? == buf.len() && there == buf)
    }
}

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        lock(&self.layer).read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut made = lock(&self.made);
        let mut layer = lock(&self.layer);
        if layer.holds(buf, offset)? {
            return Ok(());
        }
        layer.lift(offset)?;
        let from = usize::try_from(offset - layer.kept).map_err(io::Error::other)?;
        let end = from + buf.len();
        if layer.above.len() < end {
            layer.above.resize(end, 0);
        }
        layer.above[from..end].copy_from_slice(buf);
        drop(layer);
        self.remember(&mut made);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.layer).len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut made = lock(&self.made);
        let mut layer = lock(&self.layer);
        let before = layer.len();
        if len == before {
            return Ok(());
        }
        if len < before && layer.below.is_some() {
            made.cuts.push(Cut { path: self.path.clone(), offset: len, bytes: before - len });
        }
        layer.kept = layer.kept.min(len);
        let above = usize::try_from(len - layer.kept).map_err(io::Error::other)?;
        layer.above.resize(above, 0);
        drop(layer);
        self.remember(&mut made);
        Ok(())
    }
}

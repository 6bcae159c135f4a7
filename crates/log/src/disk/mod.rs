//! What the rest of the crate may ask of a disk, and nothing more.
//!
//! [`RealDisk`] is a folder of the operating system. [`ModelDisk`] lives in memory and forgets, at a power cut, whatever
//! nobody synced. Code above this trait cannot tell them apart; that is the point. Nor can it tell [`ReadOnlyDisk`], which
//! leaves the folder as it is.
//!
//! The rules that code above relies on are those of [`ModelDisk`], the stricter of the two:
//! - bytes are durable only after [`DiskFile::sync_data`] (or `sync_all`) returned `Ok`;
//! - a new file length is durable only after [`DiskFile::sync_all`];
//! - a name that was created, renamed or removed is durable only after [`Disk::sync_dir`] of its folder;
//! - a sector (512 bytes) is written as a whole or not at all, and in no particular order;
//! - what a *failed* sync covered may be lost even when a later sync succeeds.

mod below;
mod model;
mod read_only;
mod real;
#[cfg(test)]
mod tests;

use std::{fmt, io, sync::Arc};

pub(crate) use below::Below;
pub use model::{ModelDisk, SyncHold};
pub use read_only::{Cut, ReadOnlyDisk};
pub use real::{Holder, OpenError, RealDisk};

/// A disk that several parts of one node share.
pub type SharedDisk = Arc<dyn Disk>;

/// A folder that this process has for itself. Paths are relative to it and separated by `/`; the folder itself is `""`.
pub trait Disk: fmt::Debug + Send + Sync + 'static {
    /// Opens a file for reading and writing. Without `create` a missing file is `NotFound`.
    fn open(&self, path: &str, create: bool) -> io::Result<Box<dyn DiskFile>>;
    /// Makes a file that only the owner of this process may read; one of this name must not be there. A disk that belongs to
    /// nobody has nothing to keep it from.
    fn create_private(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.open(path, true)
    }
    /// The names (not paths) in a folder, sorted. A missing folder is `NotFound`.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Whether there is a file or folder of this name.
    fn exists(&self, path: &str) -> io::Result<bool>;
    /// Puts `from` in the place of `to`, atomically, also when `to` exists.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file. Whoever has it open can go on reading it.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes a folder; one that exists already is fine.
    fn create_dir(&self, path: &str) -> io::Result<()>;
    /// Makes the names in this folder durable.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free_bytes(&self) -> io::Result<u64>;
    /// Bytes that this folder occupies.
    fn used_bytes(&self) -> io::Result<u64>;
}

/// An open file. Reads and writes name their offset, so that a handle can be shared between threads.
pub trait DiskFile: fmt::Debug + Send + Sync {
    /// Fills as much of `buf` as there is; less than asked means the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `buf`, growing the file where needed.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the bytes inside the durable length durable (`fdatasync`).
    fn sync_data(&self) -> io::Result<()>;
    /// Makes the bytes and the length durable (`fsync`).
    fn sync_all(&self) -> io::Result<()>;
    /// The length now.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) to this length.
    fn set_len(&self, len: u64) -> io::Result<()>;
}

/// The ending of files that are being made. They mean nothing until renamed, so a leftover may be removed.
pub(crate) const TEMP_SUFFIX: &str = ".tmp";

/// Reads exactly `len` bytes, or says that the file ended early.
pub(crate) fn read_exact_at(file: &dyn DiskFile, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut buf = vec![0; len];
    let got = file.read_at(&mut buf, offset)?;
    if got < len {
        return Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("wanted {len} bytes at offset {offset}, the file has {got}"),
        ));
    }
    Ok(buf)
}

/// Reads a whole file.
pub(crate) fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    read_exact_at(file, 0, len)
}

/// Makes a folder below the data folder and makes its name durable.
pub(crate) fn ensure_dir(disk: &dyn Disk, dir: &str) -> io::Result<()> {
    if !disk.exists(dir)? {
        disk.create_dir(dir)?;
    }
    // Also when it exists: the process that created it may have died before it synced the name.
    disk.sync_dir(dir.rsplit_once('/').map_or("", |(parent, _)| parent))
}

/// Puts a complete file in place: temp, fsync, rename, fsync of the folder. At every instant the name `path` holds the
/// old bytes or all of the new ones.
pub(crate) fn replace_file(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> io::Result<()> {
    put_file(disk, dir, path, bytes, |temp| disk.open(temp, true))
}

/// As [`replace_file`], and only the owner may read it.
pub(crate) fn replace_private_file(disk: &dyn Disk, dir: &str, path: &str, bytes: &[u8]) -> io::Result<()> {
    put_file(disk, dir, path, bytes, |temp| {
        // What somebody left there keeps its permissions when it is opened again.
        if disk.exists(temp)? {
            disk.remove(temp)?;
        }
        disk.create_private(temp)
    })
}

fn put_file(
    disk: &dyn Disk,
    dir: &str,
    path: &str,
    bytes: &[u8],
    make: impl FnOnce(&str) -> io::Result<Box<dyn DiskFile>>,
) -> io::Result<()> {
    let temp = format!("{path}{TEMP_SUFFIX}");
    let written = (|| {
        let file = make(&temp)?;
        file.set_len(0)?;
        file.write_at(bytes, 0)?;
        file.sync_all()?;
        disk.rename(&temp, path)
    })();
    if written.is_err() {
        // Nobody takes a temp file for anything, but a full disk wants its bytes back. The first error is the news.
        let _ = disk.remove(&temp);
    }
    written?;
    disk.sync_dir(dir)
}

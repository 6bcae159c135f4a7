//! A folder of a disk as a disk of its own.

use std::io;

use super::{Disk, DiskFile, SharedDisk};

/// See the module. The folder must be there.
#[derive(Debug)]
pub(crate) struct Below {
    pub(crate) disk: SharedDisk,
    pub(crate) dir: String,
}

impl Below {
    fn path(&self, path: &str) -> String {
        if path.is_empty() { self.dir.clone() } else { format!("{}/{path}", self.dir) }
    }
}

impl Disk for Below {
    fn open(&self, path: &str, create: bool) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(&self.path(path), create)
    }

    fn create_private(&self, path: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create_private(&self.path(path))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(&self.path(dir))
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        self.disk.exists(&self.path(path))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(&self.path(from), &self.path(to))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.disk.remove(&self.path(path))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.disk.create_dir(&self.path(path))
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.disk.sync_dir(&self.path(path))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    fn used_bytes(&self) -> io::Result<u64> {
        self.disk.used_bytes()
    }
}

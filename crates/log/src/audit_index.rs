//! The audit index: from opaque keys (cluster, actor, kind, time ...) to the journal entries that carry them.
//!
//! It is a copy in sled, never the truth: sled 0.34's flush does not reach the disk on Linux, so nothing here is asked to
//! survive. What makes the copy safe to answer from:
//! - after an orderly close, the hash of sled's files is noted; the same bytes are opened without further ado;
//! - otherwise every key is counted against what was inserted;
//! - and the journal's hashes must be the ones that were indexed.
//!
//! Any doubt, any error, any panic inside sled while opening: the folder is deleted and filled again from the journal.
//! Then, and after every opening, the index catches up with the journal.
//!
//! Not here: what the keys mean. Not for the simulator either: sled has threads and files of its own.

mod check;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use self::check::Found;
use crate::{
    journal::{Journal, JournalError, JournalRecord},
    lock,
};

/// Where sled keeps its files, inside the folder that we were given: the part that may be deleted.
const SLED_DIR: &str = "sled";

/// What the keys in sled begin with: the format, the keys themselves, and the marks.
const FORMAT_KEY: &[u8] = b"f";
const FORMAT: &[u8] = b"loadline-audit-index-1";
const KEYS: u8 = b'k';
const MARKS: u8 = b'm';

/// Log indexes per mark.
const INTERVAL: u64 = 256;

/// sled would take a gigabyte by default.
const CACHE_BYTES: u64 = 32 << 20;

/// Journal bytes per step when catching up.
const CATCH_UP_BYTES: usize = 4 << 20;

/// Why the index could not be used. The journal has everything, so it can always be deleted and built again.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("cannot {doing} the audit index in {dir}")]
    Io { doing: &'static str, dir: PathBuf, source: io::Error },
    #[error("cannot {doing} the audit index; the folder may be deleted, it is built again from the journal")]
    Sled { doing: &'static str, source: sled::Error },
    #[error("cannot read the journal to fill the audit index")]
    Journal(#[from] JournalError),
    #[error("the audit index is closed")]
    Closed,
}

fn sled_error(doing: &'static str) -> impl FnOnce(sled::Error) -> IndexError {
    move |source| IndexError::Sled { doing, source }
}

/// See the module. Clones are handles of the same index; when the last is dropped it is closed.
#[derive(Clone, Debug)]
pub struct AuditIndex {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    /// None when closed.
    db: RwLock<Option<sled::Db>>,
    progress: Mutex<Progress>,
}

/// How far the journal is indexed, and the mark of the interval that is being filled.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    through: Option<u64>,
    interval: u64,
    keys: u64,
}

impl AuditIndex {
    /// Opens the index in a folder of its own, or builds it, and brings it up to the end of the journal.
    pub fn open(dir: &Path, journal: &Journal) -> Result<Self, IndexError> {
        let failed = |doing| move |source| IndexError::Io { doing, dir: dir.to_owned(), source };
        std::fs::create_dir_all(dir).map_err(failed("create the folder of"))?;
        let closed_in_order = check::take_seal(dir).map_err(failed("read the seal of"))?;
        let (db, progress) = match open_checked(dir, journal, closed_in_order)? {
            Some(opened) => opened,
            None => {
                delete(&dir.join(SLED_DIR)).map_err(failed("delete"))?;
                let db = open_sled(dir).map_err(sled_error("create"))?;
                db.insert(FORMAT_KEY, FORMAT).map_err(sled_error("write to"))?;
                (db, Progress::default())
            }
        };
        let shared = Shared { dir: dir.to_owned(), db: RwLock::new(Some(db)), progress: Mutex::new(progress) };
        let index = Self { shared: Arc::new(shared) };
        index.catch_up(journal)?;
        Ok(index)
    }

    /// Indexes everything in the journal that is not indexed yet.
    fn catch_up(&self, journal: &Journal) -> Result<(), IndexError> {
        let mut next = match lock(&self.shared.progress).through {
            Some(through) => through + 1,
            None => journal.first_index().unwrap_or(0),
        };
        loop {
            let records = match journal.read(next, CATCH_UP_BYTES) {
                Ok(records) => records,
                Err(JournalError::Missing { next: Some(after_gap), .. }) => {
                    next = after_gap;
                    continue;
                }
                Err(JournalError::Missing { next: None, .. }) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            let Some(last) = records.last() else { return Ok(()) };
            next = last.index + 1;
            for record in &records {
                self.insert(record)?;
            }
        }
    }

    /// Indexes one record, in the order of the journal; one that is indexed already is skipped.
    pub fn insert(&self, record: &JournalRecord) -> Result<(), IndexError> {
        let db = self.db();
        let db = db.as_ref().ok_or(IndexError::Closed)?;
        let mut progress = lock(&self.shared.progress);
        if progress.through.is_some_and(|through| record.index <= through) {
            return Ok(());
        }
        let mut batch = sled::Batch::default();
        let mut keys: Vec<&[u8]> = record.keys.iter().map(Vec::as_slice).collect();
        keys.sort_unstable();
        keys.dedup();
        for key in &keys {
            batch.insert(entry_key(key, record.index), &[]);
        }
        let interval = record.index / INTERVAL;
        let before = if interval == progress.interval { progress.keys } else { 0 };
        let next = Progress { through: Some(record.index), interval, keys: before + keys.len() as u64 };
        let mark = check::Mark { keys: next.keys, last: record.index, hash: record.hash };
        batch.insert(check::mark_key(interval), mark.encode());
        // One batch, so that a mark never speaks of keys that a crash of this process has kept out.
        db.apply_batch(batch).map_err(sled_error("write to"))?;
        *progress = next;
        Ok(())
    }

    /// Log indexes, below `before`, of records that carry a key beginning with `prefix`: newest first, at most `limit`,
    /// each once. Cheap for a whole key; a prefix costs one step for every different key that it covers.
    pub fn find(&self, prefix: &[u8], before: Option<u64>, limit: usize) -> Result<Vec<u64>, IndexError> {
        let db = self.db();
        let db = db.as_ref().ok_or(IndexError::Closed)?;
        let before = before.unwrap_or(u64::MAX);
        let start = {
            let mut start = vec![KEYS];
            escape(prefix, &mut start);
            start
        };
        let mut newest = std::collections::BTreeSet::new();
        // From the last key under the prefix to the first, newest entries of each.
        let mut end = after_all(&start);
        while let Some(item) = db.range(start.clone()..end.clone()).next_back() {
            let (entry, _) = item.map_err(sled_error("read"))?;
            let Some((key, _)) = split_entry(&entry) else { break };
            let (first, last) = (with_index(key, 0), with_index(key, before));
            for item in db.range(first.clone()..last).rev().take(limit) {
                let (entry, _) = item.map_err(sled_error("read"))?;
                newest.extend(split_entry(&entry).map(|(_, index)| index));
            }
            while newest.len() > limit {
                newest.pop_first();
            }
            end = first;
        }
        Ok(newest.into_iter().rev().collect())
    }

    /// Closes in order, so that the next opening need not look at every key. Later calls fail.
    pub fn close(&self) -> Result<(), IndexError> {
        self.shared.close()
    }

    fn db(&self) -> RwLockReadGuard<'_, Option<sled::Db>> {
        self.shared.db.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    fn close(&self) -> Result<(), IndexError> {
        let db = self.db.write().unwrap_or_else(PoisonError::into_inner).take().ok_or(IndexError::Closed)?;
        db.flush().map_err(sled_error("flush"))?;
        // The last handle: what sled writes while it goes is in the files when this returns.
        drop(db);
        check::put_seal(&self.dir).map_err(|source| IndexError::Io { doing: "seal", dir: self.dir.clone(), source })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        match self.close() {
            Ok(()) | Err(IndexError::Closed) => {}
            Err(error) => tracing::warn!(%error, "the audit index was not closed in order"),
        }
    }
}

/// Deletes whatever is there.
fn delete(path: &Path) -> io::Result<()> {
    let deleted = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) => Err(error),
    };
    match deleted {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn open_sled(dir: &Path) -> Result<sled::Db, sled::Error> {
    sled::Config::new().path(dir.join(SLED_DIR)).cache_capacity(CACHE_BYTES).open()
}

/// Opens what is there, if it can be answered from. `None`: it has to be built again.
fn open_checked(
    dir: &Path,
    journal: &Journal,
    closed_in_order: bool,
) -> Result<Option<(sled::Db, Progress)>, IndexError> {
    if !dir.join(SLED_DIR).exists() {
        return Ok(None);
    }
    // sled asserts its way through files that it does not expect.
    let opened = catch_unwind(AssertUnwindSafe(|| {
        let db = open_sled(dir)?;
        let found = check::check(&db, journal, closed_in_order)?;
        Ok((db, found))
    }));
    match opened {
        Ok(Ok((db, Found::Usable(progress)))) => Ok(Some((db, progress))),
        Ok(Ok((_, Found::Unusable(why)))) => {
            tracing::warn!(why, "the audit index is built again from the journal");
            Ok(None)
        }
        Ok(Err(check::CheckError::Journal(error))) => Err(error.into()),
        Ok(Err(check::CheckError::Sled(error))) => {
            tracing::warn!(%error, "the audit index cannot be read and is built again from the journal");
            Ok(None)
        }
        Err(_) => {
            tracing::warn!("sled panicked over the audit index, which is built again from the journal");
            Ok(None)
        }
    }
}

/// `KEYS`, the escaped key, its end, the log index. All entries of a key are together, in the order of the log, and a key
/// sorts before the longer ones that begin with it.
fn entry_key(key: &[u8], index: u64) -> Vec<u8> {
    let mut entry = vec![KEYS];
    escape(key, &mut entry);
    entry.extend_from_slice(&[0, 1]);
    entry.extend_from_slice(&index.to_be_bytes());
    entry
}

/// Keeps the order and the prefixes of keys, and leaves zero followed by one to mean their end.
fn escape(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
}

/// The part before the index, and the index.
fn split_entry(entry: &[u8]) -> Option<(&[u8], u64)> {
    let (key, index) = entry.split_last_chunk::<8>()?;
    Some((key, u64::from_be_bytes(*index)))
}

fn with_index(key: &[u8], index: u64) -> Vec<u8> {
    [key, &index.to_be_bytes()].concat()
}

/// The end of the range of everything that begins with `start`, which begins with [`KEYS`] and so is not all `0xff`.
fn after_all(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests;

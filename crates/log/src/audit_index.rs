//! The audit index: from opaque keys (cluster, actor, kind, time ...) to the journal entries that carry them.
//!
//! It is a copy in sled, never the truth: sled 0.34's flush does not reach the disk on Linux, so nothing here is asked to
//! survive. What makes the copy safe to answer from:
//! - after an orderly close, the hash of sled's files is noted; the same bytes are opened without further ado;
//! - otherwise every key is counted against what was inserted;
//! - the journal's hashes must be the ones that were indexed;
//! - and it must not have fetched older entries since.
//!
//! Any doubt, any error, any panic inside sled while opening: the folder is deleted and filled again from the journal.
//! Then, and after every opening, the index catches up with the journal. That may take longer than everything else that a node
//! does when it starts, so it happens beside: what is applied meanwhile is found in the journal, and searches wait.
//!
//! sled gets whole intervals of log indexes, from a thread of its own: whoever applies entries must not wait for it. The
//! interval that is being filled, and those that wait to be written, are answered from memory. They are lost with the process and
//! made again from the journal.
//!
//! Not here: what the keys mean. Not for the simulator either: sled has threads and files of its own.

mod check;
mod interval;

use std::{
    collections::{BTreeSet, VecDeque},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use self::check::Found;
use self::interval::{Bits, Interval};
use crate::{
    journal::{Journal, JournalError, JournalRecord},
    lock,
};

/// Where sled keeps its files, inside the folder that we were given: the part that may be deleted.
const SLED_DIR: &str = "sled";

/// What the keys in sled begin with: the format, the keys themselves, and the marks.
const FORMAT_KEY: &[u8] = b"f";
const FORMAT: &[u8] = b"loadline-audit-index-3";
/// Which entries the journal had fetched when this index was begun: see [`check::put_filled`].
const FILLED_KEY: &[u8] = b"g";
const KEYS: u8 = b'k';
const MARKS: u8 = b'm';

/// Log indexes per interval, which is written at once and has one mark.
const INTERVAL: u64 = 256;

/// What may wait to be written: intervals, and keys of all of them. Whoever comes then waits, too: memory is bounded.
const UNWRITTEN_MAX: usize = 8;
const UNWRITTEN_KEYS_MAX: usize = 100_000;

/// Keys of one batch for sled, which holds on to every page that it replaces until the batch is over: a batch of a hundred
/// thousand keys took more than a gigabyte, and never gave it back.
const KEYS_AT_ONCE: usize = 128;

/// A search does not wait longer for an index that is being built.
const PATIENCE: Duration = Duration::from_secs(20);

/// sled would take a gigabyte by default. What it counts as one byte takes four or five in memory: with 32 MiB, a process with
/// 100,000 clusters had 140 MB more than with two. What it drops is still in the system's cache of the file.
const CACHE_BYTES: u64 = 2 << 20;

/// The node has a lock of its own on its folder, so whoever still has sled's is about to go: a process that is being started has the
/// files of the one that starts it for a moment, and with them the lock that was just let go.
const LOCKED_MAX: Duration = Duration::from_secs(2);

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
    #[error("the audit index is still being made from the journal; ask another node, or later")]
    NotReady,
}

fn sled_error(doing: &'static str) -> impl FnOnce(sled::Error) -> IndexError {
    move |source| IndexError::Sled { doing, source }
}

/// See the module. Clones are handles of the same index; when the last is dropped it is closed.
#[derive(Clone, Debug)]
pub struct AuditIndex {
    handle: Arc<Handle>,
}

/// What the clones share and the thread does not: the last one ends the thread.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    /// None when closed.
    db: RwLock<Option<sled::Db>>,
    memory: Mutex<Memory>,
    changed: Condvar,
}

/// What sled does not have yet.
#[derive(Debug, Default)]
struct Memory {
    /// It has caught up with the journal.
    ready: bool,
    /// The journal is indexed up to here, in sled or in memory.
    through: Option<u64>,
    filling: Option<Interval>,
    /// Full, oldest first. Each stays until sled has it, so that a search always finds it somewhere.
    unwritten: VecDeque<Arc<Interval>>,
    failed: Option<IndexError>,
    /// The thread has given up: nothing more is written, and nobody may wait for it.
    given_up: bool,
    closing: bool,
    /// What is there is to be thrown away and made again.
    anew: bool,
}

/// Why the thread has no more to write.
enum Pause {
    Closing,
    Anew,
}

impl Memory {
    fn is_full(&self) -> bool {
        let keys = || self.unwritten.iter().map(|interval| interval.keys.len()).sum::<usize>();
        self.unwritten.len() > UNWRITTEN_MAX || self.unwritten.len() > 1 && keys() > UNWRITTEN_KEYS_MAX
    }
}

impl AuditIndex {
    /// Opens the index in a folder of its own, or builds it, and brings it up to the end of the journal.
    pub fn open(dir: &Path, journal: &Journal) -> Result<Self, IndexError> {
        let index = Self::open_beside(dir, journal)?;
        let mut memory = lock(&index.shared().memory);
        while !memory.ready && !memory.given_up {
            memory = index.shared().changed.wait(memory).unwrap_or_else(PoisonError::into_inner);
        }
        let failed = memory.failed.take();
        drop(memory);
        failed.map_or(Ok(index), Err)
    }

    /// As [`AuditIndex::open`], but returns at once. Until the index is there, whatever is inserted has to be in the journal.
    pub fn open_beside(dir: &Path, journal: &Journal) -> Result<Self, IndexError> {
        let failed = |doing| move |source| IndexError::Io { doing, dir: dir.to_owned(), source };
        std::fs::create_dir_all(dir).map_err(failed("create the folder of"))?;
        let (memory, db, changed) = (Mutex::default(), RwLock::new(None), Condvar::new());
        let shared = Arc::new(Shared { dir: dir.to_owned(), db, memory, changed });
        let writer = std::thread::Builder::new().name("audit".to_owned()).spawn({
            let (shared, journal) = (shared.clone(), journal.clone());
            move || shared.work(&journal)
        });
        let writer = Mutex::new(Some(writer.map_err(failed("start the thread of"))?));
        Ok(Self { handle: Arc::new(Handle { shared, writer }) })
    }

    /// Indexes one record, in the order of the journal; one that is indexed already, or will be found in the journal, is
    /// skipped. An error may be about one of the records before.
    pub fn insert(&self, record: &JournalRecord) -> Result<(), IndexError> {
        self.insert_without_waiting(record)?;
        self.wait_for_room();
        Ok(())
    }

    /// The same for whoever holds up others meanwhile, and has to call [`AuditIndex::wait_for_room`] when that is over.
    pub fn insert_without_waiting(&self, record: &JournalRecord) -> Result<(), IndexError> {
        let shared = self.shared();
        let mut memory = lock(&shared.memory);
        if let Some(error) = memory.failed.take() {
            return Err(error);
        }
        if memory.closing || memory.given_up {
            return Err(IndexError::Closed);
        }
        if !memory.ready || memory.through.is_some_and(|through| record.index <= through) {
            return Ok(());
        }
        memory.through = Some(record.index);
        if let Some(full) = add(&mut memory.filling, record) {
            memory.unwritten.push_back(Arc::new(full));
            shared.changed.notify_all();
        }
        Ok(())
    }

    /// Returns when not too much is left to write: whoever inserts would fill the memory otherwise.
    pub fn wait_for_room(&self) {
        let shared = self.shared();
        let mut memory = lock(&shared.memory);
        while memory.is_full() && !memory.given_up {
            memory = shared.changed.wait(memory).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Log indexes, below `before`, of records that carry a key beginning with `prefix`: newest first, at most `limit`,
    /// each once. Cheap for a whole key; a prefix costs one step for every different key that it covers.
    pub fn find(&self, prefix: &[u8], before: Option<u64>, limit: usize) -> Result<Vec<u64>, IndexError> {
        let before = before.unwrap_or(u64::MAX);
        let mut newest = BTreeSet::new();
        // Memory first: what is written meanwhile is found twice, and never not at all.
        let unwritten: Vec<Arc<Interval>> = {
            let waits = |memory: &mut Memory| !memory.ready && !memory.given_up && !memory.closing;
            let waiting = self.shared().changed.wait_timeout_while(lock(&self.shared().memory), PATIENCE, waits);
            let memory = waiting.unwrap_or_else(PoisonError::into_inner).0;
            if !memory.ready {
                return Err(if memory.given_up || memory.closing { IndexError::Closed } else { IndexError::NotReady });
            }
            newest.extend(memory.filling.iter().flat_map(|interval| interval.find(prefix, before)));
            memory.unwritten.iter().cloned().collect()
        };
        newest.extend(unwritten.iter().flat_map(|interval| interval.find(prefix, before)));
        let db = self.db();
        let db = db.as_ref().ok_or(IndexError::Closed)?;
        let start = {
            let mut start = vec![KEYS];
            escape(prefix, &mut start);
            start
        };
        // From the last key under the prefix to the first, newest entries of each.
        let mut end = after_all(&start);
        while let Some(item) = db.range(start.clone()..end.clone()).next_back() {
            let (entry, _) = item.map_err(sled_error("read"))?;
            let Some((key, _)) = split_entry(&entry) else { break };
            let (first, last) = (with_interval(key, 0), with_interval(key, before / INTERVAL));
            let mut found = 0;
            for item in db.range(first.clone()..=last).rev() {
                let (entry, bits) = item.map_err(sled_error("read"))?;
                let (Some((_, interval)), Some(bits)) = (split_entry(&entry), Bits::decode(&bits)) else { continue };
                let count = newest.len();
                newest.extend(bits.indexes(interval).filter(|index| *index < before).take(limit));
                found += newest.len() - count;
                if found >= limit {
                    break;
                }
            }
            while newest.len() > limit {
                newest.pop_first();
            }
            end = first;
        }
        while newest.len() > limit {
            newest.pop_first();
        }
        Ok(newest.into_iter().rev().collect())
    }

    /// Makes the index anew, beside, because entries have come into the journal that are older than those that are indexed.
    /// Searches wait for it as they do for an index that is being made for the first time. If the process ends before that, the next
    /// opening does it.
    pub fn make_anew(&self) {
        let mut memory = lock(&self.shared().memory);
        memory.anew = true;
        self.shared().changed.notify_all();
    }

    /// Closes in order, so that the next opening need not look at every key. Later calls fail.
    pub fn close(&self) -> Result<(), IndexError> {
        self.handle.close()
    }

    fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    fn db(&self) -> RwLockReadGuard<'_, Option<sled::Db>> {
        self.shared().db()
    }
}

impl Shared {
    fn db(&self) -> RwLockReadGuard<'_, Option<sled::Db>> {
        self.db.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread: catches up, and then writes one full interval after the other, until it is told to end.
    fn work(&self, journal: &Journal) {
        // sled asserts its way through what it does not expect, and nobody would notice that this thread is gone.
        let done = catch_unwind(AssertUnwindSafe(|| {
            loop {
                self.make_ready(journal)?;
                match self.write_what_comes()? {
                    Pause::Closing => return Ok(()),
                    Pause::Anew => self.throw_away()?,
                }
            }
        }));
        let failed = match done {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            Err(_) => {
                let source = sled::Error::ReportableBug("it panicked".to_owned());
                IndexError::Sled { doing: "write to", source }
            }
        };
        let mut memory = lock(&self.memory);
        memory.failed = Some(failed);
        memory.given_up = true;
        self.changed.notify_all();
    }

    /// Opens what is there, or begins anew, and indexes everything in the journal that is not indexed yet.
    fn make_ready(&self, journal: &Journal) -> Result<(), IndexError> {
        let failed = |doing| move |source| IndexError::Io { doing, dir: self.dir.clone(), source };
        let closed_in_order = check::take_seal(&self.dir).map_err(failed("read the seal of"))?;
        let (db, mut through) = match open_checked(&self.dir, journal, closed_in_order)? {
            Some(opened) => opened,
            None => {
                delete(&self.dir.join(SLED_DIR)).map_err(failed("delete"))?;
                let db = open_sled(&self.dir).map_err(sled_error("create"))?;
                db.insert(FORMAT_KEY, FORMAT).map_err(sled_error("write to"))?;
                check::put_filled(&db, journal).map_err(sled_error("write to"))?;
                (db, None)
            }
        };
        *self.db.write().unwrap_or_else(PoisonError::into_inner) = Some(db);
        let mut filling = None;
        loop {
            let end = journal.last_index();
            self.catch_up(journal, &mut through, &mut filling)?;
            let mut memory = lock(&self.memory);
            if memory.closing {
                return Ok(());
            }
            // Nothing was appended since: nobody has been told that it would be found in the journal, and was too late.
            if journal.last_index() == end {
                (memory.ready, memory.through, memory.filling) = (true, through, filling);
                self.changed.notify_all();
                return Ok(());
            }
        }
    }

    fn catch_up(
        &self,
        journal: &Journal,
        through: &mut Option<u64>,
        filling: &mut Option<Interval>,
    ) -> Result<(), IndexError> {
        let mut next = through.map_or_else(|| journal.first_index().unwrap_or(0), |through| through + 1);
        while !lock(&self.memory).closing {
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
                *through = Some(record.index);
                if let Some(full) = add(filling, record) {
                    self.write(&full)?;
                }
            }
        }
        Ok(())
    }

    /// Forgets everything. What is inserted from now on is found in the journal.
    fn throw_away(&self) -> Result<(), IndexError> {
        {
            let mut memory = lock(&self.memory);
            (memory.anew, memory.ready, memory.through, memory.filling) = (false, false, None, None);
            memory.unwritten.clear();
            self.changed.notify_all();
        }
        drop(self.db.write().unwrap_or_else(PoisonError::into_inner).take());
        let failed = |source| IndexError::Io { doing: "delete", dir: self.dir.clone(), source };
        delete(&self.dir.join(SLED_DIR)).map_err(failed)
    }

    fn write_what_comes(&self) -> Result<Pause, IndexError> {
        loop {
            let next = {
                let mut memory = lock(&self.memory);
                loop {
                    match memory.unwritten.front() {
                        _ if memory.anew && !memory.closing => return Ok(Pause::Anew),
                        Some(next) => break next.clone(),
                        None if memory.closing => return Ok(Pause::Closing),
                        None => memory = self.changed.wait(memory).unwrap_or_else(PoisonError::into_inner),
                    }
                }
            };
            self.write(&next)?;
            drop(lock(&self.memory).unwritten.pop_front());
            self.changed.notify_all();
        }
    }

    fn write(&self, interval: &Interval) -> Result<(), IndexError> {
        let db = self.db();
        let db = db.as_ref().ok_or(IndexError::Closed)?;
        let mut keys = interval.keys.iter().peekable();
        while keys.peek().is_some() {
            let mut batch = sled::Batch::default();
            for (key, bits) in keys.by_ref().take(KEYS_AT_ONCE) {
                batch.insert(entry_key(key, interval.number), bits.encode());
            }
            db.apply_batch(batch).map_err(sled_error("write to"))?;
        }
        // Last, so that a mark never speaks of keys that a crash of this process has kept out.
        let mark = check::Mark { keys: interval.keys.len() as u64, last: interval.last, hash: interval.hash };
        db.insert(check::mark_key(interval.number), mark.encode()).map(drop).map_err(sled_error("write to"))
    }
}

impl Handle {
    fn close(&self) -> Result<(), IndexError> {
        let shared = &self.shared;
        lock(&shared.memory).closing = true;
        shared.changed.notify_all();
        if let Some(writer) = lock(&self.writer).take() {
            // It catches its own panics.
            let _ = writer.join();
        }
        let db = shared.db.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(error) = lock(&shared.memory).failed.take() {
            return Err(error);
        }
        let db = db.ok_or(IndexError::Closed)?;
        db.flush().map_err(sled_error("flush"))?;
        // The last handle: what sled writes while it goes is in the files when this returns.
        drop(db);
        check::put_seal(&shared.dir).map_err(|source| IndexError::Io { doing: "seal", dir: shared.dir.clone(), source })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        match self.close() {
            Ok(()) | Err(IndexError::Closed) => {}
            Err(error) => tracing::warn!(%error, "the audit index was not closed in order"),
        }
    }
}

/// Adds a record to its interval; the one before, if that is full now.
fn add(filling: &mut Option<Interval>, record: &JournalRecord) -> Option<Interval> {
    match filling {
        Some(filling) if filling.number == record.index / INTERVAL => {
            filling.add(record);
            None
        }
        filling => filling.replace(Interval::starting_with(record)),
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

/// Without sled's own thread, which calls fsync twice a second, beside the log that somebody waits for, and spends up to half of its
/// time on tidying up its file for minutes after many keys came. Nothing here has to be durable before it is closed: what a
/// crash keeps out is taken from the journal, and sled tidies up when it writes, too.
fn open_sled(dir: &Path) -> Result<sled::Db, sled::Error> {
    let began = Instant::now();
    loop {
        let config = sled::Config::new().path(dir.join(SLED_DIR)).cache_capacity(CACHE_BYTES).flush_every_ms(None);
        match config.open() {
            Err(sled::Error::Io(error)) if is_locked(&error) && began.elapsed() < LOCKED_MAX => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened,
        }
    }
}

/// sled says so only in words.
fn is_locked(error: &io::Error) -> bool {
    error.to_string().contains("could not acquire lock")
}

/// Opens what is there, if it can be answered from. `None`: it has to be built again.
fn open_checked(
    dir: &Path,
    journal: &Journal,
    closed_in_order: bool,
) -> Result<Option<(sled::Db, Option<u64>)>, IndexError> {
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
        Ok(Ok((db, Found::Usable { through }))) => Ok(Some((db, through))),
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

/// `KEYS`, the escaped key, its end, the interval. All entries of a key are together, in the order of the log, and a key
/// sorts before the longer ones that begin with it.
fn entry_key(key: &[u8], interval: u64) -> Vec<u8> {
    let mut entry = vec![KEYS];
    escape(key, &mut entry);
    entry.extend_from_slice(&[0, 1]);
    entry.extend_from_slice(&interval.to_be_bytes());
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

/// The part before the interval, and the interval.
fn split_entry(entry: &[u8]) -> Option<(&[u8], u64)> {
    let (key, interval) = entry.split_last_chunk::<8>()?;
    Some((key, u64::from_be_bytes(*interval)))
}

fn with_interval(key: &[u8], interval: u64) -> Vec<u8> {
    [key, &interval.to_be_bytes()].concat()
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

//! The journal: every applied entry with its events and index keys, for ever.
//!
//! Records are collected into blocks, compressed, and appended to segments that are never rewritten. What is appended is
//! readable at once and durable after [`Journal::sync`], which must come before Raft may purge: until then a crash loses
//! the tail here and the log still has it.
//!
//! - [`format`]: the bytes · [`writer`]: blocks and segments · [`read`]: finding and unpacking blocks
//! - [`recovery`]: opening after a crash · [`examine`]: checking the whole
//!
//! - [`retention`]: letting the oldest segments go · [`filling`]: what was fetched of what it lacks
//!
//! Not here: what entries, events and keys mean; and when to let something go.

mod examine;
mod filling;
pub(crate) mod format;
mod read;
mod recovery;
mod retention;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    io,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;

pub use self::{
    examine::{JournalFault, journal_faults},
    filling::{Filling, Gap},
    retention::JournalSegment,
};
use self::{
    filling::Filled,
    format::{BlockPlace, Hash, Packer},
    read::{Block, BlockCache, Located},
    writer::Mark,
};
use crate::{
    HOW_TO_RECOVER,
    disk::{DiskFile, SharedDisk},
    lock,
};

/// One applied entry. Everything but `index` and `hash` is opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord {
    pub index: u64,
    pub time_ms: u64,
    /// The state machine's chain hash after this entry.
    pub hash: [u8; 32],
    pub entry: Bytes,
    pub events: Bytes,
    /// Under which the audit index finds this record. Shared with it.
    pub keys: Arc<[Vec<u8>]>,
}

impl JournalRecord {
    pub(crate) fn bytes(&self) -> usize {
        64 + self.entry.len() + self.events.len() + self.keys.iter().map(|key| key.len() + 4).sum::<usize>()
    }
}

/// How to keep a journal.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// A segment that has grown to this is sealed.
    pub segment_bytes: u64,
    /// Bytes of records, before compression, that make a block. A reader unpacks at least one.
    pub block_bytes: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self { segment_bytes: 64 << 20, block_bytes: 64 << 10 }
    }
}

/// Why the journal could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
    #[error("{file} is damaged at offset {offset}: {what}; {HOW_TO_RECOVER}")]
    Damaged { file: String, offset: u64, what: String },
    #[error("{file} at offset {offset}: {what}; run the newer program that wrote it")]
    Newer { file: String, offset: u64, what: String },
    #[error("{file} is not a file of the journal; nothing but its segments belongs there, so move it away")]
    ForeignFile { file: String },
    /// The same index was applied before with another result: this node has diverged from itself.
    #[error("entry {index} was applied before with another result; {HOW_TO_RECOVER}")]
    Diverged { index: u64 },
    #[error("entry {index} does not follow on from {last}")]
    OutOfOrder { index: u64, last: u64 },
    /// Before the beginning, or in a gap that a snapshot left.
    #[error("entry {index} is not in this journal{}", next.map(|next| format!("; it goes on with entry {next}")).unwrap_or_default())]
    Missing { index: u64, next: Option<u64> },
    #[error("the journal has failed and takes nothing more: {reason}")]
    Failed { reason: String },
    /// They came from another node.
    #[error("these are not records of a journal: {what}")]
    NotRecords { what: String },
    #[error("the journal is closed")]
    Closed,
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

fn io_error(doing: impl Into<String>) -> impl FnOnce(io::Error) -> JournalError {
    let doing = doing.into();
    |source| JournalError::Io { doing, source }
}

/// What [`Journal::verify`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct JournalSummary {
    pub segments: u64,
    pub blocks: u64,
    pub records: u64,
    pub gaps: u64,
}

/// Records, of which there must be some, as one node sends them to another.
pub fn pack_records(records: &[JournalRecord]) -> io::Result<Vec<u8>> {
    Packer::new()?.pack(&Hash::default(), records)
}

/// What [`pack_records`] made. More than so many bytes are not unpacked: whoever sent it says how many there are.
pub fn unpack_records(bytes: &[u8], bytes_max: u64) -> Result<Vec<JournalRecord>, JournalError> {
    format::unpack_at_most(bytes, bytes_max).map_err(|error| JournalError::NotRecords { what: error.to_string() })
}

/// The journal. Clones are handles of the same one; when the last is dropped it is closed.
#[derive(Clone, Debug)]
pub struct Journal {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// One sync at a time, taken before `inner`: of two threads that sync the same file, the kernel tells only one that
    /// it failed.
    syncing: Mutex<()>,
    inner: Mutex<Inner>,
    cache: BlockCache,
    /// Gaps that were filled from elsewhere, oldest first.
    filled: Mutex<Vec<Filled>>,
}

/// A segment. Only the one that is appended to is kept open: history grows for ever, and file handles must not.
#[derive(Debug)]
struct SegmentFile {
    number: u64,
    disk: SharedDisk,
    open: Mutex<Option<Arc<dyn DiskFile>>>,
}

impl SegmentFile {
    fn new(disk: SharedDisk, number: u64, file: Box<dyn DiskFile>) -> Arc<Self> {
        Arc::new(Self { number, disk, open: Mutex::new(Some(file.into())) })
    }

    fn file(&self) -> io::Result<Arc<dyn DiskFile>> {
        match &*lock(&self.open) {
            Some(file) => Ok(file.clone()),
            None => Ok(self.disk.open(&format::path(self.number), false)?.into()),
        }
    }

    /// It is sealed.
    fn let_go(&self) {
        lock(&self.open).take();
    }
}

#[derive(Debug)]
struct Inner {
    disk: SharedDisk,
    options: JournalOptions,
    /// All blocks that are written, in order.
    blocks: Vec<Block>,
    /// Entries whose hash is known from the head of a segment.
    bases: Vec<(u64, Hash)>,
    /// The sealed segments, oldest first.
    sealed: Vec<SealedSegment>,
    /// Whether one of them went, and nobody knows if that is durable.
    removal_unsure: bool,
    /// The segment that is appended to; none before the first record and after a seal.
    current: Option<Current>,
    /// The number of the newest segment.
    number: u64,
    /// The chain of blocks and heads so far.
    chain: Hash,
    /// The crc of the last frame.
    link: u32,
    /// Records that wait for their block to be full.
    waiting: Vec<JournalRecord>,
    waiting_bytes: usize,
    packer: Packer,
    /// The last entry that the segments account for: a record, or the end of a gap.
    written: Option<(u64, Hash)>,
    synced_index: Option<u64>,
    failed: Option<String>,
    closed: bool,
}

/// A segment that nothing is added to any more.
#[derive(Clone, Copy, Debug)]
struct SealedSegment {
    number: u64,
    /// The last entry that it accounts for.
    last: Option<u64>,
    bytes: u64,
}

/// The segment that is appended to.
#[derive(Clone, Debug)]
struct Current {
    segment: Arc<SegmentFile>,
    len: u64,
    /// Everything below is durable.
    synced: u64,
    places: Vec<BlockPlace>,
}

impl Journal {
    /// Opens the journal in `journal/`, or begins one, and makes sure that what it reports is durable.
    pub fn open(disk: SharedDisk, options: JournalOptions) -> Result<Self, JournalError> {
        let options = JournalOptions {
            segment_bytes: options.segment_bytes.clamp(1 << 10, 1 << 30),
            block_bytes: options.block_bytes.clamp(1, 16 << 20),
        };
        let mut inner = recovery::recover(disk, options)?;
        inner.write_mark(Mark::Opened)?;
        inner.synced_index = inner.written.map(|(index, _)| index);
        let shared = Shared {
            syncing: Mutex::new(()),
            inner: Mutex::new(inner),
            cache: BlockCache::default(),
            filled: Mutex::default(),
        };
        let journal = Self { shared: Arc::new(shared) };
        journal.open_filled()?;
        Ok(journal)
    }

    /// Adds a record. One that is there already is skipped if it is the same (entries are applied again after a crash)
    /// and [`JournalError::Diverged`] if it is not; one that neither repeats nor follows on is refused.
    pub fn append(&self, record: JournalRecord) -> Result<(), JournalError> {
        self.append_without_sync(record)?;
        self.seal_what_is_full()
    }

    /// The same for whoever holds up others meanwhile, and has to call [`Journal::seal_what_is_full`] when that is over.
    pub fn append_without_sync(&self, record: JournalRecord) -> Result<(), JournalError> {
        let mut inner = self.usable()?;
        if let Some((last, _)) = inner.last() {
            if record.index <= last {
                drop(inner);
                return self.check_same(record.index, &record.hash);
            }
            if record.index != last + 1 {
                return Err(JournalError::OutOfOrder { index: record.index, last });
            }
        }
        inner.waiting_bytes += record.bytes();
        inner.waiting.push(record);
        if inner.waiting_bytes < inner.options.block_bytes {
            return Ok(());
        }
        inner.guarded(Inner::write_block)
    }

    /// Closes the segment that is appended to, durably, if it is as large as it may be.
    pub fn seal_what_is_full(&self) -> Result<(), JournalError> {
        if !self.usable()?.is_full() {
            return Ok(());
        }
        let _syncing = lock(&self.shared.syncing);
        let mut inner = self.usable()?;
        // Somebody else may have sealed it meanwhile.
        if inner.is_full() { inner.guarded(Inner::seal) } else { Ok(()) }
    }

    /// Says that the entries up to `index` will never come, because a snapshot stood in for them: the next record is
    /// `index + 1`. The gap is durable when this returns. An index that the journal has already reached changes nothing.
    pub fn start_after(&self, index: u64, hash: [u8; 32]) -> Result<(), JournalError> {
        let _syncing = lock(&self.shared.syncing);
        let mut inner = self.usable()?;
        if inner.last().is_some_and(|(last, _)| index <= last) {
            drop(inner);
            return self.check_same(index, &hash);
        }
        inner.guarded(|inner| {
            inner.write_block()?;
            inner.seal()?;
            inner.written = Some((index, hash));
            inner.begin_segment(true)
        })
    }

    /// Makes everything appended so far durable.
    pub fn sync(&self) -> Result<(), JournalError> {
        let _syncing = lock(&self.shared.syncing);
        let mut inner = self.usable()?;
        inner.guarded(Inner::write_block)?;
        if inner.is_full() {
            return inner.guarded(Inner::seal);
        }
        let last = inner.written.map(|(index, _)| index);
        let Some(current) = inner.current.clone() else {
            inner.synced_index = last;
            return Ok(());
        };
        // Appending and reading go on meanwhile.
        drop(inner);
        let synced = current.segment.file().and_then(|file| file.sync_all());
        let mut inner = self.usable()?;
        inner.guarded(|_| synced.map_err(io_error(format!("sync {}", format::path(current.segment.number)))))?;
        if let Some(now) = inner.current.as_mut().filter(|now| now.segment.number == current.segment.number) {
            now.synced = now.synced.max(current.len);
        }
        inner.synced_index = inner.synced_index.max(last);
        Ok(())
    }

    /// The first record that can be read.
    pub fn first_index(&self) -> Option<u64> {
        let own = {
            let inner = lock(&self.shared.inner);
            let written = inner.blocks.first().map(|block| block.place.first);
            written.or_else(|| inner.waiting.first().map(|record| record.index))
        };
        let filled = lock(&self.shared.filled).first().map(|filled| *filled.entries.start());
        own.into_iter().chain(filled).min()
    }

    /// The records that can be read, as stretches without a gap, in their order.
    pub fn stretches(&self) -> Vec<RangeInclusive<u64>> {
        let inner = lock(&self.shared.inner);
        let written = inner.blocks.iter().map(|block| (block.place.first, u64::from(block.place.count)));
        let waiting = inner.waiting.iter().map(|record| (record.index, 1));
        let mut own: Vec<RangeInclusive<u64>> = Vec::new();
        for (first, count) in written.chain(waiting) {
            let last = first + count - 1;
            match own.last_mut() {
                Some(stretch) if *stretch.end() + 1 == first => *stretch = *stretch.start()..=last,
                _ => own.push(first..=last),
            }
        }
        drop(inner);
        own.extend(lock(&self.shared.filled).iter().map(|filled| filled.entries.clone()));
        own.sort_by_key(|stretch| *stretch.start());
        let mut stretches: Vec<RangeInclusive<u64>> = Vec::new();
        for (first, last) in own.into_iter().map(RangeInclusive::into_inner) {
            match stretches.last_mut() {
                Some(stretch) if *stretch.end() + 1 == first => *stretch = *stretch.start()..=last,
                _ => stretches.push(first..=last),
            }
        }
        stretches
    }

    /// How far the journal goes: the last record, or the end of a gap that none has followed yet.
    pub fn last_index(&self) -> Option<u64> {
        lock(&self.shared.inner).last().map(|(index, _)| index)
    }

    /// How far of that is durable.
    pub fn synced_index(&self) -> Option<u64> {
        lock(&self.shared.inner).synced_index
    }

    /// Bytes that the segments occupy.
    pub fn disk_bytes(&self) -> u64 {
        let filled: u64 = lock(&self.shared.filled).iter().map(|filled| filled.journal.disk_bytes()).sum();
        let inner = lock(&self.shared.inner);
        filled
            + inner.sealed.iter().map(|segment| segment.bytes).sum::<u64>()
            + inner.current.as_ref().map_or(0, |current| current.len)
    }

    /// Records from `from` on, up to the end, the next gap or the next damage: at least one if there is any, then as many as fit into
    /// `bytes_max`. Behind the end there are none; where the journal has none, [`JournalError::Missing`] says where it
    /// goes on.
    pub fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, JournalError> {
        let mut found: Vec<JournalRecord> = Vec::new();
        let mut bytes = 0_usize;
        let mut next = from;
        loop {
            let located = lock(&self.shared.inner).locate(next);
            let records = match located {
                Located::Waiting(records) => Arc::new(records),
                Located::Block(block) => match self.shared.cache.records(&block) {
                    // It was let go just now.
                    Err(JournalError::Io { source, .. }) if is_gone(&source) && !self.has(next) => continue,
                    // What is before the damage is as good as ever; whoever asks for the rest is told.
                    Err(JournalError::Damaged { .. }) if !found.is_empty() => return Ok(found),
                    records => records?,
                },
                Located::Nowhere { next: written } => match self.filled_at(next) {
                    Some(filled) => match filled.journal.read(next, bytes_max.saturating_sub(bytes)) {
                        Err(JournalError::Damaged { .. }) if !found.is_empty() => return Ok(found),
                        records => Arc::new(records.map_err(|error| filled.placed(error))?),
                    },
                    None if found.is_empty() => {
                        let filled = self.filled_after(from);
                        let next = [written, filled].into_iter().flatten().min();
                        return Err(JournalError::Missing { index: from, next });
                    }
                    None => return Ok(found),
                },
                Located::Behind => return Ok(found),
            };
            for record in records.iter().filter(|record| record.index >= next) {
                bytes = bytes.saturating_add(record.bytes());
                if bytes > bytes_max && !found.is_empty() {
                    return Ok(found);
                }
                found.push(record.clone());
            }
            next = found.last().map_or(next, |record| record.index) + 1;
        }
    }

    /// The hash after entry `index`; `None` where the journal does not know it.
    pub fn hash_at(&self, index: u64) -> Result<Option<[u8; 32]>, JournalError> {
        let inner = lock(&self.shared.inner);
        if let Some((_, hash)) = inner.last().filter(|(last, _)| *last == index) {
            return Ok(Some(hash));
        }
        if let Some((_, hash)) = inner.bases.iter().find(|(base, _)| *base == index) {
            return Ok(Some(*hash));
        }
        let located = inner.locate(index);
        drop(inner);
        let of =
            |records: &[JournalRecord]| records.iter().find(|record| record.index == index).map(|record| record.hash);
        match located {
            Located::Waiting(records) => Ok(of(&records)),
            Located::Block(block) => match self.shared.cache.records(&block) {
                Err(JournalError::Io { source, .. }) if is_gone(&source) && !self.has(index) => Ok(None),
                records => Ok(of(&records?)),
            },
            // The hash before the first entry that is there is known, too.
            Located::Nowhere { .. } => {
                match self.filled_at(index).or_else(|| self.filled_at(index.saturating_add(1))) {
                    Some(filled) => filled.journal.hash_at(index).map_err(|error| filled.placed(error)),
                    None => Ok(None),
                }
            }
            Located::Behind => Ok(None),
        }
    }

    /// Reads everything and checks every checksum, every link of the chain and every record. What was appended after this
    /// began is not looked at.
    pub fn verify(&self) -> Result<JournalSummary, JournalError> {
        let inner = self.usable()?;
        let (disk, number) = (inner.disk.clone(), inner.number);
        let end = inner.current.as_ref().map(|current| current.len);
        drop(inner);
        let examined = examine::examine(&*disk, Some(number), end)?;
        if let Some(fault) = examined.faults.into_iter().next() {
            return Err(fault.into());
        }
        let mut summary = examined.summary;
        // Not in the head of the loop: the lock would be held until its end, and all of this is read meanwhile.
        let parts = lock(&self.shared.filled).clone();
        for filled in parts {
            let part = filled.journal.verify()?;
            summary.segments += part.segments;
            summary.blocks += part.blocks;
            summary.records += part.records;
            summary.gaps = summary.gaps.saturating_sub(1);
        }
        Ok(summary)
    }

    /// Makes everything durable, notes that it was closed in order, and stops. Later calls fail.
    pub fn close(&self) -> Result<(), JournalError> {
        self.sync()?;
        let _syncing = lock(&self.shared.syncing);
        let mut inner = self.usable()?;
        inner.guarded(|inner| inner.write_mark(Mark::Closed))?;
        inner.closed = true;
        Ok(())
    }

    /// The journal, unless it has failed or is closed.
    fn usable(&self) -> Result<MutexGuard<'_, Inner>, JournalError> {
        let inner = lock(&self.shared.inner);
        match &inner.failed {
            Some(reason) => Err(JournalError::Failed { reason: reason.clone() }),
            None if inner.closed => Err(JournalError::Closed),
            None => Ok(inner),
        }
    }

    /// Whether there is a block with this record.
    fn has(&self, index: u64) -> bool {
        matches!(lock(&self.shared.inner).locate(index), Located::Block(_))
    }

    fn check_same(&self, index: u64, hash: &Hash) -> Result<(), JournalError> {
        match self.hash_at(index)? {
            Some(known) if known != *hash => Err(JournalError::Diverged { index }),
            // In a gap there is nothing to compare with, and nothing to add to.
            _ => Ok(()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if inner.failed.is_some() || inner.closed {
            return;
        }
        let closed =
            inner.write_block().and_then(|()| inner.sync_current()).and_then(|()| inner.write_mark(Mark::Closed));
        if let Err(error) = closed {
            tracing::warn!(%error, "the journal was not closed in order");
        }
    }
}

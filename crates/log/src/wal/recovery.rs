//! What the files say after a crash, and which part of it to believe.
//!
//! The rule: walk the frames; at the first place X without an intact, chained frame, look at what is behind it.
//! - A frame behind X, or in a later segment, that was written when X was already durable: bytes that this node promised
//!   have been damaged. Opening fails; nobody else knows what they said.
//! - Otherwise everything behind X is the torn end of the last write, which nobody was told about. It is zeroed.
//!
//! What is believed is made true before it is reported: the last write may have reached the page cache only (the process
//! was killed), or may be there after a sync that failed (the kernel forgets that such pages need writing). So it is
//! written once more, and synced.

use std::{collections::VecDeque, io, sync::Arc};

use super::{
    LogPosition, WalError, WalState,
    index::{Index, Place},
    record::{Item, NotUnderstood},
    segment::{self, Name, SEGMENT_BYTES_MIN, Segment},
    writer::{Spare, Tail, Used},
};
use crate::{
    disk::{Disk, ensure_dir, read_all},
    frame::{Chain, Family, Frame, Walk, any_frame, content_end},
};

#[derive(Debug)]
pub(super) struct Recovered {
    pub(super) tail: Tail,
    pub(super) index: Index,
}

/// Reads the folder. `expect_existing`: see [`super::WalOptions::expect_existing`].
pub(super) fn recover(disk: &dyn Disk, cache_bytes: usize, expect_existing: bool) -> Result<Recovered, WalError> {
    ensure_dir(disk, segment::DIR).map_err(|source| io_error("create the folder wal/", source))?;
    let mut rest: VecDeque<u64> = segment_numbers(disk)?.into();
    let mut replay = Replay::new(cache_bytes);
    let mut used = VecDeque::new();
    let mut last: Option<Scanned> = None;
    while let Some(number) = rest.pop_front() {
        let scanned = replay.scan(disk, number)?;
        if !scanned.sealed {
            scanned.check_is_the_end(disk, &rest)?;
        }
        if scanned.end == 0 {
            // Not a frame in it: the spare segment, perhaps with the torn beginning of its first batch.
            scanned.make_true()?;
            rest.push_front(number);
            break;
        }
        let sealed = scanned.sealed;
        used.push_back(Used { segment: scanned.segment.clone(), index_max: scanned.index_max });
        last = Some(scanned);
        if !sealed {
            break;
        }
    }
    replay.check_complete(used.front().map(|used: &Used| used.segment.number))?;
    let tail = match &last {
        Some(scanned) => {
            scanned.make_true()?;
            let chain = Chain { family: Family::Wal, segment: scanned.segment.number, link: scanned.link };
            let spare = spare(disk, rest)?;
            Tail { used, offset: scanned.end, chain, sealed: scanned.sealed, spare, written: replay.state }
        }
        None => {
            check_never_begun(&rest, expect_existing)?;
            let chain = Chain { family: Family::Wal, segment: 0, link: 0 };
            let spare = spare(disk, rest)?;
            Tail { used, offset: 0, chain, sealed: true, spare, written: replay.state }
        }
    };
    Ok(Recovered { tail, index: replay.index })
}

fn io_error(doing: impl Into<String>, source: io::Error) -> WalError {
    WalError::Io { doing: doing.into(), source }
}

fn damaged(number: u64, offset: usize, what: impl Into<String>) -> WalError {
    WalError::Damaged { file: segment::path(number), offset: offset as u64, what: what.into() }
}

/// The numbers of all segments in the folder, which must hold nothing else.
fn segment_numbers(disk: &dyn Disk) -> Result<Vec<u64>, WalError> {
    let names = disk.list(segment::DIR).map_err(|source| io_error("list the folder wal/", source))?;
    let mut numbers = Vec::new();
    for name in names {
        let path = format!("{}/{name}", segment::DIR);
        match segment::parse_name(&name) {
            Name::Segment(number) => numbers.push(number),
            // Its maker died before it was renamed: nothing was ever written to it.
            Name::Temp => disk.remove(&path).map_err(|source| io_error(format!("remove {path}"), source))?,
            Name::Foreign => return Err(WalError::ForeignFile { file: path }),
        }
    }
    match numbers.windows(2).find(|pair| pair[1] != pair[0] + 1) {
        Some(hole) => Err(damaged(hole[0] + 1, 0, "the file is missing")),
        None => Ok(numbers),
    }
}

/// A log without a single frame is a new one only if nothing says that there was more.
fn check_never_begun(unused: &VecDeque<u64>, expect_existing: bool) -> Result<(), WalError> {
    match unused.front() {
        // A segment is removed only after a later one was begun.
        Some(&first) if first != 1 => Err(damaged(first, 0, "it is empty, and the segments before it are gone")),
        _ if expect_existing => Err(WalError::Lost),
        _ => Ok(()),
    }
}

/// Keeps the first unused segment for later and removes any other.
fn spare(disk: &dyn Disk, unused: VecDeque<u64>) -> Result<Spare, WalError> {
    let mut spare = Spare::None;
    for number in unused {
        let path = segment::path(number);
        if matches!(spare, Spare::None) {
            spare = Spare::Ready(open(disk, number)?);
        } else {
            disk.remove(&path).map_err(|source| io_error(format!("remove {path}"), source))?;
        }
    }
    disk.sync_dir(segment::DIR).map_err(|source| io_error("sync the folder wal/", source))?;
    Ok(spare)
}

fn open(disk: &dyn Disk, number: u64) -> Result<Segment, WalError> {
    Segment::open(disk, number).map_err(|source| io_error(format!("open {}", segment::path(number)), source))
}

fn read(segment: &Segment) -> Result<Vec<u8>, WalError> {
    read_all(&*segment.file).map_err(|source| io_error(format!("read {}", segment::path(segment.number)), source))
}

/// One segment, walked as far as its frames go.
struct Scanned {
    segment: Arc<Segment>,
    bytes: Vec<u8>,
    /// The first place without a frame.
    end: usize,
    /// What was known durable when the last frame was written.
    synced: usize,
    link: u32,
    sealed: bool,
    /// A frame behind the end that counted on it.
    promise: Option<usize>,
    index_max: Option<u64>,
}

impl Scanned {
    /// Whether the log may end here: nothing behind was written after this place was durable.
    fn check_is_the_end(&self, disk: &dyn Disk, later: &VecDeque<u64>) -> Result<(), WalError> {
        if let Some(promise) = self.promise {
            let what = format!("the frame at offset {promise} was written when this place was already durable");
            return Err(damaged(self.segment.number, self.end, what));
        }
        for &number in later {
            if any_frame(&read(&open(disk, number)?)?, Family::Wal, number) {
                let what = format!("{} was begun when this place was already durable", segment::path(number));
                return Err(damaged(self.segment.number, self.end, what));
            }
        }
        Ok(())
    }

    /// Writes the last batch again, zeroes what is behind it, syncs. Repeating it after a crash in the middle gives the
    /// same: every sector ends up as what it was or as what it is to be.
    fn make_true(&self) -> Result<(), WalError> {
        let write = |from: usize, bytes: &[u8]| {
            if bytes.is_empty() { Ok(()) } else { self.segment.file.write_at(bytes, from as u64) }
        };
        let garbage = content_end(&self.bytes).saturating_sub(self.end);
        write(self.synced, &self.bytes[self.synced..self.end])
            .and_then(|()| write(self.end, &vec![0; garbage]))
            // With the length: whoever made room for a large record in a spare segment may have died before it was durable.
            .and_then(|()| self.segment.file.sync_all())
            .map_err(|source| io_error(format!("repair the end of {}", segment::path(self.segment.number)), source))
    }
}

/// Adds up the frames.
struct Replay {
    state: WalState,
    index: Index,
    /// The crc of the last frame; none before the first.
    link: Option<u32>,
    begun: bool,
    /// Entries up to here are in segments that are no longer there.
    elsewhere: Option<u64>,
}

impl Replay {
    fn new(cache_bytes: usize) -> Self {
        Self { state: WalState::default(), index: Index::new(cache_bytes), link: None, begun: false, elsewhere: None }
    }

    fn scan(&mut self, disk: &dyn Disk, number: u64) -> Result<Scanned, WalError> {
        let segment = Arc::new(open(disk, number)?);
        if segment.capacity < SEGMENT_BYTES_MIN {
            return Err(damaged(number, segment.capacity, "the file is shorter than any segment"));
        }
        let bytes = read(&segment)?;
        let mut walk = Walk::new(&bytes, Family::Wal, number, self.link);
        let mut sealed = false;
        let mut index_max = None;
        while let Some(frame) =
            walk.next_frame().map_err(|error| not_understood(number, walk.offset, error.to_string()))?
        {
            let item = Item::decode(frame.kind, frame.body).map_err(|error| match error {
                NotUnderstood::UnknownKind(_) => not_understood(number, frame.offset, error.to_string()),
                NotUnderstood::Malformed(_) => damaged(number, frame.offset, error.to_string()),
            })?;
            self.take(&item, &frame, &segment).map_err(|what| damaged(number, frame.offset, what))?;
            if let Item::Entry(record) = &item {
                index_max = index_max.max(Some(record.id.index));
            }
            if item == Item::Seal {
                sealed = true;
                break;
            }
        }
        let promise = if sealed { None } else { walk.first_promise() };
        let (end, synced) = (walk.offset, walk.synced);
        if end > 0 {
            self.link = walk.link;
        }
        let link = walk.link.unwrap_or_default();
        Ok(Scanned { segment, bytes, end, synced, link, sealed, promise, index_max })
    }

    /// Takes one frame, or says what is wrong with it.
    fn take(&mut self, item: &Item, frame: &Frame<'_>, segment: &Arc<Segment>) -> Result<(), &'static str> {
        if (frame.offset == 0) != matches!(item, Item::Head(_)) {
            return Err("a segment begins with its head, and only there");
        }
        match item {
            Item::Head(head) => {
                if segment.capacity < usize::try_from(head.file_bytes).unwrap_or(usize::MAX) {
                    return Err("the file is shorter than it was when it was begun");
                }
                if !self.begun {
                    self.elsewhere = head.state.last.map(|last| last.index);
                } else if head.state != self.state {
                    return Err("the head does not say what the segments before it add up to");
                }
            }
            Item::Entry(record) => {
                if !self.state.accepts(record.id.index) {
                    return Err("the entry does not follow on from the one before");
                }
                let bytes = frame.end() - frame.offset;
                self.index.push_placed(record.id, Place { segment: segment.clone(), offset: frame.offset, bytes });
            }
            Item::Truncate(last) => {
                let keep = last.map(|last| last.index);
                self.index.truncate_after(keep);
                self.elsewhere = self.elsewhere.min(keep);
            }
            Item::Purge(through) => self.index.purge(through.index),
            Item::Vote(_) | Item::Committed(_) | Item::Mark(_) | Item::Seal => {}
        }
        self.state.apply(item);
        self.begun = true;
        Ok(())
    }

    /// Every entry above the purged position must have been found.
    fn check_complete(&self, first: Option<u64>) -> Result<(), WalError> {
        let purged = self.state.purged.map(|purged| purged.index);
        match (self.elsewhere, first) {
            (Some(elsewhere), Some(first)) if purged < Some(elsewhere) => {
                let what = format!("the file is missing, and with it entries up to {elsewhere} that were not purged");
                Err(damaged(first.saturating_sub(1), 0, what))
            }
            _ => Ok(()),
        }
    }
}

fn not_understood(number: u64, offset: usize, what: String) -> WalError {
    WalError::Newer { file: segment::path(number), offset: offset as u64, what }
}

impl WalState {
    /// Whether an entry of this index may come next.
    pub(super) fn accepts(&self, index: u64) -> bool {
        // An empty log that was never purged may begin anywhere: what it holds before is up to the caller.
        self.last.is_none_or(|last: LogPosition| last.index.checked_add(1) == Some(index))
    }
}

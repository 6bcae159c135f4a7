//! Opening the journal after a crash.
//!
//! Sealed segments are taken at the word of their head, index and seal: opening must not take longer with every year of
//! history. Their blocks are checked when they are read, and by [`super::examine`]. The last segment is walked like the
//! write-ahead log's: a torn tail that nobody was promised is cut, any other damage is an error.

use std::sync::Arc;

use super::{
    Current, Inner, JournalError, JournalOptions, SealedSegment, SegmentFile,
    format::{self, BlockHead, BlockPlace, Hash, Head, Packer, SEAL_BYTES, Seal},
    io_error,
    read::Block,
};
use crate::{
    disk::{Disk, DiskFile, SharedDisk, ensure_dir, read_all, read_exact_at},
    encoding::{Fields, Malformed},
    frame::{Family, Frame, HEADER_BYTES, NoFrame, Walk, frame_at},
};

/// More than any head needs.
const HEAD_BYTES_MAX: usize = HEADER_BYTES + 128;

pub(super) fn recover(disk: SharedDisk, options: JournalOptions) -> Result<Inner, JournalError> {
    ensure_dir(&*disk, format::DIR).map_err(io_error("create the folder journal/"))?;
    let numbers = segment_numbers(&*disk)?;
    disk.sync_dir(format::DIR).map_err(io_error("sync the folder journal/"))?;
    let mut inner = Inner {
        disk,
        options,
        blocks: Vec::new(),
        bases: Vec::new(),
        sealed: Vec::new(),
        removal_unsure: false,
        current: None,
        number: numbers.last().copied().unwrap_or(0),
        chain: Hash::default(),
        link: 0,
        waiting: Vec::new(),
        waiting_bytes: 0,
        packer: Packer::new().map_err(io_error("set up compression"))?,
        written: None,
        synced_index: None,
        failed: None,
        closed: false,
    };
    for (nth, number) in numbers.iter().copied().enumerate() {
        let path = format::path(number);
        let file = inner.disk.open(&path, false).map_err(io_error(format!("open {path}")))?;
        let segment = SegmentFile::new(inner.disk.clone(), number, file);
        let file = segment.file().map_err(io_error(format!("open {path}")))?;
        let opening = Opening { path, segment, file, first: nth == 0 };
        let newest = nth + 1 == numbers.len();
        match opening.take_sealed(&mut inner)? {
            Some(index_at) => {
                if newest {
                    // Its seal may be no further than the page cache.
                    opening.write_again(index_at)?;
                }
                opening.segment.let_go();
            }
            None if newest => opening.take_open(&mut inner)?,
            None => return Err(opening.damaged(0, "it has no seal, and another segment follows it")),
        }
    }
    Ok(inner)
}

/// The numbers of all segments in the folder, which must hold nothing else.
fn segment_numbers(disk: &dyn Disk) -> Result<Vec<u64>, JournalError> {
    let mut numbers = Vec::new();
    for name in disk.list(format::DIR).map_err(io_error("list the folder journal/"))? {
        let path = format!("{}/{name}", format::DIR);
        match format::parse_name(&name) {
            Some((number, false)) => numbers.push(number),
            // Its maker died before it was renamed: it holds a head and no record.
            Some((_, true)) => disk.remove(&path).map_err(io_error(format!("remove {path}")))?,
            None => return Err(JournalError::ForeignFile { file: path }),
        }
    }
    match numbers.windows(2).find(|pair| pair[1] != pair[0] + 1) {
        Some(hole) => {
            let (file, what) = (format::path(hole[0] + 1), "the file is missing".to_owned());
            Err(JournalError::Damaged { file, offset: 0, what })
        }
        None => Ok(numbers),
    }
}

/// One segment while the journal is opened.
struct Opening {
    path: String,
    segment: Arc<SegmentFile>,
    file: Arc<dyn DiskFile>,
    /// Whether it is the oldest there is. Those before it may have been taken away on purpose.
    first: bool,
}

impl Opening {
    fn damaged(&self, offset: usize, what: impl Into<String>) -> JournalError {
        JournalError::Damaged { file: self.path.clone(), offset: offset as u64, what: what.into() }
    }

    fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// Takes the head of this segment: it must follow on from what is there.
    fn take_head(&self, inner: &mut Inner, frame: &Frame<'_>) -> Result<(), JournalError> {
        if frame.kind != format::HEAD || frame.segment != self.segment.number {
            return Err(self.damaged(frame.offset, "a segment begins with its head"));
        }
        let head = Head::decode(frame.body).map_err(|error| self.damaged(frame.offset, error.to_string()))?;
        let checked = match self.first {
            true if frame.segment == 1 => begins(&head, frame.link),
            true => Ok(()),
            false => follows(&head, frame.link, inner.chain, inner.link, inner.written),
        };
        checked.map_err(|error| self.damaged(frame.offset, error.to_string()))?;
        inner.written = head.base;
        inner.bases.extend(head.base);
        inner.chain = format::hash(frame.body);
        inner.link = frame.crc;
        Ok(())
    }

    /// Takes a sealed segment at its word and says where its index starts. `None`: it has no seal.
    fn take_sealed(&self, inner: &mut Inner) -> Result<Option<u64>, JournalError> {
        let reading = || io_error(format!("read {}", self.path));
        let len = self.file().len().map_err(reading())?;
        let Some(seal_at) = len.checked_sub(SEAL_BYTES as u64) else { return Ok(None) };
        let bytes = read_exact_at(self.file(), seal_at, SEAL_BYTES).map_err(reading())?;
        let Ok(frame) = frame_at(&bytes, 0, Family::Journal) else { return Ok(None) };
        if frame.kind != format::SEAL || frame.segment != self.segment.number {
            return Ok(None);
        }
        let at = usize::try_from(seal_at).unwrap_or(usize::MAX);
        let seal = Seal::decode(frame.body).map_err(|error| self.damaged(at, error.to_string()))?;
        let (seal_link, seal_crc) = (frame.link, frame.crc);

        let index_at = u64::from(seal.index_offset);
        let index_bytes = seal_at.checked_sub(index_at).and_then(|bytes| usize::try_from(bytes).ok());
        let Some(index_bytes) = index_bytes else {
            return Err(self.damaged(at, "the seal points behind itself"));
        };
        let bytes = read_exact_at(self.file(), index_at, index_bytes).map_err(reading())?;
        let offset = seal.index_offset as usize;
        // Index and seal are one write: a torn one can leave a seal without its index, which is no seal.
        let Ok(index) = frame_at(&bytes, 0, Family::Journal) else { return Ok(None) };
        if index.kind != format::INDEX || index.segment != self.segment.number || index.crc != seal_link {
            return Ok(None);
        }
        let places = format::decode_index(index.body).map_err(|error| self.damaged(offset, error.to_string()))?;

        let mut head = vec![0; HEAD_BYTES_MAX.min(bytes_before(seal.index_offset))];
        let got = self.file().read_at(&mut head, 0).map_err(reading())?;
        let frame = frame_at(&head[..got], 0, Family::Journal).map_err(|error| self.damaged(0, error.to_string()))?;
        self.take_head(inner, &frame)?;
        for place in places {
            if inner.written.is_some_and(|(last, _)| place.first != last + 1) || place.count == 0 {
                return Err(self.damaged(offset, "the index has a hole"));
            }
            // The hash is only known for the last one, and set from the seal below.
            inner.written = Some((place.first + u64::from(place.count) - 1, Hash::default()));
            inner.blocks.push(Block { segment: self.segment.clone(), place });
        }
        if inner.written.map(|(last, _)| last) != seal.last.map(|(last, _)| last) {
            return Err(self.damaged(at, "the seal and the index do not agree"));
        }
        inner.written = seal.last;
        inner.chain = seal.chain;
        inner.link = seal_crc;
        let last = seal.last.map(|(last, _)| last);
        inner.sealed.push(SealedSegment { number: self.segment.number, last, bytes: len });
        Ok(Some(index_at))
    }

    /// Walks the last segment, cuts a torn tail, and makes sure that what is left is durable.
    fn take_open(&self, inner: &mut Inner) -> Result<(), JournalError> {
        let bytes = read_all(self.file()).map_err(io_error(format!("read {}", self.path)))?;
        let mut walk = Walk::new(&bytes, Family::Journal, self.segment.number, None);
        let mut places = Vec::new();
        while let Some(frame) = next_frame(&mut walk, &self.path)? {
            match frame.kind {
                _ if frame.offset == 0 => self.take_head(inner, &frame)?,
                format::BLOCK => {
                    let (head, place) = block(&frame, inner.chain, inner.written.map(|(last, _)| last))
                        .map_err(|error| self.damaged(frame.offset, error.to_string()))?;
                    inner.written = Some((head.last(), head.last_hash));
                    inner.chain = format::hash(frame.body);
                    inner.blocks.push(Block { segment: self.segment.clone(), place });
                    places.push(place);
                }
                // An index without an intact seal is what a crash while sealing leaves; the next seal brings its own.
                format::MARK | format::INDEX => {}
                kind => return Err(unknown(&self.path, frame.offset, kind)),
            }
        }
        let end = walk.offset;
        if let Some(promise) = walk.first_promise() {
            let what = format!("the frame at offset {promise} was written when this place was already durable");
            return Err(self.damaged(end, what));
        }
        if end == 0 {
            // A segment gets its name only with its head in place.
            return Err(self.damaged(0, "it has no head"));
        }
        inner.link = walk.link.unwrap_or_default();
        let len = end as u64;
        self.file().set_len(len).map_err(io_error(format!("cut the torn end of {}", self.path)))?;
        self.write_again(walk.synced as u64)?;
        inner.current = Some(Current { segment: self.segment.clone(), len, synced: len, places });
        Ok(())
    }
}

impl Opening {
    /// Makes what is behind `from` durable. As in the write-ahead log's recovery it may be no further than the page cache,
    /// and after a failed sync a mere sync would pass over it.
    fn write_again(&self, from: u64) -> Result<(), JournalError> {
        let repaired = (|| {
            let bytes = usize::try_from(self.file().len()?.saturating_sub(from)).map_err(std::io::Error::other)?;
            let tail = read_exact_at(self.file(), from, bytes)?;
            self.file().write_at(&tail, from)?;
            self.file().sync_all()
        })();
        repaired.map_err(io_error(format!("repair the end of {}", self.path)))
    }
}

fn bytes_before(offset: u32) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn next_frame<'a>(walk: &mut Walk<'a>, path: &str) -> Result<Option<Frame<'a>>, JournalError> {
    walk.next_frame().map_err(|error: NoFrame| JournalError::Newer {
        file: path.to_owned(),
        offset: walk.offset as u64,
        what: error.to_string(),
    })
}

fn unknown(path: &str, offset: usize, kind: u16) -> JournalError {
    let what = format!("record kind {kind} is not known to this program, or not in its place");
    JournalError::Newer { file: path.to_owned(), offset: offset as u64, what }
}

/// Whether a head is that of the first segment of all: nothing is before it, but for what a snapshot stood in for.
pub(super) fn begins(head: &Head, frame_link: u32) -> Result<(), Malformed> {
    let alone = head.chain == Hash::default() && frame_link == 0;
    match alone && head.base.is_some() == head.gap {
        true => Ok(()),
        false => Err(Malformed("it has the number of the first segment of all, and goes on from another one")),
    }
}

/// Whether a head follows on from what came before it.
pub(super) fn follows(
    head: &Head,
    frame_link: u32,
    chain: Hash,
    link: u32,
    last: Option<(u64, Hash)>,
) -> Result<(), Malformed> {
    if head.chain != chain || frame_link != link {
        return Err(Malformed("the segment is not chained to the one before it"));
    }
    let ahead = head.base.map(|(index, _)| index) > last.map(|(index, _)| index);
    if if head.gap { !ahead } else { head.base != last } {
        return Err(Malformed("the segment does not go on where the one before it ended"));
    }
    Ok(())
}

/// Whether a block follows on, and where it is.
pub(super) fn block(frame: &Frame<'_>, chain: Hash, last: Option<u64>) -> Result<(BlockHead, BlockPlace), Malformed> {
    let head = BlockHead::decode(&mut Fields(frame.body))?;
    if head.chain != chain {
        return Err(Malformed("the block is not chained to the one before it"));
    }
    if last.is_some_and(|last| head.first != last + 1) {
        return Err(Malformed("the block does not go on where the one before it ended"));
    }
    let too_large = |_| Malformed("the block is too far into its segment");
    let place = BlockPlace {
        first: head.first,
        count: head.count,
        offset: u32::try_from(frame.offset).map_err(too_large)?,
        bytes: u32::try_from(frame.end() - frame.offset).map_err(too_large)?,
    };
    Ok((head, place))
}

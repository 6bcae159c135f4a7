//! Reading an export: once through, from the first frame to the signature; then whichever block is asked for.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Arc, Mutex},
};

use super::{
    BLOCK, END, ExportEnd, ExportError, ExportHead, FORMAT, Fault, HEAD, Hash, STATE, io_error, signed_message,
};
use crate::{
    encoding::{Fields, Malformed},
    frame::{Family, Frame, HEADER_BYTES, MAGIC, NoFrame, frame_at},
    journal::{
        JournalRecord,
        format::{self, BlockHead},
    },
    lock,
    signing::is_signed_by,
    snapshot::{SnapshotError, SnapshotMeta, parse_bytes},
};

/// An export whose frames have been read.
#[derive(Debug)]
pub struct Export {
    file: File,
    bytes: u64,
    head: ExportHead,
    /// The frames that hold the state before the first entry.
    state: Vec<Place>,
    blocks: Vec<Block>,
    end: Option<ExportEnd>,
    /// The block that was unpacked last: readers come in order, and most want the rest of it next.
    last: Mutex<Option<(u64, Arc<Vec<JournalRecord>>)>>,
}

/// An export as far as it can be read.
#[derive(Debug)]
pub struct Scanned {
    /// Everything before the fault.
    pub export: Export,
    /// The first thing that is not as a node wrote it.
    pub fault: Option<Fault>,
}

/// A frame in the file.
#[derive(Clone, Copy, Debug)]
struct Place {
    offset: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    first: u64,
    count: u32,
    place: Place,
}

impl Export {
    /// Opens an export and reads it to the end: every frame, the chain of its blocks, and the signature must be right.
    pub fn open(path: &Path) -> Result<Self, ExportError> {
        let Scanned { export, fault } = Self::scan(path, |_, _| {})?;
        fault.map_or(Ok(export), |fault| Err(ExportError::Damaged(fault)))
    }

    /// Reads an export as far as it is one. `tell` hears how many of how many bytes have been read.
    pub fn scan(path: &Path, tell: impl FnMut(u64, u64)) -> Result<Scanned, ExportError> {
        let file = File::open(path).map_err(io_error(format!("open {}", path.display())))?;
        let bytes = file.metadata().map_err(io_error(format!("read {}", path.display())))?.len();
        let scan = Scan {
            input: BufReader::with_capacity(1 << 20, file.try_clone().map_err(io_error("open the export"))?),
            file: &file,
            bytes,
            offset: 0,
            link: 0,
            hasher: blake3::Hasher::new(),
        };
        let (read, fault) = scan.run(tell)?;
        let Read { head, state, blocks, end } = read;
        Ok(Scanned { export: Self { file, bytes, head, state, blocks, end, last: Mutex::default() }, fault })
    }

    pub fn head(&self) -> &ExportHead {
        &self.head
    }

    /// None if there is a fault before it.
    pub fn end(&self) -> Option<&ExportEnd> {
        self.end.as_ref()
    }

    /// Of the file.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Never: an export has at least its head.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The last entry that can be read.
    pub fn last_index(&self) -> Option<u64> {
        self.blocks.last().map(|block| block.first + u64::from(block.count) - 1)
    }

    /// The first entry of every block, with its place in the file.
    pub fn block_places(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks.iter().map(|block| (block.first, block.place.offset))
    }

    /// Records from this entry on: at least one if there is any, then as many as fit into so many bytes.
    pub fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, ExportError> {
        let mut found: Vec<JournalRecord> = Vec::new();
        let mut bytes = 0_usize;
        let mut at = self.blocks.partition_point(|block| block.first + u64::from(block.count) <= from);
        while let Some(block) = self.blocks.get(at) {
            let records = self.unpack(block)?;
            for record in records.iter().filter(|record| record.index >= from) {
                bytes = bytes.saturating_add(record.bytes());
                if bytes > bytes_max && !found.is_empty() {
                    return Ok(found);
                }
                found.push(record.clone());
            }
            at += 1;
        }
        Ok(found)
    }

    /// The state before the first entry, if the export carries one.
    pub fn state(&self) -> Result<Option<(SnapshotMeta, Vec<u8>)>, ExportError> {
        let Some(first) = self.state.first() else { return Ok(None) };
        let mut bytes = Vec::new();
        for place in &self.state {
            bytes.extend_from_slice(&self.frame(*place)?[HEADER_BYTES..]);
        }
        let fault = |error: SnapshotError| {
            let what = format!("the state before the first entry cannot be used: {error}");
            ExportError::Damaged(Fault { entries: None, offset: first.offset, what })
        };
        parse_bytes(&bytes).map(Some).map_err(fault)
    }

    fn unpack(&self, block: &Block) -> Result<Arc<Vec<JournalRecord>>, ExportError> {
        if let Some((first, records)) = &*lock(&self.last)
            && *first == block.first
        {
            return Ok(records.clone());
        }
        let fault = |what: String| {
            let entries = Some((block.first, Some(block.first + u64::from(block.count) - 1)));
            ExportError::Damaged(Fault { entries, offset: block.place.offset, what })
        };
        let bytes = self.frame(block.place)?;
        // It was right when the file was opened; somebody may be writing to it.
        let frame = frame_at(&bytes, 0, Family::Export).map_err(|error| fault(error.to_string()))?;
        let records = format::unpack(frame.body).map_err(|error| fault(error.to_string()))?;
        if records.first().map(|record| record.index) != Some(block.first) || records.len() != block.count as usize {
            return Err(fault("the block has changed since it was opened".to_owned()));
        }
        let records = Arc::new(records);
        *lock(&self.last) = Some((block.first, records.clone()));
        Ok(records)
    }

    fn frame(&self, place: Place) -> Result<Vec<u8>, ExportError> {
        let mut bytes = vec![0; usize::try_from(place.bytes).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, place.offset).map_err(io_error("read the export"))?;
        Ok(bytes)
    }
}

/// What a scan has read.
struct Read {
    head: ExportHead,
    state: Vec<Place>,
    blocks: Vec<Block>,
    end: Option<ExportEnd>,
}

/// Going through the file once, frame by frame.
struct Scan<'a> {
    input: BufReader<File>,
    file: &'a File,
    bytes: u64,
    offset: u64,
    /// The crc of the frame before.
    link: u32,
    /// Over everything before `offset`.
    hasher: blake3::Hasher,
}

/// Why there is no next frame.
enum Broken {
    /// Torn, altered, or not there.
    Frame,
    Newer(NoFrame),
}

impl Scan<'_> {
    fn run(mut self, mut tell: impl FnMut(u64, u64)) -> Result<(Read, Option<Fault>), ExportError> {
        let mut buffer = Vec::new();
        let head = self.head(&mut buffer)?;
        let mut read = Read { head, state: Vec::new(), blocks: Vec::new(), end: None };
        let mut chain = format::hash(&buffer[HEADER_BYTES..]);
        let mut last_hash = read.head.base_hash;
        while read.end.is_none() {
            tell(self.offset, self.bytes);
            let (offset, next) = (self.offset, read.next());
            let entries = (next <= read.head.last).then_some((next, None));
            match self.next(&mut buffer).map_err(io_error("read the export"))? {
                Ok(()) => {}
                Err(Broken::Newer(newer)) => return Err(ExportError::Newer { what: newer.to_string() }),
                Err(Broken::Frame) => {
                    let fault = self.broken(&read, offset)?;
                    return Ok((read, Some(fault)));
                }
            }
            // It was checked when it was read.
            let Ok(frame) = frame_at(&buffer, 0, Family::Export) else { break };
            let place = Place { offset, bytes: buffer.len() as u64 };
            let took = match frame.kind {
                STATE if read.blocks.is_empty() && read.head.first > 1 => {
                    read.state.push(place);
                    Ok(())
                }
                BLOCK => read.block(&frame, place, &mut chain, &mut last_hash),
                END => self.end(&mut read, &frame, chain, last_hash),
                kind => {
                    let what = format!("a record of kind {kind} does not belong here");
                    Err(Fault { entries, offset, what })
                }
            };
            let linked = frame.link == self.link && frame.segment == 0 && frame.synced == 0;
            let crc = frame.crc;
            if let Err(fault) = took {
                return Ok((read, Some(fault)));
            }
            if !linked {
                // Whatever was taken from it does not count.
                read.drop_last(place);
                let entries = (frame.kind == BLOCK).then_some(entries).flatten();
                let what = "the frame does not follow on from the one before it".to_owned();
                return Ok((read, Some(Fault { entries, offset, what })));
            }
            self.link = crc;
            self.hasher.update(&buffer);
            self.offset += buffer.len() as u64;
        }
        tell(self.offset, self.bytes);
        let fault = (self.offset != self.bytes).then(|| Fault {
            entries: None,
            offset: self.offset,
            what: format!("{} bytes follow its end", self.bytes - self.offset),
        });
        Ok((read, fault))
    }

    fn head(&mut self, buffer: &mut Vec<u8>) -> Result<ExportHead, ExportError> {
        let not_one = |what: &str| ExportError::NotAnExport { what: what.to_owned() };
        match self.next(buffer).map_err(io_error("read the export"))? {
            Ok(()) => {}
            Err(Broken::Frame) => return Err(not_one("it does not begin with an intact head")),
            Err(Broken::Newer(newer)) => return Err(ExportError::Newer { what: newer.to_string() }),
        }
        let frame = frame_at(buffer, 0, Family::Export).map_err(|error| not_one(&error.to_string()))?;
        if frame.kind != HEAD || frame.link != 0 || frame.segment != 0 || frame.synced != 0 {
            return Err(not_one("it does not begin with a head"));
        }
        let head = match ExportHead::decode(frame.body).map_err(|error| not_one(&error.to_string()))? {
            Ok(head) => head,
            Err(format) => {
                let what = format!("the export has format {format}, and this program knows format {FORMAT}");
                return Err(ExportError::Newer { what });
            }
        };
        self.link = frame.crc;
        self.hasher.update(buffer);
        self.offset = buffer.len() as u64;
        Ok(head)
    }

    /// Reads the frame at the offset into the buffer; the checksum is right then.
    fn next(&mut self, buffer: &mut Vec<u8>) -> io::Result<Result<(), Broken>> {
        let left = self.bytes.saturating_sub(self.offset);
        if left < HEADER_BYTES as u64 {
            return Ok(Err(Broken::Frame));
        }
        buffer.resize(HEADER_BYTES, 0);
        self.input.read_exact(buffer)?;
        let length = u64::from(u32::from_le_bytes([buffer[8], buffer[9], buffer[10], buffer[11]]));
        if length > left - HEADER_BYTES as u64 {
            return Ok(Err(Broken::Frame));
        }
        let whole = HEADER_BYTES + usize::try_from(length).map_err(io::Error::other)?;
        buffer.resize(whole, 0);
        self.input.read_exact(&mut buffer[HEADER_BYTES..])?;
        Ok(match frame_at(buffer, 0, Family::Export) {
            Ok(_) => Ok(()),
            Err(NoFrame::Bad) => Err(Broken::Frame),
            Err(newer) => Err(Broken::Newer(newer)),
        })
    }

    /// What to say of a place at which there is no frame.
    fn broken(&self, read: &Read, offset: u64) -> Result<Fault, ExportError> {
        let next = read.next();
        let missing = (next <= read.head.last).then_some((next, None));
        let ends = self.bytes.saturating_sub(offset) == 0;
        if ends {
            let what = match missing {
                Some(_) => "the file ends here, and these entries are missing".to_owned(),
                None => "the file ends here, without the signature".to_owned(),
            };
            return Ok(Fault { entries: missing, offset, what });
        }
        if self.ends_within(offset) {
            let what = "the file ends in the middle of what is here".to_owned();
            return Ok(Fault { entries: missing, offset, what });
        }
        // What follows it, if it says how long it is, tells which entries it held.
        let after = self.frame_after(offset).map_err(io_error("read the export"))?;
        let what = "the bytes here are not as they were written: the checksum is wrong".to_owned();
        let entries = match after {
            Some(After::Block(first)) if first > next => Some((next, Some(first - 1))),
            Some(After::Block(_)) if read.blocks.is_empty() => None,
            Some(After::State) => None,
            Some(After::End) if missing.is_some() => Some((next, Some(read.head.last))),
            _ => missing,
        };
        Ok(Fault { entries, offset, what })
    }

    /// Whether what begins here begins as a frame does, and is longer than the rest of the file.
    fn ends_within(&self, offset: u64) -> bool {
        let left = self.bytes.saturating_sub(offset);
        let mut header = [0; HEADER_BYTES];
        let there = usize::try_from(left).unwrap_or(usize::MAX).min(HEADER_BYTES);
        if self.file.read_exact_at(&mut header[..there], offset).is_err() {
            return false;
        }
        let begins = MAGIC.iter().zip(&header[..there]).all(|(right, found)| right == found);
        let length = u64::from(u32::from_le_bytes([header[8], header[9], header[10], header[11]]));
        begins && (there < HEADER_BYTES || length > left - HEADER_BYTES as u64)
    }

    /// What the frame is that would come after a damaged one.
    fn frame_after(&self, offset: u64) -> io::Result<Option<After>> {
        let mut header = [0; HEADER_BYTES];
        if self.file.read_exact_at(&mut header, offset).is_err() {
            return Ok(None);
        }
        let length =
            |header: &[u8; HEADER_BYTES]| u64::from(u32::from_le_bytes([header[8], header[9], header[10], header[11]]));
        let at = offset.saturating_add(HEADER_BYTES as u64).saturating_add(length(&header));
        if self.file.read_exact_at(&mut header, at).is_err() {
            return Ok(None);
        }
        let whole = (HEADER_BYTES as u64).saturating_add(length(&header));
        if at.saturating_add(whole) > self.bytes {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(whole).map_err(io::Error::other)?];
        self.file.read_exact_at(&mut bytes, at)?;
        let Ok(frame) = frame_at(&bytes, 0, Family::Export) else { return Ok(None) };
        Ok(match frame.kind {
            BLOCK => BlockHead::decode(&mut Fields(frame.body)).ok().map(|head| After::Block(head.first)),
            STATE => Some(After::State),
            END => Some(After::End),
            _ => None,
        })
    }

    fn end(&self, read: &mut Read, frame: &Frame<'_>, chain: Hash, last_hash: Hash) -> Result<(), Fault> {
        let fault = |entries, what: &str| Fault { entries, offset: self.offset, what: what.to_owned() };
        let end = ExportEnd::decode(frame.body).map_err(|error| fault(None, &error.to_string()))?;
        let next = read.next();
        if next <= read.head.last {
            let what = "the head promises these entries, and they are missing";
            return Err(fault(Some((next, Some(read.head.last))), what));
        }
        let entries = read.head.last - read.head.first + 1;
        if (end.entries, end.blocks) != (entries, read.blocks.len() as u64) {
            return Err(fault(None, "the end counts other entries or blocks than there are"));
        }
        if end.last_hash != last_hash || end.chain != chain {
            return Err(fault(None, "the end does not say what the blocks add up to"));
        }
        if !is_signed_by(&read.head.public_key, &signed_message(self.hasher.clone(), &end), &end.signature) {
            return Err(fault(None, "the signature is not one of the key in the head over these bytes"));
        }
        read.end = Some(end);
        Ok(())
    }
}

enum After {
    Block(u64),
    State,
    End,
}

impl Read {
    /// The entry that comes next.
    fn next(&self) -> u64 {
        self.blocks.last().map_or(self.head.first, |block| block.first + u64::from(block.count))
    }

    fn block(&mut self, frame: &Frame<'_>, place: Place, chain: &mut Hash, last_hash: &mut Hash) -> Result<(), Fault> {
        let next = self.next();
        let fault = |entries, what: String| Fault { entries, offset: place.offset, what };
        if self.head.first > 1 && self.state.is_empty() {
            return Err(fault(None, "the state before the first entry is missing".to_owned()));
        }
        let malformed = |error: Malformed| fault(Some((next, None)), error.to_string());
        let head = BlockHead::decode(&mut Fields(frame.body)).map_err(malformed)?;
        let (first, last) = (head.first, head.last());
        if first != next {
            let what = if first > next {
                format!("entry {next} is missing: entries {first} to {last} come where it should be")
            } else {
                format!("entries {first} to {last} come once more where entry {next} should be")
            };
            return Err(fault(Some((next, (first > next).then(|| first - 1))), what));
        }
        if last > self.head.last {
            let what = format!("the head says that the export ends with entry {}", self.head.last);
            return Err(fault(Some((self.head.last + 1, Some(last))), what));
        }
        if head.chain != *chain {
            let what =
                "the block is not chained to what is before it: it was altered, or comes from elsewhere".to_owned();
            return Err(fault(Some((first, Some(last))), what));
        }
        *chain = format::hash(frame.body);
        *last_hash = head.last_hash;
        self.blocks.push(Block { first, count: head.count, place });
        Ok(())
    }

    fn drop_last(&mut self, place: Place) {
        self.blocks.retain(|block| block.place.offset != place.offset);
        self.state.retain(|state| state.offset != place.offset);
        self.end = None;
    }
}

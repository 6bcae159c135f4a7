//! Going through an export once, from the first frame to the signature, and saying what is wrong where: which entries a damaged block
//! held is told by what is intact around it.

use std::{
    fs::File,
    io::{self, BufReader, Read as _},
    os::unix::fs::FileExt as _,
};

use super::{
    BLOCK, END, ExportEnd, ExportError, ExportHead, FORMAT, Fault, HEAD, Hash, STATE, io_error,
    reader::{Block, Place},
    signed_message,
    writer::PIECE_BYTES,
};
use crate::{
    encoding::{Fields, Malformed},
    frame::{FORMAT as FRAME_FORMAT, Family, Frame, HEADER_BYTES, MAGIC, NoFrame, find_magic, frame_at},
    journal::format::{self, BLOCK_BYTES_MAX, BlockHead},
    program::is_newer,
    signing::is_signed_by,
};

/// Bytes that are looked through at once for the next frame behind a damaged one.
const WINDOW_BYTES: usize = 64 << 10;

/// Places that look like the beginning of a frame and are none, after which nobody looks on: somebody has put them there.
const TRIES_MAX: usize = 64;

/// What a scan has read.
pub(super) struct Read {
    pub(super) head: ExportHead,
    pub(super) state: Vec<Place>,
    pub(super) blocks: Vec<Block>,
    pub(super) end: Option<ExportEnd>,
}

/// See the module.
pub(super) struct Scan<'a> {
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

/// What is intact again behind a damaged frame.
enum After {
    Block(u64),
    State,
    End,
}

impl<'a> Scan<'a> {
    pub(super) fn of(file: &'a File, bytes: u64) -> Result<Self, ExportError> {
        let input = BufReader::with_capacity(1 << 20, file.try_clone().map_err(io_error("open the export"))?);
        Ok(Self { input, file, bytes, offset: 0, link: 0, hasher: blake3::Hasher::new() })
    }

    pub(super) fn run(mut self, mut tell: impl FnMut(u64, u64)) -> Result<(Read, Option<Fault>), ExportError> {
        let mut buffer = Vec::new();
        let head = self.head(&mut buffer)?;
        let mut read = Read { head, state: Vec::new(), blocks: Vec::new(), end: None };
        let mut chain = format::hash(&buffer[HEADER_BYTES..]);
        let mut last_hash = read.head.base_hash;
        while read.end.is_none() {
            tell(self.offset, self.bytes);
            let offset = self.offset;
            if let Err(broken) = self.next(&mut buffer).map_err(io_error("read the export"))? {
                let fault = self.broken(&read, offset, &broken)?;
                return Ok((read, Some(fault)));
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
                kind => Err(read.unknown(None, offset, format!("a record of kind {kind} does not belong here"))),
            };
            let linked = frame.link == self.link && frame.segment == 0 && frame.synced == 0;
            let crc = frame.crc;
            if let Err(mut fault) = took {
                if let Some((first, None)) = fault.entries {
                    fault.entries = self.held(&read, first, offset)?;
                }
                return Ok((read, Some(fault)));
            }
            if !linked {
                // Whatever was taken from it does not count.
                let entries = read.drop_last(place).map(|block| (block.first, Some(block.last())));
                let what = "the frame does not follow on from the one before it".to_owned();
                return Ok((read, Some(Fault { entries, offset, what, newer: false })));
            }
            self.link = crc;
            self.hasher.update(&buffer);
            self.offset += buffer.len() as u64;
        }
        tell(self.offset, self.bytes);
        let fault = (self.offset != self.bytes).then(|| {
            let what = format!("{}: {} bytes follow its end", read.so_far(), self.bytes - self.offset);
            Fault { entries: None, offset: self.offset, what, newer: false }
        });
        Ok((read, fault))
    }

    fn head(&mut self, buffer: &mut Vec<u8>) -> Result<ExportHead, ExportError> {
        let not_one = |what: &str| ExportError::NotAnExport { what: what.to_owned() };
        match self.next(buffer).map_err(io_error("read the export"))? {
            Ok(()) => {}
            Err(Broken::Frame) => return Err(not_one("it does not begin with an intact head")),
            Err(Broken::Newer(newer)) => return Err(of_newer(newer.to_string(), &buffer[HEADER_BYTES..])),
        }
        let frame = frame_at(buffer, 0, Family::Export).map_err(|error| not_one(&error.to_string()))?;
        if frame.kind != HEAD || frame.link != 0 || frame.segment != 0 || frame.synced != 0 {
            return Err(not_one("it does not begin with a head"));
        }
        let head = match ExportHead::decode(frame.body).map_err(|error| not_one(&error.to_string()))? {
            Ok(head) => head,
            Err(format) => {
                let what = format!("the export has format {format}, and this program knows format {FORMAT}");
                return Err(of_newer(what, frame.body));
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
        let whole = buffer.first_chunk().and_then(|header| whole_bytes(header, left));
        let Some(whole) = whole else { return Ok(Err(Broken::Frame)) };
        buffer.resize(whole, 0);
        self.input.read_exact(&mut buffer[HEADER_BYTES..])?;
        Ok(match frame_at(buffer, 0, Family::Export) {
            Ok(_) => Ok(()),
            Err(NoFrame::Bad) => Err(Broken::Frame),
            Err(newer) => Err(Broken::Newer(newer)),
        })
    }

    /// What to say of a place at which there is no frame.
    fn broken(&self, read: &Read, offset: u64, broken: &Broken) -> Result<Fault, ExportError> {
        let next = read.next();
        if let Broken::Newer(newer) = broken {
            return Ok(read.unknown(self.held(read, next, offset)?, offset, newer.to_string()));
        }
        let missing = (next <= read.head.last).then_some((next, None));
        let fault = |entries: Option<(u64, Option<u64>)>, what: &str| {
            let what = if entries.is_some() { what.to_owned() } else { format!("{}: {what}", read.so_far()) };
            Fault { entries, offset, what, newer: false }
        };
        if self.bytes.saturating_sub(offset) == 0 {
            let what = match missing {
                Some(_) => "the file ends here, and these entries are missing",
                None => "the file ends here, without the signature",
            };
            return Ok(fault(missing, what));
        }
        // A length that was altered may point behind the end as well.
        if self.ends_within(offset) && self.intact_after(offset).map_err(io_error("read the export"))?.is_none() {
            return Ok(fault(missing, "the file ends in the middle of what is here"));
        }
        let entries = self.held(read, next, offset)?;
        Ok(fault(entries, "the bytes here are not as they were written: the checksum is wrong"))
    }

    /// Which entries the frame at this place held, from `next` on, if that is told by what is intact behind it. None: it held none.
    fn held(&self, read: &Read, next: u64, offset: u64) -> Result<Option<(u64, Option<u64>)>, ExportError> {
        let missing = (next <= read.head.last).then_some((next, None));
        Ok(match self.intact_after(offset).map_err(io_error("read the export"))? {
            Some(After::Block(first)) if first > next => Some((next, Some(first - 1))),
            Some(After::Block(_)) if read.blocks.is_empty() => None,
            Some(After::State) => None,
            Some(After::End) if missing.is_some() => Some((next, Some(read.head.last))),
            _ => missing,
        })
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
        begins && (there < HEADER_BYTES || length_in(&header) > left - HEADER_BYTES as u64)
    }

    /// The first frame behind this place that is intact, whatever the damaged one says of its own length.
    fn intact_after(&self, offset: u64) -> io::Result<Option<After>> {
        let mut window = vec![0; WINDOW_BYTES];
        let (mut at, mut tries) = (offset.saturating_add(1), 0);
        while tries < TRIES_MAX && at < self.bytes {
            let left = usize::try_from(self.bytes - at).unwrap_or(usize::MAX);
            let there = left.min(WINDOW_BYTES);
            self.file.read_exact_at(&mut window[..there], at)?;
            let Some(found) = find_magic(&window[..there]) else {
                if there == left {
                    return Ok(None);
                }
                // Its first bytes may be the last ones of this window.
                at += (there - (MAGIC.len() - 1)) as u64;
                continue;
            };
            at += found as u64;
            if let Some(after) = self.intact_at(at)? {
                return Ok(Some(after));
            }
            tries += 1;
            at += 1;
        }
        Ok(None)
    }

    fn intact_at(&self, at: u64) -> io::Result<Option<After>> {
        let mut header = [0; HEADER_BYTES];
        if self.bytes - at < HEADER_BYTES as u64 {
            return Ok(None);
        }
        self.file.read_exact_at(&mut header, at)?;
        let Some(whole) = whole_bytes(&header, self.bytes - at) else { return Ok(None) };
        let mut bytes = vec![0; whole];
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
        let fault = |entries, what: &str| Fault { entries, offset: self.offset, what: what.to_owned(), newer: false };
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

fn length_in(header: &[u8; HEADER_BYTES]) -> u64 {
    u64::from(u32::from_le_bytes([header[8], header[9], header[10], header[11]]))
}

/// How many bytes the frame has that begins so, if there may be such a one in what is left of the file. What is longer than any that was ever
/// written is none: its length was altered, and decides how much memory is taken.
fn whole_bytes(header: &[u8; HEADER_BYTES], left: u64) -> Option<usize> {
    let [.., format] = *header.first_chunk::<6>()?;
    let kind = u16::from_le_bytes([header[6], header[7]]);
    let length_max = match kind {
        HEAD | STATE | END if format == FRAME_FORMAT => PIECE_BYTES as u64,
        _ => BLOCK_BYTES_MAX,
    };
    let length = length_in(header);
    let there = length <= length_max && length <= left.checked_sub(HEADER_BYTES as u64)?;
    there.then(|| usize::try_from(HEADER_BYTES as u64 + length).ok()).flatten()
}

/// Says of a whole file that it is too new, and which program wrote it if its head begins as those that are known here do. What a program
/// wrote that is no newer than this one was altered.
fn of_newer(what: String, head: &[u8]) -> ExportError {
    match ExportHead::version_in(head) {
        Some(version) if is_newer(&version, env!("CARGO_PKG_VERSION")) => {
            ExportError::Newer { what: format!("it was written by version {version}: {what}") }
        }
        Some(_) => ExportError::NotAnExport { what },
        None => ExportError::Newer { what },
    }
}

impl Read {
    /// The entry that comes next.
    fn next(&self) -> u64 {
        self.blocks.last().map_or(self.head.first, |block| block.last() + 1)
    }

    /// Where that is, of something that is no entry itself.
    fn so_far(&self) -> String {
        match self.blocks.last() {
            Some(block) => format!("after entry {}", block.last()),
            None => format!("before entry {}", self.head.first),
        }
    }

    /// Something intact that this program does not know. It is no fault if the head says that a newer one wrote it.
    fn unknown(&self, entries: Option<(u64, Option<u64>)>, offset: u64, what: String) -> Fault {
        let (version, ours) = (&self.head.version, env!("CARGO_PKG_VERSION"));
        let newer = is_newer(version, ours);
        let what = match newer {
            true => format!("what is here was written by version {version}, and this is version {ours}: {what}"),
            false => what,
        };
        let what = if entries.is_some() { what } else { format!("{}: {what}", self.so_far()) };
        Fault { entries, offset, what, newer }
    }

    fn block(&mut self, frame: &Frame<'_>, place: Place, chain: &mut Hash, last_hash: &mut Hash) -> Result<(), Fault> {
        let next = self.next();
        let fault = |entries, what: String| Fault { entries, offset: place.offset, what, newer: false };
        if self.head.first > 1 && self.state.is_empty() {
            return Err(fault(None, "the state before the first entry is missing".to_owned()));
        }
        let malformed = |error: Malformed| fault(Some((next, None)), error.to_string());
        let head = BlockHead::decode(&mut Fields(frame.body)).map_err(malformed)?;
        let (first, last) = (head.first, head.last());
        if first < next {
            let so_far = self.so_far();
            return Err(match next <= self.head.last {
                true => {
                    let what = format!("entries {first} to {last} come once more where it should be");
                    fault(Some((next, Some(next))), what)
                }
                false => fault(None, format!("{so_far}: entries {first} to {last} come once more")),
            });
        }
        if first > next {
            let what = format!("entry {next} is missing: entries {first} to {last} come where it should be");
            return Err(fault(Some((next, Some(first - 1))), what));
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

    /// Forgets what was taken last, and says which block that was.
    fn drop_last(&mut self, place: Place) -> Option<Block> {
        self.state.retain(|state| state.offset != place.offset);
        self.end = None;
        self.blocks.pop_if(|block| block.place.offset == place.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Chain;

    #[test]
    fn a_length_that_was_altered_takes_no_memory() {
        for (kind, length) in [(STATE, 900_u32 << 20), (HEAD, 900 << 20), (BLOCK, 3 << 30)] {
            let left = 4_u64 << 30;
            let file = tempfile::tempfile().unwrap();
            let mut bytes = Vec::new();
            Chain { family: Family::Export, segment: 0, link: 0 }.put(&mut bytes, kind, 0, |_| {}).unwrap();
            bytes[8..12].copy_from_slice(&length.to_le_bytes());
            file.write_all_at(&bytes, 0).unwrap();
            // A hole: no byte of it is on the disk.
            file.set_len(left).unwrap();
            let mut buffer = Vec::new();
            let mut scan = Scan::of(&file, left).unwrap();
            assert!(matches!(scan.next(&mut buffer).unwrap(), Err(Broken::Frame)));
            assert!(buffer.capacity() < 1 << 20, "{} bytes for a frame of kind {kind}", buffer.capacity());
            assert_eq!(whole_bytes(bytes.first_chunk().unwrap(), left), None);
        }
    }

    #[test]
    fn the_largest_frame_that_is_ever_written_is_taken() {
        for (kind, length) in [(STATE, PIECE_BYTES as u64), (BLOCK, format::RAW_BYTES_MAX)] {
            let mut bytes = Vec::new();
            Chain { family: Family::Export, segment: 0, link: 0 }.put(&mut bytes, kind, 0, |_| {}).unwrap();
            bytes[8..12].copy_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            let whole = length + HEADER_BYTES as u64;
            assert_eq!(whole_bytes(bytes.first_chunk().unwrap(), whole), usize::try_from(whole).ok());
            assert_eq!(whole_bytes(bytes.first_chunk().unwrap(), whole - 1), None);
        }
    }
}

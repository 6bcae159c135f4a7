//! The one frame that everything on disk is wrapped in, and how to walk a file of them after a crash.
//!
//! ```text
//! offset  0  magic    "LDLN"
//!         4  family   u8   which kind of file (write-ahead log, journal, snapshot, identity ...)
//!         5  format   u8   how to read the rest; a format that we do not know stops us, it is never skipped
//!         6  kind     u16  what the body is, within the family
//!         8  length   u32  of the body
//!        12  segment  u64  number of the segment file; a frame copied from another file is not one of this file
//!        20  synced   u32  offset in this segment below which everything was known durable when this was written
//!        24  link     u32  crc of the frame before; a stale frame in the right place is not part of the chain
//!        28  crc      u32  crc32c of the 28 bytes above and the body
//!        32  body
//! ```
//!
//! All numbers little-endian. The `synced` offset is what tells a torn tail from rot: see [`Walk::first_promise`].
//! Not here: what the bodies mean.

use loadline_mutants::Mutant;

use crate::encoding::PutFields as _;

pub(crate) const MAGIC: [u8; 4] = *b"LDLN";
/// The only format so far.
pub(crate) const FORMAT: u8 = 1;
pub(crate) const HEADER_BYTES: usize = 32;
const CRC_AT: usize = 28;

/// Which kind of file a frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Family {
    Wal = 1,
    Journal = 2,
    Snapshot = 3,
    Identity = 4,
    Export = 5,
    SigningKey = 6,
}

/// Writes frames that are chained to each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub(crate) family: Family,
    pub(crate) segment: u64,
    /// The crc of the last frame.
    pub(crate) link: u32,
}

/// A body that no frame can hold.
#[derive(Debug, thiserror::Error)]
#[error("a record of {bytes} bytes does not fit into a frame")]
pub(crate) struct TooLong {
    bytes: usize,
}

impl From<TooLong> for std::io::Error {
    fn from(error: TooLong) -> Self {
        Self::new(std::io::ErrorKind::InvalidInput, error)
    }
}

impl Chain {
    /// Appends one frame to `out`. `body` writes the body in place, so that a payload is copied once.
    pub(crate) fn put(
        &mut self,
        out: &mut Vec<u8>,
        kind: u16,
        synced: u32,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TooLong> {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.put_u8(self.family as u8);
        out.put_u8(FORMAT);
        out.extend_from_slice(&kind.to_le_bytes());
        out.put_u32(0);
        out.put_u64(self.segment);
        out.put_u32(synced);
        out.put_u32(self.link);
        out.put_u32(0);
        body(out);
        let bytes = out.len() - start - HEADER_BYTES;
        let Ok(length) = u32::try_from(bytes) else {
            out.truncate(start);
            return Err(TooLong { bytes });
        };
        out[start + 8..start + 12].copy_from_slice(&length.to_le_bytes());
        let crc = checksum(&out[start..]);
        out[start + CRC_AT..start + HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        self.link = crc;
        Ok(())
    }
}

/// Over the header without the crc itself, then the body.
fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..CRC_AT]), &frame[HEADER_BYTES..])
}

/// One frame whose checksum is right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) offset: usize,
    pub(crate) kind: u16,
    pub(crate) segment: u64,
    pub(crate) synced: u32,
    pub(crate) link: u32,
    pub(crate) crc: u32,
    pub(crate) body: &'a [u8],
}

impl Frame<'_> {
    /// Where the next one starts.
    pub(crate) fn end(&self) -> usize {
        self.offset + HEADER_BYTES + self.body.len()
    }
}

/// Why there is no frame at some place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoFrame {
    /// Torn, rotten, zeros, or never a frame.
    #[error("there is no valid frame")]
    Bad,
    /// Intact, and of a format that this program does not know: a newer one wrote it.
    #[error("the frame has format {0}, this program knows format {FORMAT}")]
    Newer(u8),
}

/// The frame that starts at `offset`, if its checksum is right.
pub(crate) fn frame_at(bytes: &[u8], offset: usize, family: Family) -> Result<Frame<'_>, NoFrame> {
    let rest = bytes.get(offset..).ok_or(NoFrame::Bad)?;
    let header = rest.first_chunk::<HEADER_BYTES>().ok_or(NoFrame::Bad)?;
    if header[..4] != MAGIC || header[4] != family as u8 {
        return Err(NoFrame::Bad);
    }
    let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let length = usize::try_from(word(8)).map_err(|_| NoFrame::Bad)?;
    let whole = rest.get(..HEADER_BYTES.saturating_add(length)).ok_or(NoFrame::Bad)?;
    let crc = word(CRC_AT);
    if checksum(whole) != crc && !Mutant::ChecksumNotChecked.is_on() {
        return Err(NoFrame::Bad);
    }
    if header[5] != FORMAT {
        return Err(NoFrame::Newer(header[5]));
    }
    let segment = u64::from(word(12)) | u64::from(word(16)) << 32;
    Ok(Frame {
        offset,
        kind: u16::from_le_bytes([header[6], header[7]]),
        segment,
        synced: word(20),
        link: word(24),
        crc,
        body: &whole[HEADER_BYTES..],
    })
}

/// Walks the frames of one file from its start, as long as they are intact and chained.
#[derive(Debug)]
pub(crate) struct Walk<'a> {
    bytes: &'a [u8],
    family: Family,
    segment: u64,
    /// Where the next frame should start: after the walk, the first place without one.
    pub(crate) offset: usize,
    /// The crc of the frame before; `None` accepts whatever the first frame says (the file before is gone on purpose).
    pub(crate) link: Option<u32>,
    /// What the last frame said was durable when it was written: everything from here on is only as sure as its write.
    pub(crate) synced: usize,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(bytes: &'a [u8], family: Family, segment: u64, link: Option<u32>) -> Self {
        Self { bytes, family, segment, offset: 0, link, synced: 0 }
    }

    /// The next frame, or `None` at the first place that has none.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'a>>, NoFrame> {
        let frame = match frame_at(self.bytes, self.offset, self.family) {
            Ok(frame) => frame,
            Err(NoFrame::Bad) => return Ok(None),
            Err(newer) => return Err(newer),
        };
        let synced = frame.synced as usize;
        if frame.segment != self.segment || self.link.is_some_and(|link| link != frame.link) || synced > frame.offset {
            return Ok(None);
        }
        self.offset = frame.end();
        self.link = Some(frame.crc);
        self.synced = synced;
        Ok(Some(frame))
    }

    /// Where the file says, behind the place where the walk ended, that this very place had been durable. `Some` means
    /// that bytes which were promised have been damaged; `None` that nothing behind it was ever promised, so it is the
    /// torn end of the last write and may be cut.
    pub(crate) fn first_promise(&self) -> Option<usize> {
        let end = content_end(self.bytes);
        let mut at = self.offset;
        while let Some(found) = self.bytes.get(at..end).and_then(find_magic) {
            at += found;
            match frame_at(self.bytes, at, self.family) {
                Ok(frame) if frame.segment == self.segment && frame.synced as usize > self.offset => return Some(at),
                // A newer program's frame: its promises are unknown, so they count.
                Err(NoFrame::Newer(_)) => return Some(at),
                _ => at += 1,
            }
        }
        None
    }
}

/// Whether any frame of this segment is anywhere in these bytes.
pub(crate) fn any_frame(bytes: &[u8], family: Family, segment: u64) -> bool {
    let end = content_end(bytes);
    let mut at = 0;
    while let Some(found) = bytes.get(at..end).and_then(find_magic) {
        at += found;
        match frame_at(bytes, at, family) {
            Ok(frame) if frame.segment == segment => return true,
            Err(NoFrame::Newer(_)) => return true,
            _ => at += 1,
        }
    }
    false
}

pub(crate) fn find_magic(bytes: &[u8]) -> Option<usize> {
    bytes.windows(MAGIC.len()).position(|window| window == MAGIC)
}

/// The length without trailing zeros. In big steps: most of a segment is zeros most of the time.
pub(crate) fn content_end(bytes: &[u8]) -> usize {
    const ZEROS: [u8; 4096] = [0; 4096];
    let mut end = bytes.len();
    while end > 0 {
        let start = end.saturating_sub(ZEROS.len());
        let chunk = &bytes[start..end];
        if chunk != &ZEROS[..chunk.len()] {
            return start + chunk.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        }
        end = start;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bodies: &[(&[u8], u32)]) -> Vec<u8> {
        let mut chain = Chain { family: Family::Wal, segment: 7, link: 0 };
        let mut out = Vec::new();
        for (body, synced) in bodies {
            chain.put(&mut out, 5, *synced, |out| out.put_raw(body)).unwrap();
        }
        out
    }

    fn walk(bytes: &[u8]) -> (Vec<Vec<u8>>, usize, Option<usize>) {
        let mut walk = Walk::new(bytes, Family::Wal, 7, Some(0));
        let mut bodies = Vec::new();
        while let Some(frame) = walk.next_frame().unwrap() {
            bodies.push(frame.body.to_vec());
        }
        (bodies, walk.offset, walk.first_promise())
    }

    #[test]
    fn the_bytes_of_a_frame_are_pinned() {
        // A change here is a new format: old files must stay readable.
        let hex: String = file(&[(b"hi", 3)]).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "4c444c4e010105000200000007000000000000000300000000000000c410d5606869");
    }

    #[test]
    fn every_single_flipped_bit_ends_the_walk_before_it() {
        let bytes = file(&[(b"one", 0), (b"two", 0), (b"", 0)]);
        assert_eq!(walk(&bytes), (vec![b"one".to_vec(), b"two".to_vec(), vec![]], bytes.len(), None));
        for bit in 0..bytes.len() * 8 {
            let mut torn = bytes.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            // A flipped format bit cannot pass for a newer program's frame either: the checksum is looked at first.
            let (bodies, end, _) = walk(&torn);
            assert!(end <= bit / 8, "bit {bit} went unnoticed: {bodies:?}");
        }
    }

    #[test]
    fn a_later_frame_that_counted_on_the_damaged_place_is_found() {
        let bytes = file(&[(b"one", 0), (b"two", 0), (b"six", 70)]);
        let mut damaged = bytes.clone();
        damaged[40] ^= 1;
        assert_eq!(walk(&damaged).2, Some(70));
        let mut torn = bytes;
        torn[74] ^= 1;
        assert_eq!(walk(&torn).2, None);
    }

    #[test]
    fn a_stale_frame_in_the_right_place_is_not_taken() {
        let first = file(&[(b"one", 0), (b"two", 0)]);
        let other = file(&[(b"uno", 0), (b"two", 0)]);
        let mixed = [&other[..35], &first[35..]].concat();
        assert_eq!(walk(&mixed).0, vec![b"uno".to_vec()]);
    }

    #[test]
    fn a_newer_format_is_told_apart_from_rot() {
        let mut bytes = file(&[(b"one", 0)]);
        bytes[5] = 9;
        let crc = checksum(&bytes);
        bytes[CRC_AT..HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(frame_at(&bytes, 0, Family::Wal).unwrap_err(), NoFrame::Newer(9));
    }

    #[test]
    fn content_ends_at_the_last_byte_that_is_not_zero() {
        let mut bytes = vec![0; 10_000];
        assert_eq!(content_end(&bytes), 0);
        bytes[4_500] = 1;
        assert_eq!(content_end(&bytes), 4_501);
        bytes[9_999] = 1;
        assert_eq!(content_end(&bytes), 10_000);
    }
}

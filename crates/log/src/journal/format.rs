//! What the frames of the journal carry, and the names of its files.
//!
//! A segment is `HEAD (BLOCK | MARK)* INDEX SEAL`; the last one may still lack its index and seal. Heads and blocks are
//! chained by blake3: each carries the hash of the one before, so that history cannot be altered anywhere without
//! altering everything after it.

use std::io;

use bytes::Bytes;

use super::JournalRecord;
use crate::{
    disk::TEMP_SUFFIX,
    encoding::{Fields, Malformed, PutFields as _},
    frame::HEADER_BYTES,
};

pub(super) const DIR: &str = "journal";
const SUFFIX: &str = ".journal";
const NUMBER_DIGITS: usize = 16;

pub(super) const HEAD: u16 = 1;
pub(super) const BLOCK: u16 = 2;
pub(super) const MARK: u16 = 3;
pub(super) const INDEX: u16 = 4;
pub(super) const SEAL: u16 = 5;

/// A seal has one length, so that it can be found from the end of the file.
pub(super) const SEAL_BYTES: usize = HEADER_BYTES + 4 + 32 + 1 + 40;

/// Every node compresses every entry, beside the writers: level 1 takes half the time of level 3.
const COMPRESSION_LEVEL: i32 = 1;

/// No block unpacks to more. It bounds what a wrong length can make us allocate.
pub(crate) const RAW_BYTES_MAX: u64 = 1 << 30;

/// Nor is one longer: what does not compress becomes longer by one part in 256 (zstd), and has a head.
pub(crate) const BLOCK_BYTES_MAX: u64 = RAW_BYTES_MAX + (RAW_BYTES_MAX >> 8) + (1 << 10);

pub(crate) type Hash = [u8; 32];

pub(super) fn path(number: u64) -> String {
    format!("{DIR}/{number:0NUMBER_DIGITS$}{SUFFIX}")
}

/// The number in a segment's name and whether it is a temp file of ours; `None` for a foreign name.
pub(super) fn parse_name(name: &str) -> Option<(u64, bool)> {
    let (name, temp) = name.strip_suffix(TEMP_SUFFIX).map_or((name, false), |name| (name, true));
    let digits = name.strip_suffix(SUFFIX)?;
    if digits.len() != NUMBER_DIGITS || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok().map(|number| (number, temp))
}

pub(crate) fn hash(body: &[u8]) -> Hash {
    blake3::hash(body).into()
}

/// How a segment begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The chain before this segment.
    pub(super) chain: Hash,
    /// The entry before its first one, with its hash; none at the very beginning.
    pub(super) base: Option<(u64, Hash)>,
    /// The entries between the last segment and this one never were in this journal: a snapshot stood in for them.
    pub(super) gap: bool,
}

impl Head {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_raw(&self.chain);
        out.put_option(self.base, put_entry);
        out.put_bool(self.gap);
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let head = Self { chain: fields.array()?, base: fields.option(entry)?, gap: fields.bool()? };
        fields.end()?;
        Ok(head)
    }
}

fn put_entry(out: &mut Vec<u8>, (index, hash): (u64, Hash)) {
    out.put_u64(index);
    out.put_raw(&hash);
}

fn entry(fields: &mut Fields<'_>) -> Result<(u64, Hash), Malformed> {
    Ok((fields.u64()?, fields.array()?))
}

/// A block without its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHead {
    pub(crate) chain: Hash,
    pub(crate) first: u64,
    pub(crate) count: u32,
    /// The hash of the last record.
    pub(crate) last_hash: Hash,
    raw_bytes: u64,
}

impl BlockHead {
    pub(crate) fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }

    /// Reads the head and leaves the packed records in `fields`.
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Self, Malformed> {
        let head = Self {
            chain: fields.array()?,
            first: fields.u64()?,
            count: fields.u32()?,
            last_hash: fields.array()?,
            raw_bytes: fields.u64()?,
        };
        if head.raw_bytes > RAW_BYTES_MAX {
            return Err(Malformed("a block is larger than any that was ever written"));
        }
        if head.count == 0 || head.first.checked_add(u64::from(head.count)).is_none() {
            return Err(Malformed("a block holds no records"));
        }
        Ok(head)
    }
}

/// Makes the bodies of blocks. Kept from block to block: setting up zstd costs more than compressing a block, and fresh memory
/// for the bytes before and after costs as much again.
pub(crate) struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    raw: Vec<u8>,
    packed: Vec<u8>,
}

/// What stands before the packed records.
const HEAD_BYTES: usize = 32 + 8 + 4 + 32 + 8;

/// A block of large entries must not be paid for in memory for ever.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").finish_non_exhaustive()
    }
}

impl Packer {
    pub(crate) fn new() -> io::Result<Self> {
        let compressor = zstd::bulk::Compressor::new(COMPRESSION_LEVEL)?;
        Ok(Self { compressor, raw: Vec::new(), packed: Vec::new() })
    }

    /// Packs records, of which there must be some.
    pub(crate) fn pack(&mut self, chain: &Hash, records: &[JournalRecord]) -> io::Result<Vec<u8>> {
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            return Err(io::Error::other("a block needs records"));
        };
        let Self { compressor, raw, packed } = self;
        raw.clear();
        for record in records {
            raw.put_u64(record.time_ms);
            raw.put_raw(&record.hash);
            raw.put_bytes(&record.entry);
            raw.put_bytes(&record.events);
            raw.put_u32(u32::try_from(record.keys.len()).map_err(io::Error::other)?);
            for key in record.keys.iter() {
                raw.put_bytes(key);
            }
        }
        if raw.len() as u64 > RAW_BYTES_MAX {
            return Err(io::Error::other(format!("a block of {} bytes is too large", raw.len())));
        }
        packed.clear();
        packed.reserve(zstd::zstd_safe::compress_bound(raw.len()));
        compressor.compress_to_buffer(raw, packed)?;
        let mut body = Vec::with_capacity(HEAD_BYTES + packed.len());
        body.put_raw(chain);
        body.put_u64(first.index);
        body.put_u32(u32::try_from(records.len()).map_err(io::Error::other)?);
        body.put_raw(&last.hash);
        body.put_u64(raw.len() as u64);
        body.extend_from_slice(packed);
        raw.shrink_to(KEPT_BYTES_MAX);
        packed.shrink_to(KEPT_BYTES_MAX);
        Ok(body)
    }
}

/// Unpacks the records of a block. They share one buffer.
pub(crate) fn unpack(body: &[u8]) -> Result<Vec<JournalRecord>, Malformed> {
    unpack_at_most(body, RAW_BYTES_MAX)
}

/// The same of a block that somebody else made: its head decides how much memory is taken.
pub(super) fn unpack_at_most(body: &[u8], raw_bytes_max: u64) -> Result<Vec<JournalRecord>, Malformed> {
    let mut fields = Fields(body);
    let head = BlockHead::decode(&mut fields)?;
    if head.raw_bytes > raw_bytes_max {
        return Err(Malformed("a block is larger than any that is taken"));
    }
    let raw_bytes = usize::try_from(head.raw_bytes).map_err(|_| Malformed("a block is larger than memory"))?;
    let raw = zstd::bulk::decompress(fields.rest(), raw_bytes).map_err(|_| Malformed("a block cannot be unpacked"))?;
    if raw.len() != raw_bytes {
        return Err(Malformed("a block unpacks to another length than it says"));
    }
    let raw = Bytes::from(raw);
    let mut fields = Fields(&raw);
    let mut records = Vec::new();
    for nth in 0..u64::from(head.count) {
        let (time_ms, hash) = (fields.u64()?, fields.array()?);
        let entry = raw.slice_ref(fields.bytes()?);
        let events = raw.slice_ref(fields.bytes()?);
        let keys = (0..fields.u32()?).map(|_| fields.bytes().map(<[u8]>::to_vec)).collect::<Result<_, _>>()?;
        records.push(JournalRecord { index: head.first + nth, time_ms, hash, entry, events, keys });
    }
    fields.end()?;
    if records.last().is_some_and(|record| record.hash != head.last_hash) {
        return Err(Malformed("a block's last hash is not what its head says"));
    }
    Ok(records)
}

/// Where a block is in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockPlace {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) offset: u32,
    /// Of the whole frame.
    pub(super) bytes: u32,
}

pub(super) fn encode_index(places: &[BlockPlace], out: &mut Vec<u8>) {
    for place in places {
        out.put_u64(place.first);
        out.put_u32(place.count);
        out.put_u32(place.offset);
        out.put_u32(place.bytes);
    }
}

pub(super) fn decode_index(body: &[u8]) -> Result<Vec<BlockPlace>, Malformed> {
    let mut fields = Fields(body);
    let mut places = Vec::new();
    while fields.end().is_err() {
        places.push(BlockPlace {
            first: fields.u64()?,
            count: fields.u32()?,
            offset: fields.u32()?,
            bytes: fields.u32()?,
        });
    }
    Ok(places)
}

/// How a segment ends: enough to go on without reading the rest of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    pub(super) index_offset: u32,
    /// The chain after this segment.
    pub(super) chain: Hash,
    /// The last entry that this segment accounts for, its base included.
    pub(super) last: Option<(u64, Hash)>,
}

impl Seal {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.index_offset);
        out.put_raw(&self.chain);
        out.put_bool(self.last.is_some());
        put_entry(out, self.last.unwrap_or_default());
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let (index_offset, chain, some) = (fields.u32()?, fields.array()?, fields.bool()?);
        let last = entry(&mut fields)?;
        fields.end()?;
        Ok(Self { index_offset, chain, last: some.then_some(last) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(index: u64) -> JournalRecord {
        JournalRecord {
            index,
            time_ms: 1_000 + index,
            hash: [index as u8; 32],
            entry: Bytes::from(vec![b'e'; index as usize]),
            events: Bytes::from_static(b"events"),
            keys: vec![b"cluster/demo".to_vec(), vec![]].into(),
        }
    }

    #[test]
    fn a_block_unpacks_to_what_was_packed() {
        let records: Vec<JournalRecord> = (3..9).map(record).collect();
        let body = Packer::new().unwrap().pack(&[9; 32], &records).unwrap();
        assert_eq!(unpack(&body).unwrap(), records);
        let head = BlockHead::decode(&mut Fields(&body)).unwrap();
        assert_eq!((head.first, head.last(), head.chain, head.last_hash), (3, 8, [9; 32], [8; 32]));
    }

    #[test]
    fn the_bytes_around_the_packed_records_are_pinned() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut out = Vec::new();
        Head { chain: [1; 32], base: Some((5, [2; 32])), gap: true }.encode(&mut out);
        assert_eq!(hex(&out), format!("{}010500000000000000{}01", "01".repeat(32), "02".repeat(32)));
        let body = Packer::new().unwrap().pack(&[9; 32], &[record(3)]).unwrap();
        let head = format!("{}030000000000000001000000{}", "09".repeat(32), "03".repeat(32));
        assert!(hex(&body).starts_with(&head), "{}", hex(&body));
        let mut out = Vec::new();
        let seal = Seal { index_offset: 7, chain: [3; 32], last: None };
        seal.encode(&mut out);
        assert_eq!(out.len() + HEADER_BYTES, SEAL_BYTES);
        assert_eq!(Seal::decode(&out), Ok(seal));
        let places = vec![BlockPlace { first: 1, count: 2, offset: 3, bytes: 4 }];
        let mut out = Vec::new();
        encode_index(&places, &mut out);
        assert_eq!(hex(&out), "0100000000000000020000000300000004000000");
        assert_eq!(decode_index(&out), Ok(places));
    }

    #[test]
    fn only_our_own_names_are_taken() {
        assert_eq!(parse_name("0000000000000007.journal"), Some((7, false)));
        assert_eq!(parse_name("0000000000000007.journal.tmp"), Some((7, true)));
        assert_eq!(parse_name("7.journal"), None);
        assert_eq!(parse_name("notes.tmp"), None);
    }
}

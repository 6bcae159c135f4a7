//! Finding records: which block an index is in, and unpacking it without the journal's lock.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use super::{
    Inner, JournalError, JournalRecord, SegmentFile,
    format::{self, BlockPlace},
    io_error,
};
use crate::{
    disk::read_exact_at,
    frame::{Family, frame_at},
    lock,
};

/// Unpacked blocks that are kept. Readers come in order, a few at a time: each needs the block it is in.
const CACHED_BLOCKS: usize = 8;

/// A block that is written.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) segment: Arc<SegmentFile>,
    pub(super) place: BlockPlace,
}

/// Where an index is.
#[derive(Debug)]
pub(super) enum Located {
    /// Not written yet: this record and those behind it.
    Waiting(Vec<JournalRecord>),
    Block(Block),
    /// Before the beginning or in a gap; the next record there is.
    Nowhere {
        next: Option<u64>,
    },
    /// Behind the end.
    Behind,
}

impl Inner {
    pub(super) fn locate(&self, index: u64) -> Located {
        if self.last().is_none_or(|(last, _)| index > last) {
            return Located::Behind;
        }
        if let Some(first) = self.waiting.first().map(|record| record.index)
            && index >= first
        {
            return Located::Waiting(self.waiting.iter().filter(|record| record.index >= index).cloned().collect());
        }
        let after = self.blocks.partition_point(|block| block.place.first <= index);
        if let Some(block) = after.checked_sub(1).and_then(|at| self.blocks.get(at))
            && index - block.place.first < u64::from(block.place.count)
        {
            return Located::Block(block.clone());
        }
        let written = self.blocks.get(after).map(|block| block.place.first);
        Located::Nowhere { next: written.or_else(|| self.waiting.first().map(|record| record.index)) }
    }
}

/// The blocks that were unpacked last. Blocks never change, so nothing ever has to be thrown out as stale.
#[derive(Debug, Default)]
pub(super) struct BlockCache(Mutex<VecDeque<Unpacked>>);

#[derive(Debug)]
struct Unpacked {
    segment: u64,
    offset: u32,
    records: Arc<Vec<JournalRecord>>,
}

impl BlockCache {
    pub(super) fn records(&self, block: &Block) -> Result<Arc<Vec<JournalRecord>>, JournalError> {
        let (number, offset) = (block.segment.number, block.place.offset);
        let mut cached = lock(&self.0);
        if let Some(at) = cached.iter().position(|block| (block.segment, block.offset) == (number, offset))
            && let Some(hit) = cached.remove(at)
        {
            let records = hit.records.clone();
            cached.push_back(hit);
            return Ok(records);
        }
        drop(cached);
        let records = Arc::new(block.unpack()?);
        let mut cached = lock(&self.0);
        cached.push_back(Unpacked { segment: number, offset, records: records.clone() });
        if cached.len() > CACHED_BLOCKS {
            cached.pop_front();
        }
        Ok(records)
    }
}

impl Block {
    fn unpack(&self) -> Result<Vec<JournalRecord>, JournalError> {
        let path = format::path(self.segment.number);
        let damaged =
            |what: String| JournalError::Damaged { file: path.clone(), offset: self.place.offset.into(), what };
        let bytes = self
            .segment
            .file()
            .and_then(|file| read_exact_at(&*file, self.place.offset.into(), self.place.bytes as usize))
            .map_err(io_error(format!("read {path}")))?;
        let frame = frame_at(&bytes, 0, Family::Journal).map_err(|error| damaged(error.to_string()))?;
        if frame.kind != format::BLOCK || frame.segment != self.segment.number {
            return Err(damaged("there should be a block of records".to_owned()));
        }
        let records = format::unpack(frame.body).map_err(|error| damaged(error.to_string()))?;
        if records.first().map(|record| record.index) != Some(self.place.first)
            || records.len() != self.place.count as usize
        {
            return Err(damaged("the block holds other records than the index says".to_owned()));
        }
        Ok(records)
    }
}

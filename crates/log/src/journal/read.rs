//! Finding records: which block an index is in, unpacking it without the journal's lock, and what cannot be found any more.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::{Arc, Mutex},
};

use super::{
    Inner, Journal, JournalError, JournalRecord, SegmentFile,
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

impl Inner {
    /// The last entry before the first segment, if there were others before it: segments are numbered from 1 on.
    fn begins_after(&self) -> Option<u64> {
        let sealed = self.sealed.first().map(|segment| segment.number);
        let first = sealed.or_else(|| self.current.as_ref().map(|current| current.segment.number));
        let (base, _) = self.bases.first().filter(|_| first.is_some_and(|first| first > 1))?;
        Some(*base)
    }
}

impl Journal {
    /// The entries that are stored as one piece with this one: where one of them cannot be read, none of them can. None: it is not on the disk.
    pub fn stored_with(&self, index: u64) -> Option<RangeInclusive<u64>> {
        let located = lock(&self.shared.inner).locate(index);
        match located {
            Located::Block(Block { place, .. }) => Some(place.first..=place.first + u64::from(place.count) - 1),
            Located::Nowhere { .. } => self.filled_at(index)?.journal.stored_with(index),
            Located::Waiting(_) | Located::Behind => None,
        }
    }

    /// Entries that are not here, and of which some once were, in segments that are gone: let go, or taken away. What a snapshot stood in for
    /// from the beginning on is not among them.
    pub fn gone(&self) -> Vec<RangeInclusive<u64>> {
        let parts = lock(&self.shared.filled).clone();
        let cut = parts.iter().filter(|part| lock(&part.journal.shared.inner).begins_after().is_some());
        let mut held: Vec<RangeInclusive<u64>> =
            cut.map(|part| *part.gap.start()..=*part.entries.start() - 1).collect();
        held.extend(lock(&self.shared.inner).begins_after().map(|base| 1..=base));
        let end = self.last_index().unwrap_or(0);
        let mut gone = Vec::new();
        let mut next = 1;
        for stretch in self.stretches().into_iter().chain([end + 1..=end + 1]) {
            let lacking = next..=stretch.start().saturating_sub(1);
            let overlaps = |held: &RangeInclusive<u64>| held.start() <= lacking.end() && lacking.start() <= held.end();
            if !lacking.is_empty() && held.iter().any(overlaps) {
                gone.push(lacking);
            }
            next = next.max(*stretch.end() + 1);
        }
        gone
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        disk::{Disk as _, ModelDisk},
        journal::{Gap, retention::tests::SMALL, retention::tests::record},
    };

    fn open(disk: &ModelDisk) -> Journal {
        Journal::open(Arc::new(disk.reopen()), SMALL).unwrap()
    }

    fn append(journal: &Journal, entries: RangeInclusive<u64>) {
        for index in entries {
            journal.append(record(index)).unwrap();
        }
        journal.sync().unwrap();
    }

    fn take_away(disk: &ModelDisk, path: &str) {
        disk.reopen().remove(path).unwrap();
    }

    #[test]
    fn segments_that_are_gone_are_told_from_what_never_was_here() {
        let disk = ModelDisk::new(1);
        let journal = open(&disk);
        assert_eq!(journal.gone(), []);
        append(&journal, 1..=200);
        assert_eq!(journal.gone(), []);
        let through = journal.sealed_segments()[2].last;
        journal.let_go(through).unwrap();
        assert_eq!(journal.gone(), [1..=through]);
        drop(journal);
        assert_eq!(open(&disk).gone(), [1..=through]);

        // A node that joined: a snapshot stood in for what is before, and for what it missed later.
        let disk = ModelDisk::new(2);
        let journal = open(&disk);
        journal.start_after(40, record(40).hash).unwrap();
        append(&journal, 41..=50);
        journal.start_after(80, record(80).hash).unwrap();
        append(&journal, 81..=120);
        assert_eq!(journal.gone(), []);
        drop(journal);
        // Without its first segment the rest begins with a gap, too.
        take_away(&disk, "journal/0000000000000001.journal");
        assert_eq!(open(&disk).gone(), [1..=80]);
    }

    #[test]
    fn what_was_fetched_stands_in_for_segments_that_are_gone() {
        let disk = ModelDisk::new(1);
        let journal = open(&disk);
        append(&journal, 1..=200);
        let through = journal.sealed_segments()[2].last;
        journal.let_go(through).unwrap();
        let filling = journal.fill(Gap { first: 1, last: through, before: None, after: record(through).hash }).unwrap();
        filling.add((1..=through).map(record).collect()).unwrap();
        assert!(filling.finish().unwrap());
        assert_eq!((journal.gone(), journal.stretches()), (vec![], vec![1..=200]));
        let mut next = 1;
        while let Some(piece) = journal.stored_with(next) {
            assert!(*piece.start() == next && *piece.end() < next + 20, "{piece:?} begins with {next}");
            assert!(piece.clone().all(|index| journal.stored_with(index).as_ref() == Some(&piece)));
            next = piece.end() + 1;
        }
        assert_eq!(next, 201, "also what was fetched");
        drop(journal);
        // And has a beginning of its own that can be missing.
        let first = format!("filled/{:020}-{through:020}/journal/0000000000000001.journal", 1);
        take_away(&disk, &first);
        let journal = open(&disk);
        let begins = journal.first_index().unwrap();
        assert!(begins > 1 && begins <= through, "{begins}");
        assert_eq!(journal.gone(), [1..=begins - 1]);
    }
}

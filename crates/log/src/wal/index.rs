//! Which entries the log holds, where each one is on disk, and the newest ones in memory.
//!
//! An entry is readable from the moment it is pushed; it gets a place on disk when its batch is durable. Until then its
//! payload stays in memory whatever the bound says.

use std::{collections::VecDeque, io, ops::Range, sync::Arc};

use bytes::Bytes;

use super::{
    LogPosition, Record,
    record::Item,
    segment::{self, Segment},
};
use crate::frame::{self, Family};

#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) segment: Arc<Segment>,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

#[derive(Debug)]
struct Slot {
    id: LogPosition,
    /// Which push this is: an index can be written, truncated and written again while the first write is under way.
    serial: u64,
    held: Option<(u8, Bytes)>,
    place: Option<Place>,
}

#[derive(Debug)]
pub(super) struct Index {
    slots: VecDeque<Slot>,
    cached_bytes: usize,
    cache_bytes_max: usize,
    /// Slots below this index have been looked at for eviction.
    evicted_to: u64,
    next_serial: u64,
}

/// Where a read finds one entry.
#[derive(Debug)]
pub(super) enum Found {
    Memory(Record),
    Disk(LogPosition, Place),
}

impl Index {
    pub(super) fn new(cache_bytes_max: usize) -> Self {
        Self { slots: VecDeque::new(), cached_bytes: 0, cache_bytes_max, evicted_to: 0, next_serial: 0 }
    }

    /// The indexes that are held.
    pub(super) fn range(&self) -> Range<u64> {
        match (self.slots.front(), self.slots.back()) {
            (Some(first), Some(last)) => first.id.index..last.id.index + 1,
            _ => 0..0,
        }
    }

    fn slot(&self, index: u64) -> Option<&Slot> {
        let first = self.slots.front()?.id.index;
        self.slots.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    pub(super) fn position(&self, index: u64) -> Option<LogPosition> {
        self.slot(index).map(|slot| slot.id)
    }

    /// Adds records that follow on from what is there (the caller has checked). Returns the serial of this push.
    pub(super) fn push(&mut self, records: &[Record]) -> u64 {
        let serial = self.next_serial;
        self.next_serial += 1;
        for record in records {
            self.cached_bytes += record.payload.len();
            let held = Some((record.kind, record.payload.clone()));
            self.slots.push_back(Slot { id: record.id, serial, held, place: None });
        }
        serial
    }

    /// Adds an entry that recovery found on disk.
    pub(super) fn push_placed(&mut self, id: LogPosition, place: Place) {
        let serial = self.next_serial;
        self.slots.push_back(Slot { id, serial, held: None, place: Some(place) });
    }

    pub(super) fn truncate_after(&mut self, keep: Option<u64>) {
        while let Some(slot) = self.slots.pop_back_if(|slot| keep.is_none_or(|keep| slot.id.index > keep)) {
            self.forget(&slot);
        }
        self.evicted_to = self.evicted_to.min(self.range().end);
    }

    pub(super) fn purge(&mut self, through: u64) {
        while let Some(slot) = self.slots.pop_front_if(|slot| slot.id.index <= through) {
            self.forget(&slot);
        }
    }

    fn forget(&mut self, slot: &Slot) {
        if let Some((_, payload)) = &slot.held {
            self.cached_bytes -= payload.len();
        }
    }

    /// An entry of push `serial` is durable there. One that was truncated meanwhile stays forgotten.
    pub(super) fn place(&mut self, index: u64, serial: u64, place: Place) {
        let Some(first) = self.slots.front().map(|slot| slot.id.index) else { return };
        let at = index.checked_sub(first).and_then(|at| usize::try_from(at).ok());
        if let Some(slot) = at.and_then(|at| self.slots.get_mut(at))
            && slot.serial == serial
        {
            slot.place = Some(place);
        }
    }

    /// Drops payloads, oldest first, down to the bound.
    pub(super) fn evict(&mut self) {
        let Range { start, end } = self.range();
        let mut index = self.evicted_to.max(start);
        while self.cached_bytes > self.cache_bytes_max && index < end {
            let Some(slot) = usize::try_from(index - start).ok().and_then(|at| self.slots.get_mut(at)) else { break };
            if slot.place.is_none() {
                break;
            }
            if let Some((_, payload)) = slot.held.take() {
                self.cached_bytes -= payload.len();
            }
            index += 1;
        }
        self.evicted_to = index;
    }

    #[cfg(test)]
    pub(super) fn cached_bytes(&self) -> usize {
        self.cached_bytes
    }

    /// The entries of `range` that are held, at least one if there is any, and then as many as `bytes_max` allows.
    pub(super) fn find(&self, range: &Range<u64>, bytes_max: usize) -> Vec<Found> {
        let held = self.range();
        let mut found = Vec::new();
        let mut bytes = 0_usize;
        for index in range.start.max(held.start)..range.end.min(held.end) {
            let Some(slot) = self.slot(index) else { break };
            let (item, size) = match (&slot.held, &slot.place) {
                (Some((kind, payload)), _) => {
                    let record = Record { id: slot.id, kind: *kind, payload: payload.clone() };
                    (Found::Memory(record), payload.len())
                }
                (None, Some(place)) => (Found::Disk(slot.id, place.clone()), place.bytes),
                (None, None) => break,
            };
            bytes = bytes.saturating_add(size);
            if !found.is_empty() && bytes > bytes_max {
                break;
            }
            found.push(item);
        }
        found
    }
}

/// Fetches what [`Index::find`] named, without the index's lock. Neighbours on disk come with one read. A segment that is
/// purged meanwhile stays readable through its open handle, and frames are never overwritten.
pub(super) fn fetch(found: Vec<Found>) -> io::Result<Vec<Record>> {
    let mut records = Vec::with_capacity(found.len());
    let mut run: Vec<(LogPosition, Place)> = Vec::new();
    for item in found {
        match item {
            Found::Disk(id, place) => {
                let follows = run.last().is_some_and(|(_, last)| {
                    Arc::ptr_eq(&last.segment, &place.segment) && last.offset + last.bytes == place.offset
                });
                if !follows {
                    read_run(&mut run, &mut records)?;
                }
                run.push((id, place));
            }
            Found::Memory(record) => {
                read_run(&mut run, &mut records)?;
                records.push(record);
            }
        }
    }
    read_run(&mut run, &mut records)?;
    Ok(records)
}

/// Reads entries that lie one behind the other.
fn read_run(run: &mut Vec<(LogPosition, Place)>, records: &mut Vec<Record>) -> io::Result<()> {
    let (Some((_, first)), Some((_, last))) = (run.first(), run.last()) else { return Ok(()) };
    let (segment, start) = (first.segment.clone(), first.offset);
    let bytes = crate::disk::read_exact_at(&*segment.file, start as u64, last.offset + last.bytes - start)?;
    for (id, place) in run.drain(..) {
        let frame = frame::frame_at(&bytes, place.offset - start, Family::Wal).ok();
        let item =
            frame.filter(|frame| frame.segment == segment.number).map(|frame| Item::decode(frame.kind, frame.body));
        match item {
            Some(Ok(Item::Entry(record))) if record.id == id => records.push(record),
            _ => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "{} is damaged at offset {}, where entry {} was; {}",
                        segment::path(segment.number),
                        place.offset,
                        id.index,
                        crate::HOW_TO_RECOVER
                    ),
                ));
            }
        }
    }
    Ok(())
}

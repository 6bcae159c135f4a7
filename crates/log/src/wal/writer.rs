//! The one that writes: turns whatever waits into one write and one `fdatasync`.
//!
//! It knows nothing of queues, threads and callbacks (see [`super::queue`]), and it does not survive a failure: after an
//! error nobody can say which of the bytes are on disk, so the caller never calls it again.
//!
//! The order that recovery counts on:
//! - a batch is written only after the batch before it was synced, so a frame's `synced` offset is the truth;
//! - a segment gets its seal, synced, before the first byte goes into the next one;
//! - a segment is removed only after the purge that made it superfluous was synced, oldest first, each removal durable
//!   before the next, so that there is never a hole.

use std::{collections::VecDeque, io, sync::Arc, thread::JoinHandle, time::Instant};

use loadline_mutants::Mutant;

use super::{
    LogPosition, Record, StoredVote, Threading, WalObserver, WalState,
    index::Place,
    record::{Head, Item, Mark, SMALL_BODY_BYTES_MAX},
    segment::{self, Segment, is_full},
};
use crate::{
    disk::SharedDisk,
    frame::{Chain, HEADER_BYTES},
};

/// What is kept free at the end of a segment.
const SEAL_BYTES: usize = HEADER_BYTES;

/// A change to make durable.
#[derive(Debug)]
pub(super) enum Change {
    Append {
        records: Vec<Record>,
        serial: u64,
    },
    Vote(StoredVote),
    Committed(Option<LogPosition>),
    /// The log ends here from now on.
    Truncate(Option<LogPosition>),
    Purge(LogPosition),
    Close,
}

/// Where an appended entry went.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) index: u64,
    pub(super) serial: u64,
    pub(super) place: Place,
}

/// A segment in use, and the highest index that was ever written into it.
#[derive(Debug)]
pub(super) struct Used {
    pub(super) segment: Arc<Segment>,
    pub(super) index_max: Option<u64>,
}

/// The segment that comes next.
#[derive(Debug)]
pub(super) enum Spare {
    None,
    Making(JoinHandle<io::Result<Segment>>),
    Ready(Segment),
}

/// Where the log ended when it was opened.
#[derive(Debug)]
pub(super) struct Tail {
    /// Oldest first; the last one is written to. Empty for a log that never was.
    pub(super) used: VecDeque<Used>,
    pub(super) offset: usize,
    pub(super) chain: Chain,
    /// Whether the last segment has its seal, so that the next frame goes into a new one.
    pub(super) sealed: bool,
    pub(super) spare: Spare,
    /// What the frames up to here add up to.
    pub(super) written: WalState,
}

pub(super) struct Writer {
    disk: SharedDisk,
    segment_bytes: usize,
    threading: Threading,
    observer: Option<Arc<dyn WalObserver>>,
    tail: Tail,
    /// Encoded frames that belong at `tail.offset`.
    buffer: Vec<u8>,
    /// Log entries in the buffer.
    buffered_records: usize,
    /// After a full disk refused the spare segment: the offset at which to ask again.
    ask_again_at: usize,
}

impl Writer {
    pub(super) fn new(
        disk: SharedDisk,
        segment_bytes: usize,
        threading: Threading,
        observer: Option<Arc<dyn WalObserver>>,
        tail: Tail,
    ) -> Self {
        Self {
            disk,
            segment_bytes,
            threading,
            observer,
            tail,
            buffer: Vec::new(),
            buffered_records: 0,
            ask_again_at: 0,
        }
    }

    /// Notes in the log that it was opened, so that what recovery accepted is from now on a promise, and removes what an
    /// interrupted purge left.
    pub(super) fn opened(&mut self) -> io::Result<()> {
        self.put(&Item::Mark(Mark::Opened))?;
        self.flush()?;
        self.remove_purged()
    }

    /// Makes the changes durable, in order. `Ok` means that all of them are.
    pub(super) fn commit<'a>(&mut self, changes: impl Iterator<Item = &'a Change>) -> io::Result<Vec<Placed>> {
        let mut placed = Vec::new();
        for change in changes {
            match change {
                Change::Append { records, serial } => {
                    for record in records {
                        let place = self.put(&Item::Entry(record.clone()))?;
                        placed.push(Placed { index: record.id.index, serial: *serial, place });
                        self.buffered_records += 1;
                    }
                }
                Change::Vote(vote) => drop(self.put(&Item::Vote(*vote))?),
                Change::Committed(position) => drop(self.put(&Item::Committed(*position))?),
                Change::Truncate(last) => {
                    let next = |position: Option<LogPosition>| position.map_or(0, |position| position.index + 1);
                    let cut = next(self.tail.written.last).saturating_sub(next(*last));
                    if let Some(observer) = self.observer.as_ref().filter(|_| cut > 0) {
                        observer.truncated(cut);
                    }
                    if !Mutant::TruncationNotWritten.is_on() {
                        drop(self.put(&Item::Truncate(*last))?);
                    }
                }
                Change::Purge(through) => drop(self.put(&Item::Purge(*through))?),
                Change::Close => {
                    // The mark promises what is before it, so that must be durable first.
                    self.flush()?;
                    self.put(&Item::Mark(Mark::Closed))?;
                }
            }
        }
        self.flush()?;
        Ok(placed)
    }

    /// What can wait until those who wait for the commit have been told.
    pub(super) fn tidy(&mut self) -> io::Result<()> {
        self.remove_purged()?;
        self.prepare_ahead()
    }

    /// Waits for the helper thread, so that nobody writes to the folder after the log is closed.
    pub(super) fn finish(&mut self) {
        if let Spare::Making(making) = std::mem::replace(&mut self.tail.spare, Spare::None) {
            // Whatever came of it: the next opening looks for itself.
            let _ = making.join();
        }
    }

    pub(super) fn disk_bytes(&self) -> u64 {
        let spare = match &self.tail.spare {
            Spare::Ready(spare) => spare.capacity,
            Spare::None | Spare::Making(_) => 0,
        };
        let used: usize = self.tail.used.iter().map(|used| used.segment.capacity).sum();
        (used + spare) as u64
    }

    /// Encodes one frame behind the ones that wait, moving on to the next segment where it does not fit.
    fn put(&mut self, item: &Item) -> io::Result<Place> {
        let bytes_max = HEADER_BYTES + item.body_bytes_max();
        let fits =
            self.tail.used.back().is_some_and(|used| {
                self.tail.offset + self.buffer.len() + bytes_max + SEAL_BYTES <= used.segment.capacity
            });
        if self.tail.sealed || !fits {
            self.roll(bytes_max)?;
        }
        self.encode(item)
    }

    fn encode(&mut self, item: &Item) -> io::Result<Place> {
        let start = self.buffer.len();
        let synced = u32::try_from(self.tail.offset).map_err(io::Error::other)?;
        self.tail.chain.put(&mut self.buffer, item.kind(), synced, |out| item.encode(out))?;
        self.tail.written.apply(item);
        let used = self.tail.used.back_mut().ok_or_else(|| io::Error::other("no segment to write to"))?;
        if let Item::Entry(record) = item {
            used.index_max = used.index_max.max(Some(record.id.index));
        }
        let (offset, bytes) = (self.tail.offset + start, self.buffer.len() - start);
        Ok(Place { segment: used.segment.clone(), offset, bytes })
    }

    /// Writes and syncs what is encoded.
    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let used = self.tail.used.back().ok_or_else(|| io::Error::other("no segment to write to"))?;
        used.segment.file.write_at(&self.buffer, self.tail.offset as u64)?;
        let before = Instant::now();
        let mutant = if self.buffered_records > 0 { Mutant::AcknowledgeBeforeSync } else { Mutant::VoteNotSynced };
        if !mutant.is_on() {
            used.segment.file.sync_data()?;
        }
        if let Some(observer) = &self.observer {
            observer.synced(before.elapsed(), self.buffer.len(), self.buffered_records);
            observer.promised(&self.tail.written);
        }
        self.tail.offset += self.buffer.len();
        self.buffer.clear();
        // One huge batch must not hold its memory for ever.
        self.buffer.shrink_to(1 << 20);
        self.buffered_records = 0;
        Ok(())
    }

    /// Goes on in the next segment, which gets room for a frame of `bytes`.
    fn roll(&mut self, bytes: usize) -> io::Result<()> {
        if !self.tail.sealed && !self.tail.used.is_empty() {
            self.flush()?;
            self.encode(&Item::Seal)?;
            self.flush()?;
            self.tail.sealed = true;
        }
        let number = self.tail.used.back().map_or(1, |used| used.segment.number + 1);
        let mut next = self.next_segment(number)?;
        next.grow(HEADER_BYTES + SMALL_BODY_BYTES_MAX + bytes + SEAL_BYTES)?;
        let head = Item::Head(Head { file_bytes: next.capacity as u64, state: self.tail.written });
        self.tail.used.push_back(Used { segment: Arc::new(next), index_max: None });
        self.tail.chain.segment = number;
        self.tail.offset = 0;
        self.tail.sealed = false;
        self.ask_again_at = 0;
        self.encode(&head).map(drop)
    }

    fn next_segment(&mut self, number: u64) -> io::Result<Segment> {
        match std::mem::replace(&mut self.tail.spare, Spare::None) {
            Spare::Ready(spare) => return Ok(spare),
            Spare::Making(making) => match join(making) {
                // There may be room again by now, and without a segment this is the end.
                Err(error) if is_full(&error) => {}
                made => return made,
            },
            Spare::None => {}
        }
        Segment::create(&*self.disk, number, self.segment_bytes)
    }

    /// Has the next segment made before it is needed.
    fn prepare_ahead(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.tail.spare, Spare::None) {
            Spare::Making(making) if making.is_finished() => return self.prepared(join(making)),
            other @ (Spare::Making(_) | Spare::Ready(_)) => {
                self.tail.spare = other;
                return Ok(());
            }
            Spare::None => {}
        }
        let Some(used) = self.tail.used.back() else { return Ok(()) };
        if self.tail.offset < (used.segment.capacity / 2).max(self.ask_again_at) {
            return Ok(());
        }
        let (disk, number, bytes) = (self.disk.clone(), used.segment.number + 1, self.segment_bytes);
        let make = move || Segment::create(&*disk, number, bytes);
        match self.threading {
            Threading::Inline => self.prepared(make()),
            Threading::Thread => {
                let thread = std::thread::Builder::new().name("wal-prepare".to_owned()).spawn(make)?;
                self.tail.spare = Spare::Making(thread);
                Ok(())
            }
        }
    }

    fn prepared(&mut self, made: io::Result<Segment>) -> io::Result<()> {
        match made {
            Ok(segment) => self.tail.spare = Spare::Ready(segment),
            // No promise is broken by a full disk as long as this segment has room; by its end there may be space again.
            Err(error) if is_full(&error) => {
                tracing::warn!("no room on disk for the next segment of the write-ahead log");
                self.ask_again_at = self.tail.offset + self.segment_bytes / 16;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes the segments that hold nothing above the purged position.
    fn remove_purged(&mut self) -> io::Result<()> {
        let Some(purged) = self.tail.written.purged else { return Ok(()) };
        while self.tail.used.len() > 1
            && self.tail.used.front().is_some_and(|used| used.index_max.is_none_or(|max| max <= purged.index))
        {
            let Some(oldest) = self.tail.used.pop_front() else { break };
            self.disk.remove(&segment::path(oldest.segment.number))?;
            self.disk.sync_dir(segment::DIR)?;
        }
        Ok(())
    }
}

fn join(making: JoinHandle<io::Result<Segment>>) -> io::Result<Segment> {
    making.join().unwrap_or_else(|_| Err(io::Error::other("the thread that prepares segments panicked")))
}

impl WalState {
    /// What one more frame makes of the state. The writer and recovery share it, so that a head always says what a
    /// replay of everything before it would.
    pub(super) fn apply(&mut self, item: &Item) {
        match item {
            Item::Head(head) => *self = head.state,
            Item::Entry(record) => self.last = Some(record.id),
            Item::Vote(vote) => self.vote = Some(*vote),
            Item::Committed(position) => self.committed = *position,
            Item::Truncate(last) => self.last = *last,
            Item::Mark(_) | Item::Seal => {}
            Item::Purge(through) => {
                self.purged = Some(*through);
                if self.last.is_none_or(|last| last.index < through.index) {
                    self.last = Some(*through);
                }
            }
        }
    }
}

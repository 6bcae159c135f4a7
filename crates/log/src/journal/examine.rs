//! Looking at every byte of a journal, and going on behind what is damaged: whoever checks a history wants to know which entries are
//! concerned, not only that some byte of some file is wrong.

use std::ops::RangeInclusive;

use super::{
    JournalError, JournalSummary, filling,
    format::{self, BlockHead, BlockPlace, Hash, Head, Seal},
    io_error, is_gone,
    recovery::{begins, block, follows},
};
use crate::{
    disk::{Below, Disk, SharedDisk, read_all},
    encoding::Malformed,
    frame::{Family, Frame, NoFrame, Walk, frame_at},
};

/// Something in the files of a journal that is not what was written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFault {
    pub file: String,
    pub offset: u64,
    pub what: String,
    /// The last entry before it; none if it is before the first.
    pub after: Option<u64>,
    /// The entries that are concerned: the first, and the last if that can be told. None: only what is between two entries.
    pub entries: Option<(u64, Option<u64>)>,
    /// A newer program wrote it.
    pub newer: bool,
}

impl From<JournalFault> for JournalError {
    fn from(JournalFault { file, offset, what, newer, .. }: JournalFault) -> Self {
        match newer {
            true => Self::Newer { file, offset, what },
            false => Self::Damaged { file, offset, what },
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Examined {
    pub(super) summary: JournalSummary,
    pub(super) faults: Vec<JournalFault>,
}

/// Everything that is wrong with the journal in a folder, and with what was fetched of what it lacks. A torn end that nobody was promised is not: a
/// node that opens it goes on before it. `tell` hears how many of how many bytes have been read.
pub fn journal_faults(disk: &SharedDisk, mut tell: impl FnMut(u64, u64)) -> Result<Vec<JournalFault>, JournalError> {
    let parts = filling::all_parts(disk)?;
    let mut total = bytes_of(&**disk)?;
    for part in &parts {
        total += bytes_of(&below(disk, part))?;
    }
    let mut done = 0;
    let mut read = |bytes: u64| {
        done += bytes;
        tell(done, total);
    };
    let mut faults = examine_telling(&**disk, None, None, &mut read)?.faults;
    for part in &parts {
        let part = below(disk, part);
        let found = examine_telling(&part, None, None, &mut read)?.faults;
        let placed = |fault: JournalFault| JournalFault { file: format!("{}/{}", part.dir, fault.file), ..fault };
        faults.extend(found.into_iter().map(placed));
    }
    Ok(faults)
}

fn below(disk: &SharedDisk, part: &RangeInclusive<u64>) -> Below {
    Below { disk: disk.clone(), dir: filling::name(*part.start(), *part.end()) }
}

/// The numbers of the segments, in order.
fn numbers(disk: &dyn Disk) -> Result<Vec<u64>, JournalError> {
    let names = match disk.list(format::DIR) {
        Err(error) if is_gone(&error) => Vec::new(),
        names => names.map_err(io_error("list the folder journal/"))?,
    };
    let mut numbers = Vec::new();
    for name in names {
        match format::parse_name(&name) {
            Some((number, false)) => numbers.push(number),
            Some((_, true)) => {}
            None => return Err(JournalError::ForeignFile { file: format!("{}/{name}", format::DIR) }),
        }
    }
    Ok(numbers)
}

fn bytes_of(disk: &dyn Disk) -> Result<u64, JournalError> {
    let len = |number: u64| {
        let path = format::path(number);
        let len = disk.open(&path, false).and_then(|file| file.len());
        len.map_err(io_error(format!("open {path}")))
    };
    numbers(disk)?.into_iter().map(len).sum()
}

/// Reads and checks every segment, or those up to `newest`, of which, if it is not sealed, only the first `end` bytes count.
pub(super) fn examine(disk: &dyn Disk, newest: Option<u64>, end: Option<u64>) -> Result<Examined, JournalError> {
    examine_telling(disk, newest, end, &mut |_| {})
}

/// The same; `tell` hears how many bytes each segment has.
fn examine_telling(
    disk: &dyn Disk,
    newest: Option<u64>,
    end: Option<u64>,
    tell: &mut dyn FnMut(u64),
) -> Result<Examined, JournalError> {
    let mut numbers = numbers(disk)?;
    numbers.retain(|number| newest.is_none_or(|newest| *number <= newest));
    let mut examiner = Examiner::default();
    for (nth, number) in numbers.iter().copied().enumerate() {
        if let Some(before) = nth.checked_sub(1).map(|before| numbers[before])
            && before + 1 != number
        {
            examiner.path = format::path(before + 1);
            examiner.fault(0, "the file is missing");
            examiner.lose();
        }
        examiner.path = format::path(number);
        let path = &examiner.path;
        let file = disk.open(path, false).map_err(io_error(format!("open {path}")))?;
        let mut bytes = read_all(&*file).map_err(io_error(format!("read {path}")))?;
        let last = newest.map_or(nth + 1 == numbers.len(), |newest| number == newest);
        if let Some(end) = end.filter(|_| last) {
            bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        }
        examiner.segment(&bytes, number, last, last && newest.is_none());
        tell(bytes.len() as u64);
    }
    Ok(examiner.found)
}

/// What has been seen so far.
#[derive(Default)]
struct Examiner {
    path: String,
    chain: Hash,
    link: Option<u32>,
    last: Option<(u64, Hash)>,
    places: Vec<BlockPlace>,
    /// How many faults there were before this segment.
    faults_before: usize,
    /// After damage nobody knows what the next piece should be chained to; it says itself which entry it begins with.
    lost: bool,
    /// The fault whose end is not known yet.
    open: Option<usize>,
    found: Examined,
}

impl Examiner {
    fn fault(&mut self, offset: usize, what: impl Into<String>) {
        let after = self.last.map(|(last, _)| last);
        let entries = Some((after.map_or(1, |after| after + 1), None));
        self.open = Some(self.found.faults.len());
        let (file, offset) = (self.path.clone(), offset as u64);
        self.found.faults.push(JournalFault { file, offset, what: what.into(), after, entries, newer: false });
    }

    fn lose(&mut self) {
        self.lost = true;
        self.link = None;
    }

    /// What is intact again goes on with the entry `first`, and goes to `last`.
    fn close(&mut self, first: u64, last: Option<u64>) {
        let Some(fault) = self.open.take().and_then(|open| self.found.faults.get_mut(open)) else { return };
        let Some((began, _)) = fault.entries else { return };
        fault.entries = match first.cmp(&began) {
            std::cmp::Ordering::Greater => Some((began, Some(first - 1))),
            std::cmp::Ordering::Equal => None,
            // It goes back: what is out of place is what comes here.
            std::cmp::Ordering::Less => last.map(|last| (first, Some(last))),
        };
    }

    /// `may_be_torn`: a torn end is cut, as a node that opens it would.
    fn segment(&mut self, bytes: &[u8], number: u64, last: bool, may_be_torn: bool) {
        let mut walk = Walk::new(bytes, Family::Journal, number, self.link);
        let mut sealed = false;
        self.places.clear();
        self.faults_before = self.found.faults.len();
        loop {
            loop {
                match walk.next_frame() {
                    Ok(Some(frame)) => sealed |= self.frame(&frame),
                    Ok(None) => break,
                    Err(error) => {
                        self.fault(walk.offset, error.to_string());
                        if let Some(fault) = self.found.faults.last_mut() {
                            fault.newer = true;
                        }
                        self.lose();
                        return;
                    }
                }
            }
            if walk.offset == bytes.len() || (may_be_torn && !sealed && walk.first_promise().is_none()) {
                break;
            }
            let again = next_intact(bytes, walk.offset, number);
            let what = match again == Some(walk.offset) {
                true => "the frame is not chained to the one before it",
                false => "there is no valid frame",
            };
            self.fault(walk.offset, what);
            self.lose();
            match again {
                Some(again) => (walk.offset, walk.link) = (again, None),
                None => break,
            }
        }
        if !sealed && !last && self.open.is_none() {
            self.fault(walk.offset, "it has no seal, and another segment follows it");
            self.lose();
        }
        if !self.lost {
            self.link = walk.link;
        }
        self.found.summary.segments += 1;
    }

    /// Takes a frame that is intact. True if it is a seal.
    fn frame(&mut self, frame: &Frame<'_>) -> bool {
        let taken = match frame.kind {
            format::HEAD if frame.offset == 0 => self.head(frame),
            format::BLOCK => self.block(frame),
            format::MARK => Ok(()),
            format::INDEX => self.index(frame),
            format::SEAL => self.seal(frame),
            kind => {
                self.fault(
                    frame.offset,
                    format!("record kind {kind} is not known to this program, or not in its place"),
                );
                if let Some(fault) = self.found.faults.last_mut() {
                    fault.newer = true;
                }
                Ok(())
            }
        };
        if let Err(error) = taken {
            self.fault(frame.offset, error.to_string());
            self.lost = true;
        }
        frame.kind == format::SEAL
    }

    fn head(&mut self, frame: &Frame<'_>) -> Result<(), Malformed> {
        let head = Head::decode(frame.body)?;
        let base = head.base.map_or(0, |(index, _)| index);
        let checked = match self.link {
            _ if frame.segment == 1 => begins(&head, frame.link),
            Some(link) if !self.lost => follows(&head, frame.link, self.chain, link, self.last),
            _ => Ok(()),
        };
        self.close(base + 1, None);
        self.found.summary.gaps += u64::from(head.gap);
        if let Err(error) = checked {
            self.fault(frame.offset, error.to_string());
            self.close(base + 1, None);
        }
        self.chain = format::hash(frame.body);
        self.last = head.base;
        self.lost = false;
        Ok(())
    }

    fn block(&mut self, frame: &Frame<'_>) -> Result<(), Malformed> {
        let (expected, last) = (self.chain, self.last.map(|(index, _)| index));
        let head = BlockHead::decode(&mut crate::encoding::Fields(frame.body))?;
        self.close(head.first, Some(head.last()));
        // Some logs count from 0 on.
        let goes_on = last.map_or(head.first <= 1, |last| head.first == last + 1);
        let placed = match self.lost {
            true => block(frame, head.chain, None),
            false => block(frame, expected, last),
        };
        let placed = placed.and_then(|(_, place)| match goes_on || self.lost {
            true => Ok(place),
            false => {
                Err(Malformed("nothing says what is before the block, and it does not begin with the first entry"))
            }
        });
        let entries = (head.first, Some(head.last()));
        match placed {
            Ok(place) => self.places.push(place),
            Err(error) => {
                self.fault(frame.offset, error.to_string());
                match goes_on {
                    false => self.close(head.first, Some(head.last())),
                    true => self.name(entries),
                }
            }
        }
        if let Err(error) = format::unpack(frame.body) {
            self.fault(frame.offset, error.to_string());
            self.name(entries);
        }
        self.chain = format::hash(frame.body);
        self.last = Some((head.last(), head.last_hash));
        self.lost = false;
        self.found.summary.blocks += 1;
        self.found.summary.records += u64::from(head.count);
        Ok(())
    }

    /// Says of the newest fault which entries it is about.
    fn name(&mut self, entries: (u64, Option<u64>)) {
        self.open = None;
        if let Some(fault) = self.found.faults.last_mut() {
            fault.entries = Some(entries);
        }
    }

    fn index(&mut self, frame: &Frame<'_>) -> Result<(), Malformed> {
        let places = format::decode_index(frame.body)?;
        // Of a damaged segment it knows more than was found here. A crash while sealing leaves an index, and the segment may go on behind it.
        let damaged = self.found.faults.len() > self.faults_before;
        match damaged || places.iter().zip(&self.places).all(|(says, has)| says == has) {
            true => Ok(()),
            false => Err(Malformed("the index does not say where the blocks are")),
        }
    }

    fn seal(&mut self, frame: &Frame<'_>) -> Result<(), Malformed> {
        let seal = Seal::decode(frame.body)?;
        if self.lost {
            self.close(seal.last.map_or(1, |(last, _)| last + 1), None);
        } else if seal.chain != self.chain || seal.last != self.last {
            return Err(Malformed("the seal does not say what the segment adds up to"));
        }
        self.chain = seal.chain;
        self.last = seal.last;
        Ok(())
    }
}

/// Where the next frame of this segment is that is intact, whatever it is chained to.
fn next_intact(bytes: &[u8], from: usize, number: u64) -> Option<usize> {
    let mut at = from;
    while let Some(found) = bytes.get(at..).and_then(crate::frame::find_magic) {
        at += found;
        match frame_at(bytes, at, Family::Journal) {
            Ok(frame) if frame.segment == number => return Some(at),
            Err(NoFrame::Newer(_)) => return Some(at),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        disk::ModelDisk,
        encoding::PutFields as _,
        frame::Chain,
        journal::{
            Journal,
            retention::tests::{SMALL, record},
        },
    };

    /// How careful somebody is who takes the beginning away.
    #[derive(Clone, Copy, Debug)]
    struct Care {
        /// Every hash is computed anew.
        chained: bool,
        says_before: Before,
    }

    /// What the new first segment says of what is before it.
    #[derive(Clone, Copy, Debug)]
    enum Before {
        AsItDid,
        Nothing,
        /// That a snapshot stood in for it.
        Snapshot,
    }

    /// The later segments of a journal of a hundred entries as the only ones, numbered from 1 on, with right checksums; and the first entry there.
    fn renumbered(care: Care) -> (ModelDisk, u64) {
        let whole = ModelDisk::new(1);
        let journal = Journal::open(Arc::new(whole.reopen()), SMALL).unwrap();
        (1..=100).for_each(|index| journal.append(record(index)).unwrap());
        let gone = journal.sealed_segments()[1].last;
        drop(journal);
        let altered = ModelDisk::new(2);
        altered.reopen().create_dir(format::DIR).unwrap();
        let (mut link, mut chain) = (0, Hash::default());
        for number in 3.. {
            let Ok(file) = whole.reopen().open(&format::path(number), false) else { break };
            let bytes = read_all(&*file).unwrap();
            let mut frames = Chain { family: Family::Journal, segment: number - 2, link };
            let (mut out, mut places, mut index_at) = (Vec::new(), Vec::new(), 0);
            let mut walk = Walk::new(&bytes, Family::Journal, number, None);
            while let Some(frame) = walk.next_frame().unwrap() {
                let mut body = frame.body.to_vec();
                match frame.kind {
                    format::HEAD => {
                        let mut head = Head::decode(frame.body).unwrap();
                        if care.chained {
                            head.chain = chain;
                        }
                        match care.says_before {
                            Before::Nothing if number == 3 => head.base = None,
                            Before::Snapshot if number == 3 => head.gap = true,
                            _ => {}
                        }
                        body.clear();
                        head.encode(&mut body);
                    }
                    format::BLOCK => {
                        if care.chained {
                            body[..32].copy_from_slice(&chain);
                        }
                        let head = BlockHead::decode(&mut crate::encoding::Fields(&body)).unwrap();
                        let bytes = (frame.end() - frame.offset) as u32;
                        places.push(BlockPlace {
                            first: head.first,
                            count: head.count,
                            offset: out.len() as u32,
                            bytes,
                        });
                    }
                    format::INDEX => {
                        body.clear();
                        format::encode_index(&places, &mut body);
                        index_at = out.len() as u32;
                    }
                    format::SEAL => {
                        let seal = Seal::decode(frame.body).unwrap();
                        let chain = if care.chained { chain } else { seal.chain };
                        body.clear();
                        Seal { index_offset: index_at, chain, ..seal }.encode(&mut body);
                    }
                    _ => {}
                }
                if matches!(frame.kind, format::HEAD | format::BLOCK) {
                    chain = format::hash(&body);
                }
                let synced = frame.synced.min(out.len() as u32);
                frames.put(&mut out, frame.kind, synced, |out| out.put_raw(&body)).unwrap();
            }
            link = frames.link;
            altered.reopen().open(&format::path(number - 2), true).unwrap().write_at(&out, 0).unwrap();
        }
        (altered, gone + 1)
    }

    #[test]
    fn a_beginning_that_was_taken_away_is_missed_also_where_the_rest_is_numbered_anew() {
        for (chained, says_before, opens) in [
            (false, Before::AsItDid, false),
            (true, Before::AsItDid, false),
            (false, Before::Snapshot, false),
            // That nothing is before the first block is only seen when it is read.
            (true, Before::Nothing, true),
        ] {
            let care = Care { chained, says_before };
            let (disk, first) = renumbered(care);
            let disk: SharedDisk = Arc::new(disk.reopen());
            let faults = journal_faults(&disk, |_, _| {}).unwrap();
            let found = faults.first().map(|fault| (fault.file.clone(), fault.entries));
            assert_eq!(found, Some((format::path(1), Some((1, Some(first - 1))))), "{care:?}: {faults:?}");
            assert_eq!(Journal::open(disk, SMALL).is_ok(), opens, "{care:?}");
        }
        // A folder is not signed: one that was made anew as a whole looks like that of a node that joined.
        let (disk, _) = renumbered(Care { chained: true, says_before: Before::Snapshot });
        let disk: SharedDisk = Arc::new(disk.reopen());
        assert_eq!(journal_faults(&disk, |_, _| {}).unwrap(), []);
    }
}

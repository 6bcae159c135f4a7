//! What a journal lacks, and what was fetched of it from elsewhere.
//!
//! A snapshot that was installed, or a folder that came back without its past, leaves a gap in the journal. Its segments are never rewritten,
//! so what fills a gap goes into a journal of its own, in a folder that is named after the gap: `filled/FIRST-LAST/`. It is built up like any
//! journal and survives a restart half done. Only when it is whole, and ends with the very hash that the journal knew all along, do readers
//! find it.
//!
//! Not here: where the records come from, and whether each of them follows from the one before; the hashes are the caller's.

use std::{ops::RangeInclusive, sync::Arc};

use super::{Hash, Journal, JournalError, JournalOptions, JournalRecord, io_error, is_gone};
use crate::{
    disk::{Below, SharedDisk, ensure_dir},
    lock,
};

const DIR: &str = "filled";
const DIGITS: usize = 20;

/// Entries that a journal lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    pub first: u64,
    pub last: u64,
    /// The hash after the entry before the first; none if that is the first of all.
    pub before: Option<[u8; 32]>,
    /// The hash after the last entry.
    pub after: [u8; 32],
}

/// A gap that is filled: a journal with just these entries.
#[derive(Clone, Debug)]
pub(super) struct Filled {
    /// What was lacking, after which its folder is named.
    pub(super) gap: RangeInclusive<u64>,
    /// What is there of it: its beginning may have been let go.
    pub(super) entries: RangeInclusive<u64>,
    pub(super) journal: Journal,
}

/// A gap that is being filled.
#[derive(Debug)]
pub struct Filling {
    gap: Gap,
    whole: Journal,
    part: Journal,
}

pub(super) fn name(first: u64, last: u64) -> String {
    format!("{DIR}/{first:0DIGITS$}-{last:0DIGITS$}")
}

fn parse_name(name: &str) -> Option<RangeInclusive<u64>> {
    let (first, last) = name.split_once('-')?;
    let number = |text: &str| (text.len() == DIGITS).then(|| text.parse::<u64>().ok()).flatten();
    Some(number(first)?..=number(last)?)
}

fn open_part(disk: &SharedDisk, first: u64, last: u64, options: JournalOptions) -> Result<Journal, JournalError> {
    Journal::open(Arc::new(Below { disk: disk.clone(), dir: name(first, last) }), options)
}

/// Everything that was ever filled or begun, oldest first. Of what was removed, the empty folder is still there.
fn parts(disk: &SharedDisk) -> Result<Vec<RangeInclusive<u64>>, JournalError> {
    let names = disk.list(DIR).map_err(io_error("list the folder filled/"))?;
    let parsed = |name: String| parse_name(&name).ok_or(JournalError::ForeignFile { file: format!("{DIR}/{name}") });
    names.into_iter().map(parsed).collect()
}

/// The same of a folder that may never have had a gap.
pub(super) fn all_parts(disk: &SharedDisk) -> Result<Vec<RangeInclusive<u64>>, JournalError> {
    match disk.exists(DIR).map_err(io_error("look for the folder filled/"))? {
        true => parts(disk),
        false => Ok(Vec::new()),
    }
}

impl Journal {
    /// Finds the gaps that were filled before.
    pub(super) fn open_filled(&self) -> Result<(), JournalError> {
        let (disk, options) = self.disk_and_options();
        if !disk.exists(DIR).map_err(io_error("look for the folder filled/"))? {
            return Ok(());
        }
        // The newest first: where the beginning of one was let go and fetched again, that part leads to the rest of the other.
        for entries in parts(&disk)?.into_iter().rev() {
            let part = open_part(&disk, *entries.start(), *entries.end(), options)?;
            if !self.take_filled(&part, &entries)? && self.hash_at(*entries.end())?.is_none() {
                // What it led to has been let go: nothing can tell any more whether it is right.
                part.close()?;
                remove_part(&disk, &entries)?;
            }
        }
        Ok(())
    }

    /// Lets readers find it, if it leads where this journal goes on. It is filled from its beginning, so it is whole when it ends there;
    /// what it lacks then at its beginning was let go.
    fn take_filled(&self, part: &Journal, gap: &RangeInclusive<u64>) -> Result<bool, JournalError> {
        let known = self.hash_at(*gap.end())?;
        let Some(first) = part.first_index().filter(|first| gap.contains(first)) else { return Ok(false) };
        if part.last_index() != Some(*gap.end()) || known.is_none() || part.hash_at(*gap.end())? != known {
            return Ok(false);
        }
        let mut filled = lock(&self.shared.filled);
        filled.push(Filled { gap: gap.clone(), entries: first..=*gap.end(), journal: part.clone() });
        filled.sort_by_key(|filled| *filled.entries.start());
        Ok(true)
    }

    /// What is lacking, the oldest first.
    pub fn gaps(&self) -> Result<Vec<Gap>, JournalError> {
        let mut gaps = Vec::new();
        let mut next = 1;
        let end = self.last_index().unwrap_or(0);
        for stretch in self.stretches().into_iter().chain([end + 1..=end + 1]) {
            if *stretch.start() > next {
                let last = *stretch.start() - 1;
                let before = if next > 1 { self.hash_at(next - 1)? } else { None };
                // Where nothing is known of its end, nothing could tell whether what fills it is right.
                if let Some(after) = self.hash_at(last)?
                    && (before.is_some() || next == 1)
                {
                    gaps.push(Gap { first: next, last, before, after });
                }
            }
            next = *stretch.end() + 1;
        }
        Ok(gaps)
    }

    /// Begins to fill a gap, or goes on where that was left.
    pub fn fill(&self, gap: Gap) -> Result<Filling, JournalError> {
        let (disk, options) = self.disk_and_options();
        for dir in [DIR, &name(gap.first, gap.last)] {
            ensure_dir(&*disk, dir).map_err(io_error(format!("create the folder {dir}/")))?;
        }
        let part = open_part(&disk, gap.first, gap.last, options)?;
        if part.last_index().is_none()
            && let Some(before) = gap.before
        {
            part.start_after(gap.first - 1, before)?;
        }
        Ok(Filling { gap, whole: self.clone(), part })
    }

    /// Throws away what was begun and belongs to none of these gaps: nobody will go on with it. Not while anything else is being filled.
    pub fn discard_unfinished(&self, except: &[Gap]) -> Result<(), JournalError> {
        let (disk, _) = self.disk_and_options();
        // Nothing is let go meanwhile: that would be in the folder, and not be known as filled any more.
        let _syncing = lock(&self.shared.syncing);
        if !disk.exists(DIR).map_err(io_error("look for the folder filled/"))? {
            return Ok(());
        }
        let filled: Vec<RangeInclusive<u64>> =
            lock(&self.shared.filled).iter().map(|filled| filled.gap.clone()).collect();
        let goes_on = |part: &RangeInclusive<u64>| except.iter().any(|gap| *part == (gap.first..=gap.last));
        for part in parts(&disk)?.iter().filter(|part| !filled.contains(part) && !goes_on(part)) {
            remove_part(&disk, part)?;
        }
        Ok(())
    }

    /// What there is of the gaps that were filled, oldest first.
    pub fn filled_gaps(&self) -> Vec<RangeInclusive<u64>> {
        lock(&self.shared.filled).iter().map(|filled| filled.entries.clone()).collect()
    }

    fn disk_and_options(&self) -> (SharedDisk, JournalOptions) {
        let inner = lock(&self.shared.inner);
        (inner.disk.clone(), inner.options)
    }

    /// The filled gap that holds this entry.
    pub(super) fn filled_at(&self, index: u64) -> Option<Filled> {
        lock(&self.shared.filled).iter().find(|filled| filled.entries.contains(&index)).cloned()
    }

    /// The first entry behind this one that is in a filled gap.
    pub(super) fn filled_after(&self, index: u64) -> Option<u64> {
        lock(&self.shared.filled).iter().map(|filled| *filled.entries.start()).find(|start| *start > index)
    }
}

impl Filling {
    pub fn gap(&self) -> &Gap {
        &self.gap
    }

    /// The entry that comes next.
    pub fn next(&self) -> u64 {
        self.part.last_index().map_or(self.gap.first, |last| last + 1)
    }

    /// The hash after the entry before that; none if that is the first of all.
    pub fn hash(&self) -> Result<Option<Hash>, JournalError> {
        match self.part.last_index() {
            Some(last) => self.part.hash_at(last),
            None => Ok(self.gap.before),
        }
    }

    /// The time of the entry before that; none if that is the first of all.
    pub fn time_ms(&self) -> Result<Option<u64>, JournalError> {
        let (journal, before) = match self.part.last_index().filter(|last| *last >= self.gap.first) {
            Some(last) => (&self.part, last),
            None if self.gap.first == 1 => return Ok(None),
            None => (&self.whole, self.gap.first - 1),
        };
        Ok(journal.read(before, 1)?.first().map(|record| record.time_ms))
    }

    /// Adds what comes next. The caller has made sure that it follows from what is before it. It is durable after [`Self::sync`]: what a
    /// power cut takes is added again.
    pub fn add(&self, records: Vec<JournalRecord>) -> Result<(), JournalError> {
        for record in records {
            let (index, last) = (record.index, self.next() - 1);
            if index != last + 1 || index > self.gap.last {
                return Err(JournalError::OutOfOrder { index, last });
            }
            self.part.append(record)?;
        }
        Ok(())
    }

    pub fn sync(&self) -> Result<(), JournalError> {
        self.part.sync()
    }

    pub fn is_complete(&self) -> bool {
        self.next() > self.gap.last
    }

    /// Lets readers find it if it is right. If it is not, it is thrown away: false.
    pub fn finish(self) -> Result<bool, JournalError> {
        // Nothing is added any more.
        self.part.seal()?;
        if self.whole.take_filled(&self.part, &(self.gap.first..=self.gap.last))? {
            return Ok(true);
        }
        self.discard()?;
        Ok(false)
    }

    /// Throws away what has come so far.
    pub fn discard(self) -> Result<(), JournalError> {
        let (disk, _) = self.whole.disk_and_options();
        self.part.close()?;
        remove_part(&disk, &(self.gap.first..=self.gap.last))
    }
}

/// Removes the segments of a filled gap; the empty folders cost nothing.
pub(super) fn remove_part(disk: &SharedDisk, entries: &RangeInclusive<u64>) -> Result<(), JournalError> {
    let dir = format!("{}/{}", name(*entries.start(), *entries.end()), super::format::DIR);
    let files = match disk.list(&dir) {
        // It was never begun.
        Err(error) if is_gone(&error) => return Ok(()),
        files => files,
    };
    let removed = files.and_then(|files| {
        // The newest first: what a power cut leaves of it is the beginning of a journal.
        for file in files.into_iter().rev() {
            disk.remove(&format!("{dir}/{file}"))?;
            disk.sync_dir(&dir)?;
        }
        Ok(())
    });
    removed.map_err(io_error(format!("empty the folder {dir}/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{Disk as _, ModelDisk};
    use crate::journal::retention::tests::{SMALL, record};

    fn records(range: RangeInclusive<u64>) -> Vec<JournalRecord> {
        range.map(record).collect()
    }

    fn open(disk: &ModelDisk) -> Journal {
        Journal::open(Arc::new(disk.reopen()), SMALL).unwrap()
    }

    /// Entries 41 to 60 and 81 on: a lost beginning, and a gap.
    fn with_gaps(disk: &ModelDisk) -> Journal {
        let journal = open(disk);
        journal.start_after(40, record(40).hash).unwrap();
        for record in records(41..=60) {
            journal.append(record).unwrap();
        }
        journal.start_after(80, record(80).hash).unwrap();
        for record in records(81..=120) {
            journal.append(record).unwrap();
        }
        journal.sync().unwrap();
        journal
    }

    fn gap(first: u64, last: u64) -> Gap {
        let before = (first > 1).then(|| record(first - 1).hash);
        Gap { first, last, before, after: record(last).hash }
    }

    #[test]
    fn what_is_lacking_is_known_and_filled_in_any_order() {
        let disk = ModelDisk::new(1);
        let journal = with_gaps(&disk);
        assert_eq!(journal.gaps().unwrap(), [gap(1, 40), gap(61, 80)]);
        assert_eq!(journal.stretches(), [41..=60, 81..=120]);
        let filling = journal.fill(gap(61, 80)).unwrap();
        assert_eq!((filling.next(), filling.hash().unwrap()), (61, Some(record(60).hash)));
        filling.add(records(61..=80)).unwrap();
        assert!(filling.is_complete());
        // Nobody finds it before it is finished.
        assert_eq!(journal.stretches(), [41..=60, 81..=120]);
        assert!(filling.finish().unwrap());
        assert_eq!(journal.stretches(), [41..=120]);
        assert_eq!(journal.gaps().unwrap(), [gap(1, 40)]);
        assert_eq!(journal.read(50, usize::MAX).unwrap(), records(50..=120));
        let missing = journal.read(7, 100).unwrap_err();
        assert!(matches!(missing, JournalError::Missing { index: 7, next: Some(41) }), "{missing}");

        // Half of the beginning, a restart, and the rest.
        let filling = journal.fill(gap(1, 40)).unwrap();
        assert_eq!((filling.next(), filling.hash().unwrap()), (1, None));
        filling.add(records(1..=15)).unwrap();
        drop((filling, journal));
        let journal = open(&disk);
        assert_eq!(journal.gaps().unwrap(), [gap(1, 40)]);
        let filling = journal.fill(gap(1, 40)).unwrap();
        assert_eq!((filling.next(), filling.hash().unwrap()), (16, Some(record(15).hash)));
        assert!(matches!(filling.add(records(17..=18)), Err(JournalError::OutOfOrder { index: 17, last: 15 })));
        filling.add(records(16..=40)).unwrap();
        assert!(matches!(filling.add(records(41..=41)), Err(JournalError::OutOfOrder { .. })));
        assert!(filling.finish().unwrap());
        for journal in [journal, open(&disk)] {
            assert_eq!((journal.first_index(), journal.gaps().unwrap()), (Some(1), vec![]));
            assert_eq!(journal.stretches(), [1..=120]);
            assert_eq!(journal.read(1, usize::MAX).unwrap(), records(1..=120));
            assert_eq!(journal.hash_at(70).unwrap(), Some(record(70).hash));
            assert_eq!(journal.verify().unwrap().records, 120);
            // In parts, too, across the borders.
            let mut next = 1;
            while next <= 120 {
                let part = journal.read(next, 300).unwrap();
                assert!(!part.is_empty());
                assert_eq!(part, records(next..=next + part.len() as u64 - 1));
                next += part.len() as u64;
            }
        }
    }

    #[test]
    fn what_does_not_lead_to_the_known_hash_is_thrown_away() {
        let disk = ModelDisk::new(1);
        let journal = with_gaps(&disk);
        let filling = journal.fill(gap(61, 80)).unwrap();
        filling.add(records(61..=79)).unwrap();
        filling.add(vec![JournalRecord { hash: [7; 32], ..record(80) }]).unwrap();
        assert!(!filling.finish().unwrap());
        assert_eq!(journal.gaps().unwrap(), [gap(1, 40), gap(61, 80)]);
        // And from the beginning again.
        let filling = journal.fill(gap(61, 80)).unwrap();
        assert_eq!(filling.next(), 61);
        filling.add(records(61..=80)).unwrap();
        assert!(filling.finish().unwrap());
        assert_eq!(journal.read(61, usize::MAX).unwrap(), records(61..=120));
    }

    #[test]
    fn a_power_cut_while_it_is_filled_loses_nothing_that_was_there() {
        for seed in 0..15 {
            for cut_at in 1..30 {
                let disk = ModelDisk::new(seed);
                drop(with_gaps(&disk));
                disk.cut_power_at(cut_at);
                let journal = Journal::open(Arc::new(disk.reopen()), SMALL);
                let filled = journal.and_then(|journal| {
                    let filling = journal.fill(gap(61, 80))?;
                    filling.add(records(61..=70))?;
                    filling.add(records(71..=80))?;
                    filling.finish()
                });
                disk.power_cut();
                let journal = open(&disk);
                if filled.is_err() {
                    let filling = journal.fill(gap(61, 80)).unwrap();
                    let next = filling.next();
                    filling.add(records(next..=80)).unwrap();
                    assert!(filling.finish().unwrap(), "seed {seed}, cut at {cut_at}");
                }
                assert_eq!(journal.read(41, usize::MAX).unwrap(), records(41..=120), "seed {seed}, cut at {cut_at}");
            }
        }
    }

    #[test]
    fn what_was_filled_goes_with_what_is_let_go() {
        let disk = ModelDisk::new(1);
        let journal = with_gaps(&disk);
        let filling = journal.fill(gap(1, 40)).unwrap();
        filling.add(records(1..=40)).unwrap();
        assert!(filling.finish().unwrap());
        let bytes = journal.disk_bytes();
        let segments = journal.sealed_segments();
        assert!(segments[1].last < 40, "it has several segments itself: {segments:?}");
        // Only the beginning of what was filled, and not one segment more.
        assert_eq!(journal.let_go(segments[1].last).unwrap(), 2);
        assert_eq!(journal.disk_bytes(), bytes - segments[0].bytes - segments[1].bytes);
        let first = segments[1].last + 1;
        drop(journal);
        let journal = open(&disk);
        assert_eq!(journal.stretches(), [first..=60, 81..=120]);
        assert_eq!(journal.read(first, usize::MAX).unwrap(), records(first..=60));
        assert_eq!(journal.sealed_segments()[..2], segments[2..4]);
        // Then all of it.
        journal.let_go(40).unwrap();
        assert_eq!(journal.first_index(), Some(41));
        drop(journal);
        assert_eq!(open(&disk).first_index(), Some(41));
    }

    #[test]
    fn a_power_cut_while_it_is_let_go_leaves_a_journal_that_can_be_read_to_its_end() {
        for seed in 0..15 {
            for cut_at in 1..20 {
                let disk = ModelDisk::new(seed);
                let journal = with_gaps(&disk);
                let filling = journal.fill(gap(1, 40)).unwrap();
                filling.add(records(1..=40)).unwrap();
                assert!(filling.finish().unwrap());
                let through = if seed % 2 == 0 { 60 } else { 30 };
                disk.cut_power_at(cut_at);
                let _ = journal.let_go(through);
                disk.power_cut();
                drop(journal);
                let journal = open(&disk);
                for stretch in journal.stretches() {
                    let read = journal.read(*stretch.start(), usize::MAX).unwrap();
                    assert_eq!(read, records(stretch), "seed {seed}, cut at {cut_at}");
                }
                journal.verify().unwrap();
                assert_eq!(journal.last_index(), Some(120));
                // It goes on where it was.
                journal.let_go(through).unwrap();
                assert!(journal.first_index() > Some(through - 20), "seed {seed}, cut at {cut_at}");
            }
        }
    }

    #[test]
    fn a_beginning_that_was_fetched_again_is_there_after_a_restart() {
        let disk = ModelDisk::new(1);
        let journal = with_gaps(&disk);
        let filling = journal.fill(gap(1, 40)).unwrap();
        filling.add(records(1..=40)).unwrap();
        assert!(filling.finish().unwrap());
        let cut = journal.sealed_segments()[0].last;
        journal.let_go(cut).unwrap();
        // Only the rest of what was filled before knows where it leads.
        assert_eq!(journal.gaps().unwrap(), [gap(1, cut), gap(61, 80)]);
        let filling = journal.fill(gap(1, cut)).unwrap();
        filling.add(records(1..=cut)).unwrap();
        assert!(filling.finish().unwrap());
        for journal in [journal, open(&disk)] {
            assert_eq!(journal.stretches(), [1..=60, 81..=120]);
            assert_eq!(journal.read(1, usize::MAX).unwrap(), records(1..=60));
            assert_eq!(journal.filled_gaps(), [1..=cut, cut + 1..=40]);
        }
    }

    #[test]
    fn what_was_begun_is_kept_for_as_long_as_somebody_goes_on_with_it() {
        let disk = ModelDisk::new(1);
        let journal = with_gaps(&disk);
        for (gap, count) in [(gap(1, 40), 15), (gap(61, 80), 10)] {
            let first = gap.first;
            let filling = journal.fill(gap).unwrap();
            filling.add(records(first..=first + count)).unwrap();
        }
        journal.discard_unfinished(&journal.gaps().unwrap()).unwrap();
        assert_eq!(journal.fill(gap(1, 40)).unwrap().next(), 17);
        journal.discard_unfinished(&[gap(61, 80)]).unwrap();
        assert_eq!(journal.fill(gap(1, 40)).unwrap().next(), 1);
        let filling = journal.fill(gap(61, 80)).unwrap();
        filling.add(records(72..=80)).unwrap();
        assert!(filling.finish().unwrap());
        // What is finished is no business of this.
        journal.discard_unfinished(&[]).unwrap();
        assert_eq!(journal.stretches(), [41..=120]);
        drop(journal);
        assert_eq!(open(&disk).stretches(), [41..=120]);
    }

    #[test]
    fn what_nothing_can_vouch_for_any_more_is_removed() {
        let disk = ModelDisk::new(1);
        let journal = with_gaps(&disk);
        let filling = journal.fill(gap(1, 40)).unwrap();
        filling.add(records(1..=15)).unwrap();
        filling.sync().unwrap();
        drop(filling);
        journal.let_go(80).unwrap();
        drop(journal);
        let part = name(1, 40) + "/journal";
        assert!(!disk.list(&part).unwrap().is_empty());
        let journal = open(&disk);
        assert_eq!(journal.stretches(), [81..=120]);
        assert!(disk.list(&part).unwrap().is_empty());
    }
}

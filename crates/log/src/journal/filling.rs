//! What a journal lacks, and what was fetched of it from elsewhere.
//!
//! A snapshot that was installed, or a folder that came back without its past, leaves a gap in the journal. Its segments are never rewritten,
//! so what fills a gap goes into a journal of its own, in a folder that is named after the gap: `filled/FIRST-LAST/`. It is built up like any
//! journal and survives a restart half done. Only when it is whole, and ends with the very hash that the journal knew all along, do readers
//! find it. One that was whole and was let go leaves a mark in its folder, so that nobody fetches it again only to let it go again.
//!
//! Not here: where the records come from, and whether each of them follows from the one before; the hashes are the caller's.

#[cfg(test)]
mod tests;

use std::{ops::RangeInclusive, sync::Arc};

use super::{Hash, Journal, JournalError, JournalOptions, JournalRecord, io_error, is_gone};
use crate::{
    disk::{Below, SharedDisk, ensure_dir, replace_file},
    lock,
};

const DIR: &str = "filled";
const DIGITS: usize = 20;
/// The mark, an empty file.
const LET_GO: &str = "let-go";

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

impl Filled {
    /// An error in there, with the file as it is called from the data folder: each of these journals has segments of the same names.
    pub(super) fn placed(&self, error: JournalError) -> JournalError {
        match error {
            JournalError::Damaged { file, offset, what } => JournalError::Damaged {
                file: format!("{}/{file}", name(*self.gap.start(), *self.gap.end())),
                offset,
                what,
            },
            other => other,
        }
    }
}

/// A gap that is being filled.
#[derive(Debug)]
pub struct Filling {
    gap: Gap,
    was_let_go: bool,
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
    /// what it lacks then at its beginning was let go, here or by everybody else before it was fetched.
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
        Ok(Filling { was_let_go: self.was_let_go(&gap)?, gap, whole: self.clone(), part })
    }

    /// Whether all of this gap was filled before, and then let go.
    pub fn was_let_go(&self, gap: &Gap) -> Result<bool, JournalError> {
        let (disk, _) = self.disk_and_options();
        let mark = format!("{}/{LET_GO}", name(gap.first, gap.last));
        disk.exists(&mark).map_err(io_error(format!("look for the file {mark}")))
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

    /// See [`Journal::was_let_go`].
    pub fn was_let_go(&self) -> bool {
        self.was_let_go
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

    /// Leaves out what is before this entry, because nobody has it any more; `before` is the hash after the one before it. Only before
    /// anything has come. What comes from there on is right if it leads to the end of the gap.
    pub fn begin_later(&self, first: u64, before: Hash) -> Result<(), JournalError> {
        let last = self.next() - 1;
        if self.part.first_index().is_some() || first <= self.next() || first > self.gap.last {
            return Err(JournalError::OutOfOrder { index: first, last });
        }
        self.part.start_after(first - 1, before)
    }

    /// The time of the entry before that; none if nobody knows, or that is the first of all.
    pub fn time_ms(&self) -> Result<Option<u64>, JournalError> {
        let (journal, before) = match self.part.last_index().filter(|last| *last >= self.gap.first) {
            Some(_) if self.part.first_index().is_none() => return Ok(None),
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

    /// Whether nothing has come yet.
    pub fn is_untouched(&self) -> bool {
        self.next() == self.gap.first
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

/// Says, before a filled gap is removed, that it is let go: what is only thrown away is to be fetched again.
pub(super) fn mark_let_go(disk: &SharedDisk, entries: &RangeInclusive<u64>) -> Result<(), JournalError> {
    let dir = name(*entries.start(), *entries.end());
    let mark = format!("{dir}/{LET_GO}");
    replace_file(&**disk, &dir, &mark, &[]).map_err(io_error(format!("write {mark}")))
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

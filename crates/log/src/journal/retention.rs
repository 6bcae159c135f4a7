//! Letting old segments go: whole ones, sealed, the oldest first, one after the other.
//!
//! What is left stays a journal: its first segment says in its head after which entry it begins, and with which hash.
//!
//! Not here: which ones may go.

use std::io;

use super::{Journal, JournalError, filling, format};
use crate::lock;

/// A segment that is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSegment {
    /// The last entry that it accounts for.
    pub last: u64,
    pub bytes: u64,
}

impl Journal {
    /// The sealed segments, oldest first, with those of filled gaps, to which nothing is added either.
    pub fn sealed_segments(&self) -> Vec<JournalSegment> {
        let parts = lock(&self.shared.filled).clone();
        let filled = parts.iter().flat_map(|filled| {
            let sealed = filled.journal.sealed_segments();
            let bytes = filled.journal.disk_bytes() - sealed.iter().map(|segment| segment.bytes).sum::<u64>();
            let open = JournalSegment { last: *filled.entries.end(), bytes };
            sealed.into_iter().chain((bytes > 0).then_some(open))
        });
        let inner = lock(&self.shared.inner);
        let shown = |segment: &super::SealedSegment| JournalSegment {
            last: segment.last.unwrap_or_default(),
            bytes: segment.bytes,
        };
        let mut segments: Vec<JournalSegment> = inner.sealed.iter().map(shown).chain(filled).collect();
        segments.sort_by_key(|segment| segment.last);
        segments
    }

    /// The entry after which the journal begins, if a snapshot stood in for it from the beginning on and nothing was let go since.
    pub fn begins_with_a_snapshot(&self) -> Option<u64> {
        let inner = lock(&self.shared.inner);
        let oldest = inner.sealed.first().map(|segment| segment.number);
        let oldest = oldest.or_else(|| inner.current.as_ref().map(|current| current.segment.number));
        // Segments are numbered from 1 on.
        let (base, _) = inner.bases.first().filter(|_| oldest == Some(1))?;
        Some(*base)
    }

    /// The segment that is appended to: its first entry, and how many bytes it has.
    pub fn open_segment(&self) -> Option<(u64, u64)> {
        let inner = lock(&self.shared.inner);
        let current = inner.current.as_ref()?;
        Some((current.places.first()?.first, current.len))
    }

    /// Seals that segment before it is full, so that it can go when its time comes.
    pub fn seal(&self) -> Result<(), JournalError> {
        let _syncing = lock(&self.shared.syncing);
        let mut inner = self.usable()?;
        inner.guarded(|inner| {
            inner.write_block()?;
            inner.seal()
        })
    }

    /// Lets every sealed segment go that holds nothing behind this entry, and says how many that were. The newest segment always
    /// stays: it knows how the journal goes on.
    pub fn let_go(&self, through: u64) -> Result<u64, JournalError> {
        let _syncing = lock(&self.shared.syncing);
        let mut gone = self.let_filled_go(through)?;
        loop {
            let mut inner = self.usable()?;
            if inner.removal_unsure {
                let source = io::Error::other("an earlier removal may not have reached the disk; a restart tells");
                return Err(JournalError::Io { doing: "remove old segments".to_owned(), source });
            }
            let goes = |inner: &super::Inner| {
                let oldest = inner.sealed.first().copied()?;
                let others = inner.sealed.len() > 1 || inner.current.is_some();
                (others && oldest.last.is_none_or(|last| last <= through)).then_some(oldest)
            };
            let Some(oldest) = goes(&inner) else { return Ok(gone) };
            // First nobody finds it any more, then it goes.
            inner.sealed.remove(0);
            inner.blocks.retain(|block| block.segment.number != oldest.number);
            inner.bases.retain(|(base, _)| Some(*base) >= oldest.last);
            let disk = inner.disk.clone();
            drop(inner);
            let path = format::path(oldest.number);
            if let Err(source) = disk.remove(&path) {
                // The next attempt begins with it again: were it forgotten, that would remove the one behind it, and leave a hole.
                lock(&self.shared.inner).sealed.insert(0, oldest);
                return Err(JournalError::Io { doing: format!("remove {path}"), source });
            }
            // One by one: a power cut must not leave a hole between two that stay. A sync that failed may say yes the next time without
            // having done anything, so there is no next time.
            if let Err(source) = disk.sync_dir(format::DIR) {
                lock(&self.shared.inner).removal_unsure = true;
                return Err(JournalError::Io { doing: format!("remove {path}"), source });
            }
            gone += 1;
        }
    }

    fn let_filled_go(&self, through: u64) -> Result<u64, JournalError> {
        let disk = self.usable()?.disk.clone();
        let mut gone = 0;
        loop {
            let mut filled = lock(&self.shared.filled);
            let Some(place) = filled.iter().position(|filled| *filled.entries.end() <= through) else { break };
            let oldest = filled.remove(place);
            drop(filled);
            oldest.journal.close()?;
            filling::mark_let_go(&disk, &oldest.gap)?;
            filling::remove_part(&disk, &oldest.gap)?;
            gone += 1;
        }
        // The last one may only lose its beginning.
        let Some(cut) = self.filled_at(through) else { return Ok(gone) };
        let cut_off = cut.journal.let_go(through);
        // Also if that failed half way: what is gone must not be looked for there.
        let first = cut.journal.first_index();
        for filled in lock(&self.shared.filled).iter_mut().filter(|filled| filled.gap == cut.gap) {
            filled.entries = first.unwrap_or(*cut.entries.start())..=*cut.entries.end();
        }
        Ok(gone + cut_off?)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::disk::{Disk as _, ModelDisk};
    use crate::journal::{JournalOptions, JournalRecord};

    pub(in crate::journal) const SMALL: JournalOptions = JournalOptions { segment_bytes: 1_500, block_bytes: 400 };

    pub(in crate::journal) fn record(index: u64) -> JournalRecord {
        let hash = format::hash(&index.to_le_bytes());
        let entry = Bytes::from(hash.repeat(3));
        JournalRecord { index, time_ms: index, hash, entry, events: Bytes::new(), keys: vec![].into() }
    }

    fn filled(disk: &ModelDisk, through: u64) -> Journal {
        let journal = Journal::open(Arc::new(disk.reopen()), SMALL).unwrap();
        for index in 1..=through {
            journal.append(record(index)).unwrap();
        }
        journal.sync().unwrap();
        journal
    }

    /// What is left is a whole journal from some entry on.
    fn check_rest(journal: &Journal, last: u64) -> u64 {
        let first = journal.first_index().unwrap();
        let read = journal.read(first, usize::MAX).unwrap();
        assert_eq!(read, (first..=last).map(record).collect::<Vec<_>>());
        assert_eq!(journal.verify().unwrap().records, last - first + 1);
        assert_eq!(journal.hash_at(first - 1).unwrap(), (first > 1).then(|| record(first - 1).hash));
        first
    }

    #[test]
    fn whole_segments_go_oldest_first_and_what_is_left_is_a_journal() {
        let disk = ModelDisk::new(1);
        let journal = filled(&disk, 200);
        let segments = journal.sealed_segments();
        assert!(segments.len() > 5, "{segments:?}");
        let bytes = journal.disk_bytes();
        // Not one that holds something behind the entry.
        assert_eq!(journal.let_go(segments[0].last - 1).unwrap(), 0);
        assert_eq!(journal.let_go(segments[1].last).unwrap(), 2);
        assert_eq!(journal.disk_bytes(), bytes - segments[0].bytes - segments[1].bytes);
        assert_eq!(check_rest(&journal, 200), segments[1].last + 1);
        let gone = journal.read(3, 100).unwrap_err();
        assert!(
            matches!(gone, JournalError::Missing { index: 3, next } if next == Some(segments[1].last + 1)),
            "{gone}"
        );
        // Entries that are applied again after a crash are not there to be compared with, and that is no divergence.
        journal.append(record(3)).unwrap();
        drop(journal);
        let journal = Journal::open(Arc::new(disk.reopen()), SMALL).unwrap();
        assert_eq!(check_rest(&journal, 200), segments[1].last + 1);
        // The newest stays, whatever is asked for.
        journal.let_go(u64::MAX).unwrap();
        journal.append(record(201)).unwrap();
        journal.sync().unwrap();
        check_rest(&journal, 201);
        assert_eq!(disk.reopen().list("journal").unwrap().len(), 1);
    }

    #[test]
    fn a_segment_is_sealed_before_it_is_full_if_somebody_asks() {
        let disk = ModelDisk::new(1);
        let large = JournalOptions { segment_bytes: 1 << 20, block_bytes: 400 };
        let journal = Journal::open(Arc::new(disk.reopen()), large).unwrap();
        assert_eq!(journal.open_segment(), None);
        journal.seal().unwrap();
        for index in 1..=100 {
            journal.append(record(index)).unwrap();
            if index % 30 == 0 {
                journal.seal().unwrap();
            }
        }
        journal.sync().unwrap();
        let lasts: Vec<u64> = journal.sealed_segments().iter().map(|segment| segment.last).collect();
        assert_eq!((lasts, journal.open_segment().map(|(first, _)| first)), (vec![30, 60, 90], Some(91)));
        assert_eq!(journal.let_go(75).unwrap(), 2);
        assert_eq!(check_rest(&journal, 100), 61);
        drop(journal);
        let journal = Journal::open(Arc::new(disk.reopen()), large).unwrap();
        assert_eq!(check_rest(&journal, 100), 61);
    }

    #[test]
    fn a_power_cut_while_they_go_leaves_no_hole() {
        for seed in 0..20 {
            for cut_at in 1..10 {
                let disk = ModelDisk::new(seed);
                let journal = filled(&disk, 100);
                let through = journal.sealed_segments()[3].last;
                disk.cut_power_at(cut_at);
                let _ = journal.let_go(through);
                disk.power_cut();
                drop(journal);
                let journal = Journal::open(Arc::new(disk.reopen()), SMALL).unwrap();
                check_rest(&journal, 100);
            }
        }
    }

    #[test]
    fn nothing_more_goes_before_a_restart_after_a_removal_that_may_not_be_durable() {
        for seed in 0..20 {
            let disk = ModelDisk::new(seed);
            let journal = filled(&disk, 100);
            let segments = journal.sealed_segments();
            disk.fail_sync(1);
            for _ in 0..2 {
                assert!(journal.let_go(segments[2].last).is_err());
                // The one that was being removed is found by nobody, and the next one is still there.
                assert_eq!(journal.first_index(), Some(segments[0].last + 1));
            }
            if seed % 2 == 1 {
                disk.power_cut();
            }
            drop(journal);
            let journal = Journal::open(Arc::new(disk.reopen()), SMALL).unwrap();
            check_rest(&journal, 100);
            journal.let_go(segments[2].last).unwrap();
            assert_eq!(check_rest(&journal, 100), segments[2].last + 1);
        }
    }

    #[test]
    fn a_reader_that_was_on_its_way_is_told_where_it_goes_on() {
        let disk = ModelDisk::new(1);
        let journal = filled(&disk, 200);
        let through = journal.sealed_segments()[2].last;
        let block = lock(&journal.shared.inner).blocks[0].clone();
        journal.let_go(through).unwrap();
        assert!(journal.shared.cache.records(&block).is_err());
        assert!(matches!(journal.read(1, 100), Err(JournalError::Missing { .. })));
    }
}

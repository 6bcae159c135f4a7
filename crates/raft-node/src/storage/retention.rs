//! How much of the journal this node keeps, as the group has set it: see the settings `journal_retention` and `journal_bytes_max`.
//!
//! Looked at whenever a snapshot has been taken, because only what a snapshot stands in for may go: the rest can be replayed from there.
//! Whole segments go, so that a node keeps a little more than it has to, never less. How much more, is bounded: a segment that holds
//! a good part of what may be kept is sealed before it is full.

use loadline_log::{JournalError, JournalSegment};
use loadline_state_machine::{JournalLimits, State};

use super::{Storage, causes};

/// What may be kept is in so many segments at least, and only one of them is kept too long.
const PARTS: u64 = 8;

/// Lets go what need not be kept any more, and says how many segments that were. What cannot be read or removed costs space and nothing
/// else, and the next snapshot tries again; after a removal that may not have reached the disk, only a restart does. A segment that cannot be sealed is a write that failed: the journal takes nothing more then.
pub(super) fn let_go(storage: &Storage, state: &State) -> u64 {
    let limits = state.journal_limits();
    if limits.is_none() {
        return 0;
    }
    try_let_go(storage, limits, state.now().as_millis()).unwrap_or_else(|error| {
        tracing::warn!("old segments of the journal could not be let go: {}", causes(&error));
        0
    })
}

fn try_let_go(storage: &Storage, limits: JournalLimits, now_ms: u64) -> Result<u64, JournalError> {
    let (journal, snapshots) = (&storage.journal, &storage.snapshots);
    let time_of = |index: u64| match journal.read(index, 1) {
        Ok(records) => Ok(records.first().filter(|record| record.index == index).map(|record| record.time_ms)),
        Err(JournalError::Missing { .. }) => Ok(None),
        // It is there: that it cannot be read just now does not make it old.
        Err(error) => Err(error),
    };
    if let Some((first, bytes)) = journal.open_segment()
        && is_large(bytes, time_of(first)?, limits, now_ms)
    {
        journal.seal()?;
    }
    let segments = journal.sealed_segments();
    let last_snapshot = snapshots.latest().and_then(|file| file.meta().last).map_or(0, |last| last.index);
    let through = goes_through(&segments, journal.disk_bytes(), last_snapshot, limits, now_ms, time_of)?;
    let Some(through) = through else { return Ok(0) };
    let gone = journal.let_go(through)?;
    // From a state before what is left, nothing can be replayed any more.
    snapshots.forget_before(through);
    tracing::info!(segments = gone, through, "old segments of the journal were let go");
    Ok(gone)
}

/// Whether a segment that begins at this time and has so many bytes holds a good part of what may be kept.
fn is_large(bytes: u64, began_ms: Option<u64>, limits: JournalLimits, now_ms: u64) -> bool {
    let many = limits.bytes_max.is_some_and(|bytes_max| bytes > bytes_max / PARTS);
    let age_ms = now_ms.saturating_sub(began_ms.unwrap_or(now_ms));
    many || limits.age_max.is_some_and(|age_max| age_ms > age_max.as_millis() / PARTS)
}

/// The entry up to which everything may go; none if nothing may. A segment whose last entry is not there holds nothing to keep.
fn goes_through(
    segments: &[JournalSegment],
    mut bytes: u64,
    last_snapshot: u64,
    limits: JournalLimits,
    now_ms: u64,
    time_of: impl Fn(u64) -> Result<Option<u64>, JournalError>,
) -> Result<Option<u64>, JournalError> {
    let mut through = None;
    for segment in segments.iter().take_while(|segment| segment.last <= last_snapshot) {
        let too_many = limits.bytes_max.is_some_and(|bytes_max| bytes > bytes_max);
        let too_old = match limits.age_max {
            Some(age_max) => {
                time_of(segment.last)?.is_none_or(|time| time.saturating_add(age_max.as_millis()) < now_ms)
            }
            None => false,
        };
        if !too_many && !too_old {
            break;
        }
        bytes = bytes.saturating_sub(segment.bytes);
        through = Some(segment.last);
    }
    Ok(through)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use loadline_log::{JournalRecord, LogPosition, ModelDisk, SnapshotMeta};
    use loadline_state_machine::Span;

    use super::*;
    use crate::config::NodeConfig;

    #[track_caller]
    fn check(age_ms: u64, bytes_max: u64, last_snapshot: u64, expected: Option<u64>) {
        // Ten entries each, of a hundred bytes; an entry is as old as its index says.
        let segments: Vec<JournalSegment> = (1..=5).map(|nth| JournalSegment { last: nth * 10, bytes: 100 }).collect();
        let limits = JournalLimits {
            age_max: (age_ms > 0).then(|| Span::from_millis(age_ms)),
            bytes_max: (bytes_max > 0).then_some(bytes_max),
        };
        let through = goes_through(&segments, 520, last_snapshot, limits, 60, |index| Ok(Some(index)));
        assert_eq!(through.unwrap(), expected);
    }

    #[test]
    fn the_oldest_go_that_are_too_old_or_too_many() {
        check(0, 0, 60, None);
        check(100, 0, 60, None);
        check(50, 0, 60, None);
        check(49, 0, 60, Some(10));
        check(25, 0, 60, Some(30));
        check(1, 0, 60, Some(50));
        check(0, 520, 60, None);
        check(0, 519, 60, Some(10));
        check(0, 250, 60, Some(30));
        check(0, 1, 60, Some(50));
        check(25, 450, 60, Some(30));
        check(49, 250, 60, Some(30));
    }

    #[test]
    fn a_segment_is_sealed_when_it_holds_an_eighth_of_what_may_be_kept() {
        let limits = |age_ms: u64, bytes_max: u64| JournalLimits {
            age_max: (age_ms > 0).then(|| Span::from_millis(age_ms)),
            bytes_max: (bytes_max > 0).then_some(bytes_max),
        };
        for (age_ms, bytes_max, expected) in
            [(0, 0, false), (800, 0, false), (792, 0, true), (0, 800, false), (0, 792, true), (8_000, 792, true)]
        {
            let large = is_large(100, Some(900), limits(age_ms, bytes_max), 1_000);
            assert_eq!(large, expected, "{age_ms} ms, {bytes_max} bytes");
        }
    }

    #[test]
    fn nothing_goes_that_no_snapshot_stands_in_for() {
        check(1, 1, 35, Some(30));
        check(1, 1, 9, None);
    }

    #[test]
    fn what_cannot_be_read_just_now_is_not_taken_for_old() {
        let disk = ModelDisk::new(1);
        let config = NodeConfig::new("n1", "127.0.0.1:7");
        let storage = Storage::open(Arc::new(disk.clone()), &config, false, None).unwrap();
        for index in 1..=5 {
            let (entry, events, keys) = (Bytes::from_static(b"entry"), Bytes::new(), vec![]);
            let record = JournalRecord { index, time_ms: index * 10, hash: [1; 32], entry, events, keys: keys.into() };
            storage.journal.append(record).unwrap();
            storage.journal.seal().unwrap();
        }
        let meta = SnapshotMeta {
            last: Some(LogPosition { term: 1, node: 1, index: 5 }),
            membership_at: None,
            membership: Bytes::new(),
            state_hash: [1; 32],
            created_ms: 50,
            group: "g".to_owned(),
            incarnation: 0,
        };
        storage.snapshots.write(&meta, b"state").unwrap();
        let limits = JournalLimits { age_max: Some(Span::from_millis(25)), bytes_max: None };
        disk.fail_reads(true);
        assert!(try_let_go(&storage, limits, 50).is_err());
        assert_eq!(storage.journal.first_index(), Some(1));
        disk.fail_reads(false);
        assert_eq!(try_let_go(&storage, limits, 50).unwrap(), 2);
        assert_eq!(storage.journal.first_index(), Some(3));
    }
}

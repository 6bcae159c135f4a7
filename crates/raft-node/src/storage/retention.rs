//! How much of the journal this node keeps, as the group has set it: see the settings `journal_retention` and `journal_bytes_max`.
//!
//! Looked at whenever a snapshot has been taken, because only what a snapshot stands in for may go: the rest can be replayed from there.
//! Whole segments go, so that a node keeps a little more than it has to, never less. How much more, is bounded: a segment that holds
//! a good part of what may be kept is sealed before it is full.

use loadline_log::JournalSegment;
use loadline_state_machine::{JournalLimits, State};

use super::{Storage, causes};

/// What may be kept is in so many segments at least, and only one of them is kept too long.
const PARTS: u64 = 8;

/// Lets go what need not be kept any more, and says how many segments that were. A failure costs space and nothing else, and the next
/// snapshot tries again.
pub(super) fn let_go(storage: &Storage, state: &State) -> u64 {
    let limits = state.journal_limits();
    if limits.is_none() {
        return 0;
    }
    let (journal, snapshots) = (&storage.journal, &storage.snapshots);
    let time_of = |index: u64| {
        let records = journal.read(index, 1).ok()?;
        records.first().filter(|record| record.index == index).map(|record| record.time_ms)
    };
    let now = state.now().as_millis();
    if journal.open_segment().is_some_and(|(first, bytes)| is_large(bytes, time_of(first), limits, now))
        && let Err(error) = journal.seal()
    {
        tracing::warn!("a segment of the journal could not be sealed: {}", causes(&error));
        return 0;
    }
    let segments = journal.sealed_segments();
    let last_snapshot = snapshots.latest().and_then(|file| file.meta().last).map_or(0, |last| last.index);
    let Some(through) = goes_through(&segments, journal.disk_bytes(), last_snapshot, limits, now, time_of) else {
        return 0;
    };
    match journal.let_go(through) {
        Ok(gone) => {
            // From a state before what is left, nothing can be replayed any more.
            snapshots.forget_before(through);
            tracing::info!(segments = gone, through, "old segments of the journal were let go");
            gone
        }
        Err(error) => {
            tracing::warn!("old segments of the journal could not be let go: {}", causes(&error));
            0
        }
    }
}

/// Whether a segment that begins at this time and has so many bytes holds a good part of what may be kept.
fn is_large(bytes: u64, began_ms: Option<u64>, limits: JournalLimits, now_ms: u64) -> bool {
    let many = limits.bytes_max.is_some_and(|bytes_max| bytes > bytes_max / PARTS);
    let age_ms = now_ms.saturating_sub(began_ms.unwrap_or(now_ms));
    many || limits.age_max.is_some_and(|age_max| age_ms > age_max.as_millis() / PARTS)
}

/// The entry up to which everything may go; none if nothing may.
fn goes_through(
    segments: &[JournalSegment],
    mut bytes: u64,
    last_snapshot: u64,
    limits: JournalLimits,
    now_ms: u64,
    time_of: impl Fn(u64) -> Option<u64>,
) -> Option<u64> {
    let mut through = None;
    for segment in segments.iter().take_while(|segment| segment.last <= last_snapshot) {
        let too_many = limits.bytes_max.is_some_and(|bytes_max| bytes > bytes_max);
        let is_old = |age_max: u64| time_of(segment.last).is_none_or(|time| time.saturating_add(age_max) < now_ms);
        let too_old = limits.age_max.is_some_and(|age_max| is_old(age_max.as_millis()));
        if !too_many && !too_old {
            break;
        }
        bytes = bytes.saturating_sub(segment.bytes);
        through = Some(segment.last);
    }
    through
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::Span;

    use super::*;

    #[track_caller]
    fn check(age_ms: u64, bytes_max: u64, last_snapshot: u64, expected: Option<u64>) {
        // Ten entries each, of a hundred bytes; an entry is as old as its index says.
        let segments: Vec<JournalSegment> = (1..=5).map(|nth| JournalSegment { last: nth * 10, bytes: 100 }).collect();
        let limits = JournalLimits {
            age_max: (age_ms > 0).then(|| Span::from_millis(age_ms)),
            bytes_max: (bytes_max > 0).then_some(bytes_max),
        };
        assert_eq!(goes_through(&segments, 520, last_snapshot, limits, 60, Some), expected);
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
}

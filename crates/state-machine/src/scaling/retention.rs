//! How far back the rows of settled actions reach. The rows themselves are in the journal; here is which of them are still
//! to be shown, so that every node shows the same.
//!
//! A row goes when it is older than the retention, or when there are more than so many newer ones of the same cluster. The
//! first follows from its time. For the second every hundredth of the allowed rows is marked, which is exact enough and
//! keeps a busy cluster at a hundred marks.

use serde::{Deserialize, Serialize};

use crate::{LogIndex, Span, Time};

/// Marks for as many rows as are kept.
const MARKS: u64 = 100;

/// The settled actions of one cluster, dropped or not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActionHistory {
    /// How many there have been.
    pub rows: u64,
    /// Rows from before this index are no longer shown.
    pub floor: LogIndex,
    pub last_at: Time,
    /// When it is looked whether anything is left: put off when it comes, not at every row.
    pub(crate) due: Time,
    /// (How many rows there were before, the index of the next one), the oldest first.
    marks: Vec<(u64, LogIndex)>,
    /// Rows that somebody has deleted, by number, with when: in order, and not overlapping.
    deleted: Vec<Deleted>,
}

/// Numbers of rows, from the first to the last, that were deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Deleted {
    first: u64,
    last: u64,
    at: Time,
}

/// Of one cluster. It never has more rows to delete than are shown of it; what is beyond is older than the retention.
pub(crate) const DELETED_MAX: usize = 20_000;

impl ActionHistory {
    pub(crate) fn add(&mut self, index: LogIndex, now: Time, rows_max: u64) {
        let every = (rows_max / MARKS).max(1);
        let due = self.marks.last().is_none_or(|(before, _)| self.rows.saturating_sub(*before) >= every);
        // Several rows of one entry share its index and cannot be told apart by it.
        if due && self.marks.last().is_none_or(|(_, last)| *last < index) {
            self.marks.push((self.rows, index));
        }
        self.rows = self.rows.saturating_add(1);
        self.last_at = self.last_at.max(now);
        // The first mark with no more than `rows_max` rows after it is where what is shown begins.
        let kept_from = self.marks.partition_point(|(before, _)| self.rows - before > rows_max);
        let kept_from = kept_from.min(self.marks.len().saturating_sub(1));
        self.marks.drain(..kept_from);
        if let Some((before, index)) = self.marks.first()
            && *before > 0
        {
            self.floor = *index;
        }
    }

    /// Whether a row is still to be shown.
    pub fn shows(&self, number: u64, index: LogIndex, settled_at: Time, now: Time, retention: Span) -> bool {
        index >= self.floor && now.since(settled_at) <= retention && !self.is_deleted(number)
    }

    pub(crate) fn is_deleted(&self, number: u64) -> bool {
        let place = self.deleted.partition_point(|deleted| deleted.last < number);
        self.deleted.get(place).is_some_and(|deleted| deleted.first <= number)
    }

    /// How many marks of deleted rows there are that still matter.
    pub(crate) fn deleted_count(&self, now: Time, retention: Span) -> usize {
        self.deleted.iter().filter(|deleted| now.since(deleted.at) <= retention).count()
    }

    /// Takes rows out of what is shown. A row that was deleted longer ago than the retention is too old to be shown anyway, so its
    /// mark goes; a retention that is made longer afterwards may show it again.
    pub(crate) fn delete(&mut self, numbers: &[u64], now: Time, retention: Span) {
        self.deleted.retain(|deleted| now.since(deleted.at) <= retention);
        let new = numbers.iter().filter(|number| !self.is_deleted(**number));
        let mut all: Vec<Deleted> = new.map(|number| Deleted { first: *number, last: *number, at: now }).collect();
        all.append(&mut self.deleted);
        all.sort_by_key(|deleted| deleted.first);
        for next in all {
            match self.deleted.last_mut() {
                Some(last) if next.first <= last.last.saturating_add(1) && next.at == last.at => {
                    last.last = last.last.max(next.last);
                }
                _ => self.deleted.push(next),
            }
        }
    }

    /// When nothing of it will be left.
    pub(crate) fn gone_at(&self, retention: Span) -> Time {
        self.last_at + retention + Span::from_millis(1)
    }

    /// Whether this could have come about here.
    pub(crate) fn is_possible(&self) -> bool {
        self.marks.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1)
            && self.marks.iter().all(|(before, _)| *before <= self.rows)
            && self.deleted.windows(2).all(|pair| pair[0].last < pair[1].first)
            && self.deleted.iter().all(|deleted| deleted.first <= deleted.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_rows_stay_and_memory_does_not_grow() {
        let mut history = ActionHistory::default();
        let now = Time::from_millis(1);
        for index in 1..=50_000 {
            history.add(LogIndex(index), now, 10_000);
        }
        assert_eq!(history.rows, 50_000);
        assert!(history.marks.len() <= 101, "{}", history.marks.len());
        let shown = 50_001 - history.floor.0;
        assert!((9_900..=10_000).contains(&shown), "{shown} rows are shown");
        assert!(history.is_possible());
    }

    #[test]
    fn a_cluster_with_few_rows_shows_them_until_they_are_too_old() {
        let mut history = ActionHistory::default();
        history.add(LogIndex(7), Time::from_millis(1_000), 10_000);
        let retention = Span::from_secs(10);
        let shown = |now| history.shows(1, LogIndex(7), Time::from_millis(1_000), Time::from_millis(now), retention);
        assert!(shown(11_000));
        assert!(!shown(11_001));
        assert_eq!(history.gone_at(retention), Time::from_millis(11_001));
    }

    #[test]
    fn rows_that_were_deleted_are_not_shown_and_their_marks_go_when_they_are_too_old_anyway() {
        let mut history = ActionHistory::default();
        let retention = Span::from_secs(10);
        let at = Time::from_millis;
        for number in 1..=9 {
            history.add(LogIndex(number), at(1_000), 10_000);
        }
        history.delete(&[4, 2, 3, 8, 3], at(2_000), retention);
        let shown = |history: &ActionHistory| -> Vec<u64> {
            (1..=9).filter(|it| history.shows(*it, LogIndex(*it), at(1_000), at(2_000), retention)).collect()
        };
        assert_eq!(shown(&history), [1, 5, 6, 7, 9]);
        assert_eq!(history.deleted.len(), 2, "neighbours share a mark");
        history.delete(&[5, 8], at(3_000), retention);
        assert_eq!(shown(&history), [1, 6, 7, 9]);
        assert!(history.is_possible());
        history.delete(&[9], at(13_001), retention);
        assert_eq!(history.deleted.len(), 1, "the others are older than the retention");
    }
}

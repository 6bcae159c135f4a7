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
}

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
    pub fn shows(&self, index: LogIndex, settled_at: Time, now: Time, retention: Span) -> bool {
        index >= self.floor && now.since(settled_at) <= retention
    }

    /// When nothing of it will be left.
    pub(crate) fn gone_at(&self, retention: Span) -> Time {
        self.last_at + retention + Span::from_millis(1)
    }

    /// Whether this could have come about here.
    pub(crate) fn is_possible(&self) -> bool {
        self.marks.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1)
            && self.marks.iter().all(|(before, _)| *before <= self.rows)
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
        let shown = |now| history.shows(LogIndex(7), Time::from_millis(1_000), Time::from_millis(now), retention);
        assert!(shown(11_000));
        assert!(!shown(11_001));
        assert_eq!(history.gone_at(retention), Time::from_millis(11_001));
    }
}

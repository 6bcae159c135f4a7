//! Which snapshots stay as places at which a replay of the journal can begin.
//!
//! The journal grows for ever and snapshots must not, so the older ones get further apart: when there are too many, the one goes
//! whose neighbours are closest to each other.

use std::collections::BTreeSet;

use super::SnapshotsKept;

/// Of snapshots at these entries, oldest first, those that stay.
pub(super) fn kept(indexes: &[u64], keep: SnapshotsKept) -> BTreeSet<u64> {
    let (older, latest) = indexes.split_at(indexes.len().saturating_sub(keep.latest.max(1)));
    let mut starts: Vec<u64> = Vec::new();
    for index in older {
        if starts.last().is_none_or(|last| index - last >= keep.starts_every) {
            starts.push(*index);
        }
    }
    if keep.starts_max == 0 {
        starts.clear();
    }
    while starts.len() > keep.starts_max {
        let after = latest.first().copied().unwrap_or(u64::MAX);
        let between = |place: usize| starts.get(place + 1).copied().unwrap_or(after) - starts[place - 1];
        // Never the oldest: nothing else could stand in for what is before the second.
        match (1..starts.len()).min_by_key(|place| between(*place)) {
            Some(place) => drop(starts.remove(place)),
            None => break,
        }
    }
    starts.into_iter().chain(latest.iter().copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(indexes: &[u64], starts_max: usize, expected: &[u64]) {
        let keep = SnapshotsKept { latest: 2, starts_max, starts_every: 100 };
        assert_eq!(kept(indexes, keep).into_iter().collect::<Vec<_>>(), expected, "{indexes:?}");
    }

    #[test]
    fn the_latest_stay_and_older_ones_at_a_distance() {
        check(&[], 3, &[]);
        check(&[10], 3, &[10]);
        check(&[10, 20], 3, &[10, 20]);
        check(&[10, 20, 30], 3, &[10, 20, 30]);
        check(&[10, 20, 30, 40], 3, &[10, 30, 40]);
        check(&[10, 110, 150, 210, 220, 230], 3, &[10, 110, 210, 220, 230]);
        check(&[10, 110, 150, 210, 220, 230], 0, &[220, 230]);
        check(&[10, 110, 210, 220, 230], 1, &[10, 220, 230]);
    }

    #[test]
    fn however_long_it_goes_on_there_are_few_and_they_are_spread() {
        let keep = SnapshotsKept { latest: 2, starts_max: 8, starts_every: 100 };
        let mut indexes: Vec<u64> = Vec::new();
        for index in (10..100_000).step_by(10) {
            indexes.push(index);
            let stay = kept(&indexes, keep);
            indexes.retain(|index| stay.contains(index));
            assert!(indexes.len() <= 10);
        }
        assert_eq!(indexes[0], 10);
        let furthest = indexes.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(furthest < Some(50_000), "{indexes:?}");
    }
}

//! A table for finding one row among very many: a persistent hash table, forked in O(1).
//!
//! The ordered [`crate::table::Table`] compares its way through five nodes to one row in a hundred thousand, and little of
//! what it touches is in a cache: that was a quarter of what a signal cost. Here the hash of the key says where the row is. The
//! price is that rows have no order worth walking in; who needs one walks an ordered table and finds each row here.
//!
//! It grows and shrinks by one bucket at a time (linear hashing), so no single insert pays for all rows. How many buckets
//! there are follows from how many rows there are, and rows in a bucket are sorted: two tables with the same rows are the same
//! whatever happened to them before.

use std::sync::Arc;

use imbl::Vector;

/// A key that says where it is. The result must be the same on every machine, and every bit of the key must count.
pub(crate) trait Spread: Ord + Copy {
    fn spread(&self) -> u64;
}

/// Rows per bucket on the average. With more, writing to a fork copies more rows; with fewer, the list of buckets is too long
/// to stay in a cache.
const ROWS_PER_BUCKET: usize = 32;

/// By the hash of the key. The hash so says where in the bucket a row must be, give or take one or two.
type Bucket<K, V> = Arc<[(K, V)]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Index<K: Spread, V: Clone> {
    /// Never none once there was a row.
    buckets: Vector<Bucket<K, V>>,
    rows: usize,
}

impl<K: Spread, V: Clone> Default for Index<K, V> {
    fn default() -> Self {
        Self { buckets: Vector::new(), rows: 0 }
    }
}

impl<K: Spread, V: Clone> Index<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let (place, at) = self.find(key)?;
        Some(&self.buckets[place][at].1)
    }

    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (place, at) = self.find(key)?;
        Some(&mut Arc::make_mut(&mut self.buckets[place])[at].1)
    }

    /// The row to write to; made if there is none.
    pub(crate) fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let (place, at) = self.find(&key).unwrap_or_else(|| self.add(key, V::default()));
        &mut Arc::make_mut(&mut self.buckets[place])[at].1
    }

    /// Every row, in an order that means nothing, though it is the same everywhere.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.buckets.iter().flat_map(|bucket| bucket.iter().map(|(key, row)| (key, row)))
    }

    pub(crate) fn insert(&mut self, key: K, row: V) {
        match self.get_mut(&key) {
            Some(known) => *known = row,
            None => {
                self.add(key, row);
            }
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        let Some((place, _)) = self.find(key) else { return };
        let bucket = &mut self.buckets[place];
        *bucket = bucket.iter().filter(|(known, _)| known != key).cloned().collect();
        self.rows -= 1;
        if self.buckets.len() > bucket_count(self.rows) {
            self.merge();
        }
    }

    /// In which bucket a key is, and where in it.
    fn find(&self, key: &K) -> Option<(usize, usize)> {
        let place = place(key, self.buckets.len())?;
        let bucket = &self.buckets[place];
        let at = position(bucket, key);
        bucket.get(at).is_some_and(|(known, _)| known == key).then_some((place, at))
    }

    /// Adds a row that is not there, and answers where it is.
    fn add(&mut self, key: K, row: V) -> (usize, usize) {
        self.rows += 1;
        if self.buckets.len() < bucket_count(self.rows) {
            self.split();
        }
        let place = place(&key, self.buckets.len()).unwrap_or_default();
        let bucket = &mut self.buckets[place];
        let at = position(bucket, &key);
        let (before, after) = bucket.split_at(at);
        *bucket = before.iter().cloned().chain([(key, row)]).chain(after.iter().cloned()).collect();
        (place, at)
    }

    /// One bucket more: it gets its share of the one that it would be one with if there were half as many.
    fn split(&mut self) {
        let new = self.buckets.len();
        let mut moved = Vec::new();
        if let Some(twin) = twin(new) {
            let bucket = &mut self.buckets[twin];
            let goes = |(key, _): &(K, V)| place(key, new + 1) == Some(new);
            moved = bucket.iter().filter(|row| goes(row)).cloned().collect();
            *bucket = bucket.iter().filter(|row| !goes(row)).cloned().collect();
        }
        self.buckets.push_back(moved.into());
    }

    /// One bucket fewer: its rows go back to where they came from.
    fn merge(&mut self) {
        let Some(last) = self.buckets.pop_back() else { return };
        if let Some(twin) = twin(self.buckets.len()) {
            let bucket = &mut self.buckets[twin];
            let mut all: Vec<(K, V)> = bucket.iter().chain(last.iter()).cloned().collect();
            all.sort_unstable_by_key(|(key, _)| rank(key));
            *bucket = all.into();
        }
    }
}

/// The order in a bucket. Keys of one hash are told apart by themselves.
fn rank<K: Spread>(key: &K) -> (u64, K) {
    (key.spread(), *key)
}

/// Where in a bucket a key is, or would be: guessed from its hash, as one opens a dictionary, and then a few steps from there.
fn position<K: Spread, V>(bucket: &[(K, V)], key: &K) -> usize {
    let wanted = rank(key);
    let is_before = |(known, _): &(K, V)| rank(known) < wanted;
    let upper_half = wanted.0 >> 32;
    // It is below the length, so it fits.
    #[allow(clippy::cast_possible_truncation)]
    let mut at = ((upper_half * bucket.len() as u64) >> 32) as usize;
    while at < bucket.len() && is_before(&bucket[at]) {
        at += 1;
    }
    while at > 0 && !is_before(&bucket[at - 1]) {
        at -= 1;
    }
    at
}

fn bucket_count(rows: usize) -> usize {
    rows.div_ceil(ROWS_PER_BUCKET)
}

/// The bucket that shares its rows with the one at this place; the first shares with nobody.
fn twin(place: usize) -> Option<usize> {
    place.checked_ilog2().map(|highest_bit| place - (1 << highest_bit))
}

/// Which of `count` buckets the key is in.
fn place<K: Spread>(key: &K, count: usize) -> Option<usize> {
    let mask = count.checked_next_power_of_two().filter(|_| count > 0)? - 1;
    // The upper bits do not matter: there is no memory for so many buckets.
    #[allow(clippy::cast_possible_truncation)]
    let place = key.spread() as usize & mask;
    if place < count { Some(place) } else { twin(place) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Only three bits differ: many rows share a bucket whatever is done.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct Crowded(u16);

    impl Spread for Crowded {
        fn spread(&self) -> u64 {
            u64::from(self.0 % 8) * ((1 << 61) + 1)
        }
    }

    impl Spread for u64 {
        fn spread(&self) -> u64 {
            let mixed = self.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mixed ^ (mixed >> 32)
        }
    }

    fn check<K: Spread + std::fmt::Debug>(steps: Vec<(K, Option<u8>)>) {
        let mut index = Index::default();
        let mut expected = BTreeMap::new();
        let mut fork = None;
        for (number, (key, row)) in steps.into_iter().enumerate() {
            if number == 20 {
                fork = Some((index.clone(), expected.clone()));
            }
            match row {
                Some(row) => {
                    index.insert(key, row);
                    expected.insert(key, row);
                }
                None => {
                    index.remove(&key);
                    expected.remove(&key);
                }
            }
            assert_eq!(index.get(&key), expected.get(&key));
        }
        for (index, expected) in fork.into_iter().chain([(index, expected)]) {
            let walked: BTreeMap<K, u8> = index.iter().map(|(key, row)| (*key, *row)).collect();
            assert_eq!(walked, expected);
            assert!(expected.iter().all(|(key, row)| index.get(key) == Some(row)));
            assert_eq!((index.rows, index.buckets.len()), (expected.len(), bucket_count(expected.len())));
            let mut anew = Index::default();
            expected.iter().rev().for_each(|(key, row)| anew.insert(*key, *row));
            assert_eq!(index, anew, "how it came to be does not show");
        }
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_would_hold(steps in prop::collection::vec((0_u64..200, any::<Option<u8>>()), 0..600)) {
            check(steps);
        }

        #[test]
        fn it_holds_what_a_map_would_hold_where_many_keys_share_a_place(
            steps in prop::collection::vec((any::<u16>().prop_map(|key| Crowded(key % 64)), any::<Option<u8>>()), 0..300)
        ) {
            check(steps);
        }
    }

    #[test]
    fn a_bucket_holds_a_few_rows_however_many_there_are() {
        let mut index = Index::default();
        for key in 0..20_000_u64 {
            index.insert(key, ());
        }
        let longest = index.buckets.iter().map(|bucket| bucket.len()).max();
        assert!(longest <= Some(5 * ROWS_PER_BUCKET), "{longest:?}");
    }
}

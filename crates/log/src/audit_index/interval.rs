//! The keys of one interval of log indexes, and which of its records carry them.
//!
//! In memory while the interval is being filled, then one entry of sled for each key. So a key that every record carries costs
//! sled one write for the whole interval, and not one for each record.

use std::collections::BTreeMap;

use super::INTERVAL;
use crate::journal::JournalRecord;

/// Which records of an interval: a bit for each. A place in an interval is a byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bits([u64; (INTERVAL / 64) as usize]);

impl Bits {
    const BYTES: usize = (INTERVAL / 8) as usize;

    pub(super) fn set(&mut self, index: u64) {
        let place = index % INTERVAL;
        if let Some(word) = self.0.get_mut((place / 64) as usize) {
            *word |= 1 << (place % 64);
        }
    }

    /// Most keys are in one record of an interval: then a byte says which. As many as take up less room than the bits do are
    /// listed so, in their order.
    pub(super) fn encode(&self) -> Vec<u8> {
        let count: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        if count as usize >= Self::BYTES {
            return self.0.iter().flat_map(|word| word.to_be_bytes()).collect();
        }
        (0..=u8::MAX).filter(|place| self.has(*place)).collect()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut bits = Self::default();
        if bytes.len() == Self::BYTES {
            for (word, bytes) in bits.0.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *word = u64::from_be_bytes(*bytes);
            }
            return Some(bits);
        }
        for place in bytes {
            bits.set(u64::from(*place));
        }
        (bits.encode() == bytes).then_some(bits)
    }

    fn has(self, place: u8) -> bool {
        self.0.get(usize::from(place / 64)).is_some_and(|word| word >> (place % 64) & 1 == 1)
    }

    /// Newest first.
    pub(super) fn indexes(self, interval: u64) -> impl Iterator<Item = u64> {
        let places = (0..=u8::MAX).rev().filter(move |place| self.has(*place));
        places.map(move |place| interval * INTERVAL + u64::from(place))
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub(super) number: u64,
    pub(super) keys: BTreeMap<Vec<u8>, Bits>,
    /// The last record, and its hash.
    pub(super) last: u64,
    pub(super) hash: [u8; 32],
}

impl Interval {
    pub(super) fn starting_with(record: &JournalRecord) -> Self {
        let number = record.index / INTERVAL;
        let mut interval = Self { number, keys: BTreeMap::new(), last: record.index, hash: record.hash };
        interval.add(record);
        interval
    }

    pub(super) fn add(&mut self, record: &JournalRecord) {
        for key in record.keys.iter() {
            match self.keys.get_mut(key) {
                Some(bits) => bits.set(record.index),
                None => self.keys.entry(key.clone()).or_default().set(record.index),
            }
        }
        (self.last, self.hash) = (record.index, record.hash);
    }

    /// Indexes below `before` of records that carry a key beginning with `prefix`.
    pub(super) fn find(&self, prefix: &[u8], before: u64) -> impl Iterator<Item = u64> {
        let under = self.keys.range(prefix.to_vec()..).take_while(move |(key, _)| key.starts_with(prefix));
        under.flat_map(|(_, bits)| bits.indexes(self.number)).filter(move |index| *index < before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_read_back_as_they_were_set_and_newest_first() {
        let mut bits = Bits::default();
        for index in [512, 575, 576, 767] {
            bits.set(index);
        }
        assert_eq!(Bits::decode(&bits.encode()), Some(bits));
        assert_eq!(bits.indexes(2).collect::<Vec<_>>(), [767, 576, 575, 512]);
        assert_eq!(bits.encode(), [0, 63, 64, 255]);
        for index in 0..40 {
            bits.set(index);
            assert_eq!(Bits::decode(&bits.encode()), Some(bits));
        }
        assert_eq!(bits.encode().len(), Bits::BYTES, "with so many, the bits themselves are shorter");
        for damaged in [&[0; 31][..], &[0; 33], &[7, 3], &[3, 3]] {
            assert_eq!(Bits::decode(damaged), None, "{damaged:?}");
        }
    }
}

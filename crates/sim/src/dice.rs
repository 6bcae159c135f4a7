//! Chance that can be repeated: every purpose has a stream of its own, so that one more throw for one purpose changes
//! nothing for the others.

use std::time::Duration;

/// A stream of throws. SplitMix64: small, fast, and the same for ever, which a library's generator does not promise.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// The stream of one purpose under a seed.
    pub fn of(seed: u64, purpose: &str) -> Dice {
        let mut dice = Dice(seed ^ 0x9e37_79b9_7f4a_7c15);
        for byte in purpose.bytes() {
            dice.0 = dice.0.wrapping_mul(0x0000_0100_0000_01b3) ^ u64::from(byte);
            dice.throw();
        }
        dice
    }

    pub fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 up to but not including `end`; 0 if there is nothing below it.
    pub fn below(&mut self, end: u64) -> u64 {
        let thrown = self.throw();
        thrown.checked_rem(end).unwrap_or(0)
    }

    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Both ends included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }

    pub fn percent(&mut self, of_a_hundred: u64) -> bool {
        self.below(100) < of_a_hundred
    }

    pub fn coin(&mut self) -> bool {
        self.percent(50)
    }

    /// One of these. There must be one.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_purpose_throw_the_same_and_others_do_not() {
        let throw = |seed, purpose| {
            let mut dice = Dice::of(seed, purpose);
            [dice.throw(), dice.throw(), dice.throw()]
        };
        assert_eq!(throw(7, "a"), throw(7, "a"));
        assert_ne!(throw(7, "a"), throw(7, "b"));
        assert_ne!(throw(7, "a"), throw(8, "a"));
    }

    #[test]
    fn throws_stay_within_their_ends() {
        let mut dice = Dice::of(1, "ends");
        let thrown: Vec<u64> = (0..1_000).map(|_| dice.between(3, 5)).collect();
        assert!(thrown.iter().all(|one| (3..=5).contains(one)));
        assert!((3..=5).all(|one| thrown.contains(&one)));
        assert_eq!(dice.below(0), 0);
    }
}

//! How the group is set up in one run: which brakes it has, and how much of its clusters it may touch.
//!
//! Brakes that are short let much happen; long ones are what a new leader could forget. So seeds have either. And users who do
//! a bit of everything seldom do the one thing twice that hurts, so in some seeds they have a habit.

use crate::dice::Dice;

/// The habit of reading.
pub const READING: u64 = 61;

/// What a seed decides about settings and strategies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    pub cluster_cooldown: &'static str,
    pub rate_limit: &'static str,
    pub rate_window: &'static str,
    /// Of the strategies, so many may touch only what is managed.
    pub managed_percent: u64,
    /// What users do more often than anything else, as a number that they could have thrown (see `workload`): resize, drop
    /// with everything, flip the kill switch, or read.
    pub habit: Option<u64>,
}

impl Profile {
    pub fn of(seed: u64) -> Profile {
        let mut dice = Dice::of(seed, "profile");
        let mut one_of = |words: &[&'static str]| words[dice.index(words.len())];
        Profile {
            cluster_cooldown: one_of(&["1s", "1s", "4s", "8s"]),
            rate_limit: one_of(&["3", "6", "10"]),
            rate_window: one_of(&["10s", "20s"]),
            managed_percent: *dice.pick(&[0, 30, 60]),
            habit: *dice.pick(&[None, None, Some(0), Some(26), Some(55), Some(READING)]),
        }
    }

    pub fn settings(&self) -> [(&'static str, &'static str); 3] {
        [
            ("auto_scaling_cluster_cooldown", self.cluster_cooldown),
            ("auto_scaling_rate_limit", self.rate_limit),
            ("auto_scaling_rate_window", self.rate_window),
        ]
    }
}

//! Seeded faults of the product: each one takes away a protection, so that a test can show that it would notice.
//!
//! Without the feature `seeded`, which only the tests and the simulator ask for, [`Mutant::is_on`] is `false` at compile time
//! and nothing of this is left in the binary. With it, a mutant is on only after [`Mutant::switch_on`].
//! Not here: what a mutant does. That stands where the protection stands, as `if Mutant::X.is_on()`.

use std::fmt;
use std::str::FromStr;

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// One protection that is taken away.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Mutant { $($(#[$doc])* $name,)+ }

        impl Mutant {
            pub const ALL: &'static [Mutant] = &[$(Mutant::$name,)+];

            pub fn name(self) -> &'static str {
                match self { $(Mutant::$name => $text,)+ }
            }
        }
    };
}

mutants! {
    /// Claims and outcomes of an earlier leadership are accepted.
    StaleEpochAccepted = "stale-epoch-accepted",
    /// The lease is not looked at before a call.
    LeaseNotChecked = "lease-not-checked",
    /// The backend takes orders of any epoch.
    BackendNotFenced = "backend-not-fenced",
    /// What an earlier leader claimed is sent again without being read back first.
    TakeOverWithoutReadBack = "take-over-without-read-back",
    /// The backend is called before the claim is committed.
    CallWithoutClaim = "call-without-claim",
    /// Every attempt goes out under a key of its own.
    NewKeyOnRetry = "new-key-on-retry",
    /// No answer is taken for "not done".
    TimeOutTakenAsFailure = "time-out-taken-as-failure",
    /// The outcome of an earlier attempt settles the current one.
    StaleAttemptAccepted = "stale-attempt-accepted",
    /// Entries are acknowledged when they are written, and not when they are on disk.
    AcknowledgeBeforeSync = "acknowledge-before-sync",
    /// A vote is given when it is written, and not when it is on disk.
    VoteNotSynced = "vote-not-synced",
    /// That a conflicting end was cut off the log is not written down.
    TruncationNotWritten = "truncation-not-written",
    /// What was read from disk is believed whatever its checksum says.
    ChecksumNotChecked = "checksum-not-checked",
    /// A snapshot gets its name before its bytes are on disk.
    SnapshotRenamedBeforeSync = "snapshot-renamed-before-sync",
    /// A snapshot counts before the journal is on disk up to it, and Raft purges the only other copy.
    JournalGap = "journal-gap",
    /// A snapshot does not say which requests were answered.
    SnapshotWithoutRequests = "snapshot-without-requests",
    /// A snapshot does not say when clusters were scaled last.
    SnapshotWithoutCooldown = "snapshot-without-cooldown",
    /// A snapshot does not say which calls the rate limit counts.
    SnapshotWithoutRate = "snapshot-without-rate",
    /// The node's own clock has a say in what an entry does.
    ClockReadInApply = "clock-read-in-apply",
    /// The clusters that an entry concerns are looked at in no order.
    UnorderedInApply = "unordered-in-apply",
    /// Logical time follows a new leader's clock back.
    TimeGoesBack = "time-goes-back",
    /// A request that was answered before is carried out again.
    RepeatExecuted = "repeat-executed",
    /// Claims are accepted while the kill switch is off.
    KillSwitchIgnored = "kill-switch-ignored",
    /// Claims are accepted for a cluster that is gone.
    DroppedClusterClaimed = "dropped-cluster-claimed",
    /// A strategy with `MANAGED_ONLY` touches what people made.
    ManagedOnlyIgnored = "managed-only-ignored",
    /// A cluster is given a name that another one has.
    DuplicateNames = "duplicate-names",
    /// A new leader begins without the cooldowns and the counted calls of before.
    BrakesReleasedAtFailover = "brakes-released-at-failover",
    /// A linearizable read shows whatever this node has applied.
    ReadWithoutAsking = "read-without-asking",
    /// A watch that resumes leaves out the revision it was to begin with.
    WatchSkipsOnResume = "watch-skips-on-resume",
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no mutant of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMutant(String);

impl fmt::Display for UnknownMutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        write!(f, "there is no mutant {:?}: expected one of {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownMutant {}

impl FromStr for Mutant {
    type Err = UnknownMutant;

    fn from_str(name: &str) -> Result<Self, UnknownMutant> {
        let found = Mutant::ALL.iter().find(|mutant| mutant.name() == name);
        found.copied().ok_or_else(|| UnknownMutant(name.to_owned()))
    }
}

#[cfg(not(feature = "seeded"))]
impl Mutant {
    #[inline(always)]
    pub const fn is_on(self) -> bool {
        false
    }
}

/// There is no clock to read.
#[cfg(not(feature = "seeded"))]
#[inline(always)]
pub const fn clock_ms() -> u64 {
    0
}

/// There is nothing to leave to chance.
#[cfg(not(feature = "seeded"))]
#[inline(always)]
pub const fn coin() -> bool {
    false
}

#[cfg(feature = "seeded")]
pub use seeded::{clock_ms, coin, read_clock_with, start_coins};

#[cfg(feature = "seeded")]
mod seeded {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::Mutant;

    thread_local! {
        /// Per thread, as a simulation has one: so a fault that depends on a clock or on chance can be reproduced.
        static CLOCK: Cell<Option<fn() -> u64>> = const { Cell::new(None) };
        static COINS: Cell<u64> = const { Cell::new(0) };
    }

    /// What the clock of this node says: this machine's, unless a simulator has one.
    pub fn clock_ms() -> u64 {
        let since = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        CLOCK.get().map_or_else(|| u64::try_from(since()).unwrap_or(u64::MAX), |clock| clock())
    }

    /// From now on, in this thread.
    pub fn read_clock_with(clock: fn() -> u64) {
        CLOCK.set(Some(clock));
    }

    /// Differs from one time to the next.
    pub fn coin() -> bool {
        let thrown = COINS.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        COINS.set(thrown);
        let mixed = (thrown ^ (thrown >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) & 1 == 1
    }

    /// The same coins from here on, in this thread, for the same seed.
    pub fn start_coins(seed: u64) {
        COINS.set(seed);
    }

    /// One bit for each. A process has few mutants on, and for as long as it runs or until it says otherwise.
    static ON: AtomicU64 = AtomicU64::new(0);

    impl Mutant {
        fn bit(self) -> u64 {
            1 << (self as u32)
        }

        #[inline]
        pub fn is_on(self) -> bool {
            ON.load(Ordering::Relaxed) & self.bit() != 0
        }

        pub fn switch_on(self) {
            ON.fetch_or(self.bit(), Ordering::Relaxed);
        }

        pub fn switch_all_off() {
            ON.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutant_is_found_by_its_name_and_there_is_room_for_all() {
        for mutant in Mutant::ALL {
            assert_eq!(mutant.name().parse(), Ok(*mutant));
            assert!(!mutant.is_on());
        }
        assert!(Mutant::ALL.len() <= 64);
        assert!("no-such".parse::<Mutant>().unwrap_err().to_string().contains("lease-not-checked"));
    }

    #[cfg(feature = "seeded")]
    #[test]
    fn chance_repeats_itself_from_the_same_seed_and_a_clock_can_be_given() {
        let throw = |seed| {
            start_coins(seed);
            (0..64).map(|_| coin()).collect::<Vec<_>>()
        };
        assert_eq!(throw(7), throw(7));
        assert_ne!(throw(7), throw(8));
        read_clock_with(|| 42);
        assert_eq!(clock_ms(), 42);
    }
}

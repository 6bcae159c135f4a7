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

#[cfg(feature = "seeded")]
mod seeded {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::Mutant;

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
}

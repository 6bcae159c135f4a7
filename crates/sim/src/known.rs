//! The seeds at which each seeded mutant of the product is found out, and by what.
//!
//! They are run before every change is let in: a simulator that no longer notices what it once noticed proves nothing. A
//! change of the plan, the workload or the product moves them; `mutants` finds new ones.

use loadline_mutants::Mutant;

/// Where a mutant is found out.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    pub mutant: Mutant,
    pub seed: u64,
    /// The invariant that does not hold.
    pub invariant: &'static str,
}

const fn at(mutant: Mutant, seed: u64, invariant: &'static str) -> Known {
    Known { mutant, seed, invariant }
}

pub const KNOWN: &[Known] = &[
    at(Mutant::LeaseNotChecked, 32, "lease"),
    at(Mutant::TakeOverWithoutReadBack, 32, "outcomes"),
    at(Mutant::CallWithoutClaim, 1, "claimed"),
    at(Mutant::NewKeyOnRetry, 1, "claimed"),
    at(Mutant::TimeOutTakenAsFailure, 47, "outcomes"),
    at(Mutant::AcknowledgeBeforeSync, 17, "opens"),
    at(Mutant::VoteNotSynced, 76, "opens"),
    at(Mutant::TruncationNotWritten, 29, "replay"),
    at(Mutant::ChecksumNotChecked, 11, "heals"),
    at(Mutant::SnapshotRenamedBeforeSync, 28, "opens"),
    at(Mutant::JournalGap, 28, "replay"),
    at(Mutant::SnapshotWithoutRequests, 9, "replay"),
    at(Mutant::SnapshotWithoutCooldown, 9, "replay"),
    at(Mutant::SnapshotWithoutRate, 9, "replay"),
    at(Mutant::ClockReadInApply, 1, "replay"),
    at(Mutant::UnorderedInApply, 2, "chain"),
    at(Mutant::TimeGoesBack, 9, "time"),
    at(Mutant::RepeatExecuted, 11, "acknowledged"),
    at(Mutant::ManagedOnlyIgnored, 6, "managed-only"),
    at(Mutant::DuplicateNames, 1, "names"),
    at(Mutant::BrakesReleasedAtFailover, 27, "brakes"),
    at(Mutant::ReadWithoutAsking, 27, "linearizable"),
    at(Mutant::WatchSkipsOnResume, 32, "watches"),
];

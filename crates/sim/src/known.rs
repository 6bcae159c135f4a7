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
    at(Mutant::StaleEpochAccepted, 147, "epochs"),
    at(Mutant::LeaseNotChecked, 84, "lease"),
    at(Mutant::BackendNotFenced, 186, "fenced"),
    at(Mutant::TakeOverWithoutReadBack, 1, "outcomes"),
    at(Mutant::CallWithoutClaim, 1, "claimed"),
    at(Mutant::NewKeyOnRetry, 1, "claimed"),
    at(Mutant::TimeOutTakenAsFailure, 4, "outcomes"),
    at(Mutant::StaleAttemptAccepted, 51, "epochs"),
    at(Mutant::AcknowledgeBeforeSync, 3, "opens"),
    at(Mutant::VoteNotSynced, 39, "opens"),
    at(Mutant::TruncationNotWritten, 18, "opens"),
    at(Mutant::ChecksumNotChecked, 5, "heals"),
    at(Mutant::SnapshotRenamedBeforeSync, 19, "opens"),
    at(Mutant::JournalGap, 1, "replay"),
    at(Mutant::SnapshotWithoutRequests, 5, "replay"),
    at(Mutant::SnapshotWithoutCooldown, 5, "replay"),
    at(Mutant::SnapshotWithoutRate, 5, "replay"),
    at(Mutant::ClockReadInApply, 1, "replay"),
    at(Mutant::UnorderedInApply, 1, "replay"),
    at(Mutant::TimeGoesBack, 14, "time"),
    at(Mutant::RepeatExecuted, 2, "acknowledged"),
    at(Mutant::KillSwitchIgnored, 52, "switches"),
    at(Mutant::DroppedClusterClaimed, 32, "switches"),
    at(Mutant::ManagedOnlyIgnored, 26, "managed-only"),
    at(Mutant::DuplicateNames, 1, "names"),
    at(Mutant::BrakesReleasedAtFailover, 2, "brakes"),
    at(Mutant::ReadWithoutAsking, 11, "linearizable"),
    at(Mutant::WatchSkipsOnResume, 14, "watches"),
];

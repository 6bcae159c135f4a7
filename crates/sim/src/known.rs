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

pub const KNOWN: &[Known] = &[at(Mutant::CallWithoutClaim, 1, "claimed")];

//! Scripts by chance, in the world of the simulator: none may fail.
//!
//! `PROPTEST_CASES` tries more of them, `SMALL_WORLD_SEED` others. What fails is printed as the shortest list of steps that was
//! found to fail.

use loadline_sim::small::chance::Search;

/// What there is time for in every run of the tests.
const CASES: u32 = 20;
/// Only a script that fails is ever shortened, so this may take its time.
const SHRINKS_MAX: u32 = 600;

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Err(_) => otherwise,
        Ok(given) => given.parse().unwrap_or_else(|_| panic!("{variable} is {given:?}: expected a number")),
    }
}

#[test]
fn no_script_of_calls_and_faults_breaks_what_must_hold() {
    let cases = u32::try_from(number("PROPTEST_CASES", u64::from(CASES))).expect("PROPTEST_CASES is too large");
    let search = Search { cases, seed: number("SMALL_WORLD_SEED", 1), shrinks_max: SHRINKS_MAX, nodes_max: 5 };
    if let Err(found) = search.run() {
        panic!("{search:?} found a script that fails:\n{found}");
    }
}

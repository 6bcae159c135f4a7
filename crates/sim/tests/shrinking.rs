//! A script that fails is made shorter. In a process of its own: the protection that is taken away is gone for all of it.

#![allow(clippy::print_stdout, reason = "the shortened script is what somebody would want to see")]

use loadline_mutants::Mutant;
use loadline_sim::small::chance::Search;
use loadline_sim::small::steps::{Fault, What};

/// A power cut is all it takes: what users were promised before it is gone. One more is slack for other seeds.
const STEPS_MAX: usize = 2;

#[test]
fn of_a_log_that_is_not_synced_what_remains_is_a_power_cut() {
    Mutant::AcknowledgeBeforeSync.switch_on();
    // One node: among several, openraft may be the first to notice, and what it says is the end of this process.
    // Not every seed: one whose power is cut in a certain change of the disk needs everything that comes before that change.
    let found = Search { cases: 40, seed: 2, shrinks_max: 250, nodes_max: 1 }.run();
    let found = found.expect_err("nobody noticed that acknowledged entries were lost");
    println!("{found}");
    let script = &found.script;
    assert!(script.steps.len() <= STEPS_MAX, "{} steps are left:\n{found}", script.steps.len());
    let cuts_power = |what: &What| {
        matches!(what, What::Fault { fault: Fault::Kill { lose_power: true, .. } | Fault::CutPowerAt { .. }, .. })
    };
    assert!(script.steps.iter().any(|step| cuts_power(&step.what)), "no power cut is left:\n{found}");
    let text = found.to_string();
    assert!(text.contains("power"), "the list does not say what is done:\n{text}");
}

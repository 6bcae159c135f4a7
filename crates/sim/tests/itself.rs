//! The simulator is tested, too: it repeats itself to the byte, it can fail, and a quiet world is quiet.

use loadline_sim::batch::one;
use loadline_sim::plan::Plan;
use loadline_sim::trace::Tracing;

#[test]
fn the_same_seed_gives_the_same_run_to_the_byte_and_another_seed_another() {
    let trace = |seed| one(Plan::of(seed), Tracing::Kept).trace;
    let (first, again) = (trace(2), trace(2));
    let differs = first.iter().zip(&again).find(|(one, other)| one != other);
    assert_eq!(differs, None);
    assert_eq!(first.len(), again.len());
    assert!(first.len() > 100, "hardly anything happened: {first:#?}");
    assert_ne!(first, trace(3));
}

#[test]
fn a_run_whose_disks_lie_fails() {
    let outcome = one(Plan::canary(1), Tracing::Off);
    assert!(outcome.violation.is_some(), "syncs did nothing, everybody lost power, and nobody noticed");
}

#[test]
fn a_run_in_which_nothing_goes_wrong_passes() {
    let calm = (1..).map(Plan::of).find(Plan::calm).expect("one seed in twelve");
    let seed = calm.seed;
    let outcome = one(calm, Tracing::Off);
    assert_eq!(outcome.violation, None, "seed {seed}");
}

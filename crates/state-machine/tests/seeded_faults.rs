//! Each protection of claims and outcomes, taken away: what it alone stops then happens, so its tests mean something.

mod common;

use common::{World, create_cluster, create_size, set};
use loadline_mutants::Mutant;
use loadline_state_machine::{
    Action, ActionStatus, Command, Epoch, NodeNumber, Options, Outcome, Report, StrategyKind, TargetName,
};

/// An action that the first leader has claimed.
fn claimed() -> (World, Action, Epoch) {
    let mut world = World::new();
    for command in [
        Command::AnnounceLeader { node: NodeNumber(1), term: 1 },
        set("enable_auto_scaling", "true"),
        set("default_backend", "sim"),
        create_size("1", None),
        create_cluster("demo"),
        Command::CreateStrategy {
            target: TargetName::All,
            kind: StrategyKind::TargetSize,
            options: Options::from([("size", "1")]),
            if_not_exists: false,
            unchecked: false,
        },
    ] {
        world.must(command);
    }
    let action = world.state.claimable_actions().next().cloned().expect("something is wanted");
    let epoch = world.state.epoch().expect("a leader was announced");
    world.must(common::claim(&world.state, &action, epoch, 1));
    (world, action, epoch)
}

fn outcome(world: &mut World, action: &Action, epoch: Epoch, attempt: u32) -> Option<&'static str> {
    let outcome = Outcome::Succeeded { report: Report::Nothing };
    let command = Command::RecordOutcome { action: action.id, epoch, attempt, outcome };
    world.ask(common::anonymous(vec![command])).result.err().map(|refused| refused.rejection.code())
}

/// One test: what is switched on is switched on for the whole process.
#[test]
fn without_its_protection_a_straggler_settles_what_is_not_its_own() {
    // A leader that was replaced.
    let late = |world: &mut World, action: &Action, epoch| {
        world.must(Command::AnnounceLeader { node: NodeNumber(2), term: 2 });
        outcome(world, action, epoch, 1)
    };
    let (mut world, action, epoch) = claimed();
    assert_eq!(late(&mut world, &action, epoch), Some("STALE_EPOCH"));
    assert!(world.state.action(action.id).is_some_and(|it| it.status.is_in_flight()));
    Mutant::StaleEpochAccepted.switch_on();
    let (mut world, action, epoch) = claimed();
    assert_eq!(late(&mut world, &action, epoch), None);
    assert!(world.state.action(action.id).is_none(), "settled by who does not lead");
    Mutant::switch_all_off();

    // An earlier attempt.
    let slow = |world: &mut World, action: &Action, epoch| {
        let unknown = Outcome::Unknown { reason: String::new() };
        world.must(Command::RecordOutcome { action: action.id, epoch, attempt: 1, outcome: unknown });
        let current = world.state.action(action.id).cloned().expect("it is not settled");
        assert!(matches!(current.status, ActionStatus::Unknown { .. }));
        world.must(common::claim(&world.state, &current, epoch, 2));
        outcome(world, action, epoch, 1)
    };
    let (mut world, action, epoch) = claimed();
    assert_eq!(slow(&mut world, &action, epoch), Some("STALE_ATTEMPT"));
    assert!(world.state.action(action.id).is_some_and(|it| it.attempt == 2));
    Mutant::StaleAttemptAccepted.switch_on();
    let (mut world, action, epoch) = claimed();
    assert_eq!(slow(&mut world, &action, epoch), None);
    assert!(world.state.action(action.id).is_none(), "the second call is still out");
    Mutant::switch_all_off();
}

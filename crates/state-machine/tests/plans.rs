//! The brain as a pure function: what goes in, what comes out, and what it says about input that makes no sense.

use std::collections::BTreeMap;

use loadline_state_machine::{
    ChangeCause, Conclusion, Options, PlanActivity, PlanCrashes, PlanError, PlanHydration, PlanInput, PlanReplica,
    PlanState, PlanStrategy, Span, Step, Time, plan,
};

fn strategy(kind: &str, config: Options) -> PlanStrategy {
    PlanStrategy { kind: kind.to_owned(), config, last_decision_ago: None, state: None }
}

fn replica(name: &str, size: &str) -> PlanReplica {
    PlanReplica { name: name.to_owned(), size: size.to_owned() }
}

/// One replica of 50cc, hydrated, used ten seconds ago.
fn input(strategies: Vec<PlanStrategy>) -> PlanInput {
    PlanInput {
        sizes: ["25cc", "50cc", "100cc"].map(str::to_owned).to_vec(),
        cluster: "demo".to_owned(),
        replicas: vec![replica("main", "50cc")],
        strategies,
        activity: PlanActivity::Ago(Span::from_secs(10)),
        hydration: BTreeMap::from([("main".to_owned(), PlanHydration { total: 3, hydrated: 3 })]),
        ..PlanInput::default()
    }
}

fn idle_suspend() -> PlanStrategy {
    strategy("idle_suspend", Options::from([("idle_after_s", 300)]))
}

#[test]
fn a_plan_says_what_is_wanted_what_is_to_be_done_and_when_it_would_change() {
    let output = plan(&input(vec![idle_suspend()])).unwrap();
    assert_eq!(output.desired, BTreeMap::from([("main".to_owned(), "50cc".to_owned())]));
    assert_eq!(output.actions, []);
    assert_eq!(output.decision.conclusion, Conclusion::AsWanted);
    // Without a collector that goes on reporting, the signal is stale before the cluster is idle.
    let changes = output.decision.changes_at.unwrap();
    assert_eq!(
        (changes.why, changes.at.since(output.decision.at)),
        (ChangeCause::SignalStale, Span::from_millis(120_001))
    );

    let mut settings = input(vec![idle_suspend()]);
    settings.settings.insert("signal_stale_after".to_owned(), "1h".to_owned());
    let changes = plan(&settings).unwrap().decision.changes_at.unwrap();
    assert_eq!(changes.why, ChangeCause::IdleThreshold);

    let idle = PlanInput { activity: PlanActivity::Ago(Span::from_secs(301)), ..input(vec![idle_suspend()]) };
    let output = plan(&idle).unwrap();
    assert_eq!(output.desired, BTreeMap::new());
    let steps: Vec<&Step> = output.actions.iter().map(|planned| &planned.step).collect();
    assert!(matches!(steps.as_slice(), [Step::Drop { replica, .. }] if replica.name.as_ref() == "main"));
    assert!(matches!(output.decision.conclusion, Conclusion::Began(_)));
}

#[test]
fn nobody_having_looked_is_not_the_same_as_nobody_having_been_seen() {
    let unknown = PlanInput { activity: PlanActivity::Unknown, ..input(vec![idle_suspend()]) };
    let output = plan(&unknown).unwrap();
    assert_eq!(output.desired.len(), 1, "missing data never scales down");
    assert_eq!(output.decision.stages[0].reason.code(), "SIGNAL_MISSING");
    let none = PlanInput { activity: PlanActivity::NoneSeen, ..input(vec![idle_suspend()]) };
    assert_eq!(plan(&none).unwrap().desired.len(), 0);
}

#[test]
fn what_a_strategy_remembers_can_be_given() {
    let shrink = |state| PlanStrategy {
        state: Some(state),
        ..strategy("shrink_to_fit", Options::from([("max_size", "100cc")]))
    };
    let empty = |strategy| PlanInput { replicas: vec![], hydration: BTreeMap::new(), ..input(vec![strategy]) };
    let failed = PlanState { failed_sizes: vec![("25cc".to_owned(), Span::from_mins(59))], ..PlanState::default() };
    let names = |input: &PlanInput| plan(input).unwrap().desired.into_keys().collect::<Vec<_>>();
    assert_eq!(names(&empty(shrink(failed.clone()))), ["100cc_auto", "50cc_auto"]);
    let of_another_version = PlanState { version: Some(7), ..failed };
    assert_eq!(names(&empty(shrink(of_another_version))), ["100cc_auto", "25cc_auto", "50cc_auto"], "begun anew");
    let long_ago = PlanState { failed_sizes: vec![("25cc".to_owned(), Span::from_mins(61))], ..PlanState::default() };
    assert_eq!(names(&empty(shrink(long_ago))).len(), 3);

    let suspended = PlanState { suspended: vec![replica("old", "25cc")], ..PlanState::default() };
    let woken = empty(PlanStrategy { state: Some(suspended), ..idle_suspend() });
    assert_eq!(names(&woken), ["old"], "somebody uses it again");
}

#[test]
fn a_cooldown_holds_and_says_what_it_holds_back() {
    let target = PlanStrategy {
        last_decision_ago: Some(Span::from_secs(59)),
        ..strategy("target_size", Options::from([("size", "100cc")]))
    };
    let output = plan(&input(vec![target.clone()])).unwrap();
    assert_eq!(output.desired.len(), 1);
    let stage = &output.decision.stages[0];
    assert_eq!((stage.reason.code(), stage.changes.len(), stage.held_back.len()), ("IN_COOLDOWN", 0, 1));
    let over = PlanStrategy { last_decision_ago: Some(Span::from_secs(60)), ..target };
    assert_eq!(plan(&input(vec![over])).unwrap().desired.len(), 2, "exactly over acts");
}

#[test]
fn a_dry_run_is_the_road_not_taken() {
    let strategy = strategy("idle_suspend", Options::from([("idle_after_s", 5)]).with("dry_run", true));
    let output = plan(&input(vec![strategy])).unwrap();
    assert_eq!((output.desired.len(), output.actions.len()), (1, 0));
    let shadow = output.decision.shadow.unwrap();
    assert_eq!((shadow.desired.len(), shadow.planned.len()), (0, 1));
}

#[test]
fn with_the_kill_switch_off_a_plan_is_only_recorded() {
    let mut input = input(vec![strategy("target_size", Options::from([("size", "100cc")]))]);
    input.settings.insert("auto_scaling_enabled".to_owned(), "off".to_owned());
    let output = plan(&input).unwrap();
    assert_eq!(output.actions.len(), 1);
    assert_eq!(output.decision.conclusion, Conclusion::Suppressed);
}

#[test]
fn the_same_input_gives_the_same_plan_at_any_time() {
    let at = |now| {
        let strategies = vec![strategy("target_size", Options::from([("size", "100cc")])), idle_suspend()];
        let output = plan(&PlanInput { now, ..input(strategies) }).unwrap();
        (output.desired, output.actions)
    };
    assert_eq!(at(None), at(Some(Time::from_millis(4_000_000_000_000))));
}

#[test]
fn input_that_makes_no_sense_is_refused_with_the_field() {
    fn check(change: impl FnOnce(&mut PlanInput), field: &str) {
        let mut input = input(vec![idle_suspend()]);
        change(&mut input);
        match plan(&input) {
            Err(PlanError { field: named, problem, configuration }) => {
                assert_eq!(named, field, "{problem}");
                assert!(!problem.is_empty());
                let option = configuration.as_ref().map(|it| format!("strategies[0].config.{}", it.option()));
                assert_eq!(option.is_some(), field.contains(".config."), "{problem}");
                assert!(option.is_none_or(|option| option == field));
            }
            Ok(_) => panic!("{field} makes no sense"),
        }
    }
    check(|input| input.strategies[0].kind = "idle".to_owned(), "strategies[0].type");
    check(|input| input.strategies[0].config.set("idle_after_s", 0), "strategies[0].config.idle_after_s");
    check(|input| input.strategies[0].config.set("size", "25cc"), "strategies[0].config.size");
    check(|input| input.strategies[0].config.set("cooldown_s", -1), "strategies[0].config.cooldown_s");
    check(|input| input.strategies[0].config.set("config_version", 9), "strategies[0].config.config_version");
    check(|input| input.strategies.push(idle_suspend()), "strategies");
    check(|input| input.sizes.push("25cc".to_owned()), "sizes[3].name");
    check(|input| input.replicas.push(replica("main", "25cc")), "cluster.replicas[1].name");
    let hydration = PlanHydration { total: 1, hydrated: 2 };
    let hydrated = |name: &str| BTreeMap::from([(name.to_owned(), hydration)]);
    check(|input| input.hydration = hydrated("main"), "signals.hydration.main.hydrated");
    check(|input| input.hydration = hydrated("other"), "signals.hydration.other");
    let crashes = PlanCrashes { total: 1, oom: 0 };
    check(|input| input.crashes.extend([("other".to_owned(), crashes)]), "signals.crashes.other");
    check(|input| input.settings.extend([("colour".to_owned(), "red".to_owned())]), "settings.colour");
    let window = ("auto_scaling_rate_window".to_owned(), "5".to_owned());
    check(|input| input.settings.extend([window]), "settings.auto_scaling_rate_window");
}

#[test]
fn a_crash_of_which_no_reason_is_known_shows_no_empty_one() {
    let crashes = BTreeMap::from([("main".to_owned(), PlanCrashes { total: 2, oom: 1 })]);
    let lines = plan(&PlanInput { crashes, ..input(vec![idle_suspend()]) }).unwrap().decision.lines().join("\n");
    assert!(lines.contains("2 crashes, the last just now\n"), "{lines}");
}

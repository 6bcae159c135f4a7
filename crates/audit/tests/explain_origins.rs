//! Each part of an explanation names the entry that it comes from, and whoever is behind that, and nobody else.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use crate::explain::{of, story};
use crate::world::{World, given, replica};
use loadline_state_machine::{
    ActionId, ActionStatus, ClusterRef, ClusterReport, Command, Event, NoticeKind, Observation, OptionValue,
    ResourceKind, ResourceName, Seen, Span, StrategyKind, TargetName,
};

fn size(name: &str) -> [(&'static str, OptionValue); 1] {
    [("size", OptionValue::Text(name.into()))]
}

fn set(name: &str, value: &str) -> Vec<Command> {
    vec![Command::SetSetting { name: name.into(), value: value.into(), etag: None }]
}

/// The latest decision about a cluster, by its name in the API.
fn decided(world: &World, cluster: &str) -> ResourceName {
    let id = world.state.cluster(cluster).unwrap().id;
    ResourceName { kind: ResourceKind::Decision, name: world.state.decision_by_id(id).unwrap().id.to_string() }
}

#[test]
fn a_decision_names_no_occasion_that_is_about_another_cluster() {
    let mut world = World::new();
    for (cluster, pattern) in [("alpha", "al%"), ("beta", "be%")] {
        world.cluster("alice", cluster);
        let (target, kind) = (TargetName::Pattern(pattern.into()), StrategyKind::TargetSize);
        let options = given(&size("25cc"));
        let create = Command::CreateStrategy { target, kind, options, if_not_exists: false, unchecked: false };
        world.ask("alice", vec![create]);
    }
    let change = |pattern: &str| {
        let (target, kind) = (TargetName::Pattern(pattern.into()), StrategyKind::TargetSize);
        let (options, reset) = (given(&size("100cc")), Vec::new());
        vec![Command::ChangeStrategy { target, kind, options, reset, etag: None, unchecked: false }]
    };
    let report = |cluster: &str, sequence| {
        let observations = vec![Observation { age: Span::default(), seen: Seen::Activity { idle_for: None } }];
        let clusters = vec![ClusterReport { cluster: ClusterRef::Name(cluster.into()), observations }];
        vec![Command::ReportSignals { collector: "watcher".into(), sequence, clusters }]
    };
    let pause = |cluster: &str| {
        vec![Command::PauseCluster { cluster: cluster.into(), reason: "moving".into(), expires_in: None }]
    };
    let applied = world.batch(vec![
        ("watcher", report("alpha", 1)),
        ("watcher", report("alpha", 2)),
        ("watcher", report("alpha", 3)),
        ("bob", pause("alpha")),
        ("carol", set("journal_retention", "30d")),
        ("dave", change("al%")),
        ("dave", change("be%")),
        ("erin", set("auto_scaling_cluster_cooldown", "45s")),
        ("frank", pause("beta")),
    ]);
    let both = applied.events.iter().filter(|event| matches!(event, Event::DecisionMade { .. })).count();
    assert_eq!(both, 2, "each is decided about in this very entry");
    let told = story(&world, &world.state, &decided(&world, "beta")).unwrap();
    let occasions: Vec<(&str, &str)> = of(&told, "occasion")
        .iter()
        .map(|fact| (fact.name.as_str(), fact.actor.as_deref().unwrap_or_default()))
        .collect();
    let own_first = [("ClusterPaused", "frank"), ("StrategyChanged", "dave"), ("SettingSet", "erin")];
    assert_eq!(occasions, own_first, "{:#?}", told.lines());
    let told = story(&world, &world.state, &decided(&world, "alpha")).unwrap();
    let occasions = of(&told, "occasion");
    assert_eq!(occasions.len(), 6, "{:#?}", told.lines());
    assert_eq!(occasions[5].text, "and because of 1 more in the same entry");
}

#[test]
fn what_had_fallen_due_when_others_asked_for_something_is_not_put_down_to_them() {
    let mut world = World::new();
    for cluster in ["alpha", "beta"] {
        world.cluster("alice", cluster);
    }
    world.strategy("alice", "beta", StrategyKind::TargetSize, &size("25cc"));
    let expires_in = Some(Span::from_secs(60));
    let pause = Command::PauseCluster { cluster: "beta".into(), reason: "moving".into(), expires_in };
    world.ask("bob", vec![pause]);
    world.change_strategy("bob", "beta", StrategyKind::TargetSize, &size("100cc"));
    let before = decided(&world, "beta");
    world.time = world.time + Span::from_secs(60);
    world.report("alpha", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    let name = decided(&world, "beta");
    assert_ne!(name, before, "it goes on when its pause is over");
    let told = story(&world, &world.state, &name).unwrap();
    let occasions = of(&told, "occasion");
    assert!(occasions.iter().all(|fact| fact.actor.is_none()), "{:#?}", told.lines());
    assert!(occasions.iter().all(|fact| !fact.text.contains("alpha")), "{:#?}", told.lines());
}

#[test]
fn each_part_of_what_is_known_of_a_replica_names_whoever_reported_that_part() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let mut report = |seen: Seen| {
        world.time = world.time + Span::from_secs(1);
        world.report("demo", Span::default(), vec![seen]);
        world.last()
    };
    let crash = Seen::Crash { replica: "r1".into(), oom: true, reason: "killed".into(), count: 1 };
    let sight = report(replica("r1", "25cc", true));
    let crashed = report(crash);
    let noticed = report(Seen::Notice { replica: "r1".into(), kind: NoticeKind::Spot, gone_in: None });
    let hydrated = report(Seen::Hydration { replica: "r1".into(), total: 3, hydrated: 3 });
    let told = story(&world, &world.state, &ResourceName::cluster("demo")).unwrap();
    let at = |name: &str| {
        let signals = of(&told, "signal");
        let fact = signals.into_iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("no {name}"));
        (fact.index, fact.actor.as_deref())
    };
    for (name, index) in [
        ("replica r1", sight),
        ("replica r1 crash", crashed),
        ("replica r1 notice", noticed),
        ("replica r1 hydration", hydrated),
    ] {
        assert_eq!(at(name), (Some(index), Some("watcher")), "{name}: {:#?}", told.lines());
    }
}

#[test]
fn a_replica_that_only_an_action_has_told_of_names_the_entry_of_its_outcome() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &size("25cc"));
    let action = world.carry_out()[0];
    let settled = world.last();
    world.pass(Span::from_secs(5));
    let told = |world: &World| {
        let told = story(world, &world.state, &ResourceName::cluster("demo")).unwrap();
        of(&told, "signal").into_iter().find(|fact| fact.name == "replica r1_auto").unwrap().clone()
    };
    let known = told(&world);
    assert_eq!((known.index, known.actor.as_deref()), (Some(settled), Some("loadline")), "{known:?}");
    assert_eq!(known.resource, Some(format!("actions/{action}")));
    assert!(known.text.contains(&format!(", known from the outcome of {action} at ")), "{known:?}");
    world.report("demo", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    let seen = told(&world);
    assert_eq!((seen.index, seen.actor.as_deref()), (Some(world.last()), Some("watcher")), "{seen:?}");
}

/// Index and actor of the line that says what an action is for, and its text.
fn what_for(world: &World, action: ActionId) -> (Option<u64>, Option<String>, String) {
    let told = story(world, &world.state, &ResourceName::action(action)).unwrap();
    let by = of(&told, "action").into_iter().find(|fact| fact.text.starts_with("for ")).unwrap().clone();
    (by.index, by.actor, by.text)
}

#[test]
fn an_action_for_a_user_names_that_user_and_what_they_said() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let floor = Command::OverrideCluster {
        cluster: "demo".into(),
        replicas_min: 1,
        size: Some("25cc".into()),
        reason: "a sale begins".into(),
        expires_in: Span::from_secs(600),
    };
    world.ask("bob", vec![floor]);
    let overridden = world.last();
    let action = world.state.actions().next().unwrap().id;
    let (index, actor, text) = what_for(&world, action);
    assert_eq!((index, actor.as_deref()), (Some(overridden), Some("bob")), "{text}");
    assert!(text.ends_with("; a sale begins"), "{text}");
    let told = story(&world, &world.state, &decided(&world, "demo")).unwrap();
    let plan = of(&told, "plan")[0];
    assert_eq!((plan.index, plan.actor.as_deref()), (Some(overridden), Some("bob")), "{:#?}", told.lines());

    let mut world = World::new();
    world.cluster("alice", "demo");
    let by_hand = |name: &str| {
        let (cluster, replica, size) = ("demo".into(), name.into(), "25cc".into());
        vec![Command::CreateReplica { cluster, replica, size, if_not_exists: false }]
    };
    world.ask("carol", by_hand("mine"));
    let asked = world.last();
    world.ask("dave", by_hand("other"));
    let action = world.state.actions().next().unwrap().id;
    let (index, actor, text) = what_for(&world, action);
    assert_eq!((index, actor.as_deref()), (Some(asked), Some("carol")), "{text}");

    world.carry_out();
    world.report("demo", Span::default(), vec![replica("mine", "25cc", true)]);
    world.report("demo", Span::default(), vec![Seen::Hydration { replica: "mine".into(), total: 3, hydrated: 3 }]);
    world.pass(Span::from_secs(1));
    let told = story(&world, &world.state, &ResourceName::action(action)).unwrap();
    let cooldown = of(&told, "effect").into_iter().find(|fact| fact.name == "cooldown").unwrap();
    let only = "the cooldown of the cluster, 30s, counts from ";
    assert!(cooldown.text.starts_with(only), "a user has none: {cooldown:?}");
}

#[test]
fn a_change_that_was_rejected_names_whoever_rejected_it_and_why() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let approval = ("approval", OptionValue::Text("manual".into()));
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[size("25cc")[0].clone(), approval]);
    let action = world.state.actions().next().unwrap().id;
    world.ask("bob", vec![Command::RejectAction { action, reason: "not today".into() }]);
    let rejected = world.last();
    world.ask("carol", set("auto_scaling_cluster_cooldown", "45s"));
    let told = story(&world, &world.state, &ResourceName::cluster("demo")).unwrap();
    let brake = of(&told, "brake").into_iter().find(|fact| fact.name == "REJECTED").unwrap();
    assert_eq!((brake.index, brake.actor.as_deref()), (Some(rejected), Some("bob")), "{brake:?}");
    assert!(brake.text.ends_with("; not today"), "{brake:?}");
    assert_eq!(brake.resource, Some(ResourceName::action(action).to_string()));
}

#[test]
fn an_action_that_was_suppressed_names_whoever_turned_the_switch() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &size("25cc"));
    let action = world.state.actions().next().unwrap().id;
    world.ask("bob", set("auto_scaling_enabled", "false"));
    let off = world.last();
    world.pass(Span::from_secs(1));
    world.ask("carol", set("auto_scaling_enabled", "true"));
    let told = story(&world, &world.state, &ResourceName::action(action)).unwrap();
    assert_eq!(told.action.as_ref().unwrap().status, ActionStatus::Suppressed, "{:#?}", told.lines());
    let switch = of(&told, "action").into_iter().find(|fact| fact.name == "auto_scaling_enabled").unwrap();
    assert_eq!((switch.index, switch.actor.as_deref()), (Some(off), Some("bob")), "{switch:?}");
}

//! What changed between two moments, and who did it.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use crate::world::{World, replica};
use loadline_audit::diff::{DiffError, Difference, What, diff};
use loadline_audit::{Moment, Start};
use loadline_state_machine::{Command, NodeNumber, OptionValue, Seen, Span, StrategyKind};

fn between(world: &World, from: u64, to: u64) -> Difference {
    diff(world, Start::Beginning, Moment::Index(from), Moment::Index(to), || {}).unwrap()
}

/// Name, change, fields and the last deed, each thing on one line.
fn lines(difference: &Difference) -> Vec<String> {
    let line = |changed: &loadline_audit::diff::Changed| {
        let fields = changed.fields.iter().map(|field| format!(" {}:{}->{}", field.name, field.before, field.after));
        let deed = changed.deeds.last().map_or("nobody".to_owned(), |deed| {
            let who = deed.who.as_ref().map_or("itself", |who| who.actor.as_str());
            format!("{} at {} by {who}", deed.kind, deed.index)
        });
        format!("{} {}{}; {deed}", changed.name, changed.what.as_str(), fields.collect::<String>())
    };
    difference.changes.iter().map(line).collect()
}

#[test]
fn what_people_changed_is_told_field_by_field_with_who_and_where() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    let before = world.last();
    world.change_strategy("bob", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("100cc".into()))]);
    world.set("carol", "auto_scaling_cluster_cooldown", "45s");
    world.ask("bob", vec![Command::PauseCluster { cluster: "demo".into(), reason: "moving".into(), expires_in: None }]);
    world.cluster("dave", "later");
    let difference = between(&world, before, world.last());
    let found = lines(&difference);
    let strategy = "strategies/s9.0 altered options.size:\"25cc\"->\"100cc\"; StrategyChanged at 10 by bob";
    assert!(found.contains(&strategy.to_owned()), "{found:#?}");
    assert!(
        found.contains(
            &"settings/auto_scaling_cluster_cooldown created value:null->\"45s\"; SettingSet at 11 by carol".to_owned()
        ),
        "{found:#?}"
    );
    assert!(
        found.contains(&"clusters/later created id:null->\"c13.0\"; ClusterCreated at 13 by dave".to_owned()),
        "{found:#?}"
    );
    let demo = difference.changes.iter().find(|changed| changed.name == "clusters/demo").unwrap();
    let reason = demo.fields.iter().find(|field| field.name == "pause.reason").unwrap();
    assert_eq!((&reason.after, demo.deeds[reason.deed.unwrap()].kind), (&"moving".into(), "ClusterPaused"));
    let paused = demo.deeds.iter().find(|deed| deed.kind == "ClusterPaused").unwrap();
    let who = paused.who.as_ref().unwrap();
    assert_eq!((who.actor.as_str(), who.source.as_str(), who.proof.as_str()), ("bob", "10.0.0.7:4711", "machine"));
    assert!(who.request_id.is_some());
}

#[test]
fn what_the_brain_did_names_its_decision_and_action() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let before = world.last();
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    world.report("demo", Span::default(), vec![Seen::Activity { idle_for: None }]);
    let actions = world.carry_out();
    world.report("demo", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    let difference = between(&world, before, world.last());
    let changed = difference.changes.iter().find(|changed| changed.name == "replicas/demo/r1_auto").unwrap();
    assert_eq!(changed.what, What::Created);
    let settled = changed.deeds.iter().find(|deed| deed.kind == "ActionSettled").unwrap();
    assert_eq!(settled.action.as_deref(), Some(actions[0].to_string().as_str()));
    assert!(settled.decision.is_some() && settled.by.as_deref() == Some("target_size s9.0"), "{settled:?}");
    let seen = changed.deeds.iter().find(|deed| deed.kind == "SignalsReported").unwrap();
    assert_eq!(seen.action, settled.action, "what the collector saw is what the action made");
    assert_eq!(seen.who.as_ref().unwrap().actor, "watcher");
}

#[test]
fn what_went_is_dropped_and_two_equal_moments_do_not_differ() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let there = world.last();
    world.ask("bob", vec![Command::DropCluster { name: "demo".into(), etag: None, allow_missing: false }]);
    let gone = lines(&between(&world, there, world.last()));
    assert_eq!(gone, ["clusters/demo dropped id:\"c8.0\"->null; ClusterDropped at 9 by bob"]);
    assert_eq!(between(&world, there, there).changes, []);
    let back = diff(&world, Start::Beginning, Moment::Index(9), Moment::Index(8), || {}).unwrap_err();
    assert!(matches!(back, DiffError::Backwards { from: 9, to: 8 }), "{back}");
}

#[test]
fn replicas_go_with_their_cluster_and_what_came_and_went_in_between_is_not_told() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.report("demo", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    let there = world.last();
    world.cluster("alice", "short");
    world.strategy("alice", "short", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    world.report("short", Span::default(), vec![Seen::Activity { idle_for: None }]);
    world.carry_out();
    world.report("short", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    for name in ["short", "demo"] {
        let drop = Command::DropClusterCascade { name: name.into(), etag: None, allow_missing: false };
        world.ask("bob", vec![drop]);
    }
    let (gone, dropped) = (lines(&between(&world, there, world.last())), world.last());
    assert_eq!(gone.len(), 2, "{gone:#?}");
    for (line, thing) in gone.iter().zip(["clusters/demo", "replicas/demo/r1_auto"]) {
        assert!(line.starts_with(&format!("{thing} dropped ")), "{gone:#?}");
        assert!(line.ends_with(&format!("; ClusterDropped at {dropped} by bob")), "{gone:#?}");
    }
}

#[test]
fn what_was_gone_for_a_while_is_put_down_to_whoever_made_it_last() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let before = world.last();
    for who in ["bob", "carol"] {
        world.cluster(who, "again");
        world.report("again", Span::default(), vec![Seen::Activity { idle_for: None }]);
        if who == "bob" {
            let drop = Command::DropCluster { name: "again".into(), etag: None, allow_missing: false };
            world.ask("bob", vec![drop]);
        }
    }
    let difference = between(&world, before, world.last());
    let again = difference.changes.iter().find(|changed| changed.name == "clusters/again").unwrap();
    assert_eq!((again.what, again.deeds[0].kind), (What::Created, "ClusterCreated"));
    assert_eq!(doer(&difference, "clusters/again", "id").2, "carol");
    assert!(again.deeds.iter().all(|deed| deed.who.as_ref().is_none_or(|who| who.actor != "bob")), "{again:?}");
}

/// Who a field's last change is put down to: the kind, the entry and the name.
fn doer(difference: &Difference, thing: &str, field: &str) -> (&'static str, u64, String) {
    let changed = difference.changes.iter().find(|changed| changed.name == thing).unwrap();
    let field = changed.fields.iter().find(|it| it.name == field).unwrap();
    let deed = &changed.deeds[field.deed.unwrap()];
    (deed.kind, deed.index, deed.who.as_ref().map_or("itself".to_owned(), |who| who.actor.clone()))
}

#[test]
fn a_thing_is_put_down_to_whoever_made_it_whatever_happened_to_it_since() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let made = world.last();
    world.strategy("bob", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    let strategy = world.last();
    // More decisions and reports than deeds are kept.
    for round in 0..30 {
        world.report("demo", Span::default(), vec![Seen::Activity { idle_for: None }]);
        let size = ["25cc", "100cc"][round % 2];
        world.change_strategy("carol", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text(size.into()))]);
        world.carry_out();
        world.pass(Span::from_secs(60));
    }
    let difference = between(&world, made - 1, world.last());
    assert_eq!(doer(&difference, "clusters/demo", "id"), ("ClusterCreated", made, "alice".into()));
    let id = format!("strategies/s{strategy}.0");
    assert_eq!(doer(&difference, &id, "type"), ("StrategyCreated", strategy, "bob".into()));
    assert_eq!(doer(&difference, &id, "options.size").2, "carol");
    assert_eq!(doer(&difference, "clusters/demo", "conclusion").0, "DecisionMade");
}

#[test]
fn the_incarnation_of_a_group_is_put_down_to_its_first_leader() {
    let mut world = World::new();
    for term in 2..=40 {
        world.node(vec![Command::AnnounceLeader { node: NodeNumber(1 + term % 3), term }]);
    }
    let difference = between(&world, 0, world.last());
    let (kind, index, _) = doer(&difference, "group", "incarnation");
    let deeds = &difference.changes.iter().find(|changed| changed.name == "group").unwrap().deeds;
    assert_eq!((kind, index), ("LeaderAnnounced", 2));
    assert!(deeds.len() <= 20 && deeds.last().unwrap().index == world.last(), "the newest are told, too: {deeds:?}");
}

#[test]
fn a_new_name_is_put_down_to_whoever_gave_it() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("bob", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    let strategy = world.last();
    world.ask("carol", vec![Command::RenameCluster { name: "demo".into(), to: "later".into(), etag: None }]);
    let renamed = world.last();
    world.change_strategy("dave", "later", StrategyKind::TargetSize, &[("size", OptionValue::Text("100cc".into()))]);
    let difference = between(&world, renamed - 1, world.last());
    let carol = ("ClusterRenamed", renamed, "carol".to_owned());
    assert_eq!(doer(&difference, "clusters/later", "id"), carol);
    assert_eq!(doer(&difference, "clusters/demo", "id"), carol);
    assert_eq!(doer(&difference, &format!("strategies/s{strategy}.0"), "target"), carol);
}

//! What changed between two moments, and who did it.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use crate::world::{World, given, replica};
use loadline_audit::diff::{DiffError, Difference, What, diff};
use loadline_audit::{Moment, Start};
use loadline_state_machine::{
    Command, Hash, NodeNumber, OptionValue, PasswordChange, ScramVerifier, Seen, SignalKind, Span, StrategyKind,
    TargetName, UsageOn,
};

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
    assert_eq!(doer(&difference, "clusters/later", "name"), carol);
    assert_eq!(doer(&difference, &format!("strategies/s{strategy}.0"), "target"), carol);
}

#[test]
fn a_cluster_that_was_renamed_is_still_the_same_one_and_so_is_what_belongs_to_it() {
    let mut world = World::new();
    world.cluster("alice", "gamma");
    world.report("gamma", Span::default(), vec![replica("r1", "25cc", false), replica("r2", "25cc", true)]);
    let before = world.last();
    world.ask("bob", vec![Command::PauseCluster { cluster: "gamma".into(), reason: "x".into(), expires_in: None }]);
    let paused = world.last();
    world.ask("carol", vec![Command::RenameCluster { name: "gamma".into(), to: "gamma2".into(), etag: None }]);
    let renamed = world.last();
    world.report("gamma2", Span::default(), vec![replica("r1", "25cc", true)]);
    let seen = world.last();
    let difference = between(&world, before, world.last());
    let names: Vec<(&str, What)> =
        difference.changes.iter().map(|changed| (changed.name.as_str(), changed.what)).collect();
    assert_eq!(names, [("clusters/gamma2", What::Altered), ("replicas/gamma2/r1", What::Altered)]);
    let fields = |at: usize| -> Vec<(&str, String)> {
        let shown = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let fields = difference.changes[at].fields.iter();
        fields
            .map(|field| (field.name.as_str(), format!("{} -> {}", shown(&field.before), shown(&field.after))))
            .collect()
    };
    assert_eq!(fields(0), [("name", "gamma -> gamma2".to_owned()), ("pause.reason", "null -> x".to_owned())]);
    assert_eq!(fields(1), [("ready", "false -> true".to_owned())]);
    assert_eq!(doer(&difference, "clusters/gamma2", "name"), ("ClusterRenamed", renamed, "carol".into()));
    assert_eq!(doer(&difference, "clusters/gamma2", "pause.reason"), ("ClusterPaused", paused, "bob".into()));
    assert_eq!(doer(&difference, "replicas/gamma2/r1", "ready"), ("SignalsReported", seen, "watcher".into()));
}

#[test]
fn another_cluster_under_the_name_of_one_that_was_dropped_is_put_down_to_whoever_made_it() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.ask("alice", vec![Command::PauseCluster { cluster: "demo".into(), reason: "x".into(), expires_in: None }]);
    let before = world.last();
    world.ask("bob", vec![Command::DropCluster { name: "demo".into(), etag: None, allow_missing: false }]);
    world.cluster("carol", "demo");
    let made = world.last();
    let difference = between(&world, before, world.last());
    assert_eq!(difference.changes.len(), 1);
    assert_eq!(difference.changes[0].what, What::Altered);
    for field in ["id", "pause.reason"] {
        assert_eq!(doer(&difference, "clusters/demo", field), ("ClusterCreated", made, "carol".into()), "{field}");
    }
}

#[test]
fn each_field_of_a_role_is_put_down_to_whoever_changed_that_one() {
    let mut world = World::new();
    let create = |name: &str, superuser, verifier| {
        vec![Command::CreateRole { name: name.into(), superuser, verifier, if_not_exists: false }]
    };
    let verifier =
        || ScramVerifier { iterations: 4_096, salt: vec![1; 16].into(), stored_key: [2; 32], server_key: [3; 32] };
    world.ask("root", create("root", true, Some(verifier())));
    world.ask("root", create("ops", false, None));
    world.cluster("root", "demo");
    let before = world.last();
    let alter = |superuser, password| vec![Command::AlterRole { name: "ops".into(), superuser, password, etag: None }];
    world.ask("root", alter(Some(true), PasswordChange::Keep));
    let superuser = world.last();
    world.ask("root", alter(None, PasswordChange::Set(verifier())));
    let password = world.last();
    world.ask("root", vec![Command::GrantUsage { role: "ops".into(), on: UsageOn::Cluster("demo".into()) }]);
    let usage = world.last();
    let hash = Hash::of(b"a token");
    let token = Command::CreateToken { role: "ops".into(), token: "abcdefgh".into(), hash, expires_in: None };
    world.ask("root", vec![token]);
    let token = world.last();
    let difference = between(&world, before, world.last());
    let of = |field: &str| {
        let (kind, index, _) = doer(&difference, "roles/ops", field);
        (kind, index)
    };
    assert_eq!(of("superuser"), ("RoleChanged", superuser));
    assert_eq!(of("password"), ("RoleChanged", password));
    assert_eq!(of("usage"), ("UsageGranted", usage));
    assert_eq!(of("tokens"), ("TokenCreated", token));
}

#[test]
fn an_option_is_put_down_to_whoever_changed_that_very_one_even_in_one_entry() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let size = |size: &str| ("size", OptionValue::Text(size.into()));
    let cooldown = |seconds| ("cooldown_s", OptionValue::Number(seconds));
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[size("25cc"), cooldown(60)]);
    let id = format!("strategies/s{}.0", world.last());
    let before = world.last();
    let change = |options: &[(&str, OptionValue)]| {
        let (target, kind) = (TargetName::Cluster("demo".into()), StrategyKind::TargetSize);
        let (options, reset) = (given(options), Vec::new());
        vec![Command::ChangeStrategy { target, kind, options, reset, etag: None, unchecked: false }]
    };
    world.ask("bob", change(&[cooldown(120)]));
    let bob = world.last();
    world.ask("carol", change(&[size("100cc")]));
    world.ask("dave", change(&[size("100cc"), cooldown(120)]));
    let difference = between(&world, before, world.last());
    assert_eq!(doer(&difference, &id, "options.cooldown_s"), ("StrategyChanged", bob, "bob".into()));
    assert_eq!(doer(&difference, &id, "options.size"), ("StrategyChanged", bob + 1, "carol".into()));

    let before = world.last();
    let pause = Command::PauseCluster { cluster: "demo".into(), reason: "x".into(), expires_in: None };
    world.batch(vec![("erin", change(&[cooldown(240)])), ("frank", change(&[size("200cc")])), ("grace", vec![pause])]);
    let difference = between(&world, before, world.last());
    assert_eq!(doer(&difference, &id, "options.cooldown_s").2, "erin");
    assert_eq!(doer(&difference, &id, "options.size").2, "frank");
    assert_eq!(doer(&difference, "clusters/demo", "pause.reason").2, "grace");
}

#[test]
fn an_option_of_a_signal_is_put_down_to_whoever_changed_that_very_one() {
    let mut world = World::new();
    world.cluster("alice", "demo");
    let query = ("query", OptionValue::Text("queue".into()));
    let options = given(&[("url", OptionValue::Text("http://127.0.0.1:9090".into())), query]);
    let (target, kind) = (TargetName::Cluster("demo".into()), SignalKind::Prometheus);
    let create =
        Command::CreateSignal { name: "queue".into(), kind, target, every: None, options, if_not_exists: false };
    world.ask("alice", vec![create]);
    let before = world.last();
    let change = |options: &[(&str, OptionValue)], every: Option<Span>| {
        let (name, options, reset) = ("queue".into(), given(options), Vec::new());
        vec![Command::ChangeSignal { name, target: None, every, options, reset, etag: None }]
    };
    world.ask("bob", change(&[("url", OptionValue::Text("http://127.0.0.1:9091".into()))], None));
    world.ask("carol", change(&[], Some(Span::from_secs(60))));
    let difference = between(&world, before, world.last());
    assert_eq!(doer(&difference, "signals/queue", "options.url").2, "bob");
    assert_eq!(doer(&difference, "signals/queue", "every").2, "carol");
}

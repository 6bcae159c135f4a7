//! Looking for what somebody did, or what happened to a cluster.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use crate::world;
use crate::world::World;
use loadline_audit::search::{Found, Kind, Wanted, search};
use loadline_audit::{Scanned, Trail, TrailNames};
use loadline_state_machine::{Command, OptionValue, PasswordChange, ScramVerifier, Seen, Span, StrategyKind, Time};

fn lived() -> World {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    world.report("demo", Span::default(), vec![Seen::Activity { idle_for: None }]);
    world.carry_out();
    world.pass(Span::from_secs(60));
    world.cluster("bob", "other");
    world.ask("bob", vec![Command::RenameCluster { name: "other".into(), to: "later".into(), etag: None }]);
    world.ask("alice", vec![Command::PauseCluster { cluster: "later".into(), reason: "x".into(), expires_in: None }]);
    world.try_ask("mallory", vec![Command::DropCluster { name: "nothing".into(), etag: None, allow_missing: false }]);
    world
}

fn found(world: &World, wanted: &Wanted, before: Option<u64>, count: usize) -> Found {
    let scanned = Scanned::read(world, || {}).unwrap();
    let trail = Trail { source: world, index: &scanned };
    search(&trail, wanted, &TrailNames::new(trail, None), before, count).unwrap()
}

fn all(world: &World, wanted: &Wanted) -> Vec<String> {
    let found = found(world, wanted, None, usize::MAX);
    assert_eq!(found.next, None);
    found.rows.iter().map(|row| format!("{} {} {}", row.index, row.actor.as_deref().unwrap_or("-"), row.what)).collect()
}

fn wanted() -> Wanted {
    Wanted::default()
}

fn kinds(names: &[&str]) -> Vec<Kind> {
    names.iter().map(|name| Kind::read(name).unwrap()).collect()
}

#[test]
fn conditions_that_are_given_together_must_hold_of_the_same_row() {
    let world = lived();
    let trail_of = |name: &str| {
        let scanned = Scanned::read(&world, || {}).unwrap();
        Trail { source: &world, index: &scanned }.cluster_named(name, None).unwrap()
    };
    let later = trail_of("later");
    assert_eq!(later, trail_of("other"), "a cluster is found by the name that it had");
    assert_eq!(trail_of("never"), None);
    let by_bob = all(&world, &Wanted { actor: Some("bob".into()), ..wanted() });
    assert_eq!(
        by_bob,
        ["15 bob cluster other renamed to later", "14 bob cluster later created as c14.0"]
            .map(|row| row.replace("cluster later created", "cluster other created"))
    );
    let on_later = all(&world, &Wanted { cluster: later, ..wanted() });
    assert_eq!(on_later.len(), 3, "{on_later:?}");
    let both = all(&world, &Wanted { cluster: later, actor: Some("alice".into()), ..wanted() });
    assert_eq!(both, ["16 alice later paused: x"]);
    let asked = all(&world, &Wanted { kinds: kinds(&["create-cluster"]), ..wanted() });
    assert_eq!(asked.len(), 2, "{asked:?}");
    let happened = all(&world, &Wanted { kinds: kinds(&["ClusterPaused", "clusterrenamed"]), ..wanted() });
    assert_eq!(happened.len(), 2, "{happened:?}");
    assert!(Kind::read("Nonsense").is_err());
}

#[test]
fn signals_are_shown_to_whoever_asks_for_them() {
    let world = lived();
    let whole = all(&world, &wanted());
    assert!(!whole.iter().any(|row| row.contains("saw of")), "{whole:?}");
    for kind in ["SignalsReported", "ReportSignals"] {
        let signals = all(&world, &Wanted { kinds: kinds(&[kind]), actor: Some("watcher".into()), ..wanted() });
        assert_eq!(signals, ["10 watcher watcher saw of demo: no activity"], "{kind}");
    }
}

#[test]
fn what_was_refused_is_told_with_who_asked() {
    let world = lived();
    let refused = all(&world, &Wanted { actor: Some("mallory".into()), ..wanted() });
    let asked = r#"DropCluster { name: "nothing", etag: None, allow_missing: false }"#;
    assert_eq!(refused, [format!("17 mallory nothing came of it (refused, a repeat, or so already): {asked}")]);
}

#[test]
fn time_bounds_what_is_found_on_both_sides() {
    let world = lived();
    let minute = Time::from_millis(world::NOON.as_millis() + 60_000);
    let since = all(&world, &Wanted { since: Some(minute), ..wanted() });
    let until = all(&world, &Wanted { until: Some(world::NOON), ..wanted() });
    let whole = all(&world, &wanted());
    assert_eq!(since.len() + until.len(), whole.len());
    assert!(since.iter().all(|row| row.split(' ').next().unwrap().parse::<u64>().unwrap() >= 13), "{since:?}");
    let before = Time::from_millis(world::NOON.as_millis() - 1);
    assert_eq!(all(&world, &Wanted { until: Some(before), ..wanted() }), Vec::<String>::new());
}

#[test]
fn pages_together_are_the_whole_without_a_gap_or_a_repeat() {
    let world = lived();
    for wanted in [wanted(), Wanted { actor: Some("alice".into()), ..wanted() }] {
        let whole = found(&world, &wanted, None, usize::MAX).rows;
        for count in [1, 2, 5] {
            let (mut rows, mut before) = (Vec::new(), None);
            loop {
                let page = found(&world, &wanted, before, count);
                rows.extend(page.rows);
                before = page.next;
                if before.is_none() {
                    break;
                }
            }
            assert_eq!(rows, whole, "{count} at a time");
        }
    }
}

#[test]
fn a_kind_of_command_finds_what_followed_from_it_and_not_from_its_neighbours() {
    let mut world = World::new();
    let pause = Command::PauseCluster { cluster: "demo".into(), reason: "x".into(), expires_in: None };
    let set = Command::SetSetting { name: "auto_scaling_rate_limit".into(), value: "5".into(), etag: None };
    world.ask("alice", vec![Command::CreateCluster { name: "demo".into() }, pause, set]);
    let of = |kind: &str| all(&world, &Wanted { kinds: kinds(&[kind]), actor: Some("alice".into()), ..wanted() });
    assert_eq!(of("CreateCluster"), ["8 alice cluster demo created as c8.0"]);
    assert_eq!(of("PauseCluster"), ["8 alice demo paused: x"]);
    let drop = Command::DropClusterCascade { name: "demo".into(), etag: None, allow_missing: false };
    world.ask("bob", vec![drop]);
    let of = |kind: &str| all(&world, &Wanted { kinds: kinds(&[kind]), ..wanted() });
    assert_eq!((of("DropCluster").len(), of("DropClusterCascade").len(), of("ClusterDropped").len()), (0, 1, 1));
}

#[test]
fn a_changed_role_is_told_with_what_was_changed_of_it() {
    let mut world = World::new();
    let verifier =
        || ScramVerifier { iterations: 4_096, salt: vec![1; 16].into(), stored_key: [2; 32], server_key: [3; 32] };
    let create = |name: &str, superuser| {
        let (name, verifier) = (name.into(), Some(verifier()));
        vec![Command::CreateRole { name, superuser, verifier, if_not_exists: false }]
    };
    world.ask("root", create("root", true));
    world.ask("root", create("ops", true));
    for (superuser, password) in [
        (Some(false), PasswordChange::Keep),
        (None, PasswordChange::Set(ScramVerifier { stored_key: [4; 32], ..verifier() })),
        (Some(true), PasswordChange::Clear),
    ] {
        world.ask("root", vec![Command::AlterRole { name: "ops".into(), superuser, password, etag: None }]);
    }
    let told = all(&world, &Wanted { kinds: kinds(&["RoleChanged"]), ..wanted() });
    let newest_first = [
        "12 root role ops changed: made a superuser, left without a password",
        "11 root role ops changed: given a password",
        "10 root role ops changed: no longer a superuser",
    ];
    assert_eq!(told, newest_first);
}

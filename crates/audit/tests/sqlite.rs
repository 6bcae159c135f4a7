//! The past as a SQLite file: what stands in it is what SQL would have shown at that moment, and everything before.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use crate::world::{World, replica};
use loadline_audit::sqlite::{About, write, write_in_parts};
use loadline_audit::{Moment, Start};
use loadline_state_machine::{Command, OptionValue, Seen, Span, StrategyKind};
use rusqlite::Connection;

/// A cluster that gets a replica, a user who changes her mind, and a cluster that goes.
fn lived() -> World {
    let mut world = World::new();
    world.cluster("alice", "demo");
    world.strategy("alice", "demo", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    world.report("demo", Span::from_secs(1), vec![Seen::Activity { idle_for: None }]);
    world.carry_out();
    world.report("demo", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    world.cluster("bob", "short");
    world.ask("bob", vec![Command::DropCluster { name: "short".into(), etag: None, allow_missing: false }]);
    world.pass(Span::from_secs(60));
    world
}

fn file(world: &World, to: Moment) -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.db");
    let about = About { group: "a group".into(), build: "a build".into(), history: "a test".into() };
    write(world, Start::Beginning, to, &path, &about, |_| {}).unwrap();
    (folder, Connection::open(&path).unwrap())
}

/// The same, with only so many rows in memory.
fn file_in_parts(world: &World, rows_at_once: usize) -> (tempfile::TempDir, Connection) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.db");
    write_in_parts(world, Start::Beginning, Moment::End, &path, &About::default(), rows_at_once, |_| {}).unwrap();
    (folder, Connection::open(&path).unwrap())
}

fn rows(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection.prepare(sql).unwrap();
    let columns = statement.column_count();
    let shown = statement.query_map([], |row| {
        let cell = |column| -> String {
            match row.get_ref(column).unwrap() {
                rusqlite::types::ValueRef::Null => "-".to_owned(),
                rusqlite::types::ValueRef::Integer(value) => value.to_string(),
                rusqlite::types::ValueRef::Real(value) => value.to_string(),
                rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                rusqlite::types::ValueRef::Blob(_) => "blob".to_owned(),
            }
        };
        Ok((0..columns).map(cell).collect::<Vec<_>>().join("|"))
    });
    shown.unwrap().map(Result::unwrap).collect()
}

#[test]
fn the_file_says_of_which_moment_it_is() {
    let world = lived();
    let (_folder, file) = file(&world, Moment::End);
    let meta =
        rows(&file, "SELECT log_index, time, state_hash, group_name, first_index, entries, build, history FROM meta");
    let expected = format!(
        "{}|2026-11-16T12:01:00.000Z|{}|a group|1|{}|a build|a test",
        world.last(),
        world.state.hash(),
        world.last()
    );
    assert_eq!(meta, [expected]);
}

#[test]
fn an_auditor_finds_the_state_the_past_and_who_did_it_with_plain_sql() {
    let world = lived();
    let (_folder, file) = file(&world, Moment::End);
    assert_eq!(rows(&file, "SELECT name FROM clusters"), ["demo"]);
    assert_eq!(
        rows(&file, "SELECT cluster, action_type, replica, status FROM actions"),
        ["demo|create_replica|r1_auto|SUCCEEDED"]
    );
    assert_eq!(
        rows(&file, "SELECT a.action_id, t.attempt, t.result FROM actions a JOIN attempts t USING (action_id)"),
        ["1|1|SUCCEEDED"]
    );
    let who = "SELECT actor, source, proof, what FROM events WHERE kind LIKE 'Cluster%' ORDER BY log_index";
    let at = |words: &str| {
        format!("{}|10.0.0.7:4711|machine|{}", words.split(' ').next().unwrap(), words.split_once(' ').unwrap().1)
    };
    let created: Vec<String> = rows(&file, who).into_iter().filter(|row| row.contains("cluster")).collect();
    let expected = [
        at("alice cluster demo created as c8.0"),
        at("bob cluster short created as c14.0"),
        at("bob cluster short deleted"),
    ];
    assert_eq!(created, expected);
    let ids = rows(&file, "SELECT count(DISTINCT request_id) FROM events WHERE actor = 'bob'");
    assert_eq!(ids, ["2"]);
    let decisions: i64 = rows(&file, "SELECT count(*) FROM decisions WHERE cluster_id = 'c8.0'")[0].parse().unwrap();
    assert!(decisions >= 2, "every decision, not only the last: {decisions}");
    assert_eq!(
        rows(
            &file,
            "SELECT count(*) FROM decisions d WHERE NOT EXISTS (SELECT 1 FROM decision_stages s WHERE s.decision_id = d.id)"
        ),
        ["0"]
    );
    let times = "SELECT strftime('%Y-%m-%d %H:%M', created_at) FROM actions";
    assert_eq!(rows(&file, times), ["2026-11-16 12:00"], "SQLite's own functions read the times");
    let tables = rows(&file, "SELECT name FROM tables WHERE name NOT IN (SELECT name FROM sqlite_master)");
    assert_eq!(tables, Vec::<String>::new(), "what is told of is there");
}

#[test]
fn a_moment_in_the_middle_knows_nothing_of_what_came_after() {
    let world = lived();
    // Before the backend had been called.
    let claimed = world.records.iter().position(|record| {
        loadline_state_machine::decode_events(&record.events)
            .unwrap()
            .iter()
            .any(|event| event.kind_name() == "ActionClaimed")
    });
    let before = world.records[claimed.unwrap() - 1].index;
    let (_folder, file) = file(&world, Moment::Index(before));
    assert_eq!(rows(&file, "SELECT status FROM actions"), ["PENDING"]);
    assert_eq!(rows(&file, "SELECT phase FROM operations"), ["begun"]);
    assert_eq!(rows(&file, "SELECT count(*) FROM attempts"), ["0"]);
    assert_eq!(rows(&file, "SELECT max(log_index) FROM events"), [before.to_string()]);
    assert_eq!(rows(&file, "SELECT count(*) FROM clusters WHERE name = 'short'"), ["0"]);
}

#[test]
fn what_was_refused_is_there_with_who_asked_and_why() {
    let mut world = lived();
    let applied = world.try_ask(
        "mallory",
        vec![Command::CreateCluster { name: "new".into() }, Command::CreateCluster { name: "demo".into() }],
    );
    assert!(applied.receipts[0].result.is_err(), "{applied:?}");
    let (_folder, file) = file(&world, Moment::End);
    let found = rows(&file, "SELECT log_index, place, actor, proof, asked, why FROM refusals");
    let expected = format!(
        "{}|0|mallory|machine|CreateCluster {{ name: \"demo\" }}|clusters/demo already exists (etag 8.0)",
        applied.index.0
    );
    assert_eq!(found, [expected]);
    assert_eq!(rows(&file, "SELECT name FROM clusters"), ["demo"]);
    assert_eq!(rows(&file, "SELECT count(*) FROM tables WHERE name = 'refusals'"), ["1"]);
}

/// A cluster that is renamed in the middle of its life, and then dropped with everything that it has.
fn renamed_and_dropped() -> World {
    let mut world = World::new();
    world.cluster("alice", "first");
    world.strategy("alice", "first", StrategyKind::TargetSize, &[("size", OptionValue::Text("25cc".into()))]);
    world.report("first", Span::default(), vec![Seen::Activity { idle_for: None }]);
    world.carry_out();
    world.report("first", Span::default(), vec![replica("r1_auto", "25cc", true)]);
    world.pass(Span::from_secs(60));
    world.ask("bob", vec![Command::RenameCluster { name: "first".into(), to: "second".into(), etag: None }]);
    world.change_strategy("bob", "second", StrategyKind::TargetSize, &[("size", OptionValue::Text("100cc".into()))]);
    world.report("second", Span::default(), vec![Seen::Activity { idle_for: None }]);
    world.carry_out();
    // An operation is under way, and ends with the cluster.
    let drop = Command::DropClusterCascade { name: "second".into(), etag: None, allow_missing: false };
    world.ask("carol", vec![drop]);
    world.cluster("dave", "third");
    world.pass(Span::from_secs(60));
    world
}

#[test]
fn every_row_has_the_name_that_its_cluster_had_then() {
    let world = renamed_and_dropped();
    let (_folder, file) = file(&world, Moment::End);
    let renamed = rows(&file, "SELECT log_index FROM events WHERE kind = 'ClusterRenamed'")[0].parse::<u64>().unwrap();
    for table in ["decisions", "events"] {
        let named = format!("SELECT DISTINCT cluster FROM {table} WHERE cluster_id = 'c8.0' AND log_index");
        assert_eq!(rows(&file, &format!("{named} < {renamed}")), ["first"], "{table}");
        assert_eq!(rows(&file, &format!("{named} >= {renamed}")), ["second"], "{table}");
    }
    let stages =
        "SELECT DISTINCT s.cluster = d.cluster FROM decision_stages s JOIN decisions d ON d.id = s.decision_id";
    assert_eq!(rows(&file, stages), ["1"]);
    let operations = rows(&file, "SELECT cluster, result FROM operations ORDER BY begun_at");
    assert_eq!(operations.len(), 2, "{operations:?}");
    assert!(operations[0].starts_with("first|") && operations[1].starts_with("second|"), "{operations:?}");
    assert_eq!(
        rows(
            &file,
            "SELECT kind, actor, what FROM events WHERE cluster = 'second' ORDER BY log_index DESC, ordinal DESC LIMIT 1"
        ),
        ["ClusterDropped|carol|cluster second deleted"]
    );
}

#[test]
fn the_file_is_the_same_however_many_rows_are_in_memory_at_once() {
    for world in [lived(), renamed_and_dropped()] {
        let (_folder, whole) = file_in_parts(&world, usize::MAX);
        let tables = rows(&whole, "SELECT name FROM tables ORDER BY name");
        for rows_at_once in [1, 3, 10] {
            let (_folder, parts) = file_in_parts(&world, rows_at_once);
            for table in &tables {
                let all = |file: &Connection| {
                    let mut all = rows(file, &format!("SELECT * FROM \"{table}\""));
                    all.sort();
                    all
                };
                assert_eq!(all(&parts), all(&whole), "{table}, {rows_at_once} rows at once");
            }
        }
    }
}

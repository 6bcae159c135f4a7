//! Every statement of the text that Loadline's SQL follows, "Auto-Scaling Widget Integration", as it is written there, section
//! by section, and what the text says it does. Here against the state machine itself; what is asked for of the tables is
//! shown where the tables are.

use crate::world::{Answer, World};
use loadline_sql::{SqlState, Statement, parse};
use loadline_state_machine::{OptionValue, StrategyKind, TargetName};

fn cluster(name: &str) -> TargetName {
    TargetName::Cluster(name.to_owned())
}

fn number(key: &str, value: i64) -> (String, OptionValue) {
    (key.to_owned(), OptionValue::Number(value))
}

fn text(key: &str, value: &str) -> (String, OptionValue) {
    (key.to_owned(), OptionValue::Text(value.to_owned()))
}

#[test]
fn safety_mechanisms_the_kill_switch() {
    let mut world = World::new();
    world.run("ALTER SYSTEM SET auto_scaling_enabled = false;");
    assert_eq!(world.state.setting("auto_scaling_enabled").unwrap().value, "false");
}

#[test]
fn feature_flag_the_statements_are_refused_until_it_is_on() {
    let mut world = World::new();
    world.run("CREATE CLUSTER my_cluster");
    let create = "CREATE SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE WITH (SIZE = '200cc')";
    for statement in [
        create,
        "ALTER SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE UPDATE (SIZE = '400cc')",
        "DROP SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE",
        "DROP ALL SCALING STRATEGIES FOR CLUSTER my_cluster",
        "SHOW SCALING STRATEGIES",
        "SHOW SCALING ACTIONS",
    ] {
        let error = world.try_run(statement).unwrap_err();
        assert_eq!(error.sqlstate, SqlState::FEATURE_NOT_SUPPORTED, "{statement}: {error:?}");
    }
    world.run("ALTER SYSTEM SET enable_auto_scaling = true;");
    world.run(create);
}

#[test]
fn sql_syntax_create_for_a_cluster() {
    let mut world = World::with_clusters(&["my_cluster"]);
    world.run(
        "-- Create a scaling strategy for a specific cluster
CREATE SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE TARGET_SIZE
    WITH (SIZE = '200cc', REPLICA_NAME = 'main');

CREATE SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE IDLE_SUSPEND
    WITH (IDLE_AFTER = '30m', COOLDOWN = '5m');",
    );
    let target = cluster("my_cluster");
    let stored = world.options(&target, StrategyKind::TargetSize).unwrap();
    assert_eq!(stored, [text("replica_name", "main"), text("size", "200cc")]);
    let stored = world.options(&target, StrategyKind::IdleSuspend).unwrap();
    assert_eq!(stored, [number("cooldown_s", 300), number("idle_after_s", 1_800)]);
}

#[test]
fn sql_syntax_create_for_all_clusters() {
    let mut world = World::with_clusters(&[]);
    world.run(
        "-- Create a scaling strategy for ALL clusters
CREATE SCALING STRATEGY FOR ALL CLUSTERS
    TYPE IDLE_SUSPEND
    WITH (IDLE_AFTER = '1h');",
    );
    assert_eq!(world.options(&TargetName::All, StrategyKind::IdleSuspend), Some(vec![number("idle_after_s", 3_600)]));
}

#[test]
fn sql_syntax_managed_only() {
    let mut world = World::with_clusters(&["my_cluster"]);
    world.run(
        "-- Use MANAGED_ONLY mode for safer rollout
CREATE SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE TARGET_SIZE
    WITH (SIZE = '200cc', REPLICA_SCOPE = 'MANAGED_ONLY');",
    );
    let stored = world.options(&cluster("my_cluster"), StrategyKind::TargetSize).unwrap();
    assert_eq!(stored, [text("replica_scope", "MANAGED_ONLY"), text("size", "200cc")]);
}

/// A cluster with a strategy of two types, as the statements that change them find it.
fn configured() -> World {
    let mut world = World::with_clusters(&["my_cluster", "other"]);
    world.run(
        "CREATE SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE WITH (SIZE = '200cc', REPLICA_NAME = 'main');
         CREATE SCALING STRATEGY FOR CLUSTER my_cluster TYPE IDLE_SUSPEND WITH (IDLE_AFTER = '30m', COOLDOWN = '5m');
         CREATE SCALING STRATEGY FOR CLUSTER other TYPE TARGET_SIZE WITH (SIZE = '100cc');",
    );
    world
}

#[test]
fn sql_syntax_alter_changes_only_what_is_named() {
    let mut world = configured();
    world.run(
        "-- Modify strategy options (partial update, only specified keys change)
ALTER SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE TARGET_SIZE
    UPDATE (SIZE = '400cc');",
    );
    let stored = world.options(&cluster("my_cluster"), StrategyKind::TargetSize).unwrap();
    assert_eq!(stored, [text("replica_name", "main"), text("size", "400cc")]);
    world.run(
        "-- Enable/disable without removing
ALTER SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE IDLE_SUSPEND
    UPDATE (ENABLED = false);",
    );
    let stored = world.options(&cluster("my_cluster"), StrategyKind::IdleSuspend).unwrap();
    let disabled = ("enabled".to_owned(), OptionValue::Bool(false));
    assert_eq!(stored, [number("cooldown_s", 300), disabled, number("idle_after_s", 1_800)]);
}

#[test]
fn sql_syntax_drop() {
    let mut world = configured();
    world.run("-- Remove a strategy\nDROP SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE;");
    assert_eq!(world.options(&cluster("my_cluster"), StrategyKind::TargetSize), None);
    assert!(world.options(&cluster("my_cluster"), StrategyKind::IdleSuspend).is_some());
    world.run("-- Remove ALL scaling strategies from a cluster\nDROP ALL SCALING STRATEGIES FOR CLUSTER my_cluster;");
    assert_eq!(world.options(&cluster("my_cluster"), StrategyKind::IdleSuspend), None);
    assert!(world.options(&cluster("other"), StrategyKind::TargetSize).is_some(), "another cluster's stay");
}

#[test]
fn sql_syntax_show() {
    let mut world = configured();
    let answers = world.run(
        "-- Inspect configuration
SHOW SCALING STRATEGIES;
SHOW SCALING STRATEGIES FOR CLUSTER my_cluster;
SHOW SCALING ACTIONS FOR CLUSTER my_cluster LIMIT 10;",
    );
    assert_eq!(answers.len(), 3);
    for answer in answers {
        let Answer::Rows(query) = answer else { panic!("{answer:?}") };
        assert!(matches!(parse(&query).unwrap()[0].statement, Statement::Query(_)), "{query}");
    }
}

#[test]
fn auto_scaling_widget_one_configuration_per_type_and_cluster() {
    let mut world = configured();
    let again = "CREATE SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE WITH (SIZE = '400cc')";
    assert_eq!(world.try_run(again).unwrap_err().sqlstate, SqlState::DUPLICATE_OBJECT);
    world.run(&again.replace("STRATEGY", "STRATEGY IF NOT EXISTS"));
    let stored = world.options(&cluster("my_cluster"), StrategyKind::TargetSize).unwrap();
    assert_eq!(stored, [text("replica_name", "main"), text("size", "200cc")], "nothing was changed");
}

#[test]
fn auto_scaling_widget_ambiguous_patterns_are_refused() {
    let mut world = World::with_clusters(&["prod_a"]);
    let create = |pattern: &str| {
        format!("CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE '{pattern}' TYPE IDLE_SUSPEND WITH (IDLE_AFTER = '1h')")
    };
    world.run(&create("prod_%"));
    let error = world.try_run(&create("%_a")).unwrap_err();
    assert_eq!(error.sqlstate, SqlState::DUPLICATE_OBJECT);
    assert!(error.message.starts_with("ambiguous pattern overlap"), "{error}");
}

#[test]
fn builtin_tables_retention() {
    let mut world = World::new();
    world.run("ALTER SYSTEM SET auto_scaling_action_retention = '14 days'");
    assert_eq!(world.state.setting("auto_scaling_action_retention").unwrap().value, "14d");
    world.run("ALTER SYSTEM RESET auto_scaling_action_retention");
    assert_eq!(world.state.setting("auto_scaling_action_retention").unwrap().value, "7d");
}

#[test]
fn writable_builtin_tables_are_read_as_writes() {
    for statement in [
        "INSERT INTO mz_internal.mz_scaling_strategies (id, cluster_id, strategy_type, config) VALUES ('x', 'u1', 'burst', '{}')",
        "DELETE FROM mz_internal.mz_scaling_strategies
WHERE cluster_id = 'u1' AND strategy_type = 'target_size';",
        "UPDATE mz_internal.mz_scaling_strategies
SET config = config || '{\"size\": \"400cc\"}'::jsonb
WHERE id = 'strategy-123';",
    ] {
        assert!(matches!(parse(statement).unwrap()[0].statement, Statement::Write(_)), "{statement}");
    }
}

#[test]
fn required_test_scenarios_basic_functionality() {
    let mut world = World::with_clusters(&[]);
    world.run("CREATE CLUSTER scaling_test SIZE = '1'");
    world.run(
        "CREATE SCALING STRATEGY FOR CLUSTER scaling_test
    TYPE TARGET_SIZE
    WITH (SIZE = '2')",
    );
    let explained = world.state.explain("scaling_test").unwrap();
    let wanted: Vec<(&str, &str)> =
        explained.now.desired.iter().map(|it| (it.name.as_ref(), it.size.as_ref())).collect();
    assert_eq!(wanted, [("r1_auto", "2")]);
    let select = "SELECT name, size FROM mz_cluster_replicas
  WHERE cluster_id = (SELECT id FROM mz_clusters WHERE name = 'scaling_test')";
    assert!(matches!(parse(select).unwrap()[0].statement, Statement::Query(_)));
}

#[test]
fn required_test_scenarios_pattern_strategies() {
    let mut world = World::with_clusters(&[]);
    world.run(
        "CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE 'analytics_%' TYPE TARGET_SIZE WITH (SIZE = '1');
         CREATE CLUSTER analytics_foo;",
    );
    let wanted = |world: &World, name: &str| world.state.explain(name).unwrap().now.desired.len();
    assert_eq!(wanted(&world, "analytics_foo"), 1);
    world.run("ALTER CLUSTER analytics_foo RENAME TO other");
    assert_eq!(wanted(&world, "other"), 0, "the new name does not match");
}

/// The schemas are ours to make: nobody else creates tables or views.
#[test]
fn builtin_tables_and_the_view_are_not_created_by_users() {
    for statement in [
        "CREATE TABLE mz_internal.mz_scaling_strategies (id text NOT NULL PRIMARY KEY)",
        "CREATE VIEW mz_internal.mz_scaling_strategies_effective AS SELECT 1",
    ] {
        assert!(parse(statement).is_err(), "{statement}");
    }
}

#[test]
fn appendix_g_intervals_are_stored_as_seconds() {
    for (written, secs) in [("'30s'", 30), ("'5m'", 300), ("'1h'", 3_600), ("INTERVAL '5 minutes'", 300), ("90", 90)] {
        let mut world = World::with_clusters(&["c"]);
        world.run(&format!("CREATE SCALING STRATEGY FOR CLUSTER c TYPE IDLE SUSPEND WITH (IDLE AFTER = {written})"));
        assert_eq!(world.options(&cluster("c"), StrategyKind::IdleSuspend), Some(vec![number("idle_after_s", secs)]));
    }
}

#[test]
fn appendix_g_every_option_of_every_type() {
    let mut world = World::with_clusters(&["c"]);
    let common = "ENABLED = true, REPLICA_SCOPE = 'ALL'";
    for (kind, options) in [
        ("TARGET SIZE", "SIZE = '200cc', REPLICA_NAME = 'r1_auto', COOLDOWN = '60s'"),
        ("BURST", "BURST_SIZE = '200cc', COOLDOWN = '60s'"),
        ("IDLE SUSPEND", "IDLE_AFTER = '30m', COOLDOWN = '300s'"),
        (
            "SHRINK TO FIT",
            "MAX_SIZE = '200cc', COOLDOWN = '120s', MIN_OOM_COUNT = 1, MIN_CRASH_COUNT = 1, CRASH_WINDOW = '1h'",
        ),
    ] {
        world.run(&format!("CREATE SCALING STRATEGY FOR CLUSTER c TYPE {kind} WITH ({options}, {common})"));
    }
    assert_eq!(world.state.strategy_count(), 4);
}

#[test]
fn permissions_every_role_is_in_the_catalogue() {
    let mut world = World::new();
    world.run("CREATE ROLE boss SUPERUSER; CREATE ROLE reader");
    let roles = world.rows("SELECT rolname, rolsuper, rolcanlogin FROM pg_roles ORDER BY rolname");
    assert_eq!(roles, ["boss|true|false", "loadline|true|true", "reader|false|false"]);
    assert_eq!(world.rows("SELECT usename FROM pg_user"), ["loadline"], "those that can log in");
}

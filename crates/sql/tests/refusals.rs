//! What the state machine refuses, told in SQL; and transactions, which are all or nothing.

use crate::world::World;
use loadline_sql::SqlState;
use loadline_state_machine::{Command, StrategyKind, TargetName};

/// The statement is refused with this state and message, at `^` if there is one in it.
#[track_caller]
fn check(world: &mut World, marked: &str, sqlstate: SqlState, message: &str) {
    let text = marked.replace('^', "");
    let position = marked.find('^').map(|before| marked[..before].chars().count() + 1);
    let before = world.state.strategy_count();
    let error = world.try_run(&text).expect_err(marked);
    assert_eq!((error.sqlstate, error.message.as_str(), error.position), (sqlstate, message, position), "{error:?}");
    assert_eq!(world.state.strategy_count(), before, "nothing was done");
}

#[test]
fn a_refusal_names_what_was_written_and_where() {
    let mut world = World::with_clusters(&["c"]);
    let w = &mut world;
    check(
        w,
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE BURST WITH (BURST_SIZE = '1', ^IDLE_AFTER = '1h')",
        SqlState::SYNTAX_ERROR,
        "strategies of type burst have no option IDLE_AFTER",
    );
    check(
        w,
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE TARGET_TRACKING WITH (SIZE = '1', MAX_REPLICAS = 3, \
         SIGNALS = ^'load average 10; wait value soon')",
        SqlState::INVALID_PARAMETER_VALUE,
        "option SIGNALS: row 2, \"wait value soon\": \"soon\" is no number; write one such as 100 or 0.25, with at most \
         three decimals",
    );
    check(
        w,
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE TARGET_TRACKING WITH (SIZE = '1', MAX_REPLICAS = 3, \
         SIGNALS = 'load average 10', TOLERANCE = ^1.5)",
        SqlState::INVALID_PARAMETER_VALUE,
        "'1.5' is not a value for option TOLERANCE",
    );
    check(
        w,
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE TARGET_SIZE WITH (SIZE = ^'7')",
        SqlState::UNDEFINED_OBJECT,
        "option SIZE names size '7', which does not exist",
    );
    check(
        w,
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE TARGET_SIZE WITH (SIZE = '1', COOLDOWN = ^'soon')",
        SqlState::INVALID_PARAMETER_VALUE,
        "'soon' is not a value for option COOLDOWN",
    );
    check(
        w,
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE BURST",
        SqlState::INVALID_PARAMETER_VALUE,
        "option BURST_SIZE is required",
    );
    check(
        w,
        "DROP SCALING STRATEGY FOR CLUSTER c TYPE BURST",
        SqlState::UNDEFINED_OBJECT,
        "cluster c has no strategy of type burst",
    );
    check(w, "DROP CLUSTER nobody", SqlState::UNDEFINED_OBJECT, "clusters/nobody does not exist");
    check(
        w,
        "ALTER SYSTEM SET enable_auto_scalin = true",
        SqlState::UNDEFINED_OBJECT,
        "there is no setting \"enable_auto_scalin\": did you mean enable_auto_scaling?",
    );
    check(
        w,
        "ALTER SYSTEM SET auto_scaling_enabled = maybe",
        SqlState::INVALID_PARAMETER_VALUE,
        "\"maybe\" is not a value for setting auto_scaling_enabled: expected true or false",
    );
    check(w, "CREATE CLUSTER d SIZE = '7'", SqlState::UNDEFINED_OBJECT, "sizes/7 does not exist");
}

#[test]
fn names_with_quotes_semicolons_and_nuls_do_nothing() {
    let mut world = World::with_clusters(&["c"]);
    for name in ["c\"\"; DROP CLUSTER c; --", "c'; DROP CLUSTER c; --", "c\u{0}", " c", "c;"] {
        let error = world.try_run(&format!("CREATE CLUSTER \"{name}\"")).unwrap_err();
        assert_eq!(error.sqlstate, SqlState::INVALID_NAME, "{name:?}: {error:?}");
        assert!(world.try_run(&format!("DROP CLUSTER \"{name}\"")).is_err(), "{name:?}");
    }
    assert_eq!(world.state.cluster_count(), 1);
}

#[test]
fn what_is_there_already_is_passed_over_only_if_asked() {
    let mut world = World::with_clusters(&["c"]);
    assert_eq!(world.try_run("CREATE CLUSTER c").unwrap_err().sqlstate, SqlState::DUPLICATE_OBJECT);
    world.run("CREATE CLUSTER IF NOT EXISTS c; DROP CLUSTER IF EXISTS d; DROP SCALING STRATEGY IF EXISTS FOR CLUSTER c TYPE BURST");
    world.run("CREATE CLUSTER d BACKEND local; ALTER CLUSTER d RESET BACKEND; DROP CLUSTER d CASCADE");
    assert_eq!(world.state.cluster_count(), 1);
}

#[test]
fn a_transaction_is_one_entry_and_all_or_nothing() {
    let mut world = World::with_clusters(&[]);
    world.run(
        "BEGIN;
         CREATE CLUSTER a;
         CREATE SCALING STRATEGY FOR CLUSTER a TYPE BURST WITH (BURST_SIZE = '1');
         ALTER SCALING STRATEGY FOR CLUSTER a TYPE BURST UPDATE (BURST_SIZE = '2');
         COMMIT;",
    );
    assert_eq!(world.entries, 1);
    let a = TargetName::Cluster("a".to_owned());
    assert!(world.state.strategy_for(&a, StrategyKind::Burst).is_some());

    world.run("BEGIN; CREATE CLUSTER b; DROP CLUSTER a; ROLLBACK;");
    assert_eq!((world.entries, world.state.cluster_count()), (1, 1));
}

#[test]
fn what_a_transaction_creates_is_told_apart_within_it() {
    let mut world = World::with_clusters(&[]);
    world.run(
        "BEGIN;
         CREATE CLUSTER a;
         CREATE CLUSTER b;
         CREATE SCALING STRATEGY FOR CLUSTER b TYPE BURST WITH (BURST_SIZE = '1');
         DROP CLUSTER a;
         ALTER SCALING STRATEGY FOR CLUSTER b TYPE BURST UPDATE (BURST_SIZE = '2');
         COMMIT;",
    );
    assert_eq!((world.state.cluster_count(), world.state.strategy_count()), (1, 1));
}

#[test]
fn a_mistake_in_a_transaction_is_told_at_once() {
    let mut world = World::with_clusters(&[]);
    world.run("BEGIN; CREATE CLUSTER a;");
    let error = world.try_run("CREATE CLUSTER a").unwrap_err();
    assert_eq!(error.sqlstate, SqlState::DUPLICATE_OBJECT, "it sees what it has done itself");
    assert_eq!(world.state.cluster_count(), 0, "nobody else does");
}

#[test]
fn what_somebody_else_did_meanwhile_makes_the_whole_transaction_fail() {
    let mut world = World::with_clusters(&["c"]);
    world.run("BEGIN; CREATE CLUSTER a; ALTER CLUSTER c RENAME TO d;");
    world.write(vec![Command::DropCluster { name: "c".to_owned(), etag: None, allow_missing: false }]).result.unwrap();
    let error = world.try_run("COMMIT").unwrap_err();
    assert_eq!((error.sqlstate, error.message.as_str()), (SqlState::UNDEFINED_OBJECT, "clusters/c does not exist"));
    assert_eq!(world.state.cluster_count(), 0, "a was not created either");
}

#[test]
fn roles_come_change_and_go() {
    let mut world = World::with_clusters(&["a", "b"]);
    world.run("CREATE ROLE root SUPERUSER LOGIN PASSWORD 'secret'");
    let error = world.try_run("CREATE ROLE ops").unwrap_err();
    assert_eq!(
        error.sqlstate,
        SqlState::INVALID_AUTHORIZATION,
        "from the first password on, a login is needed: {error}"
    );

    let mut world = World::with_clusters(&["a", "b"]);
    world.run("CREATE ROLE ops; GRANT USAGE ON CLUSTER a, b TO ops; REVOKE USAGE ON CLUSTER b FROM ops");
    let role = world.state.role("ops").expect("a role");
    let a = world.state.cluster("a").expect("a cluster").id;
    assert_eq!((role.superuser, role.all_clusters, role.clusters.as_slice()), (false, false, [a].as_slice()));
    world.run("GRANT USAGE ON ALL CLUSTERS TO ops; ALTER ROLE ops SUPERUSER");
    let role = world.state.role("ops").expect("a role");
    assert!(role.superuser && role.all_clusters);
    world.run("DROP ROLE ops; DROP ROLE IF EXISTS ops");
    assert!(world.state.role("ops").is_none());
    assert_eq!(world.try_run("DROP ROLE ops").unwrap_err().sqlstate, SqlState::UNDEFINED_OBJECT);
    for statement in ["CREATE ROLE x NOLOGIN PASSWORD 'p'", "ALTER ROLE x NOLOGIN"] {
        assert_eq!(world.try_run(statement).unwrap_err().sqlstate, SqlState::FEATURE_NOT_SUPPORTED, "{statement}");
    }
}

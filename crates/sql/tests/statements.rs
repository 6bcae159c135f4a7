//! What is read, how it is printed, and what is said about what cannot be read.

use loadline_sql::statement::Value;
use loadline_sql::{SqlState, Statement, parse};
use loadline_state_machine::{StrategyKind, option_definitions};

/// The text is one statement, which is printed like this and is then the same one.
#[track_caller]
fn check(text: &str, printed: &str) {
    let [parsed] = &parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}"))[..] else {
        panic!("{text}: not one")
    };
    assert_eq!(parsed.statement.to_string(), printed);
    let again = parse(printed).unwrap_or_else(|error| panic!("{printed}: {error:?}"));
    assert_eq!(again[0].statement, parsed.statement, "{printed}");
}

/// The text is refused at `^`, which is not part of it, with this message.
#[track_caller]
fn refused(marked: &str, message: &str) -> loadline_sql::SqlError {
    let (before, after) = marked.split_once('^').expect("a place");
    let error = parse(&format!("{before}{after}")).expect_err(marked);
    assert_eq!(error.position, Some(before.chars().count() + 1), "{error:?}");
    assert_eq!(error.message, message);
    error
}

#[test]
fn both_spellings_and_any_case_mean_the_same() {
    let printed = "CREATE SCALING STRATEGY IF NOT EXISTS FOR CLUSTER c TYPE TARGET_SIZE WITH (SIZE = '200cc', REPLICA_NAME = 'm')";
    check(printed, printed);
    check(
        "create Scaling STRATEGY if not exists\n for cluster C -- a comment\n type target size with (size='200cc', replica name = 'm')",
        printed,
    );
    for (spaced, joined) in [
        ("TARGET SIZE", "TARGET_SIZE"),
        ("SHRINK TO FIT", "SHRINK_TO_FIT"),
        ("BURST", "BURST"),
        ("IDLE SUSPEND", "IDLE_SUSPEND"),
        ("TARGET TRACKING", "TARGET_TRACKING"),
        ("QUEUE DEPTH", "QUEUE_DEPTH"),
    ] {
        let drop = |kind: &str| format!("DROP SCALING STRATEGY FOR ALL CLUSTERS TYPE {kind}");
        check(&drop(spaced), &drop(joined));
        check(&drop(&joined.to_lowercase()), &drop(joined));
    }
    for option in [
        "COOLDOWN",
        "ENABLED",
        "REPLICA_SCOPE",
        "DRY_RUN",
        "APPROVAL",
        "SIZE",
        "REPLICA_NAME",
        "MAX_SIZE",
        "MIN_OOM_COUNT",
        "MIN_CRASH_COUNT",
        "CRASH_WINDOW",
        "BURST_SIZE",
        "IDLE_AFTER",
        "SIGNALS",
        "MIN_REPLICAS",
        "MAX_REPLICAS",
        "STABILIZATION_DOWN",
        "SCALE_UP_POLICIES",
        "SCALE_DOWN_SELECT",
        "SATURATION_TARGET",
    ] {
        let alter = |option: &str| format!("ALTER SCALING STRATEGY FOR CLUSTER c TYPE BURST UPDATE ({option} = 1)");
        check(&alter(option), &alter(option));
        check(&alter(&option.replace('_', " ").to_lowercase()), &alter(option));
    }
}

#[test]
fn every_statement_is_printed_as_it_is_read() {
    for text in [
        "CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE 'prod_%' TYPE BURST",
        "DROP SCALING STRATEGY IF EXISTS FOR CLUSTER c TYPE BURST",
        "DROP ALL SCALING STRATEGIES FOR ALL CLUSTERS",
        "SHOW SCALING STRATEGIES FOR ALL CLUSTERS LIKE 'it''s%'",
        "SHOW SCALING ACTIONS",
        "SHOW SCALING ACTIONS FOR CLUSTER c LIMIT 10",
        "SHOW SCALING ACTIONS LIMIT 0",
        "ALTER SYSTEM SET auto_scaling_action_retention = '14 days'",
        "ALTER SYSTEM SET auto_scaling_rate_limit = 5",
        "ALTER SYSTEM RESET enable_auto_scaling",
        "SHOW enable_auto_scaling",
        "SHOW loadline.as_of",
        "SHOW ALL",
        "CREATE CLUSTER IF NOT EXISTS \"a-b\" SIZE = '1' BACKEND = local",
        "ALTER CLUSTER c RENAME TO \"All\"",
        "ALTER CLUSTER c SET BACKEND = \"k8s.eu\"",
        "ALTER CLUSTER c RESET BACKEND",
        "DROP CLUSTER IF EXISTS c CASCADE",
        "CREATE CLUSTER REPLICA IF NOT EXISTS c.r1 SIZE = '1'",
        "DROP CLUSTER REPLICA IF EXISTS c.r1",
        "WAKE ALL CLUSTERS",
        "WAKE CLUSTER a, \"B c\" REASON 'webhook'",
        "OVERRIDE CLUSTER c MIN 3 SIZE = '1' FOR '2h' REASON 'a big day'",
        "OVERRIDE CLUSTER c MIN 3 FOR '1h30m'",
        "CLEAR OVERRIDE FOR CLUSTER c",
        "EXPLAIN SCALING FOR CLUSTER c",
        "EXPLAIN SCALING ACTION 7",
        "EXPLAIN SCALING ACTION 'a412.3'",
        "BEGIN",
        "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
        "SET TRANSACTION READ ONLY",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "COMMIT",
        "ROLLBACK",
        "CREATE ROLE ops SUPERUSER LOGIN PASSWORD 'p'",
        "ALTER ROLE ops PASSWORD NULL",
        "DROP ROLE IF EXISTS ops",
        "GRANT USAGE ON CLUSTER a, b TO ops, \"Dev\"",
        "REVOKE USAGE ON ALL CLUSTERS FROM ops",
        "SET LOCAL loadline.as_of = 412",
        "SET search_path = \"$user\", public",
        "SET timezone = DEFAULT",
        "RESET ALL",
        "DISCARD ALL",
        "CLOSE ALL",
        "UNLISTEN *",
        "DEALLOCATE ALL",
        "DEALLOCATE p1",
        "SELECT 1",
        "UPDATE t SET a = a || '{}'::JSONB WHERE id = 'x'",
    ] {
        check(text, text);
    }
}

#[test]
fn other_ways_to_say_the_same_are_read_too() {
    check("create cluster c (size '1', backend = 'local')", "CREATE CLUSTER c SIZE = '1' BACKEND = local");
    check("CREATE CLUSTER c SIZE='1', BACKEND local", "CREATE CLUSTER c SIZE = '1' BACKEND = local");
    check("ALTER SYSTEM SET x TO on", "ALTER SYSTEM SET x = \"on\"");
    check("DROP CLUSTER c RESTRICT", "DROP CLUSTER c");
    check(
        "START TRANSACTION READ ONLY, ISOLATION LEVEL REPEATABLE READ",
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    );
    check("END WORK", "COMMIT");
    check("ABORT TRANSACTION AND NO CHAIN", "ROLLBACK");
    check("CREATE USER u WITH ENCRYPTED PASSWORD 'p'", "CREATE ROLE u LOGIN PASSWORD 'p'");
    check("SET TIME ZONE 'UTC'", "SET timezone = 'UTC'");
    check("SET NAMES utf8", "SET client_encoding = utf8");
    check("SHOW TRANSACTION ISOLATION LEVEL", "SHOW transaction_isolation");
    check(
        "ALTER SCALING STRATEGY FOR CLUSTER c TYPE BURST UPDATE (COOLDOWN = INTERVAL '5 minutes', REPLICA_SCOPE = MANAGED_ONLY, DRY_RUN = TRUE, APPROVAL = -1)",
        "ALTER SCALING STRATEGY FOR CLUSTER c TYPE BURST UPDATE (COOLDOWN = INTERVAL '5 minutes', REPLICA_SCOPE = managed_only, DRY_RUN = true, APPROVAL = -1)",
    );
}

#[test]
fn several_statements_have_their_texts_and_places() {
    let text = "/* first */ SHOW x ;; -- second; not a statement\n  SELECT 'ä;ö' ; \n COMMIT";
    let parsed = parse(text).unwrap();
    let shown: Vec<(usize, &str)> = parsed.iter().map(|it| (it.position, it.text.as_str())).collect();
    assert_eq!(shown, [(13, "SHOW x"), (52, "SELECT 'ä;ö'"), (69, "COMMIT")]);
    assert_eq!(parse(" -- nothing\n ; /* at */ ").unwrap(), []);
}

#[test]
fn an_unquoted_name_is_folded_and_a_quoted_one_is_not() {
    let name = |text: &str| match parse(text).unwrap().remove(0).statement {
        Statement::ExplainCluster { cluster } => cluster,
        other => panic!("{other:?}"),
    };
    assert_eq!(name("EXPLAIN SCALING FOR CLUSTER Prod"), "prod");
    assert_eq!(name("EXPLAIN SCALING FOR CLUSTER \"Prod \"\"x\"\"; --\""), "Prod \"x\"; --");
}

#[test]
fn a_mistake_is_told_with_its_place_and_what_would_be_right() {
    let error = refused(
        "CREATE ^SCALLING STRATEGY FOR CLUSTER c TYPE BURST",
        "syntax error at or near \"SCALLING\": expected SCALING, CLUSTER, SIGNAL, ROLE or USER",
    );
    assert_eq!((error.sqlstate, error.hint.as_deref()), (SqlState::SYNTAX_ERROR, Some("Did you mean SCALING?")));
    let error = refused(
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE ^TARGT_SIZE",
        "syntax error at or near \"TARGT_SIZE\": expected a type of scaling strategy (TARGET_SIZE, SHRINK_TO_FIT, BURST, \
         IDLE_SUSPEND, TARGET_TRACKING, QUEUE_DEPTH)",
    );
    assert_eq!(error.hint.as_deref(), Some("Did you mean TARGET_SIZE?"));
    // Those of all types, each once: the list itself is the state machine's.
    let mut names: Vec<&str> = Vec::new();
    for option in StrategyKind::PRIORITY_ORDER.into_iter().flat_map(option_definitions) {
        if !names.contains(&option.sql_name) {
            names.push(option.sql_name);
        }
    }
    assert!(
        ["SIZE", "IDLE_AFTER", "SIGNALS", "DEPTH_TARGET", "SCHEDULE"].iter().all(|it| names.contains(it)),
        "{names:?}"
    );
    let options = format!("expected an option of scaling strategies ({})", names.join(", "));
    for (name, near) in [("IDLE_AFTR", "IDLE_AFTR"), ("IDLE AFTR", "IDLE"), ("IDEL AFTER", "IDEL")] {
        let text = format!("CREATE SCALING STRATEGY FOR ALL CLUSTERS\n  TYPE IDLE_SUSPEND WITH (^{name} = '30m')");
        let error = refused(&text, &format!("syntax error at or near \"{near}\": {options}"));
        assert_eq!(error.hint.as_deref(), Some("Did you mean IDLE_AFTER?"));
    }
    let error = refused(
        "CREATE SCALING STRATEGY FOR CLUSTER c TYPE TARGET_SIZE WITH (SIZE = 200^cc)",
        "syntax error at or near \"cc\": expected the end of the number",
    );
    assert_eq!(error.hint.as_deref(), Some("Write it in single quotes: '200cc'."));
    let error = refused("DROP CLUSTER my^-cluster", "syntax error at or near \"-\": expected a blank");
    assert_eq!(error.hint.as_deref(), Some("A name with a hyphen is written in double quotes."));
    let error = refused("DROP CLUSTER ^all", "syntax error at or near \"all\": expected the name of a cluster");
    assert_eq!(error.hint.as_deref(), Some("\"all\" in double quotes can be a name."));
    refused("DROP CLUSTER ^\"\"", "zero-length delimited identifier");
    refused("DROP CLUSTER ä ^b", "syntax error at or near \"b\": expected the end of the statement");
    refused("DROP ALL SCALING STRATEGIES FOR^", "syntax error at end of input: expected CLUSTER or ALL");
    refused("SHOW x; DROP CLUSTER ^'c'", "syntax error at or near \"'c'\": expected the name of a cluster");
    refused(
        "ALTER SCALING STRATEGY FOR CLUSTER c TYPE BURST UPDATE (COOLDOWN = 1, ^COOLDOWN = 2)",
        "option COOLDOWN is given twice",
    );
    refused("SELECT 'ä', ^'not closed", "Unterminated string literal");
    let error = refused("^SELCT 1", &format!("syntax error at or near \"SELCT\": expected {}", first_words()));
    assert_eq!(error.hint.as_deref(), Some("Did you mean SELECT?"));
    assert_eq!(refused("^COPY t FROM stdin", "COPY is not supported").sqlstate, SqlState::FEATURE_NOT_SUPPORTED);
}

fn first_words() -> &'static str {
    "ABORT, ALTER, BEGIN, CLEAR, COMMIT, CREATE, DEALLOCATE, DELETE, DISCARD, DROP, END, EXPLAIN, GRANT, INSERT, OVERRIDE, RESET, REVOKE, \
     ROLLBACK, SELECT, SET, SHOW, START, TABLE, UPDATE, VALUES, WAKE or WITH"
}

#[test]
fn a_mistake_in_a_query_is_told_with_its_place() {
    let error = parse("SHOW x;\nSELECT a FROM\n  ,b").unwrap_err();
    assert_eq!((error.sqlstate, error.position), (SqlState::SYNTAX_ERROR, Some(25)), "{error:?}");
    let error = parse("SELECT 1 2").unwrap_err();
    assert_eq!(error.position, Some(10), "{error:?}");
    let error = parse("SELECT (1").unwrap_err();
    assert_eq!(error.position, Some(10), "{error:?}");
}

#[test]
fn queries_and_writes_are_told_apart() {
    for text in
        ["SELECT 1", "(SELECT 1)", "WITH a AS (SELECT 1) SELECT * FROM a", "VALUES (1)", "TABLE t", "EXPLAIN SELECT 1"]
    {
        assert!(matches!(parse(text).unwrap()[0].statement, Statement::Query(_)), "{text}");
    }
    for text in [
        "INSERT INTO t (a) VALUES (1)",
        "UPDATE t SET a = 1",
        "DELETE FROM t",
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
    ] {
        assert!(matches!(parse(text).unwrap()[0].statement, Statement::Write(_)), "{text}");
    }
}

#[test]
fn a_password_is_not_in_what_is_logged() {
    let parsed = parse("ALTER ROLE ops PASSWORD 'hunter2'").unwrap().remove(0);
    assert!(!format!("{:?}", parsed.statement).contains("hunter2"));
}

#[test]
fn values_are_kept_as_they_were_written() {
    let values = |text: &str| match parse(text).unwrap().remove(0).statement {
        Statement::SetSession { values, .. } => values,
        other => panic!("{other:?}"),
    };
    let expected = [
        Value::Text("a'b".to_owned()),
        Value::Number("-1.50".to_owned()),
        Value::Bool(true),
        Value::Word("on".to_owned()),
        Value::Word("A".to_owned()),
        Value::Interval("1 hour".to_owned()),
        Value::Text("x".to_owned()),
    ];
    assert_eq!(values("SET p = 'a''b', -1.50, TRUE, On, \"A\", interval '1 hour', $$x$$"), expected);
}

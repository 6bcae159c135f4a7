//! Signals in SQL: what is written, what it asks for, what is shown, and where a mistake is.

use crate::world::{Answer, World};
use loadline_sql::{SqlState, parse};
use loadline_state_machine::{Collected, CollectedOutcome, Command, OptionValue, Options, SignalKind, Span, Target};

#[track_caller]
fn check(text: &str, printed: &str) {
    let parsed = parse(text).unwrap_or_else(|error| panic!("{text}: {error:?}")).remove(0);
    assert_eq!(parsed.statement.to_string(), printed);
    assert_eq!(parse(printed).expect("it is read back").remove(0).statement, parsed.statement);
}

#[test]
fn the_clauses_may_come_in_any_order_and_are_printed_in_one() {
    let printed =
        "CREATE SIGNAL queue FOR ALL CLUSTERS FROM PROMETHEUS (URL = 'http://p:9090', QUERY = 'sum(q)') EVERY '5s'";
    check(printed, printed);
    check(
        "create signal Queue from prometheus (url = 'http://p:9090', query = 'sum(q)') every interval '5 seconds'",
        printed,
    );
    check(
        "CREATE SIGNAL IF NOT EXISTS lag EVERY '1m' FOR CLUSTERS LIKE 'p%' FROM NATS (URL = 'nats://n', ACK PENDING = false)",
        "CREATE SIGNAL IF NOT EXISTS lag FOR ALL CLUSTERS LIKE 'p%' FROM NATS (URL = 'nats://n', ACK_PENDING = false) EVERY '1m'",
    );
    check("CREATE SIGNAL s FROM PUSH FOR CLUSTER demo", "CREATE SIGNAL s FOR CLUSTER demo FROM PUSH");
    check(
        "ALTER SIGNAL s FOR CLUSTER demo EVERY '2s' RESET (USERNAME, PASSWORD) UPDATE (QUERY = 'x')",
        "ALTER SIGNAL s UPDATE (QUERY = 'x') RESET (USERNAME, PASSWORD) EVERY '2s' FOR CLUSTER demo",
    );
    check("DROP SIGNAL IF EXISTS \"S-1\"", "DROP SIGNAL IF EXISTS \"S-1\"");
    check("show signals", "SHOW SIGNALS");
}

#[track_caller]
fn refused(marked: &str, message: &str) {
    let (before, after) = marked.split_once('^').expect("a place");
    let error = parse(&format!("{before}{after}")).expect_err(marked);
    assert_eq!((error.position, error.message.as_str()), (Some(before.chars().count() + 1), message));
}

#[test]
fn a_mistake_has_its_place() {
    refused("CREATE SIGNAL s^", "syntax error at end of input: expected FROM");
    refused("CREATE SIGNAL s FROM PUSH ^FROM PUSH", "this is said twice");
    refused("CREATE SIGNAL s FROM PROMETHEUS (URL = 'a', ^URL = 'b')", "option URL is given twice");
    refused("ALTER SIGNAL s^", "syntax error at end of input: expected UPDATE, RESET, EVERY or FOR");
    let error = parse("CREATE SIGNAL s FROM PUSH EVERY 'soon'").expect_err("no duration");
    assert_eq!(error.sqlstate, SqlState::INVALID_PARAMETER_VALUE);
    assert!(parse("CREATE SIGNAL s FROM KAFKA").is_err());
}

#[test]
fn a_signal_is_made_changed_shown_and_dropped() {
    let mut world = World::with_clusters(&["demo", "prod"]);
    world.run(
        "CREATE SIGNAL jobs FOR CLUSTER demo FROM POSTGRES (URL = 'host=db user=me', QUERY = 'SELECT 1', TLS = off)
         EVERY '5s'; CREATE SIGNAL pushed FROM PUSH;",
    );
    let made = world.state.signal("jobs").expect("it is there").clone();
    let expected = Options::from([("connection", "host=db user=me"), ("query", "SELECT 1"), ("tls", "off")]);
    assert_eq!((made.kind, made.every, &made.options), (SignalKind::Postgres, Some(Span::from_secs(5)), &expected));
    let demo = world.state.cluster("demo").expect("it is there").id;
    assert_eq!(made.target, Target::Cluster(demo));
    world.run("CREATE SIGNAL IF NOT EXISTS jobs FROM PUSH");
    world.run("ALTER SIGNAL jobs UPDATE (URL = 'host=other user=me', TIMEOUT = '2000ms') RESET (TLS) EVERY '10s'");
    let changed = world.state.signal("jobs").expect("it is there").clone();
    assert_eq!(changed.options.get("connection"), Some(&OptionValue::Text("host=other user=me".to_owned())));
    assert_eq!(changed.options.get("timeout"), Some(&OptionValue::Text("2s".to_owned())));
    assert_eq!((changed.options.get("tls"), changed.every), (None, Some(Span::from_secs(10))));

    let epoch = world.state.epoch().expect("a leader");
    let record = |outcome| {
        let collected = vec![Collected { signal: "jobs".to_owned(), updated: changed.updated, outcome }];
        Command::RecordSignals { epoch, collected }
    };
    let age = Span::from_millis(0);
    world.write(vec![record(CollectedOutcome::Values { age, values: vec![(demo, 1_500)] })]).result.expect("recorded");
    world.write(vec![record(CollectedOutcome::Nothing { error: "no answer".to_owned() })]).result.expect("recorded");
    let shown = world.rows(
        "SELECT name, kind, cluster, every, value_milli, age_ms, stale, errors, error FROM loadline.configured_signals ORDER BY name",
    );
    assert_eq!(shown, ["jobs|postgres|demo|10s|1500|1000|false|1|no answer", "pushed|push|-|-|-|-|true|0|-"]);
    let Answer::Rows(query) = world.run("SHOW SIGNALS").remove(0) else { panic!("rows") };
    assert!(world.rows(&query)[0].contains("|1.5|"), "{:?}", world.rows(&query));

    world.run("DROP SIGNAL jobs; DROP SIGNAL IF EXISTS jobs");
    assert_eq!(world.try_run("DROP SIGNAL jobs").unwrap_err().sqlstate, SqlState::UNDEFINED_OBJECT);
}

#[test]
fn what_a_signal_may_not_hold_is_refused_at_its_place_and_not_repeated() {
    let mut world = World::with_clusters(&["demo"]);
    let text = "CREATE SIGNAL s FROM PROMETHEUS (URL = 'http://p', QUERY = 'q', USERNAME = 'me', PASSWORD = 'hunter2')";
    let statement = parse(text).expect("it is a statement").remove(0).statement;
    assert!(!format!("{statement:?}").contains("hunter2"), "{statement:?}");
    let error = world.try_run(text).expect_err("a secret in clear");
    assert_eq!(error.position, text.find("'hunter2'").map(|place| place + 1));
    assert!(error.message.contains("PASSWORD") && !format!("{error:?}").contains("hunter2"), "{error:?}");
    assert!(error.hint.is_some_and(|hint| hint.contains("env:VARIABLE")));
    for (options, what) in [
        ("(URL = 'http://me:hunter2@p', QUERY = 'q')", "option URL may hold a secret, and secrets are never kept"),
        ("(QUERY = 'q')", "option URL is required"),
        ("(URL = 'http://p', QUERY = 'q', STREAM = 's')", "option STREAM does not exist"),
        ("(URL = 'http://p', QUERY = 'q', TIMEOUT = '1h')", "option TIMEOUT cannot be used as it is"),
    ] {
        let error = world.try_run(&format!("CREATE SIGNAL s FROM PROMETHEUS {options}")).expect_err(options);
        assert_eq!(error.message, what);
    }
}

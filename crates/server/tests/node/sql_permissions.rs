//! Who may what over SQL: every kind of statement times every kind of role, and names that look like statements.

use std::net::SocketAddr;

use loadline_server::config::Trust;
use tokio_postgres::Client;

use crate::common::{Node, create_size, set};
use crate::sql_clients::connect_as;

/// A statement, and for whom it is: a superuser, USAGE on all clusters, USAGE on the cluster `here`, no privilege at all.
/// `+` is let through, `x` is refused with 42501. `{n}` is another number for each role, `{role}` its name.
const MATRIX: &[(&str, &str)] = &[
    // Reading needs a login and nothing else.
    ("SELECT name FROM loadline.clusters", "++++"),
    ("SELECT * FROM mz_internal.mz_scaling_actions", "++++"),
    ("SELECT rolname FROM pg_roles", "++++"),
    ("SHOW SCALING STRATEGIES", "++++"),
    ("SHOW SCALING STRATEGIES FOR CLUSTER there", "++++"),
    ("SHOW SCALING ACTIONS LIMIT 1", "++++"),
    ("SHOW enable_auto_scaling", "++++"),
    ("SHOW ALL", "++++"),
    ("EXPLAIN SCALING FOR CLUSTER there", "++++"),
    // One's own session.
    ("SET application_name = 'mine'", "++++"),
    ("RESET ALL", "++++"),
    ("BEGIN READ ONLY", "++++"),
    ("ROLLBACK", "++++"),
    ("DISCARD ALL", "++++"),
    // Strategies of a cluster.
    ("CREATE SCALING STRATEGY IF NOT EXISTS FOR CLUSTER here TYPE BURST WITH (BURST_SIZE = '100cc')", "+++x"),
    ("ALTER SCALING STRATEGY FOR CLUSTER here TYPE TARGET_SIZE UPDATE (COOLDOWN = '{n}s')", "+++x"),
    ("DROP SCALING STRATEGY FOR CLUSTER here TYPE TARGET_SIZE", "+++x"),
    ("DROP ALL SCALING STRATEGIES FOR CLUSTER here", "+++x"),
    ("CREATE SCALING STRATEGY IF NOT EXISTS FOR CLUSTER there TYPE BURST WITH (BURST_SIZE = '100cc')", "++xx"),
    ("ALTER SCALING STRATEGY FOR CLUSTER there TYPE TARGET_SIZE UPDATE (COOLDOWN = '{n}s')", "++xx"),
    ("DROP SCALING STRATEGY FOR CLUSTER there TYPE TARGET_SIZE", "++xx"),
    ("DROP ALL SCALING STRATEGIES FOR CLUSTER there", "++xx"),
    // For more than one: USAGE on each of them.
    ("CREATE SCALING STRATEGY IF NOT EXISTS FOR ALL CLUSTERS TYPE BURST WITH (BURST_SIZE = '100cc')", "++xx"),
    ("ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET_SIZE UPDATE (COOLDOWN = '{n}s')", "++xx"),
    ("DROP ALL SCALING STRATEGIES FOR ALL CLUSTERS", "++xx"),
    (
        "CREATE SCALING STRATEGY IF NOT EXISTS FOR ALL CLUSTERS LIKE 'he%' TYPE BURST WITH (BURST_SIZE = '100cc')",
        "+++x",
    ),
    ("DROP ALL SCALING STRATEGIES FOR ALL CLUSTERS LIKE 'he%'", "+++x"),
    ("CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE 'new{n}%' TYPE BURST WITH (BURST_SIZE = '100cc')", "++xx"),
    // The same as rows, and what is asked for beside the strategies.
    (
        "UPDATE mz_scaling_strategies SET config = config || '{\"cooldown_s\": {n}}'::jsonb WHERE strategy_type = 'target_size' \
         AND cluster_id = (SELECT id FROM mz_clusters WHERE name = 'here')",
        "+++x",
    ),
    (
        "UPDATE mz_scaling_strategies SET config = config || '{\"cooldown_s\": {n}}'::jsonb WHERE strategy_type = 'target_size' \
         AND cluster_id = (SELECT id FROM mz_clusters WHERE name = 'there')",
        "++xx",
    ),
    ("DELETE FROM mz_scaling_strategies WHERE cluster_id IS NULL AND cluster_pattern IS NULL", "++xx"),
    (
        "UPDATE mz_scaling_strategy_state SET payload = jsonb_build_object('last_change_at', now()) FROM mz_clusters c \
         WHERE c.id = cluster_id AND c.name = 'here'",
        "+++x",
    ),
    ("CREATE CLUSTER REPLICA here.r{n} SIZE = '100cc'", "+++x"),
    ("CREATE CLUSTER REPLICA there.r{n} SIZE = '100cc'", "++xx"),
    ("DROP CLUSTER REPLICA IF EXISTS here.none", "+++x"),
    ("DROP CLUSTER REPLICA IF EXISTS there.none", "++xx"),
    // What belongs to everybody.
    ("ALTER SYSTEM SET request_window = '{n}m'", "+xxx"),
    ("ALTER SYSTEM RESET request_window", "+xxx"),
    ("CREATE CLUSTER new{n}", "+xxx"),
    ("ALTER CLUSTER spare RENAME TO spare", "+xxx"),
    ("ALTER CLUSTER spare SET BACKEND = other", "+xxx"),
    ("ALTER CLUSTER spare RESET BACKEND", "+xxx"),
    ("DROP CLUSTER spare", "+xxx"),
    ("DROP CLUSTER spare2 CASCADE", "+xxx"),
    ("CREATE ROLE new{n}", "+xxx"),
    ("CREATE ROLE super{n} SUPERUSER PASSWORD 'p'", "+xxx"),
    ("ALTER ROLE other SUPERUSER", "+xxx"),
    ("ALTER ROLE other PASSWORD 'p'", "+xxx"),
    ("GRANT USAGE ON CLUSTER here TO other", "+xxx"),
    ("GRANT USAGE ON ALL CLUSTERS TO {role}", "+xxx"),
    ("REVOKE USAGE ON CLUSTER here FROM other", "+xxx"),
    ("DROP ROLE other", "+xxx"),
    // One's own password is one's own affair; to be a superuser is not.
    ("ALTER ROLE {role} PASSWORD 'secret'", "++++"),
    ("ALTER ROLE {role} SUPERUSER", "+xxx"),
];

const ROLES: [&str; 4] = ["root", "operator", "here_user", "reader"];

async fn closed() -> (Node, SocketAddr) {
    let node = Node::alone_with_sql(|config| config.trust = Trust::Nobody).await;
    node.admin().create_size(create_size("100cc", 1)).await.unwrap();
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    let sql = node.pg.unwrap();
    let anybody = connect_as(sql, "x", "").await.unwrap();
    anybody.batch_execute("CREATE CLUSTER here; CREATE CLUSTER there").await.unwrap();
    anybody.batch_execute("CREATE ROLE root SUPERUSER PASSWORD 'secret'").await.unwrap();
    let root = connect_as(sql, "root", "secret").await.unwrap();
    for role in &ROLES[1..] {
        root.batch_execute(&format!("CREATE ROLE {role} PASSWORD 'secret'")).await.unwrap();
    }
    root.batch_execute("CREATE ROLE idle; GRANT USAGE ON ALL CLUSTERS TO operator").await.unwrap();
    root.batch_execute("GRANT USAGE ON CLUSTER here TO here_user").await.unwrap();
    (node, sql)
}

/// What every statement of the matrix finds.
async fn prepare(root: &Client) {
    for statement in [
        "CREATE CLUSTER IF NOT EXISTS spare",
        "CREATE CLUSTER IF NOT EXISTS spare2",
        "CREATE ROLE IF NOT EXISTS other",
        "CREATE SCALING STRATEGY IF NOT EXISTS FOR CLUSTER here TYPE TARGET_SIZE WITH (SIZE = '100cc', ENABLED = false)",
        "CREATE SCALING STRATEGY IF NOT EXISTS FOR CLUSTER there TYPE TARGET_SIZE WITH (SIZE = '100cc', ENABLED = false)",
        "CREATE SCALING STRATEGY IF NOT EXISTS FOR ALL CLUSTERS TYPE TARGET_SIZE WITH (SIZE = '100cc', ENABLED = false)",
    ] {
        root.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
    }
}

/// `+` if it was let through, `x` if the role may not. Nothing else may happen.
async fn seen(client: &Client, statement: &str) -> char {
    match client.batch_execute(statement).await {
        Ok(()) => '+',
        Err(error) => match error.code().map(|code| code.code()) {
            Some("42501") => 'x',
            other => panic!("{statement}: {other:?} {error:?}"),
        },
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_is_carried_out_for_exactly_those_who_may() {
    let (_node, sql) = closed().await;
    let root = connect_as(sql, "root", "secret").await.unwrap();
    let mut clients = Vec::new();
    for role in ROLES {
        clients.push(connect_as(sql, role, "secret").await.unwrap());
    }
    let mut wrong = Vec::new();
    for (row, (statement, expected)) in MATRIX.iter().enumerate() {
        let mut found = String::new();
        for (number, (role, client)) in ROLES.iter().zip(&clients).enumerate() {
            prepare(&root).await;
            let statement = statement.replace("{n}", &(100 + 10 * row + number).to_string()).replace("{role}", role);
            found.push(seen(client, &statement).await);
        }
        if found != *expected {
            wrong.push(format!("{statement}: {found} and not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // What was refused is in the log, with who asked, and what was let through is by those who did.
    let error = connect_as(sql, "idle", "secret").await.err().unwrap();
    assert_eq!(error.code().unwrap().code(), "28000", "who cannot log in does nothing at all");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_says_what_is_missing_and_changes_nothing() {
    let (_node, sql) = closed().await;
    let reader = connect_as(sql, "reader", "secret").await.unwrap();
    let statement = "CREATE SCALING STRATEGY FOR CLUSTER here TYPE BURST WITH (BURST_SIZE = '100cc')";
    let error = reader.batch_execute(statement).await.unwrap_err();
    let said = error.as_db_error().unwrap();
    let whole = format!("{} {}", said.message(), said.hint().unwrap_or_default());
    assert!(whole.contains("GRANT USAGE ON CLUSTER here TO reader"), "{whole}");
    // In a transaction it is told at once, and nothing of it stays.
    let error = reader.batch_execute("BEGIN; CREATE CLUSTER mine; COMMIT").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501");
    let _ = reader.batch_execute("ROLLBACK").await;
    let found = reader.query("SELECT 1 FROM clusters WHERE name = 'mine'", &[]).await.unwrap();
    assert!(found.is_empty());
    // A privilege that is taken back counts in the middle of a session.
    let (root, user) =
        (connect_as(sql, "root", "secret").await.unwrap(), connect_as(sql, "here_user", "secret").await.unwrap());
    user.batch_execute(statement).await.unwrap();
    root.batch_execute("REVOKE USAGE ON CLUSTER here FROM here_user").await.unwrap();
    let error = user.batch_execute("DROP ALL SCALING STRATEGIES FOR CLUSTER here").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_with_quotes_semicolons_and_comments_are_names_and_nothing_else() {
    let (_node, sql) = closed().await;
    let root = connect_as(sql, "root", "secret").await.unwrap();
    let evils = [
        "'; DROP CLUSTER here; --",
        "\"; DROP CLUSTER here; --",
        "x\"\"; DROP CLUSTER here; --",
        "here' OR '1'='1",
        "here\\'; DROP CLUSTER here; --",
        "/*",
        "--",
        "$$; DROP CLUSTER here; $$",
        ";",
        "%",
        "_",
        "\u{0}",
        "a\nb",
        "\u{202e}ereh",
    ];
    for evil in evils {
        let identifier = format!("\"{}\"", evil.replace('"', "\"\""));
        let literal = format!("'{}'", evil.replace('\'', "''"));
        for statement in [
            format!("CREATE CLUSTER {identifier}"),
            format!("ALTER CLUSTER here RENAME TO {identifier}"),
            format!("CREATE ROLE {identifier}"),
            format!("GRANT USAGE ON CLUSTER {identifier} TO {identifier}"),
            format!("CREATE SCALING STRATEGY FOR CLUSTER {identifier} TYPE BURST WITH (BURST_SIZE = {literal})"),
            format!("CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE {literal} TYPE BURST WITH (BURST_SIZE = {literal})"),
            format!("EXPLAIN SCALING FOR CLUSTER {identifier}"),
            format!("SHOW {identifier}"),
            format!("SET application_name = {literal}"),
            format!("ALTER SYSTEM SET {identifier} = {literal}"),
            format!("SELECT {literal} AS {identifier}, {literal} LIKE {literal}, position({literal} IN {literal})"),
            format!("SELECT * FROM {identifier}"),
            format!("SELECT name FROM clusters WHERE name = {literal}"),
            format!("SELECT config->>{literal} FROM mz_internal.mz_scaling_strategies"),
        ] {
            // Whatever the answer is, it is an answer. A NUL ends the text for the driver itself.
            let answered = root.batch_execute(&statement).await;
            let code = answered.as_ref().err().and_then(|error| error.code()).map(|code| code.code().to_owned());
            assert!(answered.is_ok() || code.is_some() || evil == "\u{0}", "{statement}: {answered:?}");
            assert_ne!(code.as_deref(), Some("XX000"), "{statement}: {answered:?}");
            // One that could be a name may have renamed it: that was what was asked.
            let back = format!("ALTER CLUSTER {identifier} RENAME TO here");
            let _ = root.batch_execute(&back).await;
        }
        let bound = root.query("SELECT name FROM clusters WHERE name = $1", &[&evil]).await;
        match evil {
            "\u{0}" => assert_eq!(bound.unwrap_err().code().unwrap().code(), "22021"),
            _ => drop(bound.unwrap()),
        }
        let left = root.query_one("SELECT count(*) FROM clusters WHERE name IN ('here', 'there')", &[]).await.unwrap();
        assert_eq!(left.get::<_, i64>(0), 2, "{evil:?}");
    }
    // As the name of who logs in, too.
    for evil in ["'; DROP CLUSTER here; --", "root\" --", "root'--"] {
        let error = connect_as(sql, evil, "secret").await.err().unwrap();
        assert_eq!(error.code().unwrap().code(), "28P01", "{evil}");
    }
}

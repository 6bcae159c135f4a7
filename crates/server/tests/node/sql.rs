//! SQL: the real psql and a real driver against nodes in this process.

use std::time::Duration;

use tokio_postgres::types::Type;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use crate::common::{Node, create_cluster, create_size, eventually, set};
use crate::sql_clients::{connect, content, psql};

async fn node() -> Node {
    let node = Node::alone_with_sql(|_| ()).await;
    node.admin().create_size(create_size("100cc", 1)).await.unwrap();
    node.admin().create_cluster(create_cluster("demo")).await.unwrap();
    node.admin().set_setting(set("enable_auto_scaling", "true")).await.unwrap();
    node
}

#[tokio::test(flavor = "multi_thread")]
async fn psql_asks_changes_and_is_shown_the_place_of_a_mistake() {
    let node = node().await;
    let sql = node.pg.unwrap();
    assert_eq!(content(psql(sql, "SELECT name, replicas FROM loadline.clusters;").await), "name|replicas\ndemo|0\n");
    let made = "CREATE CLUSTER shop;\n\
                CREATE SCALING STRATEGY FOR CLUSTER shop TYPE TARGET SIZE WITH (SIZE = '100cc');\n\
                SELECT strategy_type, config->>'size' AS size FROM mz_internal.mz_scaling_strategies;\n\
                SHOW SCALING STRATEGIES FOR CLUSTER shop;\n\
                SHOW server_version;\n";
    let out = content(psql(sql, made).await);
    assert!(
        out.starts_with("CREATE CLUSTER\nCREATE SCALING STRATEGY\nstrategy_type|size\ntarget_size|100cc\n"),
        "{out}"
    );
    assert!(out.contains("shop|"), "{out}");
    assert!(out.ends_with("server_version\n15.0 (loadline)\n"), "{out}");

    let said = psql(sql, "SELECT name,\n       nmae FROM clusters;\n").await;
    assert!(!said.ok);
    let expected = "ERROR:  column \"nmae\" does not exist\nLINE 2:        nmae FROM clusters;\n               ^\nHINT:  Perhaps you meant \"name\".\n";
    assert!(said.err.ends_with(expected), "{}", said.err);
    let said = psql(sql, "CREATE CLUSTER shop;\n").await;
    assert!(said.err.contains("already exists"), "{}", said.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_psql_asks_for_its_own_commands_is_answered() {
    let node = node().await;
    let sql = node.pg.unwrap();
    let says = async |script: &str, parts: &[&str]| {
        let said = content(psql(sql, script).await);
        for part in parts {
            assert!(said.contains(part), "{script} said {said}, and not {part}");
        }
    };
    says("\\d\n", &["loadline|clusters|table", "mz_internal|mz_scaling_strategies_effective|view"]).await;
    says("\\dt\n", &["loadline|events|table"]).await;
    says("\\dt mz_internal.*\n", &["mz_internal|mz_scaling_actions|table"]).await;
    says("\\dv\n", &["mz_scaling_strategies_effective"]).await;
    says("\\dn\n", &["loadline", "mz_internal"]).await;
    says("\\l\n", &["loadline|ops|UTF8"]).await;
    says("\\d clusters\n", &["created_at|timestamp with time zone", "\"clusters_pkey\" PRIMARY KEY"]).await;
    says("\\d+ mz_internal.mz_scaling_strategies\n", &["config|jsonb", "enabled|boolean", "PRIMARY KEY"]).await;
    says("\\d+ mz_internal.mz_scaling_strategies_effective\n", &["state|jsonb"]).await;
    says("\\du\n", &["ops"]).await;
    says("\\conninfo\n", &["You are connected to database \"loadline\" as user \"ops\""]).await;
    says("\\timing on\nSELECT 1;\n", &["Time: "]).await;
    says("\\dS pg_catalog.pg_class\n", &["relname|name"]).await;
    says("\\di\n", &["clusters_pkey"]).await;
    says("SELECT 1 AS one \\gset\n\\echo :one\n", &["1\n"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_prepares_binds_and_reads_in_binary() {
    let node = node().await;
    let client = connect(node.pg.unwrap()).await;
    let statement = client.prepare("SELECT name, slots, created > 0 FROM (SELECT name, slots, 1 AS created FROM sizes) s WHERE slots >= $1 AND name = $2").await.unwrap();
    assert_eq!(statement.params(), [Type::INT8, Type::TEXT]);
    let kinds: Vec<&Type> = statement.columns().iter().map(|column| column.type_()).collect();
    assert_eq!(kinds, [&Type::TEXT, &Type::INT8, &Type::BOOL]);
    let rows = client.query(&statement, &[&1_i64, &"100cc"]).await.unwrap();
    assert_eq!(
        (rows[0].get::<_, String>(0), rows[0].get::<_, i64>(1), rows[0].get::<_, bool>(2)),
        ("100cc".into(), 1, true)
    );

    let row = client
        .query_one("SELECT created_at, ARRAY['a','b'], NULL::int8, 1.5::float8 FROM clusters LIMIT 1", &[])
        .await
        .unwrap();
    let created: std::time::SystemTime = row.get(0);
    assert!(created.elapsed().unwrap() < Duration::from_secs(600));
    assert_eq!(row.get::<_, Vec<String>>(1), ["a", "b"]);
    assert_eq!((row.get::<_, Option<i64>>(2), row.get::<_, f64>(3)), (None, 1.5));

    // In pieces, as a cursor would.
    let mut client = client;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT n FROM generate_series(1, 5) AS n", &[]).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let part = transaction.query_portal(&portal, 2).await.unwrap();
        if part.is_empty() {
            break;
        }
        assert!(part.len() <= 2);
        seen.extend(part.iter().map(|row| row.get::<_, i64>(0)));
    }
    assert_eq!(seen, [1, 2, 3, 4, 5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_values_that_look_like_statements_are_names_and_values() {
    let node = node().await;
    let client = connect(node.pg.unwrap()).await;
    for evil in ["'; DROP CLUSTER demo; --", "\" ; DROP CLUSTER demo", "demo' OR '1'='1", "$1", "%_\\"] {
        let found = client.query("SELECT id FROM clusters WHERE name = $1", &[&evil]).await.unwrap();
        assert!(found.is_empty(), "{evil}");
        let quoted = format!("CREATE CLUSTER \"{}\"", evil.replace('"', "\"\""));
        // The state machine says which names there may be; whatever it says, nothing else happens.
        let _ = client.batch_execute(&quoted).await;
    }
    let nul = client.query("SELECT id FROM clusters WHERE name = $1", &[&"de\0mo"]).await.unwrap_err();
    assert_eq!(nul.code().unwrap().code(), "22021");
    let left = client.query_one("SELECT count(*) FROM clusters WHERE name = 'demo'", &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_is_one_entry_of_the_log_or_none() {
    let node = node().await;
    let client = connect(node.pg.unwrap()).await;
    client.batch_execute("BEGIN; CREATE CLUSTER a; CREATE CLUSTER b").await.unwrap();
    let inside = client.query_one("SELECT count(*) FROM clusters", &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(inside, 3, "it sees what it has done");
    let other = connect(node.pg.unwrap()).await;
    let outside = other.query_one("SELECT count(*) FROM clusters", &[]).await.unwrap().get::<_, i64>(0);
    assert_eq!(outside, 1, "and nobody else does");
    client.batch_execute("COMMIT").await.unwrap();
    let places = "SELECT count(DISTINCT log_index) FROM events WHERE resource IN ('clusters/a', 'clusters/b')";
    assert_eq!(other.query_one(places, &[]).await.unwrap().get::<_, i64>(0), 1);

    // Several statements in one text are one transaction, too.
    let error = client.batch_execute("CREATE CLUSTER c; CREATE CLUSTER a").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42710");
    assert!(other.query("SELECT 1 FROM clusters WHERE name = 'c'", &[]).await.unwrap().is_empty());

    client.batch_execute("BEGIN").await.unwrap();
    assert!(client.batch_execute("SELECT nonsense").await.is_err());
    let error = client.batch_execute("SELECT 1").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_ends_when_it_is_cancelled_or_takes_too_long() {
    let node = node().await;
    let client = connect(node.pg.unwrap()).await;
    let token = client.cancel_token();
    let endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t";
    let running = client.batch_execute(endless);
    let cancelling = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            token.cancel_query(NoTls).await.unwrap();
        }
    };
    let ended = tokio::select! {
        ended = running => ended,
        () = cancelling => unreachable!("it never ends"),
    };
    let error = ended.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "57014");
    assert!(error.as_db_error().unwrap().message().contains("user request"), "{error:?}");

    client.batch_execute("SET statement_timeout = '50ms'").await.unwrap();
    let error = client.batch_execute(endless).await.unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("statement timeout"), "{error:?}");
    client.batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn more_rows_than_the_limit_are_refused_and_none_of_them_is_sent() {
    let node = Node::alone_with_sql(|config| config.limits.pg_rows_max = 100).await;
    let client = connect(node.pg.unwrap()).await;
    let rows = client.query("SELECT n FROM generate_series(1, 100) AS n", &[]).await.unwrap();
    assert_eq!(rows.len(), 100);
    for statement in [
        "SELECT n FROM generate_series(1, 101) AS n",
        "SELECT a, b FROM generate_series(1, 9999) a, generate_series(1, 9999) b",
    ] {
        let error = client.query(statement, &[]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "54000", "{error:?}");
        assert!(client.simple_query(statement).await.is_err());
    }
    // Whoever asks for less gets it.
    assert_eq!(client.query("SELECT n FROM generate_series(1, 9999) AS n LIMIT 3", &[]).await.unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_statements_than_the_limit_are_carried_out_at_once() {
    let node = Node::alone_with_sql(|config| {
        config.limits.pg_statements_max = 1;
        config.limits.pg_statement_timeout = Duration::from_secs(3);
    })
    .await;
    let (busy, other) = (connect(node.pg.unwrap()).await, connect(node.pg.unwrap()).await);
    let endless = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t";
    // Nobody can ask for longer than the node gives.
    busy.batch_execute("SET statement_timeout = '1h'").await.unwrap();
    // The other one may have the place for a moment when this one comes.
    let running = tokio::spawn(async move {
        loop {
            match busy.batch_execute(endless).await {
                Err(error) if error.code().is_some_and(|code| code.code() == "53300") => {}
                ended => return ended,
            }
        }
    });
    eventually("the place is taken", async || {
        other.query("SELECT 1", &[]).await.is_err_and(|error| error.code().is_some_and(|code| code.code() == "53300"))
    })
    .await;
    let error = running.await.unwrap().unwrap_err();
    assert!(error.as_db_error().unwrap().message().contains("statement timeout"), "{error:?}");
    eventually("the place comes back", async || other.query("SELECT 1", &[]).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_past_is_read_at_an_index_and_at_a_time_and_cannot_be_changed() {
    let node = node().await;
    let client = connect(node.pg.unwrap()).await;
    let row = client.query_one("SELECT loadline_index(), now()::text", &[]).await.unwrap();
    let (index, _now): (i64, String) = (row.get(0), row.get(1));
    client.batch_execute("CREATE CLUSTER later").await.unwrap();
    let names = async || {
        let rows = client.simple_query("SELECT name FROM clusters ORDER BY name").await.unwrap();
        let names = rows.iter().filter_map(|row| match row {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["demo", "later"]);
    client.batch_execute(&format!("SET loadline.as_of = {index}")).await.unwrap();
    assert_eq!(names().await, ["demo"]);
    let error = client.batch_execute("CREATE CLUSTER never").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "25006");
    client.batch_execute("SET loadline.as_of = '2000-01-01'").await.unwrap();
    assert_eq!(names().await, Vec::<String>::new(), "before anything was written");
    let error = client.batch_execute("SET loadline.as_of = 'lately'").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22023");
    let far = format!("SET loadline.as_of = {}; SELECT 1 FROM clusters", index + 1_000);
    assert_eq!(client.batch_execute(&far).await.unwrap_err().code().unwrap().code(), "22023");
    client.batch_execute("RESET loadline.as_of").await.unwrap();
    assert_eq!(names().await, ["demo", "later"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_comes_in_beyond_the_limit() {
    let text = |node: &Node| format!("host=127.0.0.1 port={} user=ops", node.pg.unwrap().port());
    let node = Node::alone_with_sql(|config| config.limits.pg_connections_max = 1).await;
    let first = connect(node.pg.unwrap()).await;
    let error = tokio_postgres::connect(&text(&node), NoTls).await.err().unwrap();
    assert_eq!(error.code().unwrap().code(), "53300");
    drop(first);
    eventually("the place comes back", async || tokio_postgres::connect(&text(&node), NoTls).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_does_not_wait_for_idle_connections() {
    let node = node().await;
    let client = connect(node.pg.unwrap()).await;
    client.batch_execute("SELECT 1").await.unwrap();
    let began = std::time::Instant::now();
    node.stop().await.0.unwrap();
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    eventually("the connection ends", async || client.is_closed()).await;
}

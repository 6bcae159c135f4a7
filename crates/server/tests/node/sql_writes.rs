//! What is written in SQL to a node that acts on a backend: the statements of the text that Loadline's SQL follows, "Auto-Scaling
//! Widget Integration", as they stand there, and what they do in the end.

use std::sync::Arc;
use std::time::Duration;

use loadline_api::v1;
use loadline_api::v1::scaling_client::ScalingClient;
use loadline_executor::Backends;
use loadline_executor::backends::scripted::{Script, Scripted};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};
use tonic::Code;

use crate::common::{Node, Place, create_size, eventually, options, refused, set};

/// A node that speaks SQL, with the sizes of the text, whose clusters live on a backend in memory.
async fn acting() -> (Node, Client, Scripted) {
    let backend = Scripted::new(Script::default());
    let backends = Backends::new().with("memory", Arc::new(backend.clone()));
    let place = Place::with_sql().await;
    let mut config = place.config("n1", &[&place.grpc]);
    config.tick_every = Duration::from_millis(50);
    let node = place.start_in(config, |mut world| {
        world.backends = backends;
        world
    });
    node.until_ready().await;
    let mut admin = node.admin();
    for (slots, name) in (1..).zip(["1", "2", "100cc", "200cc", "400cc"]) {
        admin.create_size(create_size(name, slots)).await.unwrap();
    }
    admin.set_setting(set("default_backend", "memory")).await.unwrap();
    let text = format!("host=127.0.0.1 port={} user=ops dbname=loadline", node.pg.unwrap().port());
    let (client, connection) = tokio_postgres::connect(&text, NoTls).await.unwrap();
    tokio::spawn(connection);
    (node, client, backend)
}

/// The rows of a query, each as one text.
async fn rows(client: &Client, query: &str) -> Vec<String> {
    let said = client.simple_query(query).await.unwrap_or_else(|error| panic!("{query}: {error:?}"));
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|place| row.get(place).unwrap_or("-")).collect::<Vec<_>>().join("|"))
        }
        _ => None,
    };
    said.iter().filter_map(row).collect()
}

async fn run(client: &Client, statement: &str) {
    client.batch_execute(statement).await.unwrap_or_else(|error| panic!("{statement}: {error:?}"));
}

async fn code(client: &Client, statement: &str) -> String {
    let error = client.batch_execute(statement).await.unwrap_err();
    error.code().unwrap_or_else(|| panic!("{statement}: {error:?}")).code().to_owned()
}

async fn until(client: &Client, query: &str, expected: &[&str]) {
    let mut last = Vec::new();
    let what = format!("{query} says {expected:?}");
    eventually(&what, async || {
        last = rows(client, query).await;
        last == *expected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_statement_of_the_text_runs_as_it_is_written() {
    let (_node, client, backend) = acting().await;
    // Feature Flag: off by default, and then the commands return an error.
    let first = "CREATE SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE TARGET_SIZE
    WITH (SIZE = '200cc', REPLICA_NAME = 'main');";
    run(&client, "CREATE CLUSTER my_cluster").await;
    assert_eq!(code(&client, first).await, "0A000");
    run(&client, "ALTER SYSTEM SET enable_auto_scaling = true;").await;
    // Safety Mechanisms: while it is off nothing is done, and what would have been is recorded.
    run(&client, "ALTER SYSTEM SET auto_scaling_enabled = false;").await;

    // SQL Syntax.
    run(&client, first).await;
    run(
        &client,
        "CREATE SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE IDLE_SUSPEND
    WITH (IDLE_AFTER = '30m', COOLDOWN = '5m');",
    )
    .await;
    run(
        &client,
        "-- Create a scaling strategy for ALL clusters
CREATE SCALING STRATEGY FOR ALL CLUSTERS
    TYPE IDLE_SUSPEND
    WITH (IDLE_AFTER = '1h');",
    )
    .await;
    let strategies =
        "SELECT strategy_type, cluster_id IS NULL, config FROM mz_internal.mz_scaling_strategies ORDER BY id";
    let expected = [
        "target_size|f|{\"size\": \"200cc\", \"replica_name\": \"main\", \"config_version\": 1}",
        "idle_suspend|f|{\"cooldown_s\": 300, \"idle_after_s\": 1800, \"config_version\": 1}",
        "idle_suspend|t|{\"idle_after_s\": 3600, \"config_version\": 1}",
    ];
    assert_eq!(rows(&client, strategies).await, expected);
    // A second one of the same type for the same cluster is an error; so it is the first that has to go before the third.
    let managed = "-- Use MANAGED_ONLY mode for safer rollout
CREATE SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE TARGET_SIZE
    WITH (SIZE = '200cc', REPLICA_SCOPE = 'MANAGED_ONLY');";
    assert_eq!(code(&client, managed).await, "42710");
    run(&client, "-- Remove a strategy\nDROP SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE;").await;
    run(&client, managed).await;
    run(
        &client,
        "-- Modify strategy options (partial update, only specified keys change)
ALTER SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE TARGET_SIZE
    UPDATE (SIZE = '400cc');

-- Enable/disable without removing
ALTER SCALING STRATEGY FOR CLUSTER my_cluster
    TYPE IDLE_SUSPEND
    UPDATE (ENABLED = false);",
    )
    .await;
    let of = "SELECT config->>'size', config->>'replica_scope', enabled FROM mz_scaling_strategies WHERE cluster_id IS NOT NULL ORDER BY 1";
    assert_eq!(rows(&client, of).await, ["400cc|MANAGED_ONLY|t", "-|-|f"]);
    assert_eq!(rows(&client, "SHOW SCALING STRATEGIES;").await.len(), 3);
    assert_eq!(rows(&client, "SHOW SCALING STRATEGIES FOR CLUSTER my_cluster;").await.len(), 2);
    let suppressed = rows(&client, "SHOW SCALING ACTIONS FOR CLUSTER my_cluster LIMIT 10;").await;
    assert!(!suppressed.is_empty() && suppressed.iter().all(|row| row.contains("create_replica")), "{suppressed:?}");
    assert_eq!(backend.effects().len(), 0, "the kill switch is off");
    let executed = "SELECT DISTINCT executed FROM mz_internal.mz_scaling_actions";
    assert_eq!(rows(&client, executed).await, ["f"]);

    // Writable Builtin Tables: none of the examples' ids are ours, so they touch nothing, until they are.
    let tag = async |statement: &str| client.execute(statement, &[]).await.unwrap();
    let update = "UPDATE mz_internal.mz_scaling_strategies
SET config = config || '{\"size\": \"400cc\"}'::jsonb
WHERE id = 'strategy-123';";
    let delete = "DELETE FROM mz_internal.mz_scaling_strategies
WHERE cluster_id = 'u1' AND strategy_type = 'target_size';";
    assert_eq!((tag(update).await, tag(delete).await), (0, 0));
    run(&client, "ALTER SCALING STRATEGY FOR CLUSTER my_cluster TYPE TARGET_SIZE UPDATE (SIZE = '200cc')").await;
    let id = rows(&client, "SELECT id FROM mz_scaling_strategies WHERE strategy_type = 'target_size'").await.remove(0);
    assert_eq!(tag(&update.replace("strategy-123", &id)).await, 1);
    assert_eq!(rows(&client, of).await[0], "400cc|MANAGED_ONLY|t");
    let cluster = rows(&client, "SELECT id FROM mz_clusters WHERE name = 'my_cluster'").await.remove(0);
    assert_eq!(tag(&delete.replace("u1", &cluster)).await, 1);
    let insert = format!(
        "INSERT INTO mz_internal.mz_scaling_strategies (id, cluster_id, strategy_type, config)
VALUES (DEFAULT, '{cluster}', 'target_size', '{{\"config_version\": 1, \"size\": \"200cc\", \"cooldown_s\": 60, \"replica_name\": \"main\", \"replica_scope\": \"ALL\"}}');"
    );
    assert_eq!(tag(&insert).await, 1);

    // Builtin Tables: the columns are those of the text, and the retention can be set.
    run(&client, "ALTER SYSTEM SET auto_scaling_action_retention = '14 days'").await;
    for (table, columns) in [
        (
            "mz_scaling_strategies",
            "id, cluster_id, cluster_pattern, strategy_type, config, enabled, created_at, updated_at",
        ),
        ("mz_scaling_strategy_state", "strategy_id, cluster_id, state_version, payload, updated_at"),
        (
            "mz_scaling_actions",
            "action_id, strategy_id, cluster_id, action_type, action_sql, reason, executed, error_message, created_at",
        ),
        ("mz_scaling_strategies_effective", "id, strategy_type, effective_cluster_id, config, enabled, state"),
    ] {
        assert!(!rows(&client, &format!("SELECT {columns} FROM mz_internal.{table}")).await.is_empty(), "{table}");
        let all = client.prepare(&format!("SELECT * FROM mz_internal.{table}")).await.unwrap();
        let names: Vec<&str> = all.columns().iter().map(|column| column.name()).collect();
        assert_eq!(names.join(", "), columns);
    }
    run(
        &client,
        "-- Remove ALL scaling strategies from a cluster\nDROP ALL SCALING STRATEGIES FOR CLUSTER my_cluster;",
    )
    .await;
    assert_eq!(rows(&client, "SHOW SCALING STRATEGIES FOR CLUSTER my_cluster;").await.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn required_test_scenario_1_a_target_size_replica_is_really_made() {
    let (_node, client, backend) = acting().await;
    run(&client, "ALTER SYSTEM SET enable_auto_scaling = true;").await;
    run(&client, "CREATE CLUSTER scaling_test SIZE = '1'").await;
    let replicas = "SELECT name, size FROM mz_cluster_replicas
  WHERE cluster_id = (SELECT id FROM mz_clusters WHERE name = 'scaling_test')";
    until(&client, replicas, &["r1|1"]).await;
    run(
        &client,
        "CREATE SCALING STRATEGY FOR CLUSTER scaling_test
    TYPE TARGET_SIZE
    WITH (SIZE = '2')",
    )
    .await;
    // The cluster waits half a minute after a change; who cannot wait sets the knob.
    run(&client, "ALTER SYSTEM SET auto_scaling_cluster_cooldown = '0s'").await;
    until(&client, &format!("SELECT name, size FROM ({replicas}) r WHERE size = '2'"), &["r1_auto|2"]).await;
    assert!(backend.effects().len() >= 2, "{:?}", backend.effects());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_somebody_asks_for_is_made_and_dropped_at_the_backend() {
    let (node, client, backend) = acting().await;
    run(&client, "ALTER SYSTEM SET enable_auto_scaling = true; CREATE CLUSTER shop").await;
    run(&client, "CREATE CLUSTER REPLICA shop.mine SIZE = '100cc'").await;
    let replicas = "SELECT name, size FROM mz_cluster_replicas";
    until(&client, replicas, &["mine|100cc"]).await;
    until(&client, "SELECT kind, result FROM loadline.operations", &["scale_up|COMPLETED"]).await;
    let shown = "SELECT strategy_id, action_type, reason, executed FROM mz_scaling_actions";
    assert_eq!(rows(&client, shown).await, ["user|create_replica|asked for by ops|t"]);
    let actions = rows(&client, "SHOW SCALING ACTIONS FOR CLUSTER shop").await;
    assert!(actions[0].contains("asked for by ops"), "{actions:?}");
    assert_eq!(code(&client, "CREATE CLUSTER REPLICA shop.mine SIZE = '100cc'").await, "42710");
    run(&client, "CREATE CLUSTER REPLICA IF NOT EXISTS shop.mine SIZE = '100cc'").await;
    assert_eq!(code(&client, "CREATE CLUSTER REPLICA shop.mine_auto SIZE = '100cc'").await, "22023");
    assert_eq!(code(&client, "CREATE CLUSTER REPLICA shop.other SIZE = '75cc'").await, "42704");
    assert_eq!(code(&client, "DROP CLUSTER REPLICA shop.other").await, "42704");
    run(&client, "DROP CLUSTER REPLICA IF EXISTS shop.other").await;
    run(&client, "DROP CLUSTER REPLICA shop.mine").await;
    until(&client, replicas, &[]).await;
    assert_eq!(backend.effects().len(), 4, "created, cordoned, drained, dropped: {:?}", backend.effects());

    // The same by gRPC.
    let mut scaling = ScalingClient::new(node.channel.clone());
    let create = v1::CreateReplicaRequest {
        options: options(),
        cluster: "shop".to_owned(),
        replica: "other".to_owned(),
        size: "1".to_owned(),
        allow_existing: false,
    };
    scaling.create_replica(create.clone()).await.unwrap();
    until(&client, replicas, &["other|1"]).await;
    let again = v1::CreateReplicaRequest { options: options(), ..create.clone() };
    refused(scaling.create_replica(again).await, Code::AlreadyExists, "REPLICA_EXISTS", &["replica"]);
    let nowhere = v1::CreateReplicaRequest { options: options(), cluster: "nowhere".to_owned(), ..create };
    refused(scaling.create_replica(nowhere).await, Code::NotFound, "NOT_FOUND", &["cluster"]);
    let delete = v1::DeleteReplicaRequest {
        options: options(),
        cluster: "shop".to_owned(),
        replica: "other".to_owned(),
        allow_missing: false,
    };
    scaling.delete_replica(delete).await.unwrap();
    until(&client, replicas, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_writes_rows_with_parameters_and_reads_what_it_wrote() {
    let (node, client, _backend) = acting().await;
    run(&client, "ALTER SYSTEM SET enable_auto_scaling = true; ALTER SYSTEM SET auto_scaling_enabled = false").await;
    run(&client, "CREATE CLUSTER shop").await;
    let insert = "INSERT INTO mz_scaling_strategies (cluster_id, strategy_type, config, enabled)
        SELECT id, 'burst', '{\"burst_size\": \"1\"}', true FROM mz_clusters WHERE name = $1 RETURNING id, enabled";
    let statement = client.prepare(insert).await.unwrap();
    assert_eq!(statement.params(), [Type::TEXT]);
    let made = client.query(&statement, &[&"shop"]).await.unwrap();
    let (id, enabled): (String, bool) = (made[0].get(0), made[0].get(1));
    assert!(enabled);
    assert_eq!(rows(&client, "SELECT id FROM mz_scaling_strategies").await, [id.as_str()]);
    let update = client.prepare("UPDATE mz_scaling_strategies SET enabled = $1 WHERE id = $2").await.unwrap();
    assert_eq!(update.params(), [Type::BOOL, Type::TEXT]);
    assert_eq!(client.execute(&update, &[&false, &id]).await.unwrap(), 1);
    assert_eq!(rows(&client, "SELECT enabled FROM mz_scaling_strategies").await, ["f"]);
    let wrong = client.execute("UPDATE mz_scaling_strategies SET config = '{\"burst_size\": \"9cc\"}'", &[]).await;
    let error = wrong.unwrap_err();
    let told = error.as_db_error().unwrap();
    assert_eq!(told.code().code(), "42704");
    assert!(matches!(told.position(), Some(tokio_postgres::error::ErrorPosition::Original(43))), "{told:?}");

    // A transaction that read what another one changes before it commits is refused.
    run(&client, "BEGIN; UPDATE mz_scaling_strategies SET config = config || '{\"cooldown_s\": 5}'::jsonb").await;
    let text = format!("host=127.0.0.1 port={} user=other dbname=loadline", node.pg.unwrap().port());
    let (other, connection) = tokio_postgres::connect(&text, NoTls).await.unwrap();
    tokio::spawn(connection);
    run(&other, "ALTER SCALING STRATEGY FOR CLUSTER shop TYPE BURST UPDATE (COOLDOWN = '9s')").await;
    assert_eq!(code(&client, "COMMIT").await, "40001");
    assert_eq!(rows(&client, "SELECT config->>'cooldown_s' FROM mz_scaling_strategies").await, ["9"]);

    // Rows of settled actions can be deleted, and nothing else about them.
    run(&client, "CREATE SCALING STRATEGY FOR CLUSTER shop TYPE TARGET_SIZE WITH (SIZE = '1')").await;
    until(&client, "SELECT count(*) > 0 FROM mz_scaling_actions", &["t"]).await;
    let before = rows(&client, "SELECT count(*) FROM loadline.events WHERE kind = 'ActionSettled'").await;
    let gone = client.execute("DELETE FROM mz_scaling_actions WHERE NOT executed", &[]).await.unwrap();
    assert!(gone > 0);
    assert_eq!(rows(&client, "SELECT count(*) FROM mz_scaling_actions").await, ["0"]);
    assert_eq!(rows(&client, "SELECT count(*) FROM loadline.events WHERE kind = 'ActionSettled'").await, before);
    assert_eq!(code(&client, "UPDATE mz_scaling_actions SET executed = true").await, "42809");
}

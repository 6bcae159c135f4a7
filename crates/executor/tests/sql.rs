//! The SQL backend against a real PostgreSQL, whose tables and functions stand for a catalog: the suite, the ways in which a call
//! goes wrong, and what is left without a ledger.

use std::sync::Arc;
use std::time::Duration;

use crate::sql_support::{Database, create, epoch, life, order, tls_server};
use loadline_executor::backends::sql::{Sql, SqlConfig};
use loadline_executor::conformance::{self, Subject, suite};
use loadline_executor::{Backend, CallError, ClusterAddress, Found, ObservedReplica, Order};
use loadline_state_machine::{Call, DrainResult, Report};

const SHORT: Duration = Duration::from_millis(500);

fn created(incarnation: &str) -> Report {
    Report::Created { incarnation: Some(incarnation.to_owned()) }
}

fn refused_for_good(reason: &str) -> CallError {
    CallError::Refused { retryable: false, reason: reason.to_owned() }
}

#[tokio::test]
async fn it_keeps_what_every_backend_promises() {
    suite(|| async {
        let database = Database::create().await;
        // Two nodes have their own connections.
        let backend = || {
            Arc::new(database.backend_with(|config| {
                config.ledger = Some("ledger".to_owned());
                // One of the checks waits for all of it.
                config.call_deadline = Duration::from_secs(4);
            }))
        };
        Subject::new(backend()).with_other_node(backend()).keeping(database)
    })
    .await;
}

#[tokio::test]
async fn without_a_ledger_it_keeps_what_can_be_kept_and_says_that_it_cannot_fence() {
    let subject = || async {
        let database = Database::create().await;
        let backend = |database: &Database| {
            Arc::new(database.backend_with(|config| {
                config.visibility_delay = Some(Duration::from_millis(1));
                // The catalog itself says under which key a replica was made.
                config.observe =
                    "SELECT name, size, life AS incarnation, key FROM replicas WHERE cluster = {cluster_name}".into();
                // What cannot be read back is better not configured.
                (config.cordon, config.drain, config.uncordon) = (None, None, None);
            }))
        };
        Subject::new(backend(&database)).with_other_node(backend(&database)).keeping(database)
    };
    conformance::what_was_made_is_found_and_seen(&subject().await).await;
    conformance::a_key_is_carried_out_once(&subject().await).await;
    conformance::a_key_that_was_never_sent_is_not_seen(&subject().await).await;
    conformance::a_fence_leaves_what_was_done_before(&subject().await).await;
    conformance::a_fence_can_be_set_again(&subject().await).await;
    conformance::a_drop_ends_the_replica_it_names_and_no_newer_one(&subject().await).await;
    conformance::a_replica_that_is_gone_can_be_dropped_again(&subject().await).await;
    conformance::a_replica_is_cordoned_drained_and_uncordoned(&subject().await).await;
    conformance::clusters_do_not_see_each_other(&subject().await).await;

    let database = Database::create().await;
    let (with, without) = (database.backend(), database.backend_with(|_| {}));
    assert_eq!((with.capabilities().fences, with.capabilities().visibility_delay), (true, Duration::ZERO));
    assert_eq!(
        (without.capabilities().fences, without.capabilities().visibility_delay),
        (false, Duration::from_secs(2))
    );
}

#[tokio::test]
async fn what_is_not_done_by_the_deadline_is_never_done() {
    let database = Database::create().await;
    for ledger in [Some("ledger".to_owned()), None] {
        let backend = database.backend_with(|config| {
            config.ledger = ledger.clone();
            config.call_deadline = SHORT;
        });
        let slow = order("k1", 5, create("r1_auto", "slow"));
        let answer = backend.execute(&slow).await;
        let open = matches!(answer, Err(CallError::Unknown { .. } | CallError::Refused { retryable: true, .. }));
        assert!(open, "the time ran out, and the answer is {answer:?}");
        // Nobody is left at it, and nothing has come of it.
        let at_it = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT make%' AND state <> 'idle'";
        database.wait_for(at_it, "0").await;
        assert_eq!(backend.find(&slow).await, Ok(Found::NotSeen));
        assert_eq!(database.effects().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_fence_waits_for_what_is_in_the_middle_and_refuses_what_comes_later() {
    let database = Arc::new(Database::create().await);
    let (old, new) = (Arc::new(database.backend()), Arc::new(database.backend()));
    old.fence(epoch(5)).await.unwrap();
    database.admin.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
    let gated = order("k1", 5, create("r1_auto", "gated"));
    let executing = tokio::spawn({
        let (old, gated) = (Arc::clone(&old), gated.clone());
        async move { old.execute(&gated).await }
    });
    let waiting = |what: &str| {
        format!(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE '{what}%'"
        )
    };
    database.wait_for(&waiting("SELECT make"), "1").await;
    assert_eq!(new.find(&Order { epoch: epoch(7), ..gated.clone() }).await, Ok(Found::UnderWay));
    let fencing = tokio::spawn({
        let new = Arc::clone(&new);
        async move { new.fence(epoch(7)).await }
    });
    database.wait_for(&waiting("INSERT INTO"), "1").await;
    database.admin.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    assert_eq!(executing.await.unwrap(), Ok(created("1")), "it held the epoch when the fence came");
    assert_eq!(fencing.await.unwrap(), Ok(()));
    assert_eq!(new.find(&Order { epoch: epoch(7), ..gated }).await, Ok(Found::Done(created("1"))));
    let late = order("k2", 5, create("r2_auto", "25cc"));
    assert_eq!(old.execute(&late).await, Err(CallError::Fenced { highest: epoch(7) }));
    assert_eq!(database.effects().await, ["create r1_auto"]);
}

#[tokio::test]
async fn a_transaction_whose_client_fell_asleep_does_not_hold_up_the_next_leader() {
    let database = Database::create().await;
    let backend = database.backend();
    backend.fence(epoch(5)).await.unwrap();
    // An old leader that was stopped while it held the epoch: its session says when it may be ended.
    database
        .admin
        .batch_execute(
            "SET idle_in_transaction_session_timeout = '500ms'; BEGIN; SELECT epoch FROM ledger_epoch FOR SHARE",
        )
        .await
        .unwrap();
    assert_eq!(backend.fence(epoch(7)).await, Ok(()), "the server ended it");
    let sleeper = database.admin.batch_execute("COMMIT").await;
    assert!(sleeper.is_err(), "whoever wakes up finds that it is over");
}

#[tokio::test]
async fn an_order_that_lost_its_connection_in_the_middle_is_not_done_and_can_be_sent_again() {
    let database = Arc::new(Database::create().await);
    let backend = Arc::new(database.backend());
    database.admin.batch_execute("SELECT pg_advisory_lock(1)").await.unwrap();
    let gated = order("k1", 5, create("r1_auto", "gated"));
    let executing = tokio::spawn({
        let (backend, gated) = (Arc::clone(&backend), gated.clone());
        async move { backend.execute(&gated).await }
    });
    let at_it = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database() AND query LIKE 'SELECT make%'";
    database.wait_for(&format!("SELECT count(*) {at_it}"), "1").await;
    database.admin.batch_execute(&format!("SELECT pg_terminate_backend(pid) {at_it}")).await.unwrap();
    let answer = executing.await.unwrap();
    let open = matches!(answer, Err(CallError::Unknown { .. } | CallError::Refused { retryable: true, .. }));
    assert!(open, "the connection broke, and the answer is {answer:?}");
    database.admin.batch_execute("SELECT pg_advisory_unlock(1)").await.unwrap();
    assert_eq!(backend.find(&gated).await, Ok(Found::NotSeen));
    assert!(matches!(backend.execute(&Order { attempt: 2, ..gated }).await, Ok(Report::Created { .. })));
    assert_eq!(database.effects().await, ["create r1_auto"]);
}

#[tokio::test]
async fn what_the_database_refuses_is_refused_for_good_and_remembered() {
    let database = Database::create().await;
    let backend = database.backend();
    let wrong = order("k1", 5, create("r1_auto", "unknown"));
    let reason = "there is no size unknown [P0001]";
    assert_eq!(backend.execute(&wrong).await, Err(refused_for_good(reason)));
    assert_eq!(backend.find(&wrong).await, Ok(Found::Failed { retryable: false, reason: reason.to_owned() }));
    assert_eq!(backend.execute(&wrong).await, Err(refused_for_good(reason)));
    // A statement without an effect is no success.
    let idle = order("k2", 5, create("r2_auto", "nothing"));
    let reason = "the statement was carried out, and its effect is not there: create replica r2_auto of size nothing";
    assert_eq!(backend.execute(&idle).await, Err(refused_for_good(reason)));
    assert_eq!(database.effects().await, [""; 0]);
}

#[tokio::test]
async fn a_replica_that_somebody_else_made_is_left_alone() {
    let database = Database::create().await;
    database.admin.batch_execute("SELECT make('shop', 'r1_auto', '25cc', 'by hand')").await.unwrap();
    let backend = database.backend();
    let taken = "there is a replica r1_auto already, of size 25cc, which this order did not make";
    assert_eq!(backend.execute(&order("k1", 5, create("r1_auto", "25cc"))).await, Err(refused_for_good(taken)));
    // Another life under the name that is to be dropped: gone is what was asked for.
    let drop_other = order("k2", 5, Call::DropReplica(life("r1_auto", "99")));
    assert_eq!(backend.execute(&drop_other).await, Ok(Report::Nothing));
    let cordon_other = order("k3", 5, Call::CordonReplica(life("r1_auto", "99")));
    assert_eq!(
        backend.execute(&cordon_other).await,
        Err(refused_for_good("the replica r1_auto that is meant is gone"))
    );
    assert_eq!(database.effects().await, ["create r1_auto"]);
    assert_eq!(database.column("SELECT cordoned FROM replicas").await, ["f"]);

    // Without a ledger and without keys, the same name and size are as good as what was asked for; another size is not.
    let plain = database.backend_with(|_| {});
    assert_eq!(plain.execute(&order("k4", 5, create("r1_auto", "25cc"))).await, Ok(created("1")));
    assert_eq!(plain.execute(&order("k5", 5, create("r1_auto", "50cc"))).await, Err(refused_for_good(taken)));
    assert_eq!(database.effects().await, ["create r1_auto"]);
}

#[tokio::test]
async fn a_replica_is_cordoned_and_drained_by_statements_and_that_shows() {
    let database = Database::create().await;
    let backend = database.backend();
    let made = order("k1", 5, create("r1_auto", "25cc"));
    assert_eq!(backend.execute(&made).await, Ok(created("1")));
    assert_eq!(backend.execute(&order("k2", 5, Call::CordonReplica(life("r1_auto", "1")))).await, Ok(Report::Nothing));
    let drain = order("k3", 5, Call::DrainReplica(life("r1_auto", "1")));
    let drained = Report::Drained(DrainResult { moved: 2, left: 1 });
    assert_eq!(backend.execute(&drain).await, Ok(drained.clone()));
    assert_eq!(backend.find(&drain).await, Ok(Found::Done(drained)));
    let expected = ObservedReplica {
        name: "r1_auto".into(),
        size: "25cc".into(),
        incarnation: Some("1".into()),
        ready: false,
        hydration: None,
        crashes: 0,
        crash_reason: None,
        oom: false,
    };
    assert_eq!(backend.observe(&made.cluster).await, Ok(vec![expected]));
}

#[tokio::test]
async fn a_checkpoint_is_a_statement_and_without_one_nothing_is_claimed_to_be_kept() {
    let database = Database::create().await;
    let keeping = |config: &mut SqlConfig| {
        config.ledger = Some("ledger".to_owned());
        config.checkpoint = Some(
            "INSERT INTO checkpoints VALUES ({cluster_name}, {replica_name}, {incarnation}) \
             ON CONFLICT (cluster, name) DO UPDATE SET life = EXCLUDED.life"
                .to_owned(),
        );
    };
    let (keeps, without) = (database.backend_with(keeping), database.backend());
    assert_eq!((keeps.capabilities().checkpoints, without.capabilities().checkpoints), (true, false));
    assert_eq!(keeps.execute(&order("k1", 5, create("r1_auto", "25cc"))).await, Ok(created("1")));
    let kept = order("k2", 5, Call::CheckpointReplica(life("r1_auto", "1")));
    assert_eq!(keeps.execute(&kept).await, Ok(Report::Nothing));
    assert_eq!(database.column("SELECT life FROM checkpoints").await, ["1"]);
    let other = order("k3", 5, Call::CheckpointReplica(life("r1_auto", "1")));
    let none = "this backend has no statement for checkpoints any more";
    assert_eq!(without.execute(&other).await, Err(refused_for_good(none)));
    conformance::a_checkpoint_is_kept_by_those_who_say_so(&{
        let database = Database::create().await;
        Subject::new(Arc::new(database.backend_with(keeping))).keeping(database)
    })
    .await;
}

#[tokio::test]
async fn a_name_is_never_a_statement() {
    let database = Database::create().await;
    let backend = database.backend();
    let mut wild = order("k'1", 5, create("r1'); DROP TABLE replicas; --", "25\\'cc"));
    wild.cluster = ClusterAddress { name: "sh\"op'; DELETE FROM effects; --".to_owned(), ..wild.cluster };
    assert_eq!(backend.execute(&wild).await, Ok(created("1")));
    let seen = backend.observe(&wild.cluster).await.unwrap();
    assert_eq!((&*seen[0].name, &*seen[0].size), ("r1'); DROP TABLE replicas; --", "25\\'cc"));
    assert_eq!(database.effects().await, ["create r1'); DROP TABLE replicas; --"]);
}

#[tokio::test]
async fn a_query_that_does_not_fit_is_an_error_and_never_means_that_nothing_is_there() {
    let database = Database::create().await;
    database.admin.batch_execute("SELECT make('shop', 'r1_auto', '25cc', 'by hand')").await.unwrap();
    let cluster = order("k1", 5, create("r1_auto", "25cc")).cluster;
    let columns = "expected some of name, size, incarnation, ready, objects, hydrated, crashes, crash_reason, oom, key";
    let cases = [
        (
            "SELECT name, size, true AS raedy FROM replicas",
            format!("the query has a column raedy, which means nothing here: {columns}"),
        ),
        ("SELECT name FROM replicas", "the query has no value for size".to_owned()),
        ("SELECT name, size, 'maybe' AS ready FROM replicas", "ready is \"maybe\": expected a boolean".to_owned()),
        (
            "SELECT name, size, -1 AS crashes FROM replicas",
            "crashes is \"-1\": expected a whole number, 0 or more".to_owned(),
        ),
        (
            "SELECT 'r' AS name, size FROM replicas, generate_series(1, 2)",
            "the query shows two replicas that are called r".to_owned(),
        ),
        ("DO 'BEGIN END'", "the query has no columns: it must be a SELECT".to_owned()),
        ("SELECT nmae FROM replicas", "column \"nmae\" does not exist [42703]".to_owned()),
    ];
    for (query, reason) in cases {
        let backend = database.backend_with(|config| config.observe = query.to_owned());
        assert_eq!(backend.observe(&cluster).await, Err(refused_for_good(&reason)), "for {query}");
    }
    let backend = database.backend_with(|config| {
        let shown = "SELECT name, size, 7 AS objects, 3 AS hydrated, 2 AS crashes, 'oom' AS crash_reason, true AS oom FROM replicas";
        config.observe = shown.to_owned();
    });
    let seen = backend.observe(&cluster).await.unwrap();
    assert_eq!((seen[0].hydration.unwrap().total, seen[0].hydration.unwrap().hydrated), (7, 3));
    assert_eq!(
        (seen[0].ready, seen[0].crashes, seen[0].crash_reason.as_deref(), seen[0].oom),
        (true, 2, Some("oom"), true)
    );
}

#[tokio::test]
async fn the_default_query_reads_a_catalog_of_that_shape() {
    let database = Database::create().await;
    database
        .admin
        .batch_execute(
            "CREATE SCHEMA mz_catalog; CREATE SCHEMA mz_internal;
             CREATE TABLE mz_catalog.mz_clusters (id text, name text);
             CREATE TABLE mz_catalog.mz_cluster_replicas (id text, name text, cluster_id text, size text);
             CREATE TABLE mz_internal.mz_cluster_replica_statuses (replica_id text, process_id int, status text);
             INSERT INTO mz_catalog.mz_clusters VALUES ('u1', 'shop'), ('u2', 'other');
             INSERT INTO mz_catalog.mz_cluster_replicas VALUES ('u7', 'r1_auto', 'u1', '25cc'), ('u8', 'r2_auto', 'u1', '50cc'),
                 ('u9', 'r3_auto', 'u2', '25cc'), ('u10', 'r4_auto', 'u1', '25cc');
             INSERT INTO mz_internal.mz_cluster_replica_statuses VALUES ('u7', 0, 'online'), ('u8', 0, 'online'), ('u8', 1, 'offline');",
        )
        .await
        .unwrap();
    let defaults = SqlConfig::to("");
    let backend = database.backend_with(|config| config.observe = defaults.observe);
    let seen = backend.observe(&order("k1", 5, create("r1_auto", "25cc")).cluster).await.unwrap();
    let shown: Vec<_> = seen
        .iter()
        .map(|replica| (&*replica.name, &*replica.size, replica.incarnation.as_deref(), replica.ready))
        .collect();
    let expected = [
        ("r1_auto", "25cc", Some("u7"), true),
        ("r2_auto", "50cc", Some("u8"), false),
        ("r4_auto", "25cc", Some("u10"), false),
    ];
    assert_eq!(shown, expected);
}

#[tokio::test]
async fn keys_are_forgotten_when_nobody_can_send_them_again() {
    let database = Database::create().await;
    let backend = database.backend();
    for key in ["old", "young"] {
        backend.execute(&order(key, 5, create(&format!("{key}_auto"), "25cc"))).await.unwrap();
    }
    database
        .admin
        .batch_execute("UPDATE ledger SET accepted_at = now() - interval '8 days' WHERE key = 'old'")
        .await
        .unwrap();
    backend.fence(epoch(6)).await.unwrap();
    assert_eq!(database.column("SELECT key FROM ledger").await, ["young"]);
}

#[tokio::test]
async fn where_there_is_no_connection_nothing_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::create().await;
    let backend =
        database.backend_with(|config| config.connect = format!("host={} user=loadline", folder.path().display()));
    let answer = backend.execute(&order("k1", 5, create("r1_auto", "25cc"))).await;
    assert!(matches!(answer, Err(CallError::Refused { retryable: true, .. })), "{answer:?}");
}

#[tokio::test]
async fn over_tls_only_a_server_with_a_trusted_certificate_is_told_anything() {
    let server = tls_server();
    let backend = |ca_file: &std::path::Path, connect: &str| {
        let observe =
            "SELECT 'r1_auto' AS name, '25cc' AS size, ssl AS ready FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        let ca_file = Some(ca_file.to_owned());
        let config = SqlConfig { ca_file, observe: observe.to_owned(), ..SqlConfig::to(connect) };
        Sql::new(config, None).unwrap()
    };
    let cluster = order("k1", 5, create("r1_auto", "25cc")).cluster;
    let seen = backend(&server.ca_file, &server.connect).observe(&cluster).await.unwrap();
    assert!(seen[0].ready, "the session is encrypted");
    // A certificate for another name, and one that somebody else vouches for.
    let renamed = server.connect.replace("localhost", "elsewhere");
    let folder = tempfile::tempdir().unwrap();
    let stranger = folder.path().join("stranger.pem");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    std::fs::write(&stranger, made.cert.pem()).unwrap();
    for misled in [backend(&server.ca_file, &renamed), backend(&stranger, &server.connect)] {
        let answer = misled.observe(&cluster).await;
        assert!(
            matches!(&answer, Err(CallError::Refused { retryable: true, reason }) if reason.contains("certificate")),
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_cluster_that_its_database_manages_is_left_alone_with_the_reason() {
    let database = Database::create().await;
    let tables = "CREATE TABLE clusters (name text, managed boolean, size text, replicas int);
                  INSERT INTO clusters VALUES ('shop', true, '100cc', 2)";
    database.admin.batch_execute(tables).await.unwrap();
    let query = "SELECT managed, size, replicas FROM clusters WHERE name = {cluster_name}";
    for ledger in [Some("ledger".to_owned()), None] {
        let kept = ledger.is_some();
        let backend = database.backend_with(|config| {
            config.ledger = ledger.clone();
            config.managed = Some(query.to_owned());
        });
        database.admin.batch_execute("UPDATE clusters SET managed = true").await.unwrap();
        let making = order(if kept { "k1" } else { "k2" }, 5, create("r1_auto", "100cc"));
        let Err(CallError::Refused { retryable: false, reason }) = backend.execute(&making).await else {
            panic!("it was not refused for good")
        };
        let expected = "cluster shop is managed by its database, with 2 replicas of size 100cc: single replicas can be neither made \
                        nor dropped there.";
        assert!(reason.starts_with(expected), "{reason}");
        assert_eq!(database.effects().await, [""; 0], "nothing was sent");
    }
    // Handed over, it is scaled like any other.
    database.admin.batch_execute("UPDATE clusters SET managed = false").await.unwrap();
    let backend = database.backend_with(|config| {
        config.ledger = Some("ledger".to_owned());
        config.managed = Some(query.to_owned());
    });
    assert!(backend.execute(&order("k3", 5, create("r1_auto", "100cc"))).await.is_ok());
    // A query that says something else is a mistake, and not a no.
    let backend = database.backend_with(|config| config.managed = Some("SELECT true AS manged".to_owned()));
    let wrong = refused_for_good("the query managed has no column managed: expected a boolean");
    assert_eq!(backend.execute(&order("k4", 5, create("r2_auto", "100cc"))).await, Err(wrong));
}

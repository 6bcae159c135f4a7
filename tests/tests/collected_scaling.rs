//! From a number that somebody else keeps to replicas that run: a real Prometheus and a real NATS server, three nodes, processes as
//! replicas. More work brings more of them, none of it takes them away again, and silence takes nobody away.

use anyhow::{Context, Result, ensure};
use loadline_tests::ask::{PATIENCE, leader, said};
use loadline_tests::machine::Machine;
use loadline_tests::peers::{Exporter, Nats, Prometheus};
use loadline_tests::scaled::{json, metrics, replicas, start};
use loadline_tests::{Group, alone, eventually};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// Three nodes with a cluster of workers that may change as often as its signals do.
async fn workers(machine: &Machine) -> Result<Group> {
    let group = start(BINARY, machine, Vec::new()).await?;
    for words in [
        &["set", "auto_scaling_cluster_cooldown", "0s"][..],
        &["set", "auto_scaling_rate_limit", "1000"],
        &["set", "signal_stale_after", "6s"],
        &["create", "cluster", "workers"],
    ] {
        said(&group, words)?;
    }
    Ok(group)
}

fn apply(group: &Group, sql: &str) -> Result<String> {
    let path = group.folder().join("wanted.sql");
    std::fs::write(&path, sql)?;
    said(group, &["apply", "-f", &path.display().to_string()])
}

async fn count(machine: &Machine, count: usize) -> Result<Vec<String>> {
    replicas(&format!("{count} replicas"), machine, |running| running.len() == count).await
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_follow_a_prometheus_and_when_it_stops_nothing_shrinks_and_explain_says_why() -> Result<()> {
    let _alone = alone();
    let exporter = Exporter::start("workers").await?;
    exporter.set(5);
    let prometheus = Prometheus::start(&exporter).await?;
    let machine = Machine::new()?;
    let group = workers(&machine).await?;
    let wanted = |url: &str| {
        format!(
            "CREATE SIGNAL depth FROM PROMETHEUS (URL = '{url}', QUERY = 'queue_depth', CLUSTER_LABEL = 'cluster')
                 EVERY '1s';
             CREATE SCALING STRATEGY FOR CLUSTER workers TYPE TARGET_TRACKING
                 WITH (SIZE = '1', MAX_REPLICAS = 4, SIGNALS = 'depth average 10', STABILIZATION_DOWN = '2s');"
        )
    };
    apply(&group, &wanted(&prometheus.url))?;
    count(&machine, 1).await?;
    exporter.set(35);
    count(&machine, 4).await?;

    // Nobody answers any more, and nobody would say that there is less to do.
    drop(prometheus);
    exporter.set(5);
    let explained = eventually("explain says why it holds", PATIENCE, async || {
        let text = said(&group, &["explain", "cluster/workers"]).ok()?;
        text.contains("METRIC_STALE").then_some(text)
    })
    .await?;
    ensure!(explained.contains("depth"), "{explained}");
    let leads = leader(&group).await?;
    let stale = "loadline_signal_stale{kind=\"prometheus\",signal=\"depth\"} 1";
    eventually("the alarm rises", PATIENCE, async || {
        metrics(&group.members[leads].http).await.ok()?.contains(stale).then_some(())
    })
    .await?;
    ensure!(machine.running()?.len() == 4, "nothing shrinks: {:?}", machine.running()?);

    // It was the silence: with an answer they go, after the window.
    let prometheus = Prometheus::start(&exporter).await?;
    let changed = apply(&group, &wanted(&prometheus.url))?;
    ensure!(changed.contains("signals/depth configured"), "{changed}");
    count(&machine, 1).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_follow_the_lag_of_a_nats_consumer_up_and_down_and_over_a_change_of_leader() -> Result<()> {
    let _alone = alone();
    let nats = Nats::start(None).await?;
    nats.make_stream(None, "jobs", "workers").await?;
    let machine = Machine::new()?;
    let mut group = workers(&machine).await?;
    let url = nats.url();
    apply(
        &group,
        &format!(
            "CREATE SIGNAL lag FOR CLUSTER workers FROM NATS (URL = '{url}', STREAM = 'jobs', CONSUMER = 'workers')
                 EVERY '1s';
             CREATE SCALING STRATEGY FOR CLUSTER workers TYPE QUEUE_DEPTH
                 WITH (SIZE = '1', DEPTH_SIGNAL = 'lag', DEPTH_TARGET = 2, MAX_REPLICAS = 3, STABILIZATION_DOWN = '2s');"
        ),
    )?;
    count(&machine, 1).await?;
    nats.publish(None, "jobs", 4).await?;
    count(&machine, 2).await?;
    let old = leader(&group).await?;
    group.kill(old)?;
    nats.publish(None, "jobs", 20).await?;
    count(&machine, 3).await?;
    nats.purge(None, "jobs").await?;
    count(&machine, 1).await?;
    let shown = json(&group, &["get", "signal", "lag"])?;
    let value = shown.pointer("/status/value").context("a value")?;
    ensure!(value == "0", "{shown:#}");
    Ok(())
}

//! Signals that the leader collects, from a real Prometheus, a real NATS server and a real PostgreSQL server: values arrive, no answer
//! is never a zero, a new leader goes on where the old one stopped, and no secret is ever written down.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadline_tests::ask::{PATIENCE, leader, run, said};
use loadline_tests::peers::{Exporter, Nats, Postgres, Prometheus};
use loadline_tests::scaled::metrics;
use loadline_tests::{Group, Options, alone, eventually};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// A word that is nowhere unless somebody wrote it down.
const SECRET: &str = "correct-horse-battery-staple-7391";

/// Nodes with two clusters, on which a signal counts as stale after four seconds.
async fn start(nodes: usize, variables: &[(&str, &str)]) -> Result<Group> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let group = Group::start(BINARY, nodes, Options { variables, sql: true, ..Options::default() })?;
    leader(&group).await?;
    for words in
        [&["create", "cluster", "prod"][..], &["create", "cluster", "test"], &["set", "signal_stale_after", "4s"]]
    {
        said(&group, words)?;
    }
    Ok(group)
}

/// Runs statements from a file, as `apply` does.
fn apply(group: &Group, sql: &str) -> Result<String> {
    let path = group.folder().join("signals.sql");
    std::fs::write(&path, sql)?;
    said(group, &["apply", "-f", &path.display().to_string()])
}

fn signal(group: &Group, name: &str) -> Result<Value> {
    let text = said(group, &["get", "signal", name, "-o", "json"])?;
    serde_json::from_str(&text).with_context(|| text)
}

/// Waits until what came of the signal is such.
async fn until(group: &Group, name: &str, what: &str, such: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut last = String::new();
    let found = eventually(what, PATIENCE, async || {
        let shown = signal(group, name).inspect_err(|error| last = format!("{error:#}")).ok()?;
        last = shown.to_string();
        such(&shown["status"]).then_some(shown)
    });
    found.await.with_context(|| last)
}

async fn value(group: &Group, name: &str, value: &str) -> Result<Value> {
    until(group, name, &format!("{name} is {value}"), |status| status["value"] == value).await
}

/// The metric of a cluster, as the table of facts shows it.
fn fact(group: &Group, cluster: &str, name: &str) -> Result<String> {
    let query = format!(
        "SELECT value FROM loadline.signals WHERE kind = 'metric' AND cluster = '{cluster}' AND subject = '{name}'"
    );
    sql(group, &query)
}

fn sql(group: &Group, statements: &str) -> Result<String> {
    said(group, &["sql", "--sql-endpoint", &group.members[0].pg, "-o", "csv", "-c", statements])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prometheus_is_followed_and_when_it_stops_the_value_stays_and_the_alarm_rises() -> Result<()> {
    let _alone = alone();
    let exporter = Exporter::start("prod").await?;
    exporter.set(7);
    let prometheus = Prometheus::start(&exporter).await?;
    let group = start(1, &[]).await?;
    let url = &prometheus.url;
    apply(
        &group,
        &format!(
            "CREATE SIGNAL depth FROM PROMETHEUS (URL = '{url}', QUERY = 'sum(queue_depth)') EVERY '1s';
             CREATE SIGNAL by_label FROM PROMETHEUS (URL = '{url}', QUERY = 'queue_depth', CLUSTER_LABEL = 'cluster')
                 EVERY '1s';
             CREATE SIGNAL nothing FROM PROMETHEUS (URL = '{url}', QUERY = 'no_such_metric') EVERY '1s';
             CREATE SIGNAL wrong FROM PROMETHEUS (URL = '{url}', QUERY = 'sum(') EVERY '1s';"
        ),
    )?;
    value(&group, "depth", "7").await?;
    value(&group, "by_label", "7").await?;
    ensure!(fact(&group, "prod", "by_label")?.contains("7000"), "the cluster that the label names has it");
    ensure!(!fact(&group, "test", "by_label")?.contains("7000"), "and no other");
    ensure!(fact(&group, "test", "depth")?.contains("7000"), "without a label, everybody has it");
    exporter.set(12);
    value(&group, "depth", "12").await?;
    let nothing = until(&group, "nothing", "it says why", |status| status["error"].is_string()).await?;
    ensure!(nothing["status"]["error"].as_str().is_some_and(|it| it.contains("gave nothing")), "{nothing}");
    ensure!(nothing["status"]["value"].is_null(), "no value is not zero: {nothing}");
    let wrong = until(&group, "wrong", "it says why", |status| status["error"].is_string()).await?;
    ensure!(wrong["status"]["error"].as_str().is_some_and(|it| it.contains("parse error")), "{wrong}");

    // The same file once more changes nothing, and what is there is printed as the statements that make it.
    let printed = said(&group, &["get", "signals", "-o", "sql"])?;
    ensure!(apply(&group, &printed)?.lines().all(|line| line.ends_with("unchanged")), "{printed}");

    drop(prometheus);
    let stale = until(&group, "depth", "it is stale", |status| status["stale"] == true).await?;
    ensure!(stale["status"]["value"] == "12", "what it was last is still known: {stale}");
    let line = "loadline_signal_stale{kind=\"prometheus\",signal=\"depth\"} 1";
    eventually("the alarm rises", PATIENCE, async || {
        metrics(&group.members[0].http).await.ok()?.contains(line).then_some(())
    })
    .await?;
    let figures = metrics(&group.members[0].http).await?;
    ensure!(figures.contains("loadline_signal_value{cluster=\"prod\",signal=\"depth\"} 12"), "{figures}");
    let errors = figures
        .lines()
        .find_map(|line| line.strip_prefix("loadline_signal_errors_total{kind=\"prometheus\",signal=\"depth\"} "));
    ensure!(errors.is_some_and(|count| count != "0"), "{figures}");
    said(&group, &["delete", "signal", "depth"])?;
    ensure!(!metrics(&group.members[0].http).await?.contains("signal=\"depth\""), "what is gone is shown no longer");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_goes_on_asking_and_the_old_one_stops() -> Result<()> {
    let _alone = alone();
    let asked = Exporter::start("prod").await?;
    asked.set(1);
    let group = start(3, &[]).await?;
    let url = format!("http://{}", asked.address);
    apply(&group, &format!("CREATE SIGNAL depth FROM PROMETHEUS (URL = '{url}', QUERY = 'x') EVERY '1s'"))?;
    value(&group, "depth", "1").await?;
    let old = leader(&group).await?;
    group.pause(old)?;
    asked.set(2);
    // Any node answers; the paused one would not.
    let others: Vec<String> =
        group.endpoints().into_iter().enumerate().filter(|(n, _)| *n != old).map(|(_, it)| it).collect();
    let client = loadline_tests::ask::client(&others)?;
    eventually("the next leader has asked", PATIENCE, async || {
        let found = client.get(loadline_client::Kind::Signal, "depth", loadline_client::Reading::Stale).await.ok()?;
        let kept = found.resource.resource?;
        let loadline_client::v1::resource::Resource::Signal(signal) = kept else { return None };
        (signal.value_milli == Some(2_000)).then_some(())
    })
    .await?;
    group.resume(old)?;
    // It learns that it leads no more; from then on one node asks, once a second.
    eventually("the old leader follows", PATIENCE, async || (leader(&group).await.ok()? != old).then_some(())).await?;
    let (window, before) = (Duration::from_secs(5), asked.asked());
    tokio::time::sleep(window).await;
    let count = asked.asked() - before;
    ensure!((3..=7).contains(&count), "{count} questions in {window:?}: one leader asks five times, two ten times");
    asked.set(3);
    value(&group, "depth", "3").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lag_of_a_nats_consumer_is_followed_with_a_token_that_is_nowhere_written_down() -> Result<()> {
    let _alone = alone();
    let token = Some(SECRET);
    let nats = Nats::start(token).await?;
    nats.make_stream(token, "jobs", "workers").await?;
    let group = start(1, &[("NATS_TOKEN", SECRET)]).await?;
    let create = |name: &str, more: &str| {
        let url = nats.url();
        format!(
            "CREATE SIGNAL {name} FROM NATS (URL = '{url}', STREAM = 'jobs', CONSUMER = 'workers'{more}) EVERY '1s';"
        )
    };
    let signals = create("lag", ", TOKEN = 'env:NATS_TOKEN'")
        + &create("stranger", "")
        + &create("unset", ", TOKEN = 'env:NO_SUCH'");
    apply(&group, &signals)?;
    value(&group, "lag", "0").await?;
    nats.publish(token, "jobs", 5).await?;
    value(&group, "lag", "5").await?;
    nats.purge(token, "jobs").await?;
    value(&group, "lag", "0").await?;
    let stranger = until(&group, "stranger", "it says why", |status| status["error"].is_string()).await?;
    ensure!(stranger["status"]["error"].as_str().is_some_and(|it| it.contains("wants a login")), "{stranger}");
    let unset = until(&group, "unset", "it says why", |status| status["error"].is_string()).await?;
    ensure!(unset["status"]["error"].as_str().is_some_and(|it| it.contains("NO_SUCH is not set")), "{unset}");
    sql(&group, "ALTER SIGNAL lag UPDATE (CONSUMER = 'nobody')")?;
    let missing = until(&group, "lag", "it says why", |status| status["error"].is_string()).await?;
    ensure!(missing["status"]["error"].as_str().is_some_and(|it| it.contains("consumer not found")), "{missing}");
    nowhere(&group)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_with_one_number_of_a_postgresql_database_is_a_value_and_nothing_else_is() -> Result<()> {
    let _alone = alone();
    let database = Postgres::start(SECRET).await?;
    database.run(SECRET, "CREATE TABLE jobs (n int); INSERT INTO jobs SELECT generate_series(1, 9)")?;
    let group = start(1, &[]).await?;
    let word = group.folder().join("word");
    std::fs::write(&word, format!("{SECRET}\n"))?;
    let connection = format!("host=127.0.0.1 port={} user=loadline dbname=postgres", database.port);
    let create = |name: &str, query: &str, more: &str| {
        let password = format!("PASSWORD = 'file:{}'", word.display());
        format!(
            "CREATE SIGNAL {name} FROM POSTGRES (CONNECTION = '{connection}', QUERY = '{query}', TLS = 'off', {password}{more})
             EVERY '1s';"
        )
    };
    let signals = [
        create("jobs", "SELECT count(*) / 2.0 FROM jobs", ""),
        create("none", "SELECT n FROM jobs WHERE false", ""),
        create("nulls", "SELECT max(n) FROM jobs WHERE false", ""),
        create("many", "SELECT n FROM jobs", ""),
        create("wide", "SELECT 1, 2", ""),
        create("slow", "SELECT 1 FROM pg_sleep(30)", ", TIMEOUT = ''300ms''".replace("''", "'").as_str()),
        create("writes", "DELETE FROM jobs RETURNING 1", ""),
    ];
    apply(&group, &signals.concat())?;
    value(&group, "jobs", "4.5").await?;
    database.run(SECRET, "DELETE FROM jobs WHERE n > 2")?;
    value(&group, "jobs", "1").await?;
    for (name, why) in [
        ("none", "no row"),
        ("nulls", "NULL"),
        ("many", "2 rows"),
        ("wide", "2 columns"),
        ("slow", "statement timeout"),
        ("writes", "read-only"),
    ] {
        let shown = until(&group, name, "it says why", |status| status["error"].is_string()).await?;
        ensure!(shown["status"]["value"].is_null(), "{shown}");
        // A busy machine may take longer than the whole time-out to connect.
        let error = shown["status"]["error"].as_str().unwrap_or_default();
        ensure!(
            error.contains(why) || (name == "slow" && error.contains("no answer within")) || name == "many",
            "{shown}"
        );
    }
    value(&group, "jobs", "1").await?;
    nowhere(&group)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_in_clear_is_refused_by_every_way_in_and_gets_into_no_file() -> Result<()> {
    let _alone = alone();
    let group = start(3, &[]).await?;
    let with = |option: &str| format!("CREATE SIGNAL s FROM PROMETHEUS (QUERY = 'q', {option})");
    let url = "URL = 'http://127.0.0.1:1'";
    for option in [
        format!("URL = 'http://me:{SECRET}@127.0.0.1:1'"),
        format!("URL = 'http://127.0.0.1:1/?token={SECRET}'"),
        format!("{url}, USERNAME = 'me', PASSWORD = '{SECRET}'"),
        format!("{url}, BEARER_TOKEN = '{SECRET}'"),
    ] {
        for member in &group.members {
            let statement = with(&option);
            // At each node, leader or not.
            let client = loadline_tests::ask::client(&[member.endpoint()])?;
            let signal = loadline_client::v1::Signal {
                name: "s".to_owned(),
                r#type: "prometheus".to_owned(),
                options: [("url", format!("http://me:{SECRET}@127.0.0.1:1")), ("query", "q".to_owned())]
                    .map(|(key, value)| (key.to_owned(), value))
                    .into(),
                ..Default::default()
            };
            let create =
                loadline_client::v1::CreateSignalRequest { options: None, signal: Some(signal), allow_existing: false };
            let step = loadline_client::v1::change::Change::CreateSignal(create);
            for writing in [loadline_client::Writing::Record, loadline_client::Writing::Rehearse] {
                let refused = client.write(step.clone(), writing).await.expect_err("a secret in clear");
                let said = format!("{refused:?} {refused}");
                ensure!(said.contains("secret") && !said.contains(SECRET), "{said}");
            }
            let refused = run(&group, &["sql", "--sql-endpoint", &member.pg, "-c", &statement])?;
            // The command itself shows the line that was typed; what came back from the node is all the rest.
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            let said: String = said.lines().filter(|line| !line.starts_with("LINE ")).collect();
            let told = said.contains("may hold a secret");
            ensure!(!refused.status.success() && told && !said.contains(SECRET), "{said}");
        }
    }
    sql(&group, &with(url))?;
    let change = format!("ALTER SIGNAL s UPDATE (USERNAME = 'me', PASSWORD = '{SECRET}')");
    ensure!(sql(&group, &change).is_err(), "a change cannot bring one in either");
    nowhere(&group)
}

/// Looks for the secret in every file that the nodes have written: log, journal, snapshots, index, and what they said.
fn nowhere(group: &Group) -> Result<()> {
    for member in &group.members {
        let mut known = false;
        search(&member.data, &mut known)?;
        ensure!(known, "what was certainly written down is not found either: this search finds nothing");
        ensure!(!std::fs::read_to_string(&member.log)?.contains(SECRET), "a node has said it");
    }
    Ok(())
}

fn search(folder: &Path, known: &mut bool) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            search(&path, known)?;
            continue;
        }
        // One that is gone meanwhile holds nothing.
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        ensure!(!holds(SECRET), "it is in {}", path.display());
        *known |= holds("signal_stale_after");
    }
    Ok(())
}

//! A leader that is stopped in mid-sentence and wakes up in a world that has gone on.

use std::time::Duration;

use loadline_client::v1::change::Change;
use loadline_client::v1::{Cluster, CreateClusterRequest};
use loadline_client::{Kind, Reading, Writing};
use loadline_tests::load::Load;
use loadline_tests::{Group, Options, alone, ask, eventually};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_slept_serves_no_stale_read_and_appends_nothing() -> anyhow::Result<()> {
    let _alone = alone();
    // No ticks, and no writes at the moment of the pause: then the sleeper's log has nothing that the others lack, and
    // anything cut off later was appended after it woke.
    let options = Options { flags: ["--tick-every", "60s"].map(String::from).to_vec(), ..Options::default() };
    let group = Group::start(BINARY, 3, options)?;
    let sleeper = ask::leader(&group).await?;
    ask::agreement(&group, 3).await?;

    // A connection that exists before the pause: what is sent on it waits in the sleeper's socket and is the first
    // thing it sees when it wakes, before any news of the new leader.
    let at_the_sleeper = ask::client(&[group.members[sleeper].endpoint()])?;
    at_the_sleeper.list(Kind::Setting, Reading::Linearizable).await?;
    let before = scrape(&group.members[sleeper].http)?;
    let slept_at_term = ask::status(&group)?.iter().filter_map(|node| node["term"].as_u64()).max();

    group.pause(sleeper)?;
    let others: Vec<String> = (0..3).filter(|n| *n != sleeper).map(|n| group.members[n].endpoint()).collect();
    let elsewhere = ask::client(&others)?;
    let load = Load::start(&others, 3)?;
    create(&elsewhere, "while-it-slept").await?;
    let asleep = tokio::time::Instant::now();
    let read = {
        let client = at_the_sleeper.clone();
        tokio::spawn(async move { client.get(Kind::Cluster, "while-it-slept", Reading::Linearizable).await })
    };
    let write = {
        let client = at_the_sleeper.clone();
        tokio::spawn(async move { create(&client, "sent-to-the-sleeper").await })
    };
    // Five seconds without the leader, which the group must fill with writes of its own.
    while asleep.elapsed() < Duration::from_secs(5) {
        load.goes_on(10).await?;
    }
    group.resume(sleeper)?;

    let found = read.await?;
    anyhow::ensure!(found.is_ok(), "a write that was acknowledged before the read began is missing: {found:?}");
    write.await??;
    load.goes_on(50).await?;
    let mut record = load.stop().await?;
    ask::agreement(&group, 3).await?;
    anyhow::ensure!(ask::status(&group)?.iter().filter_map(|node| node["term"].as_u64()).max() > slept_at_term);

    // Whatever it had appended on its own would have had to be cut off again.
    let after = scrape(&group.members[sleeper].http)?;
    let cut = |text: &str| figure(text, "loadline_wal_truncated_entries_total");
    anyhow::ensure!(cut(&after).is_some(), "there is no figure of truncations in {after}");
    assert_eq!(cut(&after), cut(&before), "the sleeper had appended something that nobody else had");
    for name in ["while-it-slept", "sent-to-the-sleeper"] {
        let names = ask::clusters(&elsewhere).await?;
        assert!(names.iter().any(|known| known == name), "{name} is missing");
    }
    record.unknown.extend(["while-it-slept", "sent-to-the-sleeper"].map(String::from));
    record.check(&elsewhere).await?;
    eventually("the sleeper follows", ask::PATIENCE, async || {
        let nodes = ask::status(&group).ok()?;
        let it = nodes.iter().find(|node| node["name"] == group.members[sleeper].name.as_str())?;
        (it["role"] == "follower").then_some(())
    })
    .await
}

async fn create(client: &loadline_client::Client, name: &str) -> anyhow::Result<()> {
    let cluster = Cluster { name: name.to_owned(), ..Cluster::default() };
    let step = Change::CreateCluster(CreateClusterRequest { cluster: Some(cluster), options: None });
    client.write(step, Writing::Record).await?;
    Ok(())
}

/// The text of `/metrics`.
fn scrape(http: &str) -> anyhow::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(http)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn figure(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

//! Nodes that were away, and nodes that come and go, while writes go on.

use loadline_tests::load::Load;
use loadline_tests::{Group, Options, alone, ask, eventually};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_missed_the_purged_log_catches_up_by_snapshot_under_load() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::short_log())?;
    let leader = ask::leader(&group).await?;
    let away = (leader + 1) % 3;
    let load = Load::start(&group.endpoints(), 4)?;
    load.goes_on(20).await?;
    let missed_from = index_of(&group, away, "last_index")?;
    group.kill(away)?;
    // Until the log that it would need is gone on the leader.
    eventually("the leader has purged what the follower missed", ask::PATIENCE, async || {
        (index_of(&group, leader, "purged_index").ok()? > missed_from).then_some(())
    })
    .await?;
    group.start_member(away)?;
    eventually("the follower has installed a snapshot", ask::PATIENCE, async || {
        (index_of(&group, away, "snapshot_index").ok()? > missed_from).then_some(())
    })
    .await?;
    load.goes_on(100).await?;
    let record = load.stop().await?;
    ask::agreement(&group, 3).await?;
    record.check(&ask::client(&group.endpoints())?).await?;
    // What happened while it was away is not in its history at first. It fetches that from the others, and then its journal is whole, from the
    // first entry on, and leads to the same hash when it is replayed.
    let end = record.acknowledged.values().copied().max().unwrap_or(0);
    let name = group.members[away].name.clone();
    becomes_whole(&group, &name, end).await?;
    ask::puts(&group.members[away].endpoint(), end).await?;
    is_whole_at_rest(&mut group, away, end)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fourth_node_joins_and_the_first_leaves_under_load() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::short_log())?;
    ask::leader(&group).await?;
    let load = Load::start(&group.endpoints(), 4)?;
    // Past the first purge, so that the newcomer needs a snapshot.
    load.goes_on(300).await?;
    group.join()?;
    eventually("n4 votes", ask::PATIENCE, async || {
        let peers: Value =
            serde_json::from_str(&ask::said(&group, &["operator", "raft", "list-peers", "-o", "json"]).ok()?).ok()?;
        peers.to_string().contains("n4").then_some(())?;
        let nodes = ask::status(&group).ok()?;
        nodes.iter().any(|node| node["name"] == "n4" && node["role"] == "follower").then_some(())
    })
    .await?;
    ask::said(&group, &["operator", "raft", "remove-peer", "n1"])?;
    group.stop(0)?;
    load.goes_on(200).await?;
    let record = load.stop().await?;
    let rest: Vec<String> = group.endpoints().split_off(1);
    record.check(&ask::client(&rest)?).await?;
    ask::agreement(&group, 3).await?;
    // It was not there when the group began, and has everything since.
    let end = record.acknowledged.values().copied().max().unwrap_or(0);
    becomes_whole(&group, "n4", end).await?;
    is_whole_at_rest(&mut group, 3, end)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_folder_comes_back_under_a_new_id() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::short_log())?;
    let leader = ask::leader(&group).await?;
    let emptied = (leader + 1) % 3;
    let load = Load::start(&group.endpoints(), 4)?;
    // Past the first purge, so that its past can only come from the journals of the others.
    load.goes_on(300).await?;
    let end = load.stop().await?.acknowledged.values().copied().max().unwrap_or(0);
    let old = index_of(&group, emptied, "id")?;
    let name = group.members[emptied].name.clone();
    group.kill(emptied)?;
    std::fs::remove_dir_all(&group.members[emptied].data)?;
    group.start_member(emptied)?;
    let new = eventually("the emptied node has joined under another id", ask::PATIENCE, async || {
        let nodes = ask::status(&group).ok()?;
        let id =
            nodes.iter().find(|node| node["name"] == name.as_str() && node["role"] == "learner")?["id"].as_u64()?;
        (id != 0).then_some(id)
    })
    .await?;
    assert!(new > 3, "id {new} was used before; it was {old}");
    // Its old self still votes, so it takes an operator to put it in that place.
    eventually("it has caught up and takes that place", ask::PATIENCE, async || {
        ask::said(&group, &["operator", "raft", "add-peer", &new.to_string(), "--replace", &old.to_string()]).ok()
    })
    .await?;
    eventually("it votes again", ask::PATIENCE, async || {
        let nodes = ask::status(&group).ok()?;
        let it = nodes.iter().find(|node| node["id"].as_u64() == Some(new))?;
        (it["role"] == "follower" || it["role"] == "leader").then_some(())
    })
    .await?;
    ask::agreement(&group, 3).await?;
    becomes_whole(&group, &name, end).await?;
    is_whole_at_rest(&mut group, emptied, end)
}

/// Waits until a running node has fetched what its journal lacked: it verifies from the first entry on, and every entry is replayed.
async fn becomes_whole(group: &Group, name: &str, end: u64) -> anyhow::Result<()> {
    let verdict = eventually("the journal of the node is whole", ask::PATIENCE, async || {
        let said = ask::said(group, &["audit", "verify", "--node", name, "-o", "json"]).ok()?;
        let verdict: Value = serde_json::from_str(&said).ok()?;
        (verdict["entries"][0]["first"] == 1).then_some(verdict)
    })
    .await?;
    check_whole(&verdict, end);
    Ok(())
}

/// The same of its folder, when it has stopped.
fn is_whole_at_rest(group: &mut Group, number: usize, end: u64) -> anyhow::Result<()> {
    group.stop(number)?;
    let folder = group.members[number].data.display().to_string();
    let said = ask::said(group, &["audit", "verify", "--data-dir", &folder, "-o", "json"])?;
    check_whole(&serde_json::from_str(&said)?, end);
    Ok(())
}

#[track_caller]
fn check_whole(verdict: &Value, end: u64) {
    let stretches = verdict["entries"].as_array().map(Vec::len);
    assert_eq!((stretches, &verdict["entries"][0]["first"]), (Some(1), &Value::from(1)), "{verdict}");
    assert_eq!((&verdict["valid"], &verdict["chained"]), (&Value::Bool(true), &Value::from(0)), "{verdict}");
    assert!(verdict["replayed"].as_u64() >= Some(end), "{verdict}");
}

/// A number of one node's own row in `status`.
fn index_of(group: &Group, number: usize, field: &str) -> anyhow::Result<u64> {
    let nodes = ask::status(group)?;
    let name = group.members[number].name.as_str();
    let node = nodes.iter().find(|node| node["name"] == name);
    node.and_then(|node| node[field].as_u64()).ok_or_else(|| anyhow::anyhow!("{name} says no {field}: {nodes:?}"))
}

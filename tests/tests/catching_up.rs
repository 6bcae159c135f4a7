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
    // What happened while it was away is not in its history, and it says so instead of leaving it out.
    let end = record.acknowledged.values().copied().max().unwrap_or(0);
    let history = ask::puts(&group.members[away].endpoint(), end).await;
    let error = history.expect_err("the history of a node that was away has a gap");
    assert!(matches!(error.downcast_ref(), Some(loadline_client::Error::Compacted { .. })), "{error:?}");
    Ok(())
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
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_folder_comes_back_under_a_new_id() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    let leader = ask::leader(&group).await?;
    let emptied = (leader + 1) % 3;
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
    ask::said(&group, &["operator", "raft", "add-peer", &new.to_string(), "--replace", &old.to_string()])?;
    eventually("it votes again", ask::PATIENCE, async || {
        let nodes = ask::status(&group).ok()?;
        let it = nodes.iter().find(|node| node["id"].as_u64() == Some(new))?;
        (it["role"] == "follower" || it["role"] == "leader").then_some(())
    })
    .await?;
    ask::agreement(&group, 3).await?;
    Ok(())
}

/// A number of one node's own row in `status`.
fn index_of(group: &Group, number: usize, field: &str) -> anyhow::Result<u64> {
    let nodes = ask::status(group)?;
    let name = group.members[number].name.as_str();
    let node = nodes.iter().find(|node| node["name"] == name);
    node.and_then(|node| node[field].as_u64()).ok_or_else(|| anyhow::anyhow!("{name} says no {field}: {nodes:?}"))
}

//! `kill -9` of the leader, and of everybody, under load.

use loadline_tests::load::Load;
use loadline_tests::{Group, Options, alone, ask, rounds};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_loses_no_acknowledged_write_and_repeats_none() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    ask::leader(&group).await?;
    let load = Load::start(&group.endpoints(), 4)?;
    load.goes_on(100).await?;
    for _ in 0..rounds(3) {
        let leader = ask::leader(&group).await?;
        group.kill(leader)?;
        load.goes_on(50).await?;
        ask::no_two_hashes_differ(&ask::status(&group)?)?;
        group.start_member(leader)?;
        ask::agreement(&group, 3).await?;
    }
    nothing_is_lost_and_nothing_is_twice(&group, load).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_three_killed_at_once_come_back_with_everything() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    ask::leader(&group).await?;
    let load = Load::start(&group.endpoints(), 4)?;
    for _ in 0..rounds(2) {
        load.goes_on(100).await?;
        for number in 0..3 {
            group.kill(number)?;
        }
        for number in [2, 0, 1] {
            group.start_member(number)?;
        }
        load.goes_on(50).await?;
    }
    nothing_is_lost_and_nothing_is_twice(&group, load).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_three_stopped_and_started_come_back_with_the_same_state() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    ask::leader(&group).await?;
    let load = Load::start(&group.endpoints(), 2)?;
    load.goes_on(50).await?;
    let record = load.stop().await?;
    for number in 0..3 {
        group.stop(number)?;
    }
    for number in 0..3 {
        group.start_member(number)?;
    }
    ask::leader(&group).await?;
    record.check(&ask::client(&group.endpoints())?).await?;
    ask::agreement(&group, 3).await?;
    Ok(())
}

/// Every acknowledged write is in the state, and once in the history of every node, and the nodes agree.
async fn nothing_is_lost_and_nothing_is_twice(group: &Group, load: Load) -> anyhow::Result<()> {
    let record = load.stop().await?;
    ask::agreement(group, 3).await?;
    record.check(&ask::client(&group.endpoints())?).await?;
    for endpoint in group.endpoints() {
        record.check_history(&endpoint).await?;
    }
    Ok(())
}

//! Signals lead to decisions and actions, and both outlive the leader that made them.

use anyhow::{Context, Result, ensure};
use loadline_tests::ask::{PATIENCE, agreement, leader, said};
use loadline_tests::{Group, Options, alone, eventually};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

fn json(group: &Group, words: &[&str]) -> Result<Value> {
    let text = said(group, &[words, &["-o", "json"]].concat())?;
    serde_json::from_str(&text).with_context(|| format!("{words:?} printed {text}"))
}

/// Names of the unsettled actions, with what each would do.
fn actions(group: &Group) -> Result<Vec<String>> {
    let listed = json(group, &["get", "actions"])?;
    let rows = listed["actions"].as_array().context("no list of actions")?;
    Ok(rows
        .iter()
        .map(|row| format!("{} {} {} {}", row["name"], row["cluster"], row["call"], row["replica"]))
        .collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_from_signals_is_still_there_after_the_leader_was_killed() -> Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    let first = leader(&group).await?;
    for words in [
        &["set", "enable_auto_scaling", "true"][..],
        &["create", "size", "25cc", "--slots", "1", "--price", "0.1"],
        &["create", "size", "100cc", "--slots", "4", "--price", "0.4"],
        &["create", "cluster", "grows"],
        &["create", "cluster", "sleeps"],
        &["create", "strategy", "target_size", "--cluster", "grows", "--option", "SIZE=100cc"],
        &["create", "strategy", "idle_suspend", "--cluster", "sleeps", "--option", "IDLE_AFTER=5m"],
        &["signal", "grows", "replica", "main", "--size", "25cc", "--ready"],
        &["signal", "sleeps", "replica", "main", "--size", "25cc", "--ready", "--collector", "other"],
        &["signal", "sleeps", "activity", "--idle-for", "1h", "--collector", "third"],
    ] {
        said(&group, words)?;
    }
    let both = eventually("an action for each cluster", PATIENCE, async || {
        actions(&group).ok().filter(|found| {
            found.iter().any(|it| it.contains("grows") && it.contains("create_replica"))
                && found.iter().any(|it| it.contains("sleeps") && it.contains("cordon_replica"))
        })
    })
    .await?;
    let why = said(&group, &["explain", "cluster/sleeps"])?;
    ensure!(why.contains("idle_suspend") && why.contains("IDLE"), "{why}");
    ensure!(said(&group, &["explain", "cluster/grows"])?.contains("TARGET_MISSING"));

    group.kill(first)?;
    leader(&group).await?;
    ensure!(actions(&group)? == both, "the actions are no longer what they were: {:?}", actions(&group)?);
    let decisions = json(&group, &["get", "decisions"])?;
    ensure!(decisions["decisions"].as_array().is_some_and(|rows| rows.len() == 2), "{decisions}");
    group.start_member(first)?;
    agreement(&group, 3).await?;
    Ok(())
}

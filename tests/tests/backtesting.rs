//! A change is tried before it is made: on the state as it is, without a trace, and on the past that real nodes have recorded.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use loadline_tests::ask::{PATIENCE, agreement, leader, run, said, status};
use loadline_tests::machine::Machine;
use loadline_tests::{Group, Options, alone, eventually, scaled};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// Runs a command that compares: what it printed, and whether it said that something differs.
fn compared(group: &Group, words: &[&str]) -> Result<(Value, bool)> {
    let output = run(group, &[words, &["-o", "json"]].concat())?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    ensure!(matches!(code, Some(0 | 1)), "loadline {words:?} ended with {}: {stderr}", output.status);
    let printed = String::from_utf8(output.stdout)?;
    let value = serde_json::from_str(&printed).with_context(|| format!("{words:?} printed {printed}, {stderr}"))?;
    Ok((value, code == Some(1)))
}

fn file(group: &Group, name: &str, text: &str) -> Result<String> {
    let path = group.folder().join(name);
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// Until the log has told the time a few times: an entry a second when nobody writes.
async fn seconds_pass(group: &Group) -> Result<()> {
    let applied = || status(group).ok()?.iter().filter_map(|node| node["applied_index"].as_u64()).max();
    let before = applied().context("no node has applied anything")?;
    eventually("a few seconds of the log", PATIENCE, async || applied().filter(|now| *now >= before + 3))
        .await
        .map(drop)
}

/// Index and hash of every node.
fn standing(group: &Group) -> Result<Vec<(Value, Value, Value)>> {
    let of = |node: &Value| (node["last_index"].clone(), node["applied_index"].clone(), node["state_hash"].clone());
    Ok(status(group)?.iter().map(of).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_if_says_who_would_decide_differently_and_leaves_no_trace() -> Result<()> {
    let _alone = alone();
    // No tick comes in between, so that whatever is in the log afterwards was written by somebody.
    let flags = ["--tick-every", "60s"].map(String::from).to_vec();
    let group = Group::start(BINARY, 3, Options { flags, ..Options::default() })?;
    leader(&group).await?;
    for words in [
        &["set", "enable_auto_scaling", "true"][..],
        &["create", "size", "25cc", "--slots", "1", "--price", "0.1"],
        &["create", "size", "100cc", "--slots", "4", "--price", "0.4"],
        &["create", "cluster", "one"],
        &["create", "cluster", "other"],
        &["create", "strategy", "target_size", "--all-clusters", "--option", "SIZE=25cc"],
        &["signal", "one", "replica", "main", "--size", "25cc", "--ready"],
        &["signal", "other", "replica", "main", "--size", "25cc", "--ready"],
    ] {
        said(&group, words)?;
    }
    let change = "CREATE SCALING STRATEGY FOR CLUSTER one TYPE TARGET SIZE WITH (SIZE = '100cc');";
    let change = file(&group, "change.sql", change)?;
    let same =
        file(&group, "same.sql", "ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE UPDATE (SIZE = '25cc')")?;
    agreement(&group, 3).await?;
    let before = eventually("nothing more is written", PATIENCE, async || {
        let first = standing(&group).ok()?;
        agreement(&group, 3).await.ok()?;
        (standing(&group).ok()? == first).then_some(first)
    })
    .await?;

    let (tried, different) = compared(&group, &["whatif", "-f", &change])?;
    ensure!(different, "{tried:#}");
    let rows = tried["clusters"].as_array().context("no rows")?;
    ensure!(rows.len() == 1 && rows[0]["cluster"] == "one", "{tried:#}");
    let wanted = |side: &str| rows[0][side]["desired"].as_array().map_or(0, Vec::len);
    ensure!((wanted("before"), wanted("after")) == (1, 2), "{tried:#}");
    ensure!(rows[0]["before"]["conclusion"] == "AS_WANTED" && rows[0]["after"]["conclusion"] == "BEGAN", "{tried:#}");
    ensure!(rows[0]["after"]["planned"][0]["reason"] == "TARGET_MISSING", "{tried:#}");
    let (tried, different) = compared(&group, &["whatif", "-f", &same])?;
    ensure!(!different && tried["clusters"].as_array().is_some_and(Vec::is_empty), "{tried:#}");

    for (name, text, exit, told) in [
        ("wrong.sql", "CREATE CLUSTER x;\nCREATE CLUSTR y", 2, "wrong.sql: line 2: syntax error"),
        ("refused.sql", "CREATE CLUSTER x;\nDROP CLUSTER nobody;", 4, "refused.sql: line 2, DROP CLUSTER nobody: "),
    ] {
        let output = run(&group, &["whatif", "-f", &file(&group, name, text)?])?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.code() == Some(exit) && said.contains(told), "{}: {said}", output.status);
    }
    ensure!(standing(&group)? == before, "somebody has written: {before:?}, {:?}", standing(&group)?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backtest_does_what_the_nodes_did_and_with_a_change_what_they_would_have_done() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let mut group = scaled::start(BINARY, &machine, vec![]).await?;
    for words in [
        &["set", "auto_scaling_cluster_cooldown", "0s"][..],
        &["set", "auto_scaling_rate_limit", "100"],
        &["set", "scale_to_zero_keep_alive", "1s"],
        &["create", "cluster", "demo"],
        &["create", "strategy", "target_size", "--cluster", "demo", "--option", "SIZE=1"],
    ] {
        said(&group, words)?;
    }
    scaled::replicas("the replica", &machine, |ready| ready == ["r1_auto 1"]).await?;
    let sleeps = ["--option", "IDLE_AFTER=3s", "--option", "COOLDOWN=0s"];
    said(&group, &[&["create", "strategy", "idle_suspend", "--cluster", "demo"][..], &sleeps].concat())?;
    // The window begins with everything in place, and before anybody has used the cluster.
    seconds_pass(&group).await?;
    let began = Instant::now();
    seconds_pass(&group).await?;
    said(&group, &["signal", "demo", "activity"])?;
    scaled::replicas("it sleeps", &machine, <[String]>::is_empty).await?;
    said(&group, &["wake", "demo"])?;
    scaled::replicas("it is back", &machine, |ready| ready == ["r1_auto 1"]).await?;
    // Created, put to sleep (cordoned, drained, dropped), and created again; whatever follows from nobody using it comes on top.
    let settled = eventually("the actions are settled", PATIENCE, async || {
        let actions = scaled::actions(&group, "demo").ok()?;
        (actions.len() >= 5 && actions.iter().all(|it| it["settle_time"].is_string())).then_some(actions.len())
    })
    .await?;
    let since = format!("{}ms", began.elapsed().as_millis());
    for number in 0..3 {
        group.stop(number)?;
    }

    let data = group.members[0].data.display().to_string();
    let past = |since: &str, words: &[&str]| {
        compared(&group, &[&["backtest", "--data-dir", &data, "--since", since], words].concat())
    };
    let (tried, different) = past("1h", &["--no-change"])?;
    ensure!(
        !different && tried["fidelity"]["reproduced"] == true,
        "{:#} {:#}",
        tried["fidelity"],
        tried["assumptions"]
    );
    let count = tried["fidelity"]["recorded_actions"].as_u64().unwrap_or(0);
    ensure!(count >= settled as u64, "{settled} actions were seen, and {count} are in the record");
    ensure!(tried["recorded"]["actions"] == tried["unchanged"]["actions"], "{tried:#}");
    ensure!(tried["recorded"]["cold_starts"].as_u64() >= Some(2), "{:#}", tried["recorded"]);

    let change = "ALTER SCALING STRATEGY FOR CLUSTER demo TYPE IDLE SUSPEND UPDATE (IDLE AFTER = '1h')";
    let (tried, different) = past(&since, &["-f", &file(&group, "later.sql", change)?])?;
    ensure!(different && tried["fidelity"]["reproduced"] == true, "{tried:#}");
    let drops = |run: &str| tried[run]["actions"]["drop_replica"].as_u64().unwrap_or(0);
    ensure!(drops("recorded") >= 1 && drops("unchanged") == drops("recorded"), "{:#}", tried["recorded"]);
    ensure!(drops("changed") == 0 && tried["changed"]["cold_starts"] == 0, "{:#}", tried["changed"]);
    let hours = |run: &str| tried[run]["replica_hours_milli"].as_u64();
    ensure!(hours("changed") >= hours("unchanged"), "{:#} {:#}", tried["unchanged"], tried["changed"]);
    ensure!(tried["effect"]["first_difference"]["cluster"] == "demo", "{:#}", tried["effect"]);

    let output =
        run(&group, &["backtest", "--data-dir", &data, "-f", &file(&group, "bad.sql", "DROP CLUSTER nobody")?])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(4) && said.contains("bad.sql: line 1, DROP CLUSTER nobody: "), "{said}");
    Ok(())
}

//! Brakes hold back calls, not only decisions: the backend's own ledger shows that nothing reached it. Then the brake is taken off,
//! and the call comes, which shows that it was the brake that had held it back.

use anyhow::{Context, Result, ensure};
use loadline_tests::ask::{PATIENCE, leader, said};
use loadline_tests::machine::Machine;
use loadline_tests::scaled::{self, Foreign, json};
use loadline_tests::{Group, alone, eventually};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// Waits until the group has decided about the cluster and a further second of its time has passed, in which nothing was called.
async fn nothing_reaches_the_backend(group: &Group, machine: &Machine, cluster: &str) -> Result<()> {
    let decision = scaled::decided_after(group, cluster).await?;
    ensure!(decision["desired"].as_object().is_some_and(|it| !it.is_empty()), "nothing is wanted: {decision:#}");
    let applied = |group: &Group| -> Result<u64> {
        let nodes = loadline_tests::ask::status(group)?;
        nodes.iter().filter_map(|node| node["applied_index"].as_u64()).max().context("no node has applied anything")
    };
    // Ticks come once a second and look at what is due.
    let before = applied(group)?;
    eventually("a few ticks", PATIENCE, async || applied(group).ok().filter(|now| *now >= before + 3)).await?;
    let given = machine.given()?;
    ensure!(given.is_empty(), "the brake did not hold: {given:#?}");
    Ok(())
}

async fn begin(options: &[&str]) -> Result<(Machine, Group)> {
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    said(&group, &["create", "cluster", "held"])?;
    let mut words = vec!["create", "strategy", "target_size", "--cluster", "held", "--option", "SIZE=1"];
    words.extend(options.iter().flat_map(|option| ["--option", option]));
    said(&group, &words)?;
    Ok((machine, group))
}

async fn the_call_comes(machine: &Machine) -> Result<()> {
    scaled::replicas("what was held back", machine, |ready| ready == ["r1_auto 1"]).await?;
    ensure!(machine.given()?.len() == 1, "{:#?}", machine.given()?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_calls_nobody() -> Result<()> {
    let _alone = alone();
    let (machine, group) = begin(&["DRY_RUN=true"]).await?;
    let decision = scaled::decided_after(&group, "held").await?;
    ensure!(decision["shadow"]["desired"].as_object().is_some_and(|it| !it.is_empty()), "no shadow: {decision:#}");
    ensure!(machine.given()?.is_empty(), "{:#?}", machine.given()?);
    // A new leader reads its work from the state; it finds none.
    said(&group, &["operator", "raft", "transfer-leadership"])?;
    leader(&group).await?;
    ensure!(scaled::actions(&group, "held")?.is_empty() && machine.given()?.is_empty());
    said(&group, &["update", "strategy", "target_size", "--cluster", "held", "--option", "DRY_RUN=false"])?;
    the_call_comes(&machine).await
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_kill_switch_off_it_is_recorded_what_would_have_been_done_and_nobody_is_called() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    said(&group, &["set", "auto_scaling_enabled", "false"])?;
    said(&group, &["create", "cluster", "held"])?;
    said(&group, &["create", "strategy", "target_size", "--cluster", "held", "--option", "SIZE=1"])?;
    nothing_reaches_the_backend(&group, &machine, "held").await?;
    let rows = json(&group, &["get", "actions", "--history"])?;
    let suppressed = |row: &serde_json::Value| row["status"]["code"] == "SUPPRESSED";
    ensure!(rows["actions"].as_array().is_some_and(|rows| rows.len() == 1 && rows.iter().all(suppressed)), "{rows:#}");
    said(&group, &["set", "auto_scaling_enabled", "true"])?;
    the_call_comes(&machine).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_cluster_is_left_alone_until_it_is_resumed() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    said(&group, &["create", "cluster", "held"])?;
    said(&group, &["pause", "held", "--reason", "maintenance"])?;
    said(&group, &["create", "strategy", "target_size", "--cluster", "held", "--option", "SIZE=1"])?;
    nothing_reaches_the_backend(&group, &machine, "held").await?;
    said(&group, &["resume", "held"])?;
    the_call_comes(&machine).await
}

#[tokio::test(flavor = "multi_thread")]
async fn managed_only_never_names_a_replica_of_somebody_else() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    said(&group, &["set", "auto_scaling_cluster_cooldown", "0s"])?;
    said(&group, &["create", "cluster", "held"])?;
    let _foreign = Foreign::start(&group, &machine, "held", "theirs", "2").await?;
    let options = ["SIZE=1", "REPLICA_SCOPE=MANAGED_ONLY", "COOLDOWN=0s"];
    let mut words = vec!["create", "strategy", "target_size", "--cluster", "held"];
    words.extend(options.iter().flat_map(|option| ["--option", option]));
    said(&group, &words)?;
    scaled::replicas("both", &machine, |ready| ready == ["r1_auto 1", "theirs 2"]).await?;
    // With the whole cluster in scope the same replica goes: it was the scope that had kept it.
    let theirs = |machine: &Machine| -> Result<bool> { Ok(machine.given()?.iter().any(|it| it.replica == "theirs")) };
    ensure!(!theirs(&machine)?, "{:#?}", machine.given()?);
    said(&group, &["update", "strategy", "target_size", "--cluster", "held", "--option", "REPLICA_SCOPE=ALL"])?;
    scaled::replicas("only ours", &machine, |ready| ready == ["r1_auto 1"]).await?;
    ensure!(theirs(&machine)?, "it went by itself");
    Ok(())
}

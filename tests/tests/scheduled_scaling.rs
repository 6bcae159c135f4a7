//! A schedule over real processes: the size that a row asks for comes when it begins, and a leader that dies in its middle changes
//! nothing.

use anyhow::{Result, ensure};
use loadline_tests::ask::{PATIENCE, leader, said};
use loadline_tests::machine::Machine;
use loadline_tests::scaled::{json, replicas, start};
use loadline_tests::{alone, eventually};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_that_holds_is_obeyed_and_shown_and_outlives_a_leader() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let mut group = start(BINARY, &machine, Vec::new()).await?;
    for words in [&["set", "auto_scaling_cluster_cooldown", "0s"][..], &["create", "cluster", "web"]] {
        said(&group, words)?;
    }
    // One row is for every day, so that it holds whenever this runs; the other one has long been over.
    let file = group.folder().join("wanted.sql");
    let wanted = "CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET_TRACKING WITH (SIZE = '1', MAX_REPLICAS = 4,
                  SIGNALS = 'load average 10', TIME_ZONE = 'Europe/Berlin',
                  SCHEDULE = '2020-01-01 suspended; daily min_replicas=2');";
    std::fs::write(&file, wanted)?;
    let path = file.display().to_string();
    said(&group, &["apply", "-f", &path])?;
    replicas("the two of the profile", &machine, |running| running.len() == 2).await?;
    let explained = said(&group, &["explain", "cluster/web"])?;
    ensure!(explained.contains("profile 'daily min_replicas=2' holds"), "{explained}");
    let printed = said(&group, &["get", "strategies", "-o", "sql"])?;
    std::fs::write(&file, printed)?;
    let again = said(&group, &["apply", "-f", &path])?;
    ensure!(again.trim_end().ends_with("unchanged"), "{again}");

    let old = leader(&group).await?;
    group.kill(old)?;
    leader(&group).await?;
    let shown = json(&group, &["get", "strategies"])?;
    ensure!(
        shown.pointer("/strategies/0/status/profile/row").is_some_and(|it| it == "daily min_replicas=2"),
        "{shown:#}"
    );
    ensure!(machine.running()?.len() == 2, "nothing was made twice: {:?}", machine.running()?);

    // Suspended from here on: what is there goes.
    std::fs::write(&file, wanted.replace("daily min_replicas=2", "daily suspended"))?;
    said(&group, &["apply", "-f", &path])?;
    replicas("none while it is suspended", &machine, <[String]>::is_empty).await?;
    eventually("explain says why", PATIENCE, async || {
        let text = said(&group, &["explain", "cluster/web"]).ok()?;
        text.contains("SUSPENDED_BY_SCHEDULE").then_some(())
    })
    .await
}

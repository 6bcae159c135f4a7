//! A watch across the death of the node that answers it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use loadline_client::{Kind, WatchEvent, WatchOptions};
use loadline_tests::load::Load;
use loadline_tests::{Group, Options, alone, ask, rounds};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_misses_and_repeats_nothing_while_leaders_die() -> anyhow::Result<()> {
    let _alone = alone();
    let mut group = Group::start(BINARY, 3, Options::default())?;
    ask::leader(&group).await?;
    let watcher = ask::client(&group.endpoints())?;
    let (seen, mut progress) = tokio::sync::watch::channel(0u64);
    let options = WatchOptions {
        kinds: vec![Kind::Cluster],
        progress_every: Duration::from_millis(200),
        outage_max: ask::PATIENCE,
        ..WatchOptions::default()
    };
    let watching = tokio::spawn(async move {
        let mut watch = watcher.watch(options);
        let mut puts: BTreeMap<String, usize> = BTreeMap::new();
        let mut last = 0;
        loop {
            let revision = match watch.next().await? {
                WatchEvent::Snapshot { revision, resources } => {
                    ensure!(last == 0, "a second snapshot at {revision}");
                    ensure!(resources.is_empty(), "the group was empty when the watch began");
                    revision
                }
                WatchEvent::Changes { revision, changes, .. } => {
                    ensure!(revision > last, "revision {revision} after {last}");
                    for change in changes {
                        *puts.entry(change.name).or_insert(0) += 1;
                    }
                    revision
                }
                WatchEvent::Progress { revision } => revision,
            };
            last = last.max(revision);
            if seen.send(last).is_err() {
                return anyhow::Ok(puts);
            }
        }
    });
    // The watch has its snapshot before the first write, so that every write must come as a change.
    progress.changed().await.context("the watch ended before it began")?;

    let load = Load::start(&group.endpoints(), 3)?;
    for _ in 0..rounds(2) {
        load.goes_on(50).await?;
        let leader = ask::leader(&group).await?;
        group.kill(leader)?;
        load.goes_on(50).await?;
        group.start_member(leader)?;
    }
    let record = load.stop().await?;
    let end = record.acknowledged.values().copied().max().unwrap_or(0);
    tokio::time::timeout(ask::PATIENCE, progress.wait_for(|revision| *revision >= end)).await??;
    drop(progress);
    let puts = tokio::time::timeout(ask::PATIENCE, watching).await???;
    for name in record.acknowledged.keys() {
        let times = puts.get(&format!("clusters/{name}")).copied().unwrap_or(0);
        ensure!(times == 1, "the watch saw {name} {times} times");
    }
    Ok(())
}

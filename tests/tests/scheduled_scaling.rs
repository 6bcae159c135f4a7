//! A schedule over real processes: what a row asks for comes when it begins and goes when it ends, and a leader that dies in its
//! middle, or at the very moment, changes nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use loadline_client::Reading;
use loadline_client::v1::IdleState;
use loadline_tests::ask::{PATIENCE, client, leader, said};
use loadline_tests::machine::Machine;
use loadline_tests::scaled::{cluster_id, json, replicas, start};
use loadline_tests::{Group, alone, eventually};

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

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

/// A time of the day in UTC.
fn clock(minute: i64) -> String {
    format!("{:02}:{:02}", minute.div_euclid(60).rem_euclid(24), minute.rem_euclid(60))
}

/// How often something was done to the replicas of a cluster.
fn done(machine: &Machine, cluster: &str, verb: &str) -> Result<usize> {
    let effects = machine.effects()?;
    let mut keys: Vec<String> = machine
        .given()?
        .into_iter()
        .filter(|given| given.cluster == cluster && given.verb == verb)
        .map(|given| given.key)
        .collect();
    keys.sort();
    keys.dedup();
    Ok(keys.iter().filter_map(|key| effects.get(key)).map(Vec::len).sum())
}

async fn running(machine: &Machine, cluster: &str, count: usize) -> Result<()> {
    eventually(&format!("{count} replicas of {cluster}"), PATIENCE, async || {
        let of_it = machine.running().ok()?.into_iter().filter(|it| it.cluster == cluster && it.ready);
        (of_it.count() == count).then_some(())
    })
    .await
    .with_context(|| format!("{:#?}", machine.running()))
}

async fn idle(group: &Group, cluster: &str) -> Result<IdleState> {
    let states = client(&group.endpoints())?.idle_states(&[cluster.to_owned()], Reading::Linearizable).await?;
    states.into_iter().next().with_context(|| format!("no idle_suspend strategy rules {cluster}"))
}

/// One cluster is to fall asleep, one to wake and one to grow at the same minute, and just before it the leader dies.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_at_the_minute_of_a_change_loses_nothing_and_does_nothing_twice() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let mut group = start(BINARY, &machine, Vec::new()).await?;
    said(&group, &["set", "auto_scaling_cluster_cooldown", "0s"])?;
    for cluster in ["sleeper", "waker", "grower"] {
        said(&group, &["create", "cluster", cluster])?;
    }
    for cluster in ["sleeper", "waker"] {
        said(&group, &["create", "strategy", "target_size", "--cluster", cluster, "--option", "SIZE=1"])?;
    }
    let ids = ["sleeper", "waker", "grower"].map(|cluster| cluster_id(&group, cluster));
    let [sleeper, waker, grower] = ids;
    let (sleeper, waker, grower) = (sleeper?, waker?, grower?);
    running(&machine, &sleeper, 1).await?;
    running(&machine, &waker, 1).await?;

    // The next minute that leaves time to get the other one to sleep before.
    let minute = (now_ms()? + 15_000).div_euclid(60_000) + 1;
    let change_ms = minute * 60_000;
    let (before, at, after) = (clock(minute - 30), clock(minute), clock(minute + 30));
    let file = group.folder().join("wanted.sql");
    std::fs::write(
        &file,
        format!(
            "CREATE SCALING STRATEGY FOR CLUSTER sleeper TYPE IDLE_SUSPEND WITH (SCHEDULE = '{at}-{after} suspended');
             CREATE SCALING STRATEGY FOR CLUSTER waker TYPE IDLE_SUSPEND WITH (SCHEDULE = '{before}-{at} suspended');
             CREATE SCALING STRATEGY FOR CLUSTER grower TYPE TARGET_TRACKING WITH (SIZE = '1', MAX_REPLICAS = 4,
                 SIGNALS = 'load average 10', SCHEDULE = '{at}-{after} min_replicas=2');"
        ),
    )?;
    said(&group, &["apply", "-f", &file.display().to_string()])?;
    running(&machine, &waker, 0).await?;
    running(&machine, &grower, 1).await?;
    let asleep = eventually("it is known to be asleep", PATIENCE, async || {
        idle(&group, "waker").await.ok().filter(|state| state.is_scaled_to_zero)
    })
    .await?;
    ensure!(asleep.scaled_to_zero_ms < change_ms, "too slow to show anything: {asleep:?}");

    let old = leader(&group).await?;
    eventually("the minute is near", Duration::from_secs(90), async || {
        (now_ms().ok()? >= change_ms - 1_000).then_some(())
    })
    .await?;
    ensure!(machine.running()?.iter().filter(|it| it.cluster == sleeper).count() == 1, "nobody sleeps before");
    group.kill(old)?;
    running(&machine, &sleeper, 0).await?;
    running(&machine, &waker, 1).await?;
    running(&machine, &grower, 2).await?;
    let slept = eventually("it is known to sleep", PATIENCE, async || {
        idle(&group, "sleeper").await.ok().filter(|state| state.is_scaled_to_zero)
    })
    .await?;
    let woken = eventually("it is known to be ready", PATIENCE, async || {
        idle(&group, "waker").await.ok().filter(|state| state.ready)
    })
    .await?;
    ensure!(slept.scaled_to_zero_ms >= change_ms, "before the minute: {slept:?}");
    ensure!(woken.last_wake_ms >= change_ms && woken.wake_reason == "scheduled", "{woken:?}");

    // And once more, in the middle of the rows.
    group.start_member(old)?;
    let next = leader(&group).await?;
    group.kill(next)?;
    leader(&group).await?;
    for cluster in ["sleeper", "waker", "grower"] {
        eventually(&format!("{cluster} is as wanted"), PATIENCE, async || {
            said(&group, &["explain", &format!("cluster/{cluster}")]).ok()?.contains("AS_WANTED").then_some(())
        })
        .await?;
    }
    let counts = |verb: &str| -> Result<[usize; 3]> {
        Ok([done(&machine, &sleeper, verb)?, done(&machine, &waker, verb)?, done(&machine, &grower, verb)?])
    };
    ensure!(counts("create")? == [1, 2, 2], "{:?} of {:#?}", counts("create")?, machine.given()?);
    ensure!(counts("drop")? == [1, 1, 0], "{:?} of {:#?}", counts("drop")?, machine.given()?);
    ensure!(idle(&group, "waker").await?.last_wake_ms == woken.last_wake_ms, "woken once");
    ensure!(
        idle(&group, "sleeper").await?.scaled_to_zero_ms == slept.scaled_to_zero_ms,
        "asleep since the same moment"
    );
    Ok(())
}

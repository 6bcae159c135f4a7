//! The seven scenarios that an auto-scaler must get through, with real nodes and real replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use loadline_executor::Step;
use loadline_tests::ask::{PATIENCE, agreement, leader, said};
use loadline_tests::holding::Hold;
use loadline_tests::machine::{Machine, doubled};
use loadline_tests::scaled::{self, Foreign, json};
use loadline_tests::{Group, alone, eventually, rounds};
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

fn create(group: &Group, cluster: &str, strategy: &str, options: &[&str]) -> Result<()> {
    said(group, &["create", "cluster", cluster])?;
    let mut words = vec!["create", "strategy", strategy, "--cluster", cluster];
    words.extend(options.iter().flat_map(|option| ["--option", option]));
    said(group, &words)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_1_a_strategy_makes_a_replica_of_its_size() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    create(&group, "scaling_test", "target_size", &["SIZE=2"])?;
    let rows = scaled::settled(&group, "scaling_test", 1).await?;
    ensure!(rows[0]["call"] == "create_replica" && rows[0]["status"]["code"] == "SUCCEEDED", "{rows:#?}");
    scaled::replicas("the replica of the wanted size", &machine, |ready| ready == ["r1_auto 2"]).await?;
    let why = said(&group, &["explain", &format!("action/{}", rows[0]["name"].as_str().context("a name")?)])?;
    ensure!(why.contains("target_size"), "{why}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_2_what_users_do_by_hand_ends_in_the_wanted_state_or_is_left_alone() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    said(&group, &["set", "auto_scaling_cluster_cooldown", "0s"])?;
    create(&group, "mine", "target_size", &["SIZE=1", "REPLICA_SCOPE=ALL", "COOLDOWN=0s"])?;
    scaled::replicas("the first", &machine, |ready| ready == ["r1_auto 1"]).await?;

    // Somebody makes one that nobody wants, and it goes; somebody takes away the one that is wanted, and it comes back.
    let _by_hand = Foreign::start(&group, &machine, "mine", "extra", "2").await?;
    scaled::replicas("both", &machine, |ready| ready == ["extra 2", "r1_auto 1"]).await?;
    scaled::replicas("only what is wanted", &machine, |ready| ready == ["r1_auto 1"]).await?;
    let before = machine.running()?;
    scaled::drop_by_hand(&machine, "r1_auto").await?;
    let again = |running: &[loadline_tests::machine::Running]| {
        running.len() == 1 && running[0].ready && running[0].incarnation != before[0].incarnation
    };
    eventually("another r1_auto", PATIENCE, async || machine.running().ok().filter(|it| again(it))).await?;

    // What is not ours is not touched.
    create(&group, "shared", "target_size", &["SIZE=1", "REPLICA_SCOPE=MANAGED_ONLY", "COOLDOWN=0s"])?;
    let _theirs = Foreign::start(&group, &machine, "shared", "theirs", "2").await?;
    eventually("both in the shared cluster", PATIENCE, async || {
        let names: Vec<String> = machine.running().ok()?.into_iter().filter(|it| it.ready).map(|it| it.name).collect();
        (names == ["r1_auto", "r1_auto", "theirs"]).then_some(())
    })
    .await?;
    eventually("it is known that somebody else's is there", PATIENCE, async || {
        let why = said(&group, &["explain", "cluster/shared"]).ok()?;
        why.contains("replica theirs of size 2: ready").then_some(())
    })
    .await?;
    ensure!(!machine.given()?.iter().any(|order| order.replica == "theirs"), "{:#?}", machine.given()?);
    ensure!(machine.running()?.iter().any(|it| it.name == "theirs"), "the foreign replica is gone");
    Ok(())
}

async fn every_node_dies(step: Step) -> Result<()> {
    let machine = Machine::new()?;
    let folder = tempfile::tempdir()?;
    let hold = Hold { step, marker: folder.path().join("held"), until: None };
    let mut group = scaled::start(BINARY, &machine, hold.variables()).await?;
    create(&group, "scaling_test", "target_size", &["SIZE=1"])?;
    hold.held(PATIENCE).await?;
    for member in 0..group.members.len() {
        group.kill(member)?;
    }
    for member in 0..group.members.len() {
        group.start_member(member)?;
    }
    leader(&group).await?;
    let rows = scaled::settled(&group, "scaling_test", 1).await?;
    ensure!(rows[0]["status"]["code"] == "SUCCEEDED", "{rows:#?}");
    scaled::replicas("one replica", &machine, |ready| ready == ["r1_auto 1"]).await?;
    let effects = machine.effects()?;
    ensure!(effects.values().all(|done| done.len() == 1) && effects.len() == 1, "{effects:#?}");
    agreement(&group, 3).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_3_all_nodes_die_after_the_intent_and_before_the_call() -> Result<()> {
    let _alone = alone();
    every_node_dies(Step::BeforeCall).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_3_all_nodes_die_after_the_call_and_before_it_is_recorded() -> Result<()> {
    let _alone = alone();
    every_node_dies(Step::AfterCall).await
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_4_within_its_cooldown_a_strategy_skips_and_the_skip_is_counted() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    said(&group, &["set", "auto_scaling_cluster_cooldown", "0s"])?;
    create(&group, "cools", "target_size", &["SIZE=1", "COOLDOWN=1h"])?;
    scaled::replicas("the first", &machine, |ready| ready == ["r1_auto 1"]).await?;
    scaled::settled(&group, "cools", 1).await?;
    said(&group, &["update", "strategy", "target_size", "--cluster", "cools", "--option", "SIZE=2"])?;
    eventually("the skip is counted", PATIENCE, async || {
        let leader = leader(&group).await.ok()?;
        let page = scaled::metrics(&group.members[leader].http).await.ok()?;
        let counted = |line: &&str| {
            line.starts_with("loadline_auto_scaling_cooldown_skips_total{") && line.contains("target_size")
        };
        let line = page.lines().find(counted)?;
        line.rsplit_once(' ')?.1.parse::<f64>().ok().filter(|count| *count >= 1.0)
    })
    .await?;
    let why = said(&group, &["explain", "cluster/cools"])?;
    ensure!(why.contains("COOLDOWN"), "{why}");
    ensure!(scaled::actions(&group, "cools")?.len() == 1, "it acted within its cooldown");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_5_patterns_follow_names_and_leave_nothing_behind() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    let strategy =
        ["create", "strategy", "target_size", "--all-clusters", "--like", "analytics_%", "--option", "SIZE=1"];
    said(&group, &strategy)?;
    said(&group, &["create", "cluster", "analytics_foo"])?;
    said(&group, &["create", "cluster", "other"])?;
    scaled::replicas("the new cluster has its replica", &machine, |ready| ready == ["r1_auto 1"]).await?;
    ensure!(scaled::actions(&group, "other")?.is_empty(), "a cluster outside of the pattern was scaled");

    // Renamed out of the pattern: what is there stays, and nobody brings it back. Renamed into it: it is scaled at once.
    said(&group, &["rename", "cluster", "analytics_foo", "plain_foo"])?;
    said(&group, &["rename", "cluster", "other", "analytics_other"])?;
    scaled::replicas("the renamed one, too", &machine, |ready| ready == ["r1_auto 1", "r1_auto 1"]).await?;
    let ruling = json(&group, &["get", "strategies", "--cluster", "plain_foo"])?;
    ensure!(ruling["strategies"].as_array().is_some_and(Vec::is_empty), "{ruling:#}");

    // Dropped: its decision and its state go, its rows stay.
    let id = json(&group, &["get", "actions", "--history"])?;
    ensure!(id["actions"].as_array().is_some_and(|rows| rows.len() == 2), "{id:#}");
    said(&group, &["delete", "cluster", "analytics_other", "--cascade"])?;
    let decisions = json(&group, &["get", "decisions"])?.to_string();
    ensure!(!decisions.contains("analytics_other"), "{decisions}");
    let kept = json(&group, &["get", "actions", "--history"])?;
    ensure!(kept["actions"].as_array().is_some_and(|rows| rows.len() >= 2), "{kept:#}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_6_a_flood_of_events_for_one_cluster_holds_up_neither_ticks_nor_another() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let group = scaled::start(BINARY, &machine, vec![]).await?;
    create(&group, "flooded", "shrink_to_fit", &["MAX_SIZE=2"])?;
    // The flood goes on until the other cluster has what it wants: how fast a machine is makes no difference.
    let enough = Arc::new(AtomicBool::new(false));
    let flood = tokio::spawn(scaled::flood(group.endpoints(), "flooded", 2_000, Arc::clone(&enough)));
    let calm = match create(&group, "calm", "target_size", &["SIZE=1"]) {
        Ok(()) => scaled::settled(&group, "calm", 1).await,
        Err(error) => Err(error),
    };
    ensure!(!flood.is_finished(), "the flood has ended by itself");
    enough.store(true, Ordering::Relaxed);
    let flooded = flood.await?;
    let (sent, acknowledged) = flooded?;
    ensure!(sent >= 2_000 && acknowledged == sent, "{acknowledged} of {sent} were acknowledged");
    ensure!(calm?[0]["status"]["code"] == "SUCCEEDED");
    agreement(&group, 3).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenario_7_any_sequence_of_users_decisions_and_deaths_keeps_names_counts_and_drops_right() -> Result<()> {
    let _alone = alone();
    for seed in 1..=u64::try_from(rounds(1))? {
        any_sequence(seed).await.with_context(|| format!("seed {seed}"))?;
    }
    Ok(())
}

async fn any_sequence(seed: u64) -> Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let machine = Machine::new()?;
    let mut group = scaled::start(BINARY, &machine, vec![]).await?;
    said(&group, &["set", "auto_scaling_cluster_cooldown", "0s"])?;
    said(
        &group,
        &["create", "strategy", "target_size", "--all-clusters", "--option", "SIZE=1", "--option", "COOLDOWN=0s"],
    )?;
    let mut dropped = Vec::new();
    let mut there: Vec<String> = Vec::new();
    for step in 0..14 {
        match random.next_u32() % 6 {
            0 | 1 => {
                let name = format!("c{step}");
                said(&group, &["create", "cluster", &name])?;
                there.push(name);
            }
            2 if !there.is_empty() => {
                let name = there.swap_remove(random.random_range(0..there.len()));
                let id = scaled::cluster_id(&group, &name)?;
                said(&group, &["delete", "cluster", &name, "--cascade"])?;
                dropped.push((id, machine.given()?.len()));
            }
            3 => {
                let size = if random.random() { "SIZE=1" } else { "SIZE=2" };
                said(&group, &["update", "strategy", "target_size", "--all-clusters", "--option", size])?;
            }
            4 => {
                let victim = leader(&group).await?;
                group.kill(victim)?;
                leader(&group).await?;
                group.start_member(victim)?;
            }
            _ => {
                if let Some(one) = machine.running()?.first() {
                    scaled::drop_by_hand(&machine, &one.name).await?;
                }
            }
        }
        let running = machine.running_by_cluster()?;
        for (cluster, names) in &running {
            let twice = doubled(names.iter().map(String::as_str));
            ensure!(twice.is_empty(), "{twice:?} of {cluster} are there twice");
        }
    }
    // In the end every cluster has exactly what is wanted, and nothing took effect twice.
    eventually("every cluster has its one replica", PATIENCE * 2, async || {
        let running = machine.running_by_cluster().ok()?;
        let mut all = true;
        for name in &there {
            let id = scaled::cluster_id(&group, name).ok()?;
            all &= running.get(&id).is_some_and(|names| names.len() == 1);
        }
        all.then_some(())
    })
    .await?;
    let effects = machine.effects()?;
    ensure!(effects.values().all(|done| done.len() == 1), "{effects:#?}");
    let given = machine.given()?;
    for (cluster, before) in dropped {
        // One call may have been under way when the cluster was dropped.
        let later = given[before..].iter().filter(|order| order.cluster == cluster).count();
        ensure!(later <= 1, "{later} orders for {cluster} after it was dropped");
    }
    agreement(&group, 3).await?;
    Ok(())
}

//! Clusters that sleep while nobody uses them, with real nodes and real replicas: when they fall asleep, what wakes them, and
//! that neither happens twice or anew because a leader dies in the middle.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loadline_client::v1::IdleState;
use loadline_client::{Client, Reading};
use loadline_tests::ask::{PATIENCE, client, leader, run, said};
use loadline_tests::machine::Machine;
use loadline_tests::{Group, alone, eventually, scaled};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

const IDLE_AFTER_MS: i64 = 4_000;
const KEEP_ALIVE_MS: i64 = 3_000;

/// A group whose nodes were told by their environment when clusters fall asleep, and one cluster with one replica.
async fn start(machine: &Machine) -> Result<(Group, Client)> {
    let variable = |name: &str, value: &str| (format!("LOADLINE_SCALE_TO_ZERO_{name}"), value.to_owned());
    let variables = vec![
        variable("IDLE_THRESHOLD", "4s"),
        variable("KEEP_ALIVE", "3s"),
        variable("COLD_START_TIMEOUT", "30s"),
        variable("CHECK_INTERVAL", "1m"),
        variable("COST_TRACKING", "true"),
    ];
    let group = scaled::start(BINARY, machine, variables).await?;
    for (name, value) in [("idle_threshold", "4s"), ("keep_alive", "3s"), ("cold_start_timeout", "30s")] {
        eventually(&format!("{name} is as the nodes were told"), PATIENCE, async || {
            let found = scaled::json(&group, &["get", "setting", &format!("scale_to_zero_{name}")]).ok()?;
            (found.pointer("/spec/value")? == value).then_some(())
        })
        .await?;
    }
    for words in [
        &["set", "auto_scaling_cluster_cooldown", "0s"][..],
        &["set", "auto_scaling_rate_limit", "100"],
        &["create", "cluster", "demo"],
        &["create", "strategy", "target_size", "--cluster", "demo", "--option", "SIZE=1"],
    ] {
        said(&group, words)?;
    }
    scaled::replicas("the replica", machine, |ready| ready == ["r1_auto 1"]).await?;
    let asks = client(&group.endpoints())?;
    Ok((group, asks))
}

/// From here on it may fall asleep.
fn may_sleep(group: &Group) -> Result<()> {
    said(group, &["create", "strategy", "idle_suspend", "--cluster", "demo", "--option", "COOLDOWN=0s"]).map(drop)
}

fn used(group: &Group) -> Result<()> {
    said(group, &["signal", "demo", "activity"]).map(drop)
}

async fn state(asks: &Client) -> Result<IdleState> {
    let states = asks.idle_states(&["demo".to_owned()], Reading::Linearizable).await?;
    states.into_iter().next().context("no idle_suspend strategy rules demo")
}

async fn until(what: &str, asks: &Client, such: impl Fn(&IdleState) -> bool) -> Result<IdleState> {
    let mut last = None;
    eventually(what, PATIENCE, async || {
        last = state(asks).await.ok();
        last.clone().filter(|state| such(state))
    })
    .await
    .with_context(|| format!("{what}; last: {last:?}"))
}

/// One call over HTTP: the status and the body.
async fn http(address: &str, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
    let mut connection = tokio::net::TcpStream::connect(address).await?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    connection.read_to_string(&mut page).await?;
    let (head, body) = page.split_once("\r\n\r\n").with_context(|| format!("no answer: {page}"))?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).with_context(|| head.to_owned())?;
    Ok((code, serde_json::from_str(body).with_context(|| page.clone())?))
}

async fn follower(group: &Group) -> Result<String> {
    let leads = leader(group).await?;
    let other = group.members.iter().enumerate().find(|(number, _)| *number != leads);
    Ok(other.context("a follower")?.1.http.clone())
}

/// What a replica of `demo` says of itself, or left behind.
fn read(machine: &Machine, file: &str) -> Result<Value> {
    let clusters = std::fs::read_dir(machine.folder().join("replicas"))?;
    let paths = clusters.map(|cluster| Ok(cluster?.path().join("r1_auto").join(file)));
    let path = paths.collect::<Result<Vec<_>>>()?.into_iter().next().context("no replica was ever there")?;
    Ok(serde_json::from_slice(&std::fs::read(&path).with_context(|| path.display().to_string())?)?)
}

fn life(machine: &Machine) -> Result<Value> {
    read(machine, "life.json")
}

/// The life of which something was kept.
fn checkpoint(machine: &Machine) -> Result<Value> {
    Ok(read(machine, "checkpoint.json")?["incarnation"].clone())
}

fn is_at_rest(machine: &Machine) -> Result<()> {
    let running = machine.running()?;
    ensure!(running.is_empty(), "{running:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_falls_asleep_after_the_threshold_and_wakes_by_api_and_by_activity() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let (group, asks) = start(&machine).await?;
    used(&group)?;
    may_sleep(&group)?;
    let asleep = until("it falls asleep", &asks, |state| state.is_scaled_to_zero).await?;
    let idle_ms = asleep.scaled_to_zero_ms - asleep.last_activity_ms;
    ensure!(idle_ms > IDLE_AFTER_MS, "asleep {idle_ms} ms after it was used");
    is_at_rest(&machine)?;
    let slept = machine.given()?;
    let verbs: Vec<&str> = slept.iter().map(|given| given.verb.as_str()).collect();
    ensure!(verbs == ["create", "cordon", "drain", "checkpoint", "drop"], "{verbs:?}");
    let kept = checkpoint(&machine)?;
    let described = said(&group, &["describe", "cluster", "demo"])?;
    ensure!(described.contains("Scaled to zero:"), "{described}");
    let figures = scaled::metrics(&group.members[leader(&group).await?].http).await?;
    for figure in [
        "loadline_scaling_is_scaled_to_zero{cluster=\"demo\"} 1",
        "loadline_scaling_idle_duration_seconds{cluster=\"demo\"} ",
        "loadline_scaling_last_activity_timestamp{cluster=\"demo\"} ",
        "loadline_scaling_clusters_at_zero 1",
    ] {
        ensure!(figures.contains(figure), "no {figure} in {figures}");
    }

    // At a node that does not lead, and it answers when a replica is ready.
    let address = follower(&group).await?;
    let policy = format!("/api/v1/scaling/policies/{}", asleep.strategy);
    let wake = json!({ "reason": "webhook", "wait_for_ready": true });
    let (code, answer) = http(&address, "POST", &format!("{policy}/wake"), Some(&wake)).await?;
    ensure!(code == 200 && answer["status"] == "ready" && answer["wake_reason"] == "webhook", "{code} {answer}");
    ensure!(answer["previous_replicas"] == 0 && answer["target_replicas"] == 1, "{answer}");
    ensure!(answer["policy_id"] == asleep.strategy, "{answer}");
    let running = machine.running()?;
    ensure!(running.len() == 1 && running[0].ready, "{running:#?}");
    let restored = life(&machine)?;
    ensure!(kept.is_string() && restored["restored_from"] == kept, "{kept} {restored:#}");
    let awake = state(&asks).await?;
    ensure!(awake.wake_reason == "webhook" && awake.ready && awake.estimated_ready_ms.is_some(), "{awake:?}");

    // Waking what runs says so, and keeps it awake: nobody has used it all the while.
    let (_, again) = http(&address, "POST", &format!("{policy}/wake"), None).await?;
    ensure!(again["status"] == "already_running" && again["message"] == "Already running", "{again}");
    let kept = state(&asks).await?;
    let asleep = until("it falls asleep again", &asks, |state| state.is_scaled_to_zero).await?;
    let awake_ms = asleep.scaled_to_zero_ms - kept.last_wake_ms;
    ensure!(awake_ms > KEEP_ALIVE_MS, "asleep {awake_ms} ms after it was woken");

    // Somebody uses it.
    used(&group)?;
    let woken = until("it is ready", &asks, |state| state.ready).await?;
    ensure!(woken.wake_reason == "activity" && woken.scaled_to_zero_ms == 0, "{woken:?}");
    until("it falls asleep once more", &asks, |state| state.is_scaled_to_zero).await?;

    // All that sleep, and by command, which waits.
    let (code, all) = http(&address, "POST", "/api/v1/scaling/wake", Some(&json!({ "reason": "api_request" }))).await?;
    ensure!(code == 200 && all["woken"] == 1 && all["policies"][0]["status"] == "waking", "{code} {all}");
    let told = said(&group, &["wake", "demo", "--wait"])?;
    ensure!(told.contains("demo ready") || told.contains("demo already_running"), "{told}");
    ensure!(state(&asks).await?.wake_reason != "activity");

    // By the name of the cluster and the id of the strategy, which are the same one here.
    let both = json!({ "policy_ids": ["demo", asleep.strategy] });
    let (_, named) = http(&address, "POST", "/api/v1/scaling/wake", Some(&both)).await?;
    let expected = json!({
        "woken": 0,
        "already_running": 1,
        "policies": [{ "policy_id": asleep.strategy, "cluster": "demo", "status": "already_running" }],
    });
    ensure!(named == expected, "{named}");

    // The history names each by a request, also where nobody gave one.
    let woken = said(&group, &["audit", "log", "--kind", "ClusterWoken", "-o", "jsonl"])?;
    let rows: Vec<Value> = woken.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let asked: Vec<&Value> =
        rows.iter().filter(|row| row["source"].as_str().is_some_and(|it| it.starts_with("http"))).collect();
    ensure!(
        asked.len() >= 2 && asked.iter().all(|row| row["request_id"].as_str().is_some_and(|id| !id.is_empty())),
        "{woken}"
    );

    // What is wrong is said with what would be right.
    let (code, wrong) = http(&address, "POST", &format!("{policy}/wake"), Some(&json!({ "reason": "bored" }))).await?;
    ensure!(code == 400 && wrong["error"].as_str().is_some_and(|it| it.contains("webhook")), "{code} {wrong}");
    let (code, wrong) = http(&address, "POST", "/api/v1/scaling/policies/nowhere/wake", None).await?;
    ensure!(code == 404 && wrong["reason"] == "NOT_FOUND", "{code} {wrong}");
    ensure!(http(&address, "GET", &format!("{policy}/wake"), None).await?.0 == 405);

    // What it was worth. A replica of this size costs 0.1 an hour.
    let (code, saved) = http(&address, "GET", &format!("{policy}/savings"), None).await?;
    ensure!(
        code == 200 && saved["period"] == "last_30_days" && saved["policy_id"] == asleep.strategy,
        "{code} {saved}"
    );
    ensure!(saved["daily_breakdown"].as_array().is_some_and(|days| !days.is_empty()), "{saved}");
    let (_, summary) = http(&address, "GET", "/api/v1/scaling/savings/summary?since=7d", None).await?;
    ensure!(summary["period"] == "last_7_days" && summary["policies"][0]["cluster"] == "demo", "{summary}");
    let table = said(&group, &["savings", "--since", "7d"])?;
    ensure!(table.contains("DATE") && table.contains("Assumed:") && table.contains('█'), "{table}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_in_an_idle_window_or_in_a_wake_restarts_no_clock_and_does_nothing_twice() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let (mut group, asks) = start(&machine).await?;
    used(&group)?;
    may_sleep(&group)?;
    let before = state(&asks).await?;
    let first = leader(&group).await?;
    group.kill(first)?;
    let asleep = until("it falls asleep under another leader", &asks, |state| state.is_scaled_to_zero).await?;
    ensure!(asleep.last_activity_ms == before.last_activity_ms, "{before:?} {asleep:?}");
    let idle_ms = asleep.scaled_to_zero_ms - asleep.last_activity_ms;
    ensure!(idle_ms > IDLE_AFTER_MS, "asleep {idle_ms} ms after it was used");
    group.start_member(first)?;
    let count = |what: &str| -> Result<usize> {
        Ok(machine.effects()?.values().flatten().filter(|effect| effect.starts_with(what)).count())
    };
    ensure!(count("drop r1_auto")? == 1, "{:#?}", machine.effects()?);

    said(&group, &["wake", "demo", "--reason", "scheduled"])?;
    let woken = state(&asks).await?;
    let second = leader(&group).await?;
    group.kill(second)?;
    let told = said(&group, &["wake", "demo", "--wait"])?;
    ensure!(told.contains("demo ready") || told.contains("demo already_running"), "{told}");
    let ready = state(&asks).await?;
    ensure!(ready.ready && ready.replicas == 1, "{ready:?}");
    // Asked twice while it was on its way, it was woken once, at the first time.
    if told.contains("demo ready") {
        ensure!((ready.last_wake_ms, ready.wake_reason.as_str()) == (woken.last_wake_ms, "scheduled"), "{ready:?}");
    }
    ensure!(machine.running()?.len() == 1, "{:#?}", machine.running()?);
    ensure!(count("create r1_auto")? == 2, "once in the beginning, once when it was woken: {:#?}", machine.effects()?);
    group.start_member(second)?;
    leader(&group).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_override_keeps_a_minimum_until_it_is_over_and_a_paused_cluster_says_why_it_does_not_wake() -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let (mut group, asks) = start(&machine).await?;
    used(&group)?;
    may_sleep(&group)?;
    until("it falls asleep", &asks, |state| state.is_scaled_to_zero).await?;
    said(&group, &["override", "demo", "--min", "2", "--for", "12s", "--reason", "a big day"])?;
    scaled::replicas("the minimum", &machine, |ready| ready == ["floor1_auto 1", "r1_auto 1"]).await?;
    let why = said(&group, &["explain", "cluster/demo"])?;
    ensure!(why.contains("at least 2 replicas: a big day"), "{why}");
    let first = leader(&group).await?;
    group.kill(first)?;
    leader(&group).await?;
    group.start_member(first)?;
    until("it falls asleep when the override is over", &asks, |state| state.is_scaled_to_zero).await?;
    eventually("nothing runs", PATIENCE, async || machine.running().ok()?.is_empty().then_some(())).await?;

    said(&group, &["pause", "demo", "--reason", "moving"])?;
    said(&group, &["update", "strategy", "idle_suspend", "--cluster", "demo", "--option", "COLD_START_TIMEOUT=2s"])?;
    let output = run(&group, &["wake", "demo", "--wait"])?;
    let said_so = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(6) && said_so.contains("not ready within 2s"), "{output:?}");
    ensure!(said_so.contains("demo is held") && said_so.contains("pause"), "{said_so}");
    let address = follower(&group).await?;
    let wake = json!({ "wait_for_ready": true });
    let (code, late) = http(&address, "POST", "/api/v1/scaling/policies/demo/wake", Some(&wake)).await?;
    ensure!(code == 504 && late["reason"] == "COLD_START_TIMEOUT", "{code} {late}");
    ensure!(late["error"].as_str().is_some_and(|it| it.contains("paused")), "{late}");
    tokio::time::timeout(Duration::from_secs(5), async { is_at_rest(&machine) }).await??;
    if machine.given()?.is_empty() {
        bail!("the machine was never asked for anything");
    }
    Ok(())
}

//! A leader dies with `kill -9` at every step on the way of an action. Whoever takes over, there is one replica, one outcome, and
//! the row says who did what.

use anyhow::{Context, Result, ensure};
use loadline_executor::Step;
use loadline_tests::ask::{PATIENCE, leader, said};
use loadline_tests::holding::Hold;
use loadline_tests::machine::Machine;
use loadline_tests::{Group, alone, rounds, scaled};
use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// What the row of the action must say, by the step at which its leader died.
struct Expected {
    step: Step,
    /// How often it was claimed.
    attempts: usize,
    /// Whether the one that died is among those who had a part in it.
    by_both: bool,
}

async fn dying_at(expected: Expected) -> Result<()> {
    let _alone = alone();
    let machine = Machine::new()?;
    let marker = tempfile::tempdir()?;
    let hold = Hold { step: expected.step, marker: marker.path().join("held"), until: None };
    // Nobody is held before the first round begins.
    std::fs::write(&hold.marker, "not yet")?;
    let mut group = scaled::start(BINARY, &machine, hold.variables()).await?;
    said(&group, &["create", "strategy", "target_size", "--all-clusters", "--option", "SIZE=1"])?;
    for round in 1..=rounds(3) {
        one_round(&mut group, &machine, &hold, &expected, round).await.with_context(|| format!("round {round}"))?;
    }
    Ok(())
}

async fn one_round(group: &mut Group, machine: &Machine, hold: &Hold, expected: &Expected, round: usize) -> Result<()> {
    let cluster = format!("round{round}");
    leader(group).await?;
    std::fs::remove_file(&hold.marker)?;
    said(group, &["create", "cluster", &cluster])?;
    let held = hold.held(PATIENCE).await?;
    let victim =
        group.members.iter().position(|member| member.pid() == Some(held.pid)).context("whose is the marker?")?;
    let dead = group.members[victim].name.clone();
    group.kill(victim)?;

    let rows = scaled::settled(group, &cluster, 1).await?;
    check_row(&rows[0], &held.action, expected, &dead)?;
    scaled::replicas("one replica for each round", machine, |ready| ready.len() == round).await?;
    let effects = machine.effects()?;
    let of_key = effects.get(text(&rows[0]["key"])?).map_or(&[][..], Vec::as_slice);
    ensure!(of_key == ["create r1_auto"], "the backend did it {} times: {effects:#?}", of_key.len());
    ensure!(effects.len() == round, "keys that nobody knows of: {effects:#?}");
    ensure!(machine.running()?.len() == round, "replicas too many: {:#?}", machine.running()?);
    group.start_member(victim)
}

fn check_row(row: &Value, action: &str, expected: &Expected, dead: &str) -> Result<()> {
    ensure!(row["name"] == action, "another action than {action}: {row:#}");
    ensure!(row["status"]["code"] == "SUCCEEDED", "{row:#}");
    let attempts = row["attempts"].as_array().context("no attempts")?;
    ensure!(attempts.len() == expected.attempts, "expected {} attempts: {row:#}", expected.attempts);
    let by = text(&row["by"])?;
    ensure!(by.contains(dead) == (expected.by_both || expected.step == Step::AfterRecord), "{dead} died: {row:#}");
    ensure!(by.contains("resumed by") == expected.by_both, "{row:#}");
    Ok(())
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().with_context(|| format!("{value} is no text"))
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_claim() -> Result<()> {
    dying_at(Expected { step: Step::BeforeClaim, attempts: 1, by_both: false }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_claim_was_committed() -> Result<()> {
    dying_at(Expected { step: Step::AfterClaim, attempts: 2, by_both: true }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_call() -> Result<()> {
    dying_at(Expected { step: Step::BeforeCall, attempts: 2, by_both: true }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_call_and_before_its_reply() -> Result<()> {
    dying_at(Expected { step: Step::AfterCall, attempts: 1, by_both: true }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_reply_and_before_it_is_recorded() -> Result<()> {
    dying_at(Expected { step: Step::BeforeRecord, attempts: 1, by_both: true }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn after_it_was_recorded() -> Result<()> {
    dying_at(Expected { step: Step::AfterRecord, attempts: 1, by_both: false }).await
}

//! Being leader is no permission to act: each layer by the fault that it alone stops, and the same fault again without it, which
//! must be noticed.
//!
//! The first layer, epochs in the log, is shown where late claims can be made at will: `late_claims_and_outcomes` in the tests of
//! the executor.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadline_executor::Step;
use loadline_mutants::Mutant;
use loadline_tests::ask::{PATIENCE, leader, said};
use loadline_tests::holding::{Hold, MUTANT};
use loadline_tests::machine::Machine;
use loadline_tests::{Group, alone, eventually, scaled};

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");

/// A group in which the leader is held on its way of creating a replica.
struct Stopped {
    group: Group,
    machine: Machine,
    /// When this file is there, a thread that is held goes on.
    until: PathBuf,
    _marker: tempfile::TempDir,
    /// The number of the node that is held.
    sleeper: usize,
    /// What it is on the way with.
    action: String,
}

/// With the thread alone, the node leads on until the test stops it.
async fn held_at(step: Step, thread_alone: bool, mutants: &[Mutant]) -> Result<Stopped> {
    let machine = Machine::new()?;
    let folder = tempfile::tempdir()?;
    let until = folder.path().join("go-on");
    let hold = Hold { step, marker: folder.path().join("held"), until: thread_alone.then(|| until.clone()) };
    let mut variables = hold.variables();
    let names: Vec<&str> = mutants.iter().map(|mutant| mutant.name()).collect();
    variables.push((MUTANT.to_owned(), names.join(",")));
    let group = scaled::start(BINARY, &machine, variables).await?;
    said(&group, &["create", "cluster", "only"])?;
    said(&group, &["create", "strategy", "target_size", "--cluster", "only", "--option", "SIZE=1"])?;
    let held = hold.held(PATIENCE).await?;
    let sleeper = group.members.iter().position(|member| member.pid() == Some(held.pid)).context("who is held?")?;
    Ok(Stopped { group, machine, until, _marker: folder, sleeper, action: held.action })
}

/// While the leader is held, the replica becomes unwanted; then the leader sleeps for longer than an election. So the next
/// leader finds that the order was never carried out and settles it without sending it again. Nobody has used its key: only a
/// layer of protection stands between the sleeper's order and a replica that nobody wants.
async fn a_pause_at(step: Step, mutants: &[Mutant]) -> Result<()> {
    let stopped = held_at(step, true, mutants).await?;
    said(&stopped.group, &["set", "auto_scaling_enabled", "false"])?;
    stopped.group.pause(stopped.sleeper)?;
    let row = scaled::settled_one(&stopped.group, "only", &stopped.action).await?;
    ensure!(row["status"]["code"] != "SUCCEEDED", "the new leader did it after all: {row:#}");

    std::fs::write(&stopped.until, "")?;
    stopped.group.resume(stopped.sleeper)?;
    let name = stopped.group.members[stopped.sleeper].name.clone();
    eventually("the one that slept follows", PATIENCE, async || {
        let nodes = loadline_tests::ask::status(&stopped.group).ok()?;
        let node = nodes.iter().find(|node| node["name"] == name.as_str())?;
        (node["role"] == "follower").then_some(())
    })
    .await?;
    // Nothing tells when a call that is not made has not been made. A replica that is ordered is there within a tenth of this.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let running = stopped.machine.running()?;
    ensure!(running.is_empty(), "a stale order made a replica that nobody wants: {running:#?}");
    Ok(())
}

/// The fourth layer, reading back before sending again: a death after the call.
async fn a_death_after_the_call(mutants: &[Mutant]) -> Result<()> {
    let mut stopped = held_at(Step::AfterCall, false, mutants).await?;
    let sleeper = stopped.sleeper;
    stopped.group.kill(sleeper)?;
    leader(&stopped.group).await?;
    let rows = scaled::settled(&stopped.group, "only", 1).await?;
    ensure!(rows[0]["status"]["code"] == "SUCCEEDED", "{rows:#?}");
    let attempts = rows[0]["attempts"].as_array().context("no attempts")?;
    ensure!(attempts.len() == 1, "it had been done, and was ordered again: {rows:#?}");
    Ok(())
}

/// The same without a layer of protection must be noticed, for the right reason.
fn noticed(outcome: Result<()>, by: &str) -> Result<()> {
    let what = format!("{:#}", outcome.err().context("nobody noticed that the protection was gone")?);
    ensure!(what.contains(by), "something else went wrong: {what}");
    Ok(())
}

/// The second layer: a pause before the look at the lease. The backend takes orders of any epoch here, so that the lease is alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_sleeps_before_it_looks_at_its_lease_gives_no_order() -> Result<()> {
    let _alone = alone();
    a_pause_at(Step::BeforeLeaseCheck, &[Mutant::BackendNotFenced]).await?;
    let without = [Mutant::BackendNotFenced, Mutant::LeaseNotChecked];
    noticed(a_pause_at(Step::BeforeLeaseCheck, &without).await, "a replica that nobody wants")
}

/// The third layer: a pause after that look, which the lease cannot help against.
#[tokio::test(flavor = "multi_thread")]
async fn an_order_of_a_leader_that_slept_after_the_look_is_refused_by_the_fence() -> Result<()> {
    let _alone = alone();
    a_pause_at(Step::BeforeCall, &[]).await?;
    noticed(a_pause_at(Step::BeforeCall, &[Mutant::BackendNotFenced]).await, "a replica that nobody wants")
}

/// The fourth layer: a death after the call.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_leader_had_done_before_it_died_is_found_and_not_ordered_again() -> Result<()> {
    let _alone = alone();
    a_death_after_the_call(&[]).await?;
    noticed(a_death_after_the_call(&[Mutant::TakeOverWithoutReadBack]).await, "was ordered again")
}

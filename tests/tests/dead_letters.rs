//! What failed as often as it may be tried is an alarm until somebody deals with it, and holds nobody up meanwhile.

use anyhow::{Context, Result, ensure};
use loadline_executor::backends::settings::Secret;
use loadline_executor::backends::webhook::receiver::{Receiver, ReceiverOptions, Trouble};
use loadline_tests::ask::{PATIENCE, leader, run, said};
use loadline_tests::scaled::{actions, json, settled_one};
use loadline_tests::{Group, Options, alone, eventually};
use serde_json::Value;
use tokio::net::TcpListener;

const BINARY: &str = env!("CARGO_BIN_EXE_loadline-under-test");
const SECRET: &str = "the-secret-of-the-receiver";

/// Three nodes that scale what is behind an HTTP service, and that service.
async fn start() -> Result<(Group, Receiver)> {
    let receiver = Receiver::open(ReceiverOptions { secrets: vec![Secret::new(SECRET)], fences: true, file: None })?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let config = format!(
        "[backends.hook]\nkind = \"webhook\"\nurl = \"http://{}\"\nsecret_env = \"HOOK_SECRET\"\ncall_deadline = \"2s\"\n\
         observe_every = \"200ms\"\n",
        listener.local_addr()?
    );
    let router = receiver.router();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let variables = vec![("HOOK_SECRET".to_owned(), SECRET.to_owned())];
    let group = Group::start(BINARY, 3, Options { variables, config, ..Options::default() })?;
    leader(&group).await?;
    for words in [
        &["set", "enable_auto_scaling", "true"][..],
        &["set", "default_backend", "hook"],
        &["set", "auto_scaling_cluster_cooldown", "0s"],
        &["create", "size", "1", "--slots", "1", "--price", "0.1"],
        &["create", "strategy", "target_size", "--all-clusters", "--option", "SIZE=1", "--option", "COOLDOWN=0s"],
    ] {
        said(&group, words)?;
    }
    Ok((group, receiver))
}

fn dead_letters(group: &Group) -> Result<Vec<Value>> {
    let listed = json(group, &["get", "actions", "--dead-letters"])?;
    Ok(listed["actions"].as_array().context("no list of actions")?.clone())
}

/// Makes a cluster whose first action fails three times, and answers that action.
async fn fails(group: &Group, receiver: &Receiver, cluster: &str) -> Result<String> {
    for _ in 0..3 {
        receiver.expect(Trouble::Busy { retry_after_seconds: 3_600 });
    }
    said(group, &["create", "cluster", cluster])?;
    let letter = eventually("a dead letter", PATIENCE, async || dead_letters(group).ok()?.into_iter().next()).await?;
    ensure!(letter["status"]["code"] == "DEAD_LETTERED" && letter["cluster"] == cluster, "{letter:#}");
    ensure!(letter["attempts"].as_array().is_some_and(|attempts| attempts.len() == 3), "{letter:#}");
    Ok(letter["name"].as_str().context("a name")?.to_owned())
}

/// Waits until the backend has a replica for this cluster, made under another key than that of the dead letter.
async fn comes_after_all(group: &Group, receiver: &Receiver, cluster: &str, dead: &str) -> Result<()> {
    eventually("a fresh action succeeds", PATIENCE, async || {
        let rows = actions(group, cluster).ok()?;
        let succeeded = rows.iter().find(|row| row["status"]["code"] == "SUCCEEDED" && row["name"] != dead)?;
        let key = succeeded["key"].as_str()?.to_owned();
        receiver.books().replicas.values().flat_map(|it| it.values()).any(|it| it.made_by == key).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_retries_resolves_or_abandons_a_dead_letter_and_the_cluster_goes_on() -> Result<()> {
    let _alone = alone();
    let (group, receiver) = start().await?;

    let first = fails(&group, &receiver, "retried").await?;
    said(&group, &["action", "retry", &first, "--reason", "the service is up again"])?;
    comes_after_all(&group, &receiver, "retried", &first).await?;
    ensure!(dead_letters(&group)?.is_empty(), "{:#?}", dead_letters(&group)?);

    let second = fails(&group, &receiver, "abandoned").await?;
    said(&group, &["action", "abandon", &second, "--reason", "nobody needs it"])?;
    ensure!(dead_letters(&group)?.is_empty(), "{:#?}", dead_letters(&group)?);
    let row = settled_one(&group, "abandoned", &second).await?;
    ensure!(row["status"]["code"] == "ABANDONED" && row["error"].to_string().contains("nobody needs it"), "{row:#}");

    let third = fails(&group, &receiver, "resolved").await?;
    said(&group, &["action", "resolve", &third, "--failed", "--reason", "it never got there"])?;
    ensure!(dead_letters(&group)?.is_empty(), "{:#?}", dead_letters(&group)?);

    // What is over cannot be dealt with again, and the answer says so.
    let refused = run(&group, &["action", "retry", &third, "--reason", "once more"])?;
    let words = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && words.contains(&third), "{words}");
    Ok(())
}

//! Questions to a group: who leads, what is there, do the nodes agree.

use std::collections::BTreeMap;
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loadline_client::{Client, Endpoints, Kind, Options, Reading, WatchEvent, WatchOptions};
use serde_json::Value;

use crate::group::{Group, eventually};

/// Long enough for a node on a busy machine, short enough for a test that will fail.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn client(endpoints: &[String]) -> Result<Client> {
    let options = Options { timeout: PATIENCE, actor: "tests".to_owned(), ..Options::default() };
    Ok(Client::connect(Endpoints::parse(endpoints)?, options))
}

/// Runs the command line against this group.
pub fn run(group: &Group, words: &[&str]) -> Result<Output> {
    let mut command = Command::new(group.binary());
    command.args(words).env("LOADLINE_ENDPOINT", group.endpoints().join(","));
    command.env("XDG_CONFIG_HOME", group.folder().join("config"));
    command.output().with_context(|| format!("running loadline {words:?}"))
}

/// The same, for a command that must succeed: what it printed.
pub fn said(group: &Group, words: &[&str]) -> Result<String> {
    let output = run(group, words)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "loadline {words:?} ended with {}: {stderr}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// `loadline status -o json`, node by node.
pub fn status(group: &Group) -> Result<Vec<Value>> {
    let text = said(group, &["status", "-o", "json"])?;
    let parsed: Value = serde_json::from_str(&text).with_context(|| format!("status printed {text}"))?;
    Ok(parsed["nodes"].as_array().context("status has no nodes")?.clone())
}

/// The number in `group.members` of the node that leads, once one does and serves.
pub async fn leader(group: &Group) -> Result<usize> {
    let client = client(&group.endpoints())?;
    eventually("a node leads", PATIENCE, async || {
        let reports = client.status_all().await;
        let leads = |status: &loadline_client::v1::NodeStatus| status.role == "leader";
        let name = reports.iter().filter_map(|report| report.status.as_ref()).find(|s| leads(s))?.name.clone();
        // A read that must see everything shows that it leads for others, too.
        client.list(Kind::Setting, Reading::Linearizable).await.ok()?;
        group.by_name(&name).ok()
    })
    .await
}

/// Waits until `voters` nodes answer and have the same hash at the same index, and says which hash.
pub async fn agreement(group: &Group, voters: usize) -> Result<String> {
    let mut last = Vec::new();
    let found = eventually("all nodes have the same hash at one index", PATIENCE, async || {
        last = status(group).ok()?;
        let hashes: Vec<(&Value, &Value)> = last
            .iter()
            .filter(|node| node["errors"].as_array().is_some_and(Vec::is_empty))
            .map(|node| (&node["hash_index"], &node["state_hash"]))
            .collect();
        let (_, hash) = *hashes.first()?;
        let known = hash.as_str().is_some_and(|hash| !hash.is_empty());
        let same = hashes.windows(2).all(|pair| pair[0] == pair[1]);
        (hashes.len() == voters && known && same).then(|| hash.as_str().unwrap_or_default().to_owned())
    })
    .await;
    found.with_context(|| format!("last seen: {last:#?}"))
}

/// Hashes at one index that differ are wrong at any moment, not only in the end.
pub fn no_two_hashes_differ(nodes: &[Value]) -> Result<()> {
    let mut at: BTreeMap<u64, &Value> = BTreeMap::new();
    for node in nodes {
        let (Some(index), Some(hash)) = (node["hash_index"].as_u64(), node["state_hash"].as_str()) else { continue };
        if hash.is_empty() {
            continue;
        }
        if let Some(other) = at.insert(index, node) {
            ensure!(other["state_hash"] == node["state_hash"], "two histories at index {index}: {other} and {node}");
        }
    }
    Ok(())
}

/// The names of all clusters, as one linearizable read shows them.
pub async fn clusters(client: &Client) -> Result<Vec<String>> {
    use loadline_client::v1::resource::Resource;
    let listing = client.list(Kind::Cluster, Reading::Linearizable).await?;
    let name = |resource| match resource {
        Some(Resource::Cluster(cluster)) => Ok(cluster.name),
        other => bail!("a list of clusters holds {other:?}"),
    };
    listing.resources.into_iter().map(|resource| name(resource.resource)).collect()
}

/// How often each cluster was put, according to the history of one node from the first revision on.
pub async fn puts(endpoint: &str, until: u64) -> Result<BTreeMap<String, usize>> {
    let client = client(&[endpoint.to_owned()])?;
    let options = WatchOptions {
        kinds: vec![Kind::Cluster],
        from_revision: 1,
        progress_every: Duration::from_millis(100),
        ..WatchOptions::default()
    };
    let mut watch = client.watch(options);
    let mut puts = BTreeMap::new();
    let mut last = 0;
    while watch.resume_at() <= until {
        let WatchEvent::Changes { revision, changes, .. } = watch.next().await? else { continue };
        ensure!(revision > last, "revision {revision} after {last}");
        last = revision;
        for change in changes {
            if change.resource.is_some() {
                *puts.entry(change.name).or_insert(0) += 1;
            }
        }
    }
    Ok(puts)
}

//! A group that scales clusters on a [`Machine`]: how a test sets it up, and what it asks of it.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use loadline_api::v1::cluster_signals::Cluster as ClusterName;
use loadline_api::v1::observation::Seen;
use loadline_api::v1::{ClusterSignals, CrashSeen, HydrationSeen, Observation, ReplicaSeen};
use loadline_client::SignalOptions;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::ask::{PATIENCE, leader, said};
use crate::machine::Machine;
use crate::{Group, Options, eventually};

/// Three nodes with one local backend, and scaling switched on. No strategy yet.
pub async fn start(binary: &str, machine: &Machine, variables: Vec<(String, String)>) -> Result<Group> {
    let options = Options { variables, config: machine.config(), ..Options::default() };
    let group = Group::start(binary, 3, options)?;
    leader(&group).await?;
    for words in [
        &["set", "enable_auto_scaling", "true"][..],
        &["set", "default_backend", "local"],
        &["create", "size", "1", "--slots", "1", "--price", "0.1"],
        &["create", "size", "2", "--slots", "2", "--price", "0.2"],
    ] {
        said(&group, words)?;
    }
    Ok(group)
}

pub fn json(group: &Group, words: &[&str]) -> Result<Value> {
    let text = said(group, &[words, &["-o", "json"]].concat())?;
    serde_json::from_str(&text).with_context(|| format!("{words:?} printed {text}"))
}

/// The actions of a cluster: those that are settled, and those that are not.
pub fn actions(group: &Group, cluster: &str) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for words in [&["get", "actions", "--cluster", cluster][..], &["get", "actions", "--cluster", cluster, "--history"]]
    {
        found.extend(json(group, words)?["actions"].as_array().context("no list of actions")?.clone());
    }
    Ok(found)
}

/// Waits until the cluster has this many actions, all of them settled.
pub async fn settled(group: &Group, cluster: &str, count: usize) -> Result<Vec<Value>> {
    let mut last = String::new();
    let found = eventually(&format!("{count} settled actions of {cluster}"), PATIENCE, async || {
        let found = actions(group, cluster).inspect_err(|error| last = format!("{error:#}")).ok()?;
        last = format!("{found:#?}");
        let all = found.len() >= count && found.iter().all(|action| action["settle_time"].is_string());
        all.then_some(found)
    })
    .await
    .with_context(|| last)?;
    ensure!(found.len() == count, "more than {count} actions: {found:#?}");
    Ok(found)
}

/// Waits until this action is settled, whatever else there is.
pub async fn settled_one(group: &Group, cluster: &str, action: &str) -> Result<Value> {
    eventually(&format!("{action} is settled"), PATIENCE, async || {
        let found = actions(group, cluster).ok()?.into_iter().find(|row| row["name"] == action)?;
        found["settle_time"].is_string().then_some(found)
    })
    .await
}

/// Waits until the replicas of the machine are such.
pub async fn replicas(what: &str, machine: &Machine, such: impl Fn(&[String]) -> bool) -> Result<Vec<String>> {
    let mut last = Vec::new();
    eventually(what, PATIENCE, async || {
        let running = machine.running().ok()?;
        last = running.iter().filter(|it| it.ready).map(|it| format!("{} {}", it.name, it.size)).collect();
        such(&last).then(|| last.clone())
    })
    .await
    .with_context(|| format!("{what}; the last seen: {last:?}"))
}

/// A replica that somebody started by hand, without asking anybody.
#[derive(Debug)]
pub struct Foreign {
    child: Child,
}

impl Foreign {
    pub async fn start(group: &Group, machine: &Machine, cluster: &str, name: &str, size: &str) -> Result<Foreign> {
        let id = cluster_id(group, cluster)?;
        let mut command = Command::new(group.binary());
        command.args(["replica", "--cluster", &id, "--name", name, "--size", size, "--startup-delay", "20ms"]);
        command.args(["--hydration-time", "50ms"]).arg("--folder").arg(machine.folder());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let foreign = Foreign { child };
        let there = || Some(machine.running().ok()?.iter().any(|it| it.name == name && it.cluster == id && it.ready));
        eventually(&format!("{name} is there"), PATIENCE, async || there().filter(|there| *there)).await?;
        Ok(foreign)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn cluster_id(group: &Group, cluster: &str) -> Result<String> {
    let found = json(group, &["get", "cluster", cluster])?;
    let id = found.pointer("/metadata/id").and_then(Value::as_str);
    Ok(id.with_context(|| format!("{cluster} has no id: {found:#}"))?.to_owned())
}

/// Ends a replica as a user would who does not know of anybody else, and waits until it is gone.
pub async fn drop_by_hand(machine: &Machine, name: &str) -> Result<()> {
    let found = machine.running()?.into_iter().find(|it| it.name == name).with_context(|| format!("no {name}"))?;
    kill(Pid::from_raw(found.keeper.context("no process")?), Signal::SIGTERM)?;
    eventually(&format!("{name} is gone"), PATIENCE, async || {
        let there = machine.running().ok()?.iter().any(|it| it.incarnation == found.incarnation);
        (!there).then_some(())
    })
    .await
}

/// The latest decision about a cluster, once there is one.
pub async fn decided_after(group: &Group, cluster: &str) -> Result<Value> {
    eventually(&format!("a decision about {cluster}"), PATIENCE, async || {
        let listed = json(group, &["get", "decisions", "--cluster", cluster]).ok()?;
        listed["decisions"].as_array()?.first().cloned()
    })
    .await
}

/// What a node counts.
pub async fn metrics(address: &str) -> Result<String> {
    let mut connection = tokio::net::TcpStream::connect(address).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut page = String::new();
    connection.read_to_string(&mut page).await?;
    Ok(page)
}

/// Reports of a crash and of hydration, again and again, about one replica of one cluster: so many at once, and then thousands a second
/// until it is enough. Answers how many were sent, and how many acknowledged.
pub async fn flood(
    endpoints: Vec<String>,
    cluster: &'static str,
    at_once: u64,
    enough: Arc<AtomicBool>,
) -> Result<(u64, u64)> {
    /// A machine that is fast would else send as much as it can for as long as somebody else takes.
    const THEN_AT_ONCE: u64 = 16;
    let client = crate::ask::client(&endpoints)?;
    let mut stream = client.signal_stream(SignalOptions::of("flood"));
    let observation = |seen| Observation { age_ms: 0, seen: Some(seen) };
    let replica =
        ReplicaSeen { name: "main".to_owned(), size: "1".to_owned(), incarnation: String::new(), ready: true };
    let mut sent = 0;
    while sent < at_once || !enough.load(Ordering::Relaxed) {
        let number = sent;
        let seen = match number % 3 {
            0 => Seen::Replica(replica.clone()),
            1 => Seen::Hydration(HydrationSeen { replica: "main".to_owned(), total: 10, hydrated: number % 10 }),
            _ => Seen::Crash(CrashSeen { replica: "main".to_owned(), count: 1, ..CrashSeen::default() }),
        };
        let whose = Some(ClusterName::Name(cluster.to_owned()));
        let about = ClusterSignals { cluster: whose, observations: vec![observation(seen)] };
        stream.send(vec![about]).await?;
        sent += 1;
        if sent > at_once && sent.is_multiple_of(THEN_AT_ONCE) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    stream.flush().await?;
    let tally = stream.tally();
    Ok((sent, tally.recorded + tally.repeated))
}

//! Writers that never stop, and remember what they were promised.
//!
//! Each write creates a cluster under a name of its own. A write that was executed twice would be told that the name
//! exists already, so a refusal is a finding, not noise.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loadline_client::v1::change::Change;
use loadline_client::v1::{Cluster, CreateClusterRequest};
use loadline_client::{Client, Writing};
use tokio::task::JoinSet;

use crate::ask;
use crate::group::eventually;

/// What the writers know when they have stopped.
#[derive(Debug, Default)]
pub struct Record {
    /// Name and revision of every write that was acknowledged.
    pub acknowledged: BTreeMap<String, u64>,
    /// Writes without an answer: there at most once.
    pub unknown: Vec<String>,
}

#[derive(Debug)]
pub struct Load {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    record: Arc<Mutex<Record>>,
    writers: JoinSet<Result<()>>,
}

impl Load {
    /// Starts `writers` tasks, each with a connection of its own that begins at another endpoint.
    pub fn start(endpoints: &[String], writers: usize) -> Result<Load> {
        let mut load =
            Load { stop: Arc::default(), count: Arc::default(), record: Arc::default(), writers: JoinSet::new() };
        for writer in 0..writers {
            let mut order = endpoints.to_vec();
            order.rotate_left(writer % endpoints.len());
            let client = ask::client(&order)?;
            let (stop, count, record) = (Arc::clone(&load.stop), Arc::clone(&load.count), Arc::clone(&load.record));
            load.writers.spawn(async move { write(writer, &client, &stop, &count, &record).await });
        }
        Ok(load)
    }

    pub fn acknowledged(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until `more` further writes have been acknowledged: the group serves, whatever was done to it.
    pub async fn goes_on(&self, more: u64) -> Result<()> {
        let goal = self.acknowledged() + more;
        eventually("writes go on", ask::PATIENCE, async || (self.acknowledged() >= goal).then_some(())).await
    }

    /// Lets the writers finish what they are at.
    pub async fn stop(mut self) -> Result<Record> {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.writers.join_next().await {
            ended.context("a writer panicked")??;
        }
        Ok(std::mem::take(&mut self.record.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

async fn write(
    writer: usize,
    client: &Client,
    stop: &AtomicBool,
    count: &AtomicU64,
    record: &Mutex<Record>,
) -> Result<()> {
    let mut number = 0u64;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        let name = format!("w{writer}-{number}");
        let cluster = Cluster { name: name.clone(), ..Cluster::default() };
        let step = Change::CreateCluster(CreateClusterRequest { cluster: Some(cluster), options: None });
        let answer = client.write(step, Writing::Record).await;
        let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(answer) => {
                record.acknowledged.insert(name, answer.revision);
                count.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) if error.maybe_done() => record.unknown.push(name),
            Err(error) => bail!("the write of {name} was refused: {error}"),
        }
    }
    Ok(())
}

impl Record {
    /// Every acknowledged write is there; nothing is there that nobody wrote.
    pub async fn check(&self, client: &Client) -> Result<()> {
        let present = ask::clusters(client).await?;
        let lost: Vec<&String> = self.acknowledged.keys().filter(|name| present.binary_search(name).is_err()).collect();
        ensure!(
            lost.is_empty(),
            "{} of {} acknowledged writes are lost: {lost:?}",
            lost.len(),
            self.acknowledged.len()
        );
        for name in &present {
            let known = self.acknowledged.contains_key(name) || self.unknown.contains(name);
            ensure!(known, "{name} is there, and nobody wrote it");
        }
        Ok(())
    }

    /// The history of the node at `endpoint` has each acknowledged write once, at the revision that was promised or
    /// before any other.
    pub async fn check_history(&self, endpoint: &str) -> Result<()> {
        let until = self.acknowledged.values().copied().max().unwrap_or(0);
        let puts = tokio::time::timeout(Duration::from_secs(60), ask::puts(endpoint, until)).await??;
        for name in self.acknowledged.keys() {
            let times = puts.get(&format!("clusters/{name}")).copied().unwrap_or(0);
            ensure!(times == 1, "the history at {endpoint} has {name} {times} times");
        }
        Ok(())
    }
}

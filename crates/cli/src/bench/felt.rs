//! The part of `bench scale` that asks of every number of clusters what the other benchmarks ask of a few: writes, reads, the way
//! from a signal to the backend, what a killed leader costs, and applying the journal once more.
//!
//! Beside the clusters that are counted each group has a few that are asleep, with a backend of their own: those are woken. Not
//! here: etcd, which has no clusters.

use std::time::Duration;

use loadline_client::v1::change::Change;
use loadline_client::v1::{ReportSignalsRequest, UpdateClusterRequest};
use loadline_client::{Client, Writing};

use super::failover;
use super::figures::{Figures, Sample, median};
use super::group::Group;
use super::react::{react, sleeper, used};
use super::read::gets;
use super::receiver::Receiver;
use super::replay;
use super::rows::Row;
use super::scale::{caught_up, writes};
use super::stage::cluster_name;
use crate::exit::{Exit, Failed};

const READERS: usize = 64;
/// Clusters that are woken one after the other in a round, and times that the leader is killed in all.
const WOKEN: u32 = 20;
const KILLS: u32 = 3;
const TWO_HOURS_MS: u64 = 7_200_000;

/// One group, and what was measured on it.
#[derive(Debug)]
pub(super) struct Felt {
    clusters: u32,
    receiver: Receiver,
    /// The next one to wake.
    next: u32,
    writes: Vec<Sample>,
    linearizable: Vec<Sample>,
    stale: Vec<Sample>,
    react: Vec<Sample>,
}

impl Felt {
    pub(super) fn new(clusters: u32, receiver: Receiver) -> Felt {
        let (writes, linearizable, stale, react) = Default::default();
        Felt { clusters, receiver, next: clusters, writes, linearizable, stale, react }
    }

    /// Makes what will be woken. They get their backend when they are asleep: before, nothing is to be done for them.
    pub(super) async fn lull(&self, client: &Client, rounds: u32) -> Result<(), Failed> {
        let sleepers = self.clusters..self.clusters + rounds * WOKEN + KILLS;
        client.transact(sleepers.clone().flat_map(sleeper).collect(), Writing::Record).await?;
        let clusters = sleepers.clone().map(|number| used(number, TWO_HOURS_MS)).collect();
        let report = ReportSignalsRequest { collector: "bench-idle".to_owned(), sequence: 1, clusters };
        client.report_signals(report).await?;
        let place = |number: u32| {
            let (name, backend) = (cluster_name(u64::from(number)), Some("bench".to_owned()));
            Change::UpdateCluster(UpdateClusterRequest { name, backend, ..UpdateClusterRequest::default() })
        };
        client.transact(sleepers.map(place).collect(), Writing::Record).await?;
        Ok(())
    }

    pub(super) async fn round(&mut self, group: &mut Group, lasts: Duration) -> Result<(), Failed> {
        let leader = Group::connect([group.leader_endpoint().await?.as_str()])?;
        self.writes.push(writes(&leader, self.clusters, lasts).await?);
        self.linearizable.push(gets(group, READERS, false, self.clusters, lasts).await?);
        self.stale.push(gets(group, READERS, true, self.clusters, lasts).await?);
        let mut took = Vec::new();
        for _ in 0..WOKEN {
            took.push(react(&leader, &self.receiver, self.next).await?);
            self.next += 1;
        }
        let elapsed = took.iter().sum();
        self.react.push(Sample::new(took, elapsed));
        Ok(())
    }

    /// What ends a round for good: kills, and a journal that nobody writes to.
    pub(super) async fn finish(mut self, group: &mut Group, rounds: u32) -> Result<Vec<Row>, Failed> {
        let (mut write, mut call) = (Vec::new(), Vec::new());
        for _ in 0..KILLS {
            let (written, called) = failover::ours(group, &self.receiver, self.next, 0).await?;
            write.push(written);
            call.push(called);
            self.next += 1;
        }
        let replayed = replayed(group, rounds).await?;
        let figures = |took: Vec<Duration>| {
            let elapsed = took.iter().sum();
            Figures::of(&[Sample::new(took, elapsed)])
        };
        let rows = vec![
            Row::new("scale write", Some(super::scale::WRITERS), Figures::of(&self.writes)),
            Row::new("scale read linearizable", Some(READERS), Figures::of(&self.linearizable)),
            Row::new("scale read stale", Some(READERS), Figures::of(&self.stale)),
            Row::new("scale react", Some(1), Figures::of(&self.react)),
            Row::new("scale failover to write", None, figures(write)),
            Row::new("scale failover to backend call", None, figures(call)),
            Row::of_value("scale replay", replayed, "entries/s"),
        ];
        Ok(rows.into_iter().map(|row| row.with_clusters(self.clusters)).collect())
    }
}

/// Entries per second from the journal of a follower that is down meanwhile.
async fn replayed(group: &mut Group, rounds: u32) -> Result<f64, Failed> {
    let leader = group.leader().await?;
    let follower = (0..group.nodes().len()).find(|place| *place != leader).unwrap_or_default();
    group.kill(follower).await?;
    let node = &group.nodes()[follower];
    let (data, endpoint) = (node.data.clone(), node.endpoint.clone());
    let (entries, took, _) = tokio::task::spawn_blocking(move || replay::rounds_of(&data, rounds))
        .await
        .map_err(|error| Failed::new(Exit::Failure, error.to_string()))??;
    let client = Group::connect([group.nodes()[leader].endpoint.as_str()])?;
    let last = client.status().await?.applied_index;
    group.start_node(follower)?;
    caught_up(&endpoint, last).await?;
    Ok(median(took.iter().map(|took| replay::per_second(entries, *took)).collect()).unwrap_or_default())
}

//! `bench signals`: what collectors see, streamed, until it is durable on a majority and applied.
//!
//! Each collector has a stream of its own and sends reports without waiting, up to a bound. A report is about many clusters, one
//! observation each: activity, or a metric. Clusters come again after so many reports, and each is evaluated once per entry,
//! however many reports about it the entry holds. etcd gets the same number of puts: one by one, and as many to a transaction as
//! a report has observations.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use loadline_client::v1::observation::Seen;
use loadline_client::v1::{ActivitySeen, ClusterSignals, MetricSeen, Observation, cluster_signals};
use loadline_client::{Client, SignalOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::drive::closed_loop;
use super::etcd::{Etcd, EtcdClient};
use super::figures::{Figures, Sample};
use super::group::Group;
use super::rows::Row;
use super::scale::build;
use super::stage::{Beside, Stage, cluster_name, connections, shared};
use super::world::mix;
use crate::exit::{Exit, Failed};

/// Callers of etcd: as many as it is compared with.
const ETCD_CALLERS: usize = 256;
/// What an observation is on the wire, more or less, without the name of its cluster.
const OBSERVATION_BYTES: usize = 24;

const SINGLE_RATIO_MIN: f64 = 20.0;
const BATCHED_RATIO_MIN: f64 = 3.0;

#[derive(Debug, Clone, Args)]
pub(crate) struct Mix {
    /// Clusters that the reports are about, each picked evenly
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) clusters: u32,
    /// Observations in one report, and puts in one transaction of etcd; etcd takes at most 128
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=128))]
    pub(super) per_report: u32,
    /// Collectors, each with a stream of its own
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pub(super) collectors: u16,
    /// Reports of one collector that may be under way
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(super) under_way: u16,
    /// Clusters that the reports of one moment are about, those of all collectors; nothing: all of them. So an entry evaluates as
    /// many, however many there are, and what is compared is the cost of one.
    #[arg(skip)]
    pub(super) at_once: Option<u32>,
}

/// So many reports of a collector are about the same clusters, before the next ones get their turn.
const REPORTS_AT_ONCE: u64 = 64;

impl Mix {
    fn in_words(&self) -> String {
        let Mix { clusters, per_report, collectors, under_way, .. } = self;
        format!(
            "signals: {clusters} clusters with four strategies each, picked evenly; half activity, half a metric; {collectors} \
             collectors, each with a stream and {under_way} reports of {per_report} observations under way; a cluster is evaluated once \
             per entry. etcd: {ETCD_CALLERS} clients"
        )
    }

    /// Which cluster an observation is about, in the report of this number of its collector. The collectors keep about the same
    /// pace, so that what they tell at one moment is about the same clusters.
    fn cluster(&self, number: u64, picked: u64) -> u64 {
        let clusters = u64::from(self.clusters);
        match self.at_once.map(u64::from).filter(|at_once| *at_once < clusters) {
            None => picked % clusters,
            Some(at_once) => (number / REPORTS_AT_ONCE * at_once + picked % at_once) % clusters,
        }
    }
}

pub(super) async fn measure(mix: &Mix, stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("signals", Beside::Etcd).await?;
    stage.tell("signals: starting three nodes");
    let mut group = Group::start(stage.folder(), "signals", &[]).await?;
    build(&group.client()?, mix.clusters).await?;
    let lasts = stage.args.lasts;
    // Both take memory in their first seconds that they keep from then on.
    stage.tell("signals: not measured yet");
    streams(&group.leader_endpoint().await?, mix, 0, lasts).await?;
    if let Some(etcd) = &mut stage.etcd {
        puts(etcd, mix, 1, lasts).await?;
    }
    let (mut ours, mut single, mut batched) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=stage.args.rounds {
        stage.tell(&format!("signals: round {round} of {}", stage.args.rounds));
        stage.yardstick().await?;
        for mine in [round % 2 == 1, round % 2 == 0] {
            if mine {
                let endpoint = group.leader_endpoint().await?;
                ours.push(streams(&endpoint, mix, round, lasts).await?);
            } else if let Some(etcd) = &mut stage.etcd {
                single.push(puts(etcd, mix, 1, lasts).await?);
                batched.push(puts(etcd, mix, mix.per_report, lasts).await?);
            }
        }
    }
    let row = |name: &str, etcd: &[Sample]| {
        Row::new(name, Some(usize::from(mix.collectors)), Figures::of(&ours))
            .with_clusters(mix.clusters)
            .beside(Figures::of(etcd))
            .rate_against_etcd()
            .of_mix(&mix.in_words())
    };
    Ok(vec![
        row("signals, etcd one by one", &single).ratio_at_least(SINGLE_RATIO_MIN),
        row(&format!("signals, etcd by {}", mix.per_report), &batched).ratio_at_least(BATCHED_RATIO_MIN),
    ])
}

/// All collectors at once, for so long. How long a report took is from handing it over to its acknowledgement.
pub(super) async fn streams(endpoint: &str, mix: &Mix, round: u32, lasts: Duration) -> Result<Sample, Failed> {
    let from = Instant::now() + lasts / 5;
    let until = from + lasts;
    let mut tasks = JoinSet::new();
    for number in 0..mix.collectors {
        let client = Group::connect([endpoint])?;
        tasks.spawn(stream(client, mix.clone(), format!("bench-{number}-{round}"), from, until));
    }
    let mut took = Vec::new();
    while let Some(task) = tasks.join_next().await {
        let acknowledged = task.map_err(|error| Failed::new(Exit::Failure, format!("a stream broke down: {error}")))?;
        took.extend(acknowledged?);
    }
    Ok(Sample::new(took, lasts).each(mix.per_report))
}

async fn stream(
    client: Client,
    mix: Mix,
    collector: String,
    from: Instant,
    until: Instant,
) -> Result<Vec<Duration>, Failed> {
    let options = SignalOptions { unacknowledged_max: usize::from(mix.under_way), ..SignalOptions::of(&collector) };
    let mut stream = client.signal_stream(options);
    let mut took = Vec::new();
    let first = collector.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    for number in 0.. {
        let acknowledged = stream.send(report(&mix, first, number)).await?;
        let now = Instant::now();
        if now >= until {
            break;
        }
        if now >= from {
            took.extend(acknowledged.into_iter().map(|one| one.took));
        }
    }
    stream.flush().await?;
    Ok(took)
}

/// One report: every other observation is an activity, the rest are metrics. Those of two collectors differ by `collector`.
pub(super) fn report(shape: &Mix, collector: u64, number: u64) -> Vec<ClusterSignals> {
    let seen = |place, picked| if place % 2 == 0 { activity(picked) } else { metric(picked) };
    report_of(shape, collector, number, seen)
}

/// One report of metrics only: an activity might wake a cluster.
pub(super) fn metrics(shape: &Mix, number: u64) -> Vec<ClusterSignals> {
    report_of(shape, 0, number, |_, picked| metric(picked))
}

fn activity(picked: u64) -> Seen {
    Seen::Activity(ActivitySeen { idle_for_ms: Some(picked % 1_000) })
}

fn metric(picked: u64) -> Seen {
    let value_milli = i64::try_from(picked % 1_000_000).unwrap_or_default();
    Seen::Metric(MetricSeen { name: "queue_depth".to_owned(), value_milli })
}

fn report_of(shape: &Mix, collector: u64, number: u64, seen: impl Fn(u64, u64) -> Seen) -> Vec<ClusterSignals> {
    let first = collector.wrapping_add(number).wrapping_mul(u64::from(shape.per_report));
    (0..u64::from(shape.per_report))
        .map(|place| {
            let picked = mix(first.wrapping_add(place));
            ClusterSignals {
                cluster: Some(cluster_signals::Cluster::Name(cluster_name(shape.cluster(number, picked)))),
                observations: vec![Observation { age_ms: 0, seen: Some(seen(place, picked)) }],
            }
        })
        .collect()
}

async fn puts(etcd: &mut Etcd, shape: &Mix, at_once: u32, lasts: Duration) -> Result<Sample, Failed> {
    let url = etcd.leader_url().await?;
    let mut clients = Vec::new();
    for _ in 0..connections(ETCD_CALLERS) {
        clients.push(EtcdClient::connect(&url).await?);
    }
    let clients = Arc::new(shared(&clients, ETCD_CALLERS));
    let clusters = u64::from(shape.clusters);
    let sample = closed_loop(ETCD_CALLERS, lasts, move |caller, number| {
        let clients = Arc::clone(&clients);
        async move {
            let first = number.wrapping_mul(1_000_003).wrapping_add(caller as u64).wrapping_mul(u64::from(at_once));
            let put = |place: u64| {
                let picked = mix(first.wrapping_add(place));
                let value = format!("{picked:0>OBSERVATION_BYTES$}");
                (Bytes::from(cluster_name(picked % clusters)), Bytes::from(value))
            };
            if at_once == 1 {
                let (key, value) = put(0);
                return clients[caller].put(key, value).await;
            }
            // A transaction may not put the same key twice.
            let mut puts: Vec<(Bytes, Bytes)> = (0..u64::from(at_once)).map(put).collect();
            puts.sort();
            puts.dedup_by(|one, other| one.0 == other.0);
            clients[caller].put_all(puts).await
        }
    });
    Ok(sample.await?.each(at_once))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_report_has_as_many_observations_as_were_asked_for_and_the_next_is_another() {
        let shape = Mix { clusters: 10, per_report: 5, collectors: 1, under_way: 1, at_once: None };
        let one = report(&shape, 0, 7);
        assert_eq!(one.iter().map(|cluster| cluster.observations.len()).sum::<usize>(), 5);
        assert_eq!(one, report(&shape, 0, 7));
        assert_ne!(one, report(&shape, 0, 8));
        assert_ne!(one, report(&shape, 1_000, 7), "another collector sees something else");
    }

    #[test]
    fn what_collectors_tell_at_one_moment_is_about_so_many_clusters_together() {
        let shape = Mix { clusters: 100_000, per_report: 64, collectors: 4, under_way: 1, at_once: Some(100) };
        let about = |from: u64| {
            let reports =
                (0..4).flat_map(|collector| (from..from + 8).map(move |number| (collector * 1_000_003, number)));
            let clusters = reports.flat_map(|(collector, number)| report(&shape, collector, number));
            clusters.filter_map(|it| it.cluster).map(|it| format!("{it:?}")).collect::<BTreeSet<_>>()
        };
        assert_eq!(about(0).len(), 100);
        assert!(about(0).is_disjoint(&about(REPORTS_AT_ONCE)), "then others get their turn");
    }
}

//! `bench scale`: what it costs to have many clusters.
//!
//! A group for each number of clusters, all at once, of which [`super::felt`] asks what the other benchmarks ask of a few,
//! and each cluster with four strategies of its own and two replicas, none of which
//! wants anything. Signals take turns between the groups, so that a noisy minute hits all of them; those of one moment are about as
//! many clusters in each group, because a cluster is evaluated once for an entry, however many signals the entry has of it. They
//! begin when the nodes are at rest: what the making of so many clusters leaves to do is no part of a signal. The largest group then tells
//! what a process needs, and what snapshots, a restart and a new node take. A restart finds the last snapshot and, since then, as
//! many reports of one observation as were asked for, packed into entries as they came; and once more as many, each in an entry of
//! its own.

use std::time::Duration;

use clap::Args;
use loadline_client::v1::change::Change;
use loadline_client::v1::observation::Seen;
use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{
    ActivitySeen, Cluster, ClusterSignals, CreateClusterRequest, CreateSizeRequest, CreateStrategyRequest,
    HydrationSeen, Observation, ReplicaSeen, ReportSignalsRequest, Size, Strategy, StrategyTarget, cluster_signals,
};
use loadline_client::{Client, SnapshotPart, Writing};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::drive::closed_loop;
use super::felt::Felt;
use super::figures::{Figures, Sample};
use super::group::Group;
use super::machine::{resident_bytes_of, worked_of};
use super::react::backend;
use super::receiver::Receiver;
use super::rows::Row;
use super::signals::{self, Mix};
use super::stage::{Beside, Stage, cluster_name, connections, set_setting, shared, value};
use super::write::{pause, picked};
use crate::exit::{Exit, Failed};

const SIZES: [&str; 5] = ["25cc", "50cc", "100cc", "200cc", "400cc"];
const STRATEGIES: [(&str, &str, &str); 4] = [
    ("target_size", "SIZE", "100cc"),
    ("shrink_to_fit", "MAX_SIZE", "400cc"),
    ("burst", "BURST_SIZE", "400cc"),
    ("idle_suspend", "IDLE_AFTER", "30m"),
];
/// With its strategies, a cluster is five changes, and a transaction takes a thousand.
const CLUSTERS_AT_ONCE: usize = 200;
/// Callers that write while a snapshot is taken.
pub(super) const WRITERS: usize = 16;
/// Callers that report one by one.
const CALLERS: usize = 256;
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// Nobody waits longer for a node to catch up.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Nodes are at rest if they work less than a tenth of such a time.
const REST: Duration = Duration::from_secs(2);

const SIGNAL_RATIO_MAX: f64 = 1.5;
const KIB_PER_CLUSTER_MAX: f64 = 6.0;
const SNAPSHOT_P99_RATIO_MAX: f64 = 2.0;
const RESTART_S_MAX: f64 = 10.0;

#[derive(Debug, Clone, Args)]
pub(crate) struct Scale {
    /// Numbers of clusters to compare; the smallest is what the others are measured against
    #[arg(long = "sizes", value_name = "N", num_args = 1.., value_delimiter = ',', default_values_t = [100, 10_000, 100_000])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sizes: Vec<u32>,
    /// Reports that a restarted node has to apply again
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    since: u64,
}

/// One group and what was measured on it.
struct World {
    clusters: u32,
    group: Group,
    signals: Vec<Sample>,
    felt: Felt,
}

pub(super) async fn measure(scale: &Scale, stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("scale", Beside::Nothing).await?;
    let mut sizes = scale.sizes.clone();
    sizes.sort_unstable();
    sizes.dedup();
    let mut worlds = Vec::new();
    for &clusters in &sizes {
        stage.tell(&format!("scale: building {clusters} clusters"));
        // The restart is to find everything that came after the snapshot of the beginning.
        let mut arguments = ["--snapshot-every", "10000000", "--keep-entries", "100"].map(str::to_owned).to_vec();
        let receiver = Receiver::start().await?;
        let folder = stage.folder().join(format!("receiver-{clusters}"));
        std::fs::create_dir(&folder)?;
        arguments.extend(backend(&folder, &receiver)?);
        let mut group = Group::start(stage.folder(), &format!("scale-{clusters}"), &arguments).await?;
        let client = group.client()?;
        build(&client, clusters).await?;
        let felt = Felt::new(clusters, receiver);
        felt.lull(&client, stage.args.rounds).await?;
        stage.tell(&format!("scale: waiting until the nodes with {clusters} clusters are at rest"));
        at_rest(&mut group, &mix(clusters, &sizes)).await?;
        worlds.push(World { clusters, group, signals: Vec::new(), felt });
    }
    for round in 1..=stage.args.rounds {
        stage.tell(&format!("scale: signals, round {round} of {}", stage.args.rounds));
        stage.yardstick().await?;
        for world in &mut worlds {
            let endpoint = world.group.leader_endpoint().await?;
            let mix = mix(world.clusters, &sizes);
            world.signals.push(signals::streams(&endpoint, &mix, round, stage.args.lasts).await?);
        }
    }
    // Of clusters with strategies and signals, and nothing else: each write that follows leaves its answer for ten minutes, and its text.
    let at_first = match worlds.last_mut() {
        Some(largest) => memory(&mut largest.group, largest.clusters).await?,
        None => None,
    };
    for round in 1..=stage.args.rounds {
        for world in &mut worlds {
            stage.tell(&format!("scale: {} clusters, round {round} of {}", world.clusters, stage.args.rounds));
            world.felt.round(&mut world.group, stage.args.lasts).await?;
        }
    }
    let mut rows = Vec::new();
    let base = worlds.first().and_then(|world| Figures::of(&world.signals));
    for (place, world) in worlds.iter().enumerate() {
        let row = Row::new("scale signals", Some(4), Figures::of(&world.signals)).with_clusters(world.clusters);
        let Some(base) = base.filter(|_| place > 0) else {
            rows.push(row);
            continue;
        };
        let cost = row.figures.map(|figures| base.ops_per_s / figures.ops_per_s);
        rows.push(row.against(&format!("cost with {} clusters", sizes[0]), cost).ratio_at_most(SIGNAL_RATIO_MAX));
    }
    let count = worlds.len();
    for (place, world) in worlds.into_iter().enumerate() {
        let World { clusters, mut group, felt, .. } = world;
        let largest = place + 1 == count;
        if largest {
            rows.extend(at_first.map(|kib| {
                let goal = format!("<= {KIB_PER_CLUSTER_MAX} KiB");
                let row = Row::of_value("scale memory per cluster", kib, "KiB");
                row.with_clusters(clusters).goal(&goal, Some(kib <= KIB_PER_CLUSTER_MAX))
            }));
            // Before anybody is killed: who is started again begins anew.
            let after = memory(&mut group, clusters).await?;
            let row = |kib| Row::of_value("scale memory per cluster after writes", kib, "KiB").with_clusters(clusters);
            rows.extend(after.map(row));
        }
        stage.tell(&format!("scale: {clusters} clusters, killing the leader and reading a journal"));
        rows.extend(felt.finish(&mut group, stage.args.rounds).await?);
        if largest {
            rows.extend(whole_process(&mut group, clusters, scale, stage).await?);
        }
    }
    Ok(rows)
}

fn mix(clusters: u32, sizes: &[u32]) -> Mix {
    Mix { clusters, per_report: 64, collectors: 4, under_way: 16, at_once: sizes.first().copied() }
}

/// Until the nodes have worked off what the making of the clusters has left them: looks at each, and keys of the audit index.
/// The last of those keys are written when some hundred entries more have come, so signals come first that do not count.
async fn at_rest(group: &mut Group, mix: &Mix) -> Result<(), Failed> {
    quiet(group).await?;
    signals::streams(&group.leader_endpoint().await?, mix, 0, REST).await?;
    quiet(group).await
}

async fn quiet(group: &Group) -> Result<(), Failed> {
    let worked = || {
        let pids = (0..group.nodes().len()).filter_map(|place| group.pid(place));
        pids.filter_map(worked_of).sum::<Duration>()
    };
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let before = worked();
        tokio::time::sleep(REST).await;
        if worked().saturating_sub(before) < REST / 10 {
            return Ok(());
        }
    }
    Err(Failed::new(Exit::TimedOut, format!("the nodes did not come to rest within {PATIENCE:?}")))
}

/// KiB that the leader's process has in memory for each cluster.
async fn memory(group: &mut Group, clusters: u32) -> Result<Option<f64>, Failed> {
    let leader = group.leader().await?;
    let resident = group.pid(leader).and_then(resident_bytes_of);
    Ok(resident.map(|bytes| as_f64(bytes) / f64::from(clusters) / 1024.0))
}

/// What snapshots, a restart and a new node take in the group with the most clusters.
async fn whole_process(
    group: &mut Group,
    clusters: u32,
    scale: &Scale,
    stage: &mut Stage<'_>,
) -> Result<Vec<Row>, Failed> {
    let named = |row: Row| row.with_clusters(clusters);
    let leader = group.leader().await?;
    let client = Group::connect([group.nodes()[leader].endpoint.as_str()])?;
    let mut rows = Vec::new();

    stage.tell("scale: a snapshot, and writes beside it");
    let began = Instant::now();
    let bytes = save(&client).await?;
    rows.push(named(Row::of_value("scale snapshot time", began.elapsed().as_secs_f64(), "s")));
    rows.push(named(Row::of_value("scale snapshot size", as_f64(bytes) / 1024.0, "KiB")));
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..stage.args.rounds {
        stage.yardstick().await?;
        without.push(writes(&client, clusters, stage.args.lasts).await?);
        let enough = Arc::new(AtomicBool::new(false));
        let saving = tokio::spawn(save_until(client.clone(), enough.clone()));
        with.push(writes(&client, clusters, stage.args.lasts).await?);
        enough.store(true, Ordering::Relaxed);
        // Without snapshots it would be the first figure once more.
        saving.await.map_err(|error| Failed::new(Exit::Failure, format!("no snapshots were taken: {error}")))??;
    }
    let plain = Figures::of(&without);
    let row = named(Row::new("scale write during snapshots", Some(WRITERS), Figures::of(&with)));
    let ratio = row.figures.zip(plain).map(|(with, without)| with.p99_ms / without.p99_ms);
    rows.push(named(Row::new("scale write without snapshots", Some(WRITERS), plain)));
    rows.push(row.against("p99 without", ratio).ratio_at_most(SNAPSHOT_P99_RATIO_MAX));

    let follower = (0..group.nodes().len()).find(|place| *place != leader).unwrap_or_default();
    stage.tell(&format!("scale: {} reports before a restart", scale.since));
    let from = restart_from(group, follower).await?;
    many_reports(&group.nodes()[leader].endpoint, clusters, scale.since).await?;
    let (seconds, entries) = restart(group, follower, from, stage).await?;
    let row = named(Row::of_value("scale restart after reports", seconds, "s"));
    let what = format!("{} reports in {entries} entries since the snapshot", scale.since);
    rows.push(row.against(&what, None).goal(&format!("<= {RESTART_S_MAX} s"), Some(seconds <= RESTART_S_MAX)));

    // As they come, many requests share an entry. Here each has one of its own.
    for place in 0..group.nodes().len() {
        group.restart_with(place, "--entry-requests-max=1").await?;
    }
    group.leader().await?;
    let follower = (group.leader().await? + 1) % group.nodes().len();
    let from = restart_from(group, follower).await?;
    many_entries(group, clusters, scale.since, stage).await?;
    let (seconds, entries) = restart(group, follower, from, stage).await?;
    let row = named(Row::of_value("scale restart after entries", seconds, "s"));
    let what = format!("{entries} entries of a report each since the snapshot");
    rows.push(row.against(&what, None).goal(&format!("<= {RESTART_S_MAX} s"), Some(seconds <= RESTART_S_MAX)));

    stage.tell("scale: a new node");
    let last = group.applied().await?;
    let began = Instant::now();
    let endpoint = group.start_joiner()?;
    caught_up(&endpoint, last).await?;
    rows.push(named(Row::of_value("scale new node", began.elapsed().as_secs_f64(), "s")));
    Ok(rows)
}

/// The node takes its own snapshot: without one the restart would make every cluster once more, too. Gives the index of it.
async fn restart_from(group: &Group, follower: usize) -> Result<u64, Failed> {
    let client = Group::connect([group.nodes()[follower].endpoint.as_str()])?;
    save(&client).await?;
    Ok(client.status().await?.applied_index)
}

/// How long this node takes until it has applied everything there is, and how many entries that are.
async fn restart(group: &mut Group, place: usize, from: u64, stage: &mut Stage<'_>) -> Result<(f64, u64), Failed> {
    stage.tell("scale: a restart");
    let last = group.applied().await?;
    let endpoint = group.nodes()[place].endpoint.clone();
    // Whoever was behind would have less to do.
    caught_up(&endpoint, last).await?;
    group.kill(place).await?;
    let began = Instant::now();
    group.start_node(place)?;
    caught_up(&endpoint, last).await?;
    Ok((began.elapsed().as_secs_f64(), last - from))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a process or a file")]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}

/// Until this node has applied so much.
pub(super) async fn caught_up(endpoint: &str, index: u64) -> Result<(), Failed> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let client = Group::connect([endpoint])?;
        let status = tokio::time::timeout(Duration::from_secs(1), client.status()).await;
        if matches!(&status, Ok(Ok(status)) if status.applied_index >= index) {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Failed::new(Exit::TimedOut, format!("the node at {endpoint} did not catch up within {PATIENCE:?}")))
}

async fn save(client: &Client) -> Result<u64, Failed> {
    let mut bytes = 0;
    let sink = |part: SnapshotPart<'_>| {
        match part {
            SnapshotPart::Start { bytes_total } => bytes = bytes_total,
            SnapshotPart::Data(_) => {}
        }
        Ok(())
    };
    client.save_snapshot(sink).await?;
    Ok(bytes)
}

/// One snapshot after the other; the last one is finished.
async fn save_until(client: Client, enough: Arc<AtomicBool>) -> Result<(), Failed> {
    while !enough.load(Ordering::Relaxed) {
        save(&client).await?;
    }
    Ok(())
}

pub(super) async fn writes(client: &Client, clusters: u32, lasts: Duration) -> Result<Sample, Failed> {
    let client = client.clone();
    closed_loop(WRITERS, lasts, move |caller, number| {
        let client = client.clone();
        async move { pause(&client, picked(caller, number, clusters), value(caller, number)).await }
    })
    .await
}

async fn many_reports(endpoint: &str, clusters: u32, count: u64) -> Result<(), Failed> {
    const STREAMS: u64 = 4;
    let mix = Mix { clusters, per_report: 1, collectors: 1, under_way: 1_000, at_once: None };
    let streams = (0..STREAMS).map(|stream| {
        let mix = mix.clone();
        async move {
            let client = Group::connect([endpoint])?;
            let options = loadline_client::SignalOptions::of(format!("bench-many-{stream}"));
            let mut sending = client.signal_stream(options);
            for number in 0..count.div_ceil(STREAMS) {
                sending.send(signals::report(&mix, stream, number.wrapping_mul(STREAMS))).await?;
            }
            sending.flush().await?;
            Ok::<_, Failed>(())
        }
    });
    futures::future::try_join_all(streams).await?;
    Ok(())
}

/// As many reports of one observation, each asked for by itself.
async fn many_entries(group: &mut Group, clusters: u32, count: u64, stage: &mut Stage<'_>) -> Result<(), Failed> {
    let endpoint = group.leader_endpoint().await?;
    let connections: Vec<Client> =
        (0..connections(CALLERS)).map(|_| Group::connect([endpoint.as_str()])).collect::<Result<_, _>>()?;
    let mix = Mix { clusters, per_report: 1, collectors: 1, under_way: 1, at_once: None };
    let sent = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for (caller, client) in shared(&connections, CALLERS).into_iter().enumerate() {
        let (mix, sent) = (mix.clone(), sent.clone());
        callers.spawn(async move {
            for sequence in 1.. {
                let number = sent.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    break;
                }
                let clusters = signals::report(&mix, 0, number);
                let collector = format!("bench-entries-{caller}");
                client.report_signals(ReportSignalsRequest { collector, sequence, clusters }).await?;
            }
            Ok::<_, Failed>(())
        });
    }
    let mut tell = tokio::time::interval(TOLD_EVERY);
    loop {
        tokio::select! {
            ended = callers.join_next() => match ended {
                None => return Ok(()),
                Some(ended) => ended.map_err(|error| Failed::new(Exit::Failure, format!("a caller broke down: {error}")))??,
            },
            _ = tell.tick() => {
                let sent = sent.load(Ordering::Relaxed).min(count);
                stage.tell(&format!("scale: {sent} of {count} entries before a restart"));
            }
        }
    }
}

/// The ladder, the clusters with their strategies, and what a collector sees of them.
pub(super) async fn build(client: &Client, clusters: u32) -> Result<(), Failed> {
    let size = |name: &str| Size { name: name.to_owned(), slots: 1, price_micros_per_hour: 1, ..Size::default() };
    let mut first: Vec<Change> = SIZES
        .iter()
        .map(|name| Change::CreateSize(CreateSizeRequest { options: None, size: Some(size(name)) }))
        .collect();
    first.push(set_setting("enable_auto_scaling", "true"));
    // What was said in the beginning must not be stale when its turn comes.
    first.push(set_setting("signal_stale_after", "1h"));
    client.transact(first, Writing::Record).await?;
    let numbers: Vec<u32> = (0..clusters).collect();
    for (sequence, some) in (1..).zip(numbers.chunks(CLUSTERS_AT_ONCE)) {
        client.transact(some.iter().map(|number| founding(*number)).collect(), Writing::Record).await?;
        let clusters = some.iter().map(|number| first_report(*number)).collect();
        client.report_signals(ReportSignalsRequest { collector: "bench".to_owned(), sequence, clusters }).await?;
        client.transact(some.iter().flat_map(|number| strategies(*number)).collect(), Writing::Record).await?;
    }
    Ok(())
}

fn founding(number: u32) -> Change {
    let cluster = Cluster { name: cluster_name(u64::from(number)), ..Cluster::default() };
    Change::CreateCluster(CreateClusterRequest { options: None, cluster: Some(cluster) })
}

/// They come when the replicas that they want have been seen: they have nothing to do.
fn strategies(number: u32) -> impl Iterator<Item = Change> {
    let name = cluster_name(u64::from(number));
    STRATEGIES.into_iter().map(move |(kind, key, value)| {
        let strategy = Strategy {
            r#type: kind.to_owned(),
            target: Some(StrategyTarget { target: Some(Target::Cluster(name.clone())) }),
            options: [(key.to_owned(), value.to_owned())].into(),
            ..Strategy::default()
        };
        Change::CreateStrategy(CreateStrategyRequest { options: None, strategy: Some(strategy), allow_existing: false })
    })
}

fn first_report(number: u32) -> ClusterSignals {
    let mut seen = vec![Seen::Activity(ActivitySeen { idle_for_ms: Some(5_000) })];
    for replica in ["r1_auto", "r2_auto"].map(str::to_owned) {
        seen.push(Seen::Replica(ReplicaSeen {
            name: replica.clone(),
            size: "100cc".to_owned(),
            incarnation: String::new(),
            ready: true,
        }));
        seen.push(Seen::Hydration(HydrationSeen { replica, total: 3, hydrated: 3 }));
    }
    ClusterSignals {
        cluster: Some(cluster_signals::Cluster::Name(cluster_name(u64::from(number)))),
        observations: seen.into_iter().map(|seen| Observation { age_ms: 0, seen: Some(seen) }).collect(),
    }
}

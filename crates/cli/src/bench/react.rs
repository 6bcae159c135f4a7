//! `bench react`: from a signal that is sent to the backend being called.
//!
//! Every sample is a cluster that was suspended for being idle. A collector reports that it is used; the group decides to wake it,
//! claims the action in the log, and calls a webhook receiver, which is this process. The signal and the claim are entries of their
//! own; where nothing else is under way they go to the disks and the followers together. Times are taken here at both ends.
//!
//! Before an idle sample nothing happens for a while, and the processors go to sleep: whatever comes first then takes longer, a disk
//! and a loopback too. So it is held against two syncs and three round trips in a row after the same rest; how it stands to those that
//! never rest is said beside it.

use std::path::Path;
use std::time::Duration;

use loadline_client::v1::change::Change;
use loadline_client::v1::observation::Seen;
use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{
    ActivitySeen, Cluster, ClusterSignals, CreateClusterRequest, CreateSizeRequest, CreateStrategyRequest, Observation,
    ReportSignalsRequest, Size, Strategy, StrategyTarget, cluster_signals,
};
use loadline_client::{Client, SignalOptions, SignalStream, Writing};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use super::figures::{Figures, Sample};
use super::group::Group;
use super::receiver::Receiver;
use super::rows::Row;
use super::signals::{self, Mix};
use super::stage::{Beside, Stage, cluster_name, set_setting};
use crate::exit::{Exit, Failed};

const P50_RATIO_MAX: f64 = 2.0;
const P99_LOADED_MS_MAX: f64 = 50.0;
/// No call may take longer than this.
const PATIENCE: Duration = Duration::from_secs(20);
/// What arrives besides while it is measured under load: so many reports per second, of so many metrics each.
const LOAD_REPORTS_PER_S: u32 = 250;
const LOAD_PER_REPORT: u32 = 64;
/// Of as many samples as under load, one in so many is taken idle: those take their time.
const IDLE_OF: u32 = 4;
/// From a call to the next signal where nothing else may be going on: what is seen of a cluster is collected for 20 ms, and then recorded.
const REST: Duration = Duration::from_millis(50);
/// What a reaction is held against: there and back so many times, with a sync in each gap.
const ROUND_TRIPS: u32 = 3;
/// How often the disk and the loopback are measured after such a rest, in every round.
const RESTED_LOOKS: u32 = 20;
/// The load is there for so long before anything is measured beside it.
const LOAD_AHEAD: Duration = Duration::from_millis(500);
const CLUSTERS_AT_ONCE: usize = 100;
const HOUR_MS: u64 = 3_600_000;

pub(super) async fn measure(samples: u32, stage: &mut Stage<'_>) -> Result<Vec<Row>, Failed> {
    stage.begin("react", Beside::Nothing).await?;
    stage.tell("react: starting three nodes and a receiver");
    let receiver = Receiver::start().await?;
    let arguments = backend(stage.folder(), &receiver)?;
    let mut group = Group::start(stage.folder(), "react", &arguments).await?;
    let client = group.client()?;
    let idle_samples = samples.div_ceil(IDLE_OF);
    let clusters = (idle_samples + samples * 2) * stage.args.rounds;
    asleep(&client, clusters).await?;
    let leader = Group::connect([group.leader_endpoint().await?.as_str()])?;
    let (mut idle, mut busy, mut loaded) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = 0..clusters;
    // As collectors do, and not a call for each.
    let mut signals = leader.signal_stream(SignalOptions::of("bench-used"));
    for round in 1..=stage.args.rounds {
        stage.tell(&format!("react: round {round} of {}, idle", stage.args.rounds));
        stage.yardstick().await?;
        let some = next.by_ref().take(idle_samples as usize);
        idle.push(wake(&mut signals, &receiver, some, REST).await?);
        stage.yardstick.measure_rested(RESTED_LOOKS, REST, ROUND_TRIPS).await?;
        stage.tell(&format!("react: round {round} of {}, one after the other", stage.args.rounds));
        let some = next.by_ref().take(samples as usize);
        busy.push(wake(&mut signals, &receiver, some, Duration::ZERO).await?);
        stage.tell(&format!("react: round {round} of {}, under load", stage.args.rounds));
        let mut beside = JoinSet::new();
        beside.spawn(load(leader.clone(), clusters, round));
        let measured = async {
            tokio::time::sleep(LOAD_AHEAD).await;
            wake(&mut signals, &receiver, next.by_ref().take(samples as usize), Duration::ZERO).await
        };
        loaded.push(tokio::select! {
            measured = measured => measured?,
            // Without its load it would be the first figure once more.
            ended = beside.join_next() => return Err(load_ended(ended)),
        });
    }
    let (rested_ms, steady_ms) =
        (stage.yardstick.rested_ms(), stage.yardstick.floor_ms(f64::from(ROUND_TRIPS - 1), f64::from(ROUND_TRIPS)));
    let row = Row::new("react idle", Some(1), Figures::of(&idle));
    let steady =
        row.figures.map_or(String::new(), |it| format!("; {:.2} times those that do not rest", it.p50_ms / steady_ms));
    let row = row.of_mix(&format!(
        "react idle: {} ms of rest before each signal, and before the syncs and round trips that it is held against{steady}",
        REST.as_millis()
    ));
    let idle = row.p50_against("p50 to 2 fdatasync + 3 round trips", rested_ms).ratio_at_most(P50_RATIO_MAX);
    let busy = Row::new("react one after the other", Some(1), Figures::of(&busy));
    let row = Row::new("react under load", Some(1), Figures::of(&loaded));
    let met = row.figures.map(|it| it.p99_ms <= P99_LOADED_MS_MAX);
    let per_s = LOAD_REPORTS_PER_S * LOAD_PER_REPORT;
    let row = row.of_mix(&format!(
        "react under load: {per_s} metrics a second besides, on another stream, about the same clusters"
    ));
    let loaded = row.goal(&format!("p99 <= {P99_LOADED_MS_MAX} ms"), met);
    Ok(vec![idle, busy, loaded])
}

/// What every node is told, so that it finds the receiver.
pub(super) fn backend(folder: &Path, receiver: &Receiver) -> Result<Vec<String>, Failed> {
    let (secret, config) = (folder.join("secret"), folder.join("backend.toml"));
    std::fs::write(&secret, "only a benchmark, nobody else listens")?;
    std::fs::write(&config, receiver.config(&secret))?;
    Ok(vec!["--config".to_owned(), config.display().to_string()])
}

/// Makes clusters that are idle and therefore have no replicas. They have a backend only when that is known: before, nothing could
/// be done for them.
pub(super) async fn asleep(client: &Client, count: u32) -> Result<(), Failed> {
    let size = Size { name: "25cc".to_owned(), slots: 1, price_micros_per_hour: 1, ..Size::default() };
    let first = vec![
        Change::CreateSize(CreateSizeRequest { options: None, size: Some(size) }),
        set_setting("enable_auto_scaling", "true"),
        // Long runs must not make what was said in the beginning stale.
        set_setting("signal_stale_after", "1h"),
    ];
    client.transact(first, Writing::Record).await?;
    let numbers: Vec<u32> = (0..count).collect();
    for (sequence, some) in (1..).zip(numbers.chunks(CLUSTERS_AT_ONCE)) {
        client.transact(some.iter().flat_map(|number| sleeper(*number)).collect(), Writing::Record).await?;
        let report = ReportSignalsRequest {
            collector: "bench-idle".to_owned(),
            sequence,
            clusters: some.iter().map(|number| used(*number, 2 * HOUR_MS)).collect(),
        };
        client.report_signals(report).await?;
    }
    client.transact(vec![set_setting("default_backend", "bench")], Writing::Record).await?;
    Ok(())
}

pub(super) fn sleeper(number: u32) -> Vec<Change> {
    let name = cluster_name(u64::from(number));
    let strategy = |kind: &str, key: &str, value: &str| {
        let target = StrategyTarget { target: Some(Target::Cluster(name.clone())) };
        let strategy = Strategy {
            r#type: kind.to_owned(),
            target: Some(target),
            options: [(key.to_owned(), value.to_owned())].into(),
            ..Strategy::default()
        };
        Change::CreateStrategy(CreateStrategyRequest { options: None, strategy: Some(strategy), allow_existing: false })
    };
    let cluster = Cluster { name: name.clone(), ..Cluster::default() };
    vec![
        Change::CreateCluster(CreateClusterRequest { options: None, cluster: Some(cluster) }),
        strategy("target_size", "SIZE", "25cc"),
        strategy("idle_suspend", "IDLE_AFTER", "1h"),
    ]
}

pub(super) fn used(number: u32, idle_for_ms: u64) -> ClusterSignals {
    let seen = Seen::Activity(ActivitySeen { idle_for_ms: Some(idle_for_ms) });
    ClusterSignals {
        cluster: Some(cluster_signals::Cluster::Name(cluster_name(u64::from(number)))),
        observations: vec![Observation { age_ms: 0, seen: Some(seen) }],
    }
}

/// Wakes one cluster after the other, with a rest before each.
async fn wake(
    signals: &mut SignalStream,
    receiver: &Receiver,
    clusters: impl Iterator<Item = u32>,
    rest: Duration,
) -> Result<Sample, Failed> {
    let mut took = Vec::new();
    for number in clusters {
        if !rest.is_zero() {
            tokio::time::sleep(rest).await;
        }
        let sent = Instant::now();
        signals.send(vec![used(number, 0)]).await?;
        took.push(called(receiver, number).await?.saturating_duration_since(sent));
        signals.flush().await?;
    }
    let elapsed = took.iter().sum();
    Ok(Sample::new(took, elapsed))
}

/// Reports that a cluster is used, until somebody takes it, and waits until its first order arrives.
pub(super) async fn react(client: &Client, receiver: &Receiver, number: u32) -> Result<Duration, Failed> {
    let report = ReportSignalsRequest {
        collector: "bench-used".to_owned(),
        sequence: u64::from(number) + 1,
        clusters: vec![used(number, 0)],
    };
    let began = Instant::now();
    let (reported, called) = tokio::join!(client.report_signals(report), called(receiver, number));
    reported?;
    Ok(called?.saturating_duration_since(began))
}

/// When the backend was first called for a cluster.
async fn called(receiver: &Receiver, number: u32) -> Result<Instant, Failed> {
    let name = cluster_name(u64::from(number));
    tokio::time::timeout(PATIENCE, receiver.called(&name)).await.map_err(|_| {
        Failed::new(Exit::TimedOut, format!("{name} was used, and the backend was not called within {PATIENCE:?}"))
    })
}

fn load_ended(ended: Option<Result<Result<(), Failed>, JoinError>>) -> Failed {
    match ended {
        Some(Ok(Err(failed))) => failed,
        ended => Failed::new(Exit::Failure, format!("the load ended before what was measured beside it: {ended:?}")),
    }
}

/// Reports about the same clusters, which tell nothing that anybody acts on, at a rate that a busy installation has. Ends only when it fails.
async fn load(client: Client, clusters: u32, round: u32) -> Result<(), Failed> {
    let mix = Mix { clusters, per_report: LOAD_PER_REPORT, collectors: 1, under_way: 1_000, at_once: None };
    let mut stream = client.signal_stream(SignalOptions::of(format!("bench-load-{round}")));
    let mut every = tokio::time::interval(Duration::from_secs(1) / LOAD_REPORTS_PER_S);
    for number in 0.. {
        every.tick().await;
        stream.send(signals::metrics(&mix, number)).await?;
    }
    Ok(())
}

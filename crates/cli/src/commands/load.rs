//! `load`: makes believe that a cluster is used, through the same door as any collector.
//!
//! Not here: how reports find their way while leaders change (`loadline-client`'s `SignalStream`).

use std::time::Duration;

use clap::{Args, ValueEnum};
use loadline_client::v1::observation::Seen;
use loadline_client::v1::{ActivitySeen, ClusterSignals, MetricSeen, Observation, cluster_signals};
use loadline_client::{Acknowledged, SignalOptions, SignalStream};
use serde::Serialize;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::Session;
use crate::exit::{Exit, Failed};
use crate::output::{Column, View, one};
use crate::text::parse_duration;

/// What a busy cluster is said to serve at its peak. Nothing depends on it but what a strategy makes of it.
const PEAK_PER_SECOND: u32 = 1_000;
const STEADY_PER_SECOND: u32 = 200;
/// Name of the metric beside the activity.
const METRIC: &str = "requests_per_second";

#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// Name of the cluster
    cluster: String,
    /// How the use of it goes over time
    #[arg(long, value_enum, default_value = "steady")]
    shape: Shape,
    /// How long, such as 2m
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration, default_value = "1m")]
    lasts: Duration,
    /// Time between two reports, such as 500ms
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "500ms")]
    every: Duration,
    /// Under which name it is reported; two loads at the same time need two names
    #[arg(long, value_name = "NAME", default_value = "load")]
    collector: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// Quiet, then a peak in the middle, then quiet again.
    Spike,
    /// Used all the time.
    Steady,
    /// Watched, and not used at all.
    Idle,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Shape::Spike => "spike",
            Shape::Steady => "steady",
            Shape::Idle => "idle",
        }
    }

    /// What is going on at `elapsed` of `lasts`: requests in a second, and how long ago the last one was.
    fn at(self, elapsed: Duration, lasts: Duration) -> (u32, Duration) {
        match self {
            Shape::Steady => (STEADY_PER_SECOND, Duration::ZERO),
            Shape::Idle => (0, elapsed),
            Shape::Spike => {
                let (rises, falls) = (lasts / 4, lasts * 3 / 4);
                if elapsed < rises {
                    return (0, elapsed);
                }
                if elapsed >= falls {
                    return (0, elapsed - falls);
                }
                // Up to the middle, and down again; never quite nothing.
                let half = (lasts / 4).as_millis().max(1);
                let from_middle = elapsed.abs_diff(lasts / 2).as_millis().min(half);
                let height = u128::from(PEAK_PER_SECOND) * (half - from_middle) / half;
                (u32::try_from(height).unwrap_or(PEAK_PER_SECOND).max(1), Duration::ZERO)
            }
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct LoadView {
    cluster: String,
    shape: &'static str,
    collector: String,
    /// Reports made.
    sent: u64,
    /// Reports that are recorded.
    acknowledged: u64,
    /// Repeats that were answered as heard before: they changed nothing.
    duplicated: u64,
    /// Reports sent once more because their acknowledgement was lost.
    resent: u64,
    first_sequence: u64,
    last_sequence: u64,
    last_revision: u64,
    seconds: u64,
    /// The longest that a report waited for its acknowledgement: a change of leader shows here.
    longest_wait_ms: u64,
}

impl View for LoadView {
    const COLUMNS: &'static [Column] = &[
        Column::always("CLUSTER"),
        Column::always("SHAPE"),
        Column::always("SENT"),
        Column::always("ACKNOWLEDGED"),
        Column::always("DUPLICATED"),
        Column::always("RESENT"),
        Column::always("LONGEST-WAIT"),
        Column::wide("COLLECTOR"),
        Column::wide("FIRST"),
        Column::wide("LAST"),
        Column::wide("REVISION"),
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.cluster.clone(),
            self.shape.to_owned(),
            self.sent.to_string(),
            self.acknowledged.to_string(),
            self.duplicated.to_string(),
            self.resent.to_string(),
            format!("{}ms", self.longest_wait_ms),
            self.collector.clone(),
            self.first_sequence.to_string(),
            self.last_sequence.to_string(),
            self.last_revision.to_string(),
        ]
    }

    fn name(&self) -> String {
        format!("clusters/{}", self.cluster)
    }
}

pub(crate) async fn load(args: LoadArgs, session: Session<'_>) -> Result<(), Failed> {
    if args.every.is_zero() || args.every > args.lasts {
        return Err(Failed::usage("--every must be above zero and not above --for"));
    }
    let stream = session.client.signal_stream(SignalOptions::of(&args.collector));
    let bar = progress(&args, session.console.watched);
    if !session.console.watched {
        session.console.say(&format!("{} load on {} for {:?}", args.shape.name(), args.cluster, args.lasts));
    }
    let mut sending = Sending::new(&args, stream);
    let ended = sending.run(&bar).await;
    bar.finish_and_clear();
    // What was recorded is worth knowing, however it ended.
    session.console.data(&one(session.format, &sending.view())?)?;
    ended
}

fn progress(args: &LoadArgs, watched: bool) -> indicatif::ProgressBar {
    if !watched {
        return indicatif::ProgressBar::hidden();
    }
    let bar = indicatif::ProgressBar::new(millis(args.lasts));
    let style = indicatif::ProgressStyle::with_template("{prefix} [{bar:30}] {elapsed} {msg}");
    bar.with_style(style.unwrap_or_else(|_| indicatif::ProgressStyle::default_bar())).with_prefix(format!(
        "{} load on {}",
        args.shape.name(),
        args.cluster
    ))
}

struct Sending<'a> {
    args: &'a LoadArgs,
    stream: SignalStream,
    first_sequence: u64,
    began: Instant,
    sent: u64,
    last_revision: u64,
    longest_wait: Duration,
}

impl<'a> Sending<'a> {
    fn new(args: &'a LoadArgs, stream: SignalStream) -> Sending<'a> {
        Sending {
            args,
            first_sequence: stream.next_sequence(),
            stream,
            began: Instant::now(),
            sent: 0,
            last_revision: 0,
            longest_wait: Duration::ZERO,
        }
    }

    /// Until the time is over, or somebody presses Ctrl-C; then until all is acknowledged.
    async fn run(&mut self, bar: &indicatif::ProgressBar) -> Result<(), Failed> {
        let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
        let mut next = self.began;
        loop {
            let elapsed = self.began.elapsed();
            if elapsed >= self.args.lasts {
                break;
            }
            let acknowledged = self.stream.send(self.report(elapsed)).await?;
            self.sent += 1;
            self.heard(acknowledged)?;
            // A leader change may have taken longer than the pause: then the next one goes out at once, and none is made up for.
            next = (next + self.args.every).max(Instant::now());
            tokio::select! {
                biased;
                _ = &mut interrupted => break,
                waited = self.wait_until(next, bar) => waited?,
            }
        }
        let rest = self.stream.flush().await?;
        self.heard(rest)
    }

    fn report(&self, elapsed: Duration) -> Vec<ClusterSignals> {
        let (rate, idle_for) = self.args.shape.at(elapsed, self.args.lasts);
        let seen = |seen| Observation { age_ms: 0, seen: Some(seen) };
        let metric = MetricSeen { name: METRIC.to_owned(), value_milli: i64::from(rate) * 1_000 };
        vec![ClusterSignals {
            cluster: Some(cluster_signals::Cluster::Name(self.args.cluster.clone())),
            observations: vec![
                seen(Seen::Activity(ActivitySeen { idle_for_ms: Some(millis(idle_for)) })),
                seen(Seen::Metric(metric)),
            ],
        }]
    }

    /// Takes in acknowledgements until it is time for the next report.
    async fn wait_until(&mut self, next: Instant, bar: &indicatif::ProgressBar) -> Result<(), Failed> {
        loop {
            let tally = self.stream.tally();
            bar.set_position(millis(self.began.elapsed()));
            bar.set_message(format!(
                "{} sent, {} acknowledged, {} under way",
                self.sent,
                tally.recorded + tally.repeated,
                self.stream.unacknowledged()
            ));
            match timeout_at(next, self.stream.next()).await {
                Err(_) => return Ok(()),
                Ok(Ok(Some(acknowledged))) => self.heard(vec![acknowledged])?,
                Ok(Ok(None)) => {
                    sleep_until(next).await;
                    return Ok(());
                }
                Ok(Err(error)) => return Err(error.into()),
            }
        }
    }

    fn heard(&mut self, acknowledged: Vec<Acknowledged>) -> Result<(), Failed> {
        for one in acknowledged {
            self.last_revision = self.last_revision.max(one.revision);
            self.longest_wait = self.longest_wait.max(one.took);
            if !one.unknown_clusters.is_empty() {
                let message = format!("clusters/{} does not exist", self.args.cluster);
                return Err(Failed::new(Exit::NotFound, message).hint("see loadline get clusters"));
            }
        }
        Ok(())
    }

    fn view(&self) -> LoadView {
        let tally = self.stream.tally();
        LoadView {
            cluster: self.args.cluster.clone(),
            shape: self.args.shape.name(),
            collector: self.args.collector.clone(),
            sent: self.sent,
            acknowledged: tally.recorded + tally.repeated,
            duplicated: tally.repeated,
            resent: tally.resent,
            first_sequence: self.first_sequence,
            last_sequence: self.stream.next_sequence().saturating_sub(1),
            last_revision: self.last_revision,
            seconds: self.began.elapsed().as_secs(),
            longest_wait_ms: millis(self.longest_wait),
        }
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_does_what_its_name_says() {
        let (lasts, at) = (Duration::from_secs(100), |seconds| Duration::from_secs(seconds));
        let spike: Vec<(u32, u64)> = [0, 24, 25, 30, 50, 70, 74, 75, 99]
            .map(|seconds| Shape::Spike.at(at(seconds), lasts))
            .map(|(rate, idle)| (rate, idle.as_secs()))
            .to_vec();
        let expected = [(0, 0), (0, 24), (1, 0), (200, 0), (1000, 0), (200, 0), (40, 0), (0, 0), (0, 24)];
        assert_eq!(spike, expected);
        assert_eq!(Shape::Steady.at(at(60), lasts), (STEADY_PER_SECOND, Duration::ZERO));
        assert_eq!(Shape::Idle.at(at(60), lasts), (0, at(60)));
        // However short it is.
        assert_eq!(Shape::Spike.at(Duration::ZERO, Duration::from_nanos(1)), (0, Duration::ZERO));
    }
}

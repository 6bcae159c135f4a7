//! `signal`: what a collector would see, by hand or from a file.

use std::collections::{BTreeSet, VecDeque};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use loadline_client::v1::observation::Seen;
use loadline_client::v1::{
    ActivitySeen, ClusterSignals, CrashSeen, HydrationSeen, MetricSeen, NoticeSeen, NoticeType, Observation,
    ReplicaGone, ReplicaSeen, cluster_signals,
};
use loadline_client::{Acknowledged, Error, Numbering, SignalOptions, SignalStream};
use tokio::sync::mpsc;

use super::Session;
use super::scaling::{done, millis};
use crate::exit::{Exit, Failed};
use crate::output::{Format, json_line};
use crate::scaling_args::{NoticeWord, Sight, SignalArgs};
use crate::signal_lines;

pub(crate) async fn signal(args: SignalArgs, session: Session<'_>) -> Result<(), Failed> {
    let options = SignalOptions {
        numbering: args.sequence.map_or(Numbering::Clock, Numbering::From),
        outage_max: session.timeout,
        ..SignalOptions::of(args.collector)
    };
    let stream = session.client.signal_stream(options);
    match (args.cluster, args.what, args.file) {
        (None, None, Some(file)) => many(&file, stream, session).await,
        (Some(cluster), Some(what), None) => {
            let age_ms = args.age.map(millis).unwrap_or_default();
            let observations = vec![Observation { age_ms, seen: Some(seen(what)) }];
            one(cluster, observations, stream, session).await
        }
        (Some(_), None, _) => {
            Err(Failed::usage("what was seen? One of alive, activity, replica, gone, hydration, crash, metric, notice")
                .hint("such as: loadline signal demo activity --idle-for 1h"))
        }
        (_, Some(_), Some(_)) => Err(Failed::usage("--file says what was seen: leave the rest out")),
        (None, _, _) => Err(Failed::usage("of which cluster? Name it first, as in: loadline signal demo alive")),
    }
}

async fn one(
    cluster: String,
    observations: Vec<Observation>,
    mut stream: SignalStream,
    mut session: Session<'_>,
) -> Result<(), Failed> {
    let name = format!("clusters/{cluster}");
    let sequence = stream.next_sequence();
    let cluster = Some(cluster_signals::Cluster::Name(cluster));
    let mut answers = stream.send(vec![ClusterSignals { cluster, observations }]).await?;
    answers.extend(stream.flush().await?);
    let Some(answer) = answers.pop() else {
        return Err(Failed::new(Exit::Failure, "the report was sent, but not answered"));
    };
    if answer.repeated {
        let message = format!("report {sequence} was heard before, or a later one was");
        return Err(Failed::new(Exit::Conflict, message).hint("give a higher --sequence, or none"));
    }
    if !answer.unknown_clusters.is_empty() {
        return Err(Failed::new(Exit::NotFound, format!("{name} does not exist")));
    }
    done(&name, "signal recorded", answer.revision, false, &mut session)
}

/// One line that was read, and where.
type Line = (usize, Result<String, std::io::Error>);

/// Reports of a file are sent when all of them are right; those of stdin as they come, because it may never end.
async fn many(file: &Path, stream: SignalStream, session: Session<'_>) -> Result<(), Failed> {
    let mut sending = Sending { stream, lines: VecDeque::new(), unknown: BTreeSet::new(), shown: shown(file) };
    if file == Path::new("-") {
        sending.read_stdin().await?;
    } else {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failed::usage(format!("{} cannot be read: {error}", sending.shown)))?;
        let mut reports = Vec::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            reports.push((number, sending.read(number, line)?));
        }
        if reports.is_empty() {
            return Err(Failed::usage(format!(
                "{}: there is nothing in it; write a report on each line",
                sending.shown
            )));
        }
        for (number, report) in reports {
            sending.send(number, report).await?;
        }
        sending.flush().await?;
    }
    let tally = sending.stream.tally();
    match session.format {
        Format::Json | Format::Jsonl => {
            let unknown: Vec<&String> = sending.unknown.iter().collect();
            let line = serde_json::json!({
                "recorded": tally.recorded, "repeated": tally.repeated, "resent": tally.resent, "unknown_clusters": unknown,
            });
            session.console.data(&json_line(&line)?)?;
        }
        _ => session.console.line(&format!("{}{}", reports(tally.recorded, "recorded"), heard(tally.repeated)))?,
    }
    if sending.unknown.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = sending.unknown.iter().map(String::as_str).collect();
    Err(Failed::new(Exit::NotFound, format!("there is no cluster {}; what was said of it is lost", names.join(", "))))
}

fn reports(count: u64, word: &str) -> String {
    format!("{count} {} {word}", if count == 1 { "report" } else { "reports" })
}

fn heard(count: u64) -> String {
    if count == 0 { String::new() } else { format!(", {count} heard before") }
}

fn shown(file: &Path) -> String {
    if file == Path::new("-") { "stdin".to_owned() } else { PathBuf::from(file).display().to_string() }
}

/// Reports under way, and the lines they came from.
struct Sending {
    stream: SignalStream,
    lines: VecDeque<usize>,
    unknown: BTreeSet<String>,
    shown: String,
}

impl Sending {
    fn read(&self, number: usize, line: &str) -> Result<ClusterSignals, Failed> {
        signal_lines::parse(line).map_err(|wrong| Failed::usage(format!("{}, line {number}: {wrong}", self.shown)))
    }

    async fn read_stdin(&mut self) -> Result<(), Failed> {
        let (sender, mut lines) = mpsc::channel::<Line>(64);
        // A thread of its own: reading stdin blocks, and acknowledgements come meanwhile.
        std::thread::spawn(move || {
            for line in (1..).zip(std::io::stdin().lock().lines()) {
                if sender.blocking_send(line).is_err() {
                    return;
                }
            }
        });
        loop {
            let line = tokio::select! {
                biased;
                answer = self.stream.next(), if self.stream.unacknowledged() > 0 => {
                    self.took(answer)?;
                    continue;
                }
                line = lines.recv() => line,
            };
            let Some((number, line)) = line else { return self.flush().await };
            let line = line.map_err(|error| Failed::usage(format!("{} cannot be read: {error}", self.shown)))?;
            if line.trim().is_empty() {
                continue;
            }
            match self.read(number, &line) {
                Ok(report) => self.send(number, report).await?,
                Err(wrong) => {
                    self.flush().await?;
                    let before = reports(self.stream.tally().recorded, "before it recorded");
                    return Err(wrong.hint(format!("{before}; correct the line and go on from there")));
                }
            }
        }
    }

    async fn send(&mut self, number: usize, report: ClusterSignals) -> Result<(), Failed> {
        self.lines.push_back(number);
        match self.stream.send(vec![report]).await {
            Ok(answers) => answers.into_iter().try_for_each(|answer| self.took(Ok(Some(answer)))),
            Err(error) => self.took(Err(error)),
        }
    }

    async fn flush(&mut self) -> Result<(), Failed> {
        while self.stream.unacknowledged() > 0 {
            let answer = self.stream.next().await;
            self.took(answer)?;
        }
        Ok(())
    }

    fn took(&mut self, answer: Result<Option<Acknowledged>, Error>) -> Result<(), Failed> {
        match answer {
            Ok(None) => Ok(()),
            Ok(Some(answer)) => {
                self.lines.pop_front();
                self.unknown.extend(answer.unknown_clusters);
                Ok(())
            }
            Err(error) => {
                let refused = error.refusal().is_some();
                let mut failed = Failed::from(error);
                // Answers come in the order of the lines.
                if let Some(number) = self.lines.front().filter(|_| refused) {
                    failed.message = format!("{}, line {number}: {}", self.shown, failed.message);
                }
                let recorded = self.stream.tally().recorded;
                Err(failed.hint(format!("{} before it", reports(recorded, "recorded"))))
            }
        }
    }
}

fn seen(what: Sight) -> Seen {
    match what {
        Sight::Alive => Seen::Alive(true),
        Sight::Activity { none: true, .. } => Seen::Activity(ActivitySeen { idle_for_ms: None }),
        Sight::Activity { idle_for, none: false } => {
            Seen::Activity(ActivitySeen { idle_for_ms: Some(idle_for.map(millis).unwrap_or_default()) })
        }
        Sight::Replica { name, size, ready, incarnation } => {
            Seen::Replica(ReplicaSeen { name, size, incarnation, ready })
        }
        Sight::Gone { name, incarnation } => Seen::Gone(ReplicaGone { name, incarnation }),
        Sight::Hydration { replica, total, hydrated } => Seen::Hydration(HydrationSeen { replica, total, hydrated }),
        Sight::Crash { replica, oom, reason, count } => Seen::Crash(CrashSeen { replica, oom, reason, count }),
        Sight::Metric { name, value } => Seen::Metric(MetricSeen { name, value_milli: value }),
        Sight::Notice { replica, kind, gone_in } => {
            let kind = match kind {
                NoticeWord::Spot => NoticeType::Spot,
                NoticeWord::Preemption => NoticeType::Preemption,
            };
            Seen::Notice(NoticeSeen { replica, r#type: kind.into(), gone_in_ms: gone_in.map(millis) })
        }
    }
}

//! A stream of reports that outlives the nodes it goes to.
//!
//! Reports of one collector are numbered. What was not acknowledged when a connection broke is sent again, in order and under
//! the numbers it had, so the group recognises what it had recorded already: nothing is lost and nothing counts twice. Ages
//! grow with the time that a report waited here, so an outage does not make old news fresh.
//!
//! Nothing runs behind the caller's back: acknowledgements are taken in, and lost nodes are left, while somebody waits in
//! [`SignalStream::send`], [`SignalStream::next`] or [`SignalStream::flush`]. For one report now and then there is
//! [`Client::report_signals`].

use std::collections::VecDeque;
use std::time::Duration;

use futures::FutureExt as _;
use loadline_api::v1::{ClusterSignals, ReportSignalsRequest, ReportSignalsResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Streaming;

use crate::call::{Backoff, Tried};
use crate::client::Client;
use crate::endpoint::{Endpoint, NotConnected};
use crate::error::{Error, Failure};

/// Whose reports, how they are numbered, and how many may be under way.
#[derive(Debug, Clone)]
pub struct SignalOptions {
    /// Who saw it. Two that report at the same time need two names.
    pub collector: String,
    pub numbering: Numbering,
    /// Reports without an acknowledgement. A node records together what has arrived, so more of them make one sync of the disk
    /// serve more reports, and cost memory while nobody answers.
    pub unacknowledged_max: usize,
    /// Give up waiting when for this long no node took anything.
    pub outage_max: Duration,
}

impl SignalOptions {
    pub fn of(collector: impl Into<String>) -> SignalOptions {
        SignalOptions {
            collector: collector.into(),
            numbering: Numbering::Clock,
            unacknowledged_max: 1_024,
            outage_max: Duration::from_secs(60),
        }
    }
}

/// Where the numbers of reports come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// They begin at the time in milliseconds, which is higher than what an earlier process of the same name used. Should it
    /// not be, as with a clock that was set back, a report that nobody can have heard before gets a higher number.
    Clock,
    /// They begin here, and keep to it: who has written down which reports were sent can send them again, and is told which
    /// of them were heard before.
    From(u64),
}

/// A report that is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    pub sequence: u64,
    /// The log index at which it was recorded. Of one that had been recorded before: where it was recognised.
    pub revision: u64,
    /// It was heard before, and this time it changed nothing.
    pub repeated: bool,
    /// Clusters that do not exist, or no longer; at most 20 of them.
    pub unknown_clusters: Vec<String>,
    /// From being handed over here to the acknowledgement.
    pub took: Duration,
}

/// What became of all reports of a stream so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Acknowledged as new.
    pub recorded: u64,
    /// Acknowledged as heard before.
    pub repeated: u64,
    /// Refused, and not sent again.
    pub refused: u64,
    /// Sent once more because the first acknowledgement was lost. One report can count more than once.
    pub resent: u64,
    /// Given a higher number because theirs was used up.
    pub renumbered: u64,
}

/// Reports on their way to the group.
#[derive(Debug)]
pub struct SignalStream {
    client: Client,
    options: SignalOptions,
    next_sequence: u64,
    /// Not acknowledged, in the order of their numbers. Those at the front are written to the open stream.
    waiting: VecDeque<Waiting>,
    /// How many of `waiting` are written to the open stream.
    written: usize,
    open: Option<Open>,
    /// Acknowledged by an answer that stood for several, and not given out yet.
    given: VecDeque<Acknowledged>,
    tally: Tally,
    backoff: Backoff,
    tried: Tried,
    lost_since: Option<Instant>,
    not_before: Instant,
    /// When a node last took something, or was last given something after a pause.
    heard: Instant,
}

#[derive(Debug)]
struct Waiting {
    report: ReportSignalsRequest,
    since: Instant,
    /// How many streams it was written to. After the first, somebody may have heard it.
    streams: u32,
}

#[derive(Debug)]
struct Open {
    reports: mpsc::UnboundedSender<ReportSignalsRequest>,
    answers: Streaming<ReportSignalsResponse>,
    endpoint: Endpoint,
    turn: usize,
}

impl Client {
    /// Nothing is sent before the first report.
    pub fn signal_stream(&self, options: SignalOptions) -> SignalStream {
        let next_sequence = match options.numbering {
            Numbering::From(first) => first.max(1),
            Numbering::Clock => self.pool.surroundings().now_ms().max(1),
        };
        SignalStream {
            next_sequence,
            waiting: VecDeque::new(),
            written: 0,
            open: None,
            given: VecDeque::new(),
            tally: Tally::default(),
            backoff: self.pool.backoff(),
            tried: Tried::default(),
            lost_since: None,
            not_before: Instant::now(),
            heard: Instant::now(),
            client: self.clone(),
            options,
        }
    }
}

impl SignalStream {
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Reports that are not acknowledged yet.
    pub fn unacknowledged(&self) -> usize {
        self.waiting.len()
    }

    /// The number that the next report will have.
    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Takes a report in and sends it. Waits only for a connection, or while too many are under way, and gives what was
    /// acknowledged meanwhile.
    ///
    /// The report is taken in even if an error comes back: what went wrong is about the stream, or about the oldest report
    /// that was under way (see [`SignalStream::next`]).
    pub async fn send(&mut self, clusters: Vec<ClusterSignals>) -> Result<Vec<Acknowledged>, Error> {
        let report =
            ReportSignalsRequest { collector: self.options.collector.clone(), sequence: self.take_number()?, clusters };
        if self.waiting.is_empty() {
            self.heard = Instant::now();
        }
        self.waiting.push_back(Waiting { report, since: Instant::now(), streams: 0 });
        self.write();
        let mut acknowledged = Vec::new();
        while !self.waiting.is_empty() || !self.given.is_empty() {
            if self.open.is_none() || self.waiting.len() > self.options.unacknowledged_max.max(1) {
                acknowledged.extend(self.step().await?);
            } else {
                match self.step().now_or_never() {
                    Some(step) => acknowledged.extend(step?),
                    None => break,
                }
            }
        }
        Ok(acknowledged)
    }

    /// The next acknowledgement, in the order of sending; nothing if none is awaited. May be dropped while it waits.
    ///
    /// [`Error::Refused`] is about the oldest report that was under way. That one is given up; those behind it stay, and go on
    /// with the next call. After any other error everything stays, and the next call tries again.
    pub async fn next(&mut self) -> Result<Option<Acknowledged>, Error> {
        while !self.waiting.is_empty() || !self.given.is_empty() {
            if let Some(acknowledged) = self.step().await? {
                return Ok(Some(acknowledged));
            }
        }
        Ok(None)
    }

    /// Waits until everything is acknowledged, and gives what was acknowledged meanwhile.
    pub async fn flush(&mut self) -> Result<Vec<Acknowledged>, Error> {
        let mut acknowledged = Vec::new();
        while let Some(one) = self.next().await? {
            acknowledged.push(one);
        }
        Ok(acknowledged)
    }

    fn take_number(&mut self) -> Result<u64, Error> {
        let number = self.next_sequence;
        let used_up = || Error::Local(format!("collector '{}' has used up its numbers", self.options.collector));
        self.next_sequence = number.checked_add(1).ok_or_else(used_up)?;
        Ok(number)
    }

    /// Writes what is not written to the open stream. The node reads it when it has recorded what came before.
    fn write(&mut self) {
        let Some(open) = &self.open else { return };
        for waiting in self.waiting.iter_mut().skip(self.written) {
            let mut report = waiting.report.clone();
            let waited = u64::try_from(waiting.since.elapsed().as_millis()).unwrap_or(u64::MAX);
            for observation in report.clusters.iter_mut().flat_map(|cluster| &mut cluster.observations) {
                observation.age_ms = observation.age_ms.saturating_add(waited);
            }
            // A stream that has ended says so where its answers are read.
            let _ = open.reports.send(report);
            self.tally.resent += u64::from(waiting.streams > 0);
            waiting.streams += 1;
            self.written += 1;
        }
    }

    /// One step towards the next acknowledgement: opens a stream, or waits for an answer on the open one.
    async fn step(&mut self) -> Result<Option<Acknowledged>, Error> {
        if let Some(given) = self.given.pop_front() {
            return Ok(Some(given));
        }
        let Some(open) = &mut self.open else {
            self.connect().await?;
            return Ok(None);
        };
        let until = self.heard + self.client.options.attempt_timeout;
        let failure = match tokio::time::timeout_at(until, open.answers.message()).await {
            Ok(Ok(Some(answer))) => return self.acknowledged(answer),
            Ok(Ok(None)) => Failure::NoAnswer { why: "the node ended the stream".to_owned(), timed_out: false },
            Ok(Err(status)) => Failure::of(&status),
            Err(_) => Failure::NoAnswer { why: "no acknowledgement in time".to_owned(), timed_out: true },
        };
        let (endpoint, turn) = (open.endpoint.clone(), open.turn);
        if let Failure::Refused(refusal) = failure {
            // Answers come in order, so it is about the first that has none.
            self.close();
            self.waiting.pop_front();
            self.tally.refused += 1;
            return Err(Error::Refused(refusal));
        }
        self.lost(&endpoint, turn, failure)?;
        Ok(None)
    }

    fn acknowledged(&mut self, answer: ReportSignalsResponse) -> Result<Option<Acknowledged>, Error> {
        self.heard = Instant::now();
        self.lost_since = None;
        self.tried = Tried::default();
        self.backoff.reset();
        let Some(first) = self.waiting.pop_front() else {
            self.close();
            return Err(self.client.malformed("the report that it acknowledges"));
        };
        self.written = self.written.saturating_sub(1);
        // Only one stream has seen it, so nobody can have heard it before: the number was somebody else's.
        if answer.repeated_report && first.streams <= 1 && self.options.numbering == Numbering::Clock {
            self.next_sequence = self.next_sequence.max(answer.sequence.saturating_add(1));
            let mut report = first.report;
            report.sequence = self.take_number()?;
            self.waiting.push_back(Waiting { report, since: first.since, streams: 0 });
            self.tally.renumbered += 1;
            self.write();
            return Ok(None);
        }
        let acknowledged = |one: Waiting, unknown_clusters| Acknowledged {
            sequence: one.report.sequence,
            revision: answer.revision,
            repeated: answer.repeated_report,
            unknown_clusters,
            took: one.since.elapsed(),
        };
        let place = if answer.repeated_report { &mut self.tally.repeated } else { &mut self.tally.recorded };
        *place += 1;
        if first.report.sequence >= answer.sequence || answer.repeated_report {
            return Ok(Some(acknowledged(first, answer.unknown_clusters)));
        }
        // It stands for all up to its sequence.
        self.given.push_back(acknowledged(first, Vec::new()));
        while self.written > 0
            && let Some(one) = self.waiting.pop_front_if(|one| one.report.sequence <= answer.sequence)
        {
            self.written -= 1;
            self.tally.recorded += 1;
            self.given.push_back(acknowledged(one, Vec::new()));
        }
        if let Some(last) = self.given.back_mut() {
            last.unknown_clusters.clone_from(&answer.unknown_clusters);
        }
        Ok(self.given.pop_front())
    }

    /// Opens a stream at the endpoint in use and writes to it all that waits, or moves on from the endpoint.
    async fn connect(&mut self) -> Result<(), Error> {
        tokio::time::sleep_until(self.not_before).await;
        let pool = self.client.pool.clone();
        let (turn, endpoint) = pool.current();
        let channel = match pool.channel(endpoint).await {
            Ok(channel) => channel,
            Err(NotConnected(why)) => return self.lost(endpoint, turn, Failure::NotSent(why)),
        };
        let (reports, mut queue) = mpsc::unbounded_channel();
        let body = futures::stream::poll_fn(move |context| queue.poll_recv(context));
        // No deadline on the call: it is meant to last. Only its beginning is limited.
        let request = self.client.request(body, None);
        let mut service = Client::signals(channel);
        let opening = tokio::time::timeout(self.client.options.attempt_timeout, service.stream_signals(request));
        let failure = match opening.await {
            Ok(Ok(answer)) => {
                self.open = Some(Open { reports, answers: answer.into_inner(), endpoint: endpoint.clone(), turn });
                self.heard = Instant::now();
                self.write();
                return Ok(());
            }
            Ok(Err(status)) => Failure::of(&status),
            Err(_) => Failure::NoAnswer { why: "no answer in time".to_owned(), timed_out: true },
        };
        self.lost(endpoint, turn, failure)
    }

    fn close(&mut self) {
        self.open = None;
        self.written = 0;
    }

    /// Moves on from a node that failed; an error if that is not worth while.
    fn lost(&mut self, endpoint: &Endpoint, turn: usize, failure: Failure) -> Result<(), Error> {
        self.close();
        let mut answer = None;
        let mut connected = true;
        match failure {
            // The stream itself was refused, not a report.
            Failure::Refused(refusal) => return Err(Error::Refused(refusal)),
            Failure::NotNow { refusal, .. } => {
                self.tried.note(endpoint, &refusal.to_string());
                answer = Some(refusal);
            }
            Failure::NotSent(why) => {
                connected = false;
                self.tried.note(endpoint, &why);
                self.client.pool.forget(endpoint);
            }
            Failure::NoAnswer { why, .. } => {
                self.tried.note(endpoint, &why);
                self.client.pool.forget(endpoint);
            }
        }
        self.client.pool.rotate(turn);
        tracing::debug!(%endpoint, unacknowledged = self.waiting.len(), "a stream of signals moves on to another node");
        let since = *self.lost_since.get_or_insert_with(Instant::now);
        let pause = self.backoff.pause();
        let maybe_done = self.waiting.front().is_some_and(|first| first.streams > 0);
        let nobody_there =
            !connected && !maybe_done && self.client.is_patience_over(since.elapsed() + pause, &self.tried);
        if nobody_there || since.elapsed() + pause >= self.options.outage_max {
            self.lost_since = None;
            let tried = std::mem::take(&mut self.tried).into_list();
            return Err(Error::Unavailable { tried, answer, maybe_done });
        }
        self.not_before = Instant::now() + pause;
        Ok(())
    }
}

//! Service `Signals`: what collectors see goes into the log, once.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::Bytes;
use futures::{FutureExt as _, Stream};
use loadline_api::v1::signals_server::Signals;
use loadline_api::v1::{ReportSignalsRequest, ReportSignalsResponse};
use loadline_api::{Report, report_bytes, report_response};
use loadline_state_machine::{Actor, Answer as Said, Command, Request as Asked, check_report};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::actor::actor_of;
use super::errors;
use crate::proposals::Proposals;

#[derive(Debug, Clone)]
pub(crate) struct SignalsService {
    pub(crate) proposals: Proposals,
    /// Set when the node is about to stop: collectors go on at another one.
    pub(crate) closing: CancellationToken,
}

/// Reports of one stream that go into the log together, in one request. What waits while the request before is recorded makes
/// up the next one. More of them would only make everybody else wait until they are applied.
const REPORTS_AT_ONCE_MAX: usize = 256;
const OBSERVATIONS_AT_ONCE_MAX: usize = 2_048;
const BYTES_AT_ONCE_MAX: usize = 256 << 10;

impl SignalsService {
    async fn report(&self, actor: Actor, request: ReportSignalsRequest) -> Result<ReportSignalsResponse, Status> {
        let command = read(request)?;
        match self.record(actor, vec![command]).await?.pop() {
            Some(answer) => Ok(answer),
            None => Err(not_answered()),
        }
    }

    /// All of the reports or none of them, in their order. One answer for each.
    async fn record(&self, actor: Actor, reports: Vec<Command>) -> Result<Vec<ReportSignalsResponse>, Status> {
        self.try_record(actor, reports).await.map_err(|not_recorded| not_recorded.status)
    }

    async fn try_record(&self, actor: Actor, reports: Vec<Command>) -> Result<Vec<ReportSignalsResponse>, NotRecorded> {
        let count = reports.len();
        let not_recorded = |status| NotRecorded { innocent: Vec::new(), status };
        // No request id: collector and sequence say whether it was heard before.
        let asked = Asked { actor, request_id: None, commands: reports };
        let encoded = Bytes::from(asked.encode());
        let proposed = self.proposals.propose_encoded(asked, encoded.clone()).await;
        let receipt = proposed.map_err(|error| not_recorded(errors::propose(&error)))?;
        let done = receipt.result.map_err(|refused| {
            // Hardly any is refused, so it is read once more here, and not copied everywhere.
            let mut innocent = Asked::decode(&encoded).map_or_else(|_| Vec::new(), |asked| asked.commands);
            innocent.truncate(refused.ordinal as usize);
            NotRecorded { innocent, status: errors::rejected_field(&refused.rejection) }
        })?;
        let answers = done.iter().filter_map(|done| match &done.answer {
            Said::Reported(said) => Some(report_response(said, receipt.index)),
            _ => None,
        });
        let answers: Vec<ReportSignalsResponse> = answers.collect();
        if answers.len() == count { Ok(answers) } else { Err(not_recorded(not_answered())) }
    }

    /// Records what one stream brought together, and says what to answer, in order; an error is the last answer.
    async fn record_batch(&self, actor: &Actor, batch: Vec<ReportSignalsRequest>) -> Answers {
        let mut reports = Vec::with_capacity(batch.len());
        let mut collectors = Vec::with_capacity(batch.len());
        let mut ends_with = None;
        for request in batch {
            let collector = request.collector.clone();
            match read(request) {
                Ok(command) => {
                    reports.push(command);
                    collectors.push(collector);
                }
                Err(status) => {
                    ends_with = Some(status);
                    break;
                }
            }
        }
        let mut answered = Vec::new();
        if !reports.is_empty() {
            match self.try_record(actor.clone(), reports).await {
                Ok(answers) => answered = answers,
                Err(NotRecorded { innocent, status }) if innocent.is_empty() => ends_with = Some(status),
                Err(NotRecorded { innocent, status }) => {
                    // Those before the one that was refused are recorded, as if each had come by itself.
                    match self.record(actor.clone(), innocent).await {
                        Ok(answers) => (answered, ends_with) = (answers, Some(status)),
                        Err(status) => ends_with = Some(status),
                    }
                }
            }
        }
        let mut answers: Answers = cumulative(answered.into_iter().zip(&collectors)).map(Ok).collect();
        answers.extend(ends_with.map(Err));
        answers
    }
}

/// Why reports were not recorded, and those of them, from the first one on, that are not to blame.
struct NotRecorded {
    innocent: Vec<Command>,
    status: Status,
}

type Answers = VecDeque<Result<ReportSignalsResponse, Status>>;

fn read(request: ReportSignalsRequest) -> Result<Command, Status> {
    let Report { command } = Report::read(request).map_err(errors::invalid)?;
    // What no state would accept need not cost everybody an entry.
    if let Command::ReportSignals { collector, clusters, .. } = &command {
        check_report(collector, clusters).map_err(|rejection| errors::rejected_field(&rejection))?;
    }
    Ok(command)
}

/// An acknowledgement stands for those before it, of the same collector, that have nothing to add.
fn cumulative<'a>(
    answers: impl Iterator<Item = (ReportSignalsResponse, &'a String)>,
) -> impl Iterator<Item = ReportSignalsResponse> {
    let is_plain = |answer: &ReportSignalsResponse| !answer.repeated_report && answer.unknown_clusters.is_empty();
    let mut kept: Vec<(ReportSignalsResponse, &String)> = Vec::new();
    for (answer, collector) in answers {
        match kept.last_mut() {
            Some((last, of)) if is_plain(last) && is_plain(&answer) && *of == collector => *last = answer,
            _ => kept.push((answer, collector)),
        }
    }
    kept.into_iter().map(|(answer, _)| answer)
}

fn not_answered() -> Status {
    Status::internal("the report was recorded, but not answered as one")
}

type Acknowledgements = Pin<Box<dyn Stream<Item = Result<ReportSignalsResponse, Status>> + Send>>;

/// One stream of reports, at work.
struct Reporting {
    service: SignalsService,
    actor: Actor,
    reports: Streaming<ReportSignalsRequest>,
    /// Acknowledgements that wait to be sent.
    answers: Answers,
    over: bool,
}

impl Reporting {
    async fn next(mut self) -> Option<(Result<ReportSignalsResponse, Status>, Reporting)> {
        while self.answers.is_empty() && !self.over {
            let (batch, ended) = self.gather().await;
            self.over = ended.is_some();
            if !batch.is_empty() {
                self.answers = self.service.record_batch(&self.actor, batch).await;
            }
            if self.answers.back().is_some_and(Result::is_err) {
                self.over = true;
            } else if let Some(Some(status)) = ended {
                self.answers.push_back(Err(status));
            }
        }
        let answer = self.answers.pop_front()?;
        Some((answer, self))
    }

    /// The next report and whatever has arrived behind it. And whether the stream ended, with an error or in order.
    async fn gather(&mut self) -> (Vec<ReportSignalsRequest>, Option<Option<Status>>) {
        let first = tokio::select! {
            biased;
            () = self.service.closing.cancelled() => Err(errors::shutting_down()),
            first = self.reports.message() => first,
        };
        let mut batch = Vec::new();
        let (mut observations, mut bytes) = (0, 0);
        let mut next = Some(first);
        while let Some(arrived) = next.take() {
            let report = match arrived {
                Ok(Some(report)) => report,
                Ok(None) => return (batch, Some(None)),
                Err(status) => return (batch, Some(Some(status))),
            };
            observations += report.clusters.iter().map(|cluster| cluster.observations.len()).sum::<usize>();
            bytes += report_bytes(&report);
            batch.push(report);
            if batch.len() < REPORTS_AT_ONCE_MAX && observations < OBSERVATIONS_AT_ONCE_MAX && bytes < BYTES_AT_ONCE_MAX
            {
                next = self.reports.message().now_or_never();
            }
        }
        (batch, None)
    }
}

#[tonic::async_trait]
impl Signals for SignalsService {
    async fn report_signals(
        &self,
        request: Request<ReportSignalsRequest>,
    ) -> Result<Response<ReportSignalsResponse>, Status> {
        let actor = actor_of(&request)?;
        self.report(actor, request.into_inner()).await.map(Response::new)
    }

    type StreamSignalsStream = Acknowledgements;

    /// What has arrived is recorded together, and one such batch is under way at a time. So the reports of a stream keep their
    /// order on every way into the log, through a follower or a change of leader, and a collector that is faster than the log is
    /// held up by flow control, not by memory.
    async fn stream_signals(
        &self,
        request: Request<Streaming<ReportSignalsRequest>>,
    ) -> Result<Response<Acknowledgements>, Status> {
        let actor = actor_of(&request)?;
        let (service, reports) = (self.clone(), request.into_inner());
        let reporting = Reporting { service, actor, reports, answers: VecDeque::new(), over: false };
        Ok(Response::new(Box::pin(futures::stream::unfold(reporting, Reporting::next))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sequence: u64, repeated_report: bool, unknown: &[&str]) -> ReportSignalsResponse {
        let unknown_clusters = unknown.iter().map(|name| (*name).to_owned()).collect();
        ReportSignalsResponse { revision: 7, sequence, repeated_report, unknown_clusters }
    }

    #[test]
    fn an_acknowledgement_stands_for_those_before_it_that_have_nothing_to_add() {
        let (one, other) = ("one".to_owned(), "other".to_owned());
        let answers = [
            (answer(1, false, &[]), &one),
            (answer(2, false, &[]), &one),
            (answer(9, true, &[]), &one),
            (answer(9, true, &[]), &one),
            (answer(10, false, &[]), &one),
            (answer(11, false, &["gone"]), &one),
            (answer(12, false, &[]), &one),
            (answer(3, false, &[]), &other),
            (answer(4, false, &[]), &other),
        ];
        let kept: Vec<(u64, bool)> =
            cumulative(answers.into_iter()).map(|answer| (answer.sequence, answer.repeated_report)).collect();
        assert_eq!(kept, [(2, false), (9, true), (9, true), (10, false), (11, false), (12, false), (4, false)]);
    }
}

//! The history of a group: one signed file of it.

use std::io;

use loadline_api::v1::audit_client::AuditClient;
use loadline_api::v1::{ExportHistoryRequest, HistoryMoment, history_moment};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::admin::Reading;
use crate::call::ANSWER_BYTES_MAX;
use crate::client::Client;
use crate::endpoint::{Endpoint, NotConnected};
use crate::error::{Error, Failure};
use crate::transfer::{Transfer, TransferError};

/// A place in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryBound {
    /// The entry at this index of the log.
    Index(u64),
    /// Milliseconds since 1970.
    TimeMs(i64),
}

/// Which part of the history. Without bounds: all that a node keeps without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryRange {
    pub from: Option<HistoryBound>,
    pub to: Option<HistoryBound>,
    pub reading: Reading,
}

/// What an export arrives in.
#[derive(Debug)]
pub enum ExportPart<'a> {
    /// From here on it comes from the beginning. Once more after a node was lost on the way: drop what came before.
    Start { first_index: u64, last_index: u64 },
    /// `entries` are in what has come so far, this included. Empty: it is still being made.
    Data { data: &'a [u8], entries: u64 },
}

/// What an export holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportedHistory {
    pub first_index: u64,
    pub last_index: u64,
    pub bytes: u64,
}

impl Client {
    /// The history that a node keeps, as one signed file. `sink` gets it part by part; until this returns it is not whole.
    pub async fn export_history(
        &self,
        range: &HistoryRange,
        mut sink: impl FnMut(ExportPart<'_>) -> io::Result<()>,
    ) -> Result<ExportedHistory, Error> {
        let mut transfer = Transfer::new(self);
        loop {
            let (turn, endpoint) = self.pool.current();
            match self.export_from(endpoint, range, &mut sink).await {
                Ok(exported) => return Ok(exported),
                Err(failed) => transfer.after(turn, endpoint, failed).await?,
            }
        }
    }

    async fn export_from(
        &self,
        endpoint: &Endpoint,
        range: &HistoryRange,
        sink: &mut impl FnMut(ExportPart<'_>) -> io::Result<()>,
    ) -> Result<ExportedHistory, TransferError> {
        let no_answer = |why: &str| TransferError::Node(Failure::NoAnswer { why: why.to_owned(), timed_out: true });
        let channel = match self.pool.channel(endpoint).await {
            Ok(channel) => channel,
            Err(NotConnected(why)) => return Err(TransferError::Node(Failure::NotSent(why))),
        };
        let ask = ExportHistoryRequest {
            from: range.from.map(moment),
            to: range.to.map(moment),
            consistency: range.reading.wire(),
        };
        let until = Instant::now() + self.options.transfer_timeout;
        let mut service = audit(channel);
        let exporting = service.export_history(self.request(ask, Some(until)));
        let mut stream = match tokio::time::timeout(self.options.timeout, exporting).await {
            Ok(answer) => answer.map_err(TransferError::of)?.into_inner(),
            Err(_) => return Err(no_answer("no answer in time")),
        };
        let mut exported: Option<ExportedHistory> = None;
        loop {
            let next = tokio::time::timeout(self.options.timeout, stream.message()).await;
            let Some(message) =
                next.map_err(|_| no_answer("the export stopped on the way"))?.map_err(TransferError::of)?
            else {
                break;
            };
            let (first_index, last_index) = (message.first_index, message.last_index);
            let so_far = match &mut exported {
                Some(exported) => exported,
                None => {
                    sink(ExportPart::Start { first_index, last_index }).map_err(TransferError::Sink)?;
                    exported.insert(ExportedHistory { first_index, last_index, bytes: 0 })
                }
            };
            so_far.bytes += message.data.len() as u64;
            let part = ExportPart::Data { data: &message.data, entries: message.entries };
            sink(part).map_err(TransferError::Sink)?;
        }
        exported.ok_or_else(|| no_answer("the export ended before it began"))
    }
}

fn moment(bound: HistoryBound) -> HistoryMoment {
    let moment = match bound {
        HistoryBound::Index(index) => history_moment::Moment::Index(index),
        HistoryBound::TimeMs(millis) => history_moment::Moment::TimeMs(millis),
    };
    HistoryMoment { moment: Some(moment) }
}

fn audit(channel: Channel) -> AuditClient<Channel> {
    AuditClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

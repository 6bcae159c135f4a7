//! Service `Audit`: the history of this node, handed out for others to check.
//!
//! An export is made while it is sent, by a thread of its own, at the pace of whoever receives it: no more of it is in memory than
//! a few blocks. Finding things in the history is in `search`.

use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use loadline_api::v1::audit_server::Audit;
use loadline_api::v1::{
    ExportHistoryRequest, ExportHistoryResponse, HistoryMoment, SearchHistoryRequest, SearchHistoryResponse,
    history_moment,
};
use loadline_audit::export::{Begin, ExportFailed, ExportProgress, Origin, bounds, export};
use loadline_audit::{Kept, Moment, SourceError};
use loadline_log::JournalError;
use loadline_raft_node::Node;
use loadline_state_machine::Time;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status};

use super::actor::actor_of;
use super::errors::{self, Answer};
use super::exchange::Exchange;
use crate::kept::kept;

/// Bytes per message.
const CHUNK_BYTES: usize = 256 << 10;
/// Messages that wait to be sent.
const CHUNKS_WAITING: usize = 4;
/// A receiver that takes nothing for this long is gone.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// How often a receiver is told that its export is still being made.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct AuditService {
    pub(crate) exchange: Exchange,
}

type Message = Result<ExportHistoryResponse, Status>;

#[tonic::async_trait]
impl Audit for AuditService {
    type ExportHistoryStream = ReceiverStream<Message>;

    async fn export_history(
        &self,
        request: Request<ExportHistoryRequest>,
    ) -> Result<Response<Self::ExportHistoryStream>, Status> {
        // Among what it holds is what is kept of every password.
        let node = self.exchange.node.clone();
        let actor = actor_of(&request)?;
        node.latest().authorize_operator(&actor, "ExportHistory").map_err(|rejection| errors::rejected(&rejection))?;
        let ExportHistoryRequest { from, to, consistency } = request.into_inner();
        let from = match moment("from", from)? {
            None => Begin::First,
            Some(Moment::Time(time)) => Begin::Time(time),
            Some(Moment::Index(index)) => Begin::Index(index),
            Some(Moment::End) => Begin::First,
        };
        let to = moment("to", to)?.unwrap_or(Moment::End);
        self.exchange.read(consistency).await?;
        let kept = kept(&node);
        let found = tokio::task::spawn_blocking(move || {
            let entries = bounds(&kept, from, to).map_err(|error| refused(&error))?;
            Ok::<_, Status>((kept, entries))
        });
        let (kept, entries) = found.await.map_err(|error| errors::journal_failed(&error))??;
        let (messages, received) = mpsc::channel(CHUNKS_WAITING);
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || {
            let sending = Sending::new(runtime, messages, &entries);
            make(&node, &kept, entries, sending);
        });
        Ok(Response::new(ReceiverStream::new(received)))
    }

    async fn search_history(
        &self,
        request: Request<SearchHistoryRequest>,
    ) -> Result<Response<SearchHistoryResponse>, Status> {
        super::search::search(&self.exchange, request).await
    }
}

fn moment(field: &str, moment: Option<HistoryMoment>) -> Result<Option<Moment>, Status> {
    let Some(moment) = moment else { return Ok(None) };
    match moment.moment {
        Some(history_moment::Moment::Index(index)) if index > 0 => Ok(Some(Moment::Index(index))),
        Some(history_moment::Moment::Index(_)) => {
            Err(errors::invalid_field(&format!("{field}.index"), "must be at least 1: the first entry of all"))
        }
        Some(history_moment::Moment::TimeMs(millis)) => match u64::try_from(millis) {
            Ok(millis) => Ok(Some(Moment::Time(Time::from_millis(millis)))),
            Err(_) => Err(errors::invalid_field(&format!("{field}.time_ms"), "must not be before 1970")),
        },
        None => Err(errors::invalid_field(field, "needs an index or a time")),
    }
}

fn make(node: &Node, kept: &Kept, entries: RangeInclusive<u64>, sending: Sending) {
    let status = node.status();
    let origin = Origin {
        group: status.group,
        node_id: status.id.unwrap_or_default(),
        node_name: status.name,
        incarnation: status.incarnation,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_ms: status.time.as_millis(),
    };
    let messages = sending.messages.clone();
    let runtime = sending.runtime.clone();
    let tell = |progress, sending: &mut Sending| sending.tell(progress);
    if let Err(error) = export(kept, entries, &origin, node.signing_key(), sending, tell) {
        // Whoever does not listen any more is not told, either.
        let _ = runtime.block_on(messages.send_timeout(Err(refused(&error)), STALLED_AFTER));
    }
}

fn refused(error: &ExportFailed) -> Status {
    let message = causes(error);
    match error {
        ExportFailed::Empty | ExportFailed::Nothing => Answer::new(Code::NotFound, "NOTHING_TO_EXPORT", message),
        ExportFailed::Missing { index, next } => {
            let answer = Answer::new(Code::OutOfRange, "HISTORY_MISSING", message).with("index", index);
            next.iter().fold(answer, |answer, next| answer.with("next", next))
        }
        ExportFailed::Unreplayable { index, next } => {
            let answer = Answer::new(Code::OutOfRange, "NO_STATE_BEFORE", message).with("index", index);
            next.iter().fold(answer, |answer, next| answer.with("next", next))
        }
        ExportFailed::Before { .. } => Answer::new(Code::FailedPrecondition, "NO_STATE_BEFORE", message),
        ExportFailed::Damaged { first, last, source } => {
            let answer =
                Answer::new(Code::DataLoss, "HISTORY_DAMAGED", message).with("first", first).with("last", last);
            match source {
                // Without the advice for whoever runs the node.
                SourceError::Journal(JournalError::Damaged { file, offset, what }) => {
                    answer.with("what", &format!("{file} is damaged at offset {offset}: {what}"))
                }
                _ => answer,
            }
        }
        ExportFailed::Source(_) | ExportFailed::Export(_) => Answer::new(Code::Internal, "EXPORT_FAILED", message),
    }
    .status()
}

fn causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// An export on its way: collects what is written into messages, and waits for whoever receives them.
#[derive(Debug)]
struct Sending {
    runtime: Handle,
    messages: mpsc::Sender<Message>,
    waiting: Vec<u8>,
    message: ExportHistoryResponse,
    last_sent: Instant,
}

impl Sending {
    fn new(runtime: Handle, messages: mpsc::Sender<Message>, entries: &RangeInclusive<u64>) -> Sending {
        let message =
            ExportHistoryResponse { first_index: *entries.start(), last_index: *entries.end(), ..Default::default() };
        let mut sending = Sending { runtime, messages, waiting: Vec::new(), message, last_sent: Instant::now() };
        // Making the state before the first entry may take a while. Should nobody be there, the first byte will tell.
        let _ = sending.send();
        sending
    }

    fn send(&mut self) -> io::Result<()> {
        let data = std::mem::take(&mut self.waiting).into();
        let message = ExportHistoryResponse { data, ..self.message.clone() };
        self.last_sent = Instant::now();
        self.runtime
            .block_on(self.messages.send_timeout(Ok(message), STALLED_AFTER))
            .map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes the export any more"))
    }

    fn tell(&mut self, progress: ExportProgress) {
        if let ExportProgress::Written(entries) = progress {
            self.message.entries = entries;
        }
        if self.last_sent.elapsed() >= SIGN_OF_LIFE_EVERY {
            // Its failure comes back with the next byte.
            let _ = self.send();
        }
    }
}

impl Write for Sending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK_BYTES - self.waiting.len().min(CHUNK_BYTES - 1));
        self.waiting.extend_from_slice(&bytes[..taken]);
        if self.waiting.len() >= CHUNK_BYTES {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() { Ok(()) } else { self.send() }
    }
}

#[cfg(test)]
mod tests {
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn entries_that_cannot_be_read_are_named() {
        let (file, what) = ("journal/0000000000000001.journal".to_owned(), "there is no valid frame".to_owned());
        let source = SourceError::Journal(JournalError::Damaged { file, offset: 77, what });
        let status = refused(&ExportFailed::Damaged { first: 120, last: 140, source });
        assert_eq!(status.code(), Code::DataLoss);
        assert!(status.message().starts_with("entries 120 to 140 cannot be read: "), "{status:?}");
        let info = status.get_details_error_info().expect("a reason");
        assert_eq!(info.reason, "HISTORY_DAMAGED");
        let said = |key: &str| info.metadata.get(key).map(String::as_str).unwrap_or_default().to_owned();
        assert_eq!((said("first"), said("last")), ("120".to_owned(), "140".to_owned()));
        assert_eq!(said("what"), "journal/0000000000000001.journal is damaged at offset 77: there is no valid frame");
    }
}

//! Service `Writes`: writes of many callers on one stream, each recorded and answered by itself.
//!
//! Writes of one message are proposed together, so they tend to share an entry; they are answered together, too, and answers
//! that are there at the same time go back in one message. Not here: any order between writes. Whoever wants one waits for an answer.

use std::pin::Pin;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, Stream, StreamExt as _};
use loadline_api::v1::tagged_answer::Answer as Said;
use loadline_api::v1::tagged_write::Write as Wanted;
use loadline_api::v1::writes_server::Writes;
use loadline_api::v1::{
    StreamWritesRequest, StreamWritesResponse, TaggedAnswer, TaggedWrite, WriteRefused, WriteResponse,
};
use loadline_api::{Invalid, Write};
use loadline_state_machine::Actor;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use super::actor::actor_of;
use super::errors;
use super::exchange::Exchange;

/// Writes of one stream that are under way at a time. Beyond, the stream is not read, and flow control holds the caller up.
const UNDER_WAY_MAX: usize = 1_024;

#[derive(Debug)]
pub(crate) struct WritesService {
    pub(crate) exchange: Exchange,
    /// Set when the node is about to stop: callers go on at another one.
    pub(crate) closing: CancellationToken,
}

/// One stream, at work.
struct Writing {
    exchange: Exchange,
    closing: CancellationToken,
    actor: Actor,
    incoming: Streaming<StreamWritesRequest>,
    /// The messages that are not answered yet, and how many writes they have.
    under_way: FuturesUnordered<BoxFuture<'static, Vec<TaggedAnswer>>>,
    writes: usize,
    /// Set when no more writes come, with what is to be said about it when the last answer is out.
    over: Option<Option<Status>>,
}

impl Writing {
    async fn next(mut self) -> Option<(Result<StreamWritesResponse, Status>, Writing)> {
        loop {
            let listens = self.over.is_none() && self.writes < UNDER_WAY_MAX;
            if self.under_way.is_empty() && !listens {
                let status = self.over.replace(None).flatten()?;
                return Some((Err(status), self));
            }
            tokio::select! {
                biased;
                Some(answers) = self.under_way.next() => {
                    let answers = self.ready(answers).await;
                    return Some((Ok(StreamWritesResponse { answers }), self));
                }
                () = self.closing.cancelled(), if listens => self.over = Some(Some(errors::shutting_down())),
                message = self.incoming.message(), if listens => match message {
                    Ok(Some(message)) => self.begin(message.writes),
                    Ok(None) => self.over = Some(None),
                    Err(status) => self.over = Some(Some(status)),
                },
            }
        }
    }

    /// The answers to one message, and to those that were answered with it.
    async fn ready(&mut self, mut answers: Vec<TaggedAnswer>) -> Vec<TaggedAnswer> {
        if !self.under_way.is_empty() {
            // Whoever answers a whole entry is in the middle of it; a moment later there is more to send.
            tokio::task::yield_now().await;
        }
        while let Some(Some(more)) = self.under_way.next().now_or_never() {
            answers.extend(more);
        }
        self.writes -= answers.len();
        answers
    }

    fn begin(&mut self, writes: Vec<TaggedWrite>) {
        self.writes += writes.len();
        let (mut tags, mut wanted, mut invalid) = (Vec::with_capacity(writes.len()), Vec::new(), Vec::new());
        for TaggedWrite { tag, write } in writes {
            match read(write) {
                Ok(write) if write.validate_only => self.rehearse(tag, write),
                Ok(write) => {
                    tags.push(tag);
                    wanted.push(write);
                }
                Err(wrong) => invalid.push(tagged(tag, Err(errors::invalid(wrong)))),
            }
        }
        let (exchange, actor) = (self.exchange.clone(), self.actor.clone());
        self.under_way.push(Box::pin(async move {
            let answered = exchange.record_together(&actor, wanted).await;
            let answered = tags.into_iter().zip(answered).map(|(tag, answered)| tagged(tag, answered));
            answered.chain(invalid).collect()
        }));
    }

    /// Nothing is recorded for it, so the others do not wait for it.
    fn rehearse(&self, tag: u64, write: Write) {
        let (exchange, actor) = (self.exchange.clone(), self.actor.clone());
        self.under_way.push(Box::pin(async move { vec![tagged(tag, exchange.record(actor, write).await)] }));
    }
}

fn tagged(tag: u64, answered: Result<WriteResponse, Status>) -> TaggedAnswer {
    TaggedAnswer { tag, answer: Some(answer(answered)) }
}

fn answer(answered: Result<WriteResponse, Status>) -> Said {
    match answered {
        Ok(done) => Said::Done(done),
        Err(status) => Said::Refused(WriteRefused {
            code: status.code().into(),
            message: status.message().to_owned(),
            details: bytes::Bytes::copy_from_slice(status.details()),
        }),
    }
}

fn read(write: Option<Wanted>) -> Result<Write, Invalid> {
    match write {
        None => Err(Invalid::one("write", "is required: say what is to be done")),
        Some(Wanted::Transact(request)) => Write::transact(request),
        Some(Wanted::CreateStrategy(request)) => Write::create_strategy(request),
        Some(Wanted::UpdateStrategy(request)) => Write::update_strategy(request),
        Some(Wanted::DeleteStrategy(request)) => Write::delete_strategy(request),
        Some(Wanted::PauseCluster(request)) => Write::pause_cluster(request),
        Some(Wanted::ResumeCluster(request)) => Write::resume_cluster(request),
        Some(Wanted::CreateReplica(request)) => Write::create_replica(request),
        Some(Wanted::DeleteReplica(request)) => Write::delete_replica(request),
        Some(Wanted::ApproveAction(request)) => Write::approve_action(request),
        Some(Wanted::RejectAction(request)) => Write::reject_action(request),
        Some(Wanted::RetryAction(request)) => Write::retry_action(request),
        Some(Wanted::ResolveAction(request)) => Write::resolve_action(request),
        Some(Wanted::AbandonAction(request)) => Write::abandon_action(request),
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<StreamWritesResponse, Status>> + Send>>;

#[tonic::async_trait]
impl Writes for WritesService {
    type StreamWritesStream = Answers;

    async fn stream_writes(
        &self,
        request: Request<Streaming<StreamWritesRequest>>,
    ) -> Result<Response<Answers>, Status> {
        // What this caller may is decided anew for every write, at its index of the log.
        let actor = actor_of(&request)?;
        let (exchange, closing) = (self.exchange.clone(), self.closing.clone());
        let incoming = request.into_inner();
        let under_way = FuturesUnordered::new();
        let writing = Writing { exchange, closing, actor, incoming, under_way, writes: 0, over: None };
        Ok(Response::new(Box::pin(futures::stream::unfold(writing, Writing::next))))
    }
}

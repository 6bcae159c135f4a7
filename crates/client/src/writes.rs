//! Writes of many callers on one stream.
//!
//! Whatever waits to be sent goes out in one message, and answers find their callers by tag. Retries, deadlines and rotation
//! between nodes are those of every call (`call.rs`): to it, a stream is one more way to put a message to a node. When a stream
//! breaks, what it had under way is answered with the error, and the next attempt opens another one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{self, Stream};
use loadline_api::v1::tagged_answer::Answer as Said;
use loadline_api::v1::tagged_write::Write as Wanted;
use loadline_api::v1::writes_client::WritesClient;
use loadline_api::v1::{StreamWritesRequest, TaggedAnswer, TaggedWrite, WriteRefused, WriteResponse};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use uuid::Uuid;

use crate::call::{ACTOR, ANSWER_BYTES_MAX, AUTHORIZATION, Repeat, answered};
use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::error::{Error, Failure};

/// What goes into one message. A larger write goes alone.
const WRITES_MAX: usize = 256;
const BYTES_MAX: usize = 512 << 10;

type Answer = oneshot::Sender<Result<WriteResponse, Status>>;

/// On whose behalf a stream was opened: the metadata that says so.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asks(Vec<(&'static str, Vec<u8>)>);

/// Without the values: one of them is a token.
impl fmt::Debug for Asks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

impl Asks {
    pub(crate) fn new(actor: &MetadataValue<Ascii>, authorization: Option<&MetadataValue<Ascii>>) -> Asks {
        let values = [(ACTOR, Some(actor)), (AUTHORIZATION, authorization)];
        Asks(values.into_iter().filter_map(|(key, value)| Some((key, value?.as_bytes().to_vec()))).collect())
    }

    fn put_into(&self, metadata: &mut MetadataMap) {
        for (key, value) in &self.0 {
            if let Ok(mut value) = MetadataValue::<Ascii>::try_from(value.as_slice()) {
                value.set_sensitive(*key == AUTHORIZATION);
                metadata.insert(*key, value);
            }
        }
    }
}

/// A stream of writes to one node.
#[derive(Debug, Clone)]
pub(crate) struct WriteStream(mpsc::UnboundedSender<(Wanted, Answer)>);

impl WriteStream {
    /// Sends nothing yet. Must be called where tasks can be spawned.
    pub(crate) fn open(channel: Channel, asks: &Asks) -> WriteStream {
        let (sender, writes) = mpsc::unbounded_channel();
        let service = WritesClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
        tokio::spawn(converse(service, asks.clone(), writes));
        WriteStream(sender)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_closed()
    }

    async fn send(&self, write: Wanted) -> Result<WriteResponse, Status> {
        let (answer, answered) = oneshot::channel();
        self.0.send((write, answer)).map_err(|_| cut_off())?;
        answered.await.unwrap_or_else(|_| Err(cut_off()))
    }
}

/// The writes under way on one stream, by tag.
#[derive(Debug, Default)]
struct UnderWay {
    next: u64,
    answers: HashMap<u64, Answer>,
    /// Nobody will answer any more.
    over: bool,
}

impl UnderWay {
    /// Nothing, if there is nobody left to answer it.
    fn register(&mut self, write: Wanted, answer: Answer) -> Option<TaggedWrite> {
        if self.over {
            let _ = answer.send(Err(cut_off()));
            return None;
        }
        self.next += 1;
        self.answers.insert(self.next, answer);
        Some(TaggedWrite { tag: self.next, write: Some(write) })
    }
}

fn locked(under_way: &Mutex<UnderWay>) -> MutexGuard<'_, UnderWay> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn converse(mut service: WritesClient<Channel>, asks: Asks, writes: mpsc::UnboundedReceiver<(Wanted, Answer)>) {
    let under_way = Arc::new(Mutex::new(UnderWay::default()));
    let mut request = Request::new(outgoing(writes, Arc::clone(&under_way)));
    asks.put_into(request.metadata_mut());
    let end = match service.stream_writes(request).await {
        Err(status) => status,
        Ok(answers) => {
            let mut answers = answers.into_inner();
            loop {
                match answers.message().await {
                    Ok(Some(message)) => settle(&under_way, message.answers),
                    Ok(None) => break cut_off(),
                    Err(status) => break status,
                }
            }
        }
    };
    let left = {
        let mut under_way = locked(&under_way);
        under_way.over = true;
        std::mem::take(&mut under_way.answers)
    };
    for answer in left.into_values() {
        // Whoever is gone needs no answer.
        let _ = answer.send(Err(end.clone()));
    }
}

/// What there is to send, as much as waits at a time in one message.
fn outgoing(
    writes: mpsc::UnboundedReceiver<(Wanted, Answer)>,
    under_way: Arc<Mutex<UnderWay>>,
) -> impl Stream<Item = StreamWritesRequest> + Send {
    stream::unfold((writes, under_way), |(mut writes, under_way)| async move {
        let (first, answer) = writes.recv().await?;
        let mut message = StreamWritesRequest::default();
        let mut bytes = 0;
        let mut next = Some((first, answer));
        {
            let mut under_way = locked(&under_way);
            while let Some((write, answer)) = next.take() {
                bytes += write.encoded_len();
                message.writes.extend(under_way.register(write, answer));
                if message.writes.len() < WRITES_MAX && bytes < BYTES_MAX {
                    next = writes.try_recv().ok();
                }
            }
        }
        Some((message, (writes, under_way)))
    })
}

fn settle(under_way: &Mutex<UnderWay>, answers: Vec<TaggedAnswer>) {
    let mut under_way = locked(under_way);
    for TaggedAnswer { tag, answer } in answers {
        let Some(waiting) = under_way.answers.remove(&tag) else { continue };
        let result = match answer {
            Some(Said::Done(done)) => Ok(done),
            Some(Said::Refused(WriteRefused { code, message, details })) => {
                Err(Status::with_details(Code::from_i32(code), message, details))
            }
            None => Err(Status::internal("the answer is empty")),
        };
        let _ = waiting.send(result);
    }
}

/// As far as anybody knows, it may have arrived.
fn cut_off() -> Status {
    Status::unknown("the stream of writes has ended")
}

impl Client {
    /// One logical write on a stream that it shares.
    pub(crate) async fn call_on_stream(
        &self,
        ask: impl Fn(Uuid) -> Wanted + Send + Sync,
    ) -> Result<WriteResponse, Error> {
        self.call_by(self.limits(), Repeat::Freely, ask, |endpoint, until, write| self.stream(endpoint, until, write))
            .await
    }

    async fn stream(&self, endpoint: &Endpoint, until: Instant, write: Wanted) -> Result<WriteResponse, Failure> {
        let stream = match self.pool.write_stream(endpoint, &self.asks) {
            Some(stream) => stream,
            None => self.pool.open_write_stream(endpoint, &self.asks, self.channel(endpoint).await?),
        };
        answered(until, stream.send(write)).await
    }
}

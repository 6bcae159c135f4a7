//! Writes of many callers on one stream.
//!
//! Whatever waits to be sent goes out in one message, and answers find their callers by tag. Retries, deadlines and rotation
//! between nodes are those of every call (`call.rs`): to it, a write on a stream is one more way to send something. When a stream
//! breaks, what it had under way is answered with the error, and the next attempt opens another one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::stream::{self, Stream};
use loadline_api::v1::tagged_answer::Answer as Said;
use loadline_api::v1::tagged_write::Write as Wanted;
use loadline_api::v1::writes_client::WritesClient;
use loadline_api::v1::{StreamWritesRequest, TaggedAnswer, TaggedWrite, WriteRefused, WriteResponse};
use tokio::sync::{mpsc, oneshot};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::call::ANSWER_BYTES_MAX;
use crate::client::Client;
use crate::endpoint::Endpoint;

/// What goes into one message. A larger write goes alone.
const WRITES_MAX: usize = 256;
const BYTES_MAX: usize = 512 << 10;

type Answer = oneshot::Sender<Result<WriteResponse, Status>>;

/// On whose behalf a stream was opened: the metadata that says so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Asks(Vec<(&'static str, Vec<u8>)>);

impl Asks {
    fn of(metadata: &MetadataMap) -> Asks {
        let value = |key: &'static str| Some((key, metadata.get(key)?.as_bytes().to_vec()));
        Asks(["loadline-actor", "authorization"].into_iter().filter_map(value).collect())
    }

    fn put_into(&self, metadata: &mut MetadataMap) {
        for (key, value) in &self.0 {
            if let Ok(mut value) = MetadataValue::<Ascii>::try_from(value.as_slice()) {
                value.set_sensitive(*key == "authorization");
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

    async fn send(&self, write: Wanted) -> Result<Response<WriteResponse>, Status> {
        let (answer, answered) = oneshot::channel();
        self.0.send((write, answer)).map_err(|_| cut_off())?;
        answered.await.unwrap_or_else(|_| Err(cut_off())).map(Response::new)
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
        while let Some((write, answer)) = next.take() {
            bytes += write.encoded_len();
            message.writes.extend(register(&under_way, write, answer));
            if message.writes.len() < WRITES_MAX && bytes < BYTES_MAX {
                next = writes.try_recv().ok();
            }
        }
        Some((message, (writes, under_way)))
    })
}

/// Nothing, if there is nobody left to answer it.
fn register(under_way: &Mutex<UnderWay>, write: Wanted, answer: Answer) -> Option<TaggedWrite> {
    let mut under_way = locked(under_way);
    if under_way.over {
        let _ = answer.send(Err(cut_off()));
        return None;
    }
    under_way.next += 1;
    let tag = under_way.next;
    under_way.answers.insert(tag, answer);
    Some(TaggedWrite { tag, write: Some(write) })
}

fn settle(under_way: &Mutex<UnderWay>, answers: Vec<TaggedAnswer>) {
    for TaggedAnswer { tag, answer } in answers {
        let Some(waiting) = locked(under_way).answers.remove(&tag) else { continue };
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
    /// One way to send something, for [`Client::call`].
    pub(crate) async fn stream(
        &self,
        channel: Channel,
        request: Request<Wanted>,
    ) -> Result<Response<WriteResponse>, Status> {
        let asks = Asks::of(request.metadata());
        // Put there by whoever chose the node.
        let endpoint = request.extensions().get::<Endpoint>().cloned();
        let stream = match endpoint {
            Some(endpoint) => self.pool.write_stream(&endpoint, asks, channel),
            None => WriteStream::open(channel, &asks),
        };
        stream.send(request.into_inner()).await
    }
}

//! Callers that share a stream of writes: each gets its own answer, and a broken stream costs nobody a write or a second one.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::support::quick;
use futures::Stream;
use loadline_client::v1::tagged_answer::Answer;
use loadline_client::v1::tagged_write::Write;
use loadline_client::v1::writes_server::{Writes, WritesServer};
use loadline_client::v1::{
    PauseClusterRequest, StreamWritesRequest, StreamWritesResponse, TaggedAnswer, TaggedWrite, WriteRefused,
    WriteResponse,
};
use loadline_client::{Client, Endpoints, Error, Options, ScalingWrite, Writing};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, Streaming};

/// What was recorded, by request id; and what the node has seen of the way there.
#[derive(Debug, Default)]
struct Log {
    recorded: BTreeMap<String, String>,
    actors: BTreeSet<String>,
    streams: usize,
    messages: usize,
    /// The next stream records its first message and breaks.
    breaks: usize,
}

#[derive(Debug, Clone, Default)]
struct Node(Arc<Mutex<Log>>);

impl Node {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().expect("no test panics while it holds this")
    }

    async fn start() -> (Node, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = listener.local_addr().expect("an address").to_string();
        let node = Node::default();
        let router = tonic::transport::Server::builder().add_service(WritesServer::new(node.clone()));
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        (node, endpoint)
    }

    fn record(&self, TaggedWrite { tag, write }: TaggedWrite) -> TaggedAnswer {
        let Some(Write::PauseCluster(pause)) = write else { panic!("{write:?}") };
        if pause.cluster == "nowhere" {
            let refused =
                WriteRefused { code: Code::NotFound.into(), message: "no such cluster".into(), ..Default::default() };
            return TaggedAnswer { tag, answer: Some(Answer::Refused(refused)) };
        }
        let mut log = self.log();
        let repeated_request =
            log.recorded.insert(pause.options.expect("options").request_id, pause.cluster.clone()).is_some();
        // The number in the name comes back, so that a caller can tell whose answer it got.
        let revision = pause.cluster.trim_start_matches('c').parse().expect("a number");
        let done = WriteResponse { revision, results: Vec::new(), repeated_request };
        TaggedAnswer { tag, answer: Some(Answer::Done(done)) }
    }
}

#[tonic::async_trait]
impl Writes for Node {
    type StreamWritesStream = Pin<Box<dyn Stream<Item = Result<StreamWritesResponse, Status>> + Send>>;

    async fn stream_writes(
        &self,
        request: Request<Streaming<StreamWritesRequest>>,
    ) -> Result<Response<Self::StreamWritesStream>, Status> {
        let breaks = {
            let mut log = self.log();
            log.streams += 1;
            let actor = request.metadata().get("loadline-actor").expect("an actor").to_str().expect("text");
            log.actors.insert(actor.to_owned());
            let breaks = log.breaks > 0;
            log.breaks -= usize::from(breaks);
            breaks
        };
        let state = (self.clone(), request.into_inner());
        let step = move |(node, mut incoming): (Node, Streaming<StreamWritesRequest>)| async move {
            let message = incoming.message().await.ok()??;
            node.log().messages += 1;
            // The last one first: whoever waits must not take the next answer for its own.
            let answers: Vec<TaggedAnswer> = message.writes.into_iter().rev().map(|write| node.record(write)).collect();
            let said = if breaks { Err(Status::unavailable("gone")) } else { Ok(StreamWritesResponse { answers }) };
            Some((said, (node, incoming)))
        };
        Ok(Response::new(Box::pin(futures::stream::unfold(state, step))))
    }
}

fn client(endpoint: &str) -> Client {
    // A machine that does much else must not be taken for a node that does not answer.
    let (timeout, attempt_timeout) = (Duration::from_secs(60), Duration::from_secs(30));
    let options = Options { stream_writes: true, timeout, attempt_timeout, ..quick() };
    Client::connect(Endpoints::parse([endpoint]).expect("an endpoint"), options)
}

async fn pause(client: Client, cluster: String) -> Result<WriteResponse, Error> {
    let request = PauseClusterRequest { cluster, ..PauseClusterRequest::default() };
    client.write_scaling(ScalingWrite::PauseCluster(request), Writing::Record).await
}

async fn all(client: &Client, count: u64) -> Vec<Result<WriteResponse, Error>> {
    let callers: Vec<_> = (0..count).map(|number| tokio::spawn(pause(client.clone(), format!("c{number}")))).collect();
    let mut answers = Vec::new();
    for caller in callers {
        answers.push(caller.await.expect("a caller"));
    }
    answers
}

#[tokio::test]
async fn callers_share_one_stream_and_each_gets_its_own_answer() {
    let (node, endpoint) = Node::start().await;
    let client = client(&endpoint);
    // Somebody has connected before: callers that all do so at once may each do it for themselves.
    pause(client.clone(), "c0".to_owned()).await.expect("recorded");
    let answers = all(&client, 200).await;
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(answer.expect("an answer").revision, number);
    }
    let refused = pause(client.clone(), "nowhere".to_owned()).await;
    assert!(matches!(&refused, Err(Error::Refused(why)) if why.code == Code::NotFound), "{refused:?}");
    let log = node.log();
    assert_eq!((log.streams, log.recorded.len()), (1, 201));
    assert!(log.messages < 201, "every write went out alone");
}

#[tokio::test]
async fn a_stream_that_breaks_is_opened_again_and_nothing_is_recorded_twice() {
    let (node, endpoint) = Node::start().await;
    node.log().breaks = 2;
    let answers = all(&client(&endpoint), 50).await;
    for (number, answer) in (0..).zip(answers) {
        assert_eq!(answer.expect("an answer").revision, number);
    }
    let log = node.log();
    assert_eq!(log.recorded.len(), 50, "a repeat went out under another id");
    assert!(log.streams >= 3, "{}", log.streams);
}

#[tokio::test]
async fn who_asks_for_somebody_else_has_a_stream_of_its_own() {
    let (node, endpoint) = Node::start().await;
    let client = client(&endpoint);
    pause(client.clone(), "c1".to_owned()).await.expect("recorded");
    pause(client.on_behalf_of("alice"), "c2".to_owned()).await.expect("recorded");
    pause(client.on_behalf_of("alice"), "c3".to_owned()).await.expect("recorded");
    let log = node.log();
    assert_eq!(log.streams, 2);
    assert!(log.actors.contains("alice") && log.actors.len() == 2, "{:?}", log.actors);
}

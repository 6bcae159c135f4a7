//! What openraft is told about its peers, against a peer that answers when it is told to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use loadline_api::raft as wire;
use loadline_api::raft::raft_server::{Raft, RaftServer};
use openraft::network::{NetStreamAppend, NetTransferLeader, RPCOption, RaftNetworkFactory};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::client::{Network, without_lone_commits};
use super::links::Links;
use super::{Dial, PlainDial};
use crate::clock::Clock;
use crate::errors::DialError;
use crate::lease::{LeaseTracker, Office};
use crate::types::{AppendEntriesRequest, Entry, EntryPayload, Member, TransferLeaderRequest, new_log_id, new_vote};

#[derive(Debug, Default)]
struct ManualClock(AtomicU64);

impl Clock for ManualClock {
    fn wall_ms(&self) -> u64 {
        0
    }

    fn boottime(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Dials as usual, and counts.
#[derive(Debug, Default)]
struct Counting(AtomicUsize);

impl Dial for Counting {
    fn channel(&self, address: &str) -> Result<Channel, DialError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        PlainDial.channel(address)
    }
}

type Answers = mpsc::UnboundedSender<Result<wire::AppendResponse, Status>>;

/// Hands out what arrives, and answers what the test says.
struct Peer {
    arrived: mpsc::UnboundedSender<wire::AppendRequest>,
    answers: Mutex<Option<mpsc::UnboundedReceiver<Result<wire::AppendResponse, Status>>>>,
}

type Answer<T> = Result<Response<T>, Status>;

fn no<T>() -> Answer<T> {
    Err(Status::unimplemented(""))
}

#[tonic::async_trait]
impl Raft for Peer {
    type AppendStream = BoxStream<'static, Result<wire::AppendResponse, Status>>;

    async fn append(&self, request: Request<Streaming<wire::AppendRequest>>) -> Answer<Self::AppendStream> {
        let (arrived, mut incoming) = (self.arrived.clone(), request.into_inner());
        tokio::spawn(async move {
            while let Ok(Some(message)) = incoming.message().await {
                drop(arrived.send(message));
            }
        });
        let answers = self.answers.lock().unwrap().take().expect("one stream at a time");
        Ok(Response::new(UnboundedReceiverStream::new(answers).boxed()))
    }

    async fn vote(&self, _: Request<wire::VoteRequest>) -> Answer<wire::VoteResponse> {
        no()
    }

    async fn pre_vote(&self, _: Request<wire::VoteRequest>) -> Answer<wire::VoteResponse> {
        no()
    }

    async fn install_snapshot(&self, _: Request<Streaming<wire::SnapshotChunk>>) -> Answer<wire::SnapshotReply> {
        no()
    }

    async fn transfer_leader(&self, _: Request<wire::TransferLeaderRequest>) -> Answer<wire::TransferLeaderResponse> {
        no()
    }

    async fn propose(&self, _: Request<wire::ProposeRequest>) -> Answer<wire::ProposeResponse> {
        no()
    }

    async fn read_index(&self, _: Request<wire::ReadIndexRequest>) -> Answer<wire::ReadIndexResponse> {
        no()
    }

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Answer<wire::ProbeResponse> {
        no()
    }

    async fn adopt(&self, _: Request<wire::AdoptRequest>) -> Answer<wire::AdoptResponse> {
        no()
    }

    async fn read_history(&self, _: Request<wire::ReadHistoryRequest>) -> Answer<wire::ReadHistoryResponse> {
        no()
    }

    async fn join(&self, _: Request<wire::JoinRequest>) -> Answer<wire::JoinResponse> {
        no()
    }
}

/// Node 1, which leads in term 3, and the peer that it talks to.
struct Setting {
    clock: Arc<ManualClock>,
    dialled: Arc<Counting>,
    lease: Arc<LeaseTracker>,
    network: Network,
    member: Member,
    arrived: mpsc::UnboundedReceiver<wire::AppendRequest>,
    answers: Answers,
}

const OFFICE: Office = Office { term: 3, node: 1 };

async fn setting() -> Setting {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let member = Member { name: "n2".into(), address: listener.local_addr().unwrap().to_string() };
    let (arrives, arrived) = mpsc::unbounded_channel();
    let (answers, answered) = mpsc::unbounded_channel();
    let peer = Peer { arrived: arrives, answers: Mutex::new(Some(answered)) };
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(RaftServer::new(peer))
            .serve_with_incoming(TcpListenerStream::new(listener)),
    );
    let clock = Arc::new(ManualClock::default());
    let lease = Arc::new(LeaseTracker::new(clock.clone(), Duration::from_millis(600)));
    lease.set_voters(vec![[1, 2].into()]);
    lease.begin(OFFICE);
    let dialled = Arc::new(Counting::default());
    let network = Network {
        group: "g".into(),
        me: 1,
        links: Links::new(dialled.clone(), Duration::from_secs(5)),
        lease: lease.clone(),
        append_progress: Duration::from_millis(200),
        install_snapshot: Duration::from_secs(5),
    };
    Setting { clock, dialled, lease, network, member, arrived, answers }
}

fn heartbeat() -> AppendEntriesRequest {
    AppendEntriesRequest {
        vote: new_vote(3, 1, true),
        prev_log_id: Some(new_log_id(3, 7)),
        entries: Vec::new(),
        leader_commit: None,
    }
}

fn success() -> Result<wire::AppendResponse, Status> {
    let success = wire::AppendSuccess { matching: Some(wire::LogId { term: 3, index: 7 }) };
    Ok(wire::AppendResponse { result: Some(wire::append_response::Result::Success(success)) })
}

fn option() -> RPCOption {
    RPCOption::new(Duration::from_millis(50))
}

#[tokio::test]
async fn an_answer_counts_for_the_lease_from_when_its_message_was_sent() {
    let mut setting = setting().await;
    let mut client = setting.network.new_client(2, &setting.member).await;
    setting.clock.0.store(1_000, Ordering::SeqCst);
    // The stream stays open after the first message, as replication keeps it.
    let input = stream::iter([heartbeat()]).chain(stream::pending());
    let mut answers = client.stream_append(input, option()).await.unwrap();
    let message = setting.arrived.recv().await.unwrap();
    assert_eq!(message.envelope, Some(wire::Envelope { group: "g".into(), from: 1, to: 2 }));
    let lease = setting.lease.lease(OFFICE);
    assert!(!lease.holds());
    setting.clock.0.store(1_300, Ordering::SeqCst);
    setting.answers.send(success()).unwrap();
    assert_eq!(answers.next().await.unwrap().unwrap(), Ok(Some(new_log_id(3, 7))));
    assert_eq!(lease.remaining(), Duration::from_millis(1_000 + 540 - 1_300));
}

#[tokio::test]
async fn a_higher_vote_is_no_acknowledgement() {
    let setting = setting().await;
    let mut client = setting.network.clone().new_client(2, &setting.member).await;
    let mut answers = client.stream_append(stream::iter([heartbeat()]), option()).await.unwrap();
    let higher = wire::Vote { term: 4, node_id: 2, committed: false };
    let refusal = wire::AppendResponse { result: Some(wire::append_response::Result::HigherVote(higher)) };
    setting.answers.send(Ok(refusal)).unwrap();
    assert!(answers.next().await.unwrap().unwrap().is_err());
    assert!(answers.next().await.is_none(), "a refusal is the last answer");
    assert!(!setting.lease.lease(OFFICE).holds());
}

#[tokio::test]
async fn entries_that_nobody_answers_make_the_peer_unreachable_and_silence_without_entries_does_not() {
    let setting = setting().await;
    let mut client = setting.network.clone().new_client(2, &setting.member).await;
    let (send, sent) = mpsc::unbounded_channel();
    send.send(heartbeat()).unwrap();
    let mut answers = client.stream_append(UnboundedReceiverStream::new(sent), option()).await.unwrap();
    setting.answers.send(success()).unwrap();
    answers.next().await.unwrap().unwrap().unwrap();
    // Longer than the time-out, with nothing under way.
    let quiet = tokio::time::timeout(setting.network.append_progress * 3, answers.next()).await;
    assert!(quiet.is_err(), "an idle stream stays open");
    send.send(heartbeat()).unwrap();
    let error = answers.next().await.unwrap().unwrap_err();
    assert!(error.to_string().contains("no answer to entries"), "{error}");
    assert!(answers.next().await.is_none());
}

/// What goes to a follower that has everything up to `prev`.
fn append(prev: u64, entries: std::ops::RangeInclusive<u64>, commit: u64) -> AppendEntriesRequest {
    let entry = |index| Entry { log_id: new_log_id(3, index), payload: EntryPayload::Blank };
    AppendEntriesRequest {
        vote: new_vote(3, 1, true),
        prev_log_id: Some(new_log_id(3, prev)),
        entries: entries.map(entry).collect(),
        leader_commit: Some(new_log_id(3, commit)),
    }
}

/// Nothing to send along.
#[expect(clippy::reversed_empty_ranges, reason = "no entry is meant")]
const NONE: std::ops::RangeInclusive<u64> = 1..=0;

/// What is left of requests that are there all at once: where each begins, its entries, and the commit that it tells.
async fn left_of(requests: Vec<AppendEntriesRequest>) -> Vec<(u64, usize, u64)> {
    let index = |id: &Option<crate::types::LogId>| id.as_ref().unwrap().index;
    let left = without_lone_commits(stream::iter(requests)).collect::<Vec<_>>().await;
    left.iter().map(|left| (index(&left.prev_log_id), left.entries.len(), index(&left.leader_commit))).collect()
}

#[tokio::test]
async fn a_commit_goes_with_the_entries_that_follow_at_once() {
    let requests = vec![append(7, 8..=8, 7), append(8, NONE, 8), append(8, NONE, 8), append(8, 9..=10, 8)];
    assert_eq!(left_of(requests).await, [(7, 1, 7), (8, 2, 8)]);
}

#[tokio::test]
async fn a_commit_is_not_dropped_for_a_request_that_says_less_or_begins_elsewhere() {
    let less = vec![append(8, NONE, 8), append(8, 9..=9, 7)];
    assert_eq!(left_of(less).await, [(8, 0, 8), (8, 1, 7)]);
    let elsewhere = vec![append(8, NONE, 8), append(5, 6..=6, 8)];
    assert_eq!(left_of(elsewhere).await, [(8, 0, 8), (5, 1, 8)]);
    let mut newer = append(8, 9..=9, 8);
    newer.vote = new_vote(4, 2, true);
    assert_eq!(left_of(vec![append(8, NONE, 8), newer]).await, [(8, 0, 8), (8, 1, 8)]);
}

#[tokio::test]
async fn a_commit_that_nothing_follows_is_told_all_the_same() {
    let (send, sent) = mpsc::unbounded_channel();
    let mut left = without_lone_commits(UnboundedReceiverStream::new(sent));
    send.send(append(8, NONE, 8)).unwrap();
    // The stream stays open, so only the time that has passed can let it go.
    assert_eq!(left.next().await.unwrap().leader_commit, Some(new_log_id(3, 8)));
    send.send(append(8, NONE, 9)).unwrap();
    drop(send);
    assert_eq!(left.next().await.unwrap().leader_commit, Some(new_log_id(3, 9)));
    assert!(left.next().await.is_none());
}

#[tokio::test]
async fn a_peer_is_dialled_only_when_there_is_something_to_say() {
    let setting = setting().await;
    let mut client = setting.network.clone().new_client(2, &setting.member).await;
    {
        let nothing = client.stream_append(stream::pending(), option());
        tokio::pin!(nothing);
        assert!(futures::poll!(nothing.as_mut()).is_pending());
    }
    assert_eq!(setting.dialled.0.load(Ordering::SeqCst), 0);
    let mut answers = client.stream_append(stream::empty(), option()).await.unwrap();
    assert!(answers.next().await.is_none());
    drop(answers);
    assert_eq!(setting.dialled.0.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn handing_over_ends_the_lease_before_anybody_can_have_heard_of_it() {
    let setting = setting().await;
    setting.lease.acknowledge(OFFICE, 2, setting.lease.now());
    let lease = setting.lease.lease(OFFICE);
    assert!(lease.holds());
    let mut client = setting.network.clone().new_client(2, &setting.member).await;
    let request = TransferLeaderRequest::new(new_vote(3, 1, true), 2, None);
    let handing_over = client.transfer_leader(request, option());
    tokio::pin!(handing_over);
    // One step only: no connection can have been made yet.
    assert!(futures::poll!(handing_over.as_mut()).is_pending());
    assert!(!lease.holds());
}

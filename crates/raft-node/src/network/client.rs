//! How openraft reaches the other nodes.
//!
//! Entries and heartbeats go over a bidirectional stream. The time at which each message was handed to the transport
//! is kept until its answer comes, and then counts for the lease (see `lease`). Every failure of the transport is
//! reported as unreachable: that makes openraft wait before it tries again, whereas a plain network error would be
//! retried at once, thousands of times a second while a peer is down.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, Stream, StreamExt};
use loadline_api::raft as wire;
use openraft::base::BoxStream as RaftBoxStream;
use openraft::errors::{ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption, RaftNetworkFactory,
};
use openraft::raft::{SnapshotResponse, TransferLeaderError, TransferLeaderResponse};
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::convert;
use super::links::{Links, PeerLink, Purpose, within};
use crate::errors::Malformed;
use crate::lease::{LeaseTracker, Office};
use crate::storage::snapshot::{RaftSnapshot, SnapshotData};
use crate::types::{
    AppendEntriesRequest, Member, RpcError, StreamAppendResult, TransferLeaderRequest, Types, Vote, VoteRequest,
    VoteResponse,
};

/// So long a follower may not know of a commit that has nothing to go with: little against what it takes to ask it anything.
const COMMIT_WAITS_MAX: Duration = Duration::from_millis(1);

/// Bytes of a snapshot in one message.
const SNAPSHOT_CHUNK_BYTES: usize = 1 << 20;

/// Makes clients; openraft keeps one.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) group: String,
    pub(crate) me: u64,
    pub(crate) links: Links,
    pub(crate) lease: Arc<LeaseTracker>,
    pub(crate) append_progress: Duration,
    pub(crate) install_snapshot: Duration,
}

impl Network {
    fn client(&self, target: u64, member: &Member, purpose: Purpose) -> PeerClient {
        PeerClient { network: self.clone(), target, address: member.address.clone(), purpose }
    }
}

impl RaftNetworkFactory<Types> for Network {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &Member) -> PeerClient {
        self.client(target, node, Purpose::Append)
    }

    async fn new_heartbeat_client(&mut self, target: u64, node: &Member) -> PeerClient {
        self.client(target, node, Purpose::Heartbeat)
    }

    async fn new_snapshot_client(&mut self, target: u64, node: &Member) -> PeerClient {
        self.client(target, node, Purpose::Snapshot)
    }
}

/// One other node, as openraft talks to it.
#[derive(Debug, Clone)]
pub(crate) struct PeerClient {
    network: Network,
    target: u64,
    address: String,
    purpose: Purpose,
}

impl PeerClient {
    fn envelope(&self) -> wire::Envelope {
        wire::Envelope { group: self.network.group.clone(), from: self.network.me, to: self.target }
    }

    fn raft(&self) -> Result<PeerLink, Unreachable<Types>> {
        self.network.links.client(&self.address, self.purpose).map_err(|status| self.unreachable(&status))
    }

    fn unreachable(&self, status: &Status) -> Unreachable<Types> {
        self.gone(&format!("{:?}: {}", status.code(), status.message()))
    }

    fn nonsense(&self, malformed: &Malformed) -> Unreachable<Types> {
        self.gone(&format!("its answer makes no sense: {malformed}"))
    }

    fn gone(&self, why: &str) -> Unreachable<Types> {
        Unreachable::from_string(format!("node {} at {}: {why}", self.target, self.address))
    }
}

/// A message that was handed to the transport and not answered yet.
#[derive(Debug, Clone, Copy)]
struct Sent {
    office: Office,
    /// For the lease, on the clock that counts sleep.
    at: Duration,
    /// For the time-out, on the clock that timers run on.
    timer: Instant,
}

/// What was sent over one stream and not answered yet, oldest first.
#[derive(Debug, Default)]
struct Unanswered(Mutex<VecDeque<Sent>>);

impl Unanswered {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Sent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn oldest(&self) -> Option<Sent> {
        self.lock().front().copied()
    }
}

impl NetStreamAppend<Types> for PeerClient {
    fn stream_append<'s, S>(
        &'s mut self,
        mut input: S,
        _option: RPCOption,
    ) -> BoxFuture<'s, Result<RaftBoxStream<'s, Result<StreamAppendResult, RpcError>>, RpcError>>
    where
        S: Stream<Item = AppendEntriesRequest> + Send + Unpin + 'static,
    {
        Box::pin(async move {
            // Before dialling: openraft waits inside this stream when a peer was unreachable. Dialling first would turn a
            // dead peer into a loop of connection attempts that never waits.
            let Some(first) = input.next().await else {
                let nothing: BoxStream<'s, _> = Box::pin(stream::empty());
                return Ok(nothing);
            };
            let unanswered = Arc::new(Unanswered::default());
            let outgoing = {
                let (unanswered, lease) = (unanswered.clone(), self.network.lease.clone());
                let envelope = self.envelope();
                stream::once(std::future::ready(first)).chain(without_lone_commits(input)).map(move |request| {
                    let leader = &request.vote.leader_id;
                    let office = Office { term: leader.term, node: leader.voted_for };
                    unanswered.lock().push_back(Sent { office, at: lease.now(), timer: Instant::now() });
                    convert::append_out(request, envelope.clone())
                })
            };
            let mut raft = self.raft()?;
            let answers = within(self.network.append_progress, raft.append(outgoing))
                .await
                .map_err(|status| self.unreachable(&status))?;
            let conversation = Conversation { peer: self.clone(), answers, unanswered };
            let answers: BoxStream<'s, _> = Box::pin(stream::unfold(Some(conversation), Conversation::next));
            Ok(answers)
        })
    }
}

/// Holds back a request that only says how far the leader has committed, and drops it if another comes at once that says so, too. Each
/// write would otherwise be two messages to each follower and two answers, the second just when its caller is to be answered.
pub(super) fn without_lone_commits<S>(input: S) -> impl Stream<Item = AppendEntriesRequest> + Send + Unpin + 'static
where
    S: Stream<Item = AppendEntriesRequest> + Send + Unpin + 'static,
{
    Box::pin(stream::unfold((input.fuse(), None), |(mut input, read_ahead)| async move {
        let mut request: AppendEntriesRequest = match read_ahead {
            Some(request) => request,
            None => input.next().await?,
        };
        let until = Instant::now() + COMMIT_WAITS_MAX;
        while request.entries.is_empty() {
            tokio::select! {
                biased;
                next = input.next() => match next {
                    Some(next) if says_as_much(&next, &request) => request = next,
                    next => return Some((request, (input, next))),
                },
                () = tokio::time::sleep_until(until) => break,
            }
        }
        Some((request, (input, None)))
    }))
}

/// Whether a follower that was not told `before` misses nothing.
fn says_as_much(request: &AppendEntriesRequest, before: &AppendEntriesRequest) -> bool {
    request.vote == before.vote
        && request.prev_log_id == before.prev_log_id
        && request.leader_commit >= before.leader_commit
}

/// An open append stream.
struct Conversation {
    peer: PeerClient,
    answers: Streaming<wire::AppendResponse>,
    unanswered: Arc<Unanswered>,
}

impl Conversation {
    /// The next answer. An error, and an answer that refuses, are the last.
    async fn next(open: Option<Self>) -> Option<(Result<StreamAppendResult, RpcError>, Option<Self>)> {
        let mut this = open?;
        let answer = match this.answer().await {
            Ok(answer) => answer?,
            Err(gone) => return Some((Err(gone.into()), None)),
        };
        let keep = answer.is_ok();
        Some((Ok(answer), keep.then_some(this)))
    }

    async fn answer(&mut self) -> Result<Option<StreamAppendResult>, Unreachable<Types>> {
        let message = loop {
            let progress = self.peer.network.append_progress;
            // An idle stream stays open for as long as it likes; only what was sent wants an answer.
            let waiting_since = self.unanswered.oldest().map(|sent| sent.timer);
            let deadline = waiting_since.unwrap_or_else(Instant::now) + progress;
            tokio::select! {
                biased;
                message = self.answers.message() => break message,
                () = tokio::time::sleep_until(deadline) => {
                    if self.unanswered.oldest().is_some_and(|sent| sent.timer + progress <= Instant::now()) {
                        return Err(self.peer.gone(&format!("no answer to entries for {progress:?}")));
                    }
                }
            }
        };
        let Some(message) = message.map_err(|status| self.peer.unreachable(&status))? else { return Ok(None) };
        let result = convert::append_result_in(message).map_err(|error| self.peer.nonsense(&error))?;
        let Some(sent) = self.unanswered.lock().pop_front() else {
            return Err(self.peer.nonsense(&Malformed::wrong("append", "an answer to nothing")));
        };
        // A conflict about the log is still an answer of a follower; only a higher vote is not.
        if !matches!(result, Err(openraft::raft::StreamAppendError::HigherVote(_))) {
            self.peer.network.lease.acknowledge(sent.office, self.peer.target, sent.at);
        }
        Ok(Some(result))
    }
}

impl NetVote<Types> for PeerClient {
    async fn vote(&mut self, rpc: VoteRequest, option: RPCOption) -> Result<VoteResponse, RpcError> {
        let mut raft = self.raft()?;
        let request = convert::vote_request_out(&rpc, self.envelope());
        let answer = within(option.soft_ttl(), raft.vote(request)).await.map_err(|status| self.unreachable(&status))?;
        Ok(convert::vote_response_in(answer).map_err(|error| self.nonsense(&error))?)
    }

    async fn pre_vote(&mut self, rpc: VoteRequest, option: RPCOption) -> Result<VoteResponse, RpcError> {
        let mut raft = self.raft()?;
        let request = convert::vote_request_out(&rpc, self.envelope());
        let answer =
            within(option.soft_ttl(), raft.pre_vote(request)).await.map_err(|status| self.unreachable(&status))?;
        Ok(convert::vote_response_in(answer).map_err(|error| self.nonsense(&error))?)
    }
}

impl NetTransferLeader<Types> for PeerClient {
    async fn transfer_leader(
        &mut self,
        req: TransferLeaderRequest,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RpcError> {
        // From the moment this message can arrive, another may be elected although a lease was promised.
        let leader = &req.from_leader().leader_id;
        self.network.lease.give_up(Office { term: leader.term, node: leader.voted_for });
        let mut raft = self.raft()?;
        let request = convert::transfer_out(&req, self.envelope());
        let answer = within(option.hard_ttl(), raft.transfer_leader(request))
            .await
            .map_err(|status| self.unreachable(&status))?;
        if answer.accepted {
            return Ok(Ok(()));
        }
        let expected = req.last_log_id().copied();
        Ok(Err(TransferLeaderError::LogNotFlushed { expected, actual: None }))
    }
}

impl NetBackoff<Types> for PeerClient {
    fn backoff(&self) -> Option<Backoff> {
        // openraft's configuration says how long; see `config`.
        None
    }
}

impl NetSnapshot<Types> for PeerClient {
    type SnapshotData = SnapshotData;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: RaftSnapshot,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let file = snapshot.snapshot.file;
        let head = wire::SnapshotHead {
            envelope: Some(self.envelope()),
            vote: Some(convert::vote_out(&vote)),
            meta: Some(convert::snapshot_meta_out(&snapshot.meta)),
            bytes_total: file.len(),
        };
        let moved = Arc::new(Mutex::new(Instant::now()));
        let failed = Arc::new(Mutex::new(None));
        let chunks = {
            let (moved, failed) = (moved.clone(), failed.clone());
            let mut offset = 0;
            let data = stream::iter(std::iter::from_fn(move || {
                if offset >= file.len() {
                    return None;
                }
                let chunk = match file.read_at(offset, SNAPSHOT_CHUNK_BYTES) {
                    Ok(chunk) => chunk,
                    Err(error) => {
                        // Ends the stream early, which the receiver refuses.
                        *locked(&failed) = Some(crate::storage::causes(&error));
                        return None;
                    }
                };
                offset += chunk.len() as u64;
                *locked(&moved) = Instant::now();
                Some(wire::SnapshotChunk { part: Some(wire::snapshot_chunk::Part::Data(chunk.into())) })
            }));
            let head = wire::SnapshotChunk { part: Some(wire::snapshot_chunk::Part::Head(head)) };
            stream::once(std::future::ready(head)).chain(data)
        };
        let mut raft = self.raft()?;
        let call = raft.install_snapshot(chunks);
        tokio::pin!(call, cancel);
        let stalled_after = self.network.install_snapshot;
        let reply = loop {
            let deadline = *locked(&moved) + stalled_after;
            tokio::select! {
                biased;
                reply = &mut call => break reply,
                closed = &mut cancel => return Err(closed.into()),
                () = tokio::time::sleep_until(deadline) => {
                    if *locked(&moved) + stalled_after <= Instant::now() {
                        return Err(self.gone(&format!("no progress with a snapshot for {stalled_after:?}")).into());
                    }
                }
            }
        };
        if let Some(error) = locked(&failed).take() {
            return Err(self.gone(&format!("the snapshot cannot be read here: {error}")).into());
        }
        let reply = reply.map_err(|status| self.unreachable(&status))?.into_inner();
        let vote = convert::vote_in(reply.vote).map_err(|error| self.nonsense(&error))?;
        Ok(SnapshotResponse { vote })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

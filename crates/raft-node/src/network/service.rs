//! Answers the other nodes.
//!
//! Every message is checked before anything acts on it: that it is meant for this group and this node, that its
//! sender speaks for itself, and that it makes sense (see `convert`). What does not is refused as an invalid argument,
//! and nothing is written.

use std::sync::{Arc, Mutex, PoisonError};

use futures::stream::{self, BoxStream, Stream, StreamExt};
use loadline_api::raft as wire;
use loadline_api::raft::raft_server;
use loadline_state_machine::{RULES_VERSION_MAX, Request as StateMachineRequest};
use openraft::raft::TransferLeaderError;
use tonic::{Request, Response, Status, Streaming};

use super::convert;
use crate::config::check_address;
use crate::errors::{Malformed, MembershipError};
use crate::node::{Inner, Running};
use crate::types::AppendEntriesRequest;
use crate::{fetching, forward, founding};

/// See the module's header.
#[derive(Debug, Clone)]
pub struct RaftService {
    inner: Arc<Inner>,
}

impl RaftService {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner }
    }

    /// This node's Raft and who sent the message, if the message is meant for it.
    fn addressed(&self, envelope: Option<wire::Envelope>) -> Result<(Arc<Running>, u64), Status> {
        let running =
            self.inner.running().ok_or_else(|| Status::failed_precondition("this node is not part of a group yet"))?;
        let from = sender(&running, envelope).map_err(|malformed| self.refuse(&malformed))?;
        Ok((running, from))
    }

    fn refuse(&self, malformed: &Malformed) -> Status {
        refuse(&self.inner, malformed)
    }

    /// A lease that was promised before a restart may still be running.
    fn check_may_vote(&self) -> Result<(), Status> {
        if self.inner.may_vote() {
            return Ok(());
        }
        Err(Status::unavailable("this node has just started; the lease of the last leader may still be running"))
    }
}

/// Who sent a message, if it is meant for this node.
pub(super) fn sender(running: &Running, envelope: Option<wire::Envelope>) -> Result<u64, Malformed> {
    let envelope = envelope.ok_or(Malformed::Missing("envelope"))?;
    let identity = &running.identity;
    if envelope.group != identity.group {
        let wrong = format!("this node belongs to group {}, not {:?}", identity.group, envelope.group);
        return Err(Malformed::wrong("group", wrong));
    }
    if envelope.to != identity.node_id {
        return Err(Malformed::wrong("to", format!("this is node {}, not {}", identity.node_id, envelope.to)));
    }
    if envelope.from == 0 || envelope.from == identity.node_id {
        return Err(Malformed::wrong("from", format!("{} cannot be another node", envelope.from)));
    }
    Ok(envelope.from)
}

pub(super) fn refuse(inner: &Inner, malformed: &Malformed) -> Status {
    tracing::warn!("refused a message of a peer: {malformed}");
    inner.observer.peer_message_refused();
    Status::invalid_argument(malformed.to_string())
}

pub(super) fn failed(error: &dyn std::fmt::Display) -> Status {
    Status::unavailable(format!("this node has stopped: {error}"))
}

fn not_leader() -> Status {
    Status::failed_precondition("this node is not the leader")
}

/// The requests of an append stream, until one of them cannot be taken. Why is left in `ended_by`.
fn append_requests(
    inner: Arc<Inner>,
    running: Arc<Running>,
    incoming: Streaming<wire::AppendRequest>,
    ended_by: Arc<Mutex<Option<Status>>>,
) -> impl Stream<Item = AppendEntriesRequest> + Send + 'static {
    let take = move |message: Result<Option<wire::AppendRequest>, Status>| {
        let mut message = match message {
            Ok(Some(message)) => message,
            Ok(None) => return Err(None),
            // The transport broke, or the bytes were no message at all. The sender is told in either case.
            Err(status) => return Err(Some(Status::invalid_argument(status.message().to_owned()))),
        };
        if !message.entries.is_empty()
            && let Some(space) = inner.reserve.low()
        {
            let text =
                format!("{} bytes of disk are free, {} are kept back: no entries are taken", space.free, space.reserve);
            return Err(Some(Status::resource_exhausted(text)));
        }
        sender(&running, message.envelope.take())
            .and_then(|from| convert::append_in(message, from, &inner.packed))
            .map_err(|malformed| Some(refuse(&inner, &malformed)))
    };
    stream::unfold((incoming, take, ended_by), |(mut incoming, take, ended_by)| async move {
        match take(incoming.message().await) {
            Ok(request) => Some((request, (incoming, take, ended_by))),
            Err(status) => {
                *ended_by.lock().unwrap_or_else(PoisonError::into_inner) = status;
                None
            }
        }
    })
}

#[tonic::async_trait]
impl raft_server::Raft for RaftService {
    type AppendStream = BoxStream<'static, Result<wire::AppendResponse, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<wire::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let running =
            self.inner.running().ok_or_else(|| Status::failed_precondition("this node is not part of a group yet"))?;
        let ended_by = Arc::new(Mutex::new(None));
        let requests = append_requests(self.inner.clone(), running.clone(), request.into_inner(), ended_by.clone());
        let answers = running.raft.stream_append(requests).map(|answer| match answer {
            Ok(result) => Ok(convert::append_result_out(&result)),
            Err(fatal) => Err(failed(&fatal)),
        });
        // What was taken before the bad message is answered first; then the sender hears what was wrong.
        let last = stream::iter(std::iter::from_fn(move || {
            ended_by.lock().unwrap_or_else(PoisonError::into_inner).take().map(Err)
        }));
        Ok(Response::new(Box::pin(answers.chain(last))))
    }

    async fn vote(&self, request: Request<wire::VoteRequest>) -> Result<Response<wire::VoteResponse>, Status> {
        let mut request = request.into_inner();
        let (running, from) = self.addressed(request.envelope.take())?;
        let asked = convert::vote_request_in(&request, from).map_err(|malformed| self.refuse(&malformed))?;
        if !asked.leadership_transfer {
            self.check_may_vote()?;
        }
        let answer = running.raft.vote(asked).await.map_err(|fatal| failed(&fatal))?;
        Ok(Response::new(convert::vote_response_out(&answer)))
    }

    async fn pre_vote(&self, request: Request<wire::VoteRequest>) -> Result<Response<wire::VoteResponse>, Status> {
        let mut request = request.into_inner();
        let (running, from) = self.addressed(request.envelope.take())?;
        let asked = convert::vote_request_in(&request, from).map_err(|malformed| self.refuse(&malformed))?;
        self.check_may_vote()?;
        let answer = running.raft.pre_vote(asked).await.map_err(|fatal| failed(&fatal))?;
        Ok(Response::new(convert::vote_response_out(&answer)))
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<wire::SnapshotChunk>>,
    ) -> Result<Response<wire::SnapshotReply>, Status> {
        let running =
            self.inner.running().ok_or_else(|| Status::failed_precondition("this node is not part of a group yet"))?;
        super::snapshot_in::receive(&self.inner, &running, request.into_inner()).await.map(Response::new)
    }

    async fn transfer_leader(
        &self,
        request: Request<wire::TransferLeaderRequest>,
    ) -> Result<Response<wire::TransferLeaderResponse>, Status> {
        let mut request = request.into_inner();
        let (running, from) = self.addressed(request.envelope.take())?;
        let asked = convert::transfer_in(&request, from).map_err(|malformed| self.refuse(&malformed))?;
        let answer = running.raft.handle_transfer_leader(asked).await.map_err(|fatal| failed(&fatal))?;
        let accepted = match answer {
            Ok(()) => true,
            Err(TransferLeaderError::VoteChanged { .. } | TransferLeaderError::LogNotFlushed { .. }) => false,
        };
        Ok(Response::new(wire::TransferLeaderResponse { accepted }))
    }

    async fn propose(&self, request: Request<wire::ProposeRequest>) -> Result<Response<wire::ProposeResponse>, Status> {
        let wire::ProposeRequest { envelope, request } = request.into_inner();
        self.addressed(envelope)?;
        let asked = StateMachineRequest::decode(&request)
            .map_err(|error| self.refuse(&Malformed::wrong("request", error.to_string())))?;
        // The leader's own bytes go into the log, and not those of whoever asked.
        let encoded = asked.encode().into();
        let outcome = self.inner.propose_here(asked, encoded).await;
        Ok(Response::new(forward::answer_out(outcome)))
    }

    async fn read_index(
        &self,
        request: Request<wire::ReadIndexRequest>,
    ) -> Result<Response<wire::ReadIndexResponse>, Status> {
        self.addressed(request.into_inner().envelope)?;
        let read = self.inner.read_index_here().await.ok_or_else(not_leader)?;
        Ok(Response::new(wire::ReadIndexResponse { read_log_id: Some(convert::log_id_out(&read)) }))
    }

    async fn read_history(
        &self,
        request: Request<wire::ReadHistoryRequest>,
    ) -> Result<Response<wire::ReadHistoryResponse>, Status> {
        let wire::ReadHistoryRequest { envelope, first, last } = request.into_inner();
        self.addressed(envelope)?;
        if first == 0 || last < first {
            return Err(self.refuse(&Malformed::wrong("last", format!("{first} to {last} are no entries"))));
        }
        fetching::page(&self.inner, first, last).await.map(Response::new)
    }

    async fn probe(&self, request: Request<wire::ProbeRequest>) -> Result<Response<wire::ProbeResponse>, Status> {
        let asked = request.into_inner().hash_index;
        let inner = &self.inner;
        let running = inner.running();
        let state = inner.published.state();
        let checkpoint = state.checkpoints().filter(|(index, _)| index.0 <= asked).last();
        let (leader_id, leader_address) = inner.known_leader().unwrap_or_default();
        let space = inner.reserve.space();
        Ok(Response::new(wire::ProbeResponse {
            group: running.as_ref().map(|running| running.identity.group.clone()).unwrap_or_default(),
            node_id: running.as_ref().map_or(0, |running| running.identity.node_id),
            name: inner.config.name.clone(),
            initialised: running.as_ref().is_some_and(|running| running.initialised(inner)),
            applied_index: state.applied().0,
            leader_id,
            leader_address,
            wall_clock_ms: i64::try_from(inner.clock.wall_ms()).unwrap_or(i64::MAX),
            rules_version_max: RULES_VERSION_MAX.0,
            hash: checkpoint.map(|(_, hash)| hash.0.to_vec().into()).unwrap_or_default(),
            disk_low: inner.reserve.low().is_some(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hash_index: checkpoint.map_or(0, |(index, _)| index.0),
            disk_free: space.free,
            disk_reserve: space.reserve,
        }))
    }

    async fn adopt(&self, request: Request<wire::AdoptRequest>) -> Result<Response<wire::AdoptResponse>, Status> {
        let outcome = founding::adopt(&self.inner, request.into_inner()).await;
        let reason = outcome.err();
        Ok(Response::new(wire::AdoptResponse { adopted: reason.is_none(), reason: reason.unwrap_or_default() }))
    }

    async fn join(&self, request: Request<wire::JoinRequest>) -> Result<Response<wire::JoinResponse>, Status> {
        let wire::JoinRequest { name, address } = request.into_inner();
        if name.is_empty() {
            return Err(self.refuse(&Malformed::Missing("name")));
        }
        check_address("address", &address)
            .map_err(|error| self.refuse(&Malformed::wrong("join", error.to_string())))?;
        let node_id = self.inner.admit(name, address).await.map_err(|error| match error {
            MembershipError::NotLeader { leader: Some(leader) } => {
                Status::failed_precondition(format!("this node is not the leader; {leader} is"))
            }
            MembershipError::NotLeader { leader: None } => not_leader(),
            other => Status::unavailable(other.to_string()),
        })?;
        let running = self.inner.running().ok_or_else(not_leader)?;
        let peers = running.membership().nodes().map(|(id, member)| convert::peer_out(*id, member)).collect();
        Ok(Response::new(wire::JoinResponse { group: running.identity.group.clone(), node_id, peers }))
    }
}

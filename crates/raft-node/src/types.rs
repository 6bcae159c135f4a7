//! What Raft carries here, in openraft's terms.
//!
//! An entry is the bytes that the proposer sealed: they are stored, sent and applied as they are, so that a hash
//! over them means the same everywhere. Nothing outside this crate names an openraft type.

use std::fmt;

use bytes::Bytes;
use loadline_log::{LogPosition, StoredVote};
use loadline_state_machine::Receipt;
use openraft::type_config::alias;
use openraft::vote::RaftLeaderId as _;

use crate::runtime::Runtime;
use crate::storage::state_machine::Machine;

/// The types of this project's Raft group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Types;

impl openraft::RaftTypeConfig for Types {
    type D = Payload;
    type R = Receipts;
    type NodeId = u64;
    type Node = Member;
    type Term = u64;
    // At most one leader in a term, as the announcement of a leader in the log says.
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Payload, u64, Member>;
    type Entry = openraft::Entry<<Self::LeaderId as openraft::vote::RaftLeaderId>::Committed, Self::Payload>;
    type AsyncRuntime = Runtime;
    type Responder<T>
        = Then<T>
    where
        T: openraft::OptionalSend + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: openraft::OptionalSend + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

/// What is to be done when an entry is applied or refused: there and then, without a task that waits for it. If Raft goes
/// without a word, so does this, and whoever waits for what it holds notices.
pub(crate) struct Then<T>(Box<dyn FnOnce(T) + Send>);

impl<T> Then<T> {
    pub(crate) fn new(done: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Box::new(done))
    }
}

impl<T: 'static> openraft::raft::responder::Responder<Types, T> for Then<T> {
    fn on_complete(self, result: T) {
        (self.0)(result);
    }
}

/// One sealed entry of the state machine.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Payload(pub(crate) Bytes);

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// What applying one entry answers: a receipt per request of the entry, in its order. Empty for entries that are
/// Raft's own.
#[derive(Debug, Default)]
pub(crate) struct Receipts(pub(crate) Vec<Receipt>);

/// How a node of the group is called and reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// host:port of its gRPC listener.
    pub(crate) address: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.address)
    }
}

pub(crate) type Raft = openraft::Raft<Types, Machine>;
pub(crate) type LogId = alias::LogIdOf<Types>;
pub(crate) type LeaderId = alias::LeaderIdOf<Types>;
pub(crate) type CommittedLeaderId = alias::CommittedLeaderIdOf<Types>;
pub(crate) type Vote = alias::VoteOf<Types>;
pub(crate) type Entry = alias::EntryOf<Types>;
pub(crate) type EntryPayload = openraft::EntryPayload<Payload, u64, Member>;
pub(crate) type Membership = openraft::Membership<u64, Member>;
pub(crate) type StoredMembership = alias::StoredMembershipOf<Types>;
pub(crate) type SnapshotMeta = alias::SnapshotMetaOf<Types>;
pub(crate) type AppendEntriesRequest = openraft::raft::AppendEntriesRequest<Types>;
pub(crate) type VoteRequest = openraft::raft::VoteRequest<Types>;
pub(crate) type VoteResponse = openraft::raft::VoteResponse<Types>;
pub(crate) type TransferLeaderRequest = openraft::raft::TransferLeaderRequest<Types>;
pub(crate) type StreamAppendResult = openraft::raft::StreamAppendResult<Types>;
pub(crate) type RpcError = openraft::errors::RPCError<Types>;
pub(crate) type Metrics = openraft::RaftMetrics<Types>;
pub(crate) type ServerMetrics = openraft::metrics::RaftServerMetrics<Types>;

pub(crate) fn new_log_id(term: u64, index: u64) -> LogId {
    LogId::new(committed(LeaderId { term, voted_for: 0 }), index)
}

/// What is left of a leader once it was elected: its term, of which it is then the only leader.
pub(crate) fn committed(leader: LeaderId) -> CommittedLeaderId {
    leader.to_committed()
}

pub(crate) fn new_vote(term: u64, node: u64, committed: bool) -> Vote {
    Vote { leader_id: LeaderId { term, voted_for: node }, committed }
}

pub(crate) fn term(log_id: &LogId) -> u64 {
    log_id.committed_leader_id().term
}

pub(crate) fn log_id(position: LogPosition) -> LogId {
    new_log_id(position.term, position.index)
}

/// A term has one leader, so its node adds nothing to a position and is left out.
pub(crate) fn position(log_id: &LogId) -> LogPosition {
    LogPosition { term: term(log_id), node: 0, index: log_id.index() }
}

pub(crate) fn vote(stored: StoredVote) -> Vote {
    new_vote(stored.term, stored.node, stored.committed)
}

pub(crate) fn stored_vote(vote: &Vote) -> StoredVote {
    StoredVote { term: vote.leader_id.term, node: vote.leader_id.voted_for, committed: vote.committed }
}

//! How things end badly, one type per question a caller can ask.
//!
//! A refusal by the state machine is none of these: it is a receipt. Not here either: which gRPC status an error
//! becomes; that is the server's business.

use std::time::Duration;

use loadline_log::{IdentityError, IndexError, JournalError, SigningKeyError, SnapshotError, WalError};
use loadline_state_machine::{DecodeError, Hash, LogIndex};

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{field}: {wrong}")]
    Config { field: &'static str, wrong: String },
    #[error("cannot read who this data folder belongs to")]
    Identity(#[source] IdentityError),
    #[error("cannot open the write-ahead log")]
    Wal(#[source] WalError),
    #[error("cannot open the snapshots")]
    Snapshots(#[source] SnapshotError),
    #[error("cannot open the journal")]
    Journal(#[source] JournalError),
    #[error("cannot open the audit index")]
    AuditIndex(#[source] IndexError),
    #[error("cannot get at the key that signs exports")]
    SigningKey(#[source] SigningKeyError),
    #[error(
        "this data folder belongs to node {stored}, but the node is configured as {configured}; a folder cannot change \
         hands: correct the name, or give this node a folder of its own"
    )]
    OtherName { stored: String, configured: String },
    /// openraft refused what the storage told it.
    #[error("cannot start Raft: {0}")]
    Raft(String),
}

/// Why there is no receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Nothing was recorded. There is no leader, or none that can reach a majority.
    #[error("there is no leader at the moment")]
    NoLeader,
    /// Nothing was recorded.
    #[error("too many requests are waiting to be recorded")]
    Overloaded,
    /// Nothing was recorded. It goes away by itself when space returns.
    #[error(
        "node {node} has {free} bytes of disk free and keeps {reserve} back; nothing is recorded until there is more"
    )]
    DiskReserve { free: u64, reserve: u64, node: u64 },
    /// Nothing was recorded, and nothing of this size ever is.
    #[error("the request takes {bytes} bytes; one may take {bytes_max}")]
    TooLarge { bytes: u64, bytes_max: u64 },
    /// It may or may not have been recorded: ask again with the same request id.
    #[error("it is not known whether the request was recorded: {reason}")]
    Unknown { reason: String },
    /// Nothing was recorded. The nodes disagree about the state and nobody knows who is right.
    #[error(
        "the nodes disagree about the state and no majority can be found; nothing is recorded until that is resolved"
    )]
    Suspended,
    /// Nothing was recorded.
    #[error("this node is shutting down")]
    ShuttingDown,
    /// Nothing was recorded. This node has stopped for good; see [`StopReason`].
    #[error("this node has stopped")]
    Stopped,
}

/// Why a read gave no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    #[error("there is no leader at the moment")]
    NoLeader,
    #[error("this node did not catch up with the leader within {within:?}")]
    Behind { within: Duration },
    #[error("cannot write the snapshot: {0}")]
    Snapshot(String),
    #[error("this node is shutting down")]
    ShuttingDown,
    #[error("this node has stopped")]
    Stopped,
}

/// Why a feed cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FeedError {
    /// What was asked for is no longer here; the first index that is.
    #[error("what happened before index {first} is no longer kept here")]
    Compacted { first: LogIndex },
    #[error("cannot read the journal: {0}")]
    Journal(String),
    #[error("this node is shutting down")]
    ShuttingDown,
}

/// Why the membership stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Only the leader can; this is where it is, if that is known.
    #[error("this node is not the leader")]
    NotLeader { leader: Option<String> },
    #[error("there is no peer {asked:?}; there are {known}")]
    NoSuchPeer { asked: String, known: String },
    #[error("{asked:?} could be any of the peers {ids:?}: name it by its id")]
    Ambiguous { asked: String, ids: Vec<u64> },
    #[error("peer {peer} is a voter already")]
    AlreadyVoter { peer: u64 },
    #[error("peer {peer} is not a voter")]
    NotVoter { peer: u64 },
    #[error(
        "voter {voter} has the name or the address of peer {peer}: say that it is to be replaced, or remove it first"
    )]
    WouldCollide { peer: u64, voter: u64 },
    #[error("peer {peer} is still {behind} entries behind; wait until it has caught up")]
    StillBehind { peer: u64, behind: u64 },
    #[error("peer {peer} is the only voter")]
    OnlyVoter { peer: u64 },
    #[error("another change of the members is under way; try again")]
    InProgress,
    #[error("leadership went to nobody within {within:?}")]
    TransferFailed { within: Duration },
    #[error("it is not known whether the change was made: {reason}")]
    Unknown { reason: String },
    #[error("this node is shutting down or has stopped")]
    Stopped,
}

/// Why a node stopped. Except after [`StopReason::ShutDown`] the process must exit: it may have forgotten promises.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopReason {
    #[error("shut down as asked")]
    ShutDown,
    #[error("storage failed: {what}")]
    Storage { what: String },
    #[error(
        "at index {index} this node's state is {ours}, a majority has {theirs}: it has diverged and must not go on; remove \
         it from the group, move its data folder away and start it with an empty one"
    )]
    Diverged { index: LogIndex, ours: Hash, theirs: Hash },
    #[error("{what}; nothing is lost: start that version in the same data folder")]
    TooOld { what: String },
    #[error("Raft failed: {what}")]
    Raft { what: String },
}

/// Why a peer cannot be dialled at all, whatever the network does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{address:?} is not an address that can be dialled: {wrong}")]
pub struct DialError {
    pub address: String,
    pub wrong: String,
}

/// A record on disk or on the wire that says something impossible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("{0} is missing")]
    Missing(&'static str),
    #[error("{what}: {wrong}")]
    Wrong { what: &'static str, wrong: String },
    #[error("entry {index} cannot be read: {source}")]
    Entry { index: u64, source: DecodeError },
}

impl Malformed {
    pub(crate) fn wrong(what: &'static str, wrong: impl Into<String>) -> Self {
        Self::Wrong { what, wrong: wrong.into() }
    }
}

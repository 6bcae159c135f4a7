//! The wire: generated protobuf code and conversions to the domain's own types.
//!
//! [`v1`] is generated from `proto/loadline/v1` at build time, without protoc. Generated types stay at the edge: a
//! service turns them into commands and resources of `loadline-state-machine` on the way in, and back on the way out.
//! Not here: the services themselves, and which gRPC status an error becomes. Both are in `loadline-server`.

pub mod fields;
pub mod listing;
mod resources;
mod role_writes;
pub mod scale_to_zero;
pub mod scaling;
mod scaling_writes;
mod signal_writes;
mod signals;
mod writes;

pub use fields::{Invalid, Violation};
pub use resources::{cluster, millis, resource, resource_change, write_result};
pub use signals::{Report, report_bytes, report_response};
pub use writes::Write;

/// The generated messages, clients and servers of package `loadline.v1`.
#[allow(missing_debug_implementations, unreachable_pub, unused_qualifications)]
#[allow(clippy::all, clippy::pedantic)]
pub mod v1 {
    tonic::include_proto!("loadline.v1");
}

/// What nodes say to each other: the part of [`v1`] that clients have no use for.
pub mod raft {
    pub use crate::v1::{
        AdoptRequest, AdoptResponse, AppendRequest, AppendResponse, AppendSuccess, Envelope, JoinRequest, JoinResponse,
        LogEntry, LogId, Membership, Peer, ProbeRequest, ProbeResponse, ProposeFailure, ProposeRequest,
        ProposeResponse, ReadHistoryRequest, ReadHistoryResponse, ReadIndexRequest, ReadIndexResponse, SnapshotChunk,
        SnapshotHead, SnapshotMeta, SnapshotReply, TransferLeaderRequest, TransferLeaderResponse, Vote, VoteRequest,
        VoteResponse, VoterSet, append_response, log_entry, propose_failure, propose_response, raft_client,
        raft_server, snapshot_chunk,
    };
}

/// How many bytes a message takes on the wire.
pub fn size_of(message: &impl prost::Message) -> usize {
    message.encoded_len()
}

/// Every message and service of `loadline.v1`, as a serialised `FileDescriptorSet`; gRPC reflection answers from it.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/loadline.v1.bin"));

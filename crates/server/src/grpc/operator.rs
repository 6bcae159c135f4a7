//! Service `Operator`: running the nodes themselves.

use std::sync::Arc;
use std::time::Duration;

use loadline_api::millis;
use loadline_api::v1::operator_server::Operator;
use loadline_api::v1::{
    AddPeerRequest, ListPeersRequest, ListPeersResponse, NodeStatus, Peer, PeerStatus, RemovePeerRequest,
    RestoreSnapshotRequest, RestoreSnapshotResponse, SaveSnapshotRequest, SnapshotData, StatusRequest,
    TransferLeadershipRequest, TransferLeadershipResponse,
};
use loadline_log::SnapshotFile;
use loadline_raft_node::{Node, PeerView};
use loadline_state_machine::LogIndex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Response, Status, Streaming};

use super::actor::actor_of;
use super::errors::{self, Answer};
use super::forward::{Doer, Forwarding, answered};
use super::restore::Restores;

/// Bytes of a snapshot per message.
const CHUNK_BYTES: usize = 256 << 10;
/// Messages of a snapshot that wait to be sent.
const CHUNKS_WAITING: usize = 4;
/// A receiver that takes nothing for this long is gone.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// A leader that takes longer to list its peers is as good as none.
const LEADER_TELLS_WITHIN: Duration = Duration::from_secs(2);
/// Longest that a status waits for an index; whoever wants more asks again.
const STATUS_WAIT_MAX: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct OperatorService {
    pub(crate) node: Node,
    pub(crate) forwarding: Forwarding,
    pub(crate) restores: Restores,
    pub(crate) http_endpoint: String,
}

type Answered<T> = Result<Response<T>, Status>;

impl OperatorService {
    /// What only a superuser may. Asked at the node that is called, and once more at the leader if it is passed on.
    fn authorize<T>(&self, request: &Request<T>, what: &'static str) -> Result<(), Status> {
        let actor = actor_of(request)?;
        self.node.latest().authorize_operator(&actor, what).map_err(|rejection| errors::rejected(&rejection))
    }
}

#[tonic::async_trait]
impl Operator for OperatorService {
    async fn status(&self, request: Request<StatusRequest>) -> Answered<NodeStatus> {
        let request = request.into_inner();
        let status = self.node.status();
        let (hash_index, state_hash) = match request.hash_index {
            0 => (status.applied_index.0, status.state_hash.to_string()),
            index => {
                let wait = Duration::from_millis(request.wait_ms.into()).min(STATUS_WAIT_MAX);
                let hash = self.node.hash_at(LogIndex(index), wait).await;
                (index, hash.map(|hash| hash.to_string()).unwrap_or_default())
            }
        };
        Ok(Response::new(NodeStatus {
            id: status.id.unwrap_or_default(),
            name: status.name,
            endpoint: status.address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: status.role.to_string(),
            term: status.term,
            leader_id: status.leader.map_or(0, |(id, _)| id),
            last_index: status.last_index,
            applied_index: status.applied_index.0,
            hash_index,
            state_hash,
            db_size_bytes: status.disk_used_bytes,
            errors: status.errors,
            group: status.group,
            incarnation: status.incarnation,
            epoch: status.epoch.map_or(0, |epoch| epoch.index.0),
            rules_version: status.rules.0,
            snapshot_index: status.snapshot_index,
            purged_index: status.purged_index,
            time_ms: millis(status.time),
            http_endpoint: self.http_endpoint.clone(),
            public_key: hex(&status.public_key),
        }))
    }

    async fn list_peers(&self, request: Request<ListPeersRequest>) -> Answered<ListPeersResponse> {
        // Only the leader knows how far each peer is; without one, who they are is still worth knowing.
        if let Ok(Doer::There(mut leader)) = self.forwarding.doer(&request) {
            let asking = leader.list_peers(self.forwarding.mark(request));
            if let Ok(Ok(answer)) = tokio::time::timeout(LEADER_TELLS_WITHIN, asking).await {
                return Ok(answer);
            }
        }
        Ok(listed(self.node.peers()))
    }

    async fn add_peer(&self, request: Request<AddPeerRequest>) -> Answered<ListPeersResponse> {
        self.authorize(&request, "AddPeer")?;
        required("peer", &request.get_ref().peer, "name, id or address of a node that has joined")?;
        if let Doer::There(mut leader) = self.forwarding.doer(&request)? {
            return answered(leader.add_peer(self.forwarding.mark(request)).await);
        }
        let AddPeerRequest { peer, replace } = request.into_inner();
        let added = self.node.add_peer(&peer, some(&replace)).await;
        Ok(listed(added.map_err(|error| errors::membership(&error))?))
    }

    async fn remove_peer(&self, request: Request<RemovePeerRequest>) -> Answered<ListPeersResponse> {
        self.authorize(&request, "RemovePeer")?;
        required("peer", &request.get_ref().peer, "id of a node, or a name that only one has")?;
        if let Doer::There(mut leader) = self.forwarding.doer(&request)? {
            return answered(leader.remove_peer(self.forwarding.mark(request)).await);
        }
        let removed = self.node.remove_peer(&request.into_inner().peer).await;
        Ok(listed(removed.map_err(|error| errors::membership(&error))?))
    }

    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Answered<TransferLeadershipResponse> {
        self.authorize(&request, "TransferLeadership")?;
        if let Doer::There(mut leader) = self.forwarding.doer(&request)? {
            return answered(leader.transfer_leadership(self.forwarding.mark(request)).await);
        }
        let TransferLeadershipRequest { to, from } = request.into_inner();
        let me = self.node.status();
        let leads = me.leader.as_ref().map(|(id, _)| *id) == me.id && me.id.is_some();
        let meant = from.is_empty() || from == me.name || Some(&from) == me.id.map(|id| id.to_string()).as_ref();
        // Another one leads than the one that is to step down: that is what the caller wanted.
        if leads && !meant {
            return Ok(Response::new(TransferLeadershipResponse {
                leader_id: me.id.unwrap_or_default(),
                leader_name: me.name,
            }));
        }
        let elected = self.node.transfer_leadership(some(&to)).await.map_err(|error| errors::membership(&error))?;
        Ok(Response::new(TransferLeadershipResponse { leader_id: elected.id, leader_name: elected.name }))
    }

    type SaveSnapshotStream = ReceiverStream<Result<SnapshotData, Status>>;

    async fn save_snapshot(&self, request: Request<SaveSnapshotRequest>) -> Answered<Self::SaveSnapshotStream> {
        // Among what it holds is what is kept of every password.
        self.authorize(&request, "SaveSnapshot")?;
        let file = self.node.save_snapshot().await.map_err(|error| errors::read(&error))?;
        let (messages, received) = mpsc::channel(CHUNKS_WAITING);
        tokio::spawn(send_file(file, messages));
        Ok(Response::new(ReceiverStream::new(received)))
    }

    async fn restore_snapshot(
        &self,
        request: Request<Streaming<RestoreSnapshotRequest>>,
    ) -> Answered<RestoreSnapshotResponse> {
        self.authorize(&request, "RestoreSnapshot")?;
        let actor = actor_of(&request)?;
        self.restores.restore(actor, request.into_inner()).await.map(Response::new)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn some(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn required(field: &str, value: &str, what: &str) -> Result<(), Status> {
    if value.is_empty() {
        return Err(errors::invalid_field(field, format!("is required: {what}")));
    }
    Ok(())
}

fn listed(peers: Vec<PeerView>) -> Response<ListPeersResponse> {
    let peers = peers.into_iter().map(|peer| PeerStatus {
        voter: peer.voter,
        leader: peer.leader,
        matched_index: peer.matched_index.unwrap_or_default(),
        last_heard_ms: peer.last_heard.map_or(-1, |ago| i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)),
        peer: Some(Peer { id: peer.id, name: peer.name, address: peer.address }),
    });
    Response::new(ListPeersResponse { peers: peers.collect() })
}

/// Sends a file piece by piece, at the pace of whoever receives it.
async fn send_file(file: SnapshotFile, messages: mpsc::Sender<Result<SnapshotData, Status>>) {
    let file = Arc::new(file);
    let bytes_total = file.len();
    let mut offset = 0;
    while offset < bytes_total {
        let reading = Arc::clone(&file);
        let read = tokio::task::spawn_blocking(move || reading.read_at(offset, CHUNK_BYTES)).await;
        let message = match read {
            Ok(Ok(data)) if !data.is_empty() => {
                let first = offset == 0;
                offset += data.len() as u64;
                Ok(SnapshotData { data: data.into(), bytes_total: if first { bytes_total } else { 0 } })
            }
            Ok(Ok(_)) => Err(unreadable("it ended early")),
            Ok(Err(error)) => Err(unreadable(&error.to_string())),
            Err(error) => Err(unreadable(&error.to_string())),
        };
        let failed = message.is_err();
        if messages.send_timeout(message, STALLED_AFTER).await.is_err() || failed {
            return;
        }
    }
}

fn unreadable(why: &str) -> Status {
    Answer::new(Code::Internal, "SNAPSHOT_FAILED", format!("the snapshot cannot be read: {why}")).status()
}

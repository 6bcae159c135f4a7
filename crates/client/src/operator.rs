//! Running the nodes: peers, leadership, snapshots.
//!
//! Changes of membership carry no request id, so they are sent again only where they surely did not arrive. A caller
//! that gets no answer looks at the list of peers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadline_api::v1::operator_client::OperatorClient;
use loadline_api::v1::{
    AddPeerRequest, ListPeersRequest, ListPeersResponse, NodeStatus, PeerStatus, RemovePeerRequest,
    RestoreSnapshotRequest, RestoreSnapshotResponse, SaveSnapshotRequest, StatusRequest, TransferLeadershipRequest,
    TransferLeadershipResponse,
};
use tokio::time::Instant;
use tonic::transport::Channel;

use crate::call::{ANSWER_BYTES_MAX, Limits, Repeat};
use crate::client::{Client, Options};
use crate::endpoint::{Endpoint, NotConnected};
use crate::error::{Error, Failure};
use crate::transfer::{Transfer, TransferError};

/// Bytes of a snapshot per message: well below the 1 MiB that a server takes.
const CHUNK_BYTES: usize = 256 * 1024;

/// What a saved snapshot arrives in.
#[derive(Debug)]
pub enum SnapshotPart<'a> {
    /// From here on it comes from the beginning. Once more after a node was lost on the way: drop what came before.
    Start {
        bytes_total: u64,
    },
    Data(&'a [u8]),
}

impl Client {
    /// The node that answers, as it sees itself. Of every node: [`Client::status_all`].
    pub async fn status(&self) -> Result<NodeStatus, Error> {
        let send = |channel, request| async move { operator(channel).status(request).await };
        let ask = |_| StatusRequest { hash_index: 0, wait_ms: 0 };
        self.call(self.limits(), Repeat::Freely, ask, send).await
    }

    pub async fn list_peers(&self) -> Result<Vec<PeerStatus>, Error> {
        let send = |channel, request| async move { operator(channel).list_peers(request).await };
        let answer = self.call(self.limits(), Repeat::Freely, |_| ListPeersRequest {}, send).await?;
        Ok(answer.peers)
    }

    /// Makes a joined learner a voter, in place of the voter `replace` if one is named.
    pub async fn add_peer(&self, peer: &str, replace: Option<&str>) -> Result<Vec<PeerStatus>, Error> {
        let ask = |_| AddPeerRequest { peer: peer.to_owned(), replace: replace.unwrap_or_default().to_owned() };
        let send = |channel, request| async move { operator(channel).add_peer(request).await };
        let answer: ListPeersResponse = self.call(self.patient(), Repeat::OnlyIfNotSent, ask, send).await?;
        Ok(answer.peers)
    }

    pub async fn remove_peer(&self, peer: &str) -> Result<Vec<PeerStatus>, Error> {
        let ask = |_| RemovePeerRequest { peer: peer.to_owned() };
        let send = |channel, request| async move { operator(channel).remove_peer(request).await };
        let answer: ListPeersResponse = self.call(self.patient(), Repeat::OnlyIfNotSent, ask, send).await?;
        Ok(answer.peers)
    }

    /// To the voter that is furthest ahead, if none is named. With `from`, nothing happens unless that node leads.
    pub async fn transfer_leadership(
        &self,
        to: Option<&str>,
        from: Option<&str>,
    ) -> Result<TransferLeadershipResponse, Error> {
        let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
        let ask = |_| TransferLeadershipRequest { to: owned(to), from: owned(from) };
        let send = |channel, request| async move { operator(channel).transfer_leadership(request).await };
        self.call(self.patient(), Repeat::OnlyIfNotSent, ask, send).await
    }

    /// A snapshot file of the state as it is now, byte for byte as a node stores it. `sink` gets it part by part.
    pub async fn save_snapshot(&self, mut sink: impl FnMut(SnapshotPart<'_>) -> io::Result<()>) -> Result<u64, Error> {
        let mut transfer = Transfer::new(self);
        loop {
            let (turn, endpoint) = self.pool.current();
            match self.save_from(endpoint, &mut sink).await {
                Ok(bytes) => return Ok(bytes),
                Err(failed) => transfer.after(turn, endpoint, failed).await?,
            }
        }
    }

    async fn save_from(
        &self,
        endpoint: &Endpoint,
        sink: &mut impl FnMut(SnapshotPart<'_>) -> io::Result<()>,
    ) -> Result<u64, TransferError> {
        let no_answer = |why: &str| TransferError::Node(Failure::NoAnswer { why: why.to_owned(), timed_out: true });
        let channel = match self.pool.channel(endpoint).await {
            Ok(channel) => channel,
            Err(NotConnected(why)) => return Err(TransferError::Node(Failure::NotSent(why))),
        };
        let until = Instant::now() + self.options.transfer_timeout;
        let mut service = operator(channel);
        let saving = service.save_snapshot(self.request(SaveSnapshotRequest {}, Some(until)));
        // Writing the snapshot comes before its first byte, so the beginning may take as long as a whole request.
        let mut stream = match tokio::time::timeout(self.options.timeout, saving).await {
            Ok(answer) => answer.map_err(TransferError::of)?.into_inner(),
            Err(_) => return Err(no_answer("no answer in time")),
        };
        let (mut bytes, mut bytes_total) = (0, None);
        loop {
            let next = tokio::time::timeout(self.options.timeout, stream.message()).await;
            let Some(message) =
                next.map_err(|_| no_answer("the snapshot stopped on the way"))?.map_err(TransferError::of)?
            else {
                break;
            };
            if bytes_total.is_none() {
                bytes_total = Some(message.bytes_total);
                sink(SnapshotPart::Start { bytes_total: message.bytes_total }).map_err(TransferError::Sink)?;
            }
            bytes += message.data.len() as u64;
            sink(SnapshotPart::Data(&message.data)).map_err(TransferError::Sink)?;
        }
        if bytes_total != Some(bytes) {
            let why = format!("{bytes} bytes came, {} were announced", bytes_total.unwrap_or_default());
            return Err(TransferError::Node(Failure::NoAnswer { why, timed_out: false }));
        }
        Ok(bytes)
    }

    /// Replaces the state by that of a snapshot file, and starts a new incarnation. `sent` counts the bytes on their
    /// way. Safe to repeat: the whole call carries one request id.
    pub async fn restore_snapshot(
        &self,
        file: Vec<u8>,
        sent: Arc<AtomicU64>,
    ) -> Result<RestoreSnapshotResponse, Error> {
        let file: Arc<[u8]> = file.into();
        let Options { timeout, transfer_timeout, .. } = *self.options;
        let limits = Limits { timeout: transfer_timeout, attempt_timeout: transfer_timeout, retry_for: timeout };
        let ask = |id: uuid::Uuid| {
            sent.store(0, Ordering::Relaxed);
            let (file, sent) = (Arc::clone(&file), Arc::clone(&sent));
            // An empty file is one empty message, so that the node can say what is wrong with it.
            let count = file.len().div_ceil(CHUNK_BYTES).max(1);
            futures::stream::iter((0..count).map(move |number| {
                let end = file.len().min((number + 1) * CHUNK_BYTES);
                let data = file[number * CHUNK_BYTES..end].to_vec();
                sent.store(end as u64, Ordering::Relaxed);
                let request_id = if number == 0 { id.to_string() } else { String::new() };
                RestoreSnapshotRequest { request_id, data: data.into() }
            }))
        };
        let send = |channel, request| async move { operator(channel).restore_snapshot(request).await };
        self.call(limits, Repeat::Freely, ask, send).await
    }

    /// A change of membership waits for a learner to catch up, or for an election: one attempt may take it all.
    fn patient(&self) -> Limits {
        Limits { attempt_timeout: self.options.timeout, ..self.limits() }
    }
}

pub(crate) fn operator(channel: Channel) -> OperatorClient<Channel> {
    OperatorClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

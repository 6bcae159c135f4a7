//! Connections to other nodes, and the small questions that nodes ask each other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadline_api::raft as wire;
use loadline_api::raft::raft_client::RaftClient;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::{Dial, MESSAGE_BYTES_MAX, Showing};

/// A client that shows the pass of this node.
pub(crate) type PeerLink = RaftClient<InterceptedService<Channel, Showing>>;

/// What a connection is for. Each has its own, so that a snapshot or a backlog of entries cannot hold up heartbeats,
/// nor a stuck connection the questions that would find that out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Purpose {
    Append,
    Heartbeat,
    Snapshot,
    /// Requests for the leader. There can be so many that others would have to wait behind them.
    Forward,
    Questions,
    /// Pages of old entries. They are large, and nobody is in a hurry for them.
    History,
}

/// Connections, made once and shared.
#[derive(Debug, Clone)]
pub(crate) struct Links {
    dial: Arc<dyn Dial>,
    channels: Arc<Mutex<BTreeMap<(String, Purpose), Channel>>>,
    /// The longest that a small question may take.
    call: Duration,
}

impl Links {
    pub(crate) fn new(dial: Arc<dyn Dial>, call: Duration) -> Self {
        Self { dial, channels: Arc::default(), call }
    }

    pub(crate) fn client(&self, address: &str, purpose: Purpose) -> Result<PeerLink, Status> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (address.to_owned(), purpose);
        let channel = match channels.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let channel =
                    self.dial.channel(address).map_err(|error| Status::invalid_argument(error.to_string()))?;
                channels.insert(key, channel.clone());
                channel
            }
        };
        drop(channels);
        Ok(RaftClient::with_interceptor(channel, Showing(self.dial.pass()))
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }

    pub(crate) async fn probe(
        &self,
        address: &str,
        request: wire::ProbeRequest,
    ) -> Result<wire::ProbeResponse, Status> {
        let mut client = self.client(address, Purpose::Questions)?;
        within(self.call, client.probe(request)).await
    }

    pub(crate) async fn adopt(
        &self,
        address: &str,
        request: wire::AdoptRequest,
    ) -> Result<wire::AdoptResponse, Status> {
        let mut client = self.client(address, Purpose::Questions)?;
        // Longer than other questions: the peer opens its log before it answers.
        within(self.call * 5, client.adopt(request)).await
    }

    pub(crate) async fn join(
        &self,
        address: &str,
        request: wire::JoinRequest,
        within_time: Duration,
    ) -> Result<wire::JoinResponse, Status> {
        let mut client = self.client(address, Purpose::Questions)?;
        within(within_time, client.join(request)).await
    }

    pub(crate) async fn propose(
        &self,
        address: &str,
        request: wire::ProposeRequest,
        within_time: Duration,
    ) -> Result<wire::ProposeResponse, Status> {
        let mut client = self.client(address, Purpose::Forward)?;
        within(within_time, client.propose(request)).await
    }

    pub(crate) async fn read_history(
        &self,
        address: &str,
        request: wire::ReadHistoryRequest,
        within_time: Duration,
    ) -> Result<wire::ReadHistoryResponse, Status> {
        let mut client = self.client(address, Purpose::History)?;
        within(within_time, client.read_history(request)).await
    }

    pub(crate) async fn read_index(
        &self,
        address: &str,
        request: wire::ReadIndexRequest,
    ) -> Result<wire::ReadIndexResponse, Status> {
        let mut client = self.client(address, Purpose::Questions)?;
        within(self.call, client.read_index(request)).await
    }
}

/// The answer to a call, if it comes in time. The call itself is dropped with its time, which resets its stream.
pub(crate) async fn within<T>(
    time: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, Status> {
    match tokio::time::timeout(time, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::new(Code::DeadlineExceeded, format!("no answer within {time:?}"))),
    }
}

//! Somebody who pretends to be a node.

use std::net::{SocketAddr, TcpListener};

use loadline_api::raft::{self as wire, raft_server};
use tokio::runtime::Runtime;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// Answers every probe with the same words, takes on no identity, and nothing else.
pub(crate) struct Impostor(Option<Runtime>);

impl Impostor {
    pub(crate) fn start(address: &str, probe: wire::ProbeResponse) -> Self {
        let listener = TcpListener::bind(address.parse::<SocketAddr>().unwrap()).expect("the port is free again");
        Self::on(listener, probe)
    }

    pub(crate) fn on(listener: TcpListener, probe: wire::ProbeResponse) -> Self {
        listener.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move {
            let incoming = TcpListenerStream::new(tokio::net::TcpListener::from_std(listener).unwrap());
            let service = raft_server::RaftServer::new(Answers(probe));
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
        });
        Self(Some(runtime))
    }

    pub(crate) fn stop(mut self) {
        let runtime = self.0.take().expect("it was started");
        tokio::task::block_in_place(|| runtime.shutdown_timeout(super::DEADLINE));
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

struct Answers(wire::ProbeResponse);

type Answer<T> = Result<Response<T>, Status>;

fn no<T>() -> Answer<T> {
    Err(Status::unavailable("not today"))
}

#[tonic::async_trait]
impl raft_server::Raft for Answers {
    type AppendStream = futures::stream::Empty<Result<wire::AppendResponse, Status>>;

    async fn probe(&self, _: Request<wire::ProbeRequest>) -> Answer<wire::ProbeResponse> {
        Ok(Response::new(self.0.clone()))
    }

    async fn adopt(&self, _: Request<wire::AdoptRequest>) -> Answer<wire::AdoptResponse> {
        Ok(Response::new(wire::AdoptResponse { adopted: false, reason: "not today".into() }))
    }

    async fn append(&self, _: Request<tonic::Streaming<wire::AppendRequest>>) -> Answer<Self::AppendStream> {
        no()
    }

    async fn vote(&self, _: Request<wire::VoteRequest>) -> Answer<wire::VoteResponse> {
        no()
    }

    async fn pre_vote(&self, _: Request<wire::VoteRequest>) -> Answer<wire::VoteResponse> {
        no()
    }

    async fn install_snapshot(&self, _: Request<tonic::Streaming<wire::SnapshotChunk>>) -> Answer<wire::SnapshotReply> {
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

    async fn read_history(&self, _: Request<wire::ReadHistoryRequest>) -> Answer<wire::ReadHistoryResponse> {
        no()
    }

    async fn join(&self, _: Request<wire::JoinRequest>) -> Answer<wire::JoinResponse> {
        no()
    }
}

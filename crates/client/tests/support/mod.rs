//! Nodes that answer as a test tells them to, behind a wire that can be cut.

#![allow(unreachable_pub, reason = "the tests beside it use this")]

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::Stream;
use loadline_client::v1::admin_server::{Admin, AdminServer};
use loadline_client::v1::operator_server::{Operator, OperatorServer};
use loadline_client::v1::watch_server::{Watch, WatchServer};
use loadline_client::v1::*;
use loadline_client::{Client, Endpoints, Options};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_types::{ErrorDetails, StatusExt};

/// What a node does with the next request.
#[derive(Debug, Clone)]
pub enum Reply {
    Answer,
    /// Records the request, and the answer is lost with the connection.
    LoseAnswer,
    /// Records the request and says nothing.
    Hang,
    Fail(Status),
}

/// One call as a node saw it.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub call: &'static str,
    pub name: String,
    pub request_id: String,
    pub actor: String,
}

/// What a node does with the next watch: messages, and then how it ends.
#[derive(Debug, Clone)]
pub struct WatchScript {
    pub messages: Vec<WatchResponse>,
    pub end: WatchEnd,
}

#[derive(Debug, Clone)]
pub enum WatchEnd {
    Stay,
    Close,
    Fail(Status),
}

#[derive(Debug, Default)]
struct Told {
    replies: VecDeque<Reply>,
    watches: VecDeque<WatchScript>,
    seen: Vec<Seen>,
    watched_from: Vec<u64>,
    status: NodeStatus,
    hashes: BTreeMap<u64, String>,
    peers: Vec<Peer>,
    snapshots: VecDeque<Vec<SnapshotData>>,
    restored: Vec<(String, Vec<u8>)>,
}

/// A node, its script, and the wire in front of it.
#[derive(Debug, Clone)]
pub struct FakeNode {
    told: Arc<Mutex<Told>>,
    cut: broadcast::Sender<()>,
    address: SocketAddr,
}

impl FakeNode {
    pub async fn start() -> FakeNode {
        let inner = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let outer = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (cut, _) = broadcast::channel(4);
        let node = FakeNode { told: Arc::default(), cut, address: outer.local_addr().expect("an address") };
        let to = inner.local_addr().expect("an address");
        tokio::spawn(wire(outer, to, node.cut.clone()));
        let router = tonic::transport::Server::builder()
            .add_service(AdminServer::new(node.clone()))
            .add_service(WatchServer::new(node.clone()))
            .add_service(OperatorServer::new(node.clone()));
        tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(inner)));
        node
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().expect("no test panics while it holds the script")
    }

    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    pub fn will(&self, replies: impl IntoIterator<Item = Reply>) {
        self.told().replies.extend(replies);
    }

    pub fn will_watch(&self, messages: impl Into<Vec<WatchResponse>>, end: WatchEnd) {
        self.told().watches.push_back(WatchScript { messages: messages.into(), end });
    }

    pub fn is(&self, status: NodeStatus, hashes: &[(u64, &str)], peers: &[Peer]) {
        let mut told = self.told();
        told.status = NodeStatus { endpoint: self.endpoint(), ..status };
        told.hashes = hashes.iter().map(|(index, hash)| (*index, (*hash).to_owned())).collect();
        told.peers = peers.to_vec();
    }

    pub fn will_send_snapshot(&self, parts: Vec<SnapshotData>) {
        self.told().snapshots.push_back(parts);
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.told().seen.clone()
    }

    pub fn watched_from(&self) -> Vec<u64> {
        self.told().watched_from.clone()
    }

    pub fn restored(&self) -> Vec<(String, Vec<u8>)> {
        self.told().restored.clone()
    }

    /// Breaks every connection, as a dying process or a pulled cable would.
    pub fn cut(&self) {
        let _ = self.cut.send(());
    }

    async fn react<Q>(&self, call: &'static str, request: &Request<Q>, name: &str, id: &str) -> Result<(), Status> {
        let actor = request.metadata().get("loadline-actor").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let seen = Seen { call, name: name.into(), request_id: id.into(), actor: actor.into() };
        let reply = {
            let mut told = self.told();
            told.seen.push(seen);
            told.replies.pop_front().unwrap_or(Reply::Answer)
        };
        match reply {
            Reply::Answer => Ok(()),
            Reply::Fail(status) => Err(status),
            Reply::LoseAnswer => {
                self.cut();
                std::future::pending().await
            }
            Reply::Hang => std::future::pending().await,
        }
    }

    async fn written<Q>(
        &self,
        call: &'static str,
        request: Request<Q>,
        name: impl Fn(&Q) -> String,
        options: impl Fn(&Q) -> Option<WriteOptions>,
    ) -> Result<Response<WriteResponse>, Status> {
        let id = options(request.get_ref()).unwrap_or_default().request_id;
        self.react(call, &request, &name(request.get_ref()), &id).await?;
        Ok(Response::new(WriteResponse { revision: 7, results: Vec::new(), repeated_request: false }))
    }
}

/// Passes bytes on until it is cut.
pub async fn wire(listener: TcpListener, to: SocketAddr, cut: broadcast::Sender<()>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let mut cut = cut.subscribe();
        tokio::spawn(async move {
            let Ok(mut far) = TcpStream::connect(to).await else { return };
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                _ = cut.recv() => {}
            }
        });
    }
}

/// Quick to move on, so that a test that waits for a time-out does not wait long.
pub fn quick() -> Options {
    Options {
        timeout: Duration::from_secs(5),
        attempt_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(500),
        actor: "ada@desk".to_owned(),
        ..Options::default()
    }
}

pub fn client_of(nodes: &[&FakeNode]) -> Client {
    client_at(nodes.iter().map(|node| node.endpoint()))
}

pub fn client_at(endpoints: impl IntoIterator<Item = String>) -> Client {
    Client::connect(Endpoints::parse(endpoints).expect("endpoints"), quick())
}

/// An address where nobody listens.
pub async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    listener.local_addr().expect("an address").to_string()
}

pub fn refusal(code: Code, reason: &str, metadata: &[(&str, &str)]) -> Status {
    let metadata: HashMap<String, String> = metadata.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
    Status::with_error_details(code, "no, because", ErrorDetails::with_error_info(reason, "loadline", metadata))
}

type Streamed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Watch for FakeNode {
    type WatchStream = Streamed<WatchResponse>;

    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let script = {
            let mut told = self.told();
            told.watched_from.push(request.get_ref().from_revision);
            told.watches.pop_front()
        };
        let script = script.ok_or_else(|| Status::unavailable("no script"))?;
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            for message in script.messages {
                if sender.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            match script.end {
                WatchEnd::Stay => sender.closed().await,
                WatchEnd::Close => {}
                WatchEnd::Fail(status) => drop(sender.send(Err(status)).await),
            }
        });
        Ok(Response::new(Box::pin(tokio_stream::wrappers::ReceiverStream::new(receiver))))
    }
}

#[tonic::async_trait]
impl Operator for FakeNode {
    type SaveSnapshotStream = Streamed<SnapshotData>;

    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<NodeStatus>, Status> {
        self.react("status", &request, "", "").await?;
        let told = self.told();
        let mut status = told.status.clone();
        let index = if request.get_ref().hash_index == 0 { status.applied_index } else { request.get_ref().hash_index };
        status.hash_index = index;
        status.state_hash = told.hashes.get(&index).cloned().unwrap_or_default();
        Ok(Response::new(status))
    }

    async fn list_peers(&self, _: Request<ListPeersRequest>) -> Result<Response<ListPeersResponse>, Status> {
        let told = self.told();
        let peers =
            told.peers.iter().map(|peer| PeerStatus { peer: Some(peer.clone()), ..Default::default() }).collect();
        Ok(Response::new(ListPeersResponse { peers }))
    }

    async fn add_peer(&self, request: Request<AddPeerRequest>) -> Result<Response<ListPeersResponse>, Status> {
        self.react("add_peer", &request, &request.get_ref().peer, "").await?;
        Ok(Response::new(ListPeersResponse::default()))
    }

    async fn remove_peer(&self, request: Request<RemovePeerRequest>) -> Result<Response<ListPeersResponse>, Status> {
        self.react("remove_peer", &request, &request.get_ref().peer, "").await?;
        Ok(Response::new(ListPeersResponse::default()))
    }

    async fn transfer_leadership(
        &self,
        request: Request<TransferLeadershipRequest>,
    ) -> Result<Response<TransferLeadershipResponse>, Status> {
        self.react("transfer_leadership", &request, &request.get_ref().to, "").await?;
        Ok(Response::new(TransferLeadershipResponse::default()))
    }

    async fn save_snapshot(
        &self,
        request: Request<SaveSnapshotRequest>,
    ) -> Result<Response<Self::SaveSnapshotStream>, Status> {
        self.react("save_snapshot", &request, "", "").await?;
        let parts = self.told().snapshots.pop_front().unwrap_or_default();
        Ok(Response::new(Box::pin(futures::stream::iter(parts.into_iter().map(Ok)))))
    }

    async fn restore_snapshot(
        &self,
        request: Request<Streaming<RestoreSnapshotRequest>>,
    ) -> Result<Response<RestoreSnapshotResponse>, Status> {
        let (metadata, _, mut stream) = request.into_parts();
        let mut id = String::new();
        let mut bytes = Vec::new();
        while let Some(part) = stream.message().await? {
            id.push_str(&part.request_id);
            bytes.extend_from_slice(&part.data);
        }
        self.told().restored.push((id.clone(), bytes));
        let mut request = Request::new(());
        *request.metadata_mut() = metadata;
        self.react("restore_snapshot", &request, "", &id).await?;
        Ok(Response::new(RestoreSnapshotResponse { revision: 9, ..Default::default() }))
    }
}

macro_rules! writes {
    ($($call:ident($request:ty): $name:expr;)*) => {
        #[tonic::async_trait]
        impl Admin for FakeNode {
            $(async fn $call(&self, request: Request<$request>) -> Result<Response<WriteResponse>, Status> {
                self.written(stringify!($call), request, $name, |message| message.options.clone()).await
            })*

            async fn get_size(&self, request: Request<GetRequest>) -> Result<Response<ReadResponse>, Status> {
                self.react("get_size", &request, &request.get_ref().name, "").await?;
                Ok(Response::new(ReadResponse::default()))
            }
            async fn get_cluster(&self, request: Request<GetRequest>) -> Result<Response<ReadResponse>, Status> {
                let name = request.get_ref().name.clone();
                self.react("get_cluster", &request, &name, "").await?;
                Ok(Response::new(ReadResponse { resource: Some(cluster(&name)), revision: 5 }))
            }
            async fn get_setting(&self, request: Request<GetRequest>) -> Result<Response<ReadResponse>, Status> {
                self.react("get_setting", &request, &request.get_ref().name, "").await?;
                Ok(Response::new(ReadResponse::default()))
            }
            async fn get_role(&self, request: Request<GetRequest>) -> Result<Response<ReadResponse>, Status> {
                self.react("get_role", &request, &request.get_ref().name, "").await?;
                Ok(Response::new(ReadResponse::default()))
            }
            async fn get_signal(&self, request: Request<GetRequest>) -> Result<Response<ReadResponse>, Status> {
                self.react("get_signal", &request, &request.get_ref().name, "").await?;
                Ok(Response::new(ReadResponse::default()))
            }
            async fn list_signals(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
                self.react("list_signals", &request, &request.get_ref().page_token, "").await?;
                Ok(Response::new(ListResponse::default()))
            }
            async fn list_roles(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
                self.react("list_roles", &request, &request.get_ref().page_token, "").await?;
                Ok(Response::new(ListResponse::default()))
            }
            async fn list_sizes(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
                self.react("list_sizes", &request, &request.get_ref().page_token, "").await?;
                Ok(Response::new(ListResponse::default()))
            }
            /// Two pages.
            async fn list_clusters(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
                let token = request.get_ref().page_token.clone();
                self.react("list_clusters", &request, &token, "").await?;
                let (name, next) = if token.is_empty() { ("a", "a") } else { ("b", "") };
                Ok(Response::new(ListResponse { resources: vec![cluster(name)], next_page_token: next.into(), revision: 5 }))
            }
            async fn list_settings(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
                self.react("list_settings", &request, &request.get_ref().page_token, "").await?;
                Ok(Response::new(ListResponse::default()))
            }
        }
    };
}

writes! {
    create_size(CreateSizeRequest): |m| m.size.clone().unwrap_or_default().name;
    update_size(UpdateSizeRequest): |m| m.name.clone();
    delete_size(DeleteRequest): |m| m.name.clone();
    create_cluster(CreateClusterRequest): |m| m.cluster.clone().unwrap_or_default().name;
    update_cluster(UpdateClusterRequest): |m| m.name.clone();
    rename_cluster(RenameClusterRequest): |m| m.name.clone();
    delete_cluster(DeleteRequest): |m| m.name.clone();
    set_setting(SetSettingRequest): |m| m.name.clone();
    delete_setting(DeleteRequest): |m| m.name.clone();
    create_role(CreateRoleRequest): |m| m.name.clone();
    update_role(UpdateRoleRequest): |m| m.name.clone();
    delete_role(DeleteRequest): |m| m.name.clone();
    grant_usage(UsageRequest): |m| m.role.clone();
    revoke_usage(UsageRequest): |m| m.role.clone();
    create_token(CreateTokenRequest): |m| m.role.clone();
    delete_token(DeleteTokenRequest): |m| m.role.clone();
    create_signal(CreateSignalRequest): |m| m.signal.clone().unwrap_or_default().name;
    update_signal(UpdateSignalRequest): |m| m.name.clone();
    delete_signal(DeleteRequest): |m| m.name.clone();
    push_signals(PushSignalsRequest): |m| m.values.len().to_string();
    transact(TransactRequest): |m| m.changes.len().to_string();
}

pub fn cluster(name: &str) -> Resource {
    let cluster = Cluster { name: name.to_owned(), ..Default::default() };
    Resource { resource: Some(resource::Resource::Cluster(cluster)) }
}

//! Nodes to talk to, and the one way to check a refusal.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::time::Duration;

use loadline_api::v1::admin_client::AdminClient;
use loadline_api::v1::operator_client::OperatorClient;
use loadline_api::v1::watch_client::WatchClient;
use loadline_api::v1::{self, NodeStatus, WriteOptions};
use loadline_server::config::{ServerConfig, Trust};
use loadline_server::{Listeners, ServeError, World, serve_in, serve_on};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;
use tracing_subscriber::EnvFilter;

/// Longer than anything here takes, on a machine that does a lot of other things.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running node. Dropping it leaves the process to clean up; [`Node::stop`] ends it properly.
pub(crate) struct Node {
    pub(crate) grpc: String,
    pub(crate) http: String,
    /// Where SQL is spoken, if it is.
    pub(crate) pg: Option<SocketAddr>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) channel: Channel,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), ServeError>>,
}

/// Sockets and a folder, before the node that gets them.
pub(crate) struct Place {
    pub(crate) listeners: Listeners,
    pub(crate) grpc: String,
    pub(crate) http: String,
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    pub(crate) async fn new() -> Place {
        let listeners = Listeners {
            grpc: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            http: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            pg: None,
        };
        Place {
            grpc: listeners.grpc.local_addr().unwrap().to_string(),
            http: listeners.http.local_addr().unwrap().to_string(),
            listeners,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// The same, with a port for SQL on which everybody of this machine is a superuser.
    pub(crate) async fn with_sql() -> Place {
        let mut place = Place::new().await;
        place.listeners.pg = Some(TcpListener::bind("127.0.0.1:0").await.unwrap());
        place
    }

    /// A configuration for a node here. Time does not tick, so that only what a test writes is in the log.
    pub(crate) fn config(&self, name: &str, peers: &[&str]) -> ServerConfig {
        ServerConfig {
            name: name.to_owned(),
            data_dir: self.folder.path().join("data"),
            grpc_listen: self.grpc.clone(),
            http_listen: self.http.clone(),
            advertise: self.grpc.clone(),
            peers: peers.iter().map(|peer| (*peer).to_owned()).collect(),
            tick_every: Duration::from_secs(60),
            disk_reserve: 0,
            trust: if self.listeners.pg.is_some() { Trust::Loopback } else { Trust::Nobody },
            ..ServerConfig::default()
        }
    }

    pub(crate) fn start(self, config: ServerConfig) -> Node {
        let (stop, stopped) = oneshot::channel();
        // Shown when a test fails; RUST_LOG=info shows more.
        let _ = tracing_subscriber::fmt().with_test_writer().with_env_filter(EnvFilter::from_default_env()).try_init();
        let pg = self.listeners.pg.as_ref().map(|listener| listener.local_addr().unwrap());
        let serving = serve_on(self.listeners, config, async {
            let _ = stopped.await;
        });
        // A test that waits for it to answer would not hear why it does not.
        let running =
            tokio::spawn(async { serving.await.inspect_err(|error| tracing::error!(?error, "the node ended")) });
        let channel = Channel::from_shared(format!("http://{}", self.grpc)).unwrap().connect_lazy();
        Node { grpc: self.grpc, http: self.http, pg, folder: self.folder, channel, stop, running }
    }

    /// The same in another world than this machine's.
    pub(crate) fn start_in(self, config: ServerConfig, change: impl FnOnce(World) -> World) -> Node {
        let (stop, stopped) = oneshot::channel();
        let world = change(World::real(&config).unwrap());
        let pg = self.listeners.pg.as_ref().map(|listener| listener.local_addr().unwrap());
        let running = tokio::spawn(serve_in(world, self.listeners, config, async {
            let _ = stopped.await;
        }));
        let channel = Channel::from_shared(format!("http://{}", self.grpc)).unwrap().connect_lazy();
        Node { grpc: self.grpc, http: self.http, pg, folder: self.folder, channel, stop, running }
    }
}

impl Node {
    /// A group of one, ready to serve.
    pub(crate) async fn alone() -> Node {
        Node::alone_with(|_| ()).await
    }

    pub(crate) async fn alone_with(change: impl FnOnce(&mut ServerConfig)) -> Node {
        let place = Place::new().await;
        let mut config = place.config("n1", &[&place.grpc]);
        change(&mut config);
        let node = place.start(config);
        node.until_ready().await;
        eventually("the node leads", async || node.status().await.role == "leader").await;
        node
    }

    /// A group of one that speaks SQL.
    pub(crate) async fn alone_with_sql(change: impl FnOnce(&mut ServerConfig)) -> Node {
        let place = Place::with_sql().await;
        let mut config = place.config("n1", &[&place.grpc]);
        change(&mut config);
        let node = place.start(config);
        node.until_ready().await;
        eventually("the node leads", async || node.status().await.role == "leader").await;
        node
    }

    /// A node whose other founder never comes: it serves, but there is no leader.
    pub(crate) async fn leaderless_with(change: impl FnOnce(&mut ServerConfig)) -> Node {
        let place = Place::new().await;
        // Reserved for the whole test, and nobody answers there.
        let absent = Box::leak(Box::new(std::net::TcpListener::bind("127.0.0.1:0").unwrap()));
        let mut config = place.config("n1", &[&place.grpc, &absent.local_addr().unwrap().to_string()]);
        change(&mut config);
        let node = place.start(config);
        eventually("the node answers", async || node.get("/livez").await.is_ok()).await;
        node
    }

    pub(crate) fn admin(&self) -> AdminClient<Channel> {
        AdminClient::new(self.channel.clone())
    }

    pub(crate) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone())
    }

    pub(crate) fn operator(&self) -> OperatorClient<Channel> {
        OperatorClient::new(self.channel.clone())
    }

    pub(crate) async fn status(&self) -> NodeStatus {
        self.operator().status(v1::StatusRequest::default()).await.unwrap().into_inner()
    }

    pub(crate) async fn until_ready(&self) {
        eventually("the node is ready", async || {
            assert!(!self.running.is_finished(), "the node has ended");
            matches!(self.get("/readyz").await, Ok((200, _)))
        })
        .await;
    }

    /// Status and body of a page.
    pub(crate) async fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        self.ask("GET", path).await
    }

    pub(crate) async fn ask(&self, method: &str, path: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(&self.http).await?;
        let request = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", self.http);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Ok((status, body.to_owned()))
    }

    /// Ends it as SIGTERM would; the folder stays.
    pub(crate) async fn stop(self) -> (Result<(), ServeError>, tempfile::TempDir) {
        let _ = self.stop.send(());
        let ended = tokio::time::timeout(PATIENCE, self.running).await.expect("the node ends").unwrap();
        (ended, self.folder)
    }
}

/// Waits until it is so.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < give_up, "in vain: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A new intent.
pub(crate) fn options() -> Option<WriteOptions> {
    Some(WriteOptions { request_id: uuid::Uuid::now_v7().to_string(), validate_only: false })
}

pub(crate) fn create_size(name: &str, slots: u32) -> v1::CreateSizeRequest {
    let size = v1::Size { name: name.to_owned(), slots, price_micros_per_hour: 250_000, ..v1::Size::default() };
    v1::CreateSizeRequest { options: options(), size: Some(size) }
}

pub(crate) fn create_cluster(name: &str) -> v1::CreateClusterRequest {
    let cluster = v1::Cluster { name: name.to_owned(), ..v1::Cluster::default() };
    v1::CreateClusterRequest { options: options(), cluster: Some(cluster) }
}

pub(crate) fn delete(name: &str) -> v1::DeleteRequest {
    v1::DeleteRequest { options: options(), name: name.to_owned(), ..v1::DeleteRequest::default() }
}

pub(crate) fn named(name: &str) -> v1::GetRequest {
    v1::GetRequest { name: name.to_owned(), consistency: 0 }
}

pub(crate) fn set(name: &str, value: &str) -> v1::SetSettingRequest {
    v1::SetSettingRequest {
        options: options(),
        name: name.to_owned(),
        value: value.to_owned(),
        ..v1::SetSettingRequest::default()
    }
}

/// The one check of a refusal: its code, its reason, and the fields that it names.
#[track_caller]
pub(crate) fn refused<T: Debug>(
    answer: Result<Response<T>, Status>,
    code: Code,
    reason: &str,
    fields: &[&str],
) -> Status {
    let status = answer.expect_err("it should have been refused");
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo in {status:?}"));
    assert_eq!((status.code(), info.reason.as_str()), (code, reason), "{}", status.message());
    assert_eq!(info.domain, "loadline");
    let named: Vec<&str> = details
        .bad_request()
        .map(|bad| bad.field_violations.iter().map(|violation| violation.field.as_str()).collect())
        .unwrap_or_default();
    assert_eq!(named, fields, "{}", status.message());
    status
}

//! Sockets of the simulated network, for nodes and for users.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use loadline_client::Surroundings;
use loadline_raft_node::{Dial, DialError};
use loadline_server::Incoming;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tonic::transport::server::{Connected, TcpConnectInfo};
use tonic::transport::{Channel, Endpoint, Error};
use tower::Service;
use turmoil::net::{TcpListener, TcpStream};

use super::clock::EPOCH_MS;
use crate::dice::Dice;
use crate::record::Record;

/// Every node listens here, at an address of its own.
pub const PORT: u16 = 7700;

/// A connection that came in.
#[derive(Debug)]
pub struct Accepted(TcpStream);

impl Connected for Accepted {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo { local_addr: self.0.local_addr().ok(), remote_addr: self.0.peer_addr().ok() }
    }
}

impl AsyncRead for Accepted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Where a node's gRPC comes in.
pub struct Port(TcpListener);

impl Port {
    pub async fn bind() -> io::Result<Port> {
        TcpListener::bind(("0.0.0.0", PORT)).await.map(Port)
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Port").finish()
    }
}

impl Incoming for Port {
    type Connection = Accepted;

    fn connections(self) -> impl Stream<Item = io::Result<Accepted>> + Send + 'static {
        futures::stream::unfold(self.0, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| Accepted(stream));
            Some((accepted, listener))
        })
    }
}

/// A port that nobody ever calls: HTTP is for those who look at a process from outside.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl axum::serve::Listener for Silent {
    type Io = DuplexStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (DuplexStream, SocketAddr) {
        std::future::pending().await
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(SocketAddr::from(([127, 0, 0, 1], 8700)))
    }
}

type Connecting = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

/// Connects to whatever a URI names.
fn connector()
-> impl Service<Uri, Response = TokioIo<TcpStream>, Error = io::Error, Future = Connecting> + Send + 'static {
    tower::service_fn(|uri: Uri| -> Connecting {
        Box::pin(async move {
            let to = uri.authority().map(ToString::to_string).unwrap_or_default();
            TcpStream::connect(to).await.map(TokioIo::new)
        })
    })
}

/// How nodes reach each other: as `PlainDial` does, over the simulated network.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedDial;

impl Dial for SimulatedDial {
    fn channel(&self, address: &str) -> Result<Channel, DialError> {
        let wrong = |error: Error| DialError { address: address.to_owned(), wrong: error.to_string() };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(wrong)?;
        Ok(endpoint
            .connect_timeout(Duration::from_secs(1))
            .http2_keep_alive_interval(Duration::from_secs(1))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(true)
            .connect_with_connector_lazy(connector()))
    }
}

/// Where users live: a network, a clock that is right, and chances from the seed.
#[derive(Debug, Clone)]
pub struct UserSurroundings {
    record: Record,
    dice: Arc<Mutex<Dice>>,
}

impl UserSurroundings {
    pub fn new(record: Record, dice: Dice) -> UserSurroundings {
        UserSurroundings { record, dice: Arc::new(Mutex::new(dice)) }
    }
}

impl Surroundings for UserSurroundings {
    fn now_ms(&self) -> u64 {
        EPOCH_MS + u64::try_from(self.record.now().as_millis()).unwrap_or(0)
    }

    fn random(&self) -> u64 {
        self.dice.lock().unwrap_or_else(PoisonError::into_inner).throw()
    }

    fn connect(&self, to: Endpoint) -> BoxFuture<'static, Result<Channel, Error>> {
        Box::pin(async move { to.connect_with_connector(connector()).await })
    }
}

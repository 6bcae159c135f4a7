//! What the gRPC server needs of the world below it: connections, and a clock to date its answers by.
//!
//! On a machine these are TCP and the machine's clock. A simulator has both of its own.

use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures::Stream;
use http::header::DATE;
use http::{HeaderValue, Response};
use loadline_raft_node::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::server::{Connected, TcpIncoming};
use tower::util::MapResponseLayer;

/// A socket that connections come in on.
pub trait Incoming: Send + 'static {
    type Connection: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static;

    fn connections(self) -> impl Stream<Item = io::Result<Self::Connection>> + Send + 'static;
}

impl Incoming for TcpListener {
    type Connection = TcpStream;

    fn connections(self) -> impl Stream<Item = io::Result<TcpStream>> + Send + 'static {
        TcpIncoming::from(self).with_nodelay(Some(true))
    }
}

/// Puts the date of this node's clock on every answer. Left to itself, the HTTP server asks the operating system, and
/// a simulation that asks the operating system for the time cannot be repeated.
pub(crate) fn dated_by<B>(
    clock: Arc<dyn Clock>,
) -> MapResponseLayer<impl Fn(Response<B>) -> Response<B> + Clone + Send + Sync> {
    MapResponseLayer::new(move |mut answer: Response<B>| {
        let now = UNIX_EPOCH + Duration::from_millis(clock.wall_ms());
        // ASCII by construction; an answer without a date would get one from elsewhere, not fail.
        if let Ok(date) = HeaderValue::from_str(&httpdate::fmt_http_date(now)) {
            answer.headers_mut().insert(DATE, date);
        }
        answer
    })
}

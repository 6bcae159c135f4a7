//! What nodes say to each other: service `loadline.v1.Raft`.
//!
//! `client` sends for openraft, `links` for the rest of this crate, `service` answers, `convert` checks every message
//! that comes in. Limits and encryption of the connections themselves belong to the server, which serves the service
//! and provides the [`Dial`].

pub(crate) mod client;
#[cfg(test)]
mod client_test;
pub(crate) mod convert;
pub(crate) mod links;
pub(crate) mod service;
mod snapshot_in;

use std::fmt::Debug;
use std::time::Duration;

use constant_time_eq::constant_time_eq;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::errors::DialError;

/// The largest message between nodes. An append carries up to 1 MiB of entries or one larger entry, and a single
/// request may take [`crate::REQUEST_BYTES_MAX`].
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// How to reach another node. The server adds what it needs (encryption, say); a simulator has its own network.
pub trait Dial: Debug + Send + Sync + 'static {
    /// A connection that is made when it is first used, and made again after it broke.
    fn channel(&self, address: &str) -> Result<Channel, DialError>;

    /// What this node shows with every call to prove that it is one of the group's. Nothing: nobody asks for it.
    fn pass(&self) -> Option<PeerPass> {
        None
    }
}

/// The secret that the nodes of a group share. It goes with every call between them, so that nobody else can speak as one.
#[derive(Clone)]
pub struct PeerPass(MetadataValue<Ascii>);

/// Metadata key of the pass.
const PASS: &str = "loadline-peer-pass";

impl PeerPass {
    /// Nothing if it cannot be sent: it must be printable ASCII.
    pub fn new(secret: &str) -> Option<Self> {
        let mut value = MetadataValue::try_from(secret).ok()?;
        // Neither in a log nor in a table of compressed headers.
        value.set_sensitive(true);
        Some(Self(value))
    }

    /// Whether a call shows this pass. Takes as long for a wrong one as for the right one, but for its length.
    pub fn is_shown(&self, metadata: &MetadataMap) -> bool {
        let shown = metadata.get(PASS).map_or(&b""[..], |shown| shown.as_bytes());
        constant_time_eq(shown, self.0.as_bytes())
    }

    fn show(&self, metadata: &mut MetadataMap) {
        metadata.insert(PASS, self.0.clone());
    }
}

/// Never the secret itself.
impl Debug for PeerPass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerPass")
    }
}

/// Shows the pass, if there is one.
#[derive(Debug, Clone)]
pub(crate) struct Showing(Option<PeerPass>);

impl Interceptor for Showing {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(pass) = &self.0 {
            pass.show(request.metadata_mut());
        }
        Ok(request)
    }
}

/// Plain HTTP/2 over TCP.
#[derive(Debug, Clone, Default)]
pub struct PlainDial;

impl Dial for PlainDial {
    fn channel(&self, address: &str) -> Result<Channel, DialError> {
        let wrong = |error: tonic::transport::Error| DialError {
            address: address.to_owned(),
            wrong: crate::storage::causes(&error),
        };
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map_err(wrong)?;
        Ok(endpoint
            .connect_timeout(Duration::from_secs(1))
            .tcp_nodelay(true)
            // A peer that vanished without a word (power cut, cable) is found out within seconds, not with TCP's hours.
            .http2_keep_alive_interval(Duration::from_secs(1))
            .keep_alive_timeout(Duration::from_secs(2))
            .keep_alive_while_idle(true)
            .connect_lazy())
    }
}

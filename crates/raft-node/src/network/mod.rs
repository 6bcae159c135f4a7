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

use tonic::transport::{Channel, Endpoint};

use crate::errors::DialError;

/// The largest message between nodes. An append carries up to 1 MiB of entries or one larger entry, and a single
/// request may take [`crate::REQUEST_BYTES_MAX`].
pub(crate) const MESSAGE_BYTES_MAX: usize = 8 << 20;

/// How to reach another node. The server adds what it needs (encryption, say); a simulator has its own network.
pub trait Dial: Debug + Send + Sync + 'static {
    /// A connection that is made when it is first used, and made again after it broke.
    fn channel(&self, address: &str) -> Result<Channel, DialError>;
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

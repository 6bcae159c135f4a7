//! What a client takes for granted: a clock, chance, and a network. A simulator has its own of each.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use tonic::transport::{Channel, Endpoint, Error};

/// Where a client lives.
pub trait Surroundings: fmt::Debug + Send + Sync + 'static {
    /// Milliseconds since 1970; may jump either way.
    fn now_ms(&self) -> u64;

    fn random(&self) -> u64;

    /// Makes the connection that is described.
    fn connect(&self, to: Endpoint) -> BoxFuture<'static, Result<Channel, Error>>;
}

/// This machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine;

impl Surroundings for Machine {
    fn now_ms(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    fn connect(&self, to: Endpoint) -> BoxFuture<'static, Result<Channel, Error>> {
        Box::pin(async move { to.connect().await })
    }
}

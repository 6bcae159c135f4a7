//! Connections to the database, and the limits that each call sets on its own.
//!
//! A connection goes back for the next call only from a call that ended well. One that failed or was given up is closed: nobody knows
//! what it is still doing.

use std::sync::{Mutex, PoisonError};

use rustls::ClientConfig;
use tokio::time::Instant;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Error, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::{Stage, judge};
use crate::CallError;

/// Connections that wait for the next call.
const IDLE_MAX: usize = 8;

/// More than the way of one answer.
const GRACE_MS_MAX: u64 = 500;

pub(super) struct Sessions {
    config: Config,
    tls: Option<ClientConfig>,
    idle: Mutex<Vec<Client>>,
}

impl Sessions {
    pub(super) fn new(config: Config, tls: Option<ClientConfig>) -> Self {
        Self { config, tls, idle: Mutex::new(Vec::new()) }
    }

    /// A connection on which no statement runs beyond this time.
    pub(super) async fn begin(&self, until: Instant) -> Result<Client, CallError> {
        loop {
            let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(client) = kept else { break };
            // The other end may have closed it since; nothing of this call was sent yet, so the next one is as good.
            if !client.is_closed() && limit(&client, until).await.is_ok() {
                return Ok(client);
            }
        }
        let client = self.connect().await.map_err(|error| judge(&error, Stage::Before))?;
        limit(&client, until).await.map_err(|error| judge(&error, Stage::Before))?;
        Ok(client)
    }

    /// For the next call. Only from one that ended well, and outside a transaction.
    pub(super) fn keep(&self, client: Client) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !client.is_closed() {
            idle.push(client);
        }
    }

    async fn connect(&self) -> Result<Client, Error> {
        // The task ends when the client is dropped, or when the other end hangs up; the client notices both.
        match &self.tls {
            Some(tls) if self.config.get_ssl_mode() == SslMode::Require => {
                let (client, connection) = self.config.connect(MakeRustlsConnect::new(tls.clone())).await?;
                tokio::spawn(async move { drop(connection.await) });
                Ok(client)
            }
            _ => {
                let (client, connection) = self.config.connect(NoTls).await?;
                tokio::spawn(async move { drop(connection.await) });
                Ok(client)
            }
        }
    }
}

/// What is left, in whole milliseconds; at least one, since zero would mean no limit at all.
pub(super) fn left_ms(until: Instant) -> u64 {
    let left = until.saturating_duration_since(Instant::now());
    u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The server gives up a little before we do, so that its word that nothing was done still reaches us.
fn servers_share_ms(until: Instant) -> u64 {
    let left = left_ms(until);
    (left - (left / 10).min(GRACE_MS_MAX)).max(1)
}

/// What has not been done by the deadline is never done: the server itself stops the statement, and ends a transaction whose client
/// fell asleep in the middle and would hold up everybody else.
pub(super) async fn limit(client: &Client, until: Instant) -> Result<(), Error> {
    let ms = servers_share_ms(until);
    client
        .batch_execute(&format!("SET statement_timeout = '{ms}ms'; SET idle_in_transaction_session_timeout = '{ms}ms'"))
        .await
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the configuration: it holds the password.
        f.debug_struct("Sessions").field("hosts", &self.config.get_hosts()).finish_non_exhaustive()
    }
}

//! Taking many bytes from one node, and from the beginning again at another one if it is lost on the way.

use std::io;

use tokio::time::Instant;

use crate::call::{Backoff, Tried};
use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::error::{Error, Failure};

/// The far end failed, or the near one.
#[derive(Debug)]
pub(crate) enum TransferError {
    Node(Failure),
    Sink(io::Error),
}

impl TransferError {
    #[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
    pub(crate) fn of(status: tonic::Status) -> TransferError {
        TransferError::Node(Failure::of(&status))
    }
}

/// One transfer over all its attempts: which nodes were tried, and whether to go on.
#[derive(Debug)]
pub(crate) struct Transfer<'a> {
    client: &'a Client,
    began: Instant,
    backoff: Backoff,
    tried: Tried,
    connected: bool,
}

impl<'a> Transfer<'a> {
    pub(crate) fn new(client: &'a Client) -> Transfer<'a> {
        let backoff = client.pool.backoff();
        Transfer { client, began: Instant::now(), backoff, tried: Tried::default(), connected: false }
    }

    /// Waits a moment after an attempt that failed, so that the next one goes to another node; or says why there is none.
    pub(crate) async fn after(&mut self, turn: usize, endpoint: &Endpoint, failed: TransferError) -> Result<(), Error> {
        let client = self.client;
        let failure = match failed {
            TransferError::Sink(error) => return Err(Error::Local(error.to_string())),
            TransferError::Node(failure) => failure,
        };
        self.connected |= !matches!(failure, Failure::NotSent(_));
        let (why, answer) = match failure {
            Failure::Refused(refusal) => return Err(Error::Refused(refusal)),
            Failure::NotNow { refusal, .. } => (refusal.to_string(), Some(refusal)),
            Failure::NotSent(why) | Failure::NoAnswer { why, .. } => {
                client.pool.forget(endpoint);
                (why, None)
            }
        };
        self.tried.note(endpoint, &why);
        client.pool.rotate(turn);
        let pause = self.backoff.pause();
        // Finding a node is limited as in any other call; only the transfer itself may take long.
        let nobody_there = !self.connected && client.is_patience_over(self.began.elapsed() + pause, &self.tried);
        if self.began.elapsed() + pause >= client.options.timeout || nobody_there {
            let tried = std::mem::take(&mut self.tried).into_list();
            return Err(Error::Unavailable { tried, answer, maybe_done: false });
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }
}

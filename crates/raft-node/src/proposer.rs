//! The way of a request to the log.
//!
//! On the leader it is taken in and waits to be packed (`packing.rs`). Nothing is taken in before the leadership was announced in the
//! log, nor when the lease has run out. A follower hands requests to the leader.

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use loadline_api::raft as wire;
use loadline_state_machine::{Actor, Command, Receipt, Refused, Rejection, Request, RulesVersion};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::errors::ProposeError;
use crate::forward;
use crate::node::Inner;

/// The largest request. A chunk of a restored backup is the largest that there is reason for.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;

/// Why a request was not recorded here.
#[derive(Debug, Clone)]
pub(crate) enum Failure {
    /// Certainly nothing was appended; whoever leads now may be asked.
    NotLeader,
    Final(ProposeError),
}

/// A request that waits for its outcome, unless it was turned away at once.
type TakenIn = Result<oneshot::Receiver<Result<Receipt, Failure>>, Failure>;

impl Inner {
    /// Records a request, here if this node leads, else at the leader.
    pub(crate) async fn propose(&self, request: Request) -> Result<Receipt, ProposeError> {
        let encoded = Bytes::from(request.encode());
        self.propose_encoded(request, encoded).await
    }

    /// As [`Inner::propose`], with the bytes of this very request.
    pub(crate) async fn propose_encoded(&self, request: Request, encoded: Bytes) -> Result<Receipt, ProposeError> {
        let outcome = self.propose_until_led(request, encoded).await;
        if let Err(error) = &outcome {
            self.observer.refused(reason(error));
        }
        outcome
    }

    async fn propose_until_led(&self, request: Request, encoded: Bytes) -> Result<Receipt, ProposeError> {
        check_size(encoded.len())?;
        let mut request = Some(request);
        let give_up = Instant::now() + self.config.timing.leader_wait;
        loop {
            self.check_alive()?;
            match self.propose_once(&mut request, &encoded).await {
                Ok(receipt) => return Ok(receipt),
                Err(Failure::Final(error)) => return Err(error),
                // Nothing was appended anywhere, so trying again is safe even without a request id.
                Err(Failure::NotLeader) if Instant::now() < give_up => self.leader_may_have_changed().await,
                Err(Failure::NotLeader) => return Err(ProposeError::NoLeader),
            }
        }
    }

    async fn propose_once(&self, request: &mut Option<Request>, encoded: &Bytes) -> Result<Receipt, Failure> {
        if self.leadership.borrow().is_some() {
            // The first attempt takes it. Few need a second one, and none is worth a copy for all.
            let request = request.take().map_or_else(|| Request::decode(encoded), Ok);
            let request = request.expect("what was encoded here can be read here");
            return self.propose_here(request, encoded.clone()).await;
        }
        let Some((running, leader, address)) = self.other_leader() else { return Err(Failure::NotLeader) };
        let message = wire::ProposeRequest { envelope: Some(running.envelope(leader)), request: encoded.clone() };
        let time = self.config.timing.propose;
        // In a box: whoever leads never goes this way, and would carry the room for it in every request.
        match Box::pin(self.links.propose(&address, message, time)).await {
            Ok(answer) => forward::answer_in(answer),
            Err(status) if forward::certainly_not_taken(&status) => Err(Failure::NotLeader),
            Err(status) => {
                // The connection may have broken before or after the leader took it in.
                let reason = format!("the leader at {address} did not answer: {}", status.message());
                Err(Failure::Final(ProposeError::Unknown { reason }))
            }
        }
    }

    /// Records requests of many callers, each by itself, and answers when the last of them is answered. They wait together: one
    /// timer and one task to wake for all of them.
    pub(crate) async fn propose_together(&self, requests: Vec<(Request, Bytes)>) -> Vec<Result<Receipt, ProposeError>> {
        let encoded: Vec<Bytes> = requests.iter().map(|(_, encoded)| encoded.clone()).collect();
        let outcomes = self.propose_all_here(requests).await;
        let receipts = outcomes.into_iter().zip(encoded).map(|(outcome, encoded)| async move {
            match outcome {
                Ok(receipt) => Ok(receipt),
                Err(Failure::Final(error)) => {
                    self.observer.refused(reason(&error));
                    Err(error)
                }
                // Nothing was appended. It goes the long way: whoever leads is looked for.
                Err(Failure::NotLeader) => {
                    let request = Request::decode(&encoded).expect("what was encoded here can be read here");
                    Box::pin(self.propose_encoded(request, encoded)).await
                }
            }
        });
        futures::future::join_all(receipts).await
    }

    /// Records requests if this node leads, and has their outcomes in the same order.
    async fn propose_all_here(&self, requests: Vec<(Request, Bytes)>) -> Vec<Result<Receipt, Failure>> {
        if let Err(failure) = self.takes_in() {
            return requests.iter().map(|_| Err(failure.clone())).collect();
        }
        let since = self.clock.boottime();
        let mut deadline = pin!(tokio::time::sleep(self.config.timing.propose));
        let taken_in: Vec<TakenIn> =
            requests.into_iter().map(|(request, encoded)| self.take_in(request, encoded)).collect();
        let mut outcomes = Vec::with_capacity(taken_in.len());
        // The last first: they are answered in the order in which they were taken in, so the others are there by then, and this
        // task is woken once.
        for taken_in in taken_in.into_iter().rev() {
            outcomes.push(self.answer(taken_in, since, deadline.as_mut()).await);
        }
        outcomes.reverse();
        outcomes
    }

    /// Records a request if this node leads. Never asks anybody else, so that requests cannot go in circles.
    pub(crate) async fn propose_here(&self, request: Request, encoded: Bytes) -> Result<Receipt, Failure> {
        self.takes_in()?;
        let since = self.clock.boottime();
        let deadline = pin!(tokio::time::sleep(self.config.timing.propose));
        self.answer(self.take_in(request, encoded), since, deadline).await
    }

    async fn answer(&self, taken_in: TakenIn, since: Duration, deadline: Pin<&mut Sleep>) -> Result<Receipt, Failure> {
        tokio::select! {
            biased;
            outcome = taken_in? => {
                self.observer.answered(self.clock.boottime().saturating_sub(since));
                outcome.unwrap_or_else(|_| Err(unknown("this node stopped leading")))
            }
            () = self.ended.cancelled() => Err(unknown("this node stopped")),
            () = deadline => Err(unknown("no majority acknowledged it in time")),
        }
    }

    /// Whether requests can be taken in at all: this node leads, and nothing holds it up.
    fn takes_in(&self) -> Result<(), Failure> {
        self.check_alive().map_err(Failure::Final)?;
        let Some(leadership) = self.leadership.borrow().clone() else { return Err(Failure::NotLeader) };
        if self.lease.suspended() {
            return Err(Failure::Final(ProposeError::Suspended));
        }
        if !leadership.lease.holds() {
            return Err(Failure::NotLeader);
        }
        self.check_disks().map_err(Failure::Final)
    }

    /// Puts a request where it waits to be packed.
    fn take_in(&self, request: Request, encoded: Bytes) -> TakenIn {
        check_size(encoded.len()).map_err(Failure::Final)?;
        if let Err(refused) = request.proposable().and_then(|()| self.everybody_knows_the_rules(&request)) {
            // It must not enter the log at all, so there is no index; the last one is where it would have been judged.
            let index = self.published.applied();
            let (answer, answered) = oneshot::channel();
            drop(answer.send(Ok(Receipt { index, result: Err(refused), repeated: false })));
            return Ok(answered);
        }
        self.queue.push(request, encoded).map_err(Failure::Final)
    }

    /// New rules wait until every member knows them: one that does not would have to stop.
    fn everybody_knows_the_rules(&self, request: &Request) -> Result<(), Refused> {
        for (ordinal, command) in (0..).zip(&request.commands) {
            let Command::RaiseRules { to } = command else { continue };
            // A member that has not answered lately may be of any version.
            let known = self.rules_known_to_all().unwrap_or(RulesVersion(0));
            if known < *to {
                return Err(Refused { ordinal, rejection: Rejection::RulesUnknown { to: *to, known } });
            }
        }
        Ok(())
    }

    fn check_disks(&self) -> Result<(), ProposeError> {
        let Some(running) = self.running() else { return Ok(()) };
        let me = running.identity.node_id;
        let voters: Vec<u64> = running.membership().voter_ids().collect();
        let short = match self.reserve.low() {
            Some(space) => Some((me, space)),
            None => self.neighbours.short_of_disk(&voters, me),
        };
        match short {
            None => Ok(()),
            Some((node, space)) => Err(ProposeError::DiskReserve { free: space.free, reserve: space.reserve, node }),
        }
    }

    fn check_alive(&self) -> Result<(), ProposeError> {
        if self.ended.is_cancelled() {
            return Err(if self.stopped_for_good() { ProposeError::Stopped } else { ProposeError::ShuttingDown });
        }
        Ok(())
    }
}

fn check_size(bytes: usize) -> Result<(), ProposeError> {
    if bytes > REQUEST_BYTES_MAX {
        return Err(ProposeError::TooLarge { bytes: bytes as u64, bytes_max: REQUEST_BYTES_MAX as u64 });
    }
    Ok(())
}

pub(crate) fn unknown(reason: &str) -> Failure {
    Failure::Final(ProposeError::Unknown { reason: reason.to_owned() })
}

/// For counting.
fn reason(error: &ProposeError) -> &'static str {
    match error {
        ProposeError::NoLeader => "no_leader",
        ProposeError::Overloaded => "overloaded",
        ProposeError::DiskReserve { .. } => "disk_reserve",
        ProposeError::TooLarge { .. } => "too_large",
        ProposeError::Unknown { .. } => "unknown",
        ProposeError::Suspended => "suspended",
        ProposeError::ShuttingDown => "shutting_down",
        ProposeError::Stopped => "stopped",
    }
}

/// A request of the node itself. It may safely happen twice, so it goes without an id.
pub(crate) fn own_request(inner: &Inner, commands: Vec<Command>) -> Request {
    Request { actor: Actor::node("loadline", inner.config.name.clone()), request_id: None, commands }
}

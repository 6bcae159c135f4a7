//! How requests become entries of the log.
//!
//! On the leader, whatever is waiting is packed into one entry, and a few entries are under way at a time: the longer
//! an entry takes, the more the next one carries. Nothing is proposed before the leadership was announced in the log,
//! nor when the lease has run out. A follower hands requests to the leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use loadline_api::raft as wire;
use loadline_state_machine::{Actor, Command, Receipt, Refused, Rejection, Request, RulesVersion, Sealed, Time};
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::clock::Stamps;
use crate::errors::ProposeError;
use crate::forward;
use crate::lease::Lease;
use crate::node::{Inner, Running};
use crate::types::{LeaderId, Payload, Then, Types, committed};

/// The largest request. A chunk of a restored backup is the largest that there is reason for.
pub const REQUEST_BYTES_MAX: usize = 2 << 20;
/// Requests that wait to be packed. Beyond, new ones are turned away at once: they would only time out later.
const WAITING_MAX: usize = 8_192;
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Entries that are under way at a time. A few keep the disk and the network busy; more would only make them smaller.
const UNDER_WAY_MAX: usize = 4;
/// What one entry carries at most; a single larger request goes alone.
const ENTRY_REQUESTS_MAX: usize = 1_024;
const ENTRY_BYTES_MAX: usize = 512 << 10;

/// Why a request was not recorded here.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Certainly nothing was appended; whoever leads now may be asked.
    NotLeader,
    Final(ProposeError),
}

/// A request that waits for its turn.
#[derive(Debug)]
struct Waiting {
    request: Request,
    encoded: Bytes,
    answer: Answer,
    /// Given back when the request leaves the queue, however it leaves.
    room: Room,
}

/// Where the caller waits. Dropped without a word it means that nobody knows.
type Answer = oneshot::Sender<Result<Receipt, Failure>>;

/// The bytes that a waiting request takes up.
#[derive(Debug)]
struct Room(Arc<AtomicUsize>, usize);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// The requests that wait on this node for being packed.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: mpsc::Sender<Waiting>,
    receiver: Mutex<mpsc::Receiver<Waiting>>,
    bytes: Arc<AtomicUsize>,
}

impl Default for Queue {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        Self { sender, receiver: Mutex::new(receiver), bytes: Arc::default() }
    }
}

impl Queue {
    fn push(
        &self,
        request: Request,
        encoded: Bytes,
    ) -> Result<oneshot::Receiver<Result<Receipt, Failure>>, ProposeError> {
        let bytes = encoded.len();
        if self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > WAITING_BYTES_MAX {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(ProposeError::Overloaded);
        }
        let room = Room(self.bytes.clone(), bytes);
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { request, encoded, answer, room };
        self.sender.try_send(waiting).map_err(|_| ProposeError::Overloaded)?;
        Ok(answered)
    }
}

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

    /// Records a request if this node leads. Never asks anybody else, so that requests cannot go in circles.
    pub(crate) async fn propose_here(&self, request: Request, encoded: Bytes) -> Result<Receipt, Failure> {
        check_size(encoded.len()).map_err(Failure::Final)?;
        self.check_alive().map_err(Failure::Final)?;
        let Some(leadership) = self.leadership.borrow().clone() else { return Err(Failure::NotLeader) };
        if self.lease.suspended() {
            return Err(Failure::Final(ProposeError::Suspended));
        }
        if !leadership.lease.holds() {
            return Err(Failure::NotLeader);
        }
        self.check_disks().map_err(Failure::Final)?;
        if let Err(refused) = request.proposable().and_then(|()| self.everybody_knows_the_rules(&request)) {
            // It must not enter the log at all, so there is no index; the last one is where it would have been judged.
            let index = self.published.applied();
            return Ok(Receipt { index, result: Err(refused), repeated: false });
        }
        let since = self.clock.boottime();
        let answered = self.queue.push(request, encoded).map_err(Failure::Final)?;
        tokio::select! {
            biased;
            outcome = answered => {
                self.observer.answered(self.clock.boottime().saturating_sub(since));
                outcome.unwrap_or_else(|_| Err(unknown("this node stopped leading")))
            }
            () = self.ended.cancelled() => Err(unknown("this node stopped")),
            () = tokio::time::sleep(self.config.timing.propose) => Err(unknown("no majority acknowledged it in time")),
        }
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

/// Waits for something while this node proposes nothing. Whoever comes meanwhile is sent on at once: a request that sat
/// in the queue until the next leadership would be answered long after its caller gave up.
pub(crate) async fn turn_away_until<T>(inner: &Inner, until: impl Future<Output = T>) -> T {
    let mut queue = inner.queue.receiver.lock().await;
    tokio::pin!(until);
    loop {
        tokio::select! {
            biased;
            done = &mut until => return done,
            Some(waiting) = queue.recv() => turn_away([waiting.answer]),
        }
    }
}

/// Packs and proposes for as long as `office` is this node's.
pub(crate) async fn serve(
    inner: &Arc<Inner>,
    running: &Arc<Running>,
    office: LeaderId,
    lease: &Lease,
    mut stamps: Stamps,
    over: impl Future<Output = ()>,
) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    let mut queue = inner.queue.receiver.lock().await;
    let mut left_over: Option<Waiting> = None;
    let mut last_entry = Instant::now();
    tokio::pin!(over);
    loop {
        let permit = tokio::select! {
            biased;
            () = &mut over => break,
            permit = under_way.clone().acquire_owned() => permit,
        };
        let Ok(permit) = permit else { break };
        let first = match left_over.take() {
            Some(waiting) => Some(waiting),
            None => tokio::select! {
                biased;
                () = &mut over => break,
                waiting = queue.recv() => waiting,
                // A hundred thousand clusters that fall due at once take hundreds of entries: they follow one another.
                () = inner.published.evaluations_wait() => None,
                // Nobody asked for anything: time must pass all the same.
                () = tokio::time::sleep_until(last_entry + inner.config.tick_every) => None,
            },
        };
        let (mut requests, mut answers, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = first;
        while let Some(waiting) = next.take() {
            if !requests.is_empty() && bytes + waiting.room.1 > ENTRY_BYTES_MAX {
                left_over = Some(waiting);
                break;
            }
            bytes += waiting.room.1;
            requests.push((waiting.request, waiting.encoded));
            answers.push(waiting.answer);
            if requests.len() < ENTRY_REQUESTS_MAX {
                next = queue.try_recv().ok();
            }
        }
        if !lease.holds() {
            turn_away(answers);
            // Asking again at once would spin; the lease comes back with the next answers, if at all.
            last_entry = Instant::now();
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        }
        if requests.is_empty() && inner.reserve.low().is_some() {
            // A tick takes disk too. Time stands still until there is room again.
            last_entry = Instant::now();
            continue;
        }
        let stamped_at = stamps.next(inner.clock.boottime());
        let proposed = propose_entry(
            inner,
            running,
            office,
            stamped_at,
            requests,
            Then::new(move |outcome| {
                settle(answers, outcome);
                drop(permit);
            }),
        )
        .await;
        last_entry = Instant::now();
        if !proposed {
            break;
        }
    }
    turn_away(left_over.map(|waiting| waiting.answer));
}

/// Hands one entry to Raft, which calls `then` when it is applied, or refused. False: Raft is gone.
async fn propose_entry(
    inner: &Inner,
    running: &Running,
    office: LeaderId,
    stamped_at: Time,
    mut requests: Vec<(Request, Bytes)>,
    then: Then<ClientWriteResult<Types>>,
) -> bool {
    if requests.is_empty() {
        let tick = own_request(inner, vec![Command::Tick]);
        let encoded = Bytes::from(tick.encode());
        requests.push((tick, encoded));
    }
    let count = requests.len();
    let sealed = Sealed::seal_encoded(stamped_at, requests);
    let bytes = Bytes::from_owner(sealed.bytes().clone());
    inner.packed.keep(sealed);
    inner.observer.proposed(count, bytes.len());
    running.raft.write(Payload(bytes)).with_leader(committed(office)).responder(then).await.is_ok()
}

/// A request of the node itself. It may safely happen twice, so it goes without an id.
pub(crate) fn own_request(inner: &Inner, commands: Vec<Command>) -> Request {
    Request { actor: Actor::node("loadline", inner.config.name.clone()), request_id: None, commands }
}

fn settle(answers: Vec<Answer>, outcome: ClientWriteResult<Types>) {
    match outcome {
        Ok(response) => {
            // A tick has a receipt that nobody waits for, and who gave up waiting was told that it is unknown.
            for (answer, receipt) in answers.into_iter().zip(response.data.0) {
                drop(answer.send(Ok(receipt)));
            }
        }
        Err(ClientWriteError::LogEntryDiscarded(_)) => {
            unknown_to_all(answers, "another leader was elected meanwhile");
        }
        // Every other refusal comes before anything is appended.
        Err(_) => turn_away(answers),
    }
}

fn unknown_to_all(answers: Vec<Answer>, reason: &str) {
    for answer in answers {
        drop(answer.send(Err(unknown(reason))));
    }
}

fn turn_away(answers: impl IntoIterator<Item = Answer>) {
    for answer in answers {
        drop(answer.send(Err(Failure::NotLeader)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_turns_requests_away_and_takes_them_again_when_there_is_room() {
        let request = || Request { actor: Actor::default(), request_id: None, commands: Vec::new() };
        let [all, one] = [WAITING_BYTES_MAX, 1].map(|bytes| Bytes::from(vec![0; bytes]));
        let queue = Queue::default();
        let first = queue.push(request(), all.clone()).unwrap();
        assert_eq!(queue.push(request(), one.clone()).unwrap_err(), ProposeError::Overloaded);
        drop(queue.receiver.try_lock().unwrap().try_recv().unwrap());
        drop(first);
        queue.push(request(), all).unwrap();

        let queue = Queue::default();
        for _ in 0..WAITING_MAX {
            drop(queue.push(request(), one.clone()).unwrap());
        }
        assert_eq!(queue.push(request(), one.clone()).unwrap_err(), ProposeError::Overloaded);
    }
}

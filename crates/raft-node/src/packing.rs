//! How requests become entries of the log.
//!
//! On the leader, whatever is waiting is packed into one entry, and a few entries are under way at a time: the longer
//! an entry takes, the more the next one carries. Nothing is proposed when the lease has run out. What follows from an entry goes out
//! with it where that is known ([`foresight`]).

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use loadline_state_machine::{Command, Receipt, Request, Sealed, Time};
use openraft::errors::ClientWriteError;
use openraft::raft::ClientWriteResult;
use tokio::sync::{Mutex, Notify, OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use crate::clock::Stamps;
use crate::errors::ProposeError;
use crate::foresight;
use crate::lease::Lease;
use crate::node::{Inner, Running};
use crate::proposer::{Failure, own_request, unknown};
use crate::types::{LeaderId, Payload, Then, Types, committed};

/// Requests that wait to be packed. Beyond, new ones are turned away at once: they would only time out later.
const WAITING_MAX: usize = 8_192;
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Entries that are under way at a time. A few keep the disk and the network busy; more would only make them smaller.
const UNDER_WAY_MAX: usize = 4;
/// As many more where entries may carry so few that this many requests could not be under way otherwise.
const REQUESTS_UNDER_WAY_MIN: usize = 64;
/// So few requests under way are no load that anybody would have to wait for: a reaction, say, beside the outcome of another.
const FEW: usize = 8;
/// What one entry carries at most, in bytes; a single larger request goes alone.
const ENTRY_BYTES_MAX: usize = 512 << 10;
/// How often it is looked whether the lease still holds, by whoever waits.
const LEASE_LOOK: Duration = Duration::from_millis(10);

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
    pub(crate) fn push(
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

/// The requests of the entries that are under way.
#[derive(Debug, Default)]
struct UnderWay {
    requests: AtomicUsize,
    fewer: Notify,
}

impl UnderWay {
    /// Whether an entry with so many requests is worth it now. On its way, an entry costs three nodes the same whatever it carries, so
    /// beside many others one goes only when it carries as much as they do together: whoever waits goes at the latest when those before
    /// are done, and under load two halves take turns.
    fn lets_go(&self, waiting: usize) -> bool {
        let under_way = self.requests.load(Ordering::Relaxed);
        under_way < FEW || waiting >= under_way
    }

    fn begin(this: &Arc<UnderWay>, requests: usize, permit: OwnedSemaphorePermit) -> Going {
        this.requests.fetch_add(requests, Ordering::Relaxed);
        Going { under_way: this.clone(), requests, _permit: permit }
    }
}

/// One entry on its way.
struct Going {
    under_way: Arc<UnderWay>,
    requests: usize,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Going {
    fn drop(&mut self) {
        self.under_way.requests.fetch_sub(self.requests, Ordering::Relaxed);
        self.under_way.fewer.notify_one();
    }
}

/// What goes into the next entry.
#[derive(Debug)]
struct Pack {
    requests_max: usize,
    requests: Vec<(Request, Bytes)>,
    answers: Vec<Answer>,
    bytes: usize,
}

impl Pack {
    fn of_at_most(requests_max: usize) -> Pack {
        Pack { requests_max, requests: Vec::new(), answers: Vec::new(), bytes: 0 }
    }

    fn has_room(&self) -> bool {
        self.requests.len() < self.requests_max && self.bytes < ENTRY_BYTES_MAX
    }

    /// Gives back what is too large beside the others. Alone, everything may go.
    fn add(&mut self, waiting: Waiting) -> Option<Waiting> {
        let Waiting { request, encoded, answer, room } = waiting;
        if !self.requests.is_empty() && self.bytes + encoded.len() > ENTRY_BYTES_MAX {
            return Some(Waiting { request, encoded, answer, room });
        }
        self.bytes += encoded.len();
        self.requests.push((request, encoded));
        self.answers.push(answer);
        None
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
    let requests_max = inner.config.entry_requests_max;
    let entries = Arc::new(Semaphore::new(UNDER_WAY_MAX.max(REQUESTS_UNDER_WAY_MIN / requests_max.max(1))));
    let under_way = Arc::new(UnderWay::default());
    let mut queue = inner.queue.receiver.lock().await;
    let mut left_over: Option<Waiting> = None;
    let mut last_entry = Instant::now();
    tokio::pin!(over);
    'leading: loop {
        let permit = tokio::select! {
            biased;
            () = &mut over => break,
            permit = entries.clone().acquire_owned() => permit,
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
        let mut pack = Pack::of_at_most(requests_max);
        let mut look = pin!(tokio::time::sleep(LEASE_LOOK));
        let mut next = first;
        while let Some(waiting) = next.take() {
            left_over = pack.add(waiting);
            if left_over.is_some() || !pack.has_room() {
                break;
            }
            next = queue.try_recv().ok();
            while next.is_none() && !under_way.lets_go(pack.requests.len()) && lease.holds() {
                tokio::select! {
                    biased;
                    () = &mut over => {
                        turn_away(pack.answers);
                        break 'leading;
                    }
                    waiting = queue.recv() => next = waiting,
                    () = under_way.fewer.notified() => {}
                    // What is under way may never be done: then the lease runs out.
                    () = &mut look => look.as_mut().reset(Instant::now() + LEASE_LOOK),
                }
            }
        }
        if !lease.holds() {
            turn_away(pack.answers);
            // Asking again at once would spin; the lease comes back with the next answers, if at all.
            last_entry = Instant::now();
            tokio::time::sleep(LEASE_LOOK).await;
            continue;
        }
        if pack.requests.is_empty() && inner.reserve.low().is_some() {
            // A tick takes disk too. Time stands still until there is room again.
            last_entry = Instant::now();
            continue;
        }
        let stamped_at = stamps.next(inner.clock.boottime());
        let Pack { requests, answers, .. } = pack;
        let going = UnderWay::begin(&under_way, requests.len(), permit);
        let then = Then::new(move |outcome| {
            settle(answers, outcome);
            drop(going);
        });
        let sealed = seal(inner, stamped_at, requests);
        let follows = foresight::follow(inner, &sealed);
        // Nothing is waited for between the two, so Raft finds them together.
        let mut proposed = propose_entry(inner, running, office, sealed, then).await;
        if !follows.is_empty()
            && proposed
            && let Ok(permit) = entries.clone().try_acquire_owned()
        {
            let requests: Vec<(Request, Bytes)> = follows.into_iter().map(encoded).collect();
            let going = UnderWay::begin(&under_way, requests.len(), permit);
            let sealed = seal(inner, stamps.next(inner.clock.boottime()), requests);
            let then = Then::new(move |_| drop(going));
            proposed = propose_entry(inner, running, office, sealed, then).await;
        }
        last_entry = Instant::now();
        if !proposed {
            break;
        }
    }
    turn_away(left_over.map(|waiting| waiting.answer));
}

fn encoded(request: Request) -> (Request, Bytes) {
    let bytes = Bytes::from(request.encode());
    (request, bytes)
}

fn seal(inner: &Inner, stamped_at: Time, mut requests: Vec<(Request, Bytes)>) -> Sealed {
    if requests.is_empty() {
        requests.push(encoded(own_request(inner, vec![Command::Tick])));
    }
    Sealed::seal_encoded(stamped_at, requests)
}

/// Hands one entry to Raft, which calls `then` when it is applied, or refused. False: Raft is gone.
async fn propose_entry(
    inner: &Inner,
    running: &Running,
    office: LeaderId,
    sealed: Sealed,
    then: Then<ClientWriteResult<Types>>,
) -> bool {
    let bytes = Bytes::from_owner(sealed.bytes().clone());
    inner.observer.proposed(sealed.entry().requests.len(), bytes.len());
    inner.packed.keep(sealed);
    running.raft.write(Payload(bytes)).with_leader(committed(office)).responder(then).await.is_ok()
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
    use loadline_state_machine::Actor;

    use super::*;
    use crate::config::ENTRY_REQUESTS_MAX;

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

    #[test]
    fn beside_many_others_an_entry_goes_only_with_as_much_as_they_have() {
        let entries = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        let under_way = Arc::new(UnderWay::default());
        let begin = |requests| UnderWay::begin(&under_way, requests, entries.clone().try_acquire_owned().unwrap());
        let few = begin(FEW - 1);
        assert!(under_way.lets_go(1), "beside a few it goes at once");
        let first = begin(30 - (FEW - 1));
        assert!(!under_way.lets_go(29) && under_way.lets_go(30));
        let second = begin(30);
        assert!(!under_way.lets_go(59) && under_way.lets_go(60));
        drop((few, first));
        assert!(under_way.lets_go(30) && !under_way.lets_go(29));
        drop(second);
        assert!(under_way.lets_go(1));
        assert_eq!(entries.available_permits(), UNDER_WAY_MAX);
    }

    #[test]
    fn what_is_too_large_beside_others_waits_for_the_next_entry_and_goes_alone() {
        let waiting = |bytes: usize| Waiting {
            request: Request { actor: Actor::default(), request_id: None, commands: Vec::new() },
            encoded: Bytes::from(vec![0; bytes]),
            answer: oneshot::channel().0,
            room: Room(Arc::default(), 0),
        };
        let mut pack = Pack::of_at_most(ENTRY_REQUESTS_MAX);
        assert!(pack.add(waiting(1)).is_none());
        assert!(pack.add(waiting(ENTRY_BYTES_MAX)).is_some_and(|it| it.encoded.len() == ENTRY_BYTES_MAX));
        assert!(pack.has_room() && pack.requests.len() == 1);
        let mut pack = Pack::of_at_most(ENTRY_REQUESTS_MAX);
        assert!(pack.add(waiting(ENTRY_BYTES_MAX + 1)).is_none());
        assert!(!pack.has_room());
        let mut pack = Pack::of_at_most(ENTRY_REQUESTS_MAX);
        assert!((0..ENTRY_REQUESTS_MAX).all(|_| pack.has_room() && pack.add(waiting(1)).is_none()));
        assert!(!pack.has_room());
    }
}

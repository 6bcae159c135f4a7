//! A backend in memory that keeps its promises and still makes trouble within them: answers get lost, requests arrive late or
//! never, reads are old. For tests and simulators.
//!
//! It lives in the time of tokio and draws its fates from a seed and the order itself, so a run can be repeated. What has
//! been sent goes its way although the sender is gone, as on a network. The ledger is what really happened, for a test to compare
//! with what the group believes.

mod place;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadline_state_machine::{Call, ClusterId, Epoch, Hash, ReplicaSpec, Report};
use tokio::time::{Instant, sleep, sleep_until};

use crate::{Answering, Backend, CallError, Capabilities, ClusterAddress, Found, ObservedHydration};
use crate::{ObservedReplica, Order};
use place::{Due, Fate, Known, Place};

/// What it promises, and what goes wrong within that. Percentages are of calls.
#[derive(Clone, Debug)]
pub struct Script {
    pub seed: u64,
    pub capabilities: Capabilities,
    /// Carried out, and the answer is lost.
    pub unanswered_percent: u64,
    /// Lost on the way there.
    pub lost_percent: u64,
    /// Takes up to `slow_for`: half of it on the way, half of it under way.
    pub slow_percent: u64,
    pub slow_for: Duration,
    /// Refused, and worth another try.
    pub refused_percent: u64,
    /// Looks, searches and fences that are not answered.
    pub unread_percent: u64,
    /// What a look or a search shows may be so old.
    pub stale_for: Duration,
    /// One way.
    pub latency: Duration,
    /// False: the same order is carried out as often as it comes. It can still be looked up.
    pub remembers_keys: bool,
    /// How long a new replica takes to become ready and to take up its objects.
    pub ready_after: Duration,
    pub objects: u64,
}

impl Default for Script {
    /// Quick and honest.
    fn default() -> Script {
        Script {
            seed: 0,
            capabilities: Capabilities {
                fences: true,
                visibility_delay: Duration::ZERO,
                call_deadline: Duration::from_secs(10),
                calls_max: 16,
                observe_every: Duration::from_secs(5),
                checkpoints: false,
            },
            unanswered_percent: 0,
            lost_percent: 0,
            slow_percent: 0,
            slow_for: Duration::from_secs(5),
            refused_percent: 0,
            unread_percent: 0,
            stale_for: Duration::ZERO,
            latency: Duration::from_millis(2),
            remembers_keys: true,
            ready_after: Duration::from_millis(500),
            objects: 10,
        }
    }
}

impl Script {
    /// Of a hundred calls five are done and not answered, five are lost, ten are slow; reads are up to two seconds old.
    pub fn lying(seed: u64) -> Script {
        let honest = Script::default();
        let stale_for = Duration::from_secs(2);
        Script {
            seed,
            capabilities: Capabilities { visibility_delay: stale_for, ..honest.capabilities },
            unanswered_percent: 5,
            lost_percent: 5,
            slow_percent: 10,
            stale_for,
            ..honest
        }
    }
}

/// Something that a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    pub key: String,
    pub epoch: Epoch,
    pub attempt: u32,
    pub cluster: ClusterId,
    pub call: Call,
    pub event: LedgerEvent,
    pub at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerEvent {
    /// It was sent; whether it will arrive is another matter.
    Sent,
    /// It arrived, and will be carried out.
    Accepted,
    RefusedEpoch,
    RefusedForNow,
    OtherParameters,
    /// The key was known, and nothing was done.
    Repeated,
    /// It was carried out.
    Effect,
    /// Somebody asked what came of it, and was told.
    ReadBack,
}

type Hook = Arc<dyn Fn(&Order) + Send + Sync>;

/// The backend, as one node reaches it. A clone is the same place as another node reaches it.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Script>,
    place: Arc<Mutex<Place>>,
    on_send: Arc<Mutex<Option<Hook>>>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").field("script", &self.script).finish_non_exhaustive()
    }
}

impl Scripted {
    pub fn new(script: Script) -> Scripted {
        assert!(script.slow_for < script.capabilities.call_deadline, "carried out before the deadline, or never");
        assert!(script.stale_for <= script.capabilities.visibility_delay, "no older than it promises");
        Scripted { script: Arc::new(script), place: Arc::default(), on_send: Arc::default() }
    }

    /// The same place, as a node reaches it that was told something else about it.
    #[must_use]
    pub fn reached_with(&self, script: Script) -> Scripted {
        Scripted { script: Arc::new(script), ..self.clone() }
    }

    /// Calls `hook` with every order at the moment when it is sent.
    pub fn on_send(&self, hook: impl Fn(&Order) + Send + Sync + 'static) {
        *self.on_send.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(hook));
    }

    /// Everything that calls came to, in order of time.
    pub fn ledger(&self) -> Vec<LedgerLine> {
        self.now().ledger.clone()
    }

    /// The same, without the first so many lines.
    pub fn ledger_from(&self, line: usize) -> Vec<LedgerLine> {
        self.now().ledger.get(line..).unwrap_or_default().to_vec()
    }

    /// From now on nothing goes wrong any more: whoever waits for an end of all troubles gets it.
    pub fn behave(&self) {
        let mut place = self.now();
        place.behaves = true;
        place.unreachable = false;
        place.mute = false;
    }

    /// How often the order of each key was carried out.
    pub fn effects(&self) -> BTreeMap<String, u32> {
        let mut effects = BTreeMap::new();
        for line in self.now().ledger.iter().filter(|line| line.event == LedgerEvent::Effect) {
            *effects.entry(line.key.clone()).or_default() += 1;
        }
        effects
    }

    pub fn count(&self, event: LedgerEvent) -> usize {
        self.now().ledger.iter().filter(|line| line.event == event).count()
    }

    /// Nobody reaches it until further notice.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.now().unreachable = unreachable;
    }

    /// Answers to calls are held back until further notice; what arrives is carried out.
    pub fn set_mute(&self, mute: bool) {
        self.now().mute = mute;
    }

    /// The names of the replicas that are really there.
    pub fn replicas(&self, cluster: ClusterId) -> Vec<String> {
        let place = self.now();
        let lives = place.lives.get(&cluster).into_iter().flatten();
        let mut names: Vec<String> =
            lives.filter(|life| life.gone_at.is_none()).map(|life| life.name.clone()).collect();
        names.sort();
        names
    }

    /// A user makes a replica by hand.
    pub fn add_replica(&self, cluster: ClusterId, name: &str, size: &str) {
        let now = Instant::now();
        let spec = ReplicaSpec { name: name.into(), size: size.into() };
        self.now().create(cluster, &spec, now);
    }

    /// A user drops a replica by hand.
    pub fn remove_replica(&self, cluster: ClusterId, name: &str) {
        let now = Instant::now();
        if let Some(life) = self.now().life_mut(cluster, name, None) {
            life.gone_at = Some(now);
        }
    }

    /// A replica crashes so often.
    pub fn crash(&self, cluster: ClusterId, name: &str, count: u64, oom: bool) {
        if let Some(life) = self.now().life_mut(cluster, name, None) {
            life.crashes += count;
            life.oom = oom;
        }
    }

    /// Makes a key known with other parameters than those that will be sent under it.
    pub fn tamper(&self, key: &str) {
        let now = Instant::now();
        let known = Known {
            parameters: Hash::of(b"something else"),
            arrived_at: now,
            due: now,
            waiting: vec![],
            result: Some(Ok(Report::Nothing)),
        };
        self.now().known.insert(key.to_owned(), known);
    }

    /// The place, after everything that was due by now.
    fn now(&self) -> MutexGuard<'_, Place> {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        place.catch_up(Instant::now(), &self.script);
        place
    }

    fn percent(&self, of: &str) -> u64 {
        roll(self.script.seed, of) % 100
    }

    /// Whether a look, a search or a fence gets through, and how old what it shows is.
    async fn read(&self) -> Result<Instant, CallError> {
        sleep(self.script.latency * 2).await;
        let mut place = self.now();
        place.reads += 1;
        let number = place.reads;
        let unread = !place.behaves && self.percent(&format!("read {number}")) < self.script.unread_percent;
        if place.unreachable || unread {
            return Err(unanswered());
        }
        let stale_millis = u64::try_from(self.script.stale_for.as_millis()).unwrap_or(u64::MAX);
        let age = roll(self.script.seed, &format!("age {number}")) % stale_millis.saturating_add(1);
        Ok(Instant::now() - Duration::from_millis(age))
    }

    fn fate(&self, order: &Order) -> Fate {
        let script = &self.script;
        let of = format!("{}/{}/{}", order.key, order.epoch, order.attempt);
        let honest = Fate { arrives_after: script.latency, takes: script.latency, ..Fate::default() };
        if self.now().behaves {
            return honest;
        }
        let mut rolled = self.percent(&of);
        let mut is = |percent: u64| match rolled.checked_sub(percent) {
            None => true,
            Some(rest) => {
                rolled = rest;
                false
            }
        };
        if is(script.unanswered_percent) {
            Fate { unanswered: true, ..honest }
        } else if is(script.lost_percent) {
            Fate { lost: true, ..honest }
        } else if is(script.slow_percent) {
            let part =
                |what: &str| script.slow_for / 200 * u32::try_from(self.percent(&of.replace('/', what))).unwrap_or(0);
            Fate { arrives_after: script.latency + part("way"), takes: script.latency + part("work"), ..honest }
        } else if is(script.refused_percent) {
            Fate { refused: true, ..honest }
        } else {
            honest
        }
    }
}

/// An even draw, the same for the same seed and text.
fn roll(seed: u64, of: &str) -> u64 {
    let hash = Hash::of(format!("{seed}: {of}").as_bytes());
    hash.0.iter().take(7).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn unanswered() -> CallError {
    CallError::Unknown { reason: "the connection was lost".to_owned() }
}

impl Backend for Scripted {
    fn capabilities(&self) -> Capabilities {
        self.script.capabilities
    }

    fn fence(&self, epoch: Epoch) -> Answering<'_, ()> {
        Box::pin(async move {
            self.read().await?;
            let mut place = self.now();
            match place.highest {
                Some(highest) if self.script.capabilities.fences && epoch < highest => {
                    Err(CallError::Fenced { highest })
                }
                highest => {
                    place.highest = highest.max(Some(epoch));
                    Ok(())
                }
            }
        })
    }

    fn execute<'a>(&'a self, order: &'a Order) -> Answering<'a, Report> {
        Box::pin(async move {
            let fate = self.fate(order);
            let arrives_at = Instant::now() + fate.arrives_after;
            let hook = self.on_send.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(hook) = hook {
                hook(order);
            }
            let number = {
                let mut place = self.now();
                let number = place.number();
                place.write(Instant::now(), order, LedgerEvent::Sent);
                if place.unreachable {
                    return Err(unanswered());
                }
                if !fate.lost {
                    place.due.insert((arrives_at, number), Due::Arrival { order: order.clone(), fate });
                }
                number
            };
            if fate.lost {
                return std::future::pending().await;
            }
            sleep_until(arrives_at).await;
            let answer = loop {
                let due = {
                    let mut place = self.now();
                    if let Some(answer) = place.answers.remove(&number) {
                        break answer;
                    }
                    place.known.get(&order.key).map(|known| known.due)
                };
                sleep_until(due.unwrap_or(arrives_at).max(Instant::now() + Duration::from_millis(1))).await;
            };
            if fate.unanswered || self.now().mute {
                return std::future::pending().await;
            }
            sleep(self.script.latency).await;
            answer
        })
    }

    fn find<'a>(&'a self, order: &'a Order) -> Answering<'a, Found> {
        Box::pin(async move {
            let as_of = self.read().await?;
            let mut place = self.now();
            place.write(Instant::now(), order, LedgerEvent::ReadBack);
            let known = place.known.get(&order.key).filter(|known| known.arrived_at <= as_of);
            let Some(known) = known else { return Ok(Found::NotSeen) };
            if known.parameters != order.parameters {
                return Ok(Found::OtherParameters { known: known.parameters.to_string() });
            }
            match &known.result {
                Some(result) if known.due <= as_of => match result {
                    Ok(report) => Ok(Found::Done(report.clone())),
                    Err(error) => Ok(Found::Failed { retryable: false, reason: error.to_string() }),
                },
                _ => Ok(Found::UnderWay),
            }
        })
    }

    fn observe<'a>(&'a self, cluster: &'a ClusterAddress) -> Answering<'a, Vec<ObservedReplica>> {
        Box::pin(async move {
            let as_of = self.read().await?;
            let place = self.now();
            let lives = place.lives.get(&cluster.id).into_iter().flatten();
            let there =
                lives.filter(|life| life.made_at <= as_of && life.gone_at.is_none_or(|gone_at| gone_at > as_of));
            let mut seen: Vec<ObservedReplica> = there
                .map(|life| {
                    let ready = as_of.duration_since(life.made_at) >= self.script.ready_after;
                    let hydrated = if ready { self.script.objects } else { 0 };
                    ObservedReplica {
                        name: life.name.clone(),
                        size: life.size.clone(),
                        incarnation: Some(life.incarnation.clone()),
                        ready,
                        hydration: Some(ObservedHydration { total: self.script.objects, hydrated }),
                        crashes: life.crashes,
                        crash_reason: (life.crashes > 0).then(|| "it was told to".to_owned()),
                        oom: life.oom,
                    }
                })
                .collect();
            seen.sort();
            Ok(seen)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Subject, suite};

    fn subject(script: Script) -> Subject {
        let backend = Scripted::new(script);
        Subject::new(Arc::new(backend.clone())).with_other_node(Arc::new(backend))
    }

    #[tokio::test(start_paused = true)]
    async fn it_keeps_the_promises_of_a_backend() {
        suite(async || subject(Script::default())).await;
        let honest = Script::default();
        let capabilities = Capabilities { checkpoints: true, ..honest.capabilities };
        suite(async || subject(Script { capabilities, ..honest.clone() })).await;
    }

    #[tokio::test(start_paused = true)]
    async fn it_keeps_them_when_reads_are_old_and_calls_are_slow() {
        for seed in 0..20 {
            let script = Script { slow_percent: 100, refused_percent: 0, ..Script::lying(seed) };
            suite(async || subject(Script { unanswered_percent: 0, lost_percent: 0, ..script.clone() })).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_suite_notices_a_backend_that_forgets_keys() {
        let forgetful = Script { remembers_keys: false, ..Script::default() };
        let running = tokio::spawn(suite(move || {
            let forgetful = forgetful.clone();
            async move { subject(forgetful) }
        }));
        let failure = running.await.expect_err("a backend that does a thing twice must not pass");
        assert!(failure.is_panic());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_arrives_although_the_sender_is_gone_and_an_old_epoch_is_refused_on_arrival() {
        let slow = Script { slow_percent: 100, ..Script::default() };
        let backend = Scripted::new(slow);
        let cluster = ClusterId { index: loadline_state_machine::LogIndex(1), ordinal: 0 };
        let epoch = |index| Epoch { incarnation: 1, index: loadline_state_machine::LogIndex(index) };
        let order = |key: &str, index| Order {
            key: key.to_owned(),
            epoch: epoch(index),
            attempt: 1,
            parameters: Hash::default(),
            cluster: ClusterAddress { id: cluster, name: "demo".to_owned() },
            call: Call::CreateReplica(ReplicaSpec { name: key.into(), size: "25cc".into() }),
        };
        backend.fence(epoch(1)).await.unwrap();
        for key in ["a", "b", "c", "d"] {
            let sent = order(key, 1);
            let mut call = backend.execute(&sent);
            assert!(futures::poll!(&mut call).is_pending());
        }
        backend.fence(epoch(2)).await.unwrap();
        sleep(backend.capabilities().call_deadline).await;
        assert_eq!(backend.count(LedgerEvent::RefusedEpoch) + backend.replicas(cluster).len(), 4);
        assert!(backend.count(LedgerEvent::RefusedEpoch) > 0, "{:?}", backend.ledger());
    }
}

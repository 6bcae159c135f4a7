//! One backend, under one leadership: whether it is fenced, whether it answers, and how many calls it takes.
//!
//! Every backend has a lane of its own and shares nothing with the others, so that one that is slow, or does not answer at
//! all, holds up nobody else.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::breaker::{Admission, Breaker, doubled};
use crate::{Alarm, Backend, CallError, Capabilities, Executor, Note, Tenure};

pub(super) struct Lane {
    pub(super) name: String,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) capabilities: Capabilities,
    executor: Executor,
    slots: Arc<Semaphore>,
    standing: Mutex<Standing>,
    /// Somebody waits for a slot of this lane.
    changed: Notify,
    /// For whoever looks after all lanes.
    news: Arc<Notify>,
}

struct Standing {
    fence: Fence,
    breaker: Breaker,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// Nothing may be done here yet.
    Not,
    /// Nothing that an earlier leader sent is begun after this moment.
    Since(Instant),
    /// Somebody with a later epoch has been here.
    ByAnother,
}

impl Lane {
    pub(super) fn new(executor: &Executor, name: &str, backend: &Arc<dyn Backend>, news: &Arc<Notify>) -> Arc<Lane> {
        let capabilities = backend.capabilities();
        let slots = capabilities.calls_max.min(executor.settings.acting.calls_per_backend_max).max(1);
        Arc::new(Lane {
            name: name.to_owned(),
            backend: Arc::clone(backend),
            capabilities,
            executor: executor.clone(),
            slots: Arc::new(Semaphore::new(slots)),
            standing: Mutex::new(Standing { fence: Fence::Not, breaker: Breaker::new() }),
            changed: Notify::new(),
            news: Arc::clone(news),
        })
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment after which nothing of an earlier leader is begun here; nothing while that is not so, and the backend must
    /// not be called.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        match self.standing().fence {
            Fence::Since(since) => Some(since),
            Fence::Not | Fence::ByAnother => None,
        }
    }

    pub(super) fn lets_in_at(&self) -> Option<Instant> {
        self.standing().breaker.opens_at()
    }

    /// Fences the backend, and again whenever somebody else has: either this leadership ends soon, or the other one was wrong.
    pub(super) async fn keep_fenced(self: Arc<Lane>, tenure: Tenure) {
        loop {
            self.fence(&tenure).await;
            while self.quiet_since().is_some() {
                self.changed.notified().await;
            }
            sleep(self.executor.settings.acting.retry_longest).await;
        }
    }

    async fn fence(&self, tenure: &Tenure) {
        let settings = &self.executor.settings.acting;
        let (epoch, started) = (tenure.epoch(), Instant::now());
        let mut failures = 0;
        loop {
            // Read each time: a backend may learn what it can do only by asking, which it does when it is first fenced.
            let Capabilities { fences, call_deadline, visibility_delay, .. } = self.backend.capabilities();
            if !fences {
                // Whatever the last leader sent was sent under its lease, which had ended before this one began.
                sleep(call_deadline + visibility_delay).await;
                return self.fenced(tenure, started, started + call_deadline);
            }
            while !tenure.may_act() {
                sleep(settings.lease_look_every).await;
            }
            let error = match self.bounded(self.backend.fence(epoch)).await {
                Ok(()) => return self.fenced(tenure, started, Instant::now()),
                Err(CallError::Fenced { highest }) => {
                    self.fenced_by_another(tenure, &CallError::Fenced { highest });
                    CallError::Fenced { highest }
                }
                Err(error) => error,
            };
            let again_in = doubled(settings.retry_first, failures, settings.retry_longest);
            failures += 1;
            let reason = error.to_string();
            self.executor.note(&Note::FenceFailed { backend: &self.name, epoch, reason: &reason, again_in });
            sleep(again_in).await;
        }
    }

    fn fenced(&self, tenure: &Tenure, started: Instant, since: Instant) {
        self.standing().fence = Fence::Since(since);
        let took = started.elapsed();
        self.executor.note(&Note::Fenced { backend: &self.name, epoch: tenure.epoch(), took });
        self.tell();
    }

    /// A later leader has been here, so this one is none any more, whatever it believes: nothing more is done here.
    pub(super) fn fenced_by_another(&self, tenure: &Tenure, error: &CallError) {
        let before = std::mem::replace(&mut self.standing().fence, Fence::ByAnother);
        if before != Fence::ByAnother {
            let reason = format!("{error}, which is later than our epoch {}", tenure.epoch());
            let alarm = Alarm::FencedByAnother;
            self.executor.note(&Note::Alarm { backend: &self.name, action: None, alarm, reason: &reason });
        }
        self.tell();
    }

    fn tell(&self) {
        self.changed.notify_waiters();
        self.news.notify_one();
    }

    /// Whether a call could go out now, as far as one can tell without trying.
    pub(super) fn has_room(&self) -> bool {
        self.slots.available_permits() > 0 && self.quiet_since().is_some()
    }

    /// A slot for one call, if one is free and the backend is called at all at the moment.
    pub(super) fn try_slot(self: &Arc<Lane>) -> Option<Slot> {
        let permit = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        match self.admit() {
            Admission::Go => Some(Slot::new(self, permit, false)),
            Admission::Probe => Some(Slot::new(self, permit, true)),
            Admission::Wait { .. } | Admission::AfterProbe => None,
        }
    }

    /// The same, but waits for it.
    pub(super) async fn slot(self: &Arc<Lane>) -> Slot {
        loop {
            let Ok(permit) = Arc::clone(&self.slots).acquire_owned().await else {
                // Nobody closes it.
                return std::future::pending().await;
            };
            match self.admit() {
                Admission::Go => return Slot::new(self, permit, false),
                Admission::Probe => return Slot::new(self, permit, true),
                Admission::Wait { until } => {
                    drop(permit);
                    sleep_until(until).await;
                }
                Admission::AfterProbe => {
                    drop(permit);
                    // It is over at the latest when its deadline has passed; the notice may have come before we wait for it.
                    let longest = self.executor.settings.acting.retry_first;
                    let _ = timeout(longest, self.changed.notified()).await;
                }
            }
        }
    }

    fn admit(&self) -> Admission {
        let admission = self.standing().breaker.admit(Instant::now());
        if admission == Admission::Probe {
            self.note_breaker(None);
        }
        admission
    }

    fn note_breaker(&self, reason: Option<&str>) {
        let state = self.standing().breaker.state();
        self.executor.note(&Note::Breaker { backend: &self.name, state, reason });
    }

    fn update_breaker(&self, reason: Option<&str>, update: impl FnOnce(&mut Breaker)) {
        let (before, after) = {
            let breaker = &mut self.standing().breaker;
            let before = breaker.state();
            update(breaker);
            (before, breaker.state())
        };
        if before != after {
            self.note_breaker(reason);
        }
        self.tell();
    }

    /// What the backend answers, and no later than its deadline. A backend that panics has not answered either: its fault must
    /// not take the others with it.
    pub(super) async fn bounded<T>(&self, call: impl Future<Output = Result<T, CallError>>) -> Result<T, CallError> {
        let deadline = self.capabilities.call_deadline;
        match timeout(deadline, AssertUnwindSafe(call).catch_unwind()).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(panic)) => Err(CallError::Unknown {
                reason: format!("the backend failed on a fault of its own: {}", said(&*panic)),
            }),
            Err(_) => Err(CallError::Unknown { reason: format!("no answer within {deadline:?}") }),
        }
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// The right to make one call on a backend.
pub(super) struct Slot {
    lane: Arc<Lane>,
    _permit: OwnedSemaphorePermit,
    /// The one call that tries whether the backend answers again, and has not gone out.
    probes: bool,
}

impl Slot {
    fn new(lane: &Arc<Lane>, permit: OwnedSemaphorePermit, probes: bool) -> Slot {
        Slot { lane: Arc::clone(lane), _permit: permit, probes }
    }

    pub(super) fn lane(&self) -> Arc<Lane> {
        Arc::clone(&self.lane)
    }

    /// What came of the call, as far as it says whether the backend answers.
    pub(super) fn used<T>(mut self, answer: &Result<T, CallError>) {
        self.probes = false;
        match answer {
            Err(CallError::Unknown { reason }) => {
                let settings = self.lane.executor.settings.acting;
                self.lane.update_breaker(Some(reason), |breaker| breaker.unanswered(Instant::now(), &settings));
            }
            _ => self.lane.update_breaker(None, Breaker::answered),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.probes {
            self.lane.update_breaker(None, |breaker| breaker.not_probed(Instant::now()));
        }
    }
}

//! The duty that carries out actions. It looks at the state, sees what is to be done, and does it, for as long as this node leads.
//!
//! - Here: what is begun, and when. Nothing is remembered that the state does not say; a duty that begins in the middle of
//!   things finds the same work as one that was there from the beginning.
//! - [`course`]: the way of one action; [`settling`]: the part of it that comes after a call. [`lane`]: one backend under this leadership. [`breaker`]: whether it is called at all.
//! - [`ahead`]: claims that go into the log with what makes them possible, before the state shows that there is something to claim.
//!
//! Everything runs inside the one future of the duty. When the leadership ends it is dropped, and every call with it.

mod ahead;
mod breaker;
mod course;
mod lane;
mod settling;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use loadline_state_machine::{Action, ActionId, ClusterId, Command, LogIndex, State, Time};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

pub(crate) use ahead::Ahead;
use ahead::AtWork;
pub use ahead::ClaimsAhead;

use crate::{Duty, Executor, Note, Tenure};
use course::{Begin, Course, Parting};
use lane::Lane;

/// Carries out what the state says is to be done, for as long as this node leads.
#[derive(Clone, Debug)]
pub struct Acting {
    executor: Executor,
}

impl Acting {
    pub(crate) fn new(executor: Executor) -> Acting {
        Acting { executor }
    }
}

impl Duty for Acting {
    fn name(&self) -> &'static str {
        "acting"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Work::begin(&self.executor, tenure).run())
    }
}

/// The duty at work under one leadership.
struct Work<'a> {
    executor: &'a Executor,
    /// The leadership, its lanes, and who is at which cluster.
    at_work: Arc<AtWork>,
    began: Instant,
    /// Something about a lane has changed.
    news: Arc<Notify>,
    courses: FuturesUnordered<BoxFuture<'a, Parting>>,
    /// Actions that need not be looked at before a certain moment of the log.
    resting: BTreeMap<ActionId, Time>,
    /// Clusters of which it was said that they live nowhere that this node can reach.
    unreached: BTreeSet<ClusterId>,
    /// The backend of which it is being said what it can do.
    describing: Option<BoxFuture<'a, ()>>,
}

impl<'a> Work<'a> {
    fn begin(executor: &'a Executor, tenure: Tenure) -> Work<'a> {
        let news = Arc::new(Notify::new());
        let lanes = executor.backends.iter();
        let lanes: BTreeMap<String, Arc<Lane>> =
            lanes.map(|(name, backend)| (name.to_owned(), Lane::new(executor, name, backend, &news))).collect();
        Work {
            executor,
            at_work: executor.ahead.begin(tenure, lanes),
            began: Instant::now(),
            news,
            courses: FuturesUnordered::new(),
            resting: BTreeMap::new(),
            unreached: BTreeSet::new(),
            describing: None,
        }
    }

    fn tenure(&self) -> &Tenure {
        &self.at_work.tenure
    }

    fn lanes(&self) -> &BTreeMap<String, Arc<Lane>> {
        &self.at_work.lanes
    }

    async fn run(mut self) {
        let mut fences: FuturesUnordered<_> =
            self.lanes().values().map(|lane| Arc::clone(lane).keep_fenced(self.tenure().clone())).collect();
        let news = Arc::clone(&self.news);
        loop {
            let looked_at = Instant::now();
            let state = self.executor.group.state();
            // Before our announcement is applied here, the state may lack what the last leader recorded; after the next
            // one, it is no longer ours to act on.
            if state.epoch() == Some(self.tenure().epoch()) {
                self.begin_what_is_due(&state);
                self.describe_what_is_new(&state);
            }
            // One that would have let somebody in already has nobody to let in.
            let let_in_at =
                self.lanes().values().filter_map(|lane| lane.lets_in_at()).filter(|at| *at > looked_at).min();
            let breaker = async {
                match let_in_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(parting) = self.courses.next(), if !self.courses.is_empty() => self.part(parting),
                Some(()) = fences.next(), if !fences.is_empty() => {}
                () = described(&mut self.describing), if self.describing.is_some() => self.describing = None,
                () = news.notified() => {}
                () = self.executor.group.work_beyond(state.applied()) => {}
                () = breaker => {}
            }
        }
    }

    fn part(&mut self, parting: Parting) {
        self.at_work.turns().end(parting.cluster);
        if let Some(not_before) = parting.not_before {
            self.resting.insert(parting.action, not_before);
        }
    }

    fn begin_what_is_due(&mut self, state: &State) {
        self.resting.retain(|action, not_before| state.action(*action).is_some() && *not_before > state.now());
        // Before everything else: in the state they look like claims of which nobody knows whether they were called.
        let claimed_ahead = self.at_work.turns().take_claimed(state, self.tenure());
        for (action, slot) in claimed_ahead {
            self.start(slot.lane(), &action, Begin::Call(slot));
        }
        // What may have been called comes first, whatever the brakes say: somebody has to find out.
        for action in state.actions_in_flight() {
            if let Some(lane) = self.free_lane(state, action)
                && self.at_work.turns().begin(action.cluster)
            {
                self.start(lane, action, Begin::AsItStands(None));
            }
        }
        // To see whose turn it is costs a look at every action there is.
        let any_room = self.lanes().values().any(|lane| lane.has_room());
        let pending = any_room.then(|| state.claimable_actions()).into_iter().flatten();
        for action in pending.filter(|action| !action.status.is_in_flight()) {
            if let Some(lane) = self.free_lane(state, action)
                && let Some(slot) = lane.try_slot()
                && self.at_work.turns().begin(action.cluster)
            {
                self.start(lane, action, Begin::AsItStands(Some(slot)));
            }
        }
        self.tell_of_unreached(state);
    }

    /// The lane for an action that can be worked on now.
    fn free_lane(&self, state: &State, action: &Action) -> Option<Arc<Lane>> {
        if self.at_work.turns().is_taken(action.cluster) || self.resting.contains_key(&action.id) {
            return None;
        }
        let lane = self.lanes().get(state.backend_for(action)?)?;
        lane.quiet_since().map(|_| Arc::clone(lane))
    }

    /// Whoever calls this has the turn.
    fn start(&mut self, lane: Arc<Lane>, action: &Action, begin: Begin) {
        let course = Course {
            executor: self.executor.clone(),
            tenure: self.tenure().clone(),
            lane,
            action: action.clone(),
            duty_began: self.began,
        };
        self.courses.push(Box::pin(course.run(begin)));
    }

    /// What is planned must be the same on every node, and only who calls a backend knows what it can do. So it is put into the log
    /// as soon as it differs from what stands there, one backend after the other.
    fn describe_what_is_new(&mut self, state: &State) {
        if self.describing.is_some() {
            return;
        }
        let fenced = self.lanes().values().filter(|lane| lane.quiet_since().is_some());
        let keeps = |lane: &Lane| lane.backend.capabilities().checkpoints;
        let mut news = fenced.filter(|lane| keeps(lane) != state.keeps_checkpoints(&lane.name));
        let Some(lane) = news.next() else { return };
        let again_in = self.executor.settings.acting.retry_longest;
        if !self.tenure().may_act() {
            // Nothing else says when the lease is back, and there may be no action for a long time.
            self.describing = Some(Box::pin(tokio::time::sleep(again_in)));
            return;
        }
        let command = Command::DescribeBackend {
            epoch: self.tenure().epoch(),
            backend: lane.name.clone(),
            checkpoints: keeps(lane),
        };
        let group = Arc::clone(&self.executor.group);
        self.describing = Some(Box::pin(async move {
            match group.record(vec![command]).await {
                // Until it is applied here, it would look as if it had yet to be said.
                Ok(receipt) if receipt.result.is_ok() => {
                    group.applied_beyond(LogIndex(receipt.index.0.saturating_sub(1))).await;
                }
                _ => tokio::time::sleep(again_in).await,
            }
        }));
    }

    /// Says once, for each cluster that has something to do, that nobody here can do it.
    fn tell_of_unreached(&mut self, state: &State) {
        let at_work = Arc::clone(&self.at_work);
        for action in state.actions().filter(|action| !at_work.turns().is_taken(action.cluster)) {
            let backend = state.backend_for(action);
            if backend.is_some_and(|backend| at_work.lanes.contains_key(backend))
                || !self.unreached.insert(action.cluster)
            {
                continue;
            }
            self.executor.note(&Note::NoBackend { cluster: action.cluster, backend });
        }
    }
}

async fn described(describing: &mut Option<BoxFuture<'_, ()>>) {
    match describing {
        Some(describing) => describing.await,
        None => std::future::pending().await,
    }
}

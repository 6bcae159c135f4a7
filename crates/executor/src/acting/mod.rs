//! The duty that carries out actions. It looks at the state, sees what is to be done, and does it, for as long as this node leads.
//!
//! - Here: what is begun, and when. Nothing is remembered that the state does not say; a duty that begins in the middle of
//!   things finds the same work as one that was there from the beginning.
//! - [`course`]: the way of one action; [`settling`]: the part of it that comes after a call. [`lane`]: one backend under this leadership. [`breaker`]: whether it is called at all.
//!
//! Everything runs inside the one future of the duty. When the leadership ends it is dropped, and every call with it.

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

use crate::{Duty, Executor, Note, Tenure};
use course::{Course, Parting};
use lane::{Lane, Slot};

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
    tenure: Tenure,
    began: Instant,
    lanes: BTreeMap<String, Arc<Lane>>,
    /// Something about a lane has changed.
    news: Arc<Notify>,
    courses: FuturesUnordered<BoxFuture<'a, Parting>>,
    /// One call per cluster: a second one before the first has settled could act on a replica that is about to go.
    busy: BTreeSet<ClusterId>,
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
        Work {
            executor,
            tenure,
            began: Instant::now(),
            lanes: lanes.map(|(name, backend)| (name.to_owned(), Lane::new(executor, name, backend, &news))).collect(),
            news,
            courses: FuturesUnordered::new(),
            busy: BTreeSet::new(),
            resting: BTreeMap::new(),
            unreached: BTreeSet::new(),
            describing: None,
        }
    }

    async fn run(mut self) {
        let mut fences: FuturesUnordered<_> =
            self.lanes.values().map(|lane| Arc::clone(lane).keep_fenced(self.tenure.clone())).collect();
        let news = Arc::clone(&self.news);
        loop {
            let looked_at = Instant::now();
            let state = self.executor.group.state();
            // Before our announcement is applied here, the state may lack what the last leader recorded; after the next
            // one, it is no longer ours to act on.
            if state.epoch() == Some(self.tenure.epoch()) {
                self.begin_what_is_due(&state);
                self.describe_what_is_new(&state);
            }
            // One that would have let somebody in already has nobody to let in.
            let let_in_at = self.lanes.values().filter_map(|lane| lane.lets_in_at()).filter(|at| *at > looked_at).min();
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
        self.busy.remove(&parting.cluster);
        if let Some(not_before) = parting.not_before {
            self.resting.insert(parting.action, not_before);
        }
    }

    fn begin_what_is_due(&mut self, state: &State) {
        self.resting.retain(|action, not_before| state.action(*action).is_some() && *not_before > state.now());
        // What may have been called comes first, whatever the brakes say: somebody has to find out.
        for action in state.actions_in_flight() {
            if let Some(lane) = self.free_lane(state, action) {
                self.start(lane, action, None);
            }
        }
        // To see whose turn it is costs a look at every action there is.
        let any_room = self.lanes.values().any(|lane| lane.has_room());
        let pending = any_room.then(|| state.claimable_actions()).into_iter().flatten();
        for action in pending.filter(|action| !action.status.is_in_flight()) {
            if let Some(lane) = self.free_lane(state, action)
                && let Some(slot) = lane.try_slot()
            {
                self.start(lane, action, Some(slot));
            }
        }
        self.tell_of_unreached(state);
    }

    /// The lane for an action that can be worked on now.
    fn free_lane(&self, state: &State, action: &Action) -> Option<Arc<Lane>> {
        if self.busy.contains(&action.cluster) || self.resting.contains_key(&action.id) {
            return None;
        }
        let lane = self.lanes.get(state.backend_for(action)?)?;
        lane.quiet_since().map(|_| Arc::clone(lane))
    }

    fn start(&mut self, lane: Arc<Lane>, action: &Action, slot: Option<Slot>) {
        self.busy.insert(action.cluster);
        let course = Course {
            executor: self.executor.clone(),
            tenure: self.tenure.clone(),
            lane,
            action: action.clone(),
            duty_began: self.began,
        };
        self.courses.push(Box::pin(course.run(slot)));
    }

    /// What is planned must be the same on every node, and only who calls a backend knows what it can do. So it is put into the log
    /// as soon as it differs from what stands there, one backend after the other.
    fn describe_what_is_new(&mut self, state: &State) {
        if self.describing.is_some() {
            return;
        }
        let fenced = self.lanes.values().filter(|lane| lane.quiet_since().is_some());
        let keeps = |lane: &Lane| lane.backend.capabilities().checkpoints;
        let mut news = fenced.filter(|lane| keeps(lane) != state.keeps_checkpoints(&lane.name));
        let Some(lane) = news.next() else { return };
        let again_in = self.executor.settings.acting.retry_longest;
        if !self.tenure.may_act() {
            // Nothing else says when the lease is back, and there may be no action for a long time.
            self.describing = Some(Box::pin(tokio::time::sleep(again_in)));
            return;
        }
        let command = Command::DescribeBackend {
            epoch: self.tenure.epoch(),
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
        for action in state.actions().filter(|action| !self.busy.contains(&action.cluster)) {
            let backend = state.backend_for(action);
            if backend.is_some_and(|backend| self.lanes.contains_key(backend)) || !self.unreached.insert(action.cluster)
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

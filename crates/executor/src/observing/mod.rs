//! The duty that looks at what is there, and tells the log what differs from what is believed.
//!
//! - Here: which clusters are looked at, and when.
//! - [`compare`]: what a look makes known. [`report`]: how it gets into the log.
//!
//! A look that fails says nothing: missing data is not absence. Nothing is remembered that would be missed: a new leader looks at
//! everything at once.

mod compare;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use loadline_state_machine::{ClusterId, State, Time, Whereabouts};
use tokio::time::{Instant, sleep_until, timeout};

use crate::executor::Touched;
use crate::{Backend, Capabilities, ClusterAddress, Duty, Executor, Note, ObservedReplica, Tenure};

/// Looks at the backends for as long as this node leads.
#[derive(Clone, Debug)]
pub struct Observing {
    executor: Executor,
}

impl Observing {
    pub(crate) fn new(executor: Executor) -> Observing {
        Observing { executor }
    }
}

impl Duty for Observing {
    fn name(&self) -> &'static str {
        "observing"
    }

    fn perform(&self, tenure: Tenure) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let eyes = self.executor.backends.iter().map(|(name, backend)| {
            let eye = Eye::new(&self.executor, tenure.clone(), name, backend);
            eye.run().boxed()
        });
        let mut eyes: FuturesUnordered<_> = eyes.collect();
        Box::pin(async move { while eyes.next().await.is_some() {} })
    }
}

/// What was seen of one cluster.
#[derive(Clone, Debug)]
struct Look {
    cluster: ClusterId,
    began: Instant,
    /// The time of the log at that moment.
    from: Time,
    /// Nothing if the backend did not answer.
    seen: Option<Vec<ObservedReplica>>,
}

/// Watches one backend. Each has its own, so that a slow one holds up no other.
struct Eye<'a> {
    executor: &'a Executor,
    tenure: Tenure,
    name: &'a str,
    backend: &'a Arc<dyn Backend>,
    capabilities: Capabilities,
    touched: Arc<Touched>,
    /// As of the last time the roll was called.
    whereabouts: Option<Whereabouts>,
    /// The clusters that live there, and when each is looked at next; nothing while it is being looked at.
    roster: BTreeMap<ClusterId, Option<Instant>>,
    due: BTreeSet<(Instant, ClusterId)>,
    looking: FuturesUnordered<BoxFuture<'a, Look>>,
    /// What was seen and is not told yet, the last look of each cluster.
    seen: BTreeMap<ClusterId, Look>,
    telling: FuturesUnordered<BoxFuture<'a, ()>>,
    tell_at: Option<Instant>,
}

impl<'a> Eye<'a> {
    fn new(executor: &'a Executor, tenure: Tenure, name: &'a str, backend: &'a Arc<dyn Backend>) -> Eye<'a> {
        Eye {
            executor,
            tenure,
            name,
            backend,
            capabilities: backend.capabilities(),
            touched: executor.touched(name),
            whereabouts: None,
            roster: BTreeMap::new(),
            due: BTreeSet::new(),
            looking: FuturesUnordered::new(),
            seen: BTreeMap::new(),
            telling: FuturesUnordered::new(),
            tell_at: None,
        }
    }

    async fn run(mut self) {
        let settings = self.executor.settings.observing;
        let touched = Arc::clone(&self.touched);
        let mut call_roll_at = Instant::now();
        loop {
            let now = Instant::now();
            if now >= call_roll_at {
                self.call_roll(&self.executor.group.state(), now);
                call_roll_at = now + settings.roster_every;
            }
            for cluster in touched.take() {
                self.look_by(cluster, now);
            }
            self.begin_looks(now);
            self.begin_to_tell(now);

            let any_room = self.looking.len() < settings.looks_per_backend_max;
            let next_look = self.due.first().map(|(at, _)| *at).filter(|_| any_room);
            let next_report = self.tell_at.filter(|_| self.telling.is_empty());
            let next = [next_look, next_report].into_iter().flatten().fold(call_roll_at, Instant::min);
            tokio::select! {
                biased;
                Some(look) = self.looking.next(), if !self.looking.is_empty() => self.looked(look),
                Some(()) = self.telling.next(), if !self.telling.is_empty() => {}
                () = touched.news() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Who lives there now. Somebody new is looked at without delay.
    fn call_roll(&mut self, state: &State, now: Instant) {
        let whereabouts = state.whereabouts();
        if self.whereabouts.as_ref().is_some_and(|known| known.are(&whereabouts)) {
            // Quiet clusters cost nothing. Where something is under way that was not when the cluster was last looked at, it has actions.
            let busy: BTreeSet<ClusterId> = state.actions().map(|action| action.cluster).collect();
            for cluster in busy {
                self.look_by(cluster, now + self.every(state, cluster));
            }
            return;
        }
        self.whereabouts = Some(whereabouts);
        let here: BTreeSet<ClusterId> = state
            .clusters_after(None)
            .map(|cluster| cluster.id)
            .filter(|cluster| state.backend_of(*cluster) == Some(self.name))
            .collect();
        let gone: Vec<ClusterId> = self.roster.keys().filter(|cluster| !here.contains(cluster)).copied().collect();
        for cluster in gone {
            if let Some(Some(at)) = self.roster.remove(&cluster) {
                self.due.remove(&(at, cluster));
            }
            self.seen.remove(&cluster);
        }
        for cluster in here {
            match self.roster.get(&cluster) {
                None => {
                    self.roster.insert(cluster, Some(now));
                    self.due.insert((now, cluster));
                }
                Some(Some(_)) => self.look_by(cluster, now + self.every(state, cluster)),
                Some(None) => {}
            }
        }
    }

    fn every(&self, state: &State, cluster: ClusterId) -> Duration {
        let busy = state.standing(cluster).is_some_and(|standing| standing.operation().is_some());
        match busy {
            true => self.capabilities.observe_every.min(self.executor.settings.observing.busy_every),
            false => self.capabilities.observe_every,
        }
    }

    /// Looks at it then, if not before.
    fn look_by(&mut self, cluster: ClusterId, by: Instant) {
        if let Some(at) = self.roster.get_mut(&cluster).and_then(Option::as_mut)
            && by < *at
        {
            self.due.remove(&(*at, cluster));
            *at = by;
            self.due.insert((by, cluster));
        }
    }

    fn begin_looks(&mut self, now: Instant) {
        while self.looking.len() < self.executor.settings.observing.looks_per_backend_max
            && let Some((at, cluster)) = self.due.first().copied()
            && at <= now
        {
            self.due.remove(&(at, cluster));
            self.roster.insert(cluster, None);
            let state = self.executor.group.state();
            match state.cluster_by_id(cluster) {
                Some(found) => {
                    let address = ClusterAddress { id: cluster, name: found.name.clone() };
                    self.looking.push(self.look(address, state.now()));
                }
                None => drop(self.roster.remove(&cluster)),
            }
        }
    }

    fn look(&self, cluster: ClusterAddress, from: Time) -> BoxFuture<'a, Look> {
        let (executor, backend, name) = (self.executor, self.backend, self.name);
        let deadline = self.capabilities.call_deadline;
        Box::pin(async move {
            let began = Instant::now();
            let answer = timeout(deadline, AssertUnwindSafe(backend.observe(&cluster)).catch_unwind()).await;
            let answer = match answer {
                Ok(Ok(answer)) => answer.map_err(|error| error.to_string()),
                Ok(Err(_)) => Err("the backend failed on a fault of its own".to_owned()),
                Err(_) => Err(format!("no answer within {deadline:?}")),
            };
            let problem = answer.as_ref().err().map(String::as_str);
            executor.note(&Note::Observed { backend: name, cluster: cluster.id, took: began.elapsed(), problem });
            Look { cluster: cluster.id, began, from, seen: answer.ok() }
        })
    }

    fn looked(&mut self, look: Look) {
        let now = Instant::now();
        if !self.roster.contains_key(&look.cluster) {
            return;
        }
        let again_at = (look.began + self.every(&self.executor.group.state(), look.cluster)).max(now);
        self.roster.insert(look.cluster, Some(again_at));
        self.due.insert((again_at, look.cluster));
        if look.seen.is_some() {
            self.seen.insert(look.cluster, look);
            self.tell_at.get_or_insert(now + self.executor.settings.observing.batch_for);
        }
    }

    /// One report at a time: what the next one says depends on what this one has made of the state.
    fn begin_to_tell(&mut self, now: Instant) {
        let settings = &self.executor.settings.observing;
        if self.seen.is_empty() {
            // What was to be told went with its cluster. A time that is over, kept for nothing, would wake this up without end.
            self.tell_at = None;
            return;
        }
        let full = self.seen.len() >= settings.batch_clusters_max;
        if !self.telling.is_empty() || !(full || self.tell_at.is_some_and(|at| at <= now)) {
            return;
        }
        let mut looks = Vec::new();
        while looks.len() < settings.batch_clusters_max
            && let Some((_, look)) = self.seen.pop_first()
        {
            looks.push(look);
        }
        self.tell_at = (!self.seen.is_empty()).then_some(now);
        let teller = report::Teller {
            executor: self.executor,
            epoch: self.tenure.epoch(),
            backend: self.name,
            visibility_delay: self.backend.capabilities().visibility_delay,
        };
        self.telling.push(Box::pin(teller.tell(looks)));
    }
}

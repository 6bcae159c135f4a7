//! The model of the world: what an executor and a backend would have done with the actions of a run.
//!
//! An action that can be claimed is claimed after the time that the record needed for that, its call comes back after the time
//! such calls took, and succeeds; a replica that was made becomes ready and hydrated after the times of its size. Everything is
//! said to the state as an executor says it: claims, outcomes, and sights under a collector's name of its own, confirmed as
//! often as a backend's are.
//!
//! Nothing here draws lots: the same record gives the same world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use loadline_state_machine::{
    Action, ActionId, ActionStatus, Answer, Call, ClusterId, ClusterRef, ClusterReport, Command, DrainResult, Event,
    Observation, Outcome, Receipt, Rejection, Report, ScalingRejection, Seen, Span, State, Time,
};

use super::learned::Learned;

/// The name under which the model says what it sees. A name of its own: what collectors of the record say is confirmed by them
/// alone.
pub(super) const COLLECTOR: &str = "backtest-world";

/// How many clusters are confirmed in one entry: as many as are looked at in one.
const CONFIRMED_PER_ENTRY: usize = 128;

/// What the setting is if the state does not know it, which cannot be.
const STALE_AFTER: Span = Span::from_mins(2);

/// What is about to happen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Outcome(ActionId),
    Claim(ActionId),
    Ready(ClusterId, Arc<str>, u64),
    Hydrated(ClusterId, Arc<str>, u64),
    Confirm,
}

/// A replica that the model answers for.
#[derive(Debug, Clone)]
struct Life {
    /// Tells it from an earlier one under the same name.
    number: u64,
    size: Arc<str>,
    incarnation: Option<Arc<str>>,
    ready: bool,
    /// Nothing if nobody tells that of this cluster.
    hydrated: Option<bool>,
}

/// What the model says to the state at one moment: a request each.
#[derive(Debug)]
pub(super) struct Saying {
    pub(super) command: Command,
    of: Option<ActionId>,
}

#[derive(Debug)]
pub(super) struct World {
    learned: Arc<Learned>,
    due: BTreeSet<(Time, Due)>,
    /// Actions that something is due for.
    expected: BTreeSet<ActionId>,
    lives: BTreeMap<(ClusterId, Arc<str>), Life>,
    lives_begun: u64,
    confirming: bool,
    /// Of the last report.
    sequence: u64,
}

impl World {
    /// At the beginning of the window: calls under way come back in their time, and nothing happens earlier. The state is that of the entry
    /// before, which may be older.
    pub(super) fn begin(learned: Arc<Learned>, state: &State, from: Time) -> World {
        let mut world = World {
            learned,
            due: BTreeSet::new(),
            expected: BTreeSet::new(),
            lives: BTreeMap::new(),
            lives_begun: 0,
            confirming: false,
            sequence: state.collector(COLLECTOR).map_or(0, |known| known.sequence),
        };
        for action in state.actions_in_flight() {
            let claimed_at = action.attempts.last().map_or(state.now(), |attempt| attempt.claimed_at);
            let at = (claimed_at + world.learned.call(action.call.code())).max(from);
            world.expect(at, Due::Outcome(action.id), action.id);
        }
        world.look(state, from);
        world
    }

    /// When something happens next.
    pub(super) fn next_at(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether the model made this replica, or has taken it over.
    pub(super) fn answers_for(&self, cluster: ClusterId, replica: &str) -> bool {
        self.lives.contains_key(&(cluster, Arc::from(replica)))
    }

    /// A replica that the model made: of this name, or else the first of this size.
    pub(super) fn counterpart(&self, cluster: ClusterId, replica: &str, size: Option<&str>) -> Option<Arc<str>> {
        if self.answers_for(cluster, replica) {
            return Some(replica.into());
        }
        let of_cluster = self.lives.range((cluster, Arc::from(""))..).take_while(|((of, _), _)| *of == cluster);
        let mut of_size = of_cluster.filter(|(_, life)| Some(life.size.as_ref()) == size);
        of_size.next().map(|((_, name), _)| Arc::clone(name))
    }

    /// Forgets a replica that is gone by itself.
    pub(super) fn lose(&mut self, cluster: ClusterId, replica: &str) {
        self.lives.remove(&(cluster, Arc::from(replica)));
    }

    /// Answers for a replica from here on, of which nobody in the record says anything any more.
    pub(super) fn take_over(&mut self, state: &State, cluster: ClusterId, replica: &str) -> Option<Vec<Seen>> {
        if self.answers_for(cluster, replica) {
            return None;
        }
        let known = state.standing(cluster)?.signals().replica(replica)?;
        let number = self.new_life();
        let hydrated = known.hydration.as_ref().map(|hydration| hydration.is_complete());
        let life = Life {
            number,
            size: Arc::clone(&known.size),
            incarnation: known.incarnation.clone(),
            ready: known.ready,
            hydrated,
        };
        let name = Arc::clone(&known.name);
        if !life.ready {
            let at = (known.since + self.learned.start_up(&life.size)).max(state.now());
            self.due.insert((at, Due::Ready(cluster, Arc::clone(&name), number)));
        }
        if life.hydrated == Some(false) {
            let span = self.learned.hydration(&life.size).unwrap_or_else(|| self.learned.start_up(&life.size));
            self.due.insert(((known.since + span).max(state.now()), Due::Hydrated(cluster, Arc::clone(&name), number)));
        }
        let sights = life.sights(&name);
        self.lives.insert((cluster, name), life);
        self.confirm_later(state);
        Some(sights)
    }

    /// Sights of the model, as the report that comes next.
    pub(super) fn report(&mut self, sights: impl IntoIterator<Item = (ClusterId, Vec<Seen>)>) -> Command {
        self.sequence += 1;
        let clusters = sights.into_iter().map(|(cluster, sights)| cluster_report(cluster, sights)).collect();
        Command::ReportSignals { collector: COLLECTOR.to_owned(), sequence: self.sequence, clusters }
    }

    fn new_life(&mut self) -> u64 {
        self.lives_begun += 1;
        self.lives_begun
    }

    fn expect(&mut self, at: Time, due: Due, action: ActionId) {
        if self.expected.insert(action) {
            self.due.insert((at, due));
        }
    }

    fn confirm_later(&mut self, state: &State) {
        if !self.confirming {
            self.confirming = true;
            self.due.insert((state.now() + confirm_every(state), Due::Confirm));
        }
    }

    /// Takes what is due at the first moment that is not after `to`, and answers what is said then.
    pub(super) fn take(&mut self, state: &State, to: Time) -> Option<(Time, Vec<Vec<Saying>>)> {
        let at = self.next_at().filter(|at| *at <= to)?;
        let mut said = Vec::new();
        let mut confirmed = Vec::new();
        while let Some((_, due)) = self.due.first().filter(|(first, _)| *first == at).cloned() {
            self.due.pop_first();
            match due {
                Due::Claim(action) => said.extend(self.claim(state, action)),
                Due::Outcome(action) => said.extend(self.outcome(state, action)),
                Due::Ready(cluster, name, number) => {
                    said.extend(self.seen(cluster, &name, number, |life| life.ready = true));
                }
                Due::Hydrated(cluster, name, number) => {
                    said.extend(self.seen(cluster, &name, number, |life| life.hydrated = Some(true)));
                }
                Due::Confirm => confirmed = self.confirm(state, at),
            }
        }
        let mut entries: Vec<Vec<Saying>> = Vec::new();
        if !said.is_empty() {
            entries.push(said);
        }
        entries.extend(confirmed.into_iter().map(|saying| vec![saying]));
        Some((at, entries))
    }

    fn claim(&mut self, state: &State, id: ActionId) -> Option<Saying> {
        self.expected.remove(&id);
        let (action, epoch) = (state.action(id)?, state.epoch()?);
        if action.status.is_settled() || action.status.is_in_flight() {
            return None;
        }
        let backend = state.backend_for(action)?.to_owned();
        let (attempt, parameters) = (action.attempt.saturating_add(1), action.parameters(&backend));
        let command = Command::ClaimAction { action: id, epoch, attempt, backend, parameters };
        Some(Saying { command, of: Some(id) })
    }

    fn outcome(&mut self, state: &State, id: ActionId) -> Option<Saying> {
        self.expected.remove(&id);
        let (action, epoch) = (state.action(id)?, state.epoch()?);
        if !action.status.is_in_flight() {
            return None;
        }
        let report = match action.call {
            Call::CreateReplica(_) => Report::Created { incarnation: Some(format!("modelled-{}", self.new_life())) },
            Call::DrainReplica(_) => Report::Drained(DrainResult { moved: 0, left: 0 }),
            Call::CordonReplica(_) | Call::DropReplica(_) | Call::UncordonReplica(_) | Call::CheckpointReplica(_) => {
                Report::Nothing
            }
        };
        let (attempt, outcome) = (action.attempt, Outcome::Succeeded { report });
        Some(Saying { command: Command::RecordOutcome { action: id, epoch, attempt, outcome }, of: None })
    }

    fn seen(
        &mut self,
        cluster: ClusterId,
        name: &Arc<str>,
        number: u64,
        change: impl FnOnce(&mut Life),
    ) -> Option<Saying> {
        let life = self.lives.get_mut(&(cluster, Arc::clone(name))).filter(|life| life.number == number)?;
        change(life);
        let sights = life.sights(name);
        Some(Saying { command: self.report([(cluster, sights)]), of: None })
    }

    fn confirm(&mut self, state: &State, at: Time) -> Vec<Saying> {
        self.confirming = false;
        let clusters: BTreeSet<ClusterId> = self.lives.keys().map(|(cluster, _)| *cluster).collect();
        if clusters.is_empty() {
            return Vec::new();
        }
        self.confirming = true;
        self.due.insert((at + confirm_every(state), Due::Confirm));
        let clusters: Vec<ClusterId> = clusters.into_iter().collect();
        let confirm = |chunk: &[ClusterId]| {
            let command = self.report(chunk.iter().map(|cluster| (*cluster, vec![Seen::Alive])));
            Saying { command, of: None }
        };
        clusters.chunks(CONFIRMED_PER_ENTRY).map(confirm).collect()
    }

    /// Takes in what came of what was said, and of everything else that happened.
    pub(super) fn notice(&mut self, state: &State, said: &[Saying], receipts: &[Receipt], events: &[Event]) {
        for (saying, receipt) in said.iter().zip(receipts) {
            if let Some(action) = saying.of {
                self.claimed(state, action, receipt);
            }
        }
        let mut look = false;
        for event in events {
            match event {
                Event::ActionSettled { action, report } => {
                    look = true;
                    self.settled(state, action, report);
                }
                Event::ClusterDropped { cluster } => self.lives.retain(|(of, _), _| *of != cluster.id),
                Event::ActionPlanned { .. }
                | Event::ActionApproved { .. }
                | Event::ActionReturned { .. }
                | Event::OperationAdvanced { .. }
                | Event::SettingSet { .. }
                | Event::SettingReset { .. }
                | Event::ClusterPlaced { .. }
                | Event::LeaderAnnounced { .. } => look = true,
                _ => {}
            }
        }
        if look {
            self.look(state, state.now());
        }
    }

    fn claimed(&mut self, state: &State, id: ActionId, receipt: &Receipt) {
        let again_at = match &receipt.result {
            Ok(done) => {
                let answer = done.iter().find_map(|done| match &done.answer {
                    Answer::Action(action) => Some(action.as_ref()),
                    _ => None,
                });
                if let Some(action) = answer.filter(|action| matches!(action.status, ActionStatus::Claimed { .. })) {
                    let at = state.now() + self.learned.call(action.call.code());
                    self.expect(at, Due::Outcome(id), id);
                }
                return;
            }
            Err(refused) => match &refused.rejection {
                Rejection::Scaling(ScalingRejection::RateLimited { until, .. }) => Some(*until),
                Rejection::Scaling(ScalingRejection::RetryNotDue { not_before, .. }) => Some(*not_before),
                // Its turn comes with another event.
                _ => None,
            },
        };
        if let Some(at) = again_at {
            self.expect(at, Due::Claim(id), id);
        }
    }

    fn settled(&mut self, state: &State, action: &Action, report: &Report) {
        let key = (action.cluster, Arc::clone(action.call.replica()));
        match &action.call {
            Call::CreateReplica(made) if action.status == ActionStatus::Succeeded => {
                let incarnation = match report {
                    Report::Created { incarnation } => incarnation.as_deref().map(Arc::from),
                    _ => None,
                };
                let number = self.new_life();
                let hydrates = self.learned.reports_hydration(action.cluster);
                let size = Arc::clone(&made.size);
                let (now, start_up) = (state.now(), self.learned.start_up(&size));
                self.due.insert((now + start_up, Due::Ready(key.0, Arc::clone(&key.1), number)));
                if hydrates {
                    let span = self.learned.hydration(&size).unwrap_or(start_up).max(start_up);
                    self.due.insert((now + span, Due::Hydrated(key.0, Arc::clone(&key.1), number)));
                }
                let hydrated = hydrates.then_some(false);
                self.lives.insert(key, Life { number, size, incarnation, ready: false, hydrated });
                self.confirm_later(state);
            }
            Call::DropReplica(_) if action.status == ActionStatus::Succeeded => drop(self.lives.remove(&key)),
            _ => {}
        }
    }

    /// Whatever can be claimed, now or at a known time, will be.
    fn look(&mut self, state: &State, now: Time) {
        let claimable: Vec<ActionId> = state.claimable_actions().map(|action| action.id).collect();
        for id in claimable {
            self.expect(now + self.learned.taken_up(), Due::Claim(id), id);
        }
        let later = state.actions().filter_map(|action| match action.status {
            ActionStatus::Pending { not_before: Some(at) } if at > now => Some((at, action.id)),
            _ => None,
        });
        for (at, id) in later.collect::<Vec<_>>() {
            self.expect(at, Due::Claim(id), id);
        }
    }
}

impl Life {
    fn sights(&self, name: &Arc<str>) -> Vec<Seen> {
        let incarnation = self.incarnation.as_deref().map(str::to_owned);
        let size = self.size.to_string();
        let mut sights = vec![Seen::Replica { name: name.to_string(), size, incarnation, ready: self.ready }];
        if let Some(hydrated) = self.hydrated {
            sights.push(Seen::Hydration { replica: name.to_string(), total: 1, hydrated: u64::from(hydrated) });
        }
        sights.push(Seen::Alive);
        sights
    }
}

/// As often as a backend's sights are confirmed.
fn confirm_every(state: &State) -> Span {
    let setting = state.setting("signal_stale_after").and_then(|setting| setting.value.parse().ok());
    Span::from_millis((setting.unwrap_or(STALE_AFTER).as_millis() / 3).max(1))
}

fn cluster_report(cluster: ClusterId, sights: Vec<Seen>) -> ClusterReport {
    let observations = sights.into_iter().map(|seen| Observation { age: Span::default(), seen }).collect();
    ClusterReport { cluster: ClusterRef::Id(cluster), observations }
}

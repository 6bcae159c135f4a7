//! One run of the model: a fork of the recorded state that is fed what came from outside, in a world of its own.
//!
//! Its log is not the record's: it has other entries, and so other indexes and other ids for what is made after the fork.
//! What the record says is translated here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use loadline_state_machine::{
    ActionId, ActionStatus, Actor, Applied, Call, Cause, ClusterId, ClusterRef, ClusterReport, Command, Entry, Event,
    LogIndex, Observation, Receipt, Request, Sealed, Seen, Span, State, TargetName, Time, apply,
};

use super::deeds::{Decided, Deed, What, deeds_of};
use super::given::{Answer, Befell, Given, Item, Sight, replica_of};
use super::learned::Learned;
use super::tally::Tally;
use super::world::{Saying, World};

/// Who makes the requests of a model.
const ACTOR: &str = "backtest";

/// Approvals that nothing asks for yet. The same call may be asked for a little later than in the record.
const ANSWERS_KEPT_MAX: usize = 1_000;

/// What the setting is if the state does not know it, which cannot be.
const APPROVAL_EXPIRY: Span = Span::from_hours(1);

/// How many refusals are told in full.
const REFUSALS_TOLD_MAX: usize = 5;

/// What could not be repeated in this run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Missed {
    pub(super) requests: u64,
    /// The first few, in words.
    pub(super) told: Vec<String>,
    /// Crashes, losses and notices of replicas that have no counterpart here.
    pub(super) befell: u64,
}

/// What somebody said to a call in the record.
#[derive(Debug)]
struct Said {
    at: Time,
    cluster: ClusterId,
    call: Call,
    answer: Answer,
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) state: State,
    world: World,
    pub(super) tally: Tally,
    /// Since they were taken last.
    deeds: Vec<Deed>,
    decided: Decided,
    /// The last entry of the record that was fed.
    recorded: u64,
    /// What was there before is under the same id in every run.
    forked_at: LogIndex,
    /// Clusters that were made since, by the id that the record has for them.
    made: BTreeMap<ClusterId, String>,
    ours: BTreeMap<ClusterId, ClusterId>,
    theirs: BTreeMap<ClusterId, ClusterId>,
    /// Names that the change has given, by those of the record.
    renamed: BTreeMap<String, String>,
    /// The oldest first.
    answers: VecDeque<Said>,
    pub(super) missed: Missed,
    /// A cluster was dropped that had replicas.
    pub(super) leaves_behind: bool,
}

impl Model {
    /// Forks the state.
    pub(super) fn begin(state: &State, learned: &Arc<Learned>, window: (Time, Time)) -> Model {
        Model {
            state: state.clone(),
            world: World::begin(Arc::clone(learned), state, window.0),
            tally: Tally::begin(state, window),
            deeds: Vec::new(),
            decided: Decided::at(state),
            recorded: state.applied().0,
            forked_at: state.applied(),
            made: BTreeMap::new(),
            ours: BTreeMap::new(),
            theirs: BTreeMap::new(),
            renamed: BTreeMap::new(),
            answers: VecDeque::new(),
            missed: Missed::default(),
            leaves_behind: false,
        }
    }

    /// Makes the change that is tried. It was computed from the state of this run, so it is not refused. False: all was so already.
    pub(super) fn make(&mut self, change: Vec<Command>, at: Time, actor: &Actor) -> bool {
        if change.is_empty() {
            return false;
        }
        let request = Request { actor: actor.clone(), request_id: None, commands: change };
        let applied = self.apply(at, vec![request], &[]);
        for event in &applied.events {
            if let Event::ClusterRenamed { from, cluster } = event {
                self.renamed.insert(from.clone(), cluster.name.clone());
            }
        }
        applied.causes.iter().any(|cause| matches!(cause, Cause::Request(_)))
    }

    /// What this run did since it was asked last.
    pub(super) fn take_deeds(&mut self) -> Vec<Deed> {
        let mut deeds = std::mem::take(&mut self.deeds);
        for deed in &mut deeds {
            deed.cluster = self.recorded_id(deed.cluster);
        }
        deeds
    }

    /// The id by which the record speaks of a cluster of this run. Both logs count on from the fork, so the same id may be of two
    /// clusters: one that only the change makes gets an id that no entry can give it.
    pub(super) fn recorded_id(&self, ours: ClusterId) -> ClusterId {
        match self.theirs.get(&ours) {
            Some(theirs) => *theirs,
            None if ours.index > self.forked_at => from_the_end(ours),
            None => ours,
        }
    }

    /// The other way round, for a cluster that may not be there any more. None: this run has no such cluster.
    pub(super) fn own_id(&self, recorded: ClusterId) -> Option<ClusterId> {
        match self.ours.get(&recorded) {
            Some(ours) => Some(*ours),
            None if recorded.index > self.forked_at => {
                Some(from_the_end(recorded)).filter(|ours| !self.theirs.contains_key(ours))
            }
            None => Some(recorded),
        }
    }

    /// What the record called a cluster when it made it.
    pub(super) fn made_name(&self, recorded: ClusterId) -> Option<&str> {
        self.made.get(&recorded).map(String::as_str)
    }

    /// Lets the world go on up to this moment.
    pub(super) fn advance(&mut self, to: Time) {
        while let Some((at, entries)) = self.world.take(&self.state, to) {
            for said in entries {
                let requests = said.iter().map(|saying| node_request(ACTOR, vec![saying.command.clone()])).collect();
                self.apply(at, requests, &said);
            }
        }
    }

    /// Lets time pass up to this moment though nothing more is known of the record.
    pub(super) fn go_on(&mut self, to: Time) {
        self.advance(to);
        self.apply(to, Vec::new(), &[]);
    }

    /// What the record brought in at one entry. The world is up to that moment.
    pub(super) fn feed(&mut self, given: &Given) {
        self.advance(given.at);
        self.recorded = given.index;
        let requests = self.requests(given);
        let names: Vec<(bool, String)> =
            requests.iter().map(|it| (it.actor.source == ACTOR, it.actor.name.clone())).collect();
        let applied = self.apply(given.at, requests, &[]);
        for item in &given.items {
            if let Item::Made { cluster, .. } = item {
                // From here on both ids are known.
                self.our_id(*cluster);
            }
        }
        for ((own, by), receipt) in names.into_iter().zip(&applied.receipts) {
            if !own && let Receipt { result: Err(refused), .. } = receipt {
                self.missed.requests += 1;
                if self.missed.told.len() < REFUSALS_TOLD_MAX {
                    self.missed.told.push(format!("entry {}, of {by}: {}", given.index, refused.rejection));
                }
            }
        }
    }

    fn apply(&mut self, at: Time, requests: Vec<Request>, said: &[Saying]) -> Applied {
        self.decided.foresee(&self.state, &requests);
        let sealed = Sealed::seal(Entry { stamped_at: at, requests });
        let index = LogIndex(self.state.applied().0 + 1);
        let applied = apply(&mut self.state, index, &sealed);
        self.world.notice(&self.state, said, &applied.receipts, &applied.events);
        self.tally.note(&self.state, applied.time, &applied.events);
        let deeds = deeds_of(&self.state, self.recorded, applied.time, &applied.events, &mut self.decided);
        self.leaves_behind |= deeds.iter().any(|deed| matches!(&deed.what, What::Dropped { left } if !left.is_empty()));
        self.deeds.extend(deeds);
        let asked = |event: &Event| matches!(event, Event::ActionPlanned { action } if awaits(action.status));
        if !self.answers.is_empty() && applied.events.iter().any(asked) {
            let answers = self.answer_what_is_asked();
            if !answers.is_empty() {
                self.apply(at, answers, &[]);
            }
        }
        applied
    }

    // Translating the record.

    /// The id of a cluster of the record in this run.
    fn our_id(&mut self, recorded: ClusterId) -> Option<ClusterId> {
        if recorded.index <= self.forked_at {
            return self.state.cluster_by_id(recorded).map(|cluster| cluster.id);
        }
        if let Some(ours) = self.ours.get(&recorded) {
            return self.state.cluster_by_id(*ours).map(|cluster| cluster.id);
        }
        let ours = self.state.cluster(self.made.get(&recorded)?)?.id;
        self.ours.insert(recorded, ours);
        self.theirs.insert(ours, recorded);
        Some(ours)
    }

    fn requests(&mut self, given: &Given) -> Vec<Request> {
        let mut requests = Vec::new();
        let mut reports: Vec<(String, Vec<ClusterReport>)> = Vec::new();
        for item in &given.items {
            match item {
                Item::Asked { by, commands } => {
                    let commands = commands.iter().map(|command| self.translated(command)).collect();
                    requests
                        .push(Request { actor: Actor::node(by.clone(), "the record"), ..node_request(by, commands) });
                }
                Item::Made { cluster, name } => drop(self.made.insert(*cluster, name.clone())),
                Item::Seen { collector, cluster, sights } => {
                    let Some(ours) = self.our_id(*cluster) else { continue };
                    let observations = self.visible(ours, sights);
                    if observations.is_empty() {
                        continue;
                    }
                    let report = ClusterReport { cluster: ClusterRef::Id(ours), observations };
                    match reports.last_mut() {
                        Some((last, clusters)) if last == collector => clusters.push(report),
                        _ => reports.push((collector.clone(), vec![report])),
                    }
                }
                Item::Answered { cluster, call, answer } => {
                    if let Some(cluster) = self.our_id(*cluster) {
                        let (at, call, answer) = (given.at, call.clone(), answer.clone());
                        self.answers.push_back(Said { at, cluster, call, answer });
                        if self.answers.len() > ANSWERS_KEPT_MAX {
                            self.answers.pop_front();
                        }
                    }
                }
                Item::Befell { cluster, replica, size, what } => {
                    let ours = self.our_id(*cluster);
                    let counterpart =
                        ours.and_then(|ours| Some((ours, self.world.counterpart(ours, replica, size.as_deref())?)));
                    match counterpart {
                        Some((ours, replica)) => requests.push(self.befalls(ours, &replica, what)),
                        None => self.missed.befell += 1,
                    }
                }
                Item::Unwatched { cluster, replica } => {
                    let Some(ours) = self.our_id(*cluster) else { continue };
                    if let Some(sights) = self.world.take_over(&self.state, ours, replica) {
                        requests.push(node_request(ACTOR, vec![self.world.report([(ours, sights)])]));
                    }
                }
            }
        }
        let mut sequences: BTreeMap<String, u64> = BTreeMap::new();
        for (collector, clusters) in reports {
            let known = || self.state.collector(&collector).map_or(0, |known| known.sequence);
            let sequence = sequences.entry(collector.clone()).or_insert_with(known);
            *sequence += 1;
            let report = Command::ReportSignals { collector, sequence: *sequence, clusters };
            requests.push(node_request(ACTOR, vec![report]));
        }
        requests.extend(self.answer_what_is_asked());
        requests
    }

    /// What of these sights there is to see in this run: a replica that this run dropped, or made itself, is not the one that
    /// was seen.
    fn visible(&self, cluster: ClusterId, sights: &[Sight]) -> Vec<Observation> {
        let signals = self.state.standing(cluster).map(|standing| standing.signals());
        let mut appeared = Vec::new();
        let mut visible = Vec::new();
        for Sight { observation, appears } in sights {
            if let Some(name) = replica_of(&observation.seen) {
                let there = signals.is_some_and(|signals| signals.replica(name).is_some());
                let same = there && !self.world.answers_for(cluster, name);
                if *appears && !there {
                    appeared.push(name);
                }
                if !same && !appeared.contains(&name) {
                    continue;
                }
            }
            visible.push(observation.clone());
        }
        visible
    }

    fn befalls(&mut self, cluster: ClusterId, replica: &Arc<str>, what: &Befell) -> Request {
        let name = replica.to_string();
        // Of a life that began later than the recorded one it would not be believed.
        let since = self.state.standing(cluster).and_then(|standing| standing.signals().replica(replica));
        let age_max = since.map_or(Span::default(), |known| self.state.now().since(known.since));
        let (seen, age) = match what {
            Befell::Crashed { oom, reason, count, age } => {
                (Seen::Crash { replica: name, oom: *oom, reason: reason.clone(), count: *count }, *age)
            }
            Befell::Noticed { kind, gone_in, age } => {
                (Seen::Notice { replica: name, kind: *kind, gone_in: *gone_in }, *age)
            }
            Befell::Lost => {
                self.world.lose(cluster, replica);
                (Seen::ReplicaGone { name, incarnation: None }, Span::default())
            }
        };
        let mut command = self.world.report([(cluster, vec![seen])]);
        if let Command::ReportSignals { clusters, .. } = &mut command {
            for observation in clusters.iter_mut().flat_map(|report| &mut report.observations) {
                observation.age = age.min(age_max);
            }
        }
        node_request(ACTOR, vec![command])
    }

    /// Requests that answer the actions which wait for an answer that the record has.
    fn answer_what_is_asked(&mut self) -> Vec<Request> {
        self.forget_old_answers();
        if self.answers.is_empty() {
            return Vec::new();
        }
        let waiting: Vec<(ActionId, ClusterId, Call)> = self
            .state
            .actions()
            .filter(|action| awaits(action.status))
            .map(|action| (action.id, action.cluster, action.call.clone()))
            .collect();
        let mut requests = Vec::new();
        for (id, cluster, call) in waiting {
            let same = |said: &Said| said.cluster == cluster && is_same_call(&said.call, &call);
            let Some(place) = self.answers.iter().position(same) else { continue };
            let command = match self.answers.remove(place).map(|said| said.answer) {
                Some(Answer::Approved) => Command::ApproveAction { action: id },
                Some(Answer::Rejected { reason }) => Command::RejectAction { action: id, reason },
                None => continue,
            };
            requests.push(node_request(ACTOR, vec![command]));
        }
        requests
    }

    /// What was said of a call says nothing of one that is asked for after the first would have expired: it is another question then.
    fn forget_old_answers(&mut self) {
        let expiry = self.state.setting("auto_scaling_approval_expiry").and_then(|it| it.value.parse().ok());
        let expiry = expiry.unwrap_or(APPROVAL_EXPIRY);
        let now = self.state.now();
        while self.answers.front().is_some_and(|said| said.at + expiry < now) {
            self.answers.pop_front();
        }
    }

    /// The same command with the names that clusters have in this run, under its leader.
    fn translated(&mut self, command: &Command) -> Command {
        let mut command = command.clone();
        if let Command::DescribeBackend { epoch, .. } = &mut command {
            *epoch = self.state.epoch().unwrap_or(*epoch);
        }
        if self.renamed.is_empty() {
            return command;
        }
        let renamed = &self.renamed;
        let translate = |name: &mut String| {
            if let Some(ours) = renamed.get(name.as_str()) {
                name.clone_from(ours);
            }
        };
        match &mut command {
            Command::RenameCluster { name, .. }
            | Command::PlaceCluster { name, .. }
            | Command::DropCluster { name, .. }
            | Command::DropClusterCascade { name, .. } => translate(name),
            Command::PauseCluster { cluster, .. }
            | Command::ResumeCluster { cluster }
            | Command::CreateReplica { cluster, .. }
            | Command::DropReplica { cluster, .. }
            | Command::WakeCluster { cluster, .. }
            | Command::OverrideCluster { cluster, .. }
            | Command::ClearOverride { cluster } => translate(cluster),
            Command::CreateStrategy { target: TargetName::Cluster(name), .. }
            | Command::ChangeStrategy { target: TargetName::Cluster(name), .. }
            | Command::DropStrategy { target: TargetName::Cluster(name), .. }
            | Command::DropStrategies { target: TargetName::Cluster(name) }
            | Command::CreateSignal { target: TargetName::Cluster(name), .. }
            | Command::ChangeSignal { target: Some(TargetName::Cluster(name)), .. } => translate(name),
            _ => {}
        }
        if let Command::RenameCluster { name, .. } = &command {
            // From here on it is called the same in both.
            let name = name.clone();
            self.renamed.retain(|_, ours| *ours != name);
        }
        command
    }
}

/// There and back.
fn from_the_end(id: ClusterId) -> ClusterId {
    ClusterId { index: LogIndex(u64::MAX - id.index.0), ..id }
}

fn awaits(status: ActionStatus) -> bool {
    matches!(status, ActionStatus::AwaitingApproval { .. })
}

/// Whichever life of the replica it names: that is another one in every run.
fn is_same_call(one: &Call, other: &Call) -> bool {
    one.code() == other.code() && one.replica() == other.replica() && one.size() == other.size()
}

/// Everything that a model asks for was allowed in the record, or follows from that.
fn node_request(by: &str, commands: Vec<Command>) -> Request {
    Request { actor: Actor::node(by, ACTOR), request_id: None, commands }
}

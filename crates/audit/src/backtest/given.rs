//! What a recorded entry brought in from outside, told apart from what followed from recorded actions.
//!
//! From outside come activity, metrics and queues, wakes, approvals, what users configured and asked for, and what happened to
//! replicas that nobody made by a recorded action of the window. Claims, outcomes, and what was seen of replicas that the
//! recorded run made itself, follow from its actions: the model makes its own.
//!
//! What was refused in the record, or was a repeat, brought nothing in. Etags and expectations are left out: they were met in
//! the record, and mean nothing in another run.

use std::collections::BTreeSet;
use std::sync::Arc;

use loadline_state_machine::{
    Action, ActionStatus, Call, Cause, ClusterId, Command, Event, JournalEntry, NoticeKind, Observation, Seen, Span,
    State, Time,
};

use super::BacktestError;
use crate::replay::Step;

/// Everything that one entry brought in, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) index: u64,
    pub(super) at: Time,
    pub(super) items: Vec<Item>,
}

impl Given {
    /// Whether anybody asked for anything.
    pub(super) fn asks(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Asked { .. }))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Item {
    /// What one caller asked for, all of it or nothing.
    Asked { by: String, commands: Vec<Command> },
    /// A cluster was made under this name: by this id the record speaks of it.
    Made { cluster: ClusterId, name: String },
    /// What a collector saw.
    Seen { collector: String, cluster: ClusterId, sights: Vec<Sight> },
    /// Somebody approved or rejected this call.
    Answered { cluster: ClusterId, call: Call, answer: Answer },
    /// Something happened to a replica that the recorded run had made.
    Befell { cluster: ClusterId, replica: Arc<str>, size: Option<Arc<str>>, what: Befell },
    /// The recorded run dropped a replica that it had not made in the window: nobody reports about it any more.
    Unwatched { cluster: ClusterId, replica: Arc<str> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) observation: Observation,
    /// The replica was not known before: somebody else has made it.
    pub(super) appears: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    Approved,
    Rejected { reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Befell {
    Crashed { oom: bool, reason: String, count: u64, age: Span },
    Lost,
    Noticed { kind: NoticeKind, gone_in: Option<Span>, age: Span },
}

type Life = (ClusterId, Arc<str>);

/// Follows the recorded run, to know whose a replica is.
#[derive(Debug)]
pub(super) struct Givens {
    /// Those that recorded actions of the window have made.
    own: BTreeSet<Life>,
    /// Those that were there before the window, or that somebody else has made.
    others: BTreeSet<Life>,
    /// Calls that may have been carried out already.
    creating: BTreeSet<Life>,
    dropping: BTreeSet<Life>,
    pub(super) configured: u64,
    pub(super) leaders: Vec<Time>,
}

impl Givens {
    /// At the beginning of the window.
    pub(super) fn of(state: &State) -> Givens {
        let mut givens = Givens {
            own: BTreeSet::new(),
            others: BTreeSet::new(),
            creating: BTreeSet::new(),
            dropping: BTreeSet::new(),
            configured: 0,
            leaders: Vec::new(),
        };
        for cluster in state.clusters_after(None) {
            let Some(standing) = state.standing(cluster.id) else { continue };
            let names = standing.signals().replicas.iter().map(|replica| (cluster.id, Arc::clone(&replica.name)));
            givens.others.extend(names);
        }
        for action in state.actions_in_flight() {
            givens.claimed(action);
        }
        givens
    }

    pub(super) fn take(&mut self, step: &Step<'_>) -> Result<Given, BacktestError> {
        let mut given = Given { index: step.record.index, at: step.applied.time, items: Vec::new() };
        let JournalEntry::Requests(sealed) = step.entry else { return Ok(given) };
        let mut events = step.applied.events.iter().zip(&step.applied.causes).peekable();
        for (place, request) in (0_u32..).zip(&sealed.entry().requests) {
            let receipt = step.applied.receipts.get(place as usize);
            if receipt.is_some_and(|receipt| receipt.result.is_ok() && !receipt.repeated) {
                let commands: Vec<Command> = request.commands.iter().filter_map(from_outside).collect();
                self.configured += commands.iter().filter(|command| configures(command)).count() as u64;
                if !commands.is_empty() {
                    given.items.push(Item::Asked { by: request.actor.name.clone(), commands });
                }
            }
            while let Some((event, _)) = events.next_if(|(_, cause)| **cause == Cause::Request(place)) {
                self.happened(event, step, &mut given)?;
            }
        }
        for (event, _) in events {
            self.happened(event, step, &mut given)?;
        }
        Ok(given)
    }

    fn happened(&mut self, event: &Event, step: &Step<'_>, given: &mut Given) -> Result<(), BacktestError> {
        match event {
            Event::RestoreFinished { .. } => {
                return Err(BacktestError::Restored { index: step.record.index, at: step.applied.time });
            }
            Event::LeaderAnnounced { .. } => self.leaders.push(step.applied.time),
            Event::ClusterCreated { cluster } => {
                given.items.push(Item::Made { cluster: cluster.id, name: cluster.name.clone() });
            }
            Event::ClusterDropped { cluster } => {
                for lives in [&mut self.own, &mut self.others, &mut self.creating, &mut self.dropping] {
                    lives.retain(|(of, _)| *of != cluster.id);
                }
            }
            Event::SignalsReported { collector, cluster, observations, .. } => {
                self.reported(collector, *cluster, observations, step.state, given);
            }
            Event::ActionClaimed { action } => self.claimed(action),
            Event::ActionApproved { action } => given.items.push(Item::Answered {
                cluster: action.cluster,
                call: action.call.clone(),
                answer: Answer::Approved,
            }),
            Event::ActionSettled { action, .. } => self.settled(action, given),
            _ => {}
        }
        Ok(())
    }

    fn claimed(&mut self, action: &Action) {
        let life = (action.cluster, Arc::clone(action.call.replica()));
        match action.call {
            Call::CreateReplica(_) => drop(self.creating.insert(life)),
            Call::DropReplica(_) => drop(self.dropping.insert(life)),
            _ => {}
        }
    }

    fn settled(&mut self, action: &Action, given: &mut Given) {
        let life = (action.cluster, Arc::clone(action.call.replica()));
        let succeeded = action.status == ActionStatus::Succeeded;
        match &action.call {
            Call::CreateReplica(_) => {
                self.creating.remove(&life);
                if succeeded && !self.others.contains(&life) {
                    self.own.insert(life);
                }
            }
            Call::DropReplica(_) => {
                self.dropping.remove(&life);
                if succeeded && !self.own.remove(&life) && self.others.remove(&life) {
                    given.items.push(Item::Unwatched { cluster: life.0, replica: life.1 });
                }
            }
            _ => {}
        }
        if action.status == ActionStatus::Rejected {
            let (cluster, call) = (action.cluster, action.call.clone());
            let answer = Answer::Rejected { reason: action.error.clone().unwrap_or_default() };
            given.items.push(Item::Answered { cluster, call, answer });
        }
    }

    fn reported(
        &mut self,
        collector: &str,
        cluster: ClusterId,
        observations: &[Observation],
        state: &State,
        given: &mut Given,
    ) {
        let size_of = |name: &str| {
            let replica = state.standing(cluster).and_then(|standing| standing.signals().replica(name));
            replica.map(|replica| Arc::clone(&replica.size))
        };
        let mut sights = Vec::new();
        let mut befell = Vec::new();
        for observation in observations {
            let age = observation.age;
            let Some(name) = replica_of(&observation.seen) else {
                sights.push(Sight { observation: observation.clone(), appears: false });
                continue;
            };
            let life: Life = (cluster, name.into());
            if self.creating.contains(&life) || self.own.contains(&life) {
                let what = match &observation.seen {
                    Seen::Crash { oom, reason, count, .. } => {
                        Befell::Crashed { oom: *oom, reason: reason.clone(), count: *count, age }
                    }
                    Seen::Notice { kind, gone_in, .. } => Befell::Noticed { kind: *kind, gone_in: *gone_in, age },
                    // What the recorded run drops itself is not lost.
                    Seen::ReplicaGone { .. } if self.own.contains(&life) && !self.dropping.contains(&life) => {
                        self.own.remove(&life);
                        Befell::Lost
                    }
                    _ => continue,
                };
                befell.push(Item::Befell { cluster, replica: life.1, size: size_of(name), what });
                continue;
            }
            match &observation.seen {
                Seen::ReplicaGone { .. } if self.dropping.contains(&life) => continue,
                Seen::ReplicaGone { .. } => drop(self.others.remove(&life)),
                _ => {}
            }
            // Only a sight of the replica itself makes it known; the rest means nothing without.
            let appears = matches!(&observation.seen, Seen::Replica { .. }) && self.others.insert(life);
            sights.push(Sight { observation: observation.clone(), appears });
        }
        if !sights.is_empty() {
            given.items.push(Item::Seen { collector: collector.to_owned(), cluster, sights });
        }
        given.items.extend(befell);
    }
}

/// The replica that a sight is about.
pub(super) fn replica_of(seen: &Seen) -> Option<&str> {
    match seen {
        Seen::Alive | Seen::Activity { .. } | Seen::Metric { .. } => None,
        Seen::Replica { name, .. } | Seen::ReplicaGone { name, .. } => Some(name),
        Seen::Hydration { replica, .. } | Seen::Crash { replica, .. } | Seen::Notice { replica, .. } => Some(replica),
    }
}

/// The command as it is repeated in another run; nothing for one that followed from the recorded run, or that is told from what
/// it brought about instead.
fn from_outside(command: &Command) -> Option<Command> {
    let mut command = command.clone();
    match &mut command {
        // Told as what was seen, with the clusters that were meant then.
        Command::ReportSignals { .. } | Command::RecordSignals { .. } | Command::PushSignals { .. } => return None,
        // These follow from recorded actions, or are about one of them.
        Command::ClaimAction { .. }
        | Command::RecordOutcome { .. }
        | Command::ApproveAction { .. }
        | Command::RejectAction { .. }
        | Command::RetryAction { .. }
        | Command::ResolveAction { .. }
        | Command::AbandonAction { .. }
        | Command::DeleteActions { .. } => return None,
        // Every entry lets time pass, and a restore that was not finished has changed nothing.
        Command::Tick
        | Command::ExpectStrategy { .. }
        | Command::ExpectUnchanged { .. }
        | Command::BeginRestore { .. }
        | Command::RestoreChunk { .. }
        | Command::FinishRestore { .. }
        | Command::AbortRestore { .. } => return None,
        // No decision depends on who may log in, and everything here is done by the model.
        Command::CreateRole { .. }
        | Command::AlterRole { .. }
        | Command::DropRole { .. }
        | Command::GrantUsage { .. }
        | Command::RevokeUsage { .. }
        | Command::CreateToken { .. }
        | Command::DropToken { .. } => return None,
        // What a strategy remembers belongs to the run in which it was set.
        Command::SetStrategyState { .. } => return None,

        Command::DropCluster { name, .. } | Command::DropClusterCascade { name, .. } => {
            // The other run may have replicas there that the recorded one had not.
            let name = std::mem::take(name);
            return Some(Command::DropClusterCascade { name, etag: None, allow_missing: true });
        }
        Command::CreateReplica { if_not_exists, .. } => *if_not_exists = true,
        Command::DropReplica { allow_missing, .. } => *allow_missing = true,
        Command::ChangeSize { etag, .. }
        | Command::DropSize { etag, .. }
        | Command::RenameCluster { etag, .. }
        | Command::PlaceCluster { etag, .. }
        | Command::SetSetting { etag, .. }
        | Command::ResetSetting { etag, .. }
        | Command::ChangeStrategy { etag, .. }
        | Command::DropStrategy { etag, .. }
        | Command::ChangeSignal { etag, .. }
        | Command::DropSignal { etag, .. } => *etag = None,
        Command::AnnounceLeader { .. }
        | Command::RaiseRules { .. }
        | Command::AdmitNode { .. }
        | Command::FoundGroup { .. }
        | Command::CreateSize { .. }
        | Command::CreateCluster { .. }
        | Command::CreateStrategy { .. }
        | Command::DropStrategies { .. }
        | Command::PauseCluster { .. }
        | Command::ResumeCluster { .. }
        | Command::SuggestSetting { .. }
        | Command::WakeCluster { .. }
        | Command::OverrideCluster { .. }
        | Command::ClearOverride { .. }
        | Command::DescribeBackend { .. }
        | Command::CreateSignal { .. } => {}
    }
    Some(command)
}

/// Whether it changes what is configured, so that it may undo what is tried.
fn configures(command: &Command) -> bool {
    matches!(
        command,
        Command::SetSetting { .. }
            | Command::ResetSetting { .. }
            | Command::CreateStrategy { .. }
            | Command::ChangeStrategy { .. }
            | Command::DropStrategy { .. }
            | Command::DropStrategies { .. }
            | Command::CreateSize { .. }
            | Command::ChangeSize { .. }
            | Command::DropSize { .. }
    )
}

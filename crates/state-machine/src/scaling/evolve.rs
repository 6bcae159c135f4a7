//! What the events of scaling do to the state.

use std::sync::Arc;

use super::actions::{Action, ActionStatus, Call, Report};
use super::dead_letters::DeadLetters;
use super::deadlines::Due;
use super::decisions::{Conclusion, Kept};
use super::evaluate::Concerns;
use super::floor;
use super::idle;
use super::knobs::concerns_decisions;
use super::operations::{Operation, OperationEnd, Progress};
use super::plan::Origin;
use super::restored::RestoredKnowledge;
use super::savings;
use super::{ClusterRecord, Scaling};
use crate::configuration::stored::{Strategies, Strategy, Target};
use crate::configuration::{Rule, StrategyKind};
use crate::settings::{AUTO_SCALING_ACTION_RETENTION, Settings};
use crate::signals::collectors::{COLLECTOR_FORGOTTEN_AFTER, Collector};
use crate::signals::replica::Replica;
use crate::signals::report::{Noting, Observation, Seen};
use crate::strategies::desired::ReplicaSpec;
use crate::strategies::reason::Reason;
use crate::strategies::tracking::pace::{Course, Noted};
use crate::strategies::{FailedSize, Memory, StrategyState};
use crate::table::Key;
use crate::{ClusterId, Decision, Event, LogIndex, State, StrategyId, Time};

/// How many sizes a strategy remembers as failed; a ladder is far shorter.
const FAILED_SIZES_MAX: usize = 64;

pub(crate) fn signals_reported(
    state: &mut State,
    collector: &str,
    sequence: u64,
    cluster: ClusterId,
    observations: &[Observation],
) {
    collector_heard(state, collector, sequence);
    for observation in observations {
        if let Seen::Metric { name, value_milli } = &observation.seen {
            state.signals.came(name, *value_milli, state.now.before(observation.age));
        }
    }
    let noting = Noting {
        collector: state.scaling.collectors.key(collector),
        now: state.now,
        stale_after: state.settings.knobs().stale_after,
        sizes: &state.sizes,
        names: &mut state.scaling.names,
    };
    let record = state.scaling.clusters.get_or_default(cluster);
    record.fetch();
    let record = Arc::make_mut(record);
    let (now, knobs) = (state.now, *state.settings.knobs());
    let quiet = savings::quiet(&record.signals, now, knobs.stale_after);
    let first = record.signals.note(observations, noting);
    if first && record.operation.is_none() {
        // Somebody has brought the cluster back by hand: what was taken away when it was suspended is no longer missed.
        forget_suspension(record);
    }
    let ended = quiet.and_then(|quiet| quiet.ended_by(&record.signals, knobs.idle.keep_alive));
    if let Some((from, to)) = ended {
        savings::idle_ended(state, cluster, from, to);
    }
    idle::settle_in(state, cluster);
}

pub(crate) fn collector_heard(state: &mut State, name: &str, sequence: u64) {
    if let Some((due, name)) = state.scaling.collectors.heard(name, sequence, state.now) {
        state.scaling.deadlines.insert(due, Due::Collector(name));
    }
}

pub(crate) fn decision_made(state: &mut State, decision: &Decision) {
    let record = state.scaling.record_mut(decision.cluster);
    let is_pending = !matches!(decision.conclusion, Conclusion::AsWanted);
    record.pending_since = is_pending.then_some(record.pending_since.unwrap_or(decision.at));
    record.decision = Some(Kept::new(decision));
}

pub(crate) fn action_claimed(state: &mut State, action: &Action) {
    state.scaling.actions.put(action);
    if action.call.is_counted() && state.clusters.by_id(action.cluster).is_some() {
        let (now, window) = (state.now, state.settings.knobs().rate_window);
        let counted = &mut state.scaling.record_mut(action.cluster).counted;
        counted.retain(|at| now.since(*at) < window);
        counted.push(now);
    }
}

/// Only for a seeded fault.
pub(crate) fn brakes_released(state: &mut State) {
    let all: Vec<_> = state.records().map(|(id, _)| id).collect();
    for id in all {
        let record = state.scaling.record_mut(id);
        record.scaled_at = None;
        record.counted.clear();
    }
}

pub(crate) fn action_settled(state: &mut State, action: &Action, report: &Report) {
    // The entry at work is the one after the last that was applied.
    let index = LogIndex(state.applied.0.saturating_add(1));
    state.scaling.actions.put(action);
    let exists = state.clusters.by_id(action.cluster).is_some();
    state.scaling.dead_letters.settled(action, exists);
    let knobs = *state.settings.knobs();
    let now = state.now;
    let mut history = state.scaling.history.get(&action.cluster).map(|it| it.as_ref().clone()).unwrap_or_default();
    if history.rows == 0 {
        history.due = now + knobs.retention;
        state.scaling.deadlines.insert(history.due, Due::History(action.cluster));
    }
    history.add(index, now, knobs.rows_max);
    state.scaling.history.insert(action.cluster, Arc::new(history));
    if !exists {
        return;
    }
    match action.status {
        ActionStatus::Succeeded => succeeded(state.scaling.record_mut(action.cluster), action, report, now),
        ActionStatus::Rejected => {
            let record = state.scaling.record_mut(action.cluster);
            let step = record.operation.as_ref().and_then(|operation| {
                operation.unit_of(action.id).map(|place| operation.units[place].planned.step.clone())
            });
            record.rejected.extend(step);
        }
        _ => {}
    }
    idle::settle_in(state, action.cluster);
}

/// What it was for may be tried again at once.
pub(crate) fn dead_letter_cleared(state: &mut State, action: &Action) {
    state.scaling.dead_letters.remove(action.id);
    let record = state.scaling.record_mut(action.cluster);
    record.failures = 0;
    record.failed_at = None;
}

pub(crate) fn action_rows_deleted(state: &mut State, cluster: ClusterId, numbers: &[u64]) {
    let (now, retention) = (state.now, state.settings.knobs().retention);
    if let Some(history) = state.scaling.history.get_mut(&cluster) {
        Arc::make_mut(history).delete(numbers, now, retention);
    }
}

/// What the backend has done is true at once, before any collector has seen it.
fn succeeded(record: &mut ClusterRecord, action: &Action, report: &Report, now: Time) {
    match &action.call {
        Call::CreateReplica(made) => {
            let incarnation = match report {
                Report::Created { incarnation: Some(incarnation) } => Some(Key::from(incarnation.as_str())),
                _ => None,
            };
            let seen_already = record.signals.replica(&made.name).is_some_and(|known| {
                known.incarnation.is_none() || incarnation.is_none() || known.incarnation == incarnation
            });
            if !seen_already {
                record.signals.gone.retain(|gone| gone.name != made.name);
                record.signals.put_replica(Replica::new(made.name.clone(), made.size.clone(), incarnation, now));
            }
        }
        Call::CordonReplica(life) => {
            if let Some(replica) = record.signals.replica_mut(&life.name) {
                replica.cordoned = true;
            }
        }
        Call::UncordonReplica(life) => {
            if let Some(replica) = record.signals.replica_mut(&life.name) {
                replica.cordoned = false;
            }
        }
        Call::DrainReplica(_) | Call::CheckpointReplica(_) => {}
        Call::DropReplica(life) => {
            record.signals.forget_replica(&life.name, now);
            let replica = ReplicaSpec { name: life.name.clone(), size: life.size.clone() };
            remember_drop(record, action, replica, now);
        }
    }
}

/// What a strategy has to know later about a replica that was dropped at its wish.
fn remember_drop(record: &mut ClusterRecord, action: &Action, replica: ReplicaSpec, now: Time) {
    let Origin::Strategy { id, kind } = action.by else { return };
    let state = own_state(record, kind, id);
    match (kind, &action.reason) {
        (StrategyKind::ShrinkToFit, Reason::OomLooping { .. } | Reason::CrashLooping { .. }) => {
            let mut failed = match std::mem::replace(&mut state.memory, Memory::Nothing) {
                Memory::FailedSizes(failed) => failed,
                _ => Vec::new(),
            };
            failed.retain(|known| known.size != replica.size);
            failed.push(FailedSize { size: replica.size, at: now });
            if failed.len() > FAILED_SIZES_MAX {
                failed.remove(0);
            }
            state.memory = Memory::FailedSizes(failed);
        }
        // What was made for an override is not missed when that is over.
        (
            StrategyKind::IdleSuspend,
            Reason::Idle { .. } | Reason::NoActivitySeen { .. } | Reason::SuspendedBySchedule { .. },
        ) if floor::is_made(&replica.name) => {}
        (
            StrategyKind::IdleSuspend,
            Reason::Idle { .. } | Reason::NoActivitySeen { .. } | Reason::SuspendedBySchedule { .. },
        ) => {
            let mut taken_away = match std::mem::replace(&mut state.memory, Memory::Nothing) {
                Memory::Suspended(taken_away) => taken_away,
                _ => Vec::new(),
            };
            taken_away.retain(|known| known.name != replica.name);
            taken_away.push(replica);
            taken_away.sort();
            state.memory = Memory::Suspended(taken_away);
        }
        _ => {}
    }
}

/// A strategy that follows signals recommends something else than before.
pub(crate) fn course_noted(
    state: &mut State,
    cluster: ClusterId,
    strategy: StrategyId,
    kind: StrategyKind,
    noted: &Noted,
) {
    let now = state.now;
    course(state.scaling.record_mut(cluster), kind, strategy).note(noted, now);
}

fn course(record: &mut ClusterRecord, kind: StrategyKind, strategy: StrategyId) -> &mut Course {
    let memory = &mut own_state(record, kind, strategy).memory;
    if !matches!(memory, Memory::Course(_)) {
        *memory = Memory::Course(Box::default());
    }
    match memory {
        Memory::Course(course) => course,
        _ => unreachable!("it was made one above"),
    }
}

/// How many replicas came and went by the wish of each strategy that paces itself by that. Also of an operation that failed:
/// what it did is there.
fn remember_changes(state: &mut State, operation: &Operation) {
    let now = state.now;
    for kind in [StrategyKind::TargetTracking, StrategyKind::QueueDepth] {
        let mut by = None;
        let (mut added, mut removed) = (0_u32, 0_u32);
        for unit in operation.units.iter().filter(|unit| unit.progress == Progress::Done) {
            if let Origin::Strategy { id, kind: of } = unit.planned.by
                && of == kind
            {
                by = Some(id);
                let step = &unit.planned.step;
                // One that takes another's place changes no number.
                match (step.creates().is_some(), step.drops().is_some()) {
                    (true, false) => added += 1,
                    (false, true) => removed += 1,
                    _ => {}
                }
            }
        }
        let Some(strategy) = by.filter(|_| added + removed > 0) else { continue };
        let rule = state.scaling.strategies.get(strategy).and_then(|it| it.configuration().ok()).map(|it| it.rule);
        let Some(Rule::TargetTracking(tracking) | Rule::QueueDepth(tracking)) = rule else { continue };
        let period = tracking.period_max();
        course(state.scaling.record_mut(operation.cluster), kind, strategy).changed(added, removed, period, now);
    }
}

fn forget_suspension(record: &mut ClusterRecord) {
    if let Some(state) = &mut record.states[StrategyKind::IdleSuspend.slot()]
        && matches!(state.memory, Memory::Suspended(_))
    {
        state.memory = Memory::Nothing;
    }
}

fn own_state(record: &mut ClusterRecord, kind: StrategyKind, strategy: StrategyId) -> &mut StrategyState {
    let slot = &mut record.states[kind.slot()];
    if slot.as_ref().is_none_or(|state| !state.is_of(strategy)) {
        *slot = None;
    }
    slot.get_or_insert_with(|| Box::new(StrategyState::new(strategy)))
}

pub(crate) fn operation_put(state: &mut State, operation: &Operation) {
    let record = state.scaling.record_mut(operation.cluster);
    // What was asked for by hand is asked for once: from here on the operation has it.
    record.asked.retain(|asked| !operation.units.iter().any(|unit| unit.planned == *asked));
    record.operation = Some(Arc::new(operation.clone()));
}

pub(crate) fn operation_ended(state: &mut State, operation: &Operation, end: OperationEnd) {
    let now = state.now;
    remember_changes(state, operation);
    let record = state.scaling.record_mut(operation.cluster);
    record.operation = None;
    match end {
        OperationEnd::Cancelled => {}
        OperationEnd::Completed => {
            record.scaled_at = Some(now);
            record.failures = 0;
            record.failed_at = None;
            let done = || operation.units.iter().filter(|unit| unit.progress == Progress::Done);
            // Only those whose change was carried out: what another strategy overruled, or what failed, starts no cooldown.
            for unit in done() {
                if let Origin::Strategy { id, kind } = unit.planned.by {
                    own_state(record, kind, id).last_change_at = Some(now);
                }
            }
            if done().any(|unit| unit.planned.step.creates().is_some()) {
                forget_suspension(record);
            }
        }
        OperationEnd::Failed(reason) if reason.backs_off() => {
            record.failures = record.failures.saturating_add(1);
            record.failed_at = Some(now);
        }
        OperationEnd::Failed(_) => {}
    }
    idle::settle_in(state, operation.cluster);
}

pub(crate) fn strategy_put(state: &mut State, strategy: &Strategy) {
    let names = state.clusters.after(None).map(|cluster| cluster.name.as_str());
    state.scaling.strategies.put(strategy, &state.sizes, names);
    point_to_own(state, strategy);
}

/// A cluster knows the strategies that name it.
fn point_to_own(state: &mut State, strategy: &Strategy) {
    if let Target::Cluster(cluster) = strategy.target {
        let own = state.scaling.strategies.own(cluster).cloned();
        state.scaling.record_mut(cluster).own = own;
    }
}

pub(crate) fn strategy_dropped(state: &mut State, strategy: &Strategy) {
    state.scaling.strategies.remove(strategy.id);
    point_to_own(state, strategy);
    // What it remembered about other clusters goes when they are looked at next: there may be very many.
    if let Target::Cluster(cluster) = strategy.target
        && state.scaling.record(cluster).is_some_and(|record| record.state_of(strategy.kind).is_some())
    {
        state.scaling.record_mut(cluster).states[strategy.kind.slot()] = None;
        idle::settle_in(state, cluster);
    }
}

pub(crate) fn knowledge_restored(state: &mut State, cluster: ClusterId, knowledge: &RestoredKnowledge) {
    let RestoredKnowledge { signals, states, pause, idle, floor } = knowledge;
    let record = state.scaling.record_mut(cluster);
    record.signals = signals.clone();
    record.states = states.clone().map(|state| state.map(Box::new));
    record.pause = pause.clone().map(Box::new);
    record.idle = idle.clone().map(Box::new);
    record.floor = floor.clone().map(Box::new);
    idle::settle_in(state, cluster);
}

impl Scaling {
    /// Before the clusters of a backup come in. Collectors and the rows of actions are those of this log and stay.
    pub(crate) fn forget_all_clusters(&mut self) {
        for (id, record) in std::mem::take(&mut self.clusters).iter() {
            if let Some(due) = record.due {
                self.deadlines.remove(due, Due::Cluster(*id));
            }
        }
        self.strategies = Strategies::default();
        self.dead_letters = DeadLetters::default();
        self.sweep = None;
    }

    /// What was kept only for a time, and that time is over.
    pub(crate) fn expire(&mut self, due: Due, settings: &Settings, now: Time) {
        match due {
            Due::Cluster(_) => {}
            Due::History(cluster) => {
                let Some(history) = self.history.get_mut(&cluster) else { return };
                let gone_at = history.gone_at(settings.span(&AUTO_SCALING_ACTION_RETENTION));
                if gone_at <= now {
                    self.history.remove(&cluster);
                } else {
                    Arc::make_mut(history).due = gone_at;
                    self.deadlines.insert(gone_at, Due::History(cluster));
                }
            }
            Due::Collector(name) => {
                let Some(collector) = self.collectors.get(&name) else { return };
                let gone_at = collector.heard_at + COLLECTOR_FORGOTTEN_AFTER;
                if gone_at <= now {
                    self.collectors.remove(&name);
                } else {
                    let collector = Collector { due: gone_at, ..collector.clone() };
                    self.collectors.put(collector);
                    self.deadlines.insert(gone_at, Due::Collector(name));
                }
            }
        }
    }
}

impl Event {
    /// The cluster that it is about.
    pub fn cluster(&self) -> Option<ClusterId> {
        match self {
            Self::ClusterCreated { cluster }
            | Self::ClusterRenamed { cluster, .. }
            | Self::ClusterPlaced { cluster, .. }
            | Self::ClusterDropped { cluster }
            | Self::ClusterRestored { cluster } => Some(cluster.id),
            Self::ClusterKnowledgeRestored { cluster, .. }
            | Self::StrategyFaulted { cluster, .. }
            | Self::StrategyStateSet { cluster, .. }
            | Self::CourseNoted { cluster, .. }
            | Self::ReplicaAsked { cluster, .. }
            | Self::ActionRowsDeleted { cluster, .. }
            | Self::SignalsReported { cluster, .. }
            | Self::ClusterPaused { cluster, .. }
            | Self::ClusterResumed { cluster, .. }
            | Self::ClusterWoken { cluster, .. }
            | Self::ClusterOverridden { cluster, .. }
            | Self::OverrideEnded { cluster, .. } => Some(*cluster),
            Self::DecisionMade { decision } => Some(decision.cluster),
            Self::OperationBegun { operation }
            | Self::OperationAdvanced { operation }
            | Self::OperationEnded { operation, .. } => Some(operation.cluster),
            Self::StrategyCreated { strategy }
            | Self::StrategyChanged { strategy, .. }
            | Self::StrategyDropped { strategy }
            | Self::StrategyRestored { strategy } => match strategy.target {
                Target::Cluster(cluster) => Some(cluster),
                Target::Pattern(_) | Target::All => None,
            },
            Self::SignalCreated { signal }
            | Self::SignalChanged { signal, .. }
            | Self::SignalDropped { signal }
            | Self::SignalRestored { signal } => match signal.target {
                Target::Cluster(cluster) => Some(cluster),
                Target::Pattern(_) | Target::All => None,
            },
            Self::UsageGranted { on, .. } | Self::UsageRevoked { on, .. } => *on,
            _ => self.action().map(|action| action.cluster),
        }
    }

    /// Whom it may concern, that is, who may have to be decided about anew.
    pub(crate) fn concerns(&self) -> Concerns {
        match self {
            Self::ClusterCreated { cluster } | Self::ClusterRenamed { cluster, .. } => Concerns::Cluster(cluster.id),
            Self::SignalsReported { cluster, .. }
            | Self::StrategyStateSet { cluster, .. }
            | Self::ReplicaAsked { cluster, .. }
            | Self::ClusterPaused { cluster, .. }
            | Self::ClusterResumed { cluster, .. }
            | Self::ClusterWoken { cluster, .. }
            | Self::ClusterOverridden { cluster, .. }
            | Self::OverrideEnded { cluster, .. } => Concerns::Cluster(*cluster),
            Self::ActionSettled { action, .. }
            | Self::ActionApproved { action }
            | Self::DeadLetterCleared { action, .. } => Concerns::Cluster(action.cluster),
            Self::StrategyCreated { strategy }
            | Self::StrategyChanged { strategy, .. }
            | Self::StrategyDropped { strategy } => match &strategy.target {
                Target::Cluster(id) => Concerns::Cluster(*id),
                Target::Pattern(_) | Target::All => Concerns::AllClusters,
            },
            Self::SettingSet { name, .. } | Self::SettingReset { name, .. } if concerns_decisions(name) => {
                Concerns::AllClusters
            }
            Self::SizeCreated { .. }
            | Self::SizeChanged { .. }
            | Self::SizeDropped { .. }
            | Self::RestoreFinished { .. } => Concerns::AllClusters,
            _ => Concerns::Nothing,
        }
    }
}

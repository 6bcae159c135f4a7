//! How one reads what the state knows about scaling.

use std::sync::Arc;

use super::ClusterRecord;
use super::actions::{Action, ActionStatus};
use super::assess::assess;
use super::claims::first_in_turn;
use super::conclude::draft;
use super::decisions::{Conclusion, Decision};
use super::floor::Override;
use super::operations::Operation;
use super::pause::Pause;
use super::retention::ActionHistory;
use crate::configuration::StrategyKind;
use crate::configuration::stored::{Strategy, Target, TargetName};
use crate::signals::Signals;
use crate::signals::collectors::Collector;
use crate::strategies::{STRATEGIES, StrategyState};
use crate::{ActionId, ClusterId, LogIndex, OperationId, Revision, State, StrategyId, Time};

/// Why an action that is not settled cannot be claimed right now: the first of these that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotClaimable {
    FeatureOff,
    SwitchedOff,
    /// Its own status says what it waits for.
    NotFree,
    /// Another action of its operation comes first.
    NotItsTurn,
    /// Its cluster is gone, or lives nowhere.
    Nowhere,
}

/// What is known about one cluster, as far as scaling goes.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a> {
    record: &'a ClusterRecord,
}

impl<'a> Standing<'a> {
    pub fn signals(self) -> &'a Signals {
        &self.record.signals
    }

    /// The latest.
    pub fn decision(self) -> Option<Decision> {
        self.record.decision.as_ref().and_then(|kept| kept.read().ok())
    }

    /// What came of the latest decision.
    pub fn conclusion(self) -> Option<Conclusion> {
        self.record.decision.as_ref().map(|kept| kept.conclusion)
    }

    pub fn operation(self) -> Option<&'a Operation> {
        self.record.operation.as_deref()
    }

    pub fn pause(self) -> Option<&'a Pause> {
        self.record.pause.as_deref()
    }

    pub fn floor(self) -> Option<&'a Override> {
        self.record.floor.as_deref()
    }

    /// What the strategy of this kind that rules the cluster remembers.
    pub fn strategy_state(self, kind: StrategyKind) -> Option<&'a StrategyState> {
        self.record.state_of(kind)
    }

    /// When an operation was completed last.
    pub fn scaled_at(self) -> Option<Time> {
        self.record.scaled_at
    }

    /// Since when something has been wanted that is not there.
    pub fn pending_since(self) -> Option<Time> {
        self.record.pending_since
    }

    /// Since when nobody has used it, as far as anybody has looked.
    pub fn idle_since(self) -> Option<Time> {
        self.record.signals.activity.as_ref().map(|activity| activity.idle_since())
    }

    /// Operations that failed since one was completed.
    pub fn failures(self) -> u32 {
        self.record.failures
    }

    /// When calls were claimed that the rate limit counts, the oldest first.
    pub fn counted_calls(self) -> &'a [Time] {
        &self.record.counted
    }
}

/// Which strategy of one kind rules a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Ruled<'a> {
    pub strategy: &'a Strategy,
    /// A pattern that fits as well; the older one rules.
    pub tied_with: Option<StrategyId>,
}

impl State {
    /// Whether there is a cluster of this id. One that anything is known about is looked up once, not twice.
    /// Which clusters are meant, as a user says it. One that is gone is called by its id.
    pub fn target_name(&self, target: &Target) -> TargetName {
        match target {
            Target::Cluster(id) => {
                TargetName::Cluster(self.clusters.name(*id).map_or_else(|| id.to_string(), str::to_owned))
            }
            Target::Pattern(pattern) => TargetName::Pattern(pattern.to_string()),
            Target::All => TargetName::All,
        }
    }

    pub(crate) fn exists(&self, cluster: ClusterId) -> bool {
        self.scaling.record(cluster).is_some() || self.clusters.by_id(cluster).is_some()
    }

    /// What is known about each cluster that anything is known about, by age.
    pub(crate) fn records(&self) -> impl Iterator<Item = (ClusterId, &ClusterRecord)> {
        self.clusters.ids_after(None).filter_map(|id| Some((id, self.scaling.record(id)?)))
    }

    /// Nothing if nobody has said anything about this cluster yet.
    pub fn standing(&self, cluster: ClusterId) -> Option<Standing<'_>> {
        self.scaling.record(cluster).map(|record| Standing { record })
    }

    /// By age.
    pub fn strategies(&self) -> impl Iterator<Item = &Strategy> {
        self.scaling.strategies.iter()
    }

    pub fn strategy(&self, id: StrategyId) -> Option<&Strategy> {
        self.scaling.strategies.get(id)
    }

    pub fn strategy_for(&self, target: &TargetName, kind: StrategyKind) -> Option<&Strategy> {
        let target = match target {
            TargetName::Cluster(name) => Target::Cluster(self.cluster(name)?.id),
            TargetName::Pattern(pattern) => Target::Pattern(pattern.as_str().into()),
            TargetName::All => Target::All,
        };
        self.scaling.strategies.find(&target, kind)
    }

    pub fn strategy_count(&self) -> usize {
        self.scaling.strategies.len()
    }

    /// How many clusters the pattern of this strategy matches; nothing if it has none.
    pub fn pattern_matches(&self, strategy: &Strategy) -> Option<u64> {
        self.scaling.strategies.matches(strategy)
    }

    /// The strategies that rule this cluster, in the order in which they run.
    pub fn ruling(&self, cluster: ClusterId) -> Vec<Ruled<'_>> {
        let strategies = &self.scaling.strategies;
        let own = strategies.own(cluster).map(Arc::as_ref);
        let ruled = strategies.rulings(own, || self.clusters.name(cluster)).into_iter().flatten();
        ruled.filter_map(|it| Some(Ruled { strategy: self.strategy(it.ruler.id)?, tied_with: it.tied_with })).collect()
    }

    /// The latest decision about this cluster.
    pub fn decision_by_id(&self, cluster: ClusterId) -> Option<Decision> {
        self.standing(cluster)?.decision()
    }

    /// The operations that are under way.
    pub fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.records().filter_map(|(_, record)| record.operation.as_deref())
    }

    pub fn operation(&self, id: OperationId) -> Option<&Operation> {
        self.operations().find(|operation| operation.id == id)
    }

    /// The unsettled actions, the oldest first.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.scaling.actions.iter().map(Arc::as_ref)
    }

    pub fn action(&self, id: ActionId) -> Option<&Action> {
        self.scaling.actions.get(id).map(Arc::as_ref)
    }

    pub fn action_count(&self) -> usize {
        self.scaling.actions.len()
    }

    /// The actions that may have been called and are not settled, the oldest first. Whatever the brakes say, and whether or not
    /// their cluster is still there, it has to be found out what came of them.
    pub fn actions_in_flight(&self) -> impl Iterator<Item = &Action> {
        self.actions().filter(|action| action.status.is_in_flight())
    }

    /// Where this action is called: where it was claimed for, else where its cluster lives now.
    pub fn backend_for<'a>(&'a self, action: &'a Action) -> Option<&'a str> {
        action.backend.as_deref().or_else(|| self.backend_of(action.cluster))
    }

    /// The actions that failed as often as they may be tried and that nobody has dealt with, the oldest first.
    pub fn dead_letters(&self) -> impl Iterator<Item = &Action> {
        self.scaling.dead_letters.iter().map(Arc::as_ref)
    }

    pub fn dead_letter(&self, id: ActionId) -> Option<&Action> {
        self.scaling.dead_letters.get(id).map(Arc::as_ref)
    }

    pub fn dead_letter_count(&self) -> usize {
        self.scaling.dead_letters.len()
    }

    /// The actions that could be claimed right now, the oldest first: those whose turn it is. One whose outcome is not known,
    /// or that an earlier leader claimed, is to be read back first. Not among them, and still to be settled, are those in
    /// flight that are not sent again: their cluster is gone, or they have no attempt left.
    pub fn claimable_actions(&self) -> impl Iterator<Item = &Action> {
        self.actions().filter(|action| self.not_claimable(action).is_none())
    }

    /// What an action that is not settled waits for before it can be claimed; nothing if it can be.
    pub(crate) fn not_claimable(&self, action: &Action) -> Option<NotClaimable> {
        let knobs = self.settings.knobs();
        let free = match action.status {
            ActionStatus::Pending { not_before } => not_before.is_none_or(|at| at <= self.now),
            ActionStatus::Unknown { .. } => true,
            ActionStatus::Claimed { epoch: claimed, .. } => self.epoch().is_some_and(|epoch| claimed < epoch),
            _ => false,
        };
        let operation = || self.scaling.record(action.cluster).and_then(|record| record.operation.as_deref());
        let in_turn = || operation().is_none_or(|operation| first_in_turn(self, operation) == Some(action.id));
        let left = !action.status.is_in_flight() || u64::from(action.attempt) < knobs.attempts_max;
        let somewhere = || self.clusters.by_id(action.cluster).is_some() && self.backend_for(action).is_some();
        match () {
            () if !knobs.feature => Some(NotClaimable::FeatureOff),
            () if !knobs.acting => Some(NotClaimable::SwitchedOff),
            () if !free || !left => Some(NotClaimable::NotFree),
            () if !in_turn() => Some(NotClaimable::NotItsTurn),
            () if !somewhere() => Some(NotClaimable::Nowhere),
            () => None,
        }
    }

    /// By name.
    pub fn collectors(&self) -> impl Iterator<Item = &Collector> {
        self.scaling.collectors.iter()
    }

    pub fn collector(&self, name: &str) -> Option<&Collector> {
        self.scaling.collectors.get(name)
    }

    /// Of a cluster that is there, or was.
    pub fn action_history(&self, cluster: ClusterId) -> Option<&ActionHistory> {
        self.scaling.history.get(&cluster).map(Arc::as_ref)
    }

    /// Whether the row of a settled action is still to be shown.
    pub fn shows_action(&self, action: &Action, index: LogIndex) -> bool {
        let retention = self.settings.knobs().retention;
        let settled_at = action.settled_at.unwrap_or_default();
        let history = self.action_history(action.cluster);
        history.is_some_and(|it| it.shows(action.number, index, settled_at, self.now, retention))
    }

    /// What would come of looking at this cluster now. Nothing is written and nothing copied, so it costs what one
    /// evaluation costs.
    pub fn would_conclude(&self, cluster: ClusterId) -> Option<Conclusion> {
        let nothing = ClusterRecord::default();
        let record = match self.scaling.record(cluster) {
            Some(record) => record,
            None => self.clusters.by_id(cluster).map(|_| &nothing)?,
        };
        let assessment = assess(self, cluster, Some(record), self.settings.knobs(), &STRATEGIES);
        let draft = draft(record, self.settings.knobs(), self.now, &assessment, OperationId::from(Revision::default()));
        std::hint::black_box(draft.is_news(record, &assessment));
        Some(draft.conclusion)
    }

    /// Clusters wait to be looked at: the next entry, if only a tick, should come soon.
    pub fn evaluations_wait(&self) -> bool {
        let knobs = *self.settings.knobs();
        knobs.feature && (self.scaling.sweep.is_some() || self.scaling.deadlines.first_due(self.now).is_some())
    }
}

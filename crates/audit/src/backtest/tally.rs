//! What a run amounts to: actions, replica-hours, money, time short of what is wanted, cold starts, changes of direction.
//!
//! Sums of integers over time: milliseconds, replica-milliseconds, and millionths of money times milliseconds, which are divided
//! only in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use loadline_state_machine::{
    ClusterId, Decision, Event, Operation, OperationKind, Progress, Reason, Standing, State, StrategyKind, Time, Unit,
};

use super::lines::Lines;

const HOUR_MILLIS: u128 = 3_600_000;

/// What one run comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Figures {
    /// Calls on backends that were made, by kind.
    pub actions: BTreeMap<String, u64>,
    /// In thousandths of an hour.
    pub replica_hours_milli: u64,
    /// In millionths.
    pub cost_micros: u64,
    /// How long more was wanted than was there and ready, summed over clusters.
    pub short_ms: u64,
    /// How long a tracked signal asked for more than there was, summed over clusters.
    pub over_target_ms: u64,
    /// How often something was started on a cluster that had nothing.
    pub cold_starts: u64,
    /// From being wanted to the first replica that is ready.
    pub cold_start_wait_ms: u64,
    /// How often a cluster grew after it had shrunk, or shrank after it had grown.
    pub direction_changes: u64,
}

impl Figures {
    pub fn actions_total(&self) -> u64 {
        self.actions.values().sum()
    }
}

/// What counts of one cluster at the moment.
#[derive(Debug, Clone, Default)]
struct Now {
    /// By size.
    replicas: Vec<(Arc<str>, u64)>,
    /// What the latest decision wants to be made.
    wanted: Vec<Arc<str>>,
    /// It wants anything to be there.
    wants_any: bool,
    /// A tracked signal asks for more than there is, as the latest decision has it.
    asks_more: bool,
    /// As they are counted.
    short: bool,
    over_target: bool,
    /// Something was started on it while it had nothing.
    cold_since: Option<Time>,
    grew: Option<bool>,
}

#[derive(Debug)]
pub(super) struct Tally {
    now: Time,
    clusters: BTreeMap<ClusterId, Now>,
    replicas: BTreeMap<Arc<str>, u64>,
    /// Sums over what is there now.
    replicas_total: u64,
    slots_total: u64,
    micros_per_hour: u128,
    short: u64,
    over_target: u64,
    figures: Figures,
    replica_millis: u128,
    micros_millis: u128,
    pub(super) lines: Lines,
}

impl Tally {
    pub(super) fn begin(state: &State, window: (Time, Time)) -> Tally {
        let mut tally = Tally {
            now: window.0,
            clusters: BTreeMap::new(),
            replicas: BTreeMap::new(),
            replicas_total: 0,
            slots_total: 0,
            micros_per_hour: 0,
            short: 0,
            over_target: 0,
            figures: Figures::default(),
            replica_millis: 0,
            micros_millis: 0,
            lines: Lines::new(window),
        };
        let known: Vec<ClusterId> = state.clusters_after(None).map(|cluster| cluster.id).collect();
        for id in known {
            let Some(standing) = state.standing(id) else { continue };
            let mut now = Now::default();
            if let Some(decision) = standing.decision() {
                now.decided(&decision);
            }
            tally.clusters.insert(id, now);
            tally.look_at(state, id);
        }
        tally.price(state);
        tally
    }

    /// Takes in what happened at this moment.
    pub(super) fn note(&mut self, state: &State, at: Time, events: &[Event]) {
        self.pass(at);
        let mut touched = BTreeSet::new();
        let mut priced = false;
        for event in events {
            touched.extend(event.cluster());
            match event {
                Event::DecisionMade { decision } => {
                    self.clusters.entry(decision.cluster).or_default().decided(decision);
                }
                Event::ActionClaimed { action } if action.attempt == 1 => {
                    *self.figures.actions.entry(action.call.code().to_owned()).or_default() += 1;
                }
                Event::OperationBegun { operation } => self.begun(operation, at),
                Event::SizeCreated { .. } | Event::SizeChanged { .. } | Event::SizeDropped { .. } => priced = true,
                _ => {}
            }
        }
        for id in touched {
            priced |= self.look_at(state, id);
        }
        if priced {
            self.price(state);
        }
    }

    /// Nothing happened up to this moment.
    pub(super) fn pass(&mut self, at: Time) {
        let span = at.since(self.now).as_millis();
        if span == 0 {
            return;
        }
        self.lines.pass(self.now, at, self.replicas_total, self.slots_total);
        self.now = at;
        let millis = u128::from(span);
        self.replica_millis += u128::from(self.replicas_total) * millis;
        self.micros_millis += self.micros_per_hour * millis;
        self.figures.short_ms += self.short * span;
        self.figures.over_target_ms += self.over_target * span;
    }

    fn begun(&mut self, operation: &Operation, at: Time) {
        let now = self.clusters.entry(operation.cluster).or_default();
        let creates = operation.units.iter().any(|unit| unit.planned.step.creates().is_some());
        if creates && now.replicas.is_empty() && now.cold_since.is_none() {
            now.cold_since = Some(at);
            self.figures.cold_starts += 1;
        }
        let grew = match operation.kind {
            OperationKind::ScaleUp => true,
            OperationKind::ScaleDown => false,
            // What changes its size goes neither up nor down.
            OperationKind::Replace => return,
        };
        if now.grew.is_some_and(|before| before != grew) {
            self.figures.direction_changes += 1;
        }
        now.grew = Some(grew);
    }

    /// Brings what is counted of a cluster up to date. True: its replicas are others now.
    fn look_at(&mut self, state: &State, id: ClusterId) -> bool {
        let standing = state.cluster_by_id(id).and_then(|_| state.standing(id));
        let known = self.clusters.contains_key(&id);
        if standing.is_none() && !known {
            return false;
        }
        let now = self.clusters.entry(id).or_default();
        let mut there: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        let replicas = standing.map_or(&[][..], |standing| &standing.signals().replicas);
        for replica in replicas {
            *there.entry(Arc::clone(&replica.size)).or_default() += 1;
        }
        let there: Vec<(Arc<str>, u64)> = there.into_iter().collect();

        let short = standing.is_some_and(|standing| now.is_short(standing));
        let over_target = standing.is_some() && now.asks_more;
        self.short = self.short + u64::from(short) - u64::from(now.short);
        self.over_target = self.over_target + u64::from(over_target) - u64::from(now.over_target);
        (now.short, now.over_target) = (short, over_target);

        // What nobody wants any more is not waited for, though it never came: the next start is another one.
        let given_up = replicas.is_empty() && !now.wants_any && !short;
        if let Some(since) = now.cold_since
            && (replicas.iter().any(|replica| replica.ready) || standing.is_none() || given_up)
        {
            self.figures.cold_start_wait_ms += self.now.since(since).as_millis();
            now.cold_since = None;
        }
        if there == now.replicas {
            if standing.is_none() {
                self.clusters.remove(&id);
            }
            return false;
        }
        for (size, count) in &now.replicas {
            let all = self.replicas.entry(Arc::clone(size)).or_default();
            *all -= count;
        }
        for (size, count) in &there {
            *self.replicas.entry(Arc::clone(size)).or_default() += count;
        }
        self.replicas.retain(|_, count| *count > 0);
        let count: u64 = there.iter().map(|(_, count)| count).sum();
        now.replicas = there;
        if standing.is_none() {
            self.clusters.remove(&id);
        }
        self.lines.changed(id, self.now, count);
        true
    }

    fn price(&mut self, state: &State) {
        self.replicas_total = self.replicas.values().sum();
        self.slots_total = 0;
        self.micros_per_hour = 0;
        for (size, count) in &self.replicas {
            // A size that was dropped has no price any more; its replicas are still there.
            let Some(size) = state.size(size) else { continue };
            self.slots_total += u64::from(size.slots) * count;
            self.micros_per_hour += u128::from(size.price_micros_per_hour) * u128::from(*count);
        }
    }

    /// At the end of the window.
    pub(super) fn figures(&mut self, end: Time) -> Figures {
        self.pass(end);
        let whole = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        // What is still waited for has been waited for so long.
        let waiting = self.clusters.values().filter_map(|now| now.cold_since);
        let waited: u64 = waiting.map(|since| end.since(since).as_millis()).sum();
        Figures {
            cold_start_wait_ms: self.figures.cold_start_wait_ms + waited,
            replica_hours_milli: whole(self.replica_millis * 1_000 / HOUR_MILLIS),
            cost_micros: whole(self.micros_millis / HOUR_MILLIS),
            ..self.figures.clone()
        }
    }
}

impl Now {
    fn decided(&mut self, decision: &Decision) {
        let made = decision.planned.iter().filter_map(|planned| planned.step.creates());
        self.wanted = made.map(|made| Arc::clone(&made.name)).collect();
        self.wants_any = !decision.desired.is_empty();
        let mut tracking = decision
            .stages
            .iter()
            .filter(|stage| matches!(stage.kind, StrategyKind::TargetTracking | StrategyKind::QueueDepth));
        // In a cooldown the reason is that; what the signal asks for is in what is held back.
        self.asks_more = tracking.any(|stage| {
            let held_back = stage.held_back.iter().map(|change| &change.reason);
            held_back.chain([&stage.reason]).any(asks_for_more)
        });
    }

    /// Something is wanted and has not been made, or was made and is not ready. What was made may still have to take the place of
    /// another: then nothing is missing.
    fn is_short(&self, standing: Standing<'_>) -> bool {
        let units = standing.operation().map_or(&[][..], |operation| &operation.units);
        let making = |unit: &&Unit| unit.planned.step.creates().is_some();
        let is_open = |unit: &Unit| matches!(unit.progress, Progress::Waiting | Progress::Creating | Progress::Joining);
        let is_made = |name: &Arc<str>| {
            units.iter().filter(making).any(|unit| unit.planned.step.creates().is_some_and(|made| made.name == *name))
        };
        units.iter().filter(making).any(is_open) || !self.wanted.iter().all(is_made)
    }
}

fn asks_for_more(reason: &Reason) -> bool {
    match reason {
        Reason::SignalAbove { .. } => true,
        Reason::Stabilizing { wanted, replicas, .. }
        | Reason::PolicyHolds { wanted, replicas, .. }
        | Reason::DirectionDisabled { wanted, replicas }
        | Reason::AtMaximum { wanted, replicas } => wanted > replicas,
        _ => false,
    }
}

//! Which clusters are looked at when, and what comes of looking at one.
//!
//! Once per entry, those are looked at that the entry touched, whose deadline has come, or whom a sweep has reached; in the
//! order of their ids, and no more than a fixed number. The rest comes with the next entries, the oldest first, so that
//! neither a flood of signals nor a change for all clusters stops the log.

use std::collections::BTreeSet;

use super::advance;
use super::assess::{Assessment, assess};
use super::conclude::conclude;
use super::deadlines::Due;
use super::knobs::Knobs;
use super::operations::Operation;
use super::plan::Step;
use crate::configuration::StrategyKind;
use crate::decide::Moment;
use crate::evolve::evolve;
use crate::strategies::reason::ChangesAt;
use crate::strategies::{Decide, StrategyState};
use crate::{ClusterId, Event, Revision, Span, State};

/// How many clusters one entry looks at. With a few microseconds for each, an entry takes about a millisecond longer.
pub(crate) const EVALUATIONS_PER_ENTRY_MAX: usize = 256;

/// How many of them are the sweep's, however much else there is: it must get through even when the group is busy.
const SWEPT_PER_ENTRY_MIN: usize = 64;

/// Writes events as they are decided, so that what follows sees what they did.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(crate) state: &'a mut State,
    pub(crate) at: Moment,
    events: Vec<Event>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(state: &'a mut State, at: Moment) -> Self {
        Self { state, at, events: Vec::new() }
    }

    /// The revision of the event after the next `before` ones.
    pub(crate) fn revision_of(&self, before: usize) -> Revision {
        self.at.revision_of(self.events.len() + before)
    }

    pub(crate) fn emit(&mut self, event: Event) {
        evolve(self.state, &event);
        self.events.push(event);
    }
}

/// What follows from an entry that brought about these events.
pub(crate) fn react(
    state: &mut State,
    at: Moment,
    events: &[Event],
    strategies: &[Decide; StrategyKind::COUNT],
) -> Vec<Event> {
    let mut touched = Vec::new();
    for event in events {
        match event.concerns() {
            Concerns::Nothing => {}
            Concerns::Cluster(id) => touched.push(id),
            Concerns::AllClusters => state.scaling.sweep(),
        }
    }
    let knobs = Knobs::read(&state.settings);
    if !knobs.feature {
        // Switching the feature on sweeps over everything, so nothing is missed.
        state.scaling.sweep = None;
        return vec![];
    }
    let chosen = choose_clusters(state, touched);
    let mut writer = Writer::new(state, at);
    for id in chosen {
        evaluate(&mut writer, id, &knobs, strategies);
    }
    writer.events
}

/// Whom an event may concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Concerns {
    Nothing,
    Cluster(ClusterId),
    AllClusters,
}

fn choose_clusters(state: &mut State, touched: Vec<ClusterId>) -> BTreeSet<ClusterId> {
    let now = state.now;
    let swept_min = if state.scaling.sweep.is_some() { SWEPT_PER_ENTRY_MIN } else { 0 };
    let room = EVALUATIONS_PER_ENTRY_MAX - swept_min;
    let mut chosen = BTreeSet::new();
    let mut expired = 0;
    while chosen.len() + expired < room
        && let Some((at, due)) = state.scaling.deadlines.first_due(now)
    {
        match due {
            Due::Cluster(id) => {
                state.scaling.looked_at(id);
                // A deadline that no record knows of would be found again and again.
                state.scaling.deadlines.remove(at, Due::Cluster(id));
                chosen.insert(id);
            }
            other => {
                state.scaling.deadlines.remove(at, other.clone());
                state.scaling.expire(other, &state.settings, now);
                expired += 1;
            }
        }
    }
    for id in touched {
        if chosen.len() + expired < room || chosen.contains(&id) {
            chosen.insert(id);
        } else if state.clusters.by_id(id).is_some() {
            let due = state.scaling.record(id).and_then(|record| record.due);
            if due.is_none_or(|due| due > now) {
                state.scaling.look_at(id, now);
            }
        }
    }
    if let Some(sweep) = state.scaling.sweep {
        let room = EVALUATIONS_PER_ENTRY_MAX.saturating_sub(chosen.len() + expired);
        let (swept, rest) = sweep.take(&state.clusters, room);
        state.scaling.sweep = rest;
        chosen.extend(swept);
    }
    chosen
}

/// Looks at one cluster: goes on with what is under way, begins what is wanted and allowed, and records what was decided.
fn evaluate(writer: &mut Writer<'_>, id: ClusterId, knobs: &Knobs, strategies: &[Decide; StrategyKind::COUNT]) {
    if writer.state.clusters.by_id(id).is_none() {
        return;
    }
    advance::expire(writer, id);
    let Some(mut assessment) = assess_by_id(writer.state, id, knobs, strategies) else { return };
    forget_what_is_over(writer.state, id, &assessment);
    if operation_of(writer.state, id).is_some() {
        advance::advance(writer, id, knobs, &assessment);
        if operation_of(writer.state, id).is_none() {
            let Some(again) = assess_by_id(writer.state, id, knobs, strategies) else { return };
            assessment = again;
        }
    }
    let changes_at = conclude(writer, id, knobs, assessment);
    schedule(writer.state, id, changes_at);
}

fn assess_by_id(
    state: &State,
    id: ClusterId,
    knobs: &Knobs,
    strategies: &[Decide; StrategyKind::COUNT],
) -> Option<Assessment> {
    state.clusters.by_id(id).map(|cluster| assess(state, cluster, knobs, strategies))
}

fn operation_of(state: &State, id: ClusterId) -> Option<&Operation> {
    state.scaling.record(id).and_then(|record| record.operation.as_deref())
}

/// What a strategy remembered goes when another one, or none, rules its kind; what somebody rejected may be proposed again
/// once it was not wanted for a while.
fn forget_what_is_over(state: &mut State, id: ClusterId, assessment: &Assessment) {
    let (Some(record), Some(cluster)) = (state.scaling.record(id), state.clusters.by_id(id)) else { return };
    let rulings = state.scaling.strategies.rulings(id, &cluster.name);
    let is_over =
        |slot: usize, own: &StrategyState| rulings[slot].is_none_or(|ruling| !own.is_of(ruling.stored.strategy.id));
    let over: Vec<usize> = (0..StrategyKind::COUNT)
        .filter(|slot| record.states[*slot].as_ref().is_some_and(|own| is_over(*slot, own)))
        .collect();
    let wanted = |step: &Step| assessment.planned.iter().any(|planned| planned.step == *step);
    let rejected_is_over = assessment.said.fault().is_none() && !record.rejected.iter().all(wanted);
    if over.is_empty() && !rejected_is_over {
        return;
    }
    let record = state.scaling.record_mut(id);
    for slot in over {
        record.states[slot] = None;
    }
    if rejected_is_over {
        record.rejected.retain(wanted);
    }
}

/// Sees to it that the cluster is looked at again in time.
fn schedule(state: &mut State, id: ClusterId, changes_at: Option<ChangesAt>) {
    let Some(changes_at) = changes_at else { return };
    // What is due now was just looked at.
    let at = changes_at.at.max(state.now + Span::from_millis(1));
    let due = state.scaling.record(id).and_then(|record| record.due);
    if due.is_none_or(|due| due > at || due <= state.now) {
        state.scaling.look_at(id, at);
    }
}

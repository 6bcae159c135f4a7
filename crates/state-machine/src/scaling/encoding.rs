//! Scaling as rows of a snapshot: what is written, and what is believed of what is read.
//!
//! Deadlines, and how many clusters a pattern matches, follow from the rows and are worked out again.

use std::sync::Arc;

use loadline_mutants::Mutant;
use serde::{Deserialize, Serialize};

use super::ClusterRecord;
use super::actions::{Action, ActionStatus};
use super::dead_letters::DEAD_LETTERS_MAX;
use super::deadlines::{Due, Sweep};
use super::retention::ActionHistory;
use crate::configuration::like::Like;
use crate::configuration::stored::{Strategy, Target};
use crate::encoding::{Decoder, Rows};
use crate::names::check_name;
use crate::signals::Signals;
use crate::signals::collectors::Collector;
use crate::table::Key;
use crate::{ClusterId, DecodeError, Field, State};

/// The numbers of the tables; they follow those in `state_encoding`.
mod table {
    pub(super) const HEAD: u16 = 60;
    pub(super) const STRATEGY: u16 = 61;
    pub(super) const COLLECTOR: u16 = 62;
    pub(super) const CLUSTER: u16 = 63;
    pub(super) const ACTION: u16 = 64;
    pub(super) const HISTORY: u16 = 65;
    pub(super) const DEAD_LETTER: u16 = 66;
    /// Backends that keep checkpoints.
    pub(super) const CHECKPOINTING: u16 = 67;
}

/// What there is one of; not written while it says nothing.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    action_numbers: u64,
    sweep: Option<Sweep>,
}

pub(crate) fn write(state: &State, out: &mut Rows<'_>) {
    let scaling = &state.scaling;
    let head = Head { action_numbers: scaling.actions.numbers, sweep: scaling.sweep };
    if head != Head::default() {
        out.row(table::HEAD, &head);
    }
    for strategy in scaling.strategies.iter() {
        out.row(table::STRATEGY, strategy);
    }
    for collector in scaling.collectors.iter() {
        out.row(table::COLLECTOR, collector);
    }
    for cluster in state.records() {
        if Mutant::SnapshotWithoutCooldown.is_on() || Mutant::SnapshotWithoutRate.is_on() {
            out.row(table::CLUSTER, &(cluster.0, without_brakes(cluster.1)));
            continue;
        }
        out.row(table::CLUSTER, &cluster);
    }
    for action in scaling.actions.iter() {
        out.row(table::ACTION, action);
    }
    for history in &scaling.history {
        out.row(table::HISTORY, &history);
    }
    for letter in scaling.dead_letters.iter() {
        out.row(table::DEAD_LETTER, letter);
    }
    for backend in scaling.checkpointing.keys() {
        out.row(table::CHECKPOINTING, backend);
    }
}

/// Only for the seeded faults.
fn without_brakes(record: &ClusterRecord) -> ClusterRecord {
    let mut record = record.clone();
    if Mutant::SnapshotWithoutCooldown.is_on() {
        record.scaled_at = None;
    }
    if Mutant::SnapshotWithoutRate.is_on() {
        record.counted.clear();
    }
    record
}

/// Where the reading of a snapshot is, as far as the state itself does not show it.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    last_cluster: Option<ClusterId>,
}

/// Takes in one row. The state has the rows of all lower tables already.
pub(crate) fn read(
    state: &mut State,
    reading: &mut Reading,
    table: u16,
    row: &mut Decoder<'_>,
) -> Result<(), DecodeError> {
    match table {
        table::HEAD => read_head(state, &row.take()?),
        table::STRATEGY => read_strategy(state, &row.take()?),
        table::COLLECTOR => read_collector(state, row.take()?),
        table::CLUSTER => read_cluster(state, reading, row.take()?),
        table::ACTION => read_action(state, &row.take()?),
        table::HISTORY => read_history(state, row.take()?),
        table::DEAD_LETTER => read_dead_letter(state, &row.take()?),
        table::CHECKPOINTING => read_checkpointing(state, row.take()?),
        kind => Err(DecodeError::UnknownKind { what: "table of a state", kind }),
    }
}

fn read_head(state: &mut State, head: &Head) -> Result<(), DecodeError> {
    let scaling = &mut state.scaling;
    let first = scaling.actions.numbers == 0 && scaling.sweep.is_none();
    check(first && *head != Head::default(), || "what there is one of is there twice, or says nothing".to_owned())?;
    scaling.actions.numbers = head.action_numbers;
    scaling.sweep = head.sweep;
    Ok(())
}

fn read_strategy(state: &mut State, strategy: &Strategy) -> Result<(), DecodeError> {
    let strategies = &state.scaling.strategies;
    let ascending = strategies.iter().next_back().is_none_or(|last| last.id < strategy.id);
    let has_target = match &strategy.target {
        Target::Cluster(id) => state.clusters.by_id(*id).is_some(),
        Target::Pattern(pattern) => Like::new(pattern).is_some(),
        Target::All => true,
    };
    let alone = strategies.find(&strategy.target, strategy.kind).is_none();
    check(ascending && has_target && alone, || format!("strategy {} is impossible", strategy.id))?;
    let names = state.clusters.after(None).map(|cluster| cluster.name.as_str());
    state.scaling.strategies.put(strategy, &state.sizes, names);
    Ok(())
}

fn read_collector(state: &mut State, collector: Collector) -> Result<(), DecodeError> {
    let scaling = &mut state.scaling;
    let ascending = scaling.collectors.iter().next_back().is_none_or(|last| last.name < collector.name);
    check(ascending, || format!("collector {} is out of place", collector.name))?;
    scaling.deadlines.insert(collector.due, Due::Collector(collector.name.clone()));
    scaling.collectors.put(collector);
    Ok(())
}

fn read_cluster(
    state: &mut State,
    reading: &mut Reading,
    (id, mut record): (ClusterId, ClusterRecord),
) -> Result<(), DecodeError> {
    record.signals.share_names(&state.sizes, &mut state.scaling.names);
    record.own = state.scaling.strategies.own(id).cloned();
    let ascending = reading.last_cluster.replace(id).is_none_or(|last| last < id);
    let fits = state.clusters.by_id(id).is_some()
        && is_sorted(&record.signals)
        && record.operation.as_ref().is_none_or(|operation| operation.cluster == id)
        && record.decision.as_ref().is_none_or(|kept| kept.read().is_ok_and(|it| it.cluster == id))
        && record.counted.is_sorted();
    check(ascending && fits, || format!("what is known about cluster {id} is impossible"))?;
    if let Some(due) = record.due {
        state.scaling.deadlines.insert(due, Due::Cluster(id));
    }
    state.scaling.clusters.insert(id, Arc::new(record));
    Ok(())
}

fn is_sorted(signals: &Signals) -> bool {
    signals.replicas.is_sorted_by(|one, next| one.name < next.name)
        && signals.metrics.is_sorted_by(|one, next| one.name < next.name)
        && signals.collectors.is_sorted_by(|one, next| one.collector < next.collector)
        && signals.replicas.iter().all(|replica| replica.crashes.is_sorted_by_key(|crash| crash.at))
}

fn read_action(state: &mut State, action: &Action) -> Result<(), DecodeError> {
    let ascending = state.scaling.actions.iter().next_back().is_none_or(|last| last.id < action.id);
    let operation = state.scaling.record(action.cluster).and_then(|record| record.operation.as_deref());
    let in_operation = operation
        .is_some_and(|operation| Some(operation.id) == action.operation && operation.unit_of(action.id).is_some());
    // Only what may have been called outlives its operation.
    let fits = !action.status.is_settled()
        && action.number <= state.scaling.actions.numbers
        && (in_operation || action.status.is_in_flight())
        && action.is_possible();
    check(ascending && fits, || format!("action {} is impossible", action.id))?;
    state.scaling.actions.put(action);
    Ok(())
}

fn read_dead_letter(state: &mut State, letter: &Action) -> Result<(), DecodeError> {
    let letters = &state.scaling.dead_letters;
    let ascending = letters.iter().next_back().is_none_or(|last| last.id < letter.id);
    let fits = ascending
        && letters.len() < DEAD_LETTERS_MAX
        && letter.status == ActionStatus::DeadLettered
        && letter.number <= state.scaling.actions.numbers
        && state.clusters.by_id(letter.cluster).is_some()
        && state.scaling.actions.get(letter.id).is_none()
        && letter.is_possible();
    check(fits, || format!("dead letter {} is impossible", letter.id))?;
    state.scaling.dead_letters.settled(letter, true);
    Ok(())
}

fn read_checkpointing(state: &mut State, backend: Key) -> Result<(), DecodeError> {
    let known = &mut state.scaling.checkpointing;
    let ascending = known.get_max().is_none_or(|(last, ())| *last < backend);
    let fits = ascending && check_name(Field::Backend, &backend).is_ok();
    check(fits, || format!("backend {backend:?} is out of place"))?;
    known.insert(backend, ());
    Ok(())
}

fn read_history(state: &mut State, (id, history): (ClusterId, ActionHistory)) -> Result<(), DecodeError> {
    let ascending = state.scaling.history.get_max().is_none_or(|(last, _)| *last < id);
    let fits = ascending && history.rows > 0 && history.is_possible();
    check(fits, || format!("the rows of cluster {id} are impossible"))?;
    state.scaling.deadlines.insert(history.due, Due::History(id));
    state.scaling.history.insert(id, Arc::new(history));
    Ok(())
}

/// What only shows when everything is there: an operation and its actions know each other.
pub(crate) fn check_whole(state: &State) -> Result<(), DecodeError> {
    for (_, record) in state.records() {
        let Some(operation) = record.operation.as_deref() else { continue };
        for (place, unit) in operation.units.iter().enumerate() {
            let Some(id) = unit.action else { continue };
            let fits = operation.unit_of(id) == Some(place)
                && !unit.progress.is_final()
                && state.scaling.actions.get(id).is_some_and(|action| {
                    action.cluster == operation.cluster && action.operation == Some(operation.id)
                });
            check(fits, || format!("action {id} is not the one that operation {} waits for", operation.id))?;
        }
    }
    Ok(())
}

fn check(holds: bool, detail: impl FnOnce() -> String) -> Result<(), DecodeError> {
    if holds { Ok(()) } else { Err(DecodeError::Inconsistent { what: "state", detail: detail() }) }
}

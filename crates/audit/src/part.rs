//! What is over, collected while a history is read: settled actions, decisions, ended operations, and what happened when.
//!
//! It is a part of the past, as large as whoever collects lets it grow: a year does not fit into memory, a few thousand rows do.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadline_log::JournalRecord;
use loadline_sql::SqlError;
use loadline_sql::tables::{Budget, EndedOperation, EventRow, Past};
use loadline_state_machine::{
    Action, Cause, ClusterId, Decision, DecodeError, Event, JournalEntry, LogIndex, Proof, Request, State, Time,
    decode_caused_events, resource_changes,
};

use crate::replay::Step;
use crate::words::{ClusterNames, words_asked};

/// Rows of the past, in the order in which they came about.
#[derive(Debug, Default)]
pub struct Part {
    actions: Vec<Arc<Action>>,
    decisions: Vec<Arc<Decision>>,
    operations: Vec<Arc<EndedOperation>>,
    events: Vec<Arc<EventRow>>,
    /// What the clusters of decisions and operations were called then, by the id of those. A state that is asked later may not know them any
    /// more, or by another name.
    clusters: BTreeMap<String, String>,
}

impl Part {
    pub fn rows(&self) -> usize {
        self.actions.len() + self.decisions.len() + self.operations.len() + self.events.len()
    }

    /// Adds what one entry brought about.
    pub fn add(&mut self, step: &Step<'_>) {
        let (index, at) = (step.applied.index, step.applied.time);
        let caused = step.applied.causes.iter().zip(&step.applied.events);
        let changes = name_changes(&step.applied.events);
        for (ordinal, (cause, event)) in (0..).zip(caused) {
            let names = NamesThen { state: step.state, changes: &changes, at: ordinal };
            let row = event_row(index, ordinal, at, event, asker(step.entry, *cause), &names);
            self.events.push(Arc::new(row));
            match event {
                Event::ActionSettled { action, .. } => self.actions.push(Arc::from(action.clone())),
                Event::DecisionMade { decision } => {
                    self.clusters.extend(names.name_of(decision.cluster).map(|name| (decision.id.to_string(), name)));
                    self.decisions.push(Arc::new(Decision::clone(decision)));
                }
                Event::OperationEnded { operation, end } => {
                    let named = names.name_of(operation.cluster).map(|name| (operation.id.to_string(), name));
                    self.clusters.extend(named);
                    let ended = EndedOperation { operation: operation.clone(), end: *end, ended_at: at };
                    self.operations.push(Arc::new(ended));
                }
                _ => {}
            }
        }
    }

    /// What the cluster of the decision or the operation of this id was called at its own entry.
    pub(crate) fn cluster_of(&self, id: &str) -> Option<&str> {
        self.clusters.get(id).map(String::as_str)
    }
}

/// A name that a cluster had up to some place among the events of an entry, and has no more after the entry.
struct NameChange<'a> {
    cluster: ClusterId,
    before: u32,
    name: &'a str,
}

/// In the order of the events; most entries have none.
fn name_changes(events: &[Event]) -> Vec<NameChange<'_>> {
    let mut changes = Vec::new();
    for (place, event) in (0..).zip(events) {
        match event {
            Event::ClusterRenamed { from, cluster } => {
                changes.push(NameChange { cluster: cluster.id, before: place, name: from });
            }
            // Whatever is still told of it: it has no other name.
            Event::ClusterDropped { cluster } => {
                changes.push(NameChange { cluster: cluster.id, before: u32::MAX, name: &cluster.name });
            }
            _ => {}
        }
    }
    changes
}

/// What clusters are called at one place among the events of an entry.
struct NamesThen<'a> {
    /// After the entry.
    state: &'a State,
    changes: &'a [NameChange<'a>],
    at: u32,
}

impl ClusterNames for NamesThen<'_> {
    fn name_of(&self, cluster: ClusterId) -> Option<String> {
        let changed = self.changes.iter().find(|change| change.cluster == cluster && self.at < change.before);
        changed.map(|change| change.name.to_owned()).or_else(|| self.state.name_of(cluster))
    }
}

/// Only what is over, and not what is in the state as well.
impl Past for Part {
    fn shows_what_is(&self) -> bool {
        false
    }

    fn actions(&self, _: &State, _: &Budget) -> Result<Vec<Arc<Action>>, SqlError> {
        Ok(self.actions.clone())
    }

    fn decisions(&self, _: &State, _: &Budget) -> Result<Vec<Arc<Decision>>, SqlError> {
        Ok(self.decisions.clone())
    }

    fn operations(&self, _: &State, _: &Budget) -> Result<Vec<Arc<EndedOperation>>, SqlError> {
        Ok(self.operations.clone())
    }

    fn events(&self, _: &State, _: &Budget) -> Result<Vec<Arc<EventRow>>, SqlError> {
        Ok(self.events.clone())
    }
}

/// The request that brought something about; nothing for what followed by itself.
pub fn asker(entry: &JournalEntry, cause: Cause) -> Option<&Request> {
    match (entry, cause) {
        (JournalEntry::Requests(sealed), Cause::Request(place)) => {
            usize::try_from(place).ok().and_then(|place| sealed.entry().requests.get(place))
        }
        _ => None,
    }
}

/// How it is known who asked, in one word, and with it the id of a token.
pub fn proof_words(proof: &Proof) -> String {
    match proof {
        Proof::Said => "said".to_owned(),
        Proof::Node => "node".to_owned(),
        Proof::Machine => "machine".to_owned(),
        Proof::Password => "password".to_owned(),
        Proof::Token(id) => format!("token {id}"),
    }
}

/// The events of one entry as rows, in order.
pub fn event_rows(record: &JournalRecord, names: &dyn ClusterNames) -> Result<Vec<EventRow>, DecodeError> {
    let at = Time::from_millis(record.time_ms);
    let entry = JournalEntry::decode(&record.entry)?;
    let events = decode_caused_events(&record.events)?;
    let rows = (0..).zip(events).map(|(ordinal, (cause, event))| {
        event_row(LogIndex(record.index), ordinal, at, &event, asker(&entry, cause), names)
    });
    Ok(rows.collect())
}

pub(crate) fn event_row(
    index: LogIndex,
    ordinal: u32,
    at: Time,
    event: &Event,
    asked: Option<&Request>,
    names: &dyn ClusterNames,
) -> EventRow {
    let changes = resource_changes(std::slice::from_ref(event));
    // Of one that is gone by now, the event that took it away may be all that knows its name.
    let told = || match event {
        Event::ClusterCreated { cluster }
        | Event::ClusterRenamed { cluster, .. }
        | Event::ClusterPlaced { cluster, .. }
        | Event::ClusterDropped { cluster }
        | Event::ClusterRestored { cluster } => Some(cluster.name.clone()),
        _ => None,
    };
    EventRow {
        index,
        ordinal,
        at,
        kind: event.kind_name(),
        cluster: event.cluster(),
        cluster_name: event.cluster().and_then(|cluster| names.name_of(cluster)).or_else(told),
        resource: changes.first().map(|change| change.name.to_string()),
        actor: asked.map(|request| request.actor.name.clone()),
        source: asked.map(|request| request.actor.source.clone()),
        proof: asked.map(|request| proof_words(&request.actor.proof)),
        request_id: asked.and_then(|request| request.request_id).map(|id| id.to_string()),
        what: words_asked(event, asked, names),
    }
}

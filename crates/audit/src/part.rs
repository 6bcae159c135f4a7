//! What is over, collected while a history is read: settled actions, decisions, ended operations, and what happened when.
//!
//! It is a part of the past, as large as whoever collects lets it grow: a year does not fit into memory, a few thousand rows do.

use std::sync::Arc;

use loadline_log::JournalRecord;
use loadline_sql::SqlError;
use loadline_sql::tables::{Budget, EndedOperation, EventRow, Past};
use loadline_state_machine::{
    Action, Cause, Decision, DecodeError, Event, JournalEntry, LogIndex, Proof, Request, State, Time,
    decode_caused_events, resource_changes,
};

use crate::replay::Step;
use crate::words::{ClusterNames, words};

/// Rows of the past, in the order in which they came about.
#[derive(Debug, Default)]
pub struct Part {
    actions: Vec<Arc<Action>>,
    decisions: Vec<Arc<Decision>>,
    operations: Vec<Arc<EndedOperation>>,
    events: Vec<Arc<EventRow>>,
}

impl Part {
    pub fn rows(&self) -> usize {
        self.actions.len() + self.decisions.len() + self.operations.len() + self.events.len()
    }

    /// Adds what one entry brought about.
    pub fn add(&mut self, step: &Step<'_>) {
        let (index, at) = (step.applied.index, step.applied.time);
        let caused = step.applied.causes.iter().zip(&step.applied.events);
        for (ordinal, (cause, event)) in (0..).zip(caused) {
            let row = event_row(index, ordinal, at, event, asker(step.entry, *cause), step.state);
            self.events.push(Arc::new(row));
            match event {
                Event::ActionSettled { action, .. } => self.actions.push(Arc::from(action.clone())),
                Event::DecisionMade { decision } => self.decisions.push(Arc::new(Decision::clone(decision))),
                Event::OperationEnded { operation, end } => {
                    let ended = EndedOperation { operation: operation.clone(), end: *end, ended_at: at };
                    self.operations.push(Arc::new(ended));
                }
                _ => {}
            }
        }
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
    EventRow {
        index,
        ordinal,
        at,
        kind: event.kind_name(),
        cluster: event.cluster(),
        cluster_name: event.cluster().and_then(|cluster| names.name_of(cluster)),
        resource: changes.first().map(|change| change.name.to_string()),
        actor: asked.map(|request| request.actor.name.clone()),
        source: asked.map(|request| request.actor.source.clone()),
        proof: asked.map(|request| proof_words(&request.actor.proof)),
        request_id: asked.and_then(|request| request.request_id).map(|id| id.to_string()),
        what: words(event, names),
    }
}

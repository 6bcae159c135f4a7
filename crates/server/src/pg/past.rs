//! What is over, from the journal of this node: settled actions, past decisions, ended operations, and what happened when.
//!
//! The audit index says where to look, the journal what happened there. What was read once is kept, up to a number of rows, so
//! that a query pays only for what is new since the last one. A node that was brought up to date by a snapshot has no journal of
//! the time before; another one may.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use loadline_audit::TrailError;
use loadline_audit::part::event_rows;
use loadline_log::JournalError;
use loadline_raft_node::Node;
use loadline_sql::tables::{Budget, EndedOperation, EventRow, Past};
use loadline_sql::{SqlError, SqlState};
use loadline_state_machine::{Action, Decision, Event, Fact, ResourceName, State, Time, audit, decode_events};

/// Rows that are kept, the newest ones. An action has some 600 bytes, a decision a few thousand.
const ACTIONS_MAX: usize = 50_000;
const DECISIONS_MAX: usize = 10_000;
const OPERATIONS_MAX: usize = 10_000;
/// Events that are shown. They are not kept: few ask for them.
const EVENTS_MAX: usize = 20_000;
/// Entries found at a time.
const STEP: usize = 500;
/// Bytes of the journal read at a time.
const READ_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct JournalPast {
    node: Node,
    actions: Mutex<Kept<Action>>,
    decisions: Mutex<Kept<Decision>>,
    operations: Mutex<Kept<EndedOperation>>,
}

/// The newest rows of one kind, the oldest of them first, each with the index at which it came about.
#[derive(Debug)]
struct Kept<T> {
    rows: VecDeque<(u64, Arc<T>)>,
    /// Everything up to here has been looked at.
    up_to: u64,
    /// Whether there are older ones than these.
    cut: bool,
    /// What the journal had fetched then of what it lacked. With more, there are other rows.
    filled: Vec<RangeInclusive<u64>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { rows: VecDeque::new(), up_to: 0, cut: false, filled: Vec::new() }
    }
}

/// Entries and rows, the newest first.
type Rows<T> = Vec<(u64, Arc<T>)>;

impl JournalPast {
    pub(super) fn new(node: Node) -> JournalPast {
        JournalPast { node, actions: Mutex::default(), decisions: Mutex::default(), operations: Mutex::default() }
    }

    /// The rows that were there at the index of the state, the newest first.
    fn rows<T>(
        &self,
        kept: &Mutex<Kept<T>>,
        (key, rows_max): (Vec<u8>, usize),
        state: &State,
        budget: &Budget,
        pick: impl Fn(u64, Time, Event) -> Option<T>,
    ) -> Result<Rows<T>, SqlError> {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = self.node.journal().filled_gaps();
        if kept.filled != filled {
            *kept = Kept { filled, ..Kept::default() };
        }
        let new = self.found(&key, None, kept.up_to, rows_max, budget)?;
        let mut added = self.picked(&new, budget, &pick)?;
        added.reverse();
        // Only now: had it been interrupted, the rows in between would be missed for ever.
        kept.rows.extend(added);
        kept.up_to = new.first().copied().unwrap_or(kept.up_to).max(kept.up_to);
        let surplus = kept.rows.len().saturating_sub(rows_max);
        kept.rows.drain(..surplus);
        kept.cut |= surplus > 0 || new.len() >= rows_max;
        let end = state.applied().0;
        if kept.cut && kept.rows.front().is_some_and(|(oldest, _)| *oldest > end) {
            // A moment before all that is kept: few ask for one.
            drop(kept);
            let found = self.found(&key, end.checked_add(1), 0, rows_max, budget)?;
            return self.picked(&found, budget, &pick);
        }
        let seen = kept.rows.iter().rev().filter(|(index, _)| *index <= end);
        Ok(seen.map(|(index, row)| (*index, Arc::clone(row))).collect())
    }

    /// The rows at these entries, in the same order.
    fn picked<T>(
        &self,
        entries: &[u64],
        budget: &Budget,
        pick: impl Fn(u64, Time, Event) -> Option<T>,
    ) -> Result<Rows<T>, SqlError> {
        let mut rows = Vec::new();
        for entry in entries {
            budget.check()?;
            let Some((time, events)) = self.events_at(*entry)? else { continue };
            let picked = events.into_iter().rev().filter_map(|event| pick(*entry, time, event));
            rows.extend(picked.map(|row| (*entry, Arc::new(row))));
        }
        Ok(rows)
    }

    /// The entries under a key that are before one and newer than another, the newest first.
    fn found(
        &self,
        key: &[u8],
        mut before: Option<u64>,
        since: u64,
        rows_max: usize,
        budget: &Budget,
    ) -> Result<Vec<u64>, SqlError> {
        let index = self.node.audit_index().ok_or_else(|| {
            let message = "this node keeps no audit index, so it cannot tell of the past";
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint("Ask another node.")
        })?;
        let mut found = Vec::new();
        loop {
            budget.check()?;
            let step = index.find(key, before, STEP).map_err(|error| failed(&error))?;
            let new = step.iter().copied().take_while(|entry| *entry > since);
            let count = found.len();
            found.extend(new);
            before = step.last().copied();
            if found.len() - count < STEP || found.len() >= rows_max {
                return Ok(found);
            }
        }
    }

    fn events_at(&self, entry: u64) -> Result<Option<(Time, Vec<Event>)>, SqlError> {
        let records = match self.node.journal().read(entry, 1) {
            Ok(records) => records,
            Err(JournalError::Missing { .. }) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let Some(record) = records.first().filter(|record| record.index == entry) else { return Ok(None) };
        let events = decode_events(&record.events).map_err(|error| failed(&error))?;
        Ok(Some((Time::from_millis(record.time_ms), events)))
    }
}

fn failed(error: &dyn std::fmt::Display) -> SqlError {
    SqlError::new(SqlState("58030"), format!("the journal cannot be read: {error}"))
}

/// As in [`crate::grpc::errors::trail`].
fn unexplained(error: &TrailError) -> SqlError {
    match error {
        TrailError::Lacks { .. } => {
            SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, error.to_string()).with_hint("Ask another node.")
        }
        TrailError::Several { .. } => SqlError::new(SqlState::INVALID_PARAMETER_VALUE, error.to_string()),
        _ => failed(error),
    }
}

impl Past for JournalPast {
    fn actions(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<Action>>, SqlError> {
        let key = (audit::event_key(Event::ACTION_SETTLED), ACTIONS_MAX);
        let rows = self.rows(&self.actions, key, state, budget, |_, _, event| match event {
            Event::ActionSettled { action, .. } => Some(*action),
            _ => None,
        })?;
        let is_shown =
            |index: u64, action: &Action| state.shows_action(action, loadline_state_machine::LogIndex(index));
        let shown = rows.into_iter().filter(|(index, action)| is_shown(*index, action));
        Ok(shown.map(|(_, action)| action).collect())
    }

    fn decisions(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<Decision>>, SqlError> {
        let key = (audit::event_key(Event::DECISION_MADE), DECISIONS_MAX);
        let rows = self.rows(&self.decisions, key, state, budget, |_, _, event| match event {
            Event::DecisionMade { decision } => Some(*decision),
            _ => None,
        })?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    fn operations(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<EndedOperation>>, SqlError> {
        let key = (audit::event_key(Event::OPERATION_ENDED), OPERATIONS_MAX);
        let rows = self.rows(&self.operations, key, state, budget, |_, ended_at, event| match event {
            Event::OperationEnded { operation, end } => Some(EndedOperation { operation, end, ended_at }),
            _ => None,
        })?;
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }

    fn explain(&self, state: &State, subject: &str, budget: &Budget) -> Result<Vec<Fact>, SqlError> {
        budget.check()?;
        let Ok(name) = subject.parse::<ResourceName>() else { return Ok(Vec::new()) };
        let story = crate::explaining::explain(&self.node, state, &name).map_err(|error| unexplained(&error))?;
        Ok(story.map(|story| story.facts).unwrap_or_default())
    }

    fn events(&self, state: &State, budget: &Budget) -> Result<Vec<Arc<EventRow>>, SqlError> {
        let journal = self.node.journal();
        let last = journal.last_index().unwrap_or(0).min(state.applied().0);
        let mut rows: Vec<Arc<EventRow>> = Vec::new();
        let mut end = last;
        while end > 0 && rows.len() < EVENTS_MAX {
            budget.check()?;
            let start = end.saturating_sub(STEP as u64) + 1;
            let mut part = Vec::new();
            let mut next = start;
            while next <= end {
                let records = match journal.read(next, READ_BYTES) {
                    Ok(records) => records,
                    Err(JournalError::Missing { next: Some(on), .. }) if on <= end => {
                        next = on;
                        continue;
                    }
                    Err(JournalError::Missing { .. }) => break,
                    Err(error) => return Err(failed(&error)),
                };
                let Some(last) = records.last() else { break };
                let after = last.index + 1;
                for record in records.iter().filter(|record| record.index <= end) {
                    let rows = event_rows(record, state).map_err(|error| failed(&error))?;
                    part.extend(rows.into_iter().map(Arc::new));
                }
                next = after;
            }
            if part.is_empty() && journal.first_index().is_none_or(|first| start <= first) {
                break;
            }
            rows.extend(part.into_iter().rev());
            end = start - 1;
        }
        rows.truncate(EVENTS_MAX);
        Ok(rows)
    }
}

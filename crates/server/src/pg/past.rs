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

/// Where the rows of one kind come from, as many as are kept of it.
struct Rowed<F, P> {
    rows_max: usize,
    /// The entries that have such rows, before one and newer than another, the newest first.
    found: F,
    /// The rows at an entry, the newest first.
    picked: P,
}

impl<F, P> Rowed<F, P> {
    /// The rows that were there at this entry. `filled`: what the journal has fetched so far of what it lacked.
    fn at<T>(&self, end: u64, filled: Vec<RangeInclusive<u64>>, kept: &Mutex<Kept<T>>) -> Result<Rows<T>, SqlError>
    where
        F: Fn(Option<u64>, u64) -> Result<Vec<u64>, SqlError>,
        P: Fn(u64) -> Result<Vec<T>, SqlError>,
    {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.filled != filled {
            *kept = Kept { filled, ..Kept::default() };
        }
        let new = (self.found)(None, kept.up_to)?;
        let mut added = self.read(&new)?;
        let is_full = added.len() >= self.rows_max;
        added.reverse();
        // Only now: had it been interrupted, the rows in between would be missed for ever. If not all of them were read, those that
        // were push out whatever is older than the rest.
        kept.rows.extend(added);
        kept.up_to = new.first().copied().unwrap_or(kept.up_to).max(kept.up_to);
        let surplus = kept.rows.len().saturating_sub(self.rows_max);
        kept.rows.drain(..surplus);
        kept.cut |= surplus > 0 || is_full || new.len() >= self.rows_max;
        if kept.cut && kept.rows.back().is_some_and(|(newest, _)| *newest > end) {
            // At a moment of the past there were older ones in the place of those that came since: few ask for that.
            drop(kept);
            return self.read(&(self.found)(end.checked_add(1), 0)?);
        }
        let seen = kept.rows.iter().rev().filter(|(index, _)| *index <= end);
        Ok(seen.map(|(index, row)| (*index, Arc::clone(row))).collect())
    }

    /// The rows at these entries, in the same order, until there are as many as are kept: an entry may have hundreds.
    fn read<T>(&self, entries: &[u64]) -> Result<Rows<T>, SqlError>
    where
        P: Fn(u64) -> Result<Vec<T>, SqlError>,
    {
        let mut rows = Vec::new();
        for entry in entries {
            if rows.len() >= self.rows_max {
                break;
            }
            rows.extend((self.picked)(*entry)?.into_iter().map(|row| (*entry, Arc::new(row))));
        }
        rows.truncate(self.rows_max);
        Ok(rows)
    }
}

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
        let source = Rowed {
            rows_max,
            found: |before, since| self.found(&key, before, since, rows_max, budget),
            picked: |entry| self.picked(entry, budget, &pick),
        };
        source.at(state.applied().0, self.node.journal().filled_gaps(), kept)
    }

    /// The rows at an entry, the newest first.
    fn picked<T>(
        &self,
        entry: u64,
        budget: &Budget,
        pick: impl Fn(u64, Time, Event) -> Option<T>,
    ) -> Result<Vec<T>, SqlError> {
        budget.check()?;
        let Some((time, events)) = self.events_at(entry)? else { return Ok(Vec::new()) };
        Ok(events.into_iter().rev().filter_map(|event| pick(entry, time, event)).collect())
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

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    /// A history in which every entry of these has rows, each of which is its own number; at most four rows are kept.
    struct History {
        entries: RefCell<Vec<u64>>,
        rows_each: usize,
        filled: RefCell<Vec<RangeInclusive<u64>>>,
        read: Cell<usize>,
        kept: Mutex<Kept<u64>>,
    }

    impl History {
        fn of(entries: impl IntoIterator<Item = u64>) -> History {
            let entries = RefCell::new(entries.into_iter().collect());
            History { entries, rows_each: 1, filled: RefCell::default(), read: Cell::new(0), kept: Mutex::default() }
        }

        /// What is shown at an entry, and how many rows were read for it.
        #[track_caller]
        fn check(&self, end: u64, shown: &[u64], read: usize) {
            const ROWS_MAX: usize = 4;
            self.read.set(0);
            let source = Rowed {
                rows_max: ROWS_MAX,
                found: |before: Option<u64>, since| {
                    let entries = self.entries.borrow();
                    let newest_first = entries.iter().rev().copied();
                    let wanted = newest_first.filter(|it| before.is_none_or(|before| *it < before) && *it > since);
                    Ok(wanted.take(ROWS_MAX).collect())
                },
                picked: |entry| {
                    self.read.set(self.read.get() + self.rows_each);
                    Ok(vec![entry; self.rows_each])
                },
            };
            let rows = source.at(end, self.filled.borrow().clone(), &self.kept).unwrap();
            assert!(rows.iter().all(|(index, row)| index == &**row));
            assert_eq!(rows.into_iter().map(|(index, _)| index).collect::<Vec<_>>(), shown);
            assert_eq!(self.read.get(), read);
        }
    }

    #[test]
    fn a_query_reads_only_what_is_new() {
        let history = History::of([3, 5]);
        history.check(9, &[5, 3], 2);
        history.check(9, &[5, 3], 0);
        history.entries.borrow_mut().push(11);
        history.check(11, &[11, 5, 3], 1);
        // At a moment before the last one, as long as all are kept.
        history.check(10, &[5, 3], 0);
        history.check(2, &[], 0);
    }

    #[test]
    fn a_moment_of_the_past_has_as_many_rows_as_it_had_then() {
        let history = History::of(1..=9);
        history.check(9, &[9, 8, 7, 6], 4);
        history.check(7, &[7, 6, 5, 4], 4);
        history.check(3, &[3, 2, 1], 3);
        history.check(9, &[9, 8, 7, 6], 0);
    }

    #[test]
    fn no_more_rows_are_read_than_are_kept_however_many_an_entry_has() {
        let history = History { rows_each: 3, ..History::of(1..=4) };
        // Of two entries, though four would fit if each had one row; and of the second, the newest.
        history.check(4, &[4, 4, 4, 3], 6);
        history.check(4, &[4, 4, 4, 3], 0);
        // What was not read is not taken for never having been.
        history.check(2, &[2, 2, 2, 1], 6);
        history.entries.borrow_mut().extend([5, 6, 7]);
        history.check(7, &[7, 7, 7, 6], 6);
        history.check(5, &[5, 5, 5, 4], 6);
        history.check(7, &[7, 7, 7, 6], 0);

        // Exactly as many as are kept, with more before.
        let history = History { rows_each: 2, ..History::of([1, 2, 3]) };
        history.check(3, &[3, 3, 2, 2], 4);
        history.check(2, &[2, 2, 1, 1], 4);
    }

    #[test]
    fn what_was_fetched_later_is_shown() {
        let history = History::of([7]);
        history.check(8, &[7], 1);
        history.entries.borrow_mut().insert(0, 2);
        history.check(8, &[7], 0);
        history.filled.borrow_mut().push(1..=4);
        history.check(8, &[7, 2], 2);
    }
}

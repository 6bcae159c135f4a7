//! An earlier state: `SET loadline.as_of`. It is made again from the journal, entry by entry, and checked against the hash that the
//! journal has for that index.
//!
//! States that were made lately are kept, so that asking twice, or a little later, does not begin at the first entry again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use loadline_log::JournalError;
use loadline_raft_node::Node;
use loadline_sql::tables::Budget;
use loadline_sql::{SqlError, SqlState};
use loadline_state_machine::{JournalEntry, LogIndex, State, Time};

/// States that are kept. Each shares most of its rows with the next.
const KEPT_MAX: usize = 8;
const READ_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Travel {
    node: Node,
    kept: Mutex<BTreeMap<u64, Arc<State>>>,
}

/// When to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// After this entry.
    Index(u64),
    /// After the last entry that is not later.
    Time(Time),
}

impl Moment {
    /// An index of the log, or a time.
    pub(super) fn read(text: &str) -> Result<Moment, SqlError> {
        let text = text.trim();
        if let Ok(index) = text.parse() {
            return Ok(Moment::Index(index));
        }
        let micros = loadline_sql::tables::value::timestamp_of(text).and_then(|micros| u64::try_from(micros).ok());
        match micros {
            Some(micros) => Ok(Moment::Time(Time::from_millis(micros / 1_000))),
            None => {
                let message = format!("invalid value for parameter \"loadline.as_of\": \"{text}\"");
                let hint = "An index of the log, such as 412, or a time, such as '2026-11-16 10:00:00'.";
                Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message).with_hint(hint))
            }
        }
    }

    /// Whether a state that has come this far may still go on.
    fn is_before(self, index: u64, time: Time) -> bool {
        match self {
            Moment::Index(wanted) => index <= wanted,
            Moment::Time(wanted) => time <= wanted,
        }
    }
}

impl Travel {
    pub(super) fn new(node: Node) -> Travel {
        Travel { node, kept: Mutex::default() }
    }

    /// The state as it was. It reads the journal: call it where nobody waits.
    pub(super) fn to(&self, moment: Moment, budget: &Budget) -> Result<Arc<State>, SqlError> {
        let latest = self.node.latest();
        if let Moment::Index(wanted) = moment
            && wanted > latest.applied().0
        {
            let message = format!("index {wanted} has not happened yet: this node is at {}", latest.applied());
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
        }
        if moment.is_before(latest.applied().0, latest.now()) {
            return Ok(latest);
        }
        let mut state = self.nearest(moment);
        let began = state.applied().0;
        let mut next = began + 1;
        'reading: loop {
            budget.check()?;
            let records = match self.node.journal().read(next, READ_BYTES) {
                Ok(records) => records,
                Err(JournalError::Missing { next: Some(first), .. }) => {
                    let message = format!("the journal of this node begins at index {first}, after the time asked for");
                    return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
                        .with_hint("A node that has been there from the start knows more."));
                }
                Err(error) => return Err(failed(&error)),
            };
            if records.is_empty() {
                break;
            }
            for record in &records {
                if !moment.is_before(record.index, Time::from_millis(record.time_ms)) {
                    break 'reading;
                }
                let entry = JournalEntry::decode(&record.entry).map_err(|error| failed(&error))?;
                entry.apply_to(&mut state, LogIndex(record.index));
                if state.hash().0 != record.hash {
                    let message = format!("entry {} of the journal does not lead where it led", record.index);
                    return Err(SqlError::new(SqlState("XX001"), message));
                }
                next = record.index + 1;
            }
        }
        let state = Arc::new(state);
        if state.applied().0 > began {
            self.keep(&state);
        }
        Ok(state)
    }

    fn nearest(&self, moment: Moment) -> State {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let usable = kept.values().rev().find(|state| moment.is_before(state.applied().0, state.now()));
        usable.map_or_else(State::new, |state| State::clone(state))
    }

    fn keep(&self, state: &Arc<State>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.insert(state.applied().0, Arc::clone(state));
        while kept.len() > KEPT_MAX {
            kept.pop_first();
        }
    }
}

fn failed(error: &dyn std::fmt::Display) -> SqlError {
    SqlError::new(SqlState("58030"), format!("the journal cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_an_index_or_a_time() {
        assert_eq!(Moment::read("412"), Ok(Moment::Index(412)));
        let time = Moment::Time(Time::from_millis(1_794_787_200_000));
        assert_eq!(Moment::read("2026-11-16"), Ok(time));
        assert_eq!(Moment::read("yesterday").unwrap_err().sqlstate.0, "22023");
        assert!(time.is_before(9, Time::from_millis(1_794_787_200_000)));
        assert!(!time.is_before(9, Time::from_millis(1_794_787_200_001)));
    }
}

//! An earlier state, for whoever asks about one: made again from the journal, entry by entry, and checked against the hash that the
//! journal has for each.
//!
//! States that were made lately are kept, so that asking twice, or a little later, does not begin at the first entry again. Nor
//! does the first question have to, where a snapshot of before is kept.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use loadline_audit::{Kept, Moment, ReplayError, Source, SourceError, Start, replay_while};
use loadline_log::JournalError;
use loadline_raft_node::Node;
use loadline_state_machine::{State, Time};

use crate::kept::kept;

/// States that are kept. One that was replayed from another shares most of its rows with that; one that began with a snapshot on disk
/// shares none.
const KEPT_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Travel {
    node: Node,
    kept: Mutex<Lately>,
}

/// States that were made or used lately.
#[derive(Debug, Default)]
struct Lately {
    /// By their index, each with the number of its last use.
    states: BTreeMap<u64, (Arc<State>, u64)>,
    uses: u64,
}

impl Lately {
    /// The one that is nearest to a moment, and not after it.
    fn nearest(&mut self, moment: Moment) -> Option<Arc<State>> {
        self.uses += 1;
        let mut newest_first = self.states.values_mut().rev();
        let (state, used) = newest_first.find(|(it, _)| moment.holds(it.applied().0, it.now()))?;
        *used = self.uses;
        Some(Arc::clone(state))
    }

    /// Whichever was used longest ago makes room. By their order in the log it would be the new one, as soon as all others are later.
    fn keep(&mut self, state: &Arc<State>) {
        self.uses += 1;
        self.states.insert(state.applied().0, (Arc::clone(state), self.uses));
        while self.states.len() > KEPT_MAX {
            let longest_ago = self.states.iter().min_by_key(|(_, (_, used))| *used).map(|(index, _)| *index);
            longest_ago.and_then(|index| self.states.remove(&index));
        }
    }
}

/// Why there is no such state.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TravelError {
    #[error("index {wanted} has not happened yet: this node is at {applied}")]
    NotYet { wanted: u64, applied: u64 },
    #[error(
        "the journal of this node begins at index {first}, and what was asked for is before the oldest state that is kept with it"
    )]
    Begins { first: u64 },
    #[error("entry {index} of the journal does not lead where it led")]
    Differs { index: u64 },
    #[error("the journal cannot be read: {0}")]
    Replay(String),
    /// Whoever asked has given up.
    #[error("it took too long")]
    Stopped,
}

/// An index of the log, or a time.
pub(crate) fn read_moment(text: &str) -> Option<Moment> {
    let text = text.trim();
    if let Ok(index) = text.parse() {
        return Some(Moment::Index(index));
    }
    let micros = loadline_sql::tables::value::timestamp_of(text).and_then(|micros| u64::try_from(micros).ok())?;
    Some(Moment::Time(Time::from_millis(micros / 1_000)))
}

impl Travel {
    pub(crate) fn new(node: Node) -> Travel {
        Travel { node, kept: Mutex::default() }
    }

    /// The state as it was. It reads the journal: call it where nobody waits. `goes_on` is asked between entries.
    pub(crate) fn to(&self, moment: Moment, goes_on: impl Fn() -> bool) -> Result<Arc<State>, TravelError> {
        let latest = self.node.latest();
        let applied = latest.applied().0;
        match moment {
            Moment::Index(wanted) if wanted > applied => return Err(TravelError::NotYet { wanted, applied }),
            _ if moment.holds(applied, latest.now()) => return Ok(latest),
            _ => {}
        }
        let source = kept(&self.node);
        let start = self.nearest(moment, &source)?;
        let began = start.applied().0;
        let mut stopped = false;
        let replayed = replay_while(&source, Start::From(Box::new(start)), moment, |_| {
            stopped = !goes_on();
            if stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let replayed = replayed.map_err(told)?;
        if stopped {
            return Err(TravelError::Stopped);
        }
        let state = Arc::new(replayed.state);
        if state.applied().0 > began {
            self.kept.lock().unwrap_or_else(PoisonError::into_inner).keep(&state);
        }
        Ok(state)
    }

    /// The state to begin with: of those that were made lately and those that are kept on disk, the one that is nearest.
    fn nearest(&self, moment: Moment, source: &Kept) -> Result<State, TravelError> {
        let made = self.kept.lock().unwrap_or_else(PoisonError::into_inner).nearest(moment);
        let from = made.as_ref().map_or(0, |state| state.applied().0);
        let mut not_after = match moment {
            Moment::Index(index) => index,
            Moment::Time(_) | Moment::End => u64::MAX,
        };
        while not_after > from {
            match source.start(not_after).map_err(|error| told(error.into()))? {
                Some(state) if state.applied().0 <= from => break,
                Some(state) if moment.holds(state.applied().0, state.now()) => return Ok(state),
                Some(state) => not_after = state.applied().0 - 1,
                None => break,
            }
        }
        match (made, source.range()) {
            (Some(state), _) => Ok(State::clone(&state)),
            (None, Some(range)) if *range.start() > 1 => Err(TravelError::Begins { first: *range.start() }),
            (None, _) => Ok(State::new()),
        }
    }
}

fn told(error: ReplayError) -> TravelError {
    match error {
        ReplayError::Begins { first, .. } | ReplayError::Gap { found: Some(first), .. } => {
            TravelError::Begins { first }
        }
        // It was let go while it was being read, or never came.
        ReplayError::Source(SourceError::Journal(JournalError::Missing { next: Some(first), .. })) => {
            TravelError::Begins { first }
        }
        ReplayError::Differs { index, .. } => TravelError::Differs { index },
        ReplayError::NotYet { wanted, last } => TravelError::NotYet { wanted, applied: last },
        other => {
            let mut text = other.to_string();
            let mut next = std::error::Error::source(&other);
            while let Some(cause) = next {
                text.push_str(&format!(": {cause}"));
                next = cause.source();
            }
            TravelError::Replay(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::{Entry, LogIndex, Sealed, apply};

    use super::*;

    #[test]
    fn the_state_that_was_used_longest_ago_makes_room_and_never_the_new_one() {
        let mut state = State::new();
        let mut states = Vec::new();
        for index in 1..=20 {
            let entry = Entry { stamped_at: Time::from_millis(index), requests: Vec::new() };
            apply(&mut state, LogIndex(index), &Sealed::seal(entry));
            states.push(Arc::new(state.clone()));
        }
        let made = |index: u64| &states[usize::try_from(index).unwrap() - 1];
        let mut lately = Lately::default();
        for index in 11..=18 {
            lately.keep(made(index));
        }
        let kept = |lately: &Lately| lately.states.keys().copied().collect::<Vec<_>>();
        // Earlier than all that are kept: somebody walks backwards.
        lately.keep(made(3));
        assert_eq!(kept(&lately), [3, 12, 13, 14, 15, 16, 17, 18]);
        let nearest = |lately: &mut Lately, index| lately.nearest(Moment::Index(index)).map(|state| state.applied().0);
        assert_eq!(nearest(&mut lately, 12), Some(12));
        assert_eq!(nearest(&mut lately, 2), None);
        lately.keep(made(2));
        assert_eq!(kept(&lately), [2, 3, 12, 14, 15, 16, 17, 18], "12 was used, 13 was not");
        assert_eq!(nearest(&mut lately, 13), Some(12));
        assert_eq!(nearest(&mut lately, 3), Some(3));
    }

    #[test]
    fn a_moment_is_an_index_or_a_time() {
        assert_eq!(read_moment("412"), Some(Moment::Index(412)));
        let time = Moment::Time(Time::from_millis(1_794_787_200_000));
        assert_eq!(read_moment(" 2026-11-16 00:00:00 "), Some(time));
        assert_eq!(read_moment("2026-11-16T00:00:00Z"), Some(time));
        for wrong in ["", "soon", "-4", "2026-13-01"] {
            assert_eq!(read_moment(wrong), None, "{wrong}");
        }
    }
}

//! Which entries a window has: those between two moments, in one stretch of the history without a gap, behind a state that is
//! kept.
//!
//! A node that was away too long was given a snapshot for what it had missed, and one that keeps only so much has let its oldest
//! entries go. What is left can be replayed only from a snapshot on, and across a gap not at all. Whoever names a window that crosses
//! a gap is told which entries are missing; a length that nobody has asked for is shortened to what is behind it. A window that would
//! begin before everything that can be replayed begins with that, and the answer says so.

use std::ops::RangeInclusive;

use loadline_state_machine::Time;

use super::{BacktestError, Bound, Trial};
use crate::replay::ReplayError;
use crate::source::Source;
use crate::stretch::{first_replayable, first_where, time_of};

/// The window in entries and in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) from: Time,
    pub(super) to: Time,
    /// It begins later than was asked for, because there is no state from before.
    pub(super) shortened: bool,
    /// It begins behind this entry, at which a backup was restored.
    pub(super) restored: Option<u64>,
}

impl Extent {
    /// The rest of it, behind the entry at which a backup was restored.
    pub(super) fn behind_restore(self, source: &dyn Source, index: u64) -> Result<Extent, BacktestError> {
        let at = time_of(source, index)?;
        if index >= self.last {
            return Err(BacktestError::Restored { index, at });
        }
        let (first, from) = (index + 1, time_of(source, index + 1)?);
        if from >= self.to {
            return Err(BacktestError::Restored { index, at });
        }
        Ok(Extent { first, from, shortened: false, restored: Some(index), ..self })
    }
}

pub(super) fn window(source: &dyn Source, trial: &Trial) -> Result<Extent, BacktestError> {
    let stretches = source.stretches();
    let newest = stretches.last().ok_or(BacktestError::Empty)?;
    let history_to = time_of(source, *newest.end())?;
    let to = match trial.until {
        Bound::Open => history_to,
        Bound::At(at) => at.min(history_to),
        Bound::Before(span) | Bound::UpTo(span) => history_to.before(span),
    };
    // The last stretch that has begun by then. If none has, there is nothing in the window, and that is found out below.
    let mut place = 0;
    for (number, stretch) in stretches.iter().enumerate() {
        if time_of(source, *stretch.start())? <= to {
            place = number;
        }
    }
    let held = &stretches[place];
    if let Some(next) = stretches.get(place + 1)
        && time_of(source, *held.end())? < to
    {
        return Err(missing(source, held, next)?);
    }
    let asked = match trial.since {
        Bound::Open => None,
        Bound::At(at) => Some(at),
        Bound::Before(span) | Bound::UpTo(span) => Some(to.before(span)),
    };
    if let Some(before) = place.checked_sub(1).and_then(|before| stretches.get(before))
        && let Some(asked) = asked.filter(|_| trial.since.is_named())
        && asked < time_of(source, *held.start())?
    {
        return Err(missing(source, before, held)?);
    }

    let begins = ReplayError::Begins { first: *held.start(), kept: None };
    let replayable = first_replayable(source, held).ok_or(begins)?..=*held.end();
    // What comes before the first leader has spoken has no time.
    let timed = first_where(source, &replayable, |at| at > Time::default())?.ok_or(BacktestError::Empty)?;
    let first_at = time_of(source, timed)?;
    let from = asked.map_or(first_at, |asked| asked.max(first_at));
    let empty = || BacktestError::NoWindow { from, to, first: first_at, last: history_to };
    if from >= to {
        return Err(empty());
    }
    let first = first_where(source, &replayable, |at| at >= from)?.ok_or_else(empty)?;
    let last = first_where(source, &replayable, |at| at > to)?.map_or(*replayable.end(), |after| after - 1);
    if last < first {
        return Err(empty());
    }
    // With the first entry of all everything begins: nothing is left out then.
    let shortened = *replayable.start() > 1 && asked.is_some_and(|asked| asked < first_at);
    Ok(Extent { first, last, from, to, shortened, restored: None })
}

fn missing(
    source: &dyn Source,
    before: &RangeInclusive<u64>,
    behind: &RangeInclusive<u64>,
) -> Result<BacktestError, BacktestError> {
    Ok(BacktestError::Missing {
        first: *before.end() + 1,
        last: *behind.start() - 1,
        before: time_of(source, *before.end())?,
        behind: time_of(source, *behind.start())?,
    })
}

//! Finding entries in a stretch of a history, which has no gap.

use std::ops::RangeInclusive;

use loadline_state_machine::Time;

use crate::source::{Source, SourceError};

/// The first entry of a stretch before which the state is known; none if no such state is kept.
pub(crate) fn first_replayable(source: &dyn Source, stretch: &RangeInclusive<u64>) -> Option<u64> {
    if *stretch.start() == 1 {
        return Some(1);
    }
    source.starts().into_iter().map(|start| start + 1).find(|after| stretch.contains(after))
}

/// The first entry of a stretch whose time is so. Time never goes back in the log.
pub(crate) fn first_where(
    source: &dyn Source,
    stretch: &RangeInclusive<u64>,
    is_so: impl Fn(Time) -> bool,
) -> Result<Option<u64>, SourceError> {
    let (mut low, mut high) = (*stretch.start(), *stretch.end() + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        if is_so(time_of(source, middle)?) { high = middle } else { low = middle + 1 }
    }
    Ok(stretch.contains(&low).then_some(low))
}

/// Of an entry that is there.
pub(crate) fn time_of(source: &dyn Source, index: u64) -> Result<Time, SourceError> {
    let records = source.read(index, 1)?;
    Ok(Time::from_millis(records.first().map_or(0, |record| record.time_ms)))
}

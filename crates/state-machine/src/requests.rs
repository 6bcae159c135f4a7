//! A retry is not a second request: answers are remembered in the state, under the id that the client gave.
//!
//! Ids sort by the time at which they were made, so the oldest are the first rows. What is forgotten lies below a floor,
//! and an id below the floor is refused: it may have been done, so doing it now could be the second time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::table::Table;
use crate::{Hash, Receipt, Rejection, RequestId, Span, Time};

/// How much one entry forgets at most, beyond what it added. A window that was cut short, or a long silence, would else
/// make one entry drop the whole table while everybody waits; the floor already keeps the rest from being used.
const FORGOTTEN_PER_ENTRY_MAX: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Remembered {
    /// Of the first request under this id: see [`crate::Request`].
    pub(crate) payload: Hash,
    pub(crate) receipt: Receipt,
}

/// A bound on ids, not on times: of many ids made in one millisecond, only those that had to go are below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Floor(RequestId);

impl Floor {
    fn at(time: Time) -> Self {
        Self(RequestId::lowest_at(time))
    }

    fn above(id: RequestId) -> Self {
        Self(RequestId(id.0.saturating_add(1)))
    }

    /// Rounded up, so that the time of any id below the floor is before it.
    fn time(self) -> Time {
        match self.0.time() {
            whole if Self::at(whole) == self => whole,
            within => within + Span::from_millis(1),
        }
    }
}

impl Default for Floor {
    fn default() -> Self {
        Self::at(Time::default())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    remembered: Table<RequestId, Arc<Remembered>>,
    /// Ids below are forgotten, or will be. It never goes back, even if the window is made longer again.
    floor: Floor,
}

impl Requests {
    pub(crate) fn with_floor(floor: Floor) -> Self {
        Self { remembered: Table::new(), floor }
    }

    pub(crate) fn floor(&self) -> Floor {
        self.floor
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (RequestId, &Remembered)> {
        self.remembered.iter().map(|(id, row)| (*id, row.as_ref()))
    }

    pub(crate) fn len(&self) -> usize {
        self.remembered.len()
    }

    pub(crate) fn latest(&self) -> Option<RequestId> {
        self.remembered.get_max().map(|(id, _)| *id)
    }

    /// The answer that this request got before; nothing if it is new.
    pub(crate) fn recognise(
        &self,
        id: RequestId,
        payload: Hash,
        now: Time,
        window: Span,
    ) -> Result<Option<Receipt>, Rejection> {
        if !id.is_v7() {
            return Err(Rejection::RequestIdNotV7 { id });
        }
        let made_at = id.time();
        let floor = self.floor.max(Floor::at(now.before(window)));
        if Floor(id) < floor {
            return Err(Rejection::RequestTooOld { id, made_at, floor: floor.time(), now });
        }
        if made_at > now + window {
            return Err(Rejection::RequestFromFuture { id, made_at, now, window });
        }
        match self.remembered.get(&id) {
            None => Ok(None),
            Some(first) if first.payload == payload => Ok(Some(Receipt { repeated: true, ..first.receipt.clone() })),
            Some(first) => Err(Rejection::RequestIdReused { id, index: first.receipt.index }),
        }
    }

    pub(crate) fn remember(&mut self, id: RequestId, remembered: Remembered) {
        self.remembered.insert(id, Arc::new(remembered));
    }

    /// Forgets what is older than the window, and the oldest of what is too many. `added` is how many requests the entry had.
    pub(crate) fn forget(&mut self, now: Time, window: Span, count_max: u64, added: usize) {
        self.floor = self.floor.max(Floor::at(now.before(window)));
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
        for _ in 0..FORGOTTEN_PER_ENTRY_MAX + added {
            let Some((oldest, _)) = self.remembered.get_min() else { break };
            let oldest = *oldest;
            if self.remembered.len() > count_max {
                self.floor = self.floor.max(Floor::above(oldest));
            } else if Floor(oldest) >= self.floor {
                break;
            }
            self.remembered.remove(&oldest);
        }
    }
}

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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Requests {
    remembered: Table<RequestId, Arc<Remembered>>,
    /// Ids made before are forgotten, or will be. It never goes back, even if the window is made longer again.
    floor: Time,
}

impl Requests {
    pub(crate) fn with_floor(floor: Time) -> Self {
        Self { remembered: Table::new(), floor }
    }

    pub(crate) fn floor(&self) -> Time {
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
        let floor = self.floor.max(now.before(window));
        if made_at < floor {
            return Err(Rejection::RequestTooOld { id, made_at, floor, now });
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
        self.floor = self.floor.max(now.before(window));
        let count_max = usize::try_from(count_max).unwrap_or(usize::MAX);
        for _ in 0..FORGOTTEN_PER_ENTRY_MAX + added {
            let Some((oldest, _)) = self.remembered.get_min() else { break };
            let oldest = *oldest;
            if self.remembered.len() > count_max {
                // Others of the same millisecond go below the floor with it: better refused than done twice.
                self.floor = self.floor.max(oldest.time() + Span::from_millis(1));
            } else if oldest.time() >= self.floor {
                break;
            }
            self.remembered.remove(&oldest);
        }
    }
}

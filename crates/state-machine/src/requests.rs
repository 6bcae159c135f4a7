//! A retry is not a second request: answers are remembered in the state, under the id that the client gave.
//!
//! Ids sort by the time at which they were made, so the oldest are the first rows. What is forgotten lies below a floor,
//! and an id below the floor is refused: it may have been done, so doing it now could be the second time.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::encoding::{Decoder, Encoder};
use crate::table::Table;
use crate::{Blob, DecodeError, Hash, Receipt, Rejection, RequestId, Span, Time};

/// How much one entry forgets at most, beyond what it added. A window that was cut short, or a long silence, would else
/// make one entry drop the whole table while everybody waits; the floor already keeps the rest from being used.
const FORGOTTEN_PER_ENTRY_MAX: usize = 1_000;

/// What the first request under an id was, and its answer. As the bytes that a snapshot has of it: most answers are never asked
/// for again, and that of a large transaction takes a tenth of what it would take in pieces. A long one is packed as well: whoever
/// makes a hundred thousand clusters with their strategies would else leave 65 MB of answers here until the window is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered(Blob);

/// The first byte of a remembered answer: how the rest is kept.
const PLAIN: u8 = 0;
const PACKED: u8 = 1;
/// Shorter ones have little that repeats, and there are many of them.
const PACKED_BYTES_MIN: usize = 1_024;

impl Remembered {
    /// `payload` is that of the request: see [`crate::Request`].
    pub(crate) fn new(payload: Hash, receipt: &Receipt) -> Self {
        let mut out = Encoder::bare();
        out.put(&PLAIN);
        out.put(&payload);
        out.put(receipt);
        let plain = out.into_bytes();
        if plain.len() < PACKED_BYTES_MIN {
            return Self(plain.into());
        }
        let mut packed = vec![PACKED];
        packed.extend(lz4_flex::compress_prepend_size(&plain[1..]));
        Self(packed.into())
    }

    /// Of a row of a snapshot.
    pub(crate) fn read(row: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Self::new(row.take()?, &row.take()?))
    }

    pub(crate) fn write(&self, row: &mut Encoder) {
        row.put_encoded(&self.encoded());
    }

    /// As a snapshot has it.
    fn encoded(&self) -> Cow<'_, [u8]> {
        match self.0.as_slice() {
            [PLAIN, encoded @ ..] => Cow::Borrowed(encoded),
            [_packed, packed @ ..] => {
                Cow::Owned(lz4_flex::decompress_size_prepended(packed).expect("it was packed by this very process"))
            }
            [] => Cow::Borrowed(&[]),
        }
    }

    fn parts(&self) -> (Hash, Receipt) {
        let encoded = self.encoded();
        let mut from = Decoder::bare("remembered request", &encoded);
        from.take().expect("it was encoded by this very process")
    }
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
    remembered: Table<RequestId, Remembered>,
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
        self.remembered.iter().map(|(id, row)| (*id, row))
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
        match self.remembered.get(&id).map(Remembered::parts) {
            None => Ok(None),
            Some((first, receipt)) if first == payload => Ok(Some(Receipt { repeated: true, ..receipt })),
            Some((_, receipt)) => Err(Rejection::RequestIdReused { id, index: receipt.index }),
        }
    }

    pub(crate) fn remember(&mut self, id: RequestId, remembered: Remembered) {
        self.remembered.insert(id, remembered);
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

//! What the frames of the write-ahead log carry.

use bytes::Bytes;

use super::{LogPosition, Record, StoredVote, WalState};
use crate::encoding::{Fields, Malformed, PutFields as _};

/// One frame's meaning. Kinds are numbered for ever; a number is never used again for something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// The first frame of a segment: all that would be forgotten with the segments before it.
    Head(Head),
    Entry(Record),
    Vote(StoredVote),
    Committed(Option<LogPosition>),
    /// The log now ends here; what was behind is gone. `None`: nothing is left, and nothing was ever purged.
    Truncate(Option<LogPosition>),
    Purge(LogPosition),
    /// Somebody opened or closed the log here. It promises, like any frame, that what is before it is durable; that is
    /// why it is written: rot in the last batch before it will be noticed.
    Mark(Mark),
    /// The last frame of a segment that another one follows.
    Seal,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The length of the file. It was durable before the first use, so a shorter file has lost bytes.
    pub(super) file_bytes: u64,
    pub(super) state: WalState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Opened,
    Closed,
}

const HEAD: u16 = 1;
const ENTRY: u16 = 2;
const VOTE: u16 = 3;
const COMMITTED: u16 = 4;
const TRUNCATE: u16 = 5;
const PURGE: u16 = 6;
const MARK: u16 = 7;
const SEAL: u16 = 8;

/// Bytes of an entry's body before its payload.
const ENTRY_FIELDS_BYTES: usize = 25;

/// No body except an entry's is longer.
pub(super) const SMALL_BODY_BYTES_MAX: usize = 128;

/// Why an intact frame could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NotUnderstood {
    #[error("record kind {0} is not known to this program")]
    UnknownKind(u16),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl Item {
    pub(super) fn kind(&self) -> u16 {
        match self {
            Self::Head(_) => HEAD,
            Self::Entry(_) => ENTRY,
            Self::Vote(_) => VOTE,
            Self::Committed(_) => COMMITTED,
            Self::Truncate(_) => TRUNCATE,
            Self::Purge(_) => PURGE,
            Self::Mark(_) => MARK,
            Self::Seal => SEAL,
        }
    }

    /// At least the length of the encoded body; exact for entries, the only ones that can be long.
    pub(super) fn body_bytes_max(&self) -> usize {
        match self {
            Self::Entry(record) => ENTRY_FIELDS_BYTES + record.payload.len(),
            _ => SMALL_BODY_BYTES_MAX,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Head(Head { file_bytes, state }) => {
                out.put_u64(*file_bytes);
                out.put_option(state.last, Vec::put_position);
                out.put_option(state.purged, Vec::put_position);
                out.put_option(state.vote, Vec::put_vote);
                out.put_option(state.committed, Vec::put_position);
            }
            Self::Entry(record) => {
                out.put_position(record.id);
                out.put_u8(record.kind);
                out.put_raw(&record.payload);
            }
            Self::Vote(vote) => out.put_vote(*vote),
            Self::Committed(position) => out.put_option(*position, Vec::put_position),
            Self::Truncate(last) => out.put_option(*last, Vec::put_position),
            Self::Purge(position) => out.put_position(*position),
            Self::Mark(Mark::Opened) => out.put_u8(1),
            Self::Mark(Mark::Closed) => out.put_u8(2),
            Self::Seal => {}
        }
    }

    pub(super) fn decode(kind: u16, body: &[u8]) -> Result<Self, NotUnderstood> {
        let mut fields = Fields(body);
        let item = match kind {
            HEAD => Self::Head(Head {
                file_bytes: fields.u64()?,
                state: WalState {
                    last: fields.option(Fields::position)?,
                    purged: fields.option(Fields::position)?,
                    vote: fields.option(Fields::vote)?,
                    committed: fields.option(Fields::position)?,
                },
            }),
            ENTRY => Self::Entry(Record {
                id: fields.position()?,
                kind: fields.u8()?,
                payload: Bytes::copy_from_slice(fields.rest()),
            }),
            VOTE => Self::Vote(fields.vote()?),
            COMMITTED => Self::Committed(fields.option(Fields::position)?),
            TRUNCATE => Self::Truncate(fields.option(Fields::position)?),
            PURGE => Self::Purge(fields.position()?),
            MARK => Self::Mark(match fields.u8()? {
                1 => Mark::Opened,
                2 => Mark::Closed,
                _ => return Err(Malformed("a mark is neither of opening nor of closing").into()),
            }),
            SEAL => Self::Seal,
            unknown => return Err(NotUnderstood::UnknownKind(unknown)),
        };
        fields.end()?;
        Ok(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(item: &Item, hex: &str) {
        let mut out = Vec::new();
        item.encode(&mut out);
        assert!(out.len() <= item.body_bytes_max());
        assert_eq!(out.iter().map(|byte| format!("{byte:02x}")).collect::<String>(), hex, "{item:?}");
        assert_eq!(Item::decode(item.kind(), &out).as_ref(), Ok(item));
    }

    #[test]
    fn the_bytes_of_every_kind_are_pinned() {
        let at = LogPosition { term: 2, node: 1, index: 255 };
        let vote = StoredVote { term: 4, node: 3, committed: true };
        let at_hex = "02000000000000000100000000000000ff00000000000000";
        let vote_hex = "0400000000000000030000000000000001";
        let state = WalState { last: Some(at), purged: None, vote: Some(vote), committed: Some(at) };
        let head = Head { file_bytes: 4096, state };
        check(&Item::Head(head), &format!("001000000000000001{at_hex}0001{vote_hex}01{at_hex}"));
        let record = Record { id: at, kind: 9, payload: Bytes::from_static(b"pay") };
        check(&Item::Entry(record), &format!("{at_hex}09706179"));
        check(&Item::Vote(vote), vote_hex);
        check(&Item::Committed(None), "00");
        check(&Item::Truncate(Some(at)), &format!("01{at_hex}"));
        check(&Item::Purge(at), at_hex);
        check(&Item::Mark(Mark::Opened), "01");
        check(&Item::Mark(Mark::Closed), "02");
        check(&Item::Seal, "");
    }

    #[test]
    fn a_kind_from_the_future_is_named_and_a_wrong_body_is_refused() {
        assert_eq!(Item::decode(77, b""), Err(NotUnderstood::UnknownKind(77)));
        assert!(Item::decode(VOTE, b"short").is_err());
        assert!(Item::decode(SEAL, b"more").is_err());
    }
}

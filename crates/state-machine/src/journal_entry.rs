//! An entry of the log as the journal keeps it: ours, or one of Raft's own that only has a place in the chain.

use crate::chain::{self, Link};
use crate::{Applied, DecodeError, Hash, LogIndex, Sealed, State, apply, pass};

// These numbers are in the journal for ever.
const BLANK: u8 = 0;
const REQUESTS: u8 = 1;
const MEMBERSHIP: u8 = 2;

/// What stood at one index of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// The first entry of a term: Raft's own.
    Blank,
    /// A change of the group's members: Raft's own. The bytes that the hash chain covers.
    Membership(Vec<u8>),
    /// Requests, with everything that was asked for.
    Requests(Sealed),
}

impl JournalEntry {
    /// The bytes of a blank entry.
    pub fn encode_blank() -> Vec<u8> {
        vec![BLANK]
    }

    /// The bytes of a change of membership.
    pub fn encode_membership(payload: &[u8]) -> Vec<u8> {
        with_kind(MEMBERSHIP, payload)
    }

    /// The bytes of requests, as they were sealed.
    pub fn encode_requests(sealed: &[u8]) -> Vec<u8> {
        with_kind(REQUESTS, sealed)
    }

    pub fn decode(entry: &[u8]) -> Result<Self, DecodeError> {
        match entry.split_first() {
            Some((&BLANK, [])) => Ok(Self::Blank),
            Some((&MEMBERSHIP, payload)) => Ok(Self::Membership(payload.to_vec())),
            Some((&REQUESTS, bytes)) => Ok(Self::Requests(Sealed::open(bytes)?)),
            Some((&kind, _)) => Err(DecodeError::UnknownKind { what: "journal entry", kind: u16::from(kind) }),
            None => Err(DecodeError::Truncated { what: "journal entry" }),
        }
    }

    /// The hash after an entry, from the one before it and its bytes and those of its events alone: it proves that nobody altered
    /// them, and says nothing about whether the entry leads to these events. None: such an entry is not known here.
    pub fn link(before: Hash, index: LogIndex, entry: &[u8], events: &[u8]) -> Option<Hash> {
        let link = match entry.split_first()? {
            (&BLANK, []) => Link::Passed { payload: &[] },
            (&MEMBERSHIP, payload) => Link::Passed { payload },
            (&REQUESTS, bytes) => Link::Entry { bytes, events },
            _ => return None,
        };
        Some(chain::next(before, index, link))
    }

    /// Applies it once more, at its index.
    pub fn apply_to(&self, state: &mut State, index: LogIndex) -> Applied {
        match self {
            Self::Blank => pass(state, index, &[]),
            Self::Membership(payload) => pass(state, index, payload),
            Self::Requests(sealed) => apply(state, index, sealed),
        }
    }
}

fn with_kind(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut entry = Vec::with_capacity(bytes.len() + 1);
    entry.push(kind);
    entry.extend_from_slice(bytes);
    entry
}

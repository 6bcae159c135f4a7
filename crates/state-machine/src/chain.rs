//! The hash chain: proof that two nodes hold the same state because they derived the same from the same entries.
//!
//! Each entry adds (its index, its bytes, the events it brought about) to the hash of the one before. Nodes compare
//! their hashes at checkpoints, which lie at the same indexes everywhere.

use crate::{Hash, LogIndex, State};

/// Checkpoints lie at multiples of this index.
pub const CHECKPOINT_EVERY: u64 = 1_024;

/// How many checkpoints the state keeps: a node that is this far behind can still be compared.
pub const CHECKPOINTS_KEPT: usize = 16;

/// What an index of the log holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link<'a> {
    Entry {
        bytes: &'a [u8],
        events: &'a [u8],
    },
    /// Something of Raft's own.
    Passed {
        payload: &'a [u8],
    },
}

/// Adds one index to the chain. The caller has made sure that it is the next one.
pub(crate) fn extend(state: &mut State, index: LogIndex, link: Link<'_>) -> Hash {
    state.hash = next(state.hash, index, link);
    state.applied = index;
    if index.0.is_multiple_of(CHECKPOINT_EVERY) {
        state.checkpoints.insert(index, state.hash);
        while state.checkpoints.len() > CHECKPOINTS_KEPT {
            let Some((oldest, _)) = state.checkpoints.get_min() else { break };
            let oldest = *oldest;
            state.checkpoints.remove(&oldest);
        }
    }
    state.hash
}

/// The hash after an index, from the one before it and what the index holds.
pub(crate) fn next(before: Hash, index: LogIndex, link: Link<'_>) -> Hash {
    let (tag, first, second) = match link {
        Link::Entry { bytes, events } => (1, bytes, events),
        Link::Passed { payload } => (2, payload, &[][..]),
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&before.0);
    hasher.update(&index.0.to_le_bytes());
    // Tag and length keep (entry, events) from being read as another pair with the same bytes in a row.
    hasher.update(&[tag]);
    hasher.update(&(first.len() as u64).to_le_bytes());
    hasher.update(first);
    hasher.update(second);
    Hash(*hasher.finalize().as_bytes())
}

/// The log has no gaps. One here means that an entry was lost or applied twice, and going on would be guessing.
pub(crate) fn assert_next(state: &State, index: LogIndex) {
    // Raft logs begin at 0 or at 1.
    let next = if state.is_new() { index.0 <= 1 } else { Some(index.0) == state.applied.0.checked_add(1) };
    assert!(next, "entry {index} cannot follow entry {}: the log has a gap or was applied twice", state.applied);
}

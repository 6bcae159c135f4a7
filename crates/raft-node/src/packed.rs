//! Entries that this node has in pieces and not applied yet: those that it packed itself, and those that came from the leader
//! and were taken apart to be checked.
//!
//! The log hands an entry back as bytes, and taking them apart once more is a tenth of what an entry costs.
//!
//! An entry is known by where its bytes lie, and not by what they say: while it is kept here nothing else can lie there, and bytes
//! that were read from the disk lie somewhere else.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use loadline_state_machine::Sealed;

/// A few are under way at a time. Those that never come back, because another leader was elected, go when there are so many; so do
/// those of a node that is far behind, which takes them apart again.
const KEPT_MAX: usize = 8;

/// See the module's header.
#[derive(Debug, Default)]
pub(crate) struct Packed(Mutex<VecDeque<Sealed>>);

impl Packed {
    pub(crate) fn keep(&self, sealed: Sealed) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.pop_front();
        }
        kept.push_back(sealed);
    }

    /// The entry of which these are the very bytes. They come in the order of the log, so those before it come no more.
    pub(crate) fn take(&self, bytes: &[u8]) -> Option<Sealed> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().position(|sealed| std::ptr::eq::<[u8]>(sealed.bytes().as_ref(), bytes))?;
        kept.drain(..=place).next_back()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use loadline_state_machine::{Entry, Time};

    use super::*;

    #[test]
    fn an_entry_is_found_by_its_own_bytes_once_and_not_by_equal_ones() {
        let entry = |millis| Sealed::seal(Entry { stamped_at: Time::from_millis(millis), requests: Vec::new() });
        let payload = |sealed: &Sealed| Bytes::from_owner(sealed.bytes().clone());
        let packed = Packed::default();
        let all: Vec<Sealed> = (0..12).map(entry).collect();
        all.iter().for_each(|sealed| packed.keep(sealed.clone()));
        assert_eq!(packed.take(&payload(&all[3])), None, "it had to go for a later one");
        assert_eq!(packed.take(&Bytes::copy_from_slice(all[7].bytes())), None, "the same bytes elsewhere");
        assert_eq!(packed.take(&payload(&all[7])), Some(all[7].clone()));
        assert_eq!(packed.take(&payload(&all[7])), None, "only once");
        assert_eq!(packed.take(&payload(&all[5])), None, "it came before one that was taken");
        assert_eq!(packed.take(&payload(&all[8])), Some(all[8].clone()));
    }
}

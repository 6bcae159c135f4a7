//! Fields of the crate's own records: fixed little-endian, written and read by hand, so that a record means the same
//! bytes for ever and no derive can move them.
//!
//! Framing, checksums and kinds are in [`crate::frame`]. What an entry's payload means is nobody's business here.

use crate::wal::{LogPosition, StoredVote};

/// A record whose checksum is right and whose fields are not: written by something else, or by a bug.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// Writes fields. Lengths are prefixed as u32; callers keep single fields below 4 GiB (frames could not hold them).
pub(crate) trait PutFields {
    fn put_u8(&mut self, value: u8);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    fn put_raw(&mut self, value: &[u8]);

    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    fn put_bytes(&mut self, value: &[u8]) {
        // A frame's length is checked against u32 when it is closed, so a longer field cannot get to a disk.
        self.put_u32(u32::try_from(value.len()).unwrap_or(u32::MAX));
        self.put_raw(value);
    }

    fn put_option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.put_bool(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }

    fn put_position(&mut self, position: LogPosition) {
        self.put_u64(position.term);
        self.put_u64(position.node);
        self.put_u64(position.index);
    }

    fn put_vote(&mut self, vote: StoredVote) {
        self.put_u64(vote.term);
        self.put_u64(vote.node);
        self.put_bool(vote.committed);
    }
}

impl PutFields for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_raw(&mut self, value: &[u8]) {
        self.extend_from_slice(value);
    }
}

/// Reads fields in the order they were put.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed("a field runs past the end of its record"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) =
            self.0.split_first_chunk::<N>().ok_or(Malformed("a field runs past the end of its record"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[value]| value)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a yes-or-no field is neither")),
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()?;
        self.raw(usize::try_from(len).map_err(|_| Malformed("a field is longer than memory"))?)
    }

    pub(crate) fn string(&mut self) -> Result<String, Malformed> {
        let text = str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text field is not UTF-8"))?;
        Ok(text.to_owned())
    }

    pub(crate) fn option<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        if self.bool()? { take(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn position(&mut self) -> Result<LogPosition, Malformed> {
        Ok(LogPosition { term: self.u64()?, node: self.u64()?, index: self.u64()? })
    }

    pub(crate) fn vote(&mut self) -> Result<StoredVote, Malformed> {
        Ok(StoredVote { term: self.u64()?, node: self.u64()?, committed: self.bool()? })
    }

    /// Everything that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// A record has no room for surprises: bytes that nobody reads are an error.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed("a record is longer than its fields")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back_in_order_and_nothing_may_be_left_over() {
        let mut out = Vec::new();
        let position = LogPosition { term: 3, node: 2, index: u64::MAX };
        let vote = StoredVote { term: 9, node: 1, committed: true };
        out.put_u32(7);
        out.put_bytes(b"body");
        out.put_option(Some(position), Vec::put_position);
        out.put_option(None::<u64>, Vec::put_u64);
        out.put_vote(vote);
        let mut fields = Fields(&out);
        assert_eq!(fields.u32(), Ok(7));
        assert_eq!(fields.bytes(), Ok(&b"body"[..]));
        assert_eq!(fields.option(Fields::position), Ok(Some(position)));
        assert_eq!(fields.option(Fields::u64), Ok(None));
        assert!(fields.end().is_err());
        assert_eq!(fields.vote(), Ok(vote));
        assert_eq!(fields.end(), Ok(()));
    }

    #[test]
    fn a_length_that_runs_past_the_record_is_refused_without_allocating_it() {
        let mut out = Vec::new();
        out.put_u32(u32::MAX);
        assert!(Fields(&out).bytes().is_err());
        assert!(Fields(&[2]).bool().is_err());
        assert!(Fields(&[1, 0, 0, 0, 0xff]).string().is_err());
    }
}

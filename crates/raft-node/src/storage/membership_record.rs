//! The members of the group as they stand on disk, in log entries and snapshots.
//!
//! Written out by hand, with a format number, because openraft's own encoding changes between its versions:
//!
//! ```text
//! u8 format = 1
//! u32 voter sets, each: u32 ids, each: u64
//! u32 members, each: u64 id, u32 length and bytes of the name, u32 length and bytes of the address
//! ```
//!
//! All numbers little-endian.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::errors::Malformed;
use crate::types::{Member, Membership};

const FORMAT: u8 = 1;

pub(crate) fn encode(membership: &Membership) -> Bytes {
    let mut out = vec![FORMAT];
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
    out.extend(count(membership.get_joint_config().len()));
    for voters in membership.get_joint_config() {
        out.extend(count(voters.len()));
        for id in voters {
            out.extend(id.to_le_bytes());
        }
    }
    out.extend(count(membership.nodes().count()));
    for (id, member) in membership.nodes() {
        out.extend(id.to_le_bytes());
        for text in [&member.name, &member.address] {
            out.extend(count(text.len()));
            out.extend(text.as_bytes());
        }
    }
    Bytes::from(out)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Membership, Malformed> {
    let mut rest = Rest(bytes);
    let [format] = rest.take()?;
    if format != FORMAT {
        return Err(Malformed::wrong("membership", format!("format {format} is not known to this version")));
    }
    let mut voters = Vec::new();
    for _ in 0..rest.count()? {
        let mut set = BTreeSet::new();
        for _ in 0..rest.count()? {
            set.insert(rest.id()?);
        }
        voters.push(set);
    }
    let mut members = BTreeMap::new();
    for _ in 0..rest.count()? {
        let id = rest.id()?;
        members.insert(id, Member { name: rest.text()?, address: rest.text()? });
    }
    if !rest.0.is_empty() {
        return Err(Malformed::wrong("membership", format!("{} bytes too many", rest.0.len())));
    }
    checked(voters, members)
}

/// The membership, if every voter is a member and no voter set is empty. openraft takes both for granted.
pub(crate) fn checked(voters: Vec<BTreeSet<u64>>, members: BTreeMap<u64, Member>) -> Result<Membership, Malformed> {
    // Nobody at all is what a state before the first entry has.
    if !(voters.is_empty() && members.is_empty()) && voters.iter().any(BTreeSet::is_empty) {
        return Err(Malformed::wrong("membership", "a voter set is empty"));
    }
    Membership::new(voters, members).map_err(|error| Malformed::wrong("membership", error.to_string()))
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) =
            self.0.split_first_chunk().ok_or_else(|| Malformed::wrong("membership", "ends too early"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn count(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn id(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn text(&mut self) -> Result<String, Malformed> {
        let length = self.count()? as usize;
        let (text, rest) =
            self.0.split_at_checked(length).ok_or_else(|| Malformed::wrong("membership", "ends too early"))?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|error| Malformed::wrong("membership", error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(voters: &[&[u64]], members: &[u64]) -> Membership {
        let voters = voters.iter().map(|set| set.iter().copied().collect()).collect();
        let member = |id: &u64| (*id, Member { name: format!("n{id}"), address: format!("host-{id}:7000") });
        Membership::new(voters, members.iter().map(member).collect::<BTreeMap<_, _>>()).unwrap()
    }

    #[test]
    fn it_reads_back_what_it_wrote() {
        for membership in [
            Membership::default(),
            membership(&[&[1]], &[1]),
            membership(&[&[1, 2, 3]], &[1, 2, 3, 4]),
            membership(&[&[1, 2, 3], &[2, 3, 4]], &[1, 2, 3, 4]),
        ] {
            assert_eq!(decode(&encode(&membership)).unwrap(), membership);
        }
    }

    #[test]
    fn the_bytes_of_format_1_never_change() {
        let bytes = encode(&membership(&[&[1, 2]], &[1, 2]));
        let expected = b"\x01\x01\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\
            \x02\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0n1\x0b\0\0\0host-1:7000\
            \x02\0\0\0\0\0\0\0\x02\0\0\0n2\x0b\0\0\0host-2:7000";
        assert_eq!(&bytes[..], &expected[..]);
    }

    #[test]
    fn damaged_bytes_are_an_error_and_never_a_panic() {
        let whole = encode(&membership(&[&[1, 2, 3], &[2, 3, 4]], &[1, 2, 3, 4]));
        for length in 0..whole.len() {
            assert!(decode(&whole[..length]).is_err(), "the first {length} bytes");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.to_vec();
            damaged[at] ^= 0xff;
            let _ = decode(&damaged);
        }
        let mut longer = whole.to_vec();
        longer.push(0);
        assert!(decode(&longer).is_err());
        assert!(decode(&[2, 0, 0, 0, 0, 0, 0, 0, 0]).is_err(), "another format");
    }

    #[test]
    fn a_voter_that_is_no_member_is_refused() {
        let bytes = encode(&membership(&[&[1, 2]], &[1, 2]));
        let mut damaged = bytes.to_vec();
        // The second voter's id.
        damaged[17] = 9;
        assert!(decode(&damaged).is_err());
    }
}

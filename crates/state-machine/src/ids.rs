//! What things are called: every identity in the state machine is a type of its own.
//!
//! Ids are allocated from the log (an entry's things are index and ordinal), never drawn at random: every node must
//! give the same thing the same id. The one id that comes from outside is [`RequestId`], which a client makes.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Time;
use crate::index::Spread;

/// The position of an entry in the replicated log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LogIndex(pub u64);

impl fmt::Display for LogIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The very event that made a thing what it is: the index of its entry, and its place among that entry's events.
///
/// This is a resource's etag. It names one event in the journal, so an etag also says who changed the resource last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Revision {
    pub index: LogIndex,
    pub ordinal: u32,
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.ordinal)
    }
}

impl FromStr for Revision {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (index, ordinal) =
            index_and_ordinal(text).ok_or_else(|| ParseIdError::new("revision", text, "INDEX.ORDINAL, as in 412.3"))?;
        Ok(Self { index, ordinal })
    }
}

/// A cluster for as long as it lives; it survives a rename and is never given to another cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId {
    pub index: LogIndex,
    pub ordinal: u32,
}

impl Spread for ClusterId {
    fn spread(&self) -> u64 {
        // Ids follow each other closely; the multiplication carries every bit upwards, the shift brings it down again.
        let mixed = (self.index.0 ^ u64::from(self.ordinal).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    }
}

impl From<Revision> for ClusterId {
    fn from(revision: Revision) -> Self {
        Self { index: revision.index, ordinal: revision.ordinal }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}.{}", self.index, self.ordinal)
    }
}

impl FromStr for ClusterId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (index, ordinal) = text
            .strip_prefix('c')
            .and_then(index_and_ordinal)
            .ok_or_else(|| ParseIdError::new("cluster id", text, "cINDEX.ORDINAL, as in c412.3"))?;
        Ok(Self { index, ordinal })
    }
}

/// Only the form that `Display` writes: an etag with a leading zero or plus would be a second spelling of the same one.
fn index_and_ordinal(text: &str) -> Option<(LogIndex, u32)> {
    let (index, ordinal) = text.split_once('.')?;
    Some((LogIndex(digits(index)?), u32::try_from(digits(ordinal)?).ok()?))
}

fn digits(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    (canonical && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// One of our own nodes. Numbers are counted up and never used twice, not even after a node was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeNumber(pub u64);

impl fmt::Display for NodeNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What a client calls one request, so that a retry is not taken for a second request: a UUID version 7, whose
/// first 48 bits are the time at which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u128);

impl RequestId {
    /// When the client made it, by the client's clock.
    pub fn time(self) -> Time {
        // 48 bits remain after the shift, so the conversion cannot fail.
        Time::from_millis(u64::try_from(self.0 >> 80).unwrap_or(u64::MAX))
    }

    /// Every id made at `time` or later is at least this, and every earlier one is less. It is itself no id.
    pub(crate) fn lowest_at(time: Time) -> Self {
        const MILLIS_MAX: u64 = (1 << 48) - 1;
        Self(u128::from(time.as_millis().min(MILLIS_MAX)) << 80)
    }

    pub fn is_v7(self) -> bool {
        let version = (self.0 >> 76) & 0xf;
        let variant = (self.0 >> 62) & 0b11;
        version == 7 && variant == 0b10
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

impl FromStr for RequestId {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdError::new("request id", text, "a UUID, as in 01932c07-20ab-7cc4-9c0a-3f2e5a6b7c8d");
        let hyphens = text.len() == 36 && [8, 13, 18, 23].iter().all(|&at| text.as_bytes()[at] == b'-');
        let hex: String = text.chars().filter(|&c| c != '-').collect();
        if !hyphens || hex.len() != 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        u128::from_str_radix(&hex, 16).map(Self).map_err(|_| wrong())
    }
}

/// A blake3 hash.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Hash {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseIdError::new("hash", text, "64 hexadecimal digits");
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut hash = [0; 32];
        for (at, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(hash))
    }
}

/// Which rules `apply` derives by. Any change to what it derives waits until every node knows the new rules and a
/// command has raised the version, so that nodes of different releases agree and an old log replays to the same hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RulesVersion(pub u32);

impl fmt::Display for RulesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One leadership, as the outside world must see it: which life of the group, and the index at which the leader was
/// announced. Later leaderships compare greater, so a backend refuses whatever carries a lower one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch {
    pub incarnation: u64,
    pub index: LogIndex,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.incarnation, self.index)
    }
}

/// Who asked, by which way it reached us, and how that is known. A clone is one counter: each of many requests has one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Actor(Arc<ActorParts>);

/// What an [`Actor`] consists of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActorParts {
    pub name: String,
    /// Where the request came from, for the audit only: a retry may come by another way and is still the same request.
    pub source: String,
    pub proof: Proof,
}

impl Deref for Actor {
    type Target = ActorParts;

    fn deref(&self) -> &ActorParts {
        &self.0
    }
}

impl Actor {
    /// Somebody who says that this is their name.
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Self {
        Self(Arc::new(ActorParts { name: name.into(), source: source.into(), proof: Proof::Said }))
    }

    /// One of our own nodes, about its duties.
    pub fn node(name: impl Into<String>, source: impl Into<String>) -> Self {
        Self::new(name, source).proven(Proof::Node)
    }

    #[must_use]
    pub fn proven(mut self, proof: Proof) -> Self {
        Arc::make_mut(&mut self.0).proof = proof;
        self
    }
}

/// How it is known that somebody is who they say. New ways go at the end: the place is the number in the log.
///
/// Only the edge that has seen the proof says so, and only a node of the group can put it into the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Proof {
    /// It is not known. Good enough only as long as nobody can log in.
    #[default]
    Said,
    /// It is one of our own nodes.
    Node,
    /// The caller is on the machine of a node that was told to trust its own machine, as in `loadline dev`. Under a name that
    /// is no role's it may do everything.
    Machine,
    /// The password of the role of this name.
    Password,
    /// The token of this id, which must still be one of the role of this name.
    Token(String),
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_str() {
            "" => f.write_str(&self.name),
            source => write!(f, "{} ({source})", self.name),
        }
    }
}

/// The text is not an id of this type.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not {} {what}: expected {expected}", article(.what))]
pub struct ParseIdError {
    pub what: &'static str,
    pub text: String,
    pub expected: &'static str,
}

fn article(what: &str) -> &'static str {
    if what.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

impl ParseIdError {
    pub(crate) fn new(what: &'static str, text: &str, expected: &'static str) -> Self {
        Self { what, text: text.to_owned(), expected }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_read_back_as_it_was_written_and_in_no_other_spelling() {
        let revision = Revision { index: LogIndex(412), ordinal: 3 };
        assert_eq!(revision.to_string(), "412.3");
        assert_eq!("412.3".parse(), Ok(revision));
        for wrong in
            ["", "412", "412.", ".3", "412.3.1", "+412.3", "0412.3", "412.03", "412.4294967296", "a.b", "412.-3"]
        {
            assert!(wrong.parse::<Revision>().is_err(), "{wrong:?} must not be a revision");
        }
        assert_eq!("0.0".parse(), Ok(Revision::default()));
    }

    #[test]
    fn a_cluster_id_is_not_taken_for_a_revision_nor_the_other_way_round() {
        assert_eq!("c412.3".parse(), Ok(ClusterId { index: LogIndex(412), ordinal: 3 }));
        assert!("412.3".parse::<ClusterId>().is_err());
        assert!("c412.3".parse::<Revision>().is_err());
    }

    #[test]
    fn a_request_id_knows_its_time_and_version() {
        let id: RequestId = "01932c07-20ab-7cc4-9c0a-3f2e5a6b7c8d".parse().unwrap();
        assert!(id.is_v7());
        assert_eq!(id.time(), Time::from_millis(0x0193_2c07_20ab));
        assert_eq!(id.to_string(), "01932c07-20ab-7cc4-9c0a-3f2e5a6b7c8d");
        let v4: RequestId = "01932c07-20ab-4cc4-9c0a-3f2e5a6b7c8d".parse().unwrap();
        assert!(!v4.is_v7());
        let other_variant: RequestId = "01932c07-20ab-7cc4-dc0a-3f2e5a6b7c8d".parse().unwrap();
        assert!(!other_variant.is_v7());
    }

    #[test]
    fn text_that_is_not_a_uuid_is_refused_whatever_its_length() {
        for wrong in [
            "",
            "01932c0720ab7cc49c0a3f2e5a6b7c8d",
            "01932c07-20ab-7cc4-9c0a-3f2e5a6b7c8",
            "01932c07-20ab-7cc4-9c0a-3f2e5a6b7c8g",
            "01932c07-20ab-7cc4-9c0a+3f2e5a6b7c8d",
            "éééééééé-éé-éé-éé-éé",
        ] {
            assert!(wrong.parse::<RequestId>().is_err(), "{wrong:?} must not be a request id");
        }
    }

    #[test]
    fn a_hash_is_read_back_as_it_was_written() {
        let hash = Hash::of(b"loadline");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert!("abc".parse::<Hash>().is_err());
        assert!("é".repeat(32).parse::<Hash>().is_err());
    }

    #[test]
    fn a_later_leadership_compares_greater_and_a_new_incarnation_beats_any_index() {
        let first = Epoch { incarnation: 1, index: LogIndex(900) };
        assert!(Epoch { incarnation: 1, index: LogIndex(901) } > first);
        assert!(Epoch { incarnation: 2, index: LogIndex(1) } > first);
    }
}

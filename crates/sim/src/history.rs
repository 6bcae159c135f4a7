//! What users asked and what they were told. The oracle of a client has three answers: done, not done, and nobody knows;
//! and what nobody knows stays so.

use loadline_client::v1::Resource;
use loadline_client::{Error, Refusal};

/// One call of a user. `tag` is the actor under which it is recorded, and no other call has it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub tag: String,
    pub what: Ask,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// A change, in words.
    Write(String),
    /// A linearizable read of "kind/name".
    Read(String),
    /// A report of signals: collector and sequence.
    Report(String, u64),
}

#[derive(Debug, Clone)]
pub struct Answered {
    pub tag: String,
    pub answer: Told,
}

#[derive(Debug, Clone)]
pub enum Told {
    /// Recorded at this index; `repeated` if the answer was that of an earlier attempt.
    Done { index: u64, repeated: bool },
    /// Read at this index; nothing if there is nothing of that name.
    Found { index: u64, resource: Option<Box<Resource>> },
    /// The group decided against it.
    Refused(Box<Refusal>),
    /// It was surely not recorded.
    NotDone(String),
    /// It may have been recorded, or not.
    Unknown(String),
}

impl Told {
    pub fn failed(error: Error) -> Told {
        if error.maybe_done() {
            return Told::Unknown(error.to_string());
        }
        match error {
            Error::Refused(refusal) => Told::Refused(refusal),
            other => Told::NotDone(other.to_string()),
        }
    }
}

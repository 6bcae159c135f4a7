//! What goes into the replicated log: an entry of requests, sealed into the bytes that every node stores and hashes.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::configured::commands::check_proposal;
use crate::encoding::{Decoder, Encoder};
use crate::{Actor, Command, DecodeError, Hash, Proof, RULES_VERSION_MAX, Refused, Rejection, RequestId, Time};

const ENTRY_FORMAT: u16 = 1;
const REQUEST_FORMAT: u16 = 1;

/// One entry of the log: whatever was waiting when the leader packed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The leader's logical time. Applying never takes it back, even if a leader does.
    pub stamped_at: Time,
    pub requests: Vec<Request>,
}

/// What one caller asked for. Several commands are a transaction: all of them at one index, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub actor: Actor,
    /// Without one, a retry is a second request. Only what may safely happen twice (a tick) goes without.
    pub request_id: Option<RequestId>,
    pub commands: Vec<Command>,
}

impl Request {
    /// Checks what must be known before the request may enter the log at all.
    ///
    /// A refusal inside `apply` must come out the same on every node. A node that does not know the rules it is told to
    /// derive by cannot refuse, it has to stop, so a leader must not let such a command in.
    pub fn proposable(&self) -> Result<(), Refused> {
        for (ordinal, command) in (0..).zip(&self.commands) {
            if let Command::RaiseRules { to } = command
                && *to > RULES_VERSION_MAX
            {
                return Err(Refused {
                    ordinal,
                    rejection: Rejection::RulesUnknown { to: *to, known: RULES_VERSION_MAX },
                });
            }
            // A secret that gets into the log is in every copy of it for ever.
            check_proposal(command).map_err(|rejection| Refused { ordinal, rejection })?;
        }
        Ok(())
    }

    /// What makes a retry the same request: who asks and for what, but not by which way it came.
    pub(crate) fn payload_hash(&self) -> Hash {
        let mut out = Encoder::bare();
        out.put(&self.actor.name);
        for command in &self.commands {
            command.write(&mut out);
        }
        Hash::of(&out.into_bytes())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::with_format(REQUEST_FORMAT);
        self.write(&mut out);
        out.into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::with_format("request", REQUEST_FORMAT, bytes)?;
        let request = Self::read(&mut from, None)?;
        from.finish()?;
        Ok(request)
    }

    fn write(&self, out: &mut Encoder) {
        out.put(&self.actor.name);
        out.put(&self.actor.source);
        out.put(&Stamp::of(&self.actor.proof, self.request_id));
        out.put(&self.commands.len());
        for command in &self.commands {
            command.write(out);
        }
    }

    /// `last` is who asked for what came before. Often it is the same one, who then need not be made again.
    fn read(from: &mut Decoder<'_>, last: Option<&Actor>) -> Result<Self, DecodeError> {
        let (name, source) = (from.take::<&str>()?, from.take::<&str>()?);
        let (proof, request_id) = from.take::<Stamp>()?.parts();
        let actor = match last {
            Some(last) if (name, source, &proof) == (&last.name, &last.source, &last.proof) => last.clone(),
            _ => Actor::new(name, source).proven(proof),
        };
        let commands = (0..from.take::<usize>()?).map(|_| Command::read(from)).collect::<Result<_, _>>()?;
        Ok(Self { actor, request_id, commands })
    }
}

/// The request id and how it is known who asked, as they are written. The first two are the bytes of the optional id that
/// there was before anybody could log in.
#[derive(Serialize, Deserialize)]
enum Stamp {
    Said,
    SaidOnce(RequestId),
    Proven(Proof),
    ProvenOnce(Proof, RequestId),
}

impl Stamp {
    fn of(proof: &Proof, request_id: Option<RequestId>) -> Self {
        match (proof, request_id) {
            (Proof::Said, None) => Self::Said,
            (Proof::Said, Some(id)) => Self::SaidOnce(id),
            (proof, None) => Self::Proven(proof.clone()),
            (proof, Some(id)) => Self::ProvenOnce(proof.clone(), id),
        }
    }

    fn parts(self) -> (Proof, Option<RequestId>) {
        match self {
            Self::Said => (Proof::Said, None),
            Self::SaidOnce(id) => (Proof::Said, Some(id)),
            Self::Proven(proof) => (proof, None),
            Self::ProvenOnce(proof, id) => (proof, Some(id)),
        }
    }
}

/// An entry with its bytes. They are made once, by the leader that packed it; every other node stores, sends and hashes
/// the bytes it was given, so that nobody's encoder can make a difference.
#[derive(Clone, PartialEq, Eq)]
pub struct Sealed {
    entry: Arc<Entry>,
    bytes: Arc<[u8]>,
}

/// Without the bytes: they say the same, and among them is what is never shown of a credential.
impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.fmt(f)
    }
}

impl Sealed {
    /// The leader must have asked [`Request::proposable`] about every request before.
    pub fn seal(entry: Entry) -> Self {
        let mut out = Encoder::with_format(ENTRY_FORMAT);
        out.put(&entry.stamped_at);
        out.put(&entry.requests.len());
        for request in &entry.requests {
            request.write(&mut out);
        }
        Self { entry: Arc::new(entry), bytes: out.into_bytes().into() }
    }

    /// As [`Sealed::seal`], of requests that come with what [`Request::encode`] made of them: nothing is encoded twice.
    pub fn seal_encoded<B: AsRef<[u8]>>(stamped_at: Time, requests: Vec<(Request, B)>) -> Self {
        let mut out = Encoder::with_format(ENTRY_FORMAT);
        out.expect(requests.iter().map(|(_, encoded)| encoded.as_ref().len()).sum());
        out.put(&stamped_at);
        out.put(&requests.len());
        let mut entry = Entry { stamped_at, requests: Vec::with_capacity(requests.len()) };
        for (request, encoded) in requests {
            // An entry has a format of its own, and says it once for all of them.
            let (_format, body) = encoded.as_ref().split_at(size_of_val(&REQUEST_FORMAT));
            out.put_encoded(body);
            entry.requests.push(request);
        }
        Self { entry: Arc::new(entry), bytes: out.into_bytes().into() }
    }

    pub fn open(bytes: impl Into<Arc<[u8]>>) -> Result<Self, DecodeError> {
        let bytes = bytes.into();
        let mut from = Decoder::with_format("entry", ENTRY_FORMAT, &bytes)?;
        let stamped_at = from.take()?;
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..from.take::<usize>()? {
            let request = Request::read(&mut from, requests.last().map(|last| &last.actor))?;
            requests.push(request);
        }
        from.finish()?;
        for request in &requests {
            if let Err(Refused { rejection: Rejection::RulesUnknown { to, known }, .. }) = request.proposable() {
                return Err(DecodeError::RulesTooNew { to: to.0, known: known.0 });
            }
        }
        Ok(Self { entry: Arc::new(Entry { stamped_at, requests }), bytes })
    }

    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    pub fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_requests_that_are_encoded_already_has_the_bytes_of_one_that_is_encoded_as_a_whole() {
        let id = RequestId(0x0190_0000_0000_7000_8000_0000_0000_0001);
        let create = |name: &str| Command::CreateCluster { name: name.to_owned() };
        let request = |request_id, commands| Request { actor: Actor::new("alice", "test"), request_id, commands };
        let requests = vec![
            request(None, vec![Command::Tick]),
            request(Some(id), vec![create("a"), create("b")]),
            request(None, vec![]),
        ];
        for requests in [vec![], requests] {
            let stamped_at = Time::from_millis(1_800_000_000_000);
            let encoded = requests.iter().map(|request| (request.clone(), request.encode())).collect();
            assert_eq!(Sealed::seal_encoded(stamped_at, encoded), Sealed::seal(Entry { stamped_at, requests }));
        }
    }
}

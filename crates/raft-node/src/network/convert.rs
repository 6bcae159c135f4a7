//! Between openraft's messages and the ones on the wire.
//!
//! Everything that comes in is checked here, before anything acts on it: openraft takes its own invariants for
//! granted and would panic, or write what makes no sense.

use std::collections::BTreeMap;

use bytes::Bytes;
use loadline_api::raft as wire;
use loadline_state_machine::Sealed;
use openraft::raft::StreamAppendError;

use crate::errors::Malformed;
use crate::packed::Packed;
use crate::storage::membership_record;
use crate::types::{
    AppendEntriesRequest, Entry, EntryPayload, LogId, Member, Membership, Payload, SnapshotMeta, StoredMembership,
    StreamAppendResult, TransferLeaderRequest, Vote, VoteRequest, VoteResponse, new_log_id, new_vote, term,
};

pub(crate) fn log_id_out(log_id: &LogId) -> wire::LogId {
    wire::LogId { term: term(log_id), index: log_id.index() }
}

pub(crate) fn log_id_in(log_id: wire::LogId) -> Result<LogId, Malformed> {
    check_number("term", log_id.term)?;
    check_number("index", log_id.index)?;
    Ok(new_log_id(log_id.term, log_id.index))
}

/// No group lives long enough to count this far, and openraft adds to these numbers without looking.
fn check_number(what: &'static str, number: u64) -> Result<(), Malformed> {
    const NUMBER_MAX: u64 = 1 << 62;
    if number > NUMBER_MAX {
        return Err(Malformed::wrong(what, format!("{number} is beyond every count")));
    }
    Ok(())
}

pub(crate) fn vote_out(vote: &Vote) -> wire::Vote {
    wire::Vote { term: vote.leader_id.term, node_id: vote.leader_id.voted_for, committed: vote.committed }
}

pub(crate) fn vote_in(vote: Option<wire::Vote>) -> Result<Vote, Malformed> {
    let vote = vote.ok_or(Malformed::Missing("vote"))?;
    check_number("term", vote.term)?;
    Ok(new_vote(vote.term, vote.node_id, vote.committed))
}

pub(crate) fn peer_out(id: u64, member: &Member) -> wire::Peer {
    wire::Peer { id, name: member.name.clone(), address: member.address.clone() }
}

pub(crate) fn membership_out(membership: &Membership) -> wire::Membership {
    let voter_set = |ids: &std::collections::BTreeSet<u64>| wire::VoterSet { ids: ids.iter().copied().collect() };
    wire::Membership {
        configs: membership.get_joint_config().iter().map(voter_set).collect(),
        peers: membership.nodes().map(|(id, member)| peer_out(*id, member)).collect(),
    }
}

pub(crate) fn membership_in(membership: wire::Membership) -> Result<Membership, Malformed> {
    let voters = membership.configs.into_iter().map(|set| set.ids.into_iter().collect()).collect();
    let members: BTreeMap<u64, Member> =
        membership.peers.into_iter().map(|peer| (peer.id, Member { name: peer.name, address: peer.address })).collect();
    membership_record::checked(voters, members)
}

fn entry_out(entry: Entry) -> wire::LogEntry {
    let payload = match entry.payload {
        EntryPayload::Blank => wire::log_entry::Payload::Blank(true),
        EntryPayload::Normal(Payload(bytes)) => wire::log_entry::Payload::Normal(bytes),
        EntryPayload::Membership(membership) => wire::log_entry::Payload::Membership(membership_out(&membership)),
    };
    wire::LogEntry { log_id: Some(log_id_out(&entry.log_id)), payload: Some(payload) }
}

fn entry_in(entry: wire::LogEntry, packed: &Packed) -> Result<Entry, Malformed> {
    let log_id = log_id_in(entry.log_id.ok_or(Malformed::Missing("log_id of an entry"))?)?;
    let payload = match entry.payload.ok_or(Malformed::Missing("payload of an entry"))? {
        wire::log_entry::Payload::Blank(_) => EntryPayload::Blank,
        wire::log_entry::Payload::Membership(membership) => EntryPayload::Membership(membership_in(membership)?),
        wire::log_entry::Payload::Normal(bytes) => {
            match Sealed::open(&bytes[..]) {
                Ok(sealed) => {
                    let bytes = Bytes::from_owner(sealed.bytes().clone());
                    packed.keep(sealed);
                    EntryPayload::Normal(Payload(bytes))
                }
                // What a newer version wrote is intact, so it may be kept and acknowledged. Applying it is another
                // matter: there this node stops.
                Err(error) if error.is_newer() => EntryPayload::Normal(Payload(bytes)),
                Err(source) => return Err(Malformed::Entry { index: log_id.index(), source }),
            }
        }
    };
    Ok(Entry { log_id, payload })
}

pub(crate) fn append_out(request: AppendEntriesRequest, envelope: wire::Envelope) -> wire::AppendRequest {
    wire::AppendRequest {
        envelope: Some(envelope),
        vote: Some(vote_out(&request.vote)),
        prev_log_id: request.prev_log_id.as_ref().map(log_id_out),
        entries: request.entries.into_iter().map(entry_out).collect(),
        leader_commit: request.leader_commit.as_ref().map(log_id_out),
    }
}

/// The request, without its envelope, which the service has looked at. Entries are taken apart here; `packed` has them for whoever
/// applies them.
pub(crate) fn append_in(
    request: wire::AppendRequest,
    from: u64,
    packed: &Packed,
) -> Result<AppendEntriesRequest, Malformed> {
    let vote = vote_in(request.vote)?;
    if !vote.committed || vote.leader_id.voted_for != from {
        return Err(Malformed::wrong("vote", format!("node {from} cannot append for {vote}")));
    }
    let prev_log_id = request.prev_log_id.map(log_id_in).transpose()?;
    let entries = request.entries.into_iter().map(|entry| entry_in(entry, packed)).collect::<Result<Vec<_>, _>>()?;
    let mut before = prev_log_id;
    for entry in &entries {
        let expected = before.map_or(0, |log_id| log_id.index() + 1);
        if entry.log_id.index() != expected {
            return Err(Malformed::wrong("entries", format!("{} where {expected} must follow", entry.log_id.index())));
        }
        let of_term = term(&entry.log_id);
        if before.is_some_and(|log_id| of_term < term(&log_id)) || of_term > vote.leader_id.term {
            return Err(Malformed::wrong("entries", format!("entry {} is out of its term", entry.log_id)));
        }
        before = Some(entry.log_id);
    }
    let leader_commit = request.leader_commit.map(log_id_in).transpose()?;
    Ok(AppendEntriesRequest { vote, prev_log_id, entries, leader_commit })
}

pub(crate) fn append_result_out(result: &StreamAppendResult) -> wire::AppendResponse {
    use wire::append_response::Result as Out;
    let result = match result {
        Ok(matching) => Out::Success(wire::AppendSuccess { matching: matching.as_ref().map(log_id_out) }),
        Err(StreamAppendError::Conflict(log_id)) => Out::Conflict(log_id_out(log_id)),
        Err(StreamAppendError::HigherVote(vote)) => Out::HigherVote(vote_out(vote)),
    };
    wire::AppendResponse { result: Some(result) }
}

pub(crate) fn append_result_in(response: wire::AppendResponse) -> Result<StreamAppendResult, Malformed> {
    use wire::append_response::Result as In;
    Ok(match response.result.ok_or(Malformed::Missing("result of an append"))? {
        In::Success(success) => Ok(success.matching.map(log_id_in).transpose()?),
        In::Conflict(log_id) => Err(StreamAppendError::Conflict(log_id_in(log_id)?)),
        In::HigherVote(vote) => Err(StreamAppendError::HigherVote(vote_in(Some(vote))?)),
    })
}

pub(crate) fn vote_request_out(request: &VoteRequest, envelope: wire::Envelope) -> wire::VoteRequest {
    wire::VoteRequest {
        envelope: Some(envelope),
        vote: Some(vote_out(&request.vote)),
        last_log_id: request.last_log_id.as_ref().map(log_id_out),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(crate) fn vote_request_in(request: &wire::VoteRequest, from: u64) -> Result<VoteRequest, Malformed> {
    let vote = vote_in(request.vote)?;
    if vote.committed || vote.leader_id.voted_for != from {
        return Err(Malformed::wrong("vote", format!("node {from} cannot ask for votes for {vote}")));
    }
    let mut asked = VoteRequest::new(vote, request.last_log_id.map(log_id_in).transpose()?);
    asked.leadership_transfer = request.leadership_transfer;
    Ok(asked)
}

pub(crate) fn vote_response_out(response: &VoteResponse) -> wire::VoteResponse {
    wire::VoteResponse {
        vote: Some(vote_out(&response.vote)),
        granted: response.vote_granted,
        last_log_id: response.last_log_id.as_ref().map(log_id_out),
    }
}

pub(crate) fn vote_response_in(response: wire::VoteResponse) -> Result<VoteResponse, Malformed> {
    let vote = vote_in(response.vote)?;
    Ok(VoteResponse::new(vote, response.last_log_id.map(log_id_in).transpose()?, response.granted))
}

pub(crate) fn transfer_out(request: &TransferLeaderRequest, envelope: wire::Envelope) -> wire::TransferLeaderRequest {
    wire::TransferLeaderRequest {
        envelope: Some(envelope),
        from: Some(vote_out(request.from_leader())),
        to_node: *request.to_node_id(),
        last_log_id: request.last_log_id().map(log_id_out),
    }
}

pub(crate) fn transfer_in(
    request: &wire::TransferLeaderRequest,
    from: u64,
) -> Result<TransferLeaderRequest, Malformed> {
    let vote = vote_in(request.from)?;
    if !vote.committed || vote.leader_id.voted_for != from {
        return Err(Malformed::wrong("from", format!("node {from} cannot hand over the leadership of {vote}")));
    }
    Ok(TransferLeaderRequest::new(vote, request.to_node, request.last_log_id.map(log_id_in).transpose()?))
}

pub(crate) fn snapshot_meta_out(meta: &SnapshotMeta) -> wire::SnapshotMeta {
    wire::SnapshotMeta {
        last_log_id: meta.last_log_id.as_ref().map(log_id_out),
        membership_log_id: meta.last_membership.log_id().as_ref().map(log_id_out),
        membership: Some(membership_out(meta.last_membership.membership())),
        id: String::new(),
    }
}

pub(crate) fn snapshot_meta_in(meta: wire::SnapshotMeta) -> Result<SnapshotMeta, Malformed> {
    let membership = membership_in(meta.membership.ok_or(Malformed::Missing("membership of a snapshot"))?)?;
    Ok(SnapshotMeta {
        last_log_id: Some(log_id_in(meta.last_log_id.ok_or(Malformed::Missing("last_log_id of a snapshot"))?)?),
        last_membership: StoredMembership::new(meta.membership_log_id.map(log_id_in).transpose()?, membership),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use loadline_state_machine::{Actor, Command, Request, Time};

    use super::*;

    fn id(term: u64, index: u64) -> LogId {
        new_log_id(term, index)
    }

    fn sealed() -> Bytes {
        let request = Request { actor: Actor::new("a", "test"), request_id: None, commands: vec![Command::Tick] };
        let entry = loadline_state_machine::Entry { stamped_at: Time::from_millis(1), requests: vec![request] };
        Bytes::copy_from_slice(Sealed::seal(entry).bytes())
    }

    fn members() -> Membership {
        let member = |id: u64| (id, Member { name: format!("n{id}"), address: format!("h{id}:1") });
        Membership::new(vec![BTreeSet::from([1, 2, 3])], (1..=4).map(member).collect::<BTreeMap<_, _>>()).unwrap()
    }

    fn request() -> AppendEntriesRequest {
        AppendEntriesRequest {
            vote: Vote::new_committed(5, 1),
            prev_log_id: Some(id(4, 10)),
            entries: vec![
                Entry { log_id: id(4, 11), payload: EntryPayload::Blank },
                Entry { log_id: id(5, 12), payload: EntryPayload::Normal(Payload(sealed())) },
                Entry { log_id: id(5, 13), payload: EntryPayload::Membership(members()) },
            ],
            leader_commit: Some(id(4, 11)),
        }
    }

    #[test]
    fn an_append_arrives_as_it_was_sent() {
        let sent = request();
        let packed = Packed::default();
        let arrived = append_in(append_out(request(), wire::Envelope::default()), 1, &packed).unwrap();
        let EntryPayload::Normal(Payload(bytes)) = &arrived.entries[1].payload else { panic!("{arrived:?}") };
        assert_eq!(packed.take(bytes).map(|it| it.bytes().to_vec()), Some(sealed().to_vec()), "it is taken apart once");
        assert_eq!((arrived.vote, arrived.prev_log_id), (sent.vote, sent.prev_log_id));
        assert_eq!((arrived.entries, arrived.leader_commit), (sent.entries, sent.leader_commit));
    }

    fn check_refused(damage: impl FnOnce(&mut wire::AppendRequest), expected: &str) {
        let mut message = append_out(request(), wire::Envelope::default());
        damage(&mut message);
        let error = append_in(message, 1, &Packed::default()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error:?} does not contain {expected:?}");
    }

    #[test]
    fn an_append_that_makes_no_sense_is_refused() {
        check_refused(|message| message.vote = None, "vote is missing");
        check_refused(|message| message.vote.as_mut().unwrap().committed = false, "cannot append");
        check_refused(|message| message.vote.as_mut().unwrap().node_id = 2, "cannot append");
        check_refused(|message| message.entries[1].log_id = None, "log_id of an entry is missing");
        check_refused(|message| message.entries[1].payload = None, "payload of an entry is missing");
        check_refused(|message| message.entries[1].log_id.as_mut().unwrap().index = 15, "15 where 12 must follow");
        check_refused(|message| message.prev_log_id = None, "11 where 0 must follow");
        check_refused(|message| message.vote.as_mut().unwrap().term = u64::MAX, "beyond every count");
        check_refused(|message| message.prev_log_id.as_mut().unwrap().index = u64::MAX, "beyond every count");
        check_refused(|message| message.entries[2].log_id.as_mut().unwrap().term = 3, "out of its term");
        check_refused(|message| message.entries[2].log_id.as_mut().unwrap().term = 6, "out of its term");
        check_refused(
            |message| message.entries[1].payload = Some(wire::log_entry::Payload::Normal(sealed().slice(..8))),
            "entry 12 cannot be read",
        );
        check_refused(
            |message| {
                let mut members = membership_out(&members());
                members.configs[0].ids.push(9);
                message.entries[2].payload = Some(wire::log_entry::Payload::Membership(members));
            },
            "membership",
        );
    }

    #[test]
    fn an_entry_of_a_newer_version_is_kept_as_it_is() {
        let mut newer = sealed().to_vec();
        newer[0] = 0xff;
        let mut message = append_out(request(), wire::Envelope::default());
        message.entries[1].payload = Some(wire::log_entry::Payload::Normal(newer.clone().into()));
        let arrived = append_in(message, 1, &Packed::default()).unwrap();
        assert_eq!(arrived.entries[1].payload, EntryPayload::Normal(Payload(newer.into())));
    }

    #[test]
    fn answers_to_an_append_arrive_as_they_were_sent() {
        for result in [
            Ok(None),
            Ok(Some(id(5, 13))),
            Err(StreamAppendError::Conflict(id(4, 10))),
            Err(StreamAppendError::HigherVote(Vote::new(9, 3))),
        ] {
            assert_eq!(append_result_in(append_result_out(&result)).unwrap(), result);
        }
        assert!(append_result_in(wire::AppendResponse { result: None }).is_err());
    }

    #[test]
    fn a_vote_request_speaks_only_for_its_sender() {
        let mut asked = VoteRequest::new(Vote::new(7, 2), Some(id(5, 13)));
        asked.leadership_transfer = true;
        let message = vote_request_out(&asked, wire::Envelope::default());
        assert_eq!(vote_request_in(&message, 2).unwrap(), asked);
        assert!(vote_request_in(&message, 3).is_err());
        let committed = VoteRequest::new(Vote::new_committed(7, 2), None);
        assert!(vote_request_in(&vote_request_out(&committed, wire::Envelope::default()), 2).is_err());
    }
}

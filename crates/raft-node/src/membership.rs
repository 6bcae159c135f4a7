//! Who belongs to the group: joining, being promoted, being replaced, leaving, and handing leadership over.
//!
//! A new node comes in as a learner under a number that nobody ever had. When it has caught up it becomes a voter by
//! itself, unless a voter has its name or its address: then it stands in for that one, which may be dead or may only
//! be cut off, and only an operator can tell.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use loadline_state_machine::{Answer, Command};
use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{ChangeMembers, Instant as _};
use tokio::time::Instant;

use crate::errors::MembershipError;
use crate::node::{Inner, Running};
use crate::proposer;
use crate::types::{Member, Metrics, StoredMembership, Types};

/// A learner so few entries behind will be level by the time it votes.
const CAUGHT_UP_WITHIN: u64 = 64;
/// How long a change waits for the one before it.
const CHANGE_WAIT: Duration = Duration::from_secs(2);
/// How often the leader looks after the members.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A node of the group, as another sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerView {
    pub id: u64,
    pub name: String,
    pub address: String,
    pub voter: bool,
    pub leader: bool,
    /// The last index that is known to be on its disk; only the leader knows.
    pub matched_index: Option<u64>,
    /// How long ago the leader last heard from it; only the leader knows.
    pub last_heard: Option<Duration>,
}

/// All members, by id.
pub(crate) fn peers(metrics: &Metrics) -> Vec<PeerView> {
    let membership = &metrics.membership_config;
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let view = |(id, member): (&u64, &Member)| {
        let me = *id == metrics.id;
        let matched = metrics.replication.as_ref().and_then(|replication| replication.get(id).copied().flatten());
        let own = || metrics.last_log_index.filter(|_| me && metrics.replication.is_some());
        let heard = metrics.heartbeat.as_ref().and_then(|heard| heard.get(id).copied().flatten());
        PeerView {
            id: *id,
            name: member.name.clone(),
            address: member.address.clone(),
            voter: voters.contains(id),
            leader: metrics.current_leader == Some(*id),
            matched_index: own().or(matched.map(|log_id| log_id.index())),
            last_heard: if me { Some(Duration::ZERO) } else { heard.map(|at| at.elapsed()) },
        }
    };
    membership.nodes().map(view).collect()
}

/// The peer that is meant: by its id, or by a name or address that only one has.
pub(crate) fn find<'a>(peers: &'a [PeerView], asked: &str) -> Result<&'a PeerView, MembershipError> {
    if let Some(peer) = peers.iter().find(|peer| peer.id.to_string() == asked) {
        return Ok(peer);
    }
    let named: Vec<&PeerView> = peers.iter().filter(|peer| peer.name == asked || peer.address == asked).collect();
    match named[..] {
        [peer] => Ok(peer),
        [] => {
            let known: Vec<String> = peers.iter().map(|peer| format!("{} ({})", peer.id, peer.name)).collect();
            Err(MembershipError::NoSuchPeer { asked: asked.to_owned(), known: known.join(", ") })
        }
        _ => {
            let ids = named.iter().map(|peer| peer.id).collect();
            Err(MembershipError::Ambiguous { asked: asked.to_owned(), ids })
        }
    }
}

/// The voter, other than `except`, that has the name or address of `peer`.
fn namesake(peers: &[PeerView], peer: &PeerView, except: Option<u64>) -> Option<u64> {
    peers
        .iter()
        .filter(|other| other.voter && other.id != peer.id && Some(other.id) != except)
        .find(|other| other.name == peer.name || other.address == peer.address)
        .map(|other| other.id)
}

/// Which learners may become voters without anybody being asked.
pub(crate) fn promotable(peers: &[PeerView], last_index: u64) -> Vec<u64> {
    let caught_up =
        |peer: &PeerView| peer.matched_index.is_some_and(|matched| matched + CAUGHT_UP_WITHIN >= last_index);
    let mut taken: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut promoted = Vec::new();
    for peer in peers.iter().filter(|peer| !peer.voter && caught_up(peer) && namesake(peers, peer, None).is_none()) {
        // Two of one name would be voters that nobody can tell apart. One goes first; the other is then an operator's case.
        let alone = !taken.iter().any(|(name, address)| *name == peer.name || *address == peer.address);
        taken.insert((&peer.name, &peer.address));
        if alone {
            promoted.push(peer.id);
        }
    }
    promoted
}

impl Inner {
    fn leading(&self) -> Result<(Arc<Running>, Metrics), MembershipError> {
        let running = self.running().ok_or(MembershipError::NotLeader { leader: None })?;
        if self.leadership.borrow().is_none() {
            let leader = self.other_leader().map(|(_, _, address)| address);
            return Err(MembershipError::NotLeader { leader });
        }
        let metrics = running.metrics();
        Ok((running, metrics))
    }

    /// Makes a learner a voter; `replace` leaves in the same change.
    pub(crate) async fn add_peer(&self, peer: &str, replace: Option<&str>) -> Result<Vec<PeerView>, MembershipError> {
        let (running, metrics) = self.leading()?;
        let peers = peers(&metrics);
        let peer = find(&peers, peer)?;
        let replaced = replace.map(|replace| find(&peers, replace)).transpose()?;
        if let Some(replaced) = replaced.filter(|replaced| !replaced.voter) {
            return Err(MembershipError::NotVoter { peer: replaced.id });
        }
        if peer.voter {
            return Err(MembershipError::AlreadyVoter { peer: peer.id });
        }
        if let Some(voter) = namesake(&peers, peer, replaced.map(|replaced| replaced.id)) {
            return Err(MembershipError::WouldCollide { peer: peer.id, voter });
        }
        let behind = metrics.last_log_index.unwrap_or(0).saturating_sub(peer.matched_index.unwrap_or(0));
        if behind > CAUGHT_UP_WITHIN {
            // As a voter it would count for every majority while it cannot yet be part of one.
            return Err(MembershipError::StillBehind { peer: peer.id, behind });
        }
        let mut voters: BTreeSet<u64> = peers.iter().filter(|peer| peer.voter).map(|peer| peer.id).collect();
        voters.insert(peer.id);
        if let Some(replaced) = replaced {
            voters.remove(&replaced.id);
        }
        change(&running, voters).await?;
        Ok(self.peers())
    }

    /// Takes a node out of the group. Its number is never used again.
    pub(crate) async fn remove_peer(&self, peer: &str) -> Result<Vec<PeerView>, MembershipError> {
        let (running, metrics) = self.leading()?;
        let peers = peers(&metrics);
        let peer = find(&peers, peer)?;
        if peer.voter {
            let voters: BTreeSet<u64> =
                peers.iter().filter(|other| other.voter && other.id != peer.id).map(|other| other.id).collect();
            if voters.is_empty() {
                return Err(MembershipError::OnlyVoter { peer: peer.id });
            }
            change(&running, voters).await?;
        } else {
            change(&running, ChangeMembers::RemoveNodes(BTreeSet::from([peer.id]))).await?;
        }
        Ok(self.peers())
    }

    /// Hands leadership to a voter, by default the one that is furthest ahead, and waits until it leads.
    pub(crate) async fn transfer_leadership(&self, to: Option<&str>) -> Result<PeerView, MembershipError> {
        let (running, metrics) = self.leading()?;
        let peers = peers(&metrics);
        let target = match to {
            Some(to) => {
                let target = find(&peers, to)?;
                if !target.voter {
                    return Err(MembershipError::NotVoter { peer: target.id });
                }
                target
            }
            None => peers
                .iter()
                .filter(|peer| peer.voter && peer.id != metrics.id)
                .max_by_key(|peer| peer.matched_index)
                .ok_or(MembershipError::OnlyVoter { peer: metrics.id })?,
        };
        if target.id == metrics.id {
            return Ok(target.clone());
        }
        running.raft.trigger().transfer_leader(target.id).await.map_err(|_| MembershipError::Stopped)?;
        let within = self.config.timing.election_max * 4;
        let give_up = Instant::now() + within;
        let mut changes = running.raft.metrics();
        loop {
            let leader = changes.borrow_and_update().current_leader.filter(|leader| *leader != metrics.id);
            if let Some(leader) = leader {
                let elected = self.peers().into_iter().find(|peer| peer.id == leader);
                return elected.ok_or(MembershipError::TransferFailed { within });
            }
            match tokio::time::timeout_at(give_up, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(MembershipError::Stopped),
                Err(_) => return Err(MembershipError::TransferFailed { within }),
            }
        }
    }

    /// Gives an empty node a number of its own and makes it a learner.
    pub(crate) async fn admit(&self, name: String, address: String) -> Result<u64, MembershipError> {
        // One at a time, or two calls of one node could each miss what the other has made.
        let _one_at_a_time = self.admitting.lock().await;
        let (running, metrics) = self.leading()?;
        // A learner at this address is a former life of the node that asks: it says that it is empty.
        let former: BTreeSet<u64> =
            peers(&metrics).iter().filter(|peer| !peer.voter && peer.address == address).map(|peer| peer.id).collect();
        if !former.is_empty() {
            change(&running, ChangeMembers::RemoveNodes(former)).await?;
        }
        let admit = Command::AdmitNode { name: name.clone(), address: address.clone() };
        let request = proposer::own_request(self, vec![admit]);
        let encoded = request.encode().into();
        let receipt = match self.propose_here(request, encoded).await {
            Ok(receipt) => receipt,
            Err(proposer::Failure::NotLeader) => return Err(MembershipError::NotLeader { leader: None }),
            // If it was recorded after all, a number is lost and nothing else.
            Err(proposer::Failure::Final(error)) => return Err(MembershipError::Unknown { reason: error.to_string() }),
        };
        let answers =
            receipt.result.map_err(|refused| MembershipError::Unknown { reason: refused.rejection.to_string() })?;
        let Some(Answer::Node(number)) = answers.into_iter().map(|done| done.answer).next() else {
            return Err(MembershipError::Unknown { reason: "the log gave no number".to_owned() });
        };
        let member = Member { name, address };
        tracing::info!(id = number.0, %member, "a new node joins");
        change(&running, ChangeMembers::AddNodes(BTreeMap::from([(number.0, member)]))).await?;
        Ok(number.0)
    }
}

/// Changes the members and waits until it is committed. Nodes that are no longer voters leave.
async fn change(running: &Running, members: impl Into<ChangeMembers<u64, Member>>) -> Result<(), MembershipError> {
    let members = members.into();
    let give_up = Instant::now() + CHANGE_WAIT;
    loop {
        let error = match running.raft.change_membership(members.clone(), false).await {
            Ok(_) => return Ok(()),
            Err(RaftError::APIError(error)) => refusal(error),
            Err(RaftError::Fatal(_)) => return Err(MembershipError::Stopped),
        };
        if error != MembershipError::InProgress || Instant::now() >= give_up {
            return Err(error);
        }
        // One change at a time. The one before is a matter of milliseconds, unless there is no majority.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn refusal(error: ClientWriteError<Types>) -> MembershipError {
    match error {
        ClientWriteError::ForwardToLeader(forward) => {
            MembershipError::NotLeader { leader: forward.leader_node.map(|member| member.address) }
        }
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)) => MembershipError::InProgress,
        ClientWriteError::ChangeMembershipError(ChangeMembershipError::LearnerNotFound(missing)) => {
            MembershipError::NoSuchPeer { asked: missing.node_id.to_string(), known: String::new() }
        }
        other => MembershipError::Unknown { reason: other.to_string() },
    }
}

/// What the leader does for the members by itself: it ends changes that another leader left half done, and promotes
/// learners that have caught up.
pub(crate) async fn housekeep(inner: Arc<Inner>, running: Arc<Running>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let metrics = running.metrics();
        if metrics.membership_config != metrics.committed_membership_config || inner.reserve.low().is_some() {
            continue;
        }
        let outcome = if let Some(voters) = half_done(&metrics.membership_config) {
            tracing::info!(?voters, "ending a change of the voters that was left half done");
            change(&running, voters).await
        } else {
            let peers = peers(&metrics);
            let promoted = promotable(&peers, metrics.last_log_index.unwrap_or(0));
            if promoted.is_empty() {
                continue;
            }
            tracing::info!(?promoted, "nodes have caught up and become voters");
            change(&running, ChangeMembers::AddVoterIds(promoted.into_iter().collect())).await
        };
        if let Err(error) = outcome {
            tracing::warn!("the members stay as they are: {error}");
        }
    }
}

/// The voters that a change was on its way to.
fn half_done(membership: &StoredMembership) -> Option<BTreeSet<u64>> {
    match &membership.get_joint_config()[..] {
        [_, .., last] => Some(last.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: u64, name: &str, voter: bool, matched: u64) -> PeerView {
        PeerView {
            id,
            name: name.to_owned(),
            address: format!("{name}:7000"),
            voter,
            leader: false,
            matched_index: Some(matched),
            last_heard: None,
        }
    }

    #[test]
    fn a_learner_is_promoted_when_it_has_caught_up_and_stands_in_for_nobody() {
        let voters = [peer(1, "n1", true, 900), peer(2, "n2", true, 1_000)];
        let with = |learners: &[PeerView]| promotable(&[&voters[..], learners].concat(), 1_000);
        assert_eq!(with(&[]), []);
        assert_eq!(with(&[peer(4, "n4", false, 1_000)]), [4]);
        assert_eq!(with(&[peer(4, "n4", false, 936), peer(5, "n5", false, 935)]), [4]);
        assert_eq!(with(&[peer(4, "n2", false, 1_000)]), [], "it has the name of a voter");
        let mut elsewhere = peer(4, "n4", false, 1_000);
        elsewhere.address = "n1:7000".to_owned();
        assert_eq!(with(&[elsewhere]), [], "it has the address of a voter");
        assert_eq!(with(&[peer(4, "n4", false, 1_000), peer(5, "n4", false, 1_000)]), [4], "one of a name at a time");
        let mut unheard = peer(4, "n4", false, 0);
        unheard.matched_index = None;
        assert_eq!(with(&[unheard]), []);
    }

    #[test]
    fn a_peer_is_found_by_id_name_or_address_and_never_by_guessing() {
        let peers = [peer(1, "n1", true, 0), peer(2, "n2", true, 0), peer(4, "n2", false, 0)];
        assert_eq!(find(&peers, "1").unwrap().id, 1);
        assert_eq!(find(&peers, "n1").unwrap().id, 1);
        assert_eq!(find(&peers, "n1:7000").unwrap().id, 1);
        assert_eq!(find(&peers, "n2").unwrap_err(), MembershipError::Ambiguous { asked: "n2".into(), ids: vec![2, 4] });
        assert_eq!(
            find(&peers, "n9").unwrap_err(),
            MembershipError::NoSuchPeer { asked: "n9".into(), known: "1 (n1), 2 (n2), 4 (n2)".into() }
        );
    }
}

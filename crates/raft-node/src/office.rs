//! Being leader: from the election to the announcement in the log, and until it is over.
//!
//! Having been elected is no permission to act. First everything that earlier leaders committed is applied; then the
//! time of the new leadership is agreed from the clocks of the group and announced, as the first entry of this
//! leadership. Its index is the epoch. Only when that entry is applied is the leadership shown to anybody.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use loadline_state_machine::{Command, Entry, Epoch, LogIndex, NodeNumber, Request, Sealed};
use openraft::ReadPolicy;
use openraft::ServerState;
use openraft::async_runtime::WatchReceiver as _;
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::{Stamps, announced_time};
use crate::lease::{Lease, Office};
use crate::node::{Inner, Running};
use crate::types::{LeaderId, Payload, ServerMetrics, Then, committed};
use crate::{membership, packing, probe, proposer};

/// A wait between attempts to announce, while there is no majority to announce to.
const ANNOUNCE_AGAIN: Duration = Duration::from_millis(20);

/// This node leads, and has said so in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Leadership {
    pub epoch: Epoch,
    pub term: u64,
    /// To be asked before every single action.
    pub lease: Lease,
}

/// Which leadership of this node the metrics speak of, if it leads.
fn led(metrics: &ServerMetrics) -> Option<LeaderId> {
    let vote = &metrics.vote;
    let leads = metrics.state == ServerState::Leader && vote.committed && vote.leader_id.voted_for == metrics.id;
    leads.then_some(vote.leader_id)
}

/// Follows the leaderships of this node for as long as its Raft runs.
pub(crate) async fn run(inner: Arc<Inner>, running: Arc<Running>) {
    // These change only with roles, votes and members, and not with every entry.
    let mut metrics = running.raft.server_metrics();
    loop {
        let now = {
            let current = metrics.borrow_and_update();
            inner.lease.set_voters(current.membership_config.get_joint_config().clone());
            led(&current)
        };
        let goes_on = match now {
            Some(office) => lead(&inner, &running, office).await,
            None => packing::turn_away_until(&inner, metrics.changed()).await.is_ok(),
        };
        if !goes_on {
            return;
        }
    }
}

/// One leadership, from its beginning to its end. False: Raft has ended with it.
async fn lead(inner: &Arc<Inner>, running: &Arc<Running>, leader: LeaderId) -> bool {
    let office = Office { term: leader.term, node: leader.voted_for };
    inner.lease.begin(office);
    inner.observer.elected();
    tracing::info!(term = leader.term, "this node was elected");
    let lease = inner.lease.lease(office);
    let over = lost(inner, running, leader);
    tokio::pin!(over);
    let announced = packing::turn_away_until(inner, async {
        tokio::select! {
            biased;
            _ = &mut over => None,
            announced = announce(inner, running, leader, &lease) => announced,
        }
    })
    .await;
    if let Some((epoch, stamps)) = announced {
        tracing::info!(term = leader.term, %epoch, "this node leads");
        inner.leadership.send_replace(Some(Leadership { epoch, term: leader.term, lease: lease.clone() }));
        let housekeeping = inner.tasks.spawn(membership::housekeep(inner.clone(), running.clone()));
        let housekeeping = AbortOnDropHandle::new(housekeeping);
        let until = async {
            over.await;
        };
        packing::serve(inner, running, leader, &lease, stamps, until).await;
        drop(housekeeping);
        inner.leadership.send_replace(None);
        tracing::info!(term = leader.term, %epoch, "this node no longer leads");
    }
    inner.lease.give_up(office);
    // Raft may take a moment to notice what ended it (a shut-down, say); the next round must not start the same one again.
    packing::turn_away_until(inner, lost(inner, running, leader)).await
}

/// Returns when this leadership is over. False: Raft has ended with it.
async fn lost(inner: &Inner, running: &Running, leader: LeaderId) -> bool {
    let mut metrics = running.raft.server_metrics();
    loop {
        {
            let current = metrics.borrow_and_update();
            inner.lease.set_voters(current.membership_config.get_joint_config().clone());
            if led(&current) != Some(leader) {
                return true;
            }
        }
        if metrics.changed().await.is_err() {
            return false;
        }
    }
}

/// Puts the announcement into the log. None: it cannot be, because this node is stopping.
async fn announce(inner: &Inner, running: &Running, leader: LeaderId, lease: &Lease) -> Option<(Epoch, Stamps)> {
    loop {
        if let Some(announced) = try_announce(inner, running, leader, lease).await {
            return Some(announced);
        }
        if inner.ended.is_cancelled() {
            return None;
        }
        tokio::time::sleep(ANNOUNCE_AGAIN).await;
    }
}

async fn try_announce(inner: &Inner, running: &Running, leader: LeaderId, lease: &Lease) -> Option<(Epoch, Stamps)> {
    // What earlier leaders committed must be applied first: the new time may not be before the last committed one.
    let (read, clocks) =
        tokio::join!(running.raft.get_read_linearizer(ReadPolicy::ReadIndex), probe::clocks(inner, running));
    let applied_through = LogIndex(read.ok()?.read_log_id().index());
    inner.wait_applied(applied_through, inner.config.timing.propose).await.ok()?;
    if !lease.holds() {
        return None;
    }
    let state = inner.published.state();
    let time = announced_time(state.now(), clocks);
    let boottime = inner.clock.boottime();
    let mut requests = vec![announcement(inner, leader)];
    if state.incarnation() == 0 {
        // The first leadership ever. The founding members have the numbers 1 to n, and nobody may get them again.
        let nodes = running.membership().nodes().map(|(id, _)| *id).max().unwrap_or(1);
        requests.push(proposer::own_request(inner, vec![Command::FoundGroup { nodes }]));
    }
    let sealed = Sealed::seal(Entry { stamped_at: time, requests });
    let (answer, answered) = oneshot::channel();
    let payload = Payload(Bytes::from_owner(sealed.bytes().clone()));
    let then = Then::new(move |outcome| drop(answer.send(outcome)));
    running.raft.write(payload).with_leader(committed(leader)).responder(then).await.ok()?;
    let response = answered.await.ok()?.ok()?;
    let refused = response.data.0.iter().find_map(|receipt| receipt.result.as_ref().err());
    if let Some(refused) = refused {
        tracing::error!(term = leader.term, "the log refuses the announcement of this leader: {}", refused.rejection);
        return None;
    }
    let epoch = Epoch { incarnation: inner.published.state().incarnation(), index: LogIndex(response.log_id.index()) };
    Some((epoch, Stamps::start(time, boottime)))
}

fn announcement(inner: &Inner, leader: LeaderId) -> Request {
    let announce = Command::AnnounceLeader { node: NodeNumber(leader.voted_for), term: leader.term };
    proposer::own_request(inner, vec![announce])
}

//! Nodes that come to believe different things, and the promises that outlive a restart.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use crate::common;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::impostor::Impostor;
use crate::common::{Group, create_cluster, dial, eventually, expect_err};
use loadline_api::raft as wire;
use loadline_raft_node::{ProposeError, StopReason};
use loadline_state_machine::{CHECKPOINT_EVERY, Command, Hash, LogIndex};
use tonic::Code;

/// A group that has come past its first checkpoint, which is where nodes compare what they believe.
async fn past_a_checkpoint() -> Group {
    let group = Group::started(3).await;
    let leader = &group.members[group.leader().await];
    let node = leader.node();
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let node = node.clone();
            leader.spawn(async move {
                while node.latest().applied() < LogIndex(CHECKPOINT_EVERY) {
                    node.propose(common::request(Command::Tick)).await.unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    group.agreed().await;
    group
}

/// Somebody at the address of a member who claims to be it, and to believe `hash` at the first checkpoint.
fn claim(group: &mut Group, place: usize, hash: Hash) -> Impostor {
    let status = group.members[place].node().status();
    group.members[place].kill();
    let probe = wire::ProbeResponse {
        group: status.group,
        node_id: status.id.unwrap(),
        name: status.name,
        initialised: true,
        applied_index: CHECKPOINT_EVERY,
        wall_clock_ms: i64::try_from(common::wall_ms()).unwrap(),
        hash: hash.0.to_vec().into(),
        hash_index: CHECKPOINT_EVERY,
        rules_version_max: 1,
        ..Default::default()
    };
    Impostor::start(&group.members[place].config.address, probe)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_differs_from_a_majority_stops_for_good() {
    let mut group = past_a_checkpoint().await;
    let node = group.members[0].node();
    let ours = node.hash_at(LogIndex(CHECKPOINT_EVERY), Duration::ZERO).await.unwrap();
    let theirs = Hash([7; 32]);
    let _second = claim(&mut group, 1, theirs);
    let _third = claim(&mut group, 2, theirs);
    let reason = {
        let node = node.clone();
        group.members[0].run(async move { node.stopped().await }).await
    };
    assert_eq!(reason, StopReason::Diverged { index: LogIndex(CHECKPOINT_EVERY), ours, theirs });
    assert_eq!(expect_err(group.members[0].propose(create_cluster("demo")).await), ProposeError::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_a_node_stops_acting_says_so_and_goes_on_when_it_is_resolved() {
    let mut group = past_a_checkpoint().await;
    let leader = group.leader().await;
    let (other, third) = ((leader + 1) % 3, (leader + 2) % 3);
    let node = group.members[leader].node();
    let lease = node.leadership().borrow().clone().unwrap().lease;
    group.members[third].kill();
    let impostor = claim(&mut group, other, Hash([7; 32]));
    eventually("the leader to say so", async || {
        node.status().errors.iter().any(|error| error.contains("disagree")).then_some(())
    })
    .await;
    assert!(!lease.holds());
    impostor.stop();
    // Nobody contradicts any more, but nobody agrees either.
    let give_up = Instant::now() + group.members[leader].config.timing.probe_every * 5;
    while Instant::now() < give_up {
        assert!(node.status().errors.iter().any(|error| error.contains("disagree")), "silence is no agreement");
        tokio::task::yield_now().await;
    }
    group.members[other].start().await;
    group.members[third].start().await;
    group.members[other].create("demo").await;
    group.agreed().await;
    // It learns that from its next round of questions, and may no longer be the one who leads.
    eventually("the node to go on", async || {
        node.status().errors.iter().all(|error| !error.contains("disagree")).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_restarts_gives_no_vote_until_the_lease_it_promised_has_run_out() {
    let mut group = Group::started(3).await;
    group.members[0].create("demo").await;
    group.agreed().await;
    let (leader, follower) = (group.leader().await, group.follower().await);
    let third = (0..3).find(|place| *place != leader && *place != follower).unwrap();
    let (asks, answers) = (group.members[third].node().status(), group.members[follower].node().status());
    // Nobody keeps the follower loyal after its restart, so only what it remembers can hold it back.
    group.members[leader].kill();
    group.members[third].kill();
    group.members[follower].kill();
    let started = Instant::now();
    group.members[follower].start().await;
    let request = wire::VoteRequest {
        envelope: Some(wire::Envelope { group: asks.group, from: asks.id.unwrap(), to: answers.id.unwrap() }),
        vote: Some(wire::Vote { term: asks.term + 10, node_id: asks.id.unwrap(), committed: false }),
        last_log_id: Some(wire::LogId { term: asks.term + 5, index: 1_000 }),
        leadership_transfer: false,
    };
    let mut client = dial(&group.members[follower].config.address).await;
    let lease = group.members[follower].config.timing.election_max;
    let mut refused = 0;
    eventually("the vote to be given", async || {
        let asked_after = started.elapsed();
        match client.vote(request.clone()).await {
            Ok(answer) => {
                assert!(started.elapsed() >= lease, "a vote after {asked_after:?}");
                answer.into_inner().granted.then_some(())
            }
            Err(status) => {
                assert_eq!(status.code(), Code::Unavailable, "{status}");
                refused += 1;
                None
            }
        }
    })
    .await;
    assert!(refused > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_lead_while_the_lease_of_another_holds() {
    let mut group = Group::started(3).await;
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..3 {
        // Every member watches: two leases must never hold at the same time, whatever happens to the leader.
        let nodes: Vec<_> = group.members.iter().map(common::Member::node).collect();
        let watching = {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut held = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let holders = nodes
                        .iter()
                        .filter(|node| node.leadership().borrow().as_ref().is_some_and(|leads| leads.lease.holds()))
                        .count();
                    assert!(holders <= 1, "{holders} leases hold at once");
                    held += u64::from(holders == 1);
                    std::thread::yield_now();
                }
                held
            })
        };
        for _ in 0..4 {
            let leader = group.leader().await;
            group.members[leader].transfer_leadership(None).await.unwrap();
            eventually("the next leader", async || group.leads().filter(|next| *next != leader)).await;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(watching.join().unwrap() > 0);
        stop.store(false, Ordering::Relaxed);
        let leader = group.leader().await;
        group.members[leader].kill();
        group.leader().await;
        group.members[leader].start().await;
    }
}

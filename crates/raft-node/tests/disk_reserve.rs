//! Short of disk: nothing is recorded, everything else goes on, and it ends by itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use crate::common::{Group, create_cluster, eventually, expect_err};
use loadline_raft_node::ProposeError;

const RESERVE: u64 = 8 << 20;

async fn group() -> Group {
    Group::with(3, |config| config.disk_reserve_bytes = RESERVE).start_all().await
}

fn shrink(group: &Group, place: usize) {
    use loadline_log::Disk;
    let disk = &group.members[place].disk;
    disk.set_capacity(Some(disk.used_bytes().unwrap() + RESERVE / 2));
}

fn grow(group: &Group, place: usize) {
    group.members[place].disk.set_capacity(None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_short_of_disk_refuses_requests_stays_leader_and_recovers() {
    let group = group().await;
    let leader = group.leader().await;
    let node = group.members[leader].node();
    group.members[leader].create("before").await;
    let epoch = node.leadership().borrow().clone().unwrap().epoch;
    shrink(&group, leader);
    for place in [leader, (leader + 1) % 3] {
        let error = eventually("the request to be refused", async || {
            group.members[place].propose(create_cluster(&format!("during-{place}"))).await.err()
        })
        .await;
        match error {
            ProposeError::DiskReserve { free, reserve, node: which } => {
                assert!(free < RESERVE);
                assert_eq!((reserve, Some(which)), (RESERVE, node.status().id));
            }
            other => panic!("{other}"),
        }
    }
    let index = node.status().last_index;
    assert!(node.status().errors.iter().any(|error| error.contains("kept back")), "{:?}", node.status().errors);
    // Heartbeats go on: nobody else is elected, reads are served.
    let clusters = group.members[(leader + 1) % 3].clusters().await;
    assert!(clusters.contains("before"));
    let lease = node.leadership().borrow().clone().unwrap().lease;
    eventually("a new round of heartbeats", async || lease.holds().then_some(())).await;
    assert_eq!(node.leadership().borrow().clone().unwrap().epoch, epoch);
    assert_eq!(node.status().last_index, index, "not even a tick is recorded");

    grow(&group, leader);
    group.members[(leader + 1) % 3].create("after").await;
    assert_eq!(node.leadership().borrow().clone().unwrap().epoch, epoch);
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_follower_short_of_disk_holds_up_nobody_and_catches_up_when_space_returns() {
    let group = group().await;
    let (leader, follower) = (group.leader().await, group.follower().await);
    shrink(&group, follower);
    let short = group.members[follower].node();
    eventually("the follower to notice", async || {
        short.status().errors.iter().any(|error| error.contains("kept back")).then_some(())
    })
    .await;
    let before = short.status().last_index;
    for count in 0..20 {
        group.members[leader].create(&format!("c{count}")).await;
    }
    assert_eq!(short.status().last_index, before, "it takes no entries");
    grow(&group, follower);
    group.agreed().await;
    assert_eq!(short.latest().cluster_count(), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_that_has_space_requests_are_refused_and_not_left_hanging() {
    let group = group().await;
    let leader = group.leader().await;
    let followers: Vec<usize> = (0..3).filter(|place| *place != leader).collect();
    for follower in &followers {
        shrink(&group, *follower);
    }
    let short: Vec<u64> = followers.iter().map(|place| group.members[*place].node().status().id.unwrap()).collect();
    let error = eventually("the request to be refused", async || {
        match group.members[leader].propose(create_cluster("during")).await {
            Err(error @ ProposeError::DiskReserve { .. }) => Some(error),
            // Until the leader has heard of it, a request can be under way without getting anywhere.
            Ok(_) | Err(ProposeError::Unknown { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    })
    .await;
    assert!(matches!(error, ProposeError::DiskReserve { node, .. } if short.contains(&node)), "{error}");
    grow(&group, followers[0]);
    group.members[followers[1]].create("after").await;
    grow(&group, followers[1]);
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_sync_stops_the_node_for_good_and_the_others_go_on() {
    let group = group().await;
    let leader = group.leader().await;
    let node = group.members[leader].node();
    group.members[leader].disk.fail_sync(1);
    let reason = {
        let node = node.clone();
        let stopped = group.members[leader].spawn(async move { node.stopped().await });
        group.members[(leader + 1) % 3].create("after").await;
        stopped.await.unwrap()
    };
    assert!(matches!(reason, loadline_raft_node::StopReason::Storage { .. }), "{reason}");
    assert_eq!(expect_err(group.members[leader].propose(create_cluster("x")).await), ProposeError::Stopped);
    assert!(node.leadership().borrow().is_none());
    let next = eventually("another leader", async || group.leads().filter(|next| *next != leader)).await;
    group.members[next].create("and-on").await;
}

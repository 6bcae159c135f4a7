//! Who belongs to the group, changed while it works.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Group, Member, create_cluster, eventually, expect_err};
use loadline_raft_node::{MembershipError, ProposeError, Role};
use tokio::task::JoinHandle;

/// Keeps writing through one member until it is told to stop; gives what was acknowledged.
fn load(member: &Member, stop: &Arc<AtomicBool>) -> JoinHandle<BTreeSet<String>> {
    let (node, stop, through) = (member.node(), stop.clone(), member.config.name.clone());
    member.spawn(async move {
        let mut acknowledged = BTreeSet::new();
        for count in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("{through}-{count}");
            let request = create_cluster(&name);
            loop {
                match node.propose(request.clone()).await {
                    Ok(receipt) => break drop(receipt.result.unwrap()),
                    Err(ProposeError::NoLeader | ProposeError::Unknown { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            acknowledged.insert(name);
        }
        acknowledged
    })
}

fn newcomer(group: &Group, name: &str, seed: u64) -> Member {
    let mut member = Member::new(name, seed);
    member.config.join = group.members.iter().map(|member| member.config.address.clone()).collect();
    member
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fourth_node_joins_and_the_first_leaves_under_load() {
    let mut group = Group::started(3).await;
    let stop = Arc::new(AtomicBool::new(false));
    let loads = [load(&group.members[1], &stop), load(&group.members[2], &stop)];

    let fourth = newcomer(&group, "n4", 4);
    group.add(fourth).start().await;
    group.voters_are(&[1, 2, 3, 4]).await;
    assert_eq!(group.members[3].node().status().id, Some(4));

    let leader = group.leader().await;
    group.members[leader].remove_peer("n1").await.unwrap();
    group.voters_are(&[2, 3, 4]).await;
    group.members[0].kill();

    let node = group.members[3].node();
    let before = node.latest().cluster_count();
    eventually("writes to go on", async || (node.latest().cluster_count() > before + 20).then_some(())).await;
    stop.store(true, Ordering::Relaxed);
    let mut acknowledged = BTreeSet::new();
    for load in loads {
        acknowledged.extend(load.await.unwrap());
    }
    for member in &group.members[1..] {
        assert_eq!(member.clusters().await, acknowledged);
    }
    group.agreed().await;

    // The one that left knows it when it comes back, and its number is not given again.
    group.members[0].start().await;
    let fifth = newcomer(&group, "n5", 5);
    group.add(fifth).start().await;
    group.voters_are(&[2, 3, 4, 5]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_removed_hands_over() {
    let group = Group::started(3).await;
    let leader = group.leader().await;
    let id = group.members[leader].node().status().id.unwrap();
    group.members[leader].remove_peer(&id.to_string()).await.unwrap();
    let next = eventually("another leader", async || group.leads().filter(|next| *next != leader)).await;
    let expected: Vec<u64> = (1..=3).filter(|other| *other != id).collect();
    group.voters_are(&expected).await;
    group.members[next].create("demo").await;
    // It hears of its successor, which may be after others have: until then its lease keeps it from acting.
    let old = group.members[leader].node();
    eventually("the old one to know it", async || old.leadership().borrow().is_none().then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leadership_goes_where_it_is_sent_and_nothing_is_lost_on_the_way() {
    let group = Group::started(3).await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = load(&group.members[0], &stop);
    for to in ["n1", "n2", "n3", "n2"] {
        let leader = group.leader().await;
        let before = group.members[leader].node().leadership().borrow().clone().unwrap();
        let elected = group.members[leader].transfer_leadership(Some(to)).await.unwrap();
        assert_eq!(elected.name, to);
        let now = eventually("the new leader to be announced", async || {
            let leads = group.leads()?;
            (group.members[leads].config.name == to).then_some(leads)
        })
        .await;
        if now != leader {
            assert!(!before.lease.holds(), "who handed over may not act");
            let after = group.members[now].node().leadership().borrow().clone().unwrap();
            assert!(after.epoch > before.epoch);
        }
    }
    let leader = group.leader().await;
    let elected = group.members[leader].transfer_leadership(None).await.unwrap();
    assert_ne!(elected.name, group.members[leader].config.name);
    stop.store(true, Ordering::Relaxed);
    let acknowledged = load.await.unwrap();
    assert!(!acknowledged.is_empty());
    assert_eq!(group.members[1].clusters().await, acknowledged);
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_refused_with_what_would() {
    let mut group = Group::started(3).await;
    let follower = &group.members[group.follower().await];
    let leader = &group.members[group.leader().await];
    let address = leader.config.address.clone();
    for refused in [
        follower.remove_peer("n1").await.map(drop),
        follower.add_peer("n1", None).await.map(drop),
        follower.transfer_leadership(None).await.map(drop),
    ] {
        assert_eq!(expect_err(refused), MembershipError::NotLeader { leader: Some(address.clone()) });
    }
    assert!(matches!(expect_err(leader.remove_peer("n9").await), MembershipError::NoSuchPeer { .. }));
    assert_eq!(expect_err(leader.add_peer("n1", None).await), MembershipError::AlreadyVoter { peer: 1 });
    assert!(matches!(expect_err(leader.transfer_leadership(Some("4")).await), MembershipError::NoSuchPeer { .. }));

    let alone = Member::new("alone", 9);
    let alone = group.add(alone);
    alone.start().await;
    alone.create("demo").await;
    assert_eq!(expect_err(alone.remove_peer("1").await), MembershipError::OnlyVoter { peer: 1 });
    assert_eq!(expect_err(alone.transfer_leadership(None).await), MembershipError::OnlyVoter { peer: 1 });
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_can_join_at_the_same_time() {
    let mut group = Group::started(3).await;
    let (fourth, fifth) = (newcomer(&group, "n4", 4), newcomer(&group, "n5", 5));
    group.add(fourth).start().await;
    group.add(fifth).start().await;
    group.voters_are(&[1, 2, 3, 4, 5]).await;
    group.members[4].create("demo").await;
    group.agreed().await;
    let roles = |role| group.members.iter().filter(|member| member.node().status().role == role).count();
    eventually("four to follow one", async || (roles(Role::Leader) == 1 && roles(Role::Follower) == 4).then_some(()))
        .await;
}

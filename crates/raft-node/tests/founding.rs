//! How a group comes into being, and how a node comes to it later.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use crate::common;
use crate::common::impostor::Impostor;
use crate::common::{Group, Member, eventually, expect_err};
use loadline_api::raft as wire;
use loadline_raft_node::{MembershipError, Role};

const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_found_one_group_whatever_the_order_they_start_in() {
    for order in ORDERS {
        let mut group = Group::new(3);
        for place in order {
            group.members[place].start().await;
        }
        group.voters_are(&[1, 2, 3]).await;
        group.members[order[2]].create("demo").await;
        group.agreed().await;
        let ids: Vec<_> = group.members.iter().map(|member| member.node().status().id).collect();
        assert_eq!(ids, [Some(1), Some(2), Some(3)], "in the order they are configured");
        let groups: Vec<_> = group.members.iter().map(|member| member.node().status().group).collect();
        assert!(groups.iter().all(|name| *name == groups[0] && !name.is_empty()), "{groups:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_founded_before_every_configured_node_has_answered() {
    let mut group = Group::new(3);
    group.members[0].start().await;
    group.members[1].start().await;
    let node = group.members[0].node();
    let third = group.members[2].config.address.clone();
    eventually("the founder to say for whom it waits", async || {
        node.status().errors.iter().any(|error| error.contains(&format!("waiting for {third}"))).then_some(())
    })
    .await;
    for member in &group.members[..2] {
        let status = member.node().status();
        assert_eq!((status.role, status.id, status.last_index), (Role::Joining, None, 0));
    }
    group.members[2].start().await;
    group.voters_are(&[1, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_told_of_nobody_is_a_group_of_its_own() {
    let mut member = Member::new("alone", 1);
    member.start().await;
    member.create("demo").await;
    assert_eq!(member.clusters().await, ["demo".to_owned()].into());
    let status = member.node().status();
    assert_eq!((status.id, status.role), (Some(1), Role::Leader));
}

/// A founding that got stuck in the middle: the founder has written everything down, the second node knows who it is,
/// the third does not take part.
async fn stuck_in_the_middle() -> Group {
    let mut group = Group::new(3);
    // Says that it is nobody, but takes on no identity.
    let nobody = wire::ProbeResponse { name: "n3".into(), ..Default::default() };
    let stranger = Impostor::on(group.members[2].take_listener(), nobody);
    group.members[0].start().await;
    group.members[1].start().await;
    let (founder, second) = (group.members[0].node(), group.members[1].node());
    eventually("the third node to refuse", async || {
        founder.status().errors.iter().any(|error| error.contains("not today")).then_some(())
    })
    .await;
    assert_eq!(second.status().id, Some(2), "the second node was told who it is");
    assert_eq!(founder.status().last_index, 0, "nothing is made before everybody knows");
    stranger.stop();
    group
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founding_goes_on_where_it_was_after_power_is_lost_in_the_middle() {
    let mut group = stuck_in_the_middle().await;
    let name = group.members[0].node().status().group;
    group.members[0].cut_power();
    group.members[1].cut_power();
    for member in &mut group.members {
        member.start().await;
    }
    group.voters_are(&[1, 2, 3]).await;
    assert_eq!(group.members[2].node().status().group, name);
    group.members[2].create("demo").await;
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_founder_that_loses_its_folder_in_the_middle_founds_another_group_with_the_same_nodes() {
    let mut group = stuck_in_the_middle().await;
    let name = group.members[0].node().status().group;
    group.members[0].kill();
    group.members[0].empty_folder(9);
    group.members[0].start().await;
    group.members[2].start().await;
    group.voters_are(&[1, 2, 3]).await;
    let groups: Vec<_> = group.members.iter().map(|member| member.node().status().group).collect();
    assert!(groups.iter().all(|other| *other == groups[0] && *other != name), "{name}, then {groups:?}");
    group.members[1].create("demo").await;
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_belongs_to_a_group_takes_on_no_other_identity() {
    let group = Group::started(3).await;
    let member = &group.members[1];
    let status = member.node().status();
    let mut client = common::dial(&member.config.address).await;
    let peers = vec![wire::Peer { id: 7, name: "n2".into(), address: member.config.address.clone() }];
    let adopt = wire::AdoptRequest { group: "another".into(), node_id: 7, peers };
    let answer = client.adopt(adopt).await.unwrap().into_inner();
    assert!(!answer.adopted);
    assert!(answer.reason.contains("belongs to group"), "{}", answer.reason);
    assert_eq!((member.node().status().id, member.node().status().group), (status.id, status.group));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_folder_comes_back_under_a_new_number_and_waits_for_an_operator() {
    for emptied in [2, 0] {
        let mut group = Group::started(3).await;
        group.members[1].create("before").await;
        group.members[emptied].kill();
        group.members[emptied].empty_folder(9);
        group.members[emptied].start().await;
        let node = group.members[emptied].node();
        eventually("the emptied node to be let in", async || (node.status().id == Some(4)).then_some(())).await;
        // It catches up, but does not vote: the voter of its name may still be alive somewhere.
        group.members[1].create("after").await;
        group.agreed().await;
        let old = emptied as u64 + 1;
        assert_eq!(group.voters().await, [1, 2, 3]);
        let leader = &group.members[group.leader().await];
        assert_eq!(expect_err(leader.add_peer("4", None).await), MembershipError::WouldCollide { peer: 4, voter: old });
        leader.add_peer("4", Some(&old.to_string())).await.unwrap();
        let expected: Vec<u64> = (1..=4).filter(|id| *id != old).collect();
        group.voters_are(&expected).await;
        assert_eq!(node.latest().cluster_count(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_does_not_change_hands() {
    let mut group = Group::started(3).await;
    group.members[2].kill();
    group.members[2].config.name = "other".into();
    let error = expect_err(group.members[2].try_start().await);
    assert!(error.contains("belongs to node n3") && error.contains("configured as other"), "{error}");
}

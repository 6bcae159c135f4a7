//! Recording requests: wherever they come in, whoever leads, and whatever dies meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use crate::common;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{Group, create_cluster, eventually, expect_err, request};
use loadline_raft_node::{Consistency, ProposeError, REQUEST_BYTES_MAX};
use loadline_state_machine::{Command, LogIndex, NodeNumber, Rejection, Request, RulesVersion, Time};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_recorded_wherever_it_comes_in_and_read_back_everywhere() {
    let group = Group::started(3).await;
    let follower = &group.members[group.follower().await];
    let index = follower.create("demo").await;
    for member in &group.members {
        assert_eq!(member.clusters().await, ["demo".to_owned()].into());
        assert!(member.node().latest().applied() >= index);
    }
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_an_answer_and_comes_with_its_index() {
    let group = Group::started(3).await;
    let follower = &group.members[group.follower().await];
    let first = follower.create("demo").await;
    let receipt = follower.propose(create_cluster("demo")).await.unwrap();
    assert!(receipt.index > first);
    assert!(matches!(receipt.result.unwrap_err().rejection, Rejection::AlreadyExists { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_wait_together_are_answered_each_by_itself_in_their_order() {
    let group = Group::started(3).await;
    // A follower has nobody to wait together with: each goes to the leader.
    for (round, place) in [(0, group.leader().await), (1, group.follower().await)] {
        let member = &group.members[place];
        let names = [format!("a{round}"), format!("b{round}"), format!("a{round}"), format!("c{round}")];
        let mut requests: Vec<Request> = names.iter().map(|name| create_cluster(name)).collect();
        requests.push(request(Command::RaiseRules { to: RulesVersion(99) }));
        let requests = requests.into_iter().map(|request| (request.clone(), request.encode().into())).collect();
        let node = member.node();
        let receipts = member.run(async move { node.propose_together(requests).await }).await;
        let answers: Vec<_> = receipts.into_iter().map(|receipt| receipt.unwrap().result).collect();
        let refusals: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(|it| &it.rejection)).collect();
        assert!(
            matches!(
                refusals[..],
                [None, None, Some(Rejection::AlreadyExists { .. }), None, Some(Rejection::RulesUnknown { .. })]
            ),
            "{refusals:?}"
        );
    }
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rehearsed_is_answered_and_not_recorded() {
    let group = Group::started(3).await;
    let member = &group.members[group.follower().await];
    let node = member.node();
    member.run(async move { node.rehearse(create_cluster("demo")).await }).await.unwrap().unwrap();
    assert_eq!(member.clusters().await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_under_the_next_leader_gets_the_first_answer() {
    let mut group = Group::started(3).await;
    let request = create_cluster("demo");
    let leader = group.leader().await;
    let first = group.members[leader].propose(request.clone()).await.unwrap();
    group.members[leader].kill();
    let follower = &group.members[group.leader().await];
    let again = eventually("an answer", async || follower.propose(request.clone()).await.ok()).await;
    assert!(again.repeated);
    assert_eq!((again.index, again.result), (first.index, first.result));
    assert_eq!(follower.clusters().await, ["demo".to_owned()].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_when_leaders_die_one_after_the_other() {
    let mut group = Group::started(3).await;
    let mut acknowledged = BTreeSet::new();
    for round in 0..3 {
        for count in 0..20 {
            let name = format!("c{round}-{count}");
            group.members[(round + count) % 3].create(&name).await;
            acknowledged.insert(name);
        }
        let leader = group.leader().await;
        group.members[leader].cut_power();
        let name = format!("c{round}-without");
        group.members[(leader + 1) % 3].create(&name).await;
        acknowledged.insert(name);
        group.members[leader].start().await;
    }
    for member in &group.members {
        assert_eq!(member.clusters().await, acknowledged);
    }
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_there_after_all_lose_their_power_under_load() {
    let mut group = Group::started(3).await;
    for round in 0..3 {
        let stop = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for (place, member) in group.members.iter().enumerate() {
            let (node, stop) = (member.node(), stop.clone());
            writers.push(member.spawn(async move {
                let mut acknowledged = BTreeSet::new();
                for count in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("c{round}-{place}-{count}");
                    match node.propose(create_cluster(&name)).await {
                        Ok(receipt) => {
                            receipt.result.unwrap();
                            acknowledged.insert(name);
                        }
                        Err(ProposeError::NoLeader | ProposeError::Unknown { .. } | ProposeError::Stopped) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
                acknowledged
            }));
        }
        let (_, before) = group.agreed().await;
        let node = group.members[0].node();
        eventually("some writes", async || (node.latest().cluster_count() > 50 * (round + 1)).then_some(())).await;
        assert_ne!(group.agreed().await.1, before);
        // At once: whatever is under way is cut in the middle.
        for member in &group.members {
            member.disk.power_cut();
        }
        stop.store(true, Ordering::Relaxed);
        let mut acknowledged = BTreeSet::new();
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        for member in &mut group.members {
            member.cut_power();
            member.start().await;
        }
        let clusters = group.members[round].clusters().await;
        let lost: Vec<_> = acknowledged.difference(&clusters).collect();
        assert!(lost.is_empty(), "round {round}: lost {lost:?} of {}", acknowledged.len());
        group.agreed().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_come_back_after_an_orderly_end() {
    let mut group = Group::started(3).await;
    group.members[0].create("demo").await;
    let (index, hash) = group.agreed().await;
    for member in &mut group.members {
        member.shut_down().await;
    }
    let group = group.start_all().await;
    for member in &group.members {
        assert_eq!(member.hash_at(index).await, Some(hash));
        assert_eq!(member.clusters().await, ["demo".to_owned()].into());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_entry_of_every_leadership_announces_it_and_its_index_is_the_epoch() {
    let mut group = Group::started(3).await;
    let mut last = None;
    for _ in 0..3 {
        let leader = group.leader().await;
        let node = group.members[leader].node();
        let leadership = node.leadership().borrow().clone().unwrap();
        let announced = node.latest().leader().unwrap();
        assert_eq!(announced.node, NodeNumber(node.status().id.unwrap()));
        assert_eq!(announced.announced, leadership.epoch.index);
        assert_eq!(Some(leadership.epoch), node.latest().epoch());
        assert!(last < Some(leadership.epoch), "{last:?}, then {:?}", leadership.epoch);
        assert!(leadership.epoch.incarnation > 0);
        last = Some(leadership.epoch);
        group.members[leader].kill();
        group.leader().await;
        group.members[leader].start().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_passes_when_nobody_asks_for_anything_and_never_goes_back() {
    let mut group = Group::started(3).await;
    let mut last = Time::from_millis(0);
    for _ in 0..2 {
        let leader = group.leader().await;
        let node = group.members[leader].node();
        for _ in 0..3 {
            eventually("time to pass", async || (node.latest().now() > last).then_some(())).await;
            last = node.latest().now();
        }
        group.members[leader].kill();
        group.leader().await;
        group.members[leader].start().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_clock_is_wrong_goes_by_the_time_of_the_group_and_everybody_says_so() {
    const HOUR_MS: u64 = 3_600_000;
    let mut group = Group::new(3);
    group.members[1].clock_ahead_ms = HOUR_MS;
    let group = group.start_all().await;
    let leader = group.leader().await;
    group.members[leader].transfer_leadership(Some("n2")).await.unwrap();
    eventually("the one with the wrong clock to lead", async || (group.leads() == Some(1)).then_some(())).await;
    group.members[1].create("demo").await;
    let time = u128::from(group.members[1].node().latest().now().as_millis());
    assert!(time < common::wall_ms() + u128::from(HOUR_MS / 2), "{time}");
    for member in &group.members {
        let node = member.node();
        eventually("everybody to notice", async || {
            node.status().errors.iter().any(|error| error.contains("the clock of node")).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_without_followers_loses_its_lease_and_records_and_reads_nothing() {
    let mut group = Group::started(3).await;
    let leader = group.leader().await;
    let node = group.members[leader].node();
    let lease = node.leadership().borrow().clone().unwrap().lease;
    assert!(lease.holds());
    for place in (0..3).filter(|place| *place != leader) {
        group.members[place].kill();
    }
    eventually("the lease to run out", async || (!lease.holds()).then_some(())).await;
    let before = node.status().last_index;
    assert_eq!(expect_err(group.members[leader].propose(create_cluster("demo")).await), ProposeError::NoLeader);
    let read = {
        let node = node.clone();
        group.members[leader].run(async move { node.read(Consistency::Linearizable).await }).await
    };
    assert!(read.is_err());
    assert_eq!(node.status().last_index, before, "nothing was appended");
    let stale = {
        let node = node.clone();
        group.members[leader].run(async move { node.read(Consistency::Stale).await }).await.unwrap()
    };
    assert_eq!(stale.cluster_count(), 0);

    for place in (0..3).filter(|place| *place != leader) {
        group.members[place].start().await;
    }
    group.members[leader].create("demo").await;
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_at_once_share_entries_and_each_gets_its_own_answer() {
    let group = Group::started(3).await;
    let follower = &group.members[group.follower().await];
    let node = follower.node();
    let before = node.status().last_index;
    let receipts = follower
        .run(async move {
            let all = (0..500).map(|count| {
                let node = node.clone();
                tokio::spawn(async move { node.propose(create_cluster(&format!("c{count}"))).await })
            });
            futures::future::join_all(all.collect::<Vec<_>>()).await
        })
        .await;
    let mut indexes = BTreeSet::new();
    for receipt in receipts {
        let receipt = receipt.unwrap().unwrap();
        receipt.result.unwrap();
        indexes.insert(receipt.index);
    }
    assert_eq!(follower.clusters().await.len(), 500);
    assert!(indexes.len() < 250, "500 requests took {} entries", indexes.len());
    assert!(indexes.first() > Some(&LogIndex(before)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_is_refused_before_it_goes_anywhere() {
    let group = Group::started(3).await;
    let name = "x".repeat(REQUEST_BYTES_MAX + 1);
    for member in &group.members {
        let error = expect_err(member.propose(create_cluster(&name)).await);
        assert!(matches!(error, ProposeError::TooLarge { .. }), "{error}");
    }
    // Just small enough for the transport: the state machine is the one who says no.
    let name = "x".repeat(REQUEST_BYTES_MAX - 1_000);
    let receipt = group.members[group.follower().await].propose(create_cluster(&name)).await.unwrap();
    assert!(matches!(receipt.result.unwrap_err().rejection, Rejection::InvalidName { .. }));
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_a_node_does_not_know_never_enter_the_log() {
    let group = Group::started(3).await;
    let follower = &group.members[group.follower().await];
    let receipt = follower.propose(request(Command::RaiseRules { to: RulesVersion(99) })).await.unwrap();
    assert!(matches!(receipt.result.unwrap_err().rejection, Rejection::RulesUnknown { .. }));
    follower.create("demo").await;
    group.agreed().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_ends_says_so_to_everybody_who_waits() {
    let mut group = Group::started(3).await;
    let member = &mut group.members[0];
    let node = member.node();
    let stopped = {
        let node = node.clone();
        member.spawn(async move { node.stopped().await })
    };
    let mut feed = node.follow(LogIndex(1_000_000)).unwrap();
    let waiting = member.spawn(async move { feed.next().await });
    member.shut_down_gently().await;
    assert_eq!(stopped.await.unwrap(), loadline_raft_node::StopReason::ShutDown);
    assert_eq!(expect_err(waiting.await.unwrap()), loadline_raft_node::FeedError::ShuttingDown);
    assert_eq!(expect_err(node.propose(create_cluster("demo")).await), ProposeError::ShuttingDown);
    assert_eq!(node.hash_at(LogIndex(1_000_000), Duration::from_secs(30)).await, None);
}

/// One entry looks at 256 clusters at most. With a tick an hour, the rest would wait for the whole night.
#[tokio::test(flavor = "multi_thread")]
async fn clusters_that_wait_to_be_looked_at_do_not_wait_for_the_next_tick() {
    let mut group = Group::new(3);
    for member in &mut group.members {
        member.config.tick_every = Duration::from_secs(3_600);
    }
    let group = group.start_all().await;
    let leader = &group.members[group.leader().await];
    let set = Command::SetSetting { name: "enable_auto_scaling".to_owned(), value: "true".to_owned(), etag: None };
    let create = |number: usize| Command::CreateCluster { name: format!("c{number}") };
    let mut commands: Vec<Command> = (0..900).map(create).collect();
    commands.push(set);
    let receipt = leader.propose(Request { commands, ..request(Command::Tick) }).await.unwrap();
    receipt.result.unwrap();
    let looked_at = async || (!leader.node().latest().evaluations_wait()).then_some(());
    eventually("a look at every cluster", looked_at).await;
    // The first 256 with the entry itself, and three more entries for the rest.
    assert!(leader.node().latest().applied().0 >= receipt.index.0 + 3);
}

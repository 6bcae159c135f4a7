//! Snapshots: a node that was away too long, a backup, and what a feed can still tell afterwards.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{Group, create_cluster, eventually, expect_err, request};
use loadline_log::snapshot;
use loadline_raft_node::{FeedError, NodeConfig};
use loadline_state_machine::{Answer, Command, Hash, JournalEntry, LogIndex, State};

fn small(config: &mut NodeConfig) {
    config.snapshot_every = 50;
    config.keep_entries = 5;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_while_the_log_was_purged_catches_up_by_snapshot_under_load() {
    // What it missed stays missed, so that it can be seen what a feed makes of that.
    let unfetched = |config: &mut NodeConfig| {
        small(config);
        config.fetch_history = false;
    };
    let mut group = Group::with(3, unfetched).start_all().await;
    let away = group.follower().await;
    group.members[away].create("before").await;
    let seen = group.agreed().await.0;
    group.members[away].kill();

    let leader = group.leader().await;
    let writer = &group.members[leader];
    for count in 0..200 {
        writer.create(&format!("c{count}")).await;
    }
    let node = writer.node();
    eventually("the log to be purged", async || (node.status().purged_index > seen.0 + 10).then_some(())).await;

    let (stop, written) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let load = {
        let (node, stop, written) = (node.clone(), stop.clone(), written.clone());
        writer.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let count = written.load(Ordering::Relaxed);
                node.propose(create_cluster(&format!("during-{count}"))).await.unwrap().result.unwrap();
                written.store(count + 1, Ordering::Relaxed);
            }
        })
    };
    eventually("writes", async || (written.load(Ordering::Relaxed) > 10).then_some(())).await;
    group.members[away].start().await;
    let returned = group.members[away].node();
    eventually("the returned node to be up to date under load", async || {
        let behind = node.status().applied_index.0.saturating_sub(returned.status().applied_index.0);
        (behind < 20 && returned.status().applied_index > seen).then_some(())
    })
    .await;
    let at_return = written.load(Ordering::Relaxed);
    eventually("writes to go on", async || (written.load(Ordering::Relaxed) > at_return + 10).then_some(())).await;
    stop.store(true, Ordering::Relaxed);
    load.await.unwrap();

    group.agreed().await;
    assert_eq!(group.members[away].clusters().await, group.members[leader].clusters().await);
    assert!(returned.status().snapshot_index > seen.0, "it was a snapshot that helped");

    // What the node missed did not happen here, and the feed says so; what it saw before and after is there.
    let first = match expect_err(returned.follow(LogIndex(seen.0 + 10))) {
        FeedError::Compacted { first } => first,
        other => panic!("{other}"),
    };
    assert!(first > seen);
    assert_eq!(returned.follow(first).unwrap().next().await.unwrap().index, first);
    let mut from_the_start = returned.follow(LogIndex(1)).unwrap();
    assert_eq!(from_the_start.next().await.unwrap().index, LogIndex(1));
    let compacted = loop {
        match from_the_start.next().await {
            Ok(happened) => assert!(happened.index < first),
            Err(error) => break error,
        }
    };
    assert_eq!(compacted, FeedError::Compacted { first });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_several_messages_arrives_whole() {
    const CHUNK: usize = 400_000;
    let mut group = Group::with(3, small).start_all().await;
    let away = group.follower().await;
    group.members[away].kill();
    // Half of a restore is part of the state, and noise does not compress.
    let mut noise: Vec<u8> = Vec::new();
    while noise.len() < 10 * CHUNK {
        noise.extend(Hash::of(&noise.len().to_le_bytes()).0);
    }
    noise.truncate(10 * CHUNK);
    let writer = &group.members[group.leader().await];
    let begin = Command::BeginRestore { bytes_total: 2 * noise.len() as u64, hash: Hash::of(b"never finished") };
    let begun = writer.propose(request(begin)).await.unwrap().result.unwrap();
    let Answer::Restoring { restore, .. } = begun[0].answer else { panic!("{begun:?}") };
    for (chunk, offset) in noise.chunks(CHUNK).zip((0_u64..).step_by(CHUNK)) {
        let chunk = Command::RestoreChunk { restore, offset, bytes: chunk.to_vec().into() };
        writer.propose(request(chunk)).await.unwrap().result.unwrap();
    }
    let before = writer.node().status().last_index;
    for count in 0..60 {
        writer.create(&format!("c{count}")).await;
    }
    let node = writer.node();
    eventually("a snapshot", async || (node.status().purged_index >= before).then_some(())).await;
    group.members[away].start().await;
    group.agreed().await;
    let returned = group.members[away].node();
    assert!(returned.status().snapshot_index >= before);
    assert_eq!(returned.latest().cluster_count(), 60);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_the_state_is_the_last_snapshot_and_what_came_after() {
    let mut group = Group::with(3, small).start_all().await;
    for count in 0..120 {
        group.members[0].create(&format!("c{count}")).await;
    }
    let node = group.members[1].node();
    eventually("a snapshot", async || (node.status().snapshot_index > 50).then_some(())).await;
    let (index, hash) = group.agreed().await;
    for member in &mut group.members {
        member.cut_power();
    }
    let group = group.start_all().await;
    for member in &group.members {
        assert_eq!(member.hash_at(index).await, Some(hash));
        assert_eq!(member.clusters().await.len(), 120);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_feed_has_no_gap_and_no_repeat_from_the_journal_through_memory_to_what_comes() {
    let mut group = Group::with(3, small).start_all().await;
    for count in 0..120 {
        group.members[0].create(&format!("c{count}")).await;
    }
    let node = group.members[0].node();
    eventually("a snapshot", async || (node.status().snapshot_index > 50).then_some(())).await;
    // After a restart only what came after the snapshot is in memory; the rest is in the journal.
    group.members[0].cut_power();
    group.members[0].start().await;
    group.leader().await;
    let node = group.members[0].node();
    let behind = eventually("the node to be up to date", async || {
        let applied = node.status().applied_index;
        (applied.0 > 120).then_some(applied)
    })
    .await;

    let mut feed = node.follow(LogIndex(1)).unwrap();
    let last = {
        let following = group.members[0].spawn(async move {
            let mut seen = Vec::new();
            while seen.len() < usize::try_from(behind.0).unwrap() + 20 {
                seen.push(feed.next().await.unwrap());
            }
            seen
        });
        for count in 0..20 {
            group.members[1].create(&format!("later-{count}")).await;
        }
        following.await.unwrap()
    };
    for (index, happened) in (1..).zip(&last) {
        assert_eq!(happened.index, LogIndex(index));
    }
    let times: Vec<_> = last.iter().map(|happened| happened.time).collect();
    assert!(times.is_sorted());
    let clusters =
        last.iter().flat_map(|happened| &happened.events).filter(|event| event.kind_name() == "ClusterCreated");
    assert!(clusters.count() > 120, "the events are the ones that happened");

    // Every other place to start from gives the same.
    for from in [2, 50, 51, 100, behind.0] {
        let mut feed = node.follow(LogIndex(from)).unwrap();
        for happened in last.iter().filter(|happened| happened.index.0 >= from).take(30) {
            assert_eq!(feed.next().await.unwrap(), *happened);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journal_replays_to_the_very_state_that_is_live() {
    let group = Group::with(3, small).start_all().await;
    for count in 0..80 {
        group.members[count % 3].create(&format!("c{count}")).await;
    }
    group.agreed().await;
    let node = group.members[0].node();
    let live = node.latest();
    let mut replayed = State::new();
    while replayed.applied() < live.applied() {
        for record in node.journal().read(replayed.applied().0 + 1, 10_000).unwrap() {
            if replayed.applied() == live.applied() {
                break;
            }
            let index = LogIndex(record.index);
            let applied = JournalEntry::decode(&record.entry).unwrap().apply_to(&mut replayed, index);
            assert_eq!(applied.hash, Hash(record.hash), "at {index}");
        }
    }
    assert_eq!(replayed.hash(), live.hash());
    assert_eq!(replayed.encode(), live.encode());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_saved_snapshot_holds_everything_that_was_acknowledged_and_can_be_read_as_a_file() {
    let group = Group::with(3, small).start_all().await;
    for count in 0..30 {
        group.members[count % 3].create(&format!("c{count}")).await;
    }
    for member in &group.members {
        let node = member.node();
        let file = member.run(async move { node.save_snapshot().await }).await.unwrap();
        let bytes = file.read_at(0, usize::try_from(file.len()).unwrap()).unwrap();
        let (meta, body) = snapshot::parse_bytes(&bytes).unwrap();
        let state = State::decode(&body).unwrap();
        assert_eq!(state.hash(), Hash(meta.state_hash));
        assert_eq!(state.cluster_count(), 30);
        assert_eq!(meta.group, member.node().status().group);
    }
    group.members[0].create("later").await;
    group.agreed().await;
}

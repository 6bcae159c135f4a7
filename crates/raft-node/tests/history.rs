//! The journals of nodes: what they lack is fetched from the others, and what is too old is let go.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

mod common;

use common::{Group, eventually, request};
use loadline_raft_node::{Node, NodeConfig};
use loadline_state_machine::{Command, Hash, JournalEntry, LogIndex, State};

fn small(config: &mut NodeConfig) {
    config.snapshot_every = 50;
    config.keep_entries = 5;
    config.journal_segment_bytes = 4 << 10;
}

fn set(name: &str, value: &str) -> Command {
    Command::SetSetting { name: name.to_owned(), value: value.to_owned(), etag: None }
}

/// Applies the journal of a node from the first entry to this one, and compares every hash.
fn replay(node: &Node, through: LogIndex) -> State {
    let mut state = State::new();
    while state.applied() < through {
        for record in node.journal().read(state.applied().0 + 1, 10_000).unwrap() {
            let index = LogIndex(record.index);
            let applied = JournalEntry::decode(&record.entry).unwrap().apply_to(&mut state, index);
            assert_eq!(applied.hash, Hash(record.hash), "at {index}");
            if index == through {
                break;
            }
        }
    }
    state
}

/// Writes until the log that is needed from here on is gone.
async fn write_on(group: &Group, prefix: &str) {
    let writer = &group.members[group.leader().await];
    let node = writer.node();
    let from = node.status().last_index;
    for count in 0..150 {
        writer.create(&format!("{prefix}{count}")).await;
    }
    eventually("the log to be purged", async || (node.status().purged_index > from + 10).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_away_fetches_what_it_missed_twice_over_and_its_journal_is_whole() {
    let mut group = Group::with(3, small).start_all().await;
    let away = group.follower().await;
    group.members[away].create("before").await;
    group.agreed().await;
    for round in ["a", "b"] {
        group.members[away].kill();
        write_on(&group, round).await;
        group.members[away].start().await;
        let (index, hash) = group.agreed().await;
        let returned = group.members[away].node();
        assert!(returned.status().snapshot_index > 50, "it was a snapshot that helped");
        eventually("the journal to be whole", async || returned.journal().gaps().unwrap().is_empty().then_some(()))
            .await;
        assert_eq!(returned.journal().first_index(), Some(1));
        assert_eq!(replay(&returned, index).hash(), hash);
        returned.journal().verify().unwrap();
        // A feed finds it, too.
        let mut feed = returned.follow(LogIndex(1)).unwrap();
        for expected in 1..=index.0 {
            assert_eq!(feed.next().await.unwrap().index, LogIndex(expected));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn old_segments_go_when_the_group_says_so_and_nothing_is_fetched_that_would_go_again() {
    let mut group = Group::with(3, small).start_all().await;
    let away = group.follower().await;
    group.agreed().await;
    group.members[away].kill();
    let leader = group.leader().await;
    group.members[leader].propose(request(set("journal_bytes_max", "8000"))).await.unwrap().result.unwrap();
    for round in ["a", "b", "c", "d"] {
        write_on(&group, round).await;
    }
    let node = group.members[leader].node();
    let first =
        eventually("old segments to go", async || node.journal().first_index().filter(|first| *first > 1)).await;
    // Whole segments go, and the newest stays.
    assert!(node.journal().disk_bytes() < 24_000, "{}", node.journal().disk_bytes());
    // What is left begins where a state is kept, or before.
    assert!(node.snapshots().indexes().iter().all(|index| *index + 1 >= first), "{:?}", node.snapshots().indexes());
    node.journal().verify().unwrap();

    group.members[away].start().await;
    group.agreed().await;
    let returned = group.members[away].node();
    assert!(!returned.journal().gaps().unwrap().is_empty());
    // Switched off, it fetches what the others still have; what they have let go stays missing.
    group.members[leader].propose(request(set("journal_bytes_max", "0"))).await.unwrap().result.unwrap();
    group.members[leader].create("later").await;
    group.agreed().await;
    assert!(returned.journal().last_index() >= node.journal().last_index().map(|last| last.saturating_sub(1)));
}

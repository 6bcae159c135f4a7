//! The journals of nodes: what they lack is fetched from the others, and what is too old is let go.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::common::{Group, Member, eventually, request};
use loadline_log::{Journal, JournalOptions, SharedDisk};
use loadline_raft_node::{Node, NodeConfig, NodeObserver};
use loadline_state_machine::{Command, Hash, JournalEntry, LogIndex, State};

fn small(config: &mut NodeConfig) {
    config.snapshot_every = 50;
    config.keep_entries = 5;
    config.journal_segment_bytes = 4 << 10;
    config.history_look_every = Duration::from_millis(50);
}

/// Sees how often a node looks for what it lacks, and what it does about it.
#[derive(Debug, Default)]
struct Onlooker {
    looks: AtomicU64,
    lacking: AtomicU64,
    fetched: AtomicU64,
}

impl NodeObserver for Onlooker {
    fn history_lacking(&self, entries: u64) {
        self.lacking.store(entries, Ordering::SeqCst);
        self.looks.fetch_add(1, Ordering::SeqCst);
    }

    fn history_fetched(&self, entries: u64) {
        self.fetched.fetch_add(entries, Ordering::SeqCst);
    }
}

impl Onlooker {
    /// Waits until the node has looked twice from now on: what the first look led to is done by the second.
    async fn looks_twice(&self) {
        let before = self.looks.load(Ordering::SeqCst);
        eventually("two looks", async || (self.looks.load(Ordering::SeqCst) >= before + 2).then_some(())).await;
    }
}

/// Sets how many bytes of the journal are kept; 0 is all.
async fn set_limit(group: &Group, bytes_max: &str) {
    let (name, value) = ("journal_bytes_max".to_owned(), bytes_max.to_owned());
    let leader = group.leader().await;
    let receipt = group.members[leader].propose(request(Command::SetSetting { name, value, etag: None })).await;
    receipt.unwrap().result.unwrap();
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
async fn while_a_limit_is_set_everything_is_fetched_that_the_others_have() {
    let mut group = Group::with(3, small).start_all().await;
    // Far more than there is: nothing goes, and everybody has everything.
    set_limit(&group, "1000000000").await;
    let away = group.follower().await;
    write_on(&group, "a").await;
    // A snapshot makes the journal durable: it has a beginning when it comes back.
    let leaving = group.members[away].node();
    eventually("a snapshot", async || (leaving.status().snapshot_index > 50).then_some(())).await;
    drop(leaving);
    group.members[away].kill();
    write_on(&group, "b").await;
    let seen = Arc::new(Onlooker::default());
    group.members[away].observer = seen.clone();
    group.members[away].start().await;
    group.agreed().await;
    let returned = group.members[away].node();
    eventually("what was missed", async || {
        (seen.fetched.load(Ordering::SeqCst) > 0 && returned.journal().gaps().unwrap().is_empty()).then_some(())
    })
    .await;
    assert_eq!(returned.journal().first_index(), Some(1));

    let seen = Arc::new(Onlooker::default());
    let mut newcomer = Member::new("n4", 4);
    newcomer.config.join = group.members.iter().map(|member| member.config.address.clone()).collect();
    small(&mut newcomer.config);
    newcomer.observer = seen.clone();
    group.add(newcomer).start().await;
    group.voters_are(&[1, 2, 3, 4]).await;
    let (index, hash) = group.agreed().await;
    let fourth = group.members[3].node();
    assert!(fourth.status().snapshot_index > 50, "it began with a snapshot");
    eventually("everything", async || fourth.journal().gaps().unwrap().is_empty().then_some(())).await;
    assert_eq!(fourth.journal().first_index(), Some(1));
    assert!(seen.fetched.load(Ordering::SeqCst) > 0);
    assert_eq!(replay(&fourth, index).hash(), hash);
    eventually("nothing to be lacking", async || (seen.lacking.load(Ordering::SeqCst) == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_segments_go_when_the_group_says_so_and_what_nobody_has_any_more_stays_missing() {
    let mut group = Group::with(3, small).start_all().await;
    let away = group.follower().await;
    group.agreed().await;
    group.members[away].kill();
    set_limit(&group, "8000").await;
    for round in ["a", "b", "c", "d"] {
        write_on(&group, round).await;
    }
    let node = group.members[group.leader().await].node();
    let first =
        eventually("old segments to go", async || node.journal().first_index().filter(|first| *first > 1)).await;
    // Whole segments go, and the newest stays.
    assert!(node.journal().disk_bytes() < 24_000, "{}", node.journal().disk_bytes());
    // What is left can be replayed: the newest state is not older than its beginning.
    let newest = node.snapshots().indexes().into_iter().max();
    assert!(newest.is_some_and(|newest| newest + 1 >= first), "{newest:?}, and {first} is the first entry");
    node.journal().verify().unwrap();

    set_limit(&group, "0").await;
    let seen = Arc::new(Onlooker::default());
    group.members[away].observer = seen.clone();
    group.members[away].start().await;
    group.agreed().await;
    // It fetches what is left of what it missed.
    let returned = group.members[away].node();
    let lacks = eventually("what the others keep", async || {
        let others = (0..3).filter(|other| *other != away);
        let kept = others.filter_map(|other| group.members[other].node().journal().first_index()).min()?;
        let lacks = returned.journal().gaps().unwrap();
        lacks.first().is_some_and(|gap| lacks.len() == 1 && kept > 1 && gap.last + 1 == kept).then_some(lacks)
    })
    .await;
    assert!(seen.fetched.load(Ordering::SeqCst) > 0);
    returned.journal().verify().unwrap();
    seen.looks_twice().await;
    assert_eq!(seen.lacking.load(Ordering::SeqCst), lacks[0].last - lacks[0].first + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_and_leads_nowhere_any_more_is_given_up_for_what_the_others_still_have() {
    let mut group = Group::with(3, small).start_all().await;
    let away = group.follower().await;
    group.members[away].create("before").await;
    group.agreed().await;
    let leaving = group.members[away].node();
    leaving.journal().sync().unwrap();
    drop(leaving);
    group.members[away].kill();
    for round in ["a", "b", "c"] {
        write_on(&group, round).await;
    }
    // It comes back, and does not look for what it missed yet.
    group.members[away].config.history_look_every = Duration::from_secs(3_600);
    group.members[away].start().await;
    group.agreed().await;
    let returned = group.members[away].node();
    let gap = eventually("a gap", async || returned.journal().gaps().unwrap().pop()).await;
    drop(returned);
    group.members[away].kill();
    // Some of it has come when it stops again.
    let others: Vec<Node> = (0..3).filter(|other| *other != away).map(|other| group.members[other].node()).collect();
    let begun_to = {
        let disk: SharedDisk = Arc::new(group.members[away].disk.clone());
        let journal = Journal::open(disk, JournalOptions::default()).unwrap();
        let mut records = others[0].journal().read(gap.first, 2_000).unwrap();
        records.retain(|record| record.index < gap.last);
        let filling = journal.fill(gap.clone()).unwrap();
        filling.add(records).unwrap();
        filling.next()
    };
    assert!(begun_to > gap.first && begun_to < gap.last, "{begun_to} of {gap:?}");

    let first = |node: &Node| node.journal().first_index().unwrap();
    set_limit(&group, &(others[0].journal().disk_bytes() / 2).to_string()).await;
    write_on(&group, "d").await;
    let kept = eventually("what would come next to go", async || {
        let kept = others.iter().map(first).min()?;
        (kept > begun_to).then_some(kept)
    })
    .await;
    assert!(kept < gap.last, "{kept} of {gap:?}");
    set_limit(&group, "0").await;
    group.members[away].config.history_look_every = Duration::from_millis(50);
    group.members[away].start().await;
    group.agreed().await;
    let returned = group.members[away].node();
    // Without that it asks for ever for what nobody has, and has nothing of what they have.
    eventually("what the others keep", async || {
        let lacks = returned.journal().gaps().unwrap();
        let kept = others.iter().map(first).min()?;
        (lacks.len() == 1 && lacks[0].first == gap.first && lacks[0].last + 1 == kept).then_some(())
    })
    .await;
    returned.journal().verify().unwrap();
}

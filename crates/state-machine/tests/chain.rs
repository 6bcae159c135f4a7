//! The hash chain: equal exactly when the same entries had the same consequences in the same order.

use crate::common::{NOON, World, anonymous, create_cluster};
use loadline_state_machine::{
    CHECKPOINT_EVERY, CHECKPOINTS_KEPT, Command, Entry, Hash, LogIndex, Sealed, Span, State, apply, pass,
};

fn sealed(name: &str) -> Sealed {
    Sealed::seal(Entry { stamped_at: NOON, requests: vec![anonymous(vec![create_cluster(name)])] })
}

fn hash_after(steps: &[(u64, Option<&str>)]) -> Hash {
    let mut state = State::new();
    for (index, step) in steps {
        match step {
            Some(name) => apply(&mut state, LogIndex(*index), &sealed(name)),
            None => pass(&mut state, LogIndex(*index), b"membership"),
        };
    }
    state.hash()
}

#[test]
fn another_order_another_index_or_another_entry_is_another_hash() {
    let base = hash_after(&[(1, Some("a")), (2, Some("b"))]);
    assert_eq!(base, hash_after(&[(1, Some("a")), (2, Some("b"))]));
    let others = [
        hash_after(&[(1, Some("b")), (2, Some("a"))]),
        hash_after(&[(0, Some("a")), (1, Some("b"))]),
        hash_after(&[(1, Some("a")), (2, Some("c"))]),
        hash_after(&[(1, Some("a")), (2, None)]),
        hash_after(&[(1, Some("a")), (2, Some("b")), (3, None)]),
        hash_after(&[(1, Some("a"))]),
    ];
    for (place, other) in others.iter().enumerate() {
        assert_ne!(*other, base);
        assert_eq!(others.iter().filter(|hash| *hash == other).count(), 1, "history {place} is like another");
    }
}

#[test]
fn a_refused_request_is_in_the_chain_like_any_other() {
    let refused = hash_after(&[(1, Some("a")), (2, Some("a"))]);
    assert_ne!(refused, hash_after(&[(1, Some("a")), (2, Some("b"))]));
    assert_ne!(refused, hash_after(&[(1, Some("a"))]));
}

#[test]
fn what_raft_put_into_the_log_is_not_taken_for_an_entry_of_ours() {
    let entry = sealed("a");
    let mut applied = State::new();
    apply(&mut applied, LogIndex(1), &entry);
    let mut passed = State::new();
    pass(&mut passed, LogIndex(1), entry.bytes());
    assert_ne!(applied.hash(), passed.hash());
    assert_eq!(passed.cluster_count(), 0);
}

#[test]
fn passing_an_index_changes_nothing_but_the_place_in_the_log() {
    let mut world = World::new();
    world.must(create_cluster("a"));
    let before = world.state.clone();
    let applied = pass(&mut world.state, LogIndex(2), b"membership");
    assert_eq!(applied.receipts, []);
    assert_eq!(applied.events, []);
    assert_eq!(applied.time, before.now());
    assert_eq!(applied.hash, world.state.hash());
    assert_eq!(world.state.applied(), LogIndex(2));
    assert_eq!(world.state.cluster("a"), before.cluster("a"));
    assert_eq!(world.state.now(), before.now());
}

#[test]
fn checkpoints_lie_at_the_same_indexes_everywhere_and_only_the_last_are_kept() {
    let mut world = World::new();
    let mut hashes = Vec::new();
    let rounds = CHECKPOINTS_KEPT as u64 + 3;
    for index in 1..=rounds * CHECKPOINT_EVERY + 5 {
        let hash = if index % 2 == 0 {
            world.apply(vec![anonymous(vec![Command::Tick])]).hash
        } else {
            pass(&mut world.state, LogIndex(index), b"").hash
        };
        if index % CHECKPOINT_EVERY == 0 {
            hashes.push((LogIndex(index), hash));
        }
        world.pass_time(Span::from_millis(1));
    }
    let kept: Vec<_> = world.state.checkpoints().collect();
    assert_eq!(kept, hashes[hashes.len() - CHECKPOINTS_KEPT..]);

    let (last, hash) = kept[kept.len() - 1];
    assert_eq!(world.state.hash_at(last), Some(hash));
    assert_eq!(world.state.hash_at(LogIndex(last.0 + 1)), None);
    assert_eq!(world.state.hash_at(world.state.applied()), Some(world.state.hash()));
    assert_eq!(world.state.hash_at(LogIndex(CHECKPOINT_EVERY)), None, "forgotten");
    assert_eq!(State::new().hash_at(LogIndex(0)), None);
    world.through_snapshot();
}

#[test]
fn a_log_may_begin_at_0_or_at_1() {
    for first in [0, 1] {
        let mut state = State::new();
        apply(&mut state, LogIndex(first), &sealed("a"));
        apply(&mut state, LogIndex(first + 1), &sealed("b"));
        assert_eq!(state.applied(), LogIndex(first + 1));
    }
}

#[test]
#[should_panic(expected = "entry 3 cannot follow entry 1")]
fn a_gap_in_the_log_stops_the_node() {
    hash_after(&[(1, Some("a")), (3, Some("b"))]);
}

#[test]
#[should_panic(expected = "entry 1 cannot follow entry 1")]
fn an_entry_that_was_applied_is_not_applied_again() {
    hash_after(&[(1, Some("a")), (1, Some("a"))]);
}

#[test]
#[should_panic(expected = "entry 0 cannot follow entry 0")]
fn not_even_the_very_first() {
    hash_after(&[(0, None), (0, None)]);
}

#[test]
#[should_panic(expected = "entry 2 cannot follow entry 0")]
fn a_log_does_not_begin_in_the_middle() {
    hash_after(&[(2, Some("a"))]);
}

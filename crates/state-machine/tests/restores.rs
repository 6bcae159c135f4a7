//! Restoring a backup of another group, of a hostile one, and what stays ours.

use crate::common::{
    NOON, World, anonymous, create_cluster, create_size, identified, request_id, restore_commands, set,
};
use loadline_state_machine::{
    Answer, ClusterId, Command, Done, Epoch, Hash, LogIndex, NodeNumber, RESTORE_CHUNK_BYTES_MAX, Receipt, Refused,
    Rejection, Revision, Span, State,
};

/// Restores in one transaction; gives back its receipt.
fn restore(world: &mut World, backup: &[u8]) -> Receipt {
    let index = world.next_index();
    world.ask(anonymous(restore_commands(backup, index, 1_000)))
}

/// A world of another group, further on than ours.
fn another_group() -> World {
    let mut world = World::new();
    world.must(Command::AnnounceLeader { node: NodeNumber(1), term: 9 });
    world.must(Command::FoundGroup { nodes: 5 });
    for number in 0..40 {
        world.must(create_cluster(&format!("theirs-{number}")));
    }
    world.must(create_size("theirs", Some(10)));
    world.must(set("request_window_count", "500"));
    world.must(Command::AdmitNode { name: "n6".to_owned(), address: "host:1".to_owned() });
    world
}

#[test]
fn a_backup_of_another_group_brings_its_tables_and_leaves_us_our_place_in_the_log() {
    let theirs = another_group();
    let mut ours = World::new();
    ours.pass_time(Span::from_hours(1));
    ours.must(Command::AnnounceLeader { node: NodeNumber(2), term: 3 });
    ours.must(Command::FoundGroup { nodes: 3 });
    let kept = identified(request_id(ours.time, 1), vec![create_cluster("ours")]);
    let first = ours.ask(kept.clone());
    let before = ours.state.clone();

    let receipt = restore(&mut ours, &theirs.state.encode());
    let incarnation = ours.time.as_millis() + 1;
    let answer = Answer::Restored {
        incarnation,
        backup_index: theirs.state.applied(),
        backup_incarnation: theirs.state.incarnation(),
    };
    assert_eq!(receipt.result.as_ref().ok().and_then(|done| done.last()), Some(&Done { changed: true, answer }));

    assert_eq!(ours.state.applied(), LogIndex(before.applied().0 + 1));
    assert_eq!(ours.state.now(), before.now());
    assert_eq!(ours.state.rules(), before.rules());
    assert_eq!(ours.state.epoch(), Some(Epoch { incarnation, index: LogIndex(1) }));
    assert!(ours.state.epoch() > before.epoch());
    assert_eq!(ours.state.cluster_count(), 40);
    assert!(ours.state.cluster("ours").is_none());
    assert_eq!(ours.state.setting("request_window_count").map(|it| it.value), Some("500".to_owned()));
    assert_eq!(ours.ask(kept), Receipt { repeated: true, ..first }, "a request of before is still known");

    let admitted = ours.must(Command::AdmitNode { name: "n".to_owned(), address: "host:1".to_owned() });
    let node = Done { changed: true, answer: Answer::Node(NodeNumber(7)) };
    assert_eq!(admitted.result, Ok(vec![node]), "beyond the numbers of both groups");
}

#[test]
fn an_id_that_a_foreign_backup_brought_is_not_given_to_a_new_cluster() {
    let theirs = another_group();
    let mut ours = World::new();
    restore(&mut ours, &theirs.state.encode());
    // Our log now comes through the indexes from which the ids of the backup are.
    for number in 0..50 {
        ours.must(create_cluster(&format!("ours-{number}")));
    }
    assert_eq!(ours.state.cluster_count(), 90);
    let first_of_theirs = ClusterId { index: LogIndex(3), ordinal: 0 };
    assert_eq!(ours.state.cluster_by_id(first_of_theirs).map(|it| it.name.as_str()), Some("theirs-0"));
    let beside = ClusterId { index: LogIndex(3), ordinal: 1 };
    assert_eq!(ours.state.cluster_by_id(beside).map(|it| it.name.as_str()), Some("ours-1"));
}

#[test]
fn an_incarnation_is_later_than_both_lives_even_if_the_clock_is_behind() {
    let mut late = World::new();
    late.pass_time(Span::from_days(30));
    late.must(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
    let mut world = World::new();
    world.must(Command::AnnounceLeader { node: NodeNumber(1), term: 1 });
    restore(&mut world, &late.state.encode());
    assert_eq!(world.state.incarnation(), late.time.as_millis() + 1);
    restore(&mut world, &late.state.encode());
    assert_eq!(world.state.incarnation(), late.time.as_millis() + 2);
}

#[test]
fn two_names_that_were_exchanged_are_exchanged_back() {
    let mut world = World::new();
    world.must(create_cluster("a"));
    world.must(create_cluster("b"));
    world.must(create_size("s", Some(1)));
    world.must(create_size("t", Some(2)));
    let backup = world.state.encode();
    let rename = |name: &str, to: &str| Command::RenameCluster { name: name.to_owned(), to: to.to_owned(), etag: None };
    let rank = |name: &str, rank| Command::ChangeSize {
        name: name.to_owned(),
        rank: Some(rank),
        slots: None,
        price_micros_per_hour: None,
        etag: None,
    };
    let exchange = vec![rename("a", "x"), rename("b", "a"), rename("x", "b"), rank("s", 3), rank("t", 1), rank("s", 2)];
    assert!(world.ask(anonymous(exchange)).result.is_ok());
    let id = |world: &World, name: &str| world.state.cluster(name).map(|cluster| cluster.id);
    assert_eq!(id(&world, "a"), Some(ClusterId { index: LogIndex(2), ordinal: 0 }));
    assert!(restore(&mut world, &backup).result.is_ok());
    assert_eq!(id(&world, "a"), Some(ClusterId { index: LogIndex(1), ordinal: 0 }));
    assert_eq!(id(&world, "b"), Some(ClusterId { index: LogIndex(2), ordinal: 0 }));
    assert_eq!(world.state.sizes().map(|size| size.name.as_str()).collect::<Vec<_>>(), ["s", "t"]);
    world.through_snapshot();
}

#[test]
fn a_chunk_may_not_be_larger_than_an_entry_can_carry() {
    let mut world = World::new();
    let bytes = vec![0; usize::try_from(RESTORE_CHUNK_BYTES_MAX).unwrap() + 1];
    world.must(Command::BeginRestore { bytes_total: bytes.len() as u64, hash: Hash::of(&bytes) });
    let restore = Revision { index: LogIndex(1), ordinal: 0 };
    let chunk = |bytes: &[u8]| anonymous(vec![Command::RestoreChunk { restore, offset: 0, bytes: bytes.into() }]);
    assert!(matches!(
        world.ask(chunk(&bytes)).result,
        Err(Refused { ordinal: 0, rejection: Rejection::OutOfRange { .. } })
    ));
    assert!(world.ask(chunk(&bytes[1..])).result.is_ok());
}

#[test]
fn a_backup_with_any_bit_flipped_is_refused_or_restored_but_never_breaks_the_tables() {
    let theirs = another_group().state.encode();
    let mut refused = 0;
    for at in 0..theirs.len() * 8 {
        // Every 7th bit reaches every position of a byte and keeps the test short.
        if at % 7 != 0 {
            continue;
        }
        let mut backup = theirs.clone();
        backup[at / 8] ^= 1 << (at % 8);
        let mut world = World::new();
        world.must(create_cluster("ours"));
        let before = world.state.clone();
        match restore(&mut world, &backup).result {
            Ok(_) => {
                world.through_snapshot();
                world.must(create_cluster("after"));
            }
            Err(Refused { rejection, .. }) => {
                refused += 1;
                assert!(
                    matches!(rejection, Rejection::BackupUnreadable { .. } | Rejection::BackupTooNew { .. }),
                    "{rejection:?}"
                );
                assert_eq!(world.state.cluster("ours"), before.cluster("ours"));
            }
        }
    }
    assert!(refused > 0);
}

#[test]
fn an_empty_backup_empties_the_tables() {
    let mut world = World::new();
    world.must(create_cluster("ours"));
    world.must(set("enable_auto_scaling", "true"));
    assert!(restore(&mut world, &State::new().encode()).result.is_ok());
    assert_eq!(world.state.cluster_count(), 0);
    let setting = world.state.setting("enable_auto_scaling").expect("it always exists");
    assert!(setting.is_default);
    assert_eq!(setting.updated.map(|etag| etag.index), Some(LogIndex(3)), "it has changed, so its etag has");
    assert_eq!(world.state.incarnation(), NOON.as_millis());
}

//! A journal of which the oldest segments were let go: what is left still verifies, replays from a kept state, and is exported from there.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use loadline_audit::day::Day;
use loadline_audit::export::{Begin, Origin, bounds, export};
use loadline_audit::verify::{verify_file, verify_folder};
use loadline_audit::{Kept, Moment, Source as _, Start, replay};
use loadline_log::{
    Journal, JournalOptions, LogPosition, RealDisk, SharedDisk, SigningKey, SnapshotMeta, SnapshotStore, SnapshotsKept,
};
use loadline_state_machine::State;

const ENTRIES: u64 = 3_000;
const SNAPSHOT_EVERY: u64 = 250;

fn snapshot(store: &SnapshotStore, state: &State) {
    let meta = SnapshotMeta {
        last: Some(LogPosition { term: 1, node: 1, index: state.applied().0 }),
        membership_at: None,
        membership: Vec::new().into(),
        state_hash: state.hash().0,
        created_ms: 0,
        group: "g".to_owned(),
        incarnation: 1,
    };
    store.write(&meta, &state.encode()).unwrap();
}

/// A journal in small segments with a snapshot now and then. Gives the last entry that was let go, and the state at the end.
fn shortened(folder: &Path) -> (u64, State) {
    let disk: SharedDisk = Arc::new(RealDisk::open(folder).unwrap());
    let options = JournalOptions { segment_bytes: 24 << 10, block_bytes: 8 << 10 };
    let journal = Journal::open(Arc::clone(&disk), options).unwrap();
    let store =
        SnapshotStore::open(disk, SnapshotsKept { latest: 2, starts_max: 4, starts_every: SNAPSHOT_EVERY }).unwrap();
    let mut day = Day::new(20, 1);
    for index in 1..=ENTRIES {
        journal.append(day.record()).unwrap();
        if index % SNAPSHOT_EVERY == 0 {
            snapshot(&store, day.state());
        }
    }
    let segments = journal.sealed_segments();
    assert!(segments.len() > 6, "{segments:?}");
    let through = segments[segments.len() / 2].last;
    journal.let_go(through).unwrap();
    store.forget_before(through);
    assert!(store.indexes().iter().all(|index| *index >= through), "{:?}", store.indexes());
    journal.close().unwrap();
    (through, day.state().clone())
}

#[test]
fn what_is_left_verifies_and_replays_from_a_kept_state() {
    let folder = tempfile::tempdir().unwrap();
    let (through, end) = shortened(folder.path());
    let kept = Kept::open(folder.path()).unwrap();
    assert_eq!(kept.range(), Some(through + 1..=ENTRIES));
    let start = *kept.starts().first().unwrap();
    let replayed = replay(&kept, Start::Snapshot { not_after: start }, Moment::End, |_| {}).unwrap();
    assert_eq!((replayed.entries, &replayed.state), (ENTRIES - start, &end));

    // An export of everything begins where it can be replayed.
    let entries = bounds(&kept, Begin::First, Moment::End).unwrap();
    assert_eq!(entries, start + 1..=ENTRIES);
    let origin = Origin {
        group: "g".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: "0.1.0".to_owned(),
        made_ms: 0,
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = SigningKey::of_seed(&[7; 32]).unwrap();
    export(&kept, entries, &origin, &key, File::create(file.path()).unwrap(), |_, _| {}).unwrap();
    drop(kept);
    let verdict = verify_file(file.path(), None, |_| {}).unwrap();
    assert!(verdict.is_valid(), "{verdict:?}");
    assert_eq!((verdict.replayed, verdict.hash), (ENTRIES - start, Some(end.hash())));

    let verdict = verify_folder(folder.path(), |_| {}).unwrap();
    assert!(verdict.is_valid(), "{verdict:?}");
    assert_eq!((verdict.chained, verdict.replayed), (start - through, ENTRIES - start));
    assert_eq!(verdict.hash, Some(end.hash()));
}

#[test]
fn a_snapshot_of_another_history_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let journal = Journal::open(Arc::clone(&disk), JournalOptions::default()).unwrap();
    let store = SnapshotStore::open(disk, 2).unwrap();
    let (mut day, mut other) = (Day::new(5, 1), Day::new(5, 2));
    for _ in 0..100 {
        journal.append(day.record()).unwrap();
        other.record();
    }
    snapshot(&store, other.state());
    journal.close().unwrap();
    drop((journal, store));
    let verdict = verify_folder(folder.path(), |_| {}).unwrap();
    assert_eq!(verdict.findings[0].to_string(), "entry 100: the snapshot after it is of another history");
}

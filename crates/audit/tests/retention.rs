//! A journal of which the oldest segments were let go: what is left still verifies, replays from a kept state, and is exported from there.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use loadline_audit::day::Day;
use loadline_audit::export::{Begin, ExportFailed, Origin, bounds, export};
use loadline_audit::verify::{verify_file, verify_folder};
use loadline_audit::{Kept, Moment, Source as _, Start, replay};
use loadline_log::{
    Journal, JournalOptions, LogPosition, RealDisk, SharedDisk, SigningKey, SnapshotMeta, SnapshotStore, SnapshotsKept,
};
use loadline_state_machine::{Command, State, Time};

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

fn limited(bytes_max: &str) -> Command {
    Command::SetSetting { name: "journal_bytes_max".to_owned(), value: bytes_max.to_owned(), etag: None }
}

/// A journal in small segments with a snapshot now and then, under limits that were set so after these entries. Gives the last entry that was
/// let go, and the state at the end.
fn shortened(folder: &Path, limits: &[(u64, &str)], keep: SnapshotsKept) -> (u64, State) {
    let disk: SharedDisk = Arc::new(RealDisk::open(folder).unwrap());
    let options = JournalOptions { segment_bytes: 24 << 10, block_bytes: 8 << 10 };
    let journal = Journal::open(Arc::clone(&disk), options).unwrap();
    let store = SnapshotStore::open(disk, keep).unwrap();
    let mut day = Day::new(20, 1);
    for index in 1..=ENTRIES {
        journal.append(day.record()).unwrap();
        if index % SNAPSHOT_EVERY == 0 {
            snapshot(&store, day.state());
        }
        for (_, bytes_max) in limits.iter().filter(|(after, _)| *after == index) {
            day.ask("alice", vec![limited(bytes_max)]);
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

const STARTS: SnapshotsKept = SnapshotsKept { latest: 2, starts_max: 4, starts_every: SNAPSHOT_EVERY };
const LATEST: SnapshotsKept = SnapshotsKept { latest: 2, starts_max: 0, starts_every: 0 };

#[test]
fn what_is_left_verifies_and_replays_from_a_kept_state() {
    let folder = tempfile::tempdir().unwrap();
    let (through, end) = shortened(folder.path(), &[(100, "200000")], STARTS);
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
    let gone = format!("entries 1 to {through} are not here: ");
    assert!(verdict.notes.iter().any(|note| note.starts_with(&gone)), "{:?}", verdict.notes);
}

#[test]
fn a_limit_that_was_taken_back_before_the_oldest_kept_state_is_found_in_the_entries() {
    let folder = tempfile::tempdir().unwrap();
    let (through, _) = shortened(folder.path(), &[(100, "200000"), (ENTRIES - 400, "0")], LATEST);
    let kept = Kept::open(folder.path()).unwrap();
    let oldest = *kept.starts().first().unwrap();
    assert!(oldest > ENTRIES - 300 && kept.start(oldest).unwrap().unwrap().journal_limits().is_none());
    drop(kept);
    let verdict = verify_folder(folder.path(), |_| {}).unwrap();
    assert!(verdict.is_valid(), "{verdict:?}");
    let gone = format!("entries 1 to {through} are not here: ");
    assert!(verdict.notes.iter().any(|note| note.starts_with(&gone)), "{:?}", verdict.notes);
}

#[test]
fn a_beginning_that_nobody_could_let_go_was_taken_away() {
    for keep in [STARTS, LATEST] {
        let folder = tempfile::tempdir().unwrap();
        let (through, _) = shortened(folder.path(), &[], keep);
        let verdict = verify_folder(folder.path(), |_| {}).unwrap();
        assert_eq!(verdict.findings.len(), 1, "{verdict:?}");
        assert_eq!(verdict.findings[0].entries, Some((1, Some(through))), "{verdict:?}");
        assert!(verdict.findings[0].what.contains("nobody has set journal_retention"), "{verdict:?}");
    }
}

#[test]
fn a_time_before_what_is_kept_is_not_exported_from_somewhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let (through, _) = shortened(folder.path(), &[], STARTS);
    let kept = Kept::open(folder.path()).unwrap();
    let start = *kept.starts().first().unwrap();
    let time = |index| kept.read(index, 1).unwrap()[0].time_ms;
    let first = time(through + 1);
    let from = |millis| bounds(&kept, Begin::Time(Time::from_millis(millis)), Moment::End);
    for millis in [0, first - 1, first] {
        let failed = from(millis).unwrap_err();
        let expected = ExportFailed::Missing { index: through, next: Some(start + 1) };
        assert_eq!(failed.to_string(), expected.to_string(), "from {millis}");
    }
    assert!(from(time(start) + 1).is_ok_and(|entries| *entries.start() > start));
}

#[test]
fn an_export_is_refused_at_once_where_nothing_is_kept_to_begin_with_and_says_where_it_can_begin() {
    let folder = tempfile::tempdir().unwrap();
    let (through, _) = shortened(folder.path(), &[], STARTS);
    let kept = Kept::open(folder.path()).unwrap();
    let start = *kept.starts().first().unwrap();
    assert!(through + 2 < start, "there is something before it");
    let time = Time::from_millis(kept.read(through + 2, 1).unwrap()[0].time_ms);
    for (from, to, index) in [
        (Begin::Index(through + 1), Moment::End, through + 1),
        (Begin::Index(start), Moment::End, start),
        (Begin::Time(time), Moment::End, through + 2),
        (Begin::First, Moment::Index(start), start),
    ] {
        let failed = bounds(&kept, from, to).unwrap_err();
        let expected = ExportFailed::Unreplayable { index, next: Some(start + 1) };
        assert_eq!(failed.to_string(), expected.to_string(), "from {from:?} to {to:?}");
    }
    assert_eq!(bounds(&kept, Begin::Index(start + 1), Moment::End).unwrap(), start + 1..=ENTRIES);
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

//! The folder of a stopped node as evidence: looking at it changes nothing, and what was taken from it or damaged in it is found and named.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadline_audit::day::Day;
use loadline_audit::verify::{Progress, Verdict, verify_folder};
use loadline_audit::{Kept, Moment, Source as _, SourceError, Start, replay};
use loadline_log::{
    Gap, Journal, JournalOptions, JournalRecord, LogPosition, OpenError, RealDisk, Record, SharedDisk, SnapshotMeta,
    SnapshotStore, StoredVote, Threading, Wal, WalOptions,
};
use loadline_state_machine::State;

pub(super) const ENTRIES: u64 = 600;
/// Small blocks and segments, so that there are some of both.
const SMALL: JournalOptions = JournalOptions { segment_bytes: 24 << 10, block_bytes: 4 << 10 };

fn at(index: u64) -> LogPosition {
    LogPosition { term: 1, node: 1, index }
}

pub(super) fn snapshot(disk: &SharedDisk, state: &State) {
    let meta = SnapshotMeta {
        last: Some(at(state.applied().0)),
        membership_at: None,
        membership: Vec::new().into(),
        state_hash: state.hash().0,
        created_ms: 0,
        group: "g".to_owned(),
        incarnation: 1,
    };
    SnapshotStore::open(disk.clone(), 2).unwrap().write(&meta, &state.encode()).unwrap();
}

/// A folder as a node leaves it: a journal up to `journal`, and snapshots after these entries.
pub(super) fn folder(journal: u64, snapshots: &[u64]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let kept = Journal::open(disk.clone(), SMALL).unwrap();
    let mut day = Day::new(20, 1);
    for index in 1..=ENTRIES {
        let record = day.record();
        if index <= journal {
            kept.append(record).unwrap();
        }
        if snapshots.contains(&index) {
            snapshot(&disk, day.state());
        }
    }
    kept.close().unwrap();
    folder
}

/// A write-ahead log with these entries, of which those up to `purged` are gone and those up to `committed` are known to be committed.
pub(super) fn log(folder: &Path, entries: RangeInclusive<u64>, purged: Option<u64>, committed: u64) {
    let options = WalOptions { threading: Threading::Inline, ..WalOptions::default() };
    let wal = Wal::open(Arc::new(RealDisk::open(folder).unwrap()), options).unwrap();
    wal.save_vote(StoredVote { term: 1, node: 1, committed: true }, Box::new(|done| done.unwrap()));
    wal.save_committed(Some(at(committed)));
    let records = entries.map(|index| Record { id: at(index), kind: 1, payload: vec![7; 20].into() }).collect();
    wal.append(records, Box::new(|done| done.unwrap()));
    if let Some(purged) = purged {
        wal.purge(at(purged), Box::new(|done| done.unwrap()));
    }
}

pub(super) fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

pub(super) fn segments(folder: &Path) -> Vec<PathBuf> {
    files(&folder.join("journal")).into_keys().collect()
}

pub(super) fn verified(folder: &Path) -> Verdict {
    verify_folder(folder, |_| {}).unwrap()
}

/// What is wrong, in words.
pub(super) fn wrong(folder: &Path) -> Vec<String> {
    verified(folder).findings.iter().map(ToString::to_string).collect()
}

#[test]
fn reading_leaves_every_byte_of_the_folder_as_it_was() {
    let folder = folder(ENTRIES, &[300]);
    log(folder.path(), 200..=ENTRIES, Some(250), ENTRIES);
    // What a node that starts would take away: half a segment, half a snapshot, and a torn end.
    std::fs::write(folder.path().join("journal/0000000000000099.journal.tmp"), b"half").unwrap();
    std::fs::write(folder.path().join("snapshots/0000000000000000.tmp"), b"half").unwrap();
    let last = segments(folder.path()).into_iter().rev().find(|path| path.extension().unwrap() == "journal").unwrap();
    let mut bytes = std::fs::read(&last).unwrap();
    bytes.extend([7; 50]);
    std::fs::write(&last, bytes).unwrap();
    let before = files(folder.path());

    let verdict = verified(folder.path());
    assert!(verdict.is_valid(), "{verdict:?}");
    assert_eq!(verdict.replayed, ENTRIES);
    let kept = Kept::open(folder.path()).unwrap();
    assert_eq!(replay(&kept, Start::Beginning, Moment::End, |_| {}).unwrap().entries, ENTRIES);
    assert_eq!(kept.read(ENTRIES, 1).unwrap().len(), 1);
    drop(kept);
    assert!(files(folder.path()) == before, "looking at it has changed it");
    assert!(verdict.notes[0].contains("the last 50 bytes of journal/"), "{:?}", verdict.notes);
}

#[test]
fn a_folder_that_nobody_may_write_to_can_be_read() {
    let folder = folder(ENTRIES, &[300]);
    let set = |mode: u32| {
        for (path, _) in files(folder.path()) {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode & 0o666)).unwrap();
        }
        for dir in ["journal", "snapshots", ""] {
            std::fs::set_permissions(folder.path().join(dir), std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set(0o555);
    let verdict = verified(folder.path());
    set(0o755);
    assert!(verdict.is_valid(), "{verdict:?}");
    assert_eq!((verdict.replayed, verdict.notes), (ENTRIES, vec![]));
}

#[test]
fn a_folder_without_its_lock_and_other_files_can_be_read() {
    let folder = folder(ENTRIES, &[]);
    std::fs::remove_file(folder.path().join("lock")).unwrap();
    std::fs::remove_dir(folder.path().join("snapshots")).unwrap_or_default();
    let before = files(folder.path());
    assert!(verified(folder.path()).is_valid());
    assert_eq!(files(folder.path()), before);
}

#[test]
fn a_folder_that_a_node_has_is_refused_and_one_that_is_not_there_is_not_made() {
    let folder = folder(ENTRIES, &[]);
    let node = RealDisk::open(folder.path()).unwrap();
    let refused = Kept::open(folder.path()).unwrap_err();
    assert!(matches!(refused, SourceError::Open(OpenError::InUse { .. })), "{refused}");
    drop(node);
    // Two may look at once.
    let one = Kept::open(folder.path()).unwrap();
    assert!(verified(folder.path()).is_valid());
    // And no node starts to write meanwhile.
    assert!(RealDisk::open(folder.path()).is_err());
    drop(one);
    let nowhere = folder.path().join("nowhere");
    assert!(Kept::open(&nowhere).is_err());
    assert!(!nowhere.exists());
}

#[test]
fn a_journal_that_ends_before_a_snapshot_is_not_valid() {
    let why = "the journal ends with entry 400, and there is a snapshot of the state after entry 500";
    let short = folder(400, &[500]);
    let found = wrong(short.path());
    assert!(found[0].starts_with(&format!("entries 401 to 500: {why}")), "{found:?}");
    // Also where the log has those entries: a node writes its snapshot after the journal.
    log(short.path(), 300..=ENTRIES, None, ENTRIES);
    assert!(wrong(short.path())[0].contains(why));
    let empty = folder(0, &[500]);
    let found = wrong(empty.path());
    assert!(found[0].starts_with("entries 1 to 500: the journal ends with entry 0"), "{found:?}");
    std::fs::remove_dir_all(empty.path().join("journal")).unwrap();
    assert_eq!(wrong(empty.path()), found);
}

#[test]
fn segments_that_are_taken_away_at_the_end_are_missed() {
    let whole = folder(ENTRIES, &[500]);
    let segments = segments(whole.path());
    assert!(segments.len() >= 3, "{segments:?}");
    for gone in segments.iter().rev() {
        std::fs::remove_file(gone).unwrap();
        let verdict = verified(whole.path());
        let end = verdict.stretches.last().map_or(0, |stretch| *stretch.end());
        assert_eq!(verdict.is_valid(), end >= 500, "{verdict:?}");
        assert!(end >= 500 || verdict.findings[0].entries == Some((end + 1, Some(500))), "{verdict:?}");
    }
}

#[test]
fn segments_that_are_taken_away_at_the_beginning_are_missed() {
    for (snapshots, why) in [(&[300, 500][..], "nobody has set journal_retention"), (&[], "no snapshot stands in")] {
        let whole = folder(ENTRIES, snapshots);
        let mut segments = segments(whole.path());
        assert!(segments.len() >= 3, "{segments:?}");
        segments.pop();
        for gone in segments {
            std::fs::remove_file(gone).unwrap();
            let verdict = verified(whole.path());
            let first = *verdict.stretches[0].start();
            assert_eq!(verdict.findings[0].entries, Some((1, Some(first - 1))), "{verdict:?}");
            let said = verdict.findings[0].to_string();
            assert!(said.contains("they are not here: segments") && said.contains(why), "{said}");
            // What is left is as good as it was.
            assert_eq!((verdict.findings.len(), verdict.replayed + verdict.chained), (1, ENTRIES + 1 - first));
        }
    }
}

/// The folder of a node that joined after entry 200, with these records after it, whose journal says that the hash before them is this.
pub(super) fn joined(hash: [u8; 32], records: impl IntoIterator<Item = JournalRecord>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let kept = Journal::open(disk, SMALL).unwrap();
    kept.start_after(200, hash).unwrap();
    for record in records {
        kept.append(record).unwrap();
    }
    kept.close().unwrap();
    folder
}

#[test]
fn of_what_is_only_chained_everything_is_compared_that_follows_from_the_bytes() {
    let mut day = Day::new(20, 1);
    let records: Vec<JournalRecord> = (0..ENTRIES).map(|_| day.record()).collect();
    let (before, later) = (records[199].hash, &records[200..]);
    let whole = verified(joined(before, later.to_vec()).path());
    assert!(whole.is_valid(), "{whole:?}");
    assert_eq!((whole.chained, whole.replayed), (ENTRIES - 200, 0));
    // The first one must follow from what the head of the segment says.
    let found = wrong(joined([9; 32], later.to_vec()).path());
    assert_eq!(found, ["entry 201: its hash does not follow from its bytes and the hash before it"]);
    let place = (50..).find(|place| later[*place].keys.len() > 1).unwrap();
    let altered = |alter: &dyn Fn(&mut JournalRecord)| {
        let mut records = later.to_vec();
        alter(&mut records[place]);
        let verdict = verified(joined(before, records).path());
        assert_eq!(verdict.findings[0].entries, Some((201 + place as u64, Some(201 + place as u64))), "{verdict:?}");
        verdict.findings[0].what.clone()
    };
    assert!(altered(&|record| record.keys = record.keys[1..].to_vec().into()).contains("under other keys"));
    assert!(altered(&|record| record.keys = [].into()).contains("under other keys"));
    assert!(altered(&|record| record.time_ms += 1).contains("at another time"));
    assert!(altered(&|record| record.time_ms -= 1).contains("at another time"));
}

#[test]
fn what_a_node_that_joined_has_fetched_is_whole_until_somebody_takes_of_it() {
    let mut day = Day::new(20, 1);
    let records: Vec<JournalRecord> = (0..ENTRIES).map(|_| day.record()).collect();
    let folder = joined(records[199].hash, records[200..].to_vec());
    let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let kept = Journal::open(disk, SMALL).unwrap();
    let filling = kept.fill(Gap { first: 1, last: 200, before: None, after: records[199].hash }).unwrap();
    filling.add(records[..200].to_vec()).unwrap();
    assert!(filling.finish().unwrap());
    kept.close().unwrap();
    drop(kept);
    let verdict = verified(folder.path());
    assert!(verdict.is_valid(), "{verdict:?}");
    assert_eq!((verdict.replayed, verdict.chained, verdict.notes), (ENTRIES, 0, vec![]));
    let fetched = files(&folder.path().join("filled"));
    assert!(fetched.len() > 1, "{:?}", fetched.keys());
    std::fs::remove_file(fetched.keys().next().unwrap()).unwrap();
    let verdict = verified(folder.path());
    let first = *verdict.stretches[0].start();
    assert!((2..=200).contains(&first), "{verdict:?}");
    assert_eq!(verdict.findings[0].entries, Some((1, Some(first - 1))), "{verdict:?}");
}

#[test]
fn keys_under_which_an_entry_would_not_be_found_are_named_in_a_folder_too() {
    let folder = tempfile::tempdir().unwrap();
    let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let kept = Journal::open(disk, SMALL).unwrap();
    let mut day = Day::new(20, 1);
    for index in 1..=300 {
        let mut record = day.record();
        if index == 120 {
            record.keys = vec![b"nobody".to_vec()].into();
        }
        kept.append(record).unwrap();
    }
    kept.close().unwrap();
    drop(kept);
    let found = wrong(folder.path());
    assert_eq!(found, ["entry 120: it is kept under other keys than those by which it would be found"]);
}

#[test]
fn how_far_it_has_come_is_told_while_the_bytes_are_read() {
    let folder = folder(ENTRIES, &[]);
    let bytes: u64 = files(&folder.path().join("journal")).values().map(|bytes| bytes.len() as u64).sum();
    let (mut read, mut replayed) = (Vec::new(), 0);
    let tell = |progress| match progress {
        Progress::Reading { done, total } => read.push((done, total)),
        Progress::Replaying { done, .. } => replayed = done,
    };
    verify_folder(folder.path(), tell).unwrap();
    assert!(read.len() >= 3 && read.is_sorted() && read.iter().all(|(_, total)| *total == bytes), "{read:?}");
    assert_eq!((read.last(), replayed), (Some(&(bytes, bytes)), ENTRIES));
}

#[test]
fn what_the_write_ahead_log_has_let_go_of_must_be_in_the_journal() {
    let short = folder(400, &[]);
    log(short.path(), 300..=ENTRIES, Some(450), ENTRIES);
    let found = wrong(short.path());
    assert!(
        found[0].starts_with("entries 401 to 450: the journal ends with entry 400, and the write-ahead log"),
        "{found:?}"
    );
}

#[test]
fn a_journal_that_is_behind_its_log_as_after_a_crash_is_valid() {
    let short = folder(400, &[350]);
    log(short.path(), 300..=ENTRIES, Some(350), 590);
    let verdict = verified(short.path());
    assert!(verdict.is_valid(), "{verdict:?}");
    assert!(verdict.notes[0].contains("entries 401 to 590 are in the write-ahead log"), "{:?}", verdict.notes);
}

#[test]
fn a_snapshot_that_was_taken_in_the_moment_before_a_crash_is_no_fault() {
    let behind = folder(400, &[500]);
    log(behind.path(), 300..=410, None, 405);
    let verdict = verified(behind.path());
    assert!(verdict.is_valid(), "{verdict:?}");
    assert!(verdict.notes[0].contains("came from another node"), "{:?}", verdict.notes);
    // A log that was taken away says nothing.
    std::fs::remove_dir_all(behind.path().join("wal")).unwrap();
    assert!(!verified(behind.path()).is_valid());
}

#[test]
fn a_gap_that_the_journal_knows_of_is_no_fault() {
    let folder = tempfile::tempdir().unwrap();
    let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
    let kept = Journal::open(disk.clone(), SMALL).unwrap();
    let mut day = Day::new(20, 1);
    for index in 1..=ENTRIES {
        let record = day.record();
        if index == 500 {
            kept.start_after(500, day.state().hash().0).unwrap();
            snapshot(&disk, day.state());
        } else if !(301..=499).contains(&index) {
            kept.append(record).unwrap();
        }
    }
    kept.close().unwrap();
    drop((kept, disk));
    log(folder.path(), 500..=ENTRIES, Some(500), ENTRIES);
    let verdict = verified(folder.path());
    assert!(verdict.is_valid(), "{verdict:?}");
    assert_eq!(verdict.stretches, [1..=300, 501..=ENTRIES]);
}

#[test]
fn damage_is_a_verdict_that_names_the_entries() {
    let whole = folder(ENTRIES, &[]);
    let paths = segments(whole.path());
    let good = verified(whole.path());
    assert_eq!((good.is_valid(), good.replayed), (true, ENTRIES));
    let mut named = 0;
    for path in &paths {
        let bytes = std::fs::read(path).unwrap();
        for offset in (200..bytes.len().saturating_sub(200)).step_by(701) {
            let mut damaged = bytes.clone();
            damaged[offset] ^= 4;
            std::fs::write(path, &damaged).unwrap();
            let verdict = verified(whole.path());
            let shown = verdict.findings.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert!(!shown.is_empty(), "a bit of {path:?} at {offset} flips unnoticed");
            assert!(shown[0].contains("is damaged at offset") && !shown[0].contains("remove-peer"), "{shown:?}");
            match verdict.findings[0].entries {
                Some((first, last)) => {
                    let last = last.expect("what is behind it is intact and says where it goes on");
                    assert!(first <= last && last - first < 200 && last <= ENTRIES, "{shown:?}");
                    named += 1;
                }
                None => assert!(shown[0].starts_with("after entry "), "{shown:?}"),
            }
        }
        std::fs::write(path, &bytes).unwrap();
    }
    assert!(named > 20, "only {named} were about entries");
    assert!(verified(whole.path()).is_valid());
}

#[test]
fn what_is_before_the_damage_is_replayed() {
    let whole = folder(ENTRIES, &[]);
    let path = &segments(whole.path())[1];
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let verdict = verified(whole.path());
    assert_eq!(verdict.findings.len(), 1, "{verdict:?}");
    let (first, last) = verdict.findings[0].entries.unwrap();
    assert!(first > 1 && last.is_some_and(|last| last < ENTRIES), "{verdict:?}");
    assert_eq!(verdict.replayed, first - 1);
}

#[test]
fn a_missing_segment_and_a_damaged_snapshot_are_named() {
    let whole = folder(ENTRIES, &[300]);
    let paths = segments(whole.path());
    let moved = whole.path().join("moved");
    std::fs::rename(&paths[1], &moved).unwrap();
    let found = wrong(whole.path());
    assert!(found[0].starts_with("entries ") && found[0].ends_with("the file is missing"), "{found:?}");
    std::fs::rename(&moved, &paths[1]).unwrap();
    assert!(verified(whole.path()).is_valid());

    let snapshot = files(&whole.path().join("snapshots")).into_keys().next().unwrap();
    let mut bytes = std::fs::read(&snapshot).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&snapshot, bytes).unwrap();
    let verdict = verified(whole.path());
    let found = verdict.findings.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(found.len() == 1 && found[0].starts_with("snapshots/") && !found[0].contains("remove-peer"), "{found:?}");
    // The journal is as good as before.
    assert_eq!(verdict.replayed, ENTRIES);
}

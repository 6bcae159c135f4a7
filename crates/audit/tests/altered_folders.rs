//! The folder of a stopped node that somebody altered with care, checksums and all, or took something from that no checksum misses.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::path::Path;
use std::sync::Arc;

use loadline_audit::day::Day;
use loadline_audit::export::{Begin, ExportFailed, Origin, bounds, export};
use loadline_audit::verify::Verdict;
use loadline_audit::{Kept, Moment};
use loadline_log::{Identity, JournalRecord, RealDisk, SharedDisk, SigningKey};
use loadline_state_machine::State;

use super::evidence::{ENTRIES, files, folder, joined, log, snapshot, verified, wrong};

/// The state after an entry of the day that the folders are of.
fn state_after(index: u64) -> State {
    let mut day = Day::new(20, 1);
    (0..index).for_each(|_| drop(day.record()));
    day.state().clone()
}

/// The same with one setting or strategy of other value, under the same index and hash.
fn doctored(state: &State) -> State {
    let bytes = state.encode();
    let places = bytes.windows(5).enumerate().filter(|(_, word)| *word == b"100cc").map(|(place, _)| place);
    let altered = places.filter_map(|place| {
        let mut bytes = bytes.clone();
        bytes[place] = b'2';
        State::decode(&bytes).ok()
    });
    let altered = altered.into_iter().find(|altered| altered != state).expect("a size that can be another one");
    assert_eq!((altered.applied(), altered.hash()), (state.applied(), state.hash()));
    altered
}

fn keep(folder: &Path, state: &State) {
    let disk: SharedDisk = Arc::new(RealDisk::open(folder).unwrap());
    snapshot(&disk, state);
}

fn trusted(verdict: &Verdict) -> Vec<&String> {
    verdict.notes.iter().filter(|note| note.contains("taken on trust")).collect()
}

#[test]
fn a_snapshot_that_was_altered_under_its_own_hash_is_not_what_the_entries_lead_to() {
    let whole = folder(ENTRIES, &[]);
    keep(whole.path(), &state_after(200));
    keep(whole.path(), &doctored(&state_after(300)));
    let verdict = verified(whole.path());
    assert_eq!((verdict.replayed, trusted(&verdict).len()), (ENTRIES, 0), "{verdict:?}");
    assert_eq!(wrong(whole.path()), ["entry 300: the snapshot after it holds another state than the entries lead to"]);

    let right = folder(ENTRIES, &[200, 300]);
    assert_eq!(wrong(right.path()), [""; 0]);
}

#[test]
fn a_state_that_nothing_before_leads_to_is_taken_on_trust_until_the_next_one_shows_what_it_was() {
    let mut day = Day::new(20, 1);
    let records: Vec<JournalRecord> = (0..ENTRIES).map(|_| day.record()).collect();
    let folder = || joined(records[199].hash, records[200..].to_vec());
    let (before, later) = (state_after(200), state_after(400));

    let honest = folder();
    keep(honest.path(), &before);
    keep(honest.path(), &later);
    let verdict = verified(honest.path());
    assert_eq!((verdict.is_valid(), verdict.replayed), (true, ENTRIES - 200), "{verdict:?}");
    assert!(trusted(&verdict)[0].starts_with("the state after entry 200 is taken on trust"), "{verdict:?}");

    let altered = folder();
    keep(altered.path(), &doctored(&before));
    keep(altered.path(), &later);
    let found = wrong(altered.path());
    assert!(found[0].starts_with("entry 400: the snapshot after it holds another state"), "{found:?}");
}

#[test]
fn a_write_ahead_log_that_is_not_there_or_cannot_be_read_is_missed() {
    // Cut off at entry 400, and only the log knows that there was more.
    let short = || {
        let short = folder(400, &[]);
        let disk: SharedDisk = Arc::new(RealDisk::open(short.path()).unwrap());
        let identity = Identity { group: "g".to_owned(), node_id: 1, name: "n1".to_owned(), founding: None };
        identity.store(&*disk).unwrap();
        drop(disk);
        log(short.path(), 300..=ENTRIES, Some(450), ENTRIES);
        short
    };
    let cut_off = short();
    let found = wrong(cut_off.path());
    assert!(found.len() == 1 && found[0].starts_with("entries 401 to 450: "), "{found:?}");

    let taken = short();
    std::fs::remove_dir_all(taken.path().join("wal")).unwrap();
    let found = wrong(taken.path());
    assert!(found.len() == 1 && found[0].contains("there is none: it was taken away"), "{found:?}");

    let damaged = short();
    let (path, mut bytes) = files(&damaged.path().join("wal")).into_iter().next().unwrap();
    bytes[60] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let found = wrong(damaged.path());
    assert!(found.len() == 1 && found[0].contains("is damaged at offset"), "{found:?}");
    assert!(found[0].starts_with("wal/") && !found[0].contains("remove-peer"), "{found:?}");

    let foreign = short();
    std::fs::write(foreign.path().join("wal/notes.txt"), "mine").unwrap();
    let found = wrong(foreign.path());
    assert!(found.len() == 1 && found[0].starts_with("wal/notes.txt is not a file of"), "{found:?}");
}

#[test]
fn an_export_of_what_is_damaged_names_the_entries_that_cannot_be_read() {
    let whole = folder(ENTRIES, &[]);
    let path = &super::evidence::segments(whole.path())[1];
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
    let named = verified(whole.path()).findings[0].entries;

    let kept = Kept::open(whole.path()).unwrap();
    let key = SigningKey::of_seed(&[7; 32]).unwrap();
    let origin = Origin {
        group: "g".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: "0.1.0".to_owned(),
        made_ms: 0,
    };
    let exported = |to| {
        let entries = bounds(&kept, Begin::First, to).unwrap();
        export(&kept, entries, &origin, &key, Vec::new(), |_, _| {})
    };
    let Err(ExportFailed::Damaged { first, last, .. }) = exported(Moment::End) else { panic!("it is damaged") };
    assert_eq!(Some((first, Some(last))), named, "the same entries as in the folder");
    assert!(first > 1 && last < ENTRIES);
    // Up to there it is as good as ever.
    exported(Moment::Index(first - 1)).unwrap();
}

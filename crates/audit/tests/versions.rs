//! Histories of every format and every version of the rules that was ever released, in `golden/`: each must replay to the hash that it
//! had, for ever. And what this program does not know stops it with the version that does.
//!
//! `LOADLINE_GOLDEN=rewrite` adds the files of the present format that are missing. It never changes one that is there.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadline_audit::day::Day;
use loadline_audit::export::{Begin, Origin, bounds, export};
use loadline_audit::verify::{Verdict, verify_file, verify_folder};
use loadline_audit::{Kept, Moment};
use loadline_log::export::{ExportHead, ExportWriter};
use loadline_log::{Journal, JournalOptions, JournalRecord, RealDisk, SigningKey};
use loadline_state_machine::{
    Actor, Command, Entry, JournalEntry, LogIndex, RULES_VERSION_MAX, Request, RulesVersion, Sealed, State, Time, pass,
};

/// Of the file with the hashes.
const HASHES: &str = "hashes.txt";
const SEGMENT: &str = "0000000000000001.journal";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn hashes() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(golden().join(HASHES)).unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(file, hash)| (file.to_owned(), hash.to_owned()))
        .collect()
}

fn key() -> SigningKey {
    SigningKey::of_seed(&[7; 32]).unwrap()
}

fn origin(version: &str) -> Origin {
    Origin {
        group: "golden".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: version.to_owned(),
        made_ms: 0,
    }
}

/// Checks one file in the way that its name asks for.
fn verdict(path: &Path) -> Verdict {
    if path.extension().is_some_and(|extension| extension == "export") {
        return verify_file(path, None, |_| {}).unwrap();
    }
    // A journal is opened as a node opens it, which writes to it: never to the original.
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("journal")).unwrap();
    std::fs::copy(path, folder.path().join("journal").join(SEGMENT)).unwrap();
    verify_folder(folder.path(), |_| {}).unwrap()
}

/// Writes what is missing of the present format: a journal, and exports from the beginning and from the middle.
fn add_missing() {
    let names =
        ["day", "day-afternoon", "day-journal"].map(|name| format!("{name}.format1.rules{}", RULES_VERSION_MAX.0));
    let [whole, afternoon, journal_name] = names;
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(Arc::new(RealDisk::open(folder.path()).unwrap()), JournalOptions::default()).unwrap();
    let mut day = Day::new(12, 1);
    for _ in 0..900 {
        journal.append(day.record()).unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    let mut known = hashes();
    let mut add = |name: String, write: &dyn Fn(&Path)| {
        if let btree_map::Entry::Vacant(missing) = known.entry(name) {
            write(&golden().join(missing.key()));
            missing.insert(day.state().hash().to_string());
        }
    };
    std::fs::create_dir_all(golden()).unwrap();
    add(format!("{journal_name}.journal"), &|path| {
        std::fs::copy(folder.path().join("journal").join(SEGMENT), path).unwrap();
    });
    let kept = Kept::open(folder.path()).unwrap();
    for (name, from) in [(whole, Begin::First), (afternoon, Begin::Index(500))] {
        add(format!("{name}.export"), &|path| {
            let entries = bounds(&kept, from, Moment::End).unwrap();
            let origin = origin(env!("CARGO_PKG_VERSION"));
            export(&kept, entries, &origin, &key(), File::create(path).unwrap(), |_, _| {}).unwrap();
        });
    }
    add_restless(&mut known);
    let text: String = known.iter().map(|(file, hash)| format!("{file}: {hash}\n")).collect();
    std::fs::write(golden().join(HASHES), text).unwrap();
}

/// One with failovers, and with calls that fail or whose end nobody knows.
fn add_restless(known: &mut BTreeMap<String, String>) {
    let name = format!("day-failovers.format1.rules{}.export", RULES_VERSION_MAX.0);
    let btree_map::Entry::Vacant(missing) = known.entry(name) else { return };
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(Arc::new(RealDisk::open(folder.path()).unwrap()), JournalOptions::default()).unwrap();
    let mut day = Day::new(12, 3).with_failover_every(200);
    for _ in 0..1_200 {
        journal.append(day.record()).unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    let kept = Kept::open(folder.path()).unwrap();
    let entries = bounds(&kept, Begin::First, Moment::End).unwrap();
    let file = File::create(golden().join(missing.key())).unwrap();
    export(&kept, entries, &origin(env!("CARGO_PKG_VERSION")), &key(), file, |_, _| {}).unwrap();
    missing.insert(day.state().hash().to_string());
}

#[test]
fn every_history_that_was_ever_released_replays_to_its_hash() {
    if std::env::var("LOADLINE_GOLDEN").is_ok_and(|value| value == "rewrite") {
        add_missing();
    }
    let mut known = hashes();
    let present = format!("rules{}.", RULES_VERSION_MAX.0);
    assert!(
        known.keys().any(|file| file.contains(&present)),
        "nothing of the present rules; LOADLINE_GOLDEN=rewrite adds it"
    );
    for entry in std::fs::read_dir(golden()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name == HASHES {
            continue;
        }
        let hash = known.remove(&name).unwrap_or_else(|| panic!("the hash of {name} is not in {HASHES}"));
        let verdict = verdict(&path);
        assert!(verdict.is_valid(), "{name}: {:?}", verdict.findings);
        assert!(verdict.replayed > 0 && verdict.chained == 0, "{name}");
        assert_eq!(verdict.hash.unwrap().to_string(), hash, "{name}");
    }
    assert!(known.is_empty(), "released histories are never taken away: {known:?}");
}

/// An export of one entry that says that it was written by version 9.9.9.
fn of(entry: Vec<u8>) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = key();
    let origin = origin("9.9.9");
    let head = ExportHead {
        group: origin.group,
        node_id: 1,
        node_name: origin.node_name,
        incarnation: 1,
        version: origin.version,
        made_ms: 0,
        first: 1,
        last: 2,
        base_hash: State::new().hash().0,
        public_key: key.public(),
    };
    let mut writer = ExportWriter::begin(File::create(file.path()).unwrap(), head, None, &key).unwrap();
    let blank = pass(&mut State::new(), LogIndex(1), &[]);
    for (index, entry, hash) in [(1, JournalEntry::encode_blank(), blank.hash.0), (2, entry, [0; 32])] {
        let events = blank.encode_events().into();
        writer
            .add(JournalRecord { index, time_ms: 0, hash, entry: entry.into(), events, keys: vec![].into() })
            .unwrap();
    }
    writer.finish().unwrap();
    file
}

fn sealed(command: Command) -> Vec<u8> {
    let request = Request { actor: Actor::new("a", "b"), request_id: None, commands: vec![command] };
    Sealed::seal(Entry { stamped_at: Time::from_millis(1), requests: vec![request] }).bytes().to_vec()
}

#[track_caller]
fn check(entry: Vec<u8>, expected: &[&str]) {
    let verdict = verify_file(of(entry).path(), None, |_| {}).unwrap();
    let first = verdict.findings.first().expect("it is not valid");
    assert_eq!(first.entries, Some((2, Some(2))), "{first}");
    for part in expected {
        assert!(first.what.contains(part), "no {part:?} in: {first}");
    }
}

#[test]
fn what_this_version_does_not_know_names_the_version_that_does() {
    let of_version = "was written by version 9.9.9, and this is version";
    check(b"\x63whatever".to_vec(), &["journal entry of kind 99 is not known to this version", of_version]);
    let next = RulesVersion(RULES_VERSION_MAX.0 + 1);
    let raise = JournalEntry::encode_requests(&sealed(Command::RaiseRules { to: next }));
    check(raise, &["raises the rules to version 2, this version knows rules up to 1", of_version]);
    // A command whose kind nobody has yet: that of the tick is two bytes of the entry.
    let mut unknown = sealed(Command::Tick);
    let at = unknown.windows(6).position(|bytes| bytes == [2, 0, 0, 0, 0, 0]).unwrap();
    unknown[at..at + 2].copy_from_slice(&999_u16.to_le_bytes());
    check(JournalEntry::encode_requests(&unknown), &["command of kind 999 is not known to this version", of_version]);
    let mut format = sealed(Command::Tick);
    format[0] = 7;
    check(JournalEntry::encode_requests(&format), &["is in format 7, this version reads format", of_version]);
}

#[test]
fn a_folder_of_a_newer_version_says_so() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("journal")).unwrap();
    let mut bytes = std::fs::read(golden().join("day-journal.format1.rules1.journal")).unwrap();
    // The format of the first frame, with its checksum made right.
    bytes[5] = 9;
    let length = u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..28]), &bytes[32..32 + length]);
    bytes[28..32].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(folder.path().join("journal").join(SEGMENT), bytes).unwrap();
    std::fs::write(folder.path().join("program"), "9.9.9\n").unwrap();
    let failed = verify_folder(folder.path(), |_| {}).unwrap_err();
    let text = loadline_audit::with_causes(&failed);
    assert!(text.contains("was written by version 9.9.9; this is version"), "{text}");
    assert!(text.contains("the frame has format 9, this program knows format 1"), "{text}");
    assert!(text.contains("newer program"), "{text}");
}

#[test]
fn an_entry_in_a_folder_that_this_version_does_not_know_names_the_version_that_wrote_it() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(Arc::new(RealDisk::open(folder.path()).unwrap()), JournalOptions::default()).unwrap();
    let blank = pass(&mut State::new(), LogIndex(1), &[]);
    for (index, entry, hash) in
        [(1, JournalEntry::encode_blank(), blank.hash.0), (2, b"\x63whatever".to_vec(), [0; 32])]
    {
        let events = blank.encode_events().into();
        journal
            .append(JournalRecord { index, time_ms: 0, hash, entry: entry.into(), events, keys: vec![].into() })
            .unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    std::fs::write(folder.path().join("program"), "9.9.9\n").unwrap();
    let verdict = verify_folder(folder.path(), |_| {}).unwrap();
    assert_eq!(verdict.replayed, 1);
    let first = verdict.findings.first().expect("it is not valid").to_string();
    for part in ["entry 2", "kind 99 is not known to this version", "was written by version 9.9.9, and this is version"]
    {
        assert!(first.contains(part), "no {part:?} in: {first}");
    }
}

//! Histories of every format and every version of the rules that was ever released, in `golden/`: each must replay to the hash that it
//! had, for ever. And what this program does not know stops it with the version that does.
//!
//! Which formats those are is read from the bytes that are written now, not from the names of the files. `LOADLINE_GOLDEN=rewrite` adds the
//! files of the present formats that are missing. It never changes one that is there.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use loadline_audit::day::Day;
use loadline_audit::export::{Begin, Origin, bounds, export};
use loadline_audit::verify::{Finding, Verdict, verify_file, verify_folder};
use loadline_audit::{ExportFile, Kept, Moment, Scanned, Source, Start, Trail, replay};
use loadline_log::export::{ExportHead, ExportWriter};
use loadline_log::{
    Journal, JournalOptions, JournalRecord, LogPosition, RealDisk, SharedDisk, SigningKey, SnapshotMeta, SnapshotStore,
    snapshot,
};
use loadline_state_machine::{
    Actor, Command, Entry, JournalEntry, LogIndex, RULES_VERSION_MAX, Request, RulesVersion, Sealed, State, Time, pass,
};

/// Of the file with the hashes.
const HASHES: &str = "hashes.txt";
const SEGMENT: &str = "0000000000000001.journal";

pub(super) fn golden() -> PathBuf {
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
    verify_folder(as_folder(path).path(), |_| {}).unwrap()
}

/// In which formats a history is written, and under which rules, read from its own bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Formats {
    frame: u8,
    /// None of a journal.
    export: Option<u32>,
    entry: u16,
    events: u16,
    /// None of what begins with the first entry.
    state: Option<u16>,
    rules: u32,
}

impl Formats {
    fn of(path: &Path) -> Formats {
        let bytes = std::fs::read(path).unwrap();
        let frame = bytes[FRAME_FORMAT_AT];
        if path.extension().is_some_and(|extension| extension == "export") {
            let opened = ExportFile::open(path).unwrap();
            let head = bytes[FRAME_BYTES..FRAME_BYTES + 4].try_into().unwrap();
            let state = opened.export().state().unwrap().map(|(_, body)| first_two(&body));
            return Formats { frame, export: Some(u32::from_le_bytes(head)), state, ..Formats::within(&opened) };
        }
        let folder = as_folder(path);
        Formats { frame, ..Formats::within(&Kept::open(folder.path()).unwrap()) }
    }

    fn within(source: &dyn Source) -> Formats {
        let start = Start::Snapshot { not_after: source.range().unwrap().start() - 1 };
        let mut found = BTreeSet::new();
        let replayed = replay(source, start, Moment::End, |step| {
            if let JournalEntry::Requests(sealed) = step.entry {
                found.insert((first_two(sealed.bytes()), first_two(&step.record.events)));
            }
        });
        assert_eq!(found.len(), 1, "one file, one format: {found:?}");
        let (entry, events) = found.pop_first().unwrap();
        Formats { frame: 0, export: None, entry, events, state: None, rules: replayed.unwrap().state.rules().0 }
    }

    /// As a part of a name. The first ones of all were called `format1`.
    fn label(self) -> String {
        let Formats { frame, export, entry, events, state, rules } = self;
        let all = [u32::from(frame), export.unwrap_or(1), entry.into(), events.into(), state.unwrap_or(1).into()];
        match all {
            [1, 1, 1, 1, 1] => format!("format1.rules{rules}"),
            all => format!("format{}.rules{rules}", all.map(|format| format.to_string()).join("-")),
        }
    }
}

/// Of every frame, and where its format stands.
const FRAME_BYTES: usize = 32;
const FRAME_FORMAT_AT: usize = 5;

fn first_two(bytes: &[u8]) -> u16 {
    u16::from_le_bytes(bytes[..2].try_into().unwrap())
}

/// A journal is opened as a node opens it, which writes to it: never to the original.
fn as_folder(segment: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("journal")).unwrap();
    std::fs::copy(segment, folder.path().join("journal").join(SEGMENT)).unwrap();
    folder
}

/// What there must be a golden file of: a journal, exports from the beginning and from the middle, one with failovers, and with calls that fail
/// or whose end nobody knows, and one of everything that can be asked for. Made by this program, with the hash at its end.
fn made(folder: &Path) -> BTreeMap<&'static str, (PathBuf, String)> {
    let mut made = BTreeMap::new();
    let of_day = |mut day: Day, entries| {
        let records: Vec<JournalRecord> = (0..entries).map(|_| day.record()).collect();
        (records, day.state().hash().to_string())
    };
    let (quiet, restless) = (Day::new(12, 1), Day::new(12, 3).with_failover_every(200));
    let life = crate::everything::life();
    let all = [
        ("day", of_day(quiet, 900)),
        ("day-failovers", of_day(restless, 1_200)),
        ("everything", (life.records, life.state.hash().to_string())),
    ];
    for (name, (records, hash)) in all {
        let data = folder.join(format!("{name}.data"));
        std::fs::create_dir(&data).unwrap();
        let journal = Journal::open(Arc::new(RealDisk::open(&data).unwrap()), JournalOptions::default()).unwrap();
        records.into_iter().for_each(|record| journal.append(record).unwrap());
        journal.close().unwrap();
        drop(journal);
        let kept = Kept::open(&data).unwrap();
        let export_from = |name: &str, from| {
            let path = folder.join(format!("{name}.export"));
            let entries = bounds(&kept, from, Moment::End).unwrap();
            let origin = origin(env!("CARGO_PKG_VERSION"));
            export(&kept, entries, &origin, &key(), File::create(&path).unwrap(), |_, _| {}).unwrap();
            path
        };
        made.insert(name, (export_from(name, Begin::First), hash.clone()));
        if name == "day" {
            made.insert("day-afternoon", (export_from("day-afternoon", Begin::Index(500)), hash.clone()));
            let segment = folder.join("day-journal.journal");
            std::fs::copy(data.join("journal").join(SEGMENT), &segment).unwrap();
            made.insert("day-journal", (segment, hash));
        }
    }
    made
}

/// Every golden file: what it is of, and in which formats it is.
fn goldens() -> Vec<(String, Formats)> {
    let files = hashes().into_keys().map(|file| (file.split('.').next().unwrap().to_owned(), golden().join(file)));
    files.filter(|(_, path)| path.exists()).map(|(of, path)| (of, Formats::of(&path))).collect()
}

/// The formats of what this program writes, of each kind of file. Whoever raises the rules must make up a day under those.
fn present(made: &BTreeMap<&'static str, (PathBuf, String)>) -> Vec<(String, Formats)> {
    let one = |(name, (path, _)): (&&str, &(PathBuf, String))| {
        ((*name).to_owned(), Formats { rules: RULES_VERSION_MAX.0, ..Formats::of(path) })
    };
    made.iter().map(one).collect()
}

/// What no golden file is of.
fn missing(present: &[(String, Formats)], goldens: &[(String, Formats)]) -> Vec<(String, Formats)> {
    present.iter().filter(|wanted| !goldens.contains(wanted)).cloned().collect()
}

/// Writes what is missing of the present formats.
fn add_missing(made: &BTreeMap<&'static str, (PathBuf, String)>) {
    std::fs::create_dir_all(golden()).unwrap();
    let mut known = hashes();
    for (of, formats) in missing(&present(made), &goldens()) {
        let (path, hash) = &made[of.as_str()];
        let name = format!("{of}.{}.{}", formats.label(), path.extension().unwrap().to_str().unwrap());
        if let btree_map::Entry::Vacant(missing) = known.entry(name) {
            std::fs::copy(path, golden().join(missing.key())).unwrap();
            missing.insert(hash.clone());
        }
    }
    let text: String = known.iter().map(|(file, hash)| format!("{file}: {hash}\n")).collect();
    std::fs::write(golden().join(HASHES), text).unwrap();
}

#[test]
fn every_history_that_was_ever_released_replays_to_its_hash() {
    let folder = tempfile::tempdir().unwrap();
    let made = made(folder.path());
    if std::env::var("LOADLINE_GOLDEN").is_ok_and(|value| value == "rewrite") {
        add_missing(&made);
    }
    let missing = missing(&present(&made), &goldens());
    assert!(missing.is_empty(), "no golden file of what is written now: {missing:?}; LOADLINE_GOLDEN=rewrite adds it");
    let mut known = hashes();
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

#[test]
fn a_format_or_a_rules_version_that_is_raised_needs_golden_files_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (present, goldens) = (present(&made(folder.path())), goldens());
    assert_eq!(missing(&present, &goldens), []);
    type Raise = fn(&mut Formats);
    let raises: [(&str, Raise, usize); 6] = [
        ("frame", |formats| formats.frame += 1, 5),
        ("export", |formats| formats.export = formats.export.map(|format| format + 1), 4),
        ("entry", |formats| formats.entry += 1, 5),
        ("events", |formats| formats.events += 1, 5),
        ("state", |formats| formats.state = formats.state.map(|format| format + 1), 1),
        ("rules", |formats| formats.rules += 1, 5),
    ];
    for (what, raise, expected) in raises {
        let mut raised = present.clone();
        raised.iter_mut().for_each(|(_, formats)| raise(formats));
        let missing = missing(&raised, &goldens);
        assert_eq!(missing.len(), expected, "{what}: {missing:?}");
        let names: BTreeSet<String> = missing.iter().map(|(of, formats)| format!("{of}.{}", formats.label())).collect();
        assert!(names.iter().all(|name| hashes().keys().all(|known| !known.starts_with(&format!("{name}.")))));
    }
}

/// An export that says that it was written by this version: of a blank entry, and of this one.
fn of(entry: Vec<u8>, version: &str) -> tempfile::NamedTempFile {
    let blank = pass(&mut State::new(), LogIndex(1), &[]);
    let record = |index, entry: Vec<u8>, hash| {
        let (entry, events, keys) = (entry.into(), blank.encode_events().into(), vec![].into());
        JournalRecord { index, time_ms: 0, hash, entry, events, keys }
    };
    let records = [record(1, JournalEntry::encode_blank(), blank.hash.0), record(2, entry, [0; 32])];
    written(version, State::new().hash().0, None, &records)
}

/// These records as an export that says that it was written by this version.
fn written(
    version: &str,
    base_hash: [u8; 32],
    state: Option<&[u8]>,
    records: &[JournalRecord],
) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    let key = key();
    let origin = origin(version);
    let head = ExportHead {
        group: origin.group,
        node_id: 1,
        node_name: origin.node_name,
        incarnation: 1,
        version: origin.version,
        made_ms: 0,
        first: records[0].index,
        last: records.last().unwrap().index,
        base_hash,
        public_key: key.public(),
    };
    let mut writer = ExportWriter::begin(File::create(file.path()).unwrap(), head, state, &key).unwrap();
    for record in records {
        writer.add(record.clone()).unwrap();
    }
    writer.finish().unwrap();
    file
}

fn sealed(command: Command) -> Vec<u8> {
    let request = Request { actor: Actor::new("a", "b"), request_id: None, commands: vec![command] };
    Sealed::seal(Entry { stamped_at: Time::from_millis(1), requests: vec![request] }).bytes().to_vec()
}

/// What is said first of a file.
fn first_finding(file: &tempfile::NamedTempFile) -> Finding {
    let verdict = verify_file(file.path(), None, |_| {}).unwrap();
    verdict.findings.into_iter().next().expect("it is not valid")
}

/// A newer version is named where one wrote it, and nowhere else.
#[track_caller]
fn check(entry: &[u8], expected: &[&str]) {
    let first = first_finding(&of(entry.to_vec(), "9.9.9"));
    assert_eq!(first.entries, Some((2, Some(2))), "{first}");
    for part in expected {
        assert!(first.what.contains(part), "no {part:?} in: {first}");
    }
    for version in [env!("CARGO_PKG_VERSION"), "0.0.9"] {
        let first = first_finding(&of(entry.to_vec(), version));
        assert_eq!(first.entries, Some((2, Some(2))), "{first}");
        assert!(first.what.contains(expected[0]) && first.what.contains("cannot be decoded"), "{first}");
        assert!(!first.what.contains("was written by version"), "{first}");
    }
}

#[test]
fn what_this_version_does_not_know_names_the_version_that_does() {
    let of_version = "was written by version 9.9.9, and this is version";
    check(b"\x63whatever", &["journal entry of kind 99 is not known to this version", of_version]);
    let next = RulesVersion(RULES_VERSION_MAX.0 + 1);
    let raise = JournalEntry::encode_requests(&sealed(Command::RaiseRules { to: next }));
    check(&raise, &["raises the rules to version 2, this version knows rules up to 1", of_version]);
    // A command whose kind nobody has yet: that of the tick is two bytes of the entry.
    let mut unknown = sealed(Command::Tick);
    let at = unknown.windows(6).position(|bytes| bytes == [2, 0, 0, 0, 0, 0]).unwrap();
    unknown[at..at + 2].copy_from_slice(&999_u16.to_le_bytes());
    check(&JournalEntry::encode_requests(&unknown), &["command of kind 999 is not known to this version", of_version]);
    let mut format = sealed(Command::Tick);
    format[0] = 7;
    check(&JournalEntry::encode_requests(&format), &["is in format 7, this version reads format", of_version]);
}

#[test]
fn whoever_searches_a_history_or_has_it_explained_is_told_which_version_knows_an_entry() {
    let opened = |version: &str| {
        let file = of(b"\x63whatever".to_vec(), version);
        let history = ExportFile::open(file.path()).unwrap();
        let index = Scanned::read(&history, || {}).unwrap();
        let trail = Trail { source: &history, index: &index };
        assert!(trail.at(1).unwrap().is_some());
        let (at, walked) = (trail.at(2).unwrap_err(), trail.walk(1, 2, |_| true).unwrap_err());
        assert_eq!(at.to_string(), walked.to_string());
        at.to_string()
    };
    let ours = env!("CARGO_PKG_VERSION");
    let newer = format!("entry 2 of the history was written by version 9.9.9, and this is version {ours}");
    assert_eq!(opened("9.9.9"), newer);
    assert_eq!(opened(ours), "entry 2 of the history cannot be decoded");
}

/// The same with another format in the frame that begins there, and its checksum made right.
fn in_frame_format(bytes: &mut [u8], at: usize, format: u8) {
    bytes[at + FRAME_FORMAT_AT] = format;
    let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let body = at + FRAME_BYTES..at + FRAME_BYTES + length;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 28]), &bytes[body]);
    bytes[at + 28..at + FRAME_BYTES].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn an_export_in_a_newer_frame_format_names_the_version_that_wrote_it() {
    for (version, newer) in [("9.9.9", true), (env!("CARGO_PKG_VERSION"), false)] {
        let whole = of(JournalEntry::encode_blank(), version);
        let bytes = std::fs::read(whole.path()).unwrap();
        let head = FRAME_BYTES + u32::from_le_bytes(bytes[8..12].try_into().unwrap()) as usize;
        for (frame, entries) in [(0, None), (head, Some((1, Some(2))))] {
            let mut altered = bytes.clone();
            in_frame_format(&mut altered, frame, 9);
            std::fs::write(whole.path(), altered).unwrap();
            let first = first_finding(&whole);
            assert_eq!(first.entries, entries, "{first}");
            assert!(first.what.contains("the frame has format 9, this program knows format 1"), "{first}");
            assert_eq!(first.what.contains("was written by version 9.9.9"), newer, "{first}");
        }
    }
}

fn meta_of(state: &State) -> SnapshotMeta {
    SnapshotMeta {
        last: Some(LogPosition { term: 1, node: 1, index: state.applied().0 }),
        membership_at: None,
        membership: Vec::new().into(),
        state_hash: state.hash().0,
        created_ms: 0,
        group: "golden".to_owned(),
        incarnation: 1,
    }
}

type Alter = fn(&mut Vec<u8>);

/// Ways in which a state can be too new, with what is said of each.
fn too_new() -> [(&'static str, Alter); 2] {
    [
        ("state is in format 7, this version reads format 1", |body| body[0] = 7),
        // A row of a table behind all others: its number, its length, and nothing in it.
        ("table of a state of kind 65000 is not known to this version", |body| {
            body.extend_from_slice(&65_000_u16.to_le_bytes());
            body.extend_from_slice(&0_u32.to_le_bytes());
        }),
    ]
}

#[test]
fn a_state_that_this_version_does_not_know_names_the_version_that_wrote_it() {
    let named = format!("was written by version 9.9.9, and this is version {}", env!("CARGO_PKG_VERSION"));
    let mut day = Day::new(5, 1);
    let records: Vec<JournalRecord> = (0..100).map(|_| day.record()).collect();
    let meta = meta_of(day.state());
    let state = day.state().encode();
    let next = [day.record()];
    for (what, alter) in too_new() {
        let mut body = state.clone();
        alter(&mut body);
        for (version, newer) in [("9.9.9", true), (env!("CARGO_PKG_VERSION"), false)] {
            // Before the first entry of an export.
            let packed = snapshot::encode(&meta, &body).unwrap();
            let first = first_finding(&written(version, meta.state_hash, Some(&packed), &next)).to_string();
            assert_eq!((first.contains(what), first.contains(&named)), (true, newer), "{first}");

            // And as a snapshot in the folder of a node.
            let folder = tempfile::tempdir().unwrap();
            let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
            let journal = Journal::open(disk.clone(), JournalOptions::default()).unwrap();
            records.iter().for_each(|record| journal.append(record.clone()).unwrap());
            journal.close().unwrap();
            SnapshotStore::open(disk, 2).unwrap().write(&meta, &body).unwrap();
            drop(journal);
            std::fs::write(folder.path().join("program"), format!("{version}\n")).unwrap();
            let verdict = verify_folder(folder.path(), |_| {}).unwrap();
            assert_eq!((verdict.replayed, verdict.findings.len()), (100, 1), "{verdict:?}");
            let first = verdict.findings[0].to_string();
            assert_eq!((first.contains(what), first.contains(&named)), (true, newer), "{first}");
        }
    }
}

#[test]
fn a_folder_of_a_newer_version_says_so() {
    let golden = golden().join("day-journal.format1.rules1.journal");
    let check = |program: Option<&str>, says: &str, says_not: &str| {
        let folder = as_folder(&golden);
        let segment = folder.path().join("journal").join(SEGMENT);
        let mut bytes = std::fs::read(&segment).unwrap();
        in_frame_format(&mut bytes, 0, 9);
        std::fs::write(segment, bytes).unwrap();
        if let Some(program) = program {
            std::fs::write(folder.path().join("program"), format!("{program}\n")).unwrap();
        }
        let verdict = verify_folder(folder.path(), |_| {}).unwrap();
        let text = verdict.findings.first().expect("it is not valid").to_string();
        assert!(text.contains("the frame has format 9, this program knows format 1"), "{text}");
        assert!(text.contains(says) && !text.contains(says_not), "{text}");
    };
    check(Some("9.9.9"), "was written by version 9.9.9 at offset 0, and this is version", "damaged");
    check(Some(env!("CARGO_PKG_VERSION")), "is damaged at offset 0", "newer");
    check(None, "a newer program wrote it", "damaged");
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

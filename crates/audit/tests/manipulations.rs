//! More than two hundred things that somebody could do to an export, each found, and named by index where it is about an entry: the entry
//! itself, or those of the block that is damaged, from the first to the last of them.
//!
//! The bytes are taken apart and put together here by hand, as somebody would who knows the format and does not have the key: checksums,
//! links, chain and counts are computed anew wherever that is possible.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "all of this is a test, its helpers too")]

use std::io::Write as _;

use loadline_audit::export::{Begin, Origin, bounds, export};
use loadline_audit::verify::{Verdict, verify_file};
use loadline_audit::{Moment, Source, SourceError};
use loadline_log::export::{ExportHead, ExportWriter};
use loadline_log::{JournalRecord, SigningKey};
use loadline_state_machine::{Actor, Command, Entry, JournalEntry, LogIndex, Request, Sealed, State, Time, apply};

const ENTRIES: u64 = 1_200;
const HEAD: u16 = 1;
const STATE: u16 = 2;
const BLOCK: u16 = 3;
const END: u16 = 4;
const HEADER: usize = 32;
const SIGNATURE: usize = 64;

/// A history in memory.
#[derive(Debug, Clone)]
struct Made(Vec<JournalRecord>);

impl Made {
    fn new(entries: u64, name: &str) -> Made {
        let mut state = State::new();
        Made((1..=entries).map(|index| record(&mut state, index, &format!("{name}-{index}"))).collect())
    }
}

fn record(state: &mut State, index: u64, cluster: &str) -> JournalRecord {
    let command = Command::CreateCluster { name: cluster.to_owned() };
    let request = Request { actor: Actor::new("somebody", "test"), request_id: None, commands: vec![command] };
    let sealed = Sealed::seal(Entry { stamped_at: Time::from_millis(index * 10), requests: vec![request] });
    let applied = apply(state, LogIndex(index), &sealed);
    JournalRecord {
        index,
        time_ms: applied.time.as_millis(),
        hash: applied.hash.0,
        entry: JournalEntry::encode_requests(sealed.bytes()).into(),
        events: applied.encode_events().into(),
        keys: applied.index_keys(&sealed).into(),
    }
}

impl Source for Made {
    fn range(&self) -> Option<std::ops::RangeInclusive<u64>> {
        Some(self.0.first()?.index..=self.0.last()?.index)
    }

    fn read(&self, from: u64, _: usize) -> Result<Vec<JournalRecord>, SourceError> {
        Ok(self.0.iter().filter(|record| record.index >= from).take(100).cloned().collect())
    }

    fn start(&self, _: u64) -> Result<Option<State>, SourceError> {
        Ok(None)
    }
}

fn key(seed: u8) -> SigningKey {
    SigningKey::of_seed(&[seed; 32]).unwrap()
}

fn origin() -> Origin {
    Origin {
        group: "made-up".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: "0.1.0".to_owned(),
        made_ms: 5,
    }
}

fn exported(made: &Made, from: u64, signer: u8) -> Vec<u8> {
    let entries = bounds(made, Begin::Index(from), Moment::End).unwrap();
    export(made, entries, &origin(), &key(signer), Vec::new(), |_, _| {}).unwrap()
}

/// One frame: its kind and its body.
#[derive(Debug, Clone, PartialEq)]
struct Frame(u16, Vec<u8>);

fn apart(bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let kind = u16::from_le_bytes(bytes[at + 6..at + 8].try_into().unwrap());
        frames.push(Frame(kind, bytes[at + HEADER..at + HEADER + length].to_vec()));
        at += HEADER + length;
    }
    frames
}

/// Puts frames together with right checksums and links.
fn together(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut link = 0_u32;
    for Frame(kind, body) in frames {
        let mut header = b"LDLN\x05\x01".to_vec();
        header.extend_from_slice(&kind.to_le_bytes());
        header.extend_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
        header.extend_from_slice(&[0; 12]);
        header.extend_from_slice(&link.to_le_bytes());
        link = crc32c::crc32c_append(crc32c::crc32c(&header), body);
        out.extend_from_slice(&header);
        out.extend_from_slice(&link.to_le_bytes());
        out.extend_from_slice(body);
    }
    out
}

/// Chains the blocks anew and corrects what the end says of them; the signature stays what it was.
fn rechained(mut frames: Vec<Frame>) -> Vec<u8> {
    let mut chain = *blake3::hash(&frames[0].1).as_bytes();
    let mut blocks = 0_u64;
    let mut last_hash = [0; 32];
    for Frame(kind, body) in &mut frames {
        match *kind {
            BLOCK => {
                body[..32].copy_from_slice(&chain);
                chain = *blake3::hash(body).as_bytes();
                last_hash.copy_from_slice(&body[44..76]);
                blocks += 1;
            }
            END => {
                body[8..16].copy_from_slice(&blocks.to_le_bytes());
                body[16..48].copy_from_slice(&last_hash);
                body[48..80].copy_from_slice(&chain);
            }
            _ => {}
        }
    }
    together(&frames)
}

/// The first and the last entry of a block.
fn entries_of(block: &Frame) -> (u64, u64) {
    let first = u64::from_le_bytes(block.1[32..40].try_into().unwrap());
    let count = u32::from_le_bytes(block.1[40..44].try_into().unwrap());
    (first, first + u64::from(count) - 1)
}

/// These records as a whole file, packed, chained and counted as a node would, under the head and the signature of the original.
fn forged(original: &[u8], records: &[JournalRecord]) -> Vec<u8> {
    let frames = apart(original);
    let made = Made(records.to_vec());
    let head = ExportHead {
        group: origin().group,
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: "0.1.0".to_owned(),
        made_ms: 5,
        first: made.0[0].index,
        last: made.0.last().unwrap().index,
        base_hash: State::new().hash().0,
        public_key: [0; 32],
    };
    let signer = key(7);
    let mut writer = ExportWriter::begin(Vec::new(), head, None, &signer).unwrap();
    for record in &made.0 {
        writer.add(record.clone()).unwrap();
    }
    let mut made = apart(&writer.finish().unwrap());
    let signature = frames.last().unwrap().1[80..].to_vec();
    made.last_mut().unwrap().1[80..].copy_from_slice(&signature);
    together(&made)
}

/// The same records, the indexes counted anew from 1.
fn numbered(records: impl IntoIterator<Item = JournalRecord>) -> Vec<JournalRecord> {
    (1..).zip(records).map(|(index, record)| JournalRecord { index, ..record }).collect()
}

#[derive(Debug, Default)]
struct Cases {
    done: usize,
    folder: Option<tempfile::TempDir>,
}

impl Cases {
    fn verdict(&mut self, bytes: &[u8], pin: Option<&[u8; 32]>) -> Verdict {
        let folder = self.folder.get_or_insert_with(|| tempfile::tempdir().unwrap());
        let path = folder.path().join("export");
        std::fs::File::create(&path).unwrap().write_all(bytes).unwrap();
        verify_file(&path, pin, |_| {}).unwrap()
    }

    /// It is found, whatever it says.
    fn found(&mut self, what: &str, bytes: &[u8]) {
        let verdict = self.verdict(bytes, None);
        assert!(!verdict.is_valid(), "{what} was not found");
        self.done += 1;
    }

    /// It is found, and what is said first is about these entries.
    fn names_all(&mut self, what: &str, bytes: &[u8], entries: (u64, Option<u64>)) {
        let verdict = self.verdict(bytes, None);
        let first = verdict.findings.first().unwrap_or_else(|| panic!("{what} was not found"));
        assert_eq!(first.entries, Some(entries), "{what}: {first}");
        self.done += 1;
    }

    /// It is found, and what is said first is about the entries of this block: all of them, or one.
    fn names_block(&mut self, what: &str, bytes: &[u8], (first, last): (u64, u64)) {
        let verdict = self.verdict(bytes, None);
        let found = verdict.findings.first().unwrap_or_else(|| panic!("{what} was not found"));
        let Some((from, Some(to))) = found.entries else { panic!("{what}: no end is named: {found}") };
        let one = from == to && (first..=last).contains(&from);
        assert!(one || (from, to) == (first, last), "{what}: {found}, and it is block {first} to {last}");
        self.done += 1;
    }

    /// It is found, and what is said is that it is behind this entry.
    fn found_after(&mut self, what: &str, bytes: &[u8], index: u64) {
        let verdict = self.verdict(bytes, None);
        let first = verdict.findings.first().unwrap_or_else(|| panic!("{what} was not found"));
        assert!(first.what.starts_with(&format!("after entry {index}: ")), "{what}: {first}");
        self.done += 1;
    }

    /// It is found, and exactly this entry is named.
    fn names_exactly(&mut self, what: &str, bytes: &[u8], index: u64) {
        let verdict = self.verdict(bytes, None);
        let first = verdict.findings.first().unwrap_or_else(|| panic!("{what} was not found"));
        assert_eq!(first.entries, Some((index, Some(index))), "{what}: {first}");
        self.done += 1;
    }
}

#[test]
fn two_hundred_manipulations_are_found() {
    let made = Made::new(ENTRIES, "c");
    let whole = exported(&made, 1, 7);
    let later = exported(&made, 300, 7);
    let mut cases = Cases::default();
    assert!(cases.verdict(&whole, Some(&key(7).public())).is_valid());
    assert!(cases.verdict(&later, Some(&key(7).public())).is_valid());

    bits(&mut cases, &whole);
    bits(&mut cases, &later);
    cut(&mut cases, &whole);
    blocks(&mut cases, &whole);
    spliced(&mut cases, &whole);
    entries(&mut cases, &made, &whole);
    counts(&mut cases, &whole);
    states(&mut cases, &made, &later);
    signatures(&mut cases, &made, &whole);
    assert!(cases.done >= 200, "only {} manipulations", cases.done);
    println!("{} manipulations, each found", cases.done);
}

/// Where the frames begin, and what they are.
fn places(bytes: &[u8]) -> Vec<(usize, Frame)> {
    let mut at = 0;
    apart(bytes)
        .into_iter()
        .map(|frame| {
            let begins = at;
            at += HEADER + frame.1.len();
            (begins, frame)
        })
        .collect()
}

/// Single bits: in the header of every frame, in every body, in the signature.
fn bits(cases: &mut Cases, whole: &[u8]) {
    for (begins, frame) in places(whole) {
        let length = HEADER + frame.1.len();
        // One in each field of the header, and some in the body; always another bit of the byte.
        let inside =
            [0, 4, 5, 6, 8, 12, 20, 24, 28, HEADER, HEADER + 33, length / 2, length - SIGNATURE / 2, length - 1];
        for (nth, offset) in inside.into_iter().filter(|offset| *offset < length).enumerate() {
            let mut bytes = whole.to_vec();
            bytes[begins + offset] ^= 1 << (nth % 8);
            let what = format!("bit {} of byte {offset} of frame {}", nth % 8, frame.0);
            match frame.0 {
                BLOCK => {
                    let (first, last) = entries_of(&frame);
                    cases.names_all(&what, &bytes, (first, Some(last)));
                }
                END => cases.found_after(&what, &bytes, ENTRIES),
                _ => cases.found(&what, &bytes),
            }
        }
    }
}

fn cut(cases: &mut Cases, whole: &[u8]) {
    for (begins, frame) in places(whole) {
        for len in [begins, begins + 7, begins + HEADER, begins + HEADER + frame.1.len() / 2] {
            let what = format!("cut {} bytes into frame {}", len - begins, frame.0);
            match frame.0 {
                // Everything from there on is missing.
                BLOCK => cases.names_all(&what, &whole[..len], (entries_of(&frame).0, None)),
                END => cases.found_after(&what, &whole[..len], ENTRIES),
                _ => cases.found(&what, &whole[..len]),
            }
        }
    }
    let longer = [whole, whole].concat();
    cases.found_after("the file twice", &longer, ENTRIES);
    cases.found_after("one byte more", &[whole, b"\0"].concat(), ENTRIES);
    cases.found("nothing at all", &[]);
}

/// Whole blocks, with everything around them computed anew, and without.
fn blocks(cases: &mut Cases, whole: &[u8]) {
    let frames = apart(whole);
    let at: Vec<usize> = (0..frames.len()).filter(|place| frames[*place].0 == BLOCK).collect();
    assert!(at.len() >= 4, "only {} blocks", at.len());
    type Put = fn(Vec<Frame>) -> Vec<u8>;
    let puts: [(&str, Put); 2] = [("linked anew", |frames| together(&frames)), ("chained anew", rechained)];
    for (how, put) in puts {
        for place in &at {
            let (first, last) = entries_of(&frames[*place]);
            let mut removed = frames.clone();
            removed.remove(*place);
            cases.names_all(&format!("block {first} removed, {how}"), &put(removed), (first, Some(last)));
            let mut twice = frames.clone();
            twice.insert(*place, frames[*place].clone());
            let bytes = put(twice);
            // Behind the last one there is no entry that it could stand for.
            if last == ENTRIES {
                cases.found_after(&format!("block {first} twice, {how}"), &bytes, ENTRIES);
            } else {
                cases.names_exactly(&format!("block {first} twice, {how}"), &bytes, last + 1);
            }
        }
        for pair in at.windows(2) {
            let mut swapped = frames.clone();
            swapped.swap(pair[0], pair[1]);
            let (first, last) = entries_of(&frames[pair[0]]);
            let what = format!("blocks {first} and the next swapped, {how}");
            cases.names_all(&what, &put(swapped), (first, Some(last)));
        }
        let mut none = frames.clone();
        none.retain(|frame| frame.0 != BLOCK);
        cases.names_all(&format!("no blocks, {how}"), &put(none), (1, Some(ENTRIES)));
        let mut backwards = frames.clone();
        backwards[at[0]..=*at.last().unwrap()].reverse();
        let before_last = entries_of(&frames[*at.last().unwrap()]).0 - 1;
        cases.names_all(&format!("blocks backwards, {how}"), &put(backwards), (1, Some(before_last)));
        let mut behind = frames.clone();
        behind.push(frames[at[0]].clone());
        cases.found_after(&format!("a block behind the end, {how}"), &put(behind), ENTRIES);
    }
}

/// Blocks of another export: of another history, and of the same history from another place.
fn spliced(cases: &mut Cases, whole: &[u8]) {
    let other = apart(&exported(&Made::new(ENTRIES, "d"), 1, 7));
    let frames = apart(whole);
    for place in (0..frames.len()).filter(|place| frames[*place].0 == BLOCK) {
        // Both histories begin with nothing, so what comes first in one could come first in the other: what follows does not.
        let wrong = if entries_of(&frames[place]).0 == 1 { place + 1 } else { place };
        let block = entries_of(&frames[wrong]);
        let mut spliced = frames.clone();
        spliced[place] = other[place].clone();
        let what = format!("block {place} of another export");
        cases.names_block(&format!("{what}, linked anew"), &together(&spliced), block);
        // Chained anew, it is the state machine that finds what does not follow.
        cases.names_exactly(&format!("{what}, chained anew"), &rechained(spliced), block.0);
    }
    let mut head = frames.clone();
    head[0] = other[0].clone();
    // Both begin with the same, so that only what is signed differs: nothing, in fact. Then it is the same file.
    assert_eq!(head, frames);
    let mut end = frames.clone();
    *end.last_mut().unwrap() = other.last().unwrap().clone();
    cases.found("the end of another export", &together(&end));
    cases.found("the end of another export, chained anew", &rechained(end));
}

/// Single entries, with the whole file packed, chained and counted anew.
fn entries(cases: &mut Cases, made: &Made, whole: &[u8]) {
    let other = Made::new(ENTRIES, "d");
    for index in [1, 2, 150, 333, 780, ENTRIES - 1] {
        let place = usize::try_from(index).unwrap() - 1;
        let mut removed = made.0.clone();
        removed.remove(place);
        cases.names_exactly(&format!("entry {index} removed"), &forged(whole, &numbered(removed)), index);

        let mut added = made.0.clone();
        // Not the first one of the other history: that could well be the first one of this.
        added.insert(place, other.0[place + 1].clone());
        cases.names_exactly(&format!("an entry added before {index}"), &forged(whole, &numbered(added)), index);

        let mut twice = made.0.clone();
        twice.insert(place, made.0[place].clone());
        cases.names_exactly(&format!("entry {index} twice"), &forged(whole, &numbered(twice)), index + 1);

        let mut swapped = made.0.clone();
        swapped.swap(place, place + 1);
        cases.names_exactly(&format!("entry {index} and the next swapped"), &forged(whole, &numbered(swapped)), index);

        let mut altered = made.0.clone();
        altered[place].entry = other.0[place].entry.clone();
        cases.names_exactly(&format!("entry {index} asks for something else"), &forged(whole, &altered), index);

        let mut altered = made.0.clone();
        altered[place].events = other.0[place].events.clone();
        cases.names_exactly(&format!("entry {index} brought about something else"), &forged(whole, &altered), index);

        let mut altered = made.0.clone();
        altered[place].time_ms += 1;
        cases.names_exactly(&format!("entry {index} at another time"), &forged(whole, &altered), index);

        let mut altered = made.0.clone();
        altered[place].hash[31] ^= 1;
        cases.names_exactly(&format!("entry {index} with another hash"), &forged(whole, &altered), index);

        let mut altered = made.0.clone();
        altered[place].entry = b"\x09not an entry".to_vec().into();
        cases.names_exactly(&format!("entry {index} is none"), &forged(whole, &altered), index);

        let mut altered = made.0.clone();
        altered[place].keys = [].into();
        cases.names_exactly(&format!("entry {index} without its keys"), &forged(whole, &altered), index);

        let mut altered = made.0.clone();
        let mut keys = altered[place].keys.to_vec();
        keys[0].push(b'x');
        altered[place].keys = keys.into();
        cases.names_exactly(&format!("entry {index} under another key"), &forged(whole, &altered), index);
    }
    let mut shorter = made.0.clone();
    shorter.pop();
    cases.found("the last entry removed, and the head corrected", &forged(whole, &shorter));
}

/// What the head and the end say.
fn counts(cases: &mut Cases, whole: &[u8]) {
    let frames = apart(whole);
    let last = frames.len() - 1;
    for (what, field) in
        [("entries", 0..8), ("blocks", 8..16), ("last hash", 16..48), ("chain", 48..80), ("signature", 80..144)]
    {
        for byte in [field.start, field.end - 1] {
            let mut altered = frames.clone();
            altered[last].1[byte] ^= 1;
            cases.found(&format!("{what} in the end"), &together(&altered));
        }
    }
    // Format, group, node id, name, incarnation, version, time, first, last, base hash, public key.
    for byte in (0..frames[0].1.len()).step_by(3) {
        let mut altered = frames.clone();
        altered[0].1[byte] ^= 1;
        let bytes = rechained(altered);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("export");
        std::fs::write(&path, bytes).unwrap();
        // Another format is not this program's to judge; anything else is wrong.
        let valid = verify_file(&path, None, |_| {}).is_ok_and(|verdict| verdict.is_valid());
        assert!(!valid, "byte {byte} of the head");
        cases.done += 1;
    }
    let mut without = frames.clone();
    without.remove(0);
    cases.found("without a head", &together(&without));
    let mut without = frames.clone();
    without.pop();
    cases.found("without an end", &together(&without));
    let mut two = frames.clone();
    two.insert(1, frames[0].clone());
    cases.found("two heads", &together(&two));
    let mut unknown = frames;
    unknown.insert(1, Frame(99, b"?".to_vec()));
    cases.found("a frame of a kind that is not known", &together(&unknown));
}

/// The state before the first entry.
fn states(cases: &mut Cases, made: &Made, later: &[u8]) {
    let frames = apart(later);
    assert!(frames.iter().any(|frame| frame.0 == STATE));
    let without: Vec<Frame> = frames.iter().filter(|frame| frame.0 != STATE).cloned().collect();
    cases.found("without its state", &together(&without));
    for other in [exported(made, 299, 7), exported(&Made::new(ENTRIES, "d"), 300, 7)] {
        let mut swapped = frames.clone();
        for (frame, other) in swapped.iter_mut().zip(apart(&other)).filter(|(frame, _)| frame.0 == STATE) {
            *frame = other;
        }
        cases.found("with another state", &together(&swapped));
    }
    let mut twice = frames.clone();
    twice.insert(1, frames[1].clone());
    cases.found("with its state twice", &together(&twice));
    // With the base hash of the other state, too: then the first entry leads elsewhere.
    let other = apart(&exported(&Made::new(ENTRIES, "d"), 300, 7));
    let mut swapped = frames.clone();
    for (frame, other) in swapped.iter_mut().zip(&other).filter(|(frame, _)| frame.0 == STATE || frame.0 == HEAD) {
        *frame = other.clone();
    }
    cases.names_exactly("with another state and its hash", &rechained(swapped), 300);
}

/// Histories that are consistent in themselves, and that no node has made.
fn signatures(cases: &mut Cases, made: &Made, whole: &[u8]) {
    let other = Made::new(ENTRIES, "d");
    // Without the key: the signature of the true history under another one.
    cases.found("another history under this signature", &forged(whole, &other.0));
    // With a key of their own, under the name of the node's.
    let mut frames = apart(&exported(&other, 1, 9));
    let public = frames[0].1.len() - 32;
    frames[0].1[public..].copy_from_slice(&key(7).public());
    cases.found("another history signed by somebody else", &rechained(frames));
    // With a key of their own, openly: only whoever knows which key it has to be can tell.
    let theirs = exported(&other, 1, 9);
    assert!(cases.verdict(&theirs, None).is_valid());
    assert!(!cases.verdict(&theirs, Some(&key(7).public())).is_valid(), "signed with another key");
    cases.done += 1;
    // The same history signed by somebody else is the same history; a pin still tells.
    assert!(!cases.verdict(&exported(made, 1, 9), Some(&key(7).public())).is_valid());
    cases.done += 1;
}

use std::path::PathBuf;

use super::*;
use crate::{frame::HEADER_BYTES, journal::JournalRecord, signing::SigningKey, snapshot};

fn key() -> SigningKey {
    SigningKey::of_seed(&[7; 32]).unwrap()
}

fn record(index: u64) -> JournalRecord {
    JournalRecord {
        index,
        time_ms: 1_000 + index,
        hash: [index as u8; 32],
        // Hard to compress, so that a few hundred make some blocks.
        entry: blake3::hash(&index.to_le_bytes()).as_bytes().repeat(8).into(),
        events: vec![b'e'; index as usize % 7].into(),
        keys: vec![b"cluster/demo".to_vec()].into(),
    }
}

fn head(first: u64, last: u64) -> ExportHead {
    ExportHead {
        group: "0193-abc".to_owned(),
        node_id: 2,
        node_name: "n2".to_owned(),
        incarnation: 3,
        version: "0.1.0".to_owned(),
        made_ms: 1_794_787_200_000,
        first,
        last,
        base_hash: [9; 32],
        public_key: [0; PUBLIC_KEY_BYTES],
    }
}

fn state(index: u64) -> Vec<u8> {
    let meta = snapshot::SnapshotMeta {
        last: Some(crate::LogPosition { term: 0, node: 0, index }),
        membership_at: None,
        membership: bytes::Bytes::new(),
        state_hash: [9; 32],
        created_ms: 0,
        group: "0193-abc".to_owned(),
        incarnation: 3,
    };
    snapshot::encode(&meta, b"the state").unwrap()
}

fn export(first: u64, last: u64) -> Vec<u8> {
    let state = (first > 1).then(|| state(first - 1));
    let key = key();
    let mut writer = ExportWriter::begin(Vec::new(), head(first, last), state.as_deref(), &key).unwrap();
    for index in first..=last {
        writer.add(record(index)).unwrap();
    }
    writer.finish().unwrap()
}

fn file(dir: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = dir.path().join("export");
    std::fs::write(&path, bytes).unwrap();
    path
}

fn open(dir: &tempfile::TempDir, bytes: &[u8]) -> Result<Export, ExportError> {
    Export::open(&file(dir, bytes), |_, _| {})
}

#[test]
fn an_export_is_read_as_it_was_written() {
    let dir = tempfile::TempDir::new().unwrap();
    for (first, last) in [(1, 1), (1, 900), (501, 1_300)] {
        let export = open(&dir, &export(first, last)).unwrap();
        assert_eq!(export.head(), &ExportHead { public_key: key().public(), ..head(first, last) });
        let mut read = Vec::new();
        while read.len() < (last - first + 1) as usize {
            let part = export.read(first + read.len() as u64, 10_000).unwrap();
            assert!(!part.is_empty() && part.len() < 60, "{}", part.len());
            read.extend(part);
        }
        assert_eq!(read, (first..=last).map(record).collect::<Vec<_>>());
        assert_eq!(export.read(last + 1, 10_000).unwrap(), []);
        assert_eq!(export.block_count() > 1, last - first > 500);
        let state = export.state().unwrap().map(|(meta, body)| (meta.last.unwrap().index, body));
        assert_eq!(state, (first > 1).then(|| (first - 1, b"the state".to_vec())));
        let end = export.end().unwrap();
        assert_eq!((end.entries, end.last_hash), (last - first + 1, [last as u8; 32]));
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let dir = tempfile::TempDir::new().unwrap();
    let whole = export(1, 40);
    for bit in 0..whole.len() * 8 {
        // One bit of each byte, another one every time.
        if bit % 8 != (bit / 8) % 8 {
            continue;
        }
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let failed = open(&dir, &bytes).unwrap_err();
        assert!(matches!(failed, ExportError::Damaged(_) | ExportError::NotAnExport { .. }), "bit {bit}: {failed}");
    }
}

#[test]
fn a_file_that_was_cut_anywhere_is_not_whole() {
    let dir = tempfile::TempDir::new().unwrap();
    let whole = export(1, 600);
    for len in (0..whole.len()).step_by(997).chain([whole.len() - 1]) {
        open(&dir, &whole[..len]).unwrap_err();
    }
    let longer = [&whole[..], b"x"].concat();
    let failed = open(&dir, &longer).unwrap_err().to_string();
    assert!(failed.contains("after entry 600: 1 bytes follow its end"), "{failed}");
}

/// Where the frames begin, with how long they are.
fn frames(bytes: &[u8]) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        found.push((at, HEADER_BYTES + length));
        at += HEADER_BYTES + length;
    }
    found
}

#[test]
fn a_damaged_block_is_named_by_its_own_entries_whatever_is_wrong_with_it() {
    let dir = tempfile::TempDir::new().unwrap();
    let whole = export(1, 900);
    let blocks: Vec<(u64, u64)> = open(&dir, &whole).unwrap().block_places().collect();
    assert!(blocks.len() > 2, "{blocks:?}");
    for (nth, (first, offset)) in blocks.iter().enumerate() {
        let last = blocks.get(nth + 1).map_or(900, |(next, _)| next - 1);
        // Also where its length is altered: a little, and to more than the file has.
        for byte in [0, 6, 8, 10, 11, 28, 60] {
            let mut bytes = whole.clone();
            bytes[usize::try_from(*offset).unwrap() + byte] ^= 1;
            let scanned = Export::scan(&file(&dir, &bytes), |_, _| {}).unwrap();
            let fault = scanned.fault.unwrap();
            assert_eq!((fault.entries, fault.offset), (Some((*first, Some(last))), *offset), "byte {byte}: {fault}");
        }
    }
}

/// The same with another format in the frame that begins there, and the checksum made right.
fn in_format(mut bytes: Vec<u8>, (at, length): (usize, usize), format: u8) -> Vec<u8> {
    bytes[at + 5] = format;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[at..at + 28]), &bytes[at + HEADER_BYTES..at + length]);
    bytes[at + 28..at + HEADER_BYTES].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn a_frame_in_a_newer_format_names_the_version_that_the_head_does_if_that_is_newer() {
    let dir = tempfile::TempDir::new().unwrap();
    let unknown = "the frame has format 9, this program knows format 1";
    for (version, newer) in [("9.9.9", true), (env!("CARGO_PKG_VERSION"), false)] {
        let key = key();
        let head = ExportHead { version: version.to_owned(), ..head(1, 600) };
        let mut writer = ExportWriter::begin(Vec::new(), head, None, &key).unwrap();
        for index in 1..=600 {
            writer.add(record(index)).unwrap();
        }
        let whole = writer.finish().unwrap();
        let frames = frames(&whole);
        let bytes = in_format(whole.clone(), frames[2], 9);
        let Scanned { export, fault } = Export::scan(&file(&dir, &bytes), |_, _| {}).unwrap();
        let (fault, last) = (fault.unwrap(), export.last_index().unwrap());
        assert!(fault.entries.is_some_and(|(first, to)| first == last + 1 && to.is_some()), "{fault}");
        let says = format!("was written by version 9.9.9, and this is version {}: ", env!("CARGO_PKG_VERSION"));
        assert_eq!((fault.newer, fault.what.contains(&says)), (newer, newer), "{fault}");
        assert!(fault.what.ends_with(unknown), "{fault}");
        let failed = open(&dir, &bytes).unwrap_err();
        assert_eq!(matches!(failed, ExportError::Newer { .. }), newer, "{failed}");
        // The very first one: what stands in it is read all the same.
        let failed = open(&dir, &in_format(whole, frames[0], 9)).unwrap_err();
        assert_eq!(matches!(failed, ExportError::Newer { .. }), newer, "{failed}");
        assert_eq!(failed.to_string().contains("it was written by version 9.9.9: "), newer, "{failed}");
    }
}

#[test]
fn only_the_entries_that_the_head_names_are_taken_in_their_order() {
    let key = key();
    let begin = || ExportWriter::begin(Vec::new(), head(1, 3), None, &key).unwrap();
    let mut writer = begin();
    assert!(matches!(writer.add(record(2)), Err(ExportError::OutOfOrder { index: 2, last: 0 })));
    for index in 1..=3 {
        writer.add(record(index)).unwrap();
    }
    assert!(matches!(writer.add(record(4)), Err(ExportError::OutOfOrder { index: 4, last: 3 })));
    writer.finish().unwrap();
    let mut writer = begin();
    writer.add(record(1)).unwrap();
    assert!(matches!(writer.finish(), Err(ExportError::Incomplete { first: 1, last: 3, ended: 1 })));
}

#[test]
fn a_newer_format_says_so() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut bytes = Vec::new();
    let mut frames = crate::frame::Chain { family: crate::frame::Family::Export, segment: 0, link: 0 };
    frames.put(&mut bytes, HEAD, 0, |out| out.put_u32(FORMAT + 1)).unwrap();
    let failed = open(&dir, &bytes).unwrap_err();
    assert_eq!(
        failed.to_string(),
        format!(
            "the export has format 2, and this program knows format 1; this program is version {}: use the newer one that \
             wrote the file",
            env!("CARGO_PKG_VERSION")
        )
    );
}

#[test]
fn the_bytes_of_head_and_end_are_pinned() {
    // A change here is a new format: old files must stay readable.
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let mut out = Vec::new();
    head(5, 9).encode(&mut out);
    let expected = "01000000080000003031\
                    39332d6162630200000000000000020000006e32030000000000000005000000302e312e30004ca7e1a1010000\
                    05000000000000000900000000000000";
    assert_eq!(hex(&out), format!("{expected}{}{}", "09".repeat(32), "00".repeat(32)));
    let end = ExportEnd { entries: 5, blocks: 1, last_hash: [3; 32], chain: [4; 32], signature: [5; SIGNATURE_BYTES] };
    let mut out = Vec::new();
    end.encode_unsigned(&mut out);
    out.put_raw(&end.signature);
    let expected = format!("05000000000000000100000000000000{}{}{}", "03".repeat(32), "04".repeat(32), "05".repeat(64));
    assert_eq!(hex(&out), expected);
    assert_eq!(ExportEnd::decode(&out), Ok(end));
}

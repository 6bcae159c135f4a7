//! Rot, garbage and missing files: noticed, named, never guessed at.

use super::*;
use crate::disk::Disk as _;
use crate::frame::content_end;

const CLOSE_MARK_BYTES: usize = 33;

/// A log of several segments, closed in order; with its last segment in use.
fn closed_log() -> (ModelDisk, Vec<Record>, u64) {
    let disk = ModelDisk::new(7);
    let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Inline)).unwrap();
    wait(|done| wal.save_vote(StoredVote { term: 5, node: 2, committed: true }, done)).unwrap();
    let records: Vec<Record> = (0..24).map(|index| record(1, index, 300)).collect();
    for chunk in records.chunks(5) {
        append(&wal, chunk.to_vec());
    }
    wal.close().unwrap();
    let in_use = disk.files().into_iter().filter(|path| content_end(&disk.contents(path).unwrap()) > 0).count();
    assert!(in_use >= 3);
    disk.kill_process();
    (disk, records, in_use as u64)
}

fn open(disk: &ModelDisk) -> Result<Wal, WalError> {
    Wal::open(Arc::new(disk.reopen()), small(Threading::Inline))
}

/// Puts the files of `from` onto a fresh disk.
fn copy(from: &ModelDisk) -> ModelDisk {
    let to = ModelDisk::new(1);
    to.create_dir("wal").unwrap();
    for path in from.files() {
        to.place(&path, &from.contents(&path).unwrap()).unwrap();
    }
    to
}

#[test]
fn a_flipped_bit_below_the_synced_offset_is_always_refused() {
    let (disk, records, in_use) = closed_log();
    let mut refused = 0;
    for path in disk.files() {
        let bytes = disk.contents(&path).unwrap();
        let end = content_end(&bytes);
        let promised = if path == segment::path(in_use) { end - CLOSE_MARK_BYTES } else { end };
        for offset in 0..bytes.len() {
            // Every byte that was promised; of the zeros behind, some.
            if offset >= promised + 64 && offset % 97 != 0 {
                continue;
            }
            let rotten = copy(&disk);
            rotten.flip_bit(&path, offset as u64, (offset % 8) as u8).unwrap();
            match open(&rotten) {
                Err(error) => {
                    assert!(offset < promised, "{path}:{offset} holds no promise: {error}");
                    let message = error.to_string();
                    assert!(message.contains(&path) || message.contains("wal/"), "{message}");
                    assert!(message.contains("remove-peer"), "{message}");
                    refused += 1;
                }
                Ok(wal) => {
                    assert!(offset >= promised, "a flipped bit at {path}:{offset} was accepted");
                    assert_eq!(all(&wal), records);
                }
            }
        }
    }
    assert!(refused > 8_000, "{refused}");
}

#[test]
fn damage_names_the_file_and_the_place() {
    let (disk, _, _) = closed_log();
    disk.flip_bit(&segment::path(2), 1000, 3).unwrap();
    match open(&disk).unwrap_err() {
        WalError::Damaged { file, offset, .. } => {
            assert_eq!(file, "wal/0000000000000002.wal");
            assert!((1000 - 400..=1000).contains(&offset), "{offset}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn nothing_is_written_to_a_damaged_log() {
    let (disk, _, _) = closed_log();
    disk.flip_bit(&segment::path(2), 1000, 3).unwrap();
    let before: Vec<_> = disk.files().into_iter().map(|path| disk.contents(&path).unwrap()).collect();
    open(&disk).unwrap_err();
    let after: Vec<_> = disk.files().into_iter().map(|path| disk.contents(&path).unwrap()).collect();
    assert!(before == after);
}

#[test]
fn a_missing_segment_is_named() {
    let (disk, _, in_use) = closed_log();
    for missing in 1..in_use {
        let holed = copy(&disk);
        holed.remove(&segment::path(missing)).unwrap();
        let message = open(&holed).unwrap_err().to_string();
        assert!(message.contains(&segment::path(missing)), "{message}");
        assert!(message.contains("missing"), "{message}");
    }
}

#[test]
fn a_segment_that_was_shortened_is_refused() {
    let (disk, _, in_use) = closed_log();
    for number in 1..=in_use {
        for len in [0, 10, 1000, 4095] {
            let cut = copy(&disk);
            let bytes = cut.contents(&segment::path(number)).unwrap();
            cut.place(&segment::path(number), &bytes[..len]).unwrap();
            assert!(open(&cut).is_err(), "segment {number} cut to {len}");
        }
    }
}

#[test]
fn a_segment_from_elsewhere_is_refused() {
    let (disk, _, _) = closed_log();
    let first = disk.contents(&segment::path(1)).unwrap();
    let swapped = copy(&disk);
    swapped.place(&segment::path(2), &first).unwrap();
    assert!(open(&swapped).is_err());
    // The same number, but another log's.
    let other = ModelDisk::new(2);
    let wal = Wal::open(Arc::new(other.clone()), small(Threading::Inline)).unwrap();
    for index in 0..24 {
        append(&wal, vec![record(9, index, 280)]);
    }
    drop(wal);
    let mixed = copy(&disk);
    mixed.place(&segment::path(2), &other.contents(&segment::path(2)).unwrap()).unwrap();
    assert!(open(&mixed).is_err());
}

#[test]
fn a_foreign_file_is_named_and_our_own_leftovers_are_removed() {
    for disk in TestDisk::both() {
        drop(disk.open(Threading::Inline));
        let leftover = format!("{}.tmp", segment::path(2));
        let raw = disk.disk();
        raw.open(&leftover, true).unwrap().write_at(b"half", 0).unwrap();
        drop(raw);
        drop(disk.open(Threading::Inline));
        let raw = disk.disk();
        assert!(!raw.exists(&leftover).unwrap());
        raw.open("wal/notes.txt", true).unwrap();
        drop(raw);
        let message = Wal::open(disk.disk(), small(Threading::Inline)).unwrap_err().to_string();
        assert!(message.contains("wal/notes.txt"), "{message}");
    }
}

#[test]
fn a_torn_last_write_is_cut_and_the_log_goes_on() {
    let (disk, records, in_use) = closed_log();
    let path = segment::path(in_use);
    let bytes = disk.contents(&path).unwrap();
    let end = content_end(&bytes);
    // One more batch, of which the power cut leaves any part.
    let wal = open(&disk).unwrap();
    append(&wal, vec![record(1, 24, 60), record(1, 25, 60)]);
    let whole = disk.contents(&path).unwrap();
    let batch_end = content_end(&whole);
    let batch_start = end + CLOSE_MARK_BYTES;
    for torn_at in batch_start..batch_end {
        let torn = copy(&disk);
        let mut bytes = whole.clone();
        bytes[torn_at..(torn_at + 40).min(batch_end)].fill(0);
        torn.place(&path, &bytes).unwrap();
        let wal = open(&torn).unwrap();
        let found = all(&wal);
        assert!(found.starts_with(&records) && found.len() <= records.len() + 2);
        let next = found.len() as u64;
        append(&wal, vec![record(2, next, 10)]);
        drop(wal);
        // No byte of the torn write is left behind what was written since.
        let bytes = torn.contents(&path).unwrap();
        let mut walk = crate::frame::Walk::new(&bytes, crate::frame::Family::Wal, in_use, None);
        while walk.next_frame().unwrap().is_some() {}
        assert_eq!(walk.offset, content_end(&bytes));
        let wal = open(&torn).unwrap();
        assert_eq!(all(&wal).len() as u64, next + 1);
    }
}

#[test]
fn a_record_of_a_newer_program_stops_us_and_is_not_cut() {
    use crate::frame::{Chain, Family, Walk};
    let (disk, _, in_use) = closed_log();
    let path = segment::path(in_use);
    let mut bytes = disk.contents(&path).unwrap();
    let mut walk = Walk::new(&bytes, Family::Wal, in_use, None);
    while walk.next_frame().unwrap().is_some() {}
    let (end, link) = (walk.offset, walk.link.unwrap());
    let mut frame = Vec::new();
    let mut chain = Chain { family: Family::Wal, segment: in_use, link };
    chain.put(&mut frame, 99, end as u32, |out| out.extend_from_slice(b"future")).unwrap();
    bytes[end..end + frame.len()].copy_from_slice(&frame);
    disk.place(&path, &bytes).unwrap();
    match open(&disk).unwrap_err() {
        WalError::Newer { file, what, .. } => assert!(file == path && what.contains("99"), "{file} {what}"),
        other => panic!("{other}"),
    }
}

#[test]
fn an_entry_that_rots_while_we_run_is_an_error_and_not_an_answer() {
    let disk = ModelDisk::new(7);
    let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Inline)).unwrap();
    append(&wal, (0..20).map(|index| record(1, index, 300)).collect());
    disk.flip_bit(&segment::path(1), 600, 0).unwrap();
    let error = wal.read(0..20, usize::MAX).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(error.to_string().contains(&segment::path(1)), "{error}");
}

use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::disk::{Disk as _, ModelDisk, RealDisk};

fn meta(index: u64) -> SnapshotMeta {
    SnapshotMeta {
        last: Some(LogPosition { term: 2, node: 1, index }),
        membership_at: Some(LogPosition { term: 1, node: 1, index: 0 }),
        membership: Bytes::from_static(b"members"),
        state_hash: [7; 32],
        created_ms: 1_700_000_000_000,
        group: "0193-abc".to_owned(),
        incarnation: 4,
    }
}

fn body(index: u64) -> Vec<u8> {
    (0..5_000_u64).flat_map(|nth| (nth * index).to_le_bytes()).collect()
}

fn open(disk: &ModelDisk) -> Result<SnapshotStore, SnapshotError> {
    SnapshotStore::open(Arc::new(disk.reopen()), 2)
}

#[test]
fn a_body_that_comes_in_pieces_is_the_same_body() {
    let meta = meta(7);
    let body: Vec<u8> = (0..300_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
    let bytes = encode_in_pieces(&meta, |packing| body.chunks(70_001).for_each(|piece| packing.add(piece))).unwrap();
    assert_eq!(parse_bytes(&bytes).unwrap(), (meta.clone(), body.clone()));
}

#[test]
fn what_was_written_is_the_latest_and_older_ones_go() {
    let dir = TempDir::new().unwrap();
    let model: SharedDisk = Arc::new(ModelDisk::new(1));
    for disk in [model, Arc::new(RealDisk::open(dir.path()).unwrap())] {
        let store = SnapshotStore::open(disk.clone(), 2).unwrap();
        assert!(store.latest().is_none());
        let mut first = None;
        for index in [5, 10, 15] {
            let file = store.write(&meta(index), &body(index)).unwrap();
            assert_eq!(file.load().unwrap(), body(index));
            first.get_or_insert(file);
        }
        assert_eq!(store.latest().unwrap().meta(), &meta(15));
        // A snapshot of an older state that took long to write is not the latest.
        store.write(&meta(12), &body(12)).unwrap();
        assert_eq!(store.latest().unwrap().meta(), &meta(15));
        assert_eq!(disk.list("snapshots").unwrap().len(), 2);
        assert_eq!(first.unwrap().load().unwrap(), body(5), "still readable by who holds it");
        drop(store);
        let store = SnapshotStore::open(disk.clone(), 2).unwrap();
        assert_eq!(store.latest().unwrap().load().unwrap(), body(15));
    }
}

#[test]
fn what_a_dying_process_did_not_remove_goes_when_the_next_one_starts() {
    let disk = ModelDisk::new(1);
    let store = SnapshotStore::open(Arc::new(disk.reopen()), 10).unwrap();
    for index in [5, 10, 15, 20] {
        store.write(&meta(index), &body(index)).unwrap();
    }
    drop(store);
    // Whoever only looks sees all of them.
    let (looked, _) = SnapshotStore::open_whole(Arc::new(disk.reopen()), 2).unwrap();
    assert_eq!(looked.indexes(), [5, 10, 15, 20]);
    assert_eq!(open(&disk).unwrap().indexes(), [15, 20]);
    assert_eq!(disk.list("snapshots").unwrap().len(), 2);
}

#[test]
fn the_bytes_sent_are_the_bytes_stored() {
    let (from, to) = (ModelDisk::new(1), ModelDisk::new(2));
    let sent = open(&from).unwrap().write(&meta(9), &body(9)).unwrap();
    let store = open(&to).unwrap();
    let mut receiver = store.receive().unwrap();
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < sent.len() {
        let chunk = sent.read_at(bytes.len() as u64, 777).unwrap();
        receiver.write_chunk(&chunk).unwrap();
        bytes.extend_from_slice(&chunk);
    }
    assert_eq!(receiver.len(), sent.len());
    let received = receiver.finish().unwrap();
    assert_eq!(received.meta(), &meta(9));
    assert_eq!(to.contents(&received.inner.path).unwrap(), bytes);
    assert_eq!(parse_bytes(&bytes).unwrap(), (meta(9), body(9)));

    let dir = TempDir::new().unwrap();
    let saved = dir.path().join("backup");
    std::fs::write(&saved, &bytes).unwrap();
    assert_eq!(read_file(&saved).unwrap(), (meta(9), body(9)));
}

#[test]
fn a_half_received_snapshot_is_never_taken_and_leaves_nothing() {
    let disk = ModelDisk::new(1);
    let store = open(&disk).unwrap();
    let bytes = encode(&meta(9), &body(9)).unwrap();
    for len in [0, 1, 31, 200, bytes.len() - 1] {
        let mut receiver = store.receive().unwrap();
        receiver.write_chunk(&bytes[..len]).unwrap();
        assert!(matches!(receiver.finish(), Err(SnapshotError::NotASnapshot { .. })), "{len}");
    }
    drop(store.receive().unwrap());
    assert_eq!(disk.list("snapshots").unwrap(), [] as [&str; 0]);
    // Neither is one that a process left behind when it died.
    let mut receiver = store.receive().unwrap();
    receiver.write_chunk(&bytes).unwrap();
    disk.kill_process();
    drop(receiver);
    assert_eq!(disk.reopen().list("snapshots").unwrap().len(), 1);
    assert!(open(&disk).unwrap().latest().is_none());
    assert_eq!(disk.reopen().list("snapshots").unwrap(), [] as [&str; 0]);
}

#[test]
fn a_power_cut_while_writing_leaves_the_old_one_or_the_new_one() {
    for seed in 0..30 {
        for cut_at in 1..8 {
            let disk = ModelDisk::new(seed);
            open(&disk).unwrap().write(&meta(1), &body(1)).unwrap();
            let store = open(&disk).unwrap();
            disk.cut_power_at(cut_at);
            let written = store.write(&meta(2), &body(2)).is_ok();
            disk.power_cut();
            let latest = open(&disk).unwrap().latest().unwrap();
            let index = latest.meta().last.unwrap().index;
            assert!(index == 2 || (index == 1 && !written), "seed {seed}, cut at {cut_at}");
            assert_eq!(latest.load().unwrap(), body(index));
        }
    }
}

#[test]
fn writing_the_same_position_again_is_safe_too() {
    for seed in 0..30 {
        for cut_at in 1..8 {
            let disk = ModelDisk::new(seed);
            let store = open(&disk).unwrap();
            store.write(&meta(1), &body(1)).unwrap();
            disk.cut_power_at(cut_at);
            let _ = store.write(&SnapshotMeta { created_ms: 9, ..meta(1) }, &body(1));
            disk.power_cut();
            assert_eq!(open(&disk).unwrap().latest().unwrap().load().unwrap(), body(1), "seed {seed}, cut at {cut_at}");
        }
    }
}

#[test]
fn every_flipped_bit_of_the_latest_is_refused_by_name() {
    let disk = ModelDisk::new(1);
    let path = open(&disk).unwrap().write(&meta(1), b"a small state").unwrap().inner.path.clone();
    for offset in 0..disk.contents(&path).unwrap().len() as u64 {
        disk.flip_bit(&path, offset, 5).unwrap();
        let message = open(&disk).unwrap_err().to_string();
        assert!(message.contains(&path) && message.contains("remove-peer"), "{message}");
        disk.flip_bit(&path, offset, 5).unwrap();
    }
    open(&disk).unwrap();
    disk.flip_bit(&path, 100, 1).unwrap();
}

#[test]
fn rot_under_a_running_node_is_noticed_when_the_state_is_loaded() {
    let disk = ModelDisk::new(1);
    let file = open(&disk).unwrap().write(&meta(1), &body(1)).unwrap();
    disk.flip_bit(&file.inner.path, file.len() / 2, 1).unwrap();
    assert!(matches!(file.load(), Err(SnapshotError::Damaged { .. })));
}

#[test]
fn foreign_files_and_false_names_are_refused_by_name() {
    let disk = ModelDisk::new(1);
    open(&disk).unwrap().write(&meta(1), &body(1)).unwrap();
    for foreign in ["snapshots/notes.txt", "snapshots/1.snapshot", "snapshots/notes.tmp"] {
        disk.place(foreign, b"hello").unwrap();
        let message = open(&disk).unwrap_err().to_string();
        assert!(message.contains(foreign), "{message}");
        disk.reopen().remove(foreign).unwrap();
    }
    let bytes = encode(&meta(1), &body(1)).unwrap();
    let false_name = format!("snapshots/{}", name(meta(2).last));
    disk.place(&false_name, &bytes).unwrap();
    assert!(open(&disk).unwrap_err().to_string().contains(&false_name));
}

#[test]
fn a_full_disk_or_a_failed_sync_is_an_error_and_the_old_one_stays() {
    let disk = ModelDisk::new(1);
    let store = open(&disk).unwrap();
    store.write(&meta(1), &body(1)).unwrap();
    disk.set_capacity(Some(disk.used_bytes().unwrap() + 1000));
    assert!(store.write(&meta(2), &body(2)).is_err());
    assert_eq!(disk.list("snapshots").unwrap().len(), 1, "the temp file is gone");
    disk.set_capacity(None);
    disk.fail_sync(1);
    assert!(store.write(&meta(2), &body(2)).is_err());
    disk.power_cut();
    assert_eq!(open(&disk).unwrap().latest().unwrap().meta(), &meta(1));
}

#[test]
fn a_snapshot_of_nothing_and_an_empty_body_are_fine() {
    let disk = ModelDisk::new(1);
    let start = SnapshotMeta { last: None, membership_at: None, ..meta(0) };
    open(&disk).unwrap().write(&start, b"").unwrap();
    let latest = open(&disk).unwrap().latest().unwrap();
    assert_eq!((latest.meta(), latest.load().unwrap()), (&start, vec![]));
}

#[test]
fn a_body_that_unpacks_to_more_than_its_head_says_is_refused() {
    let mut bytes = Vec::new();
    let head = Head { meta: meta(1), body_bytes: 10, body_hash: blake3::hash(&[0; 10]).into() };
    let mut chain = Chain { family: Family::Snapshot, segment: 0, link: 0 };
    chain.put(&mut bytes, META, 0, |out| head.encode(out)).unwrap();
    let bomb = zstd::bulk::compress(&vec![0; 10 << 20], 3).unwrap();
    chain.put(&mut bytes, BODY, 0, |out| out.put_raw(&bomb)).unwrap();
    let hash = blake3::hash(&bytes);
    chain.put(&mut bytes, END, 0, |out| out.put_raw(hash.as_bytes())).unwrap();
    assert!(matches!(parse_bytes(&bytes), Err(SnapshotError::NotASnapshot { .. })));
}

use std::sync::Arc;

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::{disk::ModelDisk, journal::JournalOptions};

fn record(index: u64, salt: u8) -> JournalRecord {
    JournalRecord {
        index,
        time_ms: index,
        hash: blake3::hash(&[&index.to_le_bytes()[..], &[salt]].concat()).into(),
        entry: Bytes::from_static(b"entry"),
        events: Bytes::new(),
        keys: vec![
            format!("cluster/c{}", index % 3).into_bytes(),
            format!("cluster/c{}", index % 3).into_bytes(),
            format!("actor/a{}", (index + u64::from(salt)) % 10).into_bytes(),
            [b"time\0", &(index / 100).to_be_bytes()[..]].concat(),
        ]
        .into(),
    }
}

fn journal(disk: &ModelDisk, salt: u8, to: u64) -> Journal {
    let journal = Journal::open(Arc::new(disk.reopen()), JournalOptions::default()).unwrap();
    for index in journal.last_index().map_or(0, |last| last + 1)..to {
        journal.append(record(index, salt)).unwrap();
    }
    journal
}

/// Every answer, compared with the journal itself.
fn check(index: &AuditIndex, journal: &Journal) {
    let all = journal.read(0, usize::MAX).unwrap();
    for prefix in ["cluster/c0", "cluster/c2", "cluster/", "actor/a7", "actor/", "time\0", "", "nobody", "cluster/c0x"]
    {
        let wanted: Vec<u64> = all
            .iter()
            .filter(|record| record.keys.iter().any(|key| key.starts_with(prefix.as_bytes())))
            .map(|record| record.index)
            .rev()
            .collect();
        assert_eq!(index.find(prefix.as_bytes(), None, usize::MAX).unwrap(), wanted, "{prefix:?}");
        let page = wanted.iter().copied().filter(|index| *index < 300).take(7).collect::<Vec<_>>();
        assert_eq!(index.find(prefix.as_bytes(), Some(300), 7).unwrap(), page, "{prefix:?} before 300");
    }
}

#[test]
fn what_carries_a_key_is_found_newest_first_page_by_page() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = journal(&disk, 0, 700);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    check(&index, &journal);
    let (mut pages, mut before) = (Vec::new(), None);
    loop {
        let page = index.find(b"cluster/c1", before, 50).unwrap();
        let Some(last) = page.last() else { break };
        before = Some(*last);
        pages.extend(page);
    }
    assert_eq!(pages, index.find(b"cluster/c1", None, usize::MAX).unwrap());
}

#[test]
fn what_is_appended_while_the_index_is_made_is_found_in_it_afterwards() {
    for before in [0, 1, 300, 2_000] {
        let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
        let journal = journal(&disk, 0, before);
        let index = AuditIndex::open_beside(dir.path(), &journal).unwrap();
        for at in before..before + 3_000 {
            let record = record(at, 0);
            journal.append(record.clone()).unwrap();
            index.insert(&record).unwrap();
        }
        check(&index, &journal);
        index.close().unwrap();
    }
}

#[test]
fn an_interval_that_was_being_written_when_the_process_ended_is_written_again() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = journal(&disk, 0, 600);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    {
        let db = index.db();
        let db = db.as_ref().unwrap();
        // The journal ends in the third interval, which sled has not got: these came before its mark, and one came that the
        // journal has lost since.
        for key in ["cluster/c0", "cluster/c1", "actor/a7", "lost with the end of the journal"] {
            db.insert(entry_key(key.as_bytes(), 2), Bits::default().encode()).unwrap();
        }
        db.insert("a sign", "that it was not built again").unwrap();
    }
    drop(index);
    std::fs::remove_file(dir.path().join("seal")).unwrap();
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    check(&index, &journal);
    assert_eq!(index.find(b"lost", None, 9).unwrap(), [0_u64; 0]);
    assert!(index.db().as_ref().unwrap().get("a sign").unwrap().is_some());
}

#[test]
fn an_index_that_is_being_made_can_be_closed_and_goes_on_next_time() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = journal(&disk, 0, 5_000);
    AuditIndex::open_beside(dir.path(), &journal).unwrap().close().unwrap();
    check(&AuditIndex::open_beside(dir.path(), &journal).unwrap(), &journal);
}

#[test]
fn keys_with_zeros_and_keys_that_begin_with_others_are_kept_apart() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = Journal::open(Arc::new(disk), JournalOptions::default()).unwrap();
    let keys: [&[u8]; 6] = [b"a", b"a\0", b"a\0\x01", b"a\0\xff", b"a\x01", b"ab"];
    for (index, key) in (0..).zip(keys) {
        journal.append(JournalRecord { keys: vec![key.to_vec()].into(), ..record(index, 0) }).unwrap();
    }
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    assert_eq!(index.find(b"a", None, 9).unwrap(), [5, 4, 3, 2, 1, 0]);
    assert_eq!(index.find(b"a\0", None, 9).unwrap(), [3, 2, 1]);
    assert_eq!(index.find(b"a\0\x01", None, 9).unwrap(), [2]);
    assert_eq!(index.find(b"", None, 2).unwrap(), [5, 4]);
}

#[test]
fn it_catches_up_with_the_journal_and_goes_on_from_there() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let first = journal(&disk, 0, 100);
    drop(AuditIndex::open(dir.path(), &first).unwrap());
    drop(first);
    let journal = journal(&disk, 0, 600);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    check(&index, &journal);
    for at in 600..650 {
        journal.append(record(at, 0)).unwrap();
        index.insert(&record(at, 0)).unwrap();
        index.insert(&record(at, 0)).unwrap();
    }
    check(&index, &journal);
    index.close().unwrap();
    assert!(matches!(index.find(b"", None, 1), Err(IndexError::Closed)));
    drop(index);
    check(&AuditIndex::open(dir.path(), &journal).unwrap(), &journal);
}

#[test]
fn gaps_in_the_journal_are_passed_over() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = journal(&disk, 0, 10);
    journal.start_after(99, [9; 32]).unwrap();
    for at in 100..110 {
        journal.append(record(at, 0)).unwrap();
    }
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    assert_eq!(index.find(b"cluster/c1", None, 99).unwrap(), [109, 106, 103, 100, 7, 4, 1]);
    journal.start_after(500, [5; 32]).unwrap();
    drop(index);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    assert_eq!(index.find(b"cluster/c1", None, 2).unwrap(), [109, 106]);
}

#[test]
fn a_missing_or_foreign_index_is_built_again() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let other = journal(&ModelDisk::new(2), 7, 650);
    drop(AuditIndex::open(dir.path(), &other).unwrap());
    let journal = journal(&disk, 0, 700);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    check(&index, &journal);
    drop(index);
    std::fs::remove_dir_all(dir.path()).unwrap();
    check(&AuditIndex::open(dir.path(), &journal).unwrap(), &journal);
}

#[test]
fn an_index_that_is_ahead_of_the_journal_takes_back_what_the_journal_lost() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let before = journal(&disk, 0, 300);
    before.sync().unwrap();
    let index = AuditIndex::open(dir.path(), &before).unwrap();
    for at in 300..900 {
        before.append(record(at, 0)).unwrap();
        index.insert(&record(at, 0)).unwrap();
    }
    index.db().as_ref().unwrap().insert("a sign", "that it was not built again").unwrap();
    drop(index);
    disk.power_cut();
    drop(before);
    let journal = journal(&disk, 0, 0);
    assert!((Some(256)..Some(899)).contains(&journal.last_index()), "{:?}", journal.last_index());
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    check(&index, &journal);
    assert!(index.db().as_ref().unwrap().get("a sign").unwrap().is_some());
    for at in journal.last_index().unwrap() + 1..950 {
        journal.append(record(at, 0)).unwrap();
        index.insert(&record(at, 0)).unwrap();
    }
    check(&index, &journal);
}

#[test]
fn damaged_files_are_noticed_and_built_again() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    // Enough that the file of sled has a middle.
    let journal = journal(&disk, 0, 6_000);
    let pristine = TempDir::new().unwrap();
    drop(AuditIndex::open(pristine.path(), &journal).unwrap());
    let db = std::fs::read(pristine.path().join("sled/db")).unwrap();
    type Damage = Box<dyn Fn(&Path)>;
    let damages: Vec<(&str, Damage)> = vec![
        ("garbage", Box::new(|dir| std::fs::write(dir.join("sled/db"), vec![0xa5; 100_000]).unwrap())),
        ("empty", Box::new(|dir| std::fs::write(dir.join("sled/db"), b"").unwrap())),
        ("zeros in the middle", {
            let mut bytes = db.clone();
            let middle = bytes.len() / 2;
            bytes[middle..middle + 4096].fill(0);
            Box::new(move |dir| std::fs::write(dir.join("sled/db"), &bytes).unwrap())
        }),
        ("cut short", {
            let bytes = db[..db.len() / 3].to_vec();
            Box::new(move |dir| std::fs::write(dir.join("sled/db"), &bytes).unwrap())
        }),
        ("no db", Box::new(|dir| std::fs::remove_file(dir.join("sled/db")).unwrap())),
        ("no conf", Box::new(|dir| std::fs::remove_file(dir.join("sled/conf")).unwrap())),
        ("garbage conf", Box::new(|dir| std::fs::write(dir.join("sled/conf"), b"what?").unwrap())),
        ("a stranger's folder", {
            Box::new(|dir| {
                std::fs::remove_dir_all(dir.join("sled")).unwrap();
                std::fs::create_dir(dir.join("sled")).unwrap();
                std::fs::write(dir.join("sled/stranger"), b"hello").unwrap();
            })
        }),
        ("a file where the folder should be", {
            Box::new(|dir| {
                std::fs::remove_dir_all(dir.join("sled")).unwrap();
                std::fs::write(dir.join("sled"), b"hello").unwrap();
            })
        }),
    ];
    for (what, damage) in damages {
        // Once with the seal of an orderly close, which no longer fits, and once without.
        for sealed in [true, false] {
            drop(AuditIndex::open(dir.path(), &journal).unwrap());
            damage(dir.path());
            if !sealed {
                std::fs::remove_file(dir.path().join("seal")).unwrap();
            }
            let index = AuditIndex::open(dir.path(), &journal).unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&index, &journal);
        }
    }
}

#[test]
fn a_key_that_somebody_removed_while_it_was_closed_is_noticed() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = journal(&disk, 0, 700);
    drop(AuditIndex::open(dir.path(), &journal).unwrap());
    let db = open_sled(dir.path()).unwrap();
    db.remove(entry_key(b"cluster/c1", 1)).unwrap().unwrap();
    drop(db);
    check(&AuditIndex::open(dir.path(), &journal).unwrap(), &journal);
}

#[test]
fn a_single_missing_key_is_noticed_after_a_crash() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = journal(&disk, 0, 700);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    index.db().as_ref().unwrap().remove(entry_key(b"cluster/c1", 1)).unwrap();
    assert!(!index.find(b"cluster/c1", None, usize::MAX).unwrap().contains(&304));
    drop(index);
    std::fs::remove_file(dir.path().join("seal")).unwrap();
    check(&AuditIndex::open(dir.path(), &journal).unwrap(), &journal);
}

#[test]
fn what_cannot_be_written_is_an_error_of_a_later_insert_and_nobody_waits_for_it() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = journal(&disk, 0, 1);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    drop(index.shared().db.write().unwrap().take());
    let many = 1..(UNWRITTEN_MAX as u64 + 4) * INTERVAL;
    let refused = many.filter(|at| index.insert(&record(*at, 0)).is_err()).count();
    assert!(refused > 0);
    assert!(index.insert(&record(1_000_000, 0)).is_err());
}

#[test]
fn entries_that_came_later_and_are_older_are_found_after_it_was_made_anew() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = Journal::open(Arc::new(disk.reopen()), JournalOptions::default()).unwrap();
    journal.start_after(400, record(400, 0).hash).unwrap();
    for index in 401..900 {
        journal.append(record(index, 0)).unwrap();
    }
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    assert_eq!(index.find(b"cluster/", None, usize::MAX).unwrap().last(), Some(&401));
    let gap = journal.gaps().unwrap().remove(0);
    let filling = journal.fill(gap).unwrap();
    filling.add((1..=400).map(|index| record(index, 0)).collect()).unwrap();
    assert!(filling.finish().unwrap());
    index.make_anew();
    // Whatever is applied meanwhile is not lost, either.
    for next in 900..1_000 {
        journal.append(record(next, 0)).unwrap();
        index.insert(&record(next, 0)).unwrap();
    }
    let expected: Vec<u64> = (1..1_000).rev().collect();
    let give_up = Instant::now() + PATIENCE;
    while index.find(b"cluster/", None, usize::MAX).unwrap() != expected {
        assert!(Instant::now() < give_up, "the index is not made anew");
        std::thread::yield_now();
    }
    drop(index);
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    assert_eq!(index.find(b"cluster/", None, usize::MAX).unwrap(), expected);
}

#[test]
fn entries_that_were_fetched_are_found_even_if_the_process_ended_before_the_index_was_made_anew() {
    type End = fn(crate::journal::Filling, &AuditIndex);
    let ends: [(&str, End); 3] = [
        ("before it was finished", |_, _| ()),
        ("before the index was told", |filling, _| assert!(filling.finish().unwrap())),
        ("while the index was told", |filling, index| {
            assert!(filling.finish().unwrap());
            // Nobody waits for it.
            lock(&index.shared().memory).closing = true;
            index.make_anew();
        }),
    ];
    for (when, end) in ends {
        // Once closed in order, once not.
        for sealed in [true, false] {
            let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
            let journal = Journal::open(Arc::new(disk.reopen()), JournalOptions::default()).unwrap();
            journal.start_after(400, record(400, 0).hash).unwrap();
            for index in 401..900 {
                journal.append(record(index, 0)).unwrap();
            }
            let index = AuditIndex::open(dir.path(), &journal).unwrap();
            let filling = journal.fill(journal.gaps().unwrap().remove(0)).unwrap();
            filling.add((1..=400).map(|index| record(index, 0)).collect()).unwrap();
            end(filling, &index);
            drop((index, journal));
            if !sealed {
                std::fs::remove_file(dir.path().join("seal")).unwrap();
            }
            let journal = Journal::open(Arc::new(disk.reopen()), JournalOptions::default()).unwrap();
            let expected: Vec<u64> = (1..900).rev().collect();
            let index = AuditIndex::open(dir.path(), &journal).unwrap();
            assert_eq!(index.find(b"cluster/", None, usize::MAX).unwrap(), expected, "{when}");
            // Once is enough.
            index.db().as_ref().unwrap().insert("a sign", "that it was not built again").unwrap();
            drop(index);
            let index = AuditIndex::open(dir.path(), &journal).unwrap();
            assert!(index.db().as_ref().unwrap().get("a sign").unwrap().is_some(), "{when}");
        }
    }
}

#[test]
fn a_lock_that_somebody_has_for_a_moment_is_no_reason_to_make_the_index_anew() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let journal = Journal::open(Arc::new(disk.reopen()), JournalOptions::default()).unwrap();
    (1..900).for_each(|index| journal.append(record(index, 0)).unwrap());
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    index.db().as_ref().unwrap().insert("a sign", "that it was not built again").unwrap();
    drop(index);
    let held = std::fs::File::open(dir.path().join(SLED_DIR).join("db")).unwrap();
    held.lock().unwrap();
    let holder = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(held);
    });
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    assert!(index.db().as_ref().unwrap().get("a sign").unwrap().is_some());
    holder.join().unwrap();
}

#[test]
fn what_the_journal_has_let_go_does_not_make_the_index_doubtful() {
    let (dir, disk) = (TempDir::new().unwrap(), ModelDisk::new(1));
    let options = JournalOptions { segment_bytes: 2_000, block_bytes: 500 };
    let journal = Journal::open(Arc::new(disk.reopen()), options).unwrap();
    for index in 1..1_000 {
        journal.append(record(index, 0)).unwrap();
    }
    drop(AuditIndex::open(dir.path(), &journal).unwrap());
    let through = journal.sealed_segments().iter().map(|segment| segment.last).rfind(|last| *last < 600).unwrap();
    journal.let_go(through).unwrap();
    let index = AuditIndex::open(dir.path(), &journal).unwrap();
    // It was not made again: what is gone is still found, and whoever looks it up in the journal is told so.
    let found = index.find(b"cluster/", Some(600), 1_000).unwrap();
    assert_eq!(found.last(), Some(&1));
    assert!(matches!(journal.read(1, 1), Err(JournalError::Missing { .. })));
}

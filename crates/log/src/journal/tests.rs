use std::sync::atomic::{AtomicBool, Ordering};

use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};
use tempfile::TempDir;

use super::*;
use crate::disk::{Disk as _, ModelDisk, RealDisk};

/// Small blocks and segments, so that every test has many of both.
const SMALL: JournalOptions = JournalOptions { segment_bytes: 1500, block_bytes: 400 };

fn hash(index: u64) -> Hash {
    format::hash(&index.to_le_bytes())
}

fn record(index: u64) -> JournalRecord {
    // Hashes do not compress, so that segments fill.
    let noise: Vec<u8> = (0..1 + index % 4).flat_map(|nth| hash(index * 7 + nth)).collect();
    JournalRecord {
        index,
        time_ms: 1_000 + index,
        hash: hash(index),
        entry: Bytes::from(noise),
        events: Bytes::from(vec![b'v'; (index % 50) as usize]),
        keys: vec![format!("cluster/c{}", index % 3).into_bytes()].into(),
    }
}

fn records(range: std::ops::Range<u64>) -> Vec<JournalRecord> {
    range.map(record).collect()
}

fn open(disk: &ModelDisk) -> Result<Journal, JournalError> {
    Journal::open(Arc::new(disk.reopen()), SMALL)
}

fn append(journal: &Journal, range: std::ops::Range<u64>) {
    for index in range {
        journal.append(record(index)).unwrap();
    }
}

fn all(journal: &Journal) -> Vec<JournalRecord> {
    journal.first_index().map_or(vec![], |first| journal.read(first, usize::MAX).unwrap())
}

#[test]
fn everything_is_there_after_reopening_across_many_segments() {
    let dir = TempDir::new().unwrap();
    let model: SharedDisk = Arc::new(ModelDisk::new(1));
    for disk in [model, Arc::new(RealDisk::open(dir.path()).unwrap())] {
        let journal = Journal::open(disk.clone(), SMALL).unwrap();
        assert_eq!((journal.first_index(), journal.last_index(), journal.synced_index()), (None, None, None));
        assert_eq!(journal.read(0, 100).unwrap(), []);
        append(&journal, 0..100);
        assert_eq!(all(&journal), records(0..100));
        drop(journal);
        let journal = Journal::open(disk.clone(), SMALL).unwrap();
        assert_eq!((journal.first_index(), journal.last_index()), (Some(0), Some(99)));
        assert_eq!(journal.synced_index(), Some(99));
        append(&journal, 100..150);
        assert_eq!(all(&journal), records(0..150));
        for index in [0, 57, 99, 149] {
            assert_eq!(journal.hash_at(index).unwrap(), Some(hash(index)));
        }
        assert_eq!(journal.hash_at(150).unwrap(), None);
        journal.sync().unwrap();
        let summary = journal.verify().unwrap();
        assert_eq!((summary.records, summary.gaps), (150, 0));
        assert!(summary.segments > 5 && summary.blocks > 2 * summary.segments, "{summary:?}");
        assert_eq!(disk.list("journal").unwrap().len() as u64, summary.segments);
        assert!(journal.disk_bytes() > 1500 * (summary.segments - 1));
    }
}

#[test]
fn a_read_is_bounded_by_bytes_but_gives_at_least_one() {
    let journal = open(&ModelDisk::new(1)).unwrap();
    append(&journal, 0..50);
    assert_eq!(journal.read(20, 0).unwrap(), records(20..21));
    let some = journal.read(20, 1000).unwrap();
    assert!((2..12).contains(&some.len()) && some == records(20..20 + some.len() as u64));
    assert_eq!(journal.read(49, usize::MAX).unwrap(), records(49..50));
    assert_eq!(journal.read(50, usize::MAX).unwrap(), []);
    assert_eq!(journal.read(5000, usize::MAX).unwrap(), []);
}

#[test]
fn the_same_again_is_skipped_another_result_is_divergence_and_a_hole_is_refused() {
    let journal = open(&ModelDisk::new(1)).unwrap();
    append(&journal, 3..40);
    append(&journal, 3..40);
    append(&journal, 0..3); // Before the beginning there is nothing to compare with.
    assert_eq!(all(&journal), records(3..40));
    for index in [3, 20, 39] {
        let other = JournalRecord { hash: [1; 32], ..record(index) };
        assert!(matches!(journal.append(other), Err(JournalError::Diverged { index: at }) if at == index));
    }
    assert!(matches!(journal.append(record(41)), Err(JournalError::OutOfOrder { index: 41, last: 39 })));
    append(&journal, 40..42);
    assert_eq!(all(&journal), records(3..42));
}

#[test]
fn a_gap_is_explicit_and_remembered() {
    let disk = ModelDisk::new(1);
    let journal = open(&disk).unwrap();
    append(&journal, 0..10);
    journal.start_after(99, hash(99)).unwrap();
    assert_eq!((journal.last_index(), journal.synced_index()), (Some(99), Some(99)));
    // Saying it again, as after a crash in the middle of installing a snapshot, changes nothing.
    journal.start_after(99, hash(99)).unwrap();
    journal.start_after(5, hash(5)).unwrap();
    assert!(matches!(journal.start_after(99, hash(1)), Err(JournalError::Diverged { index: 99 })));
    assert!(matches!(journal.append(record(50)), Ok(())), "in the gap: skipped");
    append(&journal, 100..120);
    let check = |journal: &Journal| {
        assert_eq!(journal.read(0, usize::MAX).unwrap(), records(0..10), "up to the gap");
        assert_eq!(journal.read(100, usize::MAX).unwrap(), records(100..120));
        assert!(matches!(journal.read(10, 1), Err(JournalError::Missing { index: 10, next: Some(100) })));
        assert_eq!(journal.hash_at(99).unwrap(), Some(hash(99)));
        assert_eq!(journal.hash_at(50).unwrap(), None);
        assert_eq!(journal.verify().unwrap().gaps, 1);
        assert_eq!(journal.stretches(), [0..=9, 100..=119]);
    };
    check(&journal);
    drop(journal);
    let journal = open(&disk).unwrap();
    check(&journal);
    journal.start_after(200, hash(200)).unwrap();
    drop(journal);
    let journal = open(&disk).unwrap();
    assert_eq!(journal.last_index(), Some(200));
    assert!(matches!(journal.read(150, 1), Err(JournalError::Missing { index: 150, next: None })));
    append(&journal, 201..203);
    assert_eq!(journal.read(201, usize::MAX).unwrap(), records(201..203));
}

#[test]
fn a_journal_can_begin_after_a_snapshot() {
    let disk = ModelDisk::new(1);
    let journal = open(&disk).unwrap();
    journal.start_after(500, hash(500)).unwrap();
    assert_eq!((journal.first_index(), journal.last_index()), (None, Some(500)));
    assert!(journal.append(record(7)).is_ok());
    append(&journal, 501..530);
    drop(journal);
    let journal = open(&disk).unwrap();
    assert_eq!(all(&journal), records(501..530));
    assert_eq!(journal.hash_at(500).unwrap(), Some(hash(500)));
    assert!(matches!(journal.read(3, 1), Err(JournalError::Missing { index: 3, next: Some(501) })));
}

#[test]
fn readers_see_what_is_appended_while_it_is_appended() {
    let dir = TempDir::new().unwrap();
    let model: SharedDisk = Arc::new(ModelDisk::new(1));
    for disk in [model, Arc::new(RealDisk::open(dir.path()).unwrap())] {
        let journal = Journal::open(disk, SMALL).unwrap();
        let finished = Arc::new(AtomicBool::new(false));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (journal, finished) = (journal.clone(), finished.clone());
                std::thread::spawn(move || {
                    let mut next = 0;
                    while next < 400 {
                        let was_finished = finished.load(Ordering::SeqCst);
                        for found in journal.read(next, 900).unwrap() {
                            assert_eq!(found, record(next));
                            next += 1;
                        }
                        assert!(!was_finished || next > 0);
                    }
                })
            })
            .collect();
        let syncer = {
            let (journal, finished) = (journal.clone(), finished.clone());
            std::thread::spawn(move || {
                while !finished.load(Ordering::SeqCst) {
                    journal.sync().unwrap();
                    std::thread::yield_now();
                }
            })
        };
        append(&journal, 0..400);
        assert_eq!(journal.read(399, 1).unwrap(), records(399..400), "readable before it is synced");
        finished.store(true, Ordering::SeqCst);
        for thread in readers.into_iter().chain([syncer]) {
            thread.join().unwrap();
        }
        journal.sync().unwrap();
        assert_eq!(journal.synced_index(), Some(399));
        assert_eq!(journal.verify().unwrap().records, 400);
    }
}

#[test]
fn every_flipped_bit_is_found_by_opening_or_by_verifying() {
    let disk = ModelDisk::new(1);
    let journal = open(&disk).unwrap();
    append(&journal, 0..30);
    journal.start_after(60, hash(60)).unwrap();
    append(&journal, 61..70);
    drop(journal);
    for (nth, path) in disk.files().into_iter().enumerate() {
        let bytes = disk.contents(&path).unwrap();
        let len = bytes.len();
        // The very last write (a mark, or index and seal) promises everything before it, and nobody promises it.
        let mut promised = len;
        if nth + 1 == disk.files().len() {
            let mut walk = crate::frame::Walk::new(&bytes, crate::frame::Family::Journal, nth as u64 + 1, None);
            while walk.next_frame().unwrap().is_some() {}
            promised = walk.synced;
            assert!(promised > 500);
        }
        for offset in 0..len {
            let rotten = ModelDisk::new(1);
            rotten.create_dir("journal").unwrap();
            for file in disk.files() {
                rotten.place(&file, &disk.contents(&file).unwrap()).unwrap();
            }
            rotten.flip_bit(&path, offset as u64, (offset % 8) as u8).unwrap();
            match open(&rotten).and_then(|journal| journal.verify()) {
                Ok(_) => assert!(offset >= promised, "a flipped bit at {path}:{offset} went unnoticed"),
                Err(error) => {
                    assert!(offset < promised, "{error}");
                    assert!(error.to_string().contains("journal/"), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_block_that_rots_is_an_error_when_it_is_read_and_not_an_answer() {
    let disk = ModelDisk::new(1);
    let journal = open(&disk).unwrap();
    append(&journal, 0..30);
    disk.flip_bit(&format::path(1), 300, 1).unwrap();
    assert!(matches!(journal.read(0, usize::MAX), Err(JournalError::Damaged { offset, .. }) if offset < 300));
}

#[test]
fn missing_and_foreign_files_are_named() {
    let disk = ModelDisk::new(1);
    let journal = open(&disk).unwrap();
    append(&journal, 0..60);
    drop(journal);
    disk.place("journal/notes.txt", b"hello").unwrap();
    assert!(open(&disk).unwrap_err().to_string().contains("journal/notes.txt"));
    disk.reopen().remove("journal/notes.txt").unwrap();
    let leftover = format!("{}.tmp", format::path(99));
    disk.place(&leftover, b"half").unwrap();
    drop(open(&disk).unwrap());
    assert!(!disk.reopen().exists(&leftover).unwrap());
    disk.reopen().remove(&format::path(2)).unwrap();
    assert!(open(&disk).unwrap_err().to_string().contains(&format::path(2)));
}

#[test]
fn a_failed_sync_or_a_full_disk_ends_the_journal_and_keeps_what_was_synced() {
    for full in [true, false] {
        let disk = ModelDisk::new(4);
        let journal = open(&disk).unwrap();
        append(&journal, 0..20);
        journal.sync().unwrap();
        if full {
            disk.set_capacity(Some(disk.used_bytes().unwrap() + 10));
        } else {
            disk.fail_sync(1);
        }
        append(&journal, 20..21);
        assert!(journal.sync().is_err());
        let changes = disk.changes();
        assert!(matches!(journal.append(record(21)), Err(JournalError::Failed { .. })));
        assert!(matches!(journal.sync(), Err(JournalError::Failed { .. })));
        assert!(matches!(journal.start_after(900, hash(900)), Err(JournalError::Failed { .. })));
        assert_eq!(journal.synced_index(), Some(19));
        drop(journal);
        assert_eq!(disk.changes(), changes, "a failed sync is never tried again");
        disk.set_capacity(None);
        disk.power_cut();
        let journal = open(&disk).unwrap();
        assert!(journal.last_index() >= Some(19));
        append(&journal, 0..30);
        assert_eq!(all(&journal), records(0..30));
    }
}

#[test]
fn what_is_reported_after_a_failed_sync_and_a_restart_survives_a_power_cut() {
    for seed in 0..50 {
        let disk = ModelDisk::new(seed);
        // One segment, so that the sync that fails is the one that was asked for.
        let open = |disk: &ModelDisk| Journal::open(Arc::new(disk.reopen()), JournalOptions::default());
        let journal = open(&disk).unwrap();
        append(&journal, 0..5);
        journal.sync().unwrap();
        append(&journal, 5..8);
        disk.fail_sync(1);
        journal.sync().unwrap_err();
        disk.kill_process();
        drop(journal);
        let journal = open(&disk).unwrap();
        assert_eq!(journal.last_index(), Some(7), "the cache still has them");
        disk.power_cut();
        drop(journal);
        assert_eq!(all(&open(&disk).unwrap()), records(0..8), "seed {seed}");
    }
}

#[test]
fn a_closed_journal_takes_nothing() {
    let disk = ModelDisk::new(1);
    let journal = open(&disk).unwrap();
    append(&journal, 0..5);
    journal.close().unwrap();
    assert!(matches!(journal.append(record(5)), Err(JournalError::Closed)));
    assert!(matches!(journal.close(), Err(JournalError::Closed)));
    drop(journal);
    assert_eq!(all(&open(&disk).unwrap()), records(0..5));
}

#[derive(Clone, Debug)]
enum Step {
    Append(u8),
    Sync,
    Gap(u8),
    CutIn(u8),
    CutNow,
    KillIn(u8),
    Reopen,
}

fn script() -> impl Strategy<Value = (u64, Vec<Step>)> {
    let step = prop_oneof![
        6 => (1..30_u8).prop_map(Step::Append),
        3 => Just(Step::Sync),
        1 => (1..9_u8).prop_map(Step::Gap),
        2 => (1..9_u8).prop_map(Step::CutIn),
        1 => Just(Step::CutNow),
        1 => (1..9_u8).prop_map(Step::KillIn),
        1 => Just(Step::Reopen),
    ];
    (any::<u64>(), prop::collection::vec(step, 1..40))
}

/// Runs a script. `Err` is the first thing that a reopened journal had lost or made up.
fn run(seed: u64, steps: &[Step], ignore_syncs: bool) -> Result<(), String> {
    let disk = ModelDisk::new(seed);
    disk.ignore_syncs(ignore_syncs);
    let reopen = || open(&disk).map_err(|error| error.to_string());
    let mut journal = reopen()?;
    // Every index that was ever appended; gaps are left out.
    let mut appended: Vec<u64> = Vec::new();
    let mut kill = false;
    for step in steps.iter().chain([&Step::CutNow]) {
        let next = journal.last_index().map_or(0, |last| last + 1);
        match *step {
            Step::Append(count) => {
                for index in next..next + u64::from(count) {
                    if journal.append(record(index)).is_err() {
                        break;
                    }
                    appended.push(index);
                }
            }
            Step::Sync => drop(journal.sync()),
            Step::Gap(by) => drop(journal.start_after(next + u64::from(by), hash(next + u64::from(by)))),
            Step::CutIn(changes) => (kill, _) = (false, disk.cut_power_at(changes.into())),
            Step::KillIn(changes) => (kill, _) = (true, disk.cut_power_at(changes.into())),
            Step::CutNow | Step::Reopen => {}
        }
        let promised = journal.synced_index();
        match step {
            _ if disk.power_is_off() && kill => disk.kill_process(),
            _ if disk.power_is_off() => disk.power_cut(),
            Step::CutNow => disk.power_cut(),
            Step::Reopen => {}
            _ => continue,
        }
        drop(journal);
        if disk.power_is_off() {
            disk.power_cut();
        }
        disk.kill_process();
        journal = reopen()?;
        if journal.last_index() < promised {
            return Err(format!("synced up to {promised:?}, found {:?}", journal.last_index()));
        }
        journal.verify().map_err(|error| error.to_string())?;
        // What was reported is durable from now on.
        let reported = journal.last_index();
        disk.power_cut();
        drop(journal);
        journal = reopen()?;
        if journal.last_index() != reported {
            return Err(format!("reported {reported:?}, found {:?}", journal.last_index()));
        }
        appended.retain(|index| Some(*index) <= reported);
        for index in &appended {
            let found = journal.read(*index, 0).map_err(|error| error.to_string())?;
            if found != [record(*index)] {
                return Err(format!("record {index} is not what was appended"));
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn everything_synced_survives_power_cuts_at_any_instant((seed, steps) in script()) {
        run(seed, &steps, false).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn the_checker_reports_loss_when_syncs_do_nothing() {
    const SCRIPTS: usize = 100;
    let mut runner = TestRunner::deterministic();
    let mut losses = 0;
    for _ in 0..SCRIPTS {
        let (seed, steps) = script().new_tree(&mut runner).unwrap().current();
        run(seed, &steps, false).expect("honest syncs lose nothing");
        losses += usize::from(run(seed, &steps, true).is_err());
    }
    assert!(losses > SCRIPTS / 2, "only {losses} of {SCRIPTS} scripts noticed that nothing was synced");
}

#[test]
fn a_seal_whose_index_was_torn_away_is_no_seal() {
    let disk = ModelDisk::new(1);
    let journal = open(&disk).unwrap();
    let mut next = 0;
    while disk.files().len() < 2 {
        append(&journal, next..next + 1);
        next += 1;
    }
    drop(journal);
    disk.reopen().remove(&format::path(2)).unwrap();
    let mut bytes = disk.contents(&format::path(1)).unwrap();
    let seal_at = bytes.len() - format::SEAL_BYTES;
    bytes[seal_at - 1] ^= 0xff;
    disk.place(&format::path(1), &bytes).unwrap();
    let journal = open(&disk).unwrap();
    let last = journal.last_index().unwrap();
    assert!(last > 5);
    append(&journal, last + 1..50);
    assert_eq!(all(&journal), records(0..50));
    journal.sync().unwrap();
    journal.verify().unwrap();
}

#[test]
fn a_cut_or_a_kill_at_every_single_change_of_the_disk_loses_nothing_that_was_synced() {
    let work = |journal: &Journal| -> Result<(), JournalError> {
        for index in 0..25 {
            journal.append(record(index))?;
        }
        journal.sync()?;
        for index in 25..45 {
            journal.append(record(index))?;
        }
        journal.start_after(60, hash(60))?;
        for index in 61..90 {
            journal.append(record(index))?;
        }
        journal.close()
    };
    for at in 1.. {
        let mut finished = true;
        for seed in 0..16 {
            let disk = ModelDisk::new(seed);
            disk.cut_power_at(at);
            let told = format!("at change {at}, seed {seed}");
            let journal = open(&disk);
            let promised = journal.as_ref().ok().and_then(|journal| {
                let _ = work(journal);
                journal.synced_index()
            });
            finished &= !disk.power_is_off();
            if seed % 2 == 0 {
                disk.power_cut();
            } else {
                disk.kill_process();
            }
            drop(journal);
            let journal = open(&disk).unwrap_or_else(|error| panic!("{told}: {error}"));
            let reported = journal.last_index();
            assert!(reported >= promised, "{told}: {reported:?} of {promised:?}");
            // Going on makes it worse for what is only in the page cache: the next segment will count on it.
            let next = reported.map_or(0, |last| last + 1);
            journal.append(record(next)).and_then(|()| journal.sync()).unwrap();
            let reported = Some(next);
            disk.power_cut();
            drop(journal);
            let journal = open(&disk).unwrap_or_else(|error| panic!("{told}: {error}"));
            assert_eq!(journal.last_index(), reported, "{told}");
            journal.verify().unwrap_or_else(|error| panic!("{told}: {error}"));
            work(&journal).unwrap_or_else(|error| panic!("{told}: {error}"));
        }
        if finished {
            assert!(at > 40, "{at}");
            break;
        }
    }
}

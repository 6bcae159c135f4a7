//! Failed syncs, failed writes, full disks, and the order of things.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::disk::Disk as _;

/// Keeps what the observer was told: (bytes, records) per sync, and entries per truncation.
#[derive(Default)]
struct Told(Mutex<Vec<(usize, usize)>>, Mutex<Vec<u64>>);

impl WalObserver for Told {
    fn synced(&self, _took: Duration, bytes: usize, records: usize) {
        lock(&self.0).push((bytes, records));
    }

    fn truncated(&self, entries: u64) {
        lock(&self.1).push(entries);
    }
}

#[test]
fn a_write_is_readable_before_it_is_durable_and_done_comes_only_after_the_sync() {
    let disk = ModelDisk::new(1);
    let told = Arc::new(Told::default());
    let options = WalOptions { observer: Some(told.clone()), ..small(Threading::Thread) };
    let wal = Wal::open(Arc::new(disk.clone()), options).unwrap();
    lock(&told.0).clear();
    let done = Arc::new(AtomicBool::new(false));

    let hold = disk.hold_syncs();
    let before = disk.changes();
    let flag = done.clone();
    wal.append(vec![record(1, 0, 10)], Box::new(move |result| flag.store(result.is_ok(), Ordering::SeqCst)));
    wait_until("the write is there", || disk.changes() > before);
    assert_eq!(all(&wal), [record(1, 0, 10)]);
    assert_eq!(wal.state().last, Some(at(1, 0)));
    assert!(!done.load(Ordering::SeqCst));
    assert_eq!(*lock(&told.0), []);
    // What a power cut at this instant leaves is what was there before: nobody has been told anything else.

    // Three more that wait become one write and one sync.
    let (all_done, each) = mpsc::channel();
    for index in 1..4 {
        let all_done = all_done.clone();
        wal.append(vec![record(1, index, 10)], Box::new(move |result| all_done.send((index, result.is_ok())).unwrap()));
    }
    assert!(each.try_recv().is_err());
    drop(hold);
    let order: Vec<(u64, bool)> = each.iter().take(3).collect();
    assert_eq!(order, [(1, true), (2, true), (3, true)]);
    assert!(done.load(Ordering::SeqCst));
    let syncs: Vec<usize> = lock(&told.0).iter().map(|(_, records)| *records).collect();
    assert_eq!(syncs, [1, 3]);
}

#[test]
fn an_entry_appended_here_is_durable_when_the_call_returns_and_waits_for_nobody_who_is_at_it() {
    for disk in TestDisk::both() {
        let wal = disk.open(Threading::Thread);
        for index in 0..50 {
            let (done, told) = mpsc::channel();
            let tell = move |result: io::Result<()>| done.send((std::thread::current().id(), result.is_ok())).unwrap();
            wal.append_here(vec![record(1, index, 100)], Box::new(tell));
            assert_eq!(told.try_recv(), Ok((std::thread::current().id(), true)), "{index}");
        }
        // Beside the thread: whoever finds it at work leaves the entry to it, and the order stays.
        let (done, told) = mpsc::channel();
        for index in 50..250 {
            let done = done.clone();
            let tell: Done = Box::new(move |result| done.send((index, result.is_ok())).unwrap());
            match index % 3 {
                0 => wal.append_here(vec![record(1, index, 100)], tell),
                _ => wal.append(vec![record(1, index, 100)], tell),
            }
        }
        let order: Vec<(u64, bool)> = told.iter().take(200).collect();
        assert_eq!(order, (50..250).map(|index| (index, true)).collect::<Vec<_>>());
        assert_eq!(all(&wal).len(), 250);
        wal.close().unwrap();
        drop(wal);
        assert_eq!(all(&disk.open(Threading::Thread)).len(), 250);
    }
}

#[test]
fn a_failed_sync_of_an_entry_appended_here_ends_the_log_and_its_thread() {
    let disk = ModelDisk::new(1);
    let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Thread)).unwrap();
    disk.fail_sync(1);
    assert!(wait(|done| wal.append_here(vec![record(1, 0, 10)], done)).is_err());
    assert!(wal.failed().is_some());
    assert!(wait(|done| wal.append(vec![record(1, 1, 10)], done)).is_err());
    // Waits for the thread.
    assert!(wal.close().is_err());
}

#[test]
fn the_observer_is_told_how_many_entries_a_truncation_cut_off() {
    let told = Arc::new(Told::default());
    let options = WalOptions { observer: Some(told.clone()), ..small(Threading::Inline) };
    let wal = Wal::open(Arc::new(ModelDisk::new(1)), options).unwrap();
    append(&wal, (0..10).map(|index| record(1, index, 10)).collect());
    for keep in [Some(20), Some(9), Some(6), None] {
        wait(|done| wal.truncate_after(keep, done)).unwrap();
    }
    assert_eq!(*lock(&told.1), [3, 7]);
}

#[test]
fn an_entry_that_was_replaced_while_its_predecessor_was_written_is_read_as_the_new_one() {
    let disk = ModelDisk::new(1);
    let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Thread)).unwrap();
    let (old, new) = (record(1, 0, 400), record(2, 0, 500));
    let hold = disk.hold_syncs();
    let before = disk.changes();
    // Called when the old one is durable and the new one not even written: larger than the cache, and yet only there.
    let (told, heard) = mpsc::channel();
    let inner = wal.clone();
    let look = Box::new(move |_| told.send(inner.read(0..1, usize::MAX).map_err(|error| error.to_string())).unwrap());
    wal.append(vec![old], look);
    wait_until("the old one is written", || disk.changes() > before);
    wal.truncate_after(None, Box::new(|_| {}));
    wal.append(vec![new.clone()], Box::new(|_| {}));
    drop(hold);
    assert_eq!(heard.recv_timeout(Duration::from_secs(30)).unwrap(), Ok(vec![new]));
}

#[test]
fn the_committed_position_rides_with_the_next_batch_and_costs_no_sync() {
    let disk = ModelDisk::new(1);
    let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Inline)).unwrap();
    append(&wal, vec![record(1, 0, 10)]);
    let before = disk.syncs();
    wal.save_committed(Some(at(1, 0)));
    wal.save_committed(Some(at(1, 0)));
    assert_eq!(disk.syncs(), before);
    append(&wal, vec![record(1, 1, 10)]);
    assert_eq!(disk.syncs(), before + 1);
    disk.power_cut();
    drop(wal);
    let wal = Wal::open(Arc::new(disk.reopen()), small(Threading::Inline)).unwrap();
    assert_eq!(wal.state().committed, Some(at(1, 0)));
}

/// Breaks the disk, then checks that the log has ended for everybody and touches the disk no more.
fn check_poisoned(threading: Threading, break_disk: impl Fn(&ModelDisk)) -> ModelDisk {
    let disk = ModelDisk::new(3);
    let wal = Wal::open(Arc::new(disk.clone()), small(threading)).unwrap();
    append(&wal, vec![record(1, 0, 100)]);
    break_disk(&disk);
    let error = wait(|done| wal.append(vec![record(1, 1, 100)], done)).unwrap_err();
    assert!(error.to_string().contains("takes nothing more"), "{error}");
    assert!(wal.failed().unwrap().contains("injected"));
    let (changes, syncs) = (disk.changes(), disk.syncs());
    for _ in 0..3 {
        assert!(wait(|done| wal.append(vec![record(1, 2, 100)], done)).is_err());
        assert!(wait(|done| wal.save_vote(StoredVote { term: 9, node: 9, committed: false }, done)).is_err());
        assert!(wait(|done| wal.truncate_after(None, done)).is_err());
        assert!(wait(|done| wal.purge(at(1, 0), done)).is_err());
        assert!(wal.read(0..1, 1).is_err());
        assert!(wal.close().is_err());
    }
    drop(wal);
    assert_eq!((disk.changes(), disk.syncs()), (changes, syncs), "a failed sync is never tried again");
    disk
}

#[test]
fn a_failed_sync_ends_the_log_and_is_never_retried() {
    for threading in [Threading::Inline, Threading::Thread] {
        check_poisoned(threading, |disk| disk.fail_sync(1));
    }
}

#[test]
fn a_failed_write_ends_the_log() {
    for threading in [Threading::Inline, Threading::Thread] {
        check_poisoned(threading, |disk| disk.fail_write(1));
    }
}

#[test]
fn what_is_reported_after_a_failed_sync_and_a_restart_survives_a_power_cut() {
    // The kernel forgets that pages whose sync failed need writing, and still shows them to whoever reads. Believing
    // them without writing them again would report entries that only the page cache has.
    for seed in 0..50 {
        let disk = ModelDisk::new(seed);
        let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Inline)).unwrap();
        append(&wal, vec![record(1, 0, 100)]);
        disk.fail_sync(1);
        wait(|done| wal.append((1..8).map(|index| record(1, index, 200)).collect(), done)).unwrap_err();
        disk.kill_process();
        let wal = Wal::open(Arc::new(disk.reopen()), small(Threading::Inline)).unwrap();
        let reported = all(&wal);
        assert_eq!(reported.len(), 8, "the cache still has them");
        disk.power_cut();
        let wal = Wal::open(Arc::new(disk.reopen()), small(Threading::Inline)).unwrap();
        assert_eq!(all(&wal), reported, "seed {seed}");
    }
}

#[test]
fn a_full_disk_is_no_failure_while_the_segment_has_room_and_is_over_when_space_returns() {
    for threading in [Threading::Inline, Threading::Thread] {
        let disk = ModelDisk::new(5);
        let wal = Wal::open(Arc::new(disk.clone()), small(threading)).unwrap();
        // Room for this segment and nothing else: the next one cannot be made ahead.
        disk.set_capacity(Some(disk.used_bytes().unwrap() + 100));
        let mut next = 0;
        for _ in 0..9 {
            append(&wal, vec![record(1, next, 300)]);
            next += 1;
        }
        wait(|done| wal.save_vote(StoredVote { term: 2, node: 1, committed: false }, done)).unwrap();
        assert_eq!(wal.failed(), None);
        disk.set_capacity(None);
        for _ in 0..30 {
            append(&wal, vec![record(1, next, 300)]);
            next += 1;
        }
        assert_eq!(all(&wal).len() as u64, next);
    }
}

#[test]
fn purging_works_on_a_full_disk_and_makes_room() {
    let disk = ModelDisk::new(5);
    let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Inline)).unwrap();
    append(&wal, (0..40).map(|index| record(1, index, 300)).collect());
    let used = disk.used_bytes().unwrap();
    disk.set_capacity(Some(used));
    wait(|done| wal.purge(at(1, 39), done)).unwrap();
    assert!(disk.used_bytes().unwrap() <= 2 * 4096);
    append(&wal, (40..60).map(|index| record(1, index, 300)).collect());
}

#[test]
fn a_disk_that_is_full_to_the_end_ends_the_log_and_keeps_what_was_acknowledged() {
    for threading in [Threading::Inline, Threading::Thread] {
        let disk = ModelDisk::new(5);
        let wal = Wal::open(Arc::new(disk.clone()), small(threading)).unwrap();
        disk.set_capacity(Some(disk.used_bytes().unwrap()));
        let mut kept = 0;
        let error = loop {
            match wait(|done| wal.append(vec![record(1, kept, 300)], done)) {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("no space left"), "{error}");
        assert!(kept > 5);
        drop(wal);
        disk.set_capacity(None);
        disk.power_cut();
        let wal = Wal::open(Arc::new(disk.reopen()), small(threading)).unwrap();
        assert_eq!(all(&wal), (0..kept).map(|index| record(1, index, 300)).collect::<Vec<_>>());
        append(&wal, vec![record(1, kept, 300)]);
    }
}

#[test]
fn a_failed_read_is_an_error_and_not_an_answer() {
    let disk = ModelDisk::new(5);
    let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Inline)).unwrap();
    append(&wal, (0..40).map(|index| record(1, index, 300)).collect());
    disk.fail_reads(true);
    assert!(wal.read(0..1, 1).is_err());
    disk.fail_reads(false);
    assert_eq!(wal.read(0..1, 1).unwrap(), [record(1, 0, 300)]);
}

#[test]
fn a_panicking_callback_leaves_nobody_waiting() {
    let disk = ModelDisk::new(5);
    let wal = Wal::open(Arc::new(disk), small(Threading::Thread)).unwrap();
    wal.append(vec![record(1, 0, 10)], Box::new(|_| panic!("a callback with a bug (this is part of the test)")));
    wait_until("the log has ended", || wal.failed().is_some());
    assert!(wait(|done| wal.append(vec![record(1, 1, 10)], done)).is_err());
}

//! What the log does when nothing goes wrong, on both disks and in both modes.

use super::*;

fn everywhere(test: impl Fn(&TestDisk, Threading)) {
    for threading in [Threading::Inline, Threading::Thread] {
        for disk in TestDisk::both() {
            test(&disk, threading);
        }
    }
}

#[test]
fn a_new_log_is_empty_and_stays_so_when_reopened() {
    everywhere(|disk, threading| {
        for _ in 0..3 {
            let wal = disk.open(threading);
            assert_eq!(wal.state(), WalState::default());
            assert_eq!(all(&wal), []);
            assert_eq!(wal.position_at(0), None);
        }
    });
}

#[test]
fn everything_is_there_after_reopening_across_many_segments() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        let vote = StoredVote { term: 3, node: 2, committed: true };
        wait(|done| wal.save_vote(vote, done)).unwrap();
        let written: Vec<Record> = (0..100).map(|index| record(1, index, 300)).collect();
        for chunk in written.chunks(7) {
            append(&wal, chunk.to_vec());
            wal.save_committed(Some(chunk[0].id));
        }
        assert_eq!(all(&wal), written);
        let state = wal.state();
        assert_eq!(
            state,
            WalState { last: Some(at(1, 99)), purged: None, vote: Some(vote), committed: Some(at(1, 98)) }
        );
        assert!(wal.disk_bytes() > 8 * 4096, "{}", wal.disk_bytes());
        drop(wal);
        let wal = disk.open(threading);
        assert_eq!(all(&wal), written);
        assert_eq!(wal.state(), state);
        assert_eq!(wal.position_at(57), Some(at(1, 57)));
        append(&wal, vec![record(2, 100, 10)]);
        assert_eq!(wal.read(99..101, usize::MAX).unwrap(), [record(1, 99, 300), record(2, 100, 10)]);
    });
}

#[test]
fn a_truncated_log_goes_on_with_the_new_entries() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        append(&wal, (0..40).map(|index| record(1, index, 200)).collect());
        wait(|done| wal.truncate_after(Some(9), done)).unwrap();
        assert_eq!(wal.state().last, Some(at(1, 9)));
        append(&wal, vec![record(2, 10, 50), record(2, 11, 50)]);
        let expected: Vec<Record> =
            (0..10).map(|index| record(1, index, 200)).chain([record(2, 10, 50), record(2, 11, 50)]).collect();
        assert_eq!(all(&wal), expected);
        drop(wal);
        let wal = disk.open(threading);
        assert_eq!(all(&wal), expected);
        wait(|done| wal.truncate_after(None, done)).unwrap();
        assert_eq!((wal.state().last, all(&wal)), (None, vec![]));
        drop(wal);
        let wal = disk.open(threading);
        assert_eq!((wal.state().last, all(&wal)), (None, vec![]));
    });
}

#[test]
fn purging_gives_whole_segments_back_and_is_remembered() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        append(&wal, (0..100).map(|index| record(1, index, 300)).collect());
        wait(|done| wal.purge(at(1, 89), done)).unwrap();
        // Going back is not a thing that can be asked for.
        wait(|done| wal.purge(at(1, 3), done)).unwrap();
        assert_eq!(wal.state().purged, Some(at(1, 89)));
        assert_eq!(wal.position_at(89), Some(at(1, 89)));
        assert_eq!(wal.position_at(88), None);
        wait_until("segments are given back", || wal.disk_bytes() <= 5 * 4096);
        let expected: Vec<Record> = (90..100).map(|index| record(1, index, 300)).collect();
        assert_eq!(all(&wal), expected);
        let state = wal.state();
        drop(wal);
        let wal = disk.open(threading);
        assert_eq!((wal.state(), all(&wal)), (state, expected));
    });
}

#[test]
fn purging_beyond_the_end_moves_the_end() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        append(&wal, vec![record(1, 0, 10)]);
        wait(|done| wal.purge(at(4, 500), done)).unwrap();
        assert_eq!(wal.state().last, Some(at(4, 500)));
        assert!(wait(|done| wal.append(vec![record(4, 7, 10)], done)).is_err());
        append(&wal, vec![record(4, 501, 10)]);
        drop(wal);
        let wal = disk.open(threading);
        assert_eq!(all(&wal), [record(4, 501, 10)]);
        assert_eq!(wal.state().purged, Some(at(4, 500)));
        // Truncating everything leaves the purged position as the end.
        wait(|done| wal.truncate_after(None, done)).unwrap();
        assert_eq!(wal.state().last, Some(at(4, 500)));
        assert!(wait(|done| wal.truncate_after(Some(3), done)).is_err());
    });
}

#[test]
fn an_entry_larger_than_a_segment_has_its_place() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        let written = vec![record(1, 0, 10), record(1, 1, 50_000), record(1, 2, 10), record(1, 3, 5_000)];
        append(&wal, written.clone());
        assert_eq!(all(&wal), written);
        drop(wal);
        assert_eq!(all(&disk.open(threading)), written);
    });
}

#[test]
fn a_read_is_bounded_by_bytes_and_by_what_is_there() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        append(&wal, (5..25).map(|index| record(1, index, 100)).collect());
        let indexes = |range, bytes_max| -> Vec<u64> {
            wal.read(range, bytes_max).unwrap().iter().map(|record| record.id.index).collect()
        };
        assert_eq!(indexes(7..9, usize::MAX), [7, 8]);
        assert_eq!(indexes(7..20, 0), [7], "at least one");
        assert_eq!(indexes(0..7, usize::MAX), [5, 6]);
        assert_eq!(indexes(24..90, usize::MAX), [24]);
        assert_eq!(indexes(25..90, usize::MAX), [] as [u64; 0]);
        let some = indexes(5..25, 500);
        assert!((2..=5).contains(&some.len()), "{some:?}");
    });
}

#[test]
fn what_does_not_follow_on_is_refused_and_changes_nothing() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        append(&wal, vec![record(1, 0, 10)]);
        let state = wal.state();
        for wrong in [vec![record(1, 2, 1)], vec![record(1, 0, 1)], vec![record(1, 1, 1), record(1, 3, 1)]] {
            let error = wait(|done| wal.append(wrong, done)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!((wal.state(), all(&wal)), (state, vec![record(1, 0, 10)]));
        assert_eq!(wal.failed(), None);
        append(&wal, vec![record(1, 1, 1)]);
    });
}

#[test]
fn a_closed_log_takes_and_gives_nothing() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        append(&wal, vec![record(1, 0, 10)]);
        wal.close().unwrap();
        assert!(wait(|done| wal.append(vec![record(1, 1, 1)], done)).is_err());
        assert!(wal.read(0..1, 1).is_err());
        assert!(wal.close().is_err());
        drop(wal);
        assert_eq!(all(&disk.open(threading)), [record(1, 0, 10)]);
    });
}

#[test]
fn payloads_in_memory_are_bounded_and_the_rest_is_read_back() {
    everywhere(|disk, threading| {
        let wal = disk.open(threading);
        let written: Vec<Record> = (0..50).map(|index| record(1, index, 100)).collect();
        for record in &written {
            append(&wal, vec![record.clone()]);
        }
        assert!(wal.handle.core.shared().index.cached_bytes() <= 256);
        assert_eq!(all(&wal), written);
        wait(|done| wal.truncate_after(Some(20), done)).unwrap();
        wait(|done| wal.purge(at(1, 20), done)).unwrap();
        assert_eq!(wal.handle.core.shared().index.cached_bytes(), 0);
    });
}

#[test]
fn reading_goes_on_while_writing_truncating_and_purging() {
    for disk in TestDisk::both() {
        let wal = disk.open(Threading::Thread);
        let reader = {
            let wal = wal.clone();
            std::thread::spawn(move || {
                let mut seen = 0;
                while wal.state().vote.is_none() {
                    for found in wal.read(0..u64::MAX, 10_000).unwrap() {
                        // Whatever is read is one of the two things that were ever written there.
                        let wanted = record(found.id.term, found.id.index, 200);
                        assert_eq!(found, wanted);
                        seen += 1;
                    }
                }
                seen
            })
        };
        let mut next = 0;
        for round in 1..60 {
            append(&wal, (next..next + 10).map(|index| record(round, index, 200)).collect());
            next += 10;
            wait(|done| wal.truncate_after(Some(next - 4), done)).unwrap();
            next -= 3;
            if next > 30 {
                let purged = wal.position_at(next - 20).unwrap();
                wait(|done| wal.purge(purged, done)).unwrap();
            }
        }
        wait(|done| wal.save_vote(StoredVote { term: 1, node: 1, committed: false }, done)).unwrap();
        assert!(reader.join().unwrap() > 0);
    }
}

#[test]
fn a_callback_may_call_the_log_and_may_hold_its_last_handle() {
    everywhere(|disk, threading| {
        let (told, heard) = mpsc::channel();
        let wal = disk.open(threading);
        let inner = wal.clone();
        wal.append(
            vec![record(1, 0, 10)],
            Box::new(move |result| {
                result.unwrap();
                let again = inner.clone();
                inner.append(
                    vec![record(1, 1, 10)],
                    Box::new(move |result| {
                        result.unwrap();
                        told.send(again.state().last).unwrap();
                    }),
                );
            }),
        );
        drop(wal);
        assert_eq!(heard.recv_timeout(Duration::from_secs(30)).unwrap(), Some(at(1, 1)));
    });
}

#[test]
fn a_log_that_was_emptied_behind_our_back_is_refused() {
    for disk in TestDisk::both() {
        let options = WalOptions { expect_existing: true, ..small(Threading::Inline) };
        let error = Wal::open(disk.disk(), options.clone()).unwrap_err();
        assert!(matches!(error, WalError::Lost), "{error}");
        assert!(error.to_string().contains("remove-peer"));
        drop(disk.open(Threading::Inline));
        Wal::open(disk.disk(), options).unwrap();
    }
}

/// Keeps the work until somebody does it.
#[derive(Default)]
struct Later(Mutex<Vec<Box<dyn FnOnce() + Send>>>);

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").finish_non_exhaustive()
    }
}

impl Pace for Later {
    fn pace(&self, work: Box<dyn FnOnce() + Send>) {
        lock(&self.0).push(work);
    }
}

#[test]
fn a_paced_log_says_done_when_it_has_written_and_not_before_and_a_closed_one_leaves_nothing_behind() {
    let (disk, later) = (ModelDisk::new(1), Arc::new(Later::default()));
    let pace: Arc<dyn Pace> = later.clone();
    let wal = Wal::open(Arc::new(disk.clone()), WalOptions { pace: Some(pace), ..small(Threading::Inline) }).unwrap();
    let (tell, told) = mpsc::channel();
    for index in 1..=3 {
        let tell = tell.clone();
        wal.append(vec![record(1, index, 20)], Box::new(move |result| tell.send((index, result.is_ok())).unwrap()));
    }
    assert!(told.try_recv().is_err(), "nothing has been written");
    assert_eq!(wal.state().last, Some(at(1, 3)), "but it can be read");
    let first = lock(&later.0).remove(0);
    first();
    // Whatever waits goes in one batch, as with a thread.
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(1, true), (2, true), (3, true)]);

    wal.append(vec![record(1, 4, 20)], Box::new(|_| {}));
    wal.close().unwrap();
    drop(wal);
    let wal = Wal::open(Arc::new(disk.reopen()), small(Threading::Inline)).unwrap();
    assert_eq!(wal.state().last, Some(at(1, 4)));
}

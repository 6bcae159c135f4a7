use std::{collections::BTreeSet, io};

use crate::disk::{Disk as _, ModelDisk, replace_file};

/// Runs `write` on disks of many seeds, cuts the power, and collects what `look` sees afterwards.
fn outcomes<T: Ord>(write: impl Fn(&ModelDisk), look: impl Fn(&ModelDisk) -> T) -> BTreeSet<T> {
    (0..300)
        .map(|seed| {
            let disk = ModelDisk::new(seed);
            write(&disk);
            disk.power_cut();
            look(&disk.reopen())
        })
        .collect()
}

/// A durable file of `len` zeros.
fn zeros(disk: &ModelDisk, len: usize) {
    replace_file(disk, "", "file", &vec![0; len]).unwrap();
}

#[test]
fn what_was_synced_survives_and_nothing_else_is_sure_to() {
    let synced = outcomes(
        |disk| {
            zeros(disk, 4096);
            let file = disk.open("file", false).unwrap();
            file.write_at(&[1; 4096], 0).unwrap();
            file.sync_data().unwrap();
        },
        |disk| disk.contents("file").unwrap() == [1; 4096],
    );
    assert_eq!(synced, BTreeSet::from([true]));
}

#[test]
fn unsynced_sectors_survive_independently_and_never_in_part() {
    let seen = outcomes(
        |disk| {
            zeros(disk, 1536);
            disk.open("file", false).unwrap().write_at(&[1; 1536], 0).unwrap();
        },
        |disk| {
            let bytes = disk.contents("file").unwrap();
            let sectors: Vec<u8> = bytes.chunks(512).map(|sector| sector[0]).collect();
            assert!(bytes.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
            sectors
        },
    );
    assert_eq!(seen.len(), 8, "every combination of lost and kept: {seen:?}");
}

#[test]
fn a_later_write_may_arrive_before_an_earlier_one() {
    let seen = outcomes(
        |disk| {
            zeros(disk, 1024);
            let file = disk.open("file", false).unwrap();
            file.write_at(&[1; 512], 0).unwrap();
            file.write_at(&[2; 512], 512).unwrap();
            file.write_at(&[3; 512], 0).unwrap();
        },
        |disk| {
            let bytes = disk.contents("file").unwrap();
            (bytes[0], bytes[512])
        },
    );
    assert!(seen.contains(&(0, 2)) && seen.contains(&(1, 0)) && seen.contains(&(3, 0)), "{seen:?}");
}

#[test]
fn a_new_length_needs_more_than_sync_data() {
    let lengths = |sync: fn(&dyn crate::disk::DiskFile)| {
        outcomes(
            |disk| {
                zeros(disk, 100);
                let file = disk.open("file", false).unwrap();
                file.write_at(&[1; 100], 100).unwrap();
                sync(&*file);
            },
            |disk| disk.contents("file").unwrap().len(),
        )
    };
    assert_eq!(lengths(|file| file.sync_data().unwrap()), BTreeSet::from([100, 200]));
    assert_eq!(lengths(|file| file.sync_all().unwrap()), BTreeSet::from([200]));
}

#[test]
fn a_cut_of_a_file_that_is_lost_brings_its_bytes_back() {
    let seen = outcomes(
        |disk| {
            replace_file(disk, "", "file", &[7; 2000]).unwrap();
            disk.open("file", false).unwrap().set_len(10).unwrap();
        },
        |disk| {
            let bytes = disk.contents("file").unwrap();
            (bytes.len(), bytes[..10] == [7; 10])
        },
    );
    assert_eq!(seen, BTreeSet::from([(10, true), (2000, true)]));
}

#[test]
fn names_are_lost_without_a_sync_of_their_folder() {
    let create = |sync: bool| {
        outcomes(
            move |disk| {
                disk.create_dir("dir").unwrap();
                disk.sync_dir("").unwrap();
                disk.open("dir/new", true).unwrap().sync_all().unwrap();
                if sync {
                    disk.sync_dir("dir").unwrap();
                }
            },
            |disk| disk.exists("dir/new").unwrap(),
        )
    };
    assert_eq!(create(false), BTreeSet::from([false, true]));
    assert_eq!(create(true), BTreeSet::from([true]));

    let moved = outcomes(
        |disk| {
            replace_file(disk, "", "file", b"old").unwrap();
            let temp = disk.open("temp", true).unwrap();
            temp.write_at(b"new", 0).unwrap();
            temp.sync_all().unwrap();
            disk.rename("temp", "file").unwrap();
        },
        |disk| disk.contents("file").unwrap(),
    );
    assert_eq!(moved, BTreeSet::from([b"new".to_vec(), b"old".to_vec()]), "never neither");

    let removed = outcomes(
        |disk| {
            replace_file(disk, "", "file", b"old").unwrap();
            disk.remove("file").unwrap();
        },
        |disk| disk.exists("file").unwrap(),
    );
    assert_eq!(removed, BTreeSet::from([false, true]));

    let folder = outcomes(
        |disk| {
            disk.create_dir("dir").unwrap();
            disk.open("dir/file", true).unwrap();
            disk.sync_dir("dir").unwrap();
        },
        |disk| (disk.exists("dir").unwrap(), disk.exists("dir/file").unwrap()),
    );
    assert_eq!(folder, BTreeSet::from([(false, false), (true, true)]));
}

#[test]
fn a_rename_without_a_sync_of_the_file_can_show_an_empty_one() {
    let seen = outcomes(
        |disk| {
            disk.open("temp", true).unwrap().write_at(b"new", 0).unwrap();
            disk.rename("temp", "file").unwrap();
            disk.sync_dir("").unwrap();
        },
        |disk| disk.contents("file").unwrap().len(),
    );
    assert!(seen.contains(&0) && seen.contains(&3), "{seen:?}");
}

#[test]
fn what_a_failed_sync_covered_stays_in_doubt_until_it_is_written_again() {
    let run = |write_again: bool| {
        outcomes(
            move |disk| {
                zeros(disk, 512);
                let file = disk.open("file", false).unwrap();
                file.write_at(&[1; 512], 0).unwrap();
                disk.fail_sync(1);
                file.sync_data().unwrap_err();
                if write_again {
                    file.write_at(&[1; 512], 0).unwrap();
                }
                // It says so, but it has nothing to do with the pages that the failed one gave up.
                file.sync_data().unwrap();
                assert_eq!(disk.contents("file").unwrap(), [1; 512], "readable all the same");
            },
            |disk| disk.contents("file").unwrap()[0],
        )
    };
    assert_eq!(run(false), BTreeSet::from([0, 1]));
    assert_eq!(run(true), BTreeSet::from([1]));
}

#[test]
fn a_process_that_dies_loses_its_handles_and_not_its_writes() {
    let disk = ModelDisk::new(1);
    let file = disk.open("file", true).unwrap();
    file.write_at(b"cached", 0).unwrap();
    disk.kill_process();
    assert!(file.write_at(b"ghost", 0).is_err());
    assert!(file.read_at(&mut [0], 0).is_err());
    assert!(disk.remove("file").is_err());
    assert_eq!(disk.reopen().contents("file").unwrap(), b"cached");
}

#[test]
fn a_scheduled_cut_fails_everything_from_that_change_on() {
    let disk = ModelDisk::new(1);
    let file = disk.open("file", true).unwrap();
    disk.cut_power_at(2);
    file.write_at(b"one", 0).unwrap();
    assert!(!disk.power_is_off());
    file.write_at(b"two", 3).unwrap_err();
    assert!(disk.power_is_off());
    file.sync_all().unwrap_err();
    disk.open("other", true).unwrap_err();
    disk.power_cut();
    assert!(!disk.power_is_off());
    disk.reopen().open("other", true).unwrap();
}

#[test]
fn a_full_disk_takes_what_fits_and_says_so() {
    let disk = ModelDisk::new(1);
    disk.set_capacity(Some(1000));
    let file = disk.open("file", true).unwrap();
    file.write_at(&[1; 900], 0).unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 100);
    let error = file.write_at(&[2; 200], 900).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.contents("file").unwrap().len(), 1000);
    file.write_at(&[3; 900], 0).unwrap();
    disk.remove("file").unwrap();
    assert_eq!(disk.free_bytes().unwrap(), 1000);
}

#[test]
fn the_same_seed_gives_the_same_cut() {
    let run = || {
        let disk = ModelDisk::new(42);
        zeros(&disk, 100_000);
        let file = disk.open("file", false).unwrap();
        file.write_at(&[1; 100_000], 0).unwrap();
        disk.power_cut();
        disk.contents("file").unwrap()
    };
    assert!(run() == run());
}

#[test]
fn a_power_cut_in_a_folder_counts_only_what_is_changed_there() {
    let disk = ModelDisk::new(3);
    for dir in ["a", "b"] {
        disk.create_dir(dir).unwrap();
    }
    let (one, other) = (disk.open("a/file", true).unwrap(), disk.open("b/file", true).unwrap());
    disk.cut_power_in("b", 2);
    for _ in 0..10 {
        one.write_at(b"x", 0).unwrap();
        one.sync_all().unwrap();
    }
    other.write_at(b"x", 0).unwrap();
    assert!(!disk.power_is_off());
    other.sync_all().unwrap_err();
    assert!(disk.power_is_off());
}

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::disk::real::LOCK_FILE;
use crate::disk::{Disk as _, Holder, OpenError, RealDisk, replace_file};

#[test]
fn a_second_opener_is_refused_and_told_who_holds_the_folder() {
    let dir = TempDir::new().unwrap();
    let root = dir.path().join("made/on/the/way");
    let disk = RealDisk::open(&root).unwrap();
    let error = RealDisk::open(&root).unwrap_err();
    assert!(matches!(error, OpenError::InUse { holder: Holder::Pid(pid), .. } if pid == std::process::id()));
    assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    drop(disk);
    RealDisk::open(&root).unwrap();
}

#[test]
fn a_lock_that_somebody_has_for_a_moment_is_waited_for() {
    let dir = TempDir::new().unwrap();
    drop(RealDisk::open(dir.path()).unwrap());
    let lock = std::fs::File::open(dir.path().join(LOCK_FILE)).unwrap();
    lock.lock().unwrap();
    let child = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop(lock);
    });
    RealDisk::open(dir.path()).unwrap();
    child.join().unwrap();
}

/// Not a test of its own: the process that [`the_lock_of_a_process_that_was_killed_is_free`] starts and kills.
#[test]
fn hold_a_folder_when_told_to() {
    let Ok(root) = std::env::var("LOADLINE_TEST_HOLD_FOLDER") else { return };
    let _disk = RealDisk::open(root.as_ref()).unwrap();
    println!("held");
    // Until the parent kills us or goes away.
    let _ = std::io::stdin().lines().next();
}

#[test]
fn the_lock_of_a_process_that_was_killed_is_free() {
    let dir = TempDir::new().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "disk::tests::real::hold_a_folder_when_told_to", "--nocapture"])
        .env("LOADLINE_TEST_HOLD_FOLDER", dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("held")));
    let error = RealDisk::open(dir.path()).unwrap_err();
    assert!(matches!(error, OpenError::InUse { holder: Holder::Pid(pid), .. } if pid == holder.id()), "{error}");
    holder.kill().unwrap();
    holder.wait().unwrap();
    RealDisk::open(dir.path()).unwrap();
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let error = RealDisk::open(&file.join("data")).unwrap_err();
    assert!(error.to_string().contains("file/data"), "{error}");
}

#[test]
fn files_are_read_written_cut_listed_renamed_and_removed() {
    let dir = TempDir::new().unwrap();
    let disk = RealDisk::open(dir.path()).unwrap();
    assert!(disk.open("missing", false).is_err());
    disk.create_dir("sub").unwrap();
    disk.create_dir("sub").unwrap();
    let file = disk.open("sub/a", true).unwrap();
    assert!(file.is_empty().unwrap());
    file.write_at(b"hello world", 3).unwrap();
    file.sync_data().unwrap();
    let mut buf = [9; 20];
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 14);
    assert_eq!(&buf[..14], b"\0\0\0hello world");
    file.set_len(5).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.len().unwrap(), 5);
    disk.rename("sub/a", "sub/b").unwrap();
    replace_file(&disk, "sub", "sub/c", b"whole").unwrap();
    disk.sync_dir("sub").unwrap();
    assert_eq!(disk.list("sub").unwrap(), ["b", "c"]);
    assert!(disk.exists("sub/b").unwrap() && !disk.exists("sub/a").unwrap());
    disk.remove("sub/b").unwrap();
    assert_eq!(file.read_at(&mut buf, 0).unwrap(), 5, "still readable by who has it open");
    assert!(disk.free_bytes().unwrap() > 0);
    assert!(disk.used_bytes().unwrap() >= 5);
}

#[test]
fn no_path_leads_out_of_the_folder() {
    let dir = TempDir::new().unwrap();
    let disk = RealDisk::open(dir.path()).unwrap();
    for path in ["../x", "/etc/passwd", "a/../../x", "./x"] {
        assert!(disk.open(path, true).is_err(), "{path}");
        assert!(disk.remove(path).is_err(), "{path}");
    }
}

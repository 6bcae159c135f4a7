use std::collections::BTreeMap;

use tempfile::TempDir;

use crate::disk::{Cut, Disk as _, ReadOnlyDisk, read_all};

fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("journal")).unwrap();
    std::fs::write(dir.path().join("journal/one"), b"one two three").unwrap();
    std::fs::write(dir.path().join("journal/half.tmp"), b"half").unwrap();
    dir
}

fn files(dir: &TempDir) -> BTreeMap<String, Vec<u8>> {
    let list = |dir: std::path::PathBuf| std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    list(dir.path().join("journal")).map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

#[test]
fn what_is_written_is_read_again_and_the_folder_stays_as_it_is() {
    let dir = folder();
    let before = files(&dir);
    let disk = ReadOnlyDisk::open(dir.path()).unwrap();
    let text = |path: &str| String::from_utf8(read_all(&*disk.open(path, false).unwrap()).unwrap()).unwrap();

    let file = disk.open("journal/one", false).unwrap();
    // What stands there anyway is no change.
    file.write_at(b"two", 4).unwrap();
    file.set_len(7).unwrap();
    file.write_at(b" four", 7).unwrap();
    file.write_at(b"TWO", 4).unwrap();
    file.sync_all().unwrap();
    // Also for whoever opens it later, when nobody has it open.
    drop(file);
    assert_eq!(text("journal/one"), "one TWO four");
    let mut part = [0; 6];
    assert_eq!(disk.open("journal/one", false).unwrap().read_at(&mut part, 2).unwrap(), 6);
    assert_eq!(&part, b"e TWO ");
    assert_eq!(disk.cuts(), [Cut { path: "journal/one".to_owned(), offset: 7, bytes: 6 }]);

    disk.remove("journal/half.tmp").unwrap();
    assert!(disk.open("journal/half.tmp", false).is_err() && !disk.exists("journal/half.tmp").unwrap());
    disk.open("journal/new.tmp", true).unwrap().write_at(b"new", 0).unwrap();
    disk.rename("journal/new.tmp", "journal/two").unwrap();
    assert_eq!(disk.list("journal").unwrap(), ["one", "two"]);
    assert_eq!(text("journal/two"), "new");
    assert!(disk.list("snapshots").is_err());
    disk.create_dir("snapshots").unwrap();
    assert_eq!(disk.list("snapshots").unwrap(), Vec::<String>::new());
    assert_eq!(disk.list("").unwrap(), ["journal", "snapshots"]);
    assert_eq!(files(&dir), before);
    assert!(!dir.path().join("snapshots").exists() && !dir.path().join("lock").exists());
}

#[test]
fn a_lock_file_that_cannot_be_opened_leaves_the_question_open() {
    let dir = folder();
    assert_eq!(ReadOnlyDisk::open(dir.path()).unwrap().unguarded(), None);
    // A folder of that name can be opened, and not be locked as a file is; a link to itself cannot even be opened.
    std::os::unix::fs::symlink(dir.path().join("lock"), dir.path().join("lock")).unwrap();
    let disk = ReadOnlyDisk::open(dir.path()).unwrap();
    assert!(disk.unguarded().is_some_and(|why| why.contains("the lock file cannot be looked at")));
}

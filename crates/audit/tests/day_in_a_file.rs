//! A made-up day, kept as a node keeps it and exported: it verifies, and every way of replaying it comes to the same hash.
//! `examples/day.rs` does the same with a million entries, and measures.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::fs::File;
use std::sync::Arc;

use loadline_audit::day::Day;
use loadline_audit::export::{Begin, Origin, bounds, export};
use loadline_audit::verify::{verify_file, verify_folder};
use loadline_audit::{ExportFile, Kept, Moment, Start, replay};
use loadline_log::{Journal, JournalOptions, RealDisk, SigningKey};

const ENTRIES: u64 = 8_000;
const CLUSTERS: u32 = 100;

#[test]
fn a_day_in_a_file_is_the_day_in_the_journal() {
    let folder = tempfile::tempdir().unwrap();
    let mut day = Day::new(CLUSTERS, 1).with_failover_every(ENTRIES / 6);
    let disk = Arc::new(RealDisk::open(folder.path()).unwrap());
    // Small segments, so that there are some.
    let options = JournalOptions { segment_bytes: 64 << 10, ..JournalOptions::default() };
    let journal = Journal::open(disk, options).unwrap();
    for _ in 0..ENTRIES {
        journal.append(day.record()).unwrap();
    }
    journal.close().unwrap();
    drop(journal);
    let hash = day.state().hash();

    let kept = Kept::open(folder.path()).unwrap();
    let key = SigningKey::of_seed(&[7; 32]).unwrap();
    let origin = Origin {
        group: "a day".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: day.state().incarnation(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made_ms: 0,
    };
    let write = |from, name: &str| {
        let path = folder.path().join(name);
        let entries = bounds(&kept, from, Moment::End).unwrap();
        export(&kept, entries, &origin, &key, File::create(&path).unwrap(), |_, _| {}).unwrap();
        path
    };
    let (whole, afternoon) = (write(Begin::First, "day.export"), write(Begin::Index(ENTRIES / 2), "afternoon.export"));
    let replayed = replay(&kept, Start::Beginning, Moment::End, |_| {}).unwrap();
    assert_eq!((replayed.entries, replayed.state.hash()), (ENTRIES, hash));
    drop(kept);

    for (path, entries) in [(&whole, ENTRIES), (&afternoon, ENTRIES / 2 + 1)] {
        let verdict = verify_file(path, Some(&key.public()), |_| {}).unwrap();
        assert!(verdict.is_valid(), "{verdict:?}");
        assert_eq!((verdict.replayed, verdict.hash), (entries, Some(hash)));
        let opened = ExportFile::open(path).unwrap();
        let replayed = replay(&opened, Start::Snapshot { not_after: u64::MAX }, Moment::End, |_| {}).unwrap();
        assert_eq!(replayed.state, *day.state());
    }
    let verdict = verify_folder(folder.path(), |_| {}).unwrap();
    assert!(verdict.is_valid(), "{verdict:?}");
    assert_eq!((verdict.replayed, verdict.hash), (ENTRIES, Some(hash)));
}

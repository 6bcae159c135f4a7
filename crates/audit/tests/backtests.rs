//! The same backtest on everything that a history is kept in: the folder of a node, a folder of which the oldest part was let go, and
//! exports of either. Whoever is asked, the answer is the same.

#![allow(clippy::unwrap_used, reason = "all of this is a test, its helpers too")]

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use loadline_audit::backtest::{Backtest, Bound, Trial, backtest};
use loadline_audit::day::Day;
use loadline_audit::export::{Begin, Origin, bounds, export};
use loadline_audit::{Change, ExportFile, Kept, Moment, Source};
use loadline_log::{
    Journal, JournalOptions, LogPosition, RealDisk, SharedDisk, SigningKey, SnapshotMeta, SnapshotStore, SnapshotsKept,
};
use loadline_state_machine::{Actor, Span, Time};

const ENTRIES: u64 = 3_000;
const SNAPSHOT_EVERY: u64 = 250;

/// A day with a snapshot now and then. If it is shortened, its first half is let go, with the snapshots of that time. Gives the time of
/// the entry in the middle of the second half.
fn lived(folder: &Path, shortened: bool) -> Time {
    let disk: SharedDisk = Arc::new(RealDisk::open(folder).unwrap());
    let options = JournalOptions { segment_bytes: 24 << 10, block_bytes: 8 << 10 };
    let journal = Journal::open(Arc::clone(&disk), options).unwrap();
    let kept = SnapshotsKept { latest: 2, starts_max: 100, starts_every: SNAPSHOT_EVERY };
    let store = SnapshotStore::open(disk, kept).unwrap();
    let mut day = Day::new(20, 1);
    let mut since = Time::default();
    for index in 1..=ENTRIES {
        journal.append(day.record()).unwrap();
        if index == ENTRIES / 4 * 3 {
            since = day.state().now();
        }
        if index % SNAPSHOT_EVERY == 0 {
            let meta = SnapshotMeta {
                last: Some(LogPosition { term: 1, node: 1, index }),
                membership_at: None,
                membership: Vec::new().into(),
                state_hash: day.state().hash().0,
                created_ms: 0,
                group: "g".to_owned(),
                incarnation: 1,
            };
            store.write(&meta, &day.state().encode()).unwrap();
        }
    }
    if shortened {
        let segments = journal.sealed_segments();
        let through = segments.iter().rfind(|segment| segment.last <= ENTRIES / 2).unwrap().last;
        journal.let_go(through).unwrap();
        store.forget_before(through);
    }
    journal.close().unwrap();
    since
}

fn exported(kept: &Kept, from: Begin) -> (tempfile::NamedTempFile, ExportFile) {
    let origin = Origin {
        group: "g".to_owned(),
        node_id: 1,
        node_name: "n1".to_owned(),
        incarnation: 1,
        version: "0.1.0".to_owned(),
        made_ms: 0,
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let entries = bounds(kept, from, Moment::End).unwrap();
    let key = SigningKey::of_seed(&[7; 32]).unwrap();
    export(kept, entries, &origin, &key, File::create(file.path()).unwrap(), |_, _| {}).unwrap();
    let opened = ExportFile::open(file.path()).unwrap();
    (file, opened)
}

fn tried(history: &dyn Source, since: Bound) -> Backtest {
    let change = "ALTER SCALING STRATEGY FOR CLUSTER \"cluster-0001\" TYPE TARGET SIZE UPDATE (SIZE = '25cc')";
    let change = Change::parse(change).unwrap();
    let trial = Trial { since, until: Bound::Open, change, actor: Actor::new("somebody", "test") };
    backtest(history, &trial, |_| {}).unwrap()
}

#[test]
fn a_folder_what_is_left_of_one_and_exports_of_both_give_the_same_backtest() {
    let (folder, rest) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let since = lived(folder.path(), false);
    assert_eq!(lived(rest.path(), true), since);
    let (kept, left) = (Kept::open(folder.path()).unwrap(), Kept::open(rest.path()).unwrap());
    assert!(*left.range().unwrap().start() > 1_000, "{:?}", left.range());
    let (_whole, whole) = exported(&kept, Begin::First);
    let (_window, window) = exported(&kept, Begin::Time(since));
    let (_rest, of_rest) = exported(&left, Begin::First);
    let expected = tried(&kept, Bound::At(since));
    assert!(expected.is_different() && expected.recorded.actions_total() > 0, "{expected:#?}");
    for history in [&left as &dyn Source, &whole, &window, &of_rest] {
        assert_eq!(tried(history, Bound::At(since)), expected, "{:?}", history.range());
    }
}

#[test]
fn a_folder_of_which_the_beginning_was_let_go_is_tried_from_its_first_snapshot_on() {
    let folder = tempfile::tempdir().unwrap();
    lived(folder.path(), true);
    let kept = Kept::open(folder.path()).unwrap();
    let (begins, first) = (*kept.range().unwrap().start(), *kept.starts().first().unwrap() + 1);
    assert!(begins < first, "there are entries before the first snapshot: {begins}, {first}");
    for since in [Bound::Before(Span::from_days(9)), Bound::UpTo(Span::from_hours(24)), Bound::Open] {
        let window = tried(&kept, since).window;
        assert_eq!((window.first_index, window.last_index), (first, ENTRIES), "{since:?}");
    }
}

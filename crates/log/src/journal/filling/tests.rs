use super::*;
use crate::disk::{Disk as _, ModelDisk};
use crate::journal::retention::tests::{SMALL, record};

fn records(range: RangeInclusive<u64>) -> Vec<JournalRecord> {
    range.map(record).collect()
}

fn open(disk: &ModelDisk) -> Journal {
    Journal::open(Arc::new(disk.reopen()), SMALL).unwrap()
}

/// Entries 41 to 60 and 81 on: a lost beginning, and a gap.
fn with_gaps(disk: &ModelDisk) -> Journal {
    let journal = open(disk);
    journal.start_after(40, record(40).hash).unwrap();
    for record in records(41..=60) {
        journal.append(record).unwrap();
    }
    journal.start_after(80, record(80).hash).unwrap();
    for record in records(81..=120) {
        journal.append(record).unwrap();
    }
    journal.sync().unwrap();
    journal
}

fn gap(first: u64, last: u64) -> Gap {
    let before = (first > 1).then(|| record(first - 1).hash);
    Gap { first, last, before, after: record(last).hash }
}

#[test]
fn what_is_lacking_is_known_and_filled_in_any_order() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    assert_eq!(journal.gaps().unwrap(), [gap(1, 40), gap(61, 80)]);
    assert_eq!(journal.stretches(), [41..=60, 81..=120]);
    let filling = journal.fill(gap(61, 80)).unwrap();
    assert_eq!((filling.next(), filling.hash().unwrap()), (61, Some(record(60).hash)));
    filling.add(records(61..=80)).unwrap();
    assert!(filling.is_complete());
    // Nobody finds it before it is finished.
    assert_eq!(journal.stretches(), [41..=60, 81..=120]);
    assert!(filling.finish().unwrap());
    assert_eq!(journal.stretches(), [41..=120]);
    assert_eq!(journal.gaps().unwrap(), [gap(1, 40)]);
    assert_eq!(journal.read(50, usize::MAX).unwrap(), records(50..=120));
    let missing = journal.read(7, 100).unwrap_err();
    assert!(matches!(missing, JournalError::Missing { index: 7, next: Some(41) }), "{missing}");

    // Half of the beginning, a restart, and the rest.
    let filling = journal.fill(gap(1, 40)).unwrap();
    assert_eq!((filling.next(), filling.hash().unwrap()), (1, None));
    filling.add(records(1..=15)).unwrap();
    drop((filling, journal));
    let journal = open(&disk);
    assert_eq!(journal.gaps().unwrap(), [gap(1, 40)]);
    let filling = journal.fill(gap(1, 40)).unwrap();
    assert_eq!((filling.next(), filling.hash().unwrap()), (16, Some(record(15).hash)));
    assert!(matches!(filling.add(records(17..=18)), Err(JournalError::OutOfOrder { index: 17, last: 15 })));
    filling.add(records(16..=40)).unwrap();
    assert!(matches!(filling.add(records(41..=41)), Err(JournalError::OutOfOrder { .. })));
    assert!(filling.finish().unwrap());
    for journal in [journal, open(&disk)] {
        assert_eq!((journal.first_index(), journal.gaps().unwrap()), (Some(1), vec![]));
        assert_eq!(journal.stretches(), [1..=120]);
        assert_eq!(journal.read(1, usize::MAX).unwrap(), records(1..=120));
        assert_eq!(journal.hash_at(70).unwrap(), Some(record(70).hash));
        assert_eq!(journal.verify().unwrap().records, 120);
        // In parts, too, across the borders.
        let mut next = 1;
        while next <= 120 {
            let part = journal.read(next, 300).unwrap();
            assert!(!part.is_empty());
            assert_eq!(part, records(next..=next + part.len() as u64 - 1));
            next += part.len() as u64;
        }
    }
}

#[test]
fn what_does_not_lead_to_the_known_hash_is_thrown_away() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    let filling = journal.fill(gap(61, 80)).unwrap();
    filling.add(records(61..=79)).unwrap();
    filling.add(vec![JournalRecord { hash: [7; 32], ..record(80) }]).unwrap();
    assert!(!filling.finish().unwrap());
    assert_eq!(journal.gaps().unwrap(), [gap(1, 40), gap(61, 80)]);
    // And from the beginning again.
    let filling = journal.fill(gap(61, 80)).unwrap();
    assert_eq!(filling.next(), 61);
    filling.add(records(61..=80)).unwrap();
    assert!(filling.finish().unwrap());
    assert_eq!(journal.read(61, usize::MAX).unwrap(), records(61..=120));
}

#[test]
fn a_power_cut_while_it_is_filled_loses_nothing_that_was_there() {
    for seed in 0..15 {
        for cut_at in 1..30 {
            let disk = ModelDisk::new(seed);
            drop(with_gaps(&disk));
            disk.cut_power_at(cut_at);
            let journal = Journal::open(Arc::new(disk.reopen()), SMALL);
            let filled = journal.and_then(|journal| {
                let filling = journal.fill(gap(61, 80))?;
                filling.add(records(61..=70))?;
                filling.add(records(71..=80))?;
                filling.finish()
            });
            disk.power_cut();
            let journal = open(&disk);
            if filled.is_err() {
                let filling = journal.fill(gap(61, 80)).unwrap();
                let next = filling.next();
                filling.add(records(next..=80)).unwrap();
                assert!(filling.finish().unwrap(), "seed {seed}, cut at {cut_at}");
            }
            assert_eq!(journal.read(41, usize::MAX).unwrap(), records(41..=120), "seed {seed}, cut at {cut_at}");
        }
    }
}

#[test]
fn damage_in_what_was_filled_is_named_by_the_file_that_has_it_and_does_not_hide_what_is_before() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    let filling = journal.fill(gap(61, 80)).unwrap();
    filling.add(records(61..=80)).unwrap();
    assert!(filling.finish().unwrap());
    let file = format!("{}/{}", name(61, 80), super::super::format::path(1));
    disk.flip_bit(&file, 300, 1).unwrap();
    let before = journal.read(50, usize::MAX).unwrap();
    assert_eq!((before[0].index, before.last().unwrap().index), (50, 60));
    let damaged = journal.read(61, usize::MAX).unwrap_err();
    assert!(matches!(&damaged, JournalError::Damaged { file: named, .. } if *named == file), "{damaged}");
}

#[test]
fn what_was_filled_goes_with_what_is_let_go() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    let filling = journal.fill(gap(1, 40)).unwrap();
    filling.add(records(1..=40)).unwrap();
    assert!(filling.finish().unwrap());
    let bytes = journal.disk_bytes();
    let segments = journal.sealed_segments();
    assert!(segments[1].last < 40, "it has several segments itself: {segments:?}");
    // Only the beginning of what was filled, and not one segment more.
    assert_eq!(journal.let_go(segments[1].last).unwrap(), 2);
    assert_eq!(journal.disk_bytes(), bytes - segments[0].bytes - segments[1].bytes);
    let first = segments[1].last + 1;
    drop(journal);
    let journal = open(&disk);
    assert_eq!(journal.stretches(), [first..=60, 81..=120]);
    assert_eq!(journal.read(first, usize::MAX).unwrap(), records(first..=60));
    assert_eq!(journal.sealed_segments()[..2], segments[2..4]);
    // Then all of it.
    journal.let_go(40).unwrap();
    assert_eq!(journal.first_index(), Some(41));
    drop(journal);
    assert_eq!(open(&disk).first_index(), Some(41));
}

#[test]
fn a_power_cut_while_it_is_let_go_leaves_a_journal_that_can_be_read_to_its_end() {
    for seed in 0..15 {
        for cut_at in 1..20 {
            let disk = ModelDisk::new(seed);
            let journal = with_gaps(&disk);
            let filling = journal.fill(gap(1, 40)).unwrap();
            filling.add(records(1..=40)).unwrap();
            assert!(filling.finish().unwrap());
            let through = if seed % 2 == 0 { 60 } else { 30 };
            disk.cut_power_at(cut_at);
            let _ = journal.let_go(through);
            disk.power_cut();
            drop(journal);
            let journal = open(&disk);
            for stretch in journal.stretches() {
                let read = journal.read(*stretch.start(), usize::MAX).unwrap();
                assert_eq!(read, records(stretch), "seed {seed}, cut at {cut_at}");
            }
            journal.verify().unwrap();
            assert_eq!(journal.last_index(), Some(120));
            // It goes on where it was.
            journal.let_go(through).unwrap();
            assert!(journal.first_index() > Some(through - 20), "seed {seed}, cut at {cut_at}");
        }
    }
}

#[test]
fn a_beginning_that_was_fetched_again_is_there_after_a_restart() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    let filling = journal.fill(gap(1, 40)).unwrap();
    filling.add(records(1..=40)).unwrap();
    assert!(filling.finish().unwrap());
    let cut = journal.sealed_segments()[0].last;
    journal.let_go(cut).unwrap();
    // Only the rest of what was filled before knows where it leads.
    assert_eq!(journal.gaps().unwrap(), [gap(1, cut), gap(61, 80)]);
    let filling = journal.fill(gap(1, cut)).unwrap();
    filling.add(records(1..=cut)).unwrap();
    assert!(filling.finish().unwrap());
    for journal in [journal, open(&disk)] {
        assert_eq!(journal.stretches(), [1..=60, 81..=120]);
        assert_eq!(journal.read(1, usize::MAX).unwrap(), records(1..=60));
        assert_eq!(journal.filled_gaps(), [1..=cut, cut + 1..=40]);
    }
}

#[test]
fn what_was_begun_is_kept_for_as_long_as_somebody_goes_on_with_it() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    for (gap, count) in [(gap(1, 40), 15), (gap(61, 80), 10)] {
        let first = gap.first;
        let filling = journal.fill(gap).unwrap();
        filling.add(records(first..=first + count)).unwrap();
    }
    journal.discard_unfinished(&journal.gaps().unwrap()).unwrap();
    assert_eq!(journal.fill(gap(1, 40)).unwrap().next(), 17);
    journal.discard_unfinished(&[gap(61, 80)]).unwrap();
    assert_eq!(journal.fill(gap(1, 40)).unwrap().next(), 1);
    let filling = journal.fill(gap(61, 80)).unwrap();
    filling.add(records(72..=80)).unwrap();
    assert!(filling.finish().unwrap());
    // What is finished is no business of this.
    journal.discard_unfinished(&[]).unwrap();
    assert_eq!(journal.stretches(), [41..=120]);
    drop(journal);
    assert_eq!(open(&disk).stretches(), [41..=120]);
}

#[test]
fn what_nothing_can_vouch_for_any_more_is_removed() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    let filling = journal.fill(gap(1, 40)).unwrap();
    filling.add(records(1..=15)).unwrap();
    filling.sync().unwrap();
    drop(filling);
    journal.let_go(80).unwrap();
    drop(journal);
    let part = name(1, 40) + "/journal";
    assert!(!disk.list(&part).unwrap().is_empty());
    let journal = open(&disk);
    assert_eq!(journal.stretches(), [81..=120]);
    assert!(disk.list(&part).unwrap().is_empty());
}

#[test]
fn what_nobody_has_any_more_is_left_out_and_the_rest_is_found() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    assert_eq!(journal.begins_with_a_snapshot(), Some(40));
    let filling = journal.fill(gap(1, 40)).unwrap();
    assert!(filling.is_untouched());
    for first in [0, 1, 41] {
        let refused = filling.begin_later(first, record(first.saturating_sub(1)).hash).unwrap_err();
        assert!(matches!(refused, JournalError::OutOfOrder { .. }), "{first}: {refused}");
    }
    filling.begin_later(21, record(20).hash).unwrap();
    assert!(!filling.is_untouched());
    assert_eq!((filling.next(), filling.hash().unwrap()), (21, Some(record(20).hash)));
    assert_eq!(filling.time_ms().unwrap(), None, "nobody knows when entry 20 was");
    // Begun is begun, also after a restart.
    drop((filling, journal));
    let journal = open(&disk);
    let filling = journal.fill(gap(1, 40)).unwrap();
    assert_eq!((filling.next(), filling.hash().unwrap()), (21, Some(record(20).hash)));
    filling.add(records(21..=30)).unwrap();
    assert_eq!(filling.time_ms().unwrap(), Some(30));
    filling.begin_later(35, record(34).hash).unwrap_err();
    filling.add(records(31..=40)).unwrap();
    assert!(filling.finish().unwrap());

    assert_eq!(journal.stretches(), [21..=60, 81..=120]);
    assert_eq!(journal.read(21, usize::MAX).unwrap(), records(21..=60));
    assert_eq!(journal.hash_at(20).unwrap(), Some(record(20).hash));
    let left = Gap { first: 1, last: 20, before: None, after: record(20).hash };
    assert_eq!(journal.gaps().unwrap(), [left, gap(61, 80)]);
    // It is found again, and leads nowhere if it is not what belongs there.
    drop(journal);
    let journal = open(&disk);
    assert_eq!(journal.stretches(), [21..=60, 81..=120]);
    let filling = journal.fill(gap(61, 80)).unwrap();
    filling.begin_later(71, record(99).hash).unwrap();
    filling.add(records(71..=79)).unwrap();
    let wrong = JournalRecord { hash: record(7).hash, ..record(80) };
    filling.add(vec![wrong]).unwrap();
    assert!(!filling.finish().unwrap());
    assert_eq!(journal.stretches(), [21..=60, 81..=120]);
    // What was let go is no beginning that a snapshot made.
    assert_eq!(journal.begins_with_a_snapshot(), Some(40));
    journal.let_go(60).unwrap();
    assert_eq!(journal.begins_with_a_snapshot(), None);
}

#[test]
fn what_was_whole_and_let_go_is_told_from_what_was_thrown_away() {
    let disk = ModelDisk::new(1);
    let journal = with_gaps(&disk);
    let let_go = |journal: &Journal| {
        let was = |first, last| journal.was_let_go(&gap(first, last)).unwrap();
        (was(1, 40), was(61, 80))
    };
    let begun = || {
        let filling = journal.fill(gap(1, 40)).unwrap();
        filling.add(records(1..=15)).unwrap();
        filling
    };
    begun().discard().unwrap();
    drop(begun());
    journal.discard_unfinished(&[]).unwrap();
    assert_eq!(let_go(&journal), (false, false));
    let filling = journal.fill(gap(1, 40)).unwrap();
    assert!(!filling.was_let_go());
    filling.add(records(1..=40)).unwrap();
    assert!(filling.finish().unwrap());
    // Its beginning is another gap.
    journal.let_go(journal.sealed_segments()[0].last).unwrap();
    assert_eq!(let_go(&journal), (false, false));
    journal.let_go(40).unwrap();
    assert_eq!(let_go(&journal), (true, false));
    assert_eq!(journal.begins_with_a_snapshot(), Some(40), "only the mark tells");
    drop(journal);
    let journal = open(&disk);
    assert_eq!(let_go(&journal), (true, false));
    // Whoever wants it all the same gets it.
    let filling = journal.fill(gap(1, 40)).unwrap();
    assert!(filling.was_let_go());
    filling.add(records(1..=40)).unwrap();
    assert!(filling.finish().unwrap());
    drop(journal);
    assert_eq!(open(&disk).stretches(), [1..=60, 81..=120]);
}

#[test]
fn a_power_cut_while_it_is_let_go_forgets_nothing_without_its_mark() {
    for seed in 0..15 {
        for cut_at in 1..20 {
            let disk = ModelDisk::new(seed);
            let journal = with_gaps(&disk);
            let filling = journal.fill(gap(1, 40)).unwrap();
            filling.add(records(1..=40)).unwrap();
            assert!(filling.finish().unwrap());
            disk.cut_power_at(cut_at);
            let _ = journal.let_go(40);
            disk.power_cut();
            drop(journal);
            let journal = open(&disk);
            let whole = journal.first_index() == Some(1);
            assert!(whole || journal.was_let_go(&gap(1, 40)).unwrap(), "seed {seed}, cut at {cut_at}");
        }
    }
}

//! Power cuts at any instant: what was acknowledged is there, the vote is not forgotten, the rest is a prefix of what was
//! asked for and never garbage.
//!
//! The checker is itself checked: on a disk whose syncs do nothing it must report loss.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use proptest::{
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{Config, TestRunner},
};

use super::*;

/// One thing to do with a log.
#[derive(Clone, Debug)]
enum Step {
    Append {
        count: u8,
        bytes: u16,
    },
    Vote,
    Commit,
    /// Cuts off up to this many entries, then appends at a higher term.
    Truncate(u8),
    /// Keeps this many entries.
    Purge(u8),
    CloseAndReopen,
    KillAndReopen,
    /// The power fails so many changes of the disk later.
    CutIn(u8),
    CutNow,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..12_u8, 0..900_u16).prop_map(|(count, bytes)| Step::Append { count, bytes }),
        2 => Just(Step::Vote),
        2 => Just(Step::Commit),
        1 => (0..20_u8).prop_map(Step::Truncate),
        2 => (0..20_u8).prop_map(Step::Purge),
        1 => Just(Step::CloseAndReopen),
        1 => Just(Step::KillAndReopen),
        2 => (1..12_u8).prop_map(Step::CutIn),
        1 => Just(Step::CutNow),
    ]
}

fn script() -> impl Strategy<Value = (u64, Vec<Step>)> {
    (any::<u64>(), prop::collection::vec(step(), 1..60))
}

/// Everything that a log says about itself.
#[derive(Clone, Debug, PartialEq, Default)]
struct Picture {
    entries: BTreeMap<u64, Record>,
    last: Option<LogPosition>,
    purged: Option<LogPosition>,
    vote: Option<StoredVote>,
}

impl Picture {
    fn of(wal: &Wal) -> Self {
        let WalState { last, purged, vote, .. } = wal.state();
        let entries = all(wal).into_iter().map(|record| (record.id.index, record)).collect();
        Self { entries, last, purged, vote }
    }
}

/// What was asked for, one picture after each entry or change, and up to which one it was acknowledged.
struct History {
    pictures: Vec<Picture>,
    acknowledged: Arc<AtomicUsize>,
    /// (picture at the time, committed position).
    committed: Vec<(usize, Option<LogPosition>)>,
    term: u64,
}

impl History {
    fn from(wal: &Wal, term: u64) -> Self {
        Self {
            pictures: vec![Picture::of(wal)],
            acknowledged: Arc::default(),
            committed: vec![(0, wal.state().committed)],
            term,
        }
    }

    fn now(&self) -> &Picture {
        self.pictures.last().unwrap()
    }

    fn done(&self) -> Done {
        let (point, acknowledged) = (self.pictures.len() - 1, self.acknowledged.clone());
        Box::new(move |result| {
            if result.is_ok() {
                acknowledged.fetch_max(point, Ordering::SeqCst);
            }
        })
    }

    fn step(&mut self, wal: &Wal, step: &Step) {
        match *step {
            Step::Append { count, bytes } => {
                let first = self.now().last.map_or(0, |last| last.index + 1);
                let records: Vec<Record> =
                    (first..first + u64::from(count)).map(|index| record(self.term, index, bytes.into())).collect();
                for record in &records {
                    let mut next = self.now().clone();
                    next.last = Some(record.id);
                    next.entries.insert(record.id.index, record.clone());
                    self.pictures.push(next);
                }
                wal.append(records, self.done());
            }
            Step::Vote => {
                self.term += 1;
                let vote = StoredVote { term: self.term, node: self.term % 3, committed: self.term.is_multiple_of(2) };
                self.pictures.push(Picture { vote: Some(vote), ..self.now().clone() });
                wal.save_vote(vote, self.done());
            }
            Step::Commit => {
                self.committed.push((self.pictures.len() - 1, self.now().last));
                wal.save_committed(self.now().last);
            }
            Step::Truncate(by) => {
                let mut next = self.now().clone();
                let floor = next.purged.map(|purged| purged.index);
                let Some(last) = next.last else { return };
                let keep = last.index.checked_sub(by.into()).max(floor);
                next.entries.retain(|index, _| keep.is_some_and(|keep| *index <= keep));
                next.last = next.entries.values().next_back().map(|record| record.id).or(next.purged);
                self.pictures.push(next);
                self.term += 1;
                wal.truncate_after(keep, self.done());
            }
            Step::Purge(keep) => {
                let mut next = self.now().clone();
                let Some(through) = next.last.and_then(|last| last.index.checked_sub(keep.into())) else { return };
                let Some(through) = next.entries.get(&through).map(|record| record.id) else { return };
                next.entries.retain(|index, _| *index > through.index);
                next.purged = Some(through);
                self.pictures.push(next);
                wal.purge(through, self.done());
            }
            Step::CloseAndReopen | Step::KillAndReopen | Step::CutIn(_) | Step::CutNow => {}
        }
    }

    /// Compares what came back with what was promised. `Err` says what was lost.
    fn check(&self, wal: &Wal) -> Result<(), String> {
        let found = Picture::of(wal);
        let promised = self.acknowledged.load(Ordering::SeqCst);
        if !self.pictures[promised..].contains(&found) {
            let wanted = &self.pictures[promised];
            return Err(format!(
                "acknowledged: last {:?} purged {:?} vote {:?}; found: last {:?} purged {:?} vote {:?}",
                wanted.last, wanted.purged, wanted.vote, found.last, found.purged, found.vote
            ));
        }
        // Saved before an acknowledged change: rode with it at the latest. Saved later: may or may not be there.
        let committed = wal.state().committed;
        let known = self.committed.iter().rposition(|(point, _)| *point < promised).unwrap_or(0);
        if !self.committed[known..].iter().any(|(_, position)| *position == committed) {
            return Err(format!("committed {committed:?} is none of {:?}", &self.committed[known..]));
        }
        Ok(())
    }
}

/// Runs a script. `Err` is the first thing that a reopened log had lost.
fn run(seed: u64, steps: &[Step], threading: Threading, ignore_syncs: bool) -> Result<(), String> {
    let disk = ModelDisk::new(seed);
    disk.ignore_syncs(ignore_syncs);
    let open = || Wal::open(Arc::new(disk.reopen()), small(threading)).map_err(|error| error.to_string());
    let mut wal = open()?;
    let mut history = History::from(&wal, 1);
    for step in steps.iter().chain([&Step::CutNow]) {
        history.step(&wal, step);
        match *step {
            Step::CutIn(changes) => disk.cut_power_at(changes.into()),
            Step::CloseAndReopen if !disk.power_is_off() => {
                // It may fail: a cut that was scheduled earlier can come in the middle of it.
                let _ = wal.close();
            }
            Step::KillAndReopen if !disk.power_is_off() => disk.kill_process(),
            Step::CutNow => disk.power_cut(),
            _ => {
                if !disk.power_is_off() {
                    continue;
                }
            }
        }
        let reopens = matches!(step, Step::CloseAndReopen | Step::KillAndReopen | Step::CutNow);
        if disk.power_is_off() {
            disk.power_cut();
        } else if !reopens {
            continue;
        }
        drop(wal);
        // The power may fail again while the log is being recovered.
        let scheduled = seed.is_multiple_of(3);
        if scheduled {
            disk.cut_power_at(1 + seed % 5);
        }
        wal = match open() {
            Err(_) if disk.power_is_off() => {
                disk.power_cut();
                open()?
            }
            opened => opened?,
        };
        if disk.power_is_off() {
            disk.power_cut();
            wal = open()?;
        }
        history.check(&wal)?;
        let term = history.term;
        history = History::from(&wal, term + 1);
    }
    Ok(())
}

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn everything_acknowledged_survives_power_cuts_at_any_instant((seed, steps) in script()) {
        run(seed, &steps, Threading::Inline, false).map_err(TestCaseError::fail)?;
    }
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

    #[test]
    fn everything_acknowledged_by_the_writing_thread_survives((seed, steps) in script()) {
        run(seed, &steps, Threading::Thread, false).map_err(TestCaseError::fail)?;
    }
}

#[test]
fn the_checker_reports_loss_when_syncs_do_nothing() {
    const SCRIPTS: usize = 100;
    let mut runner = TestRunner::deterministic();
    let mut losses = 0;
    for _ in 0..SCRIPTS {
        let (seed, steps) = script().new_tree(&mut runner).unwrap().current();
        run(seed, &steps, Threading::Inline, false).expect("honest syncs lose nothing");
        losses += usize::from(run(seed, &steps, Threading::Inline, true).is_err());
    }
    assert!(losses > SCRIPTS / 2, "only {losses} of {SCRIPTS} scripts noticed that nothing was synced");
}

/// A script that comes by every kind of change of the disk: making, filling, sealing and removing segments, truncating
/// and going on, votes, closing.
const ALL_WAYS: &[Step] = &[
    Step::Append { count: 5, bytes: 300 },
    Step::Vote,
    Step::Commit,
    Step::Append { count: 9, bytes: 400 },
    Step::Truncate(6),
    Step::Append { count: 3, bytes: 700 },
    Step::Purge(2),
    Step::Append { count: 1, bytes: 6000 },
    Step::Vote,
    Step::Purge(0),
    Step::Append { count: 10, bytes: 900 },
    Step::Commit,
    Step::Truncate(20),
    Step::Append { count: 1, bytes: 0 },
    Step::CloseAndReopen,
    Step::Append { count: 2, bytes: 100 },
];

#[test]
fn a_power_cut_at_every_single_change_of_the_disk_loses_nothing() {
    let total = {
        let disk = ModelDisk::new(0);
        let wal = Wal::open(Arc::new(disk.clone()), small(Threading::Inline)).unwrap();
        let mut history = History::from(&wal, 1);
        for step in ALL_WAYS {
            history.step(&wal, step);
        }
        disk.changes()
    };
    assert!(total > 60, "{total}");
    for cut_at in 1..=total {
        for seed in 0..12 {
            let disk = ModelDisk::new(seed);
            disk.cut_power_at(cut_at);
            let open = || Wal::open(Arc::new(disk.reopen()), small(Threading::Inline));
            // Cuts during the very first opening come back to an empty log.
            let mut wal = match open() {
                Ok(wal) => wal,
                Err(_) => {
                    disk.power_cut();
                    let wal = open().unwrap_or_else(|error| panic!("cut at {cut_at}, seed {seed}: {error}"));
                    assert_eq!(wal.state(), WalState::default());
                    continue;
                }
            };
            let mut history = History::from(&wal, 1);
            for step in ALL_WAYS {
                history.step(&wal, step);
                if matches!(step, Step::CloseAndReopen) && wal.close().is_ok() {
                    drop(wal);
                    match open() {
                        Ok(opened) => wal = opened,
                        Err(_) => {
                            disk.power_cut();
                            wal = open().unwrap_or_else(|error| panic!("cut at {cut_at}, seed {seed}: {error}"));
                            break;
                        }
                    }
                }
                if disk.power_is_off() {
                    break;
                }
            }
            disk.power_cut();
            drop(wal);
            let wal = open().unwrap_or_else(|error| panic!("cut at {cut_at}, seed {seed}: {error}"));
            history.check(&wal).unwrap_or_else(|lost| panic!("cut at {cut_at}, seed {seed}: {lost}"));
            // What was reported is now a promise.
            let reported = Picture::of(&wal);
            disk.power_cut();
            drop(wal);
            assert_eq!(Picture::of(&open().unwrap()), reported, "cut at {cut_at}, seed {seed}");
        }
    }
}

#[test]
fn what_a_restart_reports_after_a_kill_at_any_change_survives_a_later_power_cut() {
    // The writes of a killed process are in the page cache: readable, and not durable until somebody makes them so.
    for kill_at in 1.. {
        let mut finished = true;
        for seed in 0..6 {
            let disk = ModelDisk::new(seed);
            disk.cut_power_at(kill_at);
            let open = || Wal::open(Arc::new(disk.reopen()), small(Threading::Inline));
            let wal = open();
            if let Ok(wal) = &wal {
                let mut history = History::from(wal, 1);
                for step in ALL_WAYS {
                    history.step(wal, step);
                }
            }
            finished &= !disk.power_is_off();
            disk.kill_process();
            drop(wal);
            let wal = open().unwrap_or_else(|error| panic!("killed at {kill_at}, seed {seed}: {error}"));
            let reported = Picture::of(&wal);
            disk.power_cut();
            drop(wal);
            let wal = open().unwrap_or_else(|error| panic!("killed at {kill_at}, seed {seed}: {error}"));
            assert_eq!(Picture::of(&wal), reported, "killed at {kill_at}, seed {seed}");
        }
        if finished {
            assert!(kill_at > 60, "{kill_at}");
            break;
        }
    }
}

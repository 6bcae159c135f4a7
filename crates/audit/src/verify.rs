//! Whether a history is what it says it is: every byte, every link, every signature, and every consequence of every entry.
//!
//! The frames and the chain of an export are read first; then everything before the first fault is replayed, because what was
//! altered with care, checksums and all, only shows where the state machine derives something else. What is reported first is what
//! is wrong with the lowest entry.
//!
//! Not here: whom to believe. A file that somebody signed with a key of their own is whole; `pin` says whose word counts.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use loadline_log::export::{Export, ExportError, ExportHead, Fault, Scanned};
use loadline_state_machine::{Hash, JournalEntry, LogIndex, Time};

use crate::export::ExportFile;
use crate::kept::Kept;
use crate::replay::{Moment, ReplayError, Start, Step, replay};
use crate::source::{Source, SourceError};

/// Bytes of records that are read at once where nothing is replayed.
const PART_BYTES: usize = 1 << 20;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The entries that are concerned: the first, and the last if it can be told. None: it is not about an entry.
    pub entries: Option<(u64, Option<u64>)>,
    pub what: String,
}

impl Finding {
    fn at(index: u64, what: impl Into<String>) -> Finding {
        Finding { entries: Some((index, Some(index))), what: what.into() }
    }

    fn whole(what: impl Into<String>) -> Finding {
        Finding { entries: None, what: what.into() }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.entries {
            Some((first, Some(last))) if first == last => write!(f, "entry {first}: ")?,
            Some((first, Some(last))) => write!(f, "entries {first} to {last}: ")?,
            Some((first, None)) => write!(f, "from entry {first} on: ")?,
            None => {}
        }
        f.write_str(&self.what)
    }
}

impl From<Fault> for Finding {
    fn from(fault: Fault) -> Finding {
        Finding { entries: fault.entries, what: format!("{} (offset {})", fault.what, fault.offset) }
    }
}

/// What came of looking.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdict {
    /// Of an export whose head can be read.
    pub head: Option<ExportHead>,
    /// What was looked at, in stretches without a gap.
    pub stretches: Vec<RangeInclusive<u64>>,
    /// Entries that were applied once more and led to the hash that they had.
    pub replayed: u64,
    /// Entries of which only the chain could be checked, because no state from before them is kept.
    pub chained: u64,
    /// After the last entry that is right.
    pub hash: Option<Hash>,
    /// What is wrong, the lowest entry first. None: it is valid.
    pub findings: Vec<Finding>,
}

impl Verdict {
    pub fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Bytes of the file that have been read.
    Reading { done: u64, total: u64 },
    /// Entries that have been applied.
    Replaying { done: u64, total: u64 },
}

/// Checks an export. `pin`: the public key that must have signed it.
pub fn verify_file(
    path: &Path,
    pin: Option<&[u8; 32]>,
    mut tell: impl FnMut(Progress),
) -> Result<Verdict, SourceError> {
    let scanned = Export::scan(path, |done, total| tell(Progress::Reading { done, total }));
    let Scanned { export, fault } = match scanned {
        Ok(scanned) => scanned,
        Err(ExportError::NotAnExport { what }) => {
            let finding = Finding::whole(format!("this is not an export of a history: {what}"));
            return Ok(Verdict { findings: vec![finding], ..Verdict::default() });
        }
        Err(other) => return Err(SourceError::Export(other)),
    };
    let mut verdict = Verdict { head: Some(export.head().clone()), ..Verdict::default() };
    verdict.findings.extend(fault.map(Finding::from));
    if let Some(pin) = pin
        && *pin != export.head().public_key
    {
        let signer = hex(&export.head().public_key);
        verdict
            .findings
            .push(Finding::whole(format!("it is signed with the key {signer}, and {} is asked for", hex(pin))));
    }
    let file = ExportFile::of(export);
    verdict.stretches.extend(file.range());
    for stretch in verdict.stretches.clone() {
        verdict.replay(&file, &stretch, &mut tell);
    }
    verdict.sort();
    Ok(verdict)
}

/// Checks what a node that is not running keeps: its journal, and whether its snapshots are what the journal leads to.
pub fn verify_folder(data_dir: &Path, mut tell: impl FnMut(Progress)) -> Result<Verdict, SourceError> {
    let kept = Kept::open(data_dir)?;
    let mut verdict = Verdict { stretches: kept.stretches(), ..Verdict::default() };
    if let Err(error) = kept.journal().verify() {
        verdict.findings.push(Finding::whole(with_causes(&error)));
    }
    for stretch in verdict.stretches.clone() {
        verdict.replay(&kept, &stretch, &mut tell);
    }
    verdict.compare_snapshots(&kept);
    verdict.sort();
    Ok(verdict)
}

impl Verdict {
    /// Whether the snapshots are of the states that the journal tells of.
    fn compare_snapshots(&mut self, kept: &Kept) {
        for index in kept.starts() {
            let compared = kept.start(index).and_then(|state| {
                let known = kept.journal().hash_at(index).map_err(SourceError::Journal)?;
                Ok(known.is_none_or(|known| state.is_none_or(|state| state.hash().0 == known)))
            });
            match compared {
                Ok(true) => {}
                Ok(false) => self.findings.push(Finding::at(index, "the snapshot after it is of another history")),
                Err(error) => self.findings.push(finding_of(&error)),
            }
        }
    }

    /// What can be told about an entry says more than what can only be told about the whole.
    fn sort(&mut self) {
        self.findings.sort_by_key(|finding| finding.entries.map_or(u64::MAX, |(first, _)| first));
    }

    fn replay(&mut self, source: &dyn Source, stretch: &RangeInclusive<u64>, tell: &mut impl FnMut(Progress)) {
        let (mut first, last) = (*stretch.start(), *stretch.end());
        let mut start = Start::Beginning;
        if first > 1 {
            // The first state that belongs to this stretch. What is before it has only its chain.
            let kept = source.starts().into_iter().find(|start| (first - 1..=last).contains(start));
            let unreplayed = first..=kept.unwrap_or(last);
            if let Err(finding) = self.follow_chain(source, &unreplayed, tell) {
                self.findings.push(finding);
                return;
            }
            let Some(kept) = kept else { return };
            match source.start(kept) {
                Ok(Some(state)) => start = Start::From(Box::new(state)),
                Ok(None) => return,
                Err(error) => {
                    self.findings.push(finding_of(&error));
                    return;
                }
            }
            first = kept + 1;
        }
        let total = last + 1 - first;
        let mut differs = None;
        let (applied, hash) = (Cell::new(0), Cell::new(None));
        // An entry that nobody ever proposed may break an assumption of the state machine.
        let ended = catch_unwind(AssertUnwindSafe(|| {
            replay(source, start, Moment::Index(last), |step| {
                applied.set(applied.get() + 1);
                if applied.get() % 1_024 == 0 || applied.get() == total {
                    tell(Progress::Replaying { done: applied.get(), total });
                }
                if differs.is_none() {
                    differs = look_at(step);
                    if differs.is_none() {
                        hash.set(Some(step.applied.hash));
                    }
                }
            })
        }));
        self.replayed += applied.get();
        self.hash = hash.get().or(self.hash);
        self.findings.extend(differs);
        match ended {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => self.findings.push(finding_of_replay(&error)),
            Err(_) => self.findings.push(Finding::at(first + applied.get(), "applying it ends in a broken assumption")),
        }
    }

    /// Computes every hash from the one before it and the bytes of the entry, without knowing the state.
    fn follow_chain(
        &mut self,
        source: &dyn Source,
        stretch: &RangeInclusive<u64>,
        tell: &mut impl FnMut(Progress),
    ) -> Result<(), Finding> {
        let total = (stretch.end() + 1).saturating_sub(*stretch.start());
        let mut next = *stretch.start();
        let mut before: Option<Hash> = None;
        while next <= *stretch.end() {
            let records = source.read(next, PART_BYTES).map_err(|error| finding_of(&error))?;
            if records.is_empty() {
                return Err(Finding::at(next, "it cannot be read"));
            }
            for record in records.iter().take_while(|record| stretch.contains(&record.index)) {
                let has = Hash(record.hash);
                // The first one has nothing to be compared with.
                if let Some(before) = before {
                    let gives = JournalEntry::link(before, LogIndex(record.index), &record.entry, &record.events);
                    if gives != Some(has) {
                        return Err(Finding::at(
                            record.index,
                            "its hash does not follow from its bytes and the hash before it",
                        ));
                    }
                }
                before = Some(has);
                next = record.index + 1;
                self.chained += 1;
            }
            tell(Progress::Replaying { done: self.chained, total });
        }
        self.hash = before.or(self.hash);
        Ok(())
    }
}

/// What the hash does not cover, or covers only together with the rest.
fn look_at(step: &Step<'_>) -> Option<Finding> {
    let (record, applied) = (step.record, step.applied);
    if record.events[..] != *applied.events_bytes().as_slice() {
        return Some(Finding::at(record.index, "it brings about other events than are recorded"));
    }
    if Time::from_millis(record.time_ms) != applied.time {
        return Some(Finding::at(record.index, "it is recorded at another time than it happened"));
    }
    None
}

fn finding_of_replay(error: &ReplayError) -> Finding {
    match error {
        ReplayError::Source(error) => finding_of(error),
        ReplayError::Differs { index, ours, theirs } => {
            Finding::at(*index, format!("it leads to the hash {ours}, and {theirs} is recorded"))
        }
        ReplayError::Entry { index, .. } | ReplayError::Newer { index, .. } | ReplayError::Gap { index, .. } => {
            Finding::at(*index, with_causes(error))
        }
        other => Finding::whole(with_causes(other)),
    }
}

fn finding_of(error: &SourceError) -> Finding {
    match error {
        SourceError::Export(ExportError::Damaged(fault)) => fault.clone().into(),
        SourceError::State { .. } | SourceError::SnapshotDiffers { .. } => Finding::whole(with_causes(error)),
        other => Finding::whole(with_causes(other)),
    }
}

/// An error and what is behind it, in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Made, key};

    #[test]
    fn a_good_export_is_valid_wherever_it_begins() {
        let made = Made::new(300);
        for entries in [1..=300, 1..=1, 120..=300] {
            let file = made.exported(entries.clone());
            let verdict = verify_file(file.path(), Some(&key().public()), |_| {}).unwrap();
            assert!(verdict.is_valid(), "{verdict:?}");
            assert_eq!(verdict.replayed, entries.end() - entries.start() + 1);
            assert_eq!(verdict.hash.unwrap().0, made.records[usize::try_from(*entries.end()).unwrap() - 1].hash);
        }
    }

    #[test]
    fn a_file_that_somebody_else_signed_is_not_what_was_asked_for() {
        let file = Made::new(30).exported(1..=30);
        let verdict = verify_file(file.path(), Some(&[9; 32]), |_| {}).unwrap();
        assert_eq!(verdict.findings.len(), 1);
        assert!(verdict.findings[0].what.contains("is asked for"), "{verdict:?}");
    }
}

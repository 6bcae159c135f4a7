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
use std::sync::Arc;

use loadline_log::export::{Export, ExportError, ExportHead, Fault, Scanned};
use loadline_log::{JournalError, JournalFault, ReadOnlyDisk, SharedDisk, SnapshotError, WalState, journal_faults};
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

    /// Without the advice for whoever runs the node: that is not who reads this.
    fn of_fault(fault: &JournalFault) -> Finding {
        let JournalFault { file, offset, what, after, entries, newer } = fault;
        let mut text = format!("{file} is damaged at offset {offset}: {what}");
        if *newer {
            text = format!("{file} at offset {offset}: {what}; a newer program wrote it");
        }
        if let (None, Some(after)) = (entries, after) {
            text = format!("after entry {after}: {text}");
        }
        Finding { entries: *entries, what: text }
    }

    fn of_snapshot(error: &SnapshotError) -> Finding {
        match error {
            SnapshotError::Damaged { file, what } => Finding::whole(format!("{file} is damaged: {what}")),
            other => Finding::whole(with_causes(other)),
        }
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
    /// What is not wrong, and good to know.
    pub notes: Vec<String>,
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

/// Checks what a node that is not running keeps: its journal, whether its snapshots are what the journal leads to, and whether the journal
/// goes as far as it must. The folder stays as it is.
pub fn verify_folder(data_dir: &Path, mut tell: impl FnMut(Progress)) -> Result<Verdict, SourceError> {
    let open = || ReadOnlyDisk::open(data_dir).map(Arc::new).map_err(SourceError::Open);
    let folder: SharedDisk = open()?;
    let faults = match journal_faults(&folder) {
        Ok(faults) => faults,
        Err(error @ JournalError::ForeignFile { .. }) => {
            return Ok(Verdict::wrong(Finding::whole(with_causes(&error))));
        }
        Err(error) => return Err(SourceError::Journal(error)),
    };
    // Another one: what a node would repair when it opens the journal is looked at before.
    let kept = match Kept::of(&open()?) {
        Ok(kept) => kept,
        Err(SourceError::Journal(error @ JournalError::Damaged { .. })) => {
            let mut verdict =
                Verdict { findings: faults.iter().map(Finding::of_fault).collect(), ..Verdict::default() };
            if verdict.findings.is_empty() {
                verdict.findings.push(finding_of(&SourceError::Journal(error)));
            }
            return Ok(verdict);
        }
        Err(error) => return Err(error),
    };
    let findings = faults.iter().map(Finding::of_fault).collect();
    let notes = kept.notes().to_vec();
    let mut verdict = Verdict { stretches: kept.stretches(), findings, notes, ..Verdict::default() };
    for stretch in verdict.stretches.clone() {
        // What is behind the first fault of a stretch does not follow from anything.
        let faulty = faults.iter().filter_map(|fault| fault.entries).map(|(first, _)| first);
        let end = faulty.filter(|first| stretch.contains(first)).min().map_or(*stretch.end(), |first| first - 1);
        if end >= *stretch.start() {
            verdict.replay(&kept, &(*stretch.start()..=end), &mut tell);
        }
    }
    verdict.compare_snapshots(&kept);
    verdict.compare_ends(&kept);
    verdict.sort();
    Ok(verdict)
}

impl Verdict {
    fn wrong(finding: Finding) -> Verdict {
        Verdict { findings: vec![finding], ..Verdict::default() }
    }

    /// Whether the snapshots are of the states that the journal tells of.
    fn compare_snapshots(&mut self, kept: &Kept) {
        for error in kept.broken() {
            self.findings.push(Finding::of_snapshot(error));
        }
        for index in kept.starts() {
            let compared = kept.start(index).and_then(|state| {
                let known = match kept.journal().hash_at(index) {
                    // That it is damaged has been said.
                    Err(JournalError::Damaged { .. }) => None,
                    known => known.map_err(SourceError::Journal)?,
                };
                Ok(known.is_none_or(|known| state.is_none_or(|state| state.hash().0 == known)))
            });
            match compared {
                Ok(true) => {}
                Ok(false) => self.findings.push(Finding::at(index, "the snapshot after it is of another history")),
                Err(SourceError::Snapshot(error)) => self.findings.push(Finding::of_snapshot(&error)),
                Err(error) => self.findings.push(finding_of(&error)),
            }
        }
    }

    /// Whether the journal goes as far as a node makes sure that it does. It is durable before a snapshot of our own is written, and before
    /// the write-ahead log lets go of anything; the state that somebody else sent is noted in it as a gap before the log lets go of what
    /// is before. What is only in the write-ahead log, on the other hand, may be missing after a crash: the node applies it again.
    fn compare_ends(&mut self, kept: &Kept) {
        let end = kept.journal().last_index().unwrap_or(0);
        let behind = |through: u64, why: String| Finding { entries: Some((end + 1, Some(through))), what: why };
        let wal = kept.wal();
        let purged = wal.and_then(|wal| wal.purged).map_or(0, |purged| purged.index);
        if purged > end {
            let why = format!(
                "the journal ends with entry {end}, and the write-ahead log has let go of everything up to entry {purged}, which it does only after the journal has it"
            );
            self.findings.push(behind(purged, why));
            return;
        }
        let Some(newest) = kept.starts().into_iter().filter(|index| *index > end).max() else {
            self.note_what_follows(kept, end);
            return;
        };
        // A node that dies right after it has taken in somebody else's snapshot has not noted the gap yet. Its own log is shorter then.
        let reaches = |wal: &WalState| wal.last.is_some_and(|last| last.index >= newest);
        let one = kept.starts().into_iter().filter(|index| *index > end).count() == 1;
        if one && wal.is_some_and(|wal| !reaches(wal)) {
            self.notes.push(format!(
                "the snapshot after entry {newest} came from another node, and this one stopped before it noted that entries {} to {newest} are not in its journal",
                end + 1
            ));
            return;
        }
        let why = format!(
            "the journal ends with entry {end}, and there is a snapshot of the state after entry {newest}, which is written only after the journal has everything up to it"
        );
        self.findings.push(behind(newest, why));
    }

    fn note_what_follows(&mut self, kept: &Kept, end: u64) {
        let committed = kept.wal().and_then(|wal| wal.committed).map_or(0, |committed| committed.index);
        if committed > end {
            self.notes.push(format!(
                "entries {} to {committed} are in the write-ahead log, and the journal does not have them yet, as after a crash: they are not looked at",
                end + 1
            ));
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
        SourceError::Journal(JournalError::Damaged { file, offset, what }) => {
            Finding::whole(format!("{file} is damaged at offset {offset}: {what}"))
        }
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

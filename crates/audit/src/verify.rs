//! Whether a history is what it says it is: every byte, every link, every signature, and every consequence of every entry.
//!
//! The frames and the chain of an export are read first; then everything before the first fault is replayed, because what was
//! altered with care, checksums and all, only shows where the state machine derives something else. What is reported first is what
//! is wrong with the lowest entry.
//!
//! - [`entries`]: what each entry leads to, and what is kept with it · [`folder`]: what only the folder of a node has
//!
//! Not here: whom to believe. A file that somebody signed with a key of their own is whole; `pin` says whose word counts.

mod entries;
mod folder;

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use loadline_log::export::{Export, ExportError, ExportHead, Fault, Scanned};
use loadline_log::{
    JournalError, JournalFault, ReadOnlyDisk, SharedDisk, SnapshotError, is_newer, journal_faults, noted_program,
};
use loadline_state_machine::Hash;

use self::entries::Limits;
use crate::export::ExportFile;
use crate::kept::Kept;
use crate::source::{Source, SourceError};

/// What is said of a file for which nobody has said whose it must be.
const KEY_NOT_COMPARED: &str = "the key that it is signed with was compared with nothing: whoever makes up a file can sign it with a key \
                                of their own. Compare it with the one that you noted (--public-key)";

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

    /// Without the advice for whoever runs the node: that is not who reads this. `version`: the newest program that had the folder.
    fn of_fault(fault: &JournalFault, version: Option<&str>) -> Finding {
        let JournalFault { file, offset, what, after, entries, newer } = fault;
        let ours = env!("CARGO_PKG_VERSION");
        let mut text = match version {
            Some(version) if *newer && is_newer(version, ours) => {
                format!(
                    "{file} was written by version {version} at offset {offset}, and this is version {ours}: {what}"
                )
            }
            None if *newer => format!("{file} at offset {offset}: {what}; a newer program wrote it"),
            _ => format!("{file} is damaged at offset {offset}: {what}"),
        };
        if let (None, Some(after)) = (entries, after) {
            text = format!("after entry {after}: {text}");
        }
        Finding { entries: *entries, what: text }
    }

    fn of_source(error: &SourceError) -> Finding {
        match error {
            SourceError::Export(ExportError::Damaged(fault)) => fault.clone().into(),
            SourceError::Journal(JournalError::Damaged { file, offset, what }) => {
                Finding::whole(format!("{file} is damaged at offset {offset}: {what}"))
            }
            other => Finding::whole(with_causes(other)),
        }
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
        Err(error @ (ExportError::NotAnExport { .. } | ExportError::Newer { .. })) => {
            return Ok(Verdict::wrong(Finding::whole(error.to_string())));
        }
        Err(other) => return Err(SourceError::Export(other)),
    };
    let mut verdict = Verdict { head: Some(export.head().clone()), ..Verdict::default() };
    verdict.findings.extend(fault.map(Finding::from));
    match pin {
        None => verdict.notes.push(KEY_NOT_COMPARED.to_owned()),
        Some(pin) if *pin != export.head().public_key => {
            let signer = hex(&export.head().public_key);
            let what = format!("it is signed with the key {signer}, and {} is asked for", hex(pin));
            verdict.findings.push(Finding::whole(what));
        }
        Some(_) => {}
    }
    let file = ExportFile::of(export);
    verdict.stretches.extend(file.range());
    for stretch in verdict.stretches.clone() {
        verdict.replay(&file, &stretch, &mut Limits::default(), &mut tell);
    }
    verdict.sort();
    Ok(verdict)
}

/// Checks what a node that is not running keeps: its journal, whether its snapshots are what the journal leads to, and whether the journal
/// begins where it may and goes as far as it must. The folder stays as it is.
pub fn verify_folder(data_dir: &Path, mut tell: impl FnMut(Progress)) -> Result<Verdict, SourceError> {
    let open = || ReadOnlyDisk::open(data_dir).map(Arc::new).map_err(SourceError::Open);
    let folder: SharedDisk = open()?;
    let faults = match journal_faults(&folder, |done, total| tell(Progress::Reading { done, total })) {
        Ok(faults) => faults,
        Err(error @ JournalError::ForeignFile { .. }) => {
            return Ok(Verdict::wrong(Finding::whole(with_causes(&error))));
        }
        Err(error) => return Err(SourceError::Journal(error)),
    };
    let version = noted_program(&*folder);
    let findings: Vec<Finding> = faults.iter().map(|fault| Finding::of_fault(fault, version.as_deref())).collect();
    // Another one: what a node would repair when it opens the journal is looked at before.
    let kept = match Kept::of(&open()?) {
        Ok(kept) => kept,
        Err(
            error @ (SourceError::Newer { .. }
            | SourceError::Journal(JournalError::Damaged { .. } | JournalError::Newer { .. })),
        ) => {
            let mut verdict = Verdict { findings, ..Verdict::default() };
            if verdict.findings.is_empty() {
                verdict.findings.push(Finding::of_source(&error));
            }
            return Ok(verdict);
        }
        Err(error) => return Err(error),
    };
    let notes = kept.notes().to_vec();
    let mut verdict = Verdict { stretches: kept.stretches(), findings, notes, ..Verdict::default() };
    let mut limits = Limits::default();
    for stretch in verdict.stretches.clone() {
        // What is behind the first fault of a stretch does not follow from anything.
        let faulty = faults.iter().filter_map(|fault| fault.entries).map(|(first, _)| first);
        let end = faulty.filter(|first| stretch.contains(first)).min().map_or(*stretch.end(), |first| first - 1);
        if end >= *stretch.start() {
            verdict.replay(&kept, &(*stretch.start()..=end), &mut limits, &mut tell);
        }
    }
    verdict.compare_snapshots(&kept);
    verdict.compare_beginning(&kept, limits);
    verdict.look_at_wal(&kept);
    verdict.compare_ends(&kept);
    verdict.sort();
    Ok(verdict)
}

impl Verdict {
    fn wrong(finding: Finding) -> Verdict {
        Verdict { findings: vec![finding], ..Verdict::default() }
    }

    /// What can be told about an entry says more than what can only be told about the whole.
    fn sort(&mut self) {
        self.findings.sort_by_key(|finding| finding.entries.map_or(u64::MAX, |(first, _)| first));
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
    fn a_key_that_was_compared_with_nothing_is_said_to_be() {
        let file = Made::new(30).exported(1..=30);
        let verdict = verify_file(file.path(), None, |_| {}).unwrap();
        assert!(verdict.is_valid(), "{verdict:?}");
        assert_eq!(verdict.notes, [KEY_NOT_COMPARED]);
        let verdict = verify_file(file.path(), Some(&key().public()), |_| {}).unwrap();
        assert_eq!((verdict.is_valid(), verdict.notes), (true, vec![]));
    }

    #[test]
    fn what_is_added_behind_the_end_is_said_to_be_behind_the_last_entry() {
        let file = Made::new(30).exported(1..=30);
        let bytes = [std::fs::read(file.path()).unwrap(), b"more".to_vec()].concat();
        std::fs::write(file.path(), bytes).unwrap();
        let verdict = verify_file(file.path(), None, |_| {}).unwrap();
        assert!(verdict.findings[0].what.starts_with("after entry 30: 4 bytes follow its end"), "{verdict:?}");
    }

    #[test]
    fn a_file_that_somebody_else_signed_is_not_what_was_asked_for() {
        let file = Made::new(30).exported(1..=30);
        let verdict = verify_file(file.path(), Some(&[9; 32]), |_| {}).unwrap();
        assert_eq!(verdict.findings.len(), 1);
        assert!(verdict.findings[0].what.contains("is asked for"), "{verdict:?}");
    }
}

//! What a node keeps of its past: its journal, and the snapshots of its state.

use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use loadline_log::{
    Identity, Journal, JournalError, JournalOptions, JournalRecord, ReadOnlyDisk, SharedDisk, SnapshotError,
    SnapshotStore, WalError, WalState, is_newer, noted_program,
};
use loadline_state_machine::{Hash, State};

use crate::source::{Source, SourceError, open_state};

/// Snapshots are only read here; as many as are there stay.
const SNAPSHOTS_KEPT: usize = usize::MAX;

/// The journal and the snapshots of one node.
#[derive(Debug)]
pub struct Kept {
    journal: Journal,
    snapshots: SnapshotStore,
    group: Option<String>,
    version: Option<String>,
    /// Snapshots that cannot be read.
    broken: Vec<SnapshotError>,
    /// What the write-ahead log beside them remembers; none in a folder that no node ever had, and so no such log.
    wal: Option<Result<WalState, WalError>>,
    notes: Vec<String>,
}

impl Kept {
    /// Those of a node that runs in this process. `version`: the newest that wrote to them, if that is known.
    pub fn new(journal: Journal, snapshots: SnapshotStore, version: Option<String>) -> Kept {
        let (group, wal) = (None, None);
        Kept { journal, snapshots, group, version, broken: Vec::new(), wal, notes: Vec::new() }
    }

    /// Those of a node that is not running. The folder stays as it is, to the byte.
    pub fn open(data_dir: &Path) -> Result<Kept, SourceError> {
        Kept::of(&Arc::new(ReadOnlyDisk::open(data_dir).map_err(SourceError::Open)?))
    }

    pub(crate) fn of(folder: &Arc<ReadOnlyDisk>) -> Result<Kept, SourceError> {
        let disk: SharedDisk = Arc::clone(folder) as SharedDisk;
        let version = noted_program(&*disk);
        let journal = Journal::open(Arc::clone(&disk), JournalOptions::default())
            .map_err(|source| unopened(source, version.as_deref()))?;
        let cuts = folder.cuts().into_iter().map(|cut| {
            let loadline_log::Cut { path, offset, bytes } = cut;
            format!("the last {bytes} bytes of {path}, from offset {offset} on, are the torn end of a write: a node that starts drops them, and so it is done here")
        });
        let mut notes: Vec<String> = cuts.collect();
        notes.extend(folder.unguarded().map(|why| {
            format!("whether a node is running with this folder cannot be told: {why}; make sure that none is")
        }));
        // A folder that does not say whose it is can still be read.
        let identity = Identity::load(&*disk);
        // A node has a log from before it has an identity on. One whose identity is damaged has one, too.
        let wal = match (WalState::of(&*disk), &identity) {
            (Err(WalError::Lost), Ok(None)) => None,
            (wal, _) => Some(wal),
        };
        let group = identity.ok().flatten().map(|identity| identity.group);
        let (snapshots, broken) = SnapshotStore::open_whole(disk, SNAPSHOTS_KEPT).map_err(SourceError::Snapshot)?;
        Ok(Kept { journal, snapshots, group, version, broken, wal, notes })
    }

    /// What somebody who reads it should know.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn broken(&self) -> &[SnapshotError] {
        &self.broken
    }

    pub(crate) fn wal(&self) -> Option<&WalState> {
        self.wal.as_ref()?.as_ref().ok()
    }

    /// Why it is not known what the write-ahead log remembers.
    pub(crate) fn unread_wal(&self) -> Option<&WalError> {
        self.wal.as_ref()?.as_ref().err()
    }
}

impl Kept {
    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }
}

/// What is not known here was written by a newer program if one had the folder; if none had, somebody altered it.
fn unopened(source: JournalError, version: Option<&str>) -> SourceError {
    match (source, version) {
        (source @ JournalError::Newer { .. }, Some(version)) if is_newer(version, env!("CARGO_PKG_VERSION")) => {
            SourceError::Newer { version: version.to_owned(), source }
        }
        (JournalError::Newer { file, offset, what }, Some(_)) => {
            SourceError::Journal(JournalError::Damaged { file, offset, what })
        }
        (source, _) => SourceError::Journal(source),
    }
}

impl Source for Kept {
    fn range(&self) -> Option<RangeInclusive<u64>> {
        Some(self.journal.first_index()?..=self.journal.last_index()?)
    }

    fn stretches(&self) -> Vec<RangeInclusive<u64>> {
        self.journal.stretches()
    }

    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, SourceError> {
        self.journal.read(from, bytes_max).map_err(SourceError::Journal)
    }

    fn stored_with(&self, index: u64) -> Option<RangeInclusive<u64>> {
        self.journal.stored_with(index)
    }

    fn starts(&self) -> Vec<u64> {
        self.snapshots.indexes()
    }

    fn start(&self, not_after: u64) -> Result<Option<State>, SourceError> {
        let index_of = |meta: &loadline_log::SnapshotMeta| meta.last.map_or(0, |last| last.index);
        let Some(file) = self.snapshots.newest_where(|meta| index_of(meta) <= not_after) else { return Ok(None) };
        let body = file.load().map_err(SourceError::Snapshot)?;
        open_state(index_of(file.meta()), Hash(file.meta().state_hash), &body, self.version()).map(Some)
    }

    fn hash_after(&self, index: u64) -> Result<Option<Hash>, SourceError> {
        match self.journal.hash_at(index) {
            // That it is damaged is said of the entry itself.
            Err(JournalError::Damaged { .. }) => Ok(None),
            hash => hash.map(|hash| hash.map(Hash)).map_err(SourceError::Journal),
        }
    }

    fn version(&self) -> Option<String> {
        self.version.clone()
    }

    fn group(&self) -> Option<String> {
        self.group.clone()
    }
}

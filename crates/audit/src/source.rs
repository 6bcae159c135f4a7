//! Where a history comes from.

use std::fmt;
use std::ops::RangeInclusive;

use loadline_log::export::ExportError;
use loadline_log::{JournalError, JournalRecord, OpenError, SnapshotError, is_newer};
use loadline_state_machine::{DecodeError, Hash, LogIndex, State};

/// Entries in the order of the log, with what each derived, and states to begin with.
pub trait Source: fmt::Debug + Sync {
    /// The first and the last entry that can be read. What is between may have gaps; [`Source::read`] says where.
    fn range(&self) -> Option<RangeInclusive<u64>>;

    /// The entries that can be read, as stretches without a gap, in their order.
    fn stretches(&self) -> Vec<RangeInclusive<u64>> {
        self.range().into_iter().collect()
    }

    /// Records from this entry on: at least one, then as many as fit into so many bytes, up to a gap. Behind the end there are
    /// none.
    fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, SourceError>;

    /// The entries that are stored as one piece with this one, so that damage anywhere in it concerns them all; none if that is not known.
    fn stored_with(&self, _index: u64) -> Option<RangeInclusive<u64>> {
        None
    }

    /// The entries after which a whole state is kept, oldest first.
    fn starts(&self) -> Vec<u64> {
        Vec::new()
    }

    /// The newest whole state that is kept and that is not later than after this entry. Without one, a history that begins with
    /// the first entry can still be replayed from the empty state.
    fn start(&self, not_after: u64) -> Result<Option<State>, SourceError>;

    /// The hash after an entry, also of one that cannot be read itself, because it is before the first of a stretch; none if nobody knows.
    fn hash_after(&self, _index: u64) -> Result<Option<Hash>, SourceError> {
        Ok(None)
    }

    /// The newest program that wrote to it, if that is known.
    fn version(&self) -> Option<String> {
        None
    }

    /// Of which group it is, if that is known.
    fn group(&self) -> Option<String> {
        None
    }
}

/// Why a history could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("cannot open the data folder")]
    Open(#[source] OpenError),
    #[error("cannot read the journal")]
    Journal(#[source] JournalError),
    #[error("cannot read the journal, which was written by version {version}; this is version {}", env!("CARGO_PKG_VERSION"))]
    Newer { version: String, source: JournalError },
    #[error(transparent)]
    Export(ExportError),
    #[error("cannot read a snapshot")]
    Snapshot(#[source] SnapshotError),
    #[error("the state of the snapshot at entry {index} cannot be read")]
    State { index: u64, source: DecodeError },
    #[error("the state of the snapshot at entry {index} was written by version {version}, and this is version {}", env!("CARGO_PKG_VERSION"))]
    NewerState { index: u64, version: String, source: DecodeError },
    #[error("the snapshot at entry {index} says that its hash is {says}, and its state has {has}")]
    SnapshotDiffers { index: u64, says: Hash, has: Hash },
}

impl SourceError {
    /// For an entry that is not there: the next one that is, if there is one.
    pub fn missing(&self) -> Option<Option<u64>> {
        match self {
            SourceError::Journal(JournalError::Missing { next, .. }) => Some(*next),
            _ => None,
        }
    }
}

/// The state in the body of a snapshot, if it is the one that its head says it is. `version`: the program that wrote it, as far as that is known.
pub(crate) fn open_state(index: u64, says: Hash, body: &[u8], version: Option<String>) -> Result<State, SourceError> {
    let state = State::decode(body).map_err(|source| match newer_writer(&source, version) {
        Some(version) => SourceError::NewerState { index, version, source },
        None => SourceError::State { index, source },
    })?;
    if state.applied() != LogIndex(index) || state.hash() != says {
        return Err(SourceError::SnapshotDiffers { index, says, has: state.hash() });
    }
    Ok(state)
}

/// The version that knows what this program does not, if it is a newer one that wrote it. What this very version, or an older one, is said to
/// have written and nobody knows was altered.
pub(crate) fn newer_writer(error: &DecodeError, version: Option<String>) -> Option<String> {
    version.filter(|version| error.is_newer() && is_newer(version, env!("CARGO_PKG_VERSION")))
}

//! Snapshots of the applied state: building them, and reading them back.

use std::io;
use std::sync::Arc;

use loadline_log::{SnapshotError, SnapshotFile};
use loadline_mutants::Mutant;
use loadline_state_machine::{Hash, LogIndex, State};
use openraft::{RaftSnapshotBuilder, Snapshot};

use super::published::View;
use super::{Storage, io_error, membership_record, retention};
use crate::clock::Clock;
use crate::errors::Malformed;
use crate::observer::NodeObserver;
use crate::types::{CommittedLeaderId, LogId, Member, SnapshotMeta, StoredMembership, Types, log_id, position};

/// A snapshot as openraft carries it around: a file that is complete, and its state if it was read already.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotData {
    pub(crate) file: SnapshotFile,
    pub(crate) state: Option<Arc<State>>,
}

pub(crate) type RaftSnapshot = Snapshot<CommittedLeaderId, u64, Member, SnapshotData>;

/// What openraft wants to know of a stored snapshot.
pub(crate) fn meta(stored: &loadline_log::SnapshotMeta) -> Result<SnapshotMeta, Malformed> {
    let membership = membership_record::decode(&stored.membership)?;
    Ok(SnapshotMeta {
        last_log_id: stored.last.map(log_id),
        last_membership: StoredMembership::new(stored.membership_at.map(log_id), membership),
    })
}

/// Reads the state of a snapshot, and checks that it is the one that the file says it is.
pub(crate) fn load(file: &SnapshotFile, storage: &Storage) -> io::Result<Arc<State>> {
    let body = file.load().map_err(|error| io_error(&error))?;
    decode(file.meta(), &body, storage)
}

/// The state in the body of a snapshot, if it is the one that `meta` says it is.
pub(crate) fn decode(meta: &loadline_log::SnapshotMeta, body: &[u8], storage: &Storage) -> io::Result<Arc<State>> {
    let index = LogIndex(meta.last.map_or(0, |last| last.index));
    let state = State::decode(body).map_err(|error| match error.is_newer() {
        true => io::Error::other(storage.too_new(&format!("the state of the snapshot at entry {index}"), &error)),
        false => io_error(&error),
    })?;
    if state.applied() != index || state.hash() != Hash(meta.state_hash) {
        return Err(io::Error::other(format!(
            "the snapshot says that it is index {index} with hash {}, but its state is index {} with hash {}",
            Hash(meta.state_hash),
            state.applied(),
            state.hash()
        )));
    }
    Ok(Arc::new(state))
}

/// Takes snapshots of whatever was applied when it was made.
#[derive(Debug)]
pub(crate) struct Builder {
    pub(crate) view: Arc<View>,
    pub(crate) group: String,
    pub(crate) storage: Storage,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn NodeObserver>,
}

impl Builder {
    /// Writes the snapshot. When this returns it is durable, and so is the journal up to it: Raft may purge.
    pub(crate) async fn write(&self) -> io::Result<SnapshotFile> {
        let started = self.clock.boottime();
        let view = self.view.clone();
        if view.failed {
            return Err(io::Error::other("an entry could not be applied; the state is not one to keep"));
        }
        let stored = loadline_log::SnapshotMeta {
            last: view.last.as_ref().map(position),
            membership_at: view.membership.log_id().as_ref().map(position),
            membership: membership_record::encode(view.membership.membership()),
            state_hash: view.state.hash().0,
            created_ms: self.clock.wall_ms(),
            group: self.group.clone(),
            incarnation: view.state.incarnation(),
        };
        let storage = self.storage.clone();
        let (file, gone) = self
            .storage
            .off_thread(move || {
                // First the journal: once the snapshot is there, Raft may purge the only other copy of these entries.
                if !Mutant::JournalGap.is_on() {
                    storage.journal.sync().map_err(|error| io_error(&error))?;
                }
                let file = storage
                    .snapshots
                    .write_in_pieces(&stored, |body| view.state.encode_in_pieces(|piece| body.add(piece)))
                    .map_err(|error: SnapshotError| io_error(&error))?;
                Ok((file, retention::let_go(&storage, &view.state)))
            })
            .await?;
        self.observer.history_let_go(gone);
        self.observer.snapshot_built(self.clock.boottime().saturating_sub(started), file.len());
        Ok(file)
    }
}

impl RaftSnapshotBuilder<Types> for Builder {
    type SnapshotData = SnapshotData;

    async fn build_snapshot(&mut self) -> io::Result<RaftSnapshot> {
        let file = self.write().await?;
        let meta = meta(file.meta()).map_err(|error| io_error(&error))?;
        tracing::info!(index = meta.last_log_id.as_ref().map(LogId::index), bytes = file.len(), "snapshot taken");
        Ok(Snapshot { meta, snapshot: SnapshotData { file, state: None } })
    }
}

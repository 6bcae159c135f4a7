//! openraft's storage, as thin adapters: the log over `loadline-log`, the state machine over `loadline-state-machine`.
//!
//! Nothing is decided here. What is durable when, and what damage means, is in `loadline-log`; what an entry does is
//! in `loadline-state-machine`.

mod audit;
pub(crate) mod log_store;
pub(crate) mod membership_record;
pub(crate) mod published;
pub(crate) mod retention;
pub(crate) mod snapshot;
pub(crate) mod state_machine;
#[cfg(test)]
mod suite_test;

use std::io;
use std::sync::Arc;

use loadline_log::{
    Journal, JournalOptions, SharedDisk, SnapshotStore, SnapshotsKept, Threading, Wal, WalObserver, WalOptions,
    newer_program,
};
use loadline_state_machine::DecodeError;

pub(crate) use self::audit::Audit;
use crate::config::NodeConfig;
use crate::errors::StartError;

/// Snapshots that Raft needs: the last one, and the one before it in case a transfer of it is under way.
const SNAPSHOTS_KEPT: usize = 2;

/// Entries between two snapshots that are kept as starts for replays. A replay from one to the next takes some seconds.
const STARTS_EVERY: u64 = 50_000;

/// Everything of this node that survives it.
#[derive(Debug, Clone)]
pub(crate) struct Storage {
    pub(crate) disk: SharedDisk,
    pub(crate) wal: Wal,
    pub(crate) snapshots: SnapshotStore,
    pub(crate) journal: Journal,
    pub(crate) audit: Option<Audit>,
    pub(crate) threading: Threading,
}

impl Storage {
    /// `expect_existing`: this folder has stood in a group before, so an empty log would be a lost one.
    pub(crate) fn open(
        disk: SharedDisk,
        config: &NodeConfig,
        expect_existing: bool,
        observer: Option<Arc<dyn WalObserver>>,
    ) -> Result<Self, StartError> {
        let NodeConfig { threading, wal_segment_bytes: segment_bytes, pace, audit_index, replay_starts, .. } = config;
        let (threading, segment_bytes, pace) = (*threading, *segment_bytes, pace.clone());
        let options = WalOptions { segment_bytes, threading, pace, observer, expect_existing, ..WalOptions::default() };
        let wal = Wal::open(disk.clone(), options).map_err(StartError::Wal)?;
        let snapshots = SnapshotStore::open(
            disk.clone(),
            SnapshotsKept { latest: SNAPSHOTS_KEPT, starts_max: *replay_starts, starts_every: STARTS_EVERY },
        )
        .map_err(StartError::Snapshots)?;
        let journal = Journal::open(
            disk.clone(),
            JournalOptions { segment_bytes: config.journal_segment_bytes, ..JournalOptions::default() },
        )
        .map_err(StartError::Journal)?;
        let audit = audit_index
            .as_deref()
            .map(|path| Audit::open(path, &journal))
            .transpose()
            .map_err(StartError::AuditIndex)?;
        Ok(Self { disk, wal, snapshots, journal, audit, threading })
    }

    /// Says of something that only a newer version can read which one of this group can.
    pub(crate) fn too_new(&self, what: &str, error: &DecodeError) -> String {
        let ours = env!("CARGO_PKG_VERSION");
        let whose = match newer_program(&*self.disk, ours) {
            Some(version) => format!("version {version} wrote to this group"),
            None => "which version wrote it is not known".to_owned(),
        };
        format!("{what} cannot be read: {error}; {whose}, and this is version {ours}")
    }

    /// Runs what takes long beside the async tasks, or in place where there are no threads.
    pub(crate) async fn off_thread<T, W>(&self, work: W) -> io::Result<T>
    where
        T: Send + 'static,
        W: FnOnce() -> io::Result<T> + Send + 'static,
    {
        match self.threading {
            Threading::Inline => work(),
            Threading::Thread => tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?,
        }
    }
}

/// An error of the layers below as openraft wants it, with every cause in the text: openraft keeps only the text.
pub(crate) fn io_error(error: &dyn std::error::Error) -> io::Error {
    io::Error::other(causes(error))
}

/// An error and everything behind it, in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

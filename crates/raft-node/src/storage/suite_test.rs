//! openraft's own test suite, run on this storage, over both kinds of disk.

use std::io;
use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use loadline_log::{ModelDisk, RealDisk, SharedDisk, Threading};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::{OptionalSend, StorageError};

use super::Storage;
use super::log_store::LogStore;
use super::published::Published;
use super::snapshot::{Builder, RaftSnapshot, SnapshotData};
use super::state_machine::{Machine, Surroundings};
use crate::clock::SystemClock;
use crate::config::NodeConfig;
use crate::observer::NoObserver;
use crate::stop::StopSignal;
use crate::types::{Entry, EntryPayload, LogId, SnapshotMeta, StoredMembership, Types, new_log_id, term};

/// The suite applies entries with holes between their indexes, which Raft never does and which our state machine takes
/// for a lost place in the log. This fills the holes with entries that do nothing.
struct Bridged(Machine);

impl RaftStateMachine<Types> for Bridged {
    type SnapshotData = SnapshotData;
    type SnapshotBuilder = Builder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        self.0.applied_state().await
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + OptionalSend,
    {
        let mut next = self.applied_state().await?.0.map_or(0, |last| last.index() + 1);
        let mut bridged = Vec::new();
        while let Some(entry) = entries.next().await {
            let (entry, responder) = entry?;
            let term = term(&entry.log_id);
            let blank = |index| Entry { log_id: new_log_id(term, index), payload: EntryPayload::Blank };
            bridged.extend((next..entry.log_id.index()).map(|index| Ok((blank(index), None))));
            next = entry.log_id.index() + 1;
            bridged.push(Ok((entry, responder)));
        }
        self.0.apply(stream::iter(bridged)).await
    }

    async fn get_snapshot_builder(&mut self) -> Builder {
        self.0.get_snapshot_builder().await
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, data: SnapshotData) -> io::Result<()> {
        self.0.install_snapshot(meta, data).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<RaftSnapshot>> {
        self.0.get_current_snapshot().await
    }
}

/// Makes an empty disk, and whatever must outlive it.
struct Stores<F>(F, Threading);

impl<F, G> StoreBuilder<Types, LogStore, Bridged, G> for Stores<F>
where
    F: Fn() -> (SharedDisk, G) + Send + Sync,
    G: Send + Sync,
{
    async fn build(&self) -> Result<(G, LogStore, Bridged), StorageError<Types>> {
        let (disk, guard) = self.0();
        let config = NodeConfig {
            threading: self.1,
            wal_segment_bytes: 1 << 20,
            replay_starts: 0,
            ..NodeConfig::new("suite", "127.0.0.1:7")
        };
        let storage = Storage::open(disk, &config, false, None).unwrap();
        let log = LogStore::new(storage.wal.clone(), 1);
        let machine = Machine::new(Surroundings {
            group: "suite".to_owned(),
            storage,
            published: Arc::new(Published::default()),
            packed: Arc::default(),
            clock: Arc::new(SystemClock),
            observer: Arc::new(NoObserver),
            stop: StopSignal::default(),
        });
        Ok((guard, log, Bridged(machine)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openrafts_suite_passes_on_a_real_disk() {
    let disk = || {
        let folder = tempfile::tempdir().unwrap();
        let disk: SharedDisk = Arc::new(RealDisk::open(folder.path()).unwrap());
        (disk, folder)
    };
    Suite::test_all(Stores(disk, Threading::Thread)).await.unwrap();
}

#[tokio::test]
async fn openrafts_suite_passes_on_a_modelled_disk_without_threads() {
    let disk = || {
        let disk: SharedDisk = Arc::new(ModelDisk::new(1));
        (disk, ())
    };
    Suite::test_all(Stores(disk, Threading::Inline)).await.unwrap();
}

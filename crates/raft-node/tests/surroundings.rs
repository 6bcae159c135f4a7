//! The same node on a real disk with an audit index, and on one thread without any.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops where it is")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{create_cluster, eventually};
use loadline_log::{ModelDisk, RealDisk, SharedDisk, Threading};
use loadline_raft_node::{Node, NodeConfig, NodeObserver, PlainDial, Role, StartError, SystemClock, seed_randomness};
use loadline_state_machine::{JournalEntry, LogIndex, ResourceName, audit};

#[derive(Debug, Default)]
struct Counter {
    synced: AtomicUsize,
    applied: AtomicUsize,
    proposed: AtomicUsize,
    answered: AtomicUsize,
    elected: AtomicUsize,
    snapshots: AtomicUsize,
}

impl NodeObserver for Counter {
    fn synced(&self, _took: Duration, _bytes: usize, records: usize) {
        self.synced.fetch_add(records, Ordering::Relaxed);
    }

    fn applied(&self, entries: usize, _took: Duration) {
        self.applied.fetch_add(entries, Ordering::Relaxed);
    }

    fn proposed(&self, requests: usize, _bytes: usize) {
        self.proposed.fetch_add(requests, Ordering::Relaxed);
    }

    fn answered(&self, _took: Duration) {
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    fn elected(&self) {
        self.elected.fetch_add(1, Ordering::Relaxed);
    }

    fn snapshot_built(&self, _took: Duration, _bytes: u64) {
        self.snapshots.fetch_add(1, Ordering::Relaxed);
    }
}

/// A node that is a group of its own, so that it needs no network.
fn alone() -> NodeConfig {
    let mut config = NodeConfig::new("alone", "127.0.0.1:7");
    config.disk_reserve_bytes = 0;
    config.snapshot_every = 20;
    config.keep_entries = 5;
    config
}

async fn start(config: NodeConfig, disk: SharedDisk, counter: &Arc<Counter>) -> Result<Node, StartError> {
    Node::start(config, disk, Arc::new(PlainDial), Arc::new(SystemClock), counter.clone()).await
}

async fn create(node: &Node, name: &str) -> LogIndex {
    let receipt = eventually("a receipt", async || node.propose(create_cluster(name)).await.ok()).await;
    receipt.result.unwrap();
    receipt.index
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_disk_everything_survives_and_history_is_found_by_key() {
    let folder = tempfile::tempdir().unwrap();
    let counter = Arc::new(Counter::default());
    let disk = |path: &Path| -> SharedDisk { Arc::new(RealDisk::open(path).unwrap()) };
    let config = NodeConfig { audit_index: Some(folder.path().join("audit")), ..alone() };
    let data = folder.path().join("data");
    let mut recorded = Vec::new();
    for life in 0..3 {
        let node = start(config.clone(), disk(&data), &counter).await.unwrap();
        for count in 0..30 {
            recorded.push((format!("c{life}-{count}"), create(&node, &format!("c{life}-{count}")).await));
        }
        let index = node.audit_index().unwrap();
        for (name, at) in &recorded {
            let key = audit::resource_key(&ResourceName::cluster(name.clone()));
            assert_eq!(index.find(&key, None, 10).unwrap(), [at.0], "{name}");
            let record = node.journal().read(at.0, 1).unwrap().remove(0);
            let JournalEntry::Requests(sealed) = JournalEntry::decode(&record.entry).unwrap() else {
                panic!("entry {at} is a request");
            };
            assert!(!sealed.entry().requests.is_empty());
        }
        node.shutdown().await;
        // Whatever still holds the folder would keep the next life out.
        drop(node);
    }
    assert!(counter.snapshots.load(Ordering::Relaxed) > 0);
    assert!(counter.synced.load(Ordering::Relaxed) >= 90);
    assert!(counter.applied.load(Ordering::Relaxed) >= 90);
    assert!(counter.proposed.load(Ordering::Relaxed) >= 90);
    assert_eq!(counter.answered.load(Ordering::Relaxed), 90);
    assert_eq!(counter.elected.load(Ordering::Relaxed), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_gone_is_not_taken_for_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let counter = Arc::new(Counter::default());
    let disk = || -> SharedDisk { Arc::new(RealDisk::open(folder.path()).unwrap()) };
    let node = start(alone(), disk(), &counter).await.unwrap();
    create(&node, "demo").await;
    node.shutdown().await;
    drop(node);
    std::fs::remove_dir_all(folder.path().join("wal")).unwrap();
    let error = start(alone(), disk(), &counter).await.unwrap_err();
    let StartError::Wal(source) = error else { panic!("{error}") };
    assert!(source.to_string().contains("remove-peer"), "{source}");
}

#[test]
fn without_threads_everything_happens_on_the_one_that_is_there() {
    let life = |disk: &ModelDisk, name: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        seed_randomness(7);
        runtime.block_on(async {
            let config = NodeConfig { threading: Threading::Inline, ..alone() };
            let node = start(config, Arc::new(disk.clone()), &Arc::default()).await.unwrap();
            for count in 0..50 {
                create(&node, &format!("{name}-{count}")).await;
            }
            assert_eq!(node.status().role, Role::Leader);
            eventually("a snapshot", async || (node.status().snapshot_index > 20).then_some(())).await;
            node.latest().cluster_count()
        })
    };
    let mut disk = ModelDisk::new(1);
    assert_eq!(life(&disk, "first"), 50);
    disk.power_cut();
    disk = disk.reopen();
    assert_eq!(life(&disk, "second"), 100);
}

//! The claims of the write-ahead log, by what they are about.

mod basics;
mod damage;
mod failures;
mod power_cut;

use std::{
    io,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use bytes::Bytes;
use tempfile::TempDir;

use super::*;
use crate::disk::{ModelDisk, RealDisk};

/// A disk that outlives the processes that use it.
pub(super) enum TestDisk {
    Real(TempDir),
    Model(ModelDisk),
}

impl TestDisk {
    /// Both kinds, for claims that hold on both.
    pub(super) fn both() -> [Self; 2] {
        [Self::Model(ModelDisk::new(1)), Self::Real(TempDir::new().unwrap())]
    }

    /// The handle of a new process. The one before must have let go.
    pub(super) fn disk(&self) -> SharedDisk {
        match self {
            Self::Real(dir) => Arc::new(RealDisk::open(dir.path()).unwrap()),
            Self::Model(disk) => Arc::new(disk.reopen()),
        }
    }

    pub(super) fn open(&self, threading: Threading) -> Wal {
        Wal::open(self.disk(), small(threading)).unwrap()
    }
}

/// The smallest segments and hardly any cache, so that every test rolls, and reads from disk.
pub(super) fn small(threading: Threading) -> WalOptions {
    WalOptions { segment_bytes: 4096, threading, cache_bytes: 256, ..WalOptions::default() }
}

pub(super) fn at(term: u64, index: u64) -> LogPosition {
    LogPosition { term, node: 1, index }
}

pub(super) fn record(term: u64, index: u64, bytes: usize) -> Record {
    let payload: Vec<u8> = (0..bytes).map(|nth| (index as usize * 31 + term as usize * 7 + nth) as u8).collect();
    Record { id: at(term, index), kind: (index % 5) as u8, payload: Bytes::from(payload) }
}

/// Calls and waits for `Done`.
pub(super) fn wait(call: impl FnOnce(Done)) -> io::Result<()> {
    let (done, result) = mpsc::channel();
    call(Box::new(move |outcome| done.send(outcome).unwrap()));
    result.recv_timeout(Duration::from_secs(30)).expect("Done is called")
}

pub(super) fn append(wal: &Wal, records: Vec<Record>) {
    wait(|done| wal.append(records, done)).unwrap();
}

pub(super) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::yield_now();
    }
}

pub(super) fn all(wal: &Wal) -> Vec<Record> {
    wal.read(0..u64::MAX, usize::MAX).unwrap()
}

//! Snapshots: whole states, each in a file that is complete or not there.
use std::{io, path::Path};

use bytes::Bytes;

use crate::{disk::SharedDisk, wal::LogPosition};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    pub last: Option<LogPosition>,
    pub membership_at: Option<LogPosition>,
    pub membership: Bytes,
    pub state_hash: [u8; 32],
    pub created_ms: u64,
    pub group: String,
    pub incarnation: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
}

#[derive(Clone, Debug)]
pub struct SnapshotStore;
impl SnapshotStore {
    pub fn open(_disk: SharedDisk, _keep: usize) -> Result<Self, SnapshotError> {
        todo!()
    }
    pub fn latest(&self) -> Option<SnapshotFile> {
        todo!()
    }
    pub fn write(&self, _meta: &SnapshotMeta, _body: &[u8]) -> Result<SnapshotFile, SnapshotError> {
        todo!()
    }
    pub fn receive(&self) -> Result<SnapshotReceiver, SnapshotError> {
        todo!()
    }
}

#[derive(Clone, Debug)]
pub struct SnapshotFile;
impl SnapshotFile {
    pub fn meta(&self) -> &SnapshotMeta {
        todo!()
    }
    pub fn len(&self) -> u64 {
        todo!()
    }
    pub fn is_empty(&self) -> bool {
        todo!()
    }
    pub fn read_at(&self, _offset: u64, _len: usize) -> Result<Vec<u8>, SnapshotError> {
        todo!()
    }
    pub fn load(&self) -> Result<Vec<u8>, SnapshotError> {
        todo!()
    }
}

#[derive(Debug)]
pub struct SnapshotReceiver;
impl SnapshotReceiver {
    pub fn write_chunk(&mut self, _chunk: &[u8]) -> Result<(), SnapshotError> {
        todo!()
    }
    pub fn finish(self) -> Result<SnapshotFile, SnapshotError> {
        todo!()
    }
}

pub fn read_file(_path: &Path) -> Result<(SnapshotMeta, Vec<u8>), SnapshotError> {
    todo!()
}
pub fn parse_bytes(_bytes: &[u8]) -> Result<(SnapshotMeta, Vec<u8>), SnapshotError> {
    todo!()
}

//! Reading an export: once through ([`super::scan`]); then whichever block is asked for.

use std::{
    fs::File,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::{Arc, Mutex},
};

use super::{
    ExportEnd, ExportError, ExportHead, Fault, io_error,
    scan::{Read, Scan},
};
use crate::{
    frame::{Family, HEADER_BYTES, frame_at},
    journal::{JournalRecord, format},
    lock,
    snapshot::{SnapshotError, SnapshotMeta, parse_bytes},
};

/// An export whose frames have been read.
#[derive(Debug)]
pub struct Export {
    file: File,
    bytes: u64,
    head: ExportHead,
    /// The frames that hold the state before the first entry.
    state: Vec<Place>,
    blocks: Vec<Block>,
    end: Option<ExportEnd>,
    /// The block that was unpacked last: readers come in order, and most want the rest of it next.
    last: Mutex<Option<(u64, Arc<Vec<JournalRecord>>)>>,
}

/// An export as far as it can be read.
#[derive(Debug)]
pub struct Scanned {
    /// Everything before the fault.
    pub export: Export,
    /// The first thing that is not as a node wrote it.
    pub fault: Option<Fault>,
}

/// A frame in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) first: u64,
    pub(super) count: u32,
    pub(super) place: Place,
}

impl Block {
    pub(super) fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }
}

impl Export {
    /// Opens an export and reads it to the end: every frame, the chain of its blocks, and the signature must be right. `tell` hears how
    /// many of how many bytes have been read.
    pub fn open(path: &Path, tell: impl FnMut(u64, u64)) -> Result<Self, ExportError> {
        let Scanned { export, fault } = Self::scan(path, tell)?;
        match fault {
            None => Ok(export),
            Some(fault) if fault.newer => Err(ExportError::Newer { what: fault.to_string() }),
            Some(fault) => Err(ExportError::Damaged(fault)),
        }
    }

    /// Reads an export as far as it is one. `tell` hears how many of how many bytes have been read.
    pub fn scan(path: &Path, tell: impl FnMut(u64, u64)) -> Result<Scanned, ExportError> {
        let file = File::open(path).map_err(io_error(format!("open {}", path.display())))?;
        let metadata = file.metadata().map_err(io_error(format!("read {}", path.display())))?;
        if !metadata.is_file() {
            // A pipe has no length and cannot be read twice: what came through it would be taken for a file that was cut off.
            let what = std::io::Error::other("it is no regular file; write what it holds into one first");
            return Err(io_error(format!("read {}", path.display()))(what));
        }
        let bytes = metadata.len();
        let (read, fault) = Scan::of(&file, bytes)?.run(tell)?;
        let Read { head, state, blocks, end } = read;
        Ok(Scanned { export: Self { file, bytes, head, state, blocks, end, last: Mutex::default() }, fault })
    }

    pub fn head(&self) -> &ExportHead {
        &self.head
    }

    /// None if there is a fault before it.
    pub fn end(&self) -> Option<&ExportEnd> {
        self.end.as_ref()
    }

    /// Of the file.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Never: an export has at least its head.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The last entry that can be read.
    pub fn last_index(&self) -> Option<u64> {
        self.blocks.last().map(Block::last)
    }

    /// The first entry of every block, with its place in the file.
    pub fn block_places(&self) -> impl Iterator<Item = (u64, u64)> {
        self.blocks.iter().map(|block| (block.first, block.place.offset))
    }

    /// Records from this entry on: at least one if there is any, then as many as fit into so many bytes.
    pub fn read(&self, from: u64, bytes_max: usize) -> Result<Vec<JournalRecord>, ExportError> {
        let mut found: Vec<JournalRecord> = Vec::new();
        let mut bytes = 0_usize;
        let mut at = self.blocks.partition_point(|block| block.last() < from);
        while let Some(block) = self.blocks.get(at) {
            let records = self.unpack(block)?;
            for record in records.iter().filter(|record| record.index >= from) {
                bytes = bytes.saturating_add(record.bytes());
                if bytes > bytes_max && !found.is_empty() {
                    return Ok(found);
                }
                found.push(record.clone());
            }
            at += 1;
        }
        Ok(found)
    }

    /// The state before the first entry, if the export carries one.
    pub fn state(&self) -> Result<Option<(SnapshotMeta, Vec<u8>)>, ExportError> {
        let Some(first) = self.state.first() else { return Ok(None) };
        let mut bytes = Vec::new();
        for place in &self.state {
            bytes.extend_from_slice(&self.frame(*place)?[HEADER_BYTES..]);
        }
        let fault = |error: SnapshotError| {
            let what = format!("the state before the first entry cannot be used: {error}");
            ExportError::Damaged(Fault { entries: None, offset: first.offset, what, newer: false })
        };
        parse_bytes(&bytes).map(Some).map_err(fault)
    }

    fn unpack(&self, block: &Block) -> Result<Arc<Vec<JournalRecord>>, ExportError> {
        if let Some((first, records)) = &*lock(&self.last)
            && *first == block.first
        {
            return Ok(records.clone());
        }
        let fault = |what: String| {
            let entries = Some((block.first, Some(block.last())));
            ExportError::Damaged(Fault { entries, offset: block.place.offset, what, newer: false })
        };
        let bytes = self.frame(block.place)?;
        // It was right when the file was opened; somebody may be writing to it.
        let frame = frame_at(&bytes, 0, Family::Export).map_err(|error| fault(error.to_string()))?;
        let records = format::unpack(frame.body).map_err(|error| fault(error.to_string()))?;
        if records.first().map(|record| record.index) != Some(block.first) || records.len() != block.count as usize {
            return Err(fault("the block has changed since it was opened".to_owned()));
        }
        let records = Arc::new(records);
        *lock(&self.last) = Some((block.first, records.clone()));
        Ok(records)
    }

    fn frame(&self, place: Place) -> Result<Vec<u8>, ExportError> {
        let mut bytes = vec![0; usize::try_from(place.bytes).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, place.offset).map_err(io_error("read the export"))?;
        Ok(bytes)
    }
}

//! Writing blocks, marks, seals and the heads of new segments. Always under the journal's lock; what syncs, also under the
//! lock for that.

use std::io;

use super::{
    Current, Inner, JournalError, SealedSegment, SegmentFile,
    format::{self, BlockPlace, Hash, Head, Seal},
    io_error,
    read::Block,
};
use crate::{
    disk::TEMP_SUFFIX,
    encoding::PutFields as _,
    frame::{Chain, Family, HEADER_BYTES},
};

/// Like in the write-ahead log: what is before a mark has been promised, so that rot there will be noticed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mark {
    Opened,
    Closed,
}

impl Inner {
    /// The last entry, written or waiting.
    pub(super) fn last(&self) -> Option<(u64, Hash)> {
        self.waiting.last().map(|record| (record.index, record.hash)).or(self.written)
    }

    /// Whether the segment that is appended to is as large as it may be.
    pub(super) fn is_full(&self) -> bool {
        self.current.as_ref().is_some_and(|current| current.len >= self.options.segment_bytes)
    }

    /// Runs something that writes. Its first failure is the last: nobody can say what is on disk then.
    pub(super) fn guarded<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        let result = work(self);
        if let Err(error) = &result {
            tracing::error!(%error, "the journal has failed and takes nothing more");
            let reason = match error {
                JournalError::Io { source, .. } => format!("{error}: {source}"),
                other => other.to_string(),
            };
            self.failed.get_or_insert(reason);
        }
        result
    }

    /// Appends frames, made by `put`, to the current segment.
    fn write(
        &mut self,
        put: impl FnOnce(&mut Chain, &mut Vec<u8>, u32) -> io::Result<()>,
    ) -> Result<(u64, u64), JournalError> {
        let Some(current) = &mut self.current else {
            return Err(JournalError::Failed { reason: "there is no segment to write to".to_owned() });
        };
        let number = current.segment.number;
        let mut chain = Chain { family: Family::Journal, segment: number, link: self.link };
        let mut buffer = Vec::new();
        u32::try_from(current.synced)
            .map_err(io::Error::other)
            .and_then(|synced| put(&mut chain, &mut buffer, synced))
            .and_then(|()| current.segment.file()?.write_at(&buffer, current.len))
            .map_err(io_error(format!("write {}", format::path(number))))?;
        self.link = chain.link;
        let offset = current.len;
        current.len += buffer.len() as u64;
        Ok((offset, buffer.len() as u64))
    }

    /// Writes the records that wait as one block.
    pub(super) fn write_block(&mut self) -> Result<(), JournalError> {
        let Some(first) = self.waiting.first().map(|record| record.index) else { return Ok(()) };
        if self.current.is_none() {
            self.begin_segment(false)?;
        }
        let body = self.packer.pack(&self.chain, &self.waiting).map_err(io_error("pack a block of the journal"))?;
        let (offset, bytes) = self
            .write(|chain, buffer, synced| Ok(chain.put(buffer, format::BLOCK, synced, |out| out.put_raw(&body))?))?;
        let too_large = |_| JournalError::Failed { reason: "a block of the journal is too large".to_owned() };
        let place = BlockPlace {
            first,
            count: u32::try_from(self.waiting.len()).map_err(too_large)?,
            offset: u32::try_from(offset).map_err(too_large)?,
            bytes: u32::try_from(bytes).map_err(too_large)?,
        };
        if let Some(current) = &mut self.current {
            current.places.push(place);
            self.blocks.push(Block { segment: current.segment.clone(), place });
        }
        self.chain = format::hash(&body);
        self.written = self.last();
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    pub(super) fn write_mark(&mut self, mark: Mark) -> Result<(), JournalError> {
        if self.current.is_none() {
            return Ok(());
        }
        let mark = match mark {
            Mark::Opened => 1,
            Mark::Closed => 2,
        };
        self.write(|chain, buffer, synced| Ok(chain.put(buffer, format::MARK, synced, |out| out.put_u8(mark))?))?;
        self.sync_current()
    }

    pub(super) fn sync_current(&mut self) -> Result<(), JournalError> {
        if let Some(current) = &mut self.current {
            let syncing = io_error(format!("sync {}", format::path(current.segment.number)));
            current.segment.file().and_then(|file| file.sync_all()).map_err(syncing)?;
            current.synced = current.len;
        }
        self.synced_index = self.written.map(|(index, _)| index);
        Ok(())
    }

    /// Ends the current segment, durably. What follows goes into a new one.
    pub(super) fn seal(&mut self) -> Result<(), JournalError> {
        // The seal promises what is before it.
        self.sync_current()?;
        let Some(current) = &self.current else { return Ok(()) };
        let places = current.places.clone();
        let (offset, before, last) = (current.len, self.chain, self.written);
        self.write(|chain, buffer, synced| {
            chain.put(buffer, format::INDEX, synced, |out| format::encode_index(&places, out))?;
            let seal = Seal { index_offset: u32::try_from(offset).map_err(io::Error::other)?, chain: before, last };
            Ok(chain.put(buffer, format::SEAL, synced, |out| seal.encode(out))?)
        })?;
        self.sync_current()?;
        if let Some(sealed) = self.current.take() {
            sealed.segment.let_go();
            let (number, last) = (sealed.segment.number, self.written.map(|(last, _)| last));
            self.sealed.push(SealedSegment { number, last, bytes: sealed.len });
        }
        Ok(())
    }

    /// Makes the next segment, with its head in place before it gets its name.
    pub(super) fn begin_segment(&mut self, gap: bool) -> Result<(), JournalError> {
        let number = self.number + 1;
        let path = format::path(number);
        let temp = format!("{path}{TEMP_SUFFIX}");
        let head = Head { chain: self.chain, base: self.written, gap };
        let mut chain = Chain { family: Family::Journal, segment: number, link: self.link };
        let mut buffer = Vec::new();
        let made = chain
            .put(&mut buffer, format::HEAD, 0, |out| head.encode(out))
            .map_err(io::Error::from)
            .and_then(|()| self.disk.open(&temp, true))
            .and_then(|file| {
                file.set_len(0)?;
                file.write_at(&buffer, 0)?;
                file.sync_all()?;
                self.disk.rename(&temp, &path)?;
                self.disk.sync_dir(format::DIR)?;
                Ok(file)
            });
        let file = made.map_err(|source| {
            let _ = self.disk.remove(&temp);
            JournalError::Io { doing: format!("create {path}"), source }
        })?;
        self.number = number;
        self.link = chain.link;
        self.chain = format::hash(&buffer[HEADER_BYTES..]);
        self.bases.extend(head.base);
        let len = buffer.len() as u64;
        let segment = SegmentFile::new(self.disk.clone(), number, file);
        self.current = Some(Current { segment, len, synced: len, places: Vec::new() });
        if gap {
            self.synced_index = self.written.map(|(index, _)| index);
        }
        Ok(())
    }
}

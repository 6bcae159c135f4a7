//! Writing an export, record by record, to wherever it goes. Nothing but the block that is being filled is in memory.

use std::io;

use super::{BLOCK, END, ExportEnd, ExportError, ExportHead, HEAD, Hash, STATE, io_error, signed_message};
use crate::{
    encoding::PutFields as _,
    frame::{Chain, Family},
    journal::{
        JournalRecord,
        format::{self, Packer},
    },
    signing::{SIGNATURE_BYTES, SigningKey},
};

/// Bytes of records, before compression, that make a block: as in the journal.
const BLOCK_BYTES: usize = 64 << 10;

/// Bytes of the state per frame.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// See the module. Without [`Self::finish`] the file has no end, and nobody takes it for whole.
#[derive(Debug)]
pub struct ExportWriter<'a, W> {
    out: W,
    key: &'a SigningKey,
    head: ExportHead,
    frames: Chain,
    packer: Packer,
    /// Over every byte that was written.
    hasher: blake3::Hasher,
    /// Of the block before.
    chain: Hash,
    waiting: Vec<JournalRecord>,
    waiting_bytes: usize,
    last: (u64, Hash),
    blocks: u64,
}

impl<'a, W: io::Write> ExportWriter<'a, W> {
    /// Begins an export of the entries that the head names, whose key becomes `key`. `state` are the bytes of a snapshot of the
    /// state before the first entry, and needed unless that is entry 1.
    pub fn begin(
        out: W,
        head: ExportHead,
        state: Option<&[u8]>,
        key: &'a SigningKey,
    ) -> Result<ExportWriter<'a, W>, ExportError> {
        let head = ExportHead { public_key: key.public(), ..head };
        let mut writer = Self {
            out,
            key,
            frames: Chain { family: Family::Export, segment: 0, link: 0 },
            packer: Packer::new().map_err(io_error("set up compression"))?,
            hasher: blake3::Hasher::new(),
            chain: Hash::default(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            last: (head.first.saturating_sub(1), head.base_hash),
            blocks: 0,
            head,
        };
        let mut body = Vec::new();
        writer.head.encode(&mut body);
        writer.put(HEAD, &body)?;
        writer.chain = format::hash(&body);
        for piece in state.unwrap_or_default().chunks(PIECE_BYTES) {
            writer.put(STATE, piece)?;
        }
        Ok(writer)
    }

    /// Where it goes.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// Adds the next record.
    pub fn add(&mut self, record: JournalRecord) -> Result<(), ExportError> {
        let (last, _) = self.last;
        if record.index != last + 1 || record.index > self.head.last {
            return Err(ExportError::OutOfOrder { index: record.index, last });
        }
        self.last = (record.index, record.hash);
        self.waiting_bytes += record.bytes();
        self.waiting.push(record);
        if self.waiting_bytes >= BLOCK_BYTES {
            self.put_block()?;
        }
        Ok(())
    }

    /// Writes what waits, and the signature. Only now it is an export.
    pub fn finish(mut self) -> Result<W, ExportError> {
        let ExportHead { first, last, .. } = self.head;
        let (ended, last_hash) = self.last;
        if ended != last {
            return Err(ExportError::Incomplete { first, last, ended });
        }
        self.put_block()?;
        let mut end = ExportEnd {
            entries: last - first + 1,
            blocks: self.blocks,
            last_hash,
            chain: self.chain,
            signature: [0; SIGNATURE_BYTES],
        };
        end.signature = self.key.sign(&signed_message(self.hasher.clone(), &end));
        let mut body = Vec::new();
        end.encode_unsigned(&mut body);
        body.put_raw(&end.signature);
        self.put(END, &body)?;
        self.out.flush().map_err(io_error("write the export"))?;
        Ok(self.out)
    }

    fn put_block(&mut self) -> Result<(), ExportError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let body = self.packer.pack(&self.chain, &self.waiting).map_err(io_error("pack a block of the export"))?;
        self.put(BLOCK, &body)?;
        self.chain = format::hash(&body);
        self.blocks += 1;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    fn put(&mut self, kind: u16, body: &[u8]) -> Result<(), ExportError> {
        let mut bytes = Vec::with_capacity(body.len() + crate::frame::HEADER_BYTES);
        self.frames
            .put(&mut bytes, kind, 0, |out| out.put_raw(body))
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(&bytes))
            .map_err(io_error("write the export"))?;
        self.hasher.update(&bytes);
        Ok(())
    }
}

//! A stretch of history in one signed file, for somebody who has nothing else.
//!
//! ```text
//! frame HEAD    whose history, which entries, the hash before the first, the public key
//! frame STATE*  unless the first entry is 1: the state before it, as the bytes of a snapshot, in pieces
//! frame BLOCK*  the records, packed as in the journal; each block carries the hash of the one before, the first that of HEAD
//! frame END     how many, the last hash, and the signature over the blake3 of all bytes before the signature
//! ```
//!
//! The frames are the ones of every other file of ours, so a flipped bit is found where it is; the blocks are chained, so a
//! block that is missing, repeated, in another place or from another file is found where it is; and what somebody rewrote from
//! there to the end, checksums and chain and all, lacks the signature.
//!
//! Not here: what entries mean, and whether they lead where they say they led (`loadline-audit`).

mod reader;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

use std::io;

pub use self::{
    reader::{Export, Scanned},
    writer::ExportWriter,
};
use crate::{
    encoding::{Fields, Malformed, PutFields as _},
    signing::{PUBLIC_KEY_BYTES, SIGNATURE_BYTES},
};

/// The only format so far. It is the first field of the head.
const FORMAT: u32 = 1;

const HEAD: u16 = 1;
const STATE: u16 = 2;
const BLOCK: u16 = 3;
const END: u16 = 4;

type Hash = [u8; 32];

/// Whose history an export is, and which part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportHead {
    pub group: String,
    pub node_id: u64,
    pub node_name: String,
    pub incarnation: u64,
    /// Of the program that wrote it.
    pub version: String,
    pub made_ms: u64,
    /// The first and the last entry.
    pub first: u64,
    pub last: u64,
    /// The hash after the entry before the first.
    pub base_hash: [u8; 32],
    /// Of the node that signed it, as its `status` shows it.
    pub public_key: [u8; PUBLIC_KEY_BYTES],
}

impl ExportHead {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(FORMAT);
        out.put_bytes(self.group.as_bytes());
        out.put_u64(self.node_id);
        out.put_bytes(self.node_name.as_bytes());
        out.put_u64(self.incarnation);
        out.put_bytes(self.version.as_bytes());
        out.put_u64(self.made_ms);
        out.put_u64(self.first);
        out.put_u64(self.last);
        out.put_raw(&self.base_hash);
        out.put_raw(&self.public_key);
    }

    /// Which program wrote a head, whatever its format: whoever makes a new one leaves what is before the version as it is.
    fn version_in(body: &[u8]) -> Option<String> {
        let mut fields = Fields(body);
        fields.u32().ok()?;
        fields.string().ok()?;
        fields.u64().ok()?;
        fields.string().ok()?;
        fields.u64().ok()?;
        fields.string().ok().filter(|version| version.len() <= 64 && version.chars().all(|c| c.is_ascii_graphic()))
    }

    /// `Err` with a number: it is of a format that this program does not know.
    fn decode(body: &[u8]) -> Result<Result<Self, u32>, Malformed> {
        let mut fields = Fields(body);
        let format = fields.u32()?;
        if format != FORMAT {
            return Ok(Err(format));
        }
        let head = Self {
            group: fields.string()?,
            node_id: fields.u64()?,
            node_name: fields.string()?,
            incarnation: fields.u64()?,
            version: fields.string()?,
            made_ms: fields.u64()?,
            first: fields.u64()?,
            last: fields.u64()?,
            base_hash: fields.array()?,
            public_key: fields.array()?,
        };
        fields.end()?;
        if head.first == 0 || head.last < head.first {
            return Err(Malformed("the head names no entries"));
        }
        Ok(Ok(head))
    }
}

/// How an export ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportEnd {
    pub entries: u64,
    pub blocks: u64,
    /// The hash after the last entry.
    pub last_hash: [u8; 32],
    /// The hash of the last block.
    chain: Hash,
    signature: [u8; SIGNATURE_BYTES],
}

impl ExportEnd {
    /// Everything but the signature, which is over it as well.
    fn encode_unsigned(&self, out: &mut Vec<u8>) {
        out.put_u64(self.entries);
        out.put_u64(self.blocks);
        out.put_raw(&self.last_hash);
        out.put_raw(&self.chain);
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let end = Self {
            entries: fields.u64()?,
            blocks: fields.u64()?,
            last_hash: fields.array()?,
            chain: fields.array()?,
            signature: fields.array()?,
        };
        fields.end()?;
        Ok(end)
    }
}

/// What is signed: the hash of all bytes before the end, and what the end says.
fn signed_message(mut before: blake3::Hasher, end: &ExportEnd) -> Vec<u8> {
    let mut unsigned = Vec::new();
    end.encode_unsigned(&mut unsigned);
    before.update(&unsigned);
    // No other signature of this key can be taken for one under an export.
    let mut message = b"loadline export\0".to_vec();
    message.put_raw(before.finalize().as_bytes());
    message
}

/// Where an export is not what a node wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The entries that are concerned: the first, and the last if it can be told.
    pub entries: Option<(u64, Option<u64>)>,
    /// In the file.
    pub offset: u64,
    pub what: String,
    /// A newer program wrote it, and that one can read it.
    pub newer: bool,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.entries {
            Some((first, Some(last))) if first == last => write!(f, "entry {first}: ")?,
            Some((first, Some(last))) => write!(f, "entries {first} to {last}: ")?,
            Some((first, None)) => write!(f, "from entry {first} on: ")?,
            None => {}
        }
        write!(f, "{} (offset {})", self.what, self.offset)
    }
}

/// Why an export could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
    #[error("this is not an export of a history: {what}")]
    NotAnExport { what: String },
    #[error("{what}; this program is version {version}: use the newer one that wrote the file", version = env!("CARGO_PKG_VERSION"))]
    Newer { what: String },
    #[error("the export is not what a node wrote: {0}")]
    Damaged(Fault),
    #[error("entry {index} does not follow on from {last}")]
    OutOfOrder { index: u64, last: u64 },
    #[error("the export was to hold the entries {first} to {last}, and ended with {ended}")]
    Incomplete { first: u64, last: u64, ended: u64 },
}

fn io_error(doing: impl Into<String>) -> impl FnOnce(io::Error) -> ExportError {
    let doing = doing.into();
    |source| ExportError::Io { doing, source }
}

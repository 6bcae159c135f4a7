//! Snapshots: whole states, each in a file that is complete or not there.
//!
//! A snapshot is written under a temp name, synced, renamed, and the folder synced; a file under its final name is
//! therefore whole, and one that is not has rotted. The bytes that are sent to another node, or saved by an operator, are
//! those of the file:
//!
//! ```text
//! frame META   the [`SnapshotMeta`], length and blake3 of the body
//! frame BODY*  the body, compressed with zstd, in pieces
//! frame END    blake3 of all bytes before this frame
//! ```
//!
//! Not here: what a state is, and when to take a snapshot.

use std::{
    io::{self, Read as _, Write as _},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use loadline_mutants::Mutant;

use crate::{
    HOW_TO_RECOVER,
    disk::{DiskFile, SharedDisk, TEMP_SUFFIX, ensure_dir, read_all, read_exact_at},
    encoding::{Fields, Malformed, PutFields as _},
    frame::{Chain, Family, HEADER_BYTES, Walk},
    lock,
    wal::LogPosition,
};

const DIR: &str = "snapshots";
const SUFFIX: &str = ".snapshot";

const META: u16 = 1;
const BODY: u16 = 2;
const END: u16 = 3;

/// Body bytes per frame.
const PIECE_BYTES: usize = 1 << 20;
const COMPRESSION_LEVEL: i32 = 3;

/// What a snapshot is of. Everything but `last` is the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotMeta {
    /// The last entry that the state contains.
    pub last: Option<LogPosition>,
    /// Where the membership in force was written.
    pub membership_at: Option<LogPosition>,
    pub membership: Bytes,
    pub state_hash: [u8; 32],
    pub created_ms: u64,
    pub group: String,
    pub incarnation: u64,
}

/// Why a snapshot could not be written, received or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
    /// It came from outside, incomplete or altered.
    #[error("this is not a complete snapshot: {what}")]
    NotASnapshot { what: String },
    /// It was complete when it was put there.
    #[error("{file} is damaged: {what}; {HOW_TO_RECOVER}")]
    Damaged { file: String, what: String },
    #[error("{file} is not a snapshot; nothing else belongs there, so move it away")]
    ForeignFile { file: String },
}

fn io_error(doing: impl Into<String>) -> impl FnOnce(io::Error) -> SnapshotError {
    let doing = doing.into();
    |source| SnapshotError::Io { doing, source }
}

/// How many snapshots stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotsKept {
    /// The newest ones, which Raft needs.
    pub latest: usize,
    /// Of the older ones, so many stay as places at which a replay of the journal can begin.
    pub starts_max: usize,
    /// Entries that are between two of those, at least.
    pub starts_every: u64,
}

impl From<usize> for SnapshotsKept {
    /// Only the newest ones.
    fn from(latest: usize) -> Self {
        Self { latest: latest.max(1), starts_max: 0, starts_every: 0 }
    }
}

/// The snapshots of a node. Clones are handles of the same store.
#[derive(Clone, Debug)]
pub struct SnapshotStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    disk: SharedDisk,
    keep: SnapshotsKept,
    /// Oldest state first.
    files: Mutex<Vec<SnapshotFile>>,
    temps: AtomicU64,
}

impl SnapshotStore {
    /// Opens `snapshots/`, removes what was being written when somebody died, and checks the newest snapshot to the last
    /// byte. Those stay that `keep` says, at least the newest one: whoever died may have put one in place and not removed any.
    pub fn open(disk: SharedDisk, keep: impl Into<SnapshotsKept>) -> Result<Self, SnapshotError> {
        let (store, broken) = Self::open_whole(disk, keep)?;
        if let Some(error) = broken.into_iter().next() {
            return Err(error);
        }
        store.shared.keep_few(&mut lock(&store.shared.files));
        Ok(store)
    }

    /// The same with all there are, without those that are damaged, and what is wrong with each: for somebody who wants to know that, and who can do with
    /// an older one.
    pub fn open_whole(
        disk: SharedDisk,
        keep: impl Into<SnapshotsKept>,
    ) -> Result<(Self, Vec<SnapshotError>), SnapshotError> {
        let keep = keep.into();
        ensure_dir(&*disk, DIR).map_err(io_error("create the folder snapshots/"))?;
        let (mut files, mut broken) = (Vec::new(), Vec::new());
        for name in disk.list(DIR).map_err(io_error("list the folder snapshots/"))? {
            let path = format!("{DIR}/{name}");
            if is_temp_name(&name) {
                disk.remove(&path).map_err(io_error(format!("remove {path}")))?;
                continue;
            }
            if !is_name(&name) {
                broken.push(SnapshotError::ForeignFile { file: path });
                continue;
            }
            let file = disk.open(&path, false).map_err(io_error(format!("open {path}")))?;
            match SnapshotFile::read(&path, file) {
                Ok(file) => files.push(file),
                Err(error @ SnapshotError::Io { .. }) => return Err(error),
                Err(error) => broken.push(error),
            }
        }
        // The process before may have died between a rename and the sync of the folder.
        disk.sync_dir(DIR).map_err(io_error("sync the folder snapshots/"))?;
        files.sort_by_key(SnapshotFile::order);
        if let Some(newest) = files.last() {
            // The log may have been purged up to it: an older one could not stand in.
            match newest.check_whole() {
                Ok(()) => {}
                Err(error @ SnapshotError::Io { .. }) => return Err(error),
                Err(error) => {
                    broken.push(error);
                    files.pop();
                }
            }
        }
        let shared = Shared { disk, keep, files: Mutex::new(files), temps: AtomicU64::new(0) };
        Ok((Self { shared: Arc::new(shared) }, broken))
    }

    /// The snapshot of the newest state.
    pub fn latest(&self) -> Option<SnapshotFile> {
        lock(&self.shared.files).last().cloned()
    }

    /// The newest one of which this holds.
    pub fn newest_where(&self, holds: impl Fn(&SnapshotMeta) -> bool) -> Option<SnapshotFile> {
        lock(&self.shared.files).iter().rev().find(|file| holds(file.meta())).cloned()
    }

    /// The entries after which there is one, oldest first.
    pub fn indexes(&self) -> Vec<u64> {
        lock(&self.shared.files).iter().map(SnapshotFile::index).collect()
    }

    /// Lets those go that are of states before this entry, except the newest ones: what followed them is gone.
    pub fn forget_before(&self, index: u64) {
        let mut files = lock(&self.shared.files);
        let latest = files.len().saturating_sub(self.shared.keep.latest.max(1));
        let newest: Vec<u64> = files[latest..].iter().map(SnapshotFile::index).collect();
        self.shared.remove_where(&mut files, |file| file.index() < index && !newest.contains(&file.index()));
    }

    /// Writes a snapshot; when this returns it is durable.
    pub fn write(&self, meta: &SnapshotMeta, body: &[u8]) -> Result<SnapshotFile, SnapshotError> {
        self.write_in_pieces(meta, |packing| packing.add(body))
    }

    /// The same of a body that is never in memory as a whole.
    pub fn write_in_pieces(
        &self,
        meta: &SnapshotMeta,
        body: impl FnOnce(&mut Packing),
    ) -> Result<SnapshotFile, SnapshotError> {
        let bytes = encode_in_pieces(meta, body).map_err(io_error("encode a snapshot"))?;
        let mut receiver = self.receive()?;
        receiver.write_chunk(&bytes)?;
        receiver.put_in_place(meta.clone())
    }

    /// Takes in a snapshot from elsewhere, chunk by chunk.
    pub fn receive(&self) -> Result<SnapshotReceiver, SnapshotError> {
        let number = self.shared.temps.fetch_add(1, Ordering::Relaxed);
        let path = format!("{DIR}/{number:016}{TEMP_SUFFIX}");
        let file = self.shared.disk.open(&path, true).map_err(io_error(format!("create {path}")))?;
        Ok(SnapshotReceiver { shared: self.shared.clone(), path, file: Some(file), len: 0 })
    }
}

impl Shared {
    /// Takes note of a snapshot that is in place and removes what is no longer kept.
    fn add(&self, file: &SnapshotFile) {
        let mut files = lock(&self.files);
        files.retain(|other| other.inner.path != file.inner.path);
        files.push(file.clone());
        files.sort_by_key(SnapshotFile::order);
        self.keep_few(&mut files);
    }

    fn keep_few(&self, files: &mut Vec<SnapshotFile>) {
        let indexes: Vec<u64> = files.iter().map(SnapshotFile::index).collect();
        let kept = starts::kept(&indexes, self.keep);
        self.remove_where(files, |file| !kept.contains(&file.index()));
    }

    fn remove_where(&self, files: &mut Vec<SnapshotFile>, goes: impl Fn(&SnapshotFile) -> bool) {
        for old in files.extract_if(.., |file| goes(file)) {
            // What cannot be removed costs space, and is tried again when the node starts.
            if let Err(error) = self.disk.remove(&old.inner.path) {
                tracing::warn!(file = old.inner.path, %error, "an old snapshot could not be removed");
            }
        }
    }
}

/// A snapshot that is coming in. Dropped before [`Self::finish`], it leaves nothing behind.
#[derive(Debug)]
pub struct SnapshotReceiver {
    shared: Arc<Shared>,
    path: String,
    /// Taken when the file is in place.
    file: Option<Box<dyn DiskFile>>,
    len: u64,
}

impl SnapshotReceiver {
    /// Adds the next bytes.
    pub fn write_chunk(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        let Some(file) = &self.file else { return Ok(()) };
        file.write_at(chunk, self.len).map_err(io_error(format!("write {}", self.path)))?;
        self.len += chunk.len() as u64;
        Ok(())
    }

    /// How many bytes have come in.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing has come in yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads what has come in, which must be a whole snapshot, for somebody who wants to look at it before it is put in
    /// place.
    pub fn check(&self) -> Result<(SnapshotMeta, Vec<u8>), SnapshotError> {
        let Some(file) = &self.file else { return Err(not_a_snapshot("it was put in place before")) };
        let bytes = read_all(&**file).map_err(io_error(format!("read {}", self.path)))?;
        // To the last byte of the body, too: a state that cannot be unpacked is of no use in our folder.
        parse_bytes(&bytes)
    }

    /// Checks that it is whole and puts it in place; when this returns it is durable.
    pub fn finish(self) -> Result<SnapshotFile, SnapshotError> {
        let (meta, _) = self.check()?;
        self.put_in_place(meta)
    }

    fn put_in_place(mut self, meta: SnapshotMeta) -> Result<SnapshotFile, SnapshotError> {
        let path = format!("{DIR}/{}", name(meta.last));
        let Some(file) = self.file.take() else { return Err(not_a_snapshot("it was put in place before")) };
        let disk = &self.shared.disk;
        let synced = if Mutant::SnapshotRenamedBeforeSync.is_on() { Ok(()) } else { file.sync_all() };
        let placed = synced.and_then(|()| disk.rename(&self.path, &path));
        if placed.is_err() {
            let _ = disk.remove(&self.path);
        }
        placed.and_then(|()| disk.sync_dir(DIR)).map_err(io_error(format!("put {path} in place")))?;
        let inner = Inner { path, file, len: self.len, meta };
        let file = SnapshotFile { inner: Arc::new(inner) };
        self.shared.add(&file);
        Ok(file)
    }
}

impl Drop for SnapshotReceiver {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // The next opening of the store removes it otherwise.
            let _ = self.shared.disk.remove(&self.path);
        }
    }
}

/// A snapshot in place. It stays readable while somebody holds it, also after the store has removed it.
#[derive(Clone, Debug)]
pub struct SnapshotFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: String,
    file: Box<dyn DiskFile>,
    len: u64,
    meta: SnapshotMeta,
}

impl SnapshotFile {
    fn read(path: &str, file: Box<dyn DiskFile>) -> Result<Self, SnapshotError> {
        let damaged = |what: &str| SnapshotError::Damaged { file: path.to_owned(), what: what.to_owned() };
        let reading = || io_error(format!("read {path}"));
        let len = file.len().map_err(reading())?;
        let header = read_exact_at(&*file, 0, HEADER_BYTES).map_err(|_| damaged("it is too short"))?;
        let body = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let enough = (HEADER_BYTES as u64).saturating_add(body as u64) <= len;
        let first = if enough { read_exact_at(&*file, 0, HEADER_BYTES + body).map_err(reading())? } else { header };
        let mut walk = Walk::new(&first, Family::Snapshot, 0, Some(0));
        let frame = walk.next_frame().map_err(|error| damaged(&error.to_string()))?;
        let Some(frame) = frame.filter(|frame| frame.kind == META) else { return Err(damaged("it has no head")) };
        let head = Head::decode(frame.body).map_err(|error| damaged(&error.to_string()))?;
        if path != format!("{DIR}/{}", name(head.meta.last)) {
            return Err(damaged("its name does not say what it holds"));
        }
        let inner = Inner { path: path.to_owned(), file, len, meta: head.meta };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The last entry that its state contains; 0 for the state before all of them.
    fn index(&self) -> u64 {
        self.inner.meta.last.map_or(0, |last| last.index)
    }

    fn order(&self) -> Option<(u64, u64)> {
        self.inner.meta.last.map(|last| (last.index, last.term))
    }

    fn bytes(&self) -> Result<Vec<u8>, SnapshotError> {
        read_all(&*self.inner.file).map_err(io_error(format!("read {}", self.inner.path)))
    }

    fn damaged(&self, error: SnapshotError) -> SnapshotError {
        match error {
            SnapshotError::NotASnapshot { what } => SnapshotError::Damaged { file: self.inner.path.clone(), what },
            other => other,
        }
    }

    fn check_whole(&self) -> Result<(), SnapshotError> {
        let bytes = self.bytes()?;
        Parts::of(&bytes).map_err(|error| self.damaged(error)).map(drop)
    }

    /// What it is of.
    pub fn meta(&self) -> &SnapshotMeta {
        &self.inner.meta
    }

    /// Length of the file.
    pub fn len(&self) -> u64 {
        self.inner.len
    }

    /// Never: a snapshot has at least its head.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Bytes of the file, as they are sent and saved; fewer than `len` at the end.
    pub fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>, SnapshotError> {
        let left = usize::try_from(self.inner.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        read_exact_at(&*self.inner.file, offset, len.min(left)).map_err(io_error(format!("read {}", self.inner.path)))
    }

    /// The body, checked.
    pub fn load(&self) -> Result<Vec<u8>, SnapshotError> {
        let bytes = self.bytes()?;
        Parts::of(&bytes).and_then(|parts| parts.unpack()).map_err(|error| self.damaged(error))
    }
}

/// Reads a snapshot that was saved to a file of the operating system.
pub fn read_file(path: &Path) -> Result<(SnapshotMeta, Vec<u8>), SnapshotError> {
    let bytes = std::fs::read(path).map_err(io_error(format!("read {}", path.display())))?;
    parse_bytes(&bytes)
}

/// Takes a snapshot apart: its meta and its body, both checked.
pub fn parse_bytes(bytes: &[u8]) -> Result<(SnapshotMeta, Vec<u8>), SnapshotError> {
    let parts = Parts::of(bytes)?;
    let body = parts.unpack()?;
    Ok((parts.head.meta, body))
}

fn not_a_snapshot(what: impl Into<String>) -> SnapshotError {
    SnapshotError::NotASnapshot { what: what.into() }
}

fn name(last: Option<LogPosition>) -> String {
    match last {
        Some(last) => format!("{:020}-{:020}{SUFFIX}", last.index, last.term),
        None => format!("start{SUFFIX}"),
    }
}

fn is_name(name: &str) -> bool {
    let digits = |part: &str| part.len() == 20 && part.bytes().all(|byte| byte.is_ascii_digit());
    let Some(stem) = name.strip_suffix(SUFFIX) else { return false };
    stem == "start" || stem.split_once('-').is_some_and(|(index, term)| digits(index) && digits(term))
}

fn is_temp_name(name: &str) -> bool {
    name.strip_suffix(TEMP_SUFFIX)
        .is_some_and(|stem| stem.len() == 16 && stem.bytes().all(|byte| byte.is_ascii_digit()))
}

/// What the first frame says.
struct Head {
    meta: SnapshotMeta,
    body_bytes: u64,
    body_hash: [u8; 32],
}

impl Head {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_option(self.meta.last, Vec::put_position);
        out.put_option(self.meta.membership_at, Vec::put_position);
        out.put_bytes(&self.meta.membership);
        out.put_raw(&self.meta.state_hash);
        out.put_u64(self.meta.created_ms);
        out.put_bytes(self.meta.group.as_bytes());
        out.put_u64(self.meta.incarnation);
        out.put_u64(self.body_bytes);
        out.put_raw(&self.body_hash);
    }

    fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(body);
        let meta = SnapshotMeta {
            last: fields.option(Fields::position)?,
            membership_at: fields.option(Fields::position)?,
            membership: Bytes::copy_from_slice(fields.bytes()?),
            state_hash: fields.array()?,
            created_ms: fields.u64()?,
            group: fields.string()?,
            incarnation: fields.u64()?,
        };
        let head = Self { meta, body_bytes: fields.u64()?, body_hash: fields.array()? };
        fields.end()?;
        Ok(head)
    }
}

/// A body that is compressed and hashed as it comes. Its head is written before it, and says how long it is.
pub struct Packing {
    bytes: u64,
    hasher: blake3::Hasher,
    packed: io::Result<zstd::stream::write::Encoder<'static, Vec<u8>>>,
}

impl std::fmt::Debug for Packing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packing").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Packing {
    fn begin() -> Self {
        let packed = zstd::stream::write::Encoder::new(Vec::new(), COMPRESSION_LEVEL);
        Self { bytes: 0, hasher: blake3::Hasher::new(), packed }
    }

    /// Adds the next piece. What fails is said when the snapshot is written.
    pub fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.hasher.update(piece);
        if let Ok(packed) = &mut self.packed
            && let Err(error) = packed.write_all(piece)
        {
            self.packed = Err(error);
        }
    }
}

/// The bytes of a snapshot, as they are stored, sent and saved.
pub fn encode(meta: &SnapshotMeta, body: &[u8]) -> io::Result<Vec<u8>> {
    encode_in_pieces(meta, |packing| packing.add(body))
}

/// The same of a body that is never in memory as a whole.
pub fn encode_in_pieces(meta: &SnapshotMeta, body: impl FnOnce(&mut Packing)) -> io::Result<Vec<u8>> {
    let mut packing = Packing::begin();
    body(&mut packing);
    let Packing { bytes, hasher, packed } = packing;
    let packed = packed.and_then(zstd::stream::write::Encoder::finish)?;
    let head = Head { meta: meta.clone(), body_bytes: bytes, body_hash: hasher.finalize().into() };
    let mut out = Vec::with_capacity(packed.len() + 4096);
    let mut chain = Chain { family: Family::Snapshot, segment: 0, link: 0 };
    chain.put(&mut out, META, 0, |out| head.encode(out))?;
    for piece in packed.chunks(PIECE_BYTES) {
        chain.put(&mut out, BODY, 0, |out| out.put_raw(piece))?;
    }
    let hash = blake3::hash(&out);
    chain.put(&mut out, END, 0, |out| out.put_raw(hash.as_bytes()))?;
    Ok(out)
}

/// The frames of a whole file.
struct Parts<'a> {
    head: Head,
    pieces: Vec<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Result<Self, SnapshotError> {
        let mut walk = Walk::new(bytes, Family::Snapshot, 0, Some(0));
        let mut head = None;
        let mut pieces = Vec::new();
        while let Some(frame) = walk.next_frame().map_err(|error| not_a_snapshot(error.to_string()))? {
            match (frame.kind, head.is_some()) {
                (META, false) => {
                    head = Some(Head::decode(frame.body).map_err(|error| not_a_snapshot(error.to_string()))?);
                }
                (BODY, true) => pieces.push(frame.body),
                (END, true) => {
                    if frame.body != blake3::hash(&bytes[..frame.offset]).as_bytes() {
                        return Err(not_a_snapshot("its hash is wrong"));
                    }
                    if frame.end() != bytes.len() {
                        return Err(not_a_snapshot("there is something behind its end"));
                    }
                    return match head {
                        Some(head) => Ok(Self { head, pieces }),
                        None => Err(not_a_snapshot("it has no head")),
                    };
                }
                (kind, _) => return Err(not_a_snapshot(format!("a record of kind {kind} is out of place"))),
            }
        }
        Err(not_a_snapshot(format!("there is no valid frame at offset {} of {}", walk.offset, bytes.len())))
    }

    fn unpack(&self) -> Result<Vec<u8>, SnapshotError> {
        let packed = self.pieces.concat();
        let mut body = Vec::new();
        // One byte more than it should be, so that a body that unpacks to too much is noticed and goes no further.
        let limit = self.head.body_bytes.saturating_add(1);
        zstd::stream::read::Decoder::new(&packed[..])
            .and_then(|decoder| decoder.take(limit).read_to_end(&mut body))
            .map_err(|error| not_a_snapshot(format!("its body cannot be unpacked: {error}")))?;
        if body.len() as u64 != self.head.body_bytes || blake3::hash(&body) != self.head.body_hash {
            return Err(not_a_snapshot("its body is not what its head says"));
        }
        Ok(body)
    }
}

mod starts;
#[cfg(test)]
mod tests;

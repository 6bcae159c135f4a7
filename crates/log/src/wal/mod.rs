//! The write-ahead log: the vote and the Raft log, durable before anybody is told.
//!
//! Segments of zeros are made ahead; a batch of whatever waits overwrites the next bytes and is synced with one
//! `fdatasync`; then the callbacks run. Reading goes on beside it, from memory or with `pread`.
//!
//! - [`record`]: what the frames carry · [`segment`]: the files · [`writer`]: batches, segments, purging
//! - [`queue`]: order and callbacks · [`index`]: which entry is where · [`recovery`]: what to believe after a crash
//!
//! Deliberately not here: what an entry means, and any retry. A disk that failed once has lost our trust: every later
//! call fails, and the process has to be started again (which reads back what is really there) or replaced.

mod index;
mod queue;
mod record;
mod recovery;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    fmt, io,
    ops::Range,
    sync::{Arc, Mutex, mpsc},
    thread::{JoinHandle, ThreadId},
    time::Duration,
};

use bytes::Bytes;

use self::{
    queue::Core,
    segment::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN},
    writer::{Change, Writer},
};
use crate::{
    HOW_TO_RECOVER,
    disk::{Disk, SharedDisk},
    lock,
};

/// Payloads above this are refused before anything is written. Far above what the edges let in; it keeps a segment, whose
/// offsets are u32, from overflowing.
const PAYLOAD_BYTES_MAX: usize = 256 << 20;

/// Where an entry stands in the Raft log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPosition {
    pub term: u64,
    pub node: u64,
    pub index: u64,
}

/// The vote as it is kept: whom this node follows or voted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredVote {
    pub term: u64,
    pub node: u64,
    pub committed: bool,
}

/// One log entry. `kind` and `payload` are opaque here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub id: LogPosition,
    pub kind: u8,
    pub payload: Bytes,
}

/// Called once, after the bytes are durable, or with the reason why nobody can say that they are.
pub type Done = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Who does the writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Threading {
    /// A thread of its own. `Done` is called there, or by whoever appends with [`Wal::append_here`].
    #[default]
    Thread,
    /// The caller, inside the call. `Done` has been called when the call returns (unless the call came from within a
    /// `Done`, which then has to return first). For the simulator, which has one thread.
    Inline,
}

/// Says when an inline writer writes: a simulated disk takes its time. Whoever waits for a `Done` waits for it.
pub trait Pace: fmt::Debug + Send + Sync + 'static {
    /// Runs `work` once, now or later, or never if the process dies first.
    fn pace(&self, work: Box<dyn FnOnce() + Send>);
}

/// Told after every sync, for metrics.
pub trait WalObserver: Send + Sync {
    /// One write of `bytes` with `records` log entries has been synced; the sync itself `took` so long.
    fn synced(&self, took: Duration, bytes: usize, records: usize);

    /// So many entries at the end of the log are about to be cut off: they were never committed, and another leader
    /// decided otherwise.
    fn truncated(&self, _entries: u64) {}

    /// This is what the log says after a restart.
    fn recovered(&self, _state: &WalState) {}

    /// From now on this may be relied on by others: it has been synced.
    fn promised(&self, _state: &WalState) {}
}

/// How to open a log.
#[derive(Clone)]
pub struct WalOptions {
    /// Length of a segment file: what is written ahead, and the unit in which purging gives space back.
    pub segment_bytes: u64,
    pub threading: Threading,
    /// Only for [`Threading::Inline`]. None: in the call itself.
    pub pace: Option<Arc<dyn Pace>>,
    /// Payload bytes kept in memory for reads; older ones are read from disk.
    pub cache_bytes: usize,
    pub observer: Option<Arc<dyn WalObserver>>,
    /// Set by whoever knows (from the identity file) that this node has stood in a group before: then an empty log is
    /// not a fresh one but a lost one, and opening it is refused.
    pub expect_existing: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            threading: Threading::Thread,
            pace: None,
            cache_bytes: 8 << 20,
            observer: None,
            expect_existing: false,
        }
    }
}

impl fmt::Debug for WalOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WalOptions")
            .field("segment_bytes", &self.segment_bytes)
            .field("threading", &self.threading)
            .field("cache_bytes", &self.cache_bytes)
            .field("expect_existing", &self.expect_existing)
            .finish_non_exhaustive()
    }
}

/// What the log remembers besides its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WalState {
    /// The last entry; the purged position when there is none above it.
    pub last: Option<LogPosition>,
    /// Entries up to here are gone, on purpose.
    pub purged: Option<LogPosition>,
    pub vote: Option<StoredVote>,
    pub committed: Option<LogPosition>,
}

impl WalState {
    /// What the log in a folder says that it remembers. The folder must have had one.
    pub fn of(disk: &dyn Disk) -> Result<Self, WalError> {
        recovery::recover(disk, 0, true).map(|recovered| recovered.tail.written)
    }
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum WalError {
    #[error("cannot {doing}")]
    Io { doing: String, source: io::Error },
    #[error("{file} is damaged at offset {offset}: {what}; {HOW_TO_RECOVER}")]
    Damaged { file: String, offset: u64, what: String },
    #[error("{file} at offset {offset}: {what}; run the newer program that wrote it")]
    Newer { file: String, offset: u64, what: String },
    #[error("{file} is not a file of the write-ahead log; nothing but its segments belongs there, so move it away")]
    ForeignFile { file: String },
    #[error("this node has stood in a group before, but the folder wal/ is empty; {HOW_TO_RECOVER}")]
    Lost,
}

/// The log. Clones are handles of the same one; when the last is dropped it is closed.
#[derive(Clone)]
pub struct Wal {
    handle: Arc<Handle>,
}

struct Handle {
    core: Arc<Core>,
    hand: Hand,
}

/// Who holds the writer.
enum Hand {
    Thread { id: ThreadId, thread: Mutex<Option<JoinHandle<()>>>, writer: Arc<Mutex<Writer>> },
    Inline { writer: Arc<Mutex<Writer>>, pace: Option<Arc<dyn Pace>> },
}

impl Wal {
    /// Opens the log in `wal/`, or begins one, and makes sure that what it reports is durable.
    pub fn open(disk: SharedDisk, options: WalOptions) -> Result<Self, WalError> {
        let segment_bytes = usize::try_from(options.segment_bytes).unwrap_or(usize::MAX);
        let segment_bytes = segment_bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX);
        let recovered = recovery::recover(&*disk, options.cache_bytes, options.expect_existing)?;
        let state = recovered.tail.written;
        if let Some(observer) = &options.observer {
            observer.recovered(&state);
        }
        let mut writer = Writer::new(disk, segment_bytes, options.threading, options.observer, recovered.tail);
        let failed = |doing: &str, source| WalError::Io { doing: doing.to_owned(), source };
        writer.opened().map_err(|source| failed("write to the write-ahead log", source))?;
        let core = Arc::new(Core::new(state, recovered.index, writer.disk_bytes()));
        let writer = Arc::new(Mutex::new(writer));
        let hand = match options.threading {
            Threading::Inline => Hand::Inline { writer, pace: options.pace },
            Threading::Thread => {
                let (core, shared) = (core.clone(), writer.clone());
                let thread = std::thread::Builder::new()
                    .name("wal".to_owned())
                    .spawn(move || core.run(&shared))
                    .map_err(|source| failed("start the thread of the write-ahead log", source))?;
                Hand::Thread { id: thread.thread().id(), thread: Mutex::new(Some(thread)), writer }
            }
        };
        Ok(Self { handle: Arc::new(Handle { core, hand }) })
    }

    /// As of the calls so far, durable or not.
    pub fn state(&self) -> WalState {
        self.handle.core.shared().state
    }

    /// Adds entries behind the last one. They are readable when this returns, durable when `done` is called.
    pub fn append(&self, records: Vec<Record>, done: Done) {
        self.handle.submit(done, |shared| admit(shared, records));
    }

    /// As [`Wal::append`], and does the writing in the calling thread if nobody else is at it: for callers that have nothing
    /// else to do meanwhile, and would only wait for two changes of thread besides. Takes as long as a sync does.
    pub fn append_here(&self, records: Vec<Record>, done: Done) {
        match &self.handle.hand {
            Hand::Thread { writer, .. } => {
                self.handle.core.submit_here(writer, done, |shared| admit(shared, records));
            }
            Hand::Inline { .. } => self.append(records, done),
        }
    }

    /// Replaces the vote. It must not be acted upon before `done`.
    pub fn save_vote(&self, vote: StoredVote, done: Done) {
        self.handle.submit(done, |shared| {
            shared.state.vote = Some(vote);
            Ok(Change::Vote(vote))
        });
    }

    /// Notes how far the log is committed. Not worth a sync of its own: it is written with the next batch, and losing it
    /// only means finding it out again from the leader.
    pub fn save_committed(&self, committed: Option<LogPosition>) {
        let mut shared = self.handle.core.shared();
        shared.committed_waits |= shared.state.committed != committed;
        shared.state.committed = committed;
    }

    /// Removes the entries above `keep`, all of them for `None`.
    pub fn truncate_after(&self, keep: Option<u64>, done: Done) {
        self.handle.submit(done, |shared| {
            let purged = shared.state.purged;
            let last = match keep {
                Some(keep) if shared.state.last.is_none_or(|last| keep >= last.index) => shared.state.last,
                Some(keep) => match shared.index.position(keep).or(purged.filter(|purged| purged.index == keep)) {
                    Some(position) => Some(position),
                    None => return Err(invalid(format!("cannot keep entries up to {keep}: they are not there"))),
                },
                None => purged,
            };
            shared.state.last = last;
            shared.index.truncate_after(last.map(|last| last.index));
            Ok(Change::Truncate(last))
        });
    }

    /// Removes the entries up to and including `through`, which may be beyond the last one (after a snapshot came in).
    /// Whole segments are given back to the disk afterwards.
    pub fn purge(&self, through: LogPosition, done: Done) {
        self.handle.submit(done, |shared| {
            let through = match shared.state.purged {
                // Never backwards; saying the same again is harmless.
                Some(purged) if purged.index >= through.index => purged,
                _ => through,
            };
            shared.index.purge(through.index);
            shared.state.purged = Some(through);
            if shared.state.last.is_none_or(|last| last.index < through.index) {
                shared.state.last = Some(through);
            }
            Ok(Change::Purge(through))
        });
    }

    /// The part of `range` that the log holds, durable or not: at least one entry if there is any, then as many as fit
    /// into `bytes_max`.
    pub fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<Record>> {
        let shared = self.handle.core.shared();
        if let Some(refusal) = shared.refusal() {
            return Err(refusal);
        }
        let found = shared.index.find(&range, bytes_max);
        drop(shared);
        index::fetch(found)
    }

    /// The position of the entry at `index`, or the purged position if it is that one.
    pub fn position_at(&self, index: u64) -> Option<LogPosition> {
        let shared = self.handle.core.shared();
        shared.index.position(index).or(shared.state.purged.filter(|purged| purged.index == index))
    }

    /// Bytes that the segments occupy.
    pub fn disk_bytes(&self) -> u64 {
        self.handle.core.shared().disk_bytes
    }

    /// Why the log takes nothing more, if it has failed.
    pub fn failed(&self) -> Option<String> {
        self.handle.core.shared().failed.clone()
    }

    /// Writes what waits and a mark that the log was closed in order, and stops. Later calls fail.
    pub fn close(&self) -> io::Result<()> {
        self.handle.close()
    }
}

/// Entries that continue the log.
fn admit(shared: &mut queue::Shared, records: Vec<Record>) -> io::Result<Change> {
    let mut state = shared.state;
    for record in &records {
        if !state.accepts(record.id.index) {
            return Err(invalid(format!("entry {:?} does not follow on from {:?}", record.id, state.last)));
        }
        if record.payload.len() > PAYLOAD_BYTES_MAX {
            let bytes = record.payload.len();
            return Err(invalid(format!("an entry of {bytes} bytes is above {PAYLOAD_BYTES_MAX}")));
        }
        state.last = Some(record.id);
    }
    shared.state = state;
    let serial = shared.index.push(&records);
    Ok(Change::Append { records, serial })
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl Handle {
    fn submit(&self, done: Done, admit: impl FnOnce(&mut queue::Shared) -> io::Result<Change>) {
        self.core.submit(done, admit);
        match &self.hand {
            Hand::Thread { .. } => {}
            Hand::Inline { writer, pace: None } => self.core.run_inline(writer),
            Hand::Inline { writer, pace: Some(pace) } => {
                let (core, writer) = (self.core.clone(), writer.clone());
                pace.pace(Box::new(move || core.run_inline(&writer)));
            }
        }
    }

    fn close(&self) -> io::Result<()> {
        let (closed, closing) = mpsc::channel();
        self.core.submit(Box::new(move |result| drop(closed.send(result))), |_| Ok(Change::Close));
        if let Hand::Inline { writer, .. } = &self.hand {
            // Whoever closes does not come back later.
            self.core.run_inline(writer);
        }
        if let Hand::Thread { id, thread, .. } = &self.hand {
            // A callback that drops the last handle runs on the very thread it would wait for.
            if *id == std::thread::current().id() {
                return Ok(());
            }
            let result = closing.recv().unwrap_or_else(|_| Err(io::Error::other("the write-ahead log stopped")));
            if let Some(thread) = lock(thread).take() {
                // A panic there has already been reported to everybody who waited.
                let _ = thread.join();
            }
            return result;
        }
        // Inline it has been done, or, from within a callback, will be when that returns.
        closing.try_recv().unwrap_or(Ok(()))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.core.shared().refusal().is_none()
            && let Err(error) = self.close()
        {
            tracing::warn!(%error, "the write-ahead log was not closed in order");
        }
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wal").field("state", &self.state()).finish_non_exhaustive()
    }
}

//! One queue between the callers and the one who writes.
//!
//! A call changes what readers see and takes its place in the queue under one lock, so that the order on disk is the
//! order of the calls. Whoever writes takes everything that waits as one batch. In [`Threading::Thread`] that is a thread
//! of its own, or a caller that would rather wait than change threads twice, if nobody is at it; in [`Threading::Inline`]
//! always the caller. All of them run [`Core::work`], one at a time.
//!
//! After the first failure nothing is written any more and everybody is told so: the kernel may have dropped what it could
//! not write, and a second, successful sync would then lie.

use std::{
    io,
    sync::{Condvar, Mutex, MutexGuard},
};

use super::{
    Done, WalState,
    index::Index,
    writer::{Change, Writer},
};
use crate::lock;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: WalState,
    pub(super) index: Index,
    /// The committed position has changed and waits for a batch to ride with.
    pub(super) committed_waits: bool,
    pub(super) disk_bytes: u64,
    pub(super) failed: Option<String>,
    queue: Queue,
    /// Somebody is in [`Core::work`]. A callback that calls the log again must leave the work to them.
    working: bool,
    closing: bool,
}

#[derive(Default)]
struct Queue(Vec<(Change, Done)>);

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(change, _)| change)).finish()
    }
}

#[derive(Debug)]
pub(super) struct Core {
    shared: Mutex<Shared>,
    wake: Condvar,
}

impl Core {
    pub(super) fn new(state: WalState, index: Index, disk_bytes: u64) -> Self {
        let shared = Shared {
            state,
            index,
            committed_waits: false,
            disk_bytes,
            failed: None,
            queue: Queue::default(),
            working: false,
            closing: false,
        };
        Self { shared: Mutex::new(shared), wake: Condvar::new() }
    }

    pub(super) fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// Runs `admit` on the shared state and queues the change it returns. An error, its own or that the log takes nothing
    /// more, goes to `done` at once.
    pub(super) fn submit(&self, done: Done, admit: impl FnOnce(&mut Shared) -> io::Result<Change>) {
        if self.enqueue(done, admit) {
            self.wake.notify_one();
        }
    }

    /// Whether there is something to do now.
    fn enqueue(&self, done: Done, admit: impl FnOnce(&mut Shared) -> io::Result<Change>) -> bool {
        let mut shared = self.shared();
        let change = shared.refusal().map_or_else(|| admit(&mut shared), Err);
        match change {
            Ok(change) => {
                shared.closing |= matches!(change, Change::Close);
                shared.queue.0.push((change, done));
                true
            }
            Err(error) => {
                drop(shared);
                done(Err(error));
                false
            }
        }
    }

    /// The life of the writing thread: until the log is closed or has failed.
    pub(super) fn run(&self, writer: &Mutex<Writer>) {
        let _guard = FailOnPanic(self);
        loop {
            let mut shared = self.shared();
            while (shared.queue.0.is_empty() || shared.working) && shared.failed.is_none() {
                shared = self.wake.wait(shared).unwrap_or_else(std::sync::PoisonError::into_inner);
            }
            if shared.failed.is_some() {
                break;
            }
            let batch = shared.take_batch();
            shared.working = true;
            drop(shared);
            let next = self.work(&mut lock(writer), batch);
            self.shared().working = false;
            if next == Next::Stop {
                break;
            }
        }
        lock(writer).finish();
    }

    /// As [`Core::submit`]; one batch is then written in the calling thread, unless somebody is at it.
    pub(super) fn submit_here(
        &self,
        writer: &Mutex<Writer>,
        done: Done,
        admit: impl FnOnce(&mut Shared) -> io::Result<Change>,
    ) {
        if !self.enqueue(done, admit) {
            return;
        }
        let mut shared = self.shared();
        if shared.working {
            // They look at the queue again when they are done, or wake the thread that does.
            return;
        }
        let batch = shared.take_batch();
        shared.working = true;
        drop(shared);
        let guard = FailOnPanic(self);
        self.work(&mut lock(writer), batch);
        drop(guard);
        let mut shared = self.shared();
        shared.working = false;
        if !shared.queue.0.is_empty() {
            drop(shared);
            self.wake.notify_one();
        }
    }

    /// Works off the queue in the calling thread, unless it is called from within.
    pub(super) fn run_inline(&self, writer: &Mutex<Writer>) {
        if std::mem::replace(&mut self.shared().working, true) {
            return;
        }
        let _guard = StopWorking(self);
        loop {
            let mut shared = self.shared();
            if shared.queue.0.is_empty() {
                shared.working = false;
                return;
            }
            let batch = shared.take_batch();
            drop(shared);
            self.work(&mut lock(writer), batch);
        }
    }

    /// Makes one batch durable and tells those who wait for it.
    fn work(&self, writer: &mut Writer, batch: Vec<(Change, Done)>) -> Next {
        let placed = match writer.commit(batch.iter().map(|(change, _)| change)) {
            Ok(placed) => placed,
            Err(error) => {
                self.fail(&error, batch);
                return Next::Stop;
            }
        };
        let mut shared = self.shared();
        for placed in placed {
            shared.index.place(placed.index, placed.serial, placed.place);
        }
        shared.index.evict();
        drop(shared);
        let closes = batch.iter().any(|(change, _)| matches!(change, Change::Close));
        for (_, done) in batch {
            done(Ok(()));
        }
        if closes {
            return Next::Stop;
        }
        if let Err(error) = writer.tidy() {
            self.fail(&error, Vec::new());
            return Next::Stop;
        }
        self.shared().disk_bytes = writer.disk_bytes();
        Next::Continue
    }

    /// The end: tells everybody who waits, and everybody who will come.
    fn fail(&self, error: &io::Error, batch: Vec<(Change, Done)>) {
        tracing::error!(%error, "the write-ahead log has failed and takes nothing more");
        let mut shared = self.shared();
        let reason = shared.failed.get_or_insert_with(|| error.to_string()).clone();
        let waiting = std::mem::take(&mut shared.queue.0);
        drop(shared);
        // The thread has nothing to wait for any more.
        self.wake.notify_one();
        for (_, done) in batch.into_iter().chain(waiting) {
            done(Err(has_failed(&reason)));
        }
    }
}

#[derive(PartialEq, Eq)]
enum Next {
    Continue,
    Stop,
}

impl Shared {
    /// Why nothing can be asked of the log any more.
    pub(super) fn refusal(&self) -> Option<io::Error> {
        match &self.failed {
            Some(reason) => Some(has_failed(reason)),
            None if self.closing => Some(io::Error::other("the write-ahead log is closed")),
            None => None,
        }
    }

    fn take_batch(&mut self) -> Vec<(Change, Done)> {
        let mut batch = std::mem::take(&mut self.queue.0);
        if std::mem::take(&mut self.committed_waits) {
            // Behind the entries it may speak of, but before the mark that closes the log.
            let at = batch.iter().position(|(change, _)| matches!(change, Change::Close)).unwrap_or(batch.len());
            batch.insert(at, (Change::Committed(self.state.committed), Box::new(|_| {})));
        }
        batch
    }
}

fn has_failed(reason: &str) -> io::Error {
    io::Error::other(format!("the write-ahead log has failed and takes nothing more: {reason}"))
}

/// A panic in a callback must not leave callers waiting for a thread that is gone.
struct FailOnPanic<'a>(&'a Core);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(&io::Error::other("a callback of the write-ahead log panicked"), Vec::new());
        }
    }
}

/// The same for the inline writer, whose caller catches the panic or not.
struct StopWorking<'a>(&'a Core);

impl Drop for StopWorking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.shared().working = false;
        }
    }
}

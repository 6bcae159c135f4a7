//! A disk in memory that forgets what nobody synced.
//!
//! It is at least as unkind as a real one: at a power cut every unsynced sector independently holds any of the contents
//! it had since the last sync, file lengths and names likewise, and what a *failed* sync covered stays in doubt until it
//! is written and synced again. One seed decides every choice.
//!
//! Not modelled: sectors that become unreadable, and latency (see [`ModelDisk::hold_syncs`] for order).

mod contents;
mod random;

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use self::{contents::Contents, random::Random};
use super::{Disk, DiskFile};
use crate::lock;

/// See the module. Clones are handles of the same running process; [`ModelDisk::power_cut`] and
/// [`ModelDisk::kill_process`] make all of them, and all files opened through them, useless, as the death of a process
/// does. [`ModelDisk::reopen`] gives the next process its handle.
#[derive(Clone)]
pub struct ModelDisk {
    world: Arc<World>,
    generation: u64,
}

struct World {
    state: Mutex<State>,
    held: Mutex<bool>,
    released: Condvar,
}

struct State {
    random: Random,
    generation: u64,
    /// Between a scheduled cut and the [`ModelDisk::power_cut`] that settles it, everything fails.
    power_off: bool,
    names: BTreeMap<String, Node>,
    durable_names: BTreeMap<String, Node>,
    /// Changes of names that no `sync_dir` has covered, oldest first.
    name_changes: Vec<NameChange>,
    capacity: Option<u64>,
    changes: u64,
    cut_at: Option<u64>,
    /// A folder, and how many changes in it are left until the cut.
    cut_in: Option<(String, u64)>,
    syncs: u64,
    fail_sync_at: Option<u64>,
    writes: u64,
    fail_write_at: Option<u64>,
    fail_reads: bool,
    ignore_syncs: bool,
}

#[derive(Clone)]
enum Node {
    Dir,
    File(Arc<Mutex<Contents>>),
}

/// One directory operation, all or nothing.
struct NameChange {
    /// The folders whose sync makes it durable (a rename between folders has two).
    dirs: Vec<String>,
    names: Vec<(String, Option<Node>)>,
}

fn eio(what: &str) -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()).kind_with(what)
}

/// Keeps the error's kind and says which injected fault it was.
trait KindWith {
    fn kind_with(self, what: &str) -> io::Error;
}

impl KindWith for io::Error {
    fn kind_with(self, what: &str) -> io::Error {
        io::Error::new(self.kind(), format!("{self} ({what})"))
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}

impl ModelDisk {
    /// An empty disk on which `seed` decides what a power cut spares.
    pub fn new(seed: u64) -> Self {
        let state = State {
            random: Random(seed),
            generation: 0,
            power_off: false,
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            name_changes: Vec::new(),
            capacity: None,
            changes: 0,
            cut_at: None,
            cut_in: None,
            syncs: 0,
            fail_sync_at: None,
            writes: 0,
            fail_write_at: None,
            fail_reads: false,
            ignore_syncs: false,
        };
        let world = World { state: Mutex::new(state), held: Mutex::new(false), released: Condvar::new() };
        Self { world: Arc::new(world), generation: 0 }
    }

    /// The power fails now: what was not synced is lost, torn or reordered. Every handle is dead; see [`Self::reopen`].
    pub fn power_cut(&self) {
        let state = &mut *lock(&self.world.state);
        state.generation += 1;
        state.power_off = false;
        state.cut_at = None;
        state.cut_in = None;
        state.settle_names();
        let State { random, names, .. } = state;
        for node in names.values() {
            if let Node::File(contents) = node {
                lock(contents).settle(random);
            }
        }
    }

    /// The process dies, the machine does not: unsynced writes stay in the cache. Every handle is dead. After a scheduled
    /// cut it says that only the process was cut off there.
    pub fn kill_process(&self) {
        let mut state = lock(&self.world.state);
        state.generation += 1;
        state.power_off = false;
        state.cut_at = None;
        state.cut_in = None;
    }

    /// A handle for the next process.
    pub fn reopen(&self) -> Self {
        Self { world: self.world.clone(), generation: lock(&self.world.state).generation }
    }

    /// Schedules a power cut at the `nth` change from now (1 is the next): that write, sync, rename, ... may or may not
    /// take effect and fails, and so does everything after it until [`Self::power_cut`] settles what survived.
    pub fn cut_power_at(&self, nth: u64) {
        let mut state = lock(&self.world.state);
        state.cut_at = Some(state.changes + nth);
    }

    /// The same, counting only what is changed in the folder `dir`: that is how a snapshot is hit in the middle.
    pub fn cut_power_in(&self, dir: &str, nth: u64) {
        lock(&self.world.state).cut_in = Some((dir.to_owned(), nth));
    }

    /// Whether a scheduled cut has happened and waits for [`Self::power_cut`].
    pub fn power_is_off(&self) -> bool {
        lock(&self.world.state).power_off
    }

    /// Changes (writes, syncs, names) asked for so far, to aim [`Self::cut_power_at`].
    pub fn changes(&self) -> u64 {
        lock(&self.world.state).changes
    }

    /// Syncs of files asked for so far.
    pub fn syncs(&self) -> u64 {
        lock(&self.world.state).syncs
    }

    /// Writes beyond this many bytes fail with `StorageFull`; `None` is a disk without end.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        lock(&self.world.state).capacity = bytes;
    }

    /// The `nth` sync of a file or folder from now (1 is the next) fails, once.
    pub fn fail_sync(&self, nth: u64) {
        let mut state = lock(&self.world.state);
        state.fail_sync_at = Some(state.syncs + nth);
    }

    /// The `nth` write to a file from now (1 is the next) fails, once, after part of it.
    pub fn fail_write(&self, nth: u64) {
        let mut state = lock(&self.world.state);
        state.fail_write_at = Some(state.writes + nth);
    }

    /// While set, reads fail.
    pub fn fail_reads(&self, fail: bool) {
        lock(&self.world.state).fail_reads = fail;
    }

    /// While set, syncs say `Ok` and do nothing: the lying disk that a test of durability must catch.
    pub fn ignore_syncs(&self, ignore: bool) {
        lock(&self.world.state).ignore_syncs = ignore;
    }

    /// Syncs wait until the returned guard is dropped, so that a test can look at what happens before they are done. Only
    /// where somebody else syncs: who syncs in its own thread would wait for itself.
    pub fn hold_syncs(&self) -> SyncHold {
        *lock(&self.world.held) = true;
        SyncHold { world: self.world.clone() }
    }

    /// Flips one bit of a file, on the medium and in the cache, as rot does.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> io::Result<()> {
        let mut bytes = self.contents(path)?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let byte = bytes.get_mut(at).ok_or_else(|| io::Error::other(format!("{path} has no byte {offset}")))?;
        *byte ^= 1 << (bit % 8);
        self.place(path, &bytes)
    }

    /// The bytes of a file as a process sees them.
    pub fn contents(&self, path: &str) -> io::Result<Vec<u8>> {
        let state = lock(&self.world.state);
        let file = state.file(path)?;
        let bytes = lock(&file).bytes.clone();
        Ok(bytes)
    }

    /// Puts a file there from outside, durable at once: what an operator's `cp` or a disk's rot would have done.
    pub fn place(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.world.state);
        let contents = Contents::durable(bytes);
        if let Ok(file) = state.file(path) {
            *lock(&file) = contents;
            return Ok(());
        }
        let node = Node::File(Arc::new(Mutex::new(contents)));
        state.names.insert(path.to_owned(), node.clone());
        state.durable_names.insert(path.to_owned(), node);
        Ok(())
    }

    /// The paths of all files, sorted.
    pub fn files(&self) -> Vec<String> {
        let state = lock(&self.world.state);
        let files = state.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(path, _)| path.clone()).collect()
    }

    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = lock(&self.world.state);
        if state.power_off {
            return Err(eio("the power is off"));
        }
        if state.generation != self.generation {
            return Err(eio("a handle of a process that has died"));
        }
        Ok(state)
    }

    /// Waits while syncs are held.
    fn wait_for_release(&self) {
        let mut held = lock(&self.world.held);
        while *held {
            held = self.world.released.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn sync_file(&self, path: &str, file: &Mutex<Contents>, with_length: bool) -> io::Result<()> {
        self.wait_for_release();
        let mut state = self.state()?;
        let cut = state.begin_change(parent(path));
        let fails = state.begin_sync();
        if state.ignore_syncs {
            return Ok(());
        }
        if fails {
            lock(file).fail_sync();
            return Err(eio("injected sync failure"));
        }
        // A sync that the cut interrupts may have done its work without living to say so.
        if !cut || state.random.coin() {
            lock(file).sync(with_length);
        }
        state.end_change(cut)
    }
}

impl State {
    /// Counts a change in a folder; `true` means that the power fails in it.
    fn begin_change(&mut self, dir: &str) -> bool {
        self.changes += 1;
        let left = self.cut_in.as_mut().filter(|(hit, _)| hit == dir).map(|(_, left)| left);
        let hit = left.is_some_and(|left| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        hit || self.cut_at == Some(self.changes)
    }

    fn end_change(&mut self, cut: bool) -> io::Result<()> {
        if cut {
            self.power_off = true;
            return Err(eio("the power has just failed"));
        }
        Ok(())
    }

    /// Counts a sync; `true` means that it must fail.
    fn begin_sync(&mut self) -> bool {
        self.syncs += 1;
        let fails = self.fail_sync_at == Some(self.syncs);
        if fails {
            self.fail_sync_at = None;
        }
        fails
    }

    fn file(&self, path: &str) -> io::Result<Arc<Mutex<Contents>>> {
        match self.names.get(path) {
            Some(Node::File(file)) => Ok(file.clone()),
            Some(Node::Dir) => Err(io::Error::new(io::ErrorKind::IsADirectory, format!("{path} is a folder"))),
            None => Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no file {path}"))),
        }
    }

    fn expect_dir(&self, path: &str) -> io::Result<()> {
        match self.names.get(path) {
            _ if path.is_empty() => Ok(()),
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{path} is a file"))),
            None => Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no folder {path}"))),
        }
    }

    /// Makes a change of names visible; it is durable after a sync of the folders. Returns whether the power fails in it.
    fn change_names(&mut self, names: Vec<(String, Option<Node>)>) -> io::Result<()> {
        let cut = self.begin_change(names.first().map_or("", |(name, _)| parent(name)));
        if !cut || self.random.coin() {
            let mut dirs: Vec<String> = names.iter().map(|(name, _)| parent(name).to_owned()).collect();
            dirs.dedup();
            for (name, node) in &names {
                set_name(&mut self.names, name, node.as_ref());
            }
            self.name_changes.push(NameChange { dirs, names });
        }
        self.end_change(cut)
    }

    /// Decides which changes of names survive the cut.
    fn settle_names(&mut self) {
        let changes = std::mem::take(&mut self.name_changes);
        // A journalling file system keeps a prefix of them; nothing promises that, so the other half of the time each
        // one lives or dies on its own.
        let prefix = self.random.pick(changes.len() + 1);
        let in_order = self.random.coin();
        for (nth, change) in changes.into_iter().enumerate() {
            let survives = if in_order { nth < prefix } else { self.random.coin() };
            if survives {
                for (name, node) in &change.names {
                    set_name(&mut self.durable_names, name, node.as_ref());
                }
            }
        }
        // What is in a folder whose own name was lost is lost with it.
        let dirs: Vec<String> = self
            .durable_names
            .iter()
            .filter(|(_, node)| matches!(node, Node::Dir))
            .map(|(name, _)| name.clone())
            .collect();
        self.durable_names.retain(|name, _| parent(name).is_empty() || dirs.iter().any(|dir| dir == parent(name)));
        self.names = self.durable_names.clone();
    }

    fn used(&self) -> u64 {
        let files = self.names.values().filter_map(|node| match node {
            Node::File(file) => Some(lock(file).bytes.len() as u64),
            Node::Dir => None,
        });
        files.sum()
    }
}

fn set_name(names: &mut BTreeMap<String, Node>, name: &str, node: Option<&Node>) {
    match node {
        Some(node) => names.insert(name.to_owned(), node.clone()),
        None => names.remove(name),
    };
}

impl Disk for ModelDisk {
    fn open(&self, path: &str, create: bool) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state()?;
        let contents = match state.file(path) {
            Err(error) if create && error.kind() == io::ErrorKind::NotFound => {
                state.expect_dir(parent(path))?;
                let contents = Arc::new(Mutex::new(Contents::default()));
                state.change_names(vec![(path.to_owned(), Some(Node::File(contents.clone())))])?;
                contents
            }
            other => other?,
        };
        Ok(Box::new(ModelFile { disk: self.clone(), path: path.to_owned(), contents }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let state = self.state()?;
        state.expect_dir(dir)?;
        let inside = state.names.keys().filter(|path| parent(path) == dir);
        Ok(inside.map(|path| path.rsplit_once('/').map_or(path.as_str(), |(_, name)| name).to_owned()).collect())
    }

    fn exists(&self, path: &str) -> io::Result<bool> {
        Ok(self.state()?.names.contains_key(path) || path.is_empty())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state()?;
        let node = Node::File(state.file(from)?);
        state.expect_dir(parent(to))?;
        state.change_names(vec![(from.to_owned(), None), (to.to_owned(), Some(node))])
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state()?;
        state.file(path)?;
        state.change_names(vec![(path.to_owned(), None)])
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.state()?;
        if state.names.contains_key(path) {
            return state.expect_dir(path);
        }
        state.expect_dir(parent(path))?;
        state.change_names(vec![(path.to_owned(), Some(Node::Dir))])
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        self.wait_for_release();
        let mut state = self.state()?;
        state.expect_dir(path)?;
        let cut = state.begin_change(path);
        if state.begin_sync() {
            return Err(eio("injected sync failure"));
        }
        if !state.ignore_syncs && (!cut || state.random.coin()) {
            let (synced, waiting) = std::mem::take(&mut state.name_changes)
                .into_iter()
                .partition::<Vec<_>, _>(|change| change.dirs.iter().any(|dir| dir == path));
            state.name_changes = waiting;
            for (name, node) in synced.iter().flat_map(|change| &change.names) {
                set_name(&mut state.durable_names, name, node.as_ref());
            }
        }
        state.end_change(cut)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state()?;
        Ok(state.capacity.map_or(u64::MAX / 2, |capacity| capacity.saturating_sub(state.used())))
    }

    fn used_bytes(&self) -> io::Result<u64> {
        Ok(self.state()?.used())
    }
}

struct ModelFile {
    disk: ModelDisk,
    /// As it was when it was opened.
    path: String,
    contents: Arc<Mutex<Contents>>,
}

impl DiskFile for ModelFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state()?;
        if state.fail_reads {
            return Err(eio("injected read failure"));
        }
        let contents = lock(&self.contents);
        let start = usize::try_from(offset).map_err(io::Error::other)?.min(contents.bytes.len());
        let end = start.saturating_add(buf.len()).min(contents.bytes.len());
        buf[..end - start].copy_from_slice(&contents.bytes[start..end]);
        Ok(end - start)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let mut state = self.disk.state()?;
        let cut = state.begin_change(parent(&self.path));
        state.writes += 1;
        if state.fail_write_at == Some(state.writes) {
            state.fail_write_at = None;
            lock(&self.contents).write(&buf[..buf.len() / 2], offset);
            return Err(eio("injected write failure"));
        }
        let grows = (offset + buf.len()).saturating_sub(lock(&self.contents).bytes.len()) as u64;
        let free = state.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used()));
        if grows > free {
            // What still fitted is written, as a file system does.
            let fits = buf.len() - usize::try_from(grows - free).map_err(io::Error::other)?.min(buf.len());
            lock(&self.contents).write(&buf[..fits], offset);
            return Err(io::Error::new(io::ErrorKind::StorageFull, "no space left on the model disk"));
        }
        lock(&self.contents).write(buf, offset);
        state.end_change(cut)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.sync_file(&self.path, &self.contents, false)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.sync_file(&self.path, &self.contents, true)
    }

    fn len(&self) -> io::Result<u64> {
        let _state = self.disk.state()?;
        Ok(lock(&self.contents).bytes.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let mut state = self.disk.state()?;
        let cut = state.begin_change(parent(&self.path));
        lock(&self.contents).set_len(len);
        state.end_change(cut)
    }
}

/// While it lives, syncs wait. See [`ModelDisk::hold_syncs`].
pub struct SyncHold {
    world: Arc<World>,
}

impl Drop for SyncHold {
    fn drop(&mut self) {
        *lock(&self.world.held) = false;
        self.world.released.notify_all();
    }
}

impl fmt::Debug for SyncHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncHold").finish_non_exhaustive()
    }
}

impl fmt::Debug for ModelDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelDisk").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl fmt::Debug for ModelFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelFile").field("disk", &self.disk).finish_non_exhaustive()
    }
}

//! What is around a node: the disk, the network, the clocks and the backends, as they are or as a test makes them up.

use std::path::PathBuf;
use std::sync::Arc;

use loadline_executor::{Backends, Unwatched, Witness};
use loadline_log::{Pace, RealDisk, SharedDisk, Threading};
use loadline_raft_node::{Clock, Dial, NoObserver, NodeObserver, PlainDial, SystemClock};

use crate::config::ServerConfig;
use crate::serve::ServeError;

/// Preallocated, so that a sync need not wait for the file system to record a new length.
const WAL_SEGMENT_BYTES: u64 = 16 << 20;
/// Each is as large as the state, and saves a replay up to an eighth of the history.
const REPLAY_STARTS: usize = 8;

/// What a node takes for granted, and a test or a simulator makes up: disk, network, clocks, and where replicas live.
#[derive(Debug)]
pub struct World {
    pub disk: SharedDisk,
    /// Size of a segment of the write-ahead log, which is written full of zeros before it is used.
    pub wal_segment_bytes: u64,
    /// Where the audit index lives; it is no part of the disk, because it is rebuilt when it is missing.
    pub audit_index: Option<PathBuf>,
    pub dial: Arc<dyn Dial>,
    pub clock: Arc<dyn Clock>,
    pub threading: Threading,
    /// What the key that signs exports is made from, where nothing may depend on chance.
    pub signing_seed: Option<[u8; 32]>,
    /// Older snapshots that are kept as starts for replays.
    pub replay_starts: usize,
    /// Whether the node fetches from the others what its journal lacks.
    pub fetch_history: bool,
    /// When the write-ahead log writes, where it has no thread of its own.
    pub pace: Option<Arc<dyn Pace>>,
    /// Where replicas live, by the names that clusters are placed under.
    pub backends: Backends,
    /// Whether the leader asks for configured signals. A simulator has nobody to ask.
    pub collecting: bool,
    /// Is told of every step on the way of an action.
    pub witness: Arc<dyn Witness>,
    /// Is told, besides the figures, of what the node does.
    pub onlooker: Arc<dyn NodeObserver>,
}

impl World {
    /// The data folder, plain connections, the clocks of this machine, and the backends that the configuration names.
    pub fn real(config: &ServerConfig) -> Result<World, ServeError> {
        let disk = RealDisk::open(&config.data_dir).map_err(ServeError::DataDir)?;
        note_program(&disk);
        Ok(World {
            disk: Arc::new(disk),
            wal_segment_bytes: WAL_SEGMENT_BYTES,
            audit_index: Some(config.data_dir.join("audit")),
            dial: Arc::new(PlainDial),
            clock: Arc::new(SystemClock),
            threading: Threading::Thread,
            signing_seed: None,
            replay_starts: REPLAY_STARTS,
            fetch_history: true,
            pace: None,
            backends: config.open_backends().map_err(ServeError::Backend)?,
            collecting: true,
            witness: Arc::new(Unwatched),
            onlooker: Arc::new(NoObserver),
        })
    }
}

/// Notes in the folder which version opens it. A folder that a newer one wrote may hold what this one cannot read: then it stops when it
/// comes to it, and this says which one does not.
fn note_program(disk: &RealDisk) {
    let ours = env!("CARGO_PKG_VERSION");
    if let Some(noted) = loadline_log::newer_program(disk, ours) {
        tracing::warn!(
            "the data folder was written by version {noted}, and this is version {ours}: what it cannot read, {noted} can"
        );
    }
    if let Err(error) = loadline_log::note_program(disk, ours) {
        tracing::warn!("the version of this program could not be noted in the data folder: {error}");
    }
}

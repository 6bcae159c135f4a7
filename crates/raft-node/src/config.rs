//! What a node is told at its start, and how that becomes openraft's configuration.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loadline_log::{Pace, Threading};
use openraft::{SnapshotPolicy, StepDownPolicy};

use crate::errors::StartError;

/// Requests in one entry, if nothing else is said. All of them are applied in one go, and others wait meanwhile.
pub(crate) const ENTRY_REQUESTS_MAX: usize = 1_024;

/// What makes one node this node. Who it is in the group (its id) is not here: that is in the data folder.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    pub name: String,
    /// host:port at which the other nodes reach this one.
    pub address: String,
    /// The addresses of all nodes that found the group together, this one included. The first one founds. Empty: this
    /// node alone, unless it is to join.
    pub peers: Vec<String>,
    /// Addresses of nodes of a running group to join, besides `peers`.
    pub join: Vec<String>,
    pub timing: Timing,
    /// A snapshot is taken after so many entries.
    pub snapshot_every: u64,
    /// So many entries are kept in the log although a snapshot covers them, for a node that was away for a moment.
    pub keep_entries: u64,
    /// What one entry carries at most.
    pub entry_requests_max: usize,
    /// Below so much free disk nothing is recorded.
    pub disk_reserve_bytes: u64,
    /// Logical time advances at least this often while there is a leader.
    pub tick_every: Duration,
    pub threading: Threading,
    /// When the log writes, where it has no thread of its own.
    pub pace: Option<Arc<dyn Pace>>,
    /// Where the audit index lives, outside of the simulated disk. None: no index.
    pub audit_index: Option<PathBuf>,
    /// Size of a segment of the write-ahead log.
    pub wal_segment_bytes: u64,
    /// A segment of the journal that has grown to this is sealed.
    pub journal_segment_bytes: u64,
    /// So many older snapshots are kept as places at which a replay of the journal can begin, besides those that Raft needs.
    pub replay_starts: usize,
    /// Whether this node fetches from the others what its journal lacks.
    pub fetch_history: bool,
    /// How often it looks whether it lacks anything.
    pub history_look_every: Duration,
    /// What the key that signs exports is made from. None: a random one, made on the first start and kept in the data folder.
    /// Some: this one, and nothing is written. For simulations, in which nothing may depend on chance.
    pub signing_seed: Option<[u8; 32]>,
}

impl NodeConfig {
    /// A node with the usual settings.
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            address: address.into(),
            peers: Vec::new(),
            join: Vec::new(),
            timing: Timing::default(),
            snapshot_every: 10_000,
            keep_entries: 1_000,
            entry_requests_max: ENTRY_REQUESTS_MAX,
            disk_reserve_bytes: 256 << 20,
            tick_every: Duration::from_secs(1),
            threading: Threading::Thread,
            pace: None,
            audit_index: None,
            wal_segment_bytes: 16 << 20,
            journal_segment_bytes: 64 << 20,
            replay_starts: 8,
            fetch_history: true,
            history_look_every: Duration::from_secs(2),
            signing_seed: None,
        }
    }

    /// The founding members' addresses. A node that is told of nobody founds a group of its own.
    pub(crate) fn founding_addresses(&self) -> Vec<String> {
        if self.peers.is_empty() && self.join.is_empty() { vec![self.address.clone()] } else { self.peers.clone() }
    }

    pub(crate) fn validate(&self) -> Result<(), StartError> {
        let wrong = |field, wrong: String| Err(StartError::Config { field, wrong });
        if self.name.is_empty() {
            return wrong("name", "must not be empty".into());
        }
        check_address("address", &self.address)?;
        for address in &self.peers {
            check_address("peers", address)?;
        }
        for address in &self.join {
            check_address("join", address)?;
        }
        if !self.peers.is_empty() && !self.peers.contains(&self.address) {
            return wrong("peers", format!("must contain this node's own address {}", self.address));
        }
        let mut sorted = self.peers.clone();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return wrong("peers", format!("contains {} twice", pair[0]));
        }
        if self.snapshot_every == 0 {
            return wrong("snapshot_every", "must be at least 1".into());
        }
        if self.tick_every.is_zero() {
            return wrong("tick_every", "must be longer than nothing".into());
        }
        if self.history_look_every.is_zero() {
            return wrong("history_look_every", "must be longer than nothing".into());
        }
        self.timing.validate()
    }
}

pub(crate) fn check_address(field: &'static str, address: &str) -> Result<(), StartError> {
    let port = address.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(port)) if port > 0 => Ok(()),
        _ => Err(StartError::Config { field, wrong: format!("{address:?} is not of the form host:port") }),
    }
}

/// How long things take before something is taken to be wrong.
#[derive(Debug, Clone)]
pub struct Timing {
    /// A leader is heard from this often.
    pub heartbeat: Duration,
    /// A follower that has not heard from a leader stands for election after its lease (`election_max`) and a random
    /// time between these two.
    pub election_min: Duration,
    pub election_max: Duration,
    /// A snapshot transfer without progress for so long is given up, on both sides.
    pub install_snapshot: Duration,
    /// Entries that were sent and not answered for so long mean that the connection is dead. Much longer than a
    /// heartbeat: a slow fsync of the follower is not a broken connection.
    pub append_progress: Duration,
    /// A request that was not committed for so long is answered as unknown.
    pub propose: Duration,
    /// A request or read waits so long for a leader to appear.
    pub leader_wait: Duration,
    /// The other nodes are asked this often how they are.
    pub probe_every: Duration,
    /// One such question, and every other small call between nodes, takes at most so long.
    pub call: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(600),
            install_snapshot: Duration::from_secs(30),
            append_progress: Duration::from_secs(3),
            propose: Duration::from_secs(10),
            leader_wait: Duration::from_secs(2),
            probe_every: Duration::from_secs(1),
            call: Duration::from_secs(1),
        }
    }
}

impl Timing {
    fn validate(&self) -> Result<(), StartError> {
        let wrong = |field, wrong: &str| Err(StartError::Config { field, wrong: wrong.into() });
        if self.heartbeat < Duration::from_millis(5) {
            return wrong("heartbeat", "must be at least 5ms");
        }
        if self.election_min < self.heartbeat * 2 {
            return wrong(
                "election_timeout_min",
                "must be at least two heartbeats, or a single late one causes an election",
            );
        }
        if self.election_max <= self.election_min {
            return wrong(
                "election_timeout_max",
                "must be longer than election_timeout_min, or candidates collide for ever",
            );
        }
        Ok(())
    }
}

/// openraft's configuration. Every value that matters is set on purpose; see each.
pub(crate) fn raft_config(
    config: &NodeConfig,
    group: &str,
    elect_at_once: bool,
) -> Result<openraft::Config, StartError> {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let timing = &config.timing;
    let raft = openraft::Config {
        cluster_name: group.to_owned(),
        heartbeat_interval: millis(timing.heartbeat),
        election_timeout_min: millis(timing.election_min),
        election_timeout_max: millis(timing.election_max),
        // The default of 200 ms would give up any snapshot that takes longer to arrive; ours watches progress itself.
        install_snapshot_timeout: millis(timing.install_snapshot).max(10_000),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_every),
        max_in_snapshot_log_to_keep: config.keep_entries,
        // Each purge is a write to the log. In steps of a tenth of what is kept it is rare and still prompt.
        purge_batch_size: (config.keep_entries / 10).clamp(1, 1_000),
        // A follower gets entries for as long as the log has them. A snapshot for less than a snapshot's distance
        // would be sent again before it could have helped.
        replication_lag_threshold: config.snapshot_every.saturating_add(config.keep_entries),
        // Bytes are bounded where entries are read (see `log_store`); this only bounds the count of tiny ones.
        max_payload_entries: 1_024,
        // A node that was away must not unseat a healthy leader by coming back with a higher term.
        enable_pre_vote: Some(true),
        // After a restart the lease is gone and with it every reason to believe that nobody else was elected.
        enable_leader_restore: Some(false),
        // A leader that is heard but cannot hear falls silent now and then, or its followers would stay loyal for ever
        // to one that can commit nothing. This is the shortest time that openraft allows.
        quorum_loss_probe_interval: Some(millis(timing.election_max) * 2),
        // A follower whose log went back has forgotten promises. Going on with it can lose committed entries.
        allow_log_reversion: None,
        // A leader that removed itself hands over after the change had time to reach the others.
        removed_leader_step_down: StepDownPolicy::After(millis(timing.heartbeat) * 3 / 2),
        // How long to leave a peer alone that could not be reached. Short at first: a restart takes a moment only.
        backoff: "50ms 100ms 200ms ...500ms".to_owned(),
        // The proposer packs and bounds; waiting here as well would only add delay.
        api_batch_linger_ms: 0,
        // An entry goes out to the others as soon as it is handed to the disk, and not when Raft has nothing else to do.
        broadcast_submitted_on_append: Some(true),
        // See `Inner::run_as`: a node that may have promised a lease before its restart first lets it run out.
        enable_elect: elect_at_once,
        ..openraft::Config::default()
    };
    raft.validate().map_err(|error| StartError::Config { field: "timing", wrong: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut NodeConfig), expected: &str) {
        let mut config = NodeConfig::new("n1", "127.0.0.1:7001");
        change(&mut config);
        let outcome = config.validate().err().map_or_else(|| "fine".to_owned(), |error| error.to_string());
        assert_eq!(outcome, expected);
    }

    #[test]
    fn a_wrong_setting_is_named_with_what_would_be_right() {
        check(|_| (), "fine");
        check(|config| config.name.clear(), "name: must not be empty");
        check(|config| config.address = "here".into(), "address: \"here\" is not of the form host:port");
        check(|config| config.address = ":7001".into(), "address: \":7001\" is not of the form host:port");
        check(|config| config.address = "a:0".into(), "address: \"a:0\" is not of the form host:port");
        check(|config| config.join = vec!["a:b".into()], "join: \"a:b\" is not of the form host:port");
        check(|config| config.peers = vec!["a:1".into()], "peers: must contain this node's own address 127.0.0.1:7001");
        check(
            |config| config.peers = vec!["a:1".into(), "127.0.0.1:7001".into(), "a:1".into()],
            "peers: contains a:1 twice",
        );
        check(
            |config| config.timing.election_min = Duration::from_millis(150),
            "election_timeout_min: must be at least two heartbeats, or a single late one causes an election",
        );
        check(
            |config| config.timing.election_max = Duration::from_millis(300),
            "election_timeout_max: must be longer than election_timeout_min, or candidates collide for ever",
        );
        check(|config| config.snapshot_every = 0, "snapshot_every: must be at least 1");
    }

    #[test]
    fn every_valid_setting_is_accepted_by_openraft() {
        for (snapshot_every, keep_entries) in [(10_000, 1_000), (1, 0), (50, 10_000)] {
            let mut config = NodeConfig::new("n1", "127.0.0.1:7001");
            config.snapshot_every = snapshot_every;
            config.keep_entries = keep_entries;
            let raft = raft_config(&config, "g", true).unwrap();
            assert_eq!(raft.enable_pre_vote, Some(true));
            assert_eq!(raft.enable_leader_restore, Some(false));
            assert!(raft.install_snapshot_timeout >= 10_000);
        }
    }
}

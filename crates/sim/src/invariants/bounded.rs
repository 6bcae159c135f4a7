//! What is kept in memory does not grow with what has happened, only with what there is: in the replicated state, and in each
//! process.

use std::collections::BTreeMap;
use std::time::Duration;

use loadline_state_machine::State;

use super::{Agreed, Invariant};
use crate::plan::Plan;
use crate::record::{Phase, Place, Seen, Sighting, Sizes};

/// How often the whole state is measured.
const MEASURED_EVERY: u64 = 64;
/// A state with nothing in it, settings included.
const EMPTY_BYTES: usize = 16 << 10;
/// Of one cluster with its signals, its latest decision and its operation; also of one action.
const ROW_BYTES: usize = 16 << 10;
/// Of one request that is remembered, with its answer.
const REQUEST_BYTES: usize = 4 << 10;
/// Actions that a cluster has at one time: one for each replica that is added or goes.
const ACTIONS_PER_CLUSTER: usize = 16;

/// Connections, calls, streams and duties of one process. Those of three nodes, five users and a watcher are well below;
/// what is begun and never ended adds up to more within one run.
const TASKS_MAX: usize = 400;
/// A snapshot is taken after so many entries, but it can fail, and what was not replicated everywhere is not purged at once.
const SNAPSHOTS_LATE: u64 = 3;
/// Entries that come in while a snapshot is written and purged behind.
const LOG_ENTRIES_SLACK: u64 = 200;
/// So long after nothing goes wrong any more everybody answers. Before, a leader keeps what it has offered to a member that does not
/// answer: Raft purges nothing that is on its way.
const EVERYBODY_ANSWERS: Duration = Duration::from_secs(3);
/// Files of the log: what is purged goes in whole segments, and one is made ready ahead.
const SEGMENTS_SLACK: u64 = 4;
/// One whole one, its forerunner, and what is being written or was left behind by a crash.
const SNAPSHOTS_MAX: usize = 4;
/// What a world takes before anything has happened in it: users, a network, a backend; and of each node, its disk among it.
/// A run of three nodes takes 35 to 50 MiB in all.
const WORLD_BYTES: usize = 24 << 20;
const NODE_BYTES: usize = 16 << 20;
/// Of everything that was seen so much is remembered by those who judge it, and by disks and journals.
const SEEN_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Bounded {
    log: Agreed,
    log_entries_max: u64,
    segment_bytes: u64,
    /// The largest entry so far.
    entry_bytes_max: u64,
    /// Since when nothing goes wrong any more.
    heals_since: Option<Duration>,
    /// How far each node is.
    applied: BTreeMap<Place, u64>,
    sightings: usize,
    world_bytes: usize,
    /// Clusters that ever were: an action may outlive its cluster, until it is known what came of it.
    clusters_max: usize,
}

impl Bounded {
    pub(super) fn new(plan: &Plan) -> Bounded {
        Bounded {
            log: Agreed::default(),
            log_entries_max: plan.snapshot_every * SNAPSHOTS_LATE + plan.keep_entries + LOG_ENTRIES_SLACK,
            segment_bytes: plan.wal_segment_bytes,
            entry_bytes_max: 0,
            heals_since: None,
            applied: BTreeMap::new(),
            sightings: 0,
            world_bytes: WORLD_BYTES + plan.machines * NODE_BYTES,
            clusters_max: 0,
        }
    }

    /// What the last one lacks that the first one has.
    fn lacking(&self) -> u64 {
        let (last, first) = (self.applied.values().min(), self.applied.values().max());
        first.zip(last).map_or(0, |(first, last)| first - last)
    }

    fn process(&self, at: Duration, sizes: &Sizes) -> Result<(), String> {
        let Sizes { tasks, log_entries, log_bytes, snapshots } = *sizes;
        if tasks > TASKS_MAX {
            return Err(format!("it has {tasks} tasks, and should have no more than {TASKS_MAX}"));
        }
        if snapshots > SNAPSHOTS_MAX {
            return Err(format!(
                "it keeps {snapshots} files of snapshots, and should keep no more than {SNAPSHOTS_MAX}"
            ));
        }
        let everybody_answers = self.heals_since.is_some_and(|since| at >= since + EVERYBODY_ANSWERS);
        let for_others = if everybody_answers { 0 } else { self.lacking() };
        let log_entries_max = self.log_entries_max + for_others;
        if log_entries > log_entries_max {
            return Err(format!("its log has {log_entries} entries, and should have no more than {log_entries_max}"));
        }
        // A frame is little more than its entry, and no segment is left half empty but for an entry that did not fit.
        let room = log_entries.max(1) * (self.entry_bytes_max + 256) * 2;
        let bytes_max = (room / self.segment_bytes + SEGMENTS_SLACK) * self.segment_bytes;
        if self.heals_since.is_some() && log_bytes as u64 > bytes_max {
            return Err(format!(
                "its log takes {log_bytes} bytes for {log_entries} entries, and should take no more than {bytes_max}"
            ));
        }
        Ok(())
    }

    fn allocated(&self, bytes: usize) -> Result<(), String> {
        let bytes_max = self.world_bytes + self.sightings * SEEN_BYTES;
        if bytes > bytes_max {
            return Err(format!(
                "{bytes} bytes are allocated after {} sightings, and should be no more than {bytes_max}",
                self.sightings
            ));
        }
        Ok(())
    }
}

fn check(state: &State, clusters_max: usize) -> Result<(), String> {
    let actions_max = (clusters_max + 1) * ACTIONS_PER_CLUSTER;
    if state.action_count() > actions_max {
        return Err(format!("{} actions are unsettled, of {clusters_max} clusters", state.action_count()));
    }
    let kept_max = state.setting("request_window_count").and_then(|it| it.value.parse().ok()).unwrap_or(usize::MAX);
    if state.request_count() > kept_max {
        return Err(format!("{} requests are remembered, and {kept_max} may be", state.request_count()));
    }
    let rows = state.cluster_count() + state.strategy_count() + state.size_count() + state.collectors().count();
    let rows = rows + state.action_count() + state.dead_letter_count() + clusters_max;
    let bytes_max = EMPTY_BYTES + rows * ROW_BYTES + state.request_count() * REQUEST_BYTES;
    let bytes = state.encode().len();
    if bytes > bytes_max {
        return Err(format!("the state takes {bytes} bytes, and what is in it should take no more than {bytes_max}"));
    }
    Ok(())
}

impl Invariant for Bounded {
    fn name(&self) -> &'static str {
        "bounded"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        self.sightings += 1;
        match &sighting.what {
            Seen::Phase(Phase::Chaos) => self.heals_since = None,
            Seen::Phase(_) => self.heals_since = self.heals_since.or(Some(sighting.at)),
            Seen::Sizes { node, sizes } => {
                return self.process(sighting.at, sizes).map_err(|what| format!("n{}: {what}", node + 1));
            }
            Seen::Allocated { bytes } => return self.allocated(*bytes),
            Seen::Applied(applied) => {
                let place = self.applied.entry(applied.node).or_default();
                *place = applied.index.0.max(*place);
            }
            _ => {}
        }
        let Some(applied) = self.log.first(sighting) else { return Ok(()) };
        self.entry_bytes_max = self.entry_bytes_max.max(applied.entry.len() as u64);
        self.clusters_max = self.clusters_max.max(applied.state.cluster_count());
        if !applied.index.0.is_multiple_of(MEASURED_EVERY) {
            return Ok(());
        }
        check(&applied.state, self.clusters_max).map_err(|what| format!("at {}: {what}", applied.index))
    }
}

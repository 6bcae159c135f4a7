//! Scaling: from what the strategies want to what is done about it.
//!
//! - Here: what is kept, for all clusters and for each.
//! - [`evaluate`]: which clusters are looked at when. [`deadlines`]: what is due. [`assess`]: what the strategies say.
//!   [`conclude`]: what comes of it.
//! - [`plan`]: what lies between what is there and what is wanted. [`brakes`]: whether it may be done now.
//! - [`operations`] and [`actions`]: what is being done. [`advance`]: the next step. [`claims`]: who takes it, and what came
//!   of it. [`dead_letters`]: what was given up. [`by_hand`]: what an operator says about one.
//! - [`decisions`]: the record of one evaluation. [`essence`]: whether it is news. [`explain`]: the same in words, out of [`facts`]. [`retention`]: how long rows are shown.
//!   [`views`]: how all of it is read. [`queues`]: what waits, as numbers to draw.
//! - [`idle`]: who is at zero and since when. [`wake`]: waking by hand. [`savings`]: what that was worth. [`floor`]: a minimum for a while.
//!   [`checkpoints`]: where what goes is kept.
//! - [`asked`]: replicas that somebody wants beside the strategies. [`rows`]: what is written to the tables by hand. [`pause`]: holding a cluster by hand. [`removal`]: dropping one. [`restored`]: bringing back a backup.
//! - [`what_if`]: the same brain as a pure function, with no cluster behind it.
//! - [`evolve`]: what the events of all this do to the state. [`encoding`]: how it becomes bytes.

pub(crate) mod actions;
pub(crate) mod advance;
pub(crate) mod asked;
pub(crate) mod assess;
pub(crate) mod brakes;
pub(crate) mod by_hand;
pub(crate) mod checkpoints;
pub(crate) mod claims;
pub(crate) mod conclude;
pub(crate) mod dead_letters;
pub(crate) mod deadlines;
pub(crate) mod decisions;
pub(crate) mod encoding;
pub(crate) mod essence;
pub(crate) mod evaluate;
pub(crate) mod evolve;
pub(crate) mod explain;
pub(crate) mod facts;
pub(crate) mod floor;
pub(crate) mod idle;
pub(crate) mod ids;
pub(crate) mod knobs;
pub(crate) mod operations;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod queues;
pub(crate) mod rejection;
pub(crate) mod removal;
pub(crate) mod restored;
pub(crate) mod retention;
pub(crate) mod rows;
pub(crate) mod savings;
pub(crate) mod views;
pub(crate) mod wake;
pub(crate) mod what_if;

use std::hint::black_box;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::configuration::StrategyKind;
use crate::configuration::stored::{Rulers, Strategies};
use crate::index::Index;
use crate::signals::Signals;
use crate::signals::collectors::Collectors;
use crate::signals::shared::SharedNames;
use crate::strategies::StrategyState;
use crate::table::{Key, Table};
use crate::{ClusterId, Time};
use actions::Actions;
use dead_letters::DeadLetters;
use deadlines::{Deadlines, Due, Sweep};
use decisions::{Conclusion, Kept};
use floor::Override;
use idle::IdleRecord;
use operations::Operation;
use pause::Pause;
use plan::{Planned, Step};
use retention::ActionHistory;

/// Everything about scaling. Sizes, clusters and settings have tables of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scaling {
    pub(crate) strategies: Strategies,
    pub(crate) clusters: Index<ClusterId, Arc<ClusterRecord>>,
    pub(crate) actions: Actions,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) collectors: Collectors,
    /// Also of clusters that are gone.
    pub(crate) history: Table<ClusterId, Arc<ActionHistory>>,
    pub(crate) deadlines: Deadlines,
    pub(crate) sweep: Option<Sweep>,
    pub(crate) names: SharedNames,
    /// The backends that keep a checkpoint of what is suspended.
    pub(crate) checkpointing: Table<Key, ()>,
}

/// What is known about one cluster beyond its name. A cluster that nobody has said anything about has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterRecord {
    pub(crate) signals: Signals,
    /// By [`StrategyKind::slot`].
    #[serde(with = "crate::strategies::by_kind")]
    pub(crate) states: [Option<Box<StrategyState>>; StrategyKind::COUNT],
    pub(crate) decision: Option<Kept>,
    pub(crate) operation: Option<Arc<Operation>>,
    pub(crate) pause: Option<Box<Pause>>,
    /// When an operation was completed last: the cluster's cooldown counts from here.
    pub(crate) scaled_at: Option<Time>,
    /// Operations that failed since one was completed.
    pub(crate) failures: u32,
    pub(crate) failed_at: Option<Time>,
    /// When calls were claimed that the rate limit counts, the oldest first.
    pub(crate) counted: Vec<Time>,
    /// What somebody rejected. It is not proposed again while it is still wanted.
    pub(crate) rejected: Vec<Step>,
    /// What somebody asked for by hand and has not begun, the oldest first.
    pub(crate) asked: Vec<Planned>,
    /// Since when something has been wanted that is not there.
    pub(crate) pending_since: Option<Time>,
    pub(crate) due: Option<Time>,
    pub(crate) idle: Option<Box<IdleRecord>>,
    /// A minimum that somebody wants for a while.
    pub(crate) floor: Option<Box<Override>>,
    /// The strategies that name this cluster, so that a look at it finds them here. They are in the table of strategies.
    #[serde(skip)]
    pub(crate) own: Option<Arc<Rulers>>,
}

impl Scaling {
    pub(crate) fn record(&self, id: ClusterId) -> Option<&ClusterRecord> {
        self.clusters.get(&id).map(Arc::as_ref)
    }

    /// The record to write to; made if there is none.
    pub(crate) fn record_mut(&mut self, id: ClusterId) -> &mut ClusterRecord {
        Arc::make_mut(self.clusters.get_or_default(id))
    }

    /// Looks at the cluster at `at`, or before.
    pub(crate) fn look_at(&mut self, id: ClusterId, at: Time) {
        let record = self.record_mut(id);
        let before = record.due.replace(at);
        if let Some(before) = before {
            self.deadlines.remove(before, Due::Cluster(id));
        }
        self.deadlines.insert(at, Due::Cluster(id));
    }

    /// The cluster's deadline has come.
    pub(crate) fn looked_at(&mut self, id: ClusterId) {
        if self.record(id).is_some_and(|record| record.due.is_some())
            && let Some(before) = self.record_mut(id).due.take()
        {
            self.deadlines.remove(before, Due::Cluster(id));
        }
    }

    pub(crate) fn remove_cluster(&mut self, id: ClusterId) {
        self.looked_at(id);
        self.clusters.remove(&id);
        self.dead_letters.forget_cluster(id);
    }

    /// A cluster came, went, or changed its name.
    pub(crate) fn cluster_renamed(&mut self, from: Option<&str>, to: Option<&str>) {
        if self.strategies.cluster_renamed(from, to) {
            self.sweep();
        }
    }

    /// Any cluster may come out differently from here on.
    pub(crate) fn sweep(&mut self) {
        self.sweep = Some(self.sweep.map_or_else(Sweep::start, Sweep::again));
    }
}

impl ClusterRecord {
    /// Reads a little of everything that an evaluation is about to read. Among a hundred thousand clusters none of it is in
    /// a cache, and one place after the other would be waited for; asked for in one go, they come together.
    pub(crate) fn fetch(&self) {
        let Self { signals, due, pause, scaled_at, failures, own, .. } = self;
        let mut read = due.is_some() ^ pause.is_some() ^ scaled_at.is_some() ^ (*failures > 0);
        read ^= self.operation.is_some() ^ self.rejected.is_empty() ^ self.counted.is_empty();
        read ^= signals.activity.is_some() ^ signals.metrics.is_empty() ^ signals.gone.is_empty();
        read ^= self.pending_since.is_some() ^ self.failed_at.is_some();
        read ^= self.decision.as_ref().is_some_and(|kept| kept.conclusion == Conclusion::AsWanted);
        for state in self.states.iter().flatten() {
            read ^= state.version > 0;
        }
        for heard in &signals.collectors {
            read ^= heard.confirmed_at.is_some();
        }
        for replica in &signals.replicas {
            read ^= replica.ready ^ replica.hydration.is_some() ^ replica.crashes.is_empty() ^ replica.name.is_empty();
        }
        for ruler in own.iter().flat_map(|own| own.iter().flatten()) {
            read ^= (*ruler.configuration).as_ref().is_ok_and(|configuration| configuration.enabled);
        }
        black_box(read);
    }

    pub(crate) fn state_of(&self, kind: StrategyKind) -> Option<&StrategyState> {
        self.states[kind.slot()].as_deref()
    }
}

//! What the duties of an executor share, and how they are put together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadline_state_machine::ClusterId;
use tokio::sync::Notify;

use crate::acting::Ahead;
use crate::{Acting, Backends, ClaimsAhead, Duties, Group, Note, Noting, Observing, Unnoted, Unwatched, Witness};

/// Everything that acts for one group on this node. It makes the two duties; between leaderships nothing of it runs.
#[derive(Clone, Debug)]
pub struct Executor {
    pub(crate) group: Arc<dyn Group>,
    pub(crate) backends: Backends,
    pub(crate) witness: Arc<dyn Witness>,
    noting: Arc<dyn Noting>,
    pub(crate) settings: Settings,
    /// From the duty that acts to the one that looks, for each backend.
    touched: Arc<BTreeMap<String, Arc<Touched>>>,
    /// From whoever fills the log to the duty that acts.
    pub(crate) ahead: Ahead,
}

/// How an executor goes about it. What a backend needs is in its capabilities instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    pub acting: ActingSettings,
    pub observing: ObservingSettings,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActingSettings {
    /// Calls at a time on one backend, where the backend does not allow fewer. There is no limit over all backends: a slow
    /// one would use it up for the others.
    pub calls_per_backend_max: usize,
    /// How long to wait after the first failure to fence or to read back; doubled up to `retry_longest`.
    pub retry_first: Duration,
    pub retry_longest: Duration,
    /// So many calls in a row without an answer, and the backend is left alone for a while.
    pub breaker_failures_max: u32,
    /// How long at first; doubled, while the calls that try are not answered either, up to `breaker_longest`.
    pub breaker_first: Duration,
    pub breaker_longest: Duration,
    /// How often a claim that waits for the lease looks whether it holds again.
    pub lease_look_every: Duration,
}

impl Default for ActingSettings {
    fn default() -> ActingSettings {
        ActingSettings {
            calls_per_backend_max: 32,
            retry_first: Duration::from_millis(200),
            // An operator who says "read back at once" should not have to wait long for it.
            retry_longest: Duration::from_secs(5),
            breaker_failures_max: 5,
            breaker_first: Duration::from_secs(1),
            breaker_longest: Duration::from_secs(30),
            lease_look_every: Duration::from_millis(20),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservingSettings {
    /// How often a cluster is looked at while an operation is under way on it, where its backend is looked at less often
    /// otherwise: somebody waits for a replica to become ready.
    pub busy_every: Duration,
    /// How often it is looked which clusters there are and where they live. It costs a walk over all of them where that has changed.
    pub roster_every: Duration,
    /// Looks at a time on one backend.
    pub looks_per_backend_max: usize,
    /// How long what was seen may wait for more, so that one entry of the log carries many clusters.
    pub batch_for: Duration,
    /// Clusters in one report.
    pub batch_clusters_max: usize,
}

impl Default for ObservingSettings {
    fn default() -> ObservingSettings {
        ObservingSettings {
            busy_every: Duration::from_millis(500),
            roster_every: Duration::from_secs(1),
            looks_per_backend_max: 8,
            batch_for: Duration::from_millis(20),
            batch_clusters_max: 500,
        }
    }
}

impl Executor {
    pub fn new(group: Arc<dyn Group>, backends: Backends) -> Executor {
        Executor {
            group,
            touched: Arc::new(backends.names().map(|name| (name.to_owned(), Arc::default())).collect()),
            backends,
            witness: Arc::new(Unwatched),
            noting: Arc::new(Unnoted),
            settings: Settings::default(),
            ahead: Ahead::default(),
        }
    }

    #[must_use]
    pub fn witnessed_by(mut self, witness: Arc<dyn Witness>) -> Executor {
        self.witness = witness;
        self
    }

    #[must_use]
    pub fn noted_by(mut self, noting: Arc<dyn Noting>) -> Executor {
        self.noting = noting;
        self
    }

    #[must_use]
    pub fn with_settings(mut self, settings: Settings) -> Executor {
        self.settings = settings;
        self
    }

    /// The claims that it would make, for whoever fills the log.
    pub fn claims_ahead(&self) -> ClaimsAhead {
        ClaimsAhead::new(self.ahead.clone(), Arc::clone(&self.witness))
    }

    /// The duty that carries out actions.
    pub fn acting(&self) -> Acting {
        Acting::new(self.clone())
    }

    /// The duty that looks at what is there.
    pub fn observing(&self) -> Observing {
        Observing::new(self.clone())
    }

    /// The duty that asks for configured signals.
    #[cfg(feature = "collectors")]
    pub fn collecting(&self) -> crate::Collecting {
        crate::Collecting::new(Arc::clone(&self.group))
    }

    /// Adds both duties to those of a leader.
    pub fn join(&self, duties: Duties) -> Duties {
        duties.with(self.acting()).with(self.observing())
    }

    /// The clusters on this backend that should be looked at.
    pub(crate) fn touched(&self, backend: &str) -> Arc<Touched> {
        self.touched.get(backend).cloned().unwrap_or_default()
    }

    pub(crate) fn note(&self, note: &Note<'_>) {
        note.log();
        self.noting.note(note);
    }
}

/// Clusters on which something has just been done, so that they are looked at without waiting.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    clusters: Mutex<BTreeSet<ClusterId>>,
    news: Notify,
}

impl Touched {
    pub(crate) fn add(&self, cluster: ClusterId) {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster);
        self.news.notify_one();
    }

    pub(crate) fn take(&self) -> BTreeSet<ClusterId> {
        std::mem::take(&mut *self.clusters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) async fn news(&self) {
        self.news.notified().await;
    }
}

//! Places where a test stops or kills the process that comes by. Without the feature `testing` there is nothing here.

/// Where a process is with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing is written yet.
    BeforeIntent,
    /// The intent is on disk, and nothing was started.
    AfterIntent,
    /// The process of the replica was started, and nobody has looked what came of it.
    AfterSpawn,
    /// The ledger says that a replica is being killed, and it has not been yet.
    BeforeKill,
    /// A replica has its name, and nothing of it is in the ledger.
    BeforeBegun,
    /// The ledger says that a replica is there, and it has not shown itself yet.
    AfterBegun,
}

impl Place {
    pub const ALL: [Place; 6] = [
        Place::BeforeIntent,
        Place::AfterIntent,
        Place::AfterSpawn,
        Place::BeforeKill,
        Place::BeforeBegun,
        Place::AfterBegun,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Place::BeforeIntent => "before-intent",
            Place::AfterIntent => "after-intent",
            Place::AfterSpawn => "after-spawn",
            Place::BeforeKill => "before-kill",
            Place::BeforeBegun => "before-begun",
            Place::AfterBegun => "after-begun",
        }
    }
}

#[cfg(feature = "testing")]
mod watched {
    use std::sync::OnceLock;

    use super::Place;

    type Watcher = Box<dyn Fn(Place) + Send + Sync>;

    static WATCHER: OnceLock<Watcher> = OnceLock::new();

    /// Calls this at every place, for the rest of this process. The first one stays.
    pub fn watch(watcher: impl Fn(Place) + Send + Sync + 'static) {
        let _ = WATCHER.set(Box::new(watcher));
    }

    pub(crate) fn reached(place: Place) {
        if let Some(watcher) = WATCHER.get() {
            watcher(place);
        }
    }
}

#[cfg(not(feature = "testing"))]
pub(crate) fn reached(_place: Place) {}

#[cfg(feature = "testing")]
pub(crate) use watched::reached;
#[cfg(feature = "testing")]
pub use watched::watch;

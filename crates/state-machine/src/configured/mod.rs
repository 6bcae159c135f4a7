//! Signals that somebody has configured: where the leader collects a number, how often, and for which clusters.
//!
//! - Here: what is kept of each, and how one reads it. A value becomes a metric of the clusters that the signal is for, under
//!   the name of the signal (see [`crate::signals`]); strategies read it there.
//! - [`options`]: what has to be said about each kind. [`commands`]: how they come, change and go. [`collected`]: what collectors
//!   and pushers say. [`rejection`]: what somebody is told whose signal is refused.
//!
//! No secret is ever here: an option that needs one names an environment variable or a file of the node that leads.

pub(crate) mod collected;
pub(crate) mod commands;
pub(crate) mod options;
pub(crate) mod rejection;

use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::configuration::like::Like;
use crate::ids::ParseIdError;
use crate::table::{Key, Table};
use crate::{Cluster, Freshness, Options, Revision, Span, State, Target, Time};

/// Each is asked for all the time, and each of its clusters holds a metric of it.
pub(crate) const SIGNALS_MAX: usize = 1_000;

/// Where a signal comes from. New kinds go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SignalKind {
    /// The answer to a query of Prometheus.
    Prometheus,
    /// How much of a JetStream stream a consumer has not dealt with.
    Nats,
    /// The number that a query of a PostgreSQL database gives.
    Postgres,
    /// Nobody asks for it: somebody tells it.
    Push,
}

impl SignalKind {
    pub const ALL: [Self; 4] = [Self::Prometheus, Self::Nats, Self::Postgres, Self::Push];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prometheus => "prometheus",
            Self::Nats => "nats",
            Self::Postgres => "postgres",
            Self::Push => "push",
        }
    }
}

impl fmt::Display for SignalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SignalKind {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(text));
        found.ok_or_else(|| ParseIdError::new("kind of signal", text, "prometheus, nats, postgres or push"))
    }
}

/// A signal as it was configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    pub name: Key,
    pub kind: SignalKind,
    /// Whose metric its value becomes.
    pub target: Target,
    /// How often it is asked for; nothing for one that is pushed.
    pub every: Option<Span>,
    pub options: Options,
    pub created: Revision,
    /// The etag.
    pub updated: Revision,
    pub created_at: Time,
    pub updated_at: Time,
}

/// What came of collecting a signal. It is no part of what is configured, and changes without the etag.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalStanding {
    /// Of when the newest value is; nothing before the first.
    pub collected_at: Option<Time>,
    /// The newest value, of whichever cluster, in thousandths.
    pub value_milli: Option<i64>,
    /// How often it could not be collected, since it was created.
    pub errors: u64,
    pub failed_at: Option<Time>,
    /// Why not, the last time; nothing once a value has come again.
    pub error: Option<Key>,
}

/// A signal with what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignalView {
    pub signal: Signal,
    pub standing: SignalStanding,
    /// Whether the newest value can still be relied on; nothing before the first.
    pub freshness: Option<Freshness>,
}

impl SignalView {
    /// Nobody may rely on it: its newest value is too old, or there never was one.
    pub fn is_stale(&self) -> bool {
        !self.freshness.is_some_and(Freshness::is_fresh)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SignalRow {
    pub(crate) signal: Arc<Signal>,
    pub(crate) standing: SignalStanding,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConfiguredSignals {
    by_name: Table<Key, SignalRow>,
}

impl ConfiguredSignals {
    pub(crate) fn get(&self, name: &str) -> Option<&SignalRow> {
        self.by_name.get(name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SignalRow> {
        self.by_name.values()
    }

    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &SignalRow> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<_, str>((from, Bound::Unbounded)).map(|(_, row)| row)
    }

    pub(crate) fn last(&self) -> Option<&SignalRow> {
        self.by_name.get_max().map(|(_, row)| row)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// What came of it so far stays: a signal that is changed has not been collected any less.
    pub(crate) fn put(&mut self, signal: &Signal) {
        let standing = self.get(&signal.name).map(|row| row.standing.clone()).unwrap_or_default();
        self.put_row(SignalRow { signal: Arc::new(signal.clone()), standing });
    }

    pub(crate) fn put_row(&mut self, row: SignalRow) {
        self.by_name.insert(Key::clone(&row.signal.name), row);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// A metric of this name was reported for some cluster.
    pub(crate) fn came(&mut self, name: &str, value_milli: i64, as_of: Time) {
        // An old value that comes late is no news, and mostly there is no signal of that name.
        if self.get(name).is_none_or(|row| row.standing.collected_at.is_some_and(|known| known > as_of)) {
            return;
        }
        if let Some(row) = self.by_name.get_mut(name) {
            row.standing.collected_at = Some(as_of);
            row.standing.value_milli = Some(value_milli);
            row.standing.error = None;
        }
    }

    pub(crate) fn failed(&mut self, name: &str, error: &str, now: Time) {
        if let Some(row) = self.by_name.get_mut(name) {
            row.standing.errors = row.standing.errors.saturating_add(1);
            row.standing.failed_at = Some(now);
            row.standing.error = Some(error.into());
        }
    }
}

impl State {
    pub fn signal(&self, name: &str) -> Option<&Signal> {
        self.signals.get(name).map(|row| row.signal.as_ref())
    }

    /// By name, from the first name after `name`: the next page of a listing. Without it, from the beginning.
    pub fn signals_after(&self, name: Option<&str>) -> impl Iterator<Item = &Signal> {
        self.signals.after(name).map(|row| row.signal.as_ref())
    }

    pub fn signal_count(&self) -> usize {
        self.signals.len()
    }

    /// With what came of it, as of now.
    pub fn signal_view(&self, name: &str) -> Option<SignalView> {
        self.signals.get(name).map(|row| self.view_of_signal(row, self.now))
    }

    /// With what came of it, as of a time that may be ahead of that of the last entry.
    pub fn signal_view_at(&self, name: &str, now: Time) -> Option<SignalView> {
        self.signals.get(name).map(|row| self.view_of_signal(row, now.max(self.now)))
    }

    fn view_of_signal(&self, row: &SignalRow, now: Time) -> SignalView {
        let stale_after = self.settings.knobs().stale_after;
        let freshness = row.standing.collected_at.map(|at| Freshness::of(at, now, stale_after));
        SignalView { signal: row.signal.as_ref().clone(), standing: row.standing.clone(), freshness }
    }

    /// The clusters that a signal is for, by name.
    pub fn clusters_of_signal<'s>(&'s self, signal: &Signal) -> Box<dyn Iterator<Item = &'s Cluster> + 's> {
        match &signal.target {
            Target::Cluster(id) => Box::new(self.clusters.by_id(*id).into_iter()),
            Target::All => Box::new(self.clusters.after(None)),
            Target::Pattern(pattern) => {
                // What cannot be understood was never let in; it would match nothing.
                let like = Like::new(pattern);
                let meant = move |cluster: &&Cluster| like.as_ref().is_some_and(|like| like.matches(&cluster.name));
                Box::new(self.clusters.after(None).filter(meant))
            }
        }
    }
}

//! The collectors, and how far each has been heard. A stream carries a sequence; what was heard before is not heard again.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::table::{Key, Table};
use crate::{Span, Time};

/// A collector that says nothing for so long has gone: its stream begins anew if it ever comes back.
pub(crate) const COLLECTOR_FORGOTTEN_AFTER: Span = Span::from_days(7);

/// More would be a mistake in how they are named, once per start for example.
pub(crate) const COLLECTORS_MAX: usize = 10_000;

/// Somebody who tells signals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collector {
    pub name: Key,
    /// The last one that was accepted.
    pub sequence: u64,
    pub heard_at: Time,
    /// When it is looked whether it was heard since: put off when it comes, not at every report.
    pub(crate) due: Time,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collectors {
    by_name: Table<Key, Arc<Collector>>,
}

impl Collectors {
    pub(crate) fn get(&self, name: &str) -> Option<&Collector> {
        self.by_name.get(name).map(Arc::as_ref)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Collector> {
        self.by_name.values().map(Arc::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn put(&mut self, collector: Collector) {
        self.by_name.insert(Key::clone(&collector.name), Arc::new(collector));
    }

    /// The name as it is kept once for all clusters.
    pub(crate) fn key(&self, name: &str) -> Key {
        self.by_name.get(name).map_or_else(|| name.into(), |collector| Key::clone(&collector.name))
    }

    /// Answers the new deadline of one that was not known.
    pub(crate) fn heard(&mut self, name: &str, sequence: u64, now: Time) -> Option<(Time, Key)> {
        let known = self.get(name);
        if known.is_some_and(|known| (known.sequence, known.heard_at) == (sequence, now)) {
            // The same report, about another cluster.
            return None;
        }
        let due = known.map(|known| known.due);
        let name = self.key(name);
        let first = now + COLLECTOR_FORGOTTEN_AFTER;
        let new = due.is_none().then(|| (first, Key::clone(&name)));
        self.put(Collector { name, sequence, heard_at: now, due: due.unwrap_or(first) });
        new
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.by_name.remove(name);
    }
}

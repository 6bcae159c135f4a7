//! What has been applied, for everybody who only looks: the latest state, the latest happenings, and how far it is.
//!
//! Readers take a fork of the state and never hold up applying. The happenings of the last entries are kept in
//! memory, so that a watcher that keeps up costs no reading of the journal.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use loadline_state_machine::{Event, Hash, LogIndex, State, Time};
use tokio::sync::{Notify, watch};

use crate::types::{LogId, StoredMembership};

/// Happenings kept in memory: enough for a watcher to be some seconds late at full load.
const RECENT_MAX: usize = 8_192;
/// And at most so many bytes of events, for entries that are large. In pieces they take several times as much memory.
const RECENT_BYTES_MAX: usize = 2 << 20;

/// Everything that one entry of the log brought about.
#[derive(Debug, Clone, PartialEq)]
pub struct Happened {
    pub index: LogIndex,
    pub time: Time,
    /// Empty for entries that are Raft's own, and for those that changed nothing.
    pub events: Vec<Event>,
}

/// The state after some entry, with what Raft knows of that entry.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) state: Arc<State>,
    pub(crate) last: Option<LogId>,
    pub(crate) membership: Arc<StoredMembership>,
}

/// One applied entry as it is kept in memory.
#[derive(Debug, Clone)]
pub(crate) struct Recent {
    pub(crate) happened: Arc<Happened>,
    pub(crate) hash: Hash,
    pub(crate) bytes: usize,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Published {
    view: ArcSwap<View>,
    recent: Mutex<Ring>,
    applied: watch::Sender<LogIndex>,
    more_waits: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Recent>,
    bytes: usize,
}

impl Default for Published {
    fn default() -> Self {
        let applied = watch::Sender::new(LogIndex(0));
        Self { view: ArcSwap::default(), recent: Mutex::default(), applied, more_waits: Notify::new() }
    }
}

impl Published {
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.view.load().state.clone()
    }

    pub(crate) fn applied(&self) -> LogIndex {
        *self.applied.borrow()
    }

    /// Changes with every batch of applied entries.
    pub(crate) fn watch_applied(&self) -> watch::Receiver<LogIndex> {
        self.applied.subscribe()
    }

    /// More was applied. The happenings come first: whoever sees the new index must find them.
    pub(crate) fn advance(&self, view: View, happenings: impl IntoIterator<Item = Recent>) {
        self.remember(happenings);
        self.announce(view);
    }

    /// More was applied, and a later state will show it.
    pub(crate) fn remember(&self, happenings: impl IntoIterator<Item = Recent>) {
        let mut ring = self.lock();
        for recent in happenings {
            ring.bytes += recent.bytes;
            ring.kept.push_back(recent);
        }
        while ring.kept.len() > RECENT_MAX || ring.bytes > RECENT_BYTES_MAX {
            let Some(oldest) = ring.kept.pop_front() else { break };
            ring.bytes -= oldest.bytes;
        }
    }

    /// The state was replaced as a whole. What led to it did not happen here.
    pub(crate) fn replace(&self, view: View) {
        *self.lock() = Ring::default();
        self.announce(view);
    }

    fn announce(&self, view: View) {
        let (applied, more_waits) = (view.state.applied(), view.state.evaluations_wait());
        self.view.store(Arc::new(view));
        self.applied.send_replace(applied);
        if more_waits {
            self.more_waits.notify_one();
        }
    }

    /// Returns when a state was published in which clusters wait to be looked at. For one caller.
    pub(crate) async fn evaluations_wait(&self) {
        self.more_waits.notified().await;
    }

    /// The entry at `index`, if it is still in memory.
    pub(crate) fn recent(&self, index: LogIndex) -> Option<Recent> {
        let ring = self.lock();
        let first = ring.kept.front()?.happened.index;
        let offset = usize::try_from(index.0.checked_sub(first.0)?).ok()?;
        ring.kept.get(offset).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        // Counted and kept change together in short steps that do not panic.
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent(index: u64, bytes: usize) -> Recent {
        let happened = Happened { index: LogIndex(index), time: Time::from_millis(index), events: Vec::new() };
        Recent { happened: Arc::new(happened), hash: Hash::of(&index.to_le_bytes()), bytes }
    }

    fn indexes(published: &Published, range: std::ops::Range<u64>) -> Vec<u64> {
        range.filter_map(|index| Some(published.recent(LogIndex(index))?.happened.index.0)).collect()
    }

    #[test]
    fn the_oldest_go_first_when_there_are_too_many() {
        let published = Published::default();
        let over = RECENT_MAX as u64 + 3;
        published.advance(View::default(), (1..=over).map(|index| recent(index, 1)));
        assert_eq!(indexes(&published, 0..6), [4, 5]);
        assert_eq!(indexes(&published, over - 1..over + 5), [over - 1, over]);
    }

    #[test]
    fn the_oldest_go_first_when_they_are_too_large() {
        let published = Published::default();
        published.advance(View::default(), (1..=5).map(|index| recent(index, RECENT_BYTES_MAX / 2)));
        assert_eq!(indexes(&published, 0..10), [4, 5]);
    }

    #[test]
    fn nothing_from_before_a_snapshot_is_left_after_it() {
        let published = Published::default();
        published.advance(View::default(), (1..=5).map(|index| recent(index, 1)));
        published.replace(View::default());
        assert_eq!(indexes(&published, 0..10), []);
        published.advance(View::default(), [recent(100, 1)]);
        assert_eq!(indexes(&published, 0..200), [100]);
    }
}

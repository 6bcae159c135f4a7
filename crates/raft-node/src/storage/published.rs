//! What has been applied, for everybody who only looks: the latest state, the latest happenings, and how far it is.
//!
//! Readers take a fork of the state and never hold up applying. A fork is not free for whoever applies: the next change of each
//! row that is shared with it copies that row, and among very many clusters nothing else costs as much. So there is a fork only
//! where somebody looks. While readers come, one is made with every batch, and they find it without a lock; when a batch
//! went by and nobody looked, the next reader makes one, and may wait for as long as one entry takes to apply: whatever waits for a
//! disk after an entry does so when the state is free again.
//!
//! The happenings of the last entries are kept in memory, so that a watcher that keeps up costs no reading of the journal.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;
use loadline_state_machine::{Epoch, Event, Hash, LogIndex, State, Time};
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

/// The state after the last entry that was applied, with what Raft knows of that entry.
#[derive(Debug, Default)]
pub(crate) struct Current {
    pub(crate) state: State,
    pub(crate) last: Option<LogId>,
    pub(crate) membership: Arc<StoredMembership>,
    /// The entry after `last` failed, perhaps halfway. The node stops; until it has, nobody is told of that entry, and the state
    /// is kept nowhere.
    pub(crate) failed: bool,
}

impl Current {
    pub(crate) fn fork(&self) -> Arc<View> {
        let state = Arc::new(self.state.clone());
        Arc::new(View { state, last: self.last, membership: self.membership.clone(), failed: self.failed })
    }
}

/// The same after some entry, for readers.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) state: Arc<State>,
    pub(crate) last: Option<LogId>,
    pub(crate) membership: Arc<StoredMembership>,
    pub(crate) failed: bool,
}

/// What whoever acts for the group need not look into the state for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// The last announced index at which there were unsettled actions, or a leader was announced: before it, nothing can have
    /// become due since the last look.
    pub index: LogIndex,
    /// Of the leader that was announced last.
    pub epoch: Option<Epoch>,
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
    /// Held while an entry is applied, and while somebody forks.
    current: Mutex<Current>,
    /// The last fork. None: nobody had looked when the last batch was announced. An old one is not kept for nothing, because
    /// whatever changes meanwhile would be in memory twice.
    view: ArcSwapOption<View>,
    /// Whether anybody has looked since the last batch was announced.
    looked: AtomicBool,
    recent: Mutex<Ring>,
    applied: watch::Sender<LogIndex>,
    work: watch::Sender<Work>,
    more_waits: Notify,
}

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Recent>,
    bytes: usize,
}

impl Default for Published {
    fn default() -> Self {
        Self {
            current: Mutex::default(),
            view: ArcSwapOption::empty(),
            looked: AtomicBool::new(false),
            recent: Mutex::default(),
            applied: watch::Sender::new(LogIndex(0)),
            work: watch::Sender::new(Work::default()),
            more_waits: Notify::new(),
        }
    }
}

impl Published {
    /// The state after the last announced batch, or a later one.
    pub(crate) fn view(&self) -> Arc<View> {
        if !self.looked.load(Ordering::Relaxed) {
            self.looked.store(true, Ordering::Relaxed);
        }
        if let Some(view) = self.view.load_full() {
            return view;
        }
        let current = self.current();
        // Whoever had the lock before may have come for the same.
        if let Some(view) = self.view.load_full() {
            return view;
        }
        let view = current.fork();
        self.view.store(Some(view.clone()));
        // In the middle of a batch this is ahead of what was announced, and nobody may see a state before its index.
        self.tell(&current);
        view
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.view().state.clone()
    }

    pub(crate) fn applied(&self) -> LogIndex {
        *self.applied.borrow()
    }

    /// Changes with every batch of applied entries.
    pub(crate) fn watch_applied(&self) -> watch::Receiver<LogIndex> {
        self.applied.subscribe()
    }

    /// Changes when there is something to do for whoever acts.
    pub(crate) fn watch_work(&self) -> watch::Receiver<Work> {
        self.work.subscribe()
    }

    /// What has been applied, for whoever applies. To be held for one entry, and never while waiting for something.
    pub(crate) fn current(&self) -> MutexGuard<'_, Current> {
        // A panic while an entry is applied is caught within, and stops the node.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry was applied, and what is current shows it. Before whoever applies lets go of that: whoever sees an index must
    /// find what happened there.
    pub(crate) fn remember(&self, recent: Recent) {
        let mut ring = self.lock();
        ring.bytes += recent.bytes;
        ring.kept.push_back(recent);
        while ring.kept.len() > RECENT_MAX || ring.bytes > RECENT_BYTES_MAX {
            let Some(oldest) = ring.kept.pop_front() else { break };
            ring.bytes -= oldest.bytes;
        }
    }

    /// Everybody can see now what has been applied.
    pub(crate) fn announce(&self) {
        let current = self.current();
        let fork = self.looked.swap(false, Ordering::Relaxed).then(|| current.fork());
        self.view.store(fork);
        self.tell(&current);
    }

    /// The state was replaced as a whole. What led to it did not happen here.
    pub(crate) fn replace(&self, by: Current) {
        let mut current = self.current();
        *self.lock() = Ring::default();
        let before = std::mem::replace(&mut *current, by);
        let view = self.view.swap(None);
        self.tell(&current);
        drop(current);
        // A large one takes a while to be given back.
        drop((before, view));
    }

    /// Whoever has it holds what is current, so that the index never goes back.
    fn tell(&self, current: &Current) {
        if current.failed {
            return;
        }
        let state = &current.state;
        let now = Work { index: state.applied(), epoch: state.epoch() };
        // Who acts is told first, and so runs before those who only tell or count what happened.
        self.work.send_if_modified(|work| {
            let is_more = (state.action_count() > 0 && work.index < now.index) || work.epoch != now.epoch;
            if is_more {
                *work = now;
            }
            is_more
        });
        self.applied.send_replace(now.index);
        if state.evaluations_wait() {
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
        (1..=over).for_each(|index| published.remember(recent(index, 1)));
        assert_eq!(indexes(&published, 0..6), [4, 5]);
        assert_eq!(indexes(&published, over - 1..over + 5), [over - 1, over]);
    }

    #[test]
    fn the_oldest_go_first_when_they_are_too_large() {
        let published = Published::default();
        (1..=5).for_each(|index| published.remember(recent(index, RECENT_BYTES_MAX / 2)));
        assert_eq!(indexes(&published, 0..10), [4, 5]);
    }

    #[test]
    fn nothing_from_before_a_snapshot_is_left_after_it() {
        let published = Published::default();
        (1..=5).for_each(|index| published.remember(recent(index, 1)));
        published.replace(Current::default());
        assert_eq!(indexes(&published, 0..10), []);
        published.remember(recent(100, 1));
        assert_eq!(indexes(&published, 0..200), [100]);
    }

    /// Applies the next entry, without a word to anybody.
    fn apply_next(published: &Published) {
        let mut current = published.current();
        let next = LogIndex(current.state.applied().0 + 1);
        loadline_state_machine::pass(&mut current.state, next, b"");
    }

    #[test]
    fn a_batch_that_nobody_looked_for_is_forked_by_who_looks_first_and_the_next_one_is_ready() {
        let published = Published::default();
        apply_next(&published);
        published.announce();
        assert!(published.view.load().is_none(), "nobody has looked, so nothing is shared");
        assert_eq!((published.applied(), published.state().applied()), (LogIndex(1), LogIndex(1)));
        assert!(Arc::ptr_eq(&published.view(), &published.view()), "one fork serves all readers");

        apply_next(&published);
        assert_eq!(
            published.state().applied(),
            LogIndex(1),
            "what is not announced is not shown to whoever has a state"
        );
        published.announce();
        let ready = published.view.load_full().expect("somebody has looked since the last batch");
        assert_eq!(ready.state.applied(), LogIndex(2));

        apply_next(&published);
        published.announce();
        assert!(published.view.load().is_none(), "nobody has looked since: what is old is not kept");
        assert_eq!(published.state().applied(), LogIndex(3));
    }

    #[test]
    fn whoever_forks_in_the_middle_of_a_batch_announces_what_it_sees() {
        let published = Published::default();
        apply_next(&published);
        published.announce();
        let watched = published.watch_applied();
        apply_next(&published);
        assert_eq!(*watched.borrow(), LogIndex(1));
        assert_eq!(published.state().applied(), LogIndex(2));
        assert_eq!(*watched.borrow(), LogIndex(2));
    }

    #[test]
    fn nobody_is_told_of_an_entry_that_failed() {
        let published = Published::default();
        apply_next(&published);
        published.announce();
        apply_next(&published);
        published.current().failed = true;
        assert!(published.view().failed, "whoever keeps states must not keep this one");
        assert_eq!(published.applied(), LogIndex(1));
        assert_eq!(published.watch_work().borrow().index.0, 0);
    }
}

//! What is known about one replica.

use serde::{Deserialize, Serialize};

use crate::table::Key;
use crate::{Span, Time};

/// How many crashes of a replica are told apart. Beyond, the oldest are counted together: a replica that crashes
/// so often is looping by any measure, and memory must not grow with its misery.
const CRASHES_KEPT_MAX: usize = 16;

/// One running member of a cluster, as last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub name: Key,
    pub size: Key,
    /// Which life of a replica of this name, as the backend tells them apart. A drop names it, so that a
    /// replica that somebody made anew under the same name is not dropped for the old one's faults.
    pub incarnation: Option<Key>,
    pub ready: bool,
    /// Takes no new work, because we told it so.
    pub cordoned: bool,
    /// When this life of it was first seen, or made.
    pub since: Time,
    /// When it was seen last.
    pub seen_at: Time,
    pub hydration: Option<Hydration>,
    /// The oldest first.
    pub crashes: Vec<Crash>,
    pub notice: Option<Box<Notice>>,
}

/// How many of its objects a replica has ready. One without a status counts as not ready, so `hydrated` never leaves it out
/// of `total`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hydration {
    pub total: u64,
    pub hydrated: u64,
    pub as_of: Time,
    pub collector: Key,
}

impl Hydration {
    /// A replica without objects is not called hydrated: it may not have heard of them yet.
    pub fn is_complete(&self) -> bool {
        self.total > 0 && self.hydrated >= self.total
    }
}

/// Crashes at about the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    pub at: Time,
    pub count: u64,
    /// How many of them for want of memory.
    pub oom_count: u64,
    /// Of the last one, in the backend's words.
    pub reason: Key,
}

/// The place where the replica runs is about to be taken away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub kind: NoticeKind,
    pub given_at: Time,
    /// When it will be gone, if that was said.
    pub gone_at: Option<Time>,
}

/// New kinds go at the end: the place is the number in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoticeKind {
    /// A spot instance will be taken back.
    Spot,
    /// Something of higher priority needs the place.
    Preemption,
}

impl NoticeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Preemption => "preemption",
        }
    }
}

impl Replica {
    pub(crate) fn new(name: Key, size: Key, incarnation: Option<Key>, now: Time) -> Self {
        Self {
            name,
            size,
            incarnation,
            ready: false,
            cordoned: false,
            since: now,
            seen_at: now,
            hydration: None,
            crashes: Vec::new(),
            notice: None,
        }
    }

    /// Crashes within the window before now: all of them, and those for want of memory.
    pub fn crashes_within(&self, window: Span, now: Time) -> CrashCount {
        let mut sum = CrashCount { crashes: 0, ooms: 0, until: None };
        for crash in self.crashes.iter().filter(|crash| now.since(crash.at) <= window) {
            sum.crashes = sum.crashes.saturating_add(crash.count);
            sum.ooms = sum.ooms.saturating_add(crash.oom_count);
            sum.until = Some(sum.until.unwrap_or(crash.at + window).min(crash.at + window));
        }
        sum
    }

    pub(crate) fn crashed(&mut self, crash: Crash) {
        // Reports can overtake each other; the list stays in the order of time.
        let place = self.crashes.partition_point(|known| known.at <= crash.at);
        self.crashes.insert(place, crash);
        if self.crashes.len() > CRASHES_KEPT_MAX {
            let oldest = self.crashes.remove(0);
            let next = &mut self.crashes[0];
            next.count = next.count.saturating_add(oldest.count);
            next.oom_count = next.oom_count.saturating_add(oldest.oom_count);
        }
    }
}

/// How often a replica crashed lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashCount {
    pub crashes: u64,
    pub ooms: u64,
    /// When the first of them will no longer count.
    pub until: Option<Time>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crash(at: u64) -> Crash {
        Crash { at: Time::from_millis(at), count: 1, oom_count: at % 2, reason: "killed".into() }
    }

    #[test]
    fn a_crash_counts_until_the_window_has_passed_it() {
        let mut replica = Replica::new("r1".into(), "25cc".into(), None, Time::from_millis(0));
        replica.crashed(crash(1_000));
        replica.crashed(crash(501));
        let count = |now| replica.crashes_within(Span::from_secs(1), Time::from_millis(now));
        let until = |millis| Some(Time::from_millis(millis));
        assert_eq!(count(1_501), CrashCount { crashes: 2, ooms: 1, until: until(1_501) });
        assert_eq!(count(1_502), CrashCount { crashes: 1, ooms: 0, until: until(2_000) });
        assert_eq!(count(2_001), CrashCount { crashes: 0, ooms: 0, until: None });
    }

    #[test]
    fn a_thousand_crashes_are_counted_but_not_kept_apart() {
        let mut replica = Replica::new("r1".into(), "25cc".into(), None, Time::from_millis(0));
        (0..1_000).for_each(|at| replica.crashed(crash(at)));
        assert_eq!(replica.crashes.len(), CRASHES_KEPT_MAX);
        let count = replica.crashes_within(Span::from_secs(1), Time::from_millis(1_000));
        assert_eq!((count.crashes, count.ooms), (1_000, 500));
    }
}

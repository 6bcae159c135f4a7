//! The lease: for how long this node may still believe that nobody else leads.
//!
//! A follower that has heard from its leader refuses other candidates for `election_max`. So when a quorum has
//! acknowledged a message that was *sent* at `t`, nobody else can be elected before `t + election_max`. The time of
//! sending counts, not that of the answer, and it is read on a clock that counts sleep: a process that was stopped
//! or suspended in between finds its lease run out when it wakes.
//!
//! openraft keeps a lease too, on a clock that stands still in suspend, and refuses proposals by it. This one is
//! stricter, covers suspend, and is what the outside world is touched under. Two things break the promise that a
//! follower makes, and both are dealt with: a follower that restarts forgets it (see `Inner::run_as`: it neither votes
//! nor stands for one `election_max` after its start), and a leader that hands over releases its followers from it (then
//! [`LeaseTracker::give_up`] ends the lease for good).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Clock;

/// Which leadership: no two have the same term and node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Office {
    pub(crate) term: u64,
    pub(crate) node: u64,
}

/// The permission to act as a leader, for as long as it holds.
#[derive(Clone)]
pub struct Lease {
    tracker: Arc<LeaseTracker>,
    office: Office,
}

impl Lease {
    /// Whether nobody else can be leader yet. Ask right before every call on the outside world, not once before many.
    pub fn holds(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// How long it will still hold if no further answer of a follower arrives; zero if it has run out.
    pub fn remaining(&self) -> Duration {
        self.tracker.remaining(self.office)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("term", &self.office.term).field("remaining", &self.remaining()).finish()
    }
}

/// Two are equal if they are of the same leadership.
impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        self.office == other.office && Arc::ptr_eq(&self.tracker, &other.tracker)
    }
}

/// Counts the acknowledgements of one node's leaderships.
#[derive(Debug)]
pub(crate) struct LeaseTracker {
    clock: Arc<dyn Clock>,
    length: Duration,
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// The leadership that the rest is about. Acknowledgements of another one do not count.
    office: Option<Office>,
    /// Given up or taken away: it never holds again under this office.
    over: bool,
    /// Nodes are known to disagree about the state, and nobody knows who is right.
    suspended: bool,
    /// Every set needs a majority of its own; more than one while the voters change.
    voters: Vec<BTreeSet<u64>>,
    /// When the last message was sent that this peer has acknowledged.
    acknowledged: BTreeMap<u64, Duration>,
}

impl LeaseTracker {
    pub(crate) fn new(clock: Arc<dyn Clock>, election_max: Duration) -> Self {
        // A tenth less than a follower keeps its promise: the clocks of two machines do not run at the same speed,
        // and the holder needs a moment between asking and acting.
        Self { clock, length: election_max * 9 / 10, counted: Mutex::default() }
    }

    pub(crate) fn lease(self: &Arc<Self>, office: Office) -> Lease {
        Lease { tracker: self.clone(), office }
    }

    /// The time to remember for a message that is about to be sent.
    pub(crate) fn now(&self) -> Duration {
        self.clock.boottime()
    }

    /// A leadership of this node began.
    pub(crate) fn begin(&self, office: Office) {
        self.lock().turn_to(office);
    }

    /// A leadership of this node is over, or is being handed over. Final: followers that were released from their
    /// promise can elect another at any moment from now on.
    pub(crate) fn give_up(&self, office: Office) {
        let mut counted = self.lock();
        if counted.turn_to(office) {
            counted.over = true;
        }
    }

    pub(crate) fn set_voters(&self, voters: Vec<BTreeSet<u64>>) {
        self.lock().voters = voters;
    }

    /// Whether this node may act at all; see `probe`.
    pub(crate) fn set_suspended(&self, suspended: bool) {
        self.lock().suspended = suspended;
    }

    pub(crate) fn suspended(&self) -> bool {
        self.lock().suspended
    }

    /// `peer` follows this leadership, and said so in answer to a message sent at `sent`.
    pub(crate) fn acknowledge(&self, office: Office, peer: u64, sent: Duration) {
        let mut counted = self.lock();
        if counted.turn_to(office) {
            let last = counted.acknowledged.entry(peer).or_insert(sent);
            *last = sent.max(*last);
        }
    }

    fn remaining(&self, office: Office) -> Duration {
        let now = self.now();
        let counted = self.lock();
        if counted.office != Some(office) || counted.over || counted.suspended {
            return Duration::ZERO;
        }
        match counted.quorum_acknowledged(office.node, now) {
            Some(sent) => (sent + self.length).saturating_sub(now),
            None => Duration::ZERO,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        // What is under the lock is changed in single steps, so a panic elsewhere leaves nothing half done.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// Whether `office` is the present one, or just became it. What an older one still reports is no news.
    fn turn_to(&mut self, office: Office) -> bool {
        if self.office < Some(office) {
            self.office = Some(office);
            self.over = false;
            self.acknowledged.clear();
        }
        self.office == Some(office)
    }

    /// The latest time such that messages sent then or later were acknowledged by a majority of every voter set.
    fn quorum_acknowledged(&self, me: u64, now: Duration) -> Option<Duration> {
        if self.voters.is_empty() {
            return None;
        }
        let mut earliest = now;
        for voters in &self.voters {
            let mut times: Vec<Duration> = voters
                .iter()
                // This node always agrees with itself.
                .filter_map(|voter| if *voter == me { Some(now) } else { self.acknowledged.get(voter).copied() })
                .collect();
            times.sort_unstable_by(|a, b| b.cmp(a));
            earliest = earliest.min(*times.get(voters.len() / 2)?);
        }
        Some(earliest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Dial(AtomicU64);

    impl Dial {
        fn turn_to(&self, ms: u64) {
            self.0.store(ms, Ordering::SeqCst);
        }
    }

    impl Clock for Dial {
        fn wall_ms(&self) -> u64 {
            0
        }

        fn boottime(&self) -> Duration {
            Duration::from_millis(self.0.load(Ordering::SeqCst))
        }
    }

    const FIRST: Office = Office { term: 1, node: 1 };
    const SECOND: Office = Office { term: 2, node: 1 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn tracker(voters: &[&[u64]]) -> (Arc<Dial>, Arc<LeaseTracker>) {
        let dial = Arc::new(Dial::default());
        let tracker = Arc::new(LeaseTracker::new(dial.clone(), ms(600)));
        tracker.set_voters(voters.iter().map(|set| set.iter().copied().collect()).collect());
        (dial, tracker)
    }

    #[test]
    fn it_counts_from_when_the_acknowledged_message_was_sent() {
        let (dial, tracker) = tracker(&[&[1, 2, 3]]);
        tracker.begin(FIRST);
        let lease = tracker.lease(FIRST);
        assert!(!lease.holds(), "nobody has acknowledged anything yet");
        dial.turn_to(1_400);
        tracker.acknowledge(FIRST, 2, ms(1_000));
        assert_eq!(lease.remaining(), ms(140));
        dial.turn_to(1_540);
        assert!(!lease.holds());
    }

    #[test]
    fn an_answer_that_arrives_after_a_pause_does_not_revive_it() {
        let (dial, tracker) = tracker(&[&[1, 2, 3]]);
        tracker.begin(FIRST);
        tracker.acknowledge(FIRST, 2, ms(1_000));
        dial.turn_to(6_000);
        // The answer to a message sent just before the process was stopped.
        tracker.acknowledge(FIRST, 3, ms(1_100));
        assert!(!tracker.lease(FIRST).holds());
    }

    #[test]
    fn it_takes_a_majority_of_every_voter_set() {
        let (dial, tracker) = tracker(&[&[1, 2, 3], &[3, 4, 5]]);
        dial.turn_to(1_000);
        tracker.begin(FIRST);
        let lease = tracker.lease(FIRST);
        tracker.acknowledge(FIRST, 2, ms(1_000));
        tracker.acknowledge(FIRST, 4, ms(1_000));
        assert!(!lease.holds(), "one of three, and not this node, is no majority of the second set");
        tracker.acknowledge(FIRST, 5, ms(900));
        assert_eq!(lease.remaining(), ms(440));
    }

    #[test]
    fn a_single_voter_needs_nobody() {
        let (dial, tracker) = tracker(&[&[1]]);
        dial.turn_to(5_000);
        tracker.begin(FIRST);
        assert_eq!(tracker.lease(FIRST).remaining(), ms(540));
    }

    #[test]
    fn once_given_up_it_never_holds_again_under_that_leadership() {
        let (_dial, tracker) = tracker(&[&[1, 2, 3]]);
        tracker.begin(FIRST);
        tracker.acknowledge(FIRST, 2, ms(0));
        assert!(tracker.lease(FIRST).holds());
        tracker.give_up(FIRST);
        tracker.acknowledge(FIRST, 3, ms(0));
        assert!(!tracker.lease(FIRST).holds());

        tracker.begin(SECOND);
        tracker.acknowledge(SECOND, 2, ms(0));
        assert!(tracker.lease(SECOND).holds());
    }

    #[test]
    fn answers_to_an_earlier_leadership_do_not_count_for_the_next() {
        let (_dial, tracker) = tracker(&[&[1, 2, 3]]);
        tracker.begin(FIRST);
        let first = tracker.lease(FIRST);
        tracker.acknowledge(FIRST, 2, ms(0));
        tracker.begin(SECOND);
        tracker.acknowledge(FIRST, 3, ms(0));
        assert!(!tracker.lease(SECOND).holds());
        assert!(!first.holds());
        tracker.give_up(FIRST);
        tracker.acknowledge(SECOND, 3, ms(0));
        assert!(tracker.lease(SECOND).holds(), "giving up the first must not end the second");
    }

    #[test]
    fn it_does_not_hold_while_suspended() {
        let (_dial, tracker) = tracker(&[&[1, 2, 3]]);
        tracker.begin(FIRST);
        tracker.acknowledge(FIRST, 2, ms(0));
        tracker.set_suspended(true);
        assert!(!tracker.lease(FIRST).holds());
        tracker.set_suspended(false);
        assert!(tracker.lease(FIRST).holds());
    }
}

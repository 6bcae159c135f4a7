//! Time: the clocks of this machine, and the logical time that a leader stamps into the log.
//!
//! Nothing below this crate reads a clock. The state machine only ever sees the time in the log, and that time is
//! made here: announced once per leadership from the clocks of the group, then advanced by a clock that never jumps.

use std::fmt::Debug;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use loadline_mutants::Mutant;
use loadline_state_machine::Time;

use crate::runtime;

/// The clocks of one machine. A simulator has its own.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds since 1970, as this machine believes; may jump either way.
    fn wall_ms(&self) -> u64;

    /// Time since some fixed point, counting sleep. Never goes back.
    ///
    /// It has to count sleep: a lease measured by a clock that stands still in suspend would still hold when the
    /// machine wakes, long after another leader was elected.
    fn boottime(&self) -> Duration;

    /// Randomness for the name of a new group.
    fn random_u128(&self) -> u128 {
        runtime::random_u128()
    }
}

/// The clocks of the machine this process runs on.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn wall_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn boottime(&self) -> Duration {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // Neither can be negative on this clock: it starts at zero, and the kernel keeps the rest below a second.
        Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
    }
}

/// The time at which a leadership starts: the median of the clocks that answered, but never before the last
/// committed time, or an expired cooldown could revive.
///
/// Of an even number the lower middle counts: a clock that is ahead does more harm than one that is behind, because
/// what it lets expire stays expired.
pub(crate) fn announced_time(last_committed: Time, mut clocks_ms: Vec<u64>) -> Time {
    clocks_ms.sort_unstable();
    let median = clocks_ms.get(clocks_ms.len().saturating_sub(1) / 2).copied().unwrap_or(0);
    if Mutant::TimeGoesBack.is_on() {
        return Time::from_millis(median);
    }
    last_committed.max(Time::from_millis(median))
}

/// The stamps of one leadership. They follow the boot-time clock, so that a jump of the wall clock cannot fire every
/// deadline at once.
#[derive(Debug)]
pub(crate) struct Stamps {
    announced: Time,
    announced_at: Duration,
    last: Time,
}

impl Stamps {
    pub(crate) fn start(announced: Time, boottime: Duration) -> Self {
        Self { announced, announced_at: boottime, last: announced }
    }

    pub(crate) fn next(&mut self, boottime: Duration) -> Time {
        let passed = boottime.saturating_sub(self.announced_at);
        let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX);
        let now = Time::from_millis(self.announced.as_millis().saturating_add(passed_ms));
        self.last = self.last.max(now);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_announced(last_committed: u64, clocks: &[u64], expected: u64) {
        let time = announced_time(Time::from_millis(last_committed), clocks.to_vec());
        assert_eq!(time, Time::from_millis(expected), "last {last_committed}, clocks {clocks:?}");
    }

    #[test]
    fn a_leadership_starts_at_the_median_of_the_clocks_and_never_in_the_past() {
        check_announced(0, &[100], 100);
        check_announced(0, &[300, 100, 200], 200);
        check_announced(0, &[100, 9_999_999, 110], 110);
        check_announced(0, &[100, 0, 110], 100);
        check_announced(0, &[400, 100], 100);
        check_announced(0, &[400, 100, 200, 300], 200);
        check_announced(250, &[300, 100, 200], 250);
        check_announced(250, &[], 250);
    }

    #[test]
    fn stamps_follow_the_boot_time_and_never_go_back() {
        let mut stamps = Stamps::start(Time::from_millis(1_000), Duration::from_secs(50));
        assert_eq!(stamps.next(Duration::from_millis(50_000)), Time::from_millis(1_000));
        assert_eq!(stamps.next(Duration::from_millis(50_020)), Time::from_millis(1_020));
        assert_eq!(stamps.next(Duration::from_millis(50_010)), Time::from_millis(1_020));
        assert_eq!(stamps.next(Duration::from_millis(49_000)), Time::from_millis(1_020));
    }

    #[test]
    fn the_clock_of_this_machine_counts_up() {
        let first = SystemClock.boottime();
        assert!(first > Duration::ZERO);
        assert!(SystemClock.boottime() >= first);
        // 2020: a machine whose clock is older than that was never set.
        assert!(SystemClock.wall_ms() > 1_577_836_800_000);
    }
}

//! Leaves a backend alone that does not answer. Pure: it is told the time, and what came of calls.
//!
//! What counts is whether an answer came. A refusal is an answer.

use std::time::Duration;

use tokio::time::Instant;

use crate::{ActingSettings, BreakerState};

#[derive(Clone, Copy, Debug)]
pub(super) struct Breaker {
    /// Calls in a row that were not answered.
    unanswered: u32,
    /// How often in a row it was opened.
    opened: u32,
    standing: Standing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Closed,
    Open { until: Instant },
    HalfOpen,
}

/// Whether a call may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Go,
    /// This one call tries whether the backend answers again.
    Probe,
    Wait {
        until: Instant,
    },
    /// Another call is trying.
    AfterProbe,
}

impl Breaker {
    pub(super) fn new() -> Breaker {
        Breaker { unanswered: 0, opened: 0, standing: Standing::Closed }
    }

    pub(super) fn state(&self) -> BreakerState {
        match self.standing {
            Standing::Closed => BreakerState::Closed,
            Standing::Open { .. } => BreakerState::Open,
            Standing::HalfOpen => BreakerState::HalfOpen,
        }
    }

    /// When it will let a call through by itself.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        match self.standing {
            Standing::Open { until } => Some(until),
            _ => None,
        }
    }

    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        match self.standing {
            Standing::Closed => Admission::Go,
            Standing::Open { until } if now < until => Admission::Wait { until },
            Standing::Open { .. } => {
                self.standing = Standing::HalfOpen;
                Admission::Probe
            }
            Standing::HalfOpen => Admission::AfterProbe,
        }
    }

    /// The call that was to try did not go out: the next one tries.
    pub(super) fn not_probed(&mut self, now: Instant) {
        if self.standing == Standing::HalfOpen {
            self.standing = Standing::Open { until: now };
        }
    }

    pub(super) fn answered(&mut self) {
        *self = Breaker::new();
    }

    pub(super) fn unanswered(&mut self, now: Instant, settings: &ActingSettings) {
        self.unanswered = self.unanswered.saturating_add(1);
        let too_many = self.unanswered >= settings.breaker_failures_max;
        match self.standing {
            Standing::Closed if !too_many => {}
            // Calls that were under way when it opened say nothing new.
            Standing::Open { .. } => {}
            Standing::Closed | Standing::HalfOpen => {
                let open_for = doubled(settings.breaker_first, self.opened, settings.breaker_longest);
                self.opened = self.opened.saturating_add(1);
                self.standing = Standing::Open { until: now + open_for };
            }
        }
    }
}

/// `first`, doubled so often, and never more than `longest`.
pub(super) fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_so_many_unanswered_calls_and_one_call_tries_again() {
        let settings = ActingSettings::default();
        let mut breaker = Breaker::new();
        let start = Instant::now();
        for _ in 1..settings.breaker_failures_max {
            breaker.unanswered(start, &settings);
            assert_eq!(breaker.admit(start), Admission::Go);
        }
        breaker.answered();
        for _ in 1..settings.breaker_failures_max {
            breaker.unanswered(start, &settings);
        }
        assert_eq!(breaker.admit(start), Admission::Go, "an answer in between starts the count again");
        breaker.unanswered(start, &settings);
        let until = start + settings.breaker_first;
        assert_eq!(breaker.admit(start), Admission::Wait { until });
        breaker.unanswered(start, &settings);
        assert_eq!(breaker.admit(start), Admission::Wait { until }, "stragglers do not make it longer");

        assert_eq!(breaker.admit(until), Admission::Probe);
        assert_eq!(breaker.admit(until), Admission::AfterProbe);
        breaker.not_probed(until);
        assert_eq!(breaker.admit(until), Admission::Probe, "one that did not go out does not block the others");
        breaker.unanswered(until, &settings);
        assert_eq!(breaker.admit(until), Admission::Wait { until: until + 2 * settings.breaker_first });
        assert_eq!(breaker.state(), BreakerState::Open);

        let later = until + 2 * settings.breaker_first;
        assert_eq!(breaker.admit(later), Admission::Probe);
        breaker.answered();
        assert_eq!((breaker.admit(later), breaker.state()), (Admission::Go, BreakerState::Closed));
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let (first, longest) = (Duration::from_secs(1), Duration::from_secs(30));
        let waits: Vec<u64> = [0, 1, 4, 5, 60].map(|times| doubled(first, times, longest).as_secs()).into();
        assert_eq!(waits, [1, 2, 16, 30, 30]);
    }
}

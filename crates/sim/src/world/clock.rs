//! The clocks of a node: a wall clock that can be set wrong and drifts, and one that only drifts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use loadline_raft_node::Clock;

use crate::record::Record;

/// Where simulated time begins on the wall: some day in 2027.
pub const EPOCH_MS: u64 = 1_800_000_000_000;
/// No machine has been up for no time at all.
const UP_FOR: Duration = Duration::from_secs(1_000);

/// The clocks of one machine. Clones are the same machine.
#[derive(Debug, Clone)]
pub struct MachineClock {
    record: Record,
    wrong: Arc<Wrong>,
}

#[derive(Debug, Default)]
struct Wrong {
    wall_ahead_ms: AtomicI64,
    /// Of both clocks, in millionths.
    drift_ppm: AtomicI64,
}

impl MachineClock {
    pub fn new(record: Record) -> MachineClock {
        MachineClock { record, wrong: Arc::default() }
    }

    /// The wall clock jumps; negative is back.
    pub fn jump(&self, millis: i64) {
        self.wrong.wall_ahead_ms.fetch_add(millis, Ordering::Relaxed);
    }

    /// The wall clock is right again.
    pub fn set_right(&self) {
        self.wrong.wall_ahead_ms.store(0, Ordering::Relaxed);
    }

    /// How fast it runs for good. Set once, before anything runs: a clock that changes its pace would jump.
    pub fn set_drift(&self, ppm: i64) {
        self.wrong.drift_ppm.store(ppm, Ordering::Relaxed);
    }

    /// Simulated time as this machine counts it.
    fn counted(&self) -> Duration {
        let really = turmoil::sim_elapsed().unwrap_or_else(|| self.record.now());
        let micros = i64::try_from(really.as_micros()).unwrap_or(i64::MAX);
        let drifted = micros + micros / 1_000_000 * self.wrong.drift_ppm.load(Ordering::Relaxed);
        Duration::from_micros(drifted.unsigned_abs())
    }
}

impl Clock for MachineClock {
    fn wall_ms(&self) -> u64 {
        let counted = u64::try_from(self.counted().as_millis()).unwrap_or(u64::MAX);
        (EPOCH_MS + counted).saturating_add_signed(self.wrong.wall_ahead_ms.load(Ordering::Relaxed))
    }

    fn boottime(&self) -> Duration {
        UP_FOR + self.counted()
    }
}

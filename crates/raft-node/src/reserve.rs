//! The disk reserve: below so much free space nothing new is recorded, so that there is room to recover.
//!
//! A full disk would fail a write in the middle, and a failed write stops the node for good. So proposals are refused
//! while there is still room for votes, snapshots and the purge that follows them. It recovers by itself.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use loadline_log::SharedDisk;

/// How often free space is looked at. At full load a fast disk takes some hundred megabytes in this time, which is
/// why a reserve should not be much smaller than that.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How a node stands with its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Space {
    pub(crate) free: u64,
    pub(crate) reserve: u64,
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Reserve {
    disk: SharedDisk,
    reserve: u64,
    free: AtomicU64,
    low: AtomicBool,
}

impl Reserve {
    pub(crate) fn new(disk: SharedDisk, reserve: u64) -> Self {
        let reserve = Self { disk, reserve, free: AtomicU64::new(u64::MAX), low: AtomicBool::new(false) };
        reserve.look();
        reserve
    }

    /// Looks at the disk again.
    pub(crate) fn look(&self) {
        let free = match self.disk.free_bytes() {
            Ok(free) => free,
            Err(error) => {
                // Not knowing is no reason to refuse work; a disk that is broken shows when it is written to.
                tracing::warn!("cannot tell how much disk is free: {error}");
                return;
            }
        };
        self.free.store(free, Ordering::Relaxed);
        let was_low = self.low.load(Ordering::Relaxed);
        // A little more than the reserve to come back: at the very edge it would otherwise flap.
        let low = free < self.reserve || (was_low && free < self.reserve.saturating_add(self.reserve / 20));
        self.low.store(low, Ordering::Relaxed);
        if low != was_low {
            if low {
                tracing::error!(free, reserve = self.reserve, "disk is short: nothing is recorded until space returns");
            } else {
                tracing::info!(free, reserve = self.reserve, "disk has space again");
            }
        }
    }

    pub(crate) fn space(&self) -> Space {
        Space { free: self.free.load(Ordering::Relaxed), reserve: self.reserve }
    }

    pub(crate) fn low(&self) -> Option<Space> {
        self.low.load(Ordering::Relaxed).then(|| self.space())
    }
}

//! Disks that are slow, full, fail, or lose their power in the middle of what they do.

use std::time::Duration;

use super::{Chances, Deed, Family};

pub(super) fn schedule(chances: &mut Chances<'_>, family: Family) {
    let mut at = chances.start();
    while at < chances.end() {
        let node = chances.node();
        match family {
            Family::SlowDisk => {
                let takes = chances.dice.millis(1, 400);
                let lasts = (300, 4_000);
                chances.span(&mut at, lasts, |_| {
                    (Deed::SlowDisk { node, takes }, Deed::SlowDisk { node, takes: Duration::ZERO })
                });
            }
            Family::DiskFull => {
                let bytes = chances.dice.between(0, 200 << 10);
                chances.span(&mut at, (500, 3_000), |_| {
                    (Deed::DiskRoom { node, bytes: Some(bytes) }, Deed::DiskRoom { node, bytes: None })
                });
            }
            _ => {
                let nth = chances.dice.between(1, 60);
                let deed = match family {
                    Family::FailedSync => Deed::FailSync { node, nth },
                    Family::FailedWrite => Deed::FailWrite { node, nth },
                    Family::SnapshotCrash => Deed::CutPowerIn { node, folder: "snapshots", nth: nth % 12 + 1 },
                    _ => Deed::CutPowerAt { node, nth },
                };
                chances.at(at, deed);
                at += chances.dice.millis(500, 5_000);
            }
        }
    }
}

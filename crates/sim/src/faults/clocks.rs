//! Wall clocks that jump. The clock that leases and stamps are measured by does not: no machine's does.

use super::{Chances, Deed};

pub(super) fn schedule(chances: &mut Chances<'_>) {
    let mut at = chances.start();
    while at < chances.end() {
        let node = chances.node();
        let size = *chances.dice.pick(&[50, 1_000, 60_000, 3_600_000]);
        let size = i64::try_from(chances.dice.between(1, size)).unwrap_or(1);
        let millis = if chances.dice.coin() { size } else { -size };
        chances.at(at, Deed::ClockJump { node, millis });
        at += chances.dice.millis(300, 4_000);
    }
}

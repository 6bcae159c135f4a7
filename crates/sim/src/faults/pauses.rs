//! Processes that are held, as SIGSTOP or a busy hypervisor does, and go on as if nothing had been.

use super::{Chances, Deed};

pub(super) fn schedule(chances: &mut Chances<'_>) {
    let mut at = chances.start();
    while at < chances.end() {
        let node = chances.node();
        chances.span(&mut at, (50, 3_000), |_| (Deed::Pause { node }, Deed::Resume { node }));
    }
}

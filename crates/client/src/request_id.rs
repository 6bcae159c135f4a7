//! Request ids: UUIDs of version 7, on the group's clock rather than on ours where the two differ.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use uuid::{Builder, Uuid};

use crate::surroundings::Surroundings;

/// Makes request ids. The time in an id decides how long a repeat is recognised, so it must be near the group's time.
#[derive(Debug)]
pub(crate) struct RequestIds {
    surroundings: Arc<dyn Surroundings>,
    /// The group's time minus ours, in milliseconds; learned only when the group refused an id for its time.
    ahead_ms: AtomicI64,
}

impl RequestIds {
    pub(crate) fn new(surroundings: Arc<dyn Surroundings>) -> RequestIds {
        RequestIds { surroundings, ahead_ms: AtomicI64::new(0) }
    }

    pub(crate) fn fresh(&self) -> Uuid {
        let local = i64::try_from(self.surroundings.now_ms()).unwrap_or(i64::MAX);
        let time = local.saturating_add(self.ahead_ms.load(Ordering::Relaxed)).max(0);
        let chance = [self.surroundings.random().to_le_bytes(), self.surroundings.random().to_le_bytes()].concat();
        let chance = std::array::from_fn(|place| chance[place]);
        Builder::from_unix_timestamp_millis(time.unsigned_abs(), &chance).into_uuid()
    }

    /// From now on ids carry the group's time, which was `now_ms` a moment ago.
    pub(crate) fn rebase(&self, now_ms: u64) {
        let difference = i128::from(now_ms) - i128::from(self.surroundings.now_ms());
        self.ahead_ms.store(i64::try_from(difference).unwrap_or(0), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time_ms(id: Uuid) -> u64 {
        u64::try_from(id.as_u128() >> 80).expect("48 bits")
    }

    #[test]
    fn ids_are_version_7_and_differ() {
        let ids = RequestIds::new(Arc::new(crate::Machine));
        let (a, b) = (ids.fresh(), ids.fresh());
        assert_eq!((a.get_version_num(), b.get_version_num()), (7, 7));
        assert_ne!(a, b);
    }

    #[test]
    fn after_a_rebase_ids_carry_the_time_of_the_group() {
        let ids = RequestIds::new(Arc::new(crate::Machine));
        for now_ms in [1_000_000, 4_000_000_000_000] {
            ids.rebase(now_ms);
            let off = time_ms(ids.fresh()).abs_diff(now_ms);
            assert!(off < 60_000, "the id is {off} ms off the group's time");
        }
    }
}

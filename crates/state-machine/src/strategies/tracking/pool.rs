//! Which replicas a strategy counts, makes and removes: those of its size, whoever made them, and its own in whatever size they
//! still are.
//!
//! A burst replica is not counted: it is there until the others are ready, and would make some of them seem superfluous.

use std::cmp::Reverse;

use super::arithmetic::Count;
use crate::configuration::{MANAGED_SUFFIX, is_managed};
use crate::signals::replica::Replica;
use crate::strategies::View;
use crate::strategies::burst::BURST_REPLICA;
use crate::strategies::desired::{Desired, ReplicaSpec};
use crate::strategies::reason::Reason;
use crate::table::Key;

#[derive(Debug)]
pub(super) struct Pool {
    size: Key,
    /// What the names of its own begin with.
    prefix: char,
}

impl Pool {
    pub(super) fn new(size: Key, prefix: char) -> Self {
        Self { size, prefix }
    }

    /// `t3_auto`, or `t3_200cc_auto` if it replaced one of another size.
    fn own_number(&self, name: &str, size: &str) -> Option<u32> {
        let rest = name.strip_prefix(self.prefix)?.strip_suffix(MANAGED_SUFFIX)?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = rest.split_at(digits);
        let stands_in = || rest.strip_prefix('_').is_some_and(|rest| rest.starts_with(size));
        if rest.is_empty() || stands_in() { number.parse().ok() } else { None }
    }

    fn has(&self, name: &str, size: &str) -> bool {
        name != BURST_REPLICA && (size == &*self.size || self.own_number(name, size).is_some())
    }

    pub(super) fn count(&self, replicas: &[Replica]) -> Count {
        let counted = || replicas.iter().filter(|replica| self.has(&replica.name, &replica.size));
        let many = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let ready = counted().filter(|replica| replica.ready && !replica.cordoned);
        Count { current: many(counted().count()), ready: many(ready.count()) }
    }

    /// Makes `desired` have so many of them, all of the right size.
    pub(super) fn settle(&self, view: &View<'_>, desired: &mut Desired, wanted: usize, reason: &Reason) {
        let mut all: Vec<ReplicaSpec> = desired.replicas().filter(|it| self.has(&it.name, &it.size)).cloned().collect();
        if all.len() > wanted {
            all.sort_by_key(|replica| self.last_to_go(view, replica));
            let touched = all.iter().filter(|replica| desired.may_touch(&replica.name));
            let mut going: Vec<Key> = touched.take(all.len() - wanted).map(|replica| replica.name.clone()).collect();
            // That one of them was told to stop is not news to anybody.
            going.sort_unstable();
            for name in &going {
                desired.remove(name, reason.clone());
            }
        }
        for replica in all.iter().filter(|replica| replica.size != self.size) {
            if desired.get(&replica.name).is_some() {
                let replica = ReplicaSpec { name: replica.name.clone(), size: self.size.clone() };
                desired.add(replica, Reason::OtherSizeWanted { size: self.size.clone() });
            }
        }
        // What an earlier strategy was about to drop is there already, and better than a new one.
        let lost = view.replicas.iter().filter(|it| it.size == self.size && it.name.as_ref() != BURST_REPLICA);
        let lost: Vec<Key> = lost.map(|it| it.name.clone()).filter(|name| desired.get(name).is_none()).collect();
        let free = (1_u32..).map(|number| Key::from(format!("{}{number}{MANAGED_SUFFIX}", self.prefix)));
        let free = free.filter(|name| view.replica(name).is_none());
        let missing = wanted.saturating_sub(all.len());
        let mut names = lost.into_iter().chain(free);
        for _ in 0..missing {
            let Some(name) = names.find(|name| desired.get(name).is_none()) else { return };
            desired.add(ReplicaSpec { name, size: self.size.clone() }, reason.clone());
        }
    }

    /// The first of these goes first: what is leaving anyway, what does no work yet, what has the wrong size, and of the rest
    /// the youngest of our own.
    fn last_to_go(&self, view: &View<'_>, replica: &ReplicaSpec) -> impl Ord + use<> {
        let known = view.replica(&replica.name);
        let leaving = known.is_some_and(|it| it.cordoned || it.notice.is_some());
        let ready = known.is_some_and(|it| it.ready);
        let fits = replica.size == self.size;
        let number = self.own_number(&replica.name, &replica.size);
        (!leaving, ready, fits, !is_managed(&replica.name), Reverse(number), Reverse(replica.name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_replicas_are_known_by_their_names_in_whatever_size() {
        let pool = Pool::new("200cc".into(), 't');
        assert_eq!(pool.own_number("t3_auto", "100cc"), Some(3));
        assert_eq!(pool.own_number("t3_100cc_auto", "100cc"), Some(3), "it replaced one of another size");
        assert_eq!(pool.own_number("t3_100cc_2_auto", "100cc"), Some(3));
        for (name, size) in [("t3", "100cc"), ("r3_auto", "100cc"), ("t_auto", "100cc"), ("t3x_auto", "100cc")] {
            assert_eq!(pool.own_number(name, size), None, "{name}");
        }
        assert!(pool.has("main", "200cc"), "whoever made it");
        assert!(!pool.has("main", "100cc"));
        assert!(!pool.has("burst_auto", "200cc"));
    }
}

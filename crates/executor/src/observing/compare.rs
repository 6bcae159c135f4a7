//! What is seen against what is believed: only what differs is worth an entry of the log. Pure.
//!
//! A look is never newer than it is said to be, and may show things as they were up to the backend's visibility delay before.
//! So whatever the state learned more recently than that, from the outcome of a call for example, is not taken back by a look.

use std::collections::BTreeMap;

use loadline_state_machine::{ClusterId, Observation, Replica, Seen, Signals, Span, State, Time};

use crate::{ObservedHydration, ObservedReplica};

/// Names are those of the outside world; what would spoil a listing is not passed on. The log would refuse it.
const NAME_BYTES_MAX: usize = 253;

/// One look at one cluster.
#[derive(Clone, Debug)]
pub(super) struct Sight<'a> {
    pub(super) collector: &'a str,
    pub(super) seen: &'a [ObservedReplica],
    /// How long ago the look began.
    pub(super) age: Span,
    /// The time of the log when the look began, or a little before.
    pub(super) from: Time,
    pub(super) visibility_delay: Span,
    pub(super) stale_after: Span,
}

impl Sight<'_> {
    /// What to tell the log about this look; nothing if it knows all that, and was told recently enough.
    pub(super) fn tell(&self, state: &State, cluster: ClusterId) -> Vec<Observation> {
        let nothing = Signals::default();
        let signals = state.standing(cluster).map_or(&nothing, |standing| standing.signals());
        let as_of = state.now().before(self.age).max(self.from);
        let mut told = Vec::new();
        let by_name: BTreeMap<&str, &ObservedReplica> = self
            .seen
            .iter()
            .filter(|seen| can_be_said(&seen.name) && can_be_said(&seen.size))
            .map(|seen| (seen.name.as_str(), seen))
            .collect();
        for seen in by_name.values() {
            self.tell_of(signals, as_of, seen, &mut told);
        }
        for known in signals.replicas.iter().filter(|known| !by_name.contains_key(known.name.as_ref())) {
            let may_be_hidden = as_of < known.since + self.visibility_delay;
            if !may_be_hidden && as_of >= known.seen_at {
                let incarnation = known.incarnation.as_deref().map(str::to_owned);
                told.push(Seen::ReplicaGone { name: known.name.to_string(), incarnation });
            }
        }
        if !told.is_empty() || self.is_to_be_confirmed(signals, state.now(), !by_name.is_empty()) {
            told.push(Seen::Alive);
        }
        told.into_iter().map(|seen| Observation { age: self.age, seen }).collect()
    }

    /// Facts about replicas are relied on for a while after they were last confirmed.
    fn is_to_be_confirmed(&self, signals: &Signals, now: Time, any_seen: bool) -> bool {
        if !any_seen && signals.replicas.is_empty() {
            return false;
        }
        let heard = signals.collectors.iter().find(|heard| heard.collector.as_ref() == self.collector);
        let confirmed_at = heard.and_then(|heard| heard.confirmed_at);
        let soon_enough = Span::from_millis(self.stale_after.as_millis() / 3);
        confirmed_at.is_none_or(|confirmed_at| now.since(confirmed_at) >= soon_enough)
    }

    fn tell_of(&self, signals: &Signals, as_of: Time, seen: &ObservedReplica, told: &mut Vec<Seen>) {
        let went = signals.gone.iter().find(|gone| gone.name.as_ref() == seen.name);
        if went.is_some_and(|gone| as_of <= gone.at + self.visibility_delay) {
            // It may be the one that went, seen late.
            return;
        }
        let known = signals.replica(&seen.name);
        let same = known.filter(|known| is_same_life(known, seen));
        if let Some(known) = known {
            let too_old = match same {
                Some(known) => as_of < known.seen_at,
                // It may be an earlier life, seen late.
                None => as_of < known.since + self.visibility_delay,
            };
            if too_old {
                return;
            }
        }
        if same.is_none_or(|known| differs(known, seen)) {
            told.push(Seen::Replica {
                name: seen.name.clone(),
                size: seen.size.clone(),
                incarnation: incarnation(seen).map(str::to_owned),
                ready: seen.ready,
            });
        }
        // About a life that began after the look, the log would not believe it.
        if same.is_some_and(|known| as_of < known.since) {
            return;
        }
        if let Some(ObservedHydration { total, hydrated }) = seen.hydration {
            let hydrated = hydrated.min(total);
            let known = same.and_then(|known| known.hydration.as_ref());
            if known.is_none_or(|known| (known.total, known.hydrated) != (total, hydrated)) {
                told.push(Seen::Hydration { replica: seen.name.clone(), total, hydrated });
            }
        }
        let counted: u64 = same.map_or(0, |known| known.crashes.iter().map(|crash| crash.count).sum());
        if let Some(count) = seen.crashes.checked_sub(counted).filter(|count| *count > 0) {
            let reason = seen.crash_reason.clone().unwrap_or_else(|| "it crashed".to_owned());
            told.push(Seen::Crash { replica: seen.name.clone(), oom: seen.oom, reason, count });
        }
    }
}

fn is_same_life(known: &Replica, seen: &ObservedReplica) -> bool {
    match (&known.incarnation, incarnation(seen)) {
        (Some(known), Some(seen)) => known.as_ref() == seen,
        _ => true,
    }
}

fn differs(known: &Replica, seen: &ObservedReplica) -> bool {
    let named_now = known.incarnation.is_none() && incarnation(seen).is_some();
    known.size.as_ref() != seen.size || known.ready != seen.ready || named_now
}

/// As far as it can be said. Else it would be news at every look, and never be known.
fn incarnation(seen: &ObservedReplica) -> Option<&str> {
    seen.incarnation.as_deref().filter(|it| can_be_said(it))
}

fn can_be_said(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(|c| c.is_control() || c.is_whitespace())
}

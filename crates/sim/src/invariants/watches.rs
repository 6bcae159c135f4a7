//! A watch has no gap and no repeat: between two messages nothing happened that it should have told.

use std::collections::BTreeMap;

use loadline_client::WatchEvent;
use loadline_state_machine::resource_changes;

use super::{Agreed, Invariant};
use crate::record::{Seen, Sighting};
use crate::watchers::Told;

#[derive(Debug, Default)]
pub(super) struct Watches {
    log: Agreed,
    /// How much there is to tell at each index, where there is anything.
    changes: BTreeMap<u64, usize>,
    /// Up to where each watcher has been told; nothing before its snapshot.
    told: BTreeMap<String, u64>,
}

impl Watches {
    fn event(&mut self, watcher: &str, event: &WatchEvent) -> Result<(), String> {
        let (told, to) = match (self.told.get(watcher).copied(), event) {
            (_, WatchEvent::Snapshot { revision, .. }) => {
                self.told.insert(watcher.to_owned(), *revision);
                return Ok(());
            }
            (None, _) => return Err(format!("{watcher} was told a change before it was told what is there")),
            (Some(told), WatchEvent::Changes { revision, .. }) if *revision <= told => {
                return Err(format!("{watcher} was told {revision} after {told}"));
            }
            (Some(told), WatchEvent::Changes { revision, changes, .. }) => {
                let count = self.changes.get(revision).copied().unwrap_or(0);
                // It may be told more: clusters that look different though no event is about them.
                if changes.len() < count {
                    return Err(format!(
                        "{watcher} was told {} changes at {revision}, and there are {count}",
                        changes.len()
                    ));
                }
                (told, *revision)
            }
            (Some(told), WatchEvent::Progress { revision }) => (told, revision.saturating_add(1)),
        };
        // A watch that was told of progress which it knew already says nothing new.
        if let Some((missed, count)) = self.changes.range(told + 1..to.max(told + 1)).next() {
            return Err(format!("{watcher} went on from {told} to {to} and was not told {count} changes at {missed}"));
        }
        let to = if matches!(event, WatchEvent::Progress { .. }) { to - 1 } else { to };
        self.told.insert(watcher.to_owned(), told.max(to));
        Ok(())
    }
}

impl Invariant for Watches {
    fn name(&self) -> &'static str {
        "watches"
    }

    fn see(&mut self, sighting: &Sighting) -> Result<(), String> {
        if let Some(applied) = self.log.first(sighting) {
            let count = resource_changes(&applied.events).len();
            if count > 0 {
                self.changes.insert(applied.index.0, count);
            }
            return Ok(());
        }
        let Seen::Watched(watched) = &sighting.what else { return Ok(()) };
        match &watched.event {
            Told::Event(event) => self.event(&watched.watcher, event),
            Told::Ended(_) => {
                self.told.remove(&watched.watcher);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(revision: u64) -> WatchEvent {
        WatchEvent::Changes { revision, time_ms: 0, changes: vec![loadline_client::v1::ResourceChange::default()] }
    }

    fn watches() -> Watches {
        let changes = [(5, 1), (7, 1), (9, 1)].into();
        let mut watches = Watches { changes, ..Watches::default() };
        watches.event("w", &WatchEvent::Snapshot { revision: 4, resources: vec![] }).unwrap();
        watches
    }

    #[test]
    fn each_change_once_is_right() {
        let mut watches = watches();
        for event in [changes(5), WatchEvent::Progress { revision: 6 }, changes(7), changes(9)] {
            watches.event("w", &event).unwrap();
        }
    }

    #[test]
    fn a_gap_and_a_repeat_are_found() {
        assert!(watches().event("w", &changes(7)).unwrap_err().contains("not told 1 changes at 5"));
        assert!(watches().event("w", &WatchEvent::Progress { revision: 5 }).is_err());
        let mut repeated = watches();
        repeated.event("w", &changes(5)).unwrap();
        assert!(repeated.event("w", &changes(5)).is_err());
    }
}

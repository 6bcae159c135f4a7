//! Tells the log what was seen.
//!
//! What differs is worked out here, at the last moment and from one state, and the report carries the next number of its
//! collector in that same state. If another report gets in between, this one has a number that was heard before, and changes
//! nothing: a difference is never told twice, though a receipt was lost or an earlier leader still speaks.

use std::time::Duration;

use loadline_state_machine::{ClusterRef, ClusterReport, Command, Epoch, Hash, LogIndex, Span, State};

use super::Look;
use super::compare::Sight;
use crate::{Executor, Note};

/// What the setting is if the state does not know it, which cannot be.
const STALE_AFTER: Span = Span::from_mins(2);

pub(super) struct Teller<'a> {
    pub(super) executor: &'a Executor,
    pub(super) epoch: Epoch,
    pub(super) backend: &'a str,
    pub(super) visibility_delay: Duration,
}

impl Teller<'_> {
    pub(super) async fn tell(self, looks: Vec<Look>) {
        let state = self.executor.group.state();
        // Before our announcement is applied here, the state may lack what the last leader was told.
        if state.epoch() != Some(self.epoch) {
            return;
        }
        let collector = collector_of(self.backend);
        let clusters = self.differences(&state, &collector, &looks);
        if clusters.is_empty() {
            return;
        }
        let (count, differences) = (clusters.len(), clusters.iter().map(|report| report.observations.len() - 1).sum());
        let sequence = state.collector(&collector).map_or(1, |known| known.sequence.saturating_add(1));
        let report = Command::ReportSignals { collector, sequence, clusters };
        match self.executor.group.record(vec![report]).await {
            Ok(receipt) => {
                if let Err(refused) = &receipt.result {
                    tracing::warn!(backend = self.backend, "what was seen was not accepted: {}", refused.rejection);
                }
                // The next report is worked out from a state that has this one.
                let before = LogIndex(receipt.index.0.saturating_sub(1));
                self.executor.group.applied_beyond(before).await;
                self.executor.note(&Note::Reported { backend: self.backend, clusters: count, differences });
            }
            // If it was not recorded, the next look sees the same again.
            Err(not_recorded) => tracing::debug!(backend = self.backend, "what was seen is lost: {not_recorded}"),
        }
    }

    fn differences(&self, state: &State, collector: &str, looks: &[Look]) -> Vec<ClusterReport> {
        let setting = state.setting("signal_stale_after");
        let stale_after = setting.and_then(|setting| setting.value.parse().ok()).unwrap_or(STALE_AFTER);
        let mut reports = Vec::new();
        for look in looks {
            // It may have moved elsewhere since.
            if state.backend_of(look.cluster) != Some(self.backend) {
                continue;
            }
            let Some(seen) = &look.seen else { continue };
            let sight = Sight {
                collector,
                seen,
                age: span(look.began.elapsed()),
                from: look.from,
                visibility_delay: span(self.visibility_delay),
                stale_after,
            };
            let observations = sight.tell(state, look.cluster);
            if !observations.is_empty() {
                reports.push(ClusterReport { cluster: ClusterRef::Id(look.cluster), observations });
            }
        }
        reports
    }
}

/// The name under which a backend's sights are in the log.
fn collector_of(backend: &str) -> String {
    const NAME_BYTES_MAX: usize = 63;
    let name = format!("backend-{backend}");
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    // Names of backends are plain, so this cuts between two letters; the hash tells long ones apart.
    let hash = Hash::of(backend.as_bytes()).to_string();
    format!("{}-{}", name.chars().take(46).collect::<String>(), &hash[..16])
}

fn span(duration: Duration) -> Span {
    Span::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_collector_is_never_too_long_and_always_its_own() {
        assert_eq!(collector_of("local"), "backend-local");
        let (one, other) = (collector_of(&"x".repeat(63)), collector_of(&format!("{}y", "x".repeat(62))));
        assert!(one.len() <= 63 && other.len() <= 63 && one != other, "{one} {other}");
    }
}

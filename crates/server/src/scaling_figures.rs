//! Counts what scaling decides and does, as this node applies it.
//!
//! Every node applies everything, so every node counts everything from when it started: look at one of them, or at the largest,
//! never at the sum. Labels are kinds and codes; clusters only up to a number, because there may be 100,000.

use std::collections::BTreeSet;
use std::sync::Arc;

use loadline_raft_node::{FeedError, Node};
use loadline_state_machine::{ActionStatus, Brake, ClusterId, Decision, Event, LogIndex, Reason, Stage, State};

use crate::metrics::Metrics;

/// So many clusters get a label of their own; those that come later share one. A time series costs Prometheus some kilobytes
/// for as long as it keeps anything.
const CLUSTERS_TOLD_APART_MAX: usize = 100;

/// Runs until the node ends.
pub(crate) async fn count(node: Node, metrics: Arc<Metrics>) {
    let mut counting = Counting { metrics, told_apart: BTreeSet::new() };
    // What was applied before this process began is applied once more now, and is no news.
    let before = LogIndex(node.journal().last_index().unwrap_or_default());
    loop {
        let from = LogIndex(node.latest().applied().max(before).0 + 1);
        let Ok(mut feed) = node.follow(from) else { return };
        loop {
            match feed.next().await {
                Ok(happened) => happened.events.iter().for_each(|event| counting.note(event)),
                // A snapshot was put in place: what led to it did not happen here.
                Err(FeedError::Compacted { .. }) => break,
                Err(FeedError::Journal(_) | FeedError::ShuttingDown) => return,
            }
        }
    }
}

struct Counting {
    metrics: Arc<Metrics>,
    told_apart: BTreeSet<ClusterId>,
}

impl Counting {
    fn note(&mut self, event: &Event) {
        match event {
            Event::ActionSettled { action, .. } => {
                let labels = [action.by.code(), action.call.code(), action.status.code()];
                self.metrics.scaling_actions.with_label_values(&labels).inc();
            }
            Event::DecisionMade { decision } => {
                self.metrics.scaling_decisions.with_label_values(&[decision.conclusion.code()]).inc();
                self.note_brakes(decision);
            }
            Event::StrategyFaulted { .. } => self.metrics.tick_errors.inc(),
            _ => {}
        }
    }

    fn note_brakes(&mut self, decision: &Decision) {
        let skipped = |kind: &str| self.metrics.cooldown_skips.with_label_values(&[kind]).inc();
        let cooling = |stage: &&Stage| matches!(stage.reason, Reason::InCooldown { .. });
        decision.stages.iter().filter(cooling).for_each(|stage| skipped(stage.kind.as_str()));
        let held_by = |brake| decision.brakes.iter().any(|held| held.brake == brake);
        if held_by(Brake::ClusterCooldown) {
            decision.planned.iter().for_each(|planned| skipped(planned.by.code()));
        }
        if held_by(Brake::RateLimit) {
            let label = self.label(decision.cluster);
            self.metrics.rate_limit_hits.with_label_values(&[&label]).inc();
        }
    }

    fn label(&mut self, cluster: ClusterId) -> String {
        if self.told_apart.len() < CLUSTERS_TOLD_APART_MAX {
            self.told_apart.insert(cluster);
        }
        if self.told_apart.contains(&cluster) { cluster.to_string() } else { "other".to_owned() }
    }
}

/// How many actions there are that are not settled, by status. Every status is there, also with none.
pub(crate) fn unsettled(state: &State) -> [(&'static str, u64); 4] {
    let mut counts = [("AWAITING_APPROVAL", 0), ("PENDING", 0), ("CLAIMED", 0), ("UNKNOWN", 0)];
    for action in state.actions() {
        let place = match action.status {
            ActionStatus::AwaitingApproval { .. } => 0,
            ActionStatus::Pending { .. } => 1,
            ActionStatus::Claimed { .. } => 2,
            ActionStatus::Unknown { .. } => 3,
            _ => continue,
        };
        counts[place].1 += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::Revision;

    use super::*;

    #[test]
    fn the_first_clusters_have_a_label_each_and_the_rest_share_one() {
        let mut counting = Counting { metrics: Arc::new(Metrics::new()), told_apart: BTreeSet::new() };
        let cluster = |index: usize| ClusterId::from(Revision { index: LogIndex(index as u64), ordinal: 0 });
        let labels: BTreeSet<String> = (1..=500).map(|index| counting.label(cluster(index))).collect();
        assert_eq!(labels.len(), CLUSTERS_TOLD_APART_MAX + 1);
        assert_eq!(counting.label(cluster(1)), cluster(1).to_string());
        assert_eq!(counting.label(cluster(500)), "other");
    }
}

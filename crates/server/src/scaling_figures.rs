//! Counts what scaling decides and does, as this node applies it.
//!
//! Every node applies everything, so every node counts everything from when it started: look at one of them, or at the largest,
//! never at the sum. Labels are kinds and codes; clusters are not among them, because there may be 100,000.

use std::sync::Arc;

use loadline_raft_node::{FeedError, Node};
use loadline_state_machine::{Brake, Decision, Event, LogIndex, Reason, Stage};

use crate::metrics::Metrics;

/// Runs until the node ends.
pub(crate) async fn count(node: Node, metrics: Arc<Metrics>) {
    loop {
        let from = LogIndex(node.latest().applied().0 + 1);
        let Ok(mut feed) = node.follow(from) else { return };
        loop {
            match feed.next().await {
                Ok(happened) => happened.events.iter().for_each(|event| note(event, &metrics)),
                // A snapshot was put in place: what led to it did not happen here.
                Err(FeedError::Compacted { .. }) => break,
                Err(FeedError::Journal(_) | FeedError::ShuttingDown) => return,
            }
        }
    }
}

fn note(event: &Event, metrics: &Metrics) {
    match event {
        Event::ActionSettled { action, .. } => {
            let labels = [action.kind.as_str(), action.call.code(), action.status.code()];
            metrics.scaling_actions.with_label_values(&labels).inc();
        }
        Event::DecisionMade { decision } => {
            metrics.scaling_decisions.with_label_values(&[decision.conclusion.code()]).inc();
            note_brakes(decision, metrics);
        }
        _ => {}
    }
}

fn note_brakes(decision: &Decision, metrics: &Metrics) {
    let skipped = |kind: &str| metrics.cooldown_skips.with_label_values(&[kind]).inc();
    let cooling = |stage: &&Stage| matches!(stage.reason, Reason::InCooldown { .. });
    decision.stages.iter().filter(cooling).for_each(|stage| skipped(stage.kind.as_str()));
    let held_by = |brake| decision.brakes.iter().any(|held| held.brake == brake);
    if held_by(Brake::ClusterCooldown) {
        decision.planned.iter().for_each(|planned| skipped(planned.kind.as_str()));
    }
    if held_by(Brake::RateLimit) {
        metrics.rate_limit_hits.inc();
    }
}

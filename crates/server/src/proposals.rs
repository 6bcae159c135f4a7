//! Everything this node has recorded goes through here, and is counted by how it ended.

use std::sync::Arc;

use loadline_raft_node::{Node, ProposeError};
use loadline_state_machine::{Receipt, Request};

use crate::metrics::Metrics;

#[derive(Debug, Clone)]
pub(crate) struct Proposals {
    node: Node,
    metrics: Arc<Metrics>,
}

impl Proposals {
    pub(crate) fn new(node: Node, metrics: Arc<Metrics>) -> Proposals {
        Proposals { node, metrics }
    }

    pub(crate) async fn propose(&self, request: Request) -> Result<Receipt, ProposeError> {
        let mut waiting = Waiting { metrics: &self.metrics, result: "abandoned" };
        self.metrics.proposals_in_flight.inc();
        let outcome = self.node.propose(request).await;
        waiting.result = result(&outcome);
        outcome
    }
}

/// Counts when it goes, also when the caller's deadline drops the whole wait.
struct Waiting<'a> {
    metrics: &'a Metrics,
    result: &'static str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.metrics.proposals_in_flight.dec();
        self.metrics.proposals.with_label_values(&[self.result]).inc();
    }
}

fn result(outcome: &Result<Receipt, ProposeError>) -> &'static str {
    match outcome {
        Ok(receipt) if receipt.repeated => "repeated",
        Ok(Receipt { result: Ok(_), .. }) => "recorded",
        Ok(_) => "refused",
        Err(ProposeError::NoLeader) => "no_leader",
        Err(ProposeError::Overloaded) => "overloaded",
        Err(ProposeError::DiskReserve { .. }) => "disk_reserve",
        Err(ProposeError::TooLarge { .. }) => "too_large",
        Err(ProposeError::Unknown { .. }) => "unknown",
        Err(ProposeError::Suspended) => "disagreement",
        Err(ProposeError::ShuttingDown) => "shutting_down",
        Err(ProposeError::Stopped) => "stopped",
    }
}

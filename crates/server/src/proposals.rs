//! Everything this node has recorded goes through here, and is counted by how it ended.

use std::sync::Arc;

use bytes::Bytes;
use loadline_raft_node::{Node, ProposeError};
use loadline_state_machine::{Command, Receipt, Request};
use tokio::time::Instant;

use crate::metrics::{Metrics, WIDGET};

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
        let encoded = request.encode().into();
        self.propose_encoded(request, encoded).await
    }

    /// The same for who has the bytes of this very request at hand.
    pub(crate) async fn propose_encoded(&self, request: Request, encoded: Bytes) -> Result<Receipt, ProposeError> {
        let mut waiting = Waiting::begins(&self.metrics);
        let (began, kind) = (Instant::now(), request.commands.first().and_then(event_type));
        let outcome = self.node.propose_encoded(request, encoded).await;
        waiting.ends(&outcome, kind, began);
        outcome
    }

    /// The same for requests of many callers, each by itself. Their answers come together.
    pub(crate) async fn propose_together(&self, requests: Vec<(Request, Bytes)>) -> Vec<Result<Receipt, ProposeError>> {
        let began = Instant::now();
        let kinds: Vec<_> = requests.iter().map(|(request, _)| request.commands.first().and_then(event_type)).collect();
        let mut waiting: Vec<_> = kinds.iter().map(|_| Waiting::begins(&self.metrics)).collect();
        let outcomes = self.node.propose_together(requests).await;
        for ((outcome, kind), waiting) in outcomes.iter().zip(kinds).zip(&mut waiting) {
            waiting.ends(outcome, kind, began);
        }
        outcomes
    }
}

/// Counts when it goes, also when the caller's deadline drops the whole wait.
struct Waiting<'a> {
    metrics: &'a Metrics,
    result: &'static str,
}

impl<'a> Waiting<'a> {
    fn begins(metrics: &'a Metrics) -> Self {
        metrics.proposals_in_flight.inc();
        Waiting { metrics, result: "abandoned" }
    }

    fn ends(&mut self, outcome: &Result<Receipt, ProposeError>, kind: Option<&'static str>, began: Instant) {
        self.result = result(outcome);
        if let (Some(kind), Ok(_)) = (kind, outcome) {
            let handled = self.metrics.event_handling.with_label_values(&[WIDGET, kind]);
            handled.observe(began.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.metrics.proposals_in_flight.dec();
        self.metrics.proposals.with_label_values(&[self.result]).inc();
    }
}

/// What a command is to whoever scales; nothing if it does not matter there.
fn event_type(command: &Command) -> Option<&'static str> {
    match command {
        Command::ReportSignals { .. } => Some("signals"),
        Command::ClaimAction { .. } => Some("claim"),
        Command::RecordOutcome { .. } => Some("outcome"),
        Command::CreateStrategy { .. }
        | Command::ChangeStrategy { .. }
        | Command::DropStrategy { .. }
        | Command::DropStrategies { .. }
        | Command::SetSetting { .. }
        | Command::ResetSetting { .. } => Some("configuration"),
        _ => None,
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

//! Whether this node should get traffic, and if not, why.
//!
//! Ready means that it can do what it is for: it belongs to a group, knows a leader, and has lately seen everything that the
//! leader had committed. The last is tried out, not guessed: every now and then the node makes a linearizable read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loadline_raft_node::{Consistency, Node};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often a read is tried.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// A read that worked longer ago than this says nothing about now.
const FRESH_FOR: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Readiness(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    node: Node,
    closing: CancellationToken,
    tried: Mutex<Tried>,
}

/// What the reads have shown.
#[derive(Debug, Default)]
struct Tried {
    worked_at: Option<Instant>,
    failure: Option<String>,
}

impl Readiness {
    pub(crate) fn new(node: Node, closing: CancellationToken) -> Readiness {
        Readiness(Arc::new(Inner { node, closing, tried: Mutex::default() }))
    }

    /// Tries reads for ever.
    pub(crate) async fn keep_trying(self) {
        loop {
            let outcome = self.0.node.read(Consistency::Linearizable).await;
            {
                let mut tried = self.0.tried.lock().unwrap_or_else(PoisonError::into_inner);
                match outcome {
                    Ok(_) => *tried = Tried { worked_at: Some(Instant::now()), failure: None },
                    Err(error) => tried.failure = Some(error.to_string()),
                }
            }
            tokio::time::sleep(TRY_EVERY).await;
        }
    }

    /// Nothing: ready. Otherwise every reason why not.
    pub(crate) fn reasons_against(&self) -> Vec<String> {
        let tried = self.0.tried.lock().unwrap_or_else(PoisonError::into_inner);
        // Not `status`, which counts the bytes of the data folder: this is asked several times a second.
        let now = Seen {
            closing: self.0.closing.is_cancelled(),
            member: !self.0.node.peers().is_empty(),
            leader_known: self.0.node.leader().is_some(),
            read_worked_ago: tried.worked_at.map(|at| at.elapsed()),
            read_failure: tried.failure.as_deref(),
        };
        now.reasons_against()
    }
}

/// What the answer depends on.
struct Seen<'a> {
    closing: bool,
    member: bool,
    leader_known: bool,
    read_worked_ago: Option<Duration>,
    read_failure: Option<&'a str>,
}

impl Seen<'_> {
    fn reasons_against(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.closing {
            reasons.push("this node is shutting down".to_owned());
        }
        if !self.member {
            reasons.push("this node does not belong to a group yet".to_owned());
            return reasons;
        }
        if !self.leader_known {
            reasons.push("no leader is known".to_owned());
        }
        let because = self.read_failure.map(|failure| format!(": {failure}")).unwrap_or_default();
        match self.read_worked_ago {
            None => reasons.push(format!("this node has not caught up with the leader yet{because}")),
            Some(ago) if ago > FRESH_FOR => {
                reasons.push(format!("this node last caught up with the leader {} s ago{because}", ago.as_secs()));
            }
            Some(_) => {}
        }
        reasons
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: Seen<'_> = Seen {
        closing: false,
        member: true,
        leader_known: true,
        read_worked_ago: Some(Duration::from_secs(1)),
        read_failure: None,
    };

    #[test]
    fn a_node_is_ready_when_it_can_serve_and_says_why_when_it_cannot() {
        let check = |seen: Seen<'_>, expected: &[&str]| assert_eq!(seen.reasons_against(), expected);
        check(READY, &[]);
        check(
            Seen { member: false, leader_known: false, read_worked_ago: None, ..READY },
            &["this node does not belong to a group yet"],
        );
        check(Seen { leader_known: false, ..READY }, &["no leader is known"]);
        check(
            Seen { read_worked_ago: None, read_failure: Some("there is no leader"), ..READY },
            &["this node has not caught up with the leader yet: there is no leader"],
        );
        check(
            Seen { read_worked_ago: Some(Duration::from_secs(11)), ..READY },
            &["this node last caught up with the leader 11 s ago"],
        );
        check(Seen { closing: true, ..READY }, &["this node is shutting down"]);
        // One read that failed a moment after one that worked is no reason: an election takes about a second.
        check(Seen { read_failure: Some("there is no leader"), ..READY }, &[]);
    }
}

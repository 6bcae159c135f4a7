//! What the executor sees of this node: the state that was applied here, and a log that takes commands. And what the log asks of the
//! executor before it takes others.
//!
//! Not here: when something is claimed or called (`loadline-executor`), and how long a leadership lasts (`leading`).

use std::sync::Arc;

use futures::future::BoxFuture;
use loadline_executor::{ClaimsAhead, Group, NotRecorded};
use loadline_raft_node::{Foresight, Node};
use loadline_state_machine::{Actor, Command, LogIndex, Receipt, Request, State};

use crate::proposals::Proposals;

/// The group that this node belongs to, for whoever acts for it.
#[derive(Debug, Clone)]
pub(crate) struct NodeGroup {
    node: Node,
    proposals: Proposals,
    actor: Actor,
}

impl NodeGroup {
    /// `name` is that of this node, for the audit log.
    pub(crate) fn new(name: &str, node: Node, proposals: Proposals) -> NodeGroup {
        NodeGroup { node, proposals, actor: actor(name) }
    }
}

fn actor(name: &str) -> Actor {
    Actor::node(format!("node {name}"), "executor")
}

impl Group for NodeGroup {
    fn state(&self) -> Arc<State> {
        self.node.latest()
    }

    fn applied_beyond(&self, index: LogIndex) -> BoxFuture<'_, ()> {
        let mut applied = self.node.watch_applied();
        Box::pin(async move {
            if applied.wait_for(|applied| *applied > index).await.is_err() {
                // The node is ending, and its duties with it: nothing more is ever applied.
                std::future::pending::<()>().await;
            }
        })
    }

    fn work_beyond(&self, index: LogIndex) -> BoxFuture<'_, ()> {
        let mut work = self.node.watch_work();
        Box::pin(async move {
            if work.wait_for(|work| work.index > index).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    fn record(&self, commands: Vec<Command>) -> BoxFuture<'_, Result<Receipt, NotRecorded>> {
        // No request id: a claim and an outcome name their epoch and attempt, and a report its sequence, so a second one is
        // refused or recognised by what it says. One that is handed on to a new leader is of an old epoch there.
        let request = Request { actor: self.actor.clone(), request_id: None, commands };
        Box::pin(async move {
            let recorded = self.proposals.propose(request).await;
            recorded.map_err(|error| NotRecorded { reason: error.to_string() })
        })
    }
}

/// What the executor of this node claims as soon as it can be foreseen.
#[derive(Debug)]
pub(crate) struct Claiming {
    claims: ClaimsAhead,
    actor: Actor,
}

impl Claiming {
    /// `name` is that of this node, for the audit log.
    pub(crate) fn new(name: &str, claims: ClaimsAhead) -> Claiming {
        Claiming { claims, actor: actor(name) }
    }
}

impl Foresight for Claiming {
    fn may_follow(&self, command: &Command) -> bool {
        ClaimsAhead::may_follow(command)
    }

    fn follow(&self, state: &State) -> Vec<Request> {
        self.claims.after(state, &self.actor)
    }
}

//! Ending a node that was asked to end, so that nobody notices more than they must.
//!
//! First it says that it is not ready. Then it hands leadership on, while it still answers: what arrives in between is
//! forwarded to the new leader. Only then does it take no more connections, let the calls inside finish, stop Raft and close
//! the log. All of it within the grace; nothing acknowledged depends on it, so running out of time costs only patience.

use std::io;
use std::time::Duration;

use loadline_raft_node::{MembershipError, Node};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::grpc::limits::Door;

/// Connections that are closed on our side go away within a round trip; one that does not is not worth waiting for.
const CONNECTIONS_GONE_WITHIN: Duration = Duration::from_secs(1);

/// What is left to end.
pub(crate) struct Remains {
    pub(crate) node: Node,
    /// Readiness, watches and duties look at it.
    pub(crate) closing: CancellationToken,
    pub(crate) stop_accepting: CancellationToken,
    pub(crate) doors: Vec<Door>,
    pub(crate) grpc: AbortOnDropHandle<Result<(), tonic::transport::Error>>,
    pub(crate) http: AbortOnDropHandle<io::Result<()>>,
    pub(crate) leading: AbortOnDropHandle<()>,
    pub(crate) stop_sql: CancellationToken,
    pub(crate) pg: Option<AbortOnDropHandle<io::Result<()>>>,
}

pub(crate) async fn gracefully(remains: Remains, grace: Duration) {
    let Remains { node, closing, stop_accepting, doors, grpc, http, leading, stop_sql, pg } = remains;
    let give_up = Instant::now() + grace;
    info!(grace = ?grace, "shutting down");
    closing.cancel();
    // The duties of a leader end before leadership does.
    if timeout_at(give_up, leading).await.is_err() {
        warn!("a duty did not end in time");
    }
    // Half of the time at most: the calls inside want some, too.
    match timeout_at(Instant::now() + grace / 2, hand_over(&node)).await {
        Ok(()) => {}
        Err(_) => warn!("leadership was not handed on in time; the others elect a leader by themselves"),
    }
    stop_accepting.cancel();
    stop_sql.cancel();
    let inside = async {
        for door in &doors {
            drop(door.emptied().await);
        }
        if let Some(pg) = pg {
            let _ended = pg.await;
        }
    };
    if timeout_at(give_up, inside).await.is_err() {
        warn!("calls under way are cut off; their callers ask again with the same request id");
    }
    node.shutdown().await;
    let _connections_left = tokio::time::timeout(CONNECTIONS_GONE_WITHIN, grpc).await;
    // Probes were answered to the last. Waited for, so that the port is free when this returns.
    http.abort();
    let _aborted = http.await;
    info!("this node has stopped");
}

async fn hand_over(node: &Node) {
    if node.leadership().borrow().is_none() {
        return;
    }
    match node.transfer_leadership(None).await {
        Ok(peer) => info!(to = peer.name, "leadership was handed on"),
        // Alone, or somebody else leads by now.
        Err(MembershipError::OnlyVoter { .. } | MembershipError::NotLeader { .. }) => {}
        Err(error) => warn!("leadership was not handed on: {error}"),
    }
}

//! The operator: hands leadership on, and takes a node out of the group whose disk is lost, so that it can join again.

use std::time::Duration;

use loadline_client::{Client, Error};
use tokio::sync::mpsc;

use crate::record::{Place, Record, Seen};
use crate::world::node::host;

/// What an operator is asked to do.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    Transfer,
    /// Until it is out.
    Remove(Place),
}

/// Does one thing after the other, for as long as the run lasts.
pub async fn live(client: Client, mut orders: mpsc::UnboundedReceiver<Order>, record: Record) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::Transfer => {
                let words = match client.transfer_leadership(None, None).await {
                    Ok(peer) => format!("to {}", peer.leader_name),
                    Err(error) => error.to_string(),
                };
                record.deed(format!("operator: transfer of leadership: {words}"));
            }
            Order::Remove(node) => {
                while let Some(why) = remove(&client, node).await {
                    record.deed(format!("operator: {} cannot be removed yet: {why}", host(node)));
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
                record.see(Seen::Removed { node });
            }
        }
    }
}

/// Why it is not out yet.
async fn remove(client: &Client, node: Place) -> Option<String> {
    match client.remove_peer(&host(node)).await {
        Ok(_) => None,
        // An earlier try did it, and its answer was lost.
        Err(Error::Refused(refusal)) if refusal.reason == "NO_SUCH_PEER" => None,
        Err(error) => Some(error.to_string()),
    }
}

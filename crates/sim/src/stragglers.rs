//! Requests that one node handed on to another, and that arrive late.
//!
//! They go the way that the product's own go, over the network to the port for nodes, in the name of the node that said them;
//! only when is decided here ([`crate::run`]). Nobody waits for an answer: whoever said it is gone, or has been answered.

use std::collections::BTreeMap;
use std::time::Duration;

use loadline_api::raft::raft_client::RaftClient;
use loadline_api::raft::{Envelope, ProbeRequest, ProposeRequest, propose_response};
use loadline_raft_node::Dial as _;
use loadline_state_machine::{Actor, Command, Request};
use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::record::{Place, Record};
use crate::trace::said;
use crate::world::net::SimulatedDial;
use crate::world::node::{address, host};

/// One claim or outcome.
#[derive(Debug, Clone)]
pub struct Letter {
    pub from: Place,
    pub command: Command,
}

#[derive(Debug)]
pub enum Order {
    /// This node leads now: a connection will be needed.
    Meet(Place),
    Deliver(Place, Box<Letter>),
}

/// Longer than a letter may take: those behind it would wait.
const PATIENCE: Duration = Duration::from_millis(300);

/// Delivers one after the other, for as long as the run lasts.
pub async fn live(mut orders: mpsc::UnboundedReceiver<Order>, record: Record) {
    let mut doors: BTreeMap<Place, Door> = BTreeMap::new();
    while let Some(order) = orders.recv().await {
        match order {
            Order::Meet(place) => {
                doors.remove(&place);
                if let Ok(Some(door)) = tokio::time::timeout(PATIENCE, Door::of(place)).await {
                    doors.insert(place, door);
                }
            }
            Order::Deliver(place, letter) => {
                let Some(door) = doors.get(&place).cloned() else { continue };
                let (to, words) = (host(place), said(&letter.command));
                record.deed(format!("what {} said reaches {to}: {words}", host(letter.from)));
                let record = record.clone();
                tokio::task::spawn_local(async move {
                    let answer = tokio::time::timeout(PATIENCE, door.deliver(*letter)).await;
                    let answer = answer.unwrap_or("no answer");
                    record.deed(format!("{to} takes it ({words}): {answer}"));
                });
            }
        }
    }
}

/// The port of one node, and how it wants to be spoken to.
#[derive(Debug, Clone)]
struct Door {
    client: RaftClient<Channel>,
    group: String,
    node: u64,
}

impl Door {
    async fn of(place: Place) -> Option<Door> {
        let channel = SimulatedDial.channel(&address(place)).ok()?;
        let mut client = RaftClient::new(channel);
        let known = client.probe(ProbeRequest::default()).await.ok()?.into_inner();
        Some(Door { client, group: known.group, node: known.node_id })
    }

    async fn deliver(mut self, letter: Letter) -> &'static str {
        // As `NodeGroup` of the server has it recorded. Any node but this one may hand it on.
        let actor = Actor::node(format!("node {}", host(letter.from)), "executor");
        let request = Request { actor, request_id: None, commands: vec![letter.command] };
        let envelope = Envelope { group: self.group, from: self.node + 1, to: self.node };
        let message = ProposeRequest { envelope: Some(envelope), request: request.encode().into() };
        match self.client.propose(message).await.map(|answer| answer.into_inner().result) {
            Ok(Some(propose_response::Result::Receipt(_))) => "it is in the log",
            Ok(_) => "it does not lead",
            Err(_) => "it cannot be reached",
        }
    }
}

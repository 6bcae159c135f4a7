//! Operator calls that only the leader can do are passed on to it, once.
//!
//! Writes need none of this: raft-node forwards proposals by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use loadline_api::v1::operator_client::OperatorClient;
use loadline_raft_node::{Dial, Node};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::errors::Answer;
use crate::config::ServerConfig;

/// Metadata key that marks a call as passed on already: two nodes that each take the other for the leader must not play
/// ball with it.
const FORWARDED: &str = "loadline-forwarded-by";
/// What is passed on along with the message itself. The leader looks at the caller's token for itself: a claim to have
/// looked at it could be made by anybody.
const PASSED_ON: [&str; 3] = ["loadline-actor", "authorization", "grpc-timeout"];

/// Connections to whoever leads.
#[derive(Debug)]
pub(crate) struct Forwarding {
    node: Node,
    name: String,
    /// Where this node itself is reached.
    advertise: String,
    dial: Arc<dyn Dial>,
    /// By address. There are as many as there were leaders, which is a handful.
    channels: Mutex<BTreeMap<String, Channel>>,
}

/// Who should do it.
pub(super) enum Doer {
    /// This node: it leads, or it was asked by one that believes so.
    Here,
    There(OperatorClient<Channel>),
}

impl Forwarding {
    pub(crate) fn new(node: Node, config: &ServerConfig, dial: Arc<dyn Dial>) -> Forwarding {
        let (name, advertise) = (config.name.clone(), config.advertise.clone());
        Forwarding { node, name, advertise, dial, channels: Mutex::default() }
    }

    /// Finds the leader. `NO_LEADER` if nobody is known to be.
    pub(super) fn doer<T>(&self, request: &Request<T>) -> Result<Doer, Status> {
        let leads = self.node.leadership().borrow().is_some();
        if leads || request.metadata().contains_key(FORWARDED) {
            return Ok(Doer::Here);
        }
        let no_leader = || Answer::new(Code::Unavailable, "NO_LEADER", "there is no leader at the moment").status();
        let (_, address) = self.node.leader().ok_or_else(no_leader)?;
        // Elected, but not announced yet.
        if address == self.advertise {
            return Err(no_leader());
        }
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match channels.get(&address) {
            Some(channel) => channel.clone(),
            None => {
                let channel = self.dial.channel(&address).map_err(|error| {
                    Answer::new(Code::Internal, "LEADER_ADDRESS", error.to_string()).with("leader", &address).status()
                })?;
                channels.insert(address, channel.clone());
                channel
            }
        };
        Ok(Doer::There(OperatorClient::new(channel)))
    }

    /// The same request, marked as passed on.
    pub(super) fn mark<T>(&self, request: Request<T>) -> Request<T> {
        let (metadata, _, message) = request.into_parts();
        let mut marked = Request::new(message);
        for key in PASSED_ON {
            if let Some(value) = metadata.get(key) {
                marked.metadata_mut().insert(key, value.clone());
            }
        }
        let by = MetadataValue::try_from(&self.name).unwrap_or_else(|_| MetadataValue::from_static("unnamed"));
        marked.metadata_mut().insert(FORWARDED, by);
        marked
    }
}

/// What the leader said stands. That it said nothing leaves open whether it did anything.
pub(super) fn answered<T>(answer: Result<T, Status>) -> Result<T, Status> {
    answer.map_err(|status| {
        // tonic puts a source only under a status that it made itself.
        if std::error::Error::source(&status).is_none() {
            return status;
        }
        let message = format!("the leader did not answer, so it may or may not have been done: {}", status.message());
        Answer::new(Code::Unavailable, "OUTCOME_UNKNOWN", message).status()
    })
}

//! What every service does: has something recorded, or reads the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use loadline_api::v1::resource::Resource as Shown;
use loadline_api::v1::{Action, Resource, WriteResponse, WriteResult};
use loadline_api::{Invalid, Write, fields, scaling};
use loadline_raft_node::{Consistency, Node};
use loadline_state_machine::{Actor as Asking, Request as Asked, State, nonsense};
use tonic::{Request, Response, Status};

use super::actor::actor_of;
use super::errors;
use crate::proposals::Proposals;

pub(super) type Answer<T> = Result<Response<T>, Status>;

/// The way of a service to the log and to the state.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) node: Node,
    pub(crate) proposals: Proposals,
}

impl Exchange {
    pub(super) async fn write<T>(
        &self,
        request: Request<T>,
        read: impl FnOnce(T) -> Result<Write, Invalid>,
    ) -> Answer<WriteResponse> {
        let actor = actor_of(&request)?;
        let write = read(request.into_inner()).map_err(errors::invalid)?;
        self.record(actor, write).await.map(Response::new)
    }

    /// Has it recorded, or only says what would come of it.
    pub(crate) async fn record(&self, actor: Asking, write: Write) -> Result<WriteResponse, Status> {
        let asked = Asked { actor, request_id: write.request_id, commands: write.commands.clone() };
        if write.validate_only {
            let done = Box::pin(self.node.rehearse(asked)).await.map_err(|error| errors::read(&error))?;
            let done = done.map_err(|refused| errors::refused(&refused, &write))?;
            let state = self.node.latest();
            let results = self.named_results(write.results(&done, &state));
            return Ok(WriteResponse { revision: 0, results, repeated_request: false });
        }
        self.refuse_nonsense(&asked, &write)?;
        let receipt = self.proposals.propose(asked).await.map_err(|error| errors::propose(&error))?;
        let done = receipt.result.map_err(|refused| errors::refused(&refused, &write))?;
        // At a follower this may be a little behind; it is only asked for names.
        let state = self.node.latest();
        let results = self.named_results(write.results(&done, &state));
        Ok(WriteResponse { revision: receipt.index.0, results, repeated_request: receipt.repeated })
    }

    fn named_results(&self, mut results: Vec<WriteResult>) -> Vec<WriteResult> {
        self.name_nodes(results.iter_mut().filter_map(|result| result.resource.as_mut()));
        results
    }

    /// Says which nodes worked on the actions among these, by name. What is stored knows nodes by number.
    pub(super) fn name_nodes<'a>(&self, resources: impl IntoIterator<Item = &'a mut Resource>) {
        name_nodes(&self.node, resources);
    }

    /// Turns away what is wrong by itself before it costs everybody an entry. The state machine is asked, so that there is
    /// one set of rules; only an answer that no other state could change counts, because this node may be behind.
    fn refuse_nonsense(&self, asked: &Asked, write: &Write) -> Result<(), Status> {
        match nonsense(&self.node.latest(), asked) {
            Some(refused) => Err(errors::refused(&refused, write)),
            None => Ok(()),
        }
    }

    pub(crate) async fn read(&self, consistency: i32) -> Result<Arc<State>, Status> {
        let stale = fields::stale_allowed("consistency", consistency).map_err(errors::invalid)?;
        let consistency = if stale { Consistency::Stale } else { Consistency::Linearizable };
        self.node.read(consistency).await.map_err(|error| errors::read(&error))
    }
}

/// As [`Exchange::name_nodes`], for who has only a node.
pub(super) fn name_nodes<'a>(node: &Node, resources: impl IntoIterator<Item = &'a mut Resource>) {
    let actions = resources.into_iter().filter_map(|resource| match &mut resource.resource {
        Some(Shown::Action(action)) => Some(action),
        _ => None,
    });
    name_nodes_of(node, actions);
}

/// Looks the names up only where there is somebody to name.
pub(super) fn name_nodes_of<'a>(node: &Node, actions: impl IntoIterator<Item = &'a mut Action>) {
    let mut names: Option<BTreeMap<u64, String>> = None;
    for action in actions.into_iter().filter(|action| !action.attempts.is_empty()) {
        let names = names.get_or_insert_with(|| node.peers().into_iter().map(|peer| (peer.id, peer.name)).collect());
        scaling::name_nodes(action, names);
    }
}

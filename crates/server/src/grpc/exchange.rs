//! What every service does: has something recorded, or reads the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use loadline_api::v1::resource::Resource as Shown;
use loadline_api::v1::{Action, Resource, WriteResponse, WriteResult};
use loadline_api::{Invalid, Write, fields, scaling};
use loadline_raft_node::{Consistency, Node, ProposeError};
use loadline_state_machine::{Actor as Asking, Receipt, Request as Asked, State, nonsense};
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
    pub(crate) async fn record(&self, actor: Asking, mut write: Write) -> Result<WriteResponse, Status> {
        if write.validate_only {
            return Box::pin(self.rehearse(actor, write)).await;
        }
        let asked = self.asked(actor, &mut write).await?;
        self.told(self.proposals.propose(asked).await, &write)
    }

    /// Has writes of many callers recorded, each by itself. Their answers come together, in the order of the writes.
    pub(crate) async fn record_together(
        &self,
        actor: &Asking,
        writes: Vec<Write>,
    ) -> Vec<Result<WriteResponse, Status>> {
        let mut requests = Vec::with_capacity(writes.len());
        let mut judged = Vec::with_capacity(writes.len());
        for mut write in writes {
            let asked = self.asked(actor.clone(), &mut write).await;
            let is_asked = asked.map(|asked| {
                let encoded = Bytes::from(asked.encode());
                requests.push((asked, encoded));
            });
            judged.push((write, is_asked));
        }
        let mut receipts = self.proposals.propose_together(requests).await.into_iter();
        let told = judged.into_iter().map(|(write, judged)| {
            judged?;
            let receipt =
                receipts.next().unwrap_or_else(|| Err(ProposeError::Unknown { reason: "no answer".to_owned() }));
            self.told(receipt, &write)
        });
        told.collect()
    }

    async fn rehearse(&self, actor: Asking, mut write: Write) -> Result<WriteResponse, Status> {
        let asked = Asked { actor, request_id: write.request_id, commands: write.take_commands() };
        let done = self.node.rehearse(asked).await.map_err(|error| errors::read(&error))?;
        let done = done.map_err(|refused| errors::refused(&refused, &write))?;
        let results = self.named_results(write.results(&done, &self.node.latest()));
        Ok(WriteResponse { revision: 0, results, repeated_request: false })
    }

    /// What is to be recorded, unless it is wrong by itself.
    async fn asked(&self, actor: Asking, write: &mut Write) -> Result<Asked, Status> {
        let asked = Asked { actor, request_id: write.request_id, commands: write.take_commands() };
        self.refuse_nonsense(&asked, write).await?;
        Ok(asked)
    }

    /// What came of it, in the words of the caller.
    fn told(&self, receipt: Result<Receipt, ProposeError>, write: &Write) -> Result<WriteResponse, Status> {
        let receipt = receipt.map_err(|error| errors::propose(&error))?;
        let done = receipt.result.map_err(|refused| errors::refused(&refused, write))?;
        // At a follower this may be a little behind; it is only asked for names.
        let results = self.named_results(write.results(&done, &self.node.latest()));
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
    /// one set of rules; only an answer that no later state should change counts.
    async fn refuse_nonsense(&self, asked: &Asked, write: &Write) -> Result<(), Status> {
        if nonsense(&self.node.latest(), asked).is_none() {
            return Ok(());
        }
        // This node may be behind, and not know the size yet that its caller has just been told is there. Where nobody can say how far
        // the group is, nobody can record the request either, and whoever is asked to says so.
        let Ok(state) = Box::pin(self.node.read(Consistency::Linearizable)).await else { return Ok(()) };
        match nonsense(&state, asked) {
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

//! Service `Admin`: configuration. Any node answers; what is written goes through the log.

use std::sync::Arc;

use loadline_api::v1::admin_server::Admin;
use loadline_api::v1::{
    CreateClusterRequest, CreateSizeRequest, DeleteRequest, GetRequest, ListRequest, ListResponse, ReadResponse,
    RenameClusterRequest, SetSettingRequest, TransactRequest, UpdateSizeRequest, WriteResponse,
};
use loadline_api::{Invalid, Write, fields};
use loadline_raft_node::{Consistency, Node};
use loadline_state_machine::{
    Command, Refused, Rejection, RejectionClass, ResourceKind, ResourceName, State, rehearse,
};
use tonic::{Request, Response, Status};

use super::actor::actor_of;
use super::{errors, listing, pages};
use crate::proposals::Proposals;

type Answer<T> = Result<Response<T>, Status>;

#[derive(Debug)]
pub(crate) struct AdminService {
    pub(crate) node: Node,
    pub(crate) proposals: Proposals,
}

impl AdminService {
    async fn write<T>(
        &self,
        request: Request<T>,
        read: impl FnOnce(T) -> Result<Write, Invalid>,
    ) -> Answer<WriteResponse> {
        let actor = actor_of(&request)?;
        let write = read(request.into_inner()).map_err(errors::invalid)?;
        let asked =
            loadline_state_machine::Request { actor, request_id: write.request_id, commands: write.commands.clone() };
        if write.validate_only {
            let done = self.node.rehearse(asked).await.map_err(|error| errors::read(&error))?;
            let done = done.map_err(|refused| errors::refused(&refused, &write))?;
            let results = done.iter().map(Into::into).collect();
            return Ok(Response::new(WriteResponse { revision: 0, results, repeated_request: false }));
        }
        self.refuse_nonsense(&asked, &write)?;
        let receipt = self.proposals.propose(asked).await.map_err(|error| errors::propose(&error))?;
        let done = receipt.result.map_err(|refused| errors::refused(&refused, &write))?;
        let results = done.iter().map(Into::into).collect();
        Ok(Response::new(WriteResponse { revision: receipt.index.0, results, repeated_request: receipt.repeated }))
    }

    /// Turns away what is wrong by itself before it costs everybody an entry. The state machine is asked, so that there is
    /// one set of rules; only an answer that no other state could change counts, because this node may be behind.
    fn refuse_nonsense(&self, asked: &loadline_state_machine::Request, write: &Write) -> Result<(), Status> {
        let state = self.node.latest();
        match rehearse(&state, asked, state.now()) {
            Err(refused) if refused.rejection.class() == RejectionClass::Invalid => {
                Err(errors::refused(&refused, write))
            }
            _ => Ok(()),
        }
    }

    async fn read(&self, consistency: i32) -> Result<Arc<State>, Status> {
        let stale = fields::stale_allowed("consistency", consistency).map_err(errors::invalid)?;
        let consistency = if stale { Consistency::Stale } else { Consistency::Linearizable };
        self.node.read(consistency).await.map_err(|error| errors::read(&error))
    }

    async fn get(&self, kind: ResourceKind, request: Request<GetRequest>) -> Answer<ReadResponse> {
        let request = request.into_inner();
        if request.name.is_empty() {
            return Err(errors::invalid_field("name", "is required"));
        }
        let state = self.read(request.consistency).await?;
        let name = ResourceName { kind, name: request.name };
        let resource = state.resource(&name).ok_or_else(|| errors::rejected(&missing(&state, name)))?;
        Ok(Response::new(ReadResponse { resource: Some((&resource).into()), revision: state.applied().0 }))
    }

    async fn list(&self, kind: ResourceKind, request: Request<ListRequest>) -> Answer<ListResponse> {
        let request = request.into_inner();
        let after = pages::position(kind, &request.page_token)?;
        let size = pages::page_size(request.page_size);
        let state = self.read(request.consistency).await?;
        // One more than a page has, to know whether another one follows.
        let mut rows = listing::rows(&state, kind, after.as_deref(), size + 1).ok_or_else(|| pages::not_of(kind))?;
        let more = rows.len() > size;
        rows.truncate(size);
        let next_page_token = match rows.last() {
            Some((position, _)) if more => pages::token(kind, position),
            _ => String::new(),
        };
        let resources = rows.into_iter().map(|(_, resource)| resource).collect();
        Ok(Response::new(ListResponse { resources, next_page_token, revision: state.applied().0 }))
    }
}

/// Why it is not there. For a setting the state machine knows which names are close.
fn missing(state: &State, name: ResourceName) -> Rejection {
    if name.kind == ResourceKind::Setting {
        let reset = Command::ResetSetting { name: name.name.clone(), etag: None };
        let request =
            loadline_state_machine::Request { actor: Default::default(), request_id: None, commands: vec![reset] };
        if let Err(Refused { rejection, .. }) = rehearse(state, &request, state.now()) {
            return rejection;
        }
    }
    Rejection::NotFound { resource: name }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn create_size(&self, request: Request<CreateSizeRequest>) -> Answer<WriteResponse> {
        self.write(request, Write::create_size).await
    }

    async fn get_size(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Size, request).await
    }

    async fn list_sizes(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Size, request).await
    }

    async fn update_size(&self, request: Request<UpdateSizeRequest>) -> Answer<WriteResponse> {
        self.write(request, Write::update_size).await
    }

    async fn delete_size(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.write(request, |request| Write::delete(ResourceKind::Size, request)).await
    }

    async fn create_cluster(&self, request: Request<CreateClusterRequest>) -> Answer<WriteResponse> {
        self.write(request, Write::create_cluster).await
    }

    async fn get_cluster(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Cluster, request).await
    }

    async fn list_clusters(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Cluster, request).await
    }

    async fn rename_cluster(&self, request: Request<RenameClusterRequest>) -> Answer<WriteResponse> {
        self.write(request, Write::rename_cluster).await
    }

    async fn delete_cluster(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.write(request, |request| Write::delete(ResourceKind::Cluster, request)).await
    }

    async fn get_setting(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Setting, request).await
    }

    async fn list_settings(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Setting, request).await
    }

    async fn set_setting(&self, request: Request<SetSettingRequest>) -> Answer<WriteResponse> {
        self.write(request, Write::set_setting).await
    }

    async fn delete_setting(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.write(request, |request| Write::delete(ResourceKind::Setting, request)).await
    }

    async fn transact(&self, request: Request<TransactRequest>) -> Answer<WriteResponse> {
        self.write(request, Write::transact).await
    }
}

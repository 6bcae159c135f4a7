//! Service `Admin`: configuration. Any node answers; what is written goes through the log.

use loadline_api::v1::admin_server::Admin;
use loadline_api::v1::{
    CreateClusterRequest, CreateRoleRequest, CreateSignalRequest, CreateSizeRequest, CreateTokenRequest, DeleteRequest,
    DeleteTokenRequest, GetRequest, ListRequest, ListResponse, PushSignalsRequest, ReadResponse, RenameClusterRequest,
    SetSettingRequest, TransactRequest, UpdateClusterRequest, UpdateRoleRequest, UpdateSignalRequest,
    UpdateSizeRequest, UsageRequest, WriteResponse,
};
use loadline_api::{Write, listing, resource};
use loadline_state_machine::{Actor, Command, Refused, Rejection, ResourceKind, ResourceName, State, rehearse};
use tonic::{Request, Response};

use super::exchange::{Answer, Exchange};
use super::guard::Guard;
use super::{errors, pages};

#[derive(Debug)]
pub(crate) struct AdminService {
    pub(crate) exchange: Exchange,
    pub(crate) guard: Guard,
}

impl AdminService {
    /// Roles mean nothing if whoever reaches this port can speak as a node.
    fn closing_is_safe(&self) -> Result<(), tonic::Status> {
        if self.guard.peers_prove_themselves() { Ok(()) } else { Err(errors::peer_secret_missing()) }
    }

    async fn get(&self, kind: ResourceKind, request: Request<GetRequest>) -> Answer<ReadResponse> {
        let request = request.into_inner();
        if request.name.is_empty() {
            return Err(errors::invalid_field("name", "is required"));
        }
        let state = self.exchange.read(request.consistency).await?;
        let name = ResourceName { kind, name: request.name };
        let found = state.resource(&name).ok_or_else(|| errors::rejected(&missing(&state, name)))?;
        Ok(Response::new(ReadResponse { resource: Some(resource(&found, &state)), revision: state.applied().0 }))
    }

    async fn list(&self, kind: ResourceKind, request: Request<ListRequest>) -> Answer<ListResponse> {
        let request = request.into_inner();
        let after = pages::position(kind, &request.page_token)?;
        let size = pages::page_size(request.page_size);
        let state = self.exchange.read(request.consistency).await?;
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
            loadline_state_machine::Request { actor: Actor::node("", ""), request_id: None, commands: vec![reset] };
        if let Err(Refused { rejection, .. }) = rehearse(state, &request, state.now()) {
            return rejection;
        }
    }
    Rejection::NotFound { resource: name }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn create_size(&self, request: Request<CreateSizeRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::create_size).await
    }

    async fn get_size(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Size, request).await
    }

    async fn list_sizes(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Size, request).await
    }

    async fn update_size(&self, request: Request<UpdateSizeRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::update_size).await
    }

    async fn delete_size(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, |request| Write::delete(ResourceKind::Size, request)).await
    }

    async fn create_cluster(&self, request: Request<CreateClusterRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::create_cluster).await
    }

    async fn get_cluster(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Cluster, request).await
    }

    async fn list_clusters(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Cluster, request).await
    }

    async fn rename_cluster(&self, request: Request<RenameClusterRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::rename_cluster).await
    }

    async fn update_cluster(&self, request: Request<UpdateClusterRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::update_cluster).await
    }

    async fn delete_cluster(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, |request| Write::delete(ResourceKind::Cluster, request)).await
    }

    async fn get_setting(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Setting, request).await
    }

    async fn list_settings(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Setting, request).await
    }

    async fn set_setting(&self, request: Request<SetSettingRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::set_setting).await
    }

    async fn delete_setting(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, |request| Write::delete(ResourceKind::Setting, request)).await
    }

    async fn create_role(&self, request: Request<CreateRoleRequest>) -> Answer<WriteResponse> {
        self.closing_is_safe()?;
        self.exchange.write(request, Write::create_role).await
    }

    async fn get_role(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Role, request).await
    }

    async fn list_roles(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Role, request).await
    }

    async fn update_role(&self, request: Request<UpdateRoleRequest>) -> Answer<WriteResponse> {
        self.closing_is_safe()?;
        self.exchange.write(request, Write::update_role).await
    }

    async fn delete_role(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::delete_role).await
    }

    async fn grant_usage(&self, request: Request<UsageRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::grant_usage).await
    }

    async fn revoke_usage(&self, request: Request<UsageRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::revoke_usage).await
    }

    async fn create_token(&self, request: Request<CreateTokenRequest>) -> Answer<WriteResponse> {
        self.closing_is_safe()?;
        self.exchange.write(request, Write::create_token).await
    }

    async fn delete_token(&self, request: Request<DeleteTokenRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::delete_token).await
    }

    async fn create_signal(&self, request: Request<CreateSignalRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::create_signal).await
    }

    async fn get_signal(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        self.get(ResourceKind::Signal, request).await
    }

    async fn list_signals(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.list(ResourceKind::Signal, request).await
    }

    async fn update_signal(&self, request: Request<UpdateSignalRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::update_signal).await
    }

    async fn delete_signal(&self, request: Request<DeleteRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, |request| Write::delete(ResourceKind::Signal, request)).await
    }

    async fn push_signals(&self, request: Request<PushSignalsRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::push_signals).await
    }

    async fn transact(&self, request: Request<TransactRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::transact).await
    }
}

//! Sizes, clusters and settings: reading them, and changing them, and strategies with them, one by one or all at once.

use std::fmt;
use std::str::FromStr;

use loadline_api::v1::change::Change as Step;
use loadline_api::v1::tagged_write::Write as Wanted;
use loadline_api::v1::{
    Change, Consistency, GetRequest, ListRequest, ListResponse, ReadResponse, Resource, TransactRequest, WriteOptions,
    WriteResponse,
};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};
use uuid::Uuid;

use crate::call::Repeat;
use crate::client::Client;
use crate::error::Error;
use crate::scaling::{self, Scope};

/// What can be read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Size,
    Cluster,
    Setting,
    Strategy,
    /// The latest about each cluster.
    Decision,
    /// Those under way.
    Operation,
    /// Those that are not settled.
    Action,
    Role,
    Signal,
}

impl Kind {
    pub const ALL: [Kind; 9] = [
        Kind::Size,
        Kind::Cluster,
        Kind::Setting,
        Kind::Strategy,
        Kind::Decision,
        Kind::Operation,
        Kind::Action,
        Kind::Role,
        Kind::Signal,
    ];

    /// As in resource names: "sizes".
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Size => "sizes",
            Kind::Cluster => "clusters",
            Kind::Setting => "settings",
            Kind::Strategy => "strategies",
            Kind::Decision => "decisions",
            Kind::Operation => "operations",
            Kind::Action => "actions",
            Kind::Role => "roles",
            Kind::Signal => "signals",
        }
    }

    pub fn singular(self) -> &'static str {
        match self {
            Kind::Size => "size",
            Kind::Cluster => "cluster",
            Kind::Setting => "setting",
            Kind::Strategy => "strategy",
            Kind::Decision => "decision",
            Kind::Operation => "operation",
            Kind::Action => "action",
            Kind::Role => "role",
            Kind::Signal => "signal",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.singular())
    }
}

impl FromStr for Kind {
    type Err = ();

    /// Singular or plural.
    fn from_str(text: &str) -> Result<Kind, ()> {
        Kind::ALL.into_iter().find(|kind| text == kind.singular() || text == kind.plural()).ok_or(())
    }
}

/// How fresh an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reading {
    /// Sees every write that was acknowledged before the read began.
    #[default]
    Linearizable,
    /// What the answering node has applied; works without a leader.
    Stale,
}

impl Reading {
    pub(crate) fn wire(self) -> i32 {
        match self {
            Reading::Linearizable => Consistency::Linearizable.into(),
            Reading::Stale => Consistency::Stale.into(),
        }
    }
}

/// Do it, or only say what would happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writing {
    #[default]
    Record,
    /// Decided on the leader's state, and nothing is written.
    Rehearse,
}

/// One resource, and the log index that this answer shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub resource: Resource,
    pub revision: u64,
}

/// All resources of a kind, and the log index that the last page shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    pub resources: Vec<Resource>,
    pub revision: u64,
}

/// The most that a server puts on one page.
pub(crate) const PAGE_SIZE: u32 = 1000;

impl Client {
    /// One change, recorded at most once however often it has to be sent.
    pub async fn write(&self, step: Step, writing: Writing) -> Result<WriteResponse, Error> {
        let ask = |id| with_options(step.clone(), options(id, writing));
        self.call(self.limits(), Repeat::Freely, ask, send_step).await
    }

    /// Several changes at one revision: all of them or none.
    pub async fn transact(&self, steps: Vec<Step>, writing: Writing) -> Result<WriteResponse, Error> {
        let changes: Vec<Change> = steps.into_iter().map(|step| Change { change: Some(step) }).collect();
        let ask = |id| TransactRequest { options: Some(options(id, writing)), changes: changes.clone() };
        if self.options.stream_writes {
            return self.call_on_stream(|id| Wanted::Transact(ask(id))).await;
        }
        let send = |channel, request| async move { Client::admin(channel).transact(request).await };
        self.call(self.limits(), Repeat::Freely, ask, send).await
    }

    pub async fn get(&self, kind: Kind, name: &str, reading: Reading) -> Result<Found, Error> {
        let ask = |_| GetRequest { name: name.to_owned(), consistency: reading.wire() };
        let send = |channel, request| send_get(kind, channel, request);
        let answer = self.call(self.limits(), Repeat::Freely, ask, send).await?;
        let resource = answer.resource.ok_or_else(|| self.malformed("the resource"))?;
        Ok(Found { resource, revision: answer.revision })
    }

    /// Every resource of a kind. Pages are read one after the other, so a change in between may show on a later page.
    pub async fn list(&self, kind: Kind, reading: Reading) -> Result<Listing, Error> {
        if matches!(kind, Kind::Strategy | Kind::Decision | Kind::Operation | Kind::Action) {
            return self.list_scaling(kind, &Scope::default(), reading).await;
        }
        let mut listing = Listing { resources: Vec::new(), revision: 0 };
        let mut page_token = String::new();
        loop {
            let ask =
                |_| ListRequest { page_size: PAGE_SIZE, page_token: page_token.clone(), consistency: reading.wire() };
            let send = |channel, request| send_list(kind, channel, request);
            let page = self.call(self.limits(), Repeat::Freely, ask, send).await?;
            listing.resources.extend(page.resources);
            listing.revision = page.revision;
            // A token that comes back unchanged would be asked for without end.
            if page.next_page_token.is_empty() || page.next_page_token == page_token {
                return Ok(listing);
            }
            page_token = page.next_page_token;
        }
    }

    pub(crate) fn malformed(&self, lacks: &'static str) -> Error {
        Error::Malformed { endpoint: self.pool.current().1.to_string(), lacks }
    }
}

pub(crate) fn options(id: Uuid, writing: Writing) -> WriteOptions {
    WriteOptions { request_id: id.to_string(), validate_only: writing == Writing::Rehearse }
}

fn with_options(mut step: Step, options: WriteOptions) -> Step {
    let place = match &mut step {
        Step::CreateSize(request) => &mut request.options,
        Step::UpdateSize(request) => &mut request.options,
        Step::CreateCluster(request) => &mut request.options,
        Step::RenameCluster(request) => &mut request.options,
        Step::UpdateCluster(request) => &mut request.options,
        Step::SetSetting(request) => &mut request.options,
        Step::CreateStrategy(request) => &mut request.options,
        Step::UpdateStrategy(request) => &mut request.options,
        Step::DeleteStrategy(request) => &mut request.options,
        Step::DeleteStrategies(request) => &mut request.options,
        Step::ExpectUnchanged(request) => &mut request.options,
        Step::CreateSignal(request) => &mut request.options,
        Step::UpdateSignal(request) => &mut request.options,
        Step::DeleteSize(request)
        | Step::DeleteCluster(request)
        | Step::DeleteSetting(request)
        | Step::DeleteSignal(request) => &mut request.options,
    };
    *place = Some(options);
    step
}

/// Each step has a call of its own, whose errors name the fields as the caller knows them.
async fn send_step(channel: Channel, request: Request<Step>) -> Result<Response<WriteResponse>, Status> {
    let mut admin = Client::admin(channel.clone());
    let mut scaling = Client::scaling(channel);
    let (metadata, extensions, step) = request.into_parts();
    macro_rules! put {
        ($message:expr) => {
            Request::from_parts(metadata, extensions, $message)
        };
    }
    match step {
        Step::CreateSize(message) => admin.create_size(put!(message)).await,
        Step::UpdateSize(message) => admin.update_size(put!(message)).await,
        Step::DeleteSize(message) => admin.delete_size(put!(message)).await,
        Step::CreateCluster(message) => admin.create_cluster(put!(message)).await,
        Step::RenameCluster(message) => admin.rename_cluster(put!(message)).await,
        Step::UpdateCluster(message) => admin.update_cluster(put!(message)).await,
        Step::DeleteCluster(message) => admin.delete_cluster(put!(message)).await,
        Step::SetSetting(message) => admin.set_setting(put!(message)).await,
        Step::DeleteSetting(message) => admin.delete_setting(put!(message)).await,
        Step::CreateSignal(message) => admin.create_signal(put!(message)).await,
        Step::UpdateSignal(message) => admin.update_signal(put!(message)).await,
        Step::DeleteSignal(message) => admin.delete_signal(put!(message)).await,
        Step::CreateStrategy(message) => scaling.create_strategy(put!(message)).await,
        Step::UpdateStrategy(message) => scaling.update_strategy(put!(message)).await,
        Step::DeleteStrategy(message) => scaling.delete_strategy(put!(message)).await,
        Step::DeleteStrategies(message) => scaling.delete_strategies(put!(message)).await,
        // It has no call of its own: alone it is of use to nobody but whoever only wants to know.
        Step::ExpectUnchanged(message) => {
            let options = message.options.clone();
            let changes = vec![Change { change: Some(Step::ExpectUnchanged(message)) }];
            admin.transact(put!(TransactRequest { options, changes })).await
        }
    }
}

async fn send_get(
    kind: Kind,
    channel: Channel,
    request: Request<GetRequest>,
) -> Result<Response<ReadResponse>, Status> {
    match kind {
        Kind::Size => Client::admin(channel).get_size(request).await,
        Kind::Cluster => Client::admin(channel).get_cluster(request).await,
        Kind::Setting => Client::admin(channel).get_setting(request).await,
        Kind::Role => Client::admin(channel).get_role(request).await,
        Kind::Signal => Client::admin(channel).get_signal(request).await,
        Kind::Strategy | Kind::Decision | Kind::Operation | Kind::Action => {
            scaling::send_get(kind, channel, request).await
        }
    }
}

async fn send_list(
    kind: Kind,
    channel: Channel,
    request: Request<ListRequest>,
) -> Result<Response<ListResponse>, Status> {
    let mut admin = Client::admin(channel);
    match kind {
        Kind::Size => admin.list_sizes(request).await,
        Kind::Cluster => admin.list_clusters(request).await,
        Kind::Setting => admin.list_settings(request).await,
        Kind::Role => admin.list_roles(request).await,
        Kind::Signal => admin.list_signals(request).await,
        Kind::Strategy | Kind::Decision | Kind::Operation | Kind::Action => {
            Err(Status::invalid_argument(format!("{} are listed by another service", kind.plural())))
        }
    }
}

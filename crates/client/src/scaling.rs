//! Strategies, decisions, operations and actions; pauses, approvals, explanations; and signals.

use loadline_api::v1::scaling_client::ScalingClient;
use loadline_api::v1::signals_client::SignalsClient;
use loadline_api::v1::tagged_write::Write as Wanted;
use loadline_api::v1::{
    AbandonActionRequest, ApproveActionRequest, CreateReplicaRequest, CreateStrategyRequest, DeleteReplicaRequest,
    DeleteStrategyRequest, ExplainRequest, ExplainResponse, GetRequest, ListResponse, ListScalingRequest,
    PauseClusterRequest, ReadResponse, RejectActionRequest, ReportSignalsRequest, ReportSignalsResponse,
    ResolveActionRequest, ResumeClusterRequest, RetryActionRequest, UpdateStrategyRequest, WriteOptions, WriteResponse,
};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::admin::{Kind, Listing, PAGE_SIZE, Reading, Writing, options};
use crate::call::{ANSWER_BYTES_MAX, Repeat};
use crate::client::Client;
use crate::error::Error;

/// A moment of the past that an explanation is to be about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplainAt {
    /// After this entry of the log.
    Index(u64),
    /// After the last entry that is not later, in milliseconds since 1970.
    TimeMs(i64),
}

/// Which part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only what is about this cluster.
    pub cluster: Option<String>,
    /// What is over instead of what is, the newest first, from the journal of whichever node answers.
    pub history: bool,
    /// Of actions: those that were given up and that nobody has dealt with, instead of those that are not settled.
    pub dead_letters: bool,
    /// At most so many; everything without it.
    pub count_max: Option<usize>,
}

/// One change about scaling. The `options` in it are put there when it is sent.
#[derive(Debug, Clone, PartialEq)]
pub enum ScalingWrite {
    CreateStrategy(CreateStrategyRequest),
    UpdateStrategy(UpdateStrategyRequest),
    DeleteStrategy(DeleteStrategyRequest),
    PauseCluster(PauseClusterRequest),
    ResumeCluster(ResumeClusterRequest),
    CreateReplica(CreateReplicaRequest),
    DeleteReplica(DeleteReplicaRequest),
    ApproveAction(ApproveActionRequest),
    RejectAction(RejectActionRequest),
    RetryAction(RetryActionRequest),
    ResolveAction(ResolveActionRequest),
    AbandonAction(AbandonActionRequest),
}

impl ScalingWrite {
    fn with(mut self, options: WriteOptions) -> ScalingWrite {
        let place = match &mut self {
            ScalingWrite::CreateStrategy(request) => &mut request.options,
            ScalingWrite::UpdateStrategy(request) => &mut request.options,
            ScalingWrite::DeleteStrategy(request) => &mut request.options,
            ScalingWrite::PauseCluster(request) => &mut request.options,
            ScalingWrite::ResumeCluster(request) => &mut request.options,
            ScalingWrite::CreateReplica(request) => &mut request.options,
            ScalingWrite::DeleteReplica(request) => &mut request.options,
            ScalingWrite::ApproveAction(request) => &mut request.options,
            ScalingWrite::RejectAction(request) => &mut request.options,
            ScalingWrite::RetryAction(request) => &mut request.options,
            ScalingWrite::ResolveAction(request) => &mut request.options,
            ScalingWrite::AbandonAction(request) => &mut request.options,
        };
        *place = Some(options);
        self
    }
}

impl From<ScalingWrite> for Wanted {
    fn from(write: ScalingWrite) -> Wanted {
        match write {
            ScalingWrite::CreateStrategy(request) => Wanted::CreateStrategy(request),
            ScalingWrite::UpdateStrategy(request) => Wanted::UpdateStrategy(request),
            ScalingWrite::DeleteStrategy(request) => Wanted::DeleteStrategy(request),
            ScalingWrite::PauseCluster(request) => Wanted::PauseCluster(request),
            ScalingWrite::ResumeCluster(request) => Wanted::ResumeCluster(request),
            ScalingWrite::CreateReplica(request) => Wanted::CreateReplica(request),
            ScalingWrite::DeleteReplica(request) => Wanted::DeleteReplica(request),
            ScalingWrite::ApproveAction(request) => Wanted::ApproveAction(request),
            ScalingWrite::RejectAction(request) => Wanted::RejectAction(request),
            ScalingWrite::RetryAction(request) => Wanted::RetryAction(request),
            ScalingWrite::ResolveAction(request) => Wanted::ResolveAction(request),
            ScalingWrite::AbandonAction(request) => Wanted::AbandonAction(request),
        }
    }
}

impl Client {
    /// One change about scaling, recorded at most once however often it has to be sent.
    pub async fn write_scaling(&self, write: ScalingWrite, writing: Writing) -> Result<WriteResponse, Error> {
        let ask = |id| write.clone().with(options(id, writing));
        if self.options.stream_writes {
            return self.call_on_stream(|id| Wanted::from(ask(id))).await;
        }
        self.call(self.limits(), Repeat::Freely, ask, send_write).await
    }

    /// Strategies, decisions, operations or actions; nothing of any other kind.
    pub async fn list_scaling(&self, kind: Kind, scope: &Scope, reading: Reading) -> Result<Listing, Error> {
        let mut listing = Listing { resources: Vec::new(), revision: 0 };
        let mut page_token = String::new();
        let count_max = scope.count_max.unwrap_or(usize::MAX);
        loop {
            let left = u32::try_from(count_max - listing.resources.len()).unwrap_or(u32::MAX);
            let ask = |_| ListScalingRequest {
                page_size: PAGE_SIZE.min(left),
                page_token: page_token.clone(),
                consistency: reading.wire(),
                cluster: scope.cluster.clone().unwrap_or_default(),
                history: scope.history,
                dead_letters: scope.dead_letters,
            };
            let send = |channel, request| send_list(kind, channel, request);
            let page = self.call(self.limits(), Repeat::Freely, ask, send).await?;
            listing.resources.extend(page.resources);
            listing.resources.truncate(count_max);
            listing.revision = page.revision;
            // A token that comes back unchanged would be asked for without end.
            let over = page.next_page_token.is_empty() || page.next_page_token == page_token;
            if over || listing.resources.len() >= count_max {
                return Ok(listing);
            }
            page_token = page.next_page_token;
        }
    }

    /// Why something is as it is: "clusters/NAME", "decisions/ID" or "actions/ID".
    pub async fn explain(&self, name: &str, at: Option<ExplainAt>, reading: Reading) -> Result<ExplainResponse, Error> {
        let (at_index, at_time_ms) = match at {
            None => (0, 0),
            Some(ExplainAt::Index(index)) => (index, 0),
            Some(ExplainAt::TimeMs(millis)) => (0, millis),
        };
        let ask = |_| ExplainRequest { name: name.to_owned(), consistency: reading.wire(), at_index, at_time_ms };
        let send = |channel, request| async move { Client::scaling(channel).explain(request).await };
        self.call(self.limits(), Repeat::Freely, ask, send).await
    }

    /// One report of a collector. It is sent again as often as need be: its sequence says whether it was heard before.
    pub async fn report_signals(&self, report: ReportSignalsRequest) -> Result<ReportSignalsResponse, Error> {
        let ask = |_| report.clone();
        let send = |channel, request| async move { Client::signals(channel).report_signals(request).await };
        self.call(self.limits(), Repeat::Freely, ask, send).await
    }

    pub(crate) fn scaling(channel: Channel) -> ScalingClient<Channel> {
        ScalingClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn signals(channel: Channel) -> SignalsClient<Channel> {
        SignalsClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
    }
}

async fn send_write(channel: Channel, request: Request<ScalingWrite>) -> Result<Response<WriteResponse>, Status> {
    let mut scaling = Client::scaling(channel);
    let (metadata, extensions, write) = request.into_parts();
    macro_rules! put {
        ($message:expr) => {
            Request::from_parts(metadata, extensions, $message)
        };
    }
    match write {
        ScalingWrite::CreateStrategy(message) => scaling.create_strategy(put!(message)).await,
        ScalingWrite::UpdateStrategy(message) => scaling.update_strategy(put!(message)).await,
        ScalingWrite::DeleteStrategy(message) => scaling.delete_strategy(put!(message)).await,
        ScalingWrite::PauseCluster(message) => scaling.pause_cluster(put!(message)).await,
        ScalingWrite::ResumeCluster(message) => scaling.resume_cluster(put!(message)).await,
        ScalingWrite::CreateReplica(message) => scaling.create_replica(put!(message)).await,
        ScalingWrite::DeleteReplica(message) => scaling.delete_replica(put!(message)).await,
        ScalingWrite::ApproveAction(message) => scaling.approve_action(put!(message)).await,
        ScalingWrite::RejectAction(message) => scaling.reject_action(put!(message)).await,
        ScalingWrite::RetryAction(message) => scaling.retry_action(put!(message)).await,
        ScalingWrite::ResolveAction(message) => scaling.resolve_action(put!(message)).await,
        ScalingWrite::AbandonAction(message) => scaling.abandon_action(put!(message)).await,
    }
}

fn not_scaling(kind: Kind) -> Status {
    Status::new(Code::InvalidArgument, format!("{} are not read here", kind.plural()))
}

pub(crate) async fn send_get(
    kind: Kind,
    channel: Channel,
    request: Request<GetRequest>,
) -> Result<Response<ReadResponse>, Status> {
    let mut scaling = Client::scaling(channel);
    match kind {
        Kind::Strategy => scaling.get_strategy(request).await,
        Kind::Decision => scaling.get_decision(request).await,
        Kind::Operation => scaling.get_operation(request).await,
        Kind::Action => scaling.get_action(request).await,
        Kind::Size | Kind::Cluster | Kind::Setting | Kind::Role | Kind::Signal => Err(not_scaling(kind)),
    }
}

async fn send_list(
    kind: Kind,
    channel: Channel,
    request: Request<ListScalingRequest>,
) -> Result<Response<ListResponse>, Status> {
    let mut scaling = Client::scaling(channel);
    match kind {
        Kind::Strategy => scaling.list_strategies(request).await,
        Kind::Decision => scaling.list_decisions(request).await,
        Kind::Operation => scaling.list_operations(request).await,
        Kind::Action => scaling.list_actions(request).await,
        Kind::Size | Kind::Cluster | Kind::Setting | Kind::Role | Kind::Signal => Err(not_scaling(kind)),
    }
}

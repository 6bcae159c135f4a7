//! Clusters that sleep: waking them, what their sleep is worth, and a minimum for a while.

use loadline_api::v1::scale_to_zero_client::ScaleToZeroClient;
use loadline_api::v1::{
    ClearOverrideRequest, GetSavingsRequest, GetSavingsResponse, IdleState, ListIdleStatesRequest,
    OverrideClusterRequest, WakeRequest, WakeResponse, WriteResponse,
};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};

use crate::admin::{PAGE_SIZE, Reading, Writing, options};
use crate::call::{ANSWER_BYTES_MAX, Repeat};
use crate::client::Client;
use crate::error::Error;

/// Which clusters are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sleepers {
    /// Every one that is at zero.
    All,
    /// Names or ids of clusters, or ids of strategies.
    Named(Vec<String>),
}

impl Client {
    /// Has clusters woken, and does not wait for them: what was recorded. Whoever waits asks [`Client::idle_states`], of any
    /// node, until they are ready.
    pub async fn wake(&self, sleepers: &Sleepers, reason: &str) -> Result<WakeResponse, Error> {
        let (names, all) = match sleepers {
            Sleepers::All => (Vec::new(), true),
            Sleepers::Named(names) => (names.clone(), false),
        };
        let ask = |id| WakeRequest {
            options: Some(options(id, Writing::Record)),
            names: names.clone(),
            all,
            reason: reason.to_owned(),
            wait_for_ready: false,
        };
        self.call(self.limits(), Repeat::Freely, ask, send_wake).await
    }

    /// Where the clusters stand that idle_suspend strategies rule; only the named ones, if any are.
    pub async fn idle_states(&self, names: &[String], reading: Reading) -> Result<Vec<IdleState>, Error> {
        let (mut states, mut page_token) = (Vec::new(), String::new());
        loop {
            let ask = |_| ListIdleStatesRequest {
                page_size: PAGE_SIZE,
                page_token: page_token.clone(),
                consistency: reading.wire(),
                names: names.to_vec(),
            };
            let send = |channel, request| async move { sleeping(channel).list_idle_states(request).await };
            let page = self.call(self.limits(), Repeat::Freely, ask, send).await?;
            states.extend(page.states);
            if page.next_page_token.is_empty() || page.next_page_token == page_token {
                return Ok(states);
            }
            page_token = page.next_page_token;
        }
    }

    /// What suspending was worth, over so many days, today included.
    pub async fn savings(&self, names: &[String], days: u32, reading: Reading) -> Result<GetSavingsResponse, Error> {
        let ask = |_| GetSavingsRequest { consistency: reading.wire(), names: names.to_vec(), days };
        let send = |channel, request| async move { sleeping(channel).get_savings(request).await };
        self.call(self.limits(), Repeat::Freely, ask, send).await
    }

    pub async fn override_cluster(&self, wanted: OverrideClusterRequest) -> Result<WriteResponse, Error> {
        let ask = |id| OverrideClusterRequest { options: Some(options(id, Writing::Record)), ..wanted.clone() };
        let send = |channel, request| async move { sleeping(channel).override_cluster(request).await };
        self.call(self.limits(), Repeat::Freely, ask, send).await
    }

    pub async fn clear_override(&self, cluster: &str) -> Result<WriteResponse, Error> {
        let ask =
            |id| ClearOverrideRequest { options: Some(options(id, Writing::Record)), cluster: cluster.to_owned() };
        let send = |channel, request| async move { sleeping(channel).clear_override(request).await };
        self.call(self.limits(), Repeat::Freely, ask, send).await
    }
}

fn sleeping(channel: Channel) -> ScaleToZeroClient<Channel> {
    ScaleToZeroClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

/// The first message is the answer; nobody waits for more.
async fn send_wake(channel: Channel, request: Request<WakeRequest>) -> Result<Response<WakeResponse>, Status> {
    let mut messages = sleeping(channel).wake(request).await?.into_inner();
    let first = messages.message().await?;
    first.map(Response::new).ok_or_else(|| Status::new(Code::Internal, "the node said nothing"))
}

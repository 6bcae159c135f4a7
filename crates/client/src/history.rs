//! What happened, and who did it: the history that a node finds things in.

use loadline_api::v1::audit_client::AuditClient;
use loadline_api::v1::{HistoryGap, HistoryRow, SearchHistoryRequest};
use tonic::transport::Channel;

use crate::admin::Reading;
use crate::call::{ANSWER_BYTES_MAX, Repeat};
use crate::client::Client;
use crate::error::Error;

/// Rows that are asked for at once.
const PAGE_SIZE: u32 = 500;

/// What is looked for. Everything that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    pub cluster: Option<String>,
    pub actor: Option<String>,
    /// One of these kinds of commands or events, if any are given.
    pub kinds: Vec<String>,
    /// In milliseconds since 1970.
    pub since_ms: Option<i64>,
    pub until_ms: Option<i64>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoundHistory {
    /// The newest first.
    pub rows: Vec<HistoryRow>,
    /// There are more than were asked for.
    pub more: bool,
    /// The log index up to which the node has looked.
    pub revision: u64,
    /// What the journal of the node that answered lacks.
    pub gaps: Vec<HistoryGap>,
}

impl Client {
    /// At most so many rows.
    pub async fn search_history(
        &self,
        query: &HistoryQuery,
        count_max: usize,
        reading: Reading,
    ) -> Result<FoundHistory, Error> {
        let mut found = FoundHistory::default();
        let mut page_token = String::new();
        loop {
            let left = u32::try_from(count_max - found.rows.len()).unwrap_or(u32::MAX);
            let ask = |_| SearchHistoryRequest {
                cluster: query.cluster.clone().unwrap_or_default(),
                actor: query.actor.clone().unwrap_or_default(),
                kinds: query.kinds.clone(),
                since_ms: query.since_ms.unwrap_or_default(),
                until_ms: query.until_ms.unwrap_or_default(),
                page_size: PAGE_SIZE.min(left),
                page_token: page_token.clone(),
                consistency: reading.wire(),
            };
            let send = |channel, request| async move { history(channel).search_history(request).await };
            let page = self.call(self.limits(), Repeat::Freely, ask, send).await?;
            found.rows.extend(page.rows);
            (found.revision, found.gaps) = (page.revision, page.gaps);
            let over = page.next_page_token.is_empty() || page.next_page_token == page_token;
            found.more = !over || found.rows.len() > count_max;
            found.rows.truncate(count_max);
            if over || found.rows.len() >= count_max {
                return Ok(found);
            }
            page_token = page.next_page_token;
        }
    }
}

fn history(channel: Channel) -> AuditClient<Channel> {
    AuditClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

//! Service `Audit`: the history of this node, for those who check it.

use loadline_api::v1::audit_server::Audit;
use loadline_api::v1::{SearchHistoryRequest, SearchHistoryResponse};
use tonic::Request;

use super::exchange::{Answer, Exchange};

#[derive(Debug)]
pub(crate) struct AuditService {
    pub(crate) exchange: Exchange,
}

#[tonic::async_trait]
impl Audit for AuditService {
    async fn search_history(&self, request: Request<SearchHistoryRequest>) -> Answer<SearchHistoryResponse> {
        super::search::search(&self.exchange, request).await
    }
}

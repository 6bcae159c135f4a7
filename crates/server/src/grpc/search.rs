//! `Audit.SearchHistory`: what somebody did, or what happened to a cluster, through the audit index of this node.

use loadline_api::millis;
use loadline_api::v1::{HistoryGap, HistoryRow, SearchHistoryRequest, SearchHistoryResponse};
use loadline_audit::search::{Kind, Wanted, search as find};
use loadline_audit::{Trail, TrailNames};
use loadline_sql::tables::EventRow;
use loadline_state_machine::{Rejection, ResourceName, Time};
use tonic::{Request, Response, Status};

use super::exchange::{Answer, Exchange};
use super::{errors, history, pages};
use crate::kept::kept;

pub(super) async fn search(
    exchange: &Exchange,
    request: Request<SearchHistoryRequest>,
) -> Answer<SearchHistoryResponse> {
    let request = request.into_inner();
    let before = match request.page_token.as_str() {
        "" => None,
        token => Some(token.parse::<u64>().map_err(|_| errors::invalid_field("page_token", "is none of this list"))?),
    };
    let count = pages::page_size(request.page_size);
    let mut kinds = Vec::new();
    for kind in &request.kinds {
        kinds.push(Kind::read(kind).map_err(|error| errors::invalid_field("kinds", error.to_string()))?);
    }
    let since = time("since_ms", request.since_ms)?;
    let until = time("until_ms", request.until_ms)?;
    let state = exchange.read(request.consistency).await?;
    let node = exchange.node.clone();
    let index = node.audit_index().cloned().ok_or_else(history::no_index)?;
    let answer = history::off_thread(move || {
        let source = kept(&node);
        let trail = Trail { source: &source, index: &index };
        let failed = |error| history::failed(&error);
        let cluster = match request.cluster.as_str() {
            "" => None,
            name => {
                let missing = || errors::rejected(&Rejection::NotFound { resource: ResourceName::cluster(name) });
                Some(trail.cluster_named(name, Some(&state)).map_err(failed)?.ok_or_else(missing)?)
            }
        };
        let actor = Some(request.actor.clone()).filter(|actor| !actor.is_empty());
        let wanted = Wanted { cluster, actor, kinds, since, until };
        let names = TrailNames::new(trail, Some(&state));
        let found = find(&trail, &wanted, &names, before, count).map_err(failed)?;
        let gap = |gap: std::ops::RangeInclusive<u64>| HistoryGap { first_index: *gap.start(), last_index: *gap.end() };
        Ok(SearchHistoryResponse {
            rows: found.rows.into_iter().map(row).collect(),
            next_page_token: found.next.map(|index| index.to_string()).unwrap_or_default(),
            revision: state.applied().0,
            gaps: trail.gaps().into_iter().map(gap).collect(),
        })
    });
    answer.await.map(Response::new)
}

fn time(field: &'static str, millis: i64) -> Result<Option<Time>, Status> {
    match u64::try_from(millis) {
        Ok(0) => Ok(None),
        Ok(millis) => Ok(Some(Time::from_millis(millis))),
        Err(_) => Err(errors::invalid_field(field, "must not be before 1970")),
    }
}

fn row(row: EventRow) -> HistoryRow {
    HistoryRow {
        log_index: row.index.0,
        ordinal: row.ordinal,
        time_ms: millis(row.at),
        kind: row.kind.to_owned(),
        cluster_id: row.cluster.map(|id| id.to_string()).unwrap_or_default(),
        cluster: row.cluster_name.unwrap_or_default(),
        resource: row.resource.unwrap_or_default(),
        actor: row.actor.unwrap_or_default(),
        source: row.source.unwrap_or_default(),
        proof: row.proof.unwrap_or_default(),
        request_id: row.request_id.unwrap_or_default(),
        what: row.what,
    }
}

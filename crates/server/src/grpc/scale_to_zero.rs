//! Service `ScaleToZero`: waking clusters, what their sleep is worth, and a minimum for a while.

use std::pin::Pin;

use futures::Stream;
use loadline_api::scale_to_zero as wire;
use loadline_api::v1::scale_to_zero_server::ScaleToZero;
use loadline_api::v1::{
    ClearOverrideRequest, GetSavingsRequest, GetSavingsResponse, ListIdleStatesRequest, ListIdleStatesResponse,
    OverrideClusterRequest, WakeRequest, WakeResponse, WriteResponse,
};
use loadline_api::{Write, fields};
use loadline_state_machine::{ClusterId, IdleState, ResourceKind, SavingsDay, State};
use tonic::{Request, Response, Status};

use super::actor::actor_of;
use super::exchange::Answer;
use super::{errors, pages};
use crate::waking::{Sleepers, Waking, Woken, meant, reason};

#[derive(Debug)]
pub(crate) struct ScaleToZeroService {
    pub(crate) waking: Waking,
}

type Progress = Pin<Box<dyn Stream<Item = Result<WakeResponse, Status>> + Send>>;

/// Days that are told without being asked for how many.
pub(crate) const DAYS_DEFAULT: u32 = 30;

/// What suspending was worth since so many days ago, today included; of these clusters, or of all.
pub(crate) fn savings(state: &State, names: &[String], days: u32) -> Result<Vec<SavingsDay>, Status> {
    let since = state.today().before(days.saturating_sub(1));
    let of = |id: ClusterId| state.savings(id, since);
    if !names.is_empty() {
        return Ok(meant(state, names)?.into_iter().flat_map(of).collect());
    }
    Ok(state.clusters_after(None).flat_map(|cluster| of(cluster.id)).collect())
}

#[tonic::async_trait]
impl ScaleToZero for ScaleToZeroService {
    type WakeStream = Progress;

    async fn wake(&self, request: Request<WakeRequest>) -> Answer<Progress> {
        let actor = actor_of(&request)?;
        let request = request.into_inner();
        let reason = reason(&request.reason)?;
        let sleepers = match (request.names.is_empty(), request.all) {
            (false, false) => Sleepers::Named(request.names),
            (true, true) => Sleepers::All,
            _ => return Err(errors::invalid_field("names", "name the clusters, or say that all are meant")),
        };
        let id = request.options.map(|options| options.request_id).unwrap_or_default();
        let id = match id.is_empty() {
            true => None,
            false => Some(fields::request_id("options.request_id", &id).map_err(errors::invalid)?),
        };
        let woken = self.waking.wake(actor, &sleepers, reason, id).await?;
        let recorded =
            WakeResponse { clusters: woken.clusters.iter().map(wire::woken).collect(), revision: woken.index.0 };
        let first = futures::stream::once(std::future::ready(Ok(recorded)));
        if !request.wait_for_ready {
            return Ok(Response::new(Box::pin(first)));
        }
        let rest = futures::stream::unfold(Some((self.waking.clone(), woken)), next_ready);
        Ok(Response::new(Box::pin(futures::StreamExt::chain(first, rest))))
    }

    async fn list_idle_states(&self, request: Request<ListIdleStatesRequest>) -> Answer<ListIdleStatesResponse> {
        let request = request.into_inner();
        let kind = ResourceKind::Cluster;
        let after = pages::position(kind, &request.page_token)?;
        let after: Option<ClusterId> = match after {
            None => None,
            Some(after) => Some(after.parse().map_err(|_| pages::not_of(kind))?),
        };
        let size = pages::page_size(request.page_size);
        let state = self.waking.exchange.read(request.consistency).await?;
        let mut ids = match request.names.is_empty() {
            true => state.clusters_after(None).map(|cluster| cluster.id).collect(),
            false => meant(&state, &request.names)?,
        };
        ids.sort_unstable();
        let rest = ids.into_iter().filter(|id| after.is_none_or(|after| *id > after));
        let mut found: Vec<IdleState> = rest.filter_map(|id| state.idle_state(id)).take(size + 1).collect();
        let more = found.len() > size;
        found.truncate(size);
        let next_page_token = match found.last() {
            Some(last) if more => pages::token(kind, &last.cluster.to_string()),
            _ => String::new(),
        };
        let states = found.iter().map(|idle| wire::idle_state(idle, &state)).collect();
        Ok(Response::new(ListIdleStatesResponse { states, next_page_token, revision: state.applied().0 }))
    }

    async fn get_savings(&self, request: Request<GetSavingsRequest>) -> Answer<GetSavingsResponse> {
        let request = request.into_inner();
        let state = self.waking.exchange.read(request.consistency).await?;
        let days = if request.days == 0 { DAYS_DEFAULT } else { request.days };
        let saved = savings(&state, &request.names, days)?;
        let setting = |name: &str| state.setting(name).map(|setting| setting.value).unwrap_or_default();
        let zone = setting("scale_to_zero_time_zone");
        Ok(Response::new(GetSavingsResponse {
            days: saved.iter().map(|saved| wire::savings_day(saved, &state)).collect(),
            since: state.today().before(days.saturating_sub(1)).to_string(),
            until: state.today().to_string(),
            time_zone: if zone.is_empty() { "UTC".to_owned() } else { zone },
            assumption: wire::ASSUMPTION.to_owned(),
            tracked: setting("scale_to_zero_cost_tracking") == "true",
            revision: state.applied().0,
        }))
    }

    async fn override_cluster(&self, request: Request<OverrideClusterRequest>) -> Answer<WriteResponse> {
        self.waking.exchange.write(request, Write::override_cluster).await
    }

    async fn clear_override(&self, request: Request<ClearOverrideRequest>) -> Answer<WriteResponse> {
        self.waking.exchange.write(request, Write::clear_override).await
    }
}

type Waits = Option<(Waking, Woken)>;

async fn next_ready(waits: Waits) -> Option<(Result<WakeResponse, Status>, Waits)> {
    let (waking, mut woken) = waits?;
    match waking.next_ready(&mut woken).await {
        Err(status) => Some((Err(status), None)),
        Ok(None) => None,
        Ok(Some(woke)) => {
            let ready = loadline_api::v1::WokenCluster {
                status: "ready".to_owned(),
                estimated_ready_ms: None,
                ..wire::woken(&woke)
            };
            let revision = waking.exchange.node.latest().applied().0;
            Some((Ok(WakeResponse { clusters: vec![ready], revision }), Some((waking, woken))))
        }
    }
}

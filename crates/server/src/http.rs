//! HTTP for those who run the node: is it alive, is it ready, what are its figures.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use loadline_raft_node::{Node, Role};
use serde_json::json;

use crate::http_signals::SignalPages;
use crate::metrics::{Metrics, Standing};
use crate::readiness::Readiness;
use crate::scaling_figures;
use crate::{idle_figures, queue_figures, signal_figures};

/// Prometheus 2 reads this version of the text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Nothing here takes long; a caller that waits longer has lost interest.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Pages {
    pub(crate) signals: SignalPages,
    pub(crate) node: Node,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) disk_reserve: u64,
}

impl Pages {
    pub(crate) fn router(self) -> Router {
        let signals = self.signals.clone().router();
        Router::new()
            .route("/livez", get(live))
            .route("/health", get(live))
            .route("/readyz", get(ready))
            .route("/ready", get(ready))
            .route("/metrics", get(figures))
            .fallback(unknown)
            .method_not_allowed_fallback(not_allowed)
            .with_state(self)
            .merge(signals)
    }

    /// What is read at the moment of asking.
    fn standing(&self) -> Standing {
        let (status, state) = (self.node.status(), self.node.latest());
        Standing {
            role: role_label(status.role),
            term: status.term,
            has_leader: status.leader.is_some(),
            last_index: status.last_index,
            applied_index: status.applied_index.0,
            snapshot_index: status.snapshot_index,
            purged_index: status.purged_index,
            epoch_index: status.epoch.map_or(0, |epoch| epoch.index.0),
            rules_version: status.rules.0,
            ready: self.readiness.reasons_against().is_empty(),
            disk_free_bytes: status.disk_free_bytes,
            disk_reserve_bytes: self.disk_reserve,
            disk_used_bytes: status.disk_used_bytes,
            journal_bytes: self.node.journal().disk_bytes(),
            journal_first_index: self.node.journal().first_index().unwrap_or(0),
            unsettled_actions: scaling_figures::unsettled(&state),
            dead_letters: state.dead_letters().count() as u64,
        }
    }
}

fn role_label(role: Role) -> &'static str {
    match role {
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Candidate => "candidate",
        Role::Learner => "learner",
        Role::Joining => "joining",
        Role::Stopped => "stopped",
    }
}

/// Alive as long as it answers. Never tied to a leader: a restart does not bring a majority back.
async fn live() -> Response {
    answer(StatusCode::OK, &json!({ "live": true }))
}

async fn ready(State(pages): State<Pages>) -> Response {
    let reasons = pages.readiness.reasons_against();
    if reasons.is_empty() {
        return answer(StatusCode::OK, &json!({ "ready": true }));
    }
    answer(StatusCode::SERVICE_UNAVAILABLE, &json!({ "ready": false, "reasons": reasons }))
}

async fn figures(State(pages): State<Pages>) -> Response {
    // The size of the data folder is counted file by file.
    let rendering = tokio::task::spawn_blocking(move || {
        let state = pages.node.latest();
        let mut more = signal_figures::families(&state)?;
        more.extend(idle_figures::families(&state)?);
        more.extend(queue_figures::families(&state)?);
        pages.metrics.render(&pages.standing(), more)
    });
    match tokio::time::timeout(ANSWER_WITHIN, rendering).await {
        Ok(Ok(Ok(text))) => ([(header::CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Ok(Ok(Err(error))) => failed(&error.to_string()),
        Ok(Err(error)) => failed(&error.to_string()),
        Err(_) => failed("it took too long; the disk may be stalled"),
    }
}

fn failed(why: &str) -> Response {
    answer(StatusCode::INTERNAL_SERVER_ERROR, &json!({ "error": format!("the figures cannot be shown: {why}") }))
}

async fn unknown(uri: Uri) -> Response {
    let error =
        format!("there is no {}; there are /livez, /readyz, /metrics, /api/v1/scaling and /api/v1/signals", uri.path());
    answer(StatusCode::NOT_FOUND, &json!({ "error": error }))
}

async fn not_allowed() -> Response {
    answer(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "only GET is answered here" }))
}

fn answer(status: StatusCode, body: &serde_json::Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

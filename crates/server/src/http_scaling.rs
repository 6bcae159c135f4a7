//! Scaling over HTTP: waking policies, and what their sleep is worth. A policy is the `idle_suspend` strategy of a cluster; it
//! is named by the id of the strategy, or by the name or id of the cluster.
//!
//! Who asks is found out as for gRPC: a token (`authorization: Bearer llt_...`) as soon as roles can log in. Any node answers.
//! Not here: anything else that can be asked or changed. That is gRPC's and SQL's.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::SocketAddr;
use std::task::{Context, Poll};

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::{IncomingStream, Listener};
use loadline_api::scale_to_zero::{ASSUMPTION, CENT_MICROS, HOUR_HUNDREDTH_MILLIS, parts_that_add_up};
use loadline_state_machine::{Actor, SavingsDay, Span, State as Believed, Woke};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::Service;

use crate::grpc::errors;
use crate::grpc::guard::Guard;
use crate::grpc::scale_to_zero::{DAYS_DEFAULT, savings};
use crate::waking::{Sleepers, Waking, reason};

/// No body of ours comes near it.
const BODY_BYTES_MAX: usize = 64 * 1024;
const DAY_MILLIS: u64 = 24 * 60 * 60 * 1_000;

#[derive(Debug, Clone)]
pub(crate) struct ScalingPages {
    pub(crate) waking: Waking,
    pub(crate) guard: Guard,
}

/// Where a call came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller(pub(crate) SocketAddr);

/// Hands every connection the pages, and the pages where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Remembering(pub(crate) Router);

impl<L: Listener<Addr = SocketAddr>> Service<IncomingStream<'_, L>> for Remembering {
    type Response = Router;
    type Error = Infallible;
    type Future = Ready<Result<Router, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, stream: IncomingStream<'_, L>) -> Self::Future {
        let caller = Caller(*stream.remote_addr());
        ready(Ok(self.0.clone().layer(Extension(caller))))
    }
}

impl ScalingPages {
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/api/v1/scaling/policies/{id}/wake", post(wake_policy))
            .route("/api/v1/scaling/wake", post(wake_policies))
            .route("/api/v1/scaling/policies/{id}/savings", get(policy_savings))
            .route("/api/v1/scaling/savings/summary", get(savings_summary))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .method_not_allowed_fallback(not_allowed)
            .with_state(self)
    }

    async fn actor(&self, headers: &HeaderMap, caller: Caller) -> Result<Actor, Failed> {
        Ok(self.guard.admit(headers, Some(caller.0.ip())).await?)
    }
}

/// The same error as gRPC's, under the status that HTTP has for it.
pub(crate) struct Failed(Status);

impl From<Status> for Failed {
    fn from(status: Status) -> Failed {
        Failed(status)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        let status = match self.0.code() {
            Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
            Code::Unauthenticated => StatusCode::UNAUTHORIZED,
            Code::PermissionDenied => StatusCode::FORBIDDEN,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::AlreadyExists | Code::Aborted | Code::FailedPrecondition => StatusCode::CONFLICT,
            Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let details = self.0.get_error_details();
        let reason = details.error_info().map(|info| info.reason.clone()).unwrap_or_default();
        let fields: BTreeMap<String, String> = details
            .bad_request()
            .map(|bad| bad.field_violations.iter().map(|it| (it.field.clone(), it.description.clone())).collect())
            .unwrap_or_default();
        let mut body = json!({ "error": self.0.message(), "reason": reason });
        if !fields.is_empty() {
            body["fields"] = json!(fields);
        }
        answer(status, &body)
    }
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

async fn not_allowed() -> Response {
    let error = "wake is POST, savings are GET";
    answer(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": error, "reason": "METHOD_NOT_ALLOWED" }))
}

/// A body may be left out: everything in it has a default.
fn body<T: DeserializeOwned + Default>(bytes: &Bytes) -> Result<T, Failed> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    serde_json::from_slice(bytes).map_err(|error| Failed(errors::invalid_field("body", error.to_string())))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WakeBody {
    #[serde(default)]
    reason: String,
    #[serde(default)]
    wait_for_ready: bool,
}

async fn wake_policy(
    State(pages): State<ScalingPages>,
    Path(id): Path<String>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, Failed> {
    let actor = pages.actor(&headers, caller).await?;
    let wanted: WakeBody = body(&bytes)?;
    let reason = reason(&wanted.reason)?;
    let woken = pages.waking.wake(actor, &Sleepers::Named(vec![id.clone()]), reason, None).await?;
    let mut waiting = woken.clone();
    if wanted.wait_for_ready {
        while pages.waking.next_ready(&mut waiting).await?.is_some() {}
    }
    let runs = woken.clusters.iter().all(|woke| woke.already_running);
    let message = match (runs, wanted.wait_for_ready) {
        (true, _) => "Already running",
        (false, true) => "Ready",
        (false, false) => "Wake initiated",
    };
    let sum = |of: fn(&Woke) -> u64| woken.clusters.iter().map(of).sum::<u64>();
    let estimated = woken.clusters.iter().filter_map(|woke| woke.ready_in).max();
    let policy = woken.clusters.first().map_or(id, |woke| woke.strategy.to_string());
    let clusters: Vec<Value> = woken
        .clusters
        .iter()
        .map(|woke| {
            json!({
                "cluster": woke.cluster.name,
                "status": if woke.already_running { "already_running" } else { "waking" },
            })
        })
        .collect();
    Ok(answer(
        StatusCode::OK,
        &json!({
            "policy_id": policy,
            "previous_replicas": sum(|woke| woke.replicas_before),
            "target_replicas": sum(|woke| woke.replicas_wanted),
            // Of whoever woke it first, if it was on its way already.
            "wake_reason": woken.clusters.first().map_or(reason, |woke| woke.reason).as_str(),
            "message": message,
            "estimated_ready_seconds": estimated.filter(|_| !runs && !wanted.wait_for_ready).map(seconds_up),
            "status": if runs { "already_running" } else if wanted.wait_for_ready { "ready" } else { "waking" },
            "clusters": clusters,
        }),
    ))
}

fn seconds_up(span: Span) -> u64 {
    span.as_millis().div_ceil(1_000)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WakeAllBody {
    policy_ids: Option<Vec<String>>,
    #[serde(default)]
    reason: String,
}

async fn wake_policies(
    State(pages): State<ScalingPages>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, Failed> {
    let actor = pages.actor(&headers, caller).await?;
    let wanted: WakeAllBody = body(&bytes)?;
    let sleepers = wanted.policy_ids.map_or(Sleepers::All, Sleepers::Named);
    let woken = pages.waking.wake(actor, &sleepers, reason(&wanted.reason)?, None).await?;
    let running = woken.clusters.iter().filter(|woke| woke.already_running).count();
    let policies: Vec<Value> = woken
        .clusters
        .iter()
        .map(|woke| {
            json!({
                "policy_id": woke.strategy.to_string(),
                "cluster": woke.cluster.name,
                "status": if woke.already_running { "already_running" } else { "waking" },
            })
        })
        .collect();
    Ok(answer(
        StatusCode::OK,
        &json!({ "woken": woken.clusters.len() - running, "already_running": running, "policies": policies }),
    ))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Period {
    /// As in `30d`.
    since: Option<String>,
}

/// How many days, today included.
fn days(period: Result<Query<Period>, axum::extract::rejection::QueryRejection>) -> Result<u32, Failed> {
    let Query(period) = period.map_err(|error| Failed(errors::invalid_field("since", error.to_string())))?;
    let Some(since) = period.since else { return Ok(DAYS_DEFAULT) };
    let wrong =
        || Failed(errors::invalid_field("since", format!("is {since:?}: expected a number of days, as in 30d")));
    let span: Span = since.parse().map_err(|_| wrong())?;
    let days = u32::try_from(span.as_millis().div_ceil(DAY_MILLIS)).map_err(|_| wrong())?;
    if days == 0 { Err(wrong()) } else { Ok(days) }
}

async fn policy_savings(
    State(pages): State<ScalingPages>,
    Path(id): Path<String>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    period: Result<Query<Period>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Failed> {
    pages.actor(&headers, caller).await?;
    let days = days(period)?;
    let state = pages.waking.exchange.read(0).await?;
    let names = vec![id.clone()];
    let saved = savings(&state, &names, days)?;
    let policy = crate::waking::meant(&state, &names)?.into_iter().find_map(|cluster| state.idle_state(cluster));
    let mut body = report(&state, &saved, days);
    body["policy_id"] = json!(policy.map_or(id, |idle| idle.strategy.to_string()));
    Ok(answer(StatusCode::OK, &body))
}

async fn savings_summary(
    State(pages): State<ScalingPages>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    period: Result<Query<Period>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Failed> {
    pages.actor(&headers, caller).await?;
    let days = days(period)?;
    let state = pages.waking.exchange.read(0).await?;
    let saved = savings(&state, &[], days)?;
    let mut by_cluster: BTreeMap<_, Vec<SavingsDay>> = BTreeMap::new();
    for day in &saved {
        by_cluster.entry(day.cluster).or_default().push(*day);
    }
    let shown = Shown::of(by_cluster.values().map(|days| Total::of(days.iter())));
    let policies: Vec<Value> = by_cluster
        .values()
        .zip(shown)
        .filter_map(|(days, shown)| {
            let first = days.first()?;
            Some(json!({
                "policy_id": first.strategy.to_string(),
                "cluster": state.cluster_by_id(first.cluster).map(|cluster| cluster.name.clone()),
                "total_idle_hours": decimal(shown.idle_hour_hundredths),
                "total_scaled_to_zero_hours": decimal(shown.zero_hour_hundredths),
                "estimated_savings_euros": decimal(shown.cents),
            }))
        })
        .collect();
    let mut body = report(&state, &saved, days);
    body["policies"] = json!(policies);
    Ok(answer(StatusCode::OK, &body))
}

#[derive(Debug, Default, Clone, Copy)]
struct Total {
    idle_millis: u64,
    zero_millis: u64,
    saved_micros: u64,
}

impl Total {
    fn of<'a>(days: impl Iterator<Item = &'a SavingsDay>) -> Total {
        days.fold(Total::default(), |sum, day| Total {
            idle_millis: sum.idle_millis + u64::from(day.row.idle_millis),
            zero_millis: sum.zero_millis + u64::from(day.row.zero_millis),
            saved_micros: sum.saved_micros.saturating_add(day.row.saved_micros),
        })
    }
}

/// Hundredths, which is what is shown of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    idle_hour_hundredths: u64,
    zero_hour_hundredths: u64,
    cents: u64,
}

impl Shown {
    /// Such that they add up to what their sum is shown as.
    fn of(totals: impl Iterator<Item = Total>) -> Vec<Shown> {
        let totals: Vec<Total> = totals.collect();
        let parts = |of: fn(&Total) -> u64, unit: u64| parts_that_add_up(totals.iter().map(of), unit);
        let idle = parts(|total| total.idle_millis, HOUR_HUNDREDTH_MILLIS);
        let zero = parts(|total| total.zero_millis, HOUR_HUNDREDTH_MILLIS);
        let cents = parts(|total| total.saved_micros, CENT_MICROS);
        let all = idle.into_iter().zip(zero).zip(cents);
        all.map(|((idle_hour_hundredths, zero_hour_hundredths), cents)| Shown {
            idle_hour_hundredths,
            zero_hour_hundredths,
            cents,
        })
        .collect()
    }
}

/// The newest day first, as people read it.
fn report(state: &Believed, saved: &[SavingsDay], days: u32) -> Value {
    let total = Total::of(saved.iter());
    let mut by_day: BTreeMap<_, Vec<SavingsDay>> = BTreeMap::new();
    for day in saved {
        by_day.entry(day.row.day).or_default().push(*day);
    }
    let shown = Shown::of(by_day.values().map(|all| Total::of(all.iter())));
    let breakdown: Vec<Value> = by_day
        .keys()
        .zip(shown)
        .rev()
        .map(|(day, shown)| {
            json!({
                "date": day.to_string(),
                "idle_hours": decimal(shown.idle_hour_hundredths),
                "scaled_to_zero_hours": decimal(shown.zero_hour_hundredths),
                "savings_euros": decimal(shown.cents),
            })
        })
        .collect();
    let zone = state.setting("scale_to_zero_time_zone").map(|setting| setting.value).filter(|zone| !zone.is_empty());
    json!({
        "period": format!("last_{days}_days"),
        "total_idle_hours": decimal(total.idle_millis / HOUR_HUNDREDTH_MILLIS),
        "total_scaled_to_zero_hours": decimal(total.zero_millis / HOUR_HUNDREDTH_MILLIS),
        "estimated_savings_euros": decimal(total.saved_micros / CENT_MICROS),
        "daily_breakdown": breakdown,
        "time_zone": zone.unwrap_or_else(|| "UTC".to_owned()),
        "assumption": ASSUMPTION,
    })
}

/// Whole numbers up to here, and a fraction only in what is shown.
fn decimal(hundredths: u64) -> Value {
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_shown_to_the_hundredth_and_add_up_to_what_is_shown_of_all() {
        let day = |idle_millis, saved_micros| Total { idle_millis, zero_millis: 35_999, saved_micros };
        let days = [day(59_400_000, 1_659_999), day(1, 1_659_999), day(35_999, 0)];
        let shown = Shown::of(days.into_iter());
        let all = |of: fn(&Shown) -> u64| shown.iter().map(of).collect::<Vec<u64>>();
        assert_eq!(all(|it| it.idle_hour_hundredths), [1_650, 0, 1]);
        assert_eq!(all(|it| it.zero_hour_hundredths), [0, 1, 1], "three times almost 0.01 hours is almost 0.03");
        assert_eq!(all(|it| it.cents), [165, 166, 0]);
        assert_eq!((decimal(1_650), decimal(5)), (json!(16.5), json!(0.05)));
    }
}

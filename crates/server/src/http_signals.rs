//! Values of signals FROM PUSH, over HTTP: `POST /api/v1/signals`. Who asks is found out as for gRPC, and any node takes it.
//!
//! Not here: signals that the leader collects, and facts of any other kind, which gRPC takes.

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use loadline_api::{Write, v1};
use serde::Deserialize;
use serde_json::{Number, Value, json};
use uuid::Uuid;

use crate::grpc::errors;
use crate::grpc::exchange::Exchange;
use crate::grpc::guard::Guard;
use crate::http_scaling::{Caller, Failed};

/// A thousand values fit.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// A UUID version 7: a repeat under the same one is answered like the first, and recorded once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Debug, Clone)]
pub(crate) struct SignalPages {
    pub(crate) exchange: Exchange,
    pub(crate) guard: Guard,
}

impl SignalPages {
    pub(crate) fn router(self) -> Router {
        Router::new()
            .route("/api/v1/signals", post(push))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .method_not_allowed_fallback(not_allowed)
            .with_state(self)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pushed {
    signal: String,
    value: Number,
    #[serde(default)]
    cluster: String,
    #[serde(default)]
    age_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Several {
    values: Vec<Pushed>,
}

async fn push(
    State(pages): State<SignalPages>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, Failed> {
    let actor = pages.guard.admit(&headers, Some(caller.0.ip())).await?;
    let request_id = match headers.get(IDEMPOTENCY_KEY) {
        None => Uuid::now_v7().to_string(),
        Some(key) => {
            let wrong = || errors::invalid_field(IDEMPOTENCY_KEY, "must be a UUID version 7");
            key.to_str().map_err(|_| wrong())?.to_owned()
        }
    };
    let options = Some(v1::WriteOptions { request_id, validate_only: false });
    let values = read(&bytes).map_err(|(field, message)| errors::invalid_field(&field, message))?;
    let write = Write::push_signals(v1::PushSignalsRequest { options, values }).map_err(errors::invalid)?;
    let done = pages.exchange.record(actor, write).await?;
    Ok(answer(StatusCode::OK, &json!({ "revision": done.revision, "repeated": done.repeated_request })))
}

/// One value, or several under `values`; or which field is wrong, and why.
fn read(bytes: &[u8]) -> Result<Vec<v1::PushedSignal>, (String, String)> {
    let in_body = |error: serde_json::Error| ("body".to_owned(), error.to_string());
    let body: Value = serde_json::from_slice(bytes).map_err(in_body)?;
    let (several, values) = match body.get("values") {
        Some(_) => (true, serde_json::from_value::<Several>(body).map_err(in_body)?.values),
        None => (false, vec![serde_json::from_value::<Pushed>(body).map_err(in_body)?]),
    };
    let converted = values.into_iter().enumerate().map(|(place, it)| {
        let field = if several { format!("values[{place}].value") } else { "value".to_owned() };
        let value_milli = milli(&it.value).ok_or_else(|| {
            (field, format!("{} cannot be kept: it must be a number between -9.2e15 and 9.2e15", it.value))
        })?;
        Ok(v1::PushedSignal { signal: it.signal, cluster: it.cluster, value_milli, age_ms: it.age_ms })
    });
    converted.collect()
}

/// In thousandths; nothing if it does not fit.
fn milli(number: &Number) -> Option<i64> {
    if let Some(whole) = number.as_i64() {
        return whole.checked_mul(1_000);
    }
    let scaled = (number.as_f64()? * 1_000.0).round();
    // Below 2^63 by a margin that the rounding of such large numbers cannot cross.
    #[expect(clippy::cast_possible_truncation, reason = "it is checked on the same line")]
    (scaled.abs() <= 9.2e18).then_some(scaled as i64)
}

async fn not_allowed() -> Response {
    answer(StatusCode::METHOD_NOT_ALLOWED, &json!({ "error": "values of signals are pushed with POST" }))
}

fn answer(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], format!("{body}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_or_several_are_read_and_a_mistake_is_named() {
        let one = read(br#"{"signal": "s", "value": 0.85}"#).unwrap();
        assert_eq!((one.len(), one[0].value_milli, one[0].cluster.as_str()), (1, 850, ""));
        let two = read(br#"{"values": [{"signal": "s", "value": 2, "cluster": "a", "age_ms": 5}, {"signal": "s", "value": -1.5}]}"#);
        assert_eq!(two.unwrap().iter().map(|it| it.value_milli).collect::<Vec<_>>(), [2_000, -1_500]);
        for (body, field) in [
            ("", "body"),
            ("{}", "body"),
            (r#"{"signal": "s", "value": null}"#, "body"),
            (r#"{"signal": "s", "value": "12"}"#, "body"),
            (r#"{"signal": "s", "valeu": 1, "value": 1}"#, "body"),
            (r#"{"signal": "s", "value": 1e300}"#, "value"),
            (r#"{"signal": "s", "value": 18446744073709551615}"#, "value"),
            (r#"{"values": [{"signal": "s", "value": 9223372036854775807}]}"#, "values[0].value"),
        ] {
            assert_eq!(read(body.as_bytes()).unwrap_err().0, field, "{body}");
        }
    }
}

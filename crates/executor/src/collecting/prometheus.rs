//! The answer to an instant query of Prometheus, or of whatever speaks its HTTP API.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use loadline_state_machine::Options;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::meaning::Sample;
use super::secret::Secrets;
use super::{number, required, text, with_causes};
use crate::backends::tls;

/// A label with a series for each of ten thousand clusters fits.
const ANSWER_BYTES_MAX: usize = 4 << 20;

#[derive(Debug, Deserialize)]
struct Answer {
    status: String,
    #[serde(default)]
    error: String,
    data: Option<Data>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "resultType", content = "result", rename_all = "lowercase")]
enum Data {
    Vector(Vec<Series>),
    /// Time and value.
    Scalar((f64, String)),
    Matrix(IgnoredAny),
    String(IgnoredAny),
}

#[derive(Debug, Deserialize)]
struct Series {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    /// Time and value.
    value: (f64, String),
}

pub(super) async fn ask(options: &Options, secrets: &mut Secrets, limit: Duration) -> Result<Sample, String> {
    let base = required(options, "url")?.trim_end_matches('/');
    let query = required(options, "query")?;
    let uri = format!("{base}/api/v1/query?query={}", encoded(query));
    let mut request = http::Request::get(uri)
        .header(header::ACCEPT, "application/json")
        .header(header::USER_AGENT, concat!("loadline/", env!("CARGO_PKG_VERSION")));
    if let Some(authorization) = authorization(options, secrets).await? {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Full::new(Bytes::new())).map_err(|error| format!("url: {error}"))?;

    let encrypted = base.starts_with("https:");
    let tls = match encrypted {
        true => tls::client(text(options, "ca_file").map(Path::new)),
        // Never used. A machine that trusts nobody can still speak plain HTTP.
        false => tls::trusting_nobody(),
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(limit / 2));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls.map_err(|error| error.to_string())?);
    let connector = if encrypted { connector.https_only() } else { connector.https_or_http() };
    let client: legacy::Client<_, Full<Bytes>> =
        legacy::Client::builder(TokioExecutor::new()).build(connector.enable_http1().wrap_connector(tcp));

    let answer = client.request(request).await.map_err(|error| with_causes(&error))?;
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
    let body = body.collect().await.map_err(|error| format!("the answer broke off: {error}"))?.to_bytes();
    read(status, &body, text(options, "cluster_label"))
}

async fn authorization(options: &Options, secrets: &mut Secrets) -> Result<Option<http::HeaderValue>, String> {
    let value = if let Some(reference) = text(options, "bearer_token") {
        format!("Bearer {}", secrets.read(reference).await?.reveal())
    } else if let (Some(user), Some(reference)) = (text(options, "username"), text(options, "password")) {
        let password = secrets.read(reference).await?;
        let encoded = STANDARD.encode(format!("{user}:{}", password.reveal()));
        secrets.keep_out(&encoded);
        format!("Basic {encoded}")
    } else {
        return Ok(None);
    };
    let mut value = http::HeaderValue::try_from(value).map_err(|_| "the secret cannot stand in a header".to_owned())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

fn read(status: http::StatusCode, body: &[u8], label: Option<&str>) -> Result<Sample, String> {
    let answer: Answer = match serde_json::from_slice(body) {
        Ok(answer) => answer,
        Err(_) if !status.is_success() => return Err(format!("it answered {status}")),
        Err(error) => return Err(format!("this is not the HTTP API of Prometheus: {error}")),
    };
    if answer.status != "success" {
        return Err(format!("it answered {status}: {}", answer.error));
    }
    let series = match answer.data {
        Some(Data::Scalar((_, value))) => return number::milli(&value).map(Sample::One),
        Some(Data::Vector(series)) => series,
        Some(Data::Matrix(IgnoredAny)) => {
            return Err("the query gave a range: ask for one moment, without [5m] at its end".to_owned());
        }
        Some(Data::String(IgnoredAny)) => return Err("the query gave a text, not a number".to_owned()),
        None => return Err("there is no data in the answer".to_owned()),
    };
    if let Some(label) = label {
        if series.is_empty() {
            return Err("the query gave nothing: no series matches it now".to_owned());
        }
        let named = |it: Series| (it.metric.get(label).cloned(), number::milli(&it.value.1));
        return Ok(Sample::Labelled { label: label.to_owned(), series: series.into_iter().map(named).collect() });
    }
    match series.as_slice() {
        [one] => number::milli(&one.value.1).map(Sample::One),
        [] => Err("the query gave nothing: no series matches it now".to_owned()),
        several => Err(format!(
            "the query gave {} series where one number is needed: aggregate it, as in sum(...), or name in CLUSTER_LABEL the \
             label that says whose each is",
            several.len()
        )),
    }
}

/// As it stands behind `query=`.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(body: &str, label: Option<&str>) -> Result<Sample, String> {
        read(http::StatusCode::OK, body.as_bytes(), label)
    }

    fn vector(series: &str) -> String {
        format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{series}]}}}}"#)
    }

    #[test]
    fn one_number_is_a_value() {
        assert_eq!(given(&vector(r#"{"metric":{},"value":[1.5,"12.5"]}"#), None), Ok(Sample::One(12_500)));
        let scalar = r#"{"status":"success","data":{"resultType":"scalar","result":[1435781451.781,"1"]}}"#;
        assert_eq!(given(scalar, None), Ok(Sample::One(1_000)));
    }

    #[test]
    fn nothing_and_what_is_no_number_are_not_zero() {
        let error = |body: &str| given(body, None).unwrap_err();
        assert!(error(&vector("")).contains("gave nothing"));
        assert!(error(&vector(r#"{"metric":{},"value":[1,"NaN"]}"#)).contains("NaN"));
        let two = r#"{"metric":{"a":"1"},"value":[1,"1"]},{"metric":{"a":"2"},"value":[1,"2"]}"#;
        assert!(error(&vector(two)).contains("2 series") && error(&vector(two)).contains("CLUSTER_LABEL"));
        assert!(error(r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#).contains("range"));
        assert!(error(r#"{"status":"error","errorType":"bad_data","error":"parse error"}"#).contains("parse error"));
        assert!(error("<html>").contains("not the HTTP API"));
        let down = read(http::StatusCode::BAD_GATEWAY, b"<html>", None).unwrap_err();
        assert!(down.contains("502"), "{down}");
    }

    #[test]
    fn a_label_says_whose_each_number_is() {
        let two = r#"{"metric":{"c":"prod"},"value":[1,"3"]},{"metric":{},"value":[1,"NaN"]}"#;
        let Ok(Sample::Labelled { series, .. }) = given(&vector(two), Some("c")) else { panic!("labelled") };
        assert_eq!(series[0], (Some("prod".to_owned()), Ok(3_000)));
        assert!(series[1].0.is_none() && series[1].1.is_err());
    }

    #[test]
    fn a_query_is_encoded_as_the_standard_says() {
        assert_eq!(encoded("sum(q{a=\"b c\"})"), "sum%28q%7Ba%3D%22b%20c%22%7D%29");
    }
}

//! One signed request and its answer, over HTTP.
//!
//! Not here: what an answer means (`answer`), and when to ask again (the parent module). Redirects are not followed: a signed order
//! goes to the address that was configured, and nowhere else.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::time::Instant;

use super::answer::Raw;
use super::config::WebhookConfig;
use super::message::Request;
use super::signature::{SIGNATURE_HEADER, WebhookSecrets};
use crate::backends::settings::ConfigError;
use crate::backends::tls;

/// Tens of thousands of replicas fit; whatever is longer is not from a receiver.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// Connections that wait for the next request are closed after this long: many servers close them after a minute, and a request
/// that meets the closing is lost.
const IDLE: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoAnswer {
    /// There was no connection, so nothing has been sent.
    #[error("no connection: {reason}")]
    NotSent { reason: String },
    #[error("{reason}")]
    Lost { reason: String },
}

#[derive(Debug)]
pub(super) struct HttpClient {
    base: String,
    secrets: WebhookSecrets,
    inner: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl HttpClient {
    pub(super) fn new(config: &WebhookConfig, secrets: WebhookSecrets) -> Result<Self, ConfigError> {
        let base = config.base()?;
        let encrypted = base.starts_with("https:");
        let tls = match encrypted {
            true => tls::client(config.ca_file.as_deref())?,
            // Never used. A machine that trusts nobody can still speak plain HTTP.
            false => tls::trusting_nobody()?,
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Shorter than the deadline: a connection that was never made is known not to have carried anything.
        tcp.set_connect_timeout(Some(config.call_deadline / 2));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let connector = if encrypted { connector.https_only() } else { connector.https_or_http() };
        let connector = connector.enable_http1().wrap_connector(tcp);
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .build(connector);
        Ok(Self { base, secrets, inner })
    }

    pub(super) async fn post(&self, request: &Request, until: Instant) -> Result<Raw, NoAnswer> {
        let body = serde_json::to_vec(request)
            .map_err(|error| NoAnswer::NotSent { reason: format!("the request cannot be written: {error}") })?;
        self.send(Method::POST, request.endpoint(), request.headers(), body, until).await
    }

    pub(super) async fn get(&self, endpoint: &str, until: Instant) -> Result<Raw, NoAnswer> {
        self.send(Method::GET, endpoint, Vec::new(), Vec::new(), until).await
    }

    async fn send(
        &self,
        method: Method,
        endpoint: &str,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
        until: Instant,
    ) -> Result<Raw, NoAnswer> {
        // The receiver has only the wall clock in common with us. How far it may be off is the receiver's tolerance.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("{}/{endpoint}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("loadline/", env!("CARGO_PKG_VERSION")))
            .header(SIGNATURE_HEADER, self.secrets.sign(now, &body));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| NoAnswer::NotSent { reason: format!("the request cannot be made: {error}") })?;
        let exchange = async {
            let answer = self.inner.request(request).await.map_err(|error| {
                let reason = with_causes(&error);
                if error.is_connect() { NoAnswer::NotSent { reason } } else { NoAnswer::Lost { reason } }
            })?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|error| NoAnswer::Lost { reason: format!("the answer broke off: {error}") })?;
            Ok(Raw { status: head.status, headers: head.headers, body: body.to_bytes().to_vec() })
        };
        match tokio::time::timeout_at(until, exchange).await {
            Ok(outcome) => outcome,
            Err(_) => Err(NoAnswer::Lost { reason: "no answer before the deadline".to_owned() }),
        }
    }
}

/// The reason that helps is mostly the innermost one: "client error (Connect)" says nothing without it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

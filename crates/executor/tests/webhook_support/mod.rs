//! Reference receivers on ports of their own, and the clients that call them.

#![allow(clippy::unwrap_used, reason = "a fault here is a fault of the test, and ends it")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use http::Request as HttpRequest;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use loadline_executor::backends::settings::Secret;
use loadline_executor::backends::webhook::message::{CallBody, ClusterBody, OrderBody, Request, epoch_text};
use loadline_executor::backends::webhook::receiver::{Receiver, ReceiverOptions};
use loadline_executor::backends::webhook::signature::SIGNATURE_HEADER;
use loadline_executor::backends::webhook::{Webhook, WebhookConfig, WebhookSecrets};
use loadline_executor::{ClusterAddress, Order};
use loadline_state_machine::{Call, ClusterId, Epoch, Hash, LogIndex, ReplicaSpec};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tower::ServiceExt;

pub(crate) const SECRET: &str = "the-secret-of-the-receiver";

pub(crate) fn secrets(current: &str, previous: Option<&str>) -> WebhookSecrets {
    WebhookSecrets { current: Secret::new(current), previous: previous.map(Secret::new) }
}

pub(crate) fn epoch(index: u64) -> Epoch {
    Epoch { incarnation: 7, index: LogIndex(index) }
}

pub(crate) fn create(name: &str, size: &str) -> Call {
    Call::CreateReplica(ReplicaSpec { name: name.into(), size: size.into() })
}

pub(crate) fn order(key: &str, index: u64, call: Call) -> Order {
    let cluster = ClusterAddress { id: ClusterId { index: LogIndex(3), ordinal: 0 }, name: "shop".to_owned() };
    let parameters = Hash::of(format!("{key} {cluster:?} {call:?}").as_bytes());
    Order { key: key.to_owned(), epoch: epoch(index), attempt: 1, parameters, cluster, call }
}

pub(crate) fn webhook_at(url: &str, change: impl FnOnce(&mut WebhookConfig)) -> Webhook {
    let mut config = WebhookConfig::at(url);
    change(&mut config);
    Webhook::new(config, secrets(SECRET, None)).unwrap()
}

/// A receiver that is served until this is dropped.
pub(crate) struct Site {
    pub(crate) receiver: Receiver,
    url: String,
    serving: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Site {
    pub(crate) async fn start() -> Site {
        Site::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut ReceiverOptions)) -> Site {
        let (receiver, listener) = open(change).await;
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = receiver.router();
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Site { receiver, url, serving }
    }

    pub(crate) fn webhook(&self) -> Webhook {
        self.webhook_with(|_| {})
    }

    pub(crate) fn webhook_with(&self, change: impl FnOnce(&mut WebhookConfig)) -> Webhook {
        webhook_at(&self.url, change)
    }

    pub(crate) fn webhook_signing(&self, secrets: WebhookSecrets) -> Webhook {
        Webhook::new(WebhookConfig::at(&self.url), secrets).unwrap()
    }

    /// The body of a `find`, as somebody on the way could have recorded it.
    pub(crate) fn recorded_find(&self, order: &Order) -> String {
        let body = OrderBody {
            key: order.key.clone(),
            epoch: epoch_text(order.epoch),
            attempt: order.attempt,
            parameters: order.parameters.to_string(),
            deadline_ms: 10_000,
            cluster: ClusterBody { id: order.cluster.id.to_string(), name: order.cluster.name.clone() },
            call: CallBody {
                kind: order.call.code().to_owned(),
                replica: order.call.replica().to_string(),
                size: order.call.size().to_string(),
                incarnation: None,
            },
        };
        serde_json::to_string(&Request::Find(body)).unwrap()
    }

    /// Sends a body that was signed so long ago to any endpoint.
    pub(crate) async fn post(&self, endpoint: &str, body: &str, seconds_ago: u64) -> (u16, String) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let request = HttpRequest::post(format!("/{endpoint}"))
            .header(SIGNATURE_HEADER, secrets(SECRET, None).sign(now - seconds_ago, body.as_bytes()))
            .body(Body::from(body.to_owned()))
            .unwrap();
        let answer = self.receiver.router().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

async fn open(change: impl FnOnce(&mut ReceiverOptions)) -> (Receiver, TcpListener) {
    let mut options = ReceiverOptions { secrets: vec![Secret::new(SECRET)], fences: true, file: None };
    change(&mut options);
    (Receiver::open(options).unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap())
}

/// A receiver behind TLS, with an authority that nobody else trusts.
pub(crate) struct TlsSite {
    pub(crate) site: Site,
    pub(crate) ca_file: PathBuf,
    _folder: tempfile::TempDir,
}

impl TlsSite {
    pub(crate) fn webhook_with(&self, change: impl FnOnce(&mut WebhookConfig)) -> Webhook {
        self.site.webhook_with(change)
    }
}

pub(crate) async fn tls_site() -> TlsSite {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let (receiver, listener) = open(|_| {}).await;
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let router = receiver.router();
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust us hangs up here.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let service = TowerToHyperService::new(router.clone());
            let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            tokio::spawn(async move { drop(connection.await) });
        }
    });
    TlsSite { site: Site { receiver, url, serving }, ca_file, _folder: folder }
}

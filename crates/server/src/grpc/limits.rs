//! The door of every client service: how many calls at once, how long each may take, and what became of them.
//!
//! A call that finds the house full is refused at once, with a reason that says so: a queue would only make every caller
//! time out. The service between nodes does not pass through here; shedding its traffic would turn load into elections.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
use tonic::body::Body;
use tonic::{Code, Status};
use tower::Layer;

use super::errors;
use super::gate::{self, Answering, Behind, Gate, Gated};
use crate::metrics::Metrics;

/// Whether a deadline of the server's own applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasts {
    /// It is answered once, within the deadline.
    AMoment,
    /// It streams; the service itself watches for progress.
    AsLongAsItTakes,
}

/// Every method, so that a path that a caller made up does not become a label of its own.
pub(crate) const METHODS: [(&str, &str, Lasts); 71] = [
    ("Admin", "CreateSize", Lasts::AMoment),
    ("Admin", "GetSize", Lasts::AMoment),
    ("Admin", "ListSizes", Lasts::AMoment),
    ("Admin", "UpdateSize", Lasts::AMoment),
    ("Admin", "DeleteSize", Lasts::AMoment),
    ("Admin", "CreateCluster", Lasts::AMoment),
    ("Admin", "GetCluster", Lasts::AMoment),
    ("Admin", "ListClusters", Lasts::AMoment),
    ("Admin", "RenameCluster", Lasts::AMoment),
    ("Admin", "UpdateCluster", Lasts::AMoment),
    ("Admin", "DeleteCluster", Lasts::AMoment),
    ("Admin", "GetSetting", Lasts::AMoment),
    ("Admin", "ListSettings", Lasts::AMoment),
    ("Admin", "SetSetting", Lasts::AMoment),
    ("Admin", "DeleteSetting", Lasts::AMoment),
    ("Admin", "CreateRole", Lasts::AMoment),
    ("Admin", "GetRole", Lasts::AMoment),
    ("Admin", "ListRoles", Lasts::AMoment),
    ("Admin", "UpdateRole", Lasts::AMoment),
    ("Admin", "DeleteRole", Lasts::AMoment),
    ("Admin", "GrantUsage", Lasts::AMoment),
    ("Admin", "RevokeUsage", Lasts::AMoment),
    ("Admin", "CreateToken", Lasts::AMoment),
    ("Admin", "DeleteToken", Lasts::AMoment),
    ("Admin", "CreateSignal", Lasts::AMoment),
    ("Admin", "GetSignal", Lasts::AMoment),
    ("Admin", "ListSignals", Lasts::AMoment),
    ("Admin", "UpdateSignal", Lasts::AMoment),
    ("Admin", "DeleteSignal", Lasts::AMoment),
    ("Admin", "PushSignals", Lasts::AMoment),
    ("Admin", "Transact", Lasts::AMoment),
    ("Scaling", "CreateStrategy", Lasts::AMoment),
    ("Scaling", "UpdateStrategy", Lasts::AMoment),
    ("Scaling", "DeleteStrategy", Lasts::AMoment),
    ("Scaling", "DeleteStrategies", Lasts::AMoment),
    ("Scaling", "GetStrategy", Lasts::AMoment),
    ("Scaling", "ListStrategies", Lasts::AMoment),
    ("Scaling", "PauseCluster", Lasts::AMoment),
    ("Scaling", "ResumeCluster", Lasts::AMoment),
    ("Scaling", "CreateReplica", Lasts::AMoment),
    ("Scaling", "DeleteReplica", Lasts::AMoment),
    ("Scaling", "ApproveAction", Lasts::AMoment),
    ("Scaling", "RejectAction", Lasts::AMoment),
    ("Scaling", "RetryAction", Lasts::AMoment),
    ("Scaling", "ResolveAction", Lasts::AMoment),
    ("Scaling", "AbandonAction", Lasts::AMoment),
    ("Scaling", "GetDecision", Lasts::AMoment),
    ("Scaling", "ListDecisions", Lasts::AMoment),
    ("Scaling", "GetOperation", Lasts::AMoment),
    ("Scaling", "ListOperations", Lasts::AMoment),
    ("Scaling", "GetAction", Lasts::AMoment),
    ("Scaling", "ListActions", Lasts::AMoment),
    ("Scaling", "Explain", Lasts::AMoment),
    ("ScaleToZero", "Wake", Lasts::AsLongAsItTakes),
    ("ScaleToZero", "ListIdleStates", Lasts::AMoment),
    ("ScaleToZero", "GetSavings", Lasts::AMoment),
    ("ScaleToZero", "OverrideCluster", Lasts::AMoment),
    ("ScaleToZero", "ClearOverride", Lasts::AMoment),
    ("Signals", "ReportSignals", Lasts::AMoment),
    ("Signals", "StreamSignals", Lasts::AsLongAsItTakes),
    ("Writes", "StreamWrites", Lasts::AsLongAsItTakes),
    ("Watch", "Watch", Lasts::AsLongAsItTakes),
    ("Operator", "Status", Lasts::AMoment),
    ("Operator", "ListPeers", Lasts::AMoment),
    ("Operator", "AddPeer", Lasts::AMoment),
    ("Operator", "RemovePeer", Lasts::AMoment),
    ("Operator", "TransferLeadership", Lasts::AMoment),
    ("Operator", "SaveSnapshot", Lasts::AsLongAsItTakes),
    ("Operator", "RestoreSnapshot", Lasts::AsLongAsItTakes),
    ("Audit", "SearchHistory", Lasts::AMoment),
    ("Audit", "ExportHistory", Lasts::AsLongAsItTakes),
];

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadlines {
    /// For a caller that gave none.
    pub(crate) default: Duration,
    /// For a caller that gave a longer one.
    pub(crate) max: Duration,
}

/// The door of one service.
#[derive(Debug, Clone)]
pub(crate) struct Door(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    service: &'static str,
    at_once_max: usize,
    places: Arc<Semaphore>,
    deadlines: Deadlines,
    /// By path.
    methods: BTreeMap<String, Method>,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Clone, Copy)]
struct Method {
    label: &'static str,
    lasts: Lasts,
}

/// Anything that is no method of ours: a made-up one, or one of the helper services (health, reflection).
const OTHER: Method = Method { label: "other", lasts: Lasts::AsLongAsItTakes };

impl Door {
    pub(crate) fn new(service: &'static str, at_once_max: usize, deadlines: Deadlines, metrics: Arc<Metrics>) -> Door {
        let methods = METHODS
            .iter()
            .filter(|(of, _, _)| *of == service)
            .map(|(of, label, lasts)| (format!("/loadline.v1.{of}/{label}"), Method { label, lasts: *lasts }))
            .collect();
        let places = Arc::new(Semaphore::new(at_once_max));
        // Shown from the start: a figure that is missing is not a figure that is zero.
        metrics.grpc_in_flight.with_label_values(&[service]).set(0);
        metrics.grpc_shed.with_label_values(&[service]).inc_by(0);
        Door(Arc::new(Inner { service, at_once_max, places, deadlines, methods, metrics }))
    }

    /// Resolves when every call that is inside has left, and lets nobody else in until the answer is dropped.
    pub(crate) async fn emptied(&self) -> Option<SemaphorePermit<'_>> {
        let all = u32::try_from(self.0.at_once_max).unwrap_or(u32::MAX);
        self.0.places.acquire_many(all).await.ok()
    }

    /// Lets a call in, or says why not.
    fn admit(&self, path: &str, began: Instant) -> Result<Visit, Box<Status>> {
        let inner = &self.0;
        let method = inner.methods.get(path).copied().unwrap_or(OTHER);
        let Ok(place) = Arc::clone(&inner.places).try_acquire_owned() else {
            inner.metrics.grpc_shed.with_label_values(&[inner.service]).inc();
            count(&inner.metrics, method, Code::ResourceExhausted, began);
            return Err(Box::new(errors::overloaded(inner.service, inner.at_once_max)));
        };
        inner.metrics.grpc_in_flight.with_label_values(&[inner.service]).inc();
        Ok(Visit { door: self.clone(), method, began, code: None, _place: place })
    }
}

/// One call inside. Dropping it, however that comes about, frees the place and writes down how the call ended.
#[derive(Debug)]
struct Visit {
    door: Door,
    method: Method,
    began: Instant,
    /// None: nobody has answered yet, or the caller went away.
    code: Option<Code>,
    _place: OwnedSemaphorePermit,
}

impl Visit {
    /// Looks at headers or trailers on their way out: what they say about the end of the call, and whether it has a reason.
    fn see(&mut self, headers: &mut HeaderMap) {
        if let Some(status) = errors::completed(headers) {
            headers.remove("grpc-status");
            headers.remove("grpc-message");
            // Without the details it is still the error that it was.
            let _ = status.add_header(headers);
        }
        if let Some(code) = headers.get("grpc-status") {
            self.code = Some(Code::from_bytes(code.as_bytes()));
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let inner = &self.door.0;
        inner.metrics.grpc_in_flight.with_label_values(&[inner.service]).dec();
        count(&inner.metrics, self.method, self.code.unwrap_or(Code::Cancelled), self.began);
    }
}

fn count(metrics: &Metrics, method: Method, code: Code, began: Instant) {
    metrics.grpc_requests.with_label_values(&[method.label, code_name(code)]).inc();
    metrics.grpc_duration.with_label_values(&[method.label]).observe(began.elapsed().as_secs_f64());
}

impl<S> Layer<S> for Door {
    type Service = Gated<Door, S>;

    fn layer(&self, service: S) -> Gated<Door, S> {
        Gated { gate: self.clone(), service }
    }
}

impl Gate for Door {
    fn pass<S: Behind>(&self, request: Request<Body>, mut service: S) -> Answering {
        let began = Instant::now();
        let mut visit = match self.admit(request.uri().path(), began) {
            Ok(visit) => visit,
            Err(status) => return gate::refuse(*status),
        };
        let deadline = deadline(&request, visit.method, self.0.deadlines);
        // Made here and not at the first poll, so that it ends before the transport's own, which has no reason to give.
        let time_is_up = deadline.map(|after| (after, tokio::time::sleep(after)));
        let answering = service.call(request);
        Box::pin(async move {
            let answer = match time_is_up {
                None => answering.await,
                Some((after, time_is_up)) => tokio::select! {
                    biased;
                    answer = answering => answer,
                    () = time_is_up => Ok(errors::deadline(after).into_http()),
                },
            };
            answer.map(|mut response| {
                visit.see(response.headers_mut());
                response.map(|body| Body::new(Leaving { body, visit }))
            })
        })
    }
}

/// The caller's deadline if it is the shorter one, and none of ours on a stream.
fn deadline(request: &Request<Body>, method: Method, deadlines: Deadlines) -> Option<Duration> {
    match method.lasts {
        Lasts::AsLongAsItTakes => None,
        Lasts::AMoment => Some(asked(request.headers()).unwrap_or(deadlines.default).min(deadlines.max)),
    }
}

/// `grpc-timeout`: up to eight digits and a unit. What cannot be read is as if it were not there.
fn asked(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// A response on its way out. It holds the place until its last byte: a stream is under way for as long as it streams.
struct Leaving {
    body: Body,
    visit: Visit,
}

impl http_body::Body for Leaving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = Pin::new(&mut self.body).poll_frame(cx);
        match &mut frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_mut() {
                    self.visit.see(trailers);
                }
            }
            Poll::Ready(Some(Err(status))) => self.visit.code = Some(status.code()),
            _ => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// As in the specification of gRPC, for a label.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use http_body_util::BodyExt as _;
    use tokio::sync::watch;
    use tower::util::BoxCloneService;
    use tower::{Service as _, ServiceExt as _};

    use super::*;
    use crate::metrics::Standing;

    const DEADLINES: Deadlines = Deadlines { default: Duration::from_secs(10), max: Duration::from_secs(60) };

    fn request(path: &str) -> Request<Body> {
        Request::builder().uri(path).body(Body::empty()).unwrap()
    }

    type Waiting = Gated<Door, BoxCloneService<Request<Body>, Response<Body>, Infallible>>;

    /// Answers NOT_FOUND, as soon as it is told to.
    fn waiting(door: &Door) -> (Waiting, watch::Sender<bool>) {
        let (go, wait) = watch::channel(false);
        let service = tower::service_fn(move |_: Request<Body>| {
            let mut wait = wait.clone();
            async move {
                wait.wait_for(|go| *go).await.unwrap();
                let body = Body::new(http_body_util::Full::new(Bytes::from_static(b"and its body")));
                Ok(Response::builder().header("grpc-status", "5").body(body).unwrap())
            }
        });
        (door.layer(BoxCloneService::new(service)), go)
    }

    fn counted(metrics: &Metrics, line: &str) -> bool {
        metrics.render(&Standing::default(), Vec::new()).unwrap().lines().any(|shown| shown == line)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_beyond_the_limit_is_refused_at_once_and_the_place_comes_back() {
        let metrics = Arc::new(Metrics::new());
        let door = Door::new("Admin", 1, DEADLINES, Arc::clone(&metrics));
        let (mut service, go) = waiting(&door);
        let first = tokio::spawn(service.ready().await.unwrap().call(request("/loadline.v1.Admin/GetSize")));
        let second = service.ready().await.unwrap().call(request("/loadline.v1.Admin/GetSize")).await.unwrap();
        let status = Status::from_header_map(second.headers()).unwrap();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(counted(&metrics, "loadline_grpc_requests_shed_total{service=\"Admin\"} 1"));
        go.send(true).unwrap();
        let answer = first.await.unwrap().unwrap();
        // Answered, but not yet gone: the place is still taken.
        let third = service.ready().await.unwrap().call(request("/loadline.v1.Admin/GetSize")).await.unwrap();
        assert_eq!(Status::from_header_map(third.headers()).unwrap().code(), Code::ResourceExhausted);
        drop(answer);
        let fourth = service.ready().await.unwrap().call(request("/loadline.v1.Admin/GetSize")).await.unwrap();
        assert_eq!(Status::from_header_map(fourth.headers()).unwrap().code(), Code::NotFound);
        drop(fourth);
        assert!(counted(&metrics, "loadline_grpc_requests_total{code=\"NOT_FOUND\",method=\"GetSize\"} 2"));
        assert!(counted(&metrics, "loadline_grpc_requests_total{code=\"RESOURCE_EXHAUSTED\",method=\"GetSize\"} 2"));
        assert!(counted(&metrics, "loadline_grpc_requests_in_flight{service=\"Admin\"} 0"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_ends_at_its_deadline_and_a_stream_does_not() {
        let metrics = Arc::new(Metrics::new());
        let (service, _go) = waiting(&Door::new("Admin", 9, DEADLINES, Arc::clone(&metrics)));
        let answer = service.clone().oneshot(request("/loadline.v1.Admin/GetSize")).await.unwrap();
        let status = Status::from_header_map(answer.headers()).unwrap();
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert!(status.message().starts_with("not done within 10s"), "{}", status.message());

        let (watch, _go) = waiting(&Door::new("Watch", 9, DEADLINES, metrics));
        let watching = watch.oneshot(request("/loadline.v1.Watch/Watch"));
        let day = Duration::from_secs(86_400);
        assert!(tokio::time::timeout(day, watching).await.is_err(), "a watch has no deadline");
    }

    #[test]
    fn the_deadline_is_the_callers_within_bounds() {
        let unary = Method { label: "x", lasts: Lasts::AMoment };
        let check = |asked: Option<&str>, seconds: f64| {
            let mut request = request("/");
            if let Some(asked) = asked {
                request.headers_mut().insert("grpc-timeout", asked.parse().unwrap());
            }
            assert_eq!(deadline(&request, unary, DEADLINES), Some(Duration::from_secs_f64(seconds)), "{asked:?}");
        };
        check(None, 10.0);
        check(Some("2S"), 2.0);
        check(Some("250m"), 0.25);
        check(Some("9H"), 60.0);
        for nonsense in ["", "S", "2", "2x", "-1S", "123456789S", "2.5S"] {
            check(Some(nonsense), 10.0);
        }
    }

    #[tokio::test]
    async fn the_code_is_read_from_the_trailers_of_a_stream() {
        let metrics = Arc::new(Metrics::new());
        let door = Door::new("Watch", 9, DEADLINES, Arc::clone(&metrics));
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "5".parse().unwrap());
        let body =
            Body::new(http_body_util::Empty::<Bytes>::new().with_trailers(std::future::ready(Some(Ok(trailers)))));
        let body = Arc::new(std::sync::Mutex::new(Some(body)));
        let service = tower::service_fn(move |_: Request<Body>| {
            let body = body.lock().unwrap().take().unwrap();
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        let answer = door.layer(service).oneshot(request("/loadline.v1.Watch/Watch")).await.unwrap();
        assert!(!counted(&metrics, "loadline_grpc_requests_total{code=\"NOT_FOUND\",method=\"Watch\"} 1"));
        let sent = answer.into_body().collect().await.unwrap();
        assert!(sent.trailers().unwrap().contains_key("grpc-status-details-bin"), "an error has a reason");
        assert!(counted(&metrics, "loadline_grpc_requests_total{code=\"NOT_FOUND\",method=\"Watch\"} 1"));
    }

    #[test]
    fn every_method_of_the_protocol_but_those_between_nodes_is_listed() {
        use prost::Message as _;
        let set = prost_types::FileDescriptorSet::decode(loadline_api::FILE_DESCRIPTOR_SET).unwrap();
        let mut methods = Vec::new();
        for service in set.file.iter().flat_map(|file| &file.service) {
            for method in &service.method {
                let streams = method.client_streaming() || method.server_streaming();
                let lasts = if streams { Lasts::AsLongAsItTakes } else { Lasts::AMoment };
                methods.push((service.name().to_owned(), method.name().to_owned(), lasts));
            }
        }
        methods.retain(|(service, _, _)| service != "Raft");
        let mut listed: Vec<_> = METHODS
            .iter()
            .map(|(service, method, lasts)| ((*service).to_owned(), (*method).to_owned(), *lasts))
            .collect();
        methods.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        listed.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        assert_eq!(listed, methods);
    }
}

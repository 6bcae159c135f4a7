//! A receiver that keeps the contract: an example to read, and what the tests of the webhook talk to.
//!
//! [`books`] decides; this file is about HTTP, signatures, a file that survives a restart, and the [`Trouble`] that a test can ask
//! for. The replicas are entries in a map: a real receiver would start and stop something here.
//! `examples/webhook_receiver.rs` serves it.

pub mod books;

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;

use self::books::{Books, Reply, about};
use super::message::{Answer, CapabilitiesBody, OrderBody, Request};
use super::signature::{SIGNATURE_HEADER, verify};
use crate::backends::settings::Secret;

/// How far the time of a request may be from ours. Long enough for clocks that are a little off, short enough that a recorded
/// request is soon worth nothing.
const TOLERANCE: Duration = Duration::from_secs(300);

/// Requests are small. Whatever is larger is not from Loadline.
const REQUEST_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Whoever signs with one of them is believed. Two while one is replaced by the other.
    pub secrets: Vec<Secret>,
    /// Whether lower epochs are refused.
    pub fences: bool,
    /// Where the books are kept; in memory only if nothing is said.
    pub file: Option<PathBuf>,
}

/// Something that goes wrong with the next order. The first of the queue is used up by the first order that arrives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Carried out, and never answered.
    DoneInSilence,
    /// Lost on the way: neither carried out nor answered.
    Lost,
    /// Carried out after this long, and then answered.
    Slow(Duration),
    /// Carried out, and a proxy says something else.
    Answer { status: u16, body: String },
    /// Not carried out: come back later.
    Busy { retry_after_seconds: u64 },
    /// Accepted at once, and carried out when it has been asked about so often.
    UnderWay { questions: u32 },
}

/// The receiver. A clone is the same receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    options: ReceiverOptions,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    books: Books,
    trouble: VecDeque<Trouble>,
    /// Accepted and not through: how many questions are left until it is.
    under_way: Vec<(OrderBody, u32)>,
    /// How many orders have arrived, whatever became of them.
    arrived: u64,
}

impl Receiver {
    /// Goes on from its file, if there is one.
    pub fn open(options: ReceiverOptions) -> std::io::Result<Self> {
        let books = match &options.file {
            Some(file) if file.exists() => serde_json::from_slice(&std::fs::read(file)?)?,
            _ => Books::default(),
        };
        let desk = Mutex::new(Desk { books, ..Desk::default() });
        Ok(Self { shared: Arc::new(Shared { options, desk }) })
    }

    /// Its endpoints, to be served or to be put below a path.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/execute", post(execute))
            .route("/find", post(find))
            .route("/fence", post(fence))
            .route("/observe", post(observe))
            .route("/capabilities", get(capabilities))
            .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
            .with_state(self.clone())
    }

    /// The next order meets this.
    pub fn expect(&self, trouble: Trouble) {
        self.desk().trouble.push_back(trouble);
    }

    pub fn books(&self) -> Books {
        self.desk().books.clone()
    }

    /// How many orders have arrived, whatever became of them.
    pub fn arrived(&self) -> u64 {
        self.desk().arrived
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.shared.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the books, and has them on disk before anybody hears of it.
    fn change<T>(&self, change: impl FnOnce(&mut Desk) -> T) -> Result<T, Refusal> {
        let mut desk = self.desk();
        let before = desk.books.clone();
        let outcome = change(&mut desk);
        if desk.books != before
            && let Some(file) = &self.shared.options.file
            && let Err(error) = save(file, &desk.books)
        {
            // What is not on disk has not happened.
            desk.books = before;
            return Err(Refusal::new(500, format!("the books cannot be written: {error}")));
        }
        Ok(outcome)
    }

    /// Reads a request that somebody with a secret has signed.
    fn read(&self, headers: &HeaderMap, body: &Bytes) -> Result<Request, Refusal> {
        let age_seconds = self.trust(headers, body)?;
        let request: Request = serde_json::from_slice(body)
            .map_err(|error| Refusal::new(400, format!("the body cannot be read: {error}")))?;
        // Headers are not signed, so nothing is decided by them. One that says something else shows a fault on the way.
        for (name, value) in request.headers() {
            if headers.get(name).is_some_and(|header| header.as_bytes() != value.as_bytes()) {
                return Err(Refusal::new(400, format!("the header {name} contradicts the body")));
            }
        }
        // Carried out by its deadline, or never: whoever sent it may have told its users by now that it was not done. Times are
        // signed in whole seconds, so one is allowed for.
        if let Request::Execute(order) = &request
            && age_seconds > order.deadline_ms.div_ceil(1_000) + 1
        {
            return Err(Refusal { status: 408, answer: Box::new(about(order)) });
        }
        Ok(request)
    }

    /// Checks the signature, and says how long ago it was made.
    fn trust(&self, headers: &HeaderMap, body: &[u8]) -> Result<u64, Refusal> {
        let signature = headers.get(SIGNATURE_HEADER).and_then(|value| value.to_str().ok());
        let signature = signature.ok_or_else(|| Refusal::new(401, "there is no signature".to_owned()))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let signed_at = verify(signature, body, &self.shared.options.secrets, now, TOLERANCE)
            .map_err(|error| Refusal::new(401, error.to_string()))?;
        Ok(now.saturating_sub(signed_at))
    }
}

/// A temporary file, synced and renamed: a half-written one is never taken for the books.
fn save(file: &Path, books: &Books) -> std::io::Result<()> {
    let temporary = file.with_extension("new");
    let mut writing = std::fs::File::create(&temporary)?;
    writing.write_all(&serde_json::to_vec_pretty(books)?)?;
    writing.sync_all()?;
    std::fs::rename(&temporary, file)?;
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => std::fs::File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

async fn execute(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let Request::Execute(order) = receiver.read(&headers, &body)? else {
        return Err(Refusal::wrong_place());
    };
    let fences = receiver.shared.options.fences;
    let trouble = receiver.change(|desk| {
        desk.arrived += 1;
        desk.trouble.pop_front()
    })?;
    let carry_out = || receiver.change(|desk| desk.books.execute(&order, fences));
    match trouble {
        None => Ok(reply(carry_out()?)),
        Some(Trouble::DoneInSilence) => {
            carry_out()?;
            std::future::pending().await
        }
        Some(Trouble::Lost) => std::future::pending().await,
        Some(Trouble::Slow(wait)) => {
            tokio::time::sleep(wait).await;
            // By its deadline or never: whoever sent it counts on that.
            if wait >= Duration::from_millis(order.deadline_ms) {
                return Ok(reply((408, about(&order))));
            }
            Ok(reply(carry_out()?))
        }
        Some(Trouble::Answer { status, body }) => {
            carry_out()?;
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            Ok((status, body).into_response())
        }
        Some(Trouble::Busy { retry_after_seconds }) => {
            let mut response =
                reply((503, Answer { reason: Some("there is too much to do".to_owned()), ..about(&order) }));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(retry_after_seconds));
            Ok(response)
        }
        Some(Trouble::UnderWay { questions }) => Ok(reply(receiver.change(|desk| {
            let refusal = desk.books.accept(&order, fences);
            refusal.unwrap_or_else(|| {
                let accepted = (202, about(&order));
                desk.under_way.push((order.clone(), questions));
                accepted
            })
        })?)),
    }
}

async fn find(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let Request::Find(order) = receiver.read(&headers, &body)? else {
        return Err(Refusal::wrong_place());
    };
    let found = receiver.change(|desk| {
        if let Some(at) = desk.under_way.iter().position(|(under_way, _)| under_way.key == order.key) {
            desk.under_way[at].1 = desk.under_way[at].1.saturating_sub(1);
            if desk.under_way[at].1 == 0 {
                let (order, _) = desk.under_way.remove(at);
                desk.books.complete(&order);
            }
        }
        desk.books.find(&order)
    })?;
    Ok(reply(found))
}

async fn fence(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let Request::Fence(fence) = receiver.read(&headers, &body)? else {
        return Err(Refusal::wrong_place());
    };
    if !receiver.shared.options.fences {
        return Err(Refusal::new(501, "this receiver cannot fence".to_owned()));
    }
    Ok(reply(receiver.change(|desk| desk.books.fence(&fence.epoch))?))
}

async fn observe(State(receiver): State<Receiver>, headers: HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let Request::Observe(observe) = receiver.read(&headers, &body)? else {
        return Err(Refusal::wrong_place());
    };
    let observed = receiver.desk().books.observe(&observe.cluster.id);
    Ok(json(200, &observed))
}

async fn capabilities(State(receiver): State<Receiver>, headers: HeaderMap) -> Result<Response, Refusal> {
    receiver.trust(&headers, b"")?;
    let fences = receiver.shared.options.fences;
    let checkpoints = Some(true);
    Ok(json(200, &CapabilitiesBody { fences, visibility_delay_ms: Some(0), calls_max: None, checkpoints }))
}

/// A request that was not looked into.
#[derive(Debug)]
struct Refusal {
    status: u16,
    answer: Box<Answer>,
}

impl Refusal {
    fn new(status: u16, reason: String) -> Self {
        Self { status, answer: Box::new(Answer { reason: Some(reason), ..Answer::default() }) }
    }

    /// A signed body that somebody sent to another endpoint than it was made for.
    fn wrong_place() -> Self {
        Self::new(400, "the request in the body belongs to another endpoint".to_owned())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        json(self.status, &self.answer)
    }
}

fn reply((status, answer): Reply) -> Response {
    json(status, &answer)
}

fn json(status: u16, body: &impl Serialize) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

//! The server of a replica: answers requests, and fails in the ways that a real one does.
//!
//! | path | |
//! |---|---|
//! | `GET /livez` | 200 |
//! | `GET /readyz` | 200, or 503 while it starts, is cordoned, or ends |
//! | `GET /status` | what it is at, as JSON |
//! | `GET /work?ms=250` | a request that takes so long; 503 where `readyz` says so |
//! | `POST /crash?oom=true` | ends this process at once, as if it had run out of memory; without `oom` as if it had panicked |

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::wire::{ToKeeper, ToServer};
use super::{ReplicaOptions, duration};

/// What a container runtime shows for a process that the kernel killed to get memory back.
pub(super) const EXIT_OUT_OF_MEMORY: i32 = 137;
/// What a panic of a Rust program ends with.
const EXIT_CRASHED: i32 = 101;

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// No request takes longer, whatever it asks for.
const WORK_MAX: Duration = Duration::from_secs(600);

/// How long a keeper that takes no notice may hold up the end of a server.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Server {
    objects: u64,
    hydrated: AtomicU64,
    is_started: AtomicBool,
    is_cordoned: AtomicBool,
    is_ending: AtomicBool,
    finished: AtomicU64,
    in_flight: watch::Sender<u64>,
}

/// One request, from being taken to being answered or given up by whoever asked.
struct Request(Arc<Server>);

impl Request {
    fn begin(server: &Arc<Server>) -> Request {
        server.in_flight.send_modify(|count| *count += 1);
        Request(Arc::clone(server))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::SeqCst);
        self.0.in_flight.send_modify(|count| *count -= 1);
    }
}

impl Server {
    fn takes_work(&self) -> bool {
        self.is_started.load(Ordering::SeqCst)
            && !self.is_cordoned.load(Ordering::SeqCst)
            && !self.is_ending.load(Ordering::SeqCst)
    }

    fn status(&self) -> ToKeeper {
        let hydrated = self.hydrated.load(Ordering::SeqCst);
        ToKeeper::Status { ready: self.is_started.load(Ordering::SeqCst), hydrated }
    }

    /// Waits until no request is in flight, or the deadline; answers how many have finished meanwhile and how many have not.
    async fn drained(&self, deadline: Duration) -> (u64, u64) {
        let before = self.finished.load(Ordering::SeqCst);
        let mut in_flight = self.in_flight.subscribe();
        let left = match timeout(deadline, in_flight.wait_for(|count| *count == 0)).await {
            Ok(_) => 0,
            Err(_) => *self.in_flight.borrow(),
        };
        (self.finished.load(Ordering::SeqCst) - before, left)
    }
}

pub(super) async fn serve(options: &ReplicaOptions, keeper: i32) -> std::io::Result<()> {
    // Whatever happens to the keeper happens to its server: nothing answers in the name of a replica that is gone.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // It may have died before the line above.
    if getppid().as_raw() != keeper {
        return Ok(());
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let listener = listen(options.port).await?;
    let address = listener.local_addr()?.to_string();
    let server = Arc::new(Server {
        objects: options.objects,
        hydrated: AtomicU64::new(0),
        is_started: AtomicBool::new(false),
        is_cordoned: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
        finished: AtomicU64::new(0),
        in_flight: watch::Sender::new(0),
    });
    let (to_keeper, messages) = mpsc::unbounded_channel();
    let _ = to_keeper.send(ToKeeper::Listening { address });
    let speaking = tokio::spawn(speak(messages));
    tokio::spawn(come_up(Arc::clone(&server), options.clone(), to_keeper.clone()));
    let drain_deadline = duration(options.drain_deadline);
    let listening = tokio::spawn(listen_to_keeper(Arc::clone(&server), drain_deadline, to_keeper));
    let ending = Arc::clone(&server);
    let shutdown = async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            // The keeper has closed its end.
            _ = listening => {}
        }
        ending.is_ending.store(true, Ordering::SeqCst);
    };
    axum::serve(listener, router(Arc::clone(&server))).with_graceful_shutdown(shutdown).await?;
    speaking.abort();
    // A message that is half written is taken for none; this only spares the keeper a word about it.
    let _ = timeout(LAST_WORDS, speaking).await;
    Ok(())
}

async fn listen(port: u16) -> std::io::Result<TcpListener> {
    let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(at(port)).await {
        Err(error) if port != 0 && error.kind() == std::io::ErrorKind::AddrInUse => TcpListener::bind(at(0)).await,
        bound => bound,
    }
}

async fn speak(mut messages: mpsc::UnboundedReceiver<ToKeeper>) {
    let mut out = tokio::io::stdout();
    while let Some(message) = messages.recv().await {
        let Ok(mut line) = serde_json::to_string(&message) else { continue };
        line.push('\n');
        if out.write_all(line.as_bytes()).await.is_err() || out.flush().await.is_err() {
            return;
        }
    }
}

/// Ready after the start-up delay, and hydrated step by step from there. What a checkpoint held is there at once.
async fn come_up(server: Arc<Server>, options: ReplicaOptions, to_keeper: mpsc::UnboundedSender<ToKeeper>) {
    sleep(duration(options.startup_delay)).await;
    server.is_started.store(true, Ordering::SeqCst);
    let (start, whole) = (Instant::now(), duration(options.hydration_time));
    let kept = options.hydrated.min(server.objects);
    loop {
        let passed = start.elapsed();
        let hydrated = if passed >= whole {
            server.objects
        } else {
            let share = u128::from(server.objects - kept) * passed.as_nanos() / whole.as_nanos().max(1);
            u64::try_from(share).map_or(server.objects, |share| kept + share)
        };
        server.hydrated.store(hydrated, Ordering::SeqCst);
        if to_keeper.send(server.status()).is_err() || hydrated == server.objects {
            return;
        }
        sleep_until((Instant::now() + PROGRESS_EVERY).min(start + whole)).await;
    }
}

async fn listen_to_keeper(server: Arc<Server>, drain_deadline: Duration, to_keeper: mpsc::UnboundedSender<ToKeeper>) {
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        match serde_json::from_str(&line) {
            Ok(ToServer::Cordon) => server.is_cordoned.store(true, Ordering::SeqCst),
            Ok(ToServer::Uncordon) => server.is_cordoned.store(false, Ordering::SeqCst),
            Ok(ToServer::Drain) => {
                server.is_cordoned.store(true, Ordering::SeqCst);
                let (server, to_keeper) = (Arc::clone(&server), to_keeper.clone());
                tokio::spawn(async move {
                    let (moved, left) = server.drained(drain_deadline).await;
                    let _ = to_keeper.send(ToKeeper::Drained { moved, left });
                });
            }
            Err(error) => tracing::warn!(%error, line, "the keeper said something that is not understood"),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Work {
    #[serde(default)]
    ms: u64,
}

#[derive(Debug, Deserialize)]
struct Crash {
    #[serde(default)]
    oom: bool,
}

fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/status", get(status))
        .route("/work", get(work).post(work))
        .route("/crash", post(crash))
        .with_state(server)
}

async fn readyz(State(server): State<Arc<Server>>) -> (StatusCode, &'static str) {
    if server.takes_work() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "takes no requests\n")
    }
}

async fn status(State(server): State<Arc<Server>>) -> String {
    let status = serde_json::json!({
        "ready": server.is_started.load(Ordering::SeqCst),
        "cordoned": server.is_cordoned.load(Ordering::SeqCst),
        "objects_total": server.objects,
        "objects_hydrated": server.hydrated.load(Ordering::SeqCst),
        "requests_in_flight": *server.in_flight.borrow(),
        "requests_finished": server.finished.load(Ordering::SeqCst),
    });
    format!("{status}\n")
}

async fn work(State(server): State<Arc<Server>>, Query(work): Query<Work>) -> (StatusCode, &'static str) {
    // Counted first: a drain that begins in between waits for it, or this request sees the cordon.
    let _request = Request::begin(&server);
    if !server.takes_work() {
        return (StatusCode::SERVICE_UNAVAILABLE, "takes no requests\n");
    }
    sleep(Duration::from_millis(work.ms).min(WORK_MAX)).await;
    (StatusCode::OK, "done\n")
}

async fn crash(Query(crash): Query<Crash>) {
    std::process::exit(if crash.oom { EXIT_OUT_OF_MEMORY } else { EXIT_CRASHED });
}

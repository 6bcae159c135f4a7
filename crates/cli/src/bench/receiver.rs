//! A webhook receiver inside the benchmark, which notes when it is called: the smallest that keeps the contract in memory.
//!
//! It speaks just enough HTTP/1.1 for our own nodes, and looks at no signature: it listens on loopback for one run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::exit::Failed;

/// A request that is larger is not one of ours.
const BODY_BYTES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) url: String,
    calls: Arc<Calls>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Calls {
    books: Mutex<Books>,
    /// Counts the orders.
    arrived: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Books {
    /// By the name of the cluster: when its first order arrived.
    first: BTreeMap<String, Instant>,
    /// By the id of the cluster: name and size of what was created.
    replicas: BTreeMap<String, Vec<(String, String)>>,
}

impl Receiver {
    pub(super) async fn start() -> Result<Receiver, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let calls: Arc<Calls> = Arc::default();
        let serving = tokio::spawn(accept(listener, Arc::clone(&calls)));
        Ok(Receiver { url, calls, serving })
    }

    /// What a node must be told to call here.
    pub(super) fn config(&self, secret_file: &std::path::Path) -> String {
        format!(
            "[backends.bench]\nkind = \"webhook\"\nurl = \"{}\"\nsecret_file = \"{}\"\nfences = true\n\
             visibility_delay = \"0s\"\ncalls_max = 64\nobserve_every = \"1h\"\n",
            self.url,
            secret_file.display()
        )
    }

    /// When the first order about this cluster arrived; waits for it.
    pub(super) async fn called(&self, cluster: &str) -> Instant {
        let mut arrived = self.calls.arrived.subscribe();
        loop {
            arrived.borrow_and_update();
            if let Some(at) = self.calls.books().first.get(cluster) {
                return *at;
            }
            if arrived.changed().await.is_err() {
                // The receiver is gone, and with it the benchmark.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Calls {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, path: &str, body: &Value, at: Instant) -> (u16, Value) {
        let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        match path {
            "/execute" => {
                let (key, id, name) = (text("/key"), text("/cluster/id"), text("/cluster/name"));
                let (replica, size) = (text("/call/replica"), text("/call/size"));
                let mut books = self.books();
                books.first.entry(name).or_insert(at);
                let there = books.replicas.entry(id).or_default();
                there.retain(|(known, _)| *known != replica);
                if text("/call/type") != "drop_replica" {
                    there.push((replica, size));
                }
                drop(books);
                self.arrived.send_modify(|count| *count += 1);
                (200, json!({ "key": key, "incarnation": "1" }))
            }
            "/find" => (404, json!({ "key": text("/key") })),
            "/fence" => (200, json!({ "highest": text("/epoch") })),
            "/observe" => {
                let id = text("/cluster/id");
                let there = self.books().replicas.get(&id).cloned().unwrap_or_default();
                let shown = there
                    .iter()
                    .map(|(name, size)| json!({ "name": name, "size": size, "incarnation": "1", "ready": true }));
                (200, json!({ "cluster": id, "replicas": shown.collect::<Vec<_>>() }))
            }
            _ => (200, json!({ "fences": true, "visibility_delay_ms": 0, "calls_max": 64 })),
        }
    }
}

async fn accept(listener: TcpListener, calls: Arc<Calls>) {
    while let Ok((connection, _)) = listener.accept().await {
        let _ = connection.set_nodelay(true);
        // A connection that breaks is the node's business.
        tokio::spawn(serve(connection, Arc::clone(&calls)));
    }
}

async fn serve(connection: TcpStream, calls: Arc<Calls>) -> std::io::Result<()> {
    let (reading, mut writing) = connection.into_split();
    let mut reading = BufReader::new(reading);
    loop {
        let Some((path, bytes)) = head(&mut reading).await? else { return Ok(()) };
        let at = Instant::now();
        let mut body = vec![0; bytes.min(BODY_BYTES_MAX)];
        reading.read_exact(&mut body).await?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, answer) = calls.answer(&path, &body, at);
        let answer = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        writing.write_all(format!("{head}{answer}").as_bytes()).await?;
    }
}

/// Path and length of the next request; nothing at the end of the connection.
async fn head(reading: &mut (impl AsyncBufReadExt + Unpin)) -> std::io::Result<Option<(String, usize)>> {
    let mut line = String::new();
    if reading.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut bytes = 0;
    loop {
        line.clear();
        if reading.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            return Ok(Some((path, bytes)));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            bytes = value.trim().parse().unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn ask(receiver: &Receiver, path: &str, body: &Value) -> String {
        let address = receiver.url.trim_start_matches("http://");
        let mut connection = TcpStream::connect(address).await.expect("connected");
        let body = body.to_string();
        let request = format!("POST {path} HTTP/1.1\r\nhost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        connection.write_all(request.as_bytes()).await.expect("sent");
        connection.shutdown().await.expect("no more");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("an answer");
        answer
    }

    #[tokio::test]
    async fn an_order_is_answered_with_its_key_noted_and_seen_afterwards() {
        let receiver = Receiver::start().await.expect("started");
        let began = Instant::now();
        let order = json!({
            "key": "k1", "cluster": { "id": "c1", "name": "shop" },
            "call": { "type": "create_replica", "replica": "r1_auto", "size": "25cc" },
        });
        assert!(ask(&receiver, "/execute", &order).await.contains("\"key\":\"k1\""));
        assert!(receiver.called("shop").await >= began);
        let seen = ask(&receiver, "/observe", &json!({ "cluster": { "id": "c1" } })).await;
        assert!(seen.contains("r1_auto") && seen.contains("25cc"), "{seen}");
        assert!(ask(&receiver, "/fence", &json!({ "epoch": "7" })).await.contains("\"highest\":\"7\""));
    }
}

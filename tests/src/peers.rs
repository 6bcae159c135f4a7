//! Real peers that signals come from: a Prometheus with something to scrape, a NATS server, a PostgreSQL server. On loopback, each in a
//! folder of its own, ended with the value that stands for it.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::ask::PATIENCE;
use crate::eventually;

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A process that ends with this value.
#[derive(Debug)]
struct Process {
    child: Child,
}

impl Process {
    fn start(command: &mut Command, log: &Path) -> Result<Process> {
        let log = std::fs::File::create(log)?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("{command:?} does not start; is it installed?"))?;
        Ok(Process { child })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn reachable(what: &str, port: u16) -> Result<()> {
    let up = async || TcpStream::connect(("127.0.0.1", port)).await.ok();
    eventually(&format!("{what} listens"), PATIENCE, up).await.map(drop)
}

/// What a Prometheus scrapes: one gauge, `queue_depth`, with a label that names a cluster. And what answers in the place of a
/// Prometheus, for those who count questions.
#[derive(Debug, Clone)]
pub struct Exporter {
    depth: Arc<AtomicI64>,
    asked: Arc<AtomicU64>,
    pub address: SocketAddr,
}

impl Exporter {
    pub async fn start(cluster: &str) -> Result<Exporter> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let exporter = Exporter { depth: Arc::default(), asked: Arc::default(), address: listener.local_addr()? };
        let (shown, cluster) = (exporter.clone(), cluster.to_owned());
        let page = move || {
            let depth = shown.depth.load(Ordering::SeqCst);
            let text = format!("# TYPE queue_depth gauge\nqueue_depth{{cluster=\"{cluster}\"}} {depth}\n");
            async move { text }
        };
        let counting = exporter.clone();
        let query = move || {
            counting.asked.fetch_add(1, Ordering::SeqCst);
            let value = counting.depth.load(Ordering::SeqCst).to_string();
            let series = json!([{"metric": {}, "value": [0, value]}]);
            let answer = json!({"status": "success", "data": {"resultType": "vector", "result": series}});
            async move { answer.to_string() }
        };
        let router = axum::Router::new()
            .route("/metrics", axum::routing::get(page))
            .route("/api/v1/query", axum::routing::get(query));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(exporter)
    }

    pub fn set(&self, depth: i64) {
        self.depth.store(depth, Ordering::SeqCst);
    }

    /// How often somebody asked it as if it were a Prometheus.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

/// A Prometheus that scrapes one exporter every second.
#[derive(Debug)]
pub struct Prometheus {
    _folder: tempfile::TempDir,
    _process: Process,
    pub url: String,
}

impl Prometheus {
    pub async fn start(exporter: &Exporter) -> Result<Prometheus> {
        let folder = tempfile::tempdir()?;
        let port = free_port()?;
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n  - job_name: queue\n    static_configs: [{{targets: ['{}']}}]\n",
            exporter.address
        );
        std::fs::write(folder.path().join("prometheus.yml"), config)?;
        let mut command = Command::new("prometheus");
        command
            .arg(format!("--config.file={}", folder.path().join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::start(&mut command, &folder.path().join("log"))?;
        reachable("Prometheus", port).await?;
        Ok(Prometheus { _folder: folder, _process: process, url: format!("http://127.0.0.1:{port}") })
    }
}

/// A NATS server with JetStream.
#[derive(Debug)]
pub struct Nats {
    _folder: tempfile::TempDir,
    _process: Process,
    port: u16,
}

impl Nats {
    /// With a token that everybody has to show; nothing: whoever comes is welcome.
    pub async fn start(token: Option<&str>) -> Result<Nats> {
        let folder = tempfile::tempdir()?;
        let port = free_port()?;
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(folder.path().join("data"));
        if let Some(token) = token {
            command.args(["--auth", token]);
        }
        let process = Process::start(&mut command, &folder.path().join("log"))?;
        reachable("nats-server", port).await?;
        Ok(Nats { _folder: folder, _process: process, port })
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Asks the server something and gives its answer.
    pub async fn ask(&self, token: Option<&str>, subject: &str, payload: &str) -> Result<Value> {
        let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).await?);
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        ensure!(line.starts_with("INFO"), "{line}");
        let mut connect = json!({"verbose": false, "pedantic": false});
        if let Some(token) = token {
            connect["auth_token"] = token.into();
        }
        let length = payload.len();
        let text = format!("CONNECT {connect}\r\nSUB answer 1\r\nPUB {subject} answer {length}\r\n{payload}\r\n");
        stream.write_all(text.as_bytes()).await?;
        let answer = async {
            loop {
                line.clear();
                if stream.read_line(&mut line).await? == 0 {
                    bail!("the server has hung up");
                }
                if line.starts_with("-ERR") {
                    bail!("{line}");
                }
                if let Some(rest) = line.strip_prefix("MSG ") {
                    let size: usize = rest.split_whitespace().next_back().context("a size")?.parse()?;
                    let mut body = vec![0; size];
                    stream.read_exact(&mut body).await?;
                    return Ok(serde_json::from_slice(&body)?);
                }
            }
        };
        let answer: Value = tokio::time::timeout(PATIENCE, answer).await.context("no answer")??;
        ensure!(answer.get("error").is_none(), "{subject}: {answer}");
        Ok(answer)
    }

    /// A stream of jobs and a consumer that reads none of them by itself.
    pub async fn make_stream(&self, token: Option<&str>, stream: &str, consumer: &str) -> Result<()> {
        let config = json!({"name": stream, "subjects": [format!("{stream}.>")], "storage": "memory"});
        self.ask(token, &format!("$JS.API.STREAM.CREATE.{stream}"), &config.to_string()).await?;
        let config = json!({"stream_name": stream, "config": {"durable_name": consumer, "ack_policy": "explicit"}});
        let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{consumer}");
        self.ask(token, &subject, &config.to_string()).await.map(drop)
    }

    pub async fn publish(&self, token: Option<&str>, stream: &str, count: usize) -> Result<()> {
        for number in 0..count {
            self.ask(token, &format!("{stream}.job"), &number.to_string()).await?;
        }
        Ok(())
    }

    pub async fn purge(&self, token: Option<&str>, stream: &str) -> Result<()> {
        self.ask(token, &format!("$JS.API.STREAM.PURGE.{stream}"), "").await.map(drop)
    }
}

/// A PostgreSQL server that asks for a password.
#[derive(Debug)]
pub struct Postgres {
    folder: tempfile::TempDir,
    binaries: PathBuf,
    account: Option<(u32, u32)>,
    process: Option<Child>,
    pub port: u16,
}

impl Postgres {
    pub async fn start(password: &str) -> Result<Postgres> {
        let binaries = binaries()?;
        let account = account()?;
        let folder = tempfile::Builder::new().prefix("loadline-pg-").tempdir()?;
        let word = folder.path().join("word");
        std::fs::write(&word, password)?;
        if let Some((user, group)) = account {
            chown(folder.path(), Some(user), Some(group))?;
            chown(&word, Some(user), Some(group))?;
        }
        let mut server = Postgres { folder, binaries, account, process: None, port: free_port()? };
        let data = server.folder.path().join("data");
        let made = server
            .command("initdb")
            .args(["--auth=scram-sha-256", "--username=loadline", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .arg(format!("--pwfile={}", word.display()))
            .arg("-D")
            .arg(&data)
            .output()?;
        ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        let log = std::fs::File::create(server.folder.path().join("log"))?;
        let mut command = server.command("postgres");
        command.arg("-D").arg(&data).arg("-k").arg(server.folder.path());
        command.args(["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", &format!("port={}", server.port)]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        server.process = Some(command.spawn()?);
        let port = server.port.to_string();
        eventually("PostgreSQL is ready", PATIENCE, async || {
            let asked = server.command("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port]).status().ok()?;
            asked.success().then_some(())
        })
        .await?;
        Ok(server)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.binaries.join(program));
        command.current_dir(self.folder.path());
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    pub fn run(&self, password: &str, sql: &str) -> Result<()> {
        let mut command = self.command("psql");
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "loadline", "-d", "postgres", "-q", "-c"]);
        let output = command.arg(sql).env("PGPASSWORD", password).output()?;
        ensure!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(mut child) = self.process.take() else { return };
        // Its children end with it only if it may end them.
        if let Ok(pid) = i32::try_from(child.id()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGINT);
        }
        for _ in 0..100 {
            if matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn binaries() -> Result<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut versions: Vec<(u32, PathBuf)> = installed
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, path)| path.join("initdb").is_file())
        .collect();
    versions.sort();
    Ok(versions.pop().context("PostgreSQL is not installed: apt-get install postgresql")?.1)
}

/// PostgreSQL does not run as root. The account that its package makes is the one to run it as.
fn account() -> Result<Option<(u32, u32)>> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let user = nix::unistd::User::from_name("postgres")?.context("there is no account `postgres`")?;
    Ok(Some((user.uid.as_raw(), user.gid.as_raw())))
}

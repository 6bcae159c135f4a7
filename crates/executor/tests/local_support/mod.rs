//! A folder with local replicas that goes away with them, and processes that do not outlive their test.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use loadline_executor::backends::local::{LocalBackend, LocalConfig};
use loadline_executor::{Backend, CallError, ClusterAddress, Found, ObservedReplica, Order};
use loadline_state_machine::{Call, ClusterId, Epoch, Hash, LogIndex, ReplicaLife, ReplicaSpec, Report};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_local-test-program");
/// Slow machines are slow: what takes longer is taken for something that does not happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const CLUSTER: ClusterId = ClusterId { index: LogIndex(7), ordinal: 0 };

/// Waits for something to become true, and says what it waited for if it does not.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let by = Instant::now() + PATIENCE;
    while Instant::now() < by {
        if let Some(seen) = look().await {
            return seen;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within {PATIENCE:?}");
}

pub(crate) fn epoch(index: u64) -> Epoch {
    Epoch { incarnation: 1, index: LogIndex(index) }
}

/// The folder of a machine. When it goes, whatever runs from it goes.
#[derive(Debug)]
pub(crate) struct Machine {
    folder: TempDir,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        Machine { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn config(&self) -> LocalConfig {
        let mut config = LocalConfig::new(self.path());
        config.program = Some(PathBuf::from(PROGRAM));
        config.startup_delay = Duration::from_millis(20);
        config.hydration_time = Duration::from_millis(50);
        config.terminate_grace = Duration::from_millis(500);
        config.drain_deadline = Duration::from_secs(10);
        config.restart_after = Duration::from_millis(100);
        config
    }

    /// One of the nodes on this machine.
    pub(crate) fn node(&self) -> Arc<LocalBackend> {
        self.node_with(|_| {})
    }

    pub(crate) fn node_with(&self, change: impl FnOnce(&mut LocalConfig)) -> Arc<LocalBackend> {
        let mut config = self.config();
        change(&mut config);
        Arc::new(LocalBackend::new(config).expect("a backend"))
    }

    pub(crate) fn life(&self, name: &str) -> Value {
        let path = self.path().join("replicas").join(CLUSTER.to_string()).join(name).join("life.json");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    pub(crate) fn pid(&self, name: &str, which: &str) -> Option<i32> {
        i32::try_from(self.life(name)[which]["pid"].as_i64()?).ok()
    }

    /// Keepers that run from this folder, whatever any file says.
    pub(crate) fn keepers(&self) -> Vec<i32> {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.filter(|pid| self.is_keeper(*pid)).collect()
    }

    fn is_keeper(&self, pid: i32) -> bool {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        let folder = format!("--folder={}", self.path().display());
        words.contains(&b"replica".as_slice())
            && words.contains(&folder.as_bytes())
            && !words.iter().any(|word| word.starts_with(b"--keeper="))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Those that were stopped would not notice that their folder goes.
        for pid in self.keepers() {
            signal(pid, Signal::SIGKILL);
        }
    }
}

pub(crate) fn signal(pid: i32, what: Signal) {
    let _ = kill(Pid::from_raw(pid), what);
}

/// As `ps` shows it: R, S, T, Z, or nothing if there is no such process.
pub(crate) fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn cluster() -> ClusterAddress {
    ClusterAddress { id: CLUSTER, name: "test".to_owned() }
}

pub(crate) fn order(key: &str, index: u64, attempt: u32, call: Call) -> Order {
    let parameters = Hash::of(call.to_string().as_bytes());
    Order { key: key.to_owned(), epoch: epoch(index), attempt, parameters, cluster: cluster(), call }
}

pub(crate) fn create(name: &str) -> Call {
    create_of(name, "25cc")
}

pub(crate) fn create_of(name: &str, size: &str) -> Call {
    Call::CreateReplica(ReplicaSpec { name: name.into(), size: size.into() })
}

pub(crate) fn life(name: &str, report: &Report) -> ReplicaLife {
    ReplicaLife { name: name.into(), size: "25cc".into(), incarnation: Some(incarnation(report).as_str().into()) }
}

pub(crate) fn incarnation(report: &Report) -> String {
    match report {
        Report::Created { incarnation: Some(incarnation) } => incarnation.clone(),
        other => panic!("not a life: {other:?}"),
    }
}

pub(crate) async fn seen(node: &LocalBackend) -> Vec<ObservedReplica> {
    node.observe(&cluster()).await.expect("a look")
}

pub(crate) async fn sees_one(
    node: &LocalBackend,
    what: &str,
    is_it: impl Fn(&ObservedReplica) -> bool,
) -> ObservedReplica {
    until(what, async || match seen(node).await.as_slice() {
        [one] if is_it(one) => Some(one.clone()),
        _ => None,
    })
    .await
}

pub(crate) async fn found(node: &LocalBackend, order: &Order) -> Found {
    node.find(order).await.expect("an answer")
}

pub(crate) fn refused(answer: &Result<Report, CallError>) -> &str {
    match answer {
        Err(CallError::Refused { reason, .. }) => reason,
        other => panic!("not refused: {other:?}"),
    }
}

/// A node in a process of its own, which gives one order. Killed when the test ends, however it ends.
#[derive(Debug)]
pub(crate) struct Sender {
    child: Child,
}

impl Sender {
    pub(crate) fn start(machine: &Machine, order: &Order, more: &[&str]) -> Sender {
        let words = [
            format!("--folder={}", machine.path().display()),
            format!("--cluster={}", order.cluster.id),
            format!("--key={}", order.key),
            format!("--epoch={}", order.epoch.index),
            format!("--attempt={}", order.attempt),
            format!("--name={}", order.call.replica()),
            format!("--size={}", order.call.size()),
        ];
        let drop = match &order.call {
            Call::DropReplica(life) => life.incarnation.as_ref().map(|it| format!("--drop={it}")),
            _ => None,
        };
        let mut command = Command::new(PROGRAM);
        command.arg("order").args(words).args(drop).args(more).stdout(Stdio::piped());
        Sender { child: command.spawn().expect("a sender") }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    pub(crate) async fn is_stopped(&self) {
        until("the sender stops", async || (state_of(self.pid()) == Some('T')).then_some(())).await;
    }

    pub(crate) fn goes_on(&self) {
        signal(self.pid(), Signal::SIGCONT);
    }

    /// What it was answered, in words; nothing if it was killed before.
    pub(crate) async fn ends(mut self) -> String {
        until("the sender ends", async || self.child.try_wait().expect("a child")).await;
        let mut said = String::new();
        self.child.stdout.take().expect("its output").read_to_string(&mut said).expect("text");
        said.trim().to_owned()
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request, and the whole answer.
pub(crate) async fn request(address: &str, words: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{words} HTTP/1.1\r\nhost: replica\r\nconnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

//! One node that the supervisor looks after: its process, and when to start it again.

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::layout::Place;
use super::replicas;
use super::state::NodeState;
use crate::exit::{Exit, Failed};

/// A node that died is started again after this long, then twice as long, and so on. Long enough for the others to elect a
/// new leader: one that is back before they have noticed takes its old place, and nobody sees a failover.
const RESTART_FIRST: Duration = Duration::from_millis(1200);
const RESTART_MAX: Duration = Duration::from_secs(5);
/// One that has lived this long died of something new.
const LIVED: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct DevNode {
    pub(super) place: Place,
    pub(super) data_dir: PathBuf,
    pub(super) log: PathBuf,
    /// What it is told in a file: only a file has tables.
    config: PathBuf,
    life: Life,
    /// Deaths in a row.
    deaths: u32,
    /// How long the log was when the process was started: what comes after is its own.
    log_start: u64,
}

#[derive(Debug)]
enum Life {
    Runs { child: Child, since: Instant },
    Down { until: Instant },
}

/// What became of a node.
#[derive(Debug)]
pub(super) enum Fate {
    Died {
        pid: i32,
        status: ExitStatus,
        again_in: Duration,
    },
    /// It has been down long enough.
    Due,
}

impl DevNode {
    /// Not started yet.
    pub(super) fn new(place: Place, folder: &Path) -> Result<DevNode, Failed> {
        let home = folder.join(&place.name);
        std::fs::create_dir_all(&home)
            .map_err(|error| Failed::new(Exit::Failure, format!("{} cannot be made: {error}", home.display())))?;
        // Beside the data, not in it: a node refuses a folder with foreign files.
        let (data_dir, log, config) = (home.join("data"), home.join("node.log"), home.join("node.toml"));
        replicas::write_config(&config, folder)?;
        Ok(DevNode {
            place,
            data_dir,
            log,
            config,
            life: Life::Down { until: Instant::now() },
            deaths: 0,
            log_start: 0,
        })
    }

    pub(super) fn start(&mut self, peers: &[String], supervisor: i32) -> Result<(), Failed> {
        let cannot = |what: &str, error: &std::io::Error| {
            Failed::new(Exit::Failure, format!("{} cannot be started: {what}: {error}", self.place.name))
        };
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.map_err(|error| cannot(&self.log.display().to_string(), &error))?;
        self.log_start = log.metadata().map(|metadata| metadata.len()).unwrap_or_default();
        let log_too = log.try_clone().map_err(|error| cannot("its log", &error))?;
        let binary = std::env::current_exe().map_err(|error| cannot("this binary", &error))?;
        let mut command = Command::new(binary);
        command
            .arg("serve")
            .arg("--config")
            .arg(&self.config)
            .args(["--name", &self.place.name])
            .arg("--data-dir")
            .arg(&self.data_dir)
            .args(["--grpc-listen", &self.place.grpc()])
            .args(["--http-listen", &self.place.http()])
            .args(["--pg-listen", &self.place.pg()])
            .args(["--advertise", &self.place.grpc()])
            .args(["--peers", &peers.join(",")])
            .args(["--shutdown-grace", "3s"])
            .args(["--supervisor", &supervisor.to_string()])
            // This would make another node of it; what else is in the environment may be meant for it.
            .env_remove("LOADLINE_JOIN")
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too)
            // Ctrl-C at the terminal is for the supervisor, which then stops the nodes in good order.
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn().map_err(|error| cannot("its process", &error))?;
        self.life = Life::Runs { child, since: Instant::now() };
        Ok(())
    }

    pub(super) fn pid(&self) -> Option<i32> {
        match &self.life {
            Life::Runs { child, .. } => child.id().and_then(|pid| i32::try_from(pid).ok()),
            Life::Down { .. } => None,
        }
    }

    /// Waits until it dies, or until it is due to be started again. Nothing is lost if this is dropped half-way.
    pub(super) async fn fate(&mut self) -> Result<Fate, Failed> {
        let pid = self.pid().unwrap_or_default();
        match &mut self.life {
            Life::Down { until } => {
                tokio::time::sleep_until(*until).await;
                Ok(Fate::Due)
            }
            Life::Runs { child, since } => {
                let status = child.wait().await?;
                self.deaths = if since.elapsed() > LIVED { 1 } else { self.deaths + 1 };
                let again_in = RESTART_FIRST.saturating_mul(1 << (self.deaths - 1).min(10)).min(RESTART_MAX);
                self.life = Life::Down { until: Instant::now() + again_in };
                Ok(Fate::Died { pid, status, again_in })
            }
        }
    }

    /// Only ever to a process that is our own child and has not been waited for, so the number is surely its own.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Waits for the end of a node that was told to stop.
    pub(super) async fn gone(&mut self) {
        if let Life::Runs { child, .. } = &mut self.life {
            let _ = child.wait().await;
            self.life = Life::Down { until: Instant::now() };
        }
    }

    pub(super) fn state(&self) -> NodeState {
        NodeState {
            name: self.place.name.clone(),
            pid: self.pid(),
            grpc: self.place.grpc(),
            http: self.place.http(),
            pg: self.place.pg(),
            data_dir: self.data_dir.clone(),
            log: self.log.clone(),
        }
    }

    /// The last few lines that it wrote, for a node that does not come up.
    pub(super) fn last_words(&self) -> String {
        let tail = || -> std::io::Result<String> {
            let mut file = std::fs::File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(self.log_start.max(length.saturating_sub(4096))))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = tail().unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(8).collect();
        lines.into_iter().rev().map(|line| format!("\n  {line}")).collect()
    }
}

//! Processes that a benchmark starts on loopback, in a folder that goes with it. They do not outlive it.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};

use crate::exit::{Exit, Failed};

/// A killed process is gone within this, or the disk hangs.
const GONE_WITHIN: Duration = Duration::from_secs(2);

/// One process, with what it says in a file.
#[derive(Debug)]
pub(super) struct Running {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Running {
    /// `command` gets its arguments from the caller, and its streams from here.
    pub(super) fn start(name: &str, mut command: Command, folder: &Path) -> Result<Running, Failed> {
        let cannot = |error: std::io::Error| Failed::new(Exit::Failure, format!("{name} cannot be started: {error}"));
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).map_err(cannot)?;
        let file_too = file.try_clone().map_err(cannot)?;
        command.stdin(Stdio::null()).stdout(file).stderr(file_too).process_group(0).kill_on_drop(true);
        let child = command.spawn().map_err(cannot)?;
        Ok(Running { name: name.to_owned(), log, child })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// `kill -9`, and waits until it is gone.
    pub(super) async fn kill(&mut self) -> Result<(), Failed> {
        self.child.kill().await?;
        Ok(())
    }

    /// An error with its last words, if it has ended by itself.
    pub(super) fn check(&mut self) -> Result<(), Failed> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let text = std::fs::read_to_string(&self.log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().rev().take(5).collect();
                let said: String = lines.into_iter().rev().map(|line| format!("\n  {line}")).collect();
                Err(Failed::new(Exit::Failure, format!("{} ended ({status}){said}", self.name)))
            }
        }
    }
}

/// However the benchmark ends: what a process still writes into the folder would keep it from being removed.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < GONE_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A command for a program that would go on if this one were killed: the kernel ends it then, where there is a program that says so.
pub(super) fn bound_to_this(program: &Path) -> Command {
    let Some(setpriv) = on_path("setpriv") else { return Command::new(program) };
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Where a program of this name is.
pub(super) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Ports that are free now. All are held until all are found, so that none comes twice.
pub(super) fn free_ports(count: usize) -> Result<Vec<u16>, Failed> {
    let held: Vec<TcpListener> =
        (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let ports: Result<Vec<u16>, std::io::Error> =
        held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect();
    Ok(ports?)
}

/// A folder of this name in there.
pub(super) fn make_folder(parent: &Path, name: &str) -> Result<PathBuf, Failed> {
    let path = parent.join(name);
    std::fs::create_dir_all(&path)
        .map_err(|error| Failed::new(Exit::Failure, format!("{} cannot be made: {error}", path.display())))?;
    Ok(path)
}

//! A group of real nodes: processes, ports and data folders of their own, on loopback.
//!
//! Not here: what is written to the group (`load`) and what is asked of it (`ask`).

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// What differs between tests; the rest is the product's own default.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Further flags of `loadline serve`, for every node.
    pub flags: Vec<String>,
    /// A program that runs the node, such as `strace` with its flags.
    pub wrapper: Vec<String>,
    /// Further variables for every node.
    pub variables: Vec<(String, String)>,
    /// What every node is told in a file, as TOML: backends, for example.
    pub config: String,
    /// Whether the nodes speak SQL.
    pub sql: bool,
}

impl Options {
    /// Short snapshots and a short log, so that a lagging node needs a snapshot after a few hundred writes.
    pub fn short_log() -> Options {
        let flags = ["--snapshot-every", "200", "--keep-entries", "20"];
        Options { flags: flags.map(String::from).to_vec(), ..Options::default() }
    }
}

/// One node: where it lives, and the process if it runs.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub data: PathBuf,
    pub log: PathBuf,
    pub grpc: String,
    pub http: String,
    /// For SQL; empty if there is none.
    pub pg: String,
    child: Option<Child>,
}

impl Member {
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }
}

/// Three nodes or more. Dropping it ends every process that it started.
#[derive(Debug)]
pub struct Group {
    binary: PathBuf,
    folder: tempfile::TempDir,
    options: Options,
    pub members: Vec<Member>,
    founders: usize,
}

impl Group {
    /// Starts `count` nodes and returns at once; `ask::wait_for_leader` says when they serve.
    pub fn start(binary: &str, count: usize, options: Options) -> Result<Group> {
        let folder = tempfile::tempdir().context("making a folder for the nodes")?;
        let mut group = Group { binary: binary.into(), folder, options, members: Vec::new(), founders: count };
        for number in 1..=count {
            group.prepare(number)?;
        }
        for number in 0..count {
            group.start_member(number)?;
        }
        Ok(group)
    }

    /// Adds a node that joins the running group.
    pub fn join(&mut self) -> Result<usize> {
        self.prepare(self.members.len() + 1)?;
        let number = self.members.len() - 1;
        self.start_member(number)?;
        Ok(number)
    }

    fn prepare(&mut self, number: usize) -> Result<()> {
        let name = format!("n{number}");
        let home = self.folder.path().join(&name);
        std::fs::create_dir_all(&home)?;
        self.members.push(Member {
            data: home.join("data"),
            log: home.join("node.log"),
            grpc: free_address()?,
            http: free_address()?,
            pg: if self.options.sql { free_address()? } else { String::new() },
            name,
            child: None,
        });
        Ok(())
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn binary(&self) -> &Path {
        &self.binary
    }

    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Member::endpoint).collect()
    }

    pub fn by_name(&self, name: &str) -> Result<usize> {
        self.members.iter().position(|member| member.name == name).with_context(|| format!("there is no node {name}"))
    }

    pub fn start_member(&mut self, number: usize) -> Result<()> {
        let founders: Vec<String> = self.members.iter().take(self.founders).map(|member| member.grpc.clone()).collect();
        let joins = number >= self.founders;
        let member = &mut self.members[number];
        if member.child.is_some() {
            bail!("{} runs already", member.name);
        }
        let log = std::fs::OpenOptions::new().create(true).append(true).open(&member.log)?;
        let mut words = self.options.wrapper.clone();
        words.push(self.binary.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("serve").args(["--name", &member.name]);
        command.arg("--data-dir").arg(&member.data);
        command.args(["--grpc-listen", &member.grpc, "--http-listen", &member.http]);
        if !member.pg.is_empty() {
            command.args(["--pg-listen", &member.pg]);
        }
        command.args([if joins { "--join" } else { "--peers" }, &founders.join(",")]);
        command.args(&self.options.flags);
        if !self.options.config.is_empty() {
            let path = member.log.with_file_name("node.toml");
            std::fs::write(&path, &self.options.config)?;
            command.arg("--config").arg(path);
        }
        command.envs(self.options.variables.iter().map(|(name, value)| (name, value)));
        command.env("XDG_CONFIG_HOME", self.folder.path().join("config"));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        member.child = Some(command.spawn().with_context(|| format!("starting {words:?}"))?);
        Ok(())
    }

    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self, number: usize) -> Result<()> {
        self.end(number, Signal::SIGKILL)
    }

    /// Asks the node to stop, and waits until it has.
    pub fn stop(&mut self, number: usize) -> Result<()> {
        self.end(number, Signal::SIGTERM)
    }

    fn end(&mut self, number: usize, signal: Signal) -> Result<()> {
        let member = &mut self.members[number];
        let mut child = member.child.take().with_context(|| format!("{} does not run", member.name))?;
        kill(pid_of(&child)?, signal)?;
        child.wait()?;
        Ok(())
    }

    pub fn pause(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGSTOP)
    }

    pub fn resume(&self, number: usize) -> Result<()> {
        self.signal(number, Signal::SIGCONT)
    }

    fn signal(&self, number: usize, signal: Signal) -> Result<()> {
        let member = &self.members[number];
        let child = member.child.as_ref().with_context(|| format!("{} does not run", member.name))?;
        Ok(kill(pid_of(child)?, signal)?)
    }

    /// The exit code of a node that ended by itself, once it has; `None` while it runs.
    pub fn ended(&mut self, number: usize) -> Result<Option<i32>> {
        let Some(child) = self.members[number].child.as_mut() else { return Ok(None) };
        let Some(status) = child.try_wait()? else { return Ok(None) };
        self.members[number].child = None;
        Ok(Some(status.code().unwrap_or(-1)))
    }

    /// What the node said so far.
    pub fn log_of(&self, number: usize) -> String {
        std::fs::read_to_string(&self.members[number].log).unwrap_or_default()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                // A paused process does not see SIGTERM, and a test that failed has nothing left to lose.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        // Shown only if the test failed: what a passing test prints is thrown away.
        for member in &self.members {
            let log = std::fs::read_to_string(&member.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(25).collect();
            #[expect(clippy::print_stderr, reason = "a failed test shows what its nodes said")]
            {
                eprintln!("--- {} said last:", member.name);
                for line in tail.iter().rev() {
                    eprintln!("{line}");
                }
            }
        }
    }
}

fn pid_of(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

/// An address that was free a moment ago. Nodes need to know each other's before they start.
///
/// Below the range from which the kernel takes ports for outgoing connections: one of those could be given to somebody
/// else between here and the node's own bind.
fn free_address() -> Result<String> {
    for _ in 0..1_000 {
        let port = rand::random_range(10_000..32_000u16);
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok(listener.local_addr()?.to_string());
        }
    }
    bail!("no free port between 10000 and 32000")
}

/// Waits until `condition` gives a value, or says what it waited for.
pub async fn eventually<T>(what: &str, within: Duration, mut condition: impl AsyncFnMut() -> Option<T>) -> Result<T> {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        if let Some(value) = condition().await {
            return Ok(value);
        }
        if tokio::time::Instant::now() > deadline {
            bail!("waited {within:?} in vain: {what}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

//! Runs the real binary with a home of its own.

#![allow(unreachable_pub, reason = "the tests beside it use this")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Groups of `dev` run one after the other: three nodes are plenty for a small machine.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder in which a user works, and the variables that user has set.
#[derive(Debug)]
pub struct Desk {
    folder: tempfile::TempDir,
    variables: Vec<(String, String)>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Desk {
    pub fn new() -> Desk {
        Desk { folder: tempfile::tempdir().expect("a folder"), variables: Vec::new() }
    }

    pub fn with(mut self, variable: &str, value: &str) -> Desk {
        self.variables.push((variable.to_owned(), value.to_owned()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("written");
        self.path(name).display().to_string()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_loadline"));
        command.args(words).current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("XDG_CONFIG_HOME", self.path("config")).env("USER", "ada");
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Ended {
        ended(&self.command(words).output().expect("the binary runs"))
    }

    /// With something on stdin.
    pub fn run_with(&self, words: &[&str], input: &str) -> Ended {
        self.run_as(&[], words, input)
    }

    /// With further variables, and something on stdin.
    pub fn run_as(&self, variables: &[(&str, &str)], words: &[&str], input: &str) -> Ended {
        let mut command = self.command(words);
        command.envs(variables.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        // Whoever needs no input may have ended before it could be written.
        let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
        ended(&child.wait_with_output().expect("it ends"))
    }

    /// Must succeed: what it printed.
    #[track_caller]
    pub fn said(&self, words: &[&str]) -> String {
        let ended = self.run(words);
        assert_eq!(ended.code, 0, "loadline {words:?}: {ended:?}");
        ended.out
    }

    #[track_caller]
    pub fn json(&self, words: &[&str]) -> serde_json::Value {
        let said = self.said(words);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("loadline {words:?}: {error}: {said}"))
    }

    /// Must fail with this code, and say this on stderr. Returns everything that it said there.
    #[track_caller]
    pub fn fails(&self, words: &[&str], code: i32, says: &str) -> String {
        let ended = self.run(words);
        assert_eq!(ended.code, code, "loadline {words:?}: {ended:?}");
        assert!(ended.err.contains(says), "loadline {words:?} does not say {says:?}: {}", ended.err);
        assert!(!ended.err.contains("panicked"), "{}", ended.err);
        ended.err
    }
}

fn ended(output: &std::process::Output) -> Ended {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    Ended { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Waits until `condition` gives a value.
#[track_caller]
pub fn eventually<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < until, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// An address where nobody listens.
pub fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

//! What a node's process asks of the kernel, as `strace` sees it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::group::eventually;

/// `strace` on a running process, until it is finished or dropped.
#[derive(Debug)]
pub struct Strace {
    child: Child,
    file: PathBuf,
}

/// One system call that has returned.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: String,
    /// Everything between the name and the result, buffers included.
    pub arguments: String,
    pub result: String,
    /// Seconds since 1970.
    pub began: f64,
    pub ended: f64,
}

impl Strace {
    /// Attaches to `pid` and waits until calls are being written down.
    pub async fn attach(pid: u32, calls: &str, file: &Path) -> Result<Strace> {
        let mut command = Command::new("strace");
        command.args(["-f", "-yy", "-ttt", "-T", "-s", "8192", "-e", &format!("trace={calls}"), "-o"]);
        command.arg(file).args(["-p", &pid.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().context("starting strace; is it installed?")?;
        let strace = Strace { child, file: file.to_owned() };
        // A node syncs or sends something several times a second, by heartbeats and ticks alone.
        eventually("strace has seen a call", Duration::from_secs(30), async || {
            std::fs::metadata(file).ok().filter(|file| file.len() > 0).map(|_| ())
        })
        .await?;
        Ok(strace)
    }

    /// Detaches, and returns what was seen in order of return.
    pub fn finish(mut self) -> Result<Vec<Call>> {
        // SIGINT makes it detach and write everything down; the traced process goes on.
        kill(Pid::from_raw(i32::try_from(self.child.id())?), Signal::SIGINT)?;
        self.child.wait()?;
        parse(&std::fs::read_to_string(&self.file)?)
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Joins calls that strace wrote in two halves, because another thread's came in between.
fn parse(text: &str) -> Result<Vec<Call>> {
    let mut calls = Vec::new();
    let mut halves: Vec<(&str, f64, &str)> = Vec::new();
    for line in text.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let Some((time, body)) = rest.trim_start().split_once(' ') else { continue };
        let time: f64 = time.parse().with_context(|| format!("a line without a time: {line}"))?;
        if body.starts_with("+++") || body.starts_with("---") {
            continue;
        }
        if let Some(first) = body.strip_suffix(" <unfinished ...>") {
            halves.push((thread, time, first));
        } else if body.starts_with("<... ") {
            let Some(at) = halves.iter().position(|(owner, ..)| *owner == thread) else { continue };
            let (_, began, first) = halves.remove(at);
            let (_, second) = body.split_once(" resumed>").with_context(|| format!("not resumed: {line}"))?;
            calls.extend(call(&format!("{first}{second}"), began, Some(time)));
        } else {
            calls.extend(call(body, time, None));
        }
    }
    if calls.is_empty() {
        bail!("strace saw no call");
    }
    Ok(calls)
}

fn call(body: &str, began: f64, ended: Option<f64>) -> Option<Call> {
    let (name, rest) = body.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(") = ")?;
    let took = result.rsplit_once('<').and_then(|(_, took)| took.trim_end_matches('>').parse().ok()).unwrap_or(0.0);
    let ended = ended.unwrap_or(began + took);
    Some(Call { name: name.into(), arguments: arguments.into(), result: result.into(), began, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_of_a_call_are_joined_across_threads() {
        let text = "7 10.0 fdatasync(4</wal/a> <unfinished ...>\n\
                    8 10.1 sendto(5, \"x) = y\", 6) = 6 <0.5>\n\
                    7 10.3 <... fdatasync resumed>) = 0 <0.3>\n";
        let calls = parse(text).unwrap();
        let seen: Vec<_> = calls.iter().map(|call| (call.name.as_str(), call.began, call.ended)).collect();
        assert_eq!(seen, [("sendto", 10.1, 10.6), ("fdatasync", 10.0, 10.3)]);
        assert_eq!(calls[1].arguments, "4</wal/a>");
        assert!(calls[1].result.starts_with('0'));
    }
}

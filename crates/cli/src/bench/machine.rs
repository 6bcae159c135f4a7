//! What this runs on: a figure without its machine says nothing.

use std::fs;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    cpu: Option<String>,
    cores: usize,
    memory_bytes: Option<u64>,
    /// Of the last minute, when the run began: who else was at work.
    load: Option<f64>,
    os: &'static str,
    arch: &'static str,
    version: &'static str,
    build: &'static str,
}

impl Machine {
    pub(super) fn this() -> Machine {
        let load = fs::read_to_string("/proc/loadavg").ok();
        Machine {
            cpu: line_of("/proc/cpuinfo", "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: line_of("/proc/meminfo", "MemTotal").and_then(|line| kibibytes(&line)),
            load: load.and_then(|text| text.split_whitespace().next()?.parse().ok()),
            os: std::env::consts::OS,
            arch: std::env::consts::ARCH,
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }

    /// Figures of a build for debugging are no figures.
    pub(super) fn is_debug() -> bool {
        cfg!(debug_assertions)
    }

    /// In one line, for people.
    pub(super) fn line(&self) -> String {
        let cpu = self.cpu.as_deref().unwrap_or("unknown processor");
        let load = self.load.map(|load| format!(", load {load}")).unwrap_or_default();
        format!(
            "{cpu}, {} cores, {}-{}{load}, loadline {} ({})",
            self.cores, self.os, self.arch, self.version, self.build
        )
    }
}

/// The memory of this process that is really there; nothing where the system does not say.
pub(super) fn resident_bytes() -> Option<u64> {
    line_of("/proc/self/status", "VmRSS").and_then(|line| kibibytes(&line))
}

/// The same of another process.
pub(super) fn resident_bytes_of(pid: u32) -> Option<u64> {
    line_of(&format!("/proc/{pid}/status"), "VmRSS").and_then(|line| kibibytes(&line))
}

/// How long the threads of another process have been at work.
pub(super) fn worked_of(pid: u32) -> Option<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(i32::try_from(pid).ok()?)).ok()?;
    clock_gettime(clock).ok().map(Duration::from)
}

/// How long this thread has been at work: whoever else uses the machine takes time from us, but not from this figure. Time
/// as it passes where the system does not say.
#[derive(Debug)]
pub(super) struct Stopwatch {
    begin: Instant,
    worked: Option<Duration>,
}

impl Stopwatch {
    pub(super) fn start() -> Stopwatch {
        Stopwatch { begin: Instant::now(), worked: worked() }
    }

    pub(super) fn elapsed(&self) -> Duration {
        match worked().zip(self.worked) {
            Some((now, then)) => now.saturating_sub(then),
            None => self.begin.elapsed(),
        }
    }
}

fn worked() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}

/// What follows `key:` in a file of the system.
fn line_of(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim_start().strip_prefix(':').map(|value| value.trim().to_owned())
}

fn kibibytes(text: &str) -> Option<u64> {
    let number: u64 = text.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

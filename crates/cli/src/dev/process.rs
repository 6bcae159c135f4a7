//! Processes by number, and the proof that a number is still the process that was meant.
//!
//! A number is reused after its process has ended. So a signal goes through a handle on the process itself, and only
//! after what the process was started with has been looked at through that handle's number.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that was seen to be the one that was meant.
#[derive(Debug)]
pub(super) struct Process {
    handle: OwnedFd,
    pid: i32,
}

impl Process {
    /// Nothing if there is no such process, or if `is_it` does not know it by the words it was started with.
    pub(super) fn find(pid: i32, is_it: impl FnOnce(&[OsString]) -> bool) -> Option<Process> {
        // The handle first: whatever is read afterwards is about this process or about none.
        let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let words = words(pid)?;
        let process = Process { handle, pid };
        (is_it(&words) && process.runs()).then_some(process)
    }

    pub(super) fn signal(&self, signal: Signal) -> std::io::Result<()> {
        Ok(pidfd_send_signal(&self.handle, signal)?)
    }

    fn runs(&self) -> bool {
        !self.ends_within(Duration::ZERO)
    }

    /// Waits until it has ended; says whether it has.
    pub(super) fn ends_within(&self, patience: Duration) -> bool {
        let Ok(patience) = Timespec::try_from(patience) else { return false };
        // A handle can be read from when its process has ended.
        let mut handles = [PollFd::new(&self.handle, PollFlags::IN)];
        matches!(poll(&mut handles, Some(&patience)), Ok(1..))
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }
}

/// What a process was started with.
fn words(pid: i32) -> Option<Vec<OsString>> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words: Vec<OsString> =
        bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    // Every word is followed by a zero byte, the last one too.
    words.pop();
    Some(words)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Instant;

    use super::*;

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").spawn().expect("sleep")
    }

    #[test]
    fn a_process_is_found_only_by_what_it_was_started_with() {
        let mut child = sleeper();
        let pid = i32::try_from(child.id()).expect("a pid");
        // The child may still be this test on its way to becoming `sleep`.
        let until = Instant::now() + Duration::from_secs(10);
        let mut found = None;
        while found.is_none() && Instant::now() < until {
            found = Process::find(pid, |words| words.last().is_some_and(|word| word == "60"));
        }
        let found = found.expect("it is there");
        assert!(Process::find(pid, |words| words.iter().any(|word| word == "61")).is_none());
        found.signal(Signal::KILL).expect("killed");
        assert!(found.ends_within(Duration::from_secs(10)));
        child.wait().expect("ended");
        assert!(Process::find(pid, |_| true).is_none());
    }
}

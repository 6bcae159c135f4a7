//! A process, told apart from every other that had or will have its number.

use std::io;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A number and the moment of its start: no two processes have both in common while the machine is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// In clock ticks since the machine came up, as the system counts them.
    started: u64,
}

impl Process {
    /// Nothing if there is no such process.
    pub(super) fn find(pid: i32) -> Option<Process> {
        Some(Process { pid, started: started(pid)? })
    }

    pub(super) fn me() -> Option<Process> {
        Process::find(i32::try_from(std::process::id()).ok()?)
    }

    pub(super) fn is_there(self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Kills this process and never another one that was given its number: the handle is taken first, then it is seen to be the
    /// right one, and the signal goes through the handle.
    pub(super) fn kill(self) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        if !self.is_there() {
            return Ok(());
        }
        match pidfd_send_signal(&handle, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name in brackets that may hold anything, brackets and blanks included.
    let (_, rest) = stat.rsplit_once(") ")?;
    // The start is field 22, and the rest begins with field 3.
    rest.split(' ').nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_number_that_belongs_to_somebody_else_is_not_killed() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let real = Process::find(i32::try_from(child.id()).unwrap()).unwrap();
        let former = Process { started: real.started - 1, ..real };
        assert!(!former.is_there());
        former.kill().unwrap();
        assert!(real.is_there());
        assert!(child.try_wait().unwrap().is_none(), "it was not meant");
        real.kill().unwrap();
        child.wait().unwrap();
        assert!(!real.is_there());
        real.kill().unwrap();
    }
}

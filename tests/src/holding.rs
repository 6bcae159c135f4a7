//! Holding a node at a step on the way of an action, and taking a protection away: what the program under test does when its
//! environment says so, and how a test says it.
//!
//! A node that is held stops its whole process with SIGSTOP, as if the machine had gone to sleep there. The test sees the marker
//! file, and kills it or lets it go on with SIGCONT. Only one node is ever held, and once: whoever makes the marker first.
//!
//! Or only the thread is held that is on that way, until the test makes another file. The node goes on leading meanwhile, so
//! that the test can change something before it stops the process.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use loadline_cli::Hooks;
use loadline_executor::{Step, Witness};
use loadline_mutants::Mutant;
use loadline_state_machine::ActionId;
use nix::sys::signal::{Signal, raise};

use crate::group::eventually;

/// Name of the step, as in `before-call`.
pub const HOLD_STEP: &str = "TEST_HOLD_STEP";
/// The marker: it says which action by which process.
pub const HOLD_FILE: &str = "TEST_HOLD_FILE";
/// If it is set, only the thread is held, until there is such a file.
pub const HOLD_UNTIL: &str = "TEST_HOLD_UNTIL";
/// Names of mutants, with commas between them.
pub const MUTANT: &str = "TEST_MUTANT";

/// The entry point of the program under test.
pub fn main() -> ExitCode {
    if let Err(error) = switch_mutants_on() {
        #[expect(clippy::print_stderr, reason = "there is no other way to say it")]
        {
            eprintln!("{error}");
        }
        return ExitCode::from(2);
    }
    let holds = Hold::of_environment();
    loadline_cli::main_with(&Hooks::with_world(move |mut world| {
        if let Some(hold) = &holds {
            world.witness = Arc::new(hold.clone());
        }
        world
    }))
}

fn switch_mutants_on() -> Result<()> {
    let names = std::env::var(MUTANT).unwrap_or_default();
    for name in names.split(',').filter(|name| !name.is_empty()) {
        name.parse::<Mutant>().with_context(|| format!("{MUTANT}={names}"))?.switch_on();
    }
    Ok(())
}

/// Where to hold, and what to leave behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub step: Step,
    pub marker: PathBuf,
    /// The thread goes on when there is such a file; without it, the process is stopped.
    pub until: Option<PathBuf>,
}

/// What a node that is held has left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub action: String,
    pub pid: u32,
}

impl Hold {
    /// Variables for the nodes of a test.
    pub fn variables(&self) -> Vec<(String, String)> {
        let mut variables = vec![
            (HOLD_STEP.to_owned(), self.step.name().to_owned()),
            (HOLD_FILE.to_owned(), self.marker.display().to_string()),
        ];
        variables.extend(self.until.iter().map(|until| (HOLD_UNTIL.to_owned(), until.display().to_string())));
        variables
    }

    /// Waits until a node is held.
    pub async fn held(&self, within: Duration) -> Result<Held> {
        let what = format!("a node is held {}", self.step.name());
        eventually(&what, within, async || read(&self.marker)).await
    }

    fn of_environment() -> Option<Hold> {
        let name = std::env::var(HOLD_STEP).ok()?;
        let step = Step::ALL.into_iter().find(|step| step.name() == name);
        let step = step.unwrap_or_else(|| panic!("{HOLD_STEP}={name} is no step"));
        let marker = std::env::var_os(HOLD_FILE).unwrap_or_else(|| panic!("{HOLD_STEP} needs {HOLD_FILE}"));
        Some(Hold { step, marker: marker.into(), until: std::env::var_os(HOLD_UNTIL).map(PathBuf::from) })
    }
}

/// The second line is written last, so a marker that has it is whole.
fn read(marker: &Path) -> Option<Held> {
    let text = std::fs::read_to_string(marker).ok()?;
    let mut lines = text.split_terminator('\n').filter(|_| text.ends_with('\n'));
    let (action, pid) = (lines.next()?.to_owned(), lines.next()?.parse().ok()?);
    Some(Held { action, pid })
}

impl Witness for Hold {
    fn reached(&self, step: Step, action: ActionId) -> BoxFuture<'_, ()> {
        if step == self.step
            && let Ok(mut marker) = OpenOptions::new().write(true).create_new(true).open(&self.marker)
            && writeln!(marker, "{action}\n{}", std::process::id()).is_ok()
        {
            match &self.until {
                // Every thread of this process stops here, until somebody sends SIGCONT or SIGKILL.
                None => drop(raise(Signal::SIGSTOP)),
                // No await: the way must go on from here even if the leadership is over, as it would after a real pause.
                Some(until) => {
                    while !until.exists() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            }
        }
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_counts_only_when_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("marker");
        assert_eq!(read(&marker), None);
        for (text, whole) in [("", false), ("a7.0\n", false), ("a7.0\n12", false), ("a7.0\n12\n", true)] {
            std::fs::write(&marker, text).unwrap();
            let held = Held { action: "a7.0".to_owned(), pid: 12 };
            assert_eq!(read(&marker), whole.then_some(held), "{text:?}");
        }
    }
}

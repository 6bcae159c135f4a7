//! A process for each seed.
//!
//! A panic is caught where it can be. One that comes while another is being handled, or from a destructor at the wrong moment,
//! ends its process, and there are assertions below the product that do so when a mutant has broken what they rely on. In
//! a process of its own that is the failure of one seed, and the other seeds go on.

use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loadline_mutants::Mutant;
use loadline_sim::batch::died;
use loadline_sim::invariants::{Violation, named};
use loadline_sim::run::Outcome;

/// A seed takes a second or two. In one that takes so long somebody wakes up without end, and simulated time waits for whoever is busy.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs a seed in a process of its own.
pub(crate) fn run(seed: u64, mutant: Option<Mutant>) -> Outcome {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return died(seed, format!("this program cannot find itself: {error}")),
    };
    let mut child = Command::new(program);
    child.arg("seed").arg(seed.to_string());
    if let Some(mutant) = mutant {
        child.arg("--mutant").arg(mutant.name());
    }
    let child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    match child.and_then(|child| ended(child, PATIENCE)) {
        Ok(Some(output)) => heard(seed, &output),
        Ok(None) => died(seed, format!("it had not ended after {PATIENCE:?}, and was ended")),
        Err(error) => died(seed, format!("its process cannot be started or waited for: {error}")),
    }
}

/// How it ended, and what it said; nothing if it had to be ended.
fn ended(mut child: Child, patience: Duration) -> io::Result<Option<Output>> {
    // What it says is read while it runs: a full pipe would hold it.
    let (stdout, stderr) = (said(child.stdout.take()), said(child.stderr.take()));
    let began = Instant::now();
    while began.elapsed() < patience {
        if let Some(status) = child.try_wait()? {
            let (stdout, stderr) = (stdout.join().unwrap_or_default(), stderr.join().unwrap_or_default());
            return Ok(Some(Output { status, stdout, stderr }));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn said(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks has said what there was to say.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// What a child says of its seed: how long it took and how much was seen, and what does not hold, if anything.
pub(crate) fn told(outcome: &Outcome) -> String {
    let Outcome { took, sightings, allocated, violation, .. } = outcome;
    let mut text = format!("{}\t{sightings}\t{allocated}\n", took.as_micros());
    if let Some(Violation { invariant, at, what }) = violation {
        text.push_str(&format!("{invariant}\t{}\t{}\n", at.as_micros(), what.replace(['\n', '\t'], " ")));
    }
    text
}

fn heard(seed: u64, output: &Output) -> Outcome {
    let text = String::from_utf8_lossy(&output.stdout);
    match understood(seed, &text).filter(|_| output.status.success()) {
        Some(outcome) => outcome,
        None => {
            let last_words = last_words(&String::from_utf8_lossy(&output.stderr));
            died(seed, format!("its process ended with {}: {last_words}", output.status))
        }
    }
}

fn understood(seed: u64, text: &str) -> Option<Outcome> {
    let micros = |text: &str| text.parse().ok().map(Duration::from_micros);
    let mut lines = text.lines();
    let mut figures = lines.next()?.split('\t');
    let (took, sightings, allocated) = (figures.next()?, figures.next()?, figures.next()?);
    let violation = match lines.next() {
        None => None,
        Some(line) => {
            let mut parts = line.splitn(3, '\t');
            let (invariant, at, what) = (parts.next()?, parts.next()?, parts.next()?);
            Some(Violation { invariant: named(invariant)?, at: micros(at)?, what: what.to_owned() })
        }
    };
    let (sightings, allocated) = (sightings.parse().ok()?, allocated.parse().ok()?);
    Some(Outcome { seed, violation, took: micros(took)?, sightings, allocated, trace: Vec::new() })
}

/// The first panic, which brought about the others: where it was, and what it said.
fn last_words(stderr: &str) -> String {
    let from = stderr.lines().skip_while(|line| !line.contains("panicked at"));
    let words: Vec<&str> = from.take(2).map(str::trim).collect();
    if words.is_empty() { "no words".to_owned() } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_says_is_understood_as_it_was_meant() {
        let violation =
            Violation { invariant: "outcomes", at: Duration::from_millis(1_234), what: "two\nlines".into() };
        for violation in [None, Some(violation)] {
            let took = Duration::from_micros(5);
            let outcome = Outcome { seed: 7, violation, took, sightings: 3, allocated: 4, trace: Vec::new() };
            let heard = understood(7, &told(&outcome)).unwrap();
            assert_eq!((heard.seed, heard.took, heard.sightings, heard.allocated), (7, took, 3, 4));
            assert_eq!(heard.violation.is_some(), outcome.violation.is_some());
            if let (Some(heard), Some(meant)) = (heard.violation, outcome.violation) {
                assert_eq!((heard.invariant, heard.at, heard.what.as_str()), (meant.invariant, meant.at, "two lines"));
            }
        }
        assert!(understood(7, "").is_none());
        assert!(understood(7, "5\t3\t4\nnonsense\t1\twhat").is_none());
    }

    #[test]
    fn a_process_that_does_not_end_is_ended_and_one_that_does_is_heard_out() {
        let spawn = |words: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", words]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        assert!(ended(spawn("exec sleep 600"), Duration::from_millis(100)).unwrap().is_none());
        let much = ended(spawn("head -c 300000 /dev/zero; exit 3"), Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!((much.stdout.len(), much.status.code()), (300_000, Some(3)));
    }

    #[test]
    fn of_a_process_that_died_the_first_panic_is_told() {
        let stderr =
            "noise\nthread 'seed 1' panicked at a.rs:1:\nassertion failed\nthread 'seed 1' panicked at b.rs:2:\nx";
        assert_eq!(last_words(stderr), "thread 'seed 1' panicked at a.rs:1: assertion failed");
        assert_eq!(last_words(""), "no words");
    }
}

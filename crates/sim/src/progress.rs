//! How far a batch is: a bar on a terminal, and elsewhere a line now and then, so that a log shows that something happens.

use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Not so often that it fills a log, and often enough that nobody thinks it hangs.
const LINE_EVERY: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    lines: Option<Mutex<Lines>>,
}

#[derive(Debug)]
struct Lines {
    began: Instant,
    told: Instant,
    done: u64,
    failed: u64,
}

impl Progress {
    /// Of so many; nothing: nobody knows how many it will be.
    pub(crate) fn new(seeds: Option<u64>) -> Progress {
        let (bar, template) = match seeds {
            Some(seeds) => (ProgressBar::new(seeds), "{pos}/{len} seeds {wide_bar} {per_sec} {eta}"),
            None => (ProgressBar::no_length(), "{pos} seeds {spinner} {per_sec} {elapsed}"),
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let now = Instant::now();
        let lines = Lines { began: now, told: now, done: 0, failed: 0 };
        let lines = (!std::io::stderr().is_terminal()).then(|| Mutex::new(lines));
        Progress { bar: bar.with_style(style), lines }
    }

    /// One more is done; `failure` is what to say of it.
    pub(crate) fn one(&self, failure: Option<String>) {
        self.bar.inc(1);
        if let Some(lines) = &self.lines {
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.done += 1;
            lines.failed += u64::from(failure.is_some());
            if lines.told.elapsed() >= LINE_EVERY {
                lines.told = Instant::now();
                eprintln!("{} seeds in {} s, {} failed", lines.done, lines.began.elapsed().as_secs(), lines.failed);
            }
        }
        if let Some(failure) = failure {
            self.bar.suspend(|| println!("{failure}"));
        }
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

//! A bar for work that goes through a history: how many entries of how many, and how fast.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work needs no bar, and one that only flashes up disturbs.
const QUIET_FOR: Duration = Duration::from_secs(2);

const COUNTED: &str = "{spinner} {msg} {wide_bar} {human_pos}/{human_len} entries, {per_sec}";
const BYTES: &str = "{spinner} {msg} {wide_bar} {bytes}/{total_bytes}";

/// See the module. Dropping it takes the bar away.
#[derive(Debug)]
pub(crate) struct Meter {
    bar: ProgressBar,
    began: Instant,
    watched: bool,
    shown: Option<&'static str>,
}

impl Meter {
    pub(crate) fn start(watched: bool) -> Meter {
        Meter { bar: ProgressBar::hidden(), began: Instant::now(), watched, shown: None }
    }

    pub(crate) fn entries(&mut self, doing: &'static str, done: u64, total: u64) {
        self.show(doing, COUNTED, done, total);
    }

    pub(crate) fn bytes(&mut self, doing: &'static str, done: u64, total: u64) {
        self.show(doing, BYTES, done, total);
    }

    fn show(&mut self, doing: &'static str, look: &'static str, done: u64, total: u64) {
        if !self.watched || self.began.elapsed() < QUIET_FOR {
            return;
        }
        if self.shown != Some(doing) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template(look) {
                self.bar.set_style(style);
            }
            self.bar.set_message(doing);
            // What was counted before was something else, at another speed.
            self.bar.reset();
            self.shown = Some(doing);
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.tick();
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

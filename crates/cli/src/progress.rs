//! A bar on a terminal for whoever goes through a history: how many entries, and how many a second.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Shorter work needs no bar, and one that only flashes up disturbs.
const QUIET_FOR: Duration = Duration::from_secs(2);
/// Looking at the clock costs more than applying a small entry.
const LOOK_EVERY: u64 = 512;

/// See the module. It vanishes when it is dropped.
#[derive(Debug)]
pub(crate) struct Entries {
    bar: ProgressBar,
    began: Instant,
    count: u64,
    watched: bool,
}

impl Entries {
    /// For so many entries, as far as that is known.
    pub(crate) fn start(what: &str, total: Option<u64>, watched: bool) -> Entries {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden());
        let look = match total {
            Some(_) => "{spinner} {msg} {wide_bar} {human_pos}/{human_len} entries, {per_sec}",
            None => "{spinner} {msg}: {human_pos} entries, {per_sec}",
        };
        let style = ProgressStyle::with_template(look).unwrap_or_else(|_| ProgressStyle::default_bar());
        Entries { bar: bar.with_style(style).with_message(what.to_owned()), began: Instant::now(), count: 0, watched }
    }

    /// One more.
    pub(crate) fn one(&mut self) {
        self.count += 1;
        if self.watched && self.count.is_multiple_of(LOOK_EVERY) {
            if self.bar.is_hidden() && self.began.elapsed() >= QUIET_FOR {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
            }
            self.bar.set_position(self.count);
        }
    }

    /// `1,234 entries in 0.5 s, 2,468 a second`.
    pub(crate) fn sum(&self) -> String {
        let took = self.began.elapsed();
        let rate = u128::from(self.count) * 1_000_000 / took.as_micros().max(1);
        format!("{} entries in {}.{:03} s, {rate} a second", self.count, took.as_secs(), took.subsec_millis())
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

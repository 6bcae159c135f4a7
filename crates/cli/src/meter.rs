//! A bar for work that goes through a history: how many entries of how many, and how fast.

use std::time::{Duration, Instant};

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Shorter work needs no bar, and one that only flashes up disturbs.
const QUIET_FOR: Duration = Duration::from_secs(2);

const COUNTED: &str = "{spinner} {msg} {wide_bar} {human_pos}/{human_len} entries, {rate}";
const CLUSTERS: &str = "{spinner} {msg} {wide_bar} {human_pos}/{human_len}";
const BYTES: &str = "{spinner} {msg} {wide_bar} {bytes}/{total_bytes}";

/// See the module. Dropping it takes the bar away.
#[derive(Debug)]
pub(crate) struct Meter {
    bar: ProgressBar,
    began: Instant,
    watched: bool,
    /// What is being done, and since when.
    doing: Option<(&'static str, Instant)>,
    shown: Option<&'static str>,
}

impl Meter {
    pub(crate) fn start(watched: bool) -> Meter {
        Meter { bar: ProgressBar::hidden(), began: Instant::now(), watched, doing: None, shown: None }
    }

    pub(crate) fn entries(&mut self, doing: &'static str, done: u64, total: u64) {
        self.show(doing, COUNTED, done, total);
    }

    pub(crate) fn clusters(&mut self, doing: &'static str, done: u64, total: u64) {
        self.show(doing, CLUSTERS, done, total);
    }

    pub(crate) fn bytes(&mut self, doing: &'static str, done: u64, total: u64) {
        self.show(doing, BYTES, done, total);
    }

    fn show(&mut self, doing: &'static str, look: &'static str, done: u64, total: u64) {
        let since = match self.doing {
            Some((before, since)) if before == doing => since,
            _ => self.doing.insert((doing, Instant::now())).1,
        };
        if !self.watched || self.began.elapsed() < QUIET_FOR {
            return;
        }
        if self.shown != Some(doing) {
            // What was counted before was something else, at another speed: it is forgotten before it could be drawn in the new look.
            self.bar.reset();
            self.bar.set_length(total);
            if let Ok(style) = style(look, since) {
                self.bar.set_style(style);
            }
            self.bar.set_message(doing);
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = Some(doing);
        }
        self.bar.set_length(total);
        self.bar.set_position(done);
        self.bar.tick();
    }
}

/// Entries a second since this began. The bar's own estimate begins when it is first drawn, and takes what was done by then for the work
/// of a moment.
fn style(look: &str, since: Instant) -> Result<ProgressStyle, indicatif::style::TemplateError> {
    let rate = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        let _ = write!(out, "{}/s", HumanCount(a_second(state.pos(), since.elapsed())));
    };
    Ok(ProgressStyle::with_template(look)?.with_key("rate", rate))
}

fn a_second(count: u64, took: Duration) -> u64 {
    u64::try_from(u128::from(count) * 1_000_000 / took.as_micros().max(1)).unwrap_or(u64::MAX)
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The same for whoever is told of one entry after the other.
#[derive(Debug)]
pub(crate) struct Entries {
    meter: Meter,
    doing: &'static str,
    count: u64,
    /// 0: that is not known.
    total: u64,
}

/// Looking at the clock costs more than applying a small entry.
const LOOK_EVERY: u64 = 512;

impl Entries {
    pub(crate) fn start(doing: &'static str, total: Option<u64>, watched: bool) -> Entries {
        Entries { meter: Meter::start(watched), doing, count: 0, total: total.unwrap_or(0) }
    }

    /// One more.
    pub(crate) fn one(&mut self) {
        self.count += 1;
        if self.count.is_multiple_of(LOOK_EVERY) {
            self.meter.entries(self.doing, self.count, self.total.max(self.count));
        }
    }

    /// `1234 entries in 0.500 s, 2468 a second`.
    pub(crate) fn sum(&self) -> String {
        let took = self.meter.began.elapsed();
        let rate = a_second(self.count, took);
        format!("{} entries in {}.{:03} s, {rate} a second", self.count, took.as_secs(), took.subsec_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_all_that_was_done_since_it_began() {
        assert_eq!(a_second(0, Duration::from_secs(3)), 0);
        assert_eq!(a_second(900_000, Duration::from_millis(4_500)), 200_000);
        assert_eq!(a_second(u64::MAX, Duration::ZERO), u64::MAX);
    }

    #[test]
    fn what_is_done_next_has_a_time_of_its_own_also_before_anything_is_shown() {
        let mut meter = Meter::start(true);
        meter.bytes("reading", 10, 20);
        let reading = meter.doing.unwrap();
        meter.bytes("reading", 20, 20);
        assert_eq!(meter.doing, Some(reading));
        meter.entries("replaying", 1, 9);
        let replaying = meter.doing.unwrap();
        assert!(replaying.0 == "replaying" && replaying.1 >= reading.1);
    }
}

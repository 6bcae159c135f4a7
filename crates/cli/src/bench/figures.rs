//! What many measured times come to: rates and percentiles of a round, and the middle one of several rounds.

use std::time::Duration;

use serde::Serialize;

/// What one round measured.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Of each operation that ended in the round.
    pub(super) took: Vec<Duration>,
    pub(super) elapsed: Duration,
    /// What one operation counts for, such as the signals of one report.
    pub(super) weight: u32,
}

/// A rate and two percentiles.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Figures {
    #[serde(serialize_with = "rounded")]
    pub(super) ops_per_s: f64,
    #[serde(serialize_with = "rounded")]
    pub(super) p50_ms: f64,
    #[serde(serialize_with = "rounded")]
    pub(super) p99_ms: f64,
}

/// Three digits behind the point: more is noise.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn rounded<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64((value * 1_000.0).round() / 1_000.0)
}

impl Sample {
    pub(super) fn new(took: Vec<Duration>, elapsed: Duration) -> Sample {
        Sample { took, elapsed, weight: 1 }
    }

    /// Each operation counts for so many.
    pub(super) fn each(self, weight: u32) -> Sample {
        Sample { weight, ..self }
    }

    fn figures(&self) -> Option<Figures> {
        if self.took.is_empty() || self.elapsed.is_zero() {
            return None;
        }
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        #[expect(clippy::cast_precision_loss, reason = "counts of operations are far below 2^52")]
        let operations = sorted.len() as f64 * f64::from(self.weight);
        Some(Figures {
            ops_per_s: operations / self.elapsed.as_secs_f64(),
            p50_ms: millis(percentile(&sorted, 50)),
            p99_ms: millis(percentile(&sorted, 99)),
        })
    }
}

impl Figures {
    /// The middle one of the rounds, each figure by itself. Nothing if no round ended anything.
    pub(super) fn of(rounds: &[Sample]) -> Option<Figures> {
        let each: Vec<Figures> = rounds.iter().filter_map(Sample::figures).collect();
        let middle = |figure: fn(&Figures) -> f64| median(each.iter().map(figure).collect());
        Some(Figures {
            ops_per_s: middle(|one| one.ops_per_s)?,
            p50_ms: middle(|one| one.p50_ms)?,
            p99_ms: middle(|one| one.p99_ms)?,
        })
    }
}

/// Of values that are sorted: the smallest that so many percent do not exceed.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or_default()
}

/// The middle one; the mean of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    if values.len() % 2 == 1 {
        return Some(upper);
    }
    Some(f64::midpoint(*values.get(values.len() / 2 - 1)?, upper))
}

pub(super) fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(values: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        values.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn a_percentile_is_a_value_that_was_measured() {
        let sorted = ms(1..=100);
        assert_eq!(percentile(&sorted, 50), Duration::from_millis(50));
        assert_eq!(percentile(&sorted, 99), Duration::from_millis(99));
        assert_eq!(percentile(&sorted, 100), Duration::from_millis(100));
        assert_eq!(percentile(&ms([7]), 99), Duration::from_millis(7));
        assert_eq!(percentile(&[], 99), Duration::ZERO);
    }

    #[test]
    fn one_bad_round_of_three_does_not_move_the_figures() {
        let round = |count: u64, each: u64| {
            Sample::new(ms(std::iter::repeat_n(each, usize::try_from(count).unwrap_or(0))), Duration::from_secs(1))
        };
        let figures = Figures::of(&[round(100, 2), round(10, 900), round(102, 3)]).expect("figures");
        assert_eq!(figures, Figures { ops_per_s: 100.0, p50_ms: 3.0, p99_ms: 3.0 });
        assert_eq!(Figures::of(&[Sample::default()]), None, "nothing ended");
    }

    #[test]
    fn an_operation_may_count_for_many() {
        let sample = Sample::new(ms([1, 1]), Duration::from_secs(2)).each(64);
        assert_eq!(Figures::of(&[sample]).map(|figures| figures.ops_per_s), Some(64.0));
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(vec![]), None);
    }
}

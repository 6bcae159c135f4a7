//! How fast a number of replicas may change: the stabilization and the scale policies of the Kubernetes HPA v2.
//!
//! An HPA looks every fifteen seconds and writes down what it would do. Here it is looked when something is heard, so what is
//! remembered is when a recommendation *changed*: it held until the next one. Counting like that, nothing depends on how often
//! somebody looks, and a new leader, which has the same log, goes on in the middle of a window.

use serde::{Deserialize, Serialize};

use crate::configuration::tracking::{Amount, Behavior, Select, Tracking};
use crate::{Span, Time};

/// Recommendations that are told apart. Beyond, those near each other in time are taken together, low and high kept.
const RECOMMENDATIONS_MAX: u64 = 48;
/// Changes that are told apart; beyond, the two oldest count together, as of the later one.
const CHANGES_MAX: usize = 48;

/// What a strategy that follows signals has to know about the past.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// The oldest first.
    pub recommendations: Vec<Recommended>,
    /// The oldest first.
    pub added: Vec<Changed>,
    /// The oldest first.
    pub removed: Vec<Changed>,
    pub panic: Option<Panic>,
}

/// What was recommended from a moment on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommended {
    pub at: Time,
    /// The lowest and the highest of those that are taken together.
    pub lowest: u32,
    pub highest: u32,
    /// The one that holds until the next.
    pub latest: u32,
}

/// Replicas that were added, or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    pub at: Time,
    pub count: u32,
}

/// Of `knative`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panic {
    /// When there was reason for it last.
    pub at: Time,
    /// In panic it only goes up.
    pub highest: u32,
}

/// What is new since the last look, to be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Noted {
    /// What is recommended from here on; nothing: as before.
    pub recommended: Option<u32>,
    pub panic: Option<Panic>,
    /// How long recommendations are needed.
    pub window: Span,
}

impl Course {
    pub(crate) fn note(&mut self, noted: &Noted, now: Time) {
        self.panic = noted.panic;
        let Some(replicas) = noted.recommended else { return };
        let grain = Span::from_millis(noted.window.as_millis() / RECOMMENDATIONS_MAX);
        match self.recommendations.last_mut() {
            Some(last) if now.since(last.at) < grain => {
                last.lowest = last.lowest.min(replicas);
                last.highest = last.highest.max(replicas);
                last.latest = replicas;
            }
            _ => {
                let one = Recommended { at: now, lowest: replicas, highest: replicas, latest: replicas };
                self.recommendations.push(one);
            }
        }
        // The last one that ended before the window is over, and all before it.
        let begin = now.before(noted.window).before(grain);
        let over = self.recommendations.iter().skip(1).take_while(|next| next.at < begin).count();
        self.recommendations.drain(..over);
    }

    pub(crate) fn changed(&mut self, added: u32, removed: u32, period: Span, now: Time) {
        for (changes, count) in [(&mut self.added, added), (&mut self.removed, removed)] {
            changes.retain(|change| now.since(change.at) < period);
            if count > 0 && period > Span::default() {
                changes.push(Changed { at: now, count });
            }
            if changes.len() > CHANGES_MAX {
                let oldest = changes.remove(0);
                changes[0].count = changes[0].count.saturating_add(oldest.count);
            }
        }
    }

    /// What is wrong with one that somebody has written by hand.
    pub(crate) fn check(&self, now: Time) -> Result<(), &'static str> {
        let recommended = self.recommendations.iter();
        let times = |changes: &[Changed]| changes.iter().map(|change| change.at).collect::<Vec<_>>();
        let of_recommendations: Vec<Time> = recommended.clone().map(|it| it.at).collect();
        for times in [of_recommendations, times(&self.added), times(&self.removed)] {
            if times.len() > 2 * CHANGES_MAX || !times.is_sorted() || times.last().is_some_and(|last| *last > now) {
                return Err("the oldest first, at most 96 of each, and none in the future");
            }
        }
        let fits = |it: &Recommended| it.lowest <= it.latest && it.latest <= it.highest;
        if !recommended.clone().all(fits) {
            return Err("latest is between lowest and highest");
        }
        match self.panic {
            Some(panic) if panic.at > now => Err("a panic in the future"),
            _ => Ok(()),
        }
    }

    pub(crate) fn latest(&self) -> Option<u32> {
        self.recommendations.last().map(|last| last.latest)
    }

    /// The lowest and the highest recommendation that held at any time in the window.
    fn extremes(&self, window: Span, now: Time) -> Option<(u32, u32)> {
        if window == Span::default() {
            return None;
        }
        let begin = now.before(window);
        let mut all = None;
        let mut include = |lowest: u32, highest: u32| {
            let (low, high) = all.unwrap_or((lowest, highest));
            all = Some((low.min(lowest), high.max(highest)));
        };
        for (place, one) in self.recommendations.iter().enumerate() {
            let until = self.recommendations.get(place + 1).map_or(now, |next| next.at);
            if one.at > begin {
                include(one.lowest, one.highest);
            } else if until > begin {
                include(one.latest, one.latest);
            }
        }
        all
    }

    /// When the window will have passed the first recommendation that it still holds.
    fn forgets_at(&self, window: Span, now: Time) -> Option<Time> {
        let begins = self.recommendations.iter().skip(1).map(|next| next.at);
        begins.map(|ended| ended + window).find(|at| *at > now)
    }

    fn sum(changes: &[Changed], period: Span, now: Time) -> u32 {
        let within = changes.iter().filter(|change| now.since(change.at) < period);
        within.fold(0, |sum: u32, change| sum.saturating_add(change.count))
    }

    /// How many there were when the period began.
    fn at_start(&self, current: u32, period: Span, now: Time) -> u32 {
        let (added, removed) = (Self::sum(&self.added, period, now), Self::sum(&self.removed, period, now));
        current.saturating_add(removed).saturating_sub(added)
    }

    /// When the first change leaves the period of a policy, so that more may follow.
    fn eases_at(&self, behavior: &Behavior, now: Time) -> Option<Time> {
        let changes = || self.added.iter().chain(&self.removed);
        let ends = behavior.policies.iter().flat_map(|policy| changes().map(|change| change.at + policy.period));
        ends.filter(|at| *at > now).min()
    }
}

/// What is left of a wish, what held it back, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Paced {
    pub(crate) replicas: u32,
    pub(crate) held: Option<Hold>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    Stabilizing { until: Option<Time> },
    Policy { until: Option<Time> },
    Disabled,
}

/// The most careful of what was recommended within the windows, and of what is recommended now.
fn stabilized(rule: &Tracking, course: &Course, current: u32, wanted: u32, now: Time) -> Paced {
    let lowest = course.extremes(rule.up.window, now).map_or(wanted, |(lowest, _)| lowest.min(wanted));
    let highest = course.extremes(rule.down.window, now).map_or(wanted, |(_, highest)| highest.max(wanted));
    let replicas = current.max(lowest).min(highest.max(lowest));
    let window = if wanted > current { rule.up.window } else { rule.down.window };
    let held = (replicas != wanted).then(|| Hold::Stabilizing { until: course.forgets_at(window, now) });
    Paced { replicas, held }
}

/// In the order of HPA: what stabilizes, what paces, and the bounds.
pub(crate) fn settled(rule: &Tracking, course: &Course, current: u32, wanted: u32, now: Time) -> Paced {
    let stable = stabilized(rule, course, current, wanted, now);
    let rated = rated(rule, course, current, stable.replicas, now);
    let replicas = rated.replicas.clamp(rule.replicas_min, rule.replicas_max);
    Paced { replicas, held: stable.held.or(rated.held) }
}

/// As far as the scale policies let it go at once.
fn rated(rule: &Tracking, course: &Course, current: u32, wanted: u32, now: Time) -> Paced {
    let behavior = if wanted > current { &rule.up } else { &rule.down };
    if wanted == current {
        return Paced { replicas: current, held: None };
    }
    if behavior.select == Select::Disabled {
        return Paced { replicas: current, held: Some(Hold::Disabled) };
    }
    let grows = wanted > current;
    let allowed = behavior.policies.iter().map(|policy| {
        let start = u64::from(course.at_start(current, policy.period, now));
        let allowed = match (policy.amount, grows) {
            (Amount::Replicas(count), true) => start + u64::from(count),
            (Amount::Replicas(count), false) => start.saturating_sub(count.into()),
            (Amount::Percent(percent), true) => (start * (100 + u64::from(percent))).div_ceil(100),
            (Amount::Percent(percent), false) => start * 100_u64.saturating_sub(percent.into()) / 100,
        };
        u32::try_from(allowed).unwrap_or(u32::MAX)
    });
    let limit = match (grows, behavior.select) {
        (true, Select::Min) | (false, Select::Max | Select::Disabled) => allowed.min(),
        (true, Select::Max | Select::Disabled) | (false, Select::Min) => allowed.max(),
    };
    let step = behavior.step_max.unwrap_or(u32::MAX);
    let replicas = if grows {
        let limit = limit.map_or(u32::MAX, |limit| limit.max(current));
        wanted.min(limit).min(current.saturating_add(step))
    } else {
        let limit = limit.map_or(0, |limit| limit.min(current));
        wanted.max(limit).max(current.saturating_sub(step))
    };
    let held = (replicas != wanted).then(|| Hold::Policy { until: course.eases_at(behavior, now) });
    Paced { replicas, held }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::configuration::options::Options;
    use crate::configuration::{Configuration, Rule, StrategyKind};

    const NOW: Time = Time::from_millis(1_800_000_000_000);

    fn rule(options: &[(&str, &str)]) -> Tracking {
        let all = Options::from([("size", "1"), ("signals", "load average 1")])
            .with("max_replicas", 256)
            .with("min_replicas", 0);
        let all = options.iter().fold(all, |all, (key, value)| match value.parse::<i64>() {
            Ok(number) => all.with(key, number),
            Err(_) => all.with(key, *value),
        });
        match Configuration::read(StrategyKind::TargetTracking, &all).unwrap().rule {
            Rule::TargetTracking(tracking) => *tracking,
            other => panic!("{other:?}"),
        }
    }

    fn ago(secs: u64) -> Time {
        NOW.before(Span::from_secs(secs))
    }

    fn course(added: &[u32], removed: &[u32]) -> Course {
        let changes = |counts: &[u32]| {
            let count = counts.len() as u64;
            counts.iter().zip(1..).map(|(it, place)| Changed { at: ago(count + 1 - place), count: *it }).collect()
        };
        Course { added: changes(added), removed: changes(removed), ..Course::default() }
    }

    /// Current, wanted, minimum, policies in that direction, what was added and removed -> what comes of it.
    #[test]
    fn the_examples_of_hpa_for_policies_come_out_equal() {
        let none: &[u32] = &[];
        for (current, wanted, min, policies, added, removed, expected) in [
            (10, 50, "1", "", none, none, 20),
            (10, 500, "1", "100 per 60s, 100% per 60s", none, none, 110),
            (10, 500, "1", "2 per 60s, 100% per 60s", none, none, 20),
            (10, 50, "1", "30 per 60s", none, none, 40),
            (10, 50, "1", "200% per 60s", none, none, 30),
            (100, 2, "1", "20 per 60s, 1% per 60s", none, none, 80),
            (100, 2, "1", "2 per 60s, 1% per 60s", none, none, 98),
            (10, 0, "1", "100 per 60s", none, none, 1),
            (10, 2, "5", "100% per 60s", none, none, 5),
            (10, 2, "1", "5 per 60s", none, none, 5),
            (100, 500, "1", "5 per 120s", &[1, 5, 9], none, 100),
            (100, 500, "1", "150 per 120s", &[1, 5, 9], none, 235),
            (100, 500, "1", "200% per 120s", &[1, 5, 9], none, 255),
            (6, 24, "1", "300% per 300s", &[4], &[2], 16),
            (100, 2, "1", "5 per 120s", none, &[1, 5, 9], 100),
            (100, 0, "1", "50% per 120s", none, &[2, 4, 6], 56),
            (10, 1, "1", "50% per 180s", &[2], &[4], 6),
        ] {
            let mut options = vec![("stabilization_down_s", "0"), ("min_replicas", min)];
            match (policies, wanted > current) {
                ("", _) => {}
                (_, true) => options.push(("scale_up_policies", policies)),
                (_, false) => options.push(("scale_down_policies", policies)),
            }
            let paced = settled(&rule(&options), &course(added, removed), current, wanted, NOW);
            assert_eq!(paced.replicas, expected, "{current}, {wanted} ({policies}) +{added:?} -{removed:?}");
        }
    }

    #[test]
    fn min_takes_the_least_permissive_policy_and_disabled_none() {
        let both = ("scale_up_policies", "100 per 60s, 100% per 60s");
        let up = |select| rated(&rule(&[both, ("scale_up_select", select)]), &Course::default(), 10, 500, NOW).replicas;
        assert_eq!((up("Max"), up("Min"), up("Disabled")), (110, 20, 10));
        let both = ("scale_down_policies", "20 per 60s, 1% per 60s");
        let down =
            |select| rated(&rule(&[both, ("scale_down_select", select)]), &Course::default(), 100, 2, NOW).replicas;
        assert_eq!((down("Max"), down("Min"), down("Disabled")), (80, 99, 100));
    }

    /// Nomad has no periods: so many in one change.
    #[test]
    fn the_examples_of_nomad_for_the_largest_change_come_out_equal() {
        let options =
            [("algorithm", "nomad"), ("signals", "load value 1"), ("max_scale_up", "2"), ("max_scale_down", "1")];
        let rule = rule(&options);
        assert_eq!(rated(&rule, &Course::default(), 1, 5, NOW).replicas, 3);
        assert_eq!(rated(&rule, &Course::default(), 5, 1, NOW).replicas, 4);
    }

    fn recommended(all: &[(u64, u32)]) -> Course {
        let one = |(secs, replicas): &(u64, u32)| Recommended {
            at: ago(*secs),
            lowest: *replicas,
            highest: *replicas,
            latest: *replicas,
        };
        Course { recommendations: all.iter().map(one).collect(), ..Course::default() }
    }

    #[test]
    fn the_examples_of_hpa_for_windows_come_out_equal() {
        let windows =
            |up: &'static str, down: &'static str| rule(&[("stabilization_up_s", up), ("stabilization_down_s", down)]);
        let stable = |rule: &Tracking, all: &[(u64, u32)], current, wanted| {
            stabilized(rule, &recommended(all), current, wanted, NOW).replicas
        };
        assert_eq!(stable(&windows("0", "180"), &[(120, 4), (60, 5)], 100, 3), 5);
        assert_eq!(stable(&windows("300", "0"), &[(120, 4), (60, 5)], 1, 7), 4);
        assert_eq!(stable(&windows("300", "300"), &[(6_000, 2), (180, 3)], 2, 1), 2);
        assert_eq!(stable(&windows("300", "300"), &[(6_000, 2), (180, 1)], 2, 3), 2);
    }

    #[test]
    fn a_recommendation_counts_until_the_window_has_passed_its_end() {
        let rule = rule(&[("stabilization_down_s", "300")]);
        let mut course = recommended(&[(1_000, 9), (299, 2)]);
        let paced = stabilized(&rule, &course, 9, 2, NOW);
        assert_eq!(paced.replicas, 9, "it asked for 9 until 299 s ago");
        assert_eq!(paced.held, Some(Hold::Stabilizing { until: Some(NOW + Span::from_secs(1)) }));
        course = recommended(&[(1_000, 9), (300, 2)]);
        assert_eq!(stabilized(&rule, &course, 9, 2, NOW), Paced { replicas: 2, held: None });
    }

    #[test]
    fn a_signal_that_jumps_about_is_remembered_in_few_words() {
        let window = Span::from_secs(300);
        let mut course = Course::default();
        let mut now = NOW;
        for step in 0..10_000_u32 {
            now = now + Span::from_millis(700);
            course.note(&Noted { recommended: Some(step % 7), panic: None, window }, now);
        }
        let kept = course.recommendations.len() as u64;
        assert!(kept <= RECOMMENDATIONS_MAX + 3, "{kept}");
        assert_eq!(course.extremes(window, now), Some((0, 6)), "and nothing that matters is forgotten");
        now = now + Span::from_secs(600);
        course.note(&Noted { recommended: Some(3), panic: None, window }, now);
        assert_eq!(course.recommendations.len(), 2, "the last one before held until now");
        for _ in 0..1_000 {
            now = now + Span::from_secs(1);
            course.changed(1, 0, Span::from_secs(1_800), now);
        }
        assert_eq!(course.added.len(), CHANGES_MAX);
        assert_eq!(Course::sum(&course.added, Span::from_secs(1_800), now), 1_000);
    }

    proptest! {
        #[test]
        fn a_pace_never_goes_the_other_way_nor_too_far(
            current in 0..=200_u32,
            wanted in 0..=200_u32,
            past in proptest::collection::vec((0..1_000_u64, 0..=200_u32), 0..20),
            added in proptest::collection::vec(0..=20_u32, 0..5),
            removed in proptest::collection::vec(0..=20_u32, 0..5),
            up in 0..600_u32,
            down in 0..600_u32,
        ) {
            let (up, down) = (up.to_string(), down.to_string());
            let rule = rule(&[("stabilization_up_s", &up), ("stabilization_down_s", &down)]);
            let mut past = past;
            past.sort_by_key(|(secs, _)| std::cmp::Reverse(*secs));
            let mut course = course(&added, &removed);
            course.recommendations = recommended(&past).recommendations;
            let stable = stabilized(&rule, &course, current, wanted, NOW).replicas;
            prop_assert!((current.min(wanted)..=current.max(wanted)).contains(&stable), "{} to {}: {}", current, wanted, stable);
            let paced = rated(&rule, &course, current, stable, NOW).replicas;
            prop_assert!((current.min(stable)..=current.max(stable)).contains(&paced), "{} to {}: {}", current, stable, paced);
        }
    }
}

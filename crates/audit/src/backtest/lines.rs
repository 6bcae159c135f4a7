//! How many replicas there were over time, for drawing: of all clusters in a fixed number of steps, of single clusters change
//! by change.
//!
//! Bounded, however long the window and however many clusters: the steps are as wide as they have to be. A cluster that changes more
//! often than anybody could see in a picture goes over to steps as well, each with its average. Of more clusters than anybody looks
//! at, those that were made first have lines of their own, and which ones have none is known: every run chooses for itself, by id
//! alone, and a cluster is drawn only if all of them have kept it.

use std::collections::{BTreeMap, BTreeSet};

use loadline_state_machine::{ClusterId, Span, Time};

/// Steps of the total.
pub(super) const STEPS: usize = 480;
/// Clusters that have lines of their own.
pub const CLUSTERS_MAX: usize = 1_000;
/// Changes of one cluster that are kept one by one: twice as many as there are steps, so that what goes over to steps loses nothing
/// that could be seen.
const CHANGES_MAX: usize = 1_000;

#[derive(Debug, Clone)]
pub(super) struct Lines {
    from: Time,
    to: Time,
    /// Replica-milliseconds and slot-milliseconds in each step.
    replicas: Vec<u128>,
    slots: Vec<u128>,
    clusters: BTreeMap<ClusterId, Line>,
    /// Those that have no line, because there are enough with lower ids.
    left_out: BTreeSet<ClusterId>,
}

#[derive(Debug, Clone)]
enum Line {
    /// How many there were, from which moment on.
    Changes(Vec<(Time, u64)>),
    /// Replica-milliseconds in each step up to the last change, and how many there are since.
    Steps { sums: Vec<u128>, changed_at: Time, count: u64 },
}

/// One step of a line, from this moment on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Point {
    pub at_ms: u64,
    /// In thousandths.
    pub value_milli: u64,
}

impl Lines {
    pub(super) fn new((from, to): (Time, Time)) -> Lines {
        let (clusters, left_out) = (BTreeMap::new(), BTreeSet::new());
        Lines { from, to, replicas: vec![0; STEPS], slots: vec![0; STEPS], clusters, left_out }
    }

    /// How wide a step is.
    pub(super) fn step(&self) -> Span {
        let steps = u64::try_from(STEPS).unwrap_or(u64::MAX);
        Span::from_millis(self.to.since(self.from).as_millis().div_ceil(steps).max(1))
    }

    /// So many were there from one moment to the other.
    pub(super) fn pass(&mut self, from: Time, to: Time, replicas: u64, slots: u64) {
        let (step, begin) = (self.step(), self.from);
        spread(&mut self.replicas, step, (from.since(begin), to.since(begin)), replicas);
        spread(&mut self.slots, step, (from.since(begin), to.since(begin)), slots);
    }

    /// A cluster has so many from here on.
    pub(super) fn changed(&mut self, cluster: ClusterId, at: Time, replicas: u64) {
        if self.left_out.contains(&cluster) {
            return;
        }
        let (step, begin) = (self.step(), self.from);
        let line = self.clusters.entry(cluster).or_insert_with(|| Line::Changes(Vec::new()));
        line.changed(at.max(begin), replicas, step, begin);
        if self.clusters.len() > CLUSTERS_MAX
            && let Some((last, _)) = self.clusters.pop_last()
        {
            self.left_out.insert(last);
        }
    }

    pub(super) fn total_replicas(&self) -> Vec<Point> {
        self.averages(&self.replicas)
    }

    pub(super) fn total_slots(&self) -> Vec<Point> {
        self.averages(&self.slots)
    }

    fn averages(&self, sums: &[u128]) -> Vec<Point> {
        let width = self.step().as_millis();
        let point = |(step, sum): (u64, &u128)| {
            let at = self.from.as_millis() + step * width;
            let span = width.min(self.to.as_millis().saturating_sub(at));
            let value = (span > 0).then(|| sum * 1_000 / u128::from(span))?;
            Some(Point { at_ms: at, value_milli: u64::try_from(value).unwrap_or(u64::MAX) })
        };
        (0..).zip(sums).map_while(point).collect()
    }

    /// Those whose replicas changed, or that had any, and that have a line.
    pub(super) fn clusters(&self) -> impl Iterator<Item = ClusterId> {
        self.clusters.keys().copied()
    }

    /// Those of which the same is true, and that have none.
    pub(super) fn left_out(&self) -> impl Iterator<Item = ClusterId> {
        self.left_out.iter().copied()
    }

    /// Whether it changed so often that only averages are known.
    pub(super) fn is_averaged(&self, cluster: ClusterId) -> bool {
        matches!(self.clusters.get(&cluster), Some(Line::Steps { .. }))
    }

    /// The line of one cluster: each change, or the average of each step. Without a point if it never had a replica.
    pub(super) fn of_cluster(&self, cluster: ClusterId, averaged: bool) -> Vec<Point> {
        match self.clusters.get(&cluster) {
            None => Vec::new(),
            Some(Line::Changes(changes)) if !averaged => {
                let point = |(at, count): &(Time, u64)| Point {
                    at_ms: at.as_millis(),
                    value_milli: count.saturating_mul(1_000),
                };
                changes.iter().map(point).collect()
            }
            Some(line) => {
                let (mut sums, changed_at, count) = line.in_steps(self.step(), self.from);
                let rest = (changed_at.since(self.from), self.to.since(self.from));
                spread(&mut sums, self.step(), rest, count);
                self.averages(&sums)
            }
        }
    }
}

impl Line {
    fn changed(&mut self, at: Time, replicas: u64, step: Span, begin: Time) {
        match self {
            Line::Changes(changes) => match changes.last_mut() {
                Some((last, count)) if *last == at => *count = replicas,
                _ => changes.push((at, replicas)),
            },
            Line::Steps { sums, changed_at, count } => {
                spread(sums, step, (changed_at.since(begin), at.since(begin)), *count);
                (*changed_at, *count) = (at, replicas);
            }
        }
        if matches!(self, Line::Changes(changes) if changes.len() > CHANGES_MAX) {
            let (sums, changed_at, count) = self.in_steps(step, begin);
            *self = Line::Steps { sums, changed_at, count };
        }
    }

    /// The sums of the steps up to the last change, when that was, and how many there are since.
    fn in_steps(&self, step: Span, begin: Time) -> (Vec<u128>, Time, u64) {
        match self {
            Line::Steps { sums, changed_at, count } => (sums.clone(), *changed_at, *count),
            Line::Changes(changes) => {
                let mut sums = vec![0; STEPS];
                for pair in changes.windows(2) {
                    spread(&mut sums, step, (pair[0].0.since(begin), pair[1].0.since(begin)), pair[0].1);
                }
                let (changed_at, count) = changes.last().copied().unwrap_or((begin, 0));
                (sums, changed_at, count)
            }
        }
    }
}

/// Adds a value that held from one moment of the window to another to the sums of its steps.
fn spread(sums: &mut [u128], step: Span, (from, to): (Span, Span), value: u64) {
    let width = step.as_millis();
    let (mut at, end) = (from.as_millis(), to.as_millis());
    while at < end {
        let place = at / width;
        let next = ((place + 1) * width).min(end);
        let Some(sum) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place)) else { return };
        *sum += u128::from(value) * u128::from(next - at);
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::LogIndex;

    use super::*;

    fn cluster(index: u64) -> ClusterId {
        ClusterId { index: LogIndex(index), ordinal: 0 }
    }

    /// Each step is 10 ms wide.
    fn ten_millis_each() -> Lines {
        Lines::new((Time::from_millis(1_000), Time::from_millis(1_000 + 10 * 480)))
    }

    #[test]
    fn a_span_over_several_steps_is_shared_among_them() {
        let at = Time::from_millis;
        let mut lines = ten_millis_each();
        lines.pass(at(1_005), at(1_025), 2, 8);
        let points = lines.total_replicas();
        let first: Vec<(u64, u64)> = points.iter().take(4).map(|it| (it.at_ms, it.value_milli)).collect();
        assert_eq!(first, [(1_000, 1_000), (1_010, 2_000), (1_020, 1_000), (1_030, 0)]);
        assert_eq!((points.len(), lines.total_slots()[1].value_milli), (480, 8_000));
    }

    #[test]
    fn which_clusters_have_lines_does_not_depend_on_who_changes_first() {
        let kept = |order: &mut dyn Iterator<Item = u64>| {
            let mut lines = ten_millis_each();
            for (at, index) in (1_000..).zip(order) {
                lines.changed(cluster(index), Time::from_millis(at), 1);
            }
            // Whoever is left out stays so.
            lines.changed(cluster(1_999), Time::from_millis(4_000), 2);
            assert!(lines.clusters.len() <= CLUSTERS_MAX);
            (lines.clusters().collect::<Vec<_>>(), lines.left_out().collect::<Vec<_>>())
        };
        let (drawn, left_out) = kept(&mut (0..2_000));
        assert_eq!(drawn, (0..1_000).map(cluster).collect::<Vec<_>>());
        assert_eq!(left_out, (1_000..2_000).map(cluster).collect::<Vec<_>>());
        assert_eq!(kept(&mut (0..2_000).rev()), (drawn, left_out));
    }

    #[test]
    fn a_cluster_that_changes_too_often_to_be_drawn_goes_on_with_averages_to_the_end() {
        let (web, at) = (cluster(1), Time::from_millis);
        let mut lines = ten_millis_each();
        // One replica in every other millisecond, from the beginning to 4,000 ms; then two to the end.
        for millis in 0..3_000 {
            lines.changed(web, at(1_000 + millis), 1 - millis % 2);
            assert_eq!(lines.is_averaged(web), millis >= 1_000, "after {} changes", millis + 1);
        }
        lines.changed(web, at(4_000), 2);
        let points = lines.of_cluster(web, true);
        assert_eq!(points.len(), 480);
        for point in &points {
            let expected = if point.at_ms < 4_000 { 500 } else { 2_000 };
            assert_eq!(point.value_milli, expected, "at {}", point.at_ms);
        }
        assert_eq!(lines.of_cluster(web, false), points, "the single changes are not known any more");
    }

    #[test]
    fn a_line_that_has_all_its_changes_can_be_averaged_to_stand_beside_one_that_has_not() {
        let (web, at) = (cluster(1), Time::from_millis);
        let mut lines = ten_millis_each();
        lines.changed(web, at(1_015), 3);
        lines.changed(web, at(1_025), 1);
        let exact: Vec<(u64, u64)> = lines.of_cluster(web, false).iter().map(|it| (it.at_ms, it.value_milli)).collect();
        assert_eq!(exact, [(1_015, 3_000), (1_025, 1_000)]);
        let averaged: Vec<u64> = lines.of_cluster(web, true).iter().map(|it| it.value_milli).collect();
        assert_eq!((averaged.len(), &averaged[..4]), (480, &[0, 1_500, 2_000, 1_000][..]));
        assert_eq!(averaged.last(), Some(&1_000));
        assert_eq!(lines.of_cluster(cluster(2), true), []);
    }
}

//! How many replicas there were over time, for drawing: of all clusters in a fixed number of steps, of single clusters change
//! by change.
//!
//! Bounded, however long the window: the steps are as wide as they have to be, and of clusters that change very often, or of
//! more clusters than anybody looks at, the rest is left out.

use std::collections::BTreeMap;

use loadline_state_machine::{ClusterId, Time};

/// Steps of the total.
pub(super) const STEPS: usize = 480;
const CLUSTERS_MAX: usize = 1_000;
const CHANGES_MAX: usize = 1_000;

#[derive(Debug, Clone)]
pub(super) struct Lines {
    from: Time,
    to: Time,
    /// Replica-milliseconds and slot-milliseconds in each step.
    replicas: Vec<u128>,
    slots: Vec<u128>,
    clusters: BTreeMap<ClusterId, Vec<(Time, u64)>>,
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
        Lines { from, to, replicas: vec![0; STEPS], slots: vec![0; STEPS], clusters: BTreeMap::new() }
    }

    fn width(&self) -> u64 {
        let steps = u64::try_from(STEPS).unwrap_or(u64::MAX);
        self.to.since(self.from).as_millis().div_ceil(steps).max(1)
    }

    /// So many were there from one moment to the other.
    pub(super) fn pass(&mut self, from: Time, to: Time, replicas: u64, slots: u64) {
        let width = self.width();
        let (mut at, end) = (from.since(self.from).as_millis(), to.since(self.from).as_millis());
        while at < end {
            let step = at / width;
            let next = ((step + 1) * width).min(end);
            let span = u128::from(next - at);
            let Some(place) = usize::try_from(step).ok().filter(|place| *place < STEPS) else { return };
            self.replicas[place] += u128::from(replicas) * span;
            self.slots[place] += u128::from(slots) * span;
            at = next;
        }
    }

    /// A cluster has so many from here on.
    pub(super) fn changed(&mut self, cluster: ClusterId, at: Time, replicas: u64) {
        if !self.clusters.contains_key(&cluster) && self.clusters.len() >= CLUSTERS_MAX {
            return;
        }
        let changes = self.clusters.entry(cluster).or_default();
        let full = changes.len() >= CHANGES_MAX;
        match changes.last_mut() {
            Some((last, count)) if *last == at => *count = replicas,
            _ if full => {}
            _ => changes.push((at, replicas)),
        }
    }

    pub(super) fn total_replicas(&self) -> Vec<Point> {
        self.averages(&self.replicas)
    }

    pub(super) fn total_slots(&self) -> Vec<Point> {
        self.averages(&self.slots)
    }

    fn averages(&self, sums: &[u128]) -> Vec<Point> {
        let width = self.width();
        let point = |(step, sum): (u64, &u128)| {
            let at = self.from.as_millis() + step * width;
            let span = width.min(self.to.as_millis().saturating_sub(at));
            let value = (span > 0).then(|| sum * 1_000 / u128::from(span))?;
            Some(Point { at_ms: at, value_milli: u64::try_from(value).unwrap_or(u64::MAX) })
        };
        (0..).zip(sums).map_while(point).collect()
    }

    /// Of each cluster whose replicas changed, or that had any.
    pub(super) fn clusters(&self) -> impl Iterator<Item = (ClusterId, Vec<Point>)> {
        self.clusters.iter().map(|(cluster, changes)| {
            let point = |(at, count): &(Time, u64)| Point {
                at_ms: at.max(&self.from).as_millis(),
                value_milli: count.saturating_mul(1_000),
            };
            (*cluster, changes.iter().map(point).collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_over_several_steps_is_shared_among_them() {
        let at = Time::from_millis;
        // Each step is 10 ms wide.
        let mut lines = Lines::new((at(1_000), at(1_000 + 10 * 480)));
        lines.pass(at(1_005), at(1_025), 2, 8);
        let points = lines.total_replicas();
        let first: Vec<(u64, u64)> = points.iter().take(4).map(|it| (it.at_ms, it.value_milli)).collect();
        assert_eq!(first, [(1_000, 1_000), (1_010, 2_000), (1_020, 1_000), (1_030, 0)]);
        assert_eq!((points.len(), lines.total_slots()[1].value_milli), (480, 8_000));
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let mut lines = Lines::new((Time::from_millis(0), Time::from_millis(1)));
        for index in 0..2_000 {
            let cluster = ClusterId { index: loadline_state_machine::LogIndex(index), ordinal: 0 };
            lines.changed(cluster, Time::from_millis(index), 1);
            lines.changed(
                ClusterId { index: loadline_state_machine::LogIndex(0), ordinal: 0 },
                Time::from_millis(index),
                index,
            );
        }
        assert_eq!(lines.clusters.len(), CLUSTERS_MAX);
        assert!(lines.clusters().all(|(_, points)| points.len() <= CHANGES_MAX));
    }
}

//! What the queues of clusters look like that a `queue_depth` strategy rules, for whoever draws them.
//!
//! The same three numbers as the strategy goes by, under one name each, whatever the signals are called. What is missing or
//! stale is not there: nobody knows it, and it is not zero.

use crate::configuration::tracking::{TargetKind, TrackedSignal, Tracking};
use crate::configuration::{Rule, StrategyKind};
use crate::signals::{Freshness, Signals};
use crate::{ClusterId, Span, State, Time};

/// In thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueStanding {
    /// Jobs that wait.
    pub depth_milli: Option<i64>,
    /// Seconds that the oldest of them has waited.
    pub oldest_wait_milli: Option<i64>,
    /// How busy a worker is on average; 1 is all the time.
    pub saturation_milli: Option<i64>,
}

impl QueueStanding {
    fn of(rule: &Tracking, signals: &Signals, now: Time, stale_after: Span) -> Self {
        let mut standing = Self::default();
        for signal in &rule.signals {
            // What tells them apart is what they are for: jobs are shared out, a wait is not, and being busy starts nobody.
            let place = match (signal.target, signal.activation_milli) {
                (TargetKind::Average, _) => &mut standing.depth_milli,
                (TargetKind::Value, Some(_)) => &mut standing.oldest_wait_milli,
                (TargetKind::Value, None) => &mut standing.saturation_milli,
            };
            *place = value(signal, signals, now, stale_after);
        }
        standing
    }
}

fn value(signal: &TrackedSignal, signals: &Signals, now: Time, stale_after: Span) -> Option<i64> {
    signal.metrics.iter().try_fold(0_i64, |sum, name| {
        let place = signals.metrics.binary_search_by(|metric| metric.name.cmp(name)).ok()?;
        let metric = &signals.metrics[place];
        match signals.freshness(&metric.collector, metric.as_of, now, stale_after) {
            Freshness::FreshUntil(_) => Some(sum.saturating_add(metric.value_milli)),
            Freshness::StaleSince(_) => None,
        }
    })
}

impl State {
    /// Every cluster that a `queue_depth` strategy rules, by age.
    pub fn queues(&self) -> impl Iterator<Item = (ClusterId, QueueStanding)> {
        // Without one, a hundred thousand clusters need not be asked.
        let any = self.strategies().any(|strategy| strategy.kind == StrategyKind::QueueDepth);
        let ids = any.then(|| self.clusters.ids_after(None)).into_iter().flatten();
        ids.filter_map(|id| Some((id, self.queue(id)?)))
    }

    /// Nothing if no `queue_depth` strategy rules the cluster.
    fn queue(&self, cluster: ClusterId) -> Option<QueueStanding> {
        let own = self.scaling.strategies.own(cluster).map(AsRef::as_ref);
        let rulings = self.scaling.strategies.rulings(own, || self.clusters.name(cluster));
        let ruler =
            rulings.iter().flatten().map(|ruling| ruling.ruler).find(|it| it.kind == StrategyKind::QueueDepth)?;
        let Rule::QueueDepth(rule) = &(*ruler.configuration).as_ref().ok()?.rule else { return None };
        let signals = self.scaling.record(cluster).map(|record| &record.signals);
        let stale_after = self.settings.knobs().stale_after;
        Some(signals.map_or_else(QueueStanding::default, |it| QueueStanding::of(rule, it, self.now, stale_after)))
    }
}

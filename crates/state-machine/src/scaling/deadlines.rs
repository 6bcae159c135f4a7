//! What is due when, in order, so that the passing of time costs only what it brings about.
//!
//! A cluster has one deadline: the first moment at which anything about it could come out differently by itself. One
//! that moves away is left where it is and found out when it comes; moving it at every signal would cost more than
//! looking once too often.

use serde::{Deserialize, Serialize};

use crate::clusters::Clusters;
use crate::table::{Key, Table};
use crate::{ClusterId, Time};

/// Who has a deadline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    Cluster(ClusterId),
    /// The rows of settled actions of a cluster.
    History(ClusterId),
    Collector(Key),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Deadlines {
    ordered: Table<(Time, Due), ()>,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at: Time, due: Due) {
        self.ordered.insert((at, due), ());
    }

    pub(crate) fn remove(&mut self, at: Time, due: Due) {
        self.ordered.remove(&(at, due));
    }

    /// The earliest, if it has come.
    pub(crate) fn first_due(&self, now: Time) -> Option<(Time, Due)> {
        self.ordered.get_min().map(|(first, ())| first.clone()).filter(|(at, _)| *at <= now)
    }
}

/// A walk over all clusters, a few at each entry: something has changed that may concern any of them.
///
/// It walks in a circle. If another change comes before it is through, it goes on from where it is and does one more round up
/// to there, so that any number of changes costs at most two looks at each cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sweep {
    /// The last one looked at; nothing before the first.
    after: Option<ClusterId>,
    /// How far the round after this one goes; nothing if this is the last.
    again_to: Option<ClusterId>,
    /// Set in the last round.
    until: Option<ClusterId>,
}

impl Sweep {
    pub(crate) fn start() -> Self {
        Self { after: None, again_to: None, until: None }
    }

    /// One more change.
    pub(crate) fn again(self) -> Self {
        match (self.after, self.until) {
            (None, None) => self,
            // Before the end of its last round it is as if that round had just begun somewhere in the middle.
            (after, _) => Self { after, again_to: after, until: None },
        }
    }

    /// The next clusters, and what is left of the sweep.
    pub(crate) fn take(mut self, clusters: &Clusters, count: usize) -> (Vec<ClusterId>, Option<Self>) {
        let mut taken = Vec::new();
        loop {
            let mut ended = true;
            for id in clusters.ids_after(self.after) {
                if taken.len() == count {
                    ended = false;
                    break;
                }
                if self.until.is_some_and(|until| id > until) {
                    return (taken, None);
                }
                taken.push(id);
                self.after = Some(id);
            }
            if !ended {
                return (taken, Some(self));
            }
            match self.again_to {
                None => return (taken, None),
                Some(until) => self = Self { after: None, again_to: None, until: Some(until) },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cluster, LogIndex, Revision};

    fn clusters(count: u64) -> Clusters {
        let mut clusters = Clusters::default();
        for index in 1..=count {
            let made = Revision { index: LogIndex(index), ordinal: 0 };
            let created_at = Time::default();
            clusters.put(&Cluster {
                id: made.into(),
                name: format!("c{index}"),
                created: made,
                updated: made,
                created_at,
            });
        }
        clusters
    }

    fn walk(sweep: Sweep, clusters: &Clusters, count: usize) -> (Vec<u64>, Option<Sweep>) {
        let (taken, rest) = sweep.take(clusters, count);
        (taken.iter().map(|id| id.index.0).collect(), rest)
    }

    #[test]
    fn a_sweep_sees_every_cluster_once() {
        let clusters = clusters(5);
        let (first, rest) = walk(Sweep::start(), &clusters, 3);
        let (second, rest) = walk(rest.unwrap(), &clusters, 3);
        assert_eq!((first, second, rest), (vec![1, 2, 3], vec![4, 5], None));
    }

    #[test]
    fn a_change_in_the_middle_adds_one_round_up_to_there_and_no_more() {
        let clusters = clusters(5);
        let (_, rest) = walk(Sweep::start(), &clusters, 3);
        let (second, rest) = walk(rest.unwrap().again().again(), &clusters, 3);
        assert_eq!(second, [4, 5, 1]);
        // And one more change in the last round: everything is looked at once more from here.
        let (third, rest) = walk(rest.unwrap().again(), &clusters, 10);
        assert_eq!((third, rest), (vec![2, 3, 4, 5, 1], None));
    }

    #[test]
    fn a_change_before_the_first_step_costs_nothing_more() {
        assert_eq!(Sweep::start().again(), Sweep::start());
        let (all, rest) = walk(Sweep::start(), &clusters(0), 3);
        assert_eq!((all, rest), (vec![], None));
    }
}

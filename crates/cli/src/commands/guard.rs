//! `apply --if-revision`: nothing is written if what decides is not as it was at the revision that somebody has looked at.
//!
//! What was changed is found by the group itself, in the transaction that writes: a change that comes in between is found, too. What was taken
//! away leaves nothing in the state that could be compared, so the history is asked for it before; strategies that are there now must still
//! be there when it is written.
//!
//! Not found is what else is taken away in the moment between the two: a pause or an override that ends, a size, a cluster that leaves a pattern, and
//! everything when a backup is restored.

use std::collections::BTreeSet;

use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{self, Strategy, change};
use loadline_client::{Client, HistoryQuery, Reading};

use crate::exit::{Exit, Failed};
use crate::manifest::{Manifest, Spec};

/// What is not there any more after one of these.
const GONE: [&str; 8] = [
    "StrategyDropped",
    "ClusterDropped",
    "ClusterRenamed",
    "ClusterResumed",
    "OverrideEnded",
    "SizeDropped",
    "SignalDropped",
    "RestoreFinished",
];

/// Things that went away, as many as are asked for first.
const ROWS_FIRST: usize = 100;
/// More than anybody looks through.
const ROWS_MAX: usize = 10_000;

/// About which clusters a file decides.
struct Decided {
    clusters: BTreeSet<String>,
    /// Clusters that nobody has named, by a pattern, or because a setting or a size is for all.
    others: BTreeSet<Other>,
    /// Signals that are named. What others bring in happens all the time.
    signals: BTreeSet<String>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Other {
    Like(String),
    All,
}

impl Decided {
    fn by(manifests: &[Manifest]) -> Decided {
        let mut decided = Decided { clusters: BTreeSet::new(), others: BTreeSet::new(), signals: BTreeSet::new() };
        for manifest in manifests {
            match &manifest.spec {
                Spec::Cluster { .. } => drop(decided.clusters.insert(manifest.name.clone())),
                Spec::Size { .. } | Spec::Setting { .. } => drop(decided.others.insert(Other::All)),
                Spec::Strategy(strategy) => decided.add(&strategy.target),
                Spec::Signal(signal) => {
                    decided.signals.insert(manifest.name.clone());
                    decided.add(&signal.target);
                }
            }
        }
        decided
    }

    fn add(&mut self, target: &Target) {
        match target {
            Target::Cluster(name) => drop(self.clusters.insert(name.clone())),
            Target::Pattern(pattern) => drop(self.others.insert(Other::Like(pattern.clone()))),
            Target::All(_) => drop(self.others.insert(Other::All)),
        }
    }

    fn targets(&self) -> Vec<v1::StrategyTarget> {
        let clusters = self.clusters.iter().map(|name| Target::Cluster(name.clone()));
        let others = self.others.iter().map(|other| match other {
            Other::Like(pattern) => Target::Pattern(pattern.clone()),
            Other::All => Target::All(true),
        });
        clusters.chain(others).map(|target| v1::StrategyTarget { target: Some(target) }).collect()
    }

    /// Whether something that went away may have decided. What is about no cluster may have been about any.
    fn is_concerned(&self, row: &v1::HistoryRow) -> bool {
        let of_kind =
            |wanted: &str| row.resource.split_once('/').filter(|(kind, _)| *kind == wanted).map(|(_, name)| name);
        if let Some(signal) = of_kind("signals") {
            return self.signals.contains(signal);
        }
        let resource = of_kind("clusters");
        let named: Vec<&str> =
            [row.cluster.as_str()].into_iter().filter(|name| !name.is_empty()).chain(resource).collect();
        !self.others.is_empty() || named.is_empty() || named.iter().any(|name| self.clusters.contains(*name))
    }

    /// The strategies that can rule what it decides about.
    fn ruled_by<'a>(&self, strategies: &'a [Strategy]) -> Vec<&'a Strategy> {
        let may_rule = |strategy: &&Strategy| match strategy.target.as_ref().and_then(|target| target.target.as_ref()) {
            Some(Target::Cluster(name)) => !self.others.is_empty() || self.clusters.contains(name),
            _ => true,
        };
        strategies.iter().filter(may_rule).collect()
    }
}

/// The condition that goes first in the transaction. `strategies` are those that there are, at revision `now`.
pub(super) async fn condition(
    manifests: &[Manifest],
    since: u64,
    strategies: &[Strategy],
    now: u64,
    client: &Client,
) -> Result<change::Change, Failed> {
    if since > now {
        return Err(Failed::usage(format!("--if-revision {since}: the group is at revision {now}"))
            .hint("give the revision that whatif, diff or get has shown"));
    }
    let decided = Decided::by(manifests);
    let query = HistoryQuery { kinds: GONE.map(str::to_owned).to_vec(), ..HistoryQuery::default() };
    // The newest come first, and mostly little has happened since.
    let mut count = ROWS_FIRST;
    let found = loop {
        let found = client.search_history(&query, count, Reading::Linearizable).await?;
        let reaches_back = found.rows.last().is_none_or(|oldest| oldest.log_index <= since);
        if reaches_back || !found.more || count >= ROWS_MAX {
            break found;
        }
        count = ROWS_MAX;
    };
    if let Some(row) = found.rows.iter().find(|row| row.log_index > since && decided.is_concerned(row)) {
        return Err(refused(format!("at revision {}, after {since}: {}", row.log_index, row.what), since));
    }
    let unseen = found.gaps.iter().map(|gap| gap.last_index).max().filter(|last| *last > since);
    let cut = found.rows.last().map(|row| row.log_index).filter(|first| found.more && *first > since);
    if unseen.or(cut).is_some() {
        let message =
            format!("what was taken away after revision {since} cannot be told: the history of this node is too short");
        return Err(refused(message, since));
    }
    let strategies = decided.ruled_by(strategies).into_iter().map(|strategy| strategy.id.clone()).collect();
    let (options, targets) = (None, decided.targets());
    Ok(change::Change::ExpectUnchanged(v1::ExpectUnchangedRequest {
        options,
        since_revision: since,
        targets,
        strategies,
    }))
}

fn refused(message: String, since: u64) -> Failed {
    Failed::new(Exit::Conflict, message).hint(what_to_do(since))
}

pub(crate) fn what_to_do(since: u64) -> String {
    format!("nothing was written; see loadline audit diff {since} end, decide again, and give the revision you saw")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::parse;

    #[test]
    fn a_signal_that_was_dropped_concerns_a_file_that_names_it_and_no_other() {
        assert!(GONE.contains(&"SignalDropped"));
        let gone = |name: &str, cluster: &str| v1::HistoryRow {
            resource: format!("signals/{name}"),
            cluster: cluster.to_owned(),
            ..v1::HistoryRow::default()
        };
        let files = ["CREATE SIGNAL depth FROM PUSH", "CREATE SIGNAL depth FOR CLUSTER demo FROM PUSH"];
        for file in files {
            let decided = Decided::by(&parse(file).unwrap());
            // Also one that was for another cluster: the file would make it anew for its own.
            for cluster in ["", "demo", "elsewhere"] {
                assert!(decided.is_concerned(&gone("depth", cluster)), "{file}: {cluster}");
                assert!(!decided.is_concerned(&gone("other", cluster)), "{file}: {cluster}");
            }
        }
    }
}

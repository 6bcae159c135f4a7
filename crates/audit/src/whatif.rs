//! Which clusters would decide differently right now if a change were made.
//!
//! The change is carried out on a fork, and every cluster is looked at twice: as it is, and on the fork. What would follow from
//! that in time is another question (`backtest`).

use loadline_state_machine::{
    Actor, ClusterId, Conclusion, Decision, Held, LogIndex, Planned, Reason, ReplicaSpec, Request, State, Time,
    rehearse_fork,
};

use crate::change::{Change, ChangeError};
use crate::why::{dry_run, replicas_of, why};

pub use crate::why::dropped;

/// What the brain says about one cluster at one moment, as far as it can be told from another saying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outlook {
    pub desired: Vec<ReplicaSpec>,
    pub planned: Vec<Planned>,
    pub conclusion: Conclusion,
    pub brakes: Vec<Held>,
    /// Of the strategies, in the order in which they run: whose they are, and why.
    pub reasons: Vec<(&'static str, Reason)>,
    /// The same with those in dry run; nothing if none is, or if it would be the same.
    pub shadow: Option<Vec<ReplicaSpec>>,
    /// In one line: what held it, and the reason that speaks for the whole.
    pub why: String,
}

impl Outlook {
    fn of(decision: Decision) -> Outlook {
        Outlook {
            why: why(&decision),
            shadow: dry_run(&decision).map(|shadow| shadow.desired.clone()),
            desired: decision.desired,
            planned: decision.planned,
            conclusion: decision.conclusion,
            brakes: decision.brakes,
            reasons: decision.stages.into_iter().map(|stage| (stage.kind.as_str(), stage.reason)).collect(),
        }
    }

    /// Whether anything else would be wanted, done or held. Another reason for the same is no difference.
    fn differs(&self, other: &Outlook) -> bool {
        let steps = |it: &Outlook| it.planned.iter().map(|planned| planned.step.clone()).collect::<Vec<_>>();
        let brakes = |it: &Outlook| it.brakes.iter().map(|held| held.brake).collect::<Vec<_>>();
        self.desired != other.desired
            || self.conclusion.code() != other.conclusion.code()
            || self.shadow != other.shadow
            || steps(self) != steps(other)
            || brakes(self) != brakes(other)
    }

    /// Nothing is wanted that is not there, and nothing is held.
    fn is_quiet(&self) -> bool {
        self.planned.is_empty() && self.conclusion == Conclusion::AsWanted && self.shadow.is_none()
    }

    /// The reason that speaks for the whole: of the first step that is planned, else of the strategy with the last word.
    pub fn reason(&self) -> Option<(&'static str, &Reason)> {
        let planned = self.planned.first().map(|planned| (planned.by.code(), &planned.reason));
        planned.or_else(|| self.reasons.last().map(|(kind, reason)| (*kind, reason)))
    }
}

/// A cluster that would decide differently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Different {
    pub cluster: String,
    /// Nothing: nothing is decided about it, because the change makes it, or switches the feature on.
    pub before: Option<Outlook>,
    /// Nothing: the change drops it, or switches the feature off.
    pub after: Option<Outlook>,
    /// Of one that the change drops: what is there of it, which nobody drops from then on.
    pub left_behind: Option<Vec<ReplicaSpec>>,
}

/// What a change would make of a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhatIf {
    /// The state it was tried on.
    pub index: LogIndex,
    pub at: Time,
    pub clusters: u64,
    /// By name.
    pub different: Vec<Different>,
}

/// Tries a change on this state. `looked` hears how many clusters were looked at so far, and of how many.
pub fn whatif(
    state: &State,
    change: &Change,
    actor: &Actor,
    mut looked: impl FnMut(u64, u64),
) -> Result<WhatIf, ChangeError> {
    let commands = change.commands(state, actor)?;
    let fork = if commands.is_empty() {
        state.clone()
    } else {
        let request = Request { actor: actor.clone(), request_id: None, commands };
        rehearse_fork(state, &request, state.now()).map_err(|refused| ChangeError::whole(&refused.rejection))?.0
    };
    let ids = |state: &State| state.clusters_after(None).map(|cluster| cluster.id).collect::<Vec<ClusterId>>();
    let (there, after) = (ids(state), ids(&fork));
    let dropped = there.iter().filter(|id| fork.cluster_by_id(**id).is_none());
    let all: Vec<ClusterId> = after.iter().chain(dropped).copied().collect();
    let total = all.len() as u64;
    let (decides_now, decides_then) = (decides(state), decides(&fork));
    let mut different = Vec::new();
    for (number, id) in (1..).zip(all) {
        let before = decides_now.then(|| state.would_decide(id)).flatten().map(Outlook::of);
        let after = decides_then.then(|| fork.would_decide(id)).flatten().map(Outlook::of);
        let left_behind = fork.cluster_by_id(id).is_none().then(|| replicas_of(state, id));
        let same = match (&before, &after) {
            (Some(before), Some(after)) => !before.differs(after),
            // All that is wanted may be there, and yet it is lost.
            (before, None) if left_behind.is_some() => {
                let wants = before.as_ref().is_some_and(|before| !before.desired.is_empty() || !before.is_quiet());
                !wants && left_behind.as_ref().is_some_and(Vec::is_empty)
            }
            (Some(alone), None) | (None, Some(alone)) => alone.is_quiet(),
            (None, None) => true,
        };
        if !same {
            let named = fork.cluster_by_id(id).or_else(|| state.cluster_by_id(id));
            let cluster = named.map_or_else(|| id.to_string(), |cluster| cluster.name.clone());
            different.push(Different { cluster, before, after, left_behind });
        }
        looked(number, total);
    }
    different.sort_by(|one, other| one.cluster.cmp(&other.cluster));
    Ok(WhatIf { index: state.applied(), at: state.now(), clusters: total, different })
}

/// While the feature is off, nothing is decided about anything.
fn decides(state: &State) -> bool {
    state.setting("enable_auto_scaling").is_some_and(|setting| setting.value == "true")
}

#[cfg(test)]
mod tests {
    use loadline_state_machine::Seen;

    use super::*;
    use crate::backtest::tests::scribe::Scribe;

    /// Two clusters, each as its strategy wants it.
    fn two_clusters() -> Scribe {
        let mut scribe = Scribe::new();
        scribe.sql("CREATE SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE WITH (SIZE = '1')");
        for cluster in ["one", "other"] {
            scribe.sql(&format!("CREATE CLUSTER {cluster}"));
        }
        scribe.until(120, |_, _| {});
        scribe
    }

    fn tried(state: &State, change: &str) -> Vec<Different> {
        let change = Change::parse(change).unwrap();
        let mut last = (0, 0);
        let tried = whatif(state, &change, &Actor::default(), |looked, total| last = (looked, total)).unwrap();
        assert_eq!(last, (tried.clusters, tried.clusters), "each was looked at");
        tried.different
    }

    fn names(outlook: Option<&Outlook>) -> Vec<String> {
        let desired = outlook.map_or(&[][..], |outlook| &outlook.desired);
        desired.iter().map(|spec| format!("{} {}", spec.name, spec.size)).collect()
    }

    #[test]
    fn only_those_are_named_that_would_decide_differently_and_the_state_stays_as_it_is() {
        let scribe = two_clusters();
        let before = scribe.state.encode();
        let change = "CREATE SCALING STRATEGY FOR CLUSTER one TYPE TARGET SIZE WITH (SIZE = '2')";
        let different = tried(&scribe.state, change);
        assert_eq!(scribe.state.encode(), before);
        let [one] = different.as_slice() else { panic!("{different:#?}") };
        let (was, would) = (one.before.as_ref(), one.after.as_ref());
        assert_eq!(one.cluster, "one");
        assert_eq!((names(was), names(would)), (vec!["r1_auto 1".to_owned()], vec!["r1_auto 2".to_owned()]));
        let conclusions = [was, would].map(|outlook| outlook.map(|outlook| outlook.conclusion.code()));
        assert_eq!(conclusions, [Some("AS_WANTED"), Some("BEGAN")]);
        assert_eq!(
            would.and_then(Outlook::reason).map(|(kind, reason)| (kind, reason.code())),
            Some(("target_size", "TARGET_MISSING"))
        );
    }

    #[test]
    fn what_changes_no_decision_is_no_difference() {
        let scribe = two_clusters();
        for same in [
            "",
            "ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE UPDATE (SIZE = '1')",
            "ALTER SYSTEM SET auto_scaling_rate_limit = 7; ALTER CLUSTER one RENAME TO another",
            "CREATE SCALING STRATEGY FOR CLUSTER one TYPE IDLE SUSPEND WITH (IDLE AFTER = '1h')",
        ] {
            assert_eq!(tried(&scribe.state, same), [], "{same}");
        }
    }

    #[test]
    fn a_dry_run_is_a_difference_only_where_it_would_come_to_something_else() {
        let mut scribe = two_clusters();
        scribe.seen("watch", "one", Seen::Activity { idle_for: Some(loadline_state_machine::Span::from_hours(1)) });
        let suspend = |after: &str| {
            let with = format!("WITH (IDLE AFTER = '{after}', DRY_RUN = true)");
            tried(&scribe.state, &format!("CREATE SCALING STRATEGY FOR CLUSTER one TYPE IDLE SUSPEND {with}"))
        };
        assert_eq!(suspend("2h"), []);
        let different = suspend("30m");
        let [one] = different.as_slice() else { panic!("{different:#?}") };
        let why = &one.after.as_ref().unwrap().why;
        assert!(why.starts_with("target_size: ") && why.contains("; in dry run idle_suspend: "), "{why}");
    }

    #[test]
    fn replicas_that_somebody_asks_for_are_shown_with_who_asked() {
        let scribe = two_clusters();
        for (change, step) in [
            ("CREATE CLUSTER REPLICA one.zz SIZE = '2'", "create replica zz of size 2"),
            ("DROP CLUSTER REPLICA one.r1_auto", "drop replica r1_auto of size 1"),
        ] {
            let change = Change::parse(change).unwrap();
            let tried = whatif(&scribe.state, &change, &Actor::new("alice", "test"), |_, _| {}).unwrap();
            let [one] = tried.different.as_slice() else { panic!("{tried:#?}") };
            let after = one.after.as_ref().unwrap();
            let steps: Vec<String> = after.planned.iter().map(|planned| crate::words::step(&planned.step)).collect();
            assert_eq!((steps, after.conclusion.code()), (vec![step.to_owned()], "BEGAN"));
            assert_eq!(after.why, "user: asked for by alice");
            assert_eq!(after.reason().map(|(by, reason)| (by, reason.code())), Some(("user", "ASKED")));
        }
    }

    #[test]
    fn a_cluster_that_is_dropped_with_its_replicas_is_a_difference_and_one_that_had_nothing_is_none() {
        let mut scribe = two_clusters();
        let gone = tried(&scribe.state, "DROP CLUSTER one CASCADE");
        let [one] = gone.as_slice() else { panic!("{gone:#?}") };
        assert_eq!((one.cluster.as_str(), names(one.before.as_ref())), ("one", vec!["r1_auto 1".to_owned()]));
        assert_eq!(one.after, None);
        let left = one.left_behind.as_deref().unwrap();
        let told = "the cluster is dropped, and nobody drops the replicas it leaves behind: r1_auto of size 1";
        assert_eq!(dropped(left), told);
        scribe.sql("ALTER SYSTEM SET enable_auto_scaling = false");
        assert_eq!(tried(&scribe.state, "DROP CLUSTER one CASCADE").len(), 1, "they are left behind all the same");
        let mut scribe = Scribe::new();
        scribe.sql("CREATE CLUSTER idle");
        assert_eq!(tried(&scribe.state, "DROP CLUSTER idle"), []);
    }

    #[test]
    fn a_switch_for_all_and_a_cluster_that_comes_or_goes_are_seen() {
        let mut scribe = two_clusters();
        let all = tried(&scribe.state, "ALTER SCALING STRATEGY FOR ALL CLUSTERS TYPE TARGET SIZE UPDATE (SIZE = '2')");
        assert_eq!(all.iter().map(|it| it.cluster.as_str()).collect::<Vec<_>>(), ["one", "other"]);
        let made = tried(&scribe.state, "CREATE CLUSTER third");
        let [third] = made.as_slice() else { panic!("{made:#?}") };
        assert_eq!((third.cluster.as_str(), third.before.is_none()), ("third", true));
        // Used an hour ago: it would be suspended by a strategy that is not there yet, and held by one in dry run only.
        scribe.seen("watch", "one", Seen::Activity { idle_for: Some(loadline_state_machine::Span::from_hours(1)) });
        let suspend =
            "CREATE SCALING STRATEGY FOR CLUSTER one TYPE IDLE SUSPEND WITH (IDLE AFTER = '30m', DRY_RUN = true)";
        let shadow = tried(&scribe.state, suspend);
        let shadows: Vec<_> =
            shadow.iter().map(|it| it.after.as_ref().and_then(|after| after.shadow.clone())).collect();
        assert_eq!(shadows, [Some(vec![])], "{shadow:#?}");
        let refused = Change::parse("CREATE CLUSTER one").unwrap();
        let refused = whatif(&scribe.state, &refused, &Actor::default(), |_, _| {}).unwrap_err();
        assert_eq!(refused.statement.as_deref(), Some("CREATE CLUSTER one"));
    }
}

//! Whether what decides about clusters is still as somebody saw it.
//!
//! Somebody who has looked at what a change would do wants it done only if that is still what it does. A change that is recorded says when the
//! thing was changed last, so all of that is compared with the revision they saw. What is gone says nothing any more: of the strategies that were
//! there, whoever asks names those that must still be.
//!
//! Not here: what has ended by itself or was taken away before whoever asks looked again. The history knows.

use super::like::Like;
use super::stored::{Target, TargetName};
use crate::scaling::rejection::ScalingRejection;
use crate::{Cluster, Event, LogIndex, Rejection, ResourceName, Revision, State, StrategyId};

pub(crate) fn expect(
    state: &State,
    since: LogIndex,
    targets: &[TargetName],
    strategies: &[StrategyId],
) -> Result<Vec<Event>, Rejection> {
    for setting in state.settings() {
        check(since, setting.updated, || ResourceName::setting(&setting.name))?;
    }
    for size in state.sizes() {
        check(since, Some(size.updated), || ResourceName::size(&size.name))?;
    }
    for id in strategies {
        if state.strategy(*id).is_none() {
            return Err(gone(ResourceName::strategy(*id), since));
        }
    }
    for target in targets {
        match target {
            TargetName::Cluster(name) => match state.cluster(name) {
                Some(cluster) => check_cluster(state, since, cluster)?,
                // It is to be made: what will rule it then is for patterns or for all.
                None => check_strategies(state, since, |target| match target {
                    Target::Cluster(_) => false,
                    Target::Pattern(pattern) => Like::new(pattern).is_some_and(|like| like.matches(name)),
                    Target::All => true,
                })?,
            },
            TargetName::Pattern(pattern) => {
                let like = Like::new(pattern);
                check_strategies(state, since, |_| true)?;
                let mut matching =
                    state.clusters_after(None).filter(|it| like.as_ref().is_some_and(|like| like.matches(&it.name)));
                matching.try_for_each(|cluster| check_itself(state, since, cluster))?;
            }
            TargetName::All => {
                check_strategies(state, since, |_| true)?;
                state.clusters_after(None).try_for_each(|cluster| check_itself(state, since, cluster))?;
            }
        }
    }
    Ok(vec![])
}

fn gone(resource: ResourceName, since: LogIndex) -> Rejection {
    ScalingRejection::ChangedSince { resource, since, changed: None }.into()
}

fn check(since: LogIndex, updated: Option<Revision>, name: impl FnOnce() -> ResourceName) -> Result<(), Rejection> {
    match updated.filter(|updated| updated.index > since) {
        Some(changed) => {
            Err(ScalingRejection::ChangedSince { resource: name(), since, changed: Some(changed.index) }.into())
        }
        None => Ok(()),
    }
}

fn check_strategies(state: &State, since: LogIndex, counts: impl Fn(&Target) -> bool) -> Result<(), Rejection> {
    for strategy in state.strategies().filter(|strategy| counts(&strategy.target)) {
        check(since, Some(strategy.updated), || ResourceName::strategy(strategy.id))?;
    }
    Ok(())
}

/// The cluster, and what rules it.
fn check_cluster(state: &State, since: LogIndex, cluster: &Cluster) -> Result<(), Rejection> {
    check_itself(state, since, cluster)?;
    for ruled in state.ruling(cluster.id) {
        check(since, Some(ruled.strategy.updated), || ResourceName::strategy(ruled.strategy.id))?;
    }
    Ok(())
}

/// Its name and its backend, its pause, and its override.
fn check_itself(state: &State, since: LogIndex, cluster: &Cluster) -> Result<(), Rejection> {
    let standing = state.standing(cluster.id);
    let pause = standing.as_ref().and_then(|it| it.pause()).map(|pause| pause.begun);
    let floor = standing.as_ref().and_then(|it| it.floor()).map(|floor| floor.begun);
    for updated in [Some(cluster.updated), pause, floor] {
        check(since, updated, || ResourceName::cluster(&cluster.name))?;
    }
    Ok(())
}

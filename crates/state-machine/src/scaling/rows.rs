//! What is written to the tables by hand: what a strategy remembers, and which rows of settled actions are shown.
//!
//! A strategy is configured by commands of its own, whichever way they come (`configuration`). What it remembers is only its
//! own affair until somebody has to set it right: a cooldown that must not be waited for, a size that is not to be avoided any
//! longer, a set of replicas that a suspended cluster is to come back with. So it can be set, and is checked: what no strategy
//! of that kind could have come to remember never gets into the state.

use std::collections::BTreeSet;

use super::actions::Action;
use super::rejection::ScalingRejection;
use super::retention::DELETED_MAX;
use crate::configuration::StrategyKind;
use crate::decide::Moment;
use crate::names::check_name;
use crate::strategies::desired::ReplicaSpec;
use crate::strategies::{Memory, STRATEGY_STATE_VERSION, StrategyState};
use crate::{ClusterId, Event, Field, Rejection, ResourceName, State, StrategyId, Time};

/// Sizes or replicas that one strategy may be made to remember.
const REMEMBERED_MAX: usize = 64;

/// Sets what a strategy remembers about a cluster, if it still is what was expected.
pub(crate) fn set_state(
    state: &State,
    at: Moment,
    (strategy, cluster): (StrategyId, ClusterId),
    expected: Option<&StrategyState>,
    wanted: Option<&StrategyState>,
) -> Result<Vec<Event>, Rejection> {
    let gone = |resource| Rejection::NotFound { resource };
    let kind = state.strategy(strategy).ok_or_else(|| gone(ResourceName::strategy(strategy)))?.kind;
    state.clusters.by_id(cluster).ok_or_else(|| gone(ResourceName::cluster(cluster.to_string())))?;
    let current = state.scaling.record(cluster).and_then(|record| record.state_of(kind));
    // What another strategy of the same kind left behind is as good as nothing.
    let current = current.filter(|current| current.is_of(strategy));
    if current != expected {
        return Err(ScalingRejection::StateChanged { strategy, cluster }.into());
    }
    if !state.ruling(cluster).iter().any(|ruled| ruled.strategy.id == strategy) {
        return Err(ScalingRejection::NotRuling { strategy, cluster }.into());
    }
    if let Some(wanted) = wanted {
        check_state(state, at.now, strategy, kind, wanted)?;
    }
    if current == wanted {
        return Ok(vec![]);
    }
    Ok(vec![Event::StrategyStateSet { cluster, kind, state: wanted.cloned() }])
}

fn check_state(
    state: &State,
    now: Time,
    strategy: StrategyId,
    kind: StrategyKind,
    wanted: &StrategyState,
) -> Result<(), Rejection> {
    let invalid = |expected: &str| ScalingRejection::InvalidState { kind, expected: expected.to_owned() }.into();
    if wanted.version != STRATEGY_STATE_VERSION || wanted.strategy != strategy {
        return Err(invalid(&format!(
            "expected state_version {STRATEGY_STATE_VERSION}, and the state of this strategy"
        )));
    }
    // A change that is still to come would hold the strategy for ever.
    if wanted.last_change_at.is_some_and(|at| at > now) {
        return Err(invalid("last_change_at is in the future"));
    }
    let size = |size: &str| match state.sizes.get(size) {
        Some(_) => Ok(()),
        None => Err(invalid(&format!("there is no size {size:?}"))),
    };
    let distinct = |names: &mut dyn Iterator<Item = &str>| {
        let mut names: Vec<&str> = names.collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        names.len() == count && count <= REMEMBERED_MAX
    };
    match (&wanted.memory, kind) {
        (Memory::Nothing, _) => Ok(()),
        (Memory::FailedSizes(sizes), StrategyKind::ShrinkToFit) => {
            if !distinct(&mut sizes.iter().map(|it| it.size.as_ref())) {
                return Err(invalid(&format!("each size once, and at most {REMEMBERED_MAX}")));
            }
            if sizes.iter().any(|it| it.at > now) {
                return Err(invalid("a size failed in the future"));
            }
            sizes.iter().try_for_each(|it| size(&it.size))
        }
        (Memory::Suspended(replicas), StrategyKind::IdleSuspend) => {
            if !distinct(&mut replicas.iter().map(|it| it.name.as_ref())) || !replicas.is_sorted() {
                return Err(invalid(&format!("each replica once, by name, and at most {REMEMBERED_MAX}")));
            }
            replicas.iter().try_for_each(|ReplicaSpec { name, size: of }| {
                check_name(Field::Replica, name)?;
                size(of)
            })
        }
        (Memory::FailedSizes(_), _) => Err(invalid("failed_sizes is what shrink_to_fit remembers")),
        (Memory::Course(course), StrategyKind::TargetTracking | StrategyKind::QueueDepth) => {
            course.check(now).map_err(invalid)
        }
        (Memory::Course(_), _) => Err(invalid("a course is what target_tracking and queue_depth remember")),
        (Memory::Suspended(_), _) => Err(invalid("suspended is what idle_suspend remembers")),
    }
}

/// Takes rows of settled actions out of the table. The rows themselves are in the journal, where the state cannot look; but it
/// knows which are not settled, and numbers of another cluster do nothing here.
pub(crate) fn delete_actions(state: &State, cluster: ClusterId, numbers: &[u64]) -> Result<Vec<Event>, Rejection> {
    let too_many = |count: usize| ScalingRejection::TooMany {
        field: Field::Action,
        count: count as u64,
        count_max: DELETED_MAX as u64,
    };
    if numbers.len() > DELETED_MAX {
        return Err(too_many(numbers.len()).into());
    }
    let meant: BTreeSet<u64> = numbers.iter().copied().collect();
    let is_meant = |action: &&Action| meant.contains(&action.number);
    if let Some(action) = state.actions().find(is_meant) {
        return Err(ScalingRejection::NotSettled { number: action.number }.into());
    }
    let Some(history) = state.action_history(cluster) else { return Ok(vec![]) };
    let given_out = state.scaling.actions.numbers;
    let new = |number: &u64| (1..=given_out).contains(number) && !history.is_deleted(*number);
    let numbers: Vec<u64> = meant.into_iter().filter(new).collect();
    if numbers.is_empty() {
        return Ok(vec![]);
    }
    let count = history.deleted_count(state.now, state.settings.knobs().retention) + numbers.len();
    if count > DELETED_MAX {
        return Err(too_many(count).into());
    }
    Ok(vec![Event::ActionRowsDeleted { cluster, numbers }])
}

//! From what is wanted to what has to be done: the difference, in an order that makes before it breaks.
//!
//! Not here: whether it may be done now (`brakes`), and how far it has been done (`operations`).

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::configuration::{MANAGED_SUFFIX, StrategyKind};
use crate::signals::replica::Replica;
use crate::sizes::Sizes;
use crate::strategies::chain::{Said, Stage};
use crate::strategies::desired::{Attribution, ReplicaSpec};
use crate::strategies::reason::Reason;
use crate::table::Key;
use crate::{LogIndex, StrategyId};

/// One change of one replica. New variants go at the end: the place is the number in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    Create(ReplicaSpec),
    /// The replica has another size than it should. The new one gets a name of its own and is ready before the old one goes.
    Replace {
        old: ReplicaSpec,
        incarnation: Option<Key>,
        new: ReplicaSpec,
    },
    /// It names the life of the replica that was seen, so that one made anew under the same name is not meant.
    Drop {
        replica: ReplicaSpec,
        incarnation: Option<Key>,
    },
    /// A drop after which the same replica is meant to come back: its backend keeps a checkpoint of it first.
    Suspend {
        replica: ReplicaSpec,
        incarnation: Option<Key>,
    },
}

impl Step {
    pub fn creates(&self) -> Option<&ReplicaSpec> {
        match self {
            Self::Create(replica) | Self::Replace { new: replica, .. } => Some(replica),
            Self::Drop { .. } | Self::Suspend { .. } => None,
        }
    }

    pub fn drops(&self) -> Option<&ReplicaSpec> {
        match self {
            Self::Drop { replica, .. } | Self::Suspend { replica, .. } | Self::Replace { old: replica, .. } => {
                Some(replica)
            }
            Self::Create(_) => None,
        }
    }

    pub(crate) fn dropped_incarnation(&self) -> Option<&Key> {
        match self {
            Self::Drop { incarnation, .. } | Self::Suspend { incarnation, .. } | Self::Replace { incarnation, .. } => {
                incarnation.as_ref()
            }
            Self::Create(_) => None,
        }
    }

    /// How many calls it needs that the rate limit counts.
    pub(crate) fn counted_actions(&self) -> u64 {
        match self {
            Self::Create(_) | Self::Drop { .. } | Self::Suspend { .. } => 1,
            Self::Replace { .. } => 2,
        }
    }
}

/// A step, who wants it, and for what reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    pub step: Step,
    pub by: Origin,
    pub reason: Reason,
}

impl Planned {
    /// Somebody asked for exactly this once. What an override wants is decided anew each time, as what strategies want is.
    pub(crate) fn is_asked(&self) -> bool {
        matches!(self.reason, Reason::Asked { .. })
    }
}

/// Who wants something to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Strategy {
        id: StrategyId,
        kind: StrategyKind,
    },
    /// Somebody has asked for exactly this, whatever the strategies say. Who it was is in the reason.
    User,
}

/// As logs have it that are older than the wishes of users: the id and the kind of a strategy. No strategy is made at index 0,
/// which is before every log, so that stands for a user.
impl Serialize for Origin {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nobody = StrategyId { index: LogIndex(0), ordinal: 0 };
        let (id, kind) = match self {
            Self::Strategy { id, kind } => (*id, *kind),
            Self::User => (nobody, StrategyKind::TargetSize),
        };
        (id, kind).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Origin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (id, kind) = <(StrategyId, StrategyKind)>::deserialize(deserializer)?;
        Ok(if id.index == LogIndex(0) { Self::User } else { Self::Strategy { id, kind } })
    }
}

impl Origin {
    /// As in the `strategy_type` of an audit row.
    pub fn code(self) -> &'static str {
        match self {
            Self::Strategy { kind, .. } => kind.as_str(),
            Self::User => "user",
        }
    }

    pub fn kind(self) -> Option<StrategyKind> {
        match self {
            Self::Strategy { kind, .. } => Some(kind),
            Self::User => None,
        }
    }

    pub fn strategy(self) -> Option<StrategyId> {
        match self {
            Self::Strategy { id, .. } => Some(id),
            Self::User => None,
        }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Strategy { id, kind } => write!(f, "{kind} {id}"),
            Self::User => f.write_str("user"),
        }
    }
}

/// Everything between what is there and what is wanted, in the order in which it is to be done: first what is added, the
/// smallest first, then what changes its size, then what goes, the largest first. Names decide what sizes leave open, so the
/// order is the same on every node. `checkpoints`: the backend can keep one of each replica that is suspended.
pub(crate) fn difference(actual: &[Replica], said: &Said, sizes: &Sizes, checkpoints: bool) -> Vec<Planned> {
    let (desired, stages) = (&said.desired, &said.stages);
    if !desired.is_changed() {
        return vec![];
    }
    let rank = |size: &str| sizes.get(size).map_or(u32::MAX, |size| size.rank);
    let there = |name: &str| actual.binary_search_by(|replica| replica.name.as_ref().cmp(name)).ok();
    let mut plan = Vec::new();

    let mut added: Vec<&ReplicaSpec> = desired.replicas().filter(|wanted| there(&wanted.name).is_none()).collect();
    added.sort_by_key(|wanted| rank(&wanted.size));
    for wanted in added {
        plan.extend(planned(Step::Create(wanted.clone()), desired.wanted_by(&wanted.name), stages));
    }
    for replica in actual {
        let Some(wanted) = desired.get(&replica.name).filter(|wanted| wanted.size != replica.size) else { continue };
        let taken = |name: &str| there(name).is_some() || desired.get(name).is_some();
        let new = ReplicaSpec {
            name: stand_in(&replica.name, &replica.size, &wanted.size, taken),
            size: wanted.size.clone(),
        };
        let old = ReplicaSpec { name: replica.name.clone(), size: replica.size.clone() };
        let step = Step::Replace { old, incarnation: replica.incarnation.clone(), new };
        plan.extend(planned(step, desired.wanted_by(&replica.name), stages));
    }
    let mut dropped: Vec<&Replica> = actual.iter().filter(|replica| desired.get(&replica.name).is_none()).collect();
    dropped.sort_by_key(|replica| std::cmp::Reverse(rank(&replica.size)));
    for replica in dropped {
        let by = desired.removed_by(&replica.name);
        let incarnation = replica.incarnation.clone();
        let replica = ReplicaSpec { name: replica.name.clone(), size: replica.size.clone() };
        let step = match checkpoints && by.is_some_and(suspends) {
            true => Step::Suspend { replica, incarnation },
            false => Step::Drop { replica, incarnation },
        };
        plan.extend(planned(step, by, stages));
    }
    plan
}

/// Whether what goes is meant to come back as it was: nobody uses the cluster, or a schedule says that nobody will.
fn suspends(by: &Attribution) -> bool {
    by.kind == Some(StrategyKind::IdleSuspend) || matches!(by.reason, Reason::SuspendedBySchedule { .. })
}

/// Nothing if no strategy is to blame, which cannot be: what nobody touched is wanted as it is.
fn planned(step: Step, by: Option<&Attribution>, stages: &[Stage]) -> Option<Planned> {
    let by = by?;
    let reason = by.reason.clone();
    let Some(kind) = by.kind else { return Some(Planned { step, by: Origin::User, reason }) };
    let id = stages.iter().find(|stage| stage.kind == kind)?.strategy;
    Some(Planned { step, by: Origin::Strategy { id, kind }, reason })
}

/// What the new replica is called while the old one still has the name: `main_200cc_auto`, and numbered if that is taken.
/// The size of one that stood in itself goes from its name, or it would grow with every change.
fn stand_in(name: &str, old_size: &str, size: &str, taken: impl Fn(&str) -> bool) -> Key {
    let stem = match name.strip_suffix(MANAGED_SUFFIX) {
        Some(stem) => {
            let unnumbered = stem.trim_end_matches(|digit: char| digit.is_ascii_digit()).strip_suffix('_');
            let plain = [Some(stem), unnumbered].into_iter().flatten();
            let mut stood_in = plain.filter_map(|stem| stem.strip_suffix(old_size)?.strip_suffix('_'));
            stood_in.find(|stem| !stem.is_empty()).unwrap_or(stem)
        }
        None => name,
    };
    let stem = format!("{stem}_{size}");
    let first = format!("{stem}{MANAGED_SUFFIX}");
    let numbered = (2_u64..).map(|number| format!("{stem}_{number}{MANAGED_SUFFIX}"));
    let free = std::iter::once(first).chain(numbered).find(|name| !taken(name));
    free.expect("there are more numbers than replicas").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_has_a_name_of_its_own_that_says_what_it_is() {
        let stand_in = |name, size, taken: &str| stand_in(name, "50cc", size, |name| name == taken).to_string();
        assert_eq!(stand_in("main", "200cc", ""), "main_200cc_auto");
        assert_eq!(stand_in("r1_auto", "200cc", ""), "r1_200cc_auto");
        assert_eq!(stand_in("main", "200cc", "main_200cc_auto"), "main_200cc_2_auto");
        assert_eq!(stand_in("r1_50cc_auto", "200cc", ""), "r1_200cc_auto", "it stood in before");
        assert_eq!(stand_in("r1_50cc_2_auto", "200cc", ""), "r1_200cc_auto");
        assert_eq!(stand_in("50cc_auto", "200cc", ""), "50cc_200cc_auto", "that is its whole name");
        assert_eq!(stand_in("main_50cc", "200cc", ""), "main_50cc_200cc_auto", "a user's name is kept");
    }
}

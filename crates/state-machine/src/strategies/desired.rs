//! The replicas that a cluster should have, as one strategy after the other works on them.

use loadline_mutants::Mutant;
use serde::{Deserialize, Serialize};

use super::Reason;
use crate::configuration::{ReplicaScope, StrategyKind, is_managed};
use crate::table::Key;

/// A replica that should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ReplicaSpec {
    pub name: Key,
    pub size: Key,
}

/// What a strategy did to one replica of the desired state. New variants go at the end: the place is the number in
/// stored decisions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Alteration {
    Added(ReplicaSpec),
    /// It was wanted in another size.
    Resized {
        replica: ReplicaSpec,
        from: Key,
    },
    Removed(ReplicaSpec),
}

impl Alteration {
    pub fn name(&self) -> &Key {
        match self {
            Self::Added(replica) | Self::Removed(replica) | Self::Resized { replica, .. } => &replica.name,
        }
    }
}

/// An alteration, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub alteration: Alteration,
    pub reason: Reason,
}

/// Who is to blame for a replica being wanted, or no longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribution {
    /// Nothing: it was laid over what the strategies want.
    pub(crate) kind: Option<StrategyKind>,
    pub(crate) reason: Reason,
}

#[derive(Clone, Debug)]
struct Wanted {
    replica: ReplicaSpec,
    /// Nobody: it is there.
    by: Option<Attribution>,
}

/// By name. It begins as what is there.
#[derive(Clone, Debug)]
pub(crate) struct Desired {
    wanted: Vec<Wanted>,
    removed: Vec<(Key, Attribution)>,
    stage: Option<(StrategyKind, ReplicaScope)>,
    changes: Vec<Change>,
    /// How many replicas of a size a strategy needs that counts them.
    needed: Vec<(Key, u32)>,
}

impl Desired {
    /// `actual` must be sorted by name.
    pub(crate) fn new<'a>(actual: impl Iterator<Item = (&'a Key, &'a Key)>) -> Self {
        let wanted = actual
            .map(|(name, size)| Wanted { replica: ReplicaSpec { name: name.clone(), size: size.clone() }, by: None })
            .collect();
        Self { wanted, removed: Vec::new(), stage: None, changes: Vec::new(), needed: Vec::new() }
    }

    /// From here on, changes are those of this strategy.
    pub(crate) fn begin(&mut self, kind: StrategyKind, scope: ReplicaScope) {
        self.stage = Some((kind, scope));
        self.changes.clear();
    }

    /// What the strategy did, in the order in which it did it.
    pub(crate) fn end(&mut self) -> Vec<Change> {
        self.stage = None;
        std::mem::take(&mut self.changes)
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = &ReplicaSpec> {
        self.wanted.iter().map(|wanted| &wanted.replica)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&ReplicaSpec> {
        self.place(name).ok().map(|place| &self.wanted[place].replica)
    }

    pub(crate) fn len(&self) -> usize {
        self.wanted.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// A strategy that counts replicas of this size needs so many.
    pub(crate) fn need(&mut self, size: &Key, replicas: u32) {
        self.needed.push((size.clone(), replicas));
    }

    /// How many replicas of this size earlier strategies need, at least.
    pub(crate) fn needed(&self, size: &str) -> u32 {
        self.needed.iter().filter(|(of, _)| &**of == size).map(|(_, replicas)| *replicas).max().unwrap_or(0)
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.wanted.binary_search_by(|wanted| wanted.replica.name.as_ref().cmp(name))
    }

    /// Whether the strategy at work may touch a replica of this name.
    pub(crate) fn may_touch(&self, name: &str) -> bool {
        self.stage.is_some_and(|(_, scope)| {
            scope == ReplicaScope::All || is_managed(name) || Mutant::ManagedOnlyIgnored.is_on()
        })
    }

    /// Wants this replica, under whatever size it was wanted before. Nothing happens outside the strategy's scope.
    pub(crate) fn add(&mut self, replica: ReplicaSpec, reason: Reason) {
        let Some((kind, _)) = self.stage.filter(|_| self.may_touch(&replica.name)) else { return };
        let by = Some(Attribution { kind: Some(kind), reason: reason.clone() });
        let alteration = match self.place(&replica.name) {
            Ok(place) => {
                let before = &mut self.wanted[place];
                if before.replica.size == replica.size {
                    return;
                }
                let from = std::mem::replace(&mut before.replica.size, replica.size.clone());
                before.by = by;
                Alteration::Resized { replica, from }
            }
            Err(place) => {
                self.wanted.insert(place, Wanted { replica: replica.clone(), by });
                Alteration::Added(replica)
            }
        };
        self.changes.push(Change { alteration, reason });
    }

    /// Whatever earlier strategies want that is not there is wanted by this one, for its reason. Nothing happens outside the
    /// strategy's scope.
    pub(crate) fn take_over(&mut self, reason: &Reason) {
        let Some((kind, _)) = self.stage else { return };
        for place in 0..self.wanted.len() {
            let Wanted { replica, by } = &self.wanted[place];
            if by.is_none() || !self.may_touch(&replica.name) {
                continue;
            }
            self.changes.push(Change { alteration: Alteration::Added(replica.clone()), reason: reason.clone() });
            self.wanted[place].by = Some(Attribution { kind: Some(kind), reason: reason.clone() });
        }
    }

    /// Wants the replica of this name no longer. Nothing happens outside the strategy's scope.
    pub(crate) fn remove(&mut self, name: &Key, reason: Reason) {
        let Some((kind, _)) = self.stage.filter(|_| self.may_touch(name)) else { return };
        let Ok(place) = self.place(name) else { return };
        let wanted = self.wanted.remove(place);
        self.removed.push((name.clone(), Attribution { kind: Some(kind), reason: reason.clone() }));
        self.changes.push(Change { alteration: Alteration::Removed(wanted.replica), reason });
    }

    /// What is there stays, whatever a strategy wanted.
    pub(crate) fn keep(&mut self, replica: &ReplicaSpec) {
        if let Err(place) = self.place(&replica.name) {
            self.wanted.insert(place, Wanted { replica: replica.clone(), by: None });
        }
    }

    /// Wants a replica that no strategy wants.
    pub(crate) fn add_beyond(&mut self, replica: ReplicaSpec, reason: Reason) {
        if let Err(place) = self.place(&replica.name) {
            self.wanted.insert(place, Wanted { replica, by: Some(Attribution { kind: None, reason }) });
        }
    }

    /// Wants a replica no longer that no strategy had anything to do with.
    pub(crate) fn remove_beyond(&mut self, name: &Key, reason: Reason) {
        if let Ok(place) = self.place(name) {
            self.wanted.remove(place);
            self.removed.push((name.clone(), Attribution { kind: None, reason }));
        }
    }

    /// Whether any strategy did anything.
    pub(crate) fn is_changed(&self) -> bool {
        !self.removed.is_empty() || self.has_additions()
    }

    /// Whether a strategy wants something that is not there.
    pub(crate) fn has_additions(&self) -> bool {
        self.wanted.iter().any(|wanted| wanted.by.is_some())
    }

    /// Who wanted this replica as it is wanted.
    pub(crate) fn wanted_by(&self, name: &str) -> Option<&Attribution> {
        self.place(name).ok().and_then(|place| self.wanted[place].by.as_ref())
    }

    /// Who removed this replica last.
    pub(crate) fn removed_by(&self, name: &str) -> Option<&Attribution> {
        self.removed.iter().rev().find(|(removed, _)| removed.as_ref() == name).map(|(_, by)| by)
    }

    pub(crate) fn specs(&self) -> Vec<ReplicaSpec> {
        self.replicas().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, size: &str) -> ReplicaSpec {
        ReplicaSpec { name: name.into(), size: size.into() }
    }

    #[test]
    fn a_strategy_that_manages_only_its_own_touches_nothing_else() {
        let actual = [spec("a_auto", "25cc"), spec("main", "25cc")];
        let mut desired = Desired::new(actual.iter().map(|it| (&it.name, &it.size)));
        desired.begin(StrategyKind::IdleSuspend, ReplicaScope::ManagedOnly);
        for replica in &actual {
            desired.remove(&replica.name, Reason::Woken);
        }
        desired.add(spec("main", "50cc"), Reason::Woken);
        desired.add(spec("other", "50cc"), Reason::Woken);
        assert_eq!(desired.specs(), [spec("main", "25cc")]);
        assert_eq!(desired.end().len(), 1, "what did not happen is not told");
    }

    #[test]
    fn the_last_strategy_that_had_a_say_is_the_one_to_blame() {
        let mut desired = Desired::new([].into_iter());
        desired.begin(StrategyKind::TargetSize, ReplicaScope::All);
        desired.add(spec("r1_auto", "25cc"), Reason::TargetAlone);
        desired.begin(StrategyKind::ShrinkToFit, ReplicaScope::All);
        desired.add(spec("r1_auto", "50cc"), Reason::NoneHealthy);
        assert_eq!(desired.wanted_by("r1_auto").and_then(|by| by.kind), Some(StrategyKind::ShrinkToFit));
        desired.begin(StrategyKind::IdleSuspend, ReplicaScope::All);
        desired.remove(&"r1_auto".into(), Reason::Woken);
        assert_eq!(desired.removed_by("r1_auto").and_then(|by| by.kind), Some(StrategyKind::IdleSuspend));
        assert!(desired.is_empty());
    }
}

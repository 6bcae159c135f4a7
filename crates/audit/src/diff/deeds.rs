//! What was done to each thing between two moments.
//!
//! Kept for as long as somebody may be told: of what is neither there any more nor was there at the first moment, nothing is. So memory goes
//! with the size of the two states, not with how much happened in between.

use std::collections::{BTreeMap, BTreeSet};

use loadline_state_machine::{
    Action, ActionStatus, Call, Cause, ClusterId, Event, ResourceKind, ResourceName, Seen, State, Target,
    resource_changes,
};

use super::Deed;
use crate::part::asker;
use crate::replay::Step;
use crate::trail::Who;
use crate::words::words;

/// Deeds that are told of one thing: the newest, and of every kind the last. Whoever wants all of them searches the history.
const DEEDS_MAX: usize = 20;

/// How the names of replicas begin.
const REPLICAS: &str = "replicas/";

/// What is shown under another name, or with another name in it, after a cluster was renamed.
fn named_after(id: ClusterId, names: [&str; 2], state: &State) -> Vec<String> {
    let strategies = state.strategies().filter(|strategy| strategy.target == Target::Cluster(id));
    let mut after: Vec<String> = strategies.map(|it| ResourceName::strategy(it.id).to_string()).collect();
    let signals = state.signals_after(None).filter(|signal| signal.target == Target::Cluster(id));
    after.extend(signals.map(|it| ResourceName::signal(&*it.name).to_string()));
    let roles = state.roles_after(None).filter(|role| role.clusters.contains(&id));
    after.extend(roles.map(|it| ResourceName::role(&it.name).to_string()));
    for replica in state.standing(id).iter().flat_map(|it| &it.signals().replicas) {
        after.extend(names.map(|name| replica_name(name, &replica.name)));
    }
    after
}

pub(super) fn replica_name(cluster: &str, replica: &str) -> String {
    format!("{REPLICAS}{cluster}/{replica}")
}

/// See the module.
#[derive(Default)]
pub(super) struct Deeds {
    /// What was there at the first moment: whatever becomes of it is told.
    before: BTreeSet<String>,
    by_name: BTreeMap<String, Vec<Deed>>,
    /// The action that last changed a replica: whoever sees the replica then sees what that one did.
    replicas: BTreeMap<String, Links>,
    /// Replicas that an action has made and nobody has seen yet.
    awaited: BTreeSet<String>,
    /// What this entry is about.
    touched: BTreeSet<String>,
}

/// Adds a deed. Of too many the oldest goes that is neither the first nor the last of its kind: those say who made the thing, and who changed
/// each of its fields last.
fn push(deeds: &mut Vec<Deed>, deed: Deed) {
    deeds.push(deed);
    if deeds.len() <= DEEDS_MAX {
        return;
    }
    let goes = (0..deeds.len()).find(|at| {
        let same = |other: &Deed| other.kind == deeds[*at].kind;
        deeds[..*at].iter().any(same) && deeds[at + 1..].iter().any(same)
    });
    if let Some(goes) = goes {
        deeds.remove(goes);
    }
}

impl Deeds {
    /// From the moment on at which these things were there.
    pub(super) fn since(before: impl Iterator<Item = String>) -> Deeds {
        Deeds { before: before.collect(), ..Deeds::default() }
    }

    pub(super) fn take(&mut self, name: &str) -> Vec<Deed> {
        self.by_name.remove(name).unwrap_or_default()
    }

    /// Adds what one entry did.
    pub(super) fn add(&mut self, step: &Step<'_>) {
        self.note(step);
        for name in std::mem::take(&mut self.touched) {
            if is_there(&name, step.state) {
                self.awaited.remove(&name);
            } else if !self.before.contains(&name) && !self.awaited.contains(&name) {
                self.by_name.remove(&name);
                self.replicas.remove(&name);
            }
        }
    }

    /// The replicas of a cluster of this name of which anything is known; they are not waited for any more.
    fn give_up_replicas_of(&mut self, cluster: &str) -> Vec<String> {
        let prefix = replica_name(cluster, "");
        self.awaited.retain(|name| !name.starts_with(&prefix));
        let is_one = |name: &&String| name.starts_with(&prefix);
        let done = self.by_name.range(prefix.clone()..).map(|(name, _)| name).take_while(is_one);
        let there = self.before.range(prefix.clone()..).take_while(is_one);
        done.chain(there).cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn note(&mut self, step: &Step<'_>) {
        let caused = step.applied.causes.iter().zip(&step.applied.events);
        for (cause, event) in caused {
            let told = Told { step, event, cause: *cause };
            match event {
                Event::SignalsReported { cluster, observations, .. } => {
                    let Some(cluster) = step.state.cluster_by_id(*cluster) else { continue };
                    for observation in observations {
                        let (Seen::Replica { name, .. }
                        | Seen::ReplicaGone { name, .. }
                        | Seen::Hydration { replica: name, .. }) = &observation.seen
                        else {
                            continue;
                        };
                        let name = replica_name(&cluster.name, name);
                        let links = self.replicas.get(&name).cloned().unwrap_or_default();
                        self.tell(&told, [name], &links);
                    }
                }
                Event::ActionPlanned { action }
                | Event::ActionApproved { action }
                | Event::ActionClaimed { action }
                | Event::ActionReturned { action }
                | Event::ActionUnsure { action }
                | Event::ActionHurried { action } => {
                    self.tell(&told, [ResourceName::action(action.id).to_string()], &Links::of(action));
                }
                Event::ActionSettled { action, .. } => {
                    let links = Links::of(action);
                    let replica = replica_name(&action.cluster_name, action.call.replica());
                    self.tell(&told, [ResourceName::action(action.id).to_string(), replica.clone()], &links);
                    self.settled(action, replica, links);
                }
                Event::OperationBegun { operation }
                | Event::OperationAdvanced { operation }
                | Event::OperationEnded { operation, .. } => {
                    let links = Links { decision: Some(operation.decision.to_string()), ..Links::default() };
                    self.tell(&told, [ResourceName::operation(operation.id).to_string()], &links);
                }
                Event::DecisionMade { decision } => {
                    let Some(cluster) = step.state.cluster_by_id(decision.cluster) else { continue };
                    let links = Links { decision: Some(decision.id.to_string()), ..Links::default() };
                    self.tell(&told, [ResourceName::cluster(&cluster.name).to_string()], &links);
                }
                Event::ClusterPaused { cluster, .. }
                | Event::ClusterResumed { cluster, .. }
                | Event::ClusterWoken { cluster, .. }
                | Event::ClusterOverridden { cluster, .. }
                | Event::OverrideEnded { cluster, .. } => {
                    let Some(cluster) = step.state.cluster_by_id(*cluster) else { continue };
                    self.tell(&told, [ResourceName::cluster(&cluster.name).to_string()], &Links::default());
                }
                Event::ClusterDropped { cluster } => {
                    // Its replicas are forgotten with it.
                    let mut names = self.give_up_replicas_of(&cluster.name);
                    names.push(ResourceName::cluster(&cluster.name).to_string());
                    self.tell(&told, names, &Links::default());
                }
                Event::RulesRaised { .. } | Event::LeaderAnnounced { .. } => {
                    self.tell(&told, ["group".to_owned()], &Links::default());
                }
                Event::RestoreFinished { .. } => {
                    self.tell(&told, ["group".to_owned()], &Links::default());
                    // What is not in the backup goes without a word.
                    self.awaited.clear();
                    self.touched.extend(self.by_name.keys().cloned());
                }
                other => {
                    let changes = resource_changes(std::slice::from_ref(other));
                    let mut names: BTreeSet<String> = changes.iter().map(|change| change.name.to_string()).collect();
                    if let Event::ClusterRenamed { from, cluster } = other {
                        names.extend(named_after(cluster.id, [from, &cluster.name], step.state));
                        let left = self.give_up_replicas_of(from);
                        self.touched.extend(left);
                    }
                    self.tell(&told, names, &Links::default());
                }
            }
        }
    }

    fn tell(&mut self, told: &Told<'_>, names: impl IntoIterator<Item = String>, links: &Links) {
        let Told { step, event, cause } = told;
        for name in names {
            let Links { decision, action, by } = links.clone();
            let deed = Deed {
                index: step.applied.index.0,
                at: step.applied.time,
                kind: event.kind_name(),
                what: words(event, step.state),
                who: asker(step.entry, *cause).map(Who::from),
                decision,
                action,
                by,
            };
            self.touched.insert(name.clone());
            push(self.by_name.entry(name).or_default(), deed);
        }
    }

    /// Remembers what an action did to a replica, for whoever sees it.
    fn settled(&mut self, action: &Action, replica: String, links: Links) {
        if matches!(
            action.call,
            Call::CreateReplica(_) | Call::DropReplica(_) | Call::CordonReplica(_) | Call::UncordonReplica(_)
        ) {
            self.replicas.insert(replica.clone(), links);
        }
        match (&action.call, &action.status) {
            (Call::CreateReplica(_), ActionStatus::Succeeded) => self.awaited.insert(replica),
            _ => self.awaited.remove(&replica),
        };
    }
}

/// Something that happened, and why.
struct Told<'a> {
    step: &'a Step<'a>,
    event: &'a Event,
    cause: Cause,
}

/// Whether the state has something of this name.
fn is_there(name: &str, state: &State) -> bool {
    if let Some((cluster, replica)) = name.strip_prefix(REPLICAS).and_then(|rest| rest.split_once('/')) {
        let standing = state.cluster(cluster).and_then(|cluster| state.standing(cluster.id));
        return standing.is_some_and(|it| it.signals().replicas.iter().any(|it| *it.name == *replica));
    }
    // The group itself.
    let Ok(ResourceName { kind, name }) = name.parse() else { return true };
    match kind {
        ResourceKind::Size => state.size(&name).is_some(),
        ResourceKind::Cluster => state.cluster(&name).is_some(),
        // There are only so many.
        ResourceKind::Setting => true,
        ResourceKind::Strategy => name.parse().is_ok_and(|id| state.strategy(id).is_some()),
        ResourceKind::Operation => name.parse().is_ok_and(|id| state.operation(id).is_some()),
        ResourceKind::Action => name.parse().is_ok_and(|id| state.action(id).is_some()),
        ResourceKind::Role => state.role(&name).is_some(),
        ResourceKind::Signal => state.signal(&name).is_some(),
        // It is told as a part of its cluster.
        ResourceKind::Decision => false,
    }
}

/// What something followed from.
#[derive(Clone, Default)]
struct Links {
    decision: Option<String>,
    action: Option<String>,
    by: Option<String>,
}

impl Links {
    fn of(action: &Action) -> Links {
        Links {
            decision: Some(action.decision.to_string()),
            action: Some(action.id.to_string()),
            by: Some(action.by.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::things;
    use super::*;
    use crate::day::Day;
    use crate::made::Made;
    use crate::replay::{Moment, Start, replay};

    #[test]
    fn what_is_remembered_goes_with_what_there_is_and_not_with_what_has_happened() {
        let mut day = Day::new(10, 1).with_failover_every(700);
        let made = Made { records: (0..12_000).map(|_| day.record()).collect() };
        let before = replay(&made, Start::Beginning, Moment::Index(300), |_| {}).unwrap().state;
        let there = things(&before);
        let mut deeds = Deeds::since(there.keys().cloned());
        let (mut actions, mut most) = (BTreeSet::new(), 0);
        replay(&made, Start::From(Box::new(before)), Moment::End, |step| {
            deeds.add(step);
            actions.extend(step.applied.events.iter().filter_map(Event::action).map(|action| action.id));
            let known = deeds.by_name.len();
            most = most.max(known);
            assert!(deeds.replicas.len() <= known, "{:?}", deeds.replicas.keys());
            if step.record.index % 100 == 0 {
                let now = things(step.state);
                let told = deeds.by_name.keys().filter(|name| !there.contains_key(*name) && !now.contains_key(*name));
                // What an action has made shows up a little later.
                let told: Vec<&String> = told.filter(|name| !deeds.awaited.contains(*name)).collect();
                assert_eq!(told, Vec::<&String>::new(), "at entry {}", step.record.index);
            }
        })
        .unwrap();
        assert!(actions.len() > 2 * most, "{} actions, and {most} things at most", actions.len());
    }
}

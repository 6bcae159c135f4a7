//! What was done to each thing between two moments, and which deed each of its fields comes from.
//!
//! A field is put down to the last entry across which its value changed, and there to the deed that can have changed it: an entry may hold
//! what many asked for at once.
//!
//! Kept for as long as somebody may be told: of what is neither there any more nor was there at the first moment, nothing is. So memory goes
//! with the size of the two states, not with how much happened in between.

use std::collections::{BTreeMap, BTreeSet};

use loadline_state_machine::{
    Action, ActionStatus, Call, Cause, ClusterId, Event, ResourceName, Seen, State, Target, resource_changes,
};

use super::things::{Fields, GROUP, Thing, cluster_key, replica_key, thing, things, told_by};
use super::{Deed, fields_of_either};
use crate::part::asker;
use crate::replay::Step;
use crate::trail::Who;
use crate::words::words_asked;

/// Deeds that are told of one thing: the newest, of every kind the first and the last, and those that a field comes from. Whoever wants all
/// of them searches the history.
const DEEDS_MAX: usize = 20;

/// The kinds of events that change a field where the event does not carry the whole thing; none: any that is about it. They only tell
/// several deeds of one entry apart: whether the field changed at all is seen by its value.
fn changers(key: &str, field: &str) -> &'static [&'static str] {
    let kind = key.split('/').next().unwrap_or(key);
    match (kind, field.split('.').next().unwrap_or(field)) {
        (GROUP, "incarnation") => &["LeaderAnnounced", "RestoreFinished"],
        (GROUP, "rules_version") => &["RulesRaised", "RestoreFinished"],
        ("clusters", "id") => &["ClusterCreated", "ClusterRestored"],
        ("clusters", "name") => &["ClusterCreated", "ClusterRestored", "ClusterRenamed"],
        ("clusters", "conclusion") => &["DecisionMade"],
        ("clusters", "pause") => &["ClusterPaused", "ClusterResumed"],
        ("clusters", "override") => &["ClusterOverridden", "OverrideEnded"],
        ("clusters", "backend") => &["ClusterPlaced"],
        ("strategies", "target") => &["StrategyCreated", "StrategyRestored", "ClusterRenamed"],
        ("signals", "target") => &["SignalCreated", "SignalRestored", "SignalChanged", "ClusterRenamed"],
        ("replicas", "ready" | "hydrated") => &["SignalsReported"],
        ("replicas", "cordoned") => &["ActionSettled"],
        _ => &[],
    }
}

/// What has the name of a cluster in it, as its target or where it may be used.
fn named_after(id: ClusterId, state: &State) -> Vec<String> {
    let strategies = state.strategies().filter(|strategy| strategy.target == Target::Cluster(id));
    let mut after: Vec<String> = strategies.map(|it| ResourceName::strategy(it.id).to_string()).collect();
    let signals = state.signals_after(None).filter(|signal| signal.target == Target::Cluster(id));
    after.extend(signals.map(|it| ResourceName::signal(&*it.name).to_string()));
    let roles = state.roles_after(None).filter(|role| role.clusters.contains(&id));
    after.extend(roles.map(|it| ResourceName::role(&it.name).to_string()));
    after
}

/// What was done to one thing.
#[derive(Default)]
pub(super) struct Done {
    /// With their numbers, by which fields know them.
    deeds: Vec<(u64, Deed)>,
    /// By field, the deed that it comes from.
    credit: BTreeMap<String, u64>,
}

impl Done {
    /// Of too many the oldest goes that no field comes from, and that is neither the first nor the last of its kind: those say who made the
    /// thing, and what happened to it last.
    fn push(&mut self, number: u64, deed: Deed) {
        self.deeds.push((number, deed));
        if self.deeds.len() <= DEEDS_MAX {
            return;
        }
        let goes = (0..self.deeds.len()).find(|at| {
            let (number, deed) = &self.deeds[*at];
            let same = |(_, other): &(u64, Deed)| other.kind == deed.kind;
            let between = self.deeds[..*at].iter().any(same) && self.deeds[at + 1..].iter().any(same);
            between && !self.credit.values().any(|credited| credited == number)
        });
        if let Some(goes) = goes {
            self.deeds.remove(goes);
        }
    }

    /// Puts every field that is not what it was down to a deed.
    fn credit(&mut self, before: &Fields, after: &Fields, deed_of: impl Fn(&str) -> Option<u64>) {
        for field in fields_of_either(before, after).filter(|field| before.get(*field) != after.get(*field)) {
            if let Some(number) = deed_of(field) {
                self.credit.insert(field.clone(), number);
            }
        }
    }

    /// The place of the deed that a field comes from, among all of them.
    pub(super) fn of(&self, field: &str) -> Option<usize> {
        let credited = self.credit.get(field)?;
        self.deeds.iter().position(|(number, _)| number == credited)
    }

    /// With those of a thing before, in whose place this one came. What it does not have, it never had since it was made.
    pub(super) fn instead_of(mut self, before: Done) -> Done {
        let made = self.deeds.first().map(|(number, _)| *number);
        for field in before.credit.into_keys() {
            self.credit.extend(made.filter(|_| !self.credit.contains_key(&field)).map(|made| (field, made)));
        }
        self.deeds.splice(0..0, before.deeds);
        self
    }

    pub(super) fn into_deeds(self) -> Vec<Deed> {
        self.deeds.into_iter().map(|(_, deed)| deed).collect()
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Deeds {
    /// What was there at the first moment: whatever becomes of it is told.
    before: BTreeSet<String>,
    /// Everything as it was after the last entry.
    now: BTreeMap<String, Fields>,
    by_key: BTreeMap<String, Done>,
    /// The action that last changed a replica: whoever sees the replica then sees what that one did.
    replicas: BTreeMap<String, Links>,
    /// Replicas that an action has made and nobody has seen yet.
    awaited: BTreeSet<String>,
    /// What this entry is about, with the numbers and the kinds of what it did.
    touched: BTreeMap<String, Vec<(u64, &'static str)>>,
    deeds: u64,
}

impl Deeds {
    /// From the moment on at which these things were there.
    pub(super) fn since(before: &BTreeMap<String, Thing>) -> Deeds {
        let now = before.iter().map(|(key, thing)| (key.clone(), thing.fields.clone())).collect();
        Deeds { before: before.keys().cloned().collect(), now, ..Deeds::default() }
    }

    pub(super) fn take(&mut self, key: &str) -> Done {
        self.by_key.remove(key).unwrap_or_default()
    }

    /// Adds what one entry did.
    pub(super) fn add(&mut self, step: &Step<'_>) {
        self.note(step);
        for (key, deeds) in std::mem::take(&mut self.touched) {
            let there = thing(&key, step.state);
            self.seen(&key, there.as_ref().map(|thing| &thing.fields), |field| {
                let changers = changers(&key, field);
                let can = |(_, kind): &&(u64, &str)| changers.is_empty() || changers.contains(kind);
                deeds.iter().rfind(can).or(deeds.last()).map(|(number, _)| *number)
            });
            if there.is_some() {
                self.awaited.remove(&key);
            } else if !self.before.contains(&key) && !self.awaited.contains(&key) {
                self.by_key.remove(&key);
                self.replicas.remove(&key);
            }
        }
    }

    /// This is what a thing is now.
    fn seen(&mut self, key: &str, fields: Option<&Fields>, deed_of: impl Fn(&str) -> Option<u64>) {
        let nothing = Fields::new();
        let (was, is) = (self.now.get(key).unwrap_or(&nothing), fields.unwrap_or(&nothing));
        if was == is {
            return;
        }
        self.by_key.entry(key.to_owned()).or_default().credit(was, is, deed_of);
        match fields {
            Some(fields) => self.now.insert(key.to_owned(), fields.clone()),
            None => self.now.remove(key),
        };
    }

    /// The replicas of a cluster of which anything is known; they are not waited for any more.
    fn give_up_replicas_of(&mut self, cluster: ClusterId) -> Vec<String> {
        let prefix = replica_key(cluster, "");
        self.awaited.retain(|key| !key.starts_with(&prefix));
        let is_one = |key: &&String| key.starts_with(&prefix);
        let done = self.by_key.range(prefix.clone()..).map(|(key, _)| key).take_while(is_one);
        let there = self.now.range(prefix.clone()..).map(|(key, _)| key).take_while(is_one);
        done.chain(there).cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn note(&mut self, step: &Step<'_>) {
        let caused = step.applied.causes.iter().zip(&step.applied.events);
        for (cause, event) in caused {
            let told = Told { step, event, cause: *cause };
            match event {
                Event::SignalsReported { cluster, observations, .. } => {
                    for observation in observations {
                        let (Seen::Replica { name, .. }
                        | Seen::ReplicaGone { name, .. }
                        | Seen::Hydration { replica: name, .. }) = &observation.seen
                        else {
                            continue;
                        };
                        let key = replica_key(*cluster, name);
                        let links = self.replicas.get(&key).cloned().unwrap_or_default();
                        self.tell(&told, [key], &links);
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
                    let replica = replica_key(action.cluster, action.call.replica());
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
                    let links = Links { decision: Some(decision.id.to_string()), ..Links::default() };
                    self.tell(&told, [cluster_key(decision.cluster)], &links);
                }
                Event::ClusterPaused { cluster, .. }
                | Event::ClusterResumed { cluster, .. }
                | Event::ClusterWoken { cluster, .. }
                | Event::ClusterOverridden { cluster, .. }
                | Event::OverrideEnded { cluster, .. }
                | Event::ClusterKnowledgeRestored { cluster, .. } => {
                    self.tell(&told, [cluster_key(*cluster)], &Links::default());
                }
                Event::ClusterCreated { cluster }
                | Event::ClusterPlaced { cluster, .. }
                | Event::ClusterRestored { cluster } => {
                    self.tell(&told, [cluster_key(cluster.id)], &Links::default());
                }
                Event::ClusterRenamed { cluster, .. } => {
                    let mut keys = named_after(cluster.id, step.state);
                    keys.push(cluster_key(cluster.id));
                    self.tell(&told, keys, &Links::default());
                }
                Event::ClusterDropped { cluster } => {
                    // Its replicas are forgotten with it.
                    let mut keys = self.give_up_replicas_of(cluster.id);
                    keys.push(cluster_key(cluster.id));
                    self.tell(&told, keys, &Links::default());
                }
                Event::RulesRaised { .. } | Event::LeaderAnnounced { .. } => {
                    self.tell(&told, [GROUP.to_owned()], &Links::default());
                }
                Event::RestoreFinished { .. } => self.restored(&told),
                other => {
                    let changes = resource_changes(std::slice::from_ref(other));
                    let keys: BTreeSet<String> = changes.iter().map(|change| change.name.to_string()).collect();
                    self.tell(&told, keys, &Links::default());
                }
            }
        }
    }

    /// Everything is as the backup has it: what is not what it was, or not there any more, is so because of this. What the backup held follows
    /// as events of its own.
    fn restored(&mut self, told: &Told<'_>) {
        self.awaited.clear();
        let there = things(told.step.state);
        let is = |key: &String| there.get(key).map(|thing| &thing.fields);
        let mut keys: Vec<String> = self.now.keys().filter(|key| is(key) != self.now.get(*key)).cloned().collect();
        keys.extend(there.keys().filter(|key| !self.now.contains_key(*key)).cloned());
        keys.push(GROUP.to_owned());
        self.tell(told, keys.into_iter().collect::<BTreeSet<_>>(), &Links::default());
        for key in self.by_key.keys() {
            self.touched.entry(key.clone()).or_default();
        }
    }

    fn tell(&mut self, told: &Told<'_>, keys: impl IntoIterator<Item = String>, links: &Links) {
        let Told { step, event, cause } = told;
        let asked = asker(step.entry, *cause);
        for key in keys {
            let Links { decision, action, by } = links.clone();
            let deed = Deed {
                index: step.applied.index.0,
                at: step.applied.time,
                kind: event.kind_name(),
                what: words_asked(event, asked, step.state),
                who: asked.map(Who::from),
                decision,
                action,
                by,
            };
            self.deeds += 1;
            let number = self.deeds;
            self.by_key.entry(key.clone()).or_default().push(number, deed);
            if let Some(told) = told_by(event, step.state) {
                let mut fields = told.fields;
                self.keep_what_others_change(&key, event.kind_name(), &mut fields);
                self.seen(&key, Some(&fields), |_| Some(number));
            }
            self.touched.entry(key).or_default().push((number, event.kind_name()));
        }
    }

    /// An event carries the whole thing, and names are read as they are after the entry: what it cannot have changed is still what it was.
    fn keep_what_others_change(&self, key: &str, kind: &str, fields: &mut Fields) {
        let Some(now) = self.now.get(key) else { return };
        let others = |field: &String| {
            let changers = changers(key, field);
            !changers.is_empty() && !changers.contains(&kind)
        };
        for field in fields_of_either(now, &fields.clone()).filter(|field| others(field)) {
            match now.get(field) {
                Some(value) => fields.insert(field.clone(), value.clone()),
                None => fields.remove(field),
            };
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
    use std::path::Path;

    use super::*;
    use crate::day::Day;
    use crate::made::Made;
    use crate::replay::{Moment, Start, replay};
    use crate::{ExportFile, Source};

    #[test]
    fn what_is_remembered_goes_with_what_there_is_and_not_with_what_has_happened() {
        let mut day = Day::new(10, 1).with_failover_every(700);
        let made = Made { records: (0..12_000).map(|_| day.record()).collect(), kept: None };
        let before = replay(&made, Start::Beginning, Moment::Index(300), |_| {}).unwrap().state;
        let there = things(&before);
        let mut deeds = Deeds::since(&there);
        let (mut actions, mut most) = (BTreeSet::new(), 0);
        replay(&made, Start::From(Box::new(before)), Moment::End, |step| {
            deeds.add(step);
            actions.extend(step.applied.events.iter().filter_map(Event::action).map(|action| action.id));
            let known = deeds.by_key.len();
            most = most.max(known);
            assert!(deeds.replicas.len() <= known, "{:?}", deeds.replicas.keys());
            if step.record.index % 100 == 0 {
                let now = things(step.state);
                let told = deeds.by_key.keys().filter(|name| !there.contains_key(*name) && !now.contains_key(*name));
                // What an action has made shows up a little later.
                let told: Vec<&String> = told.filter(|name| !deeds.awaited.contains(*name)).collect();
                assert_eq!(told, Vec::<&String>::new(), "at entry {}", step.record.index);
            }
        })
        .unwrap();
        assert!(actions.len() > 2 * most, "{} actions, and {most} things at most", actions.len());
    }

    /// Compares with looking at everything after every entry.
    fn check_every_field(source: &dyn Source, from: Moment) {
        let before = replay(source, Start::Beginning, from, |_| {}).unwrap().state;
        let there = things(&before);
        let mut deeds = Deeds::since(&there);
        let mut last = there.clone();
        let mut changed: BTreeMap<(String, String), u64> = BTreeMap::new();
        let after = replay(source, Start::From(Box::new(before)), Moment::End, |step| {
            deeds.add(step);
            let now = things(step.state);
            let nothing = Fields::new();
            let keys: BTreeSet<String> = last.keys().chain(now.keys()).cloned().collect();
            for key in keys {
                let of = |all: &BTreeMap<String, Thing>| all.get(&key).map(|thing| thing.fields.clone());
                let (was, is) = (of(&last).unwrap_or(nothing.clone()), of(&now).unwrap_or(nothing.clone()));
                for field in fields_of_either(&was, &is).filter(|field| was.get(*field) != is.get(*field)) {
                    changed.insert((key.clone(), field.clone()), step.record.index);
                }
            }
            last = now;
        })
        .unwrap()
        .state;
        let now = things(&after);
        let nothing = Fields::new();
        let keys: BTreeSet<&String> = there.keys().chain(now.keys()).collect();
        for key in keys {
            let of = |all: &BTreeMap<String, Thing>| all.get(key).map(|thing| thing.fields.clone());
            let (was, is) = (of(&there).unwrap_or(nothing.clone()), of(&now).unwrap_or(nothing.clone()));
            let done = deeds.take(key);
            for field in fields_of_either(&was, &is).filter(|field| was.get(*field) != is.get(*field)) {
                let credited = done.of(field).map(|at| done.deeds[at].1.index);
                let told: Vec<(u64, &str)> = done.deeds.iter().map(|(_, deed)| (deed.index, deed.kind)).collect();
                assert_eq!(credited, changed.get(&(key.clone(), field.clone())).copied(), "{key} {field}: {told:?}");
            }
        }
    }

    #[test]
    fn every_field_comes_from_the_last_entry_across_which_it_changed() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/everything.format1.rules1.export");
        let everything = ExportFile::open(&golden).unwrap();
        let last = *everything.range().unwrap().end();
        for from in [0, last / 4, last / 2] {
            check_every_field(&everything, Moment::Index(from));
        }
        let mut day = Day::new(4, 1).with_failover_every(300);
        let made = Made { records: (0..1_500).map(|_| day.record()).collect(), kept: None };
        check_every_field(&made, Moment::Index(200));
    }
}
